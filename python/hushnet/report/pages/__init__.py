"""An explanation as one self-contained page: no script, no font, no picture from elsewhere."""

from .document import page

__all__ = ["page"]

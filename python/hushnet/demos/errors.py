"""The error of this package."""

from hushnet.errors import HushnetError


class DemoError(HushnetError, ValueError):
    """A demo cannot run as asked; the message says what to do."""

"""The error of this package."""

from hushnet.errors import HushnetError


class ZooError(HushnetError, ValueError):
    """An architecture cannot be built as asked; the message says what is possible."""

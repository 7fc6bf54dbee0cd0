"""The error of this package."""

from hushnet.errors import HushnetError


class DataError(HushnetError, ValueError):
    """A data file is not what it must be, or a data set cannot be made; the message says what to do."""

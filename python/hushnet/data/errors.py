"""The error of this package."""


class DataError(ValueError):
    """A data file is not what it must be, or a data set cannot be made; the message says what to do."""

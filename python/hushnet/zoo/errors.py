"""The error of this package."""


class ZooError(ValueError):
    """An architecture cannot be built as asked; the message says what is possible."""

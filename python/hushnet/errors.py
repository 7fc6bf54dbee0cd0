"""Every error that Hushnet raises on purpose. Each message names the layer or message, the limit, what came, and what to do."""


class HushnetError(Exception):
    """Base of all."""


class InputError(HushnetError, ValueError):
    """What the caller passed: a wrong shape, dtype, name, path or option, or values that are not finite."""


class PlanError(HushnetError, ValueError):
    """A plan cannot be made, or a plan file is not what it must be."""


class RangeError(HushnetError, ValueError):
    """A value left the range that the plan was made for; the message names the tensor and the stage.

    Attributes:
        tensor: name of the tensor.
        finite: False when the value was NaN or infinite.
    """

    def __init__(self, message: str, tensor: str = "", *, finite: bool = True) -> None:
        super().__init__(message)
        self.tensor, self.finite = tensor, finite


class ProtocolError(HushnetError):
    """The peer sent something that the protocol does not allow, or refused what we sent."""


class TransportError(HushnetError):
    """No connection, or one that broke."""

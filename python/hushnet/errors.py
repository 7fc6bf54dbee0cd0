"""Every error that Hushnet raises on purpose.

Each message names the layer or message, the limit, what came, and what to do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


class HushnetError(Exception):
    """Base of all."""


class InputError(HushnetError, ValueError):
    """What the caller passed: a wrong shape, dtype, name, path or option, or values that are not finite."""


class PlanError(HushnetError, ValueError):
    """A plan cannot be made, or a plan file is not what it must be."""


@dataclass(frozen=True)
class Blocked:
    """One node that a trust model cannot take.

    Attributes:
        node: name of the graph's node; of the model itself "model".
        op: what it computes.
        problem: what is wrong, without a full stop.
        advice: what to do about it, as sentences.
    """

    node: str
    op: str
    problem: str
    advice: str


class BlockedPlan(PlanError):
    """A network with nodes that a trust model cannot take; ``blocked`` lists all of them."""

    def __init__(self, message: str, blocked: Sequence[Blocked]) -> None:
        super().__init__(message)
        self.blocked = tuple(blocked)


class RangeError(HushnetError, ValueError):
    """A value left the range that the plan was made for; the message names the tensor and the stage.

    A value outside is clamped to its range and the run goes on with the same messages: the server cannot tell such a
    run from any other. ``hushnet.run`` and ``Connection.infer`` raise no such error: ``Result.out_of_range`` has the
    rows and ``Result.range_error`` the first value. It is raised where the server is faulty (``answer``). The session
    stays open.

    Attributes:
        tensor: name of the tensor.
        finite: False when the value was NaN or infinite.
        stage: name of the stage that computed the first value outside.
        image, element: where that value stands: the image in the whole input, the position in the tensor, row-major.
        value: what it was.
        bound: the largest value planned; None for a real tensor, which takes every finite number.
        low: the least value planned.
        answer: True when the server's answer decrypts to a value that no weights of the plan give; the server is
            faulty.
        images: how many images have a value outside; ``affected``: which. 0 when nobody counted.
        values: how many values are outside, those that follow from earlier ones included.
    """

    def __init__(self, message: str, tensor: str = "", *, finite: bool = True, stage: str = "") -> None:
        super().__init__(message)
        self.tensor, self.finite, self.stage = tensor, finite, stage
        self.image: int | None = None
        self.element: int | None = None
        self.value: float | None = None
        self.bound: float | None = None
        self.low: float | None = None
        self.answer = False
        self.affected: list[int] = []
        self.images = self.values = 0


class ProtocolError(HushnetError):
    """The peer sent something that the protocol does not allow, or refused what we sent."""


class TransportError(HushnetError):
    """No connection, or one that broke."""

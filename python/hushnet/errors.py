"""Every error that Hushnet raises on purpose.

Each message names the layer or message, the limit, what came, and what to do.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import permutations
from typing import Any


def choose(name: object, known: Iterable[str]) -> str:
    """What to do about a name that is not among the known ones: these, and the nearest one."""
    names = list(known)
    near = difflib.get_close_matches(str(name), names, n=1)
    return f"choose one of {', '.join(names)}" + (f" (did you mean {near[0]!r}?)" if near else "")


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


class OptionError(PlanError):
    """An option that the trust model does not have, or a value that it does not take.

    Attributes:
        option: its name as it was given; of several unknown ones the first.
        value: what was given.
        trust: the trust model that was asked for.
        takes: the trust models that have the option, or the one that was probably meant.
        nearest: that one's name; "" where there is none, or the name exists.
    """

    def __init__(
        self, message: str, option: str, value: Any, *, trust: str = "", takes: Sequence[str] = (), nearest: str = ""
    ) -> None:
        super().__init__(message)
        self.option, self.value, self.trust = option, value, trust
        self.takes, self.nearest = tuple(takes), nearest


class LimitError(PlanError):
    """A network that needs more than there may be.

    Attributes:
        what: "memory", of client and server together, or "modulus", of a ciphertext.
        needed: what the network needs at least; None where nothing that was tried is enough.
        limit: what there may be: ``max_memory``, or what 128 bits of security allow.
        unit: of both: "bytes" or "bits".
    """

    def __init__(self, message: str, what: str, *, needed: float | None, limit: float, unit: str) -> None:
        super().__init__(message)
        self.what, self.needed, self.limit, self.unit = what, needed, limit, unit


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
        answer: True when the server's answer decrypts to a value that no weights of the plan give, or to the noise
            that a ciphertext under other keys holds; the server, the connection or the keys are faulty.
        input, position, given: where the value is made of one element of an input, that input's name, the element's
            index in an image, and what was passed; "" and None where it is not.
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
        self.input = ""
        self.position: tuple[int, ...] | None = None
        self.given: float | None = None
        self.answer = False
        self.affected: list[int] = []
        self.images = self.values = 0


class ProtocolError(HushnetError):
    """The peer sent something that the protocol does not allow, or refused what we sent.

    Attributes:
        code: what the peer's Error frame says (docs/wire-protocol.md); None where none came.
        retry_after: seconds after which it says that trying again is worth it; None where it says nothing of it.
    """

    code: int | None = None
    retry_after: float | None = None


class PreparedError(ProtocolError):
    """Inferences cannot be prepared, or there are no prepared ones for these images. Nothing has run in their place.

    Where the server refused, ``code`` is 10, and what the client had spent for the refused images is gone.
    """


class TransportError(HushnetError):
    """No connection, or one that broke."""


class DataError(HushnetError, ValueError):
    """A data file is not what it must be, or a data set cannot be made; the message says what to do."""


class ZooError(HushnetError, ValueError):
    """An architecture cannot be built as asked; the message says what is possible."""


class DemoError(HushnetError, ValueError):
    """A demo cannot run as asked; the message says what to do."""


@contextmanager
def asked() -> Iterator[None]:
    """Around a call that checks what the caller passes: its ``ValueError`` is an :class:`InputError`."""
    try:
        yield
    except HushnetError:
        raise
    except ValueError as error:
        raise InputError(str(error)) from error


def axes_hint(shape: Sequence[int], wanted: Sequence[int]) -> str:
    """What to do about an array ``[images, ...]`` whose axes, or numbers, seem to stand in another order; else nothing.

    Args:
        shape: of the array.
        wanted: of one image.
    """
    image, wanted = tuple(shape[1:]), tuple(wanted)
    if image == wanted or len(shape) < 1:
        return ""
    for order in permutations(range(len(image))) if len(image) == len(wanted) <= 4 else ():
        if tuple(image[k] for k in order) == wanted:
            axes = ", ".join(str(k) for k in (0, *(k + 1 for k in order)))
            return f" Its axes seem to stand in another order: x.transpose({axes}) has the wanted one."
    if math.prod(image) == math.prod(wanted):
        made = ", ".join(map(str, (-1, *wanted)))
        return f" Its rows have as many numbers: x.reshape({made}), if they are in this order."
    return ""

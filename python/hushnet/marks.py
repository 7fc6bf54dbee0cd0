"""What a value that left its range is made of, as its user knows it: an element of an input.

Scaled and rounded it has another name: those of tensors between an input and the first message are the planner's, and
public parts have neutral ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from hushnet.errors import RangeError
from hushnet.reference.ops import OPS

Array = np.ndarray

_MOVES = frozenset({"reshape", "transpose", "concat", "slice", "pad", "broadcast", "gather"})
# one element of the result is made of the same one of the only operand
_SAME = frozenset(
    ("quantize", "dequantize", "affine", "relu", "leaky_relu", "prelu", "channel_scale", "clip", "abs", "neg", "sqrt")
    + ("square", "sigmoid", "tanh", "exp", "erf", "log", "sin", "cos", "atan", "floor", "round", "hard_sigmoid")
    + ("hard_swish", "silu", "gelu", "gelu_tanh", "elu")
)
# the place of what no input's element stands at
_NONE = -1


def explain(mark: RangeError, document: Mapping[str, Any], inputs: Mapping[str, Array]) -> None:
    """Adds to a mark which element of which input it is made of, where it is made of one; the message names it.

    Args:
        document: of the plan that the run had: the public part, where the client has no other.
        inputs: of the whole run.
    """
    if mark.tensor in inputs and mark.element is not None:
        found: tuple[str, int] | None = (mark.tensor, mark.element)
    else:
        found = _source(document, mark.tensor, mark.element)
    if found is None or mark.image is None:
        return
    name, place = found
    values = np.asarray(inputs[name])
    mark.input, mark.position = name, tuple(int(k) for k in np.unravel_index(place, values.shape[1:]))
    mark.given = float(values[(mark.image, *mark.position)])
    if mark.tensor == name:
        return
    at = ", ".join(map(str, mark.position))
    mark.args = (str(mark).replace(f"tensor '{mark.tensor}'", f"input '{name}' at [{at}], {mark.given:.6g}", 1),)


def _source(document: Mapping[str, Any], tensor: str, element: int | None) -> tuple[str, int] | None:
    """The input and the place in it that an element of a tensor at the client is made of."""
    shapes = {t["id"]: tuple(t["shape"]) for t in document["tensors"]}
    ids = {t["name"]: t["id"] for t in document["tensors"]}
    ports = document["inputs"]
    if element is None or tensor not in ids:
        return None
    places: dict[int, Array] = {}
    start = 0
    for port in ports:
        size = int(np.prod(shapes[port["tensor"]], dtype=np.int64))
        places[port["tensor"]] = np.arange(start, start + size).reshape((1, *shapes[port["tensor"]]))
        start += size
    for op in (op for stage in document["stages"] if stage["kind"] == "client" for op in stage["ops"]):
        if all(t in places for t in op["in"]):
            made = _made(op, [places[t] for t in op["in"]], shapes[op["out"]])
            if made is not None:
                places[op["out"]] = made
    if ids[tensor] not in places:
        return None
    place = int(places[ids[tensor]].reshape(-1)[element])
    for port in ports:
        size = int(np.prod(shapes[port["tensor"]], dtype=np.int64))
        if 0 <= place < size:
            return port["name"], place
        place -= size
    return None


def _made(op: Mapping[str, Any], xs: list[Array], shape: tuple[int, ...]) -> Array | None:
    """Places of an operation's result; None where its elements are made of several."""
    if op["op"] in _SAME:
        return xs[0]
    if op["op"] in _MOVES:
        return OPS[op["op"]]({**op, "value": _NONE}, xs, shape)
    if op["op"] == "interpolate":
        first, *others = (np.take(xs[0], np.asarray(t, np.int64), axis=op["axis"] + 1) for t in op["indices"])
        return first if all((other == _NONE).all() for other in others) else None
    return None

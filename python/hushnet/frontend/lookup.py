"""Private look-ups: ``Gather`` from a constant table at indices that depend on the network's input, and ``OneHot``.

Questions of finite values.

The owner of the input writes an index as a vector of zeros with a one at its place; the table is then the matrix of a
linear layer, whose weights stay the server's and whose cost is that of any layer. An index outside of the table gives
zeros.
"""

from __future__ import annotations

import math

import numpy as np

from .builder import Builder, Value
from .call import Call
from .errors import Unsupported
from .operators.matmul import contract
from .registry import operator


def one_hot(build: Builder, x: Value, depth: int) -> Value:
    """A last axis of ``depth``: 1 where it equals x, else 0; negative x count from the end. x holds integers.

    The comparison gives exact zeros and ones, which the planner knows: such a tensor takes two bits, without rounding.
    """
    negative = build.client("less", x, build.affine(x, 0.0, 0.0))
    place = build.client("add", x, build.affine(negative, float(depth), 0.0))
    shape = (*x.shape, depth)
    places = build.broadcast(_counting(build, x, depth), shape)
    return build.client("equal", build.broadcast(build.reshape(place, (*x.shape, 1)), shape), places)


def _counting(build: Builder, x: Value, count: int) -> Value:
    """``0, ..., count - 1``: a zero of x's, doubled with as much added until it is long enough."""
    flat = build.reshape(x, (x.size,))
    numbers = build.affine(build.slice(flat, 0, 0, 1), 0.0, 0.0)
    while (have := numbers.shape[0]) < count:
        numbers = build.client("concat", numbers, build.affine(numbers, 1.0, float(have)), shape=(2 * have,), axis=0)
    return build.slice(numbers, 0, 0, count)


def gather(call: Call, build: Builder) -> Value:
    """Rows of a constant table at private indices: one-hot vectors times the table.

    A table of integers is taken where all that reads them converts them to real numbers (``DequantizeLinear``).
    """
    table = call.constant(0)
    x = call.tensor(1)
    if table.dtype.kind in "iub" and call.exact:
        raise Unsupported(
            f"a look-up in a table of {table.dtype}, whose result would be rounded", "Store the table in float."
        )
    if table.ndim < 1:
        raise Unsupported("a look-up in a scalar", "Export the model again.")
    axis = int(call.attribute("axis", 0))
    axis = axis + table.ndim if axis < 0 else axis
    if not 0 <= axis < table.ndim:
        raise Unsupported(f"axis {axis} of a table with {table.ndim} axes", "Export the model again.")
    if axis and not call.whole:
        raise Unsupported(
            "a look-up along an inner axis puts the batch behind others",
            "Transpose the table, so that its rows are looked up.",
        )
    rows = np.moveaxis(table, axis, 0)
    hot = one_hot(build, x, rows.shape[0])
    width = math.prod(rows.shape[1:])
    y = contract(build, hot, rows.reshape(1, rows.shape[0], width), 0, len(x.shape))
    y = build.reshape(y, (*x.shape, *rows.shape[1:]))
    # the axes in front of the one that is looked up come first
    own = len(x.shape)
    return build.transpose(y, [*range(own, own + axis), *range(own), *range(own + axis, len(y.shape))])


@operator("OneHot")
def one_hot_operator(call: Call, build: Builder) -> Value:
    """``values[1]`` at the index, ``values[0]`` elsewhere, along a new axis."""
    x = call.tensor(0)
    depth, values = call.scalar(1), call.constant(2).astype(np.float64).reshape(-1)
    if depth is None or depth < 1 or values.size != 2:
        raise Unsupported(f"a depth of {depth} and {values.size} values", "Export the model again.")
    off, on = (float(v) for v in values)
    y = build.affine(one_hot(build, x, int(depth)), on - off, off)
    rank = len(x.shape)
    return build.move_axis(y, rank, call.axis(int(call.attribute("axis", -1)), rank + 1))


@operator("IsNaN", "IsInf", batch_anywhere=True)
def never(call: Call, build: Builder) -> Value:
    """No: values of a run are finite, or the run ends with a range error."""
    for name in ("detect_negative", "detect_positive"):
        call.attribute(name)
    return build.affine(call.tensor(), 0.0, 0.0)

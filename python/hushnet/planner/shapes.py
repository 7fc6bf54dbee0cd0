"""Per-image output shapes of client ops, from attributes and input shapes; used to check graphs and plans.

A rule takes (attributes, input shapes, declared output shape) and returns the shape that must be, or raises
``ValueError`` (KeyError, TypeError and IndexError of wrong attributes included) when the op cannot be.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

Shape = tuple[int, ...]
ShapeRule = Callable[[dict[str, Any], list[Shape], Shape], Shape]


def same(_attrs: dict[str, Any], ins: list[Shape], _out: Shape) -> Shape:
    """All of one shape."""
    if any(s != ins[0] for s in ins):
        raise ValueError(f"inputs of different shapes {ins}")
    return ins[0]


def prelu(attrs: dict[str, Any], ins: list[Shape], out: Shape) -> Shape:
    """As its input; one slope, or one a channel."""
    return _one_a_channel(attrs["slope"], attrs, ins, out)


def channel_scale(attrs: dict[str, Any], ins: list[Shape], out: Shape) -> Shape:
    """As its input; one positive factor, or one a channel."""
    if any(not 0 < f < math.inf for f in attrs["factor"]):
        raise ValueError("factors must be positive")
    return _one_a_channel(attrs["factor"], attrs, ins, out)


def _one_a_channel(values: list[float], attrs: dict[str, Any], ins: list[Shape], out: Shape) -> Shape:
    if len(values) not in {1, ins[0][0]}:
        raise ValueError(f"{len(values)} values for {ins[0][0]} channels")
    return same(attrs, ins, out)


def pool(attrs: dict[str, Any], ins: list[Shape], out: Shape) -> Shape:
    """Any of the sizes that floor and ceiling rounding give."""
    (shape,) = ins
    kernel = attrs["kernel"]
    rank = len(kernel)
    stride = attrs.get("stride") or [1] * rank
    pads = attrs.get("pads") or [0] * (2 * rank)
    dilation = attrs.get("dilation") or [1] * rank
    if (
        rank != len(shape) - 1
        or len(stride) != rank
        or len(pads) != 2 * rank
        or len(dilation) != rank
        or len(out) != len(shape)
    ):
        raise ValueError(f"a window of {rank} axes on a tensor of shape {shape}")
    if min(*kernel, *stride, *dilation) < 1 or min(pads) < 0 or out[0] != shape[0]:
        raise ValueError("kernel, stride and dilation must be positive, pads not negative, channels kept")
    for axis in range(rank):
        reach = dilation[axis] * (kernel[axis] - 1)
        if pads[axis] > reach or pads[rank + axis] > reach:
            raise ValueError("padding as large as the window: some windows see nothing of the input")
        span = shape[1 + axis] + pads[axis] + pads[rank + axis] - reach - 1
        least = span // stride[axis] + 1
        if span < 0 or not least <= out[1 + axis] <= -(-span // stride[axis]) + 1:
            raise ValueError(f"a window that gives {least} positions on axis {1 + axis}, not {out[1 + axis]}")
        if (out[1 + axis] - 1) * stride[axis] - pads[axis] >= shape[1 + axis]:
            raise ValueError("the last window sees nothing of the input")
    return out


def reduced(attrs: dict[str, Any], ins: list[Shape], out: Shape) -> Shape:
    """The kept axes, with or without ones for the reduced."""
    axes = set(_axes(attrs["axes"], len(ins[0])))
    dropped = tuple(n for a, n in enumerate(ins[0]) if a not in axes)
    return out if out == dropped else tuple(1 if a in axes else n for a, n in enumerate(ins[0]))


def reshaped(_attrs: dict[str, Any], ins: list[Shape], out: Shape) -> Shape:
    """Any of as many elements."""
    if math.prod(ins[0]) != math.prod(out):
        raise ValueError(f"{math.prod(ins[0])} elements cannot take shape {out}")
    return out


def transposed(attrs: dict[str, Any], ins: list[Shape], _out: Shape) -> Shape:
    """Axes permuted."""
    if sorted(attrs["perm"]) != list(range(len(ins[0]))):
        raise ValueError(f"perm {attrs['perm']} is no permutation of {len(ins[0])} axes")
    return tuple(ins[0][p] for p in attrs["perm"])


def joined(attrs: dict[str, Any], ins: list[Shape], _out: Shape) -> Shape:
    """Sizes added on one axis."""
    (axis,) = _axes([attrs["axis"]], len(ins[0]))
    rest = {s[:axis] + s[axis + 1 :] for s in ins}
    if len(rest) != 1:
        raise ValueError(f"inputs of shapes {ins} cannot be joined on axis {axis}")
    return (*ins[0][:axis], sum(s[axis] for s in ins), *ins[0][axis + 1 :])


def sliced(attrs: dict[str, Any], ins: list[Shape], out: Shape) -> Shape:
    """Every ``step``-th element from ``start``; the count is told by the out shape and must lie within."""
    axes = _axes(attrs["axes"], len(ins[0]))
    if not len(axes) == len(attrs["starts"]) == len(attrs["steps"]) == len(attrs["ends"]) or len(out) != len(ins[0]):
        raise ValueError("starts, ends, steps and axes of different lengths")
    shape = list(ins[0])
    for axis, start, step in zip(axes, attrs["starts"], attrs["steps"]):
        last = start + step * (out[axis] - 1)
        if step == 0 or out[axis] < 1 or not (0 <= start < shape[axis] and 0 <= last < shape[axis]):
            raise ValueError(f"elements {start} to {last} of axis {axis} with {shape[axis]}")
        shape[axis] = out[axis]
    return tuple(shape)


def padded(attrs: dict[str, Any], ins: list[Shape], _out: Shape) -> Shape:
    """Sizes grown by the pads."""
    rank = len(ins[0])
    pads = attrs["pads"]
    if len(pads) != 2 * rank or min(pads, default=0) < 0:
        raise ValueError(f"pads {pads} for {rank} axes")
    return tuple(n + pads[a] + pads[rank + a] for a, n in enumerate(ins[0]))


def broadcast(_attrs: dict[str, Any], ins: list[Shape], out: Shape) -> Shape:
    """NumPy's rules."""
    tail = out[len(out) - len(ins[0]) :]
    if len(out) < len(ins[0]) or any(n not in (1, m) for n, m in zip(ins[0], tail)):
        raise ValueError(f"shape {ins[0]} does not broadcast to {out}")
    return out


def gathered(attrs: dict[str, Any], ins: list[Shape], _out: Shape) -> Shape:
    """As many elements on the axis as there are indices."""
    return _taken(attrs["axis"], attrs["indices"], ins[0])


def interpolated(attrs: dict[str, Any], ins: list[Shape], _out: Shape) -> Shape:
    """As many elements on the axis as every tap has indices and weights."""
    taps = list(zip(attrs["indices"], attrs["weights"]))
    if not taps or len(attrs["indices"]) != len(attrs["weights"]) or any(len(i) != len(w) for i, w in taps):
        raise ValueError("indices and weights of different lengths")
    if not all(math.isfinite(v) for w in attrs["weights"] for v in w):
        raise ValueError("weights must be finite")
    shapes = {_taken(attrs["axis"], i, ins[0]) for i, _ in taps}
    if len(shapes) != 1:
        raise ValueError("taps of different lengths")
    return shapes.pop()


def _taken(axis: int, indices: list[int], shape: Shape) -> Shape:
    _axes([axis], len(shape))
    if not indices or any(not 0 <= i < shape[axis] for i in indices):
        raise ValueError(f"indices of axis {axis} with {shape[axis]} elements")
    return (*shape[:axis], len(indices), *shape[axis + 1 :])


def multiplied(_attrs: dict[str, Any], ins: list[Shape], _out: Shape) -> Shape:
    """(..., M, K) and (..., K, N), the same axes in front."""
    left, right = ins
    if len(left) < 2 or len(left) != len(right) or left[:-2] != right[:-2] or left[-1] != right[-2]:
        raise ValueError(f"matrices of shapes {left} and {right} do not multiply")
    return left[:-1] + right[-1:]


def selected(attrs: dict[str, Any], ins: list[Shape], out: Shape) -> Shape:
    """Some of the elements of an axis; the count is told by the out shape."""
    (axis,) = _axes([attrs["axis"]], len(ins[0]))
    if len(out) != len(ins[0]) or not 1 <= out[axis] <= ins[0][axis] or attrs["what"] not in {"values", "indices"}:
        raise ValueError(f"a selection of shape {out} from axis {axis} of {ins[0]}")
    return (*ins[0][:axis], out[axis], *ins[0][axis + 1 :])


def _axes(axes: list[int], rank: int) -> list[int]:
    if any(not 0 <= a < rank for a in axes) or len(set(axes)) != len(axes):
        raise ValueError(f"axes {axes} of a tensor with {rank}")
    return list(axes)

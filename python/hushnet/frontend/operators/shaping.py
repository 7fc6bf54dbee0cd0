"""Changes of shape: Reshape, Flatten, Squeeze, Unsqueeze, Transpose, Expand, DepthToSpace."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ..builder import Builder, Value
from ..call import Call
from ..errors import Unsupported
from ..registry import operator


def to_shape(call: Call, build: Builder, x: Value, full: Sequence[int]) -> Value:
    """X with the given shape, batch included; values never move from one image to another."""
    full = [int(n) for n in full]
    if not full or full[0] != call.batch or math.prod(full[1:]) != x.size:
        raise Unsupported(
            f"a reshape from {(call.batch, *x.shape)} to {tuple(full)} moves values across the batch axis",
            "Keep the batch axis in front: Flatten(axis=1), or Reshape to (0, ...) or (-1, ...).",
        )
    return build.reshape(x, full[1:])


@operator("Reshape", batch_anywhere=True)
def reshape(call: Call, build: Builder) -> Value:
    """-1 and 0 as ONNX has them."""
    x = call.tensor(0)
    old = _full(call, x)
    given = call.integers(1) or []
    new = list(given)
    if not call.attribute("allowzero", 0):
        if any(n == 0 and a >= len(old) for a, n in enumerate(new)):
            raise Unsupported(f"a 0 in shape {new} beyond the {len(old)} axes of the input", "Export the model again.")
        new = [old[a] if n == 0 else n for a, n in enumerate(new)]
    if new.count(-1) == 1:
        known = math.prod(n for n in new if n != -1)
        if known == 0 or math.prod(old) % known:
            raise Unsupported(f"shape {new} for {math.prod(old)} elements", "Export the model again.")
        new[new.index(-1)] = math.prod(old) // known
    if x.batch_axis:
        return _behind(call, build, x, given, new)
    return to_shape(call, build, x, new)


def _full(call: Call, x: Value) -> tuple[int, ...]:
    """The ONNX shape, batch included."""
    return (*x.shape[: x.batch_axis], call.batch, *x.shape[x.batch_axis :])


def _behind(call: Call, build: Builder, x: Value, given: Sequence[int], new: Sequence[int]) -> Value:
    """A reshape of a tensor whose batch is not in front: as many elements must stay before it, and behind it."""
    before = math.prod(x.shape[: x.batch_axis])
    found = [
        a
        for a, n in enumerate(new)
        if n == call.batch and math.prod(new[:a]) == before and math.prod(new) == x.size * call.batch
    ]
    # of several axes of that size the one that the model copies
    copied = [a for a in found if given[a] in (0, -1)]
    chosen = x.batch_axis if x.batch_axis in found else next(iter(copied or found), None)
    if chosen is None:
        raise Unsupported(
            f"a reshape from {_full(call, x)} to {tuple(new)} moves values across the batch, "
            f"which is axis {x.batch_axis}",
            "Keep the batch axis in front (drop the Transpose that moves it).",
        )
    y = build.reshape(x, [n for a, n in enumerate(new) if a != chosen])
    return Value(y.name, y.shape, chosen)


@operator("Flatten")
def flatten(call: Call, build: Builder) -> Value:
    """Axes before and after ``axis`` joined; the first must be the batch alone."""
    x = call.tensor(0)
    full = (call.batch, *x.shape)
    axis = int(call.attribute("axis", 1))
    axis = axis + len(full) if axis < 0 else axis
    if axis == 0 and not (call.fixed_batch and call.batch == 1):
        raise Unsupported("it joins the batch axis with the others", "Use Flatten(axis=1).")
    return to_shape(call, build, x, (math.prod(full[:axis]), math.prod(full[axis:])))


@operator("Squeeze", batch_anywhere=True)
def squeeze(call: Call, build: Builder) -> Value:
    """Axes of size 1 dropped, the batch never."""
    x = call.tensor(0)
    given = call.integers(1, "axes")
    if given is None:
        if call.fixed_batch and call.batch == 1:
            raise Unsupported("it drops every axis of size 1, the batch too", "Name the axes, without 0.")
        axes = {a for a, n in enumerate(x.shape) if n == 1}
    else:
        axes = {call.axis(a, len(x.shape), x.batch_axis) for a in given}
    if any(x.shape[a] != 1 for a in axes):
        raise Unsupported(
            f"axes {given} of a tensor of shape {_full(call, x)} are not of size 1", "Export the model again."
        )
    y = build.reshape(x, [n for a, n in enumerate(x.shape) if a not in axes])
    return Value(y.name, y.shape, x.batch_axis - sum(a < x.batch_axis for a in axes))


@operator("Unsqueeze", batch_anywhere=True)
def unsqueeze(call: Call, build: Builder) -> Value:
    """Axes of size 1 inserted; what stands in front of the batch moves it, which is remembered."""
    x = call.tensor(0)
    given = call.integers(1, "axes") or []
    rank = len(x.shape) + len(given)
    full = {a + rank + 1 if a < 0 else a for a in given}
    kept = [a for a in range(rank + 1) if a not in full]
    if len(kept) != len(x.shape) + 1:
        raise Unsupported(f"axes {given} inserted in a tensor of shape {_full(call, x)}", "Export the model again.")
    batch = kept[x.batch_axis]
    sizes = iter(x.shape)
    shape = [1 if a in full else next(sizes) for a in range(rank + 1) if a != batch]
    y = build.reshape(x, shape)
    return Value(y.name, y.shape, batch)


@operator("Transpose", batch_anywhere=True)
def transpose(call: Call, build: Builder) -> Value:
    """Any permutation; where the batch ends is remembered."""
    x = call.tensor(0)
    rank = len(x.shape) + 1
    perm = [int(p) for p in call.attribute("perm") or range(rank - 1, -1, -1)]
    if sorted(perm) != list(range(rank)):
        raise Unsupported(f"perm {perm} of {rank} axes", "Export the model again.")
    inner = [p - (1 if p > x.batch_axis else 0) for p in perm if p != x.batch_axis]
    y = build.transpose(x, inner)
    return Value(y.name, y.shape, perm.index(x.batch_axis))


@operator("Expand")
def expand(call: Call, build: Builder) -> Value:
    """Two-way broadcast against a constant shape."""
    x = call.tensor(0)
    old = (call.batch, *x.shape)
    target = call.integers(1) or []
    if len(target) > len(old):
        raise Unsupported(f"shape {target} puts axes in front of the batch", "Unsqueeze behind the batch instead.")
    try:
        full = np.broadcast_shapes(old, tuple(target))
    except ValueError:
        raise Unsupported(f"shape {old} does not broadcast with {target}", "Export the model again.") from None
    if full[0] != call.batch:
        raise Unsupported("it repeats the batch", "Keep the batch axis as it is.")
    return build.broadcast(x, full[1:])


@operator("DepthToSpace", "SpaceToDepth")
def blocks(call: Call, build: Builder) -> Value:
    """Blocks of pixels to channels and back, by reshape and transpose."""
    x = call.tensor(0)
    if len(x.shape) != 3:
        raise Unsupported(f"a tensor with {len(x.shape) + 1} axes", "Give it shape (batch, channels, height, width).")
    c, h, w = x.shape
    b = int(call.attribute("blocksize", 1))
    mode = call.attribute("mode", "DCR")
    if mode not in {"DCR", "CRD"}:
        raise Unsupported(f"the order {mode!r} of depth and columns", "Use mode DCR or CRD.")
    if call.op_type == "SpaceToDepth":
        if h % b or w % b:
            raise Unsupported(f"blocks of {b} in an image of {h} x {w}", "Pad the image.")
        order = (2, 4, 0, 1, 3) if mode == "DCR" else (0, 2, 4, 1, 3)
        y = build.transpose(build.reshape(x, (c, h // b, b, w // b, b)), order)
        return build.reshape(y, (c * b * b, h // b, w // b))
    if c % (b * b):
        raise Unsupported(f"blocks of {b} from {c} channels", "Export the model again.")
    if mode == "DCR":
        y = build.transpose(build.reshape(x, (b, b, c // (b * b), h, w)), (2, 3, 0, 4, 1))
    else:
        y = build.transpose(build.reshape(x, (c // (b * b), b, b, h, w)), (0, 3, 1, 4, 2))
    return build.reshape(y, (c // (b * b), h * b, w * b))

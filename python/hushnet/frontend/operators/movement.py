"""Data that moves: Concat, Slice, Split, Pad, Gather with constant indices, Tile."""

from __future__ import annotations

import numpy as np

from ..builder import Builder, Value
from ..call import Call
from ..errors import Unsupported
from ..registry import operator


@operator("Concat")
def concat(call: Call, build: Builder) -> Value:
    """Constant parts stay on the server: their place is padded with zeros, and a layer adds them."""
    parts: list[Value] = [call.tensor(i) for i in range(len(call.inputs)) if not call.is_constant(i)]
    rank = len(parts[0].shape)
    axis = call.axis(int(call.attribute("axis", 0)), rank)
    if len(parts) == len(call.inputs):
        return _join(build, parts, axis)
    pieces: list[Value] = []
    shifts: list[np.ndarray] = []
    waiting = 0
    for index, given in enumerate(call.inputs):
        if isinstance(given, Value):
            shape = given.shape
            pieces.append(_pad_axis(build, given, axis, waiting, 0))
            waiting = 0
            shifts.append(np.zeros(shape))
            continue
        constant = _full(call, index, parts[0])
        shifts.append(constant)
        if pieces:
            pieces[-1] = _pad_axis(build, pieces[-1], axis, 0, constant.shape[axis])
        else:
            waiting += constant.shape[axis]
    shift = np.concatenate(shifts, axis=axis)
    y = _join(build, pieces, axis)
    return build.diagonal(y, np.ones(shift.shape), shift)


def _full(call: Call, index: int, like: Value) -> np.ndarray:
    constant = call.constant(index).astype(np.float64)
    if constant.ndim != len(like.shape) + 1 or constant.shape[0] != call.batch:
        raise Unsupported(f"a constant of shape {constant.shape} beside activations with {len(like.shape) + 1} axes", "Export the model again.")
    if np.any(constant != constant[:1]):
        raise Unsupported("a constant that differs from image to image of the batch", "Use the same constant for all images.")
    return np.asarray(constant[0])


def _pad_axis(build: Builder, x: Value, axis: int, before: int, after: int) -> Value:
    rank = len(x.shape)
    pads = [0] * (2 * rank)
    pads[axis], pads[rank + axis] = before, after
    return build.pad(x, pads)


def _join(build: Builder, parts: list[Value], axis: int) -> Value:
    if len(parts) == 1:
        return parts[0]
    shape = list(parts[0].shape)
    for part in parts[1:]:
        if len(part.shape) != len(shape) or any(a != axis and n != m for a, (n, m) in enumerate(zip(part.shape, shape))):
            raise Unsupported(f"shapes {[p.shape for p in parts]} (per image) cannot be joined on axis {axis + 1}", "Export the model again.")
    shape[axis] = sum(p.shape[axis] for p in parts)
    return build.client("concat", *parts, shape=tuple(shape), axis=axis)


@operator("Slice")
def slice_(call: Call, build: Builder) -> Value:
    """Starts and ends clamped as ONNX has it; a slice of the whole batch axis is allowed."""
    x = call.tensor(0)
    rank = len(x.shape)
    starts, ends = call.integers(1) or [], call.integers(2) or []
    axes = call.integers(3)
    axes = list(range(len(starts))) if axes is None else axes
    steps = call.integers(4) or [1] * len(starts)
    for axis, start, end, step in zip(axes, starts, ends, steps):
        full = axis + rank + 1 if axis < 0 else axis
        if step == 0:
            raise Unsupported("a step of 0", "Export the model again.")
        size = call.batch if full == 0 else x.shape[call.axis(axis, rank)]
        taken = range(*slice(*_clamped(start, end, step, size)).indices(size))
        if full == 0:
            if len(taken) != call.batch or step < 0:
                raise Unsupported("it takes some images of the batch", "Slice inside the image only.")
            if not call.fixed_batch and (start != 0 or end < np.iinfo(np.int32).max):
                raise Unsupported("it takes a fixed range of the dynamic batch", "Slice inside the image only.")
            continue
        if not taken:
            raise Unsupported(f"an empty slice of axis {full}", "Export the model again.")
        x = build.slice(x, full - 1, taken[0], len(taken), step)
    return x


def _clamped(start: int, end: int, step: int, size: int) -> tuple[int, int | None, int]:
    """ONNX's clamping in terms of Python's slices."""
    start = start + size if start < 0 else start
    end = end + size if end < 0 else end
    if step > 0:
        return min(max(start, 0), size), min(max(end, 0), size), step
    low = min(max(end, -1), size - 1)
    return min(max(start, 0), size - 1), None if low < 0 else low, step


@operator("Split")
def split(call: Call, build: Builder) -> list[Value]:
    """Sizes given, or equal parts with a smaller last one."""
    x = call.tensor(0)
    axis = call.axis(int(call.attribute("axis", 0)), len(x.shape))
    size, count = x.shape[axis], len(call.outputs)
    sizes = call.integers(1)
    if sizes is None:
        chunk = -(-size // count)
        sizes = [max(0, min(chunk, size - i * chunk)) for i in range(count)]
    if len(sizes) != count or sum(sizes) != size or min(sizes) < 1:
        raise Unsupported(f"parts {sizes} of an axis of {size}", "Split into parts that are not empty.")
    starts = np.cumsum([0, *sizes[:-1]])
    return [build.slice(x, axis, int(s), n) for s, n in zip(starts, sizes)]


@operator("Pad")
def pad(call: Call, build: Builder) -> Value:
    """Constant padding; negative pads cut."""
    x = call.tensor(0)
    rank = len(x.shape)
    mode = call.attribute("mode", "constant")
    if mode != "constant":
        raise Unsupported(f"padding of mode {mode!r}", "Use constant padding, or write it with Slice and Concat.")
    given = call.integers(1) or []
    axes = call.integers(3)
    axes = list(range(rank + 1)) if axes is None else [a + rank + 1 if a < 0 else a for a in axes]
    if len(given) != 2 * len(axes):
        raise Unsupported(f"{len(given)} pads for {len(axes)} axes", "Export the model again.")
    pads = [0] * (2 * rank)
    for index, axis in enumerate(axes):
        low, high = given[index], given[len(axes) + index]
        if axis == 0:
            if low or high:
                raise Unsupported("it pads the batch axis", "Pad inside the image only.")
            continue
        if low < 0 or high < 0:
            count = x.shape[axis - 1] + min(low, 0) + min(high, 0)
            if count < 1:
                raise Unsupported(f"it cuts axis {axis} to nothing", "Cut less.")
            x = build.slice(x, axis - 1, max(0, -low), count)
        pads[axis - 1], pads[rank + axis - 1] = max(low, 0), max(high, 0)
    value = call.scalar(2)
    if value is not None and not np.isfinite(value):
        raise Unsupported(f"padding with {value}", "Pad with a finite value, or inside MaxPool.")
    return build.pad(x, pads, value or 0.0)


@operator("Gather")
def gather(call: Call, build: Builder) -> Value:
    """Constant indices: one slice where they are evenly spaced, otherwise slices joined."""
    x = call.tensor(0)
    rank = len(x.shape)
    axis = call.axis(int(call.attribute("axis", 0)), rank)
    indices = call.constant(1)
    size = x.shape[axis]
    flat = [int(i) + size if i < 0 else int(i) for i in indices.reshape(-1)]
    if not flat or min(flat) < 0 or max(flat) >= size:
        raise Unsupported(f"indices outside an axis of {size}", "Export the model again.")
    runs = _runs(flat)
    y = _join(build, [build.slice(x, axis, start, count, step) for start, count, step in runs], axis)
    return build.reshape(y, (*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]))


def _runs(indices: list[int]) -> list[tuple[int, int, int]]:
    """(start, count, step) of maximal evenly spaced runs, in order."""
    runs: list[tuple[int, int, int]] = []
    position = 0
    while position < len(indices):
        start = indices[position]
        step = indices[position + 1] - start if position + 1 < len(indices) else 1
        count = 1
        while step != 0 and position + count < len(indices) and indices[position + count] == start + count * step:
            count += 1
        runs.append((start, count, step if count > 1 else 1))
        position += count
    return runs


@operator("Tile")
def tile(call: Call, build: Builder) -> Value:
    """Repetition of per-image axes."""
    x = call.tensor(0)
    repeats = call.integers(1) or []
    if len(repeats) != len(x.shape) + 1 or repeats[0] != 1 or min(repeats) < 1:
        raise Unsupported(f"repeats {repeats} of a tensor with {len(x.shape) + 1} axes", "Repeat inside the image only, the batch once.")
    for axis, count in enumerate(repeats[1:]):
        x = _join(build, [x] * count, axis)
    return x

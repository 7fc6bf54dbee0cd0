"""Data that moves: Concat, Slice, Split, Pad, selections with constant indices, Tile."""

from __future__ import annotations

import numpy as np

from ..builder import Builder, Value
from ..call import Call
from ..errors import Unsupported
from ..registry import operator
from . import pieces


@operator("Concat", batch_anywhere=True)
def concat(call: Call, build: Builder) -> Value:
    """Constant parts stay on the server: their place is padded with zeros, and a layer adds them."""
    parts: list[Value] = [call.tensor(i) for i in range(len(call.inputs)) if not call.is_constant(i)]
    rank, batch_axis = len(parts[0].shape), parts[0].batch_axis
    if any(p.batch_axis != batch_axis for p in parts) or (batch_axis and len(parts) < len(call.inputs)):
        raise Unsupported(
            f"the batch is axis {', '.join(str(p.batch_axis) for p in parts)} of its inputs",
            "Keep the batch axis in front (drop the Transpose that moves it).",
        )
    axis = call.axis(int(call.attribute("axis", 0)), rank, batch_axis)
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
        raise Unsupported(
            f"a constant of shape {constant.shape} beside activations with {len(like.shape) + 1} axes",
            "Export the model again.",
        )
    if np.any(constant != constant[:1]):
        raise Unsupported(
            "a constant that differs from image to image of the batch", "Use the same constant for all images."
        )
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
        if len(part.shape) != len(shape) or any(
            a != axis and n != m for a, (n, m) in enumerate(zip(part.shape, shape))
        ):
            raise Unsupported(
                f"shapes {[p.shape for p in parts]} (per image) cannot be joined on axis {axis + 1}",
                "Export the model again.",
            )
    shape[axis] = sum(p.shape[axis] for p in parts)
    return build.client("concat", *parts, shape=tuple(shape), axis=axis)


@operator("Slice", batch_anywhere=True)
def slice_(call: Call, build: Builder) -> Value | np.ndarray:
    """Starts and ends clamped as ONNX has it; a slice of the whole batch axis is allowed.

    A slice without elements is a constant, which joins other tensors and changes nothing.
    """
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
        size = call.batch if full == x.batch_axis else x.shape[call.axis(axis, rank, x.batch_axis)]
        taken = range(*slice(*_clamped(start, end, step, size)).indices(size))
        if full == x.batch_axis:
            if len(taken) != call.batch or step < 0:
                raise Unsupported("it takes some images of the batch", "Slice inside the image only.")
            if not call.fixed_batch and (start != 0 or end < np.iinfo(np.int32).max):
                raise Unsupported("it takes a fixed range of the dynamic batch", "Slice inside the image only.")
            continue
        if not taken:
            shape = [*x.shape] if call.whole else [*x.shape[: x.batch_axis], call.batch, *x.shape[x.batch_axis :]]
            shape[full - call.whole] = 0
            return np.zeros(shape)
        x = build.slice(x, call.axis(axis, rank, x.batch_axis), taken[0], len(taken), step)
    return x


def _clamped(start: int, end: int, step: int, size: int) -> tuple[int, int | None, int]:
    """ONNX's clamping in terms of Python's slices."""
    start = start + size if start < 0 else start
    end = end + size if end < 0 else end
    if step > 0:
        return min(max(start, 0), size), min(max(end, 0), size), step
    low = min(max(end, -1), size - 1)
    return min(max(start, 0), size - 1), None if low < 0 else low, step


@operator("Split", batch_anywhere=True)
def split(call: Call, build: Builder) -> list[Value]:
    """Sizes given, or equal parts with a smaller last one."""
    x = call.tensor(0)
    axis = call.axis(int(call.attribute("axis", 0)), len(x.shape), x.batch_axis)
    size, count = x.shape[axis], len(call.outputs)
    sizes = call.integers(1)
    if sizes is None:
        chunk = -(-size // int(call.attribute("num_outputs", count)))
        sizes = [max(0, min(chunk, size - i * chunk)) for i in range(count)]
    if len(sizes) != count or sum(sizes) != size or min(sizes) < 1:
        raise Unsupported(f"parts {sizes} of an axis of {size}", "Split into parts that are not empty.")
    starts = np.cumsum([0, *sizes[:-1]])
    return [build.slice(x, axis, int(s), n) for s, n in zip(starts, sizes)]


_PADDED = {"reflect": "reflect", "edge": "edge", "wrap": "wrap"}


@operator("Pad", batch_anywhere=True)
def pad(call: Call, build: Builder) -> Value:
    """With a constant, or with elements of the tensor; negative pads cut."""
    x = call.tensor(0)
    rank, batch_axis = len(x.shape), x.batch_axis
    mode = call.attribute("mode", "constant")
    if mode != "constant" and mode not in _PADDED:
        raise Unsupported(f"padding of mode {mode!r}", "Use constant padding, or write it with Slice and Concat.")
    given = call.integers(1) or []
    axes = call.integers(3)
    axes = list(range(rank + 1)) if axes is None else [a + rank + 1 if a < 0 else a for a in axes]
    if len(given) != 2 * len(axes):
        raise Unsupported(f"{len(given)} pads for {len(axes)} axes", "Export the model again.")
    pads = [0] * (2 * rank)
    for index, axis in enumerate(axes):
        low, high = given[index], given[len(axes) + index]
        if axis == batch_axis:
            if low or high:
                raise Unsupported("it pads the batch axis", "Pad inside the image only.")
            continue
        own = axis - (axis > batch_axis)
        if low < 0 or high < 0:
            count = x.shape[own] + min(low, 0) + min(high, 0)
            if count < 1:
                raise Unsupported(f"it cuts axis {axis} to nothing", "Cut less.")
            x = build.slice(x, own, max(0, -low), count)
        pads[own], pads[rank + own] = max(low, 0), max(high, 0)
    value = call.scalar(2)
    if mode == "constant" and value is not None and not np.isfinite(value):
        raise Unsupported(f"padding with {value}", "Pad with a finite value, or inside MaxPool.")
    y = build.pad(x, pads, value or 0.0) if mode == "constant" else _extended(build, x, pads, mode)
    return Value(y.name, y.shape, batch_axis)


def _extended(build: Builder, x: Value, pads: list[int], mode: str) -> Value:
    rank = len(x.shape)
    for axis, size in enumerate(x.shape):
        low, high = pads[axis], pads[rank + axis]
        if not low and not high:
            continue
        if mode == "reflect" and max(low, high) >= size:
            raise Unsupported(
                f"a reflection of {max(low, high)} elements of an axis of {size}", "Pad less than the axis is long."
            )
        x = pieces.gather(build, x, axis, np.pad(np.arange(size), (low, high), mode=_PADDED[mode]).tolist())  # type: ignore[call-overload]
    return x


def _positions(indices: np.ndarray, size: int) -> np.ndarray:
    """Indices from 0, where negative ones count from the end."""
    found = np.where(indices < 0, indices + size, indices).astype(np.int64)
    if not found.size or found.min() < 0 or found.max() >= size:
        raise Unsupported(f"indices outside an axis of {size}", "Export the model again.")
    return found


@operator("Gather", batch_anywhere=True)
def gather(call: Call, build: Builder) -> Value:
    """Constant indices: one slice where they are evenly spaced, otherwise a selection."""
    x = call.tensor(0)
    rank = len(x.shape)
    axis = call.axis(int(call.attribute("axis", 0)), rank, x.batch_axis)
    indices = call.constant(1)
    flat = _positions(indices, x.shape[axis]).reshape(-1).tolist()
    y = pieces.gather(build, x, axis, flat)
    y = build.reshape(y, (*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]))
    return Value(y.name, y.shape, x.batch_axis + (indices.ndim - 1 if axis < x.batch_axis else 0))


def _same_for_all(call: Call, indices: np.ndarray) -> np.ndarray:
    """Indices of one image; those that differ from image to image are refused."""
    if indices.shape[0] != call.batch or np.any(indices != indices[:1]):
        raise Unsupported(
            "indices that differ from image to image of the batch", "Use the same indices for all images."
        )
    return np.asarray(indices[0])


@operator("GatherElements")
def gather_elements(call: Call, build: Builder) -> Value:
    """Constant indices along one axis."""
    x = call.tensor(0)
    axis = call.axis(int(call.attribute("axis", 0)), len(x.shape))
    indices = _positions(_same_for_all(call, call.constant(1)), x.shape[axis])
    grid: list[np.ndarray] = list(np.indices(indices.shape))
    grid[axis] = indices
    return pieces.take_flat(build, x, np.asarray(np.ravel_multi_index(tuple(grid), x.shape)))


def _tuples(indices: np.ndarray, shape: tuple[int, ...]) -> tuple[np.ndarray, tuple[int, ...]]:
    """Flat positions that tuples of indices (last axis) begin at, and the shape of what each selects."""
    count = indices.shape[-1]
    whole = np.arange(int(np.prod(shape))).reshape(shape)
    places = tuple(_positions(indices[..., i], shape[i]) for i in range(count))
    found = whole[places]
    return found[(..., *(0 for _ in shape[count:]))], shape[count:]


@operator("GatherND")
def gather_nd(call: Call, build: Builder) -> Value:
    """Constant tuples of indices, inside of an image (``batch_dims`` of at least 1)."""
    x = call.tensor(0)
    batched = int(call.attribute("batch_dims", 0))
    if batched < 1:
        raise Unsupported("it selects images of the batch", "Use batch_dims of at least 1.")
    indices = _same_for_all(call, call.constant(1))
    lead = x.shape[: batched - 1]
    whole = np.arange(x.size).reshape(x.shape)
    rows = []
    for at in np.ndindex(*lead):
        starts, inner = _tuples(indices[at], x.shape[batched - 1 :])
        offsets = np.arange(int(np.prod(inner))).reshape(inner)
        rows.append(starts.reshape(*starts.shape, *(1 for _ in inner)) + offsets + whole[at].reshape(-1)[0])
    return pieces.take_flat(build, x, np.stack(rows).reshape(*lead, *rows[0].shape))


@operator("ScatterElements")
def scatter_elements(call: Call, build: Builder) -> Value:
    """Elements at constant positions replaced by private or public ones."""
    axis = int(call.attribute("axis", 0))
    x, updates = _scattered(call, build)
    axis = call.axis(axis, len(x.shape))
    indices = _positions(_same_for_all(call, call.constant(1)), x.shape[axis])
    grid: list[np.ndarray] = list(np.indices(indices.shape))
    grid[axis] = indices
    return _replaced(build, x, updates, np.asarray(np.ravel_multi_index(tuple(grid), x.shape)))


def _scattered(call: Call, build: Builder) -> tuple[Value, Value]:
    if call.attribute("reduction", "none") != "none":
        raise Unsupported(
            f"a scatter that combines by {call.attribute('reduction')!r}", "Write it with Add, Mul, Min or Max."
        )
    given = [call.tensor(i) if not call.is_constant(i) else None for i in (0, 2)]
    like = next((v for v in given if v is not None), None)
    if like is None:
        raise Unsupported("its positions depend on private data", "Scatter at constant positions.")
    x, updates = (
        pieces.public(build, like, _same_for_all(call, call.constant(i).astype(np.float64))) if v is None else v
        for i, v in zip((0, 2), given)
    )
    return x, updates


def _replaced(build: Builder, x: Value, updates: Value, positions: np.ndarray) -> Value:
    """X with the elements at flat positions replaced; of several at one place the last counts."""
    source = np.arange(x.size)
    source[positions.reshape(-1)] = x.size + np.arange(positions.size)
    if updates.size != positions.size:
        raise Unsupported(f"{updates.size} updates for {positions.size} positions", "Export the model again.")
    both = build.client(
        "concat",
        build.reshape(x, (x.size,)),
        build.reshape(updates, (updates.size,)),
        shape=(x.size + updates.size,),
        axis=0,
    )
    return pieces.take_flat(build, both, source.reshape(x.shape))


@operator("Compress")
def compress(call: Call, build: Builder) -> Value:
    """The elements of an axis at which a constant condition holds."""
    x = call.tensor(0)
    if call.attribute("axis") is None:
        raise Unsupported("it selects from the flattened batch", "Name an axis behind the batch.")
    axis = call.axis(int(call.attribute("axis")), len(x.shape))
    kept = np.flatnonzero(call.constant(1))
    if not kept.size:
        raise Unsupported("an empty selection", "Keep at least one element.")
    return pieces.gather(build, x, axis, _positions(kept, x.shape[axis]).tolist())


@operator("ReverseSequence")
def reverse_sequence(call: Call, build: Builder) -> Value:
    """The first elements of every row reversed, as many as a constant says."""
    x = call.tensor(0)
    rank = len(x.shape)
    time_axis, batch_axis = call.axis(int(call.attribute("time_axis", 0)), rank), int(call.attribute("batch_axis", 1))
    lengths = call.constant(1).reshape(-1)
    if batch_axis == 0:
        if np.any(lengths != lengths[0]):
            raise Unsupported("rows that are reversed by lengths that differ from image to image", "Use one length.")
        count = int(lengths[0])
        return pieces.gather(build, x, time_axis, [*range(count - 1, -1, -1), *range(count, x.shape[time_axis])])
    rows = call.axis(batch_axis, rank)
    positions = np.moveaxis(np.arange(x.size).reshape(x.shape).copy(), (rows, time_axis), (0, 1))
    for row, count in enumerate(lengths):
        positions[row, : int(count)] = positions[row, : int(count)][::-1].copy()
    return pieces.take_flat(build, x, np.moveaxis(positions, (0, 1), (rows, time_axis)))


@operator("ScatterND")
def scatter_nd(call: Call, build: Builder) -> Value:
    """Slices of an image at constant places replaced, where the image is the whole tensor."""
    x, updates = _scattered(call, build)
    if not call.whole:
        raise Unsupported("it replaces images of the batch", "Export the model with a fixed first axis of 1.")
    starts, inner = _tuples(call.constant(1), x.shape)
    size = int(np.prod(inner))
    return _replaced(build, x, updates, starts.reshape(-1, 1) + np.arange(size) if size > 1 else starts)


@operator("Trilu")
def trilu(call: Call, build: Builder) -> Value:
    """The upper or lower triangle of matrices, zero elsewhere."""
    x = call.tensor(0)
    if len(x.shape) < 2:
        raise Unsupported("a matrix whose rows are the images of the batch", "Put the batch in front of the matrix.")
    shift = int(call.constant(1).reshape(())) if call.has(1) else 0
    mask = np.ones(x.shape[-2:])
    mask = np.triu(mask, shift) if int(call.attribute("upper", 1)) else np.tril(mask, shift)
    if mask.all():
        return x
    lead = x.shape[:-2]
    flat = build.reshape(x, (*lead, mask.size))
    axis = len(lead)
    with_zero = build.pad(flat, [0] * (2 * axis + 1) + [1])
    positions = np.where(mask.reshape(-1) != 0, np.arange(mask.size), mask.size)
    return build.reshape(pieces.gather(build, with_zero, axis, positions.tolist()), x.shape)


@operator("CenterCropPad")
def center_crop_pad(call: Call, build: Builder) -> Value:
    """Axes cut or padded with zeros to constant sizes, around the middle."""
    x = call.tensor(0)
    rank = len(x.shape)
    wanted = call.integers(1) or []
    axes = call.attribute("axes")
    axes = list(range(rank + 1)) if axes is None else [int(a) for a in axes]
    for axis, size in zip(axes, wanted):
        full = axis + rank + 1 if axis < 0 else axis
        if full == 0 and size == call.batch:
            continue
        inner = call.axis(axis, rank)
        have = x.shape[inner]
        if size < have:
            x = build.slice(x, inner, (have - size) // 2, size)
        elif size > have:
            low = (size - have) // 2
            x = _pad_axis(build, x, inner, low, size - have - low)
    return x


@operator("Tile")
def tile(call: Call, build: Builder) -> Value:
    """Repetition of per-image axes."""
    x = call.tensor(0)
    repeats = call.integers(1) or []
    if len(repeats) != len(x.shape) + 1 or repeats[0] != 1 or min(repeats) < 1:
        raise Unsupported(
            f"repeats {repeats} of a tensor with {len(x.shape) + 1} axes",
            "Repeat inside the image only, the batch once.",
        )
    for axis, count in enumerate(repeats[1:]):
        x = _join(build, [x] * count, axis)
    return x

"""Attention: products of private tensors, which the client computes in the clear between the layers."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ..builder import Builder, Value
from ..call import Call
from ..errors import Unsupported
from ..registry import operator
from . import pieces


def _tensor(call: Call, build: Builder, index: int, like: Value) -> Value:
    """An operand; a constant one becomes public, the same for all images."""
    if not call.is_constant(index):
        return call.tensor(index)
    constant = call.constant(index).astype(np.float64)
    if constant.ndim == len(like.shape) + 1:
        if np.any(constant != constant[:1]):
            raise Unsupported(
                "a constant operand that differs from image to image of the batch", "Use the same for all images."
            )
        constant = constant[0]
    return pieces.public(build, like, constant)


def _heads(build: Builder, x: Value, heads: int) -> Value:
    """(..., positions, heads * size) to (..., heads, positions, size)."""
    *lead, positions, width = x.shape
    if heads < 1 or width % heads:
        raise Unsupported(f"{heads} heads in {width} features", "Export the model again.")
    y = build.reshape(x, (*lead, positions, heads, width // heads))
    return build.move_axis(y, len(lead) + 1, len(lead))


def _shared(build: Builder, x: Value, times: int) -> Value:
    """Every head repeated: queries of several heads read one of keys and values."""
    axis = len(x.shape) - 3
    return pieces.gather(build, x, axis, [h for h in range(x.shape[axis]) for _ in range(times)]) if times > 1 else x


def _blocked(call: Call, x: Value, past: int) -> np.ndarray:
    """The keys that a query never sees: behind the sequence's end, after it (causality), or outside of its window."""
    queries, keys = x.shape[-2:]
    offset = np.full((1,), past)
    blocked = np.zeros((1, 1, 1, keys), dtype=bool)
    if call.has(6):
        lengths = call.constant(6).reshape(-1)
        if not call.whole and np.any(lengths != lengths[0]):
            raise Unsupported(
                "lengths of sequences that differ from image to image of the batch", "Mask the padding with attn_mask."
            )
        lengths = lengths if call.whole else lengths[:1]
        blocked = np.arange(keys) >= lengths.reshape(-1, 1, 1, 1)
        if not past:
            offset = lengths - queries
    ahead = np.arange(keys)[None, :] - np.arange(queries)[:, None] - offset.reshape(-1, 1, 1, 1)
    blocked = np.broadcast_to(blocked, np.broadcast_shapes(blocked.shape, ahead.shape)).copy()
    if int(call.attribute("is_causal", 0)):
        blocked |= ahead > 0
    for name, sign in (("left_window_size", -1), ("right_window_size", 1)):
        size = int(call.attribute(name, -1))
        if size >= 0:
            blocked |= sign * ahead > size
    # one axis for every axis of the scores that it differs on
    while blocked.ndim > 2 and blocked.shape[0] == 1:
        blocked = blocked[0]
    return blocked


def _mask(call: Call, build: Builder, x: Value, past: int) -> Value | None:
    """What is added to the scores.

    The mask, causality and window, with large negative numbers in the place of minus infinity.
    """
    keys, blocked = x.shape[-1], _blocked(call, x, past)
    fixed = np.where(blocked, pieces.MASKED, 0.0)
    if not call.has(3):
        return _public(build, x, fixed) if blocked.any() else None
    given = call.inputs[3]
    if isinstance(given, np.ndarray):
        values = (
            np.where(given, 0.0, pieces.MASKED)
            if given.dtype.kind == "b"
            else np.where(np.isneginf(given), pieces.MASKED, given.astype(np.float64))
        )
        if values.ndim == len(x.shape) + 1:
            if np.any(values != values[:1]):
                raise Unsupported(
                    "a mask that differs from image to image of the batch", "Give the mask as an input of the network."
                )
            values = values[0]
        missing = keys - values.shape[-1]
        if missing > 0:
            values = np.pad(values, [(0, 0)] * (values.ndim - 1) + [(0, missing)], constant_values=pieces.MASKED)
        return _public(build, x, np.broadcast_to(values, np.broadcast_shapes(values.shape, fixed.shape)) + fixed)
    mask = call.tensor(3)
    missing = keys - mask.shape[-1]
    if missing > 0:
        rank = len(mask.shape)
        mask = build.infinite(build.pad(mask, [0] * (2 * rank - 1) + [missing], pieces.MASKED))
    if not blocked.any():
        return mask
    mask, public = pieces.common(build, mask, _public(build, x, fixed))
    return build.client("add", mask, public)


def _public(build: Builder, x: Value, mask: np.ndarray) -> Value:
    value = pieces.public(build, x, mask)
    return build.infinite(value) if np.any(mask < pieces.MASKED / 2) else value


def _guarded(build: Builder, scores: Value, mask: Value | None, axis: int) -> Value:
    """Softmax of the scores; zero in rows of which the mask leaves nothing."""
    y = build.client("softmax", scores, axis=axis)
    if mask is None:
        return y
    top = pieces.reduce(build, "reduce_max", mask, [len(mask.shape) - 1])
    open_ = build.client("less", build.affine(top, 0.0, pieces.MASKED / 2), top)
    return build.client("mul", y, build.broadcast(open_, y.shape))


def _operands(call: Call, build: Builder) -> tuple[list[Value], int, bool]:
    """Queries, keys and values as (..., heads, positions, size).

    Also how often every head of keys is read, and whether heads were joined in the input.
    """
    like = next(i for i in call.inputs if isinstance(i, Value))
    given = [_tensor(call, build, i, like) for i in range(3)]
    heads, shared = call.attribute("q_num_heads"), call.attribute("kv_num_heads")
    joined = heads is not None and shared is not None
    if joined:
        given = [_heads(build, x, int(n)) for x, n in zip(given, (heads, shared, shared))]
    if any(len(x.shape) < 3 for x in given):
        raise Unsupported(
            f"operands of shapes {[x.shape for x in given]} (per image)",
            "Give q_num_heads and kv_num_heads, or an axis of heads.",
        )
    for index, position in ((4, 1), (5, 2)):
        if call.has(index):
            past, now = _tensor(call, build, index, like), given[position]
            shape = (*now.shape[:-2], past.shape[-2] + now.shape[-2], now.shape[-1])
            given[position] = build.client("concat", past, now, shape=shape, axis=len(shape) - 2)
    if given[0].shape[-3] % given[1].shape[-3]:
        raise Unsupported(
            f"{given[0].shape[-3]} heads of queries and {given[1].shape[-3]} of keys", "Export the model again."
        )
    return given, given[0].shape[-3] // given[1].shape[-3], joined


@operator("Attention")
def attention(call: Call, build: Builder) -> list[Value]:
    """``softmax(scale Q K' + mask) V`` of every head."""
    past = call.inputs[4].shape[-2] if call.has(4) else 0  # type: ignore[union-attr]
    (query, key, value), times, joined = _operands(call, build)
    wide = [_shared(build, x, times) for x in (key, value)]
    scale = float(call.attribute("scale", 0.0) or 1.0 / math.sqrt(query.shape[-1]))
    call.attribute("softmax_precision")
    rank = len(query.shape)
    turned = build.transpose(wide[0], [*range(rank - 2), rank - 1, rank - 2])
    raw = pieces.product(build, build.affine(query, scale, 0.0), turned)
    cap = float(call.attribute("softcap", 0.0))
    capped = build.affine(build.client("tanh", build.affine(raw, 1.0 / cap, 0.0)), cap, 0.0) if cap > 0 else raw
    mask = _mask(call, build, capped, past)
    scores = capped if mask is None else build.client("add", capped, build.broadcast(mask, capped.shape))
    weights = _guarded(build, scores, mask, rank - 1)
    y = pieces.product(build, weights, wide[1])
    if joined:
        *lead, heads, positions, size = y.shape
        y = build.reshape(build.move_axis(y, len(lead), len(lead) + 1), (*lead, positions, heads * size))
    mode = int(call.attribute("qk_matmul_output_mode", 0))
    shown: Sequence[Value] = (raw, capped, scores, weights)
    return [y, key, value, shown[mode]]

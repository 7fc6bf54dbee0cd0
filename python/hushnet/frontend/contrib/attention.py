"""Attention of the domain com.microsoft, written with products, sums and softmax."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from onnx import TensorProto

from ..errors import Unsupported
from .quantised import real
from .rules import HIDDEN, Operand, Writer, rule

# as far down as masks reach in plans: beside scores of networks its exponential is zero
_LOWEST = -32768.0


def _heads(w: Writer, x: str, heads: int, size: int) -> str:
    """(batch, positions, heads * size) to (batch, heads, positions, size)."""
    split = w.op("Reshape", x, w.constant([0, 0, heads, size], np.int64))
    return w.op("Transpose", split, perm=[0, 2, 1, 3])


def _hidden(w: Writer) -> float:
    return max(float(w.attribute("mask_filter_value", HIDDEN)), _LOWEST)


def _shown(w: Writer, mask: Operand, queries: int, keys: int) -> str:
    """Ones where keys are seen, with four axes: of a mask, or of the number of keys."""
    shape = mask.shape
    if len(shape) == 1:
        places = w.constant(np.arange(keys).reshape(1, 1, 1, keys), np.int64)
        count = w.op("Cast", mask.name, to=TensorProto.INT64)
        count = w.op("Reshape", count, w.constant([0, 1, 1, 1], np.int64))
        return w.op("Cast", w.op("Less", places, count), to=TensorProto.FLOAT)
    if shape[-1] != keys or (len(shape) == 3 and shape[1] != queries) or len(shape) > 3:
        raise Unsupported(f"a mask of shape {shape} for {queries} queries and {keys} keys", "Export the model again.")
    wide = w.op("Cast", mask.name, to=TensorProto.FLOAT)
    return w.op("Unsqueeze", wide, w.constant([1, 2] if len(shape) == 2 else [1], np.int64))


def _masked(w: Writer, scores: str, mask: Operand | None, queries: int, keys: int) -> str:
    """Scores with what is hidden far down: by a mask, and with ``unidirectional`` keys behind the query."""
    hidden = _hidden(w)
    if mask is not None:
        shown = _shown(w, mask, queries, keys)
        away = w.op("Mul", w.op("Sub", w.constant(1.0), shown), w.constant(hidden))
        scores = w.op("Add", scores, away)
    if int(w.attribute("unidirectional", 0)):
        ahead = np.arange(keys)[None, :] > np.arange(queries)[:, None] + keys - queries
        scores = w.op("Add", scores, w.constant(np.where(ahead, -np.inf, 0.0)[None, None]))
    return scores


def _attended(
    w: Writer, parts: Sequence[str], sizes: tuple[int, int, int], mask: Operand | None, bias: Operand | None
) -> str:
    """``softmax(scale Q K' + bias + mask) V``, heads joined.

    Args:
        parts: queries, keys and values, by head.
        sizes: features of a head of queries, number of queries and of keys.
    """
    (query, key, value), (size, queries, keys) = parts, sizes
    scale = float(w.attribute("scale", 0.0) or 0.0) or 1.0 / math.sqrt(size)
    scores = w.op("MatMul", w.op("Mul", query, w.constant(scale)), w.op("Transpose", key, perm=[0, 1, 3, 2]))
    if bias is not None:
        scores = w.op("Add", scores, bias.name)
    scores = _masked(w, scores, mask, queries, keys)
    y = w.op("MatMul", w.op("Softmax", scores, axis=-1), value)
    return w.op("Reshape", w.op("Transpose", y, perm=[0, 2, 1, 3]), w.constant([0, 0, -1], np.int64))


def _projected(w: Writer, x: str, weight: np.ndarray, bias: np.ndarray | None, length: int) -> str:
    """One product for queries, keys and values; the heads and what follows from them."""
    heads = int(w.attribute("num_heads", 0))
    widths = [int(n) for n in w.attribute("qkv_hidden_sizes") or [weight.shape[1] // 3] * 3]
    if heads < 1 or sum(widths) != weight.shape[1] or any(n % heads for n in widths) or widths[0] != widths[1]:
        raise Unsupported(f"{heads} heads in features {widths} of {weight.shape[1]}", "Export the model again.")
    if int(w.attribute("do_rotary", 0)):
        raise Unsupported("rotated queries inside of the operator", "Export the model without fusions.")
    ends = np.cumsum([0, *widths])
    parts = []
    for low, high, width in zip(ends, ends[1:], widths):
        part = w.op("MatMul", x, w.constant(weight[:, low:high]))
        if bias is not None:
            part = w.op("Add", part, w.constant(bias[low:high]))
        parts.append(_heads(w, part, heads, width // heads))
    mask = w.given(_MASKS[w.node.op_type])
    extra = w.given(5) if w.node.op_type == "Attention" else None
    return _attended(w, parts, (widths[0] // heads, length, length), mask, extra)


_MASKS = {"Attention": 3, "QAttention": 5}


@rule("Attention")
def _attention(w: Writer) -> list[str]:
    """Of one tensor, with the layer that makes queries, keys and values."""
    x, bias = w.operand(0), w.given(2)
    return [_projected(w, x.name, w.fixed(1), None if bias is None else w.fixed(2), x.shape[1])]


@rule("QAttention")
def _quantised_attention(w: Writer) -> list[str]:
    """The same on integers, read as the real numbers that they stand for."""
    x, zero = w.operand(0), w.given(7)
    shift = w.fixed(7).astype(np.float64) if zero else np.zeros(())
    weight = (w.fixed(1).astype(np.float64) - shift) * w.fixed(4).astype(np.float64)
    return [_projected(w, real(w, x, 3, 6), weight, w.fixed(2), x.shape[1])]


@rule("MultiHeadAttention")
def _multi_head(w: Writer) -> list[str]:
    """Of queries, keys and values that layers have made."""
    query, heads = w.operand(0), int(w.attribute("num_heads", 0))
    if len(query.shape) != 3 or w.given(1) is None or w.given(2) is None or heads < 1 or query.shape[2] % heads:
        raise Unsupported(
            f"queries of shape {query.shape} in {heads} heads, without keys and values of their own",
            "Export the model without fusions.",
        )
    key, value, joined = w.operand(1), w.operand(2), w.given(3)
    width = query.shape[2]
    bias = None if joined is None else np.split(w.fixed(3), [width, 2 * width])
    parts = []
    for number, x in enumerate((query, key, value)):
        if len(x.shape) == 4:
            parts.append(x.name)
            continue
        y = x.name if bias is None else w.op("Add", x.name, w.constant(bias[number]))
        parts.append(_heads(w, y, heads, x.shape[2] // heads))
    keys = key.shape[-2]
    for number in (1, 2):
        past = w.given(5 + number)
        if past is not None:
            parts[number] = w.op("Concat", past.name, parts[number], axis=2)
            keys += past.shape[2] if number == 1 else 0
    mask = w.given(4)
    if mask is not None and len(mask.shape) == 1:
        raise Unsupported("lengths of keys as a mask", "Give a mask of ones and zeros.")
    sizes = (width // heads, query.shape[1], keys)
    return [_attended(w, parts, sizes, mask, w.given(5)), *parts[1:]]

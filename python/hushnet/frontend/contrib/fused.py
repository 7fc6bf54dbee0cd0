"""Operators that ONNX Runtime's optimiser makes of several, and others of its domain that are nearly standard."""

from __future__ import annotations

import numpy as np

from ..errors import Unsupported
from .rules import Writer, activated, added, channels_first, channels_last, rule


@rule("Gelu")
def _gelu(w: Writer) -> list[str]:
    return [w.op("Gelu", w.name(0))]


@rule("BiasGelu")
def _bias_gelu(w: Writer) -> list[str]:
    return [w.op("Gelu", added(w, w.name(0), 1))]


@rule("FastGelu")
def _fast_gelu(w: Writer) -> list[str]:
    return [w.op("Gelu", added(w, w.name(0), 1), approximate="tanh")]


@rule("QuickGelu")
def _quick_gelu(w: Writer) -> list[str]:
    return [w.op("Swish", w.name(0), alpha=float(w.attribute("alpha", 1.702)))]


@rule("FusedMatMul", "TransposeMatMul")
def _fused_matmul(w: Writer) -> list[str]:
    names = []
    for index, letter in enumerate("AB"):
        operand = w.operand(index)
        rank = len(operand.shape)
        order = list(range(rank))
        if rank > 1 and int(w.attribute(f"transBatch{letter}", 0)):
            order = [*order[1:-1], 0, order[-1]]
        if rank > 1 and int(w.attribute(f"trans{letter}", 0)):
            order = [*order[:-2], order[-1], order[-2]]
        names.append(w.op("Transpose", operand.name, perm=order) if order != sorted(order) else operand.name)
    alpha = float(w.attribute("alpha", 1.0))
    y = w.op("MatMul", *names)
    return [y if alpha == 1.0 else w.op("Mul", y, w.constant(alpha))]


@rule("FusedGemm")
def _fused_gemm(w: Writer) -> list[str]:
    other = w.given(2)
    names = [w.name(0), w.name(1), *([other.name] if other else [])]
    attributes = {n: w.attribute(n) for n in ("alpha", "beta", "transA", "transB")}
    parameters = [w.attribute(f"activation_{n}") for n in ("alpha", "beta", "gamma")]
    return [
        activated(
            w, w.op("Gemm", *names, **attributes), w.attribute("activation"), [p for p in parameters if p is not None]
        )
    ]


@rule("FusedConv")
def _fused_conv(w: Writer) -> list[str]:
    bias = w.given(2)
    names = [w.name(0), w.name(1), *([bias.name] if bias else [])]
    attributes = {n: w.attribute(n) for n in ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")}
    y = added(w, w.op("Conv", *names, **attributes), 3)
    return [activated(w, y, w.attribute("activation"), list(w.attribute("activation_params") or []))]


@rule("SkipLayerNormalization", "SkipSimplifiedLayerNormalization")
def _skip_normalisation(w: Writer) -> list[str]:
    """The normalised sum of two tensors (and a bias); mean and inverse deviation beside it, and the sum."""
    simple = w.node.op_type.startswith("SkipSimplified")
    total = w.op("Add", w.name(0), w.name(1))
    total = added(w, total, 3 if simple else 4)
    epsilon = float(w.attribute("epsilon", 1e-12))
    if simple:
        return [w.op("RMSNormalization", total, w.name(2), axis=-1, epsilon=epsilon), "", "", total]
    shift = w.given(3)
    names = [total, w.name(2), *([shift.name] if shift else [])]
    count = 3 if any(w.wanted[1:3]) else 1
    made = w.several("LayerNormalization", *names, outputs=count, axis=-1, epsilon=epsilon)
    return [*made, *[""] * (3 - count), total]


@rule("EmbedLayerNormalization")
def _embedding(w: Writer) -> list[str]:
    """Words, positions and segments looked up, added and normalised; how many tokens a mask leaves."""
    ids, segments, positions, mask = w.operand(0), w.given(1), w.given(8), w.given(7)
    total = w.op("Gather", w.name(2), ids.name)
    if positions is not None:
        total = w.op("Add", total, w.op("Gather", w.name(3), positions.name))
    else:
        total = w.op("Add", total, w.constant(w.fixed(3)[: ids.shape[1]]))
    if segments is not None:
        total = w.op("Add", total, w.op("Gather", w.name(4), segments.name))
    else:
        w.given(4)
    epsilon = float(w.attribute("epsilon", 1e-12))
    y = w.op("LayerNormalization", total, w.name(5), w.name(6), axis=-1, epsilon=epsilon)
    w.attribute("mask_index_type", 0)
    count = ""
    if len(w.wanted) > 1 and w.wanted[1] and mask is not None:
        count = w.op("ReduceSum", mask.name, w.constant([1], np.int64), keepdims=0)
    elif len(w.wanted) > 1 and w.wanted[1]:
        count = w.constant(np.zeros(ids.shape[0]), np.int32)
    return [y, count, total]


@rule("NhwcMaxPool")
def _nhwc_max_pool(w: Writer) -> list[str]:
    names = ("auto_pad", "ceil_mode", "dilations", "kernel_shape", "pads", "strides")
    pooled = w.op("MaxPool", channels_first(w, w.operand(0)), **{n: w.attribute(n) for n in names})
    return [channels_last(w, pooled, len(w.operand(0).shape))]


@rule("Pad")
def _pad(w: Writer) -> list[str]:
    value = w.given(2)
    pads = w.constant(w.fixed(1).reshape(-1), np.int64)
    return [w.op("Pad", w.name(0), pads, *([value.name] if value else []), mode=w.attribute("mode"))]


@rule("Trilu")
def _trilu(w: Writer) -> list[str]:
    diagonal = w.given(1)
    return [w.op("Trilu", w.name(0), *([diagonal.name] if diagonal else []), upper=w.attribute("upper"))]


@rule("Inverse")
def _inverse(w: Writer) -> list[str]:
    """Of a constant: the inverse of a private matrix has no lowering."""
    if w.operand(0).value is None:
        raise Unsupported("the inverse of a matrix of private numbers", "Invert it on the client.")
    return [w.constant(np.linalg.inv(w.fixed(0).astype(np.float64)))]

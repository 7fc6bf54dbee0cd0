"""Quantised operators of the domain com.microsoft, written as standard ones between dequantising and quantising."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto

from ..errors import Unsupported
from .rules import Operand, Writer, added, channels_first, channels_last, rule, zero_of


def real(w: Writer, x: Operand, scale: int, zero: int, axis: int | None = None) -> str:
    """What integers stand for; constants are computed here, of any integer type."""
    offset = w.given(zero)
    if x.value is not None:
        step, shift = w.fixed(scale).astype(np.float64), w.fixed(zero).astype(np.float64) if offset else np.zeros(())
        if step.size > 1:
            shape = [-1 if a == (axis or 0) % x.value.ndim else 1 for a in range(x.value.ndim)]
            step, shift = step.reshape(shape), shift.reshape(shape) if shift.size > 1 else shift.reshape(())
        elif step.size == 1:
            step, shift = step.reshape(()), shift.reshape(())
        return w.constant((x.value.astype(np.float64) - shift) * step)
    names = [x.name, w.name(scale), *([offset.name] if offset else [])]
    return w.op("DequantizeLinear", *names, axis=axis)


def whole(w: Writer, y: str, scale: int, zero: int, kind: int) -> str:
    """The integers of real numbers."""
    return w.op("QuantizeLinear", y, w.name(scale), zero_of(w, zero, kind))


@rule("DequantizeLinear")
def _dequantise(w: Writer) -> list[str]:
    return [real(w, w.operand(0), 1, 2, int(w.attribute("axis", 1)))]


@rule("QuantizeLinear")
def _quantise(w: Writer) -> list[str]:
    axis = int(w.attribute("axis", 1))
    return [w.op("QuantizeLinear", w.name(0), w.name(1), zero_of(w, 2, TensorProto.UINT8), axis=axis)]


@rule("QLinearAdd", "QLinearMul")
def _arithmetic(w: Writer) -> list[str]:
    a, b = w.operand(0), w.operand(3)
    y = w.op(w.node.op_type.removeprefix("QLinear"), real(w, a, 1, 2), real(w, b, 4, 5))
    return [whole(w, y, 6, 7, a.kind)]


@rule("QLinearSigmoid", "QLinearLeakyRelu", "QLinearSoftmax")
def _function(w: Writer) -> list[str]:
    x, kind = w.operand(0), w.node.op_type.removeprefix("QLinear")
    attributes: dict[str, Any] = {}
    if kind == "LeakyRelu":
        attributes = {"alpha": float(w.attribute("alpha", 0.01))}
    if kind == "Softmax":
        axis, opset = int(w.attribute("axis", -1)), int(w.attribute("opset", 13))
        if opset < 13 and axis % len(x.shape) != len(x.shape) - 1:
            raise Unsupported("a softmax over several axes", "Use a softmax along the last axis.")
        attributes = {"axis": axis}
    return [whole(w, w.op(kind, real(w, x, 1, 2), **attributes), 3, 4, x.kind)]


@rule("QLinearGlobalAveragePool", "QLinearAveragePool")
def _pool(w: Writer) -> list[str]:
    x, last = w.operand(0), bool(w.attribute("channels_last", 0))
    values = real(w, x, 1, 2)
    if last:
        values = channels_first(w, Operand(values, x.shape, TensorProto.FLOAT))
    kind = w.node.op_type.removeprefix("QLinear")
    names = ("auto_pad", "ceil_mode", "count_include_pad", "kernel_shape", "pads", "strides")
    y = w.op(kind, values, **({n: w.attribute(n) for n in names} if kind == "AveragePool" else {}))
    return [whole(w, channels_last(w, y, len(x.shape)) if last else y, 3, 4, x.kind)]


@rule("QLinearConcat")
def _concatenation(w: Writer) -> list[str]:
    count = len(w.operands)
    if count < 5 or (count - 2) % 3:
        raise Unsupported(f"{count} inputs", "Export the model again.")
    parts = [real(w, w.operand(i), i + 1, i + 2) for i in range(2, count, 3)]
    return [whole(w, w.op("Concat", *parts, axis=int(w.attribute("axis", 0))), 0, 1, w.operand(2).kind)]


@rule("QLinearConv")
def _convolution(w: Writer) -> list[str]:
    """The standard operator, or channels behind the image."""
    x, last = w.operand(0), bool(w.attribute("channels_last", 0))
    names = [operand.name if (operand := w.given(i)) else "" for i in range(len(w.operands))]
    attributes = {n: w.attribute(n) for n in ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")}
    if not last:
        return [w.op("QLinearConv", *names, **attributes)]
    y = w.op("QLinearConv", channels_first(w, x), *names[1:], **attributes)
    return [channels_last(w, y, len(x.shape))]


def _weights(w: Writer, index: int, scale: int, zero: int) -> np.ndarray:
    """Constant weights as real numbers; scales may be one a column."""
    shift = w.fixed(zero).astype(np.float64) if w.given(zero) else np.zeros(())
    values, step = w.fixed(index).astype(np.float64), w.fixed(scale).astype(np.float64)
    if values.ndim > 2 and step.ndim > 1:
        step, shift = np.expand_dims(step, -2), np.expand_dims(shift, -2) if shift.ndim > 1 else shift
    return np.asarray((values - shift) * step)


@rule("DynamicQuantizeMatMul")
def _dynamic_product(w: Writer) -> list[str]:
    """The left operand is quantised inside, and stays as it is here."""
    return [added(w, w.op("MatMul", w.name(0), w.constant(_weights(w, 1, 2, 3))), 4)]


@rule("MatMulIntegerToFloat")
def _float_product(w: Writer) -> list[str]:
    a, step = w.operand(0), w.operand(2)
    if step.value is not None and step.value.size > 1:
        raise Unsupported("an activation with one scale a row", "Use one scale for the whole activation.")
    private = w.operand(1).value is None
    right = real(w, w.operand(1), 3, 5) if private else w.constant(_weights(w, 1, 3, 5))
    return [added(w, w.op("MatMul", real(w, a, 2, 4), right), 6)]


@rule("QGemm")
def _gemm(w: Writer) -> list[str]:
    a, turned = w.operand(0), [int(w.attribute(n, 0)) for n in ("transA", "transB")]
    step, shift = w.fixed(4).astype(np.float64), w.fixed(5).astype(np.float64) if w.given(5) else np.zeros(())
    weight = w.fixed(3).astype(np.float64).T if turned[1] else w.fixed(3).astype(np.float64)
    weight = (weight - shift) * step
    names = [real(w, a, 1, 2), w.constant(weight)]
    alpha = float(w.attribute("alpha", 1.0))
    if w.given(6) is not None:
        # whole numbers of one step of the product, which alpha multiplies too
        names.append(w.constant(w.fixed(6).astype(np.float64) * step * float(w.fixed(1).reshape(())) * alpha))
    y = w.op("Gemm", *names, alpha=alpha, transA=turned[0])
    return [y] if w.given(7) is None else [whole(w, y, 7, 8, a.kind)]


@rule("DynamicQuantizeLSTM")
def _lstm(w: Writer) -> list[str]:
    """An LSTM whose weights stand transposed, with one scale a direction or a column."""
    weights = []
    for index, scale in ((1, 8), (2, 10)):
        values, shift, step = (w.fixed(i).astype(np.float64) for i in (index, scale + 1, scale))
        shift, step = (v.reshape(len(values), 1, -1) for v in (shift, step))
        weights.append(w.constant(((values - shift) * step).swapaxes(1, 2)))
    others = [operand.name if (operand := w.given(i)) else "" for i in range(3, 8)]
    names = ("activations", "activation_alpha", "activation_beta", "clip", "direction", "hidden_size", "input_forget")
    attributes = {n: w.attribute(n) for n in names}
    return w.several("LSTM", w.name(0), *weights, *others, outputs=3, **attributes)


@rule("MatMulNBits")
def _packed_product(w: Writer) -> list[str]:
    """Weights of four or eight bits, a scale a block of inputs."""
    rows, columns = int(w.attribute("N", 0)), int(w.attribute("K", 0))
    bits, block = int(w.attribute("bits", 4)), int(w.attribute("block_size", 0))
    w.attribute("accuracy_level", 0)
    if bits not in (4, 8) or block < 1:
        raise Unsupported(f"weights of {bits} bits in blocks of {block}", "Use blocks of weights of 4 or 8 bits.")
    blocks = -(-columns // block)
    packed = _unpacked(w.fixed(1).reshape(rows, blocks, -1), bits)
    step = w.fixed(2).astype(np.float64).reshape(rows, blocks, 1)
    shift = np.full((rows, blocks, 1), float(1 << (bits - 1)))
    if w.given(3) is not None:
        given = w.fixed(3)
        read = given.astype(np.float64) if given.dtype.kind == "f" else _unpacked(given.reshape(rows, -1), bits)
        shift = read.reshape(rows, -1)[:, :blocks, None]
    weight = ((packed - shift) * step).reshape(rows, -1)[:, :columns].T
    return [added(w, w.op("MatMul", w.name(0), w.constant(weight)), 5)]


def _unpacked(values: np.ndarray, bits: int) -> np.ndarray:
    """Numbers of four bits stand two in a byte, the low ones first."""
    if bits == 8:
        return values.astype(np.float64)
    both = np.stack([values & 15, values >> 4], axis=-1)
    return both.reshape(*values.shape[:-1], -1).astype(np.float64)

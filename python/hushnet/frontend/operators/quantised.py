"""Quantised networks, read as the float networks that they stand for.

A quantised tensor is carried as the (real) integers before their rounding, clamped as they are: what reads it sees the
float network with the model's integer weights. Where anything but a quantised operator reads a quantised tensor, or it
is an output of the network, it is rounded on the client.
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto

from .. import contrib
from ..builder import Builder, Value
from ..call import Call
from ..errors import Unsupported
from ..registry import operator
from . import pieces
from .arithmetic import scaled, strip_batch
from .convolution import convolve
from .matmul import two_activations, with_constant

_RANGES: dict[int, tuple[float, float]] = {
    TensorProto.UINT8: (0, 255),
    TensorProto.INT8: (-128, 127),
    TensorProto.UINT16: (0, 65535),
    TensorProto.INT16: (-32768, 32767),
    TensorProto.UINT4: (0, 15),
    TensorProto.INT4: (-8, 7),
    TensorProto.INT32: (-(2**31), 2**31 - 1),
}


# what reads a quantised tensor as the real numbers that it stands for, and what only moves or clamps it on the way
# there
_READERS = frozenset({"DequantizeLinear", "QLinearConv", "QLinearMatMul", "ConvInteger", "MatMulInteger"})
_CARRIERS = frozenset(
    [
        "Identity",
        "Reshape",
        "Transpose",
        "Flatten",
        "Squeeze",
        "Unsqueeze",
        "Slice",
        "Split",
        "Concat",
        "Gather",
        "Expand",
        "Tile",
        "MaxPool",
        "Relu",
        "Clip",
        "DepthToSpace",
        "SpaceToDepth",
    ]
)


def read_as_floats(graph: onnx.GraphProto) -> set[str]:
    """Tensors that are read by nothing but dequantising operators, through moves: they need no rounding."""
    readers: dict[str, list[onnx.NodeProto]] = {}
    for node in graph.node:
        for name in node.input:
            readers.setdefault(name, []).append(node)
    outputs = {port.name for port in graph.output}
    found: set[str] = set()
    for node in reversed(graph.node):
        for name in node.output:
            after = readers.get(name, [])
            if (
                after
                and name not in outputs
                and all(_reads(n) or (n.op_type in _CARRIERS and set(n.output) <= found) for n in after)
            ):
                found.add(name)
    return found


def _reads(node: onnx.NodeProto) -> bool:
    return node.op_type in (contrib.READERS if node.domain == contrib.DOMAIN else _READERS)


def _limits(call: Call, index: int) -> tuple[float, float]:
    """Smallest and largest integer of the type that a zero point has, or that ``output_dtype`` names."""
    if call.is_constant(index):
        given = call.inputs[index]
        assert isinstance(given, np.ndarray)
        name = str(given.dtype)
        found = _RANGES.get(getattr(TensorProto, name.upper(), -1))
    else:
        found = _RANGES.get(int(call.attribute("output_dtype", 0)) or TensorProto.UINT8)
        name = str(call.attribute("output_dtype"))
    if found is None:
        raise Unsupported(
            f"quantisation to type {name}", "Quantise to integers of 4, 8 or 16 bits, or export the float model."
        )
    return float(found[0]), float(found[1])


def _parameters(call: Call, x: Value, scale: int, zero: int) -> tuple[np.ndarray, np.ndarray]:
    """Scale and zero point as they broadcast against an image.

    One, one along ``axis``, or one a block of ``block_size``.
    """
    step = call.constant(scale).astype(np.float64)
    offset = call.constant(zero, np.zeros(step.shape)).astype(np.float64)
    if step.size == 1:
        return step.reshape(()), offset.reshape(())
    inner, block = call.axis(int(call.attribute("axis", 1)), len(x.shape)), int(call.attribute("block_size", 0))
    if block:
        # counted from the end, where a batch of 1 in front makes no difference
        axis = inner - len(x.shape)
        wide = [np.repeat(v, block, axis=axis).take(range(x.shape[inner]), axis=axis) for v in (step, offset)]
        return strip_batch(wide[0], x, call.batch), strip_batch(wide[1], x, call.batch)
    shape = [-1 if a == inner else 1 for a in range(len(x.shape))]
    return step.reshape(shape), offset.reshape(shape)


def requantised(
    call: Call, build: Builder, x: Value, parameters: tuple[np.ndarray, np.ndarray], limits: tuple[float, float]
) -> Value:
    """``clip(x / scale + zero)``, rounded where the integers themselves are read."""
    step, offset = parameters
    y = scaled(build, x, 1.0 / step, np.zeros(()))
    if call.exact:
        y = build.client("round", y)
    y = scaled(build, y, np.ones(()), offset)
    return build.client("clip", y, min=limits[0], max=limits[1])


@operator("QuantizeLinear")
def quantize(call: Call, build: Builder) -> Value:
    """The integers of a tensor."""
    x = call.tensor(0)
    call.attribute("saturate", 1)
    return requantised(call, build, x, _parameters(call, x, 1, 2), _limits(call, 2))


@operator("DequantizeLinear")
def dequantize(call: Call, build: Builder) -> Value:
    """``(x - zero) scale``."""
    x = call.tensor(0)
    call.attribute("output_dtype", 0)
    step, offset = _parameters(call, x, 1, 2)
    return scaled(build, x, step, -offset * step)


@operator("DynamicQuantizeLinear")
def dynamic(call: Call, build: Builder) -> list[Value]:
    """The tensor itself, with scale 1 and zero point 0: what reads the three sees the float network.

    As outputs: as ONNX has them.
    """
    x = call.tensor(0)
    if not call.exact:
        return [x, np.ones((), dtype=np.float32), np.zeros((), dtype=np.uint8)]  # type: ignore[list-item]
    if not (call.fixed_batch and call.batch == 1):
        raise Unsupported(
            "a scale that follows from all images of the batch", "Quantise image by image, or drop these outputs."
        )
    axes = range(len(x.shape))
    high = pieces.reduce(build, "reduce_max", x, axes, keep=False)
    low = build.client("neg", pieces.reduce(build, "reduce_max", build.client("neg", x), axes, keep=False))
    high, low = build.client("relu", high), build.client("neg", build.client("relu", build.client("neg", low)))
    step = build.affine(build.client("sub", high, low), 1.0 / 255.0, 0.0)
    zero = build.client(
        "round", build.client("clip", build.client("div", build.client("neg", low), step), min=0.0, max=255.0)
    )
    wide = [build.broadcast(v, x.shape) for v in (step, zero)]
    y = build.client("add", build.client("round", build.client("div", x, wide[0])), wide[1])
    return [build.client("clip", y, min=0.0, max=255.0), step, zero]


def _shifted(call: Call, build: Builder, index: int, zero: int) -> Value:
    """A private operand without its zero point."""
    x = call.tensor(index)
    offset = call.constant(zero, np.zeros(())).astype(np.float64)
    if offset.size == 1:
        return build.affine(x, 1.0, -float(offset.reshape(()))) if offset.any() else x
    return scaled(
        build, x, np.ones(()), -strip_batch(offset.reshape(-1, 1) if offset.ndim == 1 else offset, x, call.batch)
    )


def _integers(call: Call, index: int, zero: int, axis: int) -> np.ndarray:
    """Constant weights without their zero point, which may be one a row or a column."""
    weight = call.constant(index).astype(np.float64)
    offset = call.constant(zero, np.zeros(())).astype(np.float64)
    if offset.size > 1 and offset.ndim == 1:
        offset = offset.reshape([-1 if a == axis % weight.ndim else 1 for a in range(weight.ndim)])
    return weight - (offset if offset.size > 1 else offset.reshape(()))


@operator("ConvInteger")
def conv_integer(call: Call, build: Builder) -> Value:
    """The convolution of what the integers are without their zero points."""
    return convolve(call, build, _shifted(call, build, 0, 2), _integers(call, 1, 3, 0), None)


@operator("MatMulInteger")
def matmul_integer(call: Call, build: Builder) -> Value:
    """The product of what the integers are without their zero points."""
    if not call.is_constant(0) and not call.is_constant(1):
        return two_activations(call, build, _shifted(call, build, 0, 2), _shifted(call, build, 1, 3))
    if call.is_constant(0):
        return with_constant(call, build, _shifted(call, build, 1, 3), _integers(call, 0, 2, -2), left=True)
    return with_constant(call, build, _shifted(call, build, 0, 2), _integers(call, 1, 3, -1), left=False)


def _step(call: Call, index: int, rank: int, axis: int) -> np.ndarray:
    """A scale as it broadcasts along an axis of weights."""
    step = call.constant(index).astype(np.float64)
    return (
        step.reshape([-1 if a == axis % rank else 1 for a in range(rank)]) if step.size > 1 and step.ndim == 1 else step
    )


def _output(call: Call, build: Builder, y: Value, scale: int, zero: int) -> Value:
    step, offset = call.constant(scale).astype(np.float64), call.constant(zero).astype(np.float64)
    if step.size != 1 or offset.size != 1:
        raise Unsupported("an output with one scale a row", "Use one scale for the whole output.")
    return requantised(call, build, y, (step.reshape(()), offset.reshape(())), _limits(call, zero))


@operator("QLinearConv")
def qlinear_conv(call: Call, build: Builder) -> Value:
    """The float convolution, and its result in the output's integers."""
    step = float(call.constant(1).reshape(()))
    x = _shifted(call, build, 0, 2)
    columns = _step(call, 4, call.constant(3).ndim, 0)
    weight = _integers(call, 3, 5, 0) * columns * step
    bias = call.constant(8).astype(np.float64) * columns.reshape(-1) * step if call.has(8) else None
    return _output(call, build, convolve(call, build, x, weight, bias), 6, 7)


@operator("QLinearMatMul")
def qlinear_matmul(call: Call, build: Builder) -> Value:
    """The float product, and its result in the output's integers."""
    left, right = (call.is_constant(i) for i in (0, 3))
    if not left and not right:
        factor = (
            float((call.constant(1) * call.constant(4)).reshape(()))
            if call.constant(1).size == call.constant(4).size == 1
            else None
        )
        if factor is None:
            raise Unsupported("a product of two activations with one scale a row", "Use one scale for each.")
        y = build.affine(
            two_activations(call, build, _shifted(call, build, 0, 2), _shifted(call, build, 3, 5)), factor, 0.0
        )
        return _output(call, build, y, 6, 7)
    if left:
        weight = _integers(call, 0, 2, -2) * _step(call, 1, call.constant(0).ndim, -2)
        x = _shifted(call, build, 3, 5)
        step = call.constant(4)
    else:
        weight = _integers(call, 3, 5, -1) * _step(call, 4, call.constant(3).ndim, -1)
        x = _shifted(call, build, 0, 2)
        step = call.constant(1)
    if step.size != 1:
        raise Unsupported("an activation with one scale a row", "Use one scale for the whole activation.")
    return _output(call, build, with_constant(call, build, x, weight * float(step.reshape(())), left=left), 6, 7)

"""Add, Sub, Mul, Div, Min, Max.

With a constant (scalar: public affine, tensor: a layer of the server) or of two activations.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..builder import Builder, Value
from ..call import Call
from ..errors import Unsupported
from ..registry import operator
from . import pieces

Pair = Callable[[Builder, Value, Value], Value]


def per_image(call: Call, index: int, x: Value) -> np.ndarray:
    """A constant operand as it broadcasts against one image of x.

    Constants that differ from image to image are refused.
    """
    constant = call.constant(index).astype(np.float64)
    return strip_batch(constant, x, call.batch)


def strip_batch(constant: np.ndarray, x: Value, batch: int) -> np.ndarray:
    """``constant`` (broadcast against a batch of x) without the batch axis."""
    rank = len(x.shape) + 1
    if constant.size == 1 and constant.ndim <= rank:
        return constant.reshape(())
    if constant.ndim > rank:
        raise Unsupported(
            f"a constant of shape {constant.shape} adds axes in front of the batch of a tensor with {rank} axes",
            "Give the constant no more axes than the activation.",
        )
    position = constant.ndim - (rank - x.batch_axis)
    if position < 0:
        return constant
    if constant.shape[position] not in (1, batch) or np.any(constant != constant.take([0], axis=position)):
        raise Unsupported(
            "a constant that differs from image to image of the batch", "Give the constant size 1 along the batch axis."
        )
    return np.asarray(constant.take(0, axis=position))


def together(build: Builder, x: Value, shape: tuple[int, ...]) -> tuple[Value, tuple[int, ...]]:
    """X broadcast to its common shape with a constant of the given shape."""
    try:
        common = np.broadcast_shapes(x.shape, shape)
    except ValueError:
        raise Unsupported(
            f"shapes {x.shape} and {shape} (per image) do not broadcast", "Reshape one of them."
        ) from None
    return build.broadcast(x, common), common


def pair(call: Call, build: Builder, op: str, a: Value, b: Value) -> Value:
    """A client op of two activations, broadcast to one shape."""
    if a.batch_axis != b.batch_axis:
        raise Unsupported("the batch is a different axis in the two operands", "Keep the batch axis in front.")
    if len(a.shape) != len(b.shape) and (a.batch_axis or not (call.fixed_batch and call.batch == 1)):
        raise Unsupported(
            f"activations with {len(a.shape) + 1} and {len(b.shape) + 1} axes: the batch axis of one meets another "
            "axis of the other",
            "Unsqueeze the smaller one to as many axes, behind the batch.",
        )
    try:
        common = np.broadcast_shapes(a.shape, b.shape)
    except ValueError:
        raise Unsupported(
            f"shapes {a.shape} and {b.shape} (per image) do not broadcast", "Reshape one of them."
        ) from None
    return build.client(op, build.broadcast(a, common), build.broadcast(b, common))


def scaled(build: Builder, x: Value, mul: np.ndarray, add: np.ndarray) -> Value:
    """``x * mul + add``: public where both are scalars, a layer of the server otherwise."""
    if mul.size == 1 and add.size == 1:
        return build.affine(x, float(mul.reshape(())), float(add.reshape(())))
    x, _ = together(build, x, np.broadcast_shapes(mul.shape, add.shape))
    return build.diagonal(x, mul, add)


def masked(call: Call, build: Builder, x: Value, mask: np.ndarray) -> Value:
    """X plus a public mask, with a large negative number in the place of minus infinity."""
    mask = np.where(np.isneginf(mask), pieces.MASKED, mask.astype(np.float64))
    x, added = pieces.common(build, x, pieces.public(build, x, strip_batch(mask, x, call.batch)))
    y = build.client("add", x, added)
    return build.infinite(y) if np.any(mask == pieces.MASKED) else y


@operator("Add", "Sub", "Mul", "Div", batch_anywhere=True)
def arithmetic(call: Call, build: Builder) -> Value:
    """ONNX's broadcasting arithmetic; a constant may stand on either side."""
    y = _arithmetic(call, build)
    return Value(y.name, y.shape, call.tensor(1 if call.is_constant(0) else 0).batch_axis)


def _arithmetic(call: Call, build: Builder) -> Value:
    kind = call.op_type
    if not call.is_constant(0) and not call.is_constant(1):
        a, b = call.tensor(0), call.tensor(1)
        return build.client("square", a) if kind == "Mul" and a == b else pair(call, build, kind.lower(), a, b)
    left = call.is_constant(0)
    x = call.tensor(1 if left else 0)
    raw = call.inputs[0 if left else 1]
    if (
        kind == "Add"
        and isinstance(raw, np.ndarray)
        and raw.dtype.kind == "f"
        and np.isneginf(raw).any()
        and not np.isposinf(raw).any()
    ):
        return masked(call, build, x, raw)
    constant = per_image(call, 0 if left else 1, x)
    one, zero = np.ones(()), np.zeros(())
    if kind == "Add":
        return scaled(build, x, one, constant)
    if kind == "Mul":
        return scaled(build, x, constant, zero)
    if kind == "Sub":
        return scaled(build, x, -one, constant) if left else scaled(build, x, one, -constant)
    if left:
        return scaled(build, build.client("div", build.ones(x), x), constant, zero)
    if np.any(constant == 0):
        raise Unsupported("a division by a constant zero", "Repair the constant.")
    return scaled(build, x, 1.0 / constant, zero)


def quotient(call: Call, build: Builder) -> Value:
    """``Div`` of integers by constant positive ones, towards zero; the half keeps whole quotients from rounding."""
    if not call.is_constant(1):
        raise Unsupported("a division of integers by private numbers", "Cast its operands to float first.")
    x = call.tensor(0)
    divisor = per_image(call, 1, x)
    if np.any(divisor < 1):
        raise Unsupported("a division of integers by constants below 1", "Divide by a positive constant.")

    def part(value: Value) -> Value:
        return build.client("floor", scaled(build, build.client("relu", value), 1.0 / divisor, 0.5 / divisor))

    return build.client("sub", part(x), part(build.client("neg", x)))


def truncated(build: Builder, x: Value) -> Value:
    """Rounded towards zero, as a cast to integers does."""
    low = build.client("floor", build.client("relu", build.client("neg", x)))
    return build.client("sub", build.client("floor", build.client("relu", x)), low)


def _clamp(build: Builder, x: Value, constant: np.ndarray, *, largest: bool) -> Value:
    """max(x, c) or min(x, c); a tensor c stays on the server: c + relu(x - c), c - relu(c - x)."""
    if constant.size == 1:
        bound = float(constant.reshape(()))
        return build.client("clip", x, min=bound if largest else None, max=None if largest else bound)
    sign = 1.0 if largest else -1.0
    x, common = together(build, x, constant.shape)
    full = np.broadcast_to(constant, common)
    over = build.client("relu", build.diagonal(x, np.full(common, sign), -sign * full))
    return build.diagonal(over, np.full(common, sign), full)


def _constants(call: Call, indices: list[int], x: Value) -> list[np.ndarray]:
    return [per_image(call, i, x) for i in indices]


@operator("Min", "Max", batch_anywhere=True)
def extremum(call: Call, build: Builder) -> Value:
    """Of any number of operands."""
    largest = call.op_type == "Max"
    name = "maximum" if largest else "minimum"
    # nothing is below minus infinity: such an operand says nothing
    neutral = -np.inf if largest else np.inf
    constants = [i for i in range(len(call.inputs)) if call.is_constant(i) and not np.all(call.inputs[i] == neutral)]
    tensors = [call.tensor(i) for i in range(len(call.inputs)) if not call.is_constant(i)]
    x = tensors[0]
    for other in tensors[1:]:
        x = pair(call, build, name, x, other)
    for constant in _constants(call, constants, x):
        x = _clamp(build, x, constant, largest=largest)
    return Value(x.name, x.shape, tensors[0].batch_axis)


@operator("Sum", "Mean", batch_anywhere=True)
def total(call: Call, build: Builder) -> Value:
    """Sum or mean of any number of operands."""
    constants = [i for i in range(len(call.inputs)) if call.is_constant(i)]
    tensors = [call.tensor(i) for i in range(len(call.inputs)) if not call.is_constant(i)]
    x = tensors[0]
    for other in tensors[1:]:
        x = pair(call, build, "add", x, other)
    for constant in _constants(call, constants, x):
        x = scaled(build, x, np.ones(()), constant)
    y = build.affine(x, 1.0 / len(call.inputs), 0.0) if call.op_type == "Mean" else x
    return Value(y.name, y.shape, tensors[0].batch_axis)

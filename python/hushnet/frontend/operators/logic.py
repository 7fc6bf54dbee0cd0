"""Comparisons and logic on the client: truth values are the numbers 0 and 1."""

from __future__ import annotations

import numpy as np

from ..builder import Builder, Value
from ..call import Call
from ..errors import Unsupported
from ..registry import operator
from . import pieces
from .arithmetic import per_image

_FLIPPED = {"Greater": "Less", "GreaterOrEqual": "LessOrEqual"}


def operands(call: Call, build: Builder, first: int = 0) -> tuple[Value, Value]:
    """Two operands of one shape; a constant one becomes a public constant."""
    given = [call.tensor(i) if not call.is_constant(i) else None for i in (first, first + 1)]
    like = next(v for v in given if v is not None)
    values = [
        pieces.public(build, like, per_image(call, first + i, like)) if v is None else v for i, v in enumerate(given)
    ]
    if None not in given and len(values[0].shape) != len(values[1].shape):
        raise Unsupported(
            f"activations with {len(values[0].shape) + 1} and {len(values[1].shape) + 1} axes: the batch axis of one "
            "meets another axis of the other",
            "Unsqueeze the smaller one to as many axes, behind the batch.",
        )
    a, b = pieces.common(build, *values)
    return a, b


@operator("Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual")
def comparison(call: Call, build: Builder) -> Value:
    """Of two activations, or of one with a public constant."""
    a, b = operands(call, build)
    kind = call.op_type
    if kind in _FLIPPED:
        a, b, kind = b, a, _FLIPPED[kind]
    if kind == "LessOrEqual":
        return pieces.complement(build, build.client("less", b, a))
    return build.client(kind.lower(), a, b)


@operator("And", "Or", "Xor")
def logic(call: Call, build: Builder) -> Value:
    """Product, maximum and difference of truth values."""
    a, b = operands(call, build)
    if call.op_type == "Xor":
        return pieces.complement(build, build.client("equal", a, b))
    return build.client("mul" if call.op_type == "And" else "maximum", a, b)


@operator("Not", batch_anywhere=True)
def negation(call: Call, build: Builder) -> Value:
    """``1 - x``."""
    return pieces.complement(build, call.tensor())


@operator("Where")
def where(call: Call, build: Builder) -> Value:
    """A constant condition selects elements; a private one multiplies by 0 and 1.

    Infinite constants become very large numbers.
    """
    private = [call.tensor(i) for i in range(3) if not call.is_constant(i)]
    parts: list[Value | np.ndarray] = [
        _finite(call, i, private[0]) if call.is_constant(i) else call.tensor(i) for i in range(3)
    ]
    shapes = {len(v.shape) for v in private}
    if len(shapes) > 1:
        raise Unsupported(
            "activations with different numbers of axes: the batch axis of one meets another axis of the other",
            "Unsqueeze the smaller ones.",
        )
    condition = parts[0]
    yes, no = (_public(build, private[0], p) if isinstance(p, np.ndarray) else p for p in parts[1:])
    if isinstance(condition, Value):
        return pieces.select(build, condition, yes, no)
    try:
        shape = np.broadcast_shapes(condition.shape, yes.shape, no.shape)
    except ValueError:
        raise Unsupported(
            f"shapes {condition.shape}, {yes.shape} and {no.shape} (per image) do not broadcast", "Reshape them."
        ) from None
    return _selected(
        build, np.broadcast_to(condition != 0, shape), build.broadcast(yes, shape), build.broadcast(no, shape)
    )


def _selected(build: Builder, condition: np.ndarray, yes: Value, no: Value) -> Value:
    if condition.all():
        return yes
    if not condition.any():
        return no
    both = build.client(
        "concat", *(build.reshape(v, (v.size,)) for v in (yes, no)), shape=(yes.size + no.size,), axis=0
    )
    positions = np.arange(condition.size).reshape(condition.shape)
    return pieces.take_flat(build, both, np.where(condition, positions, positions + condition.size))


def _public(build: Builder, like: Value, constant: np.ndarray) -> Value:
    value = pieces.public(build, like, constant)
    return build.infinite(value) if np.any(np.abs(constant) == -pieces.MASKED) else value


def _finite(call: Call, index: int, like: Value) -> np.ndarray:
    raw = call.inputs[index]
    if isinstance(raw, np.ndarray) and raw.dtype.kind == "f" and np.isinf(raw).any():
        call.inputs[index] = np.where(np.isinf(raw), np.sign(raw) * -pieces.MASKED, raw)
    return per_image(call, index, like)


@operator("Mod")
def modulo(call: Call, build: Builder) -> Value:
    """``x - y floor(x / y)``; with fmod the quotient is rounded towards zero."""
    x, y = operands(call, build)
    ratio = build.client("div", x, y)
    if int(call.attribute("fmod", 0)):
        ratio = build.client("div", build.client("abs", x), build.client("abs", y))
        less = build.client("mul", build.client("floor", ratio), build.client("abs", y))
        rest = build.client("sub", build.client("abs", x), less)
        return pieces.select(build, build.client("less", x, build.affine(x, 0.0, 0.0)), build.client("neg", rest), rest)
    return build.client("sub", x, build.client("mul", y, build.client("floor", ratio)))

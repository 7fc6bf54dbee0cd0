"""Elementwise functions: every one a client op or a short chain of them."""

from __future__ import annotations

import math

import numpy as np
from onnx import TensorProto

from ..builder import Builder, Value
from ..call import Call
from ..errors import Unsupported
from ..registry import operator
from . import pieces
from .arithmetic import pair, per_image, truncated

_PLAIN = {
    "Relu": "relu",
    "Sigmoid": "sigmoid",
    "Tanh": "tanh",
    "HardSwish": "hard_swish",
    "Erf": "erf",
    "Exp": "exp",
    "Sqrt": "sqrt",
    "Abs": "abs",
    "Neg": "neg",
    "Log": "log",
    "Sin": "sin",
    "Cos": "cos",
    "Atan": "atan",
    "Floor": "floor",
    "Round": "round",
}


@operator(*_PLAIN, batch_anywhere=True)
def plain(call: Call, build: Builder) -> Value:
    """One client op of the same meaning."""
    return build.client(_PLAIN[call.op_type], call.tensor())


@operator("LeakyRelu", batch_anywhere=True)
def leaky_relu(call: Call, build: Builder) -> Value:
    """``x < 0 ? alpha x : x``."""
    return build.client("leaky_relu", call.tensor(), alpha=float(call.attribute("alpha", 0.01)))


@operator("Elu", batch_anywhere=True)
def elu(call: Call, build: Builder) -> Value:
    """``x < 0 ? alpha (e^x - 1) : x``."""
    return build.client("elu", call.tensor(), alpha=float(call.attribute("alpha", 1.0)))


@operator("Selu", batch_anywhere=True)
def selu(call: Call, build: Builder) -> Value:
    """``gamma elu(x)``."""
    alpha = call.attribute("alpha", 1.6732632423543772)
    gamma = call.attribute("gamma", 1.0507009873554805)
    return build.affine(build.client("elu", call.tensor(), alpha=float(alpha)), gamma, 0.0)


@operator("Celu", batch_anywhere=True)
def celu(call: Call, build: Builder) -> Value:
    """``alpha elu(x / alpha)``."""
    alpha = float(call.attribute("alpha", 1.0))
    if alpha <= 0:
        raise Unsupported(f"alpha is {alpha}", "Use a positive alpha.")
    inner = build.affine(call.tensor(), 1.0 / alpha, 0.0)
    return build.affine(build.client("elu", inner, alpha=1.0), alpha, 0.0)


@operator("Softsign", batch_anywhere=True)
def softsign(call: Call, build: Builder) -> Value:
    """``x / (1 + |x|)``."""
    x = call.tensor()
    return build.client("div", x, build.affine(build.client("abs", x), 1.0, 1.0))


@operator("Mish", batch_anywhere=True)
def mish(call: Call, build: Builder) -> Value:
    """``x tanh(log(1 + e^x))``: as a quotient of exponentials no error of x would leave it a bound."""
    x = call.tensor()
    return build.client("mul", x, build.client("tanh", _softplus(build, x)))


@operator("HardSigmoid", batch_anywhere=True)
def hard_sigmoid(call: Call, build: Builder) -> Value:
    """``min(max(alpha x + beta, 0), 1)``."""
    alpha, beta = call.attribute("alpha", 0.2), call.attribute("beta", 0.5)
    return build.client("hard_sigmoid", call.tensor(), alpha=float(alpha), beta=float(beta))


@operator("Gelu", batch_anywhere=True)
def gelu(call: Call, build: Builder) -> Value:
    """Exact with erf, or the tanh approximation."""
    name = "gelu_tanh" if call.attribute("approximate", "none") == "tanh" else "gelu"
    return build.client(name, call.tensor())


@operator("Swish", batch_anywhere=True)
def swish(call: Call, build: Builder) -> Value:
    """``x sigmoid(alpha x)``."""
    x = call.tensor()
    alpha = float(call.attribute("alpha", 1.0))
    if alpha == 1.0:
        return build.client("silu", x)
    return build.client("mul", x, build.client("sigmoid", build.affine(x, alpha, 0.0)))


@operator("Clip", batch_anywhere=True)
def clip(call: Call, build: Builder) -> Value:
    """``min(max(x, lo), hi)``; an infinite or missing bound is none."""
    x = call.tensor()
    bounds: list[float | None] = []
    for index, none in ((1, -np.inf), (2, np.inf)):
        if call.has(index) and not call.is_constant(index):
            x = pair(call, build, f"{'maxi' if index == 1 else 'mini'}mum", x, call.tensor(index))
        value = call.scalar(index) if call.is_constant(index) else None
        bounds.append(None if value is None or value == none else float(value))
    low, high = bounds
    if any(v is not None and not np.isfinite(v) for v in (low, high)):
        raise Unsupported("a bound that is not a number", "Give finite bounds.")
    if low is not None and high is not None and low > high:
        low = high
    return x if low is None and high is None else build.client("clip", x, min=low, max=high)


@operator("PRelu")
def prelu(call: Call, build: Builder) -> Value:
    """``x < 0 ? slope x : x``.

    One slope or one a channel are public, others go to the server: relu(x) - slope relu(-x).
    """
    x = call.tensor()
    if not call.is_constant(1):
        slope = call.tensor(1)
        positive, negative = build.client("relu", x), build.client("neg", build.client("relu", build.client("neg", x)))
        return pair(call, build, "add", positive, pair(call, build, "mul", negative, slope))
    slopes = per_image(call, 1, x)
    if slopes.size == 1:
        return build.client("prelu", x, slope=[float(slopes.reshape(()))])
    full = np.broadcast_to(slopes, x.shape)
    if slopes.ndim == len(x.shape) and slopes.size == slopes.shape[0]:
        return build.client("prelu", x, slope=[float(v) for v in slopes.reshape(-1)])
    negative = build.client("relu", build.client("neg", x))
    return build.client("add", build.client("relu", x), build.diagonal(negative, -full, np.zeros_like(full)))


@operator("Pow", batch_anywhere=True)
def power(call: Call, build: Builder) -> Value:
    """Scalar exponents: halves by square roots, integers up to 64 by repeated squaring, negative ones by division.

    Others by e^(y log x).
    """
    if call.is_constant(1) and not call.is_constant(0):
        exponents = call.constant(1)
        if exponents.size == 1:
            return pieces.power(build, call.tensor(), float(exponents.reshape(())))
        x = call.tensor()
        exponents = per_image(call, 1, x)
        shape = np.broadcast_shapes(x.shape, exponents.shape)
        return _by_exponent(build, build.broadcast(x, shape), np.broadcast_to(exponents, shape))
    if call.is_constant(0):
        y = call.tensor(1)
        base = per_image(call, 0, y)
        if np.any(base <= 0):
            raise Unsupported("a constant base that is not positive, with a private exponent", "Use a positive base.")
        logarithm = np.log(base)
        if logarithm.size == 1:
            return build.client("exp", build.affine(y, float(logarithm.reshape(())), 0.0))
        y, exponents_of_e = pieces.common(build, y, pieces.public(build, y, logarithm))
        return build.client("exp", build.client("mul", y, exponents_of_e))
    x = build.client("log", call.tensor(0))
    return build.client("exp", pair(call, build, "mul", x, call.tensor(1)))


def _by_exponent(build: Builder, x: Value, exponents: np.ndarray) -> Value:
    """Every distinct exponent on the elements that have it."""
    flat, positions = exponents.reshape(-1), np.empty(exponents.size, dtype=np.int64)
    parts, done = [], 0
    for exponent in np.unique(flat):
        where = np.flatnonzero(flat == exponent)
        parts.append(pieces.power(build, pieces.take_flat(build, x, where), float(exponent)))
        positions[where] = np.arange(done, done + len(where))
        done += len(where)
    joined = parts[0] if len(parts) == 1 else build.client("concat", *parts, shape=(done,), axis=0)
    return pieces.take_flat(build, joined, positions.reshape(x.shape))


@operator("Reciprocal", batch_anywhere=True)
def reciprocal(call: Call, build: Builder) -> Value:
    """``1 / x``."""
    x = call.tensor()
    return build.client("div", build.ones(x), x)


@operator("Softmax")
def softmax(call: Call, build: Builder) -> Value:
    """Along one per-image axis."""
    x = call.tensor()
    return build.client("softmax", x, axis=call.axis(int(call.attribute("axis", -1)), len(x.shape)))


@operator("LogSoftmax")
def log_softmax(call: Call, build: Builder) -> Value:
    """``x - m - log(sum e^(x - m))`` with the largest value m."""
    x = call.tensor()
    axes = [call.axis(int(call.attribute("axis", -1)), len(x.shape))]
    below = build.client("sub", x, build.broadcast(pieces.reduce(build, "reduce_max", x, axes), x.shape))
    total = pieces.reduce(build, "reduce_sum", build.client("exp", below), axes)
    return build.client("sub", below, build.broadcast(build.client("log", total), x.shape))


@operator("Hardmax")
def hardmax(call: Call, build: Builder) -> Value:
    """One at the first of the largest elements, zero elsewhere."""
    x = call.tensor()
    axis = call.axis(int(call.attribute("axis", -1)), len(x.shape))
    shape = tuple(1 if a == axis else n for a, n in enumerate(x.shape))
    best = build.client("top_k", x, shape=shape, axis=axis, largest=True, what="indices")
    return build.client("equal", build.broadcast(best, x.shape), pieces.iota(build, x, x.shape, axis))


@operator("Softplus", batch_anywhere=True)
def softplus(call: Call, build: Builder) -> Value:
    """``log(1 + e^x) = max(x, 0) + log(1 + e^-|x|)``."""
    return _softplus(build, call.tensor())


def _softplus(build: Builder, x: Value) -> Value:
    small = build.client("exp", build.client("neg", build.client("abs", x)))
    return build.client("add", build.client("relu", x), build.client("log", build.affine(small, 1.0, 1.0)))


@operator("ThresholdedRelu", batch_anywhere=True)
def thresholded_relu(call: Call, build: Builder) -> Value:
    """``x > alpha ? x : 0``."""
    x = call.tensor()
    limit = build.affine(x, 0.0, float(call.attribute("alpha", 1.0)))
    return build.client("mul", x, build.client("less", limit, x))


@operator("Shrink", batch_anywhere=True)
def shrink(call: Call, build: Builder) -> Value:
    """``x < -lambd ? x + bias : x > lambd ? x - bias : 0``."""
    x = call.tensor()
    limit, bias = float(call.attribute("lambd", 0.5)), float(call.attribute("bias", 0.0))
    low = build.client("less", x, build.affine(x, 0.0, -limit))
    high = build.client("less", build.affine(x, 0.0, limit), x)
    below = build.client("mul", low, build.affine(x, 1.0, bias))
    return build.client("add", below, build.client("mul", high, build.affine(x, 1.0, -bias)))


@operator("Sign", batch_anywhere=True)
def sign(call: Call, build: Builder) -> Value:
    """-1, 0 or 1."""
    return _sign(build, call.tensor())


def _sign(build: Builder, x: Value) -> Value:
    zero = build.affine(x, 0.0, 0.0)
    return build.client("sub", build.client("less", zero, x), build.client("less", x, zero))


@operator("Ceil", batch_anywhere=True)
def ceil(call: Call, build: Builder) -> Value:
    """``-floor(-x)``."""
    return build.client("neg", build.client("floor", build.client("neg", call.tensor())))


def _root_of_complement(build: Builder, x: Value) -> Value:
    """``sqrt(1 - x^2)``."""
    return build.client("sqrt", build.affine(build.client("square", x), -1.0, 1.0))


def _asin(build: Builder, x: Value) -> Value:
    half = build.client("div", x, build.affine(_root_of_complement(build, x), 1.0, 1.0))
    return build.affine(build.client("atan", half), 2.0, 0.0)


@operator("Tan", "Asin", "Acos", "Sinh", "Cosh", "Asinh", "Acosh", "Atanh", batch_anywhere=True)
def by_others(call: Call, build: Builder) -> Value:
    """Functions that are expressions of sine, cosine, arc tangent, exponential and logarithm."""
    x, kind = call.tensor(), call.op_type
    if kind == "Tan":
        return build.client("div", build.client("sin", x), build.client("cos", x))
    if kind == "Asin":
        return _asin(build, x)
    if kind == "Acos":
        return build.affine(_asin(build, x), -1.0, math.pi / 2)
    if kind in {"Sinh", "Cosh"}:
        up, down = build.client("exp", x), build.client("exp", build.client("neg", x))
        return build.affine(build.client("sub" if kind == "Sinh" else "add", up, down), 0.5, 0.0)
    if kind == "Asinh":
        # of |x|, where nothing cancels
        size = build.client("abs", x)
        root = build.client("sqrt", build.affine(build.client("square", x), 1.0, 1.0))
        return build.client("mul", _sign(build, x), build.client("log", build.client("add", size, root)))
    if kind == "Acosh":
        root = build.client("sqrt", build.affine(build.client("square", x), 1.0, -1.0))
        return build.client("log", build.client("add", x, root))
    ratio = build.client("div", build.affine(x, 1.0, 1.0), build.affine(x, -1.0, 1.0))
    return build.affine(build.client("log", ratio), 0.5, 0.0)


@operator("Identity", "Cast", "CastLike", "Dropout", batch_anywhere=True)
def identity(call: Call, build: Builder) -> Value:
    """Nothing at inference; casts to wide integers round towards zero."""
    if call.op_type == "Cast" and call.attribute("to") in {TensorProto.INT32, TensorProto.INT64}:
        return truncated(build, call.tensor())
    if call.op_type == "Cast" and call.attribute("to") not in {1, 10, 11, 16}:
        raise Unsupported("a cast of activations to narrow integers", "Cast to int32, int64 or float.")
    if call.op_type == "CastLike" and call.is_constant(1) and call.inputs[1].dtype.kind in "iub":  # type: ignore[union-attr]
        raise Unsupported("a cast of activations to a type that is not float", "Keep activations in float.")
    if call.op_type == "Dropout" and call.has(2) and bool(np.any(call.constant(2))):
        raise Unsupported("it is in training mode", "Export the model for inference (model.eval()).")
    return call.tensor()

"""Elementwise functions: every one a client op or a short chain of them."""

from __future__ import annotations

import numpy as np

from ..builder import Builder, Value
from ..call import Call
from ..errors import Unsupported
from ..registry import operator
from .arithmetic import per_image

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
    """``x tanh(log(1 + e^x)) = x n / (n + 2)`` with ``n = e^x (e^x + 2)``, e^x cut at e^20, where the quotient is 1 in binary64."""
    x = call.tensor()
    e = build.client("exp", build.client("clip", x, min=None, max=20.0))
    n = build.client("mul", e, build.affine(e, 1.0, 2.0))
    return build.client("mul", x, build.client("div", n, build.affine(n, 1.0, 2.0)))


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
    low, high = call.scalar(1), call.scalar(2)
    low = None if low is None or low == -np.inf else low
    high = None if high is None or high == np.inf else high
    if any(v is not None and not np.isfinite(v) for v in (low, high)):
        raise Unsupported("a bound that is not a number", "Give finite bounds.")
    return build.client("clip", call.tensor(), min=low, max=high)


@operator("PRelu")
def prelu(call: Call, build: Builder) -> Value:
    """``x < 0 ? slope x : x``; one slope or one a channel are public, others go to the server: relu(x) - slope relu(-x)."""
    x = call.tensor()
    slope = per_image(call, 1, x)
    if slope.size == 1:
        return build.client("prelu", x, slope=[float(slope.reshape(()))])
    full = np.broadcast_to(slope, x.shape)
    if slope.ndim == len(x.shape) and slope.size == slope.shape[0]:
        return build.client("prelu", x, slope=[float(v) for v in slope.reshape(-1)])
    negative = build.client("relu", build.client("neg", x))
    return build.client("add", build.client("relu", x), build.diagonal(negative, -full, np.zeros_like(full)))


@operator("Pow", batch_anywhere=True)
def power(call: Call, build: Builder) -> Value:
    """Constant scalar exponents: halves by square roots, integers up to 64 by repeated squaring, negative ones by division."""
    x = call.tensor()
    exponent = call.scalar(1)
    if exponent is None or 2 * exponent != int(2 * exponent) or abs(exponent) > 64:
        raise Unsupported(f"an exponent of {exponent}", "Use a multiple of one half up to 64, or Exp.")
    whole = int(abs(exponent))
    result = build.client("sqrt", x) if abs(exponent) != whole else None
    factor = x
    while whole:
        if whole & 1:
            result = factor if result is None else build.client("mul", result, factor)
        whole >>= 1
        if whole:
            factor = build.client("square", factor)
    if result is None:
        return build.ones(x)
    return build.client("div", build.ones(x), result) if exponent < 0 else result


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


@operator("Identity", "Cast", "CastLike", "Dropout", batch_anywhere=True)
def identity(call: Call, build: Builder) -> Value:
    """Nothing at inference; casts between float types only."""
    if call.op_type == "Cast" and call.attribute("to") not in {1, 10, 11, 16}:
        raise Unsupported("a cast of activations to a type that is not float", "Keep activations in float.")
    if call.op_type == "CastLike" and call.is_constant(1) and call.inputs[1].dtype.kind in "iub":  # type: ignore[union-attr]
        raise Unsupported("a cast of activations to a type that is not float", "Keep activations in float.")
    if call.op_type == "Dropout" and call.has(2) and bool(np.any(call.constant(2))):
        raise Unsupported("it is in training mode", "Export the model for inference (model.eval()).")
    return call.tensor()

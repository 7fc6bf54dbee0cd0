"""One row per client op: output shape, interval, and how errors and deviations pass through.

Intervals are elementwise pairs (low, high) of arrays with the tensor's per-image shape. ``spread`` maps absolute errors
of the inputs to one of the output. With ``quad=False`` it is rigorous: ``|f(x') - f(x)| <= spread`` when ``|x' - x| <=
error`` and x' lies in the interval. With ``quad=True`` it passes standard deviations, added as roots of squares where
errors of different tensors meet; within one tensor (pooling, reductions) deviations are taken as fully correlated.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..reference.ops import OPS, by_channel, slopes, tap_weights
from . import shapes

Array = np.ndarray
Shape = tuple[int, ...]
Attrs = dict[str, Any]
Pair = tuple[Array, Array]
IntervalRule = Callable[[Attrs, list[Pair], Shape], Pair]
SpreadRule = Callable[[Attrs, list[Pair], list[Array], Shape, bool], Array]


@dataclass(frozen=True)
class Rule:
    """What the planner knows of an op.

    Attributes:
        shape: per-image output shape from attributes and input shapes; None where the out tensor tells it.
        interval: output interval from input intervals.
        spread: output error from input intervals and errors.
        elementwise: one output element needs the same element of the inputs only (streamable).
        inputs: number of inputs; 0 means one or more.
        width: size of the range that results lie in whatever the inputs are; bounds every error.
    """

    shape: shapes.ShapeRule
    interval: IntervalRule
    spread: SpreadRule
    elementwise: bool = True
    inputs: int = 1
    width: Callable[[Attrs], float] = lambda _attrs: math.inf


def evaluate(op: str, attrs: Attrs, xs: list[Array], shape: Shape) -> Array:
    """The op on per-image arrays."""
    with np.errstate(all="ignore"):
        return OPS[op](attrs, [x[None] for x in xs], shape)[0]


def _ends(op: str) -> IntervalRule:
    """Non-decreasing in every input."""

    def rule(attrs: Attrs, ins: list[Pair], shape: Shape) -> Pair:
        return evaluate(op, attrs, [i[0] for i in ins], shape), evaluate(op, attrs, [i[1] for i in ins], shape)

    return rule


def _monotone(op: str) -> IntervalRule:
    """Monotone either way."""

    def rule(attrs: Attrs, ins: list[Pair], shape: Shape) -> Pair:
        a, b = (evaluate(op, attrs, [end], shape) for end in ins[0])
        return np.minimum(a, b), np.maximum(a, b)

    return rule


def _valley(op: str, at: float, value: float) -> IntervalRule:
    """Decreasing to its minimum ``value`` at ``at``, increasing after."""

    def rule(attrs: Attrs, ins: list[Pair], shape: Shape) -> Pair:
        ((low, high),) = ins
        a, b = evaluate(op, attrs, [low], shape), evaluate(op, attrs, [high], shape)
        return np.where((low <= at) & (high >= at), value, np.minimum(a, b)), np.maximum(a, b)

    return rule


def _kinked(op: str) -> IntervalRule:
    """Monotone on both sides of zero, zero at zero."""

    def rule(attrs: Attrs, ins: list[Pair], shape: Shape) -> Pair:
        ((low, high),) = ins
        a, b = evaluate(op, attrs, [low], shape), evaluate(op, attrs, [high], shape)
        inside = (low < 0) & (high > 0)
        least, most = np.minimum(a, b), np.maximum(a, b)
        return np.where(inside, np.minimum(least, 0.0), least), np.where(inside, np.maximum(most, 0.0), most)

    return rule


def _lipschitz(bound: Callable[[Attrs, Array, Array], Any]) -> SpreadRule:
    """``bound(attrs, low, high)`` bounds the derivative; the interval is widened by the error first."""

    def rule(attrs: Attrs, ins: list[Pair], errors: list[Array], _shape: Shape, quad: bool) -> Array:
        (low, high), e = ins[0], errors[0]
        with np.errstate(all="ignore"):
            slope = bound(attrs, low, high) if quad else bound(attrs, low - e, high + e)
            return np.where(e == 0.0, 0.0, slope * e)

    return rule


def _constant(value: float) -> SpreadRule:
    return _lipschitz(lambda _a, low, _h: np.full_like(low, value))


def _two_sided(negative: Callable[[Attrs, Array], Any], positive: float = 1.0) -> SpreadRule:
    """Slopes ``negative(attrs)`` below zero and ``positive`` above."""

    def bound(attrs: Attrs, low: Array, high: Array) -> Array:
        below = np.abs(negative(attrs, low))
        return np.maximum(np.where(high > 0, positive, 0.0), np.where(low < 0, below, 0.0))

    return _lipschitz(bound)


def _mapped(op: str) -> SpreadRule:
    """Ops that move or average non-negative numbers: errors go through the op itself."""
    return lambda attrs, _ins, errors, shape, _quad: evaluate(op, {**attrs, "value": 0.0}, errors, shape)


def _join(a: Array, b: Array, quad: bool) -> Array:
    return np.hypot(a, b) if quad else a + b


def magnitude(pair: Pair) -> Array:
    """``max |x|`` over the interval."""
    return np.maximum(np.abs(pair[0]), np.abs(pair[1]))


def _corners(f: Callable[[Array, Array], Array]) -> IntervalRule:
    def rule(_attrs: Attrs, ins: list[Pair], _shape: Shape) -> Pair:
        with np.errstate(all="ignore"):
            values = [f(a, b) for a in ins[0] for b in ins[1]]
        return np.minimum.reduce(values), np.maximum.reduce(values)

    return rule


def _div_interval(attrs: Attrs, ins: list[Pair], shape: Shape) -> Pair:
    low, high = _corners(np.divide)(attrs, ins, shape)
    unsafe = (ins[1][0] <= 0) & (ins[1][1] >= 0)
    return np.where(unsafe, -np.inf, low), np.where(unsafe, np.inf, high)


def _mul_spread(_a: Attrs, ins: list[Pair], errors: list[Array], _s: Shape, quad: bool) -> Array:
    first, second = magnitude(ins[0]) * errors[1], magnitude(ins[1]) * errors[0]
    return _join(first, second, quad) if quad else first + second + errors[0] * errors[1]


def _div_spread(_a: Attrs, ins: list[Pair], errors: list[Array], _s: Shape, quad: bool) -> Array:
    (low, high) = ins[1]
    with np.errstate(all="ignore"):
        least = np.where((low <= 0) & (high >= 0), 0.0, np.minimum(np.abs(low), np.abs(high)))
        # x'/y' - x/y = ((x' - x) - (x'/y')(y' - y)) / y, and |y| >= least - error
        quotient = magnitude(ins[0]) / least
        below = least if quad else np.maximum(least - errors[1], 0.0)
        spread = _join(errors[0], quotient * errors[1], quad) / below
    return np.where((errors[0] == 0) & (errors[1] == 0), 0.0, spread)


def _sqrt_spread(_a: Attrs, ins: list[Pair], errors: list[Array], _s: Shape, _q: bool) -> Array:
    root = np.sqrt(np.maximum(ins[0][0], 0.0))
    e = errors[0]
    # |sqrt a - sqrt b| <= |a - b| / sqrt(max(a, b)) and <= sqrt |a - b|
    return np.where(e == 0, 0.0, np.minimum(np.sqrt(e), e / np.maximum(root, 1e-300)))


def _softmax_spread(_a: Attrs, _ins: list[Pair], errors: list[Array], shape: Shape, _q: bool) -> Array:
    # the log-odds of one class against the rest move by at most twice the largest error
    return np.full(shape, math.tanh(min(float(errors[0].max(initial=0.0)), 50.0) / 2))


def _largest(_a: Attrs, _ins: list[Pair], errors: list[Array], _s: Shape, _q: bool) -> Array:
    return np.maximum(errors[0], errors[1])


def _increasing(op: str, spread: SpreadRule, width: float = math.inf) -> Rule:
    return Rule(shapes.same, _ends(op), spread, width=lambda _attrs: width)


def _clip_width(attrs: Attrs) -> float:
    low, high = attrs.get("min"), attrs.get("max")
    return math.inf if low is None or high is None else max(high - low, 0.0)


def _moving(op: str, shape: shapes.ShapeRule, inputs: int = 1) -> Rule:
    return Rule(shape, _ends(op), _mapped(op), elementwise=False, inputs=inputs)


def _exp_slope(_a: Attrs, _low: Array, high: Array) -> Array:
    return np.exp(np.minimum(high, 708.0))


def _sigmoid_slope(_a: Attrs, low: Array, high: Array) -> Array:
    nearest = np.where((low <= 0) & (high >= 0), 0.0, np.minimum(np.abs(low), np.abs(high)))
    return 1.0 / (2.0 + 2.0 * np.cosh(np.minimum(nearest, 300.0)))


def _log_interval(_a: Attrs, ins: list[Pair], _s: Shape) -> Pair:
    low, high = (evaluate("log", {}, [np.maximum(v, 0.0)], v.shape) for v in ins[0])
    return low, high


def _log_spread(_a: Attrs, ins: list[Pair], errors: list[Array], _s: Shape, quad: bool) -> Array:
    with np.errstate(all="ignore"):
        least = np.maximum(ins[0][0] - (0.0 if quad else errors[0]), 0.0)
        return np.where(errors[0] == 0.0, 0.0, errors[0] / least)


def _wave_interval(op: str) -> IntervalRule:
    def rule(attrs: Attrs, ins: list[Pair], shape: Shape) -> Pair:
        ((low, high),) = ins
        at = evaluate(op, attrs, [np.where(np.isfinite(low), low, 0.0)], shape)
        return np.where(low == high, at, -1.0), np.where(low == high, at, 1.0)

    return rule


def _rounded_spread(_a: Attrs, _i: list[Pair], errors: list[Array], _s: Shape, _q: bool) -> Array:
    # an error, however small, may lead to the next integer
    return np.where(errors[0] == 0.0, 0.0, errors[0] + 1.0)


def _compared_spread(_a: Attrs, _i: list[Pair], errors: list[Array], _s: Shape, _q: bool) -> Array:
    return np.where((errors[0] == 0.0) & (errors[1] == 0.0), 0.0, 1.0)


def _less_interval(_a: Attrs, ins: list[Pair], _s: Shape) -> Pair:
    (low, high), (low2, high2) = ins
    return np.where(high < low2, 1.0, 0.0), np.where(low >= high2, 0.0, 1.0)


def _equal_interval(_a: Attrs, ins: list[Pair], _s: Shape) -> Pair:
    (low, high), (low2, high2) = ins
    return np.where((low == high) & (low == low2) & (low == high2), 1.0, 0.0), np.where(
        (high < low2) | (low > high2), 0.0, 1.0
    )


def _matmul_interval(_a: Attrs, ins: list[Pair], shape: Shape) -> Pair:
    (a, ra), (b, rb) = (((high + low) / 2, (high - low) / 2) for low, high in ins)
    if not all(np.isfinite(v).all() for v in (a, ra, b, rb)):
        return np.full(shape, -np.inf), np.full(shape, np.inf)
    centre, reach = a @ b, np.abs(a) @ rb + ra @ np.abs(b) + ra @ rb
    slack = (np.abs(centre) + reach) * 1e-12
    return centre - reach - slack, centre + reach + slack


def _matmul_spread(_a: Attrs, ins: list[Pair], errors: list[Array], shape: Shape, quad: bool) -> Array:
    (a, b), (ea, eb) = (magnitude(ins[0]), magnitude(ins[1])), errors
    if not all(np.isfinite(v).all() for v in (a, b, ea, eb)):
        return np.full(shape, np.inf)
    return np.sqrt((a * a) @ (eb * eb) + (ea * ea) @ (b * b)) if quad else a @ eb + ea @ b + ea @ eb


def _interpolated_interval(attrs: Attrs, ins: list[Pair], shape: Shape) -> Pair:
    low, high = np.zeros(shape), np.zeros(shape)
    for taken, weights in tap_weights(attrs, len(shape)):
        ends = [np.take(v, taken, axis=attrs["axis"]) * weights for v in ins[0]]
        low, high = low + np.minimum(*ends), high + np.maximum(*ends)
    return low, high


def _interpolated_spread(attrs: Attrs, _i: list[Pair], errors: list[Array], shape: Shape, _q: bool) -> Array:
    total = np.zeros(shape)
    for taken, weights in tap_weights(attrs, len(shape)):
        total = total + np.take(errors[0], taken, axis=attrs["axis"]) * np.abs(weights)
    return total


def _along(attrs: Attrs, x: Array) -> Array:
    """``x`` as (elements of the reduced axes, rest)."""
    axes = sorted(attrs["axes"])
    kept = [a for a in range(x.ndim) if a not in axes]
    return x.transpose(axes + kept).reshape(math.prod(x.shape[a] for a in axes), -1)


def _product_interval(attrs: Attrs, ins: list[Pair], shape: Shape) -> Pair:
    lows, highs = (_along(attrs, v) for v in ins[0])
    total = (lows[0], highs[0])
    for pair in zip(lows[1:], highs[1:]):
        total = _corners(np.multiply)(attrs, [total, pair], shape)
    return total[0].reshape(shape), total[1].reshape(shape)


def _product_spread(attrs: Attrs, ins: list[Pair], errors: list[Array], shape: Shape, _q: bool) -> Array:
    tops, off = _along(attrs, magnitude(ins[0])), _along(attrs, errors[0])
    top, error = tops[0], off[0]
    for m, e in zip(tops[1:], off[1:]):
        top, error = top * m, top * e + error * m + error * e
    return error.reshape(shape)


def _selected_interval(attrs: Attrs, ins: list[Pair], shape: Shape) -> Pair:
    if attrs["what"] == "values":
        # the k-th largest grows with every element
        return _ends("top_k")(attrs, ins, shape)
    return np.zeros(shape), np.full(shape, ins[0][0].shape[attrs["axis"]] - 1.0)


def _selected_spread(attrs: Attrs, _i: list[Pair], errors: list[Array], shape: Shape, _q: bool) -> Array:
    worst = np.broadcast_to(errors[0].max(axis=attrs["axis"], keepdims=True), shape)
    if attrs["what"] == "values":
        return worst
    return np.where(worst == 0.0, 0.0, errors[0].shape[attrs["axis"]] - 1.0)


RULES: dict[str, Rule] = {
    "affine": Rule(shapes.same, _monotone("affine"), _lipschitz(lambda a, low, _h: np.full_like(low, abs(a["mul"])))),
    "add": Rule(shapes.same, _ends("add"), lambda _a, _i, e, _s, q: _join(e[0], e[1], q), inputs=2),
    "sub": Rule(
        shapes.same,
        lambda _a, i, _s: (i[0][0] - i[1][1], i[0][1] - i[1][0]),
        lambda _a, _i, e, _s, q: _join(e[0], e[1], q),
        inputs=2,
    ),
    "mul": Rule(shapes.same, _corners(np.multiply), _mul_spread, inputs=2),
    "div": Rule(shapes.same, _div_interval, _div_spread, inputs=2),
    "minimum": Rule(shapes.same, _ends("minimum"), _largest, inputs=2),
    "maximum": Rule(shapes.same, _ends("maximum"), _largest, inputs=2),
    "relu": _increasing("relu", _two_sided(lambda _a, _x: 0.0)),
    "leaky_relu": Rule(shapes.same, _kinked("leaky_relu"), _two_sided(lambda a, _x: a["alpha"])),
    "prelu": Rule(shapes.prelu, _kinked("prelu"), _two_sided(lambda a, x: slopes(a, x.ndim))),
    "channel_scale": Rule(
        shapes.channel_scale,
        _monotone("channel_scale"),
        _lipschitz(lambda a, low, _h: by_channel(a["factor"], low.ndim) + 0.0 * low),
    ),
    "clip": Rule(shapes.same, _ends("clip"), _constant(1.0), width=_clip_width),
    "abs": Rule(shapes.same, _kinked("abs"), _constant(1.0)),
    "neg": Rule(shapes.same, lambda _a, i, _s: (-i[0][1], -i[0][0]), _constant(1.0)),
    "sqrt": Rule(
        shapes.same,
        lambda _a, i, _s: (np.sqrt(np.maximum(i[0][0], 0.0)), np.sqrt(np.maximum(i[0][1], 0.0))),
        _sqrt_spread,
    ),
    "square": Rule(
        shapes.same, _kinked("square"), _lipschitz(lambda _a, low, high: 2.0 * np.maximum(np.abs(low), np.abs(high)))
    ),
    "sigmoid": _increasing("sigmoid", _lipschitz(_sigmoid_slope), 1.0),
    "tanh": _increasing("tanh", _lipschitz(lambda a, low, high: 4.0 * _sigmoid_slope(a, 2.0 * low, 2.0 * high)), 2.0),
    "exp": _increasing("exp", _lipschitz(_exp_slope)),
    "erf": _increasing("erf", _constant(2.0 / math.sqrt(math.pi)), 2.0),
    "log": Rule(shapes.same, _log_interval, _log_spread),
    "sin": Rule(shapes.same, _wave_interval("sin"), _constant(1.0), width=lambda _a: 2.0),
    "cos": Rule(shapes.same, _wave_interval("cos"), _constant(1.0), width=lambda _a: 2.0),
    "atan": _increasing("atan", _constant(1.0), math.pi),
    "floor": Rule(shapes.same, _ends("floor"), _rounded_spread),
    "round": Rule(shapes.same, _ends("round"), _rounded_spread),
    "less": Rule(shapes.same, _less_interval, _compared_spread, inputs=2, width=lambda _a: 1.0),
    "equal": Rule(shapes.same, _equal_interval, _compared_spread, inputs=2, width=lambda _a: 1.0),
    "hard_sigmoid": Rule(
        shapes.same,
        _monotone("hard_sigmoid"),
        _lipschitz(lambda a, low, _h: np.full_like(low, abs(a["alpha"]))),
        width=lambda _a: 1.0,
    ),
    "hard_swish": Rule(shapes.same, _valley("hard_swish", -1.5, -0.375), _constant(1.5)),
    "silu": Rule(shapes.same, _valley("silu", -1.2784645428, -0.27846455), _constant(1.1)),
    "gelu": Rule(shapes.same, _valley("gelu", -0.7517915245, -0.16997121), _constant(1.13)),
    "gelu_tanh": Rule(shapes.same, _valley("gelu_tanh", -0.7524614220, -0.17004076), _constant(1.13)),
    "elu": Rule(shapes.same, _kinked("elu"), _two_sided(lambda a, _x: a["alpha"])),
    "softmax": Rule(
        shapes.same,
        lambda _a, _i, s: (np.zeros(s), np.ones(s)),
        _softmax_spread,
        elementwise=False,
        width=lambda _a: 1.0,
    ),
    "max_pool": _moving("max_pool", shapes.pool),
    "average_pool": _moving("average_pool", shapes.pool),
    "reduce_mean": _moving("reduce_mean", shapes.reduced),
    "reduce_sum": _moving("reduce_sum", shapes.reduced),
    "reduce_max": _moving("reduce_max", shapes.reduced),
    "reduce_prod": Rule(shapes.reduced, _product_interval, _product_spread, elementwise=False),
    "matmul": Rule(shapes.multiplied, _matmul_interval, _matmul_spread, elementwise=False, inputs=2),
    "interpolate": Rule(shapes.interpolated, _interpolated_interval, _interpolated_spread, elementwise=False),
    "top_k": Rule(shapes.selected, _selected_interval, _selected_spread, elementwise=False),
    "reshape": _moving("reshape", shapes.reshaped),
    "transpose": _moving("transpose", shapes.transposed),
    "concat": _moving("concat", shapes.joined, inputs=0),
    "slice": _moving("slice", shapes.sliced),
    "pad": _moving("pad", shapes.padded),
    "broadcast": _moving("broadcast", shapes.broadcast),
    "gather": _moving("gather", shapes.gathered),
}

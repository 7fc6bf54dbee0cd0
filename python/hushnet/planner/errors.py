"""Error of a plan's outputs against the float network: a rigorous worst case and a statistical estimate.

Every tensor carries, elementwise, the interval that its planned value lies in, an absolute error and a standard
deviation. With ``W'`` the quantised and ``W`` the float weights, ``y' - y = W (x' - x) + (W' - W) x' + (b' - b)``, so a
linear layer adds ``|W| e + |W' - W| max|x'| + |b' - b|``; quantisation adds half a unit. Deviations take the roundings
as independent: a quantisation adds scale^2/12, a layer ``sum W^2 v + sum (W' - W)^2 E[x^2]``. Both include the rounding
of a float32 reference, but for decisions (comparisons, roundings, places) on what the client computes from its inputs
alone: it decides on the same numbers as the network does, so it decides the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..graph import Linear
from ..plan import PlanError
from .forms import whole_result
from .quantise import Quantisation
from .ranges import Ranges, linear_interval, weighed
from .rules import RULES, Pair, magnitude

Array = np.ndarray
FLOAT32_UNIT = 2.0**-23
# ops that sum, beside the elementwise ones: a float32 reference rounds there
_SUMS = frozenset({"average_pool", "reduce_mean", "reduce_sum", "reduce_prod", "softmax", "matmul", "interpolate"})
# elementwise ops whose results float32 holds
_EXACT = frozenset({"floor", "round", "less", "equal"})
# ops whose results jump: however small an error of an operand is, it may lead to another result
DECIDING = _EXACT | {"top_k"}


@dataclass
class Spread:
    """Planned value's interval, error bound and standard deviation, elementwise.

    ``own`` says that nothing planned is in it: the client computes it from its inputs as the network does.
    """

    interval: Pair
    error: Array
    deviation: Array
    own: bool = False


@dataclass(frozen=True)
class Prediction:
    """Largest error of each output by name: ``worst`` rigorous, ``estimate`` six standard deviations.

    ``reach`` says, by quantised tensor, how large the planned run's values can get. ``layers`` says, by stage, how
    large six standard deviations are beside the largest value: how errors grow through the network.
    """

    worst: dict[str, float]
    estimate: dict[str, float]
    reach: dict[int, float]
    layers: dict[str, float]


def predict(
    document: dict[str, Any], origin: dict[int, Linear], quantisation: Quantisation, ranges: Ranges
) -> Prediction:
    """Propagates errors through a plan's stages.

    With calibrated ranges a worst case may be infinite: a divisor that is never zero on the calibration data, and of
    which nothing else is known.

    Raises:
        PlanError: the worst case of an output is not finite, and ranges follow from intervals.
    """
    tensors = document["tensors"]
    spreads: dict[int, Spread] = {}
    for port in document["inputs"]:
        low, high = ranges.inputs[port["name"]]
        shape = tensors[port["tensor"]]["shape"]
        pair = (np.full(shape, low), np.full(shape, high))
        spreads[port["tensor"]] = Spread(pair, np.zeros(shape), np.zeros(shape), own=True)
    last = _last_reads(document)
    reach: dict[int, float] = {}
    layers: dict[str, float] = {}
    whole: dict[int, int] = {}
    for index, stage in enumerate(document["stages"]):
        if stage["kind"] == "linear":
            spreads[stage["out"]] = _linear(stage, origin[index], quantisation, ranges, spreads[stage["in"]], tensors)
        else:
            for op in stage["ops"]:
                if op["op"] == "quantize":
                    reach[op["out"]] = float(magnitude(spreads[op["in"][0]].interval).max(initial=0.0))
                whole[op["out"]] = _whole(op, [whole.get(t, 0) for t in op["in"]], tensors)
                spreads[op["out"]] = _client(op, [spreads[t] for t in op["in"]], tensors, whole[op["out"]] > 0)
        out = tensors[stage["out"] if stage["kind"] == "linear" else stage["ops"][-1]["out"]]
        name = origin[index].output if stage["kind"] == "linear" else out["name"]
        layers[stage["name"]] = _share(spreads[out["id"]], out, ranges.limit.get(name))
        for tensor in [t for t in spreads if last.get(t, -1) <= index]:
            del spreads[tensor]
    worst, estimate = {}, {}
    for port in document["outputs"]:
        spread = spreads[port["tensor"]]
        worst[port["name"]] = float(spread.error.max(initial=0.0))
        estimate[port["name"]] = min(6.0 * float(spread.deviation.max(initial=0.0)), worst[port["name"]])
        if not np.isfinite(worst[port["name"]]) and ranges.source == "intervals":
            raise PlanError(
                f"output {port['name']!r}: the worst error is not finite (a division, "
                "logarithm or square root near zero); "
                "give calibration data, rewrite the model without it, or use more activation_bits"
            )
    return Prediction(worst, estimate, reach, {k: v for k, v in layers.items() if np.isfinite(v)})


def _share(spread: Spread, tensor: dict[str, Any], limit: float | None) -> float:
    """Six standard deviations of a stage's result, as a share of the largest value that is planned for."""
    if limit is None:
        limit = tensor["bound"] * tensor["scale"] if tensor["kind"] == "fixed" else magnitude(spread.interval).max()
    most = 6.0 * float(spread.deviation.max(initial=0.0))
    return most / float(limit) if limit else 0.0


def _last_reads(document: dict[str, Any]) -> dict[int, int]:
    last: dict[int, int] = {}
    for index, stage in enumerate(document["stages"]):
        if stage["kind"] == "linear":
            last[stage["in"]] = last[stage["out"]] = index
        else:
            for op in stage["ops"]:
                for tensor in [*op["in"], op["out"]]:
                    last[tensor] = index
    for port in document["outputs"]:
        last[port["tensor"]] = len(document["stages"])
    return last


def _whole(op: dict[str, Any], sizes: list[int], tensors: list[dict[str, Any]]) -> int:
    """The largest of the whole numbers that an op makes; 0 where it may make others."""
    if op["op"] == "quantize":
        out = tensors[op["out"]]
        return sizes[0] if out["scale"] == 1.0 and sizes[0] <= out["bound"] else 0
    return sizes[0] if op["op"] == "dequantize" else whole_result(op["op"], op, sizes)


def _client(op: dict[str, Any], ins: list[Spread], tensors: list[dict[str, Any]], whole: bool) -> Spread:
    out = tensors[op["out"]]
    shape = tuple(out["shape"])
    if op["op"] == "quantize":
        # whole numbers stand as they are
        return ins[0] if whole else _quantize(ins[0], out)
    if op["op"] == "dequantize":
        return ins[0]
    rule = RULES[op["op"]]
    pairs = [s.interval for s in ins]
    with np.errstate(all="ignore"):
        interval = rule.interval(op, pairs, shape)
        # what is no number comes from infinite operands: nothing is known
        interval = (
            np.where(np.isnan(interval[0]), -np.inf, interval[0]),
            np.where(np.isnan(interval[1]), np.inf, interval[1]),
        )
        own = all(s.own for s in ins)
        if own and op["op"] in DECIDING:
            return Spread(interval, np.zeros(shape), np.zeros(shape), own)
        error = _known(rule.spread(op, pairs, [s.error for s in ins], shape, False))
        deviation = _known(rule.spread(op, pairs, [s.deviation for s in ins], shape, True))
        if (rule.elementwise or op["op"] in _SUMS) and op["op"] not in _EXACT:
            terms = (
                ins[0].error.shape[-1]
                if op["op"] == "matmul"
                else max(1, max(s.error.size for s in ins) // max(1, error.size))
            )
            unit = FLOAT32_UNIT * (4 + terms) * magnitude(interval)
            error, deviation = error + unit, np.hypot(deviation, unit / 6)
    width = rule.width(op)
    return Spread(interval, np.minimum(error, width), np.minimum(deviation, width), own)


def _known(spread: Array) -> Array:
    """Without what is no number (an infinite error times zero): such an error is not bounded."""
    return np.where(np.isnan(spread), np.inf, spread)


def _quantize(x: Spread, out: dict[str, Any]) -> Spread:
    scale, bound = out["scale"], out["bound"]
    limit = bound * scale
    low, high = (np.clip(np.rint(np.clip(v, -limit, limit) * (1.0 / scale)), -bound, bound) * scale for v in x.interval)
    return Spread((low, high), x.error + scale / 2 * (1 + 1e-9), np.hypot(x.deviation, scale / np.sqrt(12.0)))


def _linear(
    stage: dict[str, Any],
    node: Linear,
    quantisation: Quantisation,
    ranges: Ranges,
    x: Spread,
    tensors: list[dict[str, Any]],
) -> Spread:
    geometry = stage["geometry"]
    weights = quantisation.weights[node.output]
    scale = tensors[stage["out"]]["scale"]
    shape = tuple(tensors[stage["out"]]["shape"])
    planned = weights.weight.astype(np.float64) * weights.scale
    bias = quantisation.biases[node.output] * scale
    exact = np.asarray(node.weight, dtype=np.float64)
    flat = (lambda v: v.reshape(-1)) if geometry["type"] == "dense" else (lambda v: v)
    pair = (flat(x.interval[0]), flat(x.interval[1]))
    interval = linear_interval(geometry, planned, bias, pair)
    off = np.abs(planned - exact)
    bias_off = np.abs(bias - node.bias)
    if geometry["type"] != "dense":
        bias_off = bias_off.reshape(-1, 1, 1)
    top = magnitude(pair)
    carried, absolute = weighed(geometry, np.abs(exact), np.stack([flat(x.error), top]))
    rounded = weighed(geometry, off, top[None])[0]
    terms = exact[0].size
    unit = FLOAT32_UNIT * (2 + terms) * absolute
    square = ranges.square.get(node.input)
    power = np.full_like(top, square) if square is not None else top * top / 3.0
    variance = weighed(geometry, exact**2, (flat(x.deviation) ** 2)[None])[0]
    variance = variance + weighed(geometry, off**2, power[None])[0]
    deviation = np.sqrt(variance + scale * scale / 12.0 + (FLOAT32_UNIT * absolute) ** 2)
    error = carried + rounded + bias_off + unit
    return Spread(
        (interval[0].reshape(shape), interval[1].reshape(shape)), error.reshape(shape), deviation.reshape(shape)
    )

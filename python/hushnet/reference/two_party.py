"""Runs a two-party plan on NumPy in exact integers: no shares, no ciphertexts, no units of masking and truncation.

``run`` is the answer that the protocols come near to: truncations that are not exact round to nearest there (what a
real run gives is the floor or the next integer, on average the quotient; a run that took floors would be half a unit
low everywhere, and such half units add up over layers). With ``units`` a generator draws the units as a real run does
(a linear output is off by one in the stated fraction, a truncation rounds up with the probability of the remainder).
``unit_reach`` bounds, for every tensor, how far any such units can move it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import PlanError
from ..plan import Plan
from . import matrices, methods
from .linear import add_bias, apply, row_norms
from .numpy import _client, check_inputs, linear
from .ops import OPS, _windows
from .spline import function

Array = np.ndarray
Stage = dict[str, Any]

LIVE_BYTES = 256 << 20
MOVES = frozenset({"reshape", "transpose", "concat", "slice", "pad"})
# stages that may drop bits of their operand in front of what they compare
COMPARING = frozenset({"relu", "clip", "max_pool"})


def run(
    plan: Plan,
    inputs: Array | dict[str, Array],
    *,
    keep_all: bool = False,
    units: np.random.Generator | None = None,
    chunk: int | None = None,
) -> dict[str, Array]:
    """Outputs by name, for a batch of images of shape (B, *per-image shape).

    Args:
        plan: a two-party plan with its weights.
        keep_all: also every intermediate tensor, by its name in the plan.
        units: draws the units of a real run; None for none.
        chunk: images at a time.

    Raises:
        PlanError: the plan has no weights. RangeError: an input outside of its planned range. InputError: not the
            plan's inputs.
    """
    if plan.is_public and plan.linear_stages():
        raise PlanError("this is the public part of a plan, it has no weights; run the server's plan file")
    arrays = check_inputs(plan, inputs)
    batch = next(iter(arrays.values())).shape[0]
    live = 8 * max(
        sum(math.prod(t["shape"]) for t in plan.tensors)
        if keep_all
        else 6 * max(math.prod(t["shape"]) for t in plan.tensors),
        1,
    )
    step = chunk or max(1, LIVE_BYTES // live)
    parts = [
        _run(plan, {k: v[i : i + step] for k, v in arrays.items()}, keep_all, units)
        for i in range(0, max(batch, 1), step)
    ]
    return {name: np.concatenate([p[name] for p in parts]) for name in parts[0]}


def with_errors(bound: int) -> int:
    """Largest absolute value in a run of a tensor that is planned up to ``bound``.

    Units of other stages' errors beside it.
    """
    return bound + (bound >> 8) + 2


def reach_bits(bound: int) -> int:
    """The least k such that values up to ``bound``, units of errors included, are below ``2^k``.

    What clients are told of a bound.
    """
    return with_errors(bound).bit_length()


def divided(bound: int, bits: int) -> int:
    """The bound of values up to ``bound`` divided by ``2^bits``, a unit up included."""
    return (bound >> bits) + 1 if bits else bound


def dropped(stage: Stage) -> int:
    """Bits that a comparison drops of its operand: it works on the floor of what is left, or on the next integer."""
    return int(stage.get("bits", 0)) if stage["kind"] in COMPARING else 0


def inputs_of(stage: Stage) -> list[int]:
    """Tensors that a stage on shares reads."""
    return stage["in"] if isinstance(stage["in"], list) else [stage["in"]]


def _run(plan: Plan, arrays: dict[str, Array], keep_all: bool, units: np.random.Generator | None) -> dict[str, Array]:
    values: dict[int, Array] = {i["tensor"]: arrays[i["name"]] for i in plan.document["inputs"]}
    last = _last_uses(plan)
    for index, stage in enumerate(plan.stages):
        if stage["kind"] == "client":
            _client(plan, stage, values, None)
        else:
            values[stage["out"]] = _stage(plan, stage, [values[t] for t in inputs_of(stage)], units)
        if not keep_all:
            for tensor in [t for t in values if last.get(t, -1) <= index]:
                del values[tensor]
    if keep_all:
        return {plan.tensors[t]["name"]: v for t, v in values.items()}
    return {o["name"]: values[o["tensor"]] for o in plan.document["outputs"]}


def _last_uses(plan: Plan) -> dict[int, int]:
    last: dict[int, int] = {}
    for index, stage in enumerate(plan.stages):
        touched = (
            [t for op in stage["ops"] for t in [*op["in"], op["out"]]]
            if stage["kind"] == "client"
            else [*inputs_of(stage), stage["out"]]
        )
        last.update(dict.fromkeys(touched, index))
    last.update({o["tensor"]: len(plan.stages) for o in plan.document["outputs"]})
    return last


def _stage(plan: Plan, stage: Stage, xs: list[Array], units: np.random.Generator | None) -> Array:
    kind, x = stage["kind"], xs[0]
    shape = tuple(plan.tensors[stage["out"]]["shape"])
    if dropped(stage):
        x = _shift(x, dropped(stage), units)
        xs = [x]
    if kind == "linear":
        y = linear(plan, stage, x).reshape(x.shape[0], *shape)
        return y if units is None else y + _masking(plan, stage, y.shape, units)
    if kind == "relu":
        return np.maximum(x, 0)
    if kind == "leaky_relu":
        scaled = x * stage["numerator"] + np.maximum(x, 0) * (2 ** stage["log_denominator"] - stage["numerator"])
        return _shift(scaled, stage["log_denominator"], units)
    if kind == "clip":
        return np.clip(x, stage["low"], stage["high"])
    if kind == "truncate":
        return x >> stage["bits"] if stage.get("exact") else _shift(x, stage["bits"], units)
    if kind == "sum_pool":
        return sums(stage, x, shape)
    if kind == "scale":
        return x * stage["factor"]
    if kind == "add":
        return xs[0] + xs[1]
    if kind == "shift":
        return stage["by"] - x if stage.get("negated") else stage["by"] + x
    if kind == "hard_swish":
        end = 2 * stage["quarter"]
        return _shift(x * np.clip(x + end, 0, 2 * end), stage["bits"], units)
    if kind == "product":
        return _shift(multiplied(xs, shape), stage["bits"], units)
    if kind == "matrix_product":
        total = matrices.sums(xs, shape)
        if units is not None:
            total += matrices.masking(off_fraction(plan, stage), total.shape, units)
        return _shift(total, stage["bits"], units)
    if kind == "function":
        return function(stage, plan.weights[stage["coefficients"]], x, finer(plan, stage), units)
    if kind in MOVES or kind == "max_pool":
        return OPS[kind]({**stage, "value": 0}, xs, shape)
    if kind == "reveal" and stage["what"] == "argmax":
        return x.reshape(x.shape[0], -1).argmax(axis=1).reshape(x.shape[0], *shape)
    return x


def multiplied(xs: list[Array], shape: tuple[int, ...]) -> Array:
    """Products of two tensors of a batch, each broadcast to a result's shape."""
    batch, rank = xs[0].shape[0], len(shape)
    a, b = (x.reshape(batch, *(1,) * (rank + 1 - x.ndim), *x.shape[1:]) for x in xs)
    return a * b


def finer(plan: Plan, stage: Stage) -> int:
    """Fractional bits that a stage's result has beyond its operand."""
    return plan.tensors[stage["out"]]["frac_bits"] - plan.tensors[stage["in"]]["frac_bits"]


def sums(stage: Stage, x: Array, shape: tuple[int, ...]) -> Array:
    """Sums of windows; padding adds nothing."""
    out = np.zeros((x.shape[0], *shape), dtype=x.dtype)
    for target, source, _ in _windows(stage, x, shape):
        out[(slice(None), slice(None), *target)] += x[(slice(None), slice(None), *source)]
    return out


def _shift(x: Array, bits: int, units: np.random.Generator | None) -> Array:
    if units is None:
        return (x + (1 << bits >> 1)) >> bits
    # up with probability (remainder + 1) / 2^bits
    found = units.integers(0, 1 << bits, size=x.shape)
    found += x
    found += 1
    found >>= bits
    return found


def off_fraction(plan: Plan, stage: Stage) -> float:
    """Fraction of the results of a linear stage, or of a product of matrices, that masking puts a unit off."""
    if stage["kind"] == "matrix_product":
        return matrices.of_stage(plan.tensors, stage)[1].unit_fraction
    return methods.ciphertexts(
        stage["method"], plan.ring_degree, plan.part["ring_bits"], stage["weight_l2"]
    ).unit_fraction


def _masking(plan: Plan, stage: Stage, shape: tuple[int, ...], units: np.random.Generator) -> Array:
    return matrices.masking(off_fraction(plan, stage), shape, units)


# standard deviations that real runs keep to: of sums of many small units, passed about once in 10^9 values
SIGMAS = 6.0


@dataclass(frozen=True)
class Stated:
    """An output of the planned run, and what masking's and truncation's units do to it.

    Attributes:
        planned: the output, (B, ...).
        error: for every image, how far a real run's elements are from it: ``SIGMAS`` standard deviations of the element
            that moves most, and a unit of the opened value.
        scale: that unit.
    """

    planned: Array
    error: Array
    scale: float

    def beyond(self, got: Array) -> float:
        """The largest distance of a run's elements from the planned ones, in stated errors.

        At most 1 for a right one.
        """
        distance = np.abs(got - self.planned).reshape(len(got), -1).max(axis=1, initial=0.0)
        return float((distance / self.error).max(initial=0.0))

    def ties(self) -> Array:
        """Images whose two largest values may change places, because each may move by the stated error."""
        values = np.sort(self.planned.reshape(len(self.planned), -1), axis=1)
        if values.shape[1] < 2:
            return np.zeros(len(values), dtype=bool)
        return values[:, -1] - values[:, -2] <= 2 * self.error


def stated(
    plan: Plan, inputs: Array | dict[str, Array], *, draws: int = 8, seconds: float = math.inf, seed: int = 0
) -> Stated:
    """The planned run of a plan's first output, and the error that its units come to.

    The error comes from ``draws`` runs with units drawn: two at least, and no new one after ``seconds``.

    ``unit_reach`` bounds the same for all inputs and the worst units at once, which after some layers says nothing:
    units of many elements do not conspire. Here their variance goes through the network as it is, activations' masks
    and correlations included. Elements move by different amounts: where most of an output is cut off by a ReLU, the
    mean over all of them says too little of the others.
    """
    name = plan.document["outputs"][0]["name"]
    planned = run(plan, inputs)[name]
    rng, begun, count = np.random.default_rng(seed), time.monotonic(), 0
    power: Array = np.zeros(1)
    while count < max(2, draws) and (count < 2 or time.monotonic() - begun < seconds):
        moved = (run(plan, inputs, units=rng)[name] - planned).reshape(len(planned), -1)
        power = power + moved**2
        count += 1
    opened = next(s for s in plan.stages if s["kind"] == "reveal")["out"]
    scale = plan.tensors[opened].get("scale", 1.0)
    return Stated(planned, SIGMAS * np.sqrt(power.max(axis=1, initial=0.0) / count) + scale, scale)


def unit_reach(plan: Plan) -> dict[str, Array]:
    """Most units that every shared and opened tensor can be away from ``run``'s, by name and element.

    It holds for inputs whose values keep to the planned ranges: all inputs, for a plan without calibration.
    """
    reach: dict[int, Array] = {}
    for stage in plan.stages:
        if stage["kind"] == "client":
            continue
        out = plan.tensors[stage["out"]]
        shape = tuple(out["shape"])
        if stage["kind"] == "share":
            reach[stage["out"]] = np.zeros(shape)
            continue
        moved = _reached(plan, stage, [reach[t] for t in inputs_of(stage)], shape)
        # neither run leaves the bound
        most = 2.0 * out["bound"]
        reach[stage["out"]] = np.minimum(moved, most)
    return {plan.tensors[t]["name"]: r for t, r in reach.items()}


def _reached(plan: Plan, stage: Stage, rs: list[Array], shape: tuple[int, ...]) -> Array:
    kind, r = stage["kind"], rs[0]
    if dropped(stage):
        r = np.ceil(r / 2 ** dropped(stage)) + 1
        rs = [r]
    if kind == "linear":
        weight = np.abs(plan.weights[stage["weights"]].astype(np.float64))
        zero = np.zeros(weight.shape[0])
        return add_bias(stage["geometry"], apply(stage["geometry"], weight, r[None])[0], zero).reshape(shape) + (
            stage["method"] not in methods.SLOTS
        )
    if kind == "truncate":
        return np.ceil(r / 2 ** stage["bits"]) + (0 if stage.get("exact") else 1)
    if kind == "leaky_relu":
        return r + 2
    if kind == "sum_pool":
        return sums(stage, r[None], shape)[0]
    if kind == "scale":
        return r * stage["factor"]
    if kind == "add":
        return rs[0] + rs[1]
    if kind == "hard_swish":
        return np.ceil((6 * stage["quarter"] * r + r * r) / 2 ** stage["bits"]) + 1
    if kind == "product":
        a, b = (plan.tensors[t]["bound"] for t in inputs_of(stage))
        moved = multiplied([rs[0][None] + a, rs[1][None] + b], shape)[0] - a * b
        return np.ceil(moved / 2 ** stage["bits"]) + 1
    if kind == "matrix_product":
        ends = [plan.tensors[t] for t in inputs_of(stage)]
        a, b = (t["bound"] for t in ends)
        moved = np.matmul(rs[0] + a, rs[1] + b) - a * b * ends[0]["shape"][-1]
        return np.ceil((moved.reshape(shape) + matrices.UNITS) / 2 ** stage["bits"]) + 1
    if kind == "function":
        figures, unit = stage["predicted"], [2.0 ** -plan.tensors[stage[k]]["frac_bits"] for k in ("in", "out")]
        return np.ceil((r * unit[0] * figures["slope"] + 2 * figures["error"]) / unit[1])
    if kind == "reveal" and stage["what"] == "argmax":
        return np.full(shape, np.inf if r.max(initial=0) > 0 else 0.0)
    if kind in MOVES or kind == "max_pool":
        return OPS[kind]({**stage, "value": 0}, [x[None] for x in rs], shape)[0]
    return r


def reach_of_linear(plan: Plan, stage: Stage) -> int:
    """Largest result of a linear stage, a unit of masking included."""
    weight, bias = plan.weights[stage["weights"]], plan.weights[stage["bias"]]
    rows, _ = row_norms(weight)
    bound = plan.tensors[stage["in"]]["bound"]
    return max((int(n) * bound + abs(int(b)) for n, b in zip(rows, bias)), default=0) + 1


def rehearse(
    plan: Plan, inputs: dict[str, Array], units: np.random.Generator, also: Sequence[int] = ()
) -> tuple[dict[str, Array], dict[int, int]]:
    """Outputs with units drawn, and the largest absolute value of every shared tensor, by id.

    ``also`` are tensors that are returned beside the outputs, by their names in the plan.
    """
    arrays = check_inputs(plan, inputs)
    batch = next(iter(arrays.values())).shape[0]
    step = max(1, LIVE_BYTES // (48 * max(math.prod(t["shape"]) for t in plan.tensors)))
    largest: dict[int, int] = {}
    parts = []
    last = _last_uses(plan) | dict.fromkeys(also, len(plan.stages))
    for start in range(0, batch, step):
        values: dict[int, Array] = {
            i["tensor"]: arrays[i["name"]][start : start + step] for i in plan.document["inputs"]
        }
        for index, stage in enumerate(plan.stages):
            if stage["kind"] == "client":
                _client(plan, stage, values, None)
            else:
                out = stage["out"]
                values[out] = _stage(plan, stage, [values[t] for t in inputs_of(stage)], units)
                if values[out].dtype.kind == "i":
                    low, high = values[out].min(initial=0), values[out].max(initial=0)
                    largest[out] = max(largest.get(out, 0), int(high), -int(low))
            for tensor in [t for t in values if last.get(t, -1) <= index]:
                del values[tensor]
        kept = {plan.tensors[t]["name"]: values[t] for t in also}
        parts.append(kept | {o["name"]: values[o["tensor"]] for o in plan.document["outputs"]})
    return {name: np.concatenate([p[name] for p in parts]) for name in parts[0]}, largest

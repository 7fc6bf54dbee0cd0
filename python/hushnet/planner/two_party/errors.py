"""Error of the opened values against the float network: a rigorous worst case and a statistical estimate.

Every shared tensor carries an error bound and a variance, in units of its integers. Arrays have the tensor's axes, with
size 1 where all elements along an axis share a value. A layer adds ``|W' - W| max|x'| + |b' - b|`` and a unit of
masking (in a stated fraction of elements), a truncation at most a unit: it rounds up with the probability of the
remainder, so its error has mean zero and a variance of a sixth at most.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...reference import matrices, methods
from ...reference.linear import apply
from ...reference.ops import OPS
from ...reference.two_party import dropped
from ..ranges import Ranges
from .versions import Fixed

Array = np.ndarray
Stage = dict[str, Any]
FLOAT32_UNIT = 2.0**-23
# variance of what a truncation rounds off: p (1 - p) with p uniform
FAITHFUL = 1.0 / 6.0


@dataclass(frozen=True)
class Doubt:
    """Error bound and variance of a tensor, in its units."""

    worst: Array
    variance: Array


class Propagation:
    """Through the stages of a shared region."""

    def __init__(self, fixed: Fixed, ring_degree: int, ranges: Ranges, whole: frozenset[str] = frozenset()) -> None:
        """``whole`` are names of tensors that enter and hold whole numbers."""
        self.fixed, self.degree, self.ranges, self.whole = fixed, ring_degree, ranges, whole
        self.doubts: dict[int, Doubt] = {}
        # by stage: six standard deviations as a share of the largest value that is planned for
        self.layers: dict[str, float] = {}

    def run(self) -> dict[str, Doubt]:
        """Doubts of the opened tensors in real units, by name."""
        for name, version in self.fixed.entering.items():
            shape = (1,) * len(self.fixed.tensors[version.tensor]["shape"])
            # half a unit, and what binary64 adds; nothing is rounded off whole numbers
            off = 0.0 if name in self.whole and version.frac_bits >= 0 else 1.0
            self.doubts[version.tensor] = Doubt(np.full(shape, 0.5 * (1 + 1e-9) * off), np.full(shape, off / 12))
        last = {t: i for i, s in enumerate(self.fixed.stages) for t in [*_inputs(s), s["out"]]}
        kept = {v.tensor for v in self.fixed.opened.values()}
        for index, stage in enumerate(self.fixed.stages):
            ins = [self.doubts[t] for t in _inputs(stage)]
            doubt = self.doubts[stage["out"]] = self.capped(stage["out"], self.stage(stage, ins))
            most = 6.0 * math.sqrt(float(doubt.variance.max(initial=0.0)))
            self.layers[stage["name"]] = most / self.largest(stage["out"])
            for tensor in [t for t in self.doubts if last.get(t, -1) <= index and t not in kept]:
                del self.doubts[tensor]
        found = {}
        for name, version in self.fixed.opened.items():
            doubt = self.doubts[version.tensor]
            found[name] = Doubt(doubt.worst * version.unit, doubt.variance * version.unit**2)
        return found

    def largest(self, tensor: int) -> float:
        """The largest value that is planned for, in the tensor's units; without calibration the proven one."""
        entry = self.fixed.tensors[tensor]
        limit = self.ranges.limit.get(self.fixed.names[tensor])
        planned = entry["bound"] if limit is None else min(entry["bound"], math.ldexp(limit, entry["frac_bits"]))
        return max(1.0, float(planned))

    def capped(self, tensor: int, doubt: Doubt) -> Doubt:
        """Neither value leaves its range, so neither does their difference."""
        name = self.fixed.names[tensor]
        limit = self.ranges.limit.get(name) if self.ranges.source == "calibration" else None
        limit = self.fixed.proven.get(name, limit)
        if limit is None:
            return doubt
        entry = self.fixed.tensors[tensor]
        most = entry["bound"] + math.ldexp(limit, entry["frac_bits"]) * 2
        return Doubt(np.minimum(doubt.worst, most), np.minimum(doubt.variance, most * most))

    def stage(self, stage: Stage, ins: list[Doubt]) -> Doubt:
        """What a stage leaves of the doubts of its inputs, in units of its result."""
        kind = stage["kind"]
        if dropped(stage):
            ins = [self.truncate({**stage, "bits": dropped(stage)}, ins[0])]
        if kind == "linear":
            return self.linear(stage, ins[0])
        if kind == "truncate":
            return self.truncate(stage, ins[0])
        if kind == "leaky_relu":
            slope = stage["numerator"] / 2 ** stage["log_denominator"]
            off = abs(slope - self.slope(stage)) * self.fixed.tensors[stage["in"]]["bound"]
            return Doubt(ins[0].worst + off + 1, ins[0].variance + off * off + FAITHFUL)
        if kind == "clip":
            return Doubt(ins[0].worst + 0.5, ins[0].variance + 1 / 12)
        if kind == "scale":
            factor = stage["factor"]
            off = abs(self.fixed.factors.get(stage["name"], factor) - factor) * self.fixed.tensors[stage["in"]]["bound"]
            return Doubt(ins[0].worst * factor + off, ins[0].variance * factor**2 + off * off / 3)
        if kind == "sum_pool":
            taps = math.prod(stage["kernel"])
            # errors inside of a window are taken as fully correlated; those of exponentials are independent
            alone = self.exponential(stage["in"])
            return Doubt(_peak(ins[0].worst) * taps, _peak(ins[0].variance) * (taps if alone else taps**2))
        if kind == "max_pool":
            return Doubt(_peak(ins[0].worst), _peak(ins[0].variance))
        if kind == "add":
            return Doubt(ins[0].worst + ins[1].worst, ins[0].variance + ins[1].variance)
        if kind == "shift":
            return Doubt(ins[0].worst + 0.5, ins[0].variance + 1 / 12)
        if kind == "hard_swish":
            # steepest right below the upper end
            slope = 6 * stage["quarter"] / 2 ** stage["bits"]
            return Doubt(ins[0].worst * slope + 1.0, ins[0].variance * slope**2 + FAITHFUL)
        if kind == "product":
            return self.product(stage, ins)
        if kind == "matrix_product":
            return self.matrix_product(stage, ins)
        if kind == "function":
            return self.function(stage, ins[0])
        if kind == "relu":
            return Doubt(ins[0].worst, ins[0].variance * self.passed(stage))
        return Doubt(self.move(stage, [d.worst for d in ins]), self.move(stage, [d.variance for d in ins]))

    def passed(self, stage: Stage) -> float:
        """Share of a tensor's power that an activation lets through: of its deviations as well, on average."""
        before, after = (self.ranges.square.get(self.fixed.names[t], 0.0) for t in (stage["in"], stage["out"]))
        return min(1.0, after / before) if after > 0 and before > 0 else 1.0

    def product(self, stage: Stage, ins: list[Doubt]) -> Doubt:
        """The doubt of a product: of each factor by the other one's size, and a unit of the division."""
        a, b = (self.fixed.tensors[t] for t in stage["in"])
        tops, parts = [float(a["bound"]), float(b["bound"])], 2.0 ** -stage["bits"]
        powers = [self.power(t, top) for t, top in zip(stage["in"], tops)]
        x, y = (_raised(d, len(self.fixed.tensors[stage["out"]]["shape"])) for d in ins)
        worst = x.worst * tops[1] + y.worst * tops[0] + x.worst * y.worst
        variance = x.variance * powers[1] + y.variance * powers[0] + x.variance * y.variance
        if stage["in"][0] == stage["in"][1]:
            variance = 2 * variance
        unit = (1.0, FAITHFUL) if stage["bits"] else (0.0, 0.0)
        return Doubt(worst * parts + unit[0], variance * parts**2 + unit[1])

    def matrix_product(self, stage: Stage, ins: list[Doubt]) -> Doubt:
        """The doubt of sums of products: as of products, with units of masking in front of the division."""
        a, b = (self.fixed.tensors[t] for t in stage["in"])
        sizes, figures = matrices.of_stage(self.fixed.tensors, stage)
        tops, parts = [float(a["bound"]), float(b["bound"])], 2.0 ** -stage["bits"]
        powers = [self.power(t, top) for t, top in zip(stage["in"], tops)]
        worst = [_peak_all(d.worst) for d in ins]
        variance = [_peak_all(d.variance) for d in ins]
        off = sizes.inner * (worst[0] * tops[1] + worst[1] * tops[0] + worst[0] * worst[1])
        spread = sizes.inner * (variance[0] * powers[1] + variance[1] * powers[0] + variance[0] * variance[1])
        if len({self.moved_from(t) for t in stage["in"]}) == 1:
            # an element's error may meet itself
            spread *= 2
        unit = (1.0, FAITHFUL) if stage["bits"] else (0.0, 0.0)
        shape = (1,) * len(self.fixed.tensors[stage["out"]]["shape"])
        return Doubt(
            np.full(shape, (off + matrices.UNITS) * parts + unit[0]),
            np.full(shape, (spread + figures.unit_fraction) * parts**2 + unit[1]),
        )

    def exponential(self, tensor: int) -> bool:
        """Whether a tensor has the exponentials of a stage: what all errors of a row share does not change softmax."""
        source = self.moved_from(tensor)
        made = next((s for s in self.fixed.stages if s["out"] == source), None)
        return made is not None and made["kind"] == "function" and made["form"].get("rate", 0) > 0

    def moved_from(self, tensor: int) -> int:
        """The tensor whose elements a tensor has, in another order or with fewer bits."""
        made = {s["out"]: s for s in self.fixed.stages}
        while tensor in made and made[tensor]["kind"] in {"reshape", "transpose", "truncate"}:
            tensor = _inputs(made[tensor])[0]
        return tensor

    def power(self, tensor: int, top: float) -> float:
        """The mean square of a tensor's integers."""
        square = self.ranges.square.get(self.fixed.names[tensor])
        if square is None:
            return top * top / 3.0
        entry = self.fixed.tensors[tensor]
        return float(min(math.ldexp(square, 2 * entry["frac_bits"]), top * top))

    def function(self, stage: Stage, x: Doubt) -> Doubt:
        """The doubt of a function's result: of its argument by the steepest slope, and the error of the pieces."""
        source, out = (self.fixed.tensors[stage[k]]["frac_bits"] for k in ("in", "out"))
        slope = math.ldexp(stage["predicted"]["slope"], out - source)
        error = math.ldexp(stage["predicted"]["error"], out)
        # a bound of three standard deviations of what pieces and roundings come to
        return Doubt(x.worst * slope + error, x.variance * slope**2 + error**2 / 9)

    def slope(self, stage: Stage) -> float:
        """The largest slope of a stage's activation between two inputs of its range."""
        return float(self.fixed.slopes[stage["name"]])

    def truncate(self, stage: Stage, x: Doubt) -> Doubt:
        """The doubt of a truncated value: the input's part, and the unit that the truncation itself may be off."""
        part = 2.0 ** -stage["bits"]
        opened = stage["out"] in {v.tensor for v in self.fixed.opened.values()}
        half = any(s["out"] == stage["in"] and s["name"] in self.fixed.offsets for s in self.fixed.stages)
        unit, spread = (0.5, 1 / 12) if opened and half else (1.0, 1 / 3) if opened else (1.0, FAITHFUL)
        return Doubt(x.worst * part + unit, x.variance * part**2 + spread)

    def linear(self, stage: Stage, x: Doubt) -> Doubt:
        """The doubt of a layer's result: of its input through the weights, and of the weights' own rounding."""
        layer = self.fixed.layers[stage["name"]]
        source, out = self.fixed.tensors[stage["in"]], self.fixed.tensors[stage["out"]]
        planned = self.fixed.weights[stage["weights"]].astype(np.float64)
        gain = self.fixed.gains[stage["name"]]
        # both in units of the result
        units = math.ldexp(self.fixed.results[stage["name"]], out["frac_bits"])
        exact = np.asarray(layer.weight, dtype=np.float64) * math.ldexp(gain * units, -source["frac_bits"])
        off = np.abs(planned - exact)
        bias = self.fixed.weights[stage["bias"]] - self.fixed.offsets.get(stage["name"], 0)
        bias_off = np.abs(bias - np.asarray(layer.bias, dtype=np.float64) * units)
        top = float(source["bound"])
        geometry, shape = stage["geometry"], tuple(source["shape"])
        magnitude = np.abs(exact)
        terms = exact[0].size
        square = self.ranges.square.get(layer.input)
        power = top * top / 3.0 if square is None else math.ldexp(square, 2 * source["frac_bits"]) / gain**2
        fraction = methods.ciphertexts(
            stage["method"], self.degree, self.fixed.ring_bits, stage["weight_l2"]
        ).unit_fraction
        absolute = _rows(magnitude) * (top + _peak_all(x.worst))
        rounding = FLOAT32_UNIT * (2 + terms) * absolute
        worst = _layer(geometry, magnitude, x.worst, shape) + _column(
            geometry, _rows(off) * top + bias_off + 1 + rounding
        )
        noise = _rows(off**2) * power + 1 / 12 + fraction + (FLOAT32_UNIT * absolute) ** 2
        variance = _layer(geometry, exact**2, x.variance, shape) + _column(geometry, noise)
        return Doubt(worst, variance)

    def move(self, stage: Stage, arrays: list[Array]) -> Array:
        """The elements of ``arrays`` where a stage without arithmetic (a reshape, a pad, a concatenation) puts them."""
        shape = tuple(self.fixed.tensors[stage["out"]]["shape"])
        sources = [tuple(self.fixed.tensors[t]["shape"]) for t in _inputs(stage)]
        kind = stage["kind"]
        if kind == "reshape" and all(n == 1 for n in arrays[0].shape):
            return arrays[0].reshape((1,) * len(shape))
        if kind == "transpose":
            return arrays[0].transpose(stage["perm"])
        if kind == "slice":
            for axis, start, step in zip(stage["axes"], stage["starts"], stage["steps"]):
                if arrays[0].shape[axis] > 1:
                    arrays = [np.take(arrays[0], start + step * np.arange(shape[axis]), axis=axis)]
            return arrays[0]
        full = [np.broadcast_to(a, s)[None] for a, s in zip(arrays, sources)]
        return OPS[kind]({**stage, "value": 0}, full, shape)[0]


def _raised(doubt: Doubt, rank: int) -> Doubt:
    """A doubt with so many axes, new ones in front."""
    arrays = (a.reshape((1,) * (rank - a.ndim) + a.shape) for a in (doubt.worst, doubt.variance))
    return Doubt(*arrays)


def _inputs(stage: Stage) -> list[int]:
    return stage["in"] if isinstance(stage["in"], list) else [stage["in"]]


def _peak(array: Array) -> Array:
    """Largest over the spatial axes."""
    return array.max(axis=tuple(range(1, array.ndim)), keepdims=True)


def _peak_all(array: Array) -> float:
    return float(array.max(initial=0.0))


def _rows(weight: Array) -> Array:
    return weight.reshape(weight.shape[0], -1).sum(axis=1)


def _column(geometry: dict[str, Any], values: Array) -> Array:
    return values if geometry["type"] == "dense" else values.reshape(-1, 1, 1)


def _layer(geometry: dict[str, Any], weight: Array, x: Array, shape: tuple[int, ...]) -> Array:
    """``weight x`` for non-negative operands; a convolution with the largest x of every channel, padding not used."""
    if geometry["type"] == "dense":
        if x.size == 1:
            return weight.sum(axis=1) * float(x.reshape(-1)[0])
        return apply(geometry, weight, np.broadcast_to(x, shape)[None])[0]
    channels = np.broadcast_to(_peak(x).reshape(-1), (geometry["input"][0],))
    groups = geometry["groups"]
    taps = weight.reshape(weight.shape[0], weight.shape[1], -1).sum(axis=2).reshape(groups, -1, weight.shape[1])
    return np.einsum("goc,gc->go", taps, channels.reshape(groups, -1)).reshape(-1, 1, 1)

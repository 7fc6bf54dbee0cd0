"""Fixed point for the steps: frac_bits, bounds and stages for one ring width and one rule for activation bits.

Values stay as fine as they come out of a layer through activations, pools and sums (all exact), and are truncated
once, right before layers read them. The bound of a version (:mod:`.versions`) is rigorous, given that the tensors with
a calibrated range stay inside of it; units of masking and truncation are counted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from ...graph import Linear
from ...plan import PlanError
from ...reference.two_party import inputs_of, with_errors
from ..ranges import plan_geometry
from .early import compared
from .groups import groups, not_negative
from .regions import MOVES
from .steps import Step
from .sums import behind_layers, doublings, long_chains, rested
from .versions import DoesNotFit, Fixed, Request, Version, too_wide
from .weights import LEAST_WEIGHT_BITS, Quantised, Weights

Array = np.ndarray

# an opened value loses at least this many bits, so that units of masking (which depend on weights) are rarely seen
OPENING_BITS = 6
GAIN_BITS = 10
SLOPE_BITS = 7
EXTRA_UNITS = 2
# of a layer's largest bias: far more than any result needs in the rings that are taken first. Wider ones, up to the
# widest, are taken for precision, and leave biases all bits but these
BIAS_BITS = 23
WIDEST_RING, BESIDE_BIAS = 40, 5
# of sums that calibration bounds: their bound over the planned range, because a sum beyond it wraps around
SUM_AIR = 2.0
# a unit of a value that no plan has: 2^64
COARSEST = -64


class Builder:
    """One attempt at a ring width. ``reach`` is that of an earlier attempt without limits."""

    def __init__(
        self, steps: list[Step], request: Request, weights: Weights, ring_bits: int, reach: Mapping[str, float]
    ) -> None:
        self.steps, self.weights, self.known = steps, weights.fork(), reach
        self.proven = {s.output: s.most for s in steps if s.most is not None}
        # beside what calibration showed
        self.request = replace(
            request,
            limits={**request.limits, **{t: min(m, request.limits.get(t, m)) for t, m in self.proven.items()}},
            least={**request.least, **{s.output: s.least for s in steps if s.least is not None}},
        )
        self.limit = (1 << (ring_bits - 1)) - 1
        names: set[str] = set()
        self.out = Fixed(ring_bits=ring_bits, tensor_names=names, stage_names=names, least_bits=request.most_bits)
        self.out.proven = self.proven
        self.root, self.layers, self.members = groups(steps)
        self.joined = {self.root(s.output) for s in steps if s.kind == "concat"}
        self.positive = not_negative(steps)
        self.readers = [t for s in steps for t in s.inputs] + request.opened
        self.reading: dict[str, list[Step]] = {}
        for step in steps:
            for tensor in step.inputs:
                self.reading.setdefault(tensor, []).append(step)
        self.natural: dict[str, Version] = {}
        self.rough: dict[tuple[int, int], Version] = {}
        self.target: dict[str, int] = {}
        self.shapes: dict[int, tuple[int, ...]] = {}
        opened = dict.fromkeys(self.request.opened, 1 if self.request.argmax else 0)
        self.room = doublings(steps, opened)
        self.resting = long_chains(steps, self.room, self.request.limits)
        if request.shown_sums:
            self.resting |= behind_layers(steps, self.request.limits)
        if self.resting:
            self.room = doublings(steps, opened, self.resting)

    def run(self, entering: Mapping[str, tuple[int, ...]]) -> Fixed:
        """All stages.

        Raises:
            DoesNotFit: a value needs a wider ring.
            PlanError: a value's range is beyond all numbers.
        """
        for name, shape in entering.items():
            self.enter(name, shape)
        for step in self.steps:
            try:
                getattr(self, step.kind)(step)
            except OverflowError:
                raise too_wide(step.name) from None
        for name in self.request.opened:
            self.open(name)
        for tensor in self.out.tensors:
            self.demand(tensor["bound"], tensor["name"])
        return self.out

    # -- tensors and stages

    def tensor(self, name: str, shape: tuple[int, ...], version: Version, suffix: str = "s") -> Version:
        """A new shared tensor with a version's figures."""
        if version.frac_bits < COARSEST:
            raise too_wide(name)
        index = self.out.tensor(f"{name}.{suffix}", shape, "shared", frac_bits=version.frac_bits, bound=version.bound)
        self.shapes[index] = tuple(shape)
        self.out.names[index] = name
        return replace(version, tensor=index)

    def stage(self, kind: str, name: str, source: int | list[int], out: int, **fields: Any) -> str:
        """Adds a stage to the plan and returns its name."""
        return self.out.stage(kind, name, source, out, **fields)["name"]

    def keep(self, name: str, version: Version) -> None:
        """Records what a graph or step tensor is."""
        self.natural[name] = version
        self.out.reach[name] = version.bound * version.unit

    def most(self, name: str) -> int:
        """Largest bound of a tensor that leaves room for what happens to it next."""
        room = self.room.get(name, 0)
        # a truncation without known sign needs some air beside the half, and every value room for units of errors
        return (self.limit >> room) * 63 // 64 - 4 if room else (self.limit - 2) * 256 // 257

    def fits(self, bound: int) -> bool:
        """Whether values up to ``bound`` units, with their errors, fit the ring."""
        return with_errors(bound) <= self.limit

    def demand(self, bound: int, name: str) -> None:
        """Refuses a bound, in units, that does not fit the ring.

        Raises:
            DoesNotFit: with the name of the step.
        """
        if not self.fits(bound):
            raise DoesNotFit(name)

    def demand_twice(self, bound: int, name: str) -> None:
        """Room for differences of two such values, or for a truncation without comparison."""
        if 2 * with_errors(bound) > self.limit:
            raise DoesNotFit(name)

    def calibrated(self, name: str, version: Version) -> Version:
        """The version with its calibrated range as bound, where that is less."""
        limit = self.request.limits.get(name)
        if limit is None:
            return version
        return replace(version, bound=min(version.bound, math.floor(limit / version.unit) + EXTRA_UNITS))

    # -- activation bits

    def group_reach(self, group: str, version: Version) -> float:
        """Largest value that a group is planned for, in units of the gain."""
        limits, inputs = self.request.limits, self.request.inputs
        found = []
        for member in self.members[group]:
            if member in inputs:
                found.append(max(map(abs, inputs[member])))
            elif member in limits or member in self.known:
                found.append(min(limits.get(member, math.inf), self.known.get(member, math.inf)))
        return max(found or [version.bound * version.unit]) / version.gain

    def target_bits(self, name: str, version: Version) -> int | None:
        """frac_bits at which layers read a group (None: no layer does); fixed when the first member is asked for."""
        group = self.root(name)
        layers = self.layers.get(group)
        if group not in self.target and layers and self.whole(group):
            self.target[group] = 0
            self.out.least_bits = min(self.out.least_bits, self.lightened(layers, version.gain))
        if group not in self.target and layers:
            reach = self.group_reach(group, version)
            given = self.request.activation_bits
            bits = given if given is not None else self.request.most_bits
            while given is None and bits > 2:
                fine = self.fraction(layers, version.gain, reach, bits)
                tight = [n for n in layers if not self.holds(n, version.gain, reach, fine)]
                # what a layer cannot hold (its sums, or its bias) is taken from the finer of weights and activations
                most = fraction(reach, bits)
                short = [n for n in layers if n in tight or self.fraction([n], version.gain, reach, bits) < most]
                even = bits - (most - fine)
                heavy = [n for n in short if self.weights.of(n) > LEAST_WEIGHT_BITS]
                heavy = [n for n in heavy if self.weights.finer(n, version.gain, fine, even)]
                for layer in heavy:
                    self.weights.lower(layer)
                if not tight and not heavy:
                    break
                if not heavy:
                    bits -= 1
            self.target[group] = self.fraction(layers, version.gain, reach, bits)
            self.out.least_bits = min(self.out.least_bits, bits)
        return self.target.get(group)

    def lightened(self, layers: list[Linear], gain: float) -> int:
        """Takes bits off weights until layers hold zeros and ones; bits that are left, or all that are asked for."""
        tight: list[Linear] = []
        while short := [n for n in layers if not self.holds(n, gain, 1.0, 0)]:
            tight = [n for n in short if self.weights.of(n) > LEAST_WEIGHT_BITS]
            if not tight:
                return LEAST_WEIGHT_BITS
            for layer in tight:
                self.weights.lower(layer)
        if not tight:
            return self.request.most_bits
        return min(self.request.most_bits - 1, *(self.weights.of(n) for n in layers))

    def whole(self, group: str) -> bool:
        """Whether a group holds whole numbers that enter, and what moves make of them.

        Not where sums of a layer that reads it are opened: these lose bits, which inputs must have brought.
        """
        made = {s.output for s in self.steps if s.kind not in MOVES}
        entering = [t for t in self.members[group] if t in self.request.inputs]
        if not entering or not self.request.whole.issuperset(entering) or made & self.members[group]:
            return False
        opened = set() if self.request.argmax else {self.root(t) for t in self.request.opened}
        return not opened & {self.root(n.output) for n in self.layers[group]}

    def fraction(self, layers: list[Linear], gain: float, reach: float, bits: int) -> int:
        """frac_bits of inputs of so many bits.

        Fewer where inputs are so small that biases alone would fill the ring.
        """
        fine = fraction(reach, bits)
        ring = self.out.ring_bits
        most = max(BIAS_BITS, ring - BESIDE_BIAS) if ring <= WIDEST_RING else BIAS_BITS
        for layer in layers:
            bias = self.weights.bias(layer)
            if bias > 0:
                room = most + self.request.far.get(layer.output, 0)
                fine = min(fine, room - math.frexp(bias)[1] - self.weights(layer, gain).frac_bits)
        return fine

    def holds(self, layer: Linear, gain: float, reach: float, fine: int) -> bool:
        """Whether a layer's results fit the ring when its inputs have so many frac_bits."""
        weights = self.weights(layer, gain)
        bound = math.floor(math.ldexp(reach, fine)) + EXTRA_UNITS
        bias = np.ldexp(np.asarray(layer.bias + weights.shift), fine + weights.frac_bits)
        above, below = weights.reach(self.members[self.root(layer.input)] <= self.positive) * float(bound)
        top = float(np.maximum(above + bias, below - bias).max(initial=0.0)) + 2
        if self.request.shown_sums:
            top = min(top, self.shown(layer, weights, fine + max(weights.frac_bits, 0), 1.0))
        return top <= self.most(layer.output)

    def shown(self, layer: Linear, weights: Quantised, fine: int, gain: float) -> float:
        """Bound of a layer's sums by calibration data, in units of ``2^-fine gain``; infinite where there is none.

        Not below the largest weight: one-hot vectors may look up rows that calibration data never did.
        """
        limit = self.request.limits.get(layer.output)
        if limit is None:
            return math.inf
        single = float(np.abs(weights.weight).max(initial=0)) * 2.0 ** (fine - max(weights.frac_bits, 0))
        bias = float(np.abs(layer.bias + weights.shift).max(initial=0.0)) * math.ldexp(1.0 / gain, fine)
        return max(SUM_AIR * math.ldexp(limit / gain, fine), single + bias) + EXTRA_UNITS

    def read(self, name: str) -> Version:
        """The version that layers and moves in front of them read: truncated when the group is read by a layer."""
        version = self.natural[name]
        group = self.root(name)
        if group in self.layers and group in self.joined:
            version = self.without_gain(name, version)
        target = self.target_bits(name, version)
        if target is None or target >= version.frac_bits:
            return version
        return self.truncated(name, version, version.frac_bits - target)

    def truncated(self, name: str, version: Version, bits: int) -> Version:
        """A version with fewer bits behind the point; made once."""
        bits = min(bits, self.out.ring_bits - 2)
        key = (version.tensor, bits)
        if key not in self.rough:
            if not version.positive:
                # the cheap truncation takes values below a quarter of the ring
                self.demand_twice(version.bound, name)
            coarse = replace(version, frac_bits=version.frac_bits - bits, bound=(version.bound >> bits) + 1)
            coarse = self.calibrated(name, coarse)
            made = self.tensor(name, self.shapes[version.tensor], coarse, "t")
            sign = "non-negative" if version.positive else "any"
            self.stage("truncate", f"{name}.truncate", version.tensor, made.tensor, bits=bits, sign=sign)
            self.rough[key] = made
        return self.rough[key]

    def producer(self, tensor: int) -> dict[str, Any] | None:
        """The stage that makes a tensor, None for what enters."""
        return next((s for s in reversed(self.out.stages) if s["out"] == tensor), None)

    def above(self, version: Version) -> float:
        """Units by which a truncation puts the values of a version above what they stand for, on average.

        It rounds up with probability (remainder + 1) / 2^bits, an exact one never (docs/two-party.md).
        """
        stage = self.producer(version.tensor)
        while stage is not None and stage["kind"] in ("reshape", "transpose"):
            (source,) = inputs_of(stage)
            stage = self.producer(source)
        if stage is None or stage["kind"] != "truncate":
            return 0.0
        unit = math.ldexp(1.0, -stage["bits"])
        return (unit - 1.0) / 2 if stage.get("exact") else unit

    def fitted(self, name: str, version: Version, factor: int, result: str = "") -> Version:
        """The version, truncated where ``factor`` times its bound would not fit what happens to ``result`` next."""
        limit = self.most(result)
        if version.bound * factor <= limit:
            return version
        bits = 1
        while ((version.bound >> bits) + 1) * factor > limit:
            bits += 1
            if bits > self.out.ring_bits - 2:
                raise DoesNotFit(name)
        return self.truncated(name, version, bits)

    def without_gain(self, name: str, version: Version) -> Version:
        """The gain as an integer factor."""
        if version.gain == 1.0:
            return version
        more = max(0, GAIN_BITS + 1 - math.frexp(version.gain)[1])
        factor = round(math.ldexp(version.gain, more))
        # powers of two go to the point
        shared = min(more, (factor & -factor).bit_length() - 1)
        factor, more = factor >> shared, more - shared
        source = self.fitted(name, version, factor, name)
        scaled = replace(source, frac_bits=source.frac_bits + more, bound=source.bound * factor, gain=1.0)
        made = self.tensor(name, self.shapes[source.tensor], scaled)
        stage = self.stage("scale", f"{name}.gain", source.tensor, made.tensor, factor=factor)
        self.out.factors[stage] = math.ldexp(version.gain, more)
        self.keep(name, made)
        return made

    def emit(self, step: Step, source: Version, made: Version, **fields: Any) -> Version:
        """A stage with one input whose result becomes the step's."""
        made = self.tensor(step.output, step.shape, made)
        self.stage(step.kind, step.name, source.tensor, made.tensor, **fields)
        self.keep(step.output, made)
        return made

    # -- steps

    def enter(self, name: str, shape: tuple[int, ...]) -> None:
        """Shares an input of a shape with as many fraction bits as its range and readers allow."""
        # zeros and ones take no margin
        top = 1.0 if name in self.request.whole else max(map(abs, self.request.inputs[name]))
        fine = self.target_bits(name, Version(-1, 0, 0, False, 1.0))
        if fine is None:
            fine = fraction(top, self.request.activation_bits or self.request.most_bits)
        made = self.tensor(name, shape, Version(-1, fine, max(1, math.ceil(math.ldexp(top, fine))), False, 1.0))
        self.keep(name, made)
        self.out.entering[name] = made

    def linear(self, step: Step) -> None:
        """Writes a layer: its integer weights and bias, its result's fraction bits, and the truncation behind it."""
        layer = step.layer
        assert layer is not None
        source = self.read(step.inputs[0])
        weights = self.weights(layer, source.gain)
        # weights above their integers' range leave a gain instead of a negative number of bits
        fine = source.frac_bits + max(weights.frac_bits, 0)
        gain = math.ldexp(1.0, max(-weights.frac_bits, 0))
        scaled = np.ldexp((layer.bias + weights.shift) / gain, fine)
        above = self.above(source)
        if above:
            scaled = scaled - above * weights.weight.reshape(len(weights.weight), -1).sum(axis=1, dtype=np.int64)
        scaled = np.rint(scaled)
        if (np.abs(scaled) >= 2.0**62).any():
            raise PlanError(
                f"layer {layer.name!r}: its bias is more than 2^62 output units; its input range or weights are close "
                "to zero, check the model"
            )
        bias = scaled.astype(np.int64)
        # one unit for the masking of the shares
        above, below = weights.reach(source.positive)
        ends = zip(above, below, bias)
        bound = max(max(int(a) * source.bound + int(c), int(b) * source.bound - int(c), 0) for a, b, c in ends) + 1
        if self.request.shown_sums:
            shown = self.shown(layer, weights, fine, gain)
            bound = bound if shown >= bound else math.ceil(shown)
        self.demand(bound, layer.name)
        made = self.tensor(step.output, step.shape, Version(-1, fine, bound, False, gain))
        names = {key: f"{layer.name}.{key}" for key in ("weight", "bias")}
        stage = self.stage(
            "linear",
            layer.name,
            source.tensor,
            made.tensor,
            method="cheetah",
            geometry=plan_geometry(layer.geometry),
            weights=names["weight"],
            bias=names["bias"],
            weight_l2=0,
        )
        self.out.weights[names["weight"]], self.out.weights[names["bias"]] = weights.weight, bias
        if self.weights.of(layer) < self.weights.bits:
            self.out.fewer[stage] = self.weights.of(layer)
        self.out.layers[stage], self.out.gains[stage], self.out.results[stage] = layer, source.gain, 1.0 / gain
        self.keep(step.output, made)

    def relu(self, step: Step) -> None:
        """Writes a ReLU, which keeps fraction bits and leaves no negative value."""
        source, dropped = compared(self, step)
        self.emit(step, source, self.calibrated(step.output, replace(source, positive=True)), **dropped)

    def leaky_relu(self, step: Step) -> None:
        """Writes a leaky ReLU; its slope is a fraction of a power of two."""
        source = self.natural[step.inputs[0]]
        shift = SLOPE_BITS
        numerator = round(step.attrs["alpha"] * 2**shift)
        while shift > 1 and numerator % 2 == 0 and numerator:
            numerator, shift = numerator // 2, shift - 1
        # on the way every value is multiplied by the denominator
        source = self.fitted(step.inputs[0], source, 2 ** (shift + 1))
        made = self.calibrated(step.output, replace(source, bound=source.bound + 1, positive=False))
        self.emit(step, source, made, numerator=numerator, log_denominator=shift)
        self.out.slopes[self.out.stages[-1]["name"]] = step.attrs["alpha"]

    def clip(self, step: Step) -> None:
        """Writes a clip; its ends are in units of its input, and an end that no value reaches is dropped."""
        source, dropped = compared(self, step)
        low, high = step.attrs["low"], step.attrs["high"]
        # an end that no value reaches clips nothing
        low = -source.bound if low is None else max(-source.bound, round(low / source.unit))
        high = source.bound if high is None else min(source.bound, round(high / source.unit))
        low, high = (low, max(low, high)) if step.attrs["high"] is None else (min(low, high), high)
        # the protocol compares differences from both ends
        self.demand(source.bound + max(abs(low), abs(high)), step.name)
        # clients are told that an end is zero, and nothing else of it
        made = replace(source, bound=max(abs(low), abs(high)), positive=low == 0)
        self.emit(step, source, made, **dropped, low=low, high=high)

    def max_pool(self, step: Step) -> None:
        """Writes the largest value of every window; the ring must hold differences of two values."""
        source, dropped = compared(self, step)
        self.demand_twice(source.bound, step.name)
        window = {k: v for k, v in step.attrs.items() if k != "rough"}
        self.emit(step, source, self.calibrated(step.output, source), **window, **dropped)

    def sum_pool(self, step: Step) -> None:
        """Writes the sum of every window, on an input truncated until the sum fits."""
        taps = math.prod(step.attrs["kernel"])
        source = self.fitted(step.inputs[0], self.read(step.inputs[0]), taps, step.output)
        self.emit(step, source, replace(source, bound=source.bound * taps), **step.attrs)

    def scale(self, step: Step) -> None:
        """Writes a product with a public whole number, on an input truncated until the product fits."""
        factor = step.attrs["factor"]
        source = self.fitted(step.inputs[0], self.natural[step.inputs[0]], factor, step.output)
        self.emit(step, source, replace(source, bound=source.bound * factor, gain=source.gain), factor=factor)

    def gain(self, step: Step) -> None:
        """The same integers mean something else.

        a local stage where they keep their old meaning too, or came from a layer.
        """
        name = step.inputs[0]
        source = self.natural[name]
        gain = source.gain * step.attrs["factor"]
        # a factor below one makes room behind the point; one above stays a gain
        more = max(0, 1 - math.frexp(gain)[1])
        version = replace(source, frac_bits=source.frac_bits + more, gain=math.ldexp(gain, more))
        producer = self.producer(source.tensor)
        kind = producer and producer["kind"]
        if more and not (kind in {"sum_pool", "scale"} and self.readers.count(name) == 1):
            version = self.tensor(step.output, step.shape, version)
            self.stage("scale", step.name, source.tensor, version.tensor, factor=1)
        else:
            self.out.tensors[source.tensor]["frac_bits"] = version.frac_bits
        self.keep(step.output, version)

    def add(self, step: Step) -> None:
        """Writes a sum, with both operands brought to the same gain and fraction bits."""
        operands = [self.read(t) if self.root(t) in self.layers else self.natural[t] for t in step.inputs]
        if step.output in self.resting:
            operands = [rested(self, t, v) for t, v in zip(step.inputs, operands)]
        if operands[0].gain != operands[1].gain:
            operands = [self.without_gain(t, v) for t, v in zip(step.inputs, operands)]
        fine = max(v.frac_bits for v in operands)
        room = self.most(step.output)
        while sum(self.at(v, fine) for v in operands) > room:
            fine -= 1
            if fine < min(v.frac_bits for v in operands) - self.out.ring_bits:
                raise DoesNotFit(step.name)
        aligned = [self.aligned(t, v, fine) for t, v in zip(step.inputs, operands)]
        bound = sum(v.bound for v in aligned)
        sum_of = Version(-1, fine, bound, all(v.positive for v in aligned), aligned[0].gain)
        made = self.tensor(step.output, step.shape, sum_of)
        self.stage("add", step.name, [v.tensor for v in aligned], made.tensor)
        self.keep(step.output, made)

    @staticmethod
    def at(version: Version, fine: int) -> int:
        """Bound of a version at other frac_bits."""
        step = fine - version.frac_bits
        return version.bound << step if step >= 0 else (version.bound >> -step) + 1

    def aligned(self, name: str, version: Version, fine: int) -> Version:
        """The version of ``name`` with ``fine`` fraction bits, by a truncation or a product with a power of two."""
        step = fine - version.frac_bits
        if step == 0:
            return version
        if step < 0:
            return self.truncated(name, version, -step)
        made = self.tensor(
            name, self.shapes[version.tensor], replace(version, frac_bits=fine, bound=version.bound << step)
        )
        self.stage("scale", f"{name}.scale", version.tensor, made.tensor, factor=1 << step)
        return made

    def move(self, step: Step, **fields: Any) -> None:
        """Writes a step that moves values and computes nothing."""
        source = self.read(step.inputs[0])
        made = self.tensor(step.output, step.shape, source)
        self.stage(step.kind, step.name, [source.tensor], made.tensor, **fields)
        self.keep(step.output, made)

    def reshape(self, step: Step) -> None:
        """Writes a reshape."""
        self.move(step)

    def transpose(self, step: Step) -> None:
        """Writes a permutation of axes."""
        self.move(step, perm=step.attrs["perm"])

    def slice(self, step: Step) -> None:
        """Writes a slice, by starts, ends and steps of axes."""
        self.move(step, **{k: step.attrs[k] for k in ("starts", "ends", "steps", "axes")})

    def pad(self, step: Step) -> None:
        """Writes a padding with zeros."""
        self.move(step, pads=step.attrs["pads"])

    def concat(self, step: Step) -> None:
        """Writes a concatenation, with all parts brought to the same gain and fraction bits."""
        parts = [self.read(t) for t in step.inputs]
        if len({v.gain for v in parts}) > 1:
            parts = [self.without_gain(t, v) for t, v in zip(step.inputs, parts)]
        fine = max(v.frac_bits for v in parts)
        while not self.fits(max(self.at(v, fine) for v in parts)):
            fine -= 1
            if fine < min(v.frac_bits for v in parts) - self.out.ring_bits:
                raise DoesNotFit(step.name)
        parts = [self.aligned(t, v, fine) for t, v in zip(step.inputs, parts)]
        whole = Version(-1, fine, max(v.bound for v in parts), all(v.positive for v in parts), parts[0].gain)
        made = self.tensor(step.output, step.shape, whole)
        self.stage("concat", step.name, [v.tensor for v in parts], made.tensor, axis=step.attrs["axis"])
        self.keep(step.output, made)

    # -- the end

    def open(self, name: str) -> None:
        """Opens a tensor to the client with the fraction bits that its bound leaves, or for a later argmax."""
        version = self.natural[name]
        if self.request.argmax:
            self.demand_twice(version.bound, name)
        else:
            reach = min(version.bound * version.unit, self.request.limits.get(name, math.inf)) / version.gain
            wanted = self.request.output_bits + self.request.far.get(name, 0)
            bits = max(version.frac_bits - fraction(reach, wanted), OPENING_BITS)
            version = self.opening(
                name, version, max(1, min(bits, version.bound.bit_length() - 2, self.out.ring_bits - 2))
            )
        self.out.opened[name] = version

    def opening(self, name: str, version: Version, bits: int) -> Version:
        """The exact truncation before a value is opened; rounds to nearest where the layer's bias can take the half."""
        made_by = [s for s in self.out.stages if s["out"] == version.tensor]
        readers = [
            s for s in self.out.stages if version.tensor in (s["in"] if isinstance(s["in"], list) else [s["in"]])
        ]
        half = 1 << (bits - 1)
        if made_by and made_by[0]["kind"] == "linear" and not readers and self.fits(version.bound + half):
            bias = made_by[0]["bias"]
            self.out.weights[bias] = self.out.weights[bias] + half
            self.out.offsets[made_by[0]["name"]] = half
            version = replace(version, bound=version.bound + half)
            self.out.tensors[version.tensor]["bound"] = version.bound
        coarse = replace(version, frac_bits=version.frac_bits - bits, bound=(version.bound >> bits) + 1)
        made = self.tensor(name, self.shapes[version.tensor], coarse, "opened")
        sign = "non-negative" if version.positive else "any"
        self.stage("truncate", f"{name}.open", version.tensor, made.tensor, bits=bits, sign=sign, exact=True)
        return made


def fraction(reach: float, bits: int) -> int:
    """frac_bits at which values up to ``reach``, and units of truncation beside them, take so many bits."""
    most = max(2 ** (bits - 1) - 1 - EXTRA_UNITS, 1)
    if math.isinf(reach):
        raise OverflowError("a range without an end")
    return math.floor(math.log2(most / reach)) if reach > 1e-290 else 0

"""From a network to levels and scales: which stages run where, and what primes they need.

Everything is lazy. A product keeps its three parts, and its scale, through the layers that follow; only before the next
product is it relinearised and, where that brings the scale down by enough to be worth a prime, rescaled. So the primes
follow from the scales and not the other way round: the first pass tells how many bits are dropped at every point, the
second repeats the decisions with true primes and gives the exact scales.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from ...errors import PlanError
from .network import Network
from .noise import NoiseModel, Track
from .primes import MOST_BITS
from .steps import Add, Array, Linear, Polynomial

HEADROOM = 1.0
LEAST_DROP = 22.0
FACTOR_BITS = 12
COSTLY = 0.3
MOST_WEIGHT_BITS = 14
MOST_FACTOR_BITS = 60
SPECIAL_MARGIN = 2


@dataclass(frozen=True)
class Scales:
    """What a schedule is made for.

    Attributes:
        weight_bits: bits of integer weights, without the sign, of the layers that cost most.
        more_bits: bits that the others have more.
        input_bits: log2 of the scale of encrypted inputs.
        work_bits: log2 of the scale that rescaling aims at.
        lazy: rescale before the next product (and never at the end) instead of after every layer and product.
        most: bits of the widest data prime.
        fewer_bits: bits that the last layer has fewer: nothing rescales what it makes, so the modulus holds all of them
            to the end.
        invariant: in the conjugate-invariant ring: twice the images, more noise.
    """

    weight_bits: int
    input_bits: float
    work_bits: float
    lazy: bool = True
    more_bits: int = 0
    most: float = MOST_BITS
    fewer_bits: int = 0
    invariant: bool = False


@dataclass
class Cipher:
    """A tensor of ciphertexts; ``dropped`` primes are gone from the top."""

    name: str
    shape: tuple[int, ...]
    bound: float
    usual: float
    scale: float
    dropped: int
    parts: int
    track: Track
    drift: tuple[float, float]
    level: int = 0

    @property
    def size(self) -> int:
        """Elements per image."""
        return math.prod(self.shape)

    def but(self, **changes: Any) -> Cipher:
        """Another one with some fields changed: ``dataclasses.replace`` is too slow for the many of a search."""
        made = object.__new__(Cipher)
        made.__dict__.update(self.__dict__, **changes)
        return made


@dataclass
class Stage:
    """A stage of the plan."""

    kind: str
    name: str
    sources: tuple[int, ...]
    target: int
    layer: Linear | None = None
    weights: Array | None = None
    terms: tuple[float, ...] = ()
    factors: tuple[int, ...] = ()
    constant: float = 0.0


class TooDeep(Exception):
    """No primes of at most 50 bits make this schedule."""


@dataclass(frozen=True)
class Quantised:
    """Integer weights with the unit of their scale."""

    weights: Array
    scale: float
    l1: float
    l2: float
    drift_l1: float
    drift_l2: float


class Weights:
    """Integer weights of the layers of one network by their bits, kept."""

    def __init__(self) -> None:
        self.kept: dict[tuple[int, int], Quantised] = {}
        self.by_scales: dict[tuple[int, int, int], dict[int, int]] = {}

    def bits(self, network: Network, scales: Scales) -> dict[int, int]:
        """:func:`weight_bits`."""
        key = (scales.weight_bits, scales.more_bits, scales.fewer_bits)
        if key not in self.by_scales:
            self.by_scales[key] = weight_bits(network, scales)
        return self.by_scales[key]

    def get(self, layer: Linear, bits: int) -> Quantised:
        """Weights as integers of at most ``bits`` bits; sums (weights 0, 1, -1) stay what they are."""
        key = (id(layer), bits)
        if key not in self.kept:
            self.kept[key] = self._make(layer, bits)
        return self.kept[key]

    @staticmethod
    def _make(layer: Linear, bits: int) -> Quantised:
        w = layer.weights.reshape(layer.weights.shape[0], -1)
        top = float(np.abs(w).max(initial=0.0))
        scale = 1.0 if layer.is_sum or top == 0.0 else 2.0 ** math.floor(math.log2((2**bits - 1) / top))
        # A layer whose weights are all tiny or huge keeps integers of the wished size; scales below one cannot be.
        scale = max(scale, 1.0)
        integers = np.rint(w * scale)
        off = w - integers / scale
        kind = np.int8 if np.abs(integers).max(initial=0.0) <= 127 else np.int16
        if np.abs(integers).max(initial=0.0) > 32767:
            raise TooDeep
        return Quantised(
            integers.astype(kind).reshape(layer.weights.shape),
            scale,
            float(np.abs(integers).sum(axis=1).max()),
            float(np.sqrt((integers**2).sum(axis=1)).max()),
            float(np.abs(off).sum(axis=1).max()),
            float(np.sqrt((off**2).sum(axis=1)).max()),
        )


@dataclass
class Schedule:
    """Stages and tensors, with the bits of every prime."""

    scales: Scales
    ring_degree: int
    complex: bool
    tensors: list[Cipher] = field(default_factory=list)
    stages: list[Stage] = field(default_factory=list)
    output: int = 0
    drops: list[float] = field(default_factory=list)
    bottom: list[float] = field(default_factory=list)
    special: list[float] = field(default_factory=list)
    flood: int | None = None
    data_primes: list[int] = field(default_factory=list)
    special_primes: list[int] = field(default_factory=list)

    @property
    def packing(self) -> str:
        """What slots hold, as plans say it."""
        return "complex" if self.complex else "conjugate-invariant" if self.scales.invariant else "real"

    @property
    def slots(self) -> int:
        """Slots of a ciphertext."""
        return self.ring_degree if self.scales.invariant else self.ring_degree // 2

    @property
    def images(self) -> int:
        """Images of a block."""
        return 2 * self.slots if self.complex else self.slots

    @property
    def order(self) -> int:
        """Primes are one more than a multiple of this."""
        return 4 * self.slots

    @property
    def prime_bits(self) -> list[float]:
        """Bits of the data primes, the lowest first."""
        return [*self.bottom, *reversed(self.drops)]

    @property
    def total_bits(self) -> float:
        """log2 of all primes together."""
        return sum(self.prime_bits) + sum(self.special)

    @property
    def error(self) -> tuple[float, float]:
        """Likely and worst error of the output from encryption alone."""
        out = self.tensors[self.output]
        from .noise import TAIL

        model = NoiseModel(self.ring_degree, self.scales.invariant)
        flood = 0.0 if self.flood is None else math.hypot(model.public, 2.0**self.flood * model.rounding)
        return TAIL * math.hypot(out.track.likely, flood) / out.scale, TAIL * math.hypot(
            out.track.sd, flood
        ) / out.scale


class Scheduler:
    """Makes a schedule; ``primes`` (lowest first) repeats one with true primes."""

    def __init__(
        self,
        network: Network,
        scales: Scales,
        ring_degree: int,
        weights: Weights,
        *,
        usual: dict[int, float] | None = None,
        hide: bool = False,
        real: bool = False,
        planned: Schedule | None = None,
    ) -> None:
        self.network, self.scales, self.weights, self.hide, self.planned = network, scales, weights, hide, planned
        self.noise = NoiseModel(ring_degree, scales.invariant)
        self.usual = {t.id: t.bound for t in network.tensors} | (usual or {})
        complex_ = not real and not any(isinstance(s, Polynomial) and s.degree > 1 for s in network.steps)
        self.out = Schedule(scales, ring_degree, complex_)
        self.at: dict[int, int] = {}
        self.names: set[str] = set()
        self.bits = weights.bits(network, scales)

    def run(self) -> Schedule:
        """The schedule; TooDeep when no primes of at most 50 bits do it."""
        first = self.network.tensors[0]
        scale = 2.0**self.scales.input_bits
        track = self.noise.input(first.bound, scale, self.out.complex)
        self.at[0] = self.tensor(
            Cipher(f"{first.name}.encrypted", first.shape, first.bound, self.usual[0], scale, 0, 2, track, (0.0, 0.0))
        )
        for step in self.network.steps:
            if isinstance(step, Linear):
                self.at[step.target] = self.linear(step)
            elif isinstance(step, Polynomial):
                self.at[step.target] = self.polynomial(step)
            elif isinstance(step, Add):
                self.at[step.target] = self.add(step)
            else:
                raise PlanError(
                    f"node {step.name!r}: composites of minimax polynomials are evaluated on one image at a time; give "
                    "batch=1, or a polynomial (activation='poly:degree=4')"
                )
        output = self.at[self.network.output]
        if self.hide:
            # Errors, and with them the flood, are least in ring units right behind a rescaling.
            output = self.settle(output)
        self.out.output = output
        if self.hide:
            self.out.flood = self.noise.flood_bits(self.t(output).track.hidden)
        if self.planned is None:
            self.bottom()
            self.special()
        else:
            p = self.planned
            self.out.drops, self.out.bottom, self.out.special = p.drops, p.bottom, p.special
            self.out.data_primes, self.out.special_primes = p.data_primes, p.special_primes
        self.levels()
        return self.out

    # tensors and stages

    def t(self, index: int) -> Cipher:
        """The ciphertext tensor of an index."""
        return self.out.tensors[index]

    def tensor(self, c: Cipher) -> int:
        """Adds a tensor, which is new, under a name that no other has, and returns its index."""
        name, number = c.name, 2
        while name in self.names:
            name, number = f"{c.name}.{number}", number + 1
        self.names.add(name)
        c.name = name
        self.out.tensors.append(c)
        return len(self.out.tensors) - 1

    def stage(self, kind: str, sources: tuple[int, ...], out: Cipher, **more: object) -> int:
        """Adds a stage with its result, and returns the index of the result."""
        target = self.tensor(out)
        # A stage is called as its result, whose name is unique.
        self.out.stages.append(Stage(kind, self.t(target).name, sources, target, **more))  # type: ignore[arg-type]
        return target

    def prime(self, dropped: int) -> float:
        """The prime that goes when ``dropped`` have gone: true, or 2^bits."""
        if self.planned is not None:
            return float(self.planned.data_primes[-1 - dropped])
        return 2.0 ** self.out.drops[dropped]

    def linear(self, step: Linear) -> int:
        """Multiplies by a layer's weights, and tells the result's bound, scale, drift and noise; returns its index."""
        x, q = self.t(self.at[step.source]), self.weights.get(step, self.bits[step.target])
        target = self.network.tensors[step.target]
        bound = max(target.bound, 1e-6)
        drift = (
            math.hypot(q.l2 / q.scale * x.drift[0], q.drift_l2 * x.usual),
            q.l1 / q.scale * x.drift[1] + q.drift_l1 * x.bound,
        )
        out = x.but(
            name=step.name,
            shape=target.shape,
            bound=bound,
            usual=self.usual[step.target],
            scale=x.scale * q.scale,
            track=self.noise.linear(x.track, q.l1, q.l2),
            drift=drift,
        )
        index = self.stage("linear", (self.at[step.source],), out, layer=step, weights=q.weights)
        return index if self.scales.lazy else self.settle(index)

    def wanted(self, c: Cipher) -> list[float]:
        """Bits of the primes to drop from a tensor so that its scale comes near the working scale.

        None where it is not worth it.
        """
        rest, out = math.log2(c.scale) - self.scales.work_bits, []
        dropped = c.dropped
        while dropped < len(self._drops()) and rest >= self._drops()[dropped] - 6:
            out.append(self._drops()[dropped])
            rest -= out[-1]
            dropped += 1
        if dropped == len(self._drops()) and rest >= LEAST_DROP and self.planned is None:
            count = math.ceil(rest / self.scales.most)
            out += [round(rest / count)] * count
        return out

    def _drops(self) -> list[float]:
        return self.out.drops if self.planned is None else self.planned.drops

    def settle(self, index: int) -> int:
        """Two parts, at the working scale: what the next product takes."""
        c = self.t(index)
        drops = self.wanted(c)
        if c.parts == 2 and not drops:
            return index
        return self.down(index, drops)

    def down(self, index: int, drops: list[float]) -> int:
        """Relinearised where it has three parts, and rescaled by primes of these bits."""
        c = self.t(index)
        if self.planned is None:
            for i, bits in enumerate(drops):
                if c.dropped + i == len(self.out.drops):
                    if bits > self.scales.most:
                        raise TooDeep
                    self.out.drops.append(bits)
        primes = [self.prime(c.dropped + i) for i in range(len(drops))]
        switching = 0.0
        base = c.name.removesuffix(".square").removesuffix(".product")
        if c.parts == 3:
            # One prime a digit, each a quarter of the special prime.
            switching = self.noise.switching(self._ratio2(c))
            first = primes[:1]
            track = self.noise.down(c.track, first, 2, switching)  # type: ignore[arg-type]
            out = c.but(
                name=f"{base}.relinearised",
                parts=2,
                dropped=c.dropped + len(first),
                scale=_divide(c.scale, first),
                track=track,
            )
            index = self.stage("relinearise", (index,), out)
            c, primes = self.t(index), primes[1:]
        if primes:
            track = self.noise.down(c.track, primes, c.parts)  # type: ignore[arg-type]
            out = c.but(
                name=f"{base}.rescaled", dropped=c.dropped + len(primes), scale=_divide(c.scale, primes), track=track
            )
            index = self.stage("rescale", (index,), out)
        return index

    def _ratio2(self, c: Cipher) -> float:
        if self.planned is None:
            return 12.0 / 4.0 ** (2 * SPECIAL_MARGIN) * 4
        p = math.prod(map(float, self.planned.special_primes))
        return sum((q / p) ** 2 for q in self.planned.data_primes[: len(self.planned.data_primes) - c.dropped])

    # polynomials and sums

    def product(self, a: int, b: int, name: str, bound: float) -> int:
        """The product of two tensors of two parts each, at a common level; returns the result's index."""
        a = self.settle(a)
        b = a if b == a else self.settle(b)
        x, y = self.t(a), self.t(b)
        if x.parts != 2 or y.parts != 2:
            raise AssertionError("operands of a product have two parts")
        track = self.noise.product(
            x.track, y.track, (x.bound * x.scale, y.bound * y.scale), (x.usual * x.scale, y.usual * y.scale)
        )
        drift = tuple(
            a * e + b * d + d * e for d, e, a, b in zip(x.drift, y.drift, (x.usual, x.bound), (y.usual, y.bound))
        )
        out = x.but(
            name=name,
            bound=bound,
            usual=x.usual * y.usual,
            scale=x.scale * y.scale,
            dropped=max(x.dropped, y.dropped),
            parts=3,
            track=track,
            drift=(drift[0], drift[1]),
        )
        index = self.stage("multiply", (a, b), out)
        return index if self.scales.lazy else self.settle(index)

    def polynomial(self, step: Polynomial) -> int:
        """Evaluates an activation's polynomial from the powers of its input; returns the result's index."""
        target = self.network.tensors[step.target]
        powers = {1: self.at[step.source]}
        x = self.t(powers[1])
        reach = max(step.range if math.isfinite(step.range) else x.bound, x.bound)

        def power(k: int) -> int:
            if k not in powers:
                half = k // 2
                powers[k] = self.product(
                    self.settled(powers, power, k - half),
                    self.settled(powers, power, half),
                    f"{step.name}.{'square' if k == 2 else f'power{k}'}",
                    reach**k,
                )
            return powers[k]

        terms = [(k, c) for k, c in enumerate(step.coefficients) if k and c != 0.0]
        constant = step.coefficients[0] if step.coefficients else 0.0
        if terms == [(step.degree, 1.0)] and constant == 0.0 and step.degree > 1:
            index = power(step.degree)
            self.out.tensors[index] = self.t(index).but(bound=max(target.bound, 1e-6), usual=self.usual[step.target])
            return index
        return self.combine(
            [(power(k), c) for k, c in terms], constant, step.name, max(target.bound, 1e-6), self.usual[step.target]
        )

    def settled(self, powers: dict[int, int], power: object, k: int) -> int:
        """The index of the k-th power, relinearised and rescaled, and kept so for its next use."""
        index = power(k)  # type: ignore[operator]
        powers[k] = self.settle(index)
        return powers[k]

    def add(self, step: Add) -> int:
        """The sum of several tensors; returns the result's index."""
        target = self.network.tensors[step.target]
        return self.combine(
            [(self.at[s], 1.0) for s in step.sources], 0.0, step.name, max(target.bound, 1e-6), self.usual[step.target]
        )

    def combine(self, terms: list[tuple[int, float]], constant: float, name: str, bound: float, usual: float) -> int:
        """The sum of tensors times real factors and a constant, at one scale.

        Returns:
            The index of the result.

        Raises:
            TooDeep: there are no terms, or no level is left for the common scale.
        """
        if not terms:
            raise TooDeep
        tensors = [self.t(i) for i, _ in terms]
        # A common scale at which every coefficient is an integer, or near one.
        base = max(t.scale for t in tensors)
        for extra in range(0, MOST_FACTOR_BITS, 2):
            scale = base * 2.0**extra
            exact = [c * scale / t.scale for t, (_, c) in zip(tensors, terms)]
            factors = [round(k) for k in exact]
            off = sum(abs(k - e) * t.scale / scale * t.bound for k, e, t in zip(factors, exact, tensors))
            if off <= bound * 2.0**-FACTOR_BITS * 2.0**-2 and all(factors):
                break
        else:
            raise TooDeep
        if max(map(abs, factors)) >= 1 << 62:
            raise TooDeep
        track = self.noise.combine([(t.track, k) for t, k in zip(tensors, factors)], constant != 0.0)
        drift = [sum(abs(c) * t.drift[i] for t, (_, c) in zip(tensors, terms)) + off for i in range(2)]
        out = tensors[0].but(
            name=name,
            bound=bound,
            usual=usual,
            scale=scale,
            dropped=max(t.dropped for t in tensors),
            parts=max(t.parts for t in tensors),
            track=track,
            drift=(drift[0], drift[1]),
        )
        more = {"terms": tuple(c for _, c in terms), "factors": tuple(factors), "constant": constant}
        return self.stage("combine", tuple(i for i, _ in terms), out, **more)

    # primes and levels

    def need(self, index: int) -> float:
        """Bits that a tensor's phase takes, with its sign and room for surprises."""
        c = self.t(index)
        reach = c.bound * c.scale
        if index == self.out.output and self.out.flood is not None:
            reach += 2.0**self.out.flood
        return math.log2(reach) + 1.0 + HEADROOM

    def bottom(self) -> None:
        """Bits below the last dropped prime: enough for every tensor where it is."""
        drops = self.out.drops
        bits = max(self.need(i) - sum(drops[c.dropped :]) for i, c in enumerate(self.out.tensors))
        bits = max(bits + 0.1, 20.0)
        count = math.ceil(bits / (self.scales.most - 0.2))
        self.out.bottom = [math.ceil(bits / count)] * count
        if max(self.out.bottom) > self.scales.most:
            raise TooDeep

    def special(self) -> None:
        """Chooses the size of the key-switching prime in bits, where a stage relinearises."""
        if any(s.kind == "relinearise" for s in self.out.stages):
            self.out.special = [min(MOST_BITS, max(self.out.prime_bits) + SPECIAL_MARGIN)]

    def levels(self) -> None:
        """The lowest level that every tensor's readers and its own size allow."""
        bits = [math.log2(q) for q in self.out.data_primes] or self.out.prime_bits
        count = len(bits)
        sums = np.cumsum(bits).tolist()
        least = []
        for i, c in enumerate(self.out.tensors):
            natural = count - c.dropped
            least.append(min(bisect_right(sums, self.need(i)) + 1, natural))
        for stage in reversed(self.out.stages):
            before, after = (count - self.t(t).dropped for t in (stage.sources[0], stage.target))
            if before != after and stage.kind in ("relinearise", "rescale"):
                # What is rescaled stands exactly where its primes are.
                least[stage.sources[0]], least[stage.target] = before, after
            else:
                for s in stage.sources:
                    least[s] = max(least[s], least[stage.target])
        for stage in self.out.stages:
            # Relinearisation by itself changes no level.
            if stage.kind == "relinearise" and self.t(stage.sources[0]).dropped == self.t(stage.target).dropped:
                least[stage.target] = least[stage.sources[0]]
        for i, c in enumerate(self.out.tensors):
            c.level = least[i]


def weight_bits(network: Network, scales: Scales) -> dict[int, int]:
    """Bits of every layer's weights, by its target."""
    cost = {s.target: word_products(s) for s in network.steps if isinstance(s, Linear)}
    most = max(cost.values(), default=0)
    last = max(cost, default=0)
    bits = {
        t: scales.weight_bits if c >= COSTLY * most else min(scales.weight_bits + scales.more_bits, MOST_WEIGHT_BITS)
        for t, c in cost.items()
    }
    return bits | {last: scales.weight_bits - scales.fewer_bits} if scales.fewer_bits else bits


def _divide(scale: float, primes: list[float]) -> float:
    for q in primes:
        scale /= q
    return scale


def word_products(layer: Linear) -> int:
    """Products of weights and values, padding not counted."""
    g = layer.geometry
    if g["type"] == "dense":
        return g["inputs"] * g["outputs"]
    taps = [
        _taps(
            *(g[k][axis] for k in ("kernel", "stride", "dilation", "pads")), g["input"][1 + axis], g["output"][1 + axis]
        )
        for axis in range(2)
    ]
    return g["output"][0] * (g["input"][0] // g["groups"]) * taps[0] * taps[1]


@lru_cache(maxsize=1024)
def _taps(kernel: int, stride: int, dilation: int, pad: int, size: int, out: int) -> int:
    """Values that a kernel meets along one axis, at all places together."""
    at = np.arange(out)[:, None] * stride + np.arange(kernel)[None] * dilation - pad
    return int(((at >= 0) & (at < size)).sum())

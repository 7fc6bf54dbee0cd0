"""The noise model of ``docs/ckks.md``, as the run time has it (which checks every plan with its own copy)."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ... import _native

TAIL, ERROR_VARIANCE, STATISTICAL_BITS = _native.ERROR_TAIL, _native.ERROR_VARIANCE, _native.STATISTICAL_BITS
KEY_SLACK = 14.0


@dataclass(frozen=True)
class Track:
    """Error of a tensor.

    ``sd`` for any dependence of terms and the worst slot and values, ``likely`` as if terms were independent, in a
    usual slot and for usual values, ``hidden`` as ``sd`` without what encoding did.
    """

    sd: float
    likely: float
    hidden: float
    fresh: bool = False


class NoiseModel:
    """Bounds that depend on the ring."""

    def __init__(self, ring_degree: int, invariant: bool = False) -> None:
        self.n = n = float(ring_degree)
        # Points of the transform that encodes, twice; variance of each part of a slot for coefficients of variance 1.
        self.points = 2 * n if invariant else n
        spread = 2 * n if invariant else n / 2
        extreme = math.log(2 * n if invariant else n / 2) + KEY_SLACK
        self.secret_norm2 = 2 * spread * 2 / 3 * extreme
        # |s(zeta)|^2 is 2N/3 in the mean; twice that, with the tail of 7.6 deviations, covers all slots but for the odd
        # one. Real slots of the conjugate-invariant ring, 4N/3 in the mean, vary more: four times that has as light a
        # tail.
        self.usual_norm2 = n * 4 / 3 * 4 if invariant else n * 2 / 3 * 2
        self.key_error_norm2 = 2 * spread * ERROR_VARIANCE * extreme
        self.fresh = math.sqrt(ERROR_VARIANCE * spread)
        self.rounding = math.sqrt(spread / 12)
        self.public = math.sqrt(self.key_error_norm2 * spread * 2 / 3 + self.fresh**2 * (1 + self.secret_norm2))

    def part_rounding(self, parts: int, usual: bool = False) -> float:
        """Rounding the parts of a ciphertext to integers."""
        norm2 = self.usual_norm2 if usual else self.secret_norm2
        return self.rounding * math.sqrt(sum(norm2**i for i in range(parts)))

    def transform(self, magnitude: float) -> float:
        """Binary64 error of encoding values of that magnitude (ring units)."""
        return magnitude * math.log2(self.points) * 2.0**-51

    def input(self, bound: float, scale: float, complex_: bool) -> Track:
        """A fresh encryption."""
        magnitude = bound * (math.sqrt(2) if complex_ else 2.0)
        sd = math.hypot(self.rounding + self.transform(magnitude * scale), self.fresh)
        return Track(sd, sd, self.fresh, True)

    def linear(self, t: Track, l1: float, l2: float) -> Track:
        """Integer weights with these largest norms of a row, and a rounded bias."""
        growth = l2 if t.fresh else l1
        return Track(t.sd * growth + 0.5, t.likely * l2 + 0.5, t.hidden * growth)

    def product(self, a: Track, b: Track, bounds: tuple[float, float], usual: tuple[float, float]) -> Track:
        """Product of messages with these bounds, and usual magnitudes, in ring units."""

        def of(x: float, y: float, at: tuple[float, float]) -> float:
            return at[0] * y + at[1] * x + math.sqrt(2) * TAIL * x * y

        return Track(of(a.sd, b.sd, bounds), of(a.likely, b.likely, usual), of(a.hidden, b.hidden, bounds))

    def switching(self, ratio2: float) -> float:
        """Key switching, with the sum of (digit / special primes)^2."""
        return self.rounding * math.sqrt(ratio2 * self.key_error_norm2)

    def down(self, t: Track, primes: list[int], parts: int, switching: float = 0.0, fused: bool = True) -> Track:
        """Division by primes one after the other; with relinearisation, its noise enters before the first."""

        def of(sd: float, usual: bool = False) -> float:
            sd = math.hypot(sd, switching)
            if switching and not (fused and primes):
                sd = math.hypot(sd, self.part_rounding(2, usual))
            for q in primes:
                sd = math.hypot(sd / q, self.part_rounding(parts, usual))
            return sd

        return Track(of(t.sd), of(t.likely, True), of(t.hidden))

    def combine(self, terms: list[tuple[Track, int]], rounded: bool) -> Track:
        """Integer combination."""
        half = 0.5 if rounded else 0.0
        return Track(
            sum(t.sd * abs(k) for t, k in terms) + half,
            math.sqrt(sum((t.likely * k) ** 2 for t, k in terms)) + half,
            sum(t.hidden * abs(k) for t, k in terms),
        )

    def flood_bits(self, hidden: float) -> int:
        """Bits of a flood over an error of this deviation and that of re-randomisation."""
        sd = math.hypot(hidden, self.public)
        return math.ceil(STATISTICAL_BITS + math.log2(TAIL * sd * math.sqrt(2 * self.n)))

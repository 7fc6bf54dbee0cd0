"""Cost of attacks on the silent OT's LPN with regular noise: N = t 2^h samples, k secret bits, one error in each of t blocks of 2^h samples.
All figures are log2 of bit operations. Standard library only.

On a uniformly random code:
  gauss      guess k - t error-free samples, evenly over the blocks, each block's sum being known; solve in k^2.8 (pooled Gauss of Esser, Kuebler,
             May, CRYPTO 2017, as Liu, Wang, Yang, Yu, ePrint 2022/712, count it; regular noise as RegularISD-Perm of Esser and Santini, ePrint 2023/1568)
  isd        the same with p errors among k - t + l positions found by a meet in the middle (RegularISD-Enum of Esser and Santini, section 3, with
             k^2.8 for the elimination)
  statistical  parity checks of k / 2 samples from an elimination, their bias under regular noise (low-weight parity checks of Boyle, Couteau, Gilboa, Ishai,
             CCS 2018, section 5.1, over two elements)
  algebraic  guess g error-free samples, then linearise the t C(2^h - g/t, 2) products of two samples of one block at degree 2, or degree 3
             with semi-regular growth (Briaud and Oygarden, EUROCRYPT 2023), elimination with exponent 2.8
On the code that is used, ten ones a row (none of the sources above counts its sparseness; these two are our own):
  minor      take the rows whose ten positions lie in a random set of x k positions: N x^10 rows in x k unknowns, as many as are needed already
             at x = (k/N)^(1/9). Guess that p of them are in error (meet in the middle), solve by Wiedemann in 3 * 10 (x k)^2. Repeat with other sets.
  sparse     `algebraic` at degree 2 by Wiedemann: a product of two rows has at most 121 monomials
"""

from __future__ import annotations

import math
from dataclasses import dataclass

OMEGA = 2.8
WEIGHT = 10


@dataclass(frozen=True)
class Lpn:
    """t blocks of 2^depth samples, 2^log_k secret bits."""

    trees: int
    log_k: int
    depth: int

    @property
    def samples(self) -> int:
        return self.trees << self.depth

    @property
    def k(self) -> int:
        return 1 << self.log_k


def log2_choose(n: float, k: float) -> float:
    return (math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)) / math.log(2)


def add(a: float, b: float) -> float:
    return max(a, b) + math.log2(1 + 2.0 ** (min(a, b) - max(a, b)))


def gauss(s: Lpn) -> float:
    return OMEGA * s.log_k - s.trees * math.log2(1 - (s.k - s.trees) / s.samples)


def enumerated(s: Lpn, rows: float, elimination: float, entry: float | None = None) -> tuple[float, int, int]:
    """(cost, p, l): p errors, half in each half of the blocks, among `rows` + l rows spread evenly. `entry`: cost of a list's entry, else log2 l."""
    half, best = s.trees // 2, (math.inf, 0, 0)
    for p in range(0, 17, 2):
        for ell in [0] if p == 0 else range(4, 120, 2):
            share = (rows + ell) / s.samples
            per_block = (rows + ell) / s.trees
            hit = 2 * log2_choose(half, p // 2) + p * math.log2(share) + (s.trees - p) * math.log2(1 - share)
            entries = log2_choose(half, p // 2) + p / 2 * math.log2(per_block)
            # A list's entry is a word of l bits, a candidate that passes is checked on a few rows.
            work = add(1 + entries, 2 * entries - ell) + (math.log2(ell) if entry is None else entry) if p else 0.0
            best = min(best, (add(elimination, work) - hit, p, ell))
    return best


def isd(s: Lpn) -> tuple[float, int, int]:
    return enumerated(s, s.k - s.trees, OMEGA * s.log_k)


def statistical(s: Lpn) -> float:
    checks = -2 * s.trees * math.log2(1 - 2 * (s.k / 2) / s.samples)
    return checks + s.log_k


def algebraic(s: Lpn, sparse: bool = False) -> tuple[float, int, int]:
    """(cost, degree, guessed samples)."""
    best = (math.inf, 0, 0)
    for degree in (2,) if sparse else (2, 3):
        for step in range(200):
            guessed = s.k * step // 200
            unknown = s.k - guessed - s.trees
            block = (1 << s.depth) - guessed / s.trees
            products = s.trees * block * (block - 1) / 2
            if sparse:
                # Nothing is substituted: every guessed sample gives one more sparse equation with each unknown.
                enough = products + guessed * s.k >= s.k * (s.k - 1) / 2
                work = 2 * log2_choose(s.k, 2) + math.log2(3 * 121)
            else:
                enough = products >= (unknown * (unknown - 1) / 2 if degree == 2 else unknown * unknown / 6)
                work = OMEGA * log2_choose(unknown, degree)
            if enough:
                best = min(best, (work - s.trees * math.log2(1 - guessed / s.samples), degree, guessed))
                break
    return best


def minor_fraction(s: Lpn, weight: int = WEIGHT) -> float:
    """x: the least fraction of positions that holds as many whole rows as positions, and one in a hundred more."""
    return (1.01 * s.k / s.samples) ** (1 / (weight - 1))


def minor(s: Lpn, weight: int = WEIGHT) -> tuple[float, float, int]:
    """(cost, x, p)."""
    x = minor_fraction(s, weight)
    unknown = x * s.k
    bits, p, _ = enumerated(s, 1.01 * unknown, math.log2(3 * weight) + 2 * math.log2(unknown))
    return bits, x, p


def row(s: Lpn) -> dict[str, float | int]:
    """All figures of one set."""
    return {
        "trees": s.trees,
        "log_k": s.log_k,
        "depth": s.depth,
        "gauss": round(gauss(s), 1),
        "isd": round(isd(s)[0], 1),
        "statistical": round(statistical(s), 1),
        "algebraic": round(algebraic(s)[0], 1),
        "algebraic_degree": algebraic(s)[1],
        "minor": round(minor(s)[0], 1),
        "minor_x": round(minor(s)[1], 3),
        "minor_errors": minor(s)[2],
        "sparse": round(algebraic(s, sparse=True)[0], 1),
    }

"""Cost of attacks on the silent OT's LPN with regular noise and partite rows.

N = t 2^h samples, k = w g secret bits in w groups of g, a one of each
sample in each group, one error in each of t blocks of 2^h samples. All figures are log2 of bit operations. Standard
library only.

On a uniformly random code:
  gauss      guess k - t error-free samples, evenly over the blocks, each block's sum being known; solve in k^2.8
             (pooled Gauss of Esser, Kuebler,
             May, CRYPTO 2017, as Liu, Wang, Yang, Yu, ePrint 2022/712, count it; regular noise as RegularISD-Perm of
             Esser and Santini, ePrint 2023/1568)
  isd        the same with p errors among k - t + l positions found by a meet in the middle (RegularISD-Enum of Esser
             and Santini, section 3, with
             k^2.8 for the elimination)
  statistical  parity checks of k / 2 samples from an elimination, their bias under regular noise (low-weight parity
               checks of Boyle, Couteau, Gilboa, Ishai,
             CCS 2018, section 5.1, over two elements)
  algebraic  guess g error-free samples, then linearise the t C(2^h - g/t, 2) products of two samples of one block at
             degree 2, or degree 3
             with semi-regular growth (Briaud and Oygarden, EUROCRYPT 2023), elimination with exponent 2.8
On the code that is used, one position from each of w groups a row (the sources above do not count its sparseness):
  minor      take the rows whose positions lie in a random set of x g positions of each group: N x^w rows in x k
             unknowns, as many as are needed already
             at x = (k/N)^(1/(w-1)). Guess that p of them are in error (meet in the middle), solve by Wiedemann in 3 w
             (x k)^2. Repeat with other sets.
             Equal shares of all groups are best: a row is inside with probability prod x_j <= x^w for shares x_j of
             mean x.
             The set of positions is the domain reduction of Chen, Shu and Zhou (Algorithms for Sparse LPN and LSPN
             Against Low-noise, arXiv 2407.19215),
             whose exponent, noise rate * k^((1 + delta) / 2) with N = k^(1 + (w / 2 - 1)(1 - delta)), is the expected
             number of errors among x k rows.
             Regular noise, the enumeration and the constants are our own.
  dense      `minor` for an attacker who is handed, for every try, the smallest set of positions that holds as many
             rows as positions. No set can be
             smaller: at this x the expected number of such sets is 1 (first moment). How to find such sets is not
             known; greedy search
             comes between (`docs/security/README.md`). So this is a bound on all attacks that choose positions, not
             an attack.
  checks     `statistical` for that attacker: parity checks of x k / 2 samples on average from an elimination among
             the rows of the smallest set
  sparse     `algebraic` at degrees 2 to 4 by Wiedemann: a product of two rows has at most (w + 1)^2 monomials, times
             one or two positions as many
Not an attack, but what partite rows change:
  pairs      log2 of the expected number of pairs of equal rows, the most frequent words of few ones in the dual code
  lightest   fewest ones that any word of the dual code is expected to have: below, the expected number of words is
             below 1
"""

from __future__ import annotations

import math
from dataclasses import dataclass

OMEGA = 2.8
# what a set must have by every estimate that takes the code as it is
LEAST_BITS = 130.0


@dataclass(frozen=True)
class Lpn:
    """t blocks of 2^depth samples, rows with a one in each of ``ones`` groups of 2^log_group secret bits."""

    trees: int
    ones: int
    log_group: int
    depth: int

    @property
    def samples(self) -> int:
        """N."""
        return self.trees << self.depth

    @property
    def k(self) -> int:
        """Secret bits."""
        return self.ones << self.log_group

    @property
    def log_k(self) -> float:
        """log2 of the secret bits."""
        return math.log2(self.k)


def log2_choose(n: float, k: float) -> float:
    """log2 of a binomial coefficient."""
    return (math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)) / math.log(2)


def add(a: float, b: float) -> float:
    """log2 of a sum of two numbers that are given by log2."""
    return max(a, b) + math.log2(1 + 2.0 ** (min(a, b) - max(a, b)))


def gauss(s: Lpn) -> float:
    """Guesses of error-free samples on a random code."""
    return OMEGA * s.log_k - s.trees * math.log2(1 - (s.k - s.trees) / s.samples)


def enumerated(s: Lpn, rows: float, elimination: float, entry: float | None = None) -> tuple[float, int, int]:
    """(cost, p, l).

    P errors, half in each half of the blocks, among `rows` + l rows spread evenly. `entry`: cost of a list's entry,
    else log2 l.
    """
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
    """(cost, p, l) on a random code."""
    return enumerated(s, s.k - s.trees, OMEGA * s.log_k)


def statistical(s: Lpn) -> float:
    """Parity checks of k / 2 samples on a random code."""
    checks = -2 * s.trees * math.log2(1 - 2 * (s.k / 2) / s.samples)
    return checks + s.log_k


def algebraic(s: Lpn) -> tuple[float, int, int]:
    """(cost, degree, guessed samples) on a random code."""
    best = (math.inf, 0, 0)
    for degree in (2, 3):
        for step in range(200):
            guessed = s.k * step // 200
            unknown = s.k - guessed - s.trees
            block = (1 << s.depth) - guessed / s.trees
            products = s.trees * block * (block - 1) / 2
            if products >= (unknown * (unknown - 1) / 2 if degree == 2 else unknown * unknown / 6):
                work = OMEGA * log2_choose(unknown, degree)
                best = min(best, (work - s.trees * math.log2(1 - guessed / s.samples), degree, guessed))
                break
    return best


def sparse(s: Lpn) -> tuple[float, int, int]:
    """(cost, degree, guessed samples).

    Nothing is substituted: a guessed sample gives one sparse equation with each monomial of one degree less.
    """
    best = (math.inf, 0, 0)
    for degree in (2, 3, 4):
        monomials = 2.0 ** log2_choose(s.k, degree)
        for step in range(200):
            guessed = s.k * step // 200
            block = (1 << s.depth) - guessed / s.trees
            pairs, triples = s.trees * block * (block - 1) / 2, s.trees * block * (block - 1) * (block - 2) / 6
            lower, lowest = 2.0 ** log2_choose(s.k, degree - 1), 2.0 ** log2_choose(s.k, degree - 2)
            equations = guessed * lower + pairs * lowest + (triples if degree == 3 else 0.0)
            if equations >= monomials:
                work = 2 * log2_choose(s.k, degree) + math.log2(3 * (s.ones + 1) ** 2)
                best = min(best, (work - s.trees * math.log2(1 - guessed / s.samples), degree, guessed))
                break
    return best


def minor_fraction(s: Lpn) -> float:
    """x: the least fraction of positions that holds as many whole rows as positions, and one in a hundred more."""
    return (1.01 * s.k / s.samples) ** (1 / (s.ones - 1))


def entropy(x: float) -> float:
    """Of a coin, in nats."""
    return -x * math.log(x) - (1 - x) * math.log(1 - x)


def divergence(q: float, p: float) -> float:
    """Of a coin with q from one with p, in nats."""
    return q * math.log(q / p) + (1 - q) * math.log((1 - q) / (1 - p))


def dense_fraction(s: Lpn) -> float:
    """The least x at which any set of x k positions may hold as many whole rows as positions.

    There are exp(k H(x)) sets, and a set holds so many
    rows with probability exp(-N D(x k / N, x^ones)) at most. A set with unequal shares x_j of the groups is no
    exception: there are
    exp(g sum H(x_j)) <= exp(k H(x)) of them, H being concave, and a row is inside with probability prod x_j <= x^ones.
    """
    low, high = 0.0, (s.k / s.samples) ** (1 / (s.ones - 1))
    for _ in range(50):
        x = (low + high) / 2
        exists = s.k * entropy(x) >= s.samples * divergence(x * s.k / s.samples, x**s.ones)
        low, high = (low, x) if exists else (x, high)
    return high


def minor(s: Lpn, x: float) -> tuple[float, int]:
    """(cost, p) with sets of x k positions."""
    unknown = x * s.k
    bits, p, _ = enumerated(s, 1.01 * unknown, math.log2(3 * s.ones) + 2 * math.log2(unknown))
    return bits, p


def checks(s: Lpn, x: float) -> float:
    """`statistical` with words of x k / 2 ones."""
    return -2 * s.trees * math.log2(1 - x * s.k / s.samples) + math.log2(x * s.k)


def log2_even(picks: int, bins: float) -> float:
    """log2 of an upper bound of the probability that so many uniform picks fall into each bin an even number of times.

    It is picks! times the coefficient
    of z^picks in cosh(z / bins)^bins, which is at most cosh(z / bins)^bins / z^picks for any z > 0. The z taken makes
    it least.
    """
    low, high = 0.0, picks / bins + 2.0
    for _ in range(60):
        y = (low + high) / 2
        low, high = (y, high) if y * math.tanh(y) < picks / bins else (low, y)
    log_cosh = high + math.log1p(math.exp(-2 * high)) - math.log(2)
    return (math.lgamma(picks + 1) + bins * log_cosh - picks * math.log(high * bins)) / math.log(2)


def log2_words(s: Lpn, ones: int) -> float:
    """log2 of (a bound of) the expected number of words with so many ones, an even number, in the dual code.

    They are sets of rows that name each position an even number of times.
    """
    return log2_choose(s.samples, ones) + s.ones * min(0.0, log2_even(ones, s.k / s.ones))


def pairs(s: Lpn) -> float:
    """log2 of the expected number of pairs of equal rows."""
    return log2_choose(s.samples, 2) - s.ones * math.log2(s.k / s.ones)


def lightest(s: Lpn) -> int:
    """The least even number of ones, to one in a hundred, from which on words are expected.

    The expected number falls from two ones on, and then rises.
    """
    ones = 2
    while log2_words(s, ones) < 0:
        ones += max(2, ones // 200 * 2)
    return ones


def least(s: Lpn) -> float:
    """The least estimate of those that take the code as it is."""
    dense = dense_fraction(s)
    return min(minor(s, minor_fraction(s))[0], minor(s, dense)[0], checks(s, dense), sparse(s)[0], isd(s)[0])


def row(s: Lpn) -> dict[str, float | int]:
    """All figures of one set."""
    wide, narrow = minor_fraction(s), dense_fraction(s)
    return {
        "trees": s.trees,
        "ones": s.ones,
        "log_group": s.log_group,
        "depth": s.depth,
        "gauss": round(gauss(s), 1),
        "isd": round(isd(s)[0], 1),
        "statistical": round(statistical(s), 1),
        "algebraic": round(algebraic(s)[0], 1),
        "algebraic_degree": algebraic(s)[1],
        "minor": round(minor(s, wide)[0], 1),
        "minor_x": round(wide, 3),
        "minor_errors": minor(s, wide)[1],
        "dense": round(minor(s, narrow)[0], 1),
        "dense_x": round(narrow, 3),
        "checks": round(checks(s, narrow), 1),
        "sparse": round(sparse(s)[0], 1),
        "sparse_degree": sparse(s)[1],
        "least": round(least(s), 1),
        "pairs": round(pairs(s), 1),
        "lightest": lightest(s),
    }

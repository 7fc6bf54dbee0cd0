"""Minimax polynomials of activations, with errors that are proven.

ReLU is ``x (1 + sign x) / 2``, and sign is approached by odd polynomials one after the other: the first ones bring what
is far enough from zero to two intervals around -1 and 1, each makes them narrower. The source is Lee, Lee, No, Kim,
"Minimax approximation of sign function by composite polynomial for homomorphic comparison", IEEE TDSC 2021; for
networks it is Lee and others, "Low-complexity deep convolutional neural networks on fully homomorphic encryption using
multiplexed parallel convolutions", ICML 2022. The last one is not the best for sign but for the product with x, to
which a constant is added: errors near zero count less, and the constant takes two fifths of the rest. Polynomials have
degrees 3, 7 and 15, which take 2, 3 and 4 levels.

Smooth functions are one polynomial. All are found by Remez's exchange on a fine grid. What is between the points of the
grid is bounded, too (:func:`polynomial_error`, :func:`function_error`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.polynomial import chebyshev
from numpy.polynomial import polynomial as poly

Array = np.ndarray

POINTS = 4096
ROUNDS = 80
# points and rounds where a basis fulfils no condition
FEW, LAWSON = 1500, 300
# how far the largest deviation may be above that of an exchange that is at its end
DONE = 1e-6
# points of a certificate, for every degree of the polynomial that it is about
CERTIFIED = 32

# by levels: degrees, and log2 of what the first polynomials bring values above to +-1. Up to nine levels all degrees of
# 3, 7 and 15 were tried, with the constant c; those of more levels were found without it
SIGNS: dict[int, tuple[tuple[int, ...], float]] = {
    2: ((3,), 0.0),
    3: ((7,), 0.0),
    4: ((15,), 0.0),
    5: ((3, 7), 2.25),
    6: ((3, 15), 1.75),
    7: ((7, 15), 2.75),
    8: ((15, 15), 3.75),
    9: ((3, 7, 15), 3.75),
    10: ((7, 7, 15), 4.75),
    11: ((7, 15, 15), 5.75),
    12: ((15, 15, 15), 6.75),
}
# degrees of smooth functions, and their levels
DEGREES = {2: 1, 4: 2, 7: 3, 15: 4, 31: 5}


@dataclass(frozen=True)
class Half:
    """``q`` and c with ``x q(x) + c`` near ``max(x, 0)`` on [-1, 1].

    Attributes:
        stages: polynomials one after the other, lowest coefficient first.
        constant: c.
        error: largest ``|x q(x) + c - max(x, 0)|`` on [-1, 1], proven.
        levels: of the polynomials, without the product.
    """

    stages: tuple[tuple[float, ...], ...]
    constant: float
    error: float
    levels: int


def exchange(basis: Array, wanted: Array, weight: Array) -> tuple[Array, float]:
    """Coefficients c with the least ``max_j weight_j |wanted_j - (basis c)_j|``, and that deviation.

    Args:
        basis: (points, n), rows in the order of the argument of n functions that fulfil Haar's condition.
        wanted: (points,).
        weight: (points,), positive.
    """
    count, last = basis.shape[1] + 1, len(wanted) - 1
    chosen = np.round(np.linspace(0, last, count)).astype(int)
    signs = (-1.0) ** np.arange(count)
    best, found = math.inf, np.zeros(basis.shape[1])
    for _ in range(ROUNDS):
        system = np.hstack([basis[chosen], (signs / weight[chosen])[:, None]])
        *solved, level = np.linalg.lstsq(system, wanted[chosen], rcond=None)[0]
        off = weight * (wanted - basis @ np.array(solved))
        most = float(np.abs(off).max())
        if most < best:
            best, found = most, np.array(solved)
        if most - abs(level) <= DONE * most:
            break
        extremes = _alternating(off, count)
        if len(extremes) < count or np.array_equal(extremes, chosen):
            break
        chosen = extremes
    return found, best


def _alternating(off: Array, count: int) -> Array:
    """Places of the largest deviations of one sign each, as many as wanted if there are so many."""
    size, positive = np.abs(off), off >= 0
    runs = np.split(np.arange(len(off)), np.flatnonzero(positive[1:] != positive[:-1]) + 1)
    places = [int(run[np.argmax(size[run])]) for run in runs]
    while len(places) > count:
        if len(places) == count + 1:
            places.pop(0 if size[places[0]] < size[places[-1]] else -1)
            break
        pairs = [max(size[a], size[b]) for a, b in itertools.pairwise(places)]
        least = int(np.argmin(pairs))
        del places[least : least + 2]
    return np.array(places)


def _odd(degree: int, x: Array, reach: float) -> Array:
    return chebyshev.chebvander(x / reach, degree)[:, 1::2]


def _powers(coefficients: Array, reach: float) -> tuple[float, ...]:
    """Chebyshev coefficients of x / reach as those of powers of x."""
    found = chebyshev.cheb2poly(coefficients)
    whole = np.zeros(len(coefficients))
    whole[: len(found)] = found
    return tuple(map(float, whole / reach ** np.arange(len(whole))))


def _every_other(found: Array, degree: int) -> Array:
    whole = np.zeros(degree + 1)
    whole[1::2] = found
    return whole


def composed(stages: Sequence[Sequence[float]], x: Array) -> Array:
    """The polynomials one after the other."""
    for coefficients in stages:
        x = poly.polyval(x, np.asarray(coefficients))
    return x


@lru_cache(maxsize=64)
def half(levels: int) -> Half:
    """The best ``q`` of so many levels.

    Raises:
        KeyError: levels that are not in :data:`SIGNS`.
    """
    degrees, bits = SIGNS[levels]
    low, high = 2.0**-bits, 1.0
    stages: list[tuple[float, ...]] = []
    for degree in degrees[:-1]:
        x = (low + high) / 2 - (high - low) / 2 * np.cos(np.linspace(0.0, np.pi, POINTS + 1))
        found, off = exchange(_odd(degree, x, high), np.ones(len(x)), np.ones(len(x)))
        stages.append(_powers(_every_other(found, degree), high))
        low, high = 1.0 - off, 1.0 + off
    x = 1.0 - np.cos(np.linspace(0.0, np.pi / 2, FEW))
    y = composed(stages, x)
    reach = float(y.max())
    basis = np.hstack([_odd(degrees[-1], y, reach) * x[:, None], np.ones((len(x), 1))]) / 2
    solved = least_deviation(basis, x / 2)
    constant = float(solved[-1]) / 2
    last = 0.5 * np.array(_powers(_every_other(solved[:-1], degrees[-1]), reach))
    last[0] = 0.5
    stages.append(tuple(map(float, last)))
    return Half(tuple(stages), constant, _half_error(stages, constant), levels)


def least_deviation(basis: Array, wanted: Array) -> Array:
    """Coefficients with about the least largest deviation, for any basis.

    Least squares with weights that grow where deviations are large (Lawson's algorithm).
    """
    weight = np.full(len(wanted), 1.0 / len(wanted))
    best, found = math.inf, np.zeros(basis.shape[1])
    for _ in range(LAWSON):
        root = np.sqrt(weight)
        solved = np.linalg.lstsq(basis * root[:, None], wanted * root, rcond=None)[0]
        off = np.abs(wanted - basis @ solved)
        if (most := float(off.max())) < best:
            best, found = most, solved
        weight *= off
        weight /= weight.sum()
    return found


def _half_error(stages: Sequence[Sequence[float]], constant: float) -> float:
    """Largest ``|x q(x) + c - max(x, 0)|`` on [-1, 1]: even in x, and a polynomial on [0, 1]."""
    degree = 1 + math.prod(len(c) - 1 for c in stages)
    return polynomial_error(lambda x: x * (composed(stages, x) - 1.0) + constant, degree, 0.0, 1.0)


def polynomial_error(value: Callable[[Array], Array], degree: int, low: float, high: float) -> float:
    """A bound of a polynomial's largest magnitude on [low, high].

    At n Chebyshev points, n > degree, no polynomial is smaller than ``cos(pi degree / 2n)`` of its largest magnitude
    (Ehlich and Zeller, "Schwankung von Polynomen zwischen Gitterpunkten", Mathematische Zeitschrift 86, 1964).
    """
    count = CERTIFIED * degree
    x = np.cos(np.pi * (np.arange(count) + 0.5) / count)
    most = float(np.abs(value((low + high) / 2 + (high - low) / 2 * x)).max())
    return most / math.cos(math.pi * degree / (2 * count))


def smooth(function: Callable[[Array], Array], reach: float, degree: int) -> tuple[float, ...]:
    """The minimax polynomial of a function on [-reach, reach] among the points of a grid.

    Of a function whose even part is a constant (sigmoid) or whose odd part is linear (SiLU) the other part alone is
    fitted: the best polynomial has more alternating deviations than it needs, which an exchange circles in.
    """
    x = reach * np.sin(np.linspace(0.0, np.pi / 2, POINTS + 1))
    above, below = function(x), function(-x)
    even, odd = (above + below) / 2, (above - below) / 2
    size = max(float(np.abs(above).max()), float(np.abs(below).max()))
    whole = np.zeros(degree + 1)
    if np.abs(even - even[0]).max() <= 1e-12 * size:
        first = 1
        basis, wanted = chebyshev.chebvander(x[1:] / reach, degree)[:, 1::2], odd[1:]
        whole[0] = even[0]
    elif np.abs(odd - odd[-1] * x / reach).max() <= 1e-12 * size:
        first = 0
        basis, wanted = chebyshev.chebvander(x / reach, degree)[:, ::2], even
        whole[1] = odd[-1]
    else:
        x = -reach * np.cos(np.linspace(0.0, np.pi, POINTS + 1))
        return _powers(exchange(chebyshev.chebvander(x / reach, degree), function(x), np.ones(len(x)))[0], reach)
    whole[first::2] += exchange(basis, wanted, np.ones(len(wanted)))[0]
    return _powers(whole, reach)


def function_error(
    function: Callable[[Array], Array], slope: float, coefficients: Sequence[float], reach: float
) -> float:
    """A bound of ``|polynomial - function|`` on [-reach, reach], by a grid and slopes.

    Args:
        slope: a bound of the function's slope.
    """
    # between two points the difference moves by at most half the distance, times both slopes
    derivative = poly.polyder(np.asarray(coefficients))
    steep = polynomial_error(lambda x: poly.polyval(x, derivative), max(len(derivative) - 1, 1), -reach, reach)
    x = np.linspace(-reach, reach, 1 << 18)
    most = float(np.abs(poly.polyval(x, np.asarray(coefficients)) - function(x)).max())
    return most + (x[1] - x[0]) / 2 * (steep + slope)

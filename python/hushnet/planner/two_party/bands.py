"""Quotients whose argument spans many powers of two, as products of factors that each change in one part of its range.

A spline has segments of one width, and its error is the same everywhere. A reciprocal, or a reciprocal root, of small
arguments is large and steep, of large ones small and flat; its relative error counts, because it becomes a factor. On
edges ``a_0 < a_1 < ... < a_k`` with ``c_i(v) = min(max(v, a_(i-1)), a_i)``,

    f(v) = f(c_1(v)) (f(c_2(v)) / f(a_1)) ... (f(c_k(v)) / f(a_(k-1))):

every factor but one stands still, so each is a function of few powers of two, with a small relative error.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from .curves import Curve

Array = np.ndarray

# a factor's arguments span so many powers of two, and its values so many
ARGUMENT_OCTAVES = 4
VALUE_OCTAVES = 4
GRID = 513


@dataclass(frozen=True)
class Band(Curve):
    """A curve between two edges, divided by a number; a stage clips arguments beyond its edges."""

    low: float = 0.0
    high: float = math.inf
    divisor: float = 1.0

    def __call__(self, x: Array) -> Array:
        """Values at arguments of one axis."""
        return super().__call__(x) / self.divisor

    @property
    def key(self) -> str:  # type: ignore[override]
        """What it computes."""
        return repr((Curve(self.source, self.output, self.body).key, self.low, self.high, self.divisor))


def is_quotient(curve: Curve) -> bool:
    """Whether the curve ends in the reciprocal of what it computed."""
    last = curve.body[-1]
    if last.op != "div":
        return False
    made = {n.output: n for n in curve.body}
    numerator = made.get(last.inputs[0])
    return numerator is not None and numerator.op == "affine" and numerator.attrs["mul"] == 0


def edges(curve: Curve, low: float, high: float) -> list[float]:
    """Edges from ``low`` to ``high`` between which the curve spans few powers of two; none unless it only falls.

    ``low`` may be zero where the curve is finite there: the first edge is then one below which it hardly changes.
    """
    if not 0 <= low < high or not math.isfinite(high):
        return []
    if low == 0:
        top = float(curve(np.zeros(1))[0])
        if not math.isfinite(top):
            return []
        low = high
        while low > high * 2.0**-60 and float(curve(np.full(1, low))[0]) < 0.9 * top:
            low /= 2
    values = curve(np.geomspace(low, high, GRID))
    if not (np.isfinite(values).all() and (values > 0).all() and (np.diff(values) < 0).all()):
        return []
    found = [low]
    while found[-1] < high:
        first = float(curve(np.full(1, found[-1]))[0])
        for octaves in range(ARGUMENT_OCTAVES, 0, -1):
            after = min(math.ldexp(found[-1], octaves), high)
            if octaves == 1 or first <= float(curve(np.full(1, after))[0]) * 2**VALUE_OCTAVES:
                break
        # what is left of the range is no band of its own
        found.append(high if after * 1.5 >= high and len(found) > 1 else after)
    return found


def bands(curve: Curve, low: float, high: float) -> list[Band]:
    """The factors of a curve from ``low`` to ``high``; none where one function serves."""
    at = edges(curve, low, high)
    if not at:
        return []
    tops = [float(curve(np.full(1, a))[0]) for a in at]
    if tops[0] <= 2 * tops[-1]:
        return []
    # a curve that is finite at zero is so from there on
    first = Band(curve.source, curve.output, curve.body, low, at[1])
    rest = [Band(curve.source, curve.output, curve.body, a, b, top) for a, b, top in zip(at[1:], at[2:], tops[1:])]
    return [first, *rest]

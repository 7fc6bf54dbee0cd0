"""Functions of one variable as the protocol evaluates them (``docs/mpc.md``), in exact integers, without shares.

The protocol splits an argument in two places, its result depends on both, and the stated error holds for every split.
Here the server's place is the middle of a segment, or drawn.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray
# bits of the server's place that it computes with, and of its polynomials below the coefficient's unit
PLACE_BITS, FINE = 20, 14
# fractional bits of an exponential's rate and of its values, and the terms of its series
RATE_BITS, POWER_BITS, SERIES = 40, 31, 9
# arguments at a time: what is computed of them stays in a core's cache
BLOCK = 1 << 13


def function(
    stage: dict[str, Any], coefficients: Array, x: Array, finer: int, units: np.random.Generator | None
) -> Array:
    """Results of a function's stage.

    Args:
        coefficients: as the plan has them.
        finer: fractional bits that the result has beyond the argument.
        units: draws the places that shares give; None for the middle.
    """
    form = stage["form"]
    if stage["below"] == "mirrored":
        size = np.abs(x) if stage["above"] == "inside" else np.minimum(np.abs(x), form["high"])
        return spline(form, stage["orders"], coefficients, size, units) + (np.maximum(x, 0) << max(finer, 0))
    low = form["low"] if stage["below"] != "inside" else None
    high = form["high"] if stage["above"] != "inside" else None
    inside = x if low is None and high is None else np.clip(x, low, high)
    beyond = np.zeros_like(x)
    if stage["below"] == "rising":
        beyond += np.minimum(x - form["low"], 0)
    if stage["above"] == "rising":
        beyond += np.maximum(x - form["high"], 0)
    return spline(form, stage["orders"], coefficients, inside, units) + (beyond << max(finer, 0))


def spline(
    form: dict[str, Any], orders: list[int], coefficients: Array, x: Array, units: np.random.Generator | None
) -> Array:
    """Values of the piecewise polynomial at arguments of its interval."""
    segment = form["argument_bits"] - form["segments"]
    # the server's share, and what its low bits of the result round to: the middle, or drawn
    held = lost = None
    if units is not None:
        held = units.integers(0, 1 << form["argument_bits"], size=x.shape).reshape(-1)
        if form["shed"]:
            lost = units.integers(0, 1 << form["shed"], size=x.shape).reshape(-1) + 1
    columns, flat = np.ascontiguousarray(coefficients.T), x.reshape(-1)
    found = np.empty_like(flat)
    for begin in range(0, flat.size, BLOCK):
        here = slice(begin, begin + BLOCK)
        place = (1 << segment) >> 1 if held is None else held[here]
        rounding = 1 << form["shed"] >> 1 if lost is None else lost[here]
        found[here] = _values(form, orders, columns, flat[here], place, rounding)
    return found.reshape(x.shape)


def _values(
    form: dict[str, Any], orders: list[int], columns: Array, x: Array, held: Array | int, rounding: Array | int
) -> Array:
    """Values at arguments of one axis, of which the server holds a share; ``rounding`` is added to what is shed."""
    segment = form["argument_bits"] - form["segments"]
    fine, inside = min(segment, PLACE_BITS), (1 << segment) - 1
    whole = (x - form["low"]) * form["multiplier"] + (1 << segment)
    asked = (whole - held) & ((1 << form["argument_bits"]) - 1)
    place = (held & inside) >> (segment - fine)
    piece = ((held >> segment) + (asked >> segment)) & ((1 << form["segments"]) - 1)
    within = (asked & inside) >> form["dropped"]
    total = np.full_like(x, form["offset"])
    start, powers = 0, form.get("rate", 0) != 0
    # an exponential has no constant, and its shed bits leave no mean
    total -= powers and form["shed"] > 0
    for degree, order in enumerate(orders, int(powers)):
        value = columns[start + order].take(piece)
        for column in range(start + order - 1, start - 1, -1):
            value *= place
            value >>= fine
            value += columns[column].take(piece)
        start += order + 1
        value += 1 << (FINE - 1)
        value >>= FINE
        if degree == 0:
            total += value << form["guard"]
            continue
        basis = form["basis"][degree - 1]
        precision = basis["precision"]
        if powers:
            factor = 2 * falling(form, precision, within) + 1
        else:
            factor = 2 * polynomial(form, degree, precision, within) + 1 - (1 << precision)
        total += nearest((value + basis["low"]) * factor, basis["shift"])
    return (((total + rounding) >> form["shed"]) - (form["offset"] >> form["shed"])) << form["lift"]


def polynomial(form: dict[str, Any], degree: int, precision: int, within: Array) -> Array:
    """``(T_m + 1) / 2`` of a place in its segment, in units of ``2^-precision``."""
    bits = form["argument_bits"] - form["segments"] - form["dropped"]
    if degree == 1:
        return within
    centred = 2 * within + 1 - (1 << bits)
    if degree == 2:
        return (centred * centred) >> (2 * bits - precision)
    value = 4 * centred**3 - 3 * (centred << (2 * bits)) + (1 << (3 * bits))
    rounded = value >> (3 * bits + 1 - precision)
    return rounded - (rounded >> precision)


def falling(form: dict[str, Any], precision: int, within: Array) -> Array:
    """The exponential that falls from the end of a segment to a place, in units of ``2^-precision``.

    The client computes the same series in integers.
    """
    bits = form["argument_bits"] - form["segments"] - form["dropped"]
    eighth = ((((2 << bits) - 2 * within - 1) * form["rate"]) >> (RATE_BITS + 1 - POWER_BITS + 3)).astype(np.int64)
    one = 1 << POWER_BITS
    value = np.full_like(eighth, one)
    for term in range(SERIES, 0, -1):
        part = (one + term // 2) // term
        value = one - ((((eighth * value) >> POWER_BITS) * part) >> POWER_BITS)
    for _ in range(3):
        value = (value * value) >> POWER_BITS
    value >>= POWER_BITS - precision
    return value - (value >> precision)


def nearest(value: Array, shift: int) -> Array:
    """``value / 2^shift``, rounded to the nearest."""
    return (value + (1 << shift >> 1)) >> shift

"""Which piecewise polynomial stands for a function of one variable: interval, ends, error, and the fit.

All of it follows from the function and from what clients are told: the operand's reach and fractional bits, and those
of the result. Only the fit's integers go into the plan, so both parties compute with the same ones.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ... import _native
from ...plan import PlanError
from ...reference import spline
from .curves import Curve

Array = np.ndarray

# arguments at which a function is looked at
GRID = 4097
# the fit's ring: bits of the interval, of filling its segments, and one for the sign
SPARE_BITS = 6
# doublings of the error that are tried where the segments of a table do not reach it
COARSER = 6
# units of the result that a function may be off by
ERROR = 4.0
# part of the error that arguments beyond the interval may have
TAIL = 0.25
INSIDE, CONSTANT, RISING, MIRRORED = "inside", "constant", "rising", "mirrored"
# units by which a function may differ from one that is even beside max(x, 0)
EVEN = 1.0 / 64
# parts that a function falls into at most, and the first of them ends at a half to this power of its interval
MOST_PARTS, SHORTEST = 6, 8
# calibration data's least argument, as a multiple of one that is planned for
LEAST_AIR = 4.0
# bits that forms are compared by: of a compared bit, of a comparison besides (its result, in a usual ring, travels both
# ways), and a byte for every correlated transfer, which is about what its time is worth
COMPARED_BIT, COMPARISON, TRANSFER = 6.5, 120.0, 9.0


@dataclass(frozen=True)
class Fit:
    """A function as a stage carries it.

    Attributes:
        form, orders, coefficients: of the pieces.
        below, above: what happens beyond the interval.
        error, slope: bound of the error and the steepest slope, in units of result and operand.
        largest: largest absolute value of the result, the error included, in its units.
    """

    form: dict[str, Any]
    orders: list[int]
    coefficients: Array
    below: str
    above: str
    error: float
    slope: float
    largest: int


@dataclass(frozen=True)
class Asked:
    """What a fit follows from.

    Attributes:
        unit: what a unit of the argument is worth.
        low, high: least and greatest argument, in its units.
        least: an argument below which there is none that counts: functions that end there (a logarithm) are fitted from
            it on, and keep their value below.
        gain, fraction: a result v stands for ``v 2^-fraction gain``.
        finer: fractional bits that the result has beyond the argument; None where they have different gains.
        ends: what happens below and above the interval, and its ends, where the caller knows; None to look for them.
        growth: of an exponential, which has a form of its own: the exponent of a unit of the argument, and a value that
            no argument exceeds.
    """

    unit: float
    low: int
    high: int
    least: float | None
    gain: float
    fraction: int
    finer: int | None
    ends: tuple[str, str, int, int] | None = None
    growth: tuple[float, float] | None = None


def ring_bits(asked: Asked) -> int:
    """Bits that shares need for the argument."""
    low, high = (asked.low, asked.high) if asked.ends is None else asked.ends[2:]
    return (high - low).bit_length() + SPARE_BITS


def fit(curve: Curve, asked: Asked) -> Fit:
    """The cheapest form of a function.

    Raises:
        PlanError: it is not finite on its range, or needs more segments than a table has.
    """
    try:
        return _fit(_Shared(curve), asked)
    except ValueError as error:
        low, high = asked.low * asked.unit, asked.high * asked.unit
        raise PlanError(
            f"the function {curve.name!r} that gives {curve.output!r} has no approximation by at most 256 pieces on "
            f"[{low:.4g}, {high:.4g}] ({error}); {_instead(curve)}"
        ) from None


def _instead(curve: Curve) -> str:
    """What to do about a function without a table."""
    if any(op.op == "log" for op in curve.body):
        return (
            "shares hold no logarithm of values next to zero. If what stands in front of it is a known transform, as a "
            "spectrogram is, let clients compute it: cut the file behind the logarithm with onnx.utils.extract_model, "
            "and compile the part behind it. Or raise the constant that is added to the values"
        )
    return "give calibration data that shows a smaller range, or use trust='client-aided'"


@dataclass(frozen=True)
class Part(Curve):
    """A curve less a number."""

    base: float = 0.0

    def __call__(self, x: Array) -> Array:
        """Values at arguments of one axis."""
        return super().__call__(x) - self.base

    @property
    def key(self) -> str:  # type: ignore[override]
        """What it computes."""
        return repr((super().key, self.base))


def below(curve: Curve, asked: Asked, top: float) -> Asked | None:
    """The request without arguments whose results are beyond ``top`` units: an end is the next power of two.

    None where both ends stay. For functions that grow to an end that calibration data never came near to: an
    exponential of differences from the largest value.
    """
    if asked.ends is not None or asked.growth is not None:
        return None
    values = _values(curve, asked)
    kinds, ends = list(_ends(values, asked, ERROR * TAIL)[:2]), list(_ends(values, asked, ERROR * TAIL)[2:])
    for side, sign in enumerate((-1, 1)):
        for exponent in range(3, max(abs(ends[side]), 1).bit_length() - 1):
            beyond = values(sign * np.geomspace(1 << exponent, max(abs(ends[side]), 2 << exponent), GRID))
            if sign * ends[side] > 1 << exponent and (np.abs(beyond[np.isfinite(beyond)]) > top).all():
                kinds[side], ends[side] = CONSTANT, sign << exponent
                break
    found = replace(asked, ends=(kinds[0], kinds[1], ends[0], ends[1]))
    return None if found.ends == _ends(values, asked, ERROR * TAIL) else found


def parts(curve: Curve, asked: Asked) -> list[tuple[Curve, Asked]]:
    """A function as the sum of functions that each change in one part of its range, where one table does not hold it.

    On edges ``a_0 < a_1 < ... < a_k`` with ``c_i(x) = min(max(x, a_(i-1)), a_i)``, f(x) is ``f(c_1(x)) + (f(c_2(x)) -
    f(a_1)) + ...``. So a root, which is steep next to zero, has short segments there and long ones elsewhere.
    The first part begins at a power of two below calibration data's least argument, with some air.
    None where the function is not finite on its range, or few parts do not hold it.
    """
    values = _values(curve, asked)
    below, above, low, high = asked.ends or _ends(values, asked, ERROR * TAIL)
    if asked.least is not None and asked.least > 0 and low >= 0:
        units = math.floor(asked.least / LEAST_AIR / asked.unit)
        if max(low, 1) < units < high:
            below, low = CONSTANT, 1 << (units.bit_length() - 1)
    if not np.isfinite(values(np.linspace(low, high, GRID))).all() or asked.growth is not None:
        return []
    found, open_ends = list[tuple[Curve, Asked]](), [(below, above, low, high)]
    while open_ends:
        ends = open_ends.pop(0)
        base = 0.0 if ends[2] == low else float(curve(np.full(1, ends[2] * asked.unit))[0])
        part = Part(curve.source, curve.output, curve.body, base)
        narrowed = replace(asked, ends=ends)
        try:
            error = fit(part, narrowed).error
        except PlanError:
            error = math.inf
        middle = _middle(values, *ends[2:])
        most = middle is None or len(found) + len(open_ends) + 2 > MOST_PARTS
        if error <= ERROR or (most and error < math.inf):
            found.append((part, narrowed))
            continue
        if most:
            return []
        assert middle is not None
        open_ends = [(ends[0], CONSTANT, ends[2], middle), (CONSTANT, ends[1], middle, ends[3]), *open_ends]
    return found


def _middle(values: Callable[[Array], Array], low: int, high: int) -> int | None:
    """Where a part is best cut in two: both together need the fewest segments of a part's own length.

    A segment is as short as the square root of the second derivative is large.
    """
    span = high - low
    steps = [span >> k for k in range(1, SHORTEST + 1) if span >> k >= 8]
    cuts = sorted({low + s for s in steps} | {high - s for s in steps})

    def needed(first: int, last: int) -> float:
        x = np.linspace(first, last, GRID)
        return float(np.sqrt(np.abs(np.diff(values(x), 2)).max())) * GRID

    return min(cuts, key=lambda cut: needed(low, cut) + needed(cut, high), default=None)


def rises(curve: Curve, asked: Asked) -> bool:
    """Whether the function goes on with slope one beyond an end."""
    return RISING in _ends(_values(curve, asked), asked, ERROR * TAIL)[:2]


def _values(curve: Curve, asked: Asked) -> Callable[[Array], Array]:
    """Results in units, of arguments in units."""
    return lambda x: curve(x * asked.unit) * math.ldexp(1.0 / asked.gain, asked.fraction)


def _last(values: Callable[[Array], Array], asked: Asked) -> float:
    """The argument beyond which there is none: that of an exponential's limit."""
    if asked.growth is None:
        return math.inf
    rate, limit = asked.growth
    return math.log(math.ldexp(limit, asked.fraction) / float(values(np.zeros(1))[0])) / rate


class _Shared:
    """A curve by what it computes: equal functions of several layers are fitted once."""

    def __init__(self, curve: Curve) -> None:
        self.curve = curve

    def __hash__(self) -> int:
        return hash(self.curve.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Shared) and self.curve.key == other.curve.key


@functools.lru_cache(maxsize=1024)
def _fit(shared: _Shared, asked: Asked) -> Fit:
    values = _values(shared.curve, asked)
    found = [_fitted(values, asked, asked.ends or _ends(values, asked, ERROR * TAIL))]
    if asked.ends is None and _even(values, asked):
        for ends in _mirrored(values, asked):
            with suppress(ValueError):
                found.append(_fitted(values, asked, ends))
    return min(found, key=lambda fit: (fit.error > ERROR, _price(fit, asked)))


def _price(fit: Fit, asked: Asked) -> float:
    """Bits that a value takes, nearly: of the table, of the terms, of comparisons with the ends."""
    form = fit.form
    entry = form["inner_bits"] - form["guard"] + sum(b["bits"] for b in form["basis"])
    terms = sum(b["precision"] for b in form["basis"]) + form["segments"]
    table = ((1 << form["segments"]) - 1) * entry + terms * (form["inner_bits"] + TRANSFER)
    wide = max(asked.high, -asked.low).bit_length() + (1 if fit.below == MIRRORED else 2)
    return table + sum(end != INSIDE for end in (fit.below, fit.above)) * (COMPARED_BIT * wide + COMPARISON)


def _fitted(values: Callable[[Array], Array], asked: Asked, ends: tuple[str, str, int, int]) -> Fit:
    """The cheapest pieces with these ends."""
    below, above, low, high = ends
    last = min(high, _last(values, asked))
    first = -last if below == MIRRORED else low
    y = values(np.linspace(first, last, GRID))
    if not np.isfinite(y).all():
        raise ValueError("it has values that are not finite")
    slope = float(np.abs(np.diff(y)).max(initial=0.0)) / max((last - first) / (GRID - 1), 1.0)

    inner = _folded(values, asked) if below == MIRRORED else values
    whole = _extended(inner, low, high) if asked.growth is None else values

    def told(data: bytes) -> bytes:
        return (whole(np.frombuffer(data, dtype=np.float64)) * math.ldexp(1.0, -asked.fraction)).tobytes()

    for attempt in range(COARSER + 1):
        target = math.ldexp(ERROR * (1 - TAIL) * 2**attempt, -asked.fraction)
        interval, shares = (low, high, 0), min(ring_bits(asked), 64)
        try:
            if asked.growth is not None:
                factor = math.ldexp(float(values(np.zeros(1))[0]), -asked.fraction)
                form, orders, data, reached = _native.fit_exponential(
                    (factor, *asked.growth), interval, shares, asked.fraction, target
                )
            else:
                form, orders, data, reached = _native.fit_function(told, interval, shares, asked.fraction, target)
            break
        except ValueError:
            if attempt == COARSER:
                raise
    units = math.ldexp(reached, asked.fraction) + ERROR * TAIL
    largest = float(np.abs(y).max())
    if RISING in (below, above) or below == MIRRORED:
        assert asked.finer is not None
        largest += math.ldexp(max(asked.high - high, low - asked.low if below == RISING else 0), asked.finer)
        slope = max(slope, math.ldexp(1.0, asked.finer))
    rows = np.frombuffer(data, dtype=np.int64).reshape(1 << json.loads(form)["segments"], -1)
    found = Fit(json.loads(form), list(orders), rows, below, above, units, slope, math.ceil(largest + units) + 2)
    _check(found, values, asked)
    return found


def _folded(values: Callable[[Array], Array], asked: Asked) -> Callable[[Array], Array]:
    """What a mirrored function has beside max(x, 0), of arguments from zero on; it goes on smoothly below."""
    finer = asked.finer
    assert finer is not None
    return lambda x: values(x) - np.ldexp(x, finer)


def _even(values: Callable[[Array], Array], asked: Asked) -> bool:
    """Whether a function is max(x, 0) and something even: SiLU, GELU, softplus."""
    if asked.finer is None or asked.low >= 0:
        return False
    x = np.linspace(0, max(asked.high, -asked.low), GRID)
    with np.errstate(invalid="ignore"):
        y = values(x) - values(-x) - np.ldexp(x, asked.finer)
    return bool(np.isfinite(y).all() and np.abs(y).max() <= EVEN)


def _mirrored(values: Callable[[Array], Array], asked: Asked) -> list[tuple[str, str, int, int]]:
    """Ends of a mirrored function: the whole reach, and the least power of two beyond which it is flat."""
    reach, folded = max(asked.high, -asked.low), _folded(values, asked)
    found = [(MIRRORED, INSIDE, 0, reach)]
    for exponent in range(3, reach.bit_length() - 1):
        if _flat(folded, 1 << exponent, reach, ERROR * TAIL, None):
            return [*found, (MIRRORED, CONSTANT, 0, 1 << exponent)]
    return found


def _extended(values: Callable[[Array], Array], low: int, high: int) -> Callable[[Array], Array]:
    """The function, with a parabola beyond an end behind which it is not defined: pieces reach over the ends."""
    step, ends = max((high - low) / 512, 1e-3), {}
    for end, sign in ((low, 1.0), (high, -1.0)):
        around = values(end - sign * np.linspace(0.0, high - low, 65))
        if not np.isfinite(around).all():
            first, second, third = values(end + sign * step * np.arange(3.0))
            ends[sign] = (end, first, (4 * second - third - 3 * first) / 2, (third - 2 * second + first) / 2)

    def whole(x: Array) -> Array:
        y = values(x)
        for sign, (end, first, slope, bend) in ends.items():
            t = sign * (x - end) / step
            y = np.where(t < 0, first + slope * t + bend * t * t, y)
        return y

    return whole


def _check(fit: Fit, values: Callable[[Array], Array], asked: Asked) -> None:
    """Holds the pieces against the function, at arguments of the range and places of the server.

    Raises:
        ValueError: they are further apart than stated.
    """
    first = asked.low if asked.least is None else max(asked.low, math.ceil(asked.least / asked.unit))
    # beyond ends that the caller gave the curve is not what the pieces stand for
    first, last = asked.ends[2:] if asked.ends else (min(first, asked.high), asked.high)
    last = math.floor(min(last, _last(values, asked)))
    x = np.unique(np.linspace(first, last, GRID).astype(np.int64))
    stage = {"form": fit.form, "orders": fit.orders, "below": fit.below, "above": fit.above}
    got = spline.function(stage, fit.coefficients, x, asked.finer or 0, np.random.default_rng(0))
    off = float(np.abs(got - values(x.astype(np.float64))).max())
    if not off <= fit.error:
        raise ValueError(f"its pieces are off by {off:.3g} units where {fit.error:.3g} are stated")


def _ends(values: Callable[[Array], Array], asked: Asked, tolerance: float) -> tuple[str, str, int, int]:
    """The interval, and what happens beyond it: ends are powers of two, or the range's own.

    An end is clipped where that takes the range to less than half.
    """
    ends = []
    for sign, reach in ((-1, -asked.low), (1, asked.high)):
        kind, at = INSIDE, reach
        for exponent in range(3, max(reach, 1).bit_length() - 1):
            found = _flat(values, sign * (1 << exponent), sign * reach, tolerance, asked.finer)
            if found:
                kind, at = found, 1 << exponent
                break
        ends.append((kind, sign * at))
    (below, low), (above, high) = ends
    if asked.least is not None and not np.isfinite(values(np.linspace(low, high, GRID))).all():
        # from the power of two below the least argument on
        first = math.floor(math.log2(max(asked.least / asked.unit, 1.0)))
        below, low = CONSTANT, 1 << first
    return below, above, low, high


def _flat(values: Callable[[Array], Array], end: int, reach: int, tolerance: float, finer: int | None) -> str | None:
    """What the function does from an end to the reach, within a tolerance: it stands still, or has slope one."""
    x = np.unique(np.rint(np.concatenate([np.linspace(end, reach, 513), end * np.geomspace(1.0, reach / end, 513)])))
    y = values(x)
    first = y[0] if end > 0 else y[-1]
    if not np.isfinite(y).all():
        return None
    if np.abs(y - first).max() <= tolerance:
        return CONSTANT
    if finer is not None and np.abs(y - first - np.ldexp(x - end, finer)).max() <= tolerance:
        return RISING
    return None

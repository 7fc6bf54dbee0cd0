"""Fixed point for functions of one variable, products and constants: which bits they read and leave."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from ...plan import PlanError
from ...reference import matrices
from ...reference.two_party import reach_bits, with_errors
from . import functions
from .bands import ARGUMENT_OCTAVES, Band, bands, is_quotient
from .curves import Curve
from .fixed import Builder, fraction
from .rows import ROOM
from .steps import Step
from .versions import MOST_ACTIVATION_BITS, DoesNotFit, Request, Version
from .weights import Weights

Array = np.ndarray

# bits that a product has beyond those of its factors
FINER_PRODUCT = 3
# a proven limit of a function, as a multiple: arguments are rounded to units
PROVEN_AIR = 1.01
# bits that a sum with exponentials has beyond those of its other factor: the largest exponential is close to one
FINER_MEAN = 1
# the narrowest ring that a product's larger factor may have, and the fewest bits behind the point of a hard-swish
LEAST_REACH = 3
LEAST_FRACTION = 3
MOST_FRACTION = 40
GRID = 4097
# of a quotient's argument: units that are told apart at least, units of calibration's least value for which wider rings
# are taken, and what that value is divided by
LEAST_UNITS = 4
FINE_UNITS = 1 << 9
LEAST_AIR = 4.0
# bits that a quotient's smallest value has less than activations have: rounding has no bias
COARSER_QUOTIENT = 2
# bits behind the point that a value may lack before a wider ring is looked for
COARSEST = 2
# bits beyond those of factors that a value has at most that is multiplied by numbers of different size
MOST_WIDER = 4
# bits that softmax has at most: beside other values of 14 bits, errors of twelve bits in it are a thousandth
# of the whole
MOST_ROW_BITS = 12
# bits that a gate has less than other factors: what it multiplies is mostly far below its range
COARSER_GATE = 2


class Full(Builder):
    """The builder with every kind of step."""

    def __init__(
        self, steps: list[Step], request: Request, weights: Weights, ring_bits: int, reach: Mapping[str, float]
    ) -> None:
        super().__init__(steps, request, weights, ring_bits, reach)
        # octaves that a quotient of rows spans
        self.spread: dict[str, int] = {}

    @property
    def bits(self) -> int:
        """Bits of factors, and of results of functions, whose errors are two of them."""
        return self.request.activation_bits or max(self.request.most_bits, MOST_ACTIVATION_BITS)

    def bits_of(self, step: Step) -> int:
        """Bits of a step's factors and results."""
        return min(self.bits, MOST_ROW_BITS) if step.attrs.get("rows") else self.bits

    def function(self, step: Step) -> None:
        """Writes a function of one variable: its argument as coarse as its error allows, and the fitted pieces."""
        curve: Curve = step.attrs["curve"]
        source = self.natural[step.inputs[0]]
        # by its stages, a proof, or calibration data that shows nothing at zero and below, which the first band clips
        above = source.positive or self.request.least.get(step.inputs[0], 0.0) > 0
        if above and is_quotient(curve) and self.quotient(step, curve, source):
            return
        top, slope = self.shape_of(curve, source, self.request.limits.get(step.output))
        # of the result in units of the argument's gain, so that slope one is a shift
        fine = self.bits_of(step) - step.attrs.get("coarser", 0) - math.ceil(math.log2(max(top / source.gain, 1e-9)))
        fine = min(max(fine, 0), MOST_FRACTION)
        wanted = fine + math.ceil(math.log2(max(slope, 2.0**-10)))
        made_by = next((s["kind"] for s in reversed(self.out.stages) if s["out"] == source.tensor), None)
        # a layer's result may be converted with a bit more than its bound has
        drop = max(source.frac_bits - min(wanted, fine), 1 if made_by == "linear" else 0)
        if drop > 0:
            source = self.truncated(step.inputs[0], source, min(drop, max(source.bound.bit_length() - 3, 1)))
        reach = (1 << reach_bits(source.bound)) - 1
        asked = functions.Asked(
            unit=source.unit,
            low=0 if source.positive else -reach,
            high=reach,
            least=self.request.least.get(step.inputs[0]),
            gain=source.gain,
            fraction=fine,
            finer=fine - source.frac_bits if fine >= source.frac_bits else None,
        )
        if "exponential" in step.attrs:
            ends = (functions.INSIDE, functions.INSIDE, asked.low, asked.high)
            asked = replace(asked, ends=ends, growth=(source.unit, PROVEN_AIR * step.attrs["exponential"]))
        if source.gain != 1 and not functions.rises(curve, asked):
            # without a gain to keep
            fine = min(max(fine - math.frexp(source.gain)[1] + 1, 0), MOST_FRACTION)
            asked = replace(asked, gain=1.0, fraction=fine, finer=None)
        self.keep(step.output, self.whole_function(step, source, curve, asked))

    def whole_function(self, step: Step, source: Version, curve: Curve, asked: functions.Asked) -> Version:
        """A function as one stage of pieces, where one table holds it.

        Where none does, without arguments whose results are beyond the planned ones, and as a sum of several stages.

        Raises:
            PlanError: no few tables hold it. DoesNotFit: as :meth:`pieces`.
        """
        names = (step.name, step.output)
        limit = self.request.limits.get(step.output, math.inf)
        try:
            return self.pieces(names, step.shape, source, curve, asked)
        except PlanError:
            narrowed = functions.below(curve, asked, math.ldexp(limit / asked.gain, asked.fraction))
            found = functions.parts(curve, narrowed or asked)
            if not found:
                raise
        whole: Version | None = None
        for number, (part, narrowed) in enumerate(found):
            last = number == len(found) - 1
            made = self.pieces([f"{n}.part{number}" for n in names], step.shape, source, part, narrowed)
            if whole is not None:
                bound = whole.bound + made.bound
                self.demand(bound, step.name)
                name = step.output if last else f"{step.output}.to{number}"
                both = self.tensor(name, step.shape, replace(whole, bound=bound, positive=False))
                self.stage("add", f"{step.name}.to{number}", [whole.tensor, made.tensor], both.tensor)
                made = both
            whole = made
        assert whole is not None
        return whole

    def pieces(
        self, names: Sequence[str], shape: tuple[int, ...], source: Version, curve: Curve, asked: functions.Asked
    ) -> Version:
        """A stage with the fitted pieces of a curve; names are its own and its result's.

        Raises:
            DoesNotFit: the argument, or what its ends are compared with, needs a wider ring.
        """
        stage, output = names
        if functions.ring_bits(asked) > self.out.ring_bits:
            raise DoesNotFit(stage)
        try:
            fitted = functions.fit(curve, asked)
        except PlanError:
            if asked.growth is None:
                raise
            # units of the argument are too coarse in this ring
            raise DoesNotFit(stage) from None
        ends = [(fitted.below, fitted.form["low"]), (fitted.above, fitted.form["high"])]
        farther = max((abs(end) for kind, end in ends if kind != functions.INSIDE), default=0)
        if (asked.high + farther).bit_length() + 1 > self.out.ring_bits or fitted.form["lift"] + 1 > self.out.ring_bits:
            raise DoesNotFit(stage)
        fine = asked.fraction
        made = Version(-1, fine, fitted.largest, False, asked.gain)
        limited = self.calibrated(output, made)
        if output in self.proven:
            # what is proven of the function holds for its pieces up to their error
            limited = replace(made, bound=min(made.bound, limited.bound + math.ceil(fitted.error)))
        made = self.tensor(output, shape, limited)
        name = f"{stage}.pieces"
        self.stage(
            "function",
            stage,
            source.tensor,
            made.tensor,
            function=curve.name,
            form=fitted.form,
            below=fitted.below,
            above=fitted.above,
            orders=fitted.orders,
            coefficients=name,
            predicted={
                "error": math.ldexp(fitted.error, -fine),
                "slope": math.ldexp(fitted.slope, source.frac_bits - fine),
            },
        )
        self.out.weights[name] = fitted.coefficients
        return made

    def quotient(self, step: Step, curve: Curve, source: Version) -> bool:
        """Writes a reciprocal of what is not negative with a small relative error, as a product of bands.

        False where one function serves: a range of few powers of two.
        """
        name = step.inputs[0]
        least, proven = self.request.least.get(name, 0.0), name in self.proven
        # clients are told the ends, so without a proof they are powers of two
        limit = self.request.limits.get(name, math.inf)
        bound = self.calibrated(name, source).bound
        high = limit if proven else math.ldexp(source.unit, reach_bits(bound))
        low = 0.0
        if least > 0 or not _finite_at_zero(curve):
            if 0 < least < FINE_UNITS * source.unit and self.out.ring_bits < self.request.roomy:
                # a wider ring tells small rows apart
                raise DoesNotFit(step.name)
            units = max((least if proven else least / LEAST_AIR) / source.unit, LEAST_UNITS)
            low = source.unit * (units if proven else 2.0 ** math.floor(math.log2(units)))
        coarse = LEAST_UNITS * source.unit
        if low == 0 and float(curve(np.full(1, coarse))[0]) < 0.9 * float(curve(np.zeros(1))[0]):
            if self.out.ring_bits < self.request.roomy:
                raise DoesNotFit(step.name)
            low = coarse
        factors = bands(curve, low, high)
        if not factors:
            return False
        spread = math.ceil(math.log2(float(factors[0](np.full(1, low))[0] / curve(np.full(1, high))[0])))
        whole = self.band(step, source, factors[0], 0)
        for number, factor in enumerate(factors[1:], 1):
            other = self.band(step, source, factor, number)
            # as precise as a factor where the quotient is smallest
            fine = self.relative(step, float(curve(np.full(1, factor.high))[0]), whole, COARSER_QUOTIENT)
            drop = max(whole.frac_bits + other.frac_bits - fine, 0)
            bound = (whole.bound * other.bound >> drop) + 1
            self.demand(bound, step.name)
            product = Version(-1, whole.frac_bits + other.frac_bits - drop, bound, False, 1.0)
            last = number == len(factors) - 1
            name = step.output if last else f"{step.output}.to{number}"
            product = self.tensor(name, step.shape, product)
            factors_of = [whole.tensor, other.tensor]
            self.stage("product", f"{step.name}.to{number}", factors_of, product.tensor, bits=drop)
            whole = product
        coarser = step.attrs.get("coarser", COARSER_QUOTIENT)
        drop = whole.frac_bits - self.relative(step, float(curve(np.full(1, high))[0]), whole, coarser)
        self.spread[step.output] = max(spread, 0)
        # the ends prove the range, also of rows that calibration never showed
        self.request = replace(self.request, limits={**self.request.limits, step.output: whole.bound * whole.unit})
        self.keep(step.output, self.truncated(step.output, whole, drop) if drop > 0 else whole)
        return True

    def relative(self, step: Step, smallest: float, made: Version, coarser: int) -> int:
        """Bits behind the point of a quotient: a unit is small beside its smallest value, and the largest one fits."""
        fine = self.bits_of(step) - coarser + math.ceil(-math.log2(smallest))
        return min(fine, MOST_FRACTION, self.out.ring_bits - 3 - math.frexp(made.bound * made.unit)[1])

    def band(self, step: Step, source: Version, band: Band, number: int) -> Version:
        """Writes a factor of a quotient, as precise as a product's factor where it is smallest."""
        start = band.low or math.ldexp(band.high, -ARGUMENT_OCTAVES)
        bits = self.bits_of(step)
        drop = math.floor(math.log2(math.ldexp(start, 1 - bits) / source.unit))
        if drop > 0:
            source = self.truncated(step.inputs[0], source, min(drop, max(source.bound.bit_length() - 3, 1)))
        reach = (1 << reach_bits(source.bound)) - 1
        low, high = math.floor(band.low / source.unit), max(math.ceil(band.high / source.unit), 1)
        above = functions.INSIDE if 2 * reach <= 3 * high else functions.CONSTANT
        high = reach if above == functions.INSIDE else high
        smallest = float(band(np.full(1, band.high))[0])
        asked = functions.Asked(
            unit=source.unit,
            low=0,
            high=reach,
            least=None,
            gain=1.0,
            fraction=min(max(bits + math.ceil(-math.log2(smallest)), 0), MOST_FRACTION),
            finer=None,
            ends=(functions.CONSTANT if low > 0 or not source.positive else functions.INSIDE, above, max(low, 0), high),
        )
        names = (f"{step.name}.band{number}", f"{step.output}.band{number}")
        return self.pieces(names, step.shape, source, band, asked)

    def shape_of(self, curve: Curve, source: Version, limit: float | None) -> tuple[float, float]:
        """The largest result that is planned for, and the steepest slope, on the argument's range."""
        reach = source.bound * source.unit
        least = self.request.least.get(curve.source)
        low = 0.0 if source.positive else -reach
        x = np.linspace(low if least is None or least <= 0 else max(low, least), reach, GRID)
        y = curve(x)
        good = np.isfinite(y)
        if not good.any():
            return 1.0, 1.0
        top = float(np.abs(y[good]).max())
        if limit is not None and limit > 0:
            top = min(top, limit)
        steps = np.abs(np.diff(y)) / max((x[-1] - x[0]) / (GRID - 1), 1e-300)
        # where a result is beyond what is planned for, its slope does not count
        planned = good[1:] & good[:-1] & (np.abs(y[1:]) <= 2 * top)
        return max(top, 1e-9), float(steps[planned].max(initial=0.0)) or 1.0

    def product(self, step: Step) -> None:
        """Writes a product or a square: its factors in few bits, its result without the bits that nobody reads.

        A sum of products (``sums`` of a step) is as fine as the ring takes it: its terms are rounded without a bias.
        """
        operands = self.factors(step)
        x, y = operands[0], operands[-1]
        fine, gain = x.frac_bits + y.frac_bits, x.gain * y.gain
        top = x.bound * y.bound
        limits = self.request.limits
        mean = step.attrs.get("mean_of")
        if mean is not None:
            values = self.natural[mean]
            largest = (1 + ROOM) * min(values.bound * values.unit, limits.get(mean, math.inf))
            top = min(top, math.floor(math.ldexp(largest / gain, fine)) + 1)
        limit = min(limits.get(t, math.inf) for t in (step.output, step.attrs.get("like", step.output)))
        terms = step.attrs.get("sums", 1)
        if terms > 1:
            top = min(top, math.floor(min(math.ldexp(limit / gain, fine), 2.0**62)) + 1)
        reach = min(math.ldexp(top, -fine), limit / gain)
        finer = step.attrs.get("finer", FINER_PRODUCT + (2 * MOST_WIDER if terms > 1 else 0))
        drop = max(fine - fraction(max(reach, 1e-9), self.bits + finer), 0)
        while with_errors(((top >> drop) + 1) * terms) > self.most(step.output):
            drop += 1
            if drop > top.bit_length():
                # what follows leaves no room in this ring, however coarse the product is
                raise DoesNotFit(step.name)
        wide = sum(reach_bits(v.bound) for v in (x, y)) + (1 if x.positive and y.positive else 2)
        # an exact product can be what its factors can be, whatever calibration showed
        drop = min(max(drop, int(top < x.bound * y.bound)), wide - 2)
        made = Version(-1, fine - drop, (top >> drop) + 1, (x.positive and y.positive) or x.tensor == y.tensor, gain)
        self.demand(made.bound, step.name)
        if drop and mean is None:
            # a product that keeps all its bits is exact: what its factors can reach is its bound
            made = self.calibrated(step.output, made)
        made = self.tensor(step.output, step.shape, made)
        within = {} if mean is None else {"within": True}
        self.stage("product", step.name, [x.tensor, y.tensor], made.tensor, bits=drop, **within)
        self.keep(step.output, made)

    def factors(self, step: Step) -> list[Version]:
        """The factors of a product, each in as many bits as the other one's range of sizes asks for."""
        if step.attrs.get("whole"):
            return [self.natural[t] for t in step.inputs]
        spread = [self.spread.get(t, 0) for t in step.inputs]
        own = self.widens(step.attrs["of"]) if "of" in step.attrs else 0
        gate = self.gate(step)
        return [
            self.factor(t, s + min(max([own, *(o for k, o in enumerate(spread) if k != i)]), MOST_WIDER))
            if t != gate
            else self.factor(t, -COARSER_GATE)
            for i, (t, s) in enumerate(zip(step.inputs, spread))
        ]

    def gate(self, step: Step) -> str | None:
        """The factor that opens and closes whole channels (squeeze-and-excite): a clip from zero, broadcast.

        A quotient is none: its relative error counts.
        """
        sizes = {t: math.prod(self.shapes[self.natural[t].tensor]) for t in step.inputs}
        least = min(sizes, key=lambda t: sizes[t])
        if sizes[least] == max(sizes.values()) or not self.natural[least].positive:
            return None
        made = {stage["out"]: stage for stage in self.out.stages}
        stage = made.get(self.natural[least].tensor)
        while stage is not None and stage["kind"] in {"scale", "truncate", "reshape"}:
            stage = made.get(stage["in"][0] if isinstance(stage["in"], list) else stage["in"])
        return least if stage is not None and stage["kind"] == "clip" else None

    def factor(self, name: str, wider: int = 0) -> Version:
        """A factor of a product, in as many bits as its precision asks for, and some more."""
        version, drop = self.natural[name], self.spare(name, wider)
        return self.truncated(name, version, drop) if drop > 0 else version

    def spare(self, name: str, wider: int) -> int:
        """Bits of a tensor that a factor does without."""
        version = self.natural[name]
        reach = min(version.bound * version.unit, self.request.limits.get(name, math.inf)) / version.gain
        drop = version.frac_bits - fraction(max(reach, 1e-9), self.bits + wider)
        return min(drop, version.bound.bit_length() - LEAST_REACH)

    def hard_swish(self, step: Step) -> None:
        """Writes a hard-swish, ``e^2 - q^2 + 4 q b`` of ``docs/two-party.md``: 3 is ``2 q`` units, a whole number."""
        name = step.inputs[0]
        source = self.factor(name)
        if source.gain != 1:
            source = self.without_gain(name, self.natural[name])
        reach = min(source.bound * source.unit, self.request.limits.get(name, math.inf))
        drop = source.frac_bits - max(fraction(max(reach, 1e-9), self.bits), LEAST_FRACTION)
        if drop > 0:
            source = self.truncated(name, source, min(drop, self.out.ring_bits - 2))
        fine = source.frac_bits
        if fine < LEAST_FRACTION:
            source = self.aligned(name, source, LEAST_FRACTION)
            fine = LEAST_FRACTION
        quarter = 3 << (fine - 1)
        top = 8 * quarter**2 + 4 * quarter * max(source.bound - 2 * quarter, 0)
        bits = min(max(2 * fine - fraction(max(reach, 1e-9), self.bits + FINER_PRODUCT), 0), fine + 1, 2 * fine - 2)
        most = reach_bits(source.bound)
        wide = max(most + (4 * quarter >> bits).bit_length(), ((1 << most) + 2 * quarter).bit_length()) + 1
        if max(wide, (3 * quarter).bit_length() + 2) > self.out.ring_bits:
            raise DoesNotFit(step.name)
        made = Version(-1, 2 * fine - bits, (top >> bits) + 1, False, 1.0 / 6.0)
        self.demand(made.bound, step.name)
        self.emit(step, source, self.calibrated(step.output, made), quarter=quarter, bits=bits)

    def settle(self, step: Step) -> None:
        """A value as everybody reads it from here on: with so many bits behind the point, or relative to its range.

        No stage of its own where it has no more.
        """
        name = step.inputs[0]
        version = self.natural[name]
        if "coarser" in step.attrs:
            bits = self.bits_of(step)
            drop = math.floor(math.log2(math.ldexp(1.0, step.attrs["coarser"] - bits) / version.unit))
            if drop > 0:
                version = self.truncated(name, version, min(drop, version.bound.bit_length() - LEAST_REACH))
            if drop < -COARSEST:
                self.out.least_bits = min(self.out.least_bits, bits + drop)
        else:
            version = self.factor(name, min(self.widens(step.attrs["of"]), MOST_WIDER))
        self.keep(step.output, version)

    def widens(self, name: str) -> int:
        """Octaves that the root of a sum of squares spans over the calibration data."""
        high, low = self.request.limits.get(name, 0.0), self.request.least.get(name, 0.0)
        return math.ceil(math.log2(high / low) / 2) if 0 < low < high else MOST_WIDER // 2

    def match(self, step: Step) -> None:
        """A mean as it is taken off values: a number without a factor, as fine as they are."""
        name, like = step.inputs
        version, other = self.natural[name], self.natural[like]
        if version.gain != other.gain:
            version = self.without_gain(name, version)
        drop = version.frac_bits - other.frac_bits
        self.keep(
            step.output, self.truncated(name, version, drop) if drop > 0 and other.gain == version.gain else version
        )

    def coarse(self, step: Step) -> None:
        """A value in as many bits as a factor, for comparisons that need no more: no stage of its own."""
        self.keep(step.output, self.factor(step.inputs[0]))

    def shift(self, step: Step) -> None:
        """Writes a constant added to a value or to its negative, on a value truncated until the sum fits."""
        name, by = step.inputs[0], step.attrs["by"]
        source = self.natural[name]
        limit, drop = self.most(step.output), 0
        while (source.bound >> drop) + abs(round(by / math.ldexp(source.unit, drop))) + 1 > limit:
            drop += 1
            if drop > self.out.ring_bits - 2:
                raise DoesNotFit(step.name)
        if drop:
            source = self.truncated(name, source, drop)
        # a depth is rounded down, so that no exponential is above one
        units = math.floor(by / source.unit) if step.attrs.get("down") else round(by / source.unit)
        version = Version(-1, source.frac_bits, source.bound + abs(units), False, source.gain)
        made = self.tensor(step.output, step.shape, version)
        fields = {"negated": True} if step.attrs["negated"] else {}
        self.stage("shift", step.name, source.tensor, made.tensor, by=units, **fields)
        self.keep(step.output, made)

    def matrix_product(self, step: Step) -> None:
        """Writes a product of matrices: its factors in as few bits as their sums need to fit ciphertexts.

        One of exponentials, which are divided behind it, is as fine as the other factor, and its bound is proven.
        """
        powers = step.attrs.get("exponentials")
        sizes = matrices.Sizes.of(*(self.shapes[self.natural[t].tensor] for t in step.inputs))
        wider, figures = 0, None
        while figures is None:
            x, y = (self.coarser(t, wider + (i == powers)) for i, t in enumerate(step.inputs))
            try:
                figures = matrices.figures(sizes, (reach_bits(x.bound), reach_bits(y.bound)))
            except ValueError:
                wider -= 1
                if self.bits + wider < LEAST_REACH:
                    raise DoesNotFit(step.name) from None
        x, y = (self.factor(t, wider + (i == powers)) for i, t in enumerate(step.inputs))
        if figures.ring_bits > self.out.ring_bits:
            # shares are extended, which takes values below a quarter of the ring
            self.demand(2 * max(with_errors(v.bound) for v in (x, y)), step.name)
        fine, gain = x.frac_bits + y.frac_bits, x.gain * y.gain
        top = sizes.inner * x.bound * y.bound
        reach = min(math.ldexp(top, -fine), self.request.limits.get(step.output, math.inf) / gain)
        finest = fraction(max(reach, 1e-9), self.bits + FINER_PRODUCT)
        if powers is not None:
            values = (y, x)[powers]
            finest = max(finest, fraction(math.ldexp(values.bound, -values.frac_bits), self.bits + FINER_MEAN))
        drop = max(fine - finest, 0)
        while with_errors((top >> drop) + matrices.UNITS) > self.most(step.output):
            drop += 1
            if drop > top.bit_length():
                raise DoesNotFit(step.name)
        drop = min(drop, figures.ring_bits - 2)
        made = Version(-1, fine - drop, (top >> drop) + matrices.UNITS, False, gain)
        self.demand(made.bound, step.name)
        if drop and powers is None:
            made = self.calibrated(step.output, made)
        made = self.tensor(step.output, step.shape, made)
        self.stage("matrix_product", step.name, [x.tensor, y.tensor], made.tensor, bits=drop)
        self.keep(step.output, made)

    def coarser(self, name: str, wider: int) -> Version:
        """What :meth:`factor` makes of a tensor, without a stage."""
        version, drop = self.natural[name], self.spare(name, wider)
        if drop <= 0:
            return version
        coarse = replace(version, frac_bits=version.frac_bits - drop, bound=(version.bound >> drop) + 1)
        return self.calibrated(name, coarse)


def _finite_at_zero(curve: Curve) -> bool:
    return bool(np.isfinite(curve(np.zeros(1))).all())

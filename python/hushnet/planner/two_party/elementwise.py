"""Fixed point for functions of one variable, products and constants: which bits they read and leave."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from ...reference import matrices
from ...reference.two_party import reach_bits, with_errors
from . import functions
from .curves import Curve
from .fixed import MOST_ACTIVATION_BITS, Builder, DoesNotFit, Version, fraction
from .steps import Step

Array = np.ndarray

# bits that a product has beyond those of its factors
FINER_PRODUCT = 3
# the narrowest ring that a product's larger factor may have, and the fewest bits behind the point of a hard-swish
LEAST_REACH = 3
LEAST_FRACTION = 3
MOST_FRACTION = 40
GRID = 4097


class Full(Builder):
    """The builder with every kind of step."""

    @property
    def bits(self) -> int:
        """Bits of factors, and of results of functions, whose errors are two of them."""
        return self.request.activation_bits or MOST_ACTIVATION_BITS

    def function(self, step: Step) -> None:
        """Writes a function of one variable: its argument as coarse as its error allows, and the fitted pieces."""
        curve: Curve = step.attrs["curve"]
        source = self.natural[step.inputs[0]]
        top, slope = self.shape_of(curve, source, self.request.limits.get(step.output))
        # of the result in units of the argument's gain, so that slope one is a shift
        fine = self.bits - math.ceil(math.log2(max(top / source.gain, 1e-9)))
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
        if source.gain != 1 and not functions.rises(curve, asked):
            # without a gain to keep
            fine = min(max(fine - math.frexp(source.gain)[1] + 1, 0), MOST_FRACTION)
            asked = replace(asked, gain=1.0, fraction=fine, finer=None)
        if functions.ring_bits(asked) > self.out.ring_bits:
            raise DoesNotFit(step.name)
        fitted = functions.fit(curve, asked)
        ends = [(fitted.below, fitted.form["low"]), (fitted.above, fitted.form["high"])]
        farther = max((abs(end) for kind, end in ends if kind != functions.INSIDE), default=0)
        if (reach + farther).bit_length() + 1 > self.out.ring_bits or fitted.form["lift"] + 1 > self.out.ring_bits:
            raise DoesNotFit(step.name)
        made = Version(-1, fine, fitted.largest, False, asked.gain)
        made = self.tensor(step.output, step.shape, self.calibrated(step.output, made))
        name = f"{step.name}.pieces"
        self.stage(
            "function",
            step.name,
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
        self.keep(step.output, made)

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
        """Writes a product or a square: its factors in few bits, its result without the bits that nobody reads."""
        operands = [self.factor(t) for t in step.inputs]
        x, y = operands[0], operands[-1]
        fine, gain = x.frac_bits + y.frac_bits, x.gain * y.gain
        top = x.bound * y.bound
        limit = self.request.limits.get(step.output, math.inf)
        reach = min(math.ldexp(top, -fine), limit / gain)
        drop = max(fine - fraction(max(reach, 1e-9), self.bits + FINER_PRODUCT), 0)
        while with_errors((top >> drop) + 1) > self.most(step.output):
            drop += 1
            if drop > top.bit_length():
                # what follows leaves no room in this ring, however coarse the product is
                raise DoesNotFit(step.name)
        wide = sum(reach_bits(v.bound) for v in (x, y)) + (1 if x.positive and y.positive else 2)
        drop = min(drop, wide - 2)
        made = Version(-1, fine - drop, (top >> drop) + 1, (x.positive and y.positive) or x.tensor == y.tensor, gain)
        self.demand(made.bound, step.name)
        if drop:
            # a product that keeps all its bits is exact: what its factors can reach is its bound
            made = self.calibrated(step.output, made)
        made = self.tensor(step.output, step.shape, made)
        self.stage("product", step.name, [x.tensor, y.tensor], made.tensor, bits=drop)
        self.keep(step.output, made)

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
        units = round(by / source.unit)
        version = Version(-1, source.frac_bits, source.bound + abs(units), False, source.gain)
        made = self.tensor(step.output, step.shape, version)
        fields = {"negated": True} if step.attrs["negated"] else {}
        self.stage("shift", step.name, source.tensor, made.tensor, by=units, **fields)
        self.keep(step.output, made)

    def matrix_product(self, step: Step) -> None:
        """Writes a product of matrices: its factors in as few bits as their sums need to fit ciphertexts."""
        sizes = matrices.Sizes.of(*(self.shapes[self.natural[t].tensor] for t in step.inputs))
        wider, figures = 0, None
        while figures is None:
            x, y = (self.coarser(t, wider) for t in step.inputs)
            try:
                figures = matrices.figures(sizes, (reach_bits(x.bound), reach_bits(y.bound)))
            except ValueError:
                wider -= 1
                if self.bits + wider < LEAST_REACH:
                    raise DoesNotFit(step.name) from None
        x, y = (self.factor(t, wider) for t in step.inputs)
        if figures.ring_bits > self.out.ring_bits:
            # shares are extended, which takes values below a quarter of the ring
            self.demand(2 * max(with_errors(v.bound) for v in (x, y)), step.name)
        fine, gain = x.frac_bits + y.frac_bits, x.gain * y.gain
        top = sizes.inner * x.bound * y.bound
        reach = min(math.ldexp(top, -fine), self.request.limits.get(step.output, math.inf) / gain)
        drop = max(fine - fraction(max(reach, 1e-9), self.bits + FINER_PRODUCT), 0)
        while with_errors((top >> drop) + matrices.UNITS) > self.most(step.output):
            drop += 1
            if drop > top.bit_length():
                raise DoesNotFit(step.name)
        drop = min(drop, figures.ring_bits - 2)
        made = Version(-1, fine - drop, (top >> drop) + matrices.UNITS, False, gain)
        self.demand(made.bound, step.name)
        if drop:
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

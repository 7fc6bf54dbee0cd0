"""Scales of the batch engine: the cheapest schedule that is precise enough and fits the security table."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np

from ...errors import LimitError
from ...options import NonInteractive
from . import primes as prime_table
from .cost import predicted_seconds
from .network import USUAL_IMAGES, Images, Network, some, usual_magnitudes
from .schedule import Scales, Schedule, Scheduler, TooDeep, Weights
from .steps import Linear, Polynomial

SEEN_FACTOR = 1.5
WEIGHT_BITS = (7, 8, 9, 10, 12, 14)
# cheapest schedules that are tried on narrower primes too, and of all these those whose neighbours are tried
KEEP, REFINED = 12, 24
# of the wished error, what the search grants: it looks at USUAL_IMAGES images, the prediction at all
GRANTED = 0.9


class Planner:
    """Searches scales: the cheapest schedule that is precise enough and fits the security table."""

    def __init__(
        self, network: Network, settings: NonInteractive, samples: Images | None = None, batch: int = 4096
    ) -> None:
        self.network, self.settings, self.batch = network, settings, batch
        self.weights = Weights()
        self.usual = None if samples is None else usual_magnitudes(network, samples)
        self.samples = None if samples is None else some(samples, USUAL_IMAGES)
        self.drifts: dict[tuple[tuple[int, int], ...], float] = {}
        self.schedules: dict[Scales, Schedule | None] = {}
        if self.samples is not None:
            self.exact_output = network.values(self.samples)[network.output]
        self.degrees = prime_table.RING_DEGREES if settings.ring_degree is None else (settings.ring_degree,)

    def target(self, aim: float | None = None) -> float:
        """The error of a schedule for so many bits of precision, those of the settings where none are given."""
        aim = self.settings.precision_bits if aim is None else aim
        return GRANTED * 2.0**-aim * max(self.network.tensors[self.network.output].bound, 1e-6)

    def drift(self, schedule: Schedule) -> float:
        """What rounding weights does to the output.

        Measured on calibration images where there are any, else estimated.
        """
        if self.samples is None:
            return SEEN_FACTOR * schedule.tensors[schedule.output].drift[0]
        bits = tuple(sorted(self.weights.bits(self.network, schedule.scales).items()))
        if bits not in self.drifts:
            by_target = dict(bits)
            steps = [
                replace(s, weights=(q := self.weights.get(s, by_target[s.target])).weights / q.scale)
                if isinstance(s, Linear)
                else s
                for s in self.network.steps
            ]
            rounded = replace(self.network, steps=steps).values(self.samples)[self.network.output]
            self.drifts[bits] = SEEN_FACTOR * float(np.abs(rounded - self.exact_output).max(initial=0.0))
        return self.drifts[bits]

    def rings(self, scales: Scales) -> Iterator[Schedule]:
        """The schedules of scales that the security table allows.

        In the cyclotomic ring, and in the other one where that does more images at once.
        """
        other = replace(scales, invariant=True)
        if self.settings.packing == "conjugate-invariant":
            found = [self.fitted(other)]
        else:
            first = self.fitted(scales)
            found = [first]
            more = first is not None and not first.complex and self.batch > first.images and self.secure(first)
            if self.settings.packing == "auto" and more:
                found.append(self.fitted(other))
        yield from (s for s in found if s is not None)

    def price(self, schedule: Schedule) -> tuple[float, float]:
        """Seconds of an image of the batch, then bits of modulus of one."""
        blocks = math.ceil(self.batch / schedule.images) / self.batch
        return predicted_seconds(schedule) * blocks, schedule.total_bits * schedule.ring_degree * blocks

    def grid(self) -> Iterator[Scales]:
        """Scales worth trying, coarse first."""
        bits = WEIGHT_BITS if self.settings.weight_bits is None else (self.settings.weight_bits,)
        work = range(72, 118, 5) if self.settings.hide_weights else range(18, 46, 3)
        for w in bits:
            for s in work:
                for below in (0, 4, 8) if self.settings.lazy else (0,):
                    if s - below >= 12:
                        for more in (0, 3):
                            yield Scales(w, float(s - below), float(s), self.settings.lazy, more)

    def search(self, aim: float | None = None) -> Schedule:
        """The cheapest schedule for so many bits of precision, those of the settings where none are given.

        Raises:
            LimitError: no parameters of 128 bits carry the network, with the layers and their depth.
        """
        target = self.target(aim)
        found: list[tuple[float, float, Schedule]] = []
        precise: tuple[float, Schedule] | None = None
        shallow = math.inf
        for schedule in (s for scales in self.grid() for s in self.rings(scales)):
            if min(schedule.prime_bits) >= prime_table.least_bits(2 * max(self.degrees)):
                shallow = min(shallow, schedule.total_bits)
            if not self.secure(schedule):
                continue
            noise = schedule.error[0]
            if precise is not None and noise > target and noise >= precise[0]:
                continue
            error = noise + self.drift(schedule)
            if precise is None or error < precise[0]:
                precise = (error, schedule)
            if error <= target:
                found.append((*self.price(schedule), schedule))
        found.sort(key=lambda f: f[:2])
        if precise is None:
            raise self.too_deep(shallow)
        # Narrower primes may be more of them, so that another schedule is cheaper.
        several = self.with_narrow(schedule for *_, schedule in found[:KEEP])
        # Neighbours of several schedules are often the same.
        near = dict.fromkeys(
            scales for schedule in sorted(several, key=self.price)[:REFINED] for scales in self.around(schedule.scales)
        )
        several += self.with_narrow(
            s
            for s in map(self.fitted, near)
            if s is not None and self.secure(s) and s.error[0] + self.drift(s) <= target
        )
        last = [s for s in (precise[1], self.narrow(precise[1])) if s is not None]
        for schedule in [*sorted(several, key=self.price), *last]:
            if (exact := self.exact(schedule)) is not None:
                return exact
        raise self.too_deep(shallow, drifted=True)

    def around(self, scales: Scales) -> Iterator[Scales]:
        """Scales between those of the grid, and fewer bits for the last layer.

        A bit or two decide how many digits words have.
        """
        for step in (-2.0, -1.0, 0.0, 1.0):
            for fewer in (0, 1, 2) if self.settings.weight_bits is None else (0,):
                if step or fewer:
                    yield replace(
                        scales, input_bits=scales.input_bits + step, work_bits=scales.work_bits + step, fewer_bits=fewer
                    )

    def with_narrow(self, schedules: Iterable[Schedule]) -> list[Schedule]:
        """The schedules, and those of them on narrower primes."""
        return [c for schedule in schedules for c in (schedule, self.narrow(schedule)) if c is not None]

    def narrow(self, schedule: Schedule) -> Schedule | None:
        """The schedule on primes so narrow that every layer's sums of words stay below 2^63.

        None where that is not 128-bit secure or its primes do not exist. What is dropped in one division by a wide
        prime takes several narrower ones, so the bits of modulus stay about the same.
        """
        most = min(self.room(schedule), schedule.scales.most)
        for _ in range(4):
            narrower = self.fitted(replace(schedule.scales, most=most))
            if narrower is None or not self.secure(narrower):
                return None
            room = self.room(narrower)
            if max(narrower.prime_bits) <= room:
                return narrower
            most = room
        return None

    @staticmethod
    def room(schedule: Schedule) -> float:
        """The widest primes, in whole bits, with which no layer's sums of words leave 63 bits."""
        rows = [
            np.abs(s.weights.astype(np.int64)).reshape(len(s.weights), -1).sum(axis=1).max(initial=0)
            for s in schedule.stages
            if s.weights is not None
        ]
        return math.floor(63 - math.log2(max(rows, default=0) + 1) - 0.01)

    def fitted(self, scales: Scales) -> Schedule | None:
        """The schedule at the smallest ring degree that keeps it secure (the largest where none does)."""
        # searches with other aims try the same scales
        if scales not in self.schedules:
            self.schedules[scales] = self._fitted(scales)
        return self.schedules[scales]

    def _fitted(self, scales: Scales) -> Schedule | None:
        degree = self.degrees[0]
        schedule = self.at(scales, degree)
        while schedule is not None and not self.secure(schedule):
            larger = [
                d
                for d in self.degrees
                if d > degree and prime_table.limit_bits(d) >= math.ceil(schedule.total_bits + 0.1)
            ]
            if not larger and not self.settings.hide_weights:
                # What is dropped does not depend on the degree: none is large enough.
                break
            larger = larger or [d for d in self.degrees if d > degree]
            if not larger:
                break
            degree = larger[0]
            schedule = self.at(scales, degree)
        return schedule

    def at(self, scales: Scales, degree: int) -> Schedule | None:
        """The schedule at a ring degree, with the sizes of primes; None where no primes of at most 50 bits do it."""
        try:
            return self.scheduler(scales, degree).run()
        except (TooDeep, OverflowError):
            # noise of very deep networks is beyond binary64
            return None

    def scheduler(self, scales: Scales, degree: int, planned: Schedule | None = None) -> Scheduler:
        """What :meth:`at` and :meth:`exact` run."""
        return Scheduler(
            self.network,
            scales,
            degree,
            self.weights,
            usual=self.usual,
            hide=self.settings.hide_weights,
            real=self.settings.packing != "auto",
            planned=planned,
        )

    def secure(self, schedule: Schedule) -> bool:
        """Whether the security table allows the schedule at its ring degree, and primes of its sizes exist."""
        enough = min(schedule.prime_bits) >= prime_table.least_bits(schedule.order)
        return enough and math.ceil(schedule.total_bits + 0.1) <= prime_table.limit_bits(schedule.ring_degree)

    def exact(self, schedule: Schedule) -> Schedule | None:
        """The schedule with true primes; None when there are too few of a size, or they change a decision."""
        chosen = prime_table.choose(schedule.order, [*schedule.prime_bits, *schedule.special])
        if chosen is None:
            return None
        count = len(schedule.prime_bits)
        planned = replace(schedule, data_primes=chosen[:count], special_primes=chosen[count:])
        if math.ceil(sum(math.log2(p) for p in chosen)) > prime_table.limit_bits(schedule.ring_degree):
            return None
        try:
            exact = self.scheduler(schedule.scales, schedule.ring_degree, planned).run()
        except TooDeep:
            return None
        same = [s.kind for s in exact.stages] == [s.kind for s in schedule.stages]
        fits = all(
            math.log2(t.bound * t.scale) + 1.0 < sum(math.log2(q) for q in exact.data_primes[: t.level])
            for t in exact.tensors
        )
        return exact if same and fits and self.sums_fit(exact) else None

    @staticmethod
    def sums_fit(schedule: Schedule) -> bool:
        """Whether every layer's sums of words stay below 2^63, as the executor wants them."""
        for stage in schedule.stages:
            if stage.weights is not None:
                rows = np.abs(stage.weights.astype(np.int64)).reshape(len(stage.weights), -1).sum(axis=1)
                level = schedule.tensors[stage.target].level
                if (int(rows.max(initial=0)) + 1) * max(schedule.data_primes[:level]) >= 1 << 63:
                    return False
        return True

    def too_deep(self, shallow: float, *, drifted: bool = False) -> LimitError:
        """What is too deep, by layers; ``drifted``: the bits would suffice, but true primes do not."""
        largest = max(self.degrees)
        limit = prime_table.limit_bits(largest)
        depth, rows = 0, []
        for step in self.network.steps:
            levels = (
                1 if isinstance(step, Linear) and not step.is_sum else step.depth if isinstance(step, Polynomial) else 0
            )
            depth += levels
            if levels:
                rows.append(f"{step.name} ({levels})")
        shown = rows if len(rows) <= 24 else [*rows[:12], f"... {len(rows) - 24} more ...", *rows[-12:]]
        needs = (
            f"at least {shallow:.0f} bits of modulus"
            if math.isfinite(shallow)
            else "more than the scales that were tried allow"
        )
        if drifted:
            needs += (
                " of primes nearer to powers of two than there are (every product doubles how far its scale is off)"
            )
        hidden = " (hiding weights costs about 60 bits a product)" if self.settings.hide_weights else ""
        return LimitError(
            f"the network has depth {self.network.depth} ({depth} levels in {len(rows)} layers) and needs "
            f"{needs}{hidden}, but ring degree {largest} "
            f"is 128-bit secure up to {limit}: "
            + ", ".join(shown)
            + ". Use fewer or shallower activations (--activation square is one level), "
            "merge layers, or trust 'two-party' or 'client-aided', where depth costs nothing",
            "modulus",
            needed=shallow if math.isfinite(shallow) else None,
            limit=limit,
            unit="bits",
        )

"""From a graph to a plan of the non-interactive batch engine (``docs/non-interactive.md``)."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from ... import _native
from ...errors import LimitError
from ...graph import Graph
from ...options import NonInteractive
from ...plan import Plan
from ...reference.float import evaluate
from ..inputs import scale_inputs
from ..jumps import jumps, sides, watched
from ..precision import cheapest, state
from ..quality import growing, measure, places, said, squashed, steep
from ..read import validate
from ..tail import stated, tails, watched_heads
from ..targets import distances, regressions, scale_targets, target_centres, target_factors
from . import primes as prime_table
from .activation import Replacement, replace_activations
from .cost import client_bytes, predicted_seconds
from .network import USUAL_IMAGES, Images, Network, some, usual_magnitudes
from .noise import TAIL
from .outputs import output_errors
from .packed import compile_packed
from .schedule import Cipher, Scales, Schedule, Scheduler, Stage, TooDeep, Weights, weight_bits
from .steps import Array, Linear, Polynomial
from .write import Writer

SEEN_FACTOR = 1.5
WEIGHT_BITS = (7, 8, 9, 10, 12, 14)
# cheapest schedules that are tried on narrower primes too, and of all these those whose neighbours are tried
KEEP, REFINED = 12, 24
# calibration rows that errors against the original network are measured on
JUDGED = 1024
# of the wished error, what the search grants: it looks at USUAL_IMAGES images, the prediction at all
GRANTED = 0.9
# bits that are aimed at beyond those asked for, where calibration data shows that a plan falls short of these, or that
# its labels do not stay; not where polynomials stand for activations, whose error no bits take away
AIMS = ((0,), (2,), (4,), (6,), (9,))


def compile_batch(
    graph: Graph, samples: dict[str, Array] | None, settings: NonInteractive, classes: tuple[str, ...] = ()
) -> Plan:
    """The plan of a graph; ``samples`` are checked calibration inputs by name.

    Args:
        classes: outputs whose labels are the answers.

    Raises:
        PlanError: what cannot be planned, with the layers and what to do.
    """
    original, name, batch = graph, settings.name or graph.name, settings.images
    if settings.input_scales:
        graph = scale_inputs(graph, samples, settings.margin, settings.input_range)
    graph = scale_targets(graph, samples, classes, unit=True)
    images = samples
    replaced: Replacement | None = None
    if settings.activation is not None:
        known: dict[str, Any] = {"labels": settings.labels, "precision": settings.precision_bits}
        replaced = replace_activations(graph, settings.activation, calibration=images, **known)
        graph = replaced.graph
    packed = settings.engine == "packed" or (settings.engine == "auto" and batch == 1)
    network = Network.from_graph(
        graph,
        calibration=images,
        input_range=settings.input_range,
        ranges={k: v for k, v in replaced.ranges.items() if math.isfinite(v)} if replaced else None,
        safety=settings.margin,
        # A level less is worth more than the products that merging costs where many features share a ciphertext.
        merge="always" if packed and settings.merge == "auto" else settings.merge,
        clamp=settings.clamp,
    )

    beside = _beside(graph, samples, classes)

    def make(more: int) -> Plan:
        aim = settings.precision_bits + more + beside
        if packed:
            plan = compile_packed(network, graph, images, name, batch, settings, replaced, aim)
        else:
            schedule = Planner(network, settings, images, batch, aim).search()
            plan = _Writer(graph, network, schedule, name, settings, replaced).plan(batch)
            plan = _finish(plan, network, schedule, images, settings, batch)
        return judged(plan, network, (original, graph), samples, settings, classes)

    once = samples is None or replaced is not None or settings.weight_bits is not None
    return make(*AIMS[0]) if once else cheapest(make, AIMS, settings.precision_bits)


def _beside(graph: Graph, samples: dict[str, Array] | None, classes: tuple[str, ...]) -> int:
    """Bits that targets far from zero take beside those that they differ by."""
    if samples is None or not {*regressions(graph, classes), *target_factors(graph)}:
        return 0
    with np.errstate(all="ignore"):
        exact = evaluate(graph, {name: value[:JUDGED] for name, value in samples.items()})
    return max(distances(graph, exact, target_centres(graph, exact, classes)).values(), default=0)


def judged(
    plan: Plan,
    network: Network,
    graphs: tuple[Graph, Graph],
    samples: dict[str, Array] | None,
    settings: NonInteractive,
    classes: tuple[str, ...],
) -> Plan:
    """The plan with its errors against the network as it was given, polynomials in the place of activations included.

    ``graphs`` are that network and the one with polynomials. ``planned_error`` and ``worst_error`` are of roundings and
    noise alone. ``polynomial_share`` is the error that polynomials alone make in a usual row, by the whole one.
    """
    original, replaced = graphs
    predicted = plan.document["predicted"]
    predicted["planned_error"] = predicted["max_error"]
    if samples is not None:
        from ...reference.non_interactive import run

        rows = {k: v[:JUDGED] for k, v in samples.items()}
        labels = None if settings.labels is None else np.asarray(settings.labels)[:JUDGED]
        shown = steep(original)
        behind = tails(original)
        shown_heads = watched_heads(plan, behind)
        inner = [t for tail in behind.values() for n in tail.nodes for t in n.inputs]
        wanted = replace(original, outputs=list(dict.fromkeys([*original.outputs, *shown, *inner])))
        exact, noise = evaluate(wanted, rows), predicted["noise_error"]
        if shown:
            predicted["score_range"] = max(float(np.abs(exact[name]).max(initial=0.0)) for name in shown)
        before = {name: exact[name] for name in shown_heads}
        limit = {name: settings.margin * float(np.abs(exact[name]).max(initial=0.0)) for name in inner}
        exact = {name: exact[name] for name in original.outputs}
        leaps = jumps(plan, original)
        also = dict.fromkeys((*watched(leaps), *shown_heads.values()))
        planned = run(plan, rows, also=list(also)).outputs
        # jumps are told apart: noise that carries no row across one
        passed = output_errors(network, noise, noise, samples, decided=True)
        off = {k: np.abs(planned[k] - v).reshape(len(v), -1).max(axis=1, initial=0.0) for k, v in exact.items()}
        off = {k: v + passed[k].get("max_error", noise) for k, v in off.items()}
        beside = sides(plan, original, leaps, planned, rows, off, noise)
        squash, index, columns = squashed(original), places(original), target_centres(replaced, exact, classes)
        grow = growing(original)
        found = {
            k: measure(
                v,
                exact[k],
                labels,
                squash.get(k),
                grows=k in grow,
                place=k in index,
                noise=passed[k].get("max_error", noise) / TAIL,
                columns=columns.get(k),
                jumping=beside[k].told if k in beside else None,
            )
            for k, v in ((k, planned[k]) for k in original.outputs)
        }
        tailed = stated(original, behind, {h: planned[h] for h in shown_heads}, before, limit, noise)
        found |= {k: replace(found[k], likely=max(found[k].likely, most)) for k, most in tailed.items() if k in found}
        errors = {}
        for name, quality in found.items():
            worst = {k: v for k, v in predicted["output_errors"][name].items() if k == "worst_error"}
            errors[name] = entry = quality.errors(worst.get("worst_error")) | worst
            if not quality.place:
                entry["max_error"] = quality.likely + passed[name].get("max_error", noise)
        predicted["output_errors"] = errors
        if replaced is not original:
            fitted = evaluate(replaced, rows)
            alone = {k: measure(fitted[k], exact[k]).expected for k in found if k in fitted}
            shares = [min(off / found[k].expected, 1.0) for k, off in alone.items() if found[k].expected > 0]
            predicted["polynomial_share"] = max(shares, default=0.0)
        predicted |= next(iter(errors.values())) | said(found, classes)
    state(plan.document, settings.precision_bits)
    validate(plan)
    return plan


class Planner:
    """Searches scales: the cheapest schedule that is precise enough and fits the security table."""

    def __init__(
        self,
        network: Network,
        settings: NonInteractive,
        samples: Images | None = None,
        batch: int = 4096,
        aim: float | None = None,
    ) -> None:
        self.network, self.settings, self.batch = network, settings, batch
        aim = settings.precision_bits if aim is None else aim
        self.weights = Weights()
        self.usual = None if samples is None else usual_magnitudes(network, samples)
        self.samples = None if samples is None else some(samples, USUAL_IMAGES)
        self.drifts: dict[tuple[tuple[int, int], ...], float] = {}
        if self.samples is not None:
            self.exact_output = network.values(self.samples)[network.output]
        self.target = GRANTED * 2.0**-aim * max(network.tensors[network.output].bound, 1e-6)
        self.degrees = prime_table.RING_DEGREES if settings.ring_degree is None else (settings.ring_degree,)

    def drift(self, schedule: Schedule) -> float:
        """What rounding weights does to the output.

        Measured on calibration images where there are any, else estimated.
        """
        if self.samples is None:
            return SEEN_FACTOR * schedule.tensors[schedule.output].drift[0]
        bits = tuple(sorted(weight_bits(self.network, schedule.scales).items()))
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

    def search(self) -> Schedule:
        """The cheapest schedule.

        Raises:
            LimitError: no parameters of 128 bits carry the network, with the layers and their depth.
        """
        found: list[tuple[float, float, Schedule]] = []
        precise: tuple[float, Schedule] | None = None
        shallow = math.inf
        for schedule in (s for scales in self.grid() for s in self.rings(scales)):
            if min(schedule.prime_bits) >= prime_table.least_bits(2 * max(self.degrees)):
                shallow = min(shallow, schedule.total_bits)
            if not self.secure(schedule):
                continue
            noise = schedule.error[0]
            if precise is not None and noise > self.target and noise >= precise[0]:
                continue
            error = noise + self.drift(schedule)
            if precise is None or error < precise[0]:
                precise = (error, schedule)
            if error <= self.target:
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
            if s is not None and self.secure(s) and s.error[0] + self.drift(s) <= self.target
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


class _Writer(Writer):
    """Writes the plan document of the batch engine."""

    def __init__(
        self,
        graph: Graph,
        network: Network,
        schedule: Schedule,
        name: str,
        settings: NonInteractive,
        replaced: Replacement | None,
    ) -> None:
        super().__init__(graph, network, name, settings, replaced)
        self.schedule = schedule
        self.ids: dict[int, int] = {}

    def plan(self, batch: int) -> Plan:
        s = self.schedule
        real = self.head()
        for index, tensor in enumerate(s.tensors):
            self.ids[index] = self.cipher(index, tensor)
        self.out.stage("encrypt", "encrypt", real, self.ids[0])
        for stage in s.stages:
            self.stage(stage)
        self.tail(self.ids[s.output])
        part = {
            "data_primes": s.data_primes,
            "special_primes": s.special_primes,
            "digits": len(s.data_primes),
            "packing": s.packing,
        }
        return self.written("batch", s.ring_degree, part, s.flood, batch)

    def cipher(self, index: int, c: Cipher) -> int:
        noise = {"noise_bits": 1000} if index == self.schedule.output else {}
        return self.out.tensor(
            c.name, c.shape, "cipher", level=c.level, parts=c.parts, scale=c.scale, bound=c.bound, **noise
        )

    def stage(self, s: Stage) -> None:
        sources = [self.ids[i] for i in s.sources]
        read: int | list[int] = sources[0]
        fields: dict[str, Any] = {}
        weights = self.out.weights
        if s.kind == "linear":
            assert s.layer is not None and s.weights is not None
            fields = {
                "method": "ckks",
                "geometry": s.layer.geometry,
                "weights": f"{s.name}.weight",
                "bias": f"{s.name}.bias",
            }
            weights[fields["weights"]] = s.weights
            weights[fields["bias"]] = np.ascontiguousarray(s.layer.bias, dtype=np.float64).reshape(-1)
        elif s.kind == "multiply":
            read = sources
        elif s.kind == "combine":
            read, fields = sources, {"factors": f"{s.name}.factors", "constant": f"{s.name}.constant"}
            weights[fields["factors"]] = np.array(s.factors, dtype=np.int64)
            weights[fields["constant"]] = np.array([s.constant], dtype=np.float64)
        self.out.stage(s.kind, s.name, read, self.ids[s.target], **fields)


def _finish(
    plan: Plan, network: Network, schedule: Schedule, samples: Images | None, settings: NonInteractive, batch: int
) -> Plan:
    """What follows exactly from the plan: noise, bytes, operations, memory.

    And what a rehearsal on calibration data shows.
    """
    document = plan.document
    for step in network.steps:
        if isinstance(step, Polynomial) and math.isfinite(step.range):
            _note_range(plan, step.name, step.range)
    facts = json.loads(_native.Plan.load(plan.to_bytes()).facts())["non_interactive"]
    out = schedule.tensors[schedule.output]
    ciphers = [t for t in document["tensors"] if t["kind"] == "cipher"]
    entry = ciphers[schedule.output]
    track = facts["tracks"][schedule.output]
    entry["noise_bits"] = max(0, math.ceil(math.log2(track["sd"]) + 1e-9))
    likely, worst = schedule.error
    noise = {"likely": likely, "worst": worst}
    drift = {"likely": out.drift[0], "worst": out.drift[1]}
    estimate = noise["likely"] + SEEN_FACTOR * drift["likely"]
    predicted = document["predicted"]
    if samples is not None:
        from ...reference.non_interactive import run

        seen = run(plan, samples)
        reference = network.values(samples)[network.output]
        off = float(np.abs(seen.opened.reshape(reference.shape) - reference).max(initial=0.0))
        predicted["seen_error"] = off
        estimate = noise["likely"] + SEEN_FACTOR * off
    blocks = math.ceil(batch / facts["images"])
    traffic = facts["traffic"]
    predicted |= {
        "seconds": predicted_seconds(schedule) * blocks,
        "bytes_up": traffic["up"] * blocks,
        "bytes_down": traffic["down"] * blocks,
        "setup_bytes_up": traffic["keys"],
        "setup_bytes_down": 0,
        "client_peak_memory_bytes": client_bytes(document, facts["images"]),
        "server_peak_memory_bytes": facts["peak_bytes"]
        + 4 * traffic["keys"]
        + sum(w.nbytes for w in plan.weights.values()),
        "rounds": 1,
        "max_error": min(estimate, noise["worst"] + drift["worst"]),
        "worst_error": noise["worst"] + drift["worst"],
        "noise_error": noise["likely"],
        "precision_bits": math.log2(out.bound / max(estimate, 1e-300)),
        "depth": network.depth,
        "counted": facts["counted"],
    }
    predicted["output_errors"] = output_errors(network, predicted["max_error"], predicted["worst_error"], samples)
    memory = predicted["client_peak_memory_bytes"] + predicted["server_peak_memory_bytes"]
    if memory > settings.max_memory:
        raise LimitError(
            f"client and server need {memory / 2**30:.2f} GiB, max_memory is {settings.max_memory / 2**30:.2f} GiB; "
            "raise max_memory, "
            "or use a smaller ring degree or smaller images",
            "memory",
            needed=memory,
            limit=settings.max_memory,
            unit="bytes",
        )
    if estimate > 2.0**-settings.precision_bits * out.bound * 1.01:
        document["notes"].append(
            f"The predicted error is {estimate:.3g} of outputs up to {out.bound:.3g}: more than the "
            f"{settings.precision_bits:g} bits that were asked for."
        )
    validate(plan)
    return plan


def _note_range(plan: Plan, polynomial: str, reach: float) -> None:
    """The range that a polynomial is good for, at the tensor that it reads first."""
    tensors = {t["id"]: t for t in plan.document["tensors"]}
    for stage in plan.document["stages"]:
        if stage["kind"] in ("multiply", "combine") and stage["name"].startswith(polynomial):
            entry = tensors[stage["in"][0]]
            entry.setdefault("range", reach)
            return


__all__ = ["TAIL", "Planner", "compile_batch"]

"""From a graph to a plan of the non-interactive batch engine (``docs/non-interactive.md``)."""

from __future__ import annotations

import contextlib
import json
import math
from dataclasses import replace
from typing import Any

import numpy as np

from ... import _native
from ...errors import LimitError
from ...graph import Graph
from ...options import NonInteractive
from ...plan import Plan, PlanError
from ...reference.float import evaluate
from ..few_images import price
from ..inputs import scale_inputs
from ..jumps import jumps, sides, watched
from ..precision import cheapest, shortfalls, state
from ..quality import growing, measure, places, said, squashed, steep
from ..read import validate
from ..tail import stated, tails, watched_heads
from ..targets import distances, regressions, scale_targets, target_centres, target_factors
from ..unseen import from_samples, sources_of
from .activation import Replacement, replace_activations
from .cost import client_bytes, predicted_seconds
from .network import Images, Network
from .noise import TAIL
from .outputs import output_errors
from .packed import compile_packed, side_by_side
from .schedule import Cipher, Schedule, Stage
from .search import SEEN_FACTOR, Planner
from .steps import Array, Polynomial
from .write import Writer

# calibration rows that errors against the original network are measured on
JUDGED = 1024
# bits that are aimed at beyond those asked for, where calibration data shows that a plan falls short of these, or that
# its labels do not stay; not where polynomials stand for activations, whose error no bits take away
AIMS = ((0,), (1,), (2,), (4,), (6,), (9,))
# most images for which the other engine is looked at: batches are what this one is made for
FEW = 128


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
    beside = _beside(graph, samples, classes)

    def folded(packed: bool) -> Network:
        return Network.from_graph(
            graph,
            calibration=images,
            input_range=settings.input_range,
            ranges={k: v for k, v in replaced.ranges.items() if math.isfinite(v)} if replaced else None,
            safety=settings.margin,
            # A level less is worth more than the products that merging costs where many features share a ciphertext.
            merge="always" if packed and settings.merge == "auto" else settings.merge,
            clamp=settings.clamp,
        )

    def planned(packed: bool, network: Network) -> Plan:
        planner = None if packed else Planner(network, settings, images, batch)

        def make(more: int) -> Plan:
            aim = settings.precision_bits + more + beside
            if planner is None:
                plan = compile_packed(network, graph, images, name, batch, settings, replaced, aim)
            else:
                schedule = planner.search(aim)
                plan = _Writer(graph, network, schedule, name, settings, replaced).plan(batch)
                plan = _finish(plan, network, schedule, images, settings, batch)
            return judged(plan, network, (original, graph), samples, settings, classes)

        once = samples is None or replaced is not None or settings.weight_bits is not None
        return make(*AIMS[0]) if once else cheapest(make, AIMS, settings.precision_bits)

    if settings.engine != "auto":
        packed = settings.engine == "packed"
        return planned(packed, folded(packed))
    if batch == 1 or settings.bootstrap == "always":
        return planned(True, folded(True))
    network = folded(False)
    try:
        plan = planned(False, network)
    except LimitError as error:
        # Deeper than levels: the other engine goes on by bootstraps.
        if error.what != "modulus" or settings.bootstrap == "never":
            raise
        try:
            return planned(True, folded(True))
        except PlanError:
            raise error from None
    # One block of images side by side is a short message where the batch engine sends a ciphertext a feature. Prices
    # depend on scales, and so on weights: where these are hidden, the choice may not.
    few = batch <= FEW and side_by_side(network, batch) == batch
    if few and not (settings.batch_only() or settings.hide_weights):
        with contextlib.suppress(PlanError):
            return min(
                plan,
                planned(True, folded(True)),
                key=lambda made: (len(shortfalls(made.predicted)), price(made.predicted)),
            )
    return plan


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
        decrypted = {plan.tensors[s["out"]]["name"] for s in plan.stages if s["kind"] == "decrypt"}
        near, decoded = sources_of(original, decrypted, {}, plan)
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
        also = dict.fromkeys((*watched(leaps), *shown_heads.values(), *decoded.values()))
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
        steeped = from_samples(original, near, {name: planned[name] for name in decoded}, rows, noise / TAIL)
        for k, most in [*tailed.items(), *steeped.items()]:
            found[k] = replace(found[k], likely=max(found[k].likely, most))
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


__all__ = ["TAIL", "compile_batch"]

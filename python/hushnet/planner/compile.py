"""From a graph to a plan: every trust model's way in, and the client-aided planner."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from .. import _native
from ..errors import axes_hint
from ..graph import Graph, Linear
from ..options import READING, ClientAided, FixedPoint, Inputs, NonInteractive, Options, TwoParty, made
from ..plan import Plan, PlanError, RangeError
from ..reference.float import evaluate
from ..reference.threads import one_thread
from .assemble import Assembly, Request
from .check import check_graph
from .cost import UnitCosts
from .errors import Prediction, predict
from .feedback import LEAST_ROWS, Moments
from .few_images import FewImages, bytes_sent, price
from .forms import choose_forms
from .inputs import scale_inputs
from .jumps import jumps, sides, watched
from .logarithms import widest_logarithm
from .lower import Lowered, lower
from .precision import (
    CLIENT_AIDED,
    FED,
    FEW_IMAGES,
    FEW_WEIGHTS,
    MANY_WEIGHTS,
    TWO_PARTY,
    TWO_PARTY_SUMS,
    Rung,
    cheapest,
    check_precision,
    state,
    wide,
    widest,
    without_rows,
)
from .quality import UNBOUNDED, Quality, growing, measure, places, said, sequences, squashed, steep
from .quantise import AUTO_BITS, Quantisation, choose
from .ranges import Ranges, from_calibration, from_intervals, hull, input_intervals, typical_outputs
from .read import validate
from .rewrite import equalise_rows, reaches, rewrite
from .tail import heads, stated, tails
from .targets import LOOKED_AT, distances, regressions, scale_targets, target_centres
from .two_party.masking import public_patterns
from .unseen import steeply, unseen

Array = np.ndarray
RANGE_ATTEMPTS = 12
# places of a row that a message names
SHOWN = 8


def compile(graph: Graph, *, trust: str = "client-aided", classes: Collection[str] = (), **given: Any) -> Plan:
    """A plan that runs ``graph`` on encrypted batches.

    Args:
        trust: "client-aided", "two-party" or "non-interactive".
        classes: see :func:`plan`.
        given: options of the trust model (:mod:`hushnet.options`, docs/options.md), without those that say how a model
            is read.

    Raises:
        PlanError: an option or network that cannot be planned, with the layer and what to do.
    """
    return plan(graph, made(trust, given), classes)


@one_thread()
def plan(graph: Graph, asked: Options, classes: Collection[str] = ()) -> Plan:
    """The plan of a graph by checked options.

    Args:
        classes: outputs whose labels are the answers: the cheapest plan is then one whose labels are expected to stay.

    Raises:
        PlanError: what cannot be planned, with the layer and what to do.
    """
    if reading := [name for name in READING if getattr(asked, name) is not None]:
        raise PlanError(f"{', '.join(reading)}: a planner gets a graph; give such options to hushnet.compile.")
    labelled = tuple(classes)
    if isinstance(asked, NonInteractive):
        from .non_interactive.batch import compile_batch

        return _written(compile_batch(graph, _samples(check_graph(graph), asked.calibration), asked, labelled))
    check_precision(asked.precision, calibrated=asked.calibration is not None)
    if asked.labels is not None and asked.calibration is None:
        raise PlanError(
            "labels are right answers of the calibration data, and there is none; give calibration data too"
        )
    assert isinstance(asked, FixedPoint)

    kept: dict[bool, Any] = {}

    def make(weight_bits: int, activation_bits: int | str, more: Mapping[str, Any] | None = None) -> Plan:
        return _fixed_point(graph, replace(asked, **(more or {})), weight_bits, activation_bits, labelled, kept)

    if asked.weight_bits is not None or asked.calibration is None:
        return make(8 if asked.weight_bits is None else asked.weight_bits, asked.activation_bits)
    # who asks for a precision pays for it
    usual = isinstance(asked, ClientAided) and asked.precision is None
    paid = (lambda made: price(made.predicted)) if usual else None
    many = sum(node.weight.size for node in graph.nodes if isinstance(node, Linear)) > MANY_WEIGHTS
    leaps = many and isinstance(asked, TwoParty)
    sent = (lambda made: _sent(made.predicted)) if isinstance(asked, TwoParty) else None
    return cheapest(make, _rungs(graph, asked, labelled), asked.precision_bits, paid, weigh=sent, leaps=leaps)


def _sent(predicted: Mapping[str, Any]) -> float:
    """Bytes of a plan in both directions."""
    return float(predicted["bytes_up"] + predicted["bytes_down"])


def _rungs(graph: Graph, asked: FixedPoint, classes: tuple[str, ...]) -> tuple[Rung, ...]:
    """Bits, and further choices, that are tried for the precision; cheap first."""
    rungs = CLIENT_AIDED
    if isinstance(asked, TwoParty):
        rungs = TWO_PARTY
        widened = asked.activation_bits == "auto" and _widened(graph, asked)
        if widened:
            rungs += wide(asked.images, far=_far(graph, asked, classes))
        rungs += TWO_PARTY_SUMS
        if widened:
            rungs += widest(asked.images)
    elif isinstance(asked, ClientAided) and _few(asked):
        rungs = rungs[:2] + FEW_IMAGES + rungs[2:]
    if _rows(asked.calibration) < LEAST_ROWS:
        rungs = without_rows(rungs)
    if asked.activation_bits != "auto":
        rungs = tuple((rung[0], asked.activation_bits, *rung[2:]) for rung in rungs if rung[2:] in ((), (FED,)))
    return rungs


def _far(graph: Graph, asked: TwoParty, classes: tuple[str, ...]) -> bool:
    """Whether targets lie far from zero beside what they differ by."""
    if asked.reveal != "output" or not regressions(graph, classes):
        return False
    samples = _samples(check_graph(graph), asked.calibration)
    if samples is None:
        return False
    with np.errstate(all="ignore"):
        exact = evaluate(graph, {name: value[:LOOKED_AT] for name, value in samples.items()})
    return any(distances(graph, exact, target_centres(graph, exact, classes)).values())


def _rows(calibration: Inputs | None) -> int:
    """Rows of calibration data that nobody has checked yet."""
    first = next(iter(calibration.values()), ()) if isinstance(calibration, Mapping) else calibration
    return 0 if first is None else (*np.shape(first), 0)[0]


def _few(asked: ClientAided) -> bool:
    """Whether the engine for few images may run the plan with bits of its own."""
    free = asked.engine != "batch" and not asked.batch_only() and asked.most_bits == AUTO_BITS[0]
    return free and asked.images <= _native.IMAGES_TOGETHER and asked.activation_bits == "auto"


def _widened(graph: Graph, asked: TwoParty) -> bool:
    """Whether a plan may have wide rings: of few weights, with methods of the planner's choice."""
    weights = sum(node.weight.size for node in graph.nodes if isinstance(node, Linear))
    return weights <= FEW_WEIGHTS and asked.method is None and asked.ring_bits is None and asked.ring_degree is None


def _fixed_point(
    graph: Graph,
    asked: FixedPoint,
    weight_bits: int,
    activation_bits: int | str,
    classes: tuple[str, ...],
    kept: dict[bool, Any],
) -> Plan:
    """The plan with so many bits; ``kept`` holds what a trust model keeps from one plan of the graph to the next."""
    if isinstance(asked, TwoParty):
        from .two_party import compile_two_party

        samples = _samples(check_graph(graph), asked.calibration)
        found = compile_two_party(graph, samples, weight_bits, activation_bits, asked, classes, kept)
        state(found.document, asked.precision)
        return _written(found)
    assert isinstance(asked, ClientAided)
    return _client_aided(graph, weight_bits, activation_bits, asked, classes)


def _written(plan: Plan) -> Plan:
    """The plan with what JSON has."""
    return Plan(_plain(plan.document), plan.weights)


def _client_aided(
    graph: Graph, weight_bits: int, activation_bits: int | str, settings: ClientAided, classes: tuple[str, ...]
) -> Plan:
    if settings.engine == "packed" and settings.batch_only():
        raise PlanError("mask, drop and tiles are options of engine 'batch'; leave them out, or choose engine='batch'")
    graph = check_graph(graph)
    samples = _samples(graph, settings.calibration)
    if settings.input_scales:
        graph = scale_inputs(graph, samples, settings.margin, settings.input_range)
    graph = rewrite(scale_targets(public_patterns(graph), samples, classes, centred=True))
    if settings.row_scales:
        graph = equalise_rows(graph, reaches(graph, samples))
    moments = Moments() if settings.rounding == "feedback" and samples is not None else None
    if samples is None:
        ranges = from_intervals(graph, input_intervals(graph, settings.input_range))
    else:
        behind = tails(graph)
        sources = {source for tail in behind.values() for source in tail.sources}
        sources |= {source for part in steeply(graph).values() for source in part.sources}
        watch = None if moments is None else moments.watch
        ranges = from_calibration(graph, samples, settings.margin, settings.input_range, sources, watch)
    planner = _Planner(graph, settings, moments)
    for _ in range(RANGE_ATTEMPTS):
        plan, lowered, prediction = planner.plan(ranges, weight_bits, activation_bits)
        seen, wider = None, {}
        if samples is None:
            wider = _overflows(plan, lowered, prediction)
        else:
            try:
                seen = _seen(graph, plan, lowered, samples, ranges, settings.labels)
            except RangeError as error:
                wider = _wider(plan, lowered, error)
        if not wider:
            guessed = typical_outputs(graph, ranges.inputs) if seen is None else {}
            scores = max((ranges.limit[t] / settings.margin for t in steep(graph)), default=0.0)
            logarithm = widest_logarithm(graph, ranges)
            if logarithm is not None:
                plan.predicted["widest_logarithm"] = logarithm
            return _finish(plan, prediction, seen, guessed, settings, classes, scores)
        ranges = replace(ranges, limit={**ranges.limit, **wider})
    raise PlanError(
        "no range holds the values: rounding errors grow from layer to layer; use more weight_bits and activation_bits"
    )


def _overflows(plan: Plan, lowered: Lowered, prediction: Prediction) -> dict[str, float]:
    """Tensors whose planned run, rounding included, reaches past their range, with a range that holds it."""
    wider = {}
    for tensor, reach in prediction.reach.items():
        entry = plan.tensors[tensor]
        if reach > entry["bound"] * entry["scale"] * (1 + 1e-12):
            wider[lowered.quantised[tensor]] = reach * 1.001
    return wider


def _wider(plan: Plan, lowered: Lowered, error: RangeError) -> dict[str, float]:
    """A wider range for the tensor that rounding carried past what the float run showed."""
    if not error.finite:
        raise PlanError(f"the planned run over the calibration data fails: {error}")
    tensors = {plan.tensors[tensor]["name"]: (plan.tensors[tensor], name) for tensor, name in lowered.quantised.items()}
    entry, name = tensors[error.tensor]
    return {name: 1.2 * entry["bound"] * entry["scale"]}


def _samples(graph: Graph, calibration: Inputs | None) -> dict[str, Array] | None:
    if calibration is None:
        return None
    if not isinstance(calibration, Mapping):
        if len(graph.inputs) != 1:
            raise PlanError(f"the model has inputs {graph.inputs}; give calibration data as a dict by name")
        calibration = {graph.inputs[0]: calibration}
    if set(calibration) != set(graph.inputs):
        wanted = ", ".join(f"{name} [images{''.join(f', {n}' for n in graph.shapes[name])}]" for name in graph.inputs)
        raise PlanError(
            f"calibration data is for {', '.join(sorted(calibration))}, and the model's inputs are {wanted}; "
            "give an array for each of them, by name"
        )
    samples = {}
    for name, value in calibration.items():
        array = np.asarray(value)
        if array.dtype.kind not in "fiub" or array.shape[1:] != tuple(graph.shapes[name]) or array.ndim == 0:
            raise PlanError(
                f"calibration data of {name!r} has shape {array.shape} and dtype {array.dtype}; "
                f"give numbers of shape (images, {', '.join(map(str, graph.shapes[name]))})."
                f"{axes_hint(array.shape, graph.shapes[name])}"
            )
        samples[name] = array.astype(np.float64)
        if not np.isfinite(samples[name]).all():
            raise PlanError(_not_finite(name, samples[name]))
    if len({v.shape[0] for v in samples.values()}) != 1:
        raise PlanError("calibration data has different numbers of images for different inputs")
    return samples


def _not_finite(name: str, samples: Array) -> str:
    """Says where calibration data is not finite."""
    bad = ~np.isfinite(samples.reshape(len(samples), -1))
    rows, places = np.flatnonzero(bad.any(axis=1)), np.flatnonzero(bad.any(axis=0))
    more = "" if len(places) <= SHOWN else " and others"
    where = f"{len(rows)} of {len(samples)} rows (the first is row {rows[0]})"
    return (
        f"calibration data of {name!r} holds NaN or infinite values in {where}, at places "
        f"{', '.join(map(str, places[:SHOWN]))}{more} of a row. Leave these rows out, or put an imputer for these "
        "places into the model (SimpleImputer): clients then fill in what is missing"
    )


class _Planner:
    def __init__(self, graph: Graph, settings: ClientAided, moments: Moments | None) -> None:
        self.moments = moments
        self.graph, self.settings, self.name = graph, settings, settings.name or graph.name
        self.request = Request(
            batch=settings.images,
            max_memory=settings.max_memory,
            mask=settings.mask,
            mask_memory=settings.mask_memory,
            drop=settings.drop,
            tiles=settings.tiles,
            unit=UnitCosts.load(settings.unit_costs),
        )

    def plan(self, ranges: Ranges, weight_bits: int, activation_bits: int | str) -> tuple[Plan, Lowered, Prediction]:
        forms = choose_forms(self.graph, ranges.limit)
        quantisation = choose(
            self.graph,
            forms,
            weight_bits,
            activation_bits,
            self.settings.ring_degree,
            ranges.mean,
            most_bits=self.settings.most_bits,
            packed=self.settings.engine == "packed" and self.settings.most_bits > AUTO_BITS[0],
            square=ranges.square,
            moments=self.moments,
        )
        lowered = lower(self.graph, forms, quantisation)
        degree = quantisation.ring_degree
        for port, pair in ranges.declared.items():
            lowered.limit(port, *hull(pair))
        said = notes(self.graph, ranges, lowered)
        drafted = lowered.plan(
            "client-aided", "batch", name=self.name, producer=self.settings.producer, ring_degree=degree, notes=said
        )
        stages = {index: (node.name, node.output) for index, node in lowered.origin.items()}
        plan = self.assembled(drafted, stages, quantisation)
        return plan, lowered, predict(plan.document, lowered.origin, quantisation, ranges)

    def assembled(self, drafted: Plan, stages: dict[int, tuple[str, str]], quantisation: Quantisation) -> Plan:
        """The plan by the engine that was asked for, or by the one with the lower price.

        Raises:
            PlanError: no engine can run it.
        """
        wanted = "batch" if self.settings.batch_only() else self.settings.engine
        made, refused = [], []
        for engine, kind in (("batch", Assembly), ("packed", FewImages)):
            if wanted not in ("auto", engine):
                continue
            own = Plan(_plain(drafted.document), drafted.weights)
            try:
                kind(own, stages, quantisation, self.request).run()
                made.append(Plan(_plain(own.document), own.weights))
            except PlanError as error:
                refused.append(error)
        if not made:
            # of few images, the engine for them is the one whose refusal tells what to do
            raise refused[-1 if self.request.batch <= _native.IMAGES_TOGETHER else 0]
        made.sort(key=lambda plan: price(plan.predicted))
        for other in made[1:]:
            figures = other.predicted
            made[0].predicted["runner_up"] = {
                "engine": other.document["engine"],
                "seconds": figures["seconds"],
                "bytes": bytes_sent(figures),
            }
        return made[0]


def notes(graph: Graph, ranges: Ranges, lowered: Lowered) -> list[str]:
    """Sentences that a user of the plan must know."""
    said = [
        "Client-aided: the client sees every linear layer's result in the clear and can solve for the weights; weights "
        "are not private.",
        "The server learns shapes only: neither inputs nor results.",
    ]
    ops = {op["op"] for s in lowered.stages if s["kind"] == "client" for op in s["ops"]}
    if "channel_scale" in ops:
        said.append("The relative size of the largest weight of every output row is public (channel_scale).")
    if "prelu" in ops:
        said.append("PRelu slopes are public: they are part of what every client receives.")
    if ops & {"interpolate", "gather"}:
        said.append(
            "Positions and weights of selections, interpolations and masks (Resize, "
            "Gather, Where, Attention) are public."
        )
    if "affine" in ops:
        said.append("Scalar factors and offsets outside linear layers are public.")
    if ranges.grown is not None:
        said.append(ranges.grown.sentence())
    if ranges.source == "intervals":
        said.append(
            "Ranges follow from interval arithmetic over the declared input ranges: safe, but wide in deep networks. "
            "Calibration data gives better precision."
        )
    return said


def _seen(
    graph: Graph, plan: Plan, lowered: Lowered, samples: dict[str, Array], ranges: Ranges, labels: Any
) -> dict[str, Quality]:
    """The quality of every output on the calibration data; behind operators that saturate, :mod:`.tail` has a say."""
    from ..reference.numpy import run

    behind = tails(graph)
    steep = steeply(graph)
    wanted = {source for tail in behind.values() for source in tail.sources}
    wanted |= {name for part in steep.values() for name in (*part.sources, *part.layers)}
    results = {node.output: plan.stages[i]["out"] for i, node in lowered.origin.items() if node.output in wanted}
    leaps = jumps(plan, graph)
    values = run(plan, samples, also=(*results.values(), *watched(leaps)))
    off = {name: _largest(values[name] - ranges.floats[name]) for name in graph.outputs}
    beside = sides(plan, graph, leaps, values, samples, off)
    squash, index, several, columns = squashed(graph), places(graph), sequences(graph), target_centres(graph, {})
    found, grow = {}, growing(graph)
    for port in plan.document["outputs"]:
        name = port["name"]
        found[name] = measure(
            values[name],
            ranges.floats[name],
            labels,
            squash.get(name),
            grows=name in grow,
            place=name in index,
            several=several.get(name),
            columns=columns.get(name),
            jumping=beside[name].told if name in beside else None,
        )
    planned = {}
    for name, tensor in results.items():
        entry = plan.tensors[tensor]
        planned[name] = values[entry["name"]] * entry["scale"]
    mine: dict[str, Array] = {}
    exact: dict[str, Array] = {}
    for tail in behind.values():
        mine |= heads(graph, tail, planned)
        exact |= heads(graph, tail, ranges.floats)
    opened = stated(graph, behind, mine, exact, ranges.limit)
    for output, most in [*opened.items(), *unseen(graph, steep, planned, ranges.floats).items()]:
        found[output] = replace(found[output], likely=max(found[output].likely, most))
    return found


def _largest(off: Array) -> Array:
    """The largest error of every row."""
    return np.abs(off).reshape(len(off), -1).max(axis=1, initial=0.0)


def _finish(
    plan: Plan,
    prediction: Prediction,
    seen: dict[str, Quality] | None,
    guessed: dict[str, float],
    settings: ClientAided,
    classes: tuple[str, ...],
    scores: float,
) -> Plan:
    errors: dict[str, dict[str, float]] = {}
    for name, worst in prediction.worst.items():
        spread = prediction.estimate[name]
        # what has no bound is left out: JSON has no infinity
        errors[name] = {k: v for k, v in _spreads(spread, worst).items() if np.isfinite(v)}
        if seen is not None:
            errors[name] |= seen[name].errors(worst)
        elif name in guessed:
            errors[name]["random_output_range"] = guessed[name]
    if any("worst_error" not in e for e in errors.values()):
        plan.document["notes"].append(UNBOUNDED)
    plan.predicted.pop("worst_error", None)
    plan.predicted.update(errors[plan.document["outputs"][0]["name"]])
    plan.predicted["output_errors"] = errors
    plan.predicted["layer_errors"] = prediction.layers
    if seen:
        plan.predicted.update(said(seen, classes))
        if scores:
            plan.predicted["score_range"] = scores
    state(plan.document, settings.precision)
    validate(plan)
    return plan


def _spreads(spread: float, worst: float) -> dict[str, float]:
    return {"max_error": spread, "worst_error": worst, "propagated_error": spread}


_LEAVES = frozenset({str, int, float, bool, type(None)})


def _plain(value: Any) -> Any:
    """NumPy scalars, arrays and tuples as what JSON has; containers are copies."""
    if type(value) in _LEAVES:
        return value
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    return value.item() if isinstance(value, np.generic) else value

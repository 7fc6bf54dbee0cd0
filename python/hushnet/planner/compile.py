"""From a graph to a plan of the client-aided batch engine."""

from __future__ import annotations

import copy
import difflib
import inspect
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..graph import Graph, Linear
from ..plan import Plan, PlanError, RangeError
from .assemble import Assembly, Request
from .check import check_graph
from .cost import UnitCosts
from .errors import Prediction, predict
from .few_images import FewImages, bytes_sent, price
from .forms import choose_forms
from .inputs import scale_inputs
from .lower import Lowered, lower
from .precision import (
    CLIENT_AIDED,
    DEFAULT_BITS,
    FEW_WEIGHTS,
    TWO_PARTY,
    TWO_PARTY_BATCHES,
    TWO_PARTY_WIDE,
    cheapest,
    check_precision,
    state,
)
from .quality import Quality, likely, measure, places, said, squashed
from .quantise import AUTO_BITS, RING_DEGREES, Quantisation, choose
from .ranges import InputRanges, Ranges, from_calibration, from_intervals, hull, input_intervals, typical_outputs
from .read import validate
from .rewrite import equalise_rows, rewrite
from .tail import carried, tails

Array = np.ndarray
Calibration = Array | Mapping[str, Array] | None

TRUST = ("non-interactive", "client-aided", "two-party")
ENGINES = ("auto", "batch", "packed")
GIB = 1 << 30
RANGE_ATTEMPTS = 12


@dataclass(frozen=True)
class Options:
    """Choices that ``compile`` leaves to its caller; the defaults are what users want, the others are for ablations.

    Attributes:
        margin: planned range over the largest calibrated value.
        ring_degree: 2048 or 4096; None for the smallest that fits.
        engine: "batch" (one feature of many images in a ciphertext), "packed" (many features of one image), or "auto":
            whichever is
            predicted to be faster for ``batch`` images. mask, drop and tiles are of "batch" only, and choose it.
        mask: "auto", "shared", "fresh" or "sent" (docs/plan-format.md).
        mask_memory: bytes that a client may keep for shared masks.
        drop: whether low bits of results are dropped before they travel.
        tiles: "auto", or "one" tile a layer.
        most_bits: the most activation bits that "auto" takes, 8 to 16. Above 12, errors fall and a plan of engine
            "packed" sends a little more: its own modulus is then the limit of every layer.
        row_scales: whether output rows get scales of their own (``equalise_rows``).
        input_scales: whether features of inputs get scales of their own where they differ in size (:mod:`.inputs`).
        unit_costs: path of a file made by ``hushnet measure-machine``.
        producer: what the plan says it was made by.
    """

    margin: float = 1.25
    ring_degree: int | None = None
    engine: str = "auto"
    mask: str = "auto"
    mask_memory: int = GIB
    drop: bool = True
    tiles: str = "auto"
    most_bits: int = AUTO_BITS[0]
    row_scales: bool = True
    input_scales: bool = True
    unit_costs: str | None = None
    producer: str = "hushnet 0.1.0"

    def batch_only(self) -> bool:
        """Whether something is asked for that only the batch engine has."""
        return (self.mask, self.drop, self.tiles) != ("auto", True, "auto")


def compile(
    graph: Graph,
    *,
    batch: int | None = None,
    trust: str = "client-aided",
    calibration: Calibration = None,
    input_range: InputRanges = None,
    weight_bits: int | None = None,
    activation_bits: int | str = "auto",
    precision: float | None = None,
    labels: Any = None,
    classes: Collection[str] = (),
    max_memory: int = 8 * GIB,
    name: str | None = None,
    **options: Any,
) -> Plan:
    """A plan that runs ``graph`` on encrypted batches.

    Args:
        batch: images that the plan is for (any number runs): cost is predicted for them, and client-aided plans take
            the engine that is cheaper
            for them; 2048 by default, with "two-party" 1.
        trust: "client-aided", "two-party" (with a batch of several images, layers may work on all of them at once), or
            "non-interactive".
        calibration: sample inputs (images, *shape), by input name when there are several; some hundred are enough.
        input_range: (low, high) of the inputs, for all or by name. Without calibration data it is what ranges follow
            from (default: [0, 1]); with calibration data it replaces the margin at the inputs. Arrays with a number
            for every feature give features of different size scales of their own.
        weight_bits: 2 to 16 (non-interactive: 2 to 15). By default the fewest that reach ``precision``, and 8
            without calibration data.
        activation_bits: 2 to 16, or "auto": per layer the most of 8 to 12 that keep the modulus cheap.
        precision: bits: 999 rows of 1000 have errors below 2^-precision of the output's range, against the original
            network (default: 7). The cheapest plan that reaches it on the calibration data is taken. Where none does,
            ``predicted["precision"]`` and a note say so.
        labels: the right answer of every calibration row, as whole numbers: the plan then says the accuracy of the
            original network and its own.
        classes: outputs whose labels are the answers: the cheapest plan is then one whose labels are expected to stay.
        max_memory: bytes for client and server together.
        name: model name; the graph's by default.
        options: fields of :class:`Options`, of :class:`hushnet.planner.two_party.Options`, or of
            :class:`hushnet.planner.non_interactive.batch.Options`.

    Raises:
        PlanError: what cannot be planned, with the layer and what to do.
    """
    if trust == "non-interactive":
        batch = 4096 if batch is None else batch
        own = {**options, "weight_bits": weight_bits, "labels": labels, "classes": tuple(classes)}
        own |= {} if precision is None else {"precision_bits": precision}
        return _non_interactive(graph, calibration, input_range, max_memory, name, batch, own)
    check_precision(precision, calibrated=calibration is not None)
    if labels is not None and calibration is None:
        raise PlanError(
            "labels are right answers of the calibration data, and there is none; give calibration data too"
        )
    asked = Wanted(precision, labels, tuple(classes))
    rungs = CLIENT_AIDED
    if trust == "two-party":
        options = {**options, "batch": 1 if batch is None else batch}
        rungs = TWO_PARTY

        def make(bits: int, coarse: int | str, more: Mapping[str, Any] | None = None) -> Plan:
            own = {**options, **(more or {})}
            return _two_party(graph, calibration, input_range, bits, coarse, max_memory, name, asked, own)

        if activation_bits == "auto" and _widened(graph, options):
            rungs += TWO_PARTY_WIDE if options["batch"] == 1 else TWO_PARTY_BATCHES
    else:

        def make(bits: int, coarse: int | str, more: Mapping[str, Any] | None = None) -> Plan:
            images = 2048 if batch is None else batch
            return _client_aided(
                graph,
                images,
                trust,
                calibration,
                input_range,
                bits,
                coarse,
                max_memory,
                name,
                asked,
                {**options, **(more or {})},
            )

    if weight_bits is not None or calibration is None:
        return make(8 if weight_bits is None else weight_bits, activation_bits)
    if activation_bits != "auto":
        rungs = tuple(dict.fromkeys((rung[0], activation_bits) for rung in rungs if len(rung) == 2))
    return cheapest(make, rungs, DEFAULT_BITS if precision is None else precision)


def _widened(graph: Graph, options: dict[str, Any]) -> bool:
    """Whether a two-party plan may have wide rings: of few weights, with methods of the planner's choice."""
    weights = sum(node.weight.size for node in graph.nodes if isinstance(node, Linear))
    return weights <= FEW_WEIGHTS and all(options.get(n) is None for n in ("method", "ring_bits", "ring_degree"))


@dataclass(frozen=True)
class Wanted:
    """What the caller asks of a plan's answers.

    Attributes:
        precision: bits; None for the default.
        labels: right answers of the calibration rows.
        classes: outputs whose labels are the answers.
    """

    precision: float | None = None
    labels: Any = None
    classes: tuple[str, ...] = ()


def _client_aided(
    graph: Graph,
    batch: int,
    trust: str,
    calibration: Calibration,
    input_range: InputRanges,
    weight_bits: int,
    activation_bits: int | str,
    max_memory: int,
    name: str | None,
    wanted: Wanted,
    options: dict[str, Any],
) -> Plan:
    settings = _options(options, Options)
    _check_request(batch, trust, settings)
    graph = check_graph(graph)
    samples = _samples(graph, calibration)
    if settings.input_scales:
        graph = scale_inputs(graph, samples, settings.margin, input_range)
    graph = rewrite(graph)
    if settings.row_scales:
        graph = equalise_rows(graph)
    if samples is None:
        ranges = from_intervals(graph, input_intervals(graph, input_range))
    else:
        behind = tails(graph)
        sources = {source for tail in behind.values() for source in tail.sources}
        ranges = from_calibration(graph, samples, settings.margin, input_range, sources)
    planner = _Planner(graph, settings, batch, max_memory, name or graph.name)
    for _ in range(RANGE_ATTEMPTS):
        plan, lowered, prediction = planner.plan(ranges, weight_bits, activation_bits)
        seen, wider = None, {}
        if samples is None:
            wider = _overflows(plan, lowered, prediction)
        else:
            try:
                seen = _seen(graph, plan, lowered, samples, ranges, wanted.labels)
            except RangeError as error:
                wider = _wider(plan, lowered, error)
        if not wider:
            guessed = typical_outputs(graph, ranges.inputs) if seen is None else {}
            return _finish(plan, prediction, seen, guessed, wanted)
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


def _two_party(
    graph: Graph,
    calibration: Calibration,
    input_range: InputRanges,
    weight_bits: int,
    activation_bits: int | str,
    max_memory: int,
    name: str | None,
    wanted: Wanted,
    options: dict[str, Any],
) -> Plan:
    from . import two_party

    settings = _options({**options, "max_memory": max_memory}, two_party.Options)
    samples = _samples(check_graph(graph), calibration)
    plan = two_party.compile_two_party(
        graph,
        samples,
        input_range,
        weight_bits,
        activation_bits,
        name or graph.name,
        settings,
        wanted.labels,
        wanted.classes,
    )
    state(plan.document, wanted.precision)
    return Plan(_plain(plan.document), plan.weights)


def _non_interactive(
    graph: Graph,
    calibration: Calibration,
    input_range: InputRanges,
    max_memory: int,
    name: str | None,
    batch: int,
    options: dict[str, Any],
) -> Plan:
    from .non_interactive import batch as engine

    settings = _options({**options, "max_memory": max_memory}, engine.Options)
    samples = _samples(check_graph(graph), calibration)
    plan = engine.compile_batch(graph, samples, input_range, name or graph.name, batch, settings)
    return Plan(_plain(plan.document), plan.weights)


def _options(options: dict[str, Any], kind: Any) -> Any:
    try:
        return kind(**options)
    except TypeError:
        known = {*kind.__dataclass_fields__, *inspect.signature(compile).parameters} - {"graph", "options"}
        raise PlanError(_unknown(sorted(set(options) - known), sorted(known))) from None


def _unknown(given: Sequence[str], known: Sequence[str]) -> str:
    """A sentence for every option that does not exist, with the one that was probably meant."""
    said = []
    for name in given:
        near = difflib.get_close_matches(name, known, n=1)
        said.append(f"There is no option {name!r}{f': did you mean {near[0]!r}?' if near else '.'}")
    return f"{' '.join(said)} The options are {', '.join(known)}."


def _check_request(batch: int, trust: str, settings: Options) -> None:
    if trust not in TRUST:
        raise PlanError(f"trust is {trust!r}; choose one of {', '.join(TRUST)}")
    if not isinstance(batch, int) or batch < 1:
        raise PlanError(f"batch is {batch!r}; give a positive number of images")
    if settings.ring_degree not in (None, *RING_DEGREES):
        raise PlanError(f"ring_degree is {settings.ring_degree}; choose one of {RING_DEGREES} or None")
    if settings.engine not in ENGINES:
        raise PlanError(f"engine is {settings.engine!r}; choose one of {', '.join(ENGINES)}")
    if settings.engine == "packed" and settings.batch_only():
        raise PlanError("mask, drop and tiles are options of engine 'batch'; leave them out, or choose engine='batch'")
    if settings.tiles not in ("auto", "one"):
        raise PlanError(f"tiles is {settings.tiles!r}; give 'auto' or 'one'")
    if not 1.0 <= settings.margin <= 1e6:
        raise PlanError(f"margin is {settings.margin}; give a factor of at least 1")


def _samples(graph: Graph, calibration: Calibration) -> dict[str, Array] | None:
    if calibration is None:
        return None
    if not isinstance(calibration, Mapping):
        if len(graph.inputs) != 1:
            raise PlanError(f"the model has inputs {graph.inputs}; give calibration data as a dict by name")
        calibration = {graph.inputs[0]: calibration}
    if set(calibration) != set(graph.inputs):
        raise PlanError(f"calibration data is for {sorted(calibration)}, the model's inputs are {graph.inputs}")
    samples = {}
    for name, value in calibration.items():
        array = np.asarray(value)
        if array.dtype.kind not in "fiub" or array.shape[1:] != tuple(graph.shapes[name]) or array.ndim == 0:
            raise PlanError(
                f"calibration data of {name!r} has shape {array.shape} and dtype {array.dtype}; "
                f"give numbers of shape (images, {', '.join(map(str, graph.shapes[name]))})"
            )
        samples[name] = array.astype(np.float64)
        if not np.isfinite(samples[name]).all():
            raise PlanError(f"calibration data of {name!r} holds NaN or infinite values; remove those images")
    if len({v.shape[0] for v in samples.values()}) != 1:
        raise PlanError("calibration data has different numbers of images for different inputs")
    return samples


class _Planner:
    def __init__(self, graph: Graph, settings: Options, batch: int, max_memory: int, name: str) -> None:
        self.graph, self.settings, self.name = graph, settings, name
        self.request = Request(
            batch=batch,
            max_memory=max_memory,
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
        )
        lowered = lower(self.graph, forms, quantisation)
        degree = quantisation.ring_degree
        for port, pair in ranges.declared.items():
            lowered.limit(port, *hull(pair))
        said = notes(self.graph, ranges, lowered)
        drafted = lowered.plan(
            "client-aided", "batch", name=self.name, producer=self.settings.producer, ring_degree=degree, notes=said
        )
        drafted = Plan(_plain(drafted.document), drafted.weights)
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
            own = Plan(copy.deepcopy(drafted.document), drafted.weights)
            try:
                kind(own, stages, quantisation, self.request).run()
                made.append(Plan(_plain(own.document), own.weights))
            except PlanError as error:
                refused.append(error)
        if not made:
            raise refused[0]
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
    wanted = {source for tail in behind.values() for source in tail.sources}
    results = {node.output: plan.stages[i]["out"] for i, node in lowered.origin.items() if node.output in wanted}
    values = run(plan, samples, also=tuple(results.values()))
    squash, index = squashed(graph), places(graph)
    found = {}
    for port in plan.document["outputs"]:
        name = port["name"]
        found[name] = measure(values[name], ranges.floats[name], labels, squash.get(name), place=name in index)
    errors = {}
    for name, tensor in results.items():
        entry = plan.tensors[tensor]
        off = np.abs(values[entry["name"]] * entry["scale"] - ranges.floats[name])
        errors[name] = likely(off.reshape(len(off), -1).max(axis=1, initial=0.0))
    for output, tail in behind.items():
        most = carried(graph, tail, output, errors, ranges.limit)
        found[output] = replace(found[output], likely=max(found[output].likely, most))
    return found


def _finish(
    plan: Plan, prediction: Prediction, seen: dict[str, Quality] | None, guessed: dict[str, float], wanted: Wanted
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
        plan.document["notes"].append(_UNBOUNDED)
    plan.predicted.pop("worst_error", None)
    plan.predicted.update(errors[plan.document["outputs"][0]["name"]])
    plan.predicted["output_errors"] = errors
    plan.predicted["layer_errors"] = prediction.layers
    if seen:
        plan.predicted.update(said(seen, wanted.classes))
    state(plan.document, wanted.precision)
    validate(plan)
    return plan


_UNBOUNDED = (
    "The model divides, or takes a root or logarithm, of values that could be zero: no worst "
    "error follows from the ranges. "
    "The likely error is that of the calibration data."
)


def _spreads(spread: float, worst: float) -> dict[str, float]:
    return {"max_error": spread, "worst_error": worst, "propagated_error": spread}


def _plain(value: Any) -> Any:
    """NumPy scalars, arrays and tuples as what JSON has."""
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    return value.item() if isinstance(value, np.generic) else value

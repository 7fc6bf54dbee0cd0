"""What plans of a graph with different bits and methods have in common: its regions and the ranges of its tensors."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from ...graph import Graph
from ...options import TwoParty
from ...plan import PlanError
from ..check import check_graph
from ..feedback import Moments
from ..guards import between_layers, unguarded
from ..inputs import scale_inputs
from ..ranges import InputRanges, Ranges, from_calibration, from_intervals, input_intervals
from ..rewrite import _prune
from ..tail import tails
from ..targets import distances, scale_targets, target_centres
from .constants import constants_from_inputs
from .curves import fused, opened_up
from .joined import joined
from .masking import bounded_masks
from .means import divided_last
from .opened import strip_for_argmax
from .paths import Pick
from .regions import Regions, clipped_again, split
from .rows import narrow_rows, recognised, settled
from .steps import Step, to_steps
from .variance import centred
from .weights import Kept

Array = np.ndarray


@dataclass(frozen=True)
class Prepared:
    """A graph that is ready to be planned.

    Attributes:
        name, outputs: of the network, and of its outputs as it was given.
        graph: as it is computed in the clear; ``shared`` has functions as one op.
        regions: who computes what.
        ranges: of all tensors, before any rounding.
        moments: of what layers read, where weights are rounded with feedback.
        steps: of the shared region.
        columns: centres of columns that count each by itself, by output.
        far: of opened targets that lie far from zero, bits that they have in common, by tensor.
        picked: the methods of all layers by what they follow from, as plans of the graph find them.
        rounded: integer weights of the layers, as plans of the graph make them.
    """

    name: str
    outputs: list[str]
    graph: Graph
    shared: Graph
    regions: Regions
    ranges: Ranges
    moments: Moments | None
    steps: list[Step]
    columns: dict[str, Array] = field(default_factory=dict)
    far: dict[str, int] = field(default_factory=dict)
    picked: dict[tuple[object, ...], dict[int, dict[str, Pick]]] = field(default_factory=dict)
    rounded: Kept = field(default_factory=dict)


def prepare(
    graph: Graph,
    samples: dict[str, Array] | None,
    settings: TwoParty,
    moments: Moments | None = None,
    classes: tuple[str, ...] = (),
) -> Prepared:
    """All that comes before bits are chosen; the settings' bits and methods change nothing here.

    Args:
        moments: empty ones, which are taken from the samples.
        classes: outputs whose labels are the answers.

    Raises:
        PlanError: what cannot be planned, with the layer and what to do.
    """
    graph = check_graph(graph)
    input_range, name = settings.input_range, settings.name or graph.name
    if settings.input_scales:
        graph = scale_inputs(graph, samples, settings.margin, input_range)
    output_names = list(graph.outputs)
    if settings.reveal == "output":
        graph = scale_targets(graph, samples, classes)
    if settings.reveal == "argmax":
        graph = strip_for_argmax(graph)
    if samples is not None and between_layers(graph):
        graph = unguarded(graph, from_calibration(graph, samples, settings.margin, input_range).least)
        _prune(graph)
    graph, masks = bounded_masks(recognised(centred(graph)), lambda g: _reach(g, samples, settings.margin, input_range))
    whole = joined(divided_last(settled(fused(graph))))
    graph = constants_from_inputs(whole)
    shapes = {**whole.shapes, **graph.shapes}
    graph = Graph(graph.name, list(graph.inputs), list(graph.outputs), shapes, list(graph.nodes))
    _prune(graph)
    regions = split(graph)
    # in the clear a function is the ops that it was made of, and so is a network that is measured
    last = clipped_again(graph, regions.shared, opened_up(regions.tail))
    regions = replace(regions, head=opened_up(regions.head), tail=last)
    shared, graph = graph, replace(graph, nodes=opened_up(graph.nodes))
    if settings.reveal == "argmax":
        _check_scores(graph, regions)
    ranges = _ranges(graph, regions, samples, settings.margin, input_range, moments)
    ranges.limit.update({t: max(most, ranges.limit.get(t, 0.0)) for t, most in masks.items()})
    regions = replace(regions, shared=narrow_rows(regions.shared, ranges.limit))
    columns: dict[str, Array] = {}
    far: dict[str, int] = {}
    if samples is not None and settings.reveal == "output":
        named = dict(zip(graph.outputs, output_names))
        exact = {t: ranges.floats[t] for t in graph.outputs}
        centres = target_centres(graph, exact, [t for t in graph.outputs if named[t] in classes])
        columns = {named[t]: centre for t, centre in centres.items()}
        far = {t: bits for t, bits in distances(graph, exact, centres).items() if t in regions.opened}
    steps = to_steps(shared, regions)
    return Prepared(name, output_names, graph, shared, regions, ranges, moments, steps, columns, far)


def rounded_otherwise(
    made: Prepared, samples: dict[str, Array] | None, settings: TwoParty, moments: Moments | None
) -> Prepared:
    """What is prepared, for plans that round weights in the other way: all but moments and weights is the same."""
    if moments is not None and samples is not None:
        from_calibration(made.graph, samples, settings.margin, settings.input_range, watch=moments.watch)
    return replace(made, moments=moments, rounded={})


def _reach(graph: Graph, samples: dict[str, Array] | None, margin: float, declared: InputRanges) -> Mapping[str, float]:
    """The largest absolute value of every tensor; nothing where neither data nor declared ranges bound them all."""
    if samples is not None:
        return from_calibration(graph, samples, margin, declared).limit
    try:
        return from_intervals(graph, input_intervals(graph, declared)).limit
    except PlanError:
        return {}


def _check_scores(graph: Graph, regions: Regions) -> None:
    """What is opened as the index of the largest score.

    Raises:
        PlanError: it is not one output of several scores that is computed on shares.
    """
    found = ", ".join(regions.opened)
    if len(regions.opened) == 1 and math.prod(graph.shapes[found]) == 1:
        raise PlanError(
            f"reveal='argmax' needs several scores, and {found!r} is one, whose sign is the label; use reveal='output'"
        )
    if regions.tail or len(regions.opened) != 1:
        advice = f"until={found!r} does" if len(regions.opened) == 1 else f"{found} are computed on shares"
        raise PlanError(
            "reveal='argmax' needs one output that is computed on shares; end the network in its scores: " + advice
        )


def _ranges(
    graph: Graph,
    regions: Regions,
    samples: dict[str, Array] | None,
    margin: float,
    declared: InputRanges,
    moments: Moments | None,
) -> Ranges:
    """Calibrated ranges, and ``moments`` of what layers read.

    Or, without data, intervals of what enters (everything else then follows from integer bounds).
    """
    if samples is not None:
        also = {head for tail in tails(graph).values() for head in tail.heads}
        watch = None if moments is None else moments.watch
        return from_calibration(graph, samples, margin, declared, also, watch=watch)
    inputs = input_intervals(graph, declared)
    front = Graph(graph.name, graph.inputs, regions.entering, graph.shapes, list(regions.head))
    return from_intervals(front, inputs)

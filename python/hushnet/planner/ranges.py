"""Ranges of the graph's tensors: from calibration data, or from interval arithmetic over declared input ranges."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..graph import Conv2d, Geometry, Graph, Linear
from ..plan import PlanError
from ..reference.linear import add_bias, apply
from .rules import RULES, Pair, magnitude

Array = np.ndarray
Range = tuple[float, float]
InputRanges = Range | Mapping[str, Range] | None

CALIBRATION_BYTES = 256 << 20
# random inputs of which outputs are looked at where there is no calibration data; one of a network with more
# elements than this
RANDOM_ROWS, MANY_ELEMENTS = 4, 1_000_000
# ops whose results stay in an interval of their own, whatever comes in: no margin is needed beyond it
_SATURATING = frozenset({"clip", "sigmoid", "tanh", "hard_sigmoid"})


@dataclass(frozen=True)
class Growth:
    """How far calibration data has shown its largest values.

    Attributes:
        rows: images in all.
        factor: largest value of all images over that of the first half of them, of the tensor that grew most.
        tensor: that tensor.
        margin: planned range over the largest value.
    """

    rows: int
    factor: float
    tensor: str
    margin: float

    def sentence(self) -> str:
        """What a user should know of it."""
        told = (
            f"Ranges are {self.margin:g} times the largest values of {self.rows} calibration rows. From the first "
            "half of the rows to all of them "
            f"a largest value grew by up to {100 * (self.factor - 1):.0f} % ({self.tensor!r})"
        )
        if self.factor <= self.margin:
            return told + "."
        return told + ", which is more than the margin: give more calibration data, or a larger margin."


@dataclass
class Ranges:
    """Planned range of every tensor.

    Attributes:
        limit: largest |x| that is planned for, by tensor.
        square: mean of x^2, by tensor (known with calibration only).
        mean: elementwise mean over the images, by input tensor of a linear layer (known with calibration only).
        inputs: interval of every graph input.
        grown: how the largest values grew with samples (known with calibration only).
        least: least value, by tensor, divided by the margin where it is positive (known with calibration only).
        declared: intervals that clients clamp inputs to: those that the caller gave, and without calibration data all.
        source: "calibration" or "intervals".
        floats: outputs (and what else was asked for) of the float execution on the calibration data, by name.
    """

    limit: dict[str, float]
    inputs: dict[str, Range]
    source: str
    square: dict[str, float] = field(default_factory=dict)
    mean: dict[str, Array] = field(default_factory=dict)
    floats: dict[str, Array] = field(default_factory=dict)
    declared: dict[str, Range] = field(default_factory=dict)
    grown: Growth | None = None
    least: dict[str, float] = field(default_factory=dict)


def plan_geometry(geometry: Geometry) -> dict[str, Any]:
    """The geometry as the plan writes it."""
    if not isinstance(geometry, Conv2d):
        return {"type": "dense", "inputs": geometry.inputs, "outputs": geometry.outputs}
    return {
        "type": "conv2d",
        "input": list(geometry.input),
        "output": list(geometry.output),
        "kernel": list(geometry.kernel),
        "stride": list(geometry.stride),
        "pads": list(geometry.pads),
        "dilation": list(geometry.dilation),
        "groups": geometry.groups,
    }


def input_intervals(graph: Graph, input_range: InputRanges) -> dict[str, Range]:
    """The declared interval of every graph input; [0, 1] where nothing is declared.

    Raises:
        PlanError: an unknown input, or an interval that is empty or not finite.
    """
    if isinstance(input_range, Mapping):
        unknown = sorted(set(input_range) - set(graph.inputs))
        if unknown:
            raise PlanError(f"input_range names {unknown}, the model's inputs are {graph.inputs}")
        given = {name: input_range.get(name, (0.0, 1.0)) for name in graph.inputs}
    else:
        given = dict.fromkeys(graph.inputs, input_range or (0.0, 1.0))
    for name, (low, high) in given.items():
        if not (math.isfinite(low) and math.isfinite(high) and low <= high):
            raise PlanError(f"input_range of {name!r} is ({low}, {high}); give finite numbers, the smaller first")
    return {name: (float(low), float(high)) for name, (low, high) in given.items()}


def linear_interval(geometry: dict[str, Any], weight: Array, bias: Array, interval: Pair) -> Pair:
    """Interval of ``W x + b`` for x in an elementwise interval (per-image shapes)."""
    middle, radius = (interval[1] + interval[0]) / 2, (interval[1] - interval[0]) / 2
    centre = add_bias(geometry, apply(geometry, weight, middle[None])[0], bias)
    spread = apply(geometry, np.abs(weight), radius[None])[0]
    slack = (np.abs(centre) + spread) * 1e-12
    return centre - spread - slack, centre + spread + slack


def from_intervals(graph: Graph, inputs: dict[str, Range]) -> Ranges:
    """Ranges that hold for every input of the declared intervals.

    Raises:
        PlanError: no finite interval for a tensor.
    """
    values: dict[str, Pair] = {
        name: (np.full(graph.shapes[name], low), np.full(graph.shapes[name], high))
        for name, (low, high) in inputs.items()
    }
    uses = _uses(graph)
    limit = {name: float(max(abs(low), abs(high))) for name, (low, high) in inputs.items()}
    for node in graph.nodes:
        if isinstance(node, Linear):
            shaped = values[node.input]
            values[node.output] = linear_interval(
                plan_geometry(node.geometry), node.weight, node.bias, _shaped(node, shaped)
            )
            sources = [node.input]
        else:
            ins = [values[t] for t in node.inputs]
            values[node.output] = RULES[node.op].interval(node.attrs, ins, graph.shapes[node.output])
            sources = node.inputs
        largest = float(magnitude(values[node.output]).max(initial=0.0))
        if not math.isfinite(largest):
            raise PlanError(
                f"node {node.name!r}: no finite range for {node.output!r} follows from the input ranges; give "
                "calibration data"
            )
        limit[node.output] = largest
        for tensor in sources:
            uses[tensor] -= 1
            if uses[tensor] == 0:
                values.pop(tensor, None)
    return Ranges(limit, inputs, "intervals", declared=dict(inputs))


def typical_outputs(graph: Graph, inputs: Mapping[str, Range]) -> dict[str, float]:
    """Largest outputs by name on random inputs of the declared ranges.

    They say how large outputs usually are, where no data tells. Interval arithmetic only tells how large they could be.
    Outputs that are not finite are left out.
    """
    from ..reference.float import evaluate

    rng = np.random.default_rng(0)
    count = RANDOM_ROWS if sum(math.prod(s) for s in graph.shapes.values()) < MANY_ELEMENTS else 1
    rows = {name: rng.uniform(low, high, (count, *graph.shapes[name])) for name, (low, high) in inputs.items()}
    with np.errstate(all="ignore"):
        tops = {name: float(np.abs(value).max(initial=0.0)) for name, value in evaluate(graph, rows).items()}
    return {name: top for name, top in tops.items() if math.isfinite(top)}


def _shaped(node: Linear, pair: Pair) -> Pair:
    if isinstance(node.geometry, Conv2d):
        return pair
    return pair[0].reshape(-1), pair[1].reshape(-1)


def _uses(graph: Graph) -> dict[str, int]:
    uses: dict[str, int] = {}
    for node in graph.nodes:
        for tensor in [node.input] if isinstance(node, Linear) else node.inputs:
            uses[tensor] = uses.get(tensor, 0) + 1
    return uses


def from_calibration(
    graph: Graph, samples: dict[str, Array], margin: float, input_range: InputRanges, also: Iterable[str] = ()
) -> Ranges:
    """Ranges from a float run over sample inputs, times ``margin``; declared input ranges are kept as they are.

    ``also`` names tensors beside the outputs whose values are kept in ``floats``.

    Raises:
        PlanError: no samples, or a value that is not finite.
    """
    from ..reference.float import evaluate

    count = next(iter(samples.values())).shape[0]
    if count == 0:
        raise PlanError("the calibration data has no images; give at least one, better some hundred")
    step = max(1, CALIBRATION_BYTES // max(1, 8 * sum(math.prod(s) for s in graph.shapes.values())))
    largest: dict[str, float] = {}
    half: dict[str, float] = {}
    lowest: dict[str, float] = {}
    square: dict[str, float] = {}
    mean: dict[str, Array] = {n.input: np.zeros(graph.shapes[n.input]) for n in graph.nodes if isinstance(n, Linear)}
    floats: dict[str, list[Array]] = {name: [] for name in (*graph.outputs, *also)}
    for start in range(0, count, step):
        part = {k: v[start : start + step] for k, v in samples.items()}
        for name, value in evaluate(graph, part, keep_all=True).items():
            top = float(np.abs(value).max(initial=0.0))
            if not math.isfinite(top):
                raise PlanError(
                    f"the float run over the calibration data gives a value that is not finite in {name!r}; check the "
                    "model and the data"
                )
            largest[name] = max(largest.get(name, 0.0), top)
            lowest[name] = min(lowest.get(name, math.inf), float(value.min(initial=math.inf)))
            if start < count // 2:
                early = np.abs(value[: count // 2 - start]).max(initial=0.0)
                half[name] = max(half.get(name, 0.0), float(early))
            square[name] = (
                square.get(name, 0.0) + float(np.square(value).mean()) * next(iter(part.values())).shape[0] / count
            )
            if name in mean:
                mean[name] += value.sum(axis=0) / count
            if name in floats:
                floats[name].append(value)
    limit = {name: margin * top for name, top in largest.items()}
    for node in graph.nodes:
        if not isinstance(node, Linear) and node.op in _SATURATING:
            reach = np.full(1, limit[node.inputs[0]])
            most = float(magnitude(RULES[node.op].interval(node.attrs, [(-reach, reach)], (1,))).max())
            limit[node.output] = min(limit[node.output], max(most, largest[node.output]))
    inputs = {name: (-limit[name], limit[name]) for name in graph.inputs}
    declared = input_intervals(graph, input_range) if input_range is not None else {}
    if isinstance(input_range, Mapping):
        declared = {name: r for name, r in declared.items() if name in input_range}
    for name, (low, high) in declared.items():
        slack = 1e-9 * (high - low)
        least, most = float(samples[name].min()), float(samples[name].max())
        if least < low - slack or most > high + slack:
            raise PlanError(
                f"the calibration data of {name!r} lies in [{least:.6g}, {most:.6g}], outside the declared input_range "
                f"({low}, {high})"
            )
        limit[name], inputs[name] = max(abs(low), abs(high)), (low, high)
    outputs = {name: np.concatenate(parts) for name, parts in floats.items()}
    grown = max(((largest[n] / v, n) for n, v in half.items() if v > 0), default=None)
    growth = None if grown is None else Growth(count, grown[0], grown[1], margin)
    lowest = {n: v / margin if v > 0 else v * margin for n, v in lowest.items()}
    return Ranges(limit, inputs, "calibration", square, mean, outputs, declared, growth, lowest)

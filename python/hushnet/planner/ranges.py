"""Ranges of the graph's tensors: from calibration data, or from interval arithmetic over declared input ranges."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..graph import Conv2d, Geometry, Graph, Linear
from ..plan import PlanError
from ..reference.linear import add_bias, apply
from .rules import RULES, Pair, magnitude

Array = np.ndarray
Range = tuple[Any, Any]
"""Least and largest value: numbers, or arrays with a number for every feature."""
InputRanges = Range | Mapping[str, Range] | None

CALIBRATION_BYTES = 256 << 20
# fewer calibration rows are said to be few
FEW_ROWS = 8
# random inputs of which outputs are looked at where there is no calibration data; one of a network with more
# elements than this
RANDOM_ROWS, MANY_ELEMENTS = 4, 1_000_000
# values of a drawn row lie in this part of their ranges at least
NARROWEST = 16.0
# ops whose results stay in an interval of their own, whatever comes in: no margin is needed beyond it
_SATURATING = frozenset({"clip", "sigmoid", "tanh", "hard_sigmoid"})
# ops by which clients give features scales of their own
_OWN = frozenset({"reshape", "channel_scale", "pad", "interpolate"})


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
        if self.rows == 1:
            return (
                f"Ranges are {self.margin:g} times the largest values of one calibration row. One row says little of "
                "other inputs: give some hundred, or ranges and errors are guesses."
            )
        told = (
            f"Ranges are {self.margin:g} times the largest values of {self.rows} calibration rows. From the first "
            "half of the rows to all of them "
            f"a largest value grew by up to {100 * (self.factor - 1):.0f} % ({self.tensor!r})"
        )
        if self.rows < FEW_ROWS:
            return (
                f"{told}. {self.rows} rows say little of other inputs: give some hundred, or ranges and errors are "
                "guesses."
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

    Ends are numbers where all features have the same ones, else arrays of the input's shape.

    Raises:
        PlanError: an unknown input, an interval that is empty or not finite, or one of other features.
    """
    if isinstance(input_range, Mapping):
        unknown = sorted(set(input_range) - set(graph.inputs))
        if unknown:
            raise PlanError(f"input_range names {unknown}, the model's inputs are {graph.inputs}")
        given = {name: input_range.get(name, (0.0, 1.0)) for name in graph.inputs}
    else:
        given = dict.fromkeys(graph.inputs, (0.0, 1.0) if input_range is None else input_range)
    return {name: _interval(name, pair, graph.shapes[name]) for name, pair in given.items()}


def _interval(name: str, pair: Any, shape: tuple[int, ...]) -> Range:
    """A declared interval, checked.

    Raises:
        PlanError: it is no pair of finite numbers, or of one for each feature.
    """
    try:
        low, high = (np.asarray(end, dtype=np.float64) for end in pair)
    except (TypeError, ValueError):
        raise PlanError(
            f"input_range of {name!r} is no pair of numbers; give the least and the largest value, or an array of each"
        ) from None
    if low.ndim == high.ndim == 0:
        if not (np.isfinite(low) and np.isfinite(high) and low <= high):
            raise PlanError(f"input_range of {name!r} is ({low}, {high}); give finite numbers, the smaller first")
        return float(low), float(high)
    ends = []
    for end in (low, high):
        if end.ndim == 1 and len(shape) > 1 and len(end) == shape[0]:
            # a number for every channel
            end = end.reshape(-1, *(1,) * (len(shape) - 1))
        try:
            ends.append(np.broadcast_to(end, shape).astype(np.float64))
        except ValueError:
            raise PlanError(
                f"input_range of {name!r} has arrays of shape {end.shape}; give a number for each of its features, of "
                f"which there are {', '.join(map(str, shape))}"
            ) from None
    wrong = np.flatnonzero(~(np.isfinite(ends[0]) & np.isfinite(ends[1]) & (ends[0] <= ends[1])).reshape(-1))
    if len(wrong):
        k = int(wrong[0])
        raise PlanError(
            f"input_range of feature {k} of {name!r} is ({ends[0].reshape(-1)[k]}, {ends[1].reshape(-1)[k]}); give "
            f"finite numbers, the smaller first. {len(wrong)} features have no such range"
        )
    return ends[0], ends[1]


def by_feature(pair: Range) -> bool:
    """Whether an interval has ends for every feature."""
    return np.ndim(pair[0]) > 0


def hull(pair: Range) -> tuple[float, float]:
    """The least and the largest value of all features."""
    return float(np.min(pair[0])), float(np.max(pair[1]))


def own_intervals(graph: Graph, declared: Mapping[str, Range]) -> dict[str, Pair]:
    """Intervals of what clients make of inputs whose features have ranges of their own, by moves and scales.

    These hold for all inputs of the declared ranges; calibration data need not reach their ends.
    """
    known: dict[str, Pair] = {
        name: (np.asarray(pair[0]), np.asarray(pair[1])) for name, pair in declared.items() if by_feature(pair)
    }
    for node in graph.nodes:
        if not isinstance(node, Linear) and node.op in _OWN and all(name in known for name in node.inputs):
            pairs = [known[name] for name in node.inputs]
            known[node.output] = RULES[node.op].interval(node.attrs, pairs, graph.shapes[node.output])
    return known


def linear_interval(geometry: dict[str, Any], weight: Array, bias: Array, interval: Pair) -> Pair:
    """Interval of ``W x + b`` for x in an elementwise interval (per-image shapes).

    What reads an element of which an end is infinite, or no number, may be anything; a weight of zero reads nothing.
    """
    known = np.isfinite(interval[0]) & np.isfinite(interval[1])
    low, high = (np.where(known, end, 0.0) for end in interval)
    middle, radius = (high + low) / 2, (high - low) / 2
    centre = add_bias(geometry, apply(geometry, weight, middle[None])[0], bias)
    spread = weighed(geometry, np.abs(weight), np.where(known, radius, np.inf)[None])[0]
    slack = (np.abs(centre) + spread) * 1e-12
    return centre - spread - slack, centre + spread + slack


def weighed(geometry: dict[str, Any], weight: Array, values: Array) -> Array:
    """``W x`` of weights and values [rows, ...] from zero on, of which values may be infinite: zero times one is zero.

    What is no number counts as infinite.
    """
    unknown = ~np.isfinite(values)
    if not unknown.any():
        return apply(geometry, weight, values)
    known = apply(geometry, weight, np.where(unknown, 0.0, values))
    read = apply(geometry, (weight > 0).astype(np.float64), unknown.astype(np.float64))
    return np.where(read > 0, np.inf, known)


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
    limit = {name: max(map(abs, hull(pair))) for name, pair in inputs.items()}
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


def drawn_rows(graph: Graph, inputs: Mapping[str, Range], count: int) -> dict[str, Array]:
    """Inputs that stand for those of declared ranges, where no data does, by name.

    Half of them are spread evenly over the ranges. The values of each of the others lie together, in a part of the
    ranges between all of them and 1 / :data:`NARROWEST`, at a place of its own: rows of little variance.
    """
    rng = np.random.default_rng(1)
    parts = np.where(np.arange(count) % 2, NARROWEST ** -rng.random(count), 1.0)
    found = {}
    for name in graph.inputs:
        shape = (count, *graph.shapes[name])
        part = parts.reshape((count,) + (1,) * len(graph.shapes[name]))
        low, high = (np.broadcast_to(end, shape[1:]) for end in inputs[name])
        place = rng.random((count,) + (1,) * len(graph.shapes[name])) * (1.0 - part)
        found[name] = low + (place + part * rng.random(shape)) * (high - low)
    return found


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
    graph: Graph,
    samples: dict[str, Array],
    margin: float,
    input_range: InputRanges,
    also: Iterable[str] = (),
    watch: Callable[[Graph, Mapping[str, Array], int, int], None] | None = None,
) -> Ranges:
    """Ranges from a float run over sample inputs, times ``margin``; declared input ranges are kept as they are.

    ``also`` names tensors beside the outputs whose values are kept in ``floats``. ``watch`` is called with the graph,
    the values of all tensors for some rows, the first of these rows and the number of all.

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
        values = evaluate(graph, part, keep_all=True)
        for name, value in values.items():
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
        if watch is not None:
            watch(graph, values, start, count)
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
    for name, pair in declared.items():
        check_inside(name, samples[name], pair)
        limit[name], inputs[name] = max(map(abs, hull(pair))), pair
    for name, interval in own_intervals(graph, declared).items():
        limit[name] = float(magnitude(interval).max(initial=0.0))
    outputs = {name: np.concatenate(parts) for name, parts in floats.items()}
    grown = max(((largest[n] / v, n) for n, v in half.items() if v > 0), default=None)
    if grown is None and count == 1:
        grown = (1.0, graph.inputs[0]) if graph.inputs else None
    growth = None if grown is None else Growth(count, grown[0], grown[1], margin)
    lowest = {n: v / margin if v > 0 else v * margin for n, v in lowest.items()}
    return Ranges(limit, inputs, "calibration", square, mean, outputs, declared, growth, lowest)


def check_inside(name: str, samples: Array, pair: Range) -> None:
    """Calibration data keep to what is declared.

    Raises:
        PlanError: with the range of the data, and of the first feature outside where features have ranges.
    """
    low, high = pair
    slack = 1e-9 * (np.asarray(high) - np.asarray(low))
    outside = (samples < low - slack) | (samples > high + slack)
    if not outside.any():
        return
    if not by_feature(pair):
        raise PlanError(
            f"the calibration data of {name!r} lies in [{samples.min():.6g}, {samples.max():.6g}], outside the "
            f"declared input_range ({low}, {high})"
        )
    places = np.flatnonzero(outside.any(axis=0).reshape(-1))
    k = int(places[0])
    values, low, high = samples.reshape(len(samples), -1)[:, k], low.reshape(-1)[k], high.reshape(-1)[k]
    raise PlanError(
        f"feature {k} of the calibration data of {name!r} lies in [{values.min():.6g}, {values.max():.6g}], outside "
        f"its declared input_range ({low:g}, {high:g}). {len(places)} features leave theirs; widen these"
    )

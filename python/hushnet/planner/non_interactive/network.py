"""A network as encrypted evaluation sees it.

Folded steps over real numbers, its float reference, and what the engines read.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.polynomial import polynomial as poly

from ...errors import PlanError
from ...graph import Conv2d, Graph, Op
from ...passes import Ends, split_ends
from ...passes.edit import copy, fresh
from ...reference.float import evaluate
from ...reference.linear import add_bias, apply
from ..ranges import InputRanges, Range, check_inside, hull, input_intervals, linear_interval, plan_geometry
from ..rules import RULES
from . import fold
from .lower import lower
from .normalise import normalise
from .products import PRODUCTS
from .steps import Add, Array, Linear, Multiply, Polynomial, Step, Steps, Tensor, sources

SAFETY = 1.25
CHUNK_BYTES = 256 << 20
MERGE = ("auto", "always", "never")
MAGNITUDE_IMAGES = 32
USUAL_IMAGES = 128
ALONE = (
    "The network has no layer with weights: the client computes all of it by itself, and the server learns nothing "
    "of its run. One number travels, so that the plan is like any other."
)
# of the one input, or by name
Images = Array | Mapping[str, Array]


@dataclass(frozen=True)
class Reach:
    """How far the operands of a polynomial went, in the units of the network (``Tensor.factor`` leads to the graph's).

    Attributes:
        name: of the polynomial.
        largest: largest magnitude.
        range: largest magnitude that was planned for.
        outside: share of values outside the planned interval.
    """

    name: str
    largest: float
    range: float
    outside: float


@dataclass(frozen=True)
class Run:
    """What a float run gives: the graph's output for every image, and the reach of every polynomial."""

    output: Array
    polynomials: list[Reach]

    def outside(self) -> list[Reach]:
        """Polynomials with operands outside their planned interval."""
        return [r for r in self.polynomials if r.outside > 0]


@dataclass
class Network:
    """Steps between the client's two ends.

    Attributes:
        name: model name.
        tensors: by id, dense; 0 is the input.
        steps: in order of execution.
        output: id of the output tensor.
        head: what the client computes before encryption (a graph of client ops), or None.
        tail: what the client computes after decryption, or None.
        inputs: shapes of an image as the user gives it, by input.
        outputs: of the graph: by name either from what the client decrypts, or (``own``) from what it has.
        own: outputs that need no layer, which the head computes.
        notes: what was folded, and what users must know.
        clamped: weights that were moved to the threshold.
        declared: intervals that clients clamp inputs to: what the caller gave, and without calibration data [0, 1].
    """

    name: str
    tensors: list[Tensor]
    steps: list[Step]
    output: int
    head: Graph | None
    tail: Graph | None
    inputs: dict[str, tuple[int, ...]]
    outputs: list[str]
    own: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    clamped: int = 0
    declared: dict[str, tuple[float, float]] = field(default_factory=dict)

    @classmethod
    def from_graph(
        cls,
        graph: Graph,
        *,
        calibration: Images | None = None,
        input_range: InputRanges = None,
        ranges: Mapping[str, float] | None = None,
        safety: float = SAFETY,
        merge: str = "auto",
        clamp: float | None = None,
        balance: bool = True,
    ) -> Network:
        """Folds a graph whose activations are polynomials.

        See :func:`hushnet.planner.non_interactive.replace_activations`.

        Args:
            graph: several inputs are encrypted as one tensor, several outputs decrypted as one
                (:mod:`hushnet.passes.ends`).
            calibration: images (B, *shape), by input where there are several, from which bounds are taken; without them
                bounds are
                those of interval arithmetic.
            input_range: (low, high) of the inputs, for all or by name (default: [0, 1], or what calibration shows times
                ``safety``
                where it leaves that).
            ranges: planned range of pre-activations by tensor name; the calibrated bound where none is given.
            safety: bound over the largest calibrated magnitude.
            merge: "auto", "always" or "never": which pairs of linear layers become one (:func:`fold.merge`).
            clamp: threshold below which weights are moved to it.
            balance: choose units in which every tensor's bound is near 1.

        Raises:
            PlanError: the nodes that are not polynomial, with what to do; a bad option.
        """
        if merge not in MERGE:
            raise PlanError(f"merge is {merge!r}; choose one of {', '.join(MERGE)}")
        if not (math.isfinite(safety) and safety >= 1) or (clamp is not None and not 0 < clamp < 1):
            raise PlanError(
                f"safety is {safety} and clamp {clamp}; give a factor of at least 1 and a threshold between 0 and 1"
            )
        try:
            ends = split_ends(graph)
        except ValueError as error:
            raise PlanError(f"{error}; a plan needs an input and an output that depends on it") from None
        if not ends.body.nodes:
            ends = _alone(graph)
        first = ends.body.inputs[0]
        own = [name for name in graph.outputs if ends.head is not None and name in ends.head.outputs[1:]]
        inputs = _Inputs(graph, ends.head, first, calibration, input_range, safety)
        steps = lower(ends.body, dict(ranges or {}), inputs.magnitudes(ends.body))
        keep_a_step(steps)
        fold.prune(steps)
        inputs.measure(steps)
        for step in steps.steps:
            if isinstance(step, Polynomial) and not math.isfinite(step.range):
                bound = steps.tensors[step.source].bound
                step.interval = (-bound, bound)
        fold.drop_negligible(steps)
        fold.linear_polynomials(steps)
        notes = fold.merge(steps, merge)
        fold.complete_squares(steps)
        fold.constants_forward(steps)
        steps.renumber()
        inputs.measure(steps)
        normalise(steps, balance=balance)
        clamped = fold.clamp(steps, clamp) if clamp is not None else 0
        if clamped:
            notes.append(f"{clamped} weights below {clamp:g} were moved to it")
        if ends.tail is not None:
            done = ", ".join(sorted({n.op for n in ends.tail.nodes if not hasattr(n, "geometry")}))
            notes.append(f"The client computes {done} at the end by itself, so it learns {ends.tail.inputs[0]}.")
        if len(own) == len(graph.outputs):
            notes.append(ALONE)
        if calibration is None:
            notes.append(
                "Bounds follow from interval arithmetic over the input range: safe, but wide. Calibration data gives "
                "better precision."
            )
        tensors = [steps.tensors[key] for key in range(len(steps.tensors))]
        return cls(
            graph.name,
            tensors,
            steps.steps,
            steps.output,
            ends.head,
            ends.tail,
            {name: tuple(graph.shapes[name]) for name in graph.inputs},
            list(graph.outputs),
            own,
            notes,
            clamped,
            _declared(graph, input_range, calibrated=calibration is not None),
        )

    # running

    @property
    def first(self) -> str:
        """The tensor of the graph (or of the head) that is encrypted."""
        return next(iter(self.inputs)) if self.head is None else self.head.outputs[0]

    def encrypted_input(self, images: Images) -> Array:
        """What the client encrypts: the head's result, of the input tensor's shape."""
        x = self._images(images)
        y = x[self.first] if self.head is None else evaluate(self.head, x)[self.first]
        return y.reshape(len(y), *self.tensors[0].shape)

    def opened(self, y: Array) -> Array:
        """The first output that is not the client's own, from what the client decrypts: (B, elements of the output)."""
        if self.tail is None:
            return y.reshape(len(y), *self.tensors[self.output].shape)
        name = self.tail.inputs[0]
        return evaluate(self.tail, {name: y.reshape(len(y), *self.tail.shapes[name])})[self.tail.outputs[0]]

    def run(self, images: Images) -> Run:
        """The network in binary64 on images (B, *input shape)."""
        x = self.encrypted_input(images)
        found: dict[str, list[float]] = {}
        parts = []
        for start in range(0, max(len(x), 1), self._chunk()):
            values = {0: x[start : start + self._chunk()]}
            self._execute(values, found)
            parts.append(values[self.output])
        reaches = [
            Reach(s.name, found[s.name][0], s.range, found[s.name][1] / max(1.0, found[s.name][2]))
            for s in self.steps
            if isinstance(s, Polynomial)
        ]
        return Run(self.opened(np.concatenate(parts)), reaches)

    def values(self, images: Images) -> dict[int, Array]:
        """Every tensor's values in binary64, by id."""
        values = {0: self.encrypted_input(images)}
        self._execute(values, {}, keep=True)
        return values

    def _execute(self, values: dict[int, Array], found: dict[str, list[float]], *, keep: bool = False) -> None:
        last = {t: i for i, step in enumerate(self.steps) for t in sources(step)}
        for index, step in enumerate(self.steps):
            if isinstance(step, Polynomial):
                x = values[step.source]
                entry = found.setdefault(step.name, [0.0, 0.0, 0.0])
                low, high = step.interval
                entry[0] = max(entry[0], float(np.abs(x).max(initial=0.0)))
                entry[1] += float(((x < low) | (x > high)).sum())
                entry[2] += x.size
            values[step.target] = execute(step, values).reshape(-1, *self.tensors[step.target].shape)
            for tensor in [t for t, i in last.items() if i == index and not keep and t != self.output]:
                values.pop(tensor, None)

    def _chunk(self) -> int:
        return max(1, CHUNK_BYTES // max(1, 8 * sum(t.size for t in self.tensors)))

    def _images(self, images: Images) -> dict[str, Array]:
        given = images if isinstance(images, Mapping) else {next(iter(self.inputs)): images}
        found = {name: np.asarray(given[name], dtype=np.float64) for name in self.inputs if name in given}
        for name, shape in self.inputs.items():
            if name not in found or found[name].shape[1:] != shape:
                came = np.shape(given[name]) if name in given else ()
                raise PlanError(
                    f"input {name!r}: images of shape {came}; the network reads (images, {', '.join(map(str, shape))})"
                )
        return found

    # what engines read

    @property
    def depth(self) -> int:
        """Levels on the longest path.

        1 a layer that multiplies, 0 a sum, ceil(log2 degree) a polynomial with leading coefficient +-1.
        """
        level = {0: 0}
        for step in self.steps:
            level[step.target] = max(level[t] for t in sources(step)) + step_depth(step)
        return level[self.output]

    def spec(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """The JSON document and the float64 arrays that an engine takes.

        ``{"input": id, "output": id, "tensors": [{"id", "name", "shape", "bound"}], "steps": [...]}`` with steps

        - ``{"kind": "linear", "name", "in", "out", "geometry", "weights": NAME, "bias": NAME}``; a bias has one value
          per output row or
          channel, or one per output element (then it has the output's shape); where all weights are 1 no multiplication
          is needed;
        - ``{"kind": "polynomial", "name", "in", "out", "coefficients": [lowest first], "range": r}``;
        - ``{"kind": "add", "name", "in": [ids], "out"}``;
        - ``{"kind": "multiply", "name", "in": [id, id], "out", "constant"}``.

        Tensors are row-major. The client encrypts :meth:`encrypted_input` and gives what it decrypts to :meth:`opened`.
        """
        arrays: dict[str, Array] = {}
        steps: list[dict[str, Any]] = []
        for index, step in enumerate(self.steps):
            if isinstance(step, Linear):
                names = {"weights": f"{index}.{step.name}.weight", "bias": f"{index}.{step.name}.bias"}
                arrays[names["weights"]] = np.ascontiguousarray(step.weights, dtype=np.float64)
                arrays[names["bias"]] = np.ascontiguousarray(step.bias, dtype=np.float64)
                entry = {"kind": "linear", "in": step.source, "geometry": step.geometry, **names}
            elif isinstance(step, Polynomial):
                entry = {"kind": "polynomial", "in": step.source, "coefficients": list(step.coefficients)}
                entry["range"] = step.range
            else:
                kind = "add" if isinstance(step, Add) else "multiply"
                entry = {"kind": kind, "in": list(step.sources)}
                if isinstance(step, Multiply):
                    entry["constant"] = step.constant
            steps.append({**entry, "name": step.name, "out": step.target})
        tensors = [{"id": t.id, "name": t.name, "shape": list(t.shape), "bound": t.bound} for t in self.tensors]
        return {"input": 0, "output": self.output, "tensors": tensors, "steps": steps}, arrays


def step_depth(step: Step) -> int:
    """Levels that a step uses."""
    if isinstance(step, (Add, Multiply)):
        return int(isinstance(step, Multiply))
    return step.depth if isinstance(step, Polynomial) else int(not step.is_sum)


def execute(step: Step, values: Mapping[int, Array]) -> Array:
    """One step on a batch."""
    if isinstance(step, Add):
        return sum((values[t] for t in step.sources[1:]), values[step.sources[0]])
    if isinstance(step, Multiply):
        x = values[step.sources[0]]
        return x * values[step.sources[1]].reshape(x.shape) + step.constant
    x = values[step.source]
    if isinstance(step, Polynomial):
        return poly.polyval(x, step.coefficients)
    y = apply(step.geometry, step.weights, x)
    return add_bias(step.geometry, y, step.bias) if step.bias.ndim == 1 else y + step.bias


def _declared(graph: Graph, input_range: InputRanges, *, calibrated: bool) -> dict[str, tuple[float, float]]:
    """Intervals that the caller gave; [0, 1] where nothing else says how far inputs go."""
    usual = None if calibrated else (0.0, 1.0)
    found = {n: usual if pair is None else hull(pair) for n, pair in _given(graph, input_range).items()}
    return {n: pair for n, pair in found.items() if pair is not None}


def _given(graph: Graph, input_range: InputRanges) -> dict[str, Range | None]:
    """What the caller gave for every input."""
    return {n: input_range.get(n) if isinstance(input_range, Mapping) else input_range for n in graph.inputs}


def some(images: Images, count: int) -> Images:
    """The first images."""
    return {k: v[:count] for k, v in images.items()} if isinstance(images, Mapping) else images[:count]


def _alone(graph: Graph) -> Ends:
    """Ends of a network without layers: the head computes every output.

    A plan encrypts something, so it encrypts one element of the first input, and the server sends it back.
    """
    whole = copy(graph)
    size = math.prod(whole.shapes[whole.inputs[0]])
    flat = fresh(whole, f"{whole.inputs[0]}.flat", (size,))
    sent = fresh(whole, f"{whole.inputs[0]}.first", (1,))
    one = {"starts": [0], "ends": [1], "axes": [0], "steps": [1]}
    whole.nodes += [
        Op(f"{flat}.reshape", "reshape", [whole.inputs[0]], flat),
        Op(f"{sent}.slice", "slice", [flat], sent, one),
    ]
    whole.outputs = [sent, *graph.outputs]
    return Ends(whole, Graph(graph.name, [sent], [sent], {sent: (1,)}, []), None)


def keep_a_step(steps: Steps) -> None:
    """Where the result is the input, a layer of weights 1 between them: engines compute something."""
    if steps.output != steps.input:
        return
    shape = (1, 1, steps.tensors[steps.input].size)
    geometry = plan_geometry(Conv2d(shape, shape, (1, 1)))
    steps.tensors[steps.input].shape = shape
    steps.output = steps.tensor(f"{steps.tensors[steps.input].name}.returned", shape)
    steps.steps.append(Linear("returned", geometry, np.ones((1, 1, 1, 1)), np.zeros(1), steps.input, steps.output))


class _Inputs:
    """Calibration images and the declared interval, behind the head."""

    def __init__(
        self,
        graph: Graph,
        head: Graph | None,
        first: str,
        calibration: Images | None,
        input_range: InputRanges,
        safety: float,
    ) -> None:
        self.safety = safety
        self.samples: Array | None = None
        samples: dict[str, Array] = {}
        if calibration is not None:
            given = calibration if isinstance(calibration, Mapping) else {graph.inputs[0]: calibration}
            samples = {name: self._checked(given.get(name, ()), graph.shapes[name]) for name in graph.inputs}
        pairs = {}
        said = {name for name, pair in _given(graph, input_range).items() if pair is not None}
        known = input_intervals(graph, input_range)
        for name in graph.inputs:
            low, high = self._interval(name, known[name] if name in said else None, samples.get(name))
            pairs[name] = (np.full(graph.shapes[name], low), np.full(graph.shapes[name], high))
        if samples:
            self.samples = samples[first] if head is None else evaluate(head, samples)[first]
        for node in [] if head is None else head.nodes:
            found = [pairs[name] for name in node.inputs]  # type: ignore[union-attr]
            pairs[node.output] = RULES[node.op].interval(node.attrs, found, head.shapes[node.output])  # type: ignore[union-attr]
        self.interval = pairs[first]
        if head is not None and self.samples is not None and input_range is None:
            # what is encrypted saturates: features of their own scales need no more than they showed
            most = safety * float(np.abs(self.samples).max(initial=0.0))
            self.interval = (np.clip(self.interval[0], -most, most), np.clip(self.interval[1], -most, most))

    def _interval(self, name: str, declared: Range | None, samples: Array | None) -> Range:
        if declared is not None:
            if samples is not None:
                check_inside(name, samples, declared)
            return declared
        if samples is None:
            return 0.0, 1.0
        least, most = float(samples.min()), float(samples.max())
        if least >= 0.0 and most <= 1.0:
            return 0.0, 1.0
        reach = self.safety * max(abs(least), abs(most))
        return (-reach if least < 0 else 0.0), reach

    @staticmethod
    def _checked(calibration: Any, shape: tuple[int, ...]) -> Array:
        samples = np.asarray(calibration, dtype=np.float64)
        if samples.shape[1:] != tuple(shape) or len(samples) == 0 or not np.isfinite(samples).all():
            raise PlanError(
                f"calibration data has shape {samples.shape}; give finite numbers of shape (images, "
                f"{', '.join(map(str, shape))})"
            )
        return samples

    def magnitudes(self, body: Graph) -> dict[str, float]:
        """Calibrated largest values of what private products read, by tensor; empty without calibration data."""
        factors = {t for n in body.nodes if isinstance(n, Op) and n.op in PRODUCTS for t in n.inputs}
        if self.samples is None or not factors:
            return {}
        first = body.inputs[0]
        few = self.samples[:MAGNITUDE_IMAGES]
        values = evaluate(body, {first: few.reshape(len(few), *body.shapes[first])}, keep_all=True)
        return {name: float(np.abs(values[name]).max(initial=0.0)) for name in factors}

    def measure(self, steps: Steps) -> None:
        """Sets bounds and intervals of all tensors."""
        tensors = steps.tensors
        pairs = {steps.input: tuple(p.reshape(tensors[steps.input].shape) for p in self.interval)}
        for step in steps.steps:
            pairs[step.target] = tuple(p.reshape(tensors[step.target].shape) for p in _interval(step, pairs))
        largest = self._largest(steps)
        for key, (low, high) in pairs.items():
            tensor = tensors[key]
            known = np.isfinite(low).all() and np.isfinite(high).all()
            tensor.interval = (float(low.min()), float(high.max())) if known else (-math.inf, math.inf)
            reach = max(abs(tensor.interval[0]), abs(tensor.interval[1]))
            calibrated = largest.get(key, 0.0)
            tensor.bound = reach if key == steps.input or not calibrated else min(reach, self.safety * calibrated)
            if not math.isfinite(tensor.bound):
                raise PlanError(
                    f"no finite range for {tensor.name!r} follows from the input range; give calibration data"
                )
        # what is always zero gets the bound of the smallest of the others
        least = min((t.bound for t in tensors.values() if t.bound > 0), default=1.0)
        for tensor in tensors.values():
            tensor.bound = tensor.bound or least

    def _largest(self, steps: Steps) -> dict[int, float]:
        if self.samples is None:
            return {}
        size = sum(t.size for t in steps.tensors.values())
        chunk = max(1, CHUNK_BYTES // (8 * size))
        largest: dict[int, float] = {}
        for start in range(0, len(self.samples), chunk):
            part = self.samples[start : start + chunk]
            values = {steps.input: part.reshape(len(part), *steps.tensors[steps.input].shape)}
            for step in steps.steps:
                values[step.target] = execute(step, values).reshape(len(part), *steps.tensors[step.target].shape)
            for key, value in values.items():
                top = float(np.abs(value).max())
                if not math.isfinite(top):
                    raise PlanError(
                        f"the float run over the calibration data leaves binary64 in {steps.tensors[key].name!r}; "
                        "check the activation's range"
                    )
                largest[key] = max(largest.get(key, 0.0), top)
        return largest


def _interval(step: Step, pairs: Mapping[int, Any]) -> tuple[Array, Array]:
    with np.errstate(over="ignore", invalid="ignore"):
        if isinstance(step, Add):
            return sum(pairs[t][0] for t in step.sources), sum(pairs[t][1] for t in step.sources)
        if isinstance(step, Multiply):
            ends = [a * b.reshape(a.shape) for a in pairs[step.sources[0]] for b in pairs[step.sources[1]]]
            return np.minimum.reduce(ends) + step.constant, np.maximum.reduce(ends) + step.constant
        low, high = pairs[step.source]
        if isinstance(step, Polynomial):
            if step.part:
                low, high = np.clip(low, *step.interval), np.clip(high, *step.interval)
            return polynomial_interval(step.coefficients, low, high)
        low, high = (_read_as(step, v) for v in (low, high))
        zero = np.zeros(len(step.weights))
        least, most = linear_interval(step.geometry, step.weights, zero, (low, high))
        bias = step.bias_image()
        return least + bias, most + bias


def _read_as(step: Linear, value: Array) -> Array:
    return value.reshape(step.geometry["input"]) if step.geometry["type"] == "conv2d" else value.reshape(-1)


def sign_changes(coefficients: Array, low: float, high: float) -> list[float]:
    """Where a polynomial changes its sign in (low, high).

    Between the sign changes of its slope it is monotone, so that halving finds them.

    Companion matrices would lose them where a leading coefficient is tiny beside the others.
    """
    if len(coefficients) < 2 or low >= high:
        return []
    edges = [low, *sign_changes(poly.polyder(coefficients), low, high), high]
    falling, found = [float(c) for c in reversed(coefficients)], []

    def value(x: float) -> float:
        total = 0.0
        for c in falling:
            total = total * x + c
        return total

    for a, b in itertools.pairwise(edges):
        left, right = value(a), value(b)
        if left == 0 or right == 0 or (left > 0) == (right > 0):
            if right == 0 and b < high:
                found.append(b)
            continue
        while a < (middle := a + (b - a) / 2) < b:
            a, b = (middle, b) if (value(middle) > 0) == (left > 0) else (a, middle)
        found.append(b)
    return found


def polynomial_interval(coefficients: tuple[float, ...], low: Array, high: Array) -> tuple[Array, Array]:
    """Smallest and largest value of a polynomial on every [low, high]: at the ends or at a critical point inside."""
    ends = [poly.polyval(low, coefficients), poly.polyval(high, coefficients)]
    least, most = np.minimum(*ends), np.maximum(*ends)
    slope = poly.polyder(np.asarray(coefficients, dtype=np.float64))
    for x in sign_changes(slope, float(low.min()), float(high.max())):
        value = poly.polyval(x, coefficients)
        inside = (low < x) & (x < high)
        least, most = np.where(inside, np.minimum(least, value), least), np.where(inside, np.maximum(most, value), most)
    slack = 1e-12 * np.maximum(np.abs(least), np.abs(most))
    return least - slack, most + slack


def usual_magnitudes(network: Network, samples: Images) -> dict[int, float]:
    """By tensor the largest root mean square of an element over calibration images."""
    values = network.values(some(samples, USUAL_IMAGES))
    return {key: float(np.sqrt((v**2).mean(axis=0)).max(initial=0.0)) for key, v in values.items()}

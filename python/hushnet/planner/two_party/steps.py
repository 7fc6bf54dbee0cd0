"""The shared part of a graph as steps that shares can do.

Kinds of ``docs/two-party.md``, and *gain*, a public factor that costs nothing.

Reductions become pools over one axis, averages sums with a gain (and local scalings where windows at the edge count
fewer elements), scalar multiplications gains, other affine ops layers. An activation that commutes with a maximum moves
behind it.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ...graph import Graph, Linear, Node, Op, Shape
from ...reference.ops import pool_counts
from .regions import MOVES, REDUCTIONS, Regions, obstacle
from .rows import Rows
from .unroll import UNROLLED

COMMUTES_WITH_MAXIMUM = frozenset({"relu", "clip", "leaky_relu"})


@dataclass(frozen=True)
class Step:
    """One operation on shares; ``layer`` for linear ones. ``shape`` is the output's.

    ``most`` and ``least`` bound the result's absolute value and its value, where that is proven.
    """

    kind: str
    name: str
    inputs: list[str]
    output: str
    shape: Shape
    attrs: dict[str, Any] = field(default_factory=dict)
    layer: Linear | None = None
    most: float | None = None
    least: float | None = None


class Writer:
    """Writes the steps of a graph's nodes."""

    def __init__(self, graph: Graph, shared: list[Node]) -> None:
        self.graph = graph
        self.steps: list[Step] = []
        # what the client has made before is no step: its result enters as it is
        self.producer: dict[str, Node] = {n.output: n for n in shared}
        self.taken = set(graph.shapes)
        # rows of exponentials by the tensor that has them
        self.rows: dict[str, Rows] = {}

    def fresh(self, name: str) -> str:
        """A tensor name that nothing has yet."""
        unique, number = name, 2
        while unique in self.taken:
            unique, number = f"{name}.{number}", number + 1
        self.taken.add(unique)
        return unique

    def put(
        self, kind: str, name: str, source: str | list[str], shape: Shape, output: str | None = None, **attrs: Any
    ) -> str:
        """A step with one result; its tensor."""
        inputs = [source] if isinstance(source, str) else source
        out = output or self.fresh(f"{name}.out")
        self.steps.append(Step(kind, name, inputs, out, tuple(shape), attrs))
        return out

    def bounded(self, tensor: str, *, most: float, least: float | None = None) -> str:
        """The tensor of the last step, whose range is proven."""
        assert self.steps[-1].output == tensor
        self.steps[-1] = replace(self.steps[-1], most=most, least=least)
        return tensor

    def layer(self, layer: Linear, shape: Shape) -> None:
        """A linear step."""
        self.steps.append(Step("linear", layer.name, [layer.input], layer.output, shape, layer=layer))

    def node(self, node: Any) -> None:
        """The steps of a node."""
        if isinstance(node, Linear):
            self.layer(node, self.graph.shapes[node.output])
            return
        shapes = [self.graph.shapes[t] for t in node.inputs]
        out = self.graph.shapes[node.output]
        if obstacle(self.graph, node) is not None:
            UNROLLED[node.op](self, node, shapes, out)
        elif node.op in MOVES:
            self.put(node.op, node.name, node.inputs, out, node.output, **node.attrs)
        elif node.op in REDUCTIONS:
            self.reduction(node, shapes[0], out)
        elif node.op in {"max_pool", "average_pool"}:
            self.pool(node, shapes[0], out)
        elif node.op in {"affine", "neg"}:
            mul, add = (-1.0, 0.0) if node.op == "neg" else (node.attrs["mul"], node.attrs["add"])
            self.affine(node.name, node.inputs[0], out, mul, add, node.output)
        elif node.op == "sub":
            negative = self.affine(f"{node.name}.negative", node.inputs[1], shapes[1], -1.0, 0.0, None)
            self.put("add", node.name, [node.inputs[0], negative], out, node.output)
        elif node.op in {"leaky_relu", "prelu"}:
            alpha = node.attrs["alpha"] if node.op == "leaky_relu" else node.attrs["slope"][0]
            self.leaky(node, out, alpha)
        elif node.op == "clip":
            self.clip(node, out)
        else:
            self.put(node.op, node.name, node.inputs, out, node.output)

    def leaky(self, node: Op, out: Shape, alpha: float) -> None:
        """Writes a leaky ReLU of slope ``alpha``; slope 0 is a ReLU, slope 1 changes nothing."""
        if alpha == 0:
            self.put("relu", node.name, node.inputs, out, node.output)
        elif alpha == 1:
            self.put("reshape", node.name, node.inputs, out, node.output)
        else:
            self.put("leaky_relu", node.name, node.inputs, out, node.output, alpha=alpha)

    def clip(self, node: Op, out: Shape) -> None:
        """Writes a clip; one from 0 without an upper end is a ReLU, one without ends changes nothing."""
        low, high = node.attrs.get("min"), node.attrs.get("max")
        if low == 0 and high is None:
            self.put("relu", node.name, node.inputs, out, node.output)
        elif low is None and high is None:
            self.put("reshape", node.name, node.inputs, out, node.output)
        else:
            # what max(low, min(x, high)) gives when low > high: high
            low = None if low is None else float(low if high is None else min(low, high))
            self.put(
                "clip", node.name, node.inputs, out, node.output, low=low, high=None if high is None else float(high)
            )

    def affine(self, name: str, source: str, shape: Shape, mul: float, add: float, output: str | None) -> str:
        """``x * mul + add``: a gain, and a constant added to the value or to its negative."""
        if add == 0 and mul > 0:
            return self.put("gain", name, source, shape, output, factor=float(mul))
        if abs(mul) != 1:
            source = self.put("gain", f"{name}.gain", source, shape, factor=abs(float(mul)))
        return self.put("shift", name, source, shape, output, by=float(add), negated=mul < 0)

    def reduction(self, node: Op, shape: Shape, out: Shape) -> None:
        """As a pool over one axis: the reduced axes last, merged."""
        axes = sorted(node.attrs["axes"])
        kept = [a for a in range(len(shape)) if a not in axes]
        count = math.prod(shape[a] for a in axes)
        source = node.inputs[0]
        if kept + axes != list(range(len(shape))):
            perm = kept + axes
            source = self.put("transpose", f"{node.name}.order", source, tuple(shape[a] for a in perm), perm=perm)
        rows = math.prod(shape[a] for a in kept)
        source = self.put("reshape", f"{node.name}.rows", source, (rows, 1, count))
        window: dict[str, Any] = {"kernel": [1, count], "stride": [1, count], "pads": [0, 0, 0, 0], "dilation": [1, 1]}
        kind = "max_pool" if node.op == "reduce_max" else "sum_pool"
        pooled = self.put(
            kind, f"{node.name}.pool" if kind == "max_pool" else f"{node.name}.sum", source, (rows, 1, 1), **window
        )
        if node.op == "reduce_mean":
            pooled = self.put("gain", f"{node.name}.mean", pooled, (rows, 1, 1), factor=1.0 / count)
        self.put("reshape", node.name, pooled, out, node.output)

    def pool(self, node: Op, shape: Shape, out: Shape) -> None:
        """A pool over one or two axes."""
        attrs = {"dilation": [1] * len(node.attrs["kernel"]), **node.attrs}
        source, image, result = node.inputs[0], shape, out
        if len(shape) == 2:
            image, result = (shape[0], 1, shape[1]), (out[0], 1, out[1])
            source = self.put("reshape", f"{node.name}.rows", source, image)
            attrs |= {
                "kernel": [1, *attrs["kernel"]],
                "stride": [1, *attrs["stride"]],
                "dilation": [1, *attrs["dilation"]],
            }
            attrs["pads"] = [0, attrs["pads"][0], 0, attrs["pads"][1]]
        window: dict[str, Any] = {k: list(attrs[k]) for k in ("kernel", "stride", "pads", "dilation")}
        window["pads"] = [
            *window["pads"][:2],
            *(self.overhang(window, a, image[1 + a], result[1 + a]) for a in range(2)),
        ]
        last = node.output if len(shape) == 3 else None
        if node.op == "max_pool":
            pooled = self.put("max_pool", node.name, source, result, last, **window)
        else:
            summed = self.put("sum_pool", f"{node.name}.sum", source, result, **window)
            pooled = self.averaged(node.name, summed, pool_counts(attrs, image, result), result, last)
        if len(shape) == 2:
            self.put("reshape", f"{node.name}.shape", pooled, out, node.output)

    @staticmethod
    def overhang(window: dict[str, Any], axis: int, size: int, positions: int) -> int:
        """Padding behind the input up to the end of the last window."""
        reach = (window["kernel"][axis] - 1) * window["dilation"][axis] + 1
        return max(0, (positions - 1) * window["stride"][axis] + reach - size - window["pads"][axis])

    def averaged(self, name: str, tensor: str, counts: np.ndarray, shape: Shape, output: str | None) -> str:
        """Sums over counts (an outer product of one vector an axis).

        Every run of equal counts is scaled to the common multiple.
        """
        total = 1
        table = counts.reshape(shape[1:]).astype(int)
        for axis in range(2):
            line = table[:, 0] // _unit(table[:, 0]) if axis == 0 else table[0] // _unit(table[0])
            multiple = math.lcm(*(int(n) for n in line))
            total *= multiple
            tensor = self.scaled_runs(f"{name}.axis{axis}", tensor, shape, axis, multiple // line)
        # what is left of the counts after both axes took their share
        common = table[0, 0] * (
            total // (int(table[:, 0][0]) // _unit(table[:, 0])) // (int(table[0][0]) // _unit(table[0]))
        )
        return self.put("gain", name, tensor, shape, output, factor=1.0 / float(common))

    def scaled_runs(self, name: str, tensor: str, shape: Shape, axis: int, factors: np.ndarray) -> str:
        """Scales slices of ``axis`` with equal factors, and concatenates them; returns the result's name."""
        edges = [0, *(i for i in range(1, len(factors)) if factors[i] != factors[i - 1]), len(factors)]
        if len(edges) == 2:
            return tensor
        parts = []
        for number, (start, end) in enumerate(itertools.pairwise(edges)):
            part_shape = tuple(end - start if a == axis + 1 else n for a, n in enumerate(shape))
            part = self.put(
                "slice",
                f"{name}.part{number}",
                tensor,
                part_shape,
                starts=[start],
                ends=[end],
                steps=[1],
                axes=[axis + 1],
            )
            if factors[start] != 1:
                part = self.put("scale", f"{name}.scale{number}", part, part_shape, factor=int(factors[start]))
            parts.append(part)
        return self.put("concat", f"{name}.join", parts, shape, axis=axis + 1)


def _unit(line: np.ndarray) -> int:
    return math.gcd(*(int(n) for n in line))


def to_steps(graph: Graph, regions: Regions) -> list[Step]:
    """Steps of the shared region, maxima before the activations that they commute with."""
    writer = Writer(graph, regions.shared)
    for node in regions.shared:
        writer.node(node)
    return _pool_first(_read(writer.steps, set(regions.opened)), set(regions.opened))


def _read(steps: list[Step], opened: set[str]) -> list[Step]:
    """The steps whose results somebody reads: a product takes the place of copies that broadcast its factors."""
    read, kept = set(opened), []
    for step in reversed(steps):
        if step.output in read or step.layer is not None:
            kept.append(step)
            read.update(step.inputs)
    return kept[::-1]


def _pool_first(steps: list[Step], opened: set[str]) -> list[Step]:
    steps = list(steps)
    changed = True
    while changed:
        changed = False
        producer = {s.output: i for i, s in enumerate(steps)}
        readers: dict[str, int] = {}
        for step in steps:
            for tensor in step.inputs:
                readers[tensor] = readers.get(tensor, 0) + 1
        for index, pool in enumerate(steps):
            before = producer.get(pool.inputs[0])
            if (
                pool.kind not in {"max_pool", "reshape"}
                or before is None
                or readers[pool.inputs[0]] != 1
                or pool.inputs[0] in opened
            ):
                continue
            activation = steps[before]
            if activation.kind not in COMMUTES_WITH_MAXIMUM or (
                pool.kind == "reshape" and not _leads_to_maximum(steps, pool, readers)
            ):
                continue
            middle = f"{pool.output}.before.{activation.name}"
            steps[index] = replace(activation, inputs=[middle], output=pool.output, shape=pool.shape)
            steps[before] = replace(pool, inputs=activation.inputs, output=middle)
            changed = True
            break
    return steps


def _leads_to_maximum(steps: list[Step], move: Step, readers: dict[str, int]) -> bool:
    after = [s for s in steps if move.output in s.inputs]
    return readers.get(move.output) == 1 and after[0].kind == "max_pool"

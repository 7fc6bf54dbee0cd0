"""Lowers a graph to stages: linear layers in graph order, and between them the client ops that became possible.

Stored between stages are only fixed tensors, graph outputs, and results of ops that cannot be streamed. Cheap
elementwise values are computed again where they are needed. Client work after a layer is split in an elementwise stage,
which executors run tile by tile as results arrive, and a stage for the rest.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ..graph import Graph, Linear, Node, Op
from .document import Draft
from .forms import Forms
from .quantise import Quantisation
from .ranges import plan_geometry
from .rules import RULES


@dataclass
class Lowered(Draft):
    """Stages and tensors of a plan, before parameters and tiles.

    ``origin`` maps linear stages to graph layers, ``quantised`` fixed tensors to graph tensors.
    """

    origin: dict[int, Linear] = field(default_factory=dict)
    quantised: dict[int, str] = field(default_factory=dict)


@dataclass
class _ClientStage:
    ops: list[dict[str, Any]] = field(default_factory=list)
    local: dict[str, int] = field(default_factory=dict)
    names: list[str] = field(default_factory=list)


class _Lowering:
    def __init__(self, graph: Graph, forms: Forms, quantisation: Quantisation) -> None:
        self.graph, self.forms, self.quantisation = graph, forms, quantisation
        self.out = Lowered(kept_names={n.name for n in graph.nodes if isinstance(n, Linear)})
        self.producers = {n.output: n for n in graph.nodes}
        self.fixed: dict[str, int] = {}
        self.results: dict[str, int] = {}
        self.stored: dict[str, int] = {}
        self.late: set[str] = set()
        self.fresh_inputs = set(graph.inputs)
        self.wanted = _wanted(graph, forms)

    def run(self) -> Lowered:
        for name in self.graph.inputs:
            self.stored[name] = self.out.tensor(name, self.graph.shapes[name])
            self.out.input(name, self.stored[name])
        self.settle()
        self.fresh_inputs = set()
        for node in self.graph.nodes:
            if isinstance(node, Linear):
                self.linear(node)
                self.settle()
        for name in self.graph.outputs:
            self.out.output(name, self.stored[name])
        return self.out

    def fixed_tensor(self, name: str) -> int:
        form = self.quantisation.activations[self.forms.root(name)]
        tensor = self.out.fixed(f"{name}.q", self.graph.shapes[name], form.scale, form.bound)
        self.out.quantised[tensor] = name
        return tensor

    def linear(self, node: Linear) -> None:
        source = self.forms.source[node.output]
        form = self.quantisation.activations[self.forms.root(source)]
        weights = self.quantisation.weights[node.output]
        result = self.out.fixed(
            f"{node.output}.acc",
            self.graph.shapes[node.output],
            form.scale * weights.scale,
            self.quantisation.bounds[node.output],
        )
        self.results[node.output] = result
        self.out.origin[len(self.out.stages)] = node
        names = {"weights": f"{node.name}.weight", "bias": f"{node.name}.bias"}
        self.out.stage(
            "linear",
            node.name,
            self.fixed[source],
            result,
            method="batch",
            geometry=plan_geometry(node.geometry),
            **names,
        )
        self.out.weights |= {names["weights"]: weights.weight, names["bias"]: self.quantisation.biases[node.output]}

    def streams(self, name: str) -> bool:
        """Whether the real tensor follows elementwise from what is stored before this point."""
        if name in self.late:
            return False
        if name in self.stored or name in self.results or name in self.fixed:
            return True
        producer = self.producers[name]
        return isinstance(producer, Op) and _elementwise(producer) and all(self.streams(t) for t in producer.inputs)

    def settle(self) -> None:
        """Computes everything that became possible, in an elementwise stage and a stage for the rest."""
        first, rest = _ClientStage(), _ClientStage()
        self.late = set()
        ready: dict[str, bool] = {}
        for name in [*self.graph.inputs, *(n.output for n in self.graph.nodes)]:
            producer = self.producers.get(name)
            if isinstance(producer, Op):
                ready[name] = all(ready[t] for t in producer.inputs)
            else:
                ready[name] = name in self.stored or name in self.results
            if ready[name]:
                self.materialise(name, producer, first, rest)
        for stage in (first, rest):
            if stage.ops:
                self.out.client(stage.names[-1] if stage.names else stage.ops[-1]["op"], stage.ops)

    def materialise(self, name: str, producer: Any, first: _ClientStage, rest: _ClientStage) -> None:
        if name in self.forms.fixed and name not in self.fixed:
            if name in self.forms.moved:
                self.late.add(name)
                self.fixed[name] = self.emit(
                    rest, producer, [self.fixed[t] for t in producer.inputs], self.fixed_tensor(name)
                )
            else:
                stage = first if self.streams(name) else rest
                if stage is rest:
                    self.late.add(name)
                source = self.real(stage, name)
                self.fixed[name] = self.fixed_tensor(name)
                stage.ops.append({"op": "quantize", "in": [source], "out": self.fixed[name]})
        elif name in self.wanted and name not in self.fixed and name not in self.stored and not _elementwise(producer):
            self.late.add(name)
            self.stored[name] = self.real(rest, name)
        if name in self.graph.outputs and name not in self.stored:
            stage = first if self.streams(name) else rest
            self.stored[name] = self.real(stage, name)
            if stage is rest:
                self.late.add(name)

    def real(self, stage: _ClientStage, name: str) -> int:
        """The tensor as binary64 inside a client stage."""
        if name in stage.local:
            return stage.local[name]
        if name in self.fresh_inputs:
            return self.stored[name]
        shape = self.graph.shapes[name]
        fixed = self.fixed.get(name, self.results.get(name))
        if fixed is not None:
            stage.local[name] = self.out.tensor(name, shape)
            stage.ops.append({"op": "dequantize", "in": [fixed], "out": stage.local[name]})
        elif name in self.stored:
            return self.stored[name]
        else:
            producer = self.producers[name]
            assert isinstance(producer, Op), "layers run on the server"
            sources = [self.real(stage, t) for t in producer.inputs]
            stage.local[name] = self.emit(stage, producer, sources, self.out.tensor(name, shape))
        return stage.local[name]

    def emit(self, stage: _ClientStage, node: Op, sources: list[int], out: int) -> int:
        stage.ops.append({"op": node.op, "in": sources, "out": out, **node.attrs})
        stage.names.append(node.name)
        return out


def _elementwise(producer: Node | None) -> bool:
    return not isinstance(producer, Op) or RULES[producer.op].elementwise


def _wanted(graph: Graph, forms: Forms) -> set[str]:
    """Tensors that some client op or output needs as real numbers."""
    producers = {n.output: n for n in graph.nodes}
    wanted: set[str] = set()
    pending = [*graph.outputs, *(t for t in forms.fixed if t not in forms.moved)]
    while pending:
        tensor = pending.pop()
        if tensor in wanted:
            continue
        wanted.add(tensor)
        producer = producers.get(tensor)
        if isinstance(producer, Op) and tensor not in forms.moved:
            pending.extend(producer.inputs)
    return wanted


def lower(graph: Graph, forms: Forms, quantisation: Quantisation) -> Lowered:
    """Stages of the client-aided batch engine for a rewritten graph."""
    return _Lowering(graph, forms, quantisation).run()

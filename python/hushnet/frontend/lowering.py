"""The driver: walks the ONNX nodes in order, folds constants, calls the lowerings, collects all issues."""

from __future__ import annotations

from typing import Union

import numpy as np
import onnx

from ..graph import Graph
from . import constants, model, operators
from .builder import Builder, Value
from .call import Call
from .errors import Issue, Unsupported
from .model import Prepared
from .operators.quantised import read_as_floats
from .registry import OPERATORS


class Unknown:
    """The result of a node that could not be lowered; nodes that read it are checked by name only."""


Known = Union[Value, np.ndarray]
Result = Union[Known, Unknown]


class Driver:
    """Lowers one prepared model; afterwards ``issues`` is empty or the graph is not to be used."""

    def __init__(self, prepared: Prepared, *, simplified: bool = False):
        self.prepared = prepared
        # a tool has folded shapes into the model: they must be right
        self.simplified = simplified
        self.misled = False
        self.issues: list[Issue] = list(prepared.problems)
        graph = prepared.proto.graph
        names = {name for node in graph.node for name in [*node.input, *node.output]}
        self.builder = Builder(names | set(prepared.weights) | set(prepared.inputs))
        self.inferred = dict(model.inferred_shapes(prepared.proto))
        self.read_as_floats = read_as_floats(graph)
        self.values: dict[str, Result] = dict(prepared.weights)
        self.wanted = {name for node in graph.node for name in node.input} | {o.name for o in graph.output}

    def run(self) -> Graph | None:
        """The graph, or None where there are issues."""
        graph = self.prepared.proto.graph
        inputs = []
        for port in graph.input:
            if port.name in self.prepared.weights:
                continue
            shape = self.prepared.inputs.get(port.name)
            self.values[port.name] = Unknown() if shape is None else Value(port.name, shape)
        for name, shape in self.prepared.inputs.items():
            inputs.append(Value(name, shape))
            self.values[name] = inputs[-1]
        for node in graph.node:
            self._node(node)
        outputs = [(port.name, self._output(port)) for port in graph.output]
        if self.issues:
            return None
        return self.builder.graph(self.prepared.name, inputs, [(n, v) for n, v in outputs if v is not None])

    def _output(self, port: onnx.ValueInfoProto) -> Value | None:
        value = self.values.get(port.name, Unknown())
        if isinstance(value, np.ndarray):
            self._report(port.name, "output", "the output does not depend on the network's input", "Drop this output.")
        elif isinstance(value, Value) and value.batch_axis != 0:
            self._report(port.name, "output", f"the output has its batch in axis {value.batch_axis}", "Transpose it back to the first axis.")
        elif isinstance(value, Value):
            return value
        return None

    def _report(self, node: str, op_type: str, problem: str, advice: str) -> None:
        self.issues.append(Issue(node, op_type, problem, advice))

    def _node(self, node: onnx.NodeProto) -> None:
        try:
            results = self._lowered(node)
        except Unsupported as error:
            self._report(node.name, _label(node), error.problem, error.advice)
            results = self._guess(node)
        except operators.Skipped:
            results = self._guess(node)
        for name, value in zip(node.output, results):
            if name:
                self.values[name] = value

    def _lowered(self, node: onnx.NodeProto) -> list[Result]:
        inputs = [self.values.get(name, Unknown()) if name else None for name in node.input]
        known = [i for i in inputs if not isinstance(i, Unknown)]
        if len(known) == len(inputs) and all(i is None or isinstance(i, np.ndarray) for i in known) and constants.foldable(node):
            return list(constants.fold(node, known, self.prepared.proto.opset_import))  # type: ignore[arg-type]
        if node.op_type in {"Shape", "Size"} and node.domain in ("", "ai.onnx") and len(known) == 1 and isinstance(known[0], Value):
            return [constants.shape_of(node, known[0], self.prepared.batch)]  # type: ignore[list-item]
        entry = OPERATORS.get(node.op_type) if node.domain in ("", "ai.onnx") else None
        if entry is None:
            if node.op_type in {"Shape", "Size"}:
                raise operators.Skipped
            raise Unsupported("this operator is not supported", operators.advice(node))
        if len(known) != len(inputs):
            raise operators.Skipped
        call = Call(
            node,
            known,
            self.prepared.opset,
            self.prepared.batch,
            fixed_batch=self.prepared.fixed_batch,
            batch_anywhere=entry.batch_anywhere,
            exact=node.output[0] not in self.read_as_floats,
        )
        self.builder.begin(node.name, node.output[0])
        results = entry.lower(call, self.builder)
        values = results if isinstance(results, list) else [results]
        extra = [name for name in node.output[len(values) :] if name and name in self.wanted]
        if extra:
            raise Unsupported(f"its output {extra[0]!r} is used and cannot be computed", "Export the model for inference, without this output.")
        values = self.builder.finish(values, list(node.output))
        for name, value in zip(node.output, values):
            self._compare(name, value, rounded_up=bool(call.attribute("ceil_mode", 0)))
        return list(values)

    def _compare(self, name: str, value: Value, *, rounded_up: bool) -> None:
        """Our shape against ONNX's inference, which is wrong behind a pooling whose last window would start in the padding."""
        expected = self.inferred.get(name)
        full = list(value.shape)
        full.insert(value.batch_axis, self.prepared.batch)
        if any(n < 1 for n in full):
            raise Unsupported(f"the result has an empty axis: {tuple(full)}", "Use a larger input or a smaller window.")
        if expected is None or expected == tuple(full):
            return
        self.misled = self.misled or rounded_up
        if self.simplified or not self.misled:
            raise Unsupported(
                f"the result's shape {tuple(full)} differs from the one that ONNX infers, {expected}",
                "Please report this model: the shapes of this operator are read differently.",
            )

    def _guess(self, node: onnx.NodeProto) -> list[Result]:
        """Values with inferred shapes after an issue, so that the nodes behind it are checked as well."""
        results: list[Result] = []
        for name in node.output:
            shape = self.inferred.get(name)
            usable = shape is not None and len(shape) > 0 and shape[0] == self.prepared.batch and min(shape) > 0
            results.append(Value(name, shape[1:]) if usable and shape is not None else Unknown())
        return results


def _label(node: onnx.NodeProto) -> str:
    return node.op_type if node.domain in ("", "ai.onnx") else f"{node.domain}.{node.op_type}"

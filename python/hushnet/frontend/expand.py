"""Nodes that stand for others.

Control flow with known conditions, and operators that ONNX defines as functions of others.

``If`` becomes the branch that is taken, ``Loop`` and ``Scan`` as many copies of their bodies as there are steps.
Tensors of a copy get names of their own; what a body reads from around it keeps its name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
import onnx.inliner
from onnx import helper, numpy_helper

from .errors import Unsupported

# nodes that all copies of a loop's body may have together
MAX_NODES = 100_000


@dataclass
class Expansion:
    """Nodes in the place of one, constants that they read, and the tensors that are its outputs (in order)."""

    nodes: list[onnx.NodeProto]
    constants: dict[str, np.ndarray]
    outputs: list[str]


class Body:
    """Copies of a subgraph with names of their own."""

    def __init__(self, graph: onnx.GraphProto, node: onnx.NodeProto):
        self.graph, self.node = graph, node

    def copy(self, tag: str, bindings: Mapping[str, str]) -> Expansion:
        """One copy: ``bindings`` gives the tensors of the outer graph that its inputs are."""
        prefix = f"{self.node.output[0] or self.node.name}/{tag}"
        names = {name: f"{prefix}/{name}" for name in self._defined()} | dict(bindings)
        constants = {
            names[t.name]: np.asarray(numpy_helper.to_array(t))
            for t in self.graph.initializer
            if t.name not in bindings
        }
        nodes = [_renamed(node, names, prefix) for node in self.graph.node]
        return Expansion(nodes, constants, [names.get(port.name, port.name) for port in self.graph.output])

    def _defined(self) -> set[str]:
        made = {name for node in self.graph.node for name in node.output if name}
        return made | {t.name for t in self.graph.initializer} | {p.name for p in self.graph.input}


def _renamed(node: onnx.NodeProto, names: Mapping[str, str], prefix: str) -> onnx.NodeProto:
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    copy.name = f"{prefix}/{node.name or node.op_type}"
    del copy.input[:], copy.output[:]
    copy.input.extend(names.get(name, name) for name in node.input)
    copy.output.extend(names.get(name, name) for name in node.output)
    for attribute in copy.attribute:
        for inner in [attribute.g] if attribute.HasField("g") else attribute.graphs:
            _rename_inside(inner, names)
    return copy


def _rename_inside(graph: onnx.GraphProto, names: Mapping[str, str]) -> None:
    """What a subgraph reads from around it, under its new name; its own tensors hide those of the same name."""
    own = (
        {name for node in graph.node for name in node.output}
        | {p.name for p in graph.input}
        | {t.name for t in graph.initializer}
    )
    names = {old: new for old, new in names.items() if old not in own}
    for node in graph.node:
        for index, name in enumerate(node.input):
            node.input[index] = names.get(name, name)
        for attribute in node.attribute:
            for inner in [attribute.g] if attribute.HasField("g") else attribute.graphs:
                _rename_inside(inner, names)
    for port in graph.output:
        port.name = names.get(port.name, port.name)


def _graph(node: onnx.NodeProto, name: str) -> onnx.GraphProto:
    return next(a.g for a in node.attribute if a.name == name)


def branch(node: onnx.NodeProto, condition: np.ndarray) -> Expansion:
    """The branch that an ``If`` with this condition takes."""
    name = "then_branch" if bool(condition.reshape(-1)[0]) else "else_branch"
    return Body(_graph(node, name), node).copy(name, {})


class Loop:
    """A ``Loop`` whose trip count and conditions are constants, one copy of the body after the other."""

    def __init__(self, node: onnx.NodeProto, trips: np.ndarray | None, condition: np.ndarray | None):
        self.node = node
        self.body = Body(_graph(node, "body"), node)
        self.limit = None if trips is None else int(trips.reshape(-1)[0])
        self.open = condition is None or bool(condition.reshape(-1)[0])
        self.state = list(node.input[2:])
        self.scanned: list[list[str]] = [[] for _ in self.body.graph.output[1 + len(self.state) :]]
        self.step = 0

    def next(self) -> Expansion | None:
        """The next copy, or None where the loop has ended; its first output is the condition, for :meth:`done`."""
        if not self.open or (self.limit is not None and self.step >= self.limit):
            return None
        if self.step * max(1, len(self.body.graph.node)) > MAX_NODES:
            raise Unsupported(f"a loop of more than {MAX_NODES} nodes", "Export the model with fewer steps.")
        tag = f"step{self.step}"
        prefix = f"{self.node.output[0] or self.node.name}/{tag}"
        ports = [port.name for port in self.body.graph.input]
        bindings = dict(zip(ports, [f"{prefix}/count", f"{prefix}/go_on", *self.state]))
        copy = self.body.copy(tag, bindings)
        copy.constants[f"{prefix}/count"] = np.asarray(self.step, dtype=np.int64)
        copy.constants[f"{prefix}/go_on"] = np.asarray(True)
        return copy

    def done(self, copy: Expansion, condition: object) -> None:
        """Takes over what a copy has computed; ``condition`` is the value of its first output."""
        if not isinstance(condition, np.ndarray):
            raise Unsupported("a loop that ends by the data", "Export the model with a constant number of steps.")
        self.open = bool(condition.reshape(-1)[0])
        self.state = copy.outputs[1 : 1 + len(self.state)]
        for list_, name in zip(self.scanned, copy.outputs[1 + len(self.state) :]):
            list_.append(name)
        self.step += 1

    def finish(self) -> Expansion:
        """Nodes that put the scanned outputs together."""
        made = stacked(self.node, self.scanned, [0] * len(self.scanned))
        return Expansion(made.nodes, made.constants, [*self.state, *made.outputs])


def stacked(node: onnx.NodeProto, columns: Sequence[Sequence[str]], axes: Sequence[int]) -> Expansion:
    """Every column of tensors joined along a new axis."""
    nodes, constants, outputs = [], {}, []
    for number, (column, axis) in enumerate(zip(columns, axes)):
        if not column:
            raise Unsupported("a loop without a step, whose outputs are empty", "Export the model again.")
        prefix = f"{node.output[0] or node.name}/column{number}"
        constants[f"{prefix}/axis"] = np.array([axis], dtype=np.int64)
        parts = []
        for index, name in enumerate(column):
            parts.append(f"{prefix}/{index}")
            nodes.append(helper.make_node("Unsqueeze", [name, f"{prefix}/axis"], [parts[-1]], name=parts[-1]))
        nodes.append(helper.make_node("Concat", parts, [prefix], name=prefix, axis=axis))
        outputs.append(prefix)
    return Expansion(nodes, constants, outputs)


def scan(node: onnx.NodeProto, lengths: Callable[[str, int], int]) -> Expansion:
    """All steps of a ``Scan``.

    Args:
        lengths: size of a tensor's axis.
    """
    given = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    body = Body(given["body"], node)
    count = int(given["num_scan_inputs"])
    state, sequences = list(node.input[: len(node.input) - count]), list(node.input[len(node.input) - count :])
    outputs = len(node.output) - len(state)
    axes = list(given.get("scan_input_axes") or [0] * count)
    back = list(given.get("scan_input_directions") or [0] * count)
    out_axes = list(given.get("scan_output_axes") or [0] * outputs)
    out_back = list(given.get("scan_output_directions") or [0] * outputs)
    steps = lengths(sequences[0], axes[0])
    if steps * max(1, len(body.graph.node)) > MAX_NODES:
        raise Unsupported(f"a scan of more than {MAX_NODES} nodes", "Export the model with fewer steps.")
    made = Expansion([], {}, [])
    columns: list[list[str]] = [[] for _ in range(outputs)]
    for step in range(steps):
        slices = []
        for number, name in enumerate(sequences):
            slices.append(f"{node.output[0]}/step{step}/input{number}")
            made.constants[slices[-1] + "/index"] = np.asarray(
                steps - 1 - step if back[number] else step, dtype=np.int64
            )
            made.nodes.append(
                helper.make_node(
                    "Gather", [name, slices[-1] + "/index"], [slices[-1]], name=slices[-1], axis=axes[number]
                )
            )
        ports = [port.name for port in body.graph.input]
        copy = body.copy(f"step{step}", dict(zip(ports, [*state, *slices])))
        made.nodes += copy.nodes
        made.constants |= copy.constants
        state = copy.outputs[: len(state)]
        for column, name in zip(columns, copy.outputs[len(state) :]):
            column.append(name)
    columns = [column[::-1] if reverse else column for column, reverse in zip(columns, out_back)]
    joined = stacked(node, columns, out_axes)
    return Expansion([*made.nodes, *joined.nodes], made.constants | joined.constants, [*state, *joined.outputs])


def is_function(node: onnx.NodeProto, opset: int) -> bool:
    """Whether ONNX defines the operator as a function of others."""
    try:
        schema = onnx.defs.get_schema(node.op_type, opset, "")
    except onnx.defs.SchemaError:
        return False
    # ONNX's type stubs lack both
    return any(getattr(schema, kind) for kind in ("has_function", "has_context_dependent_function"))


def _with_defaults(node: onnx.NodeProto, opset: int) -> onnx.NodeProto:
    """The node with every attribute that has a default: the inliner leaves those out that a node does not name."""
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    given = {a.name for a in node.attribute}
    for name, attribute in onnx.defs.get_schema(node.op_type, opset, "").attributes.items():
        if name not in given and attribute.default_value.name:
            copy.attribute.append(attribute.default_value)
    return copy


def function(node: onnx.NodeProto, opset: int, ports: Sequence[onnx.ValueInfoProto]) -> Expansion | None:
    """What ONNX defines an operator as, where it is a function of others; None where it is none.

    Args:
        ports: types and shapes of the node's inputs (without those that are not given).
    """
    if not is_function(node, opset):
        return None
    node = _with_defaults(node, opset)
    outputs = [onnx.ValueInfoProto(name=name) for name in node.output if name]
    graph = helper.make_graph([node], "node", list(ports), outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    try:
        model = onnx.shape_inference.infer_shapes(model)
        inlined = onnx.inliner.inline_selected_functions(model, [("", node.op_type)], inline_schema_functions=True)
    except Exception:
        return None
    made = inlined.graph
    if len(made.node) == 1 and made.node[0].op_type == node.op_type:
        return None
    # names inside of the function must not meet those around it
    return Body(made, node).copy("function", {port.name: port.name for port in ports})

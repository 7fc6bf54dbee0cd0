"""What the outputs of a classifier mean: places of classes, or one value for each class.

A label is the place of the largest score, looked up in the list of classes. The look-up is the client's: the plan's
output is the place,
and the port names the classes. Where another output has the scores that the label is taken from, or increasing
functions of them, the
label needs no output of its own: it is the largest column.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import onnx
from onnx import helper, numpy_helper

from .classical import DOMAIN, OPSET, Declined, Rewriter, attributes, class_names, has_classical
from .errors import ModelError
from .ports import Classes, Name, Ports, named_columns

_MOVES = {"Identity", "Cast", "Reshape", "Squeeze", "Unsqueeze", "Flatten"}
# of one row: the largest element stays where it is
_INCREASING = {"Identity", "Cast", "Softmax", "LogSoftmax", "Sigmoid", "Tanh", "Exp"}
_NOT_NEGATIVE = {"Sigmoid", "Softmax", "Relu", "Exp", "Abs"}


def standard(model: onnx.ModelProto, wanted: Sequence[str] = ()) -> tuple[onnx.ModelProto, Ports]:
    """The model in standard operators as far as they have its nodes' meaning, and what is known of its ports.

    Args:
        wanted: outputs that stay; by default all, without labels that follow from the scores of another output.

    Raises:
        ModelError: no such output.
    """
    if not has_classical(model) and not wanted:
        return model, Ports(columns=named_columns(model.metadata_props))
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    build = Rewriter(copy)
    build.run()
    reader = _Reader(build, _chosen(copy.graph, wanted))
    ports = reader.outputs(derive=not wanted)
    ports.missing, ports.columns = build.missing, named_columns(model.metadata_props)
    _imports(copy, build)
    return copy, ports


def _chosen(graph: onnx.GraphProto, wanted: Sequence[str]) -> set[str]:
    names = [port.name for port in graph.output]
    unknown = [name for name in wanted if name not in names]
    if unknown:
        raise ModelError(
            f"the model has no output {unknown[0]!r}. Its outputs are {', '.join(names)}: give some of them, or end "
            "the network elsewhere with until."
        )
    return set(wanted or names)


def _imports(model: onnx.ModelProto, build: Rewriter) -> None:
    """One version of each domain that is left."""
    left = {node.domain for node in model.graph.node}
    versions = {o.domain: o.version for o in model.opset_import if o.domain in left and o.domain not in ("", "ai.onnx")}
    del model.opset_import[:], model.graph.value_info[:]
    model.opset_import.extend(helper.make_opsetid(d, v) for d, v in {"": build.opset or OPSET, **versions}.items())


class _Reader:
    """Follows outputs back to the scores that they come from."""

    def __init__(self, build: Rewriter, wanted: set[str]) -> None:
        self.build, self.graph, self.wanted = build, build.graph, wanted
        self.made = {name: node for node in build.nodes for name in node.output if name}

    def outputs(self, *, derive: bool) -> Ports:
        """Writes the rewritten nodes and outputs into the graph; what the outputs mean."""
        ports, kept = Ports(), []
        labels = {port.name: self.label(port.name) for port in self.graph.output}
        known = [found for found in labels.values() if found is not None]
        for name in (name for name, found in labels.items() if found is None):
            speaks = [Classes(of, names) for place, names in known if (of := self.follows(name, place, names))]
            if speaks:
                ports.classes[name] = speaks[0]
            elif names := self.zipped(name):
                ports.classes[name] = Classes("values" if known else "columns", names)
        followed = any(c.of in ("columns", "sign") for n, c in ports.classes.items() if n in self.wanted)
        for port in self.graph.output:
            found = labels[port.name]
            if port.name not in self.wanted or (found is not None and derive and followed):
                ports.classes.pop(port.name, None)
                continue
            kept.append(port)
            if found is not None:
                place, names = found
                ports.classes[port.name] = Classes("index", names)
                self.build.nodes = [n for n in self.build.nodes if port.name not in n.output or place == port.name]
                if place != port.name:
                    self.build.op("Identity", [place], port.name)
        self._write(kept)
        return ports

    def _write(self, kept: Sequence[onnx.ValueInfoProto]) -> None:
        needed, nodes = {port.name for port in kept}, []
        for node in reversed(self.build.nodes):
            if needed & set(node.output):
                nodes.append(node)
                needed |= {name for name in node.input if name}
                # a subgraph may read anything
                if any(a.HasField("g") or a.graphs for a in node.attribute):
                    needed |= {name for other in self.build.nodes for name in other.output}
        plain = [onnx.ValueInfoProto(name=port.name) for port in kept]
        constants = [t for t in self.graph.initializer if t.name in needed]
        del self.graph.node[:], self.graph.output[:], self.graph.initializer[:]
        self.graph.node.extend(nodes[::-1])
        self.graph.output.extend(plain)
        self.graph.initializer.extend(constants)

    def zipped(self, name: str) -> tuple[Name, ...]:
        """Classes that a ``ZipMap`` gives to the columns of an output; none where there is none."""
        while (node := self.build.producer.get(name)) is not None:
            if node.domain == DOMAIN and node.op_type == "ZipMap":
                try:
                    return class_names(attributes(node))
                except Declined:
                    return ()
            if node.op_type not in _MOVES:
                break
            name = node.input[0]
        return ()

    def label(self, name: str) -> tuple[str, tuple[Name, ...]] | None:
        """The tensor of places and the names of the classes, where an output is a look-up of a label; else None."""
        names: tuple[Name, ...] | None = None
        while (node := self.build.producer.get(name)) is not None:
            if name in self.build.names:
                return name, names or self.build.names[name]
            if node.op_type == "ArgMax" and names is not None:
                return name, names
            if node.op_type == "ArrayFeatureExtractor" and names is None and node.input[0] in self.build.constants:
                names = _listed(self.build.constants[node.input[0]])
                name = node.input[1]
            elif node.op_type in _MOVES:
                name = node.input[0]
            else:
                return None
        return None

    def follows(self, output: str, place: str, names: Sequence[Name]) -> str:
        """How the place follows from an output: by its largest column ("columns"), its sign ("sign"), or not ("")."""
        given = self.zipped(output)
        if given and tuple(given) != tuple(names):
            return ""
        source = self.made.get(place)
        scores = self.build.derived.get(place) or (source.input[0] if source is not None else "")
        if scores in self.increasing(output):
            return "columns"
        node = self.made.get(output)
        while node is not None and node.op_type in ("Identity", "Cast"):
            node = self.made.get(node.input[0])
        if node is None or node.op_type != "Gather" or scores not in self.build.opposite:
            return ""
        if scores not in self.increasing(node.input[0]):
            return ""
        places = self.build.constants.get(node.input[1])
        return "sign" if places is not None and numpy_helper.to_array(places).tolist() == [1] else ""

    def increasing(self, name: str) -> list[str]:
        """A tensor, and those of which its elements are increasing functions, back to the first that is none."""
        found = [name]
        while (node := self.made.get(name)) is not None:
            if node.op_type in _INCREASING or (node.op_type == "Div" and self.positive(node.input[1], node.input[0])):
                name = node.input[0]
                found.append(name)
            else:
                break
        return found

    def positive(self, size: str, x: str) -> bool:
        """Whether a tensor is a norm of the rows of x, or the sum of rows that are not negative."""
        node = self.made.get(size)
        while node is not None and node.op_type in ("Max", "Sqrt", "Identity"):
            node = self.made.get(node.input[0])
        if node is None or node.op_type != "ReduceSum":
            return False
        inner = self.made.get(node.input[0])
        if node.input[0] == x:
            return self.not_negative(x)
        return inner is not None and inner.op_type in ("Abs", "Mul") and set(inner.input) == {x}

    def not_negative(self, name: str) -> bool:
        """Whether no element of a tensor is below zero."""
        node = self.made.get(name)
        if node is None:
            return False
        if node.op_type == "Concat":
            return all(self.not_negative(i) for i in node.input)
        if node.op_type in ("Slice", "Gather", "Identity", "Cast"):
            return self.not_negative(node.input[0])
        return node.op_type in _NOT_NEGATIVE


def _listed(tensor: onnx.TensorProto) -> tuple[Name, ...]:
    values = np.asarray(numpy_helper.to_array(tensor)).reshape(-1)
    return tuple(plain_name(v) for v in values)


def plain_name(value: object) -> Name:
    """A class as an integer or text."""
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, (bool, np.bool_, int, np.integer)):
        return int(value)
    if isinstance(value, (float, np.floating)) and math.isfinite(value) and float(value).is_integer():
        return int(value)
    return str(value)

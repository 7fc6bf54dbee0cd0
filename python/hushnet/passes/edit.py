"""What the passes share: who makes and who reads a tensor, chains of moves, per-element values through them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from ..graph import Conv2d, Dense, Graph, Linear, Node, Op, Shape, unused

Through = Callable[[Op], bool]


def copy(graph: Graph) -> Graph:
    """A graph that can be edited without touching the given one (weights are shared, and never written to)."""
    return Graph(
        graph.name, list(graph.inputs), list(graph.outputs), dict(graph.shapes), [replace(node) for node in graph.nodes]
    )


def reads(node: Node) -> list[str]:
    """The tensors that a node reads."""
    return [node.input] if isinstance(node, Linear) else node.inputs


class Links:
    """Producers and readers of the tensors of a graph at one moment."""

    def __init__(self, graph: Graph):
        self.graph = graph
        self.producer: dict[str, Node] = {node.output: node for node in graph.nodes}
        self.readers: dict[str, list[Node]] = {}
        for node in graph.nodes:
            for name in reads(node):
                self.readers.setdefault(name, []).append(node)

    def only_reader(self, tensor: str) -> Node | None:
        """The one node that reads the tensor, once; None where there are others, or it is an output."""
        found = self.readers.get(tensor, [])
        return found[0] if len(found) == 1 and tensor not in self.graph.outputs else None

    def back(self, node: Node, through: Through) -> tuple[Linear | None, list[Op]]:
        """The layer that feeds ``node`` alone, through ops that satisfy ``through``; and these ops, in order."""
        chain: list[Op] = []
        tensor = reads(node)[0]
        while self.only_reader(tensor) is not None:
            source = self.producer.get(tensor)
            if isinstance(source, Linear):
                return source, chain[::-1]
            if source is None or len(source.inputs) != 1 or not through(source):
                break
            chain.append(source)
            tensor = source.inputs[0]
        return None, []

    def forward(self, node: Node, through: Through) -> tuple[Linear | None, list[Op]]:
        """The layer that alone reads ``node``'s result, and the ops between them."""
        chain: list[Op] = []
        reader = self.only_reader(node.output)
        while reader is not None:
            if isinstance(reader, Linear):
                return reader, chain
            if len(reader.inputs) != 1 or not through(reader):
                break
            chain.append(reader)
            reader = self.only_reader(reader.output)
        return None, []


class Edits(Links):
    """Links that stay true while nodes are replaced and taken out; the graph has the nodes behind :meth:`settle`."""

    def __init__(self, graph: Graph):
        super().__init__(graph)
        self.slots: list[Node | None] = list(graph.nodes)
        self.slot = {id(node): i for i, node in enumerate(graph.nodes)}

    def settle(self) -> None:
        """Writes the nodes to the graph."""
        self.graph.nodes[:] = [node for node in self.slots if node is not None]

    def replace(self, old: Node, new: Node) -> None:
        """Puts ``new``, which reads and makes the same tensors, in the place of ``old``."""
        i = self.slot.pop(id(old))
        self.slots[i], self.slot[id(new)] = new, i
        self.producer[new.output] = new
        for name in set(reads(new)):
            self.readers[name] = [new if n is old else n for n in self.readers[name]]

    def bypass(self, node: Node) -> bool:
        """As :func:`bypass`."""
        graph, source, result = self.graph, reads(node)[0], node.output
        if result not in graph.outputs:
            self._rename(result, source)
        else:
            producer = self.producer.get(source)
            if producer is None or source in graph.outputs:
                return False
            del self.producer[source]
            producer.output = result
            self.producer[result] = producer
            self._rename(source, result)
        self.slots[self.slot.pop(id(node))] = None
        kept = source if result not in graph.outputs else result
        self.readers[kept] = [n for n in self.readers.get(kept, []) if n is not node]
        if result not in graph.outputs:
            self.producer.pop(result, None)
        graph.shapes.pop(source if result in graph.outputs else result, None)
        return True

    def _rename(self, old: str, new: str) -> None:
        found = self.readers.pop(old, [])
        for reader in found:
            rename_reads(reader, old, new)
        self.readers[new] = self.readers.get(new, []) + found


def moves(op: Op) -> bool:
    """Ops that only renumber elements."""
    return op.op in {"reshape", "transpose"}


def carried(graph: Graph, values: np.ndarray, chain: Sequence[Op]) -> np.ndarray:
    """Per-element values after a chain of :func:`moves`."""
    for op in chain:
        values = values.transpose(op.attrs["perm"]) if op.op == "transpose" else values.reshape(graph.shapes[op.output])
    return values


def is_diagonal(node: Node) -> bool:
    """Whether a node is ``x * scale + shift`` per channel."""
    if not isinstance(node, Linear) or not isinstance(node.geometry, Conv2d):
        return False
    g = node.geometry
    return g.kernel == (1, 1) and g.stride == (1, 1) and not any(g.pads) and g.groups == g.input[0] == g.output[0]


def per_element(node: Linear) -> tuple[np.ndarray, np.ndarray]:
    """Scale and shift of a diagonal layer, of its tensor's shape."""
    shape = node.geometry.output  # type: ignore[union-attr]
    return np.broadcast_to(node.weight.reshape(-1, 1, 1), shape), np.broadcast_to(node.bias.reshape(-1, 1, 1), shape)


def output_scaled(node: Linear, scale: np.ndarray, shift: np.ndarray) -> Linear:
    """The layer followed by ``y * scale + shift`` per output channel or feature."""
    column = scale.reshape((-1,) + (1,) * (node.weight.ndim - 1))
    return replace(node, weight=node.weight * column, bias=node.bias * scale + shift)


def input_scaled(node: Linear, scale: np.ndarray, shift: np.ndarray) -> Linear | None:
    """The layer behind ``x * scale + shift`` per input channel or feature.

    None where zero padding makes that inexact.
    """
    if isinstance(node.geometry, Dense):
        return replace(node, weight=node.weight * scale, bias=node.bias + node.weight @ shift)
    g = node.geometry
    if any(g.pads) and np.any(shift != 0):
        return None
    grouped = node.weight.reshape(g.groups, g.output[0] // g.groups, -1, math.prod(g.kernel))
    scale, shift = (v.reshape(g.groups, 1, -1, 1) for v in (scale, shift))
    bias = node.bias + (grouped * shift).sum(axis=(2, 3)).reshape(-1)
    return replace(node, weight=(grouped * scale).reshape(node.weight.shape), bias=bias)


def replace_node(graph: Graph, old: Node, new: Node) -> None:
    """Puts ``new`` in the place of ``old``."""
    graph.nodes[[n is old for n in graph.nodes].index(True)] = new


def bypass(graph: Graph, links: Links, node: Node) -> bool:
    """Takes out a node whose result equals its only input, of the same shape.

    False where it is a copy that must stay.
    """
    source, result = reads(node)[0], node.output
    if result not in graph.outputs:
        for reader in links.readers.get(result, []):
            rename_reads(reader, result, source)
    else:
        producer = links.producer.get(source)
        if producer is None or source in graph.outputs:
            return False
        producer.output = result
        for reader in links.readers.get(source, []):
            rename_reads(reader, source, result)
    graph.nodes[:] = [n for n in graph.nodes if n is not node]
    graph.shapes.pop(source if result in graph.outputs else result, None)
    return True


def rename_reads(node: Node, old: str, new: str) -> None:
    """The node reads ``new`` where it read ``old``."""
    if isinstance(node, Linear):
        node.input = new if node.input == old else node.input
    else:
        node.inputs = [new if i == old else i for i in node.inputs]


def fresh(graph: Graph, hint: str, shape: Shape) -> str:
    """A new tensor."""
    name = unused(hint, graph.shapes)
    graph.shapes[name] = shape
    return name

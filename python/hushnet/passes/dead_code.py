"""Nodes that no output needs are dropped, and the shapes of tensors that are gone. Bit-exact."""

from __future__ import annotations

from ..graph import Graph, Node
from .edit import copy, reads


def dead_code(graph: Graph) -> Graph:
    """Keeps what the outputs need; inputs stay, used or not."""
    graph = copy(graph)
    needed = set(graph.outputs)
    kept: list[Node] = []
    for node in reversed(graph.nodes):
        if node.output in needed:
            kept.append(node)
            needed.update(reads(node))
    graph.nodes[:] = kept[::-1]
    present = set(graph.inputs) | {node.output for node in graph.nodes}
    graph.shapes = {name: shape for name, shape in graph.shapes.items() if name in present}
    return graph

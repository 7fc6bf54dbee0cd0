"""Guards of divisions that calibration data show to be idle: ``Where(norm == 0, 1, norm)``, ``Where(sum < eps, ...)``.

Shares compare nothing with a constant. They divide by values that stay above zero in the calibration data, and a guard
compares just such a value with zero, or with a constant below its least one: its choice is the same in all rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ..graph import Graph, Linear, Node, Op

_COMPARISONS = frozenset({"equal", "less"})
# ops through which a value that is the same everywhere stays one
_SPREAD = frozenset({"reshape", "broadcast", "transpose", "slice"})


def between_layers(graph: Graph) -> set[str]:
    """Results of comparisons that depend on a layer and that another layer depends on."""
    behind: set[str] = set()
    for node in graph.nodes:
        if isinstance(node, Linear) or not behind.isdisjoint(node.inputs):
            behind.add(node.output)
    needed: set[str] = set()
    for node in reversed(graph.nodes):
        if isinstance(node, Linear) or node.output in needed:
            needed.update([node.input] if isinstance(node, Linear) else node.inputs)
    return {
        n.output
        for n in graph.nodes
        if isinstance(n, Op) and n.op in _COMPARISONS and n.output in behind and n.output in needed
    }


def unguarded(graph: Graph, least: Mapping[str, float]) -> Graph:
    """The graph without choices between layers that are the same in all calibration data.

    Args:
        least: least value by tensor, divided by the margin where it is positive.
    """
    chosen = _Chosen(graph, least)
    nodes = [made for node in graph.nodes if (made := chosen.node(node)) is not None]
    return Graph(graph.name, list(graph.inputs), list(graph.outputs), dict(graph.shapes), nodes)


class _Chosen:
    """A walk through the nodes: public constants, what guards choose, and tensors that are others."""

    def __init__(self, graph: Graph, least: Mapping[str, float]) -> None:
        self.graph, self.least = graph, least
        self.places = between_layers(graph)
        self.public: dict[str, float] = {}
        self.truth: dict[str, float] = {}
        self.same: dict[str, str] = {}

    def node(self, node: Node) -> Node | None:
        """The node with what its inputs are; None where another tensor takes the place of its result."""
        if isinstance(node, Linear):
            return replace(node, input=self.same.get(node.input, node.input))
        node = replace(node, inputs=[self.same.get(t, t) for t in node.inputs])
        self._note(node)
        other = self._chosen(node)
        if other is None or node.output in self.graph.outputs or self._shape(other) != self._shape(node.output):
            return node
        self.same[node.output] = other
        return None

    def _shape(self, tensor: str) -> tuple[int, ...]:
        return tuple(self.graph.shapes[tensor])

    def _note(self, node: Op) -> None:
        """Results that are one number everywhere."""
        if node.output in self.places:
            decided = self._decided(node)
            if decided is not None:
                self.truth[node.output] = decided
        elif node.op == "affine" and node.attrs["mul"] == 0:
            self.public[node.output] = node.attrs["add"]
        elif node.op == "mul" and any(self.truth.get(t) == 0 for t in node.inputs):
            self.truth[node.output] = 0.0
        elif node.op == "affine" or node.op in _SPREAD:
            for known in (self.public, self.truth):
                if node.inputs[0] in known:
                    value = known[node.inputs[0]]
                    linear = node.op == "affine"
                    known[node.output] = node.attrs["mul"] * value + node.attrs["add"] if linear else value

    def _decided(self, node: Op) -> float | None:
        """What a comparison with a constant gives where the other operand stays above the constant and zero."""
        left, right = node.inputs
        for value, constant, when in ((left, right, 0.0), (right, left, float(node.op == "less"))):
            low = self.least.get(value, 0.0)
            if constant in self.public and value not in self.public and low > max(self.public[constant], 0.0):
                return when
        return None

    def _chosen(self, node: Op) -> str | None:
        """The operand that the result is: of a product with one, of a sum with zero."""
        neutral = {"mul": 1.0, "add": 0.0}.get(node.op)
        if neutral is None:
            return None
        left, right = node.inputs
        if self.truth.get(left) == neutral and right not in self.truth:
            return right
        return left if self.truth.get(right) == neutral and left not in self.truth else None

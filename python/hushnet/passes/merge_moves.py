"""Reshapes and transposes joined, dropped, and moved behind elementwise ops. Bit-exact: values are only renumbered.

- Reshape after reshape and transpose after transpose become one; one that changes nothing goes; a transpose that only
  moves axes
  of size 1 is a reshape; a reshape in front of a dense layer goes, which reads any shape.
- Elementwise ops run before moves, so that they stay streamable with the layer in front and moves meet and cancel.
"""

from __future__ import annotations

import heapq

from ..graph import Dense, Graph, Linear, Node, Op
from .edit import Links, copy, fresh, moves, reads

# where a node stands among others
Place = tuple[int, ...]

UNARY = {
    "affine", "relu", "leaky_relu", "clip", "abs", "neg", "sqrt", "square", "sigmoid", "tanh", "exp", "erf",
    "hard_sigmoid",
    "hard_swish", "silu", "gelu", "gelu_tanh", "elu", "log", "sin", "cos", "atan", "floor", "round",
}  # fmt: skip
BINARY = {"add", "sub", "mul", "div", "minimum", "maximum", "less", "equal"}


def merge_moves(graph: Graph) -> Graph:
    """Merges until nothing changes, always at the first node that can be."""
    return _Merging(copy(graph)).run()


class _Merging:
    """A graph being merged. Nodes that a merge concerns are looked at again, others are not.

    A place is where a node stands: tuples are ordered, and there is room between any two.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph, self.links = graph, Links(graph)
        self.outputs = frozenset(graph.outputs)
        self.nodes: dict[int, Node] = {id(node): node for node in graph.nodes}
        self.place: dict[int, Place] = {id(node): (i,) for i, node in enumerate(graph.nodes)}
        self.behind: dict[int, int] = {}
        # kept, so that no other node has their identity
        self.gone: list[Node] = []
        self.waiting: list[tuple[Place, int]] = [(place, key) for key, place in self.place.items()]

    def run(self) -> Graph:
        """The merged graph."""
        while self.waiting:
            _, key = heapq.heappop(self.waiting)
            node = self.nodes.get(key)
            if node is None:
                continue
            if isinstance(node, Linear):
                touched = self.dense(node)
            elif moves(node):
                touched = self.nothing(node) or self.joined(node) or self.flat(node)
            else:
                touched = self.late(node)
            self.again(touched)
        self.graph.nodes = sorted(self.nodes.values(), key=lambda n: self.place[id(n)])
        return self.graph

    def again(self, touched: set[str]) -> None:
        """Nodes that make or read the tensors, and those behind moves among them, wait again."""
        found: dict[int, Node] = {}
        for tensor in touched:
            producer = self.links.producer.get(tensor)
            near = [*self.links.readers.get(tensor, []), *([] if producer is None else [producer])]
            for node in near:
                found[id(node)] = node
                if isinstance(node, Op) and moves(node):
                    found |= {id(n): n for n in self.links.readers.get(node.output, [])}
        for key in found:
            heapq.heappush(self.waiting, (self.place[key], key))

    def reads(self, node: Node, tensors: list[str]) -> None:
        """The node reads these tensors from now on."""
        self.forget(node)
        if isinstance(node, Linear):
            (node.input,) = tensors
        else:
            node.inputs = tensors
        for name in tensors:
            self.links.readers.setdefault(name, []).append(node)

    def forget(self, node: Node) -> None:
        """The node reads nothing any more."""
        for name in set(reads(node)):
            self.links.readers[name] = [n for n in self.links.readers[name] if n is not node]

    def rename(self, old: str, new: str) -> None:
        """What reads one tensor reads another one."""
        for reader in {id(n): n for n in self.links.readers.get(old, [])}.values():
            self.reads(reader, [new if name == old else name for name in reads(reader)])

    def drop(self, node: Op) -> None:
        """Takes a node out; its tensor may be another one's by now."""
        self.forget(node)
        self.gone.append(self.nodes.pop(id(node)))
        if self.links.producer.get(node.output) is node:
            del self.links.producer[node.output]

    def dense(self, node: Linear) -> set[str]:
        source = self.links.producer.get(node.input)
        if not isinstance(node.geometry, Dense) or not isinstance(source, Op) or source.op != "reshape":
            return set()
        before = node.input
        self.reads(node, list(source.inputs))
        return {before, node.input, node.output}

    def nothing(self, node: Op) -> set[str]:
        graph, links, (source,), result = self.graph, self.links, node.inputs, node.output
        if graph.shapes[source] != graph.shapes[result]:
            return set()
        if node.op == "transpose" and node.attrs["perm"] != sorted(node.attrs["perm"]):
            return set()
        if result not in self.outputs:
            self.drop(node)
            self.rename(result, source)
            graph.shapes.pop(result, None)
            return {source}
        producer = links.producer.get(source)
        if producer is None or source in self.outputs:
            return set()
        self.drop(node)
        del links.producer[source]
        producer.output = result
        links.producer[result] = producer
        self.rename(source, result)
        graph.shapes.pop(source, None)
        return {result, *reads(producer)}

    def joined(self, node: Op) -> set[str]:
        before = node.inputs[0]
        source = self.links.producer.get(before)
        if not isinstance(source, Op) or source.op != node.op:
            return set()
        if node.op == "transpose":
            node.attrs = {"perm": [source.attrs["perm"][p] for p in node.attrs["perm"]]}
        self.reads(node, list(source.inputs))
        return {before, node.inputs[0], node.output}

    def flat(self, node: Op) -> set[str]:
        """A transpose that keeps the order of the axes longer than 1."""
        if node.op != "transpose":
            return set()
        shape = self.graph.shapes[node.inputs[0]]
        long = [p for p in node.attrs["perm"] if shape[p] > 1]
        if long != sorted(long):
            return set()
        node.op, node.attrs = "reshape", {}
        return {node.inputs[0], node.output}

    def late(self, node: Op) -> set[str]:
        """Moves in front of an elementwise op go behind it: the op then works on the shape that the moves had."""
        if not (node.op in UNARY or node.op in BINARY or (node.op == "prelu" and len(node.attrs["slope"]) == 1)):
            return set()
        graph, links = self.graph, self.links
        sources = [self.move(name) for name in node.inputs]
        first = sources[0]
        if first is None:
            return set()
        shape = graph.shapes[first.inputs[0]]
        for source in sources[1:]:
            if source is None or (source.op, source.attrs, graph.shapes[source.inputs[0]]) != (
                first.op,
                first.attrs,
                shape,
            ):
                return set()
        before, old = node.output, graph.shapes[node.output]
        graph.shapes[before] = shape
        gone = {id(source): source for source in sources if source is not None}
        touched = {*node.inputs, *(source.inputs[0] for source in gone.values())}
        self.reads(node, [source.inputs[0] for source in sources if source is not None])
        moved = Op(first.name, first.op, [], fresh(graph, f"{before}.{first.op}", old), dict(first.attrs))
        if before in self.outputs:
            # the output's name goes with its shape
            node.output, moved.output = moved.output, before
            graph.shapes[node.output], graph.shapes[before] = shape, old
        else:
            self.rename(before, moved.output)
        for source in gone.values():
            self.drop(source)
        links.producer |= {node.output: node, moved.output: moved}
        self.nodes[id(moved)] = moved
        count = self.behind[id(node)] = self.behind.get(id(node), 0) + 1
        self.place[id(moved)] = (*self.place[id(node)], -count)
        self.reads(moved, [node.output])
        return touched | {node.output, moved.output}

    def move(self, tensor: str) -> Op | None:
        """The move that makes a tensor which one node reads, and that is no output."""
        source = self.links.producer.get(tensor)
        if not isinstance(source, Op) or not moves(source) or tensor in self.outputs:
            return None
        return source if len({id(r) for r in self.links.readers[tensor]}) == 1 else None

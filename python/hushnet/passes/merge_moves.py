"""Reshapes and transposes joined, dropped, and moved behind elementwise ops. Bit-exact: values are only renumbered.

- Reshape after reshape and transpose after transpose become one; one that changes nothing goes; a transpose that only
  moves axes
  of size 1 is a reshape; a reshape in front of a dense layer goes, which reads any shape.
- Elementwise ops run before moves, so that they stay streamable with the layer in front and moves meet and cancel.
"""

from __future__ import annotations

from ..graph import Dense, Graph, Linear, Op
from .edit import Links, bypass, copy, fresh, moves, rename_reads

UNARY = {
    "affine", "relu", "leaky_relu", "clip", "abs", "neg", "sqrt", "square", "sigmoid", "tanh", "exp", "erf",
    "hard_sigmoid",
    "hard_swish", "silu", "gelu", "gelu_tanh", "elu", "log", "sin", "cos", "atan", "floor", "round",
}  # fmt: skip
BINARY = {"add", "sub", "mul", "div", "minimum", "maximum", "less", "equal"}


def merge_moves(graph: Graph) -> Graph:
    """Merges until nothing changes."""
    graph = copy(graph)
    while _one(graph):
        pass
    return graph


def _one(graph: Graph) -> bool:
    links = Links(graph)
    for node in graph.nodes:
        if isinstance(node, Linear):
            if _dense(links, node):
                return True
        elif moves(node):
            if _nothing(graph, links, node) or _joined(links, node) or _flat(graph, node):
                return True
        elif _late(graph, links, node):
            return True
    return False


def _dense(links: Links, node: Linear) -> bool:
    source = links.producer.get(node.input)
    if not isinstance(node.geometry, Dense) or not isinstance(source, Op) or source.op != "reshape":
        return False
    node.input = source.inputs[0]
    return True


def _nothing(graph: Graph, links: Links, node: Op) -> bool:
    if graph.shapes[node.inputs[0]] != graph.shapes[node.output]:
        return False
    if node.op == "transpose" and node.attrs["perm"] != sorted(node.attrs["perm"]):
        return False
    return bypass(graph, links, node)


def _joined(links: Links, node: Op) -> bool:
    source = links.producer.get(node.inputs[0])
    if not isinstance(source, Op) or source.op != node.op:
        return False
    if node.op == "transpose":
        node.attrs = {"perm": [source.attrs["perm"][p] for p in node.attrs["perm"]]}
    node.inputs = list(source.inputs)
    return True


def _flat(graph: Graph, node: Op) -> bool:
    """A transpose that keeps the order of the axes longer than 1."""
    if node.op != "transpose":
        return False
    shape = graph.shapes[node.inputs[0]]
    long = [p for p in node.attrs["perm"] if shape[p] > 1]
    if long != sorted(long):
        return False
    node.op, node.attrs = "reshape", {}
    return True


def _late(graph: Graph, links: Links, node: Op) -> bool:
    """Moves in front of an elementwise op go behind it: the op then works on the shape that the moves had."""
    if not (node.op in UNARY or node.op in BINARY or (node.op == "prelu" and len(node.attrs["slope"]) == 1)):
        return False
    sources = [_move(links, name) for name in node.inputs]
    first = sources[0]
    if first is None:
        return False
    shape = graph.shapes[first.inputs[0]]
    for source in sources[1:]:
        if source is None or (source.op, source.attrs, graph.shapes[source.inputs[0]]) != (
            first.op,
            first.attrs,
            shape,
        ):
            return False
    old = graph.shapes[node.output]
    graph.shapes[node.output] = shape
    position = [n is node for n in graph.nodes].index(True)
    node.inputs = [source.inputs[0] for source in sources if source is not None]
    moved = Op(first.name, first.op, [node.output], fresh(graph, f"{node.output}.{first.op}", old), dict(first.attrs))
    if node.output in graph.outputs:
        # the output's name goes with its shape
        node.output, moved.inputs, moved.output = moved.output, [moved.output], node.output
        graph.shapes[node.output], graph.shapes[moved.output] = shape, old
    else:
        for reader in links.readers.get(node.output, []):
            rename_reads(reader, node.output, moved.output)
    graph.nodes.insert(position + 1, moved)
    gone = {id(source) for source in sources}
    graph.nodes[:] = [n for n in graph.nodes if id(n) not in gone]
    return True


def _move(links: Links, tensor: str) -> Op | None:
    """The move that makes a tensor which one node reads, and that is no output."""
    source = links.producer.get(tensor)
    if not isinstance(source, Op) or not moves(source) or tensor in links.graph.outputs:
        return None
    readers = {id(r) for r in links.readers[tensor]}
    return source if len(readers) == 1 else None

"""Public constants (``x * 0 + c`` in a graph) are made from an input, so that the client knows them."""

from __future__ import annotations

import math
from dataclasses import replace

from ...graph import Graph, Node, Op
from ...passes import dead_code
from ...passes.edit import fresh


def constants_from_inputs(graph: Graph) -> Graph:
    """The graph with every such constant taken from the first element of the first input; shares then begin with it."""
    known = set(graph.inputs)
    shapes, nodes = dict(graph.shapes), list[Node]()
    made = Graph(graph.name, list(graph.inputs), list(graph.outputs), shapes, nodes)
    for node in graph.nodes:
        if isinstance(node, Op) and all(name in known for name in node.inputs):
            known.add(node.output)
        elif isinstance(node, Op) and node.op == "affine" and node.attrs["mul"] == 0:
            nodes += _constant(made, node)
            known.add(node.output)
            continue
        nodes.append(node)
    return dead_code(made)


def _constant(graph: Graph, node: Op) -> list[Node]:
    source, shape = graph.inputs[0], graph.shapes[node.output]
    flat = fresh(graph, f"{node.output}.flat", (math.prod(graph.shapes[source]),))
    first = fresh(graph, f"{node.output}.first", (1,))
    one = fresh(graph, f"{node.output}.one", (1,))
    many = fresh(graph, f"{node.output}.many", (math.prod(shape),))
    taken = {"starts": [0], "ends": [1], "axes": [0], "steps": [1]}
    return [
        Op(f"{node.name}.flat", "reshape", [source], flat),
        Op(f"{node.name}.first", "slice", [flat], first, taken),
        replace(node, name=f"{node.name}.one", inputs=[first], output=one),
        Op(f"{node.name}.many", "broadcast", [one], many),
        Op(node.name, "reshape", [many], node.output),
    ]

"""Public constants through the ops that read them: ``x * 1``, ``x + 0`` and what is zero times anything.

A constant is ``0 x + c`` in a graph (the front end has no other way to say one), or what moves and affine ops make of
it. Products with a constant and sums with one become scalar affine ops, which :mod:`fold_affine` folds on. Bit-exact,
but for infinite values, of which a run has none. Exporters guard softmax by ``Where(IsNaN(p), 0, p)``: here that is p.
"""

from __future__ import annotations

from ..graph import Graph, Op
from .edit import copy, replace_node

_MOVES = frozenset({"reshape", "transpose", "broadcast", "slice"})


def fold_constants(graph: Graph) -> Graph:
    """Writes products and sums with a constant as affine ops."""
    graph = copy(graph)
    known: dict[str, float] = {}
    for node in list(graph.nodes):
        if not isinstance(node, Op):
            continue
        found = _affine(graph, node, known) or node
        if found is not node:
            replace_node(graph, node, found)
        if found.op in _MOVES and found.inputs[0] in known:
            known[found.output] = known[found.inputs[0]]
        elif found.op == "affine" and (found.attrs["mul"] == 0.0 or found.inputs[0] in known):
            known[found.output] = found.attrs["mul"] * known.get(found.inputs[0], 0.0) + found.attrs["add"]
    return graph


def _affine(graph: Graph, node: Op, known: dict[str, float]) -> Op | None:
    """The affine op that stands for a product, sum or difference with a constant; None where there is none."""
    if node.op not in {"mul", "add", "sub"} or not any(t in known for t in node.inputs):
        return None
    left, right = node.inputs
    tensor, constant = (left, known[right]) if right in known else (right, known[left])
    if graph.shapes[tensor] != graph.shapes[node.output]:
        return None
    if node.op == "mul":
        attrs = {"mul": constant, "add": 0.0}
    elif node.op == "add":
        attrs = {"mul": 1.0, "add": constant}
    else:
        attrs = {"mul": 1.0, "add": -constant} if right in known else {"mul": -1.0, "add": constant}
    return Op(node.name, "affine", [tensor], node.output, attrs)

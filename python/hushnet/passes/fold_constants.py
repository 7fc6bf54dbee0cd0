"""Public constants through the ops that read them: ``x * 1``, ``x + 0`` and what is zero times anything.

A constant is ``0 x + c`` in a graph (the front end has no other way to say one), or what moves and affine ops make of
it. Products with a constant and sums with one become scalar affine ops, which :mod:`fold_affine` folds on. Bit-exact,
but for infinite values, of which a run has none. Exporters guard softmax by ``Where(IsNaN(p), 0, p)``: here that is p.

A layer whose weights and biases are all zero is the constant zero, too, and so is a product of matrices with it: loops
begin with a state of zeros. Clients are told the norms of weights in any case (docs/two-party.md).
"""

from __future__ import annotations

import math

from ..graph import Graph, Linear, Node, Op
from .edit import copy, fresh, reads, replace_node

_MOVES = frozenset({"reshape", "transpose", "broadcast", "slice"})


def fold_constants(graph: Graph) -> Graph:
    """Writes products and sums with a constant as affine ops."""
    graph = copy(graph)
    known: dict[str, float] = {}
    for node in list(graph.nodes):
        if _is_zero(node, known):
            _write_zero(graph, node)
            known[node.output] = 0.0
            continue
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


def _is_zero(node: Node, known: dict[str, float]) -> bool:
    if isinstance(node, Linear):
        return not (node.weight.any() or node.bias.any())
    return node.op == "matmul" and any(known.get(name) == 0.0 for name in node.inputs)


def _write_zero(graph: Graph, node: Node) -> None:
    """Zeros of the shape of what ``node`` gives, in its place: zero times an element that it reads."""
    source, shape = reads(node)[0], graph.shapes[node.output]
    size, place = math.prod(graph.shapes[source]), next(i for i, n in enumerate(graph.nodes) if n is node)
    made: list[Node] = []

    def op(kind: str, given: str, shape: tuple[int, ...], **attributes: object) -> str:
        name = fresh(graph, f"{node.output}.zero", shape)
        made.append(Op(name, kind, [given], name, dict(attributes)))
        return name

    row = op("reshape", source, (size,))
    one = op("slice", row, (1,), starts=[0], ends=[1], steps=[1], axes=[0])
    many = op("broadcast", op("affine", one, (1,), mul=0.0, add=0.0), (math.prod(shape),))
    graph.nodes[place : place + 1] = [*made, Op(node.name, "reshape", [many], node.output)]


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

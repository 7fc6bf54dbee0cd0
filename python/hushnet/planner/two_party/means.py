"""Softmax in front of products of matrices: its division by the sum of a row moves behind the product.

Attention multiplies probabilities ``P = diag(1 / s) E`` by values V, and ``P V = diag(1 / s) (E V)``. E has a row for
every query and a column for every key, E V one for every element of a head. Where that is less, the reciprocals meet
fewer values. Every row of P V is a mean of rows of V, so it is proven to be no larger than they are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from ...graph import Graph, Linear, Node, Op, Shape
from ...passes.edit import fresh
from .rows import MOVED, SCALE

# what a product with a reciprocal costs behind the product of matrices, as a multiple of one in front of it
DEARER = 1.25


@dataclass(frozen=True)
class _Parts:
    """What stands for a moved softmax: exponentials, reciprocals of their sums, and the axis that is summed."""

    power: str
    inverse: str
    axis: int


def divided_last(graph: Graph) -> Graph:
    """The graph with exponentials and reciprocals of rows for every softmax that costs less so.

    Only softmax that private layers follow and whose moved rows nothing but products of matrices sums up is changed.
    """
    taken = _candidates(graph)
    if not taken:
        return graph
    graph = replace(graph, shapes=dict(graph.shapes))
    made: dict[str, Node] = {n.output: n for n in graph.nodes}
    parts: dict[str, _Parts] = {}
    nodes: list[Node] = []
    for node in graph.nodes:
        if isinstance(node, Op) and node.output in taken:
            parts[node.output] = _split(graph, node, nodes)
        elif isinstance(node, Op) and node.op in MOVED and node.inputs[0] in parts:
            parts[node.output] = _moved(graph, node, parts[node.inputs[0]], nodes)
        elif isinstance(node, Op) and node.op == "matmul" and any(t in parts for t in node.inputs):
            _multiplied(graph, node, parts, made, nodes)
        else:
            nodes.append(node)
    return replace(graph, nodes=nodes)


def _candidates(graph: Graph) -> set[str]:
    """Results of softmax that is divided behind its products."""
    readers: dict[str, list[Node]] = {}
    for node in graph.nodes:
        for tensor in [node.input] if isinstance(node, Linear) else node.inputs:
            readers.setdefault(tensor, []).append(node)
    known, layered = set(graph.inputs), set[str]()
    for node in graph.nodes:
        if isinstance(node, Op) and all(t in known for t in node.inputs):
            known.add(node.output)
    for node in reversed(graph.nodes):
        after = readers.get(node.output, [])
        if any(isinstance(n, Linear) or n.output in layered for n in after):
            layered.add(node.output)
    found: set[str] = set()
    for node in graph.nodes:
        if isinstance(node, Op) and node.op == "softmax" and node.output not in known:
            axis = int(node.attrs["axis"]) % len(graph.shapes[node.output])
            results = _products(graph, (node.output, axis), readers, layered)
            if results and DEARER * sum(results) < math.prod(graph.shapes[node.output]):
                found.add(node.output)
    return found


def _products(graph: Graph, at: tuple[str, int], readers: dict[str, list[Node]], layered: set[str]) -> list[int] | None:
    """Elements of all products that sum a tensor along an axis; None where something else reads it."""
    (tensor, axis), found = at, list[int]()
    if tensor in graph.outputs:
        return None
    for node in readers.get(tensor, []):
        if isinstance(node, Linear):
            return None
        if node.op in MOVED:
            place = _axis(graph, node, axis)
            inner = None if place is None else _products(graph, (node.output, place), readers, layered)
            if inner is None:
                return None
            found += inner
        elif node.op == "matmul" and node.inputs.count(tensor) == 1 and node.output in layered:
            if axis != len(graph.shapes[tensor]) - 1 - node.inputs.index(tensor):
                return None
            found.append(math.prod(graph.shapes[node.output]))
        else:
            return None
    return found


def _axis(graph: Graph, move: Op, axis: int) -> int | None:
    """Where a move puts an axis; None where it does not stay one."""
    if move.op == "transpose":
        return int(list(move.attrs["perm"]).index(axis))
    before, after = graph.shapes[move.inputs[0]], graph.shapes[move.output]
    front = math.prod(before[:axis])
    for place, size in enumerate(after):
        if size == before[axis] and math.prod(after[:place]) == front:
            return place
    return None


def _split(graph: Graph, node: Op, nodes: list[Node]) -> _Parts:
    """Writes exponentials and reciprocals of a softmax, each with what a party in the clear computes for it."""
    shape, name, out = graph.shapes[node.output], node.name, node.output
    axis = int(node.attrs["axis"]) % len(shape)
    each = _single(shape, axis)
    body: list[Op] = []

    def put(op: str, inputs: list[str], what: str, to: Shape, **attrs: Any) -> str:
        body.append(Op(f"{name}.{what}", op, inputs, fresh(graph, f"{out}.{what}", to), attrs))
        return body[-1].output

    top = put("reduce_max", node.inputs, "top", each, axes=[axis])
    below = put("sub", [node.inputs[0], put("broadcast", [top], "tops", shape)], "below", shape)
    power = put("affine", [put("exp", [below], "power", shape)], "exponentials", shape, mul=SCALE, add=0.0)
    attrs = {**node.attrs, "axis": axis}
    nodes.append(Op(name, "exponentials", node.inputs, power, {**attrs, "body": tuple(body)}))
    body = []
    total = put("reduce_sum", [power], "total", each, axes=[axis])
    one = put("affine", [total], "one", each, mul=0.0, add=1.0)
    inverse = put("div", [one, total], "reciprocal", each)
    nodes.append(Op(f"{name}.reciprocal", "row_reciprocal", [power], inverse, {"axis": axis, "body": tuple(body)}))
    return _Parts(power, inverse, axis)


def _single(shape: Shape, axis: int) -> Shape:
    return tuple(1 if a == axis else n for a, n in enumerate(shape))


def _moved(graph: Graph, move: Op, parts: _Parts, nodes: list[Node]) -> _Parts:
    """Writes a move of exponentials and the same one of reciprocals."""
    axis, shape = _axis(graph, move, parts.axis), graph.shapes[move.output]
    assert axis is not None
    power = fresh(graph, f"{move.output}.exponentials", shape)
    inverse = fresh(graph, f"{move.output}.reciprocal", _single(shape, axis))
    nodes.append(replace(move, inputs=[parts.power], output=power))
    nodes.append(replace(move, name=f"{move.name}.reciprocal", inputs=[parts.inverse], output=inverse))
    return _Parts(power, inverse, axis)


def _multiplied(graph: Graph, node: Op, parts: dict[str, _Parts], made: dict[str, Node], nodes: list[Node]) -> None:
    """Writes a product with exponentials, and its rows (or columns) times their reciprocals."""
    index = next(i for i, t in enumerate(node.inputs) if t in parts)
    found, shape = parts[node.inputs[index]], graph.shapes[node.output]
    values = node.inputs[1 - index]
    inputs = [values, values]
    inputs[index] = found.power
    while isinstance(maker := made.get(values), Op) and maker.op == "broadcast":
        values = maker.inputs[0]
    total = fresh(graph, f"{node.output}.sum", shape)
    copies = fresh(graph, f"{node.output}.reciprocals", shape)
    nodes.append(replace(node, inputs=inputs, output=total, attrs={**node.attrs, "exponentials": index}))
    nodes.append(Op(f"{node.name}.reciprocals", "broadcast", [found.inverse], copies))
    means = {"whole": True, "mean_of": values}
    nodes.append(Op(f"{node.name}.mean", "mul", [total, copies], node.output, means))

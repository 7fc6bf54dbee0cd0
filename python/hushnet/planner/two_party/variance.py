"""Normalisations by a variance that is written as a difference, as JAX and TensorFlow export them.

``E[x^2] - E[x]^2`` loses a small variance beside a large mean: of two numbers with errors of a unit a difference is
taken that may be smaller than a unit. The mean of ``(x - E[x])^2`` is the same number, and its errors are as small as
it is. Gains that multiply the reciprocal root go behind the product with the values, whose size the root takes away.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from ...graph import Graph, Linear, Node, Op
from ...passes.edit import fresh
from ..rewrite import _prune
from .curves import COPIES

# a sum times this share of one over the number of its terms is a mean
EXACT_MEAN = 1e-6


def centred(graph: Graph) -> Graph:
    """The graph with variances as means of squared deviations, and gains behind what they scale."""
    graph = replace(graph, shapes=dict(graph.shapes), nodes=list(graph.nodes))
    made: dict[str, Node] = {n.output: n for n in graph.nodes}
    nodes: dict[str, Node] = {}
    variances, floors = set[str](), dict[str, str]()
    for node in list(graph.nodes):
        if node.output in nodes:
            continue
        node = _read_for(node, floors)
        found = _variance(graph, node, made) if isinstance(node, Op) and node.op == "sub" else None
        if found is not None:
            variances.add(node.output)
        elif isinstance(node, Op) and _is_floor(node) and node.inputs[0] in variances:
            # squares have no negative mean
            found = []
            floors[node.output] = node.inputs[0]
            if node.output in graph.outputs:
                found = [Op(node.name, "reshape", node.inputs[:1], node.output)]
        for other in [node] if found is None else found:
            nodes[other.output] = made[other.output] = other
    graph.nodes = list(nodes.values())
    _prune(graph)
    return _gains_behind(graph)


def _variance(graph: Graph, node: Op, made: dict[str, Node]) -> list[Node] | None:
    """What stands for a difference of a mean square and a squared mean; None where it is none."""
    square = _mean(graph, node.inputs[0], made)
    power = made.get(_reshaped(node.inputs[1], made))
    if square is None or not isinstance(power, Op) or not _is_square(power):
        return None
    mean = _mean(graph, power.inputs[0], made)
    squares = made.get(square[0])
    if mean is None or not isinstance(squares, Op) or not _is_square(squares):
        return None
    values, axes = mean
    if squares.inputs[0] != values or axes != square[1]:
        return None
    tensor, shape = _reshaped(power.inputs[0], made), graph.shapes[values]
    short = tuple(n for a, n in enumerate(shape) if a not in axes)
    if graph.shapes[tensor] != short:
        return None
    nodes: list[Node] = [Op(made[tensor].name, "reduce_mean", [values], tensor, {"axes": list(axes)})]
    found = _deviations(graph, values, tensor, made)
    if found is None:
        kept = tuple(1 if a in axes else n for a, n in enumerate(shape))
        flat, wide, off = (
            fresh(graph, f"{node.output}.{what}", size)
            for what, size in (("kept", kept), ("copies", shape), ("deviations", shape))
        )
        found = [
            Op(f"{node.name}.kept", "reshape", [tensor], flat),
            Op(f"{node.name}.copies", "broadcast", [flat], wide),
            Op(f"{node.name}.deviations", "sub", [values, wide], off),
        ]
    squared = fresh(graph, f"{node.output}.squares", shape)
    total = node.output if graph.shapes[node.output] == short else fresh(graph, f"{node.output}.mean", short)
    nodes += [
        *found,
        Op(f"{node.name}.squares", "square", [found[-1].output], squared),
        Op(f"{node.name}.mean", "reduce_mean", [squared], total, {"axes": list(axes)}),
    ]
    return nodes if total == node.output else [*nodes, Op(node.name, "reshape", [total], node.output)]


def _read_for(node: Node, other: Mapping[str, str]) -> Node:
    """The node with other tensors in the place of some that it reads."""
    if isinstance(node, Linear):
        return replace(node, input=other.get(node.input, node.input))
    return replace(node, inputs=[other.get(t, t) for t in node.inputs])


def _deviations(graph: Graph, values: str, mean: str, made: dict[str, Node]) -> list[Op] | None:
    """Copies of a mean and their difference to the values, where the graph has them."""
    for node in graph.nodes:
        if isinstance(node, Op) and node.op == "sub" and node.inputs[0] == values:
            copies, tensor = list[Op](), node.inputs[1]
            while tensor != mean and isinstance(copy := made.get(tensor), Op) and copy.op in COPIES:
                copies.insert(0, copy)
                tensor = copy.inputs[0]
            if tensor == mean and copies and graph.shapes[node.output] == graph.shapes[values]:
                return [*copies, node]
    return None


def _mean(graph: Graph, tensor: str, made: dict[str, Node]) -> tuple[str, tuple[int, ...]] | None:
    """What a tensor is the mean of, and over which axes; None where it is none."""
    node = made.get(_reshaped(tensor, made))
    factor = 1.0
    if isinstance(node, Op) and node.op == "affine" and node.attrs["add"] == 0.0:
        factor, node = node.attrs["mul"], made.get(_reshaped(node.inputs[0], made))
    if not isinstance(node, Op) or node.op not in {"reduce_mean", "reduce_sum"}:
        return None
    shape = graph.shapes[node.inputs[0]]
    axes = tuple(sorted(int(a) % len(shape) for a in node.attrs["axes"]))
    terms = math.prod(shape[a] for a in axes) if node.op == "reduce_sum" else 1
    return (node.inputs[0], axes) if abs(factor * terms - 1.0) <= EXACT_MEAN else None


def _gains_behind(graph: Graph) -> Graph:
    """Products with scaled reciprocals as scaled products: ``d (g r)`` is ``g (d r)``."""
    made: dict[str, Node] = {n.output: n for n in graph.nodes}
    readers: dict[str, int] = dict.fromkeys(graph.outputs, 1)
    for node in graph.nodes:
        for tensor in [node.input] if isinstance(node, Linear) else node.inputs:
            readers[tensor] = readers.get(tensor, 0) + 1
    nodes: list[Node] = []
    for node in graph.nodes:
        found = None
        if isinstance(node, Op) and node.op == "mul" and node.inputs[0] != node.inputs[1]:
            for values, scaled in (node.inputs, node.inputs[::-1]):
                found = found or _scaled_behind(graph, node, (values, scaled), (made, readers))
        nodes += found or [node]
    graph = replace(graph, nodes=nodes)
    _prune(graph)
    return graph


def _scaled_behind(
    graph: Graph, node: Op, factors: tuple[str, str], known: tuple[dict[str, Node], dict[str, int]]
) -> list[Node] | None:
    (values, scaled), (made, readers) = factors, known
    gain = made.get(_reshaped(scaled, made))
    if not isinstance(gain, Linear) or not _is_diagonal(graph, gain):
        return None
    quotient = made.get(_origin(gain.input, made))
    shape = graph.shapes[node.output]
    fits = graph.shapes[values] == graph.shapes[scaled] == shape
    if not fits or not isinstance(quotient, Op) or quotient.op != "div":
        return None
    tensor = scaled
    while tensor != gain.output:
        if readers[tensor] > 1:
            return None
        tensor = made[tensor].inputs[0]  # type: ignore[union-attr]  # a reshape
    if readers[gain.output] > 1:
        return None
    factor, product = (fresh(graph, f"{node.output}.{what}", shape) for what in ("factor", "product"))
    turned, result = (fresh(graph, f"{node.output}.{what}", graph.shapes[gain.input]) for what in ("turned", "scaled"))
    return [
        Op(f"{node.name}.factor", "reshape", [gain.input], factor),
        Op(node.name, "mul", [values, factor], product),
        Op(f"{node.name}.turned", "reshape", [product], turned),
        replace(gain, name=f"{gain.name}.behind", input=turned, output=result),
        Op(f"{node.name}.scaled", "reshape", [result], node.output),
    ]


def _is_diagonal(graph: Graph, layer: Linear) -> bool:
    """Whether a layer multiplies every channel by a number of its own, and adds none."""
    same = graph.shapes[layer.input] == graph.shapes[layer.output]
    channels = graph.shapes[layer.input][0] if graph.shapes[layer.input] else 0
    return same and layer.weight.size == layer.weight.shape[0] == channels and not layer.bias.any()


def _is_square(node: Op) -> bool:
    return node.op == "square" or (node.op == "mul" and node.inputs[0] == node.inputs[1])


def _is_floor(node: Op) -> bool:
    """Whether a node takes negative values to zero and leaves the others."""
    return node.op == "relu" or (node.op == "clip" and node.attrs.get("min") == 0.0 and node.attrs.get("max") is None)


def _reshaped(tensor: str, made: dict[str, Node]) -> str:
    """What a tensor has the elements of, in order."""
    while isinstance(node := made.get(tensor), Op) and node.op == "reshape":
        tensor = node.inputs[0]
    return tensor


def _origin(tensor: str, made: dict[str, Node]) -> str:
    """What a tensor copies."""
    while isinstance(node := made.get(tensor), Op) and node.op in COPIES:
        tensor = node.inputs[0]
    return tensor

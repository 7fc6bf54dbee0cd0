"""Layers of attention that read one tensor are one layer: queries, keys and values.

Each of them would send the same shares in ciphertexts of its own. Joined, their outputs stand side by side, and slices
take them apart, which costs nothing. It is done where the outputs go into products of matrices and nowhere else, and
where the joined layer sends fewer bytes; both follow from shapes alone.
"""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np

from ... import _native
from ...graph import Conv2d, Dense, Graph, Linear, Node, Op
from ...passes.edit import fresh
from ..ranges import plan_geometry
from ..rewrite import consumers
from .methods import TYPICAL_NORM

# moves between the tensor and its layers, and between these and products
MOVED = frozenset({"reshape", "transpose"})
TAKEN_APART = MOVED | {"affine", "slice"}
# ciphertexts by whose bytes layers are compared: what is more follows from the width of the ring, for all alike
RING_DEGREE, RING_BITS = 2048, 28


def joined(graph: Graph) -> Graph:
    """The graph with one layer in the place of several that read the same and feed products of matrices."""
    found: dict[tuple[object, ...], list[Linear]] = {}
    made: dict[str, Node] = {n.output: n for n in graph.nodes}
    readers = consumers(graph)
    for node in graph.nodes:
        if isinstance(node, Linear) and _multiplied(graph, node.output, readers):
            found.setdefault((_source(node.input, made), *_alike(node)), []).append(node)
    taken = {layers[0].output: layers for layers in found.values() if len(layers) > 1 and _cheaper(layers)}
    if not taken:
        return graph
    graph = replace(graph, shapes=dict(graph.shapes))
    gone = {layer.output for layers in taken.values() for layer in layers}
    nodes: list[Node] = []
    for node in graph.nodes:
        if node.output in taken:
            nodes += _joined(graph, taken[node.output])
        elif node.output not in gone:
            nodes.append(node)
    return replace(graph, nodes=nodes)


def _multiplied(graph: Graph, tensor: str, readers: dict[str, list[Node]]) -> bool:
    """Whether products of matrices, and nothing else, read a tensor or what moves and factors make of it."""
    after = readers.get(tensor, [])
    if tensor in graph.outputs or not after:
        return False
    return all(
        isinstance(n, Op) and (n.op == "matmul" or (n.op in TAKEN_APART and _multiplied(graph, n.output, readers)))
        for n in after
    )


def _source(tensor: str, made: dict[str, Node]) -> tuple[object, ...]:
    """What a tensor is by the moves that made it: equal for equal moves of one tensor."""
    node = made.get(tensor)
    if isinstance(node, Op) and node.op in MOVED:
        return (node.op, json.dumps(node.attrs, sort_keys=True, default=str), *_source(node.inputs[0], made))
    return (tensor,)


def _alike(layer: Linear) -> tuple[object, ...]:
    """What layers that are joined have in common: all of their geometry but the number of outputs."""
    geometry = layer.geometry
    if isinstance(geometry, Conv2d):
        return (replace(geometry, output=(0, *geometry.output[1:])), geometry.groups == 1 or layer.name)
    return ("dense", geometry.inputs)


def _whole(layers: list[Linear]) -> Linear:
    """One layer with the outputs of all, in order; it has the first one's name."""
    first = layers[0]
    count = sum(layer.weight.shape[0] for layer in layers)
    geometry: Conv2d | Dense
    if isinstance(first.geometry, Conv2d):
        geometry = replace(first.geometry, output=(count, *first.geometry.output[1:]))
    else:
        geometry = replace(first.geometry, outputs=count)
    weight, bias = (np.concatenate([getattr(n, k) for n in layers]) for k in ("weight", "bias"))
    return replace(first, geometry=geometry, weight=weight, bias=bias)


def _cheaper(layers: list[Linear]) -> bool:
    """Whether the joined layer sends fewer bytes."""

    def sent(geometry: object) -> float:
        try:
            cost = _native.packed_layer_cost(json.dumps(geometry), RING_DEGREE, RING_BITS, TYPICAL_NORM)
        except ValueError:
            return math.inf
        return float(cost["bytes_up"] + cost["bytes_down"])

    whole = sent(plan_geometry(_whole(layers).geometry))
    return whole < sum(sent(plan_geometry(layer.geometry)) for layer in layers)


def _joined(graph: Graph, layers: list[Linear]) -> list[Node]:
    """The joined layer and the slices of its result."""
    whole, shape = _whole(layers), graph.shapes[layers[0].output]
    output = fresh(graph, f"{layers[0].output}.joined", (whole.weight.shape[0], *shape[1:]))
    nodes: list[Node] = [replace(whole, output=output)]
    start = 0
    for layer in layers:
        end = start + layer.weight.shape[0]
        attrs = {"starts": [start], "ends": [end], "steps": [1], "axes": [0]}
        nodes.append(Op(f"{layer.name}.part", "slice", [output], layer.output, attrs))
        start = end
    return nodes

"""Masks in front of softmax: numbers that a client knows, cut off where they make an element vanish.

Exporters add -10000, or the largest negative number, to what a row must not see. Shares would need a ring of so many
bits more. Softmax does not change when a number is added to a whole row, and an element that is far below the largest
one vanishes; so of a mask only the differences to a row's largest value count, and of them only those down to twice the
largest score and the depth of the exponential.

A mask that is a constant of the model is a layer's bias, the server's. Which of its elements vanish becomes public
here, as it is where a model selects them (Where): the pattern is the network's, as its shapes are. What else a bias
holds stays the server's.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

import numpy as np

from ...graph import Conv2d, Graph, Linear, Node, Op
from ...passes.edit import fresh
from .curves import COPIES
from .hidden import MASKING, depth, without_hidden
from .rows import before_layers

# moves behind which a selected constant is still one
MOVED = COPIES | {"transpose", "gather", "slice"}


def bounded_masks(graph: Graph, reach: Callable[[Graph], Mapping[str, float]]) -> tuple[Graph, dict[str, float]]:
    """The graph with bounded masks, and the largest values of what is new there.

    Args:
        reach: largest absolute values of a graph's tensors, or nothing; called only for a graph with masks.
    """
    inner = before_layers(graph)
    graph = without_hidden(public_patterns(graph, inner), inner, reach)
    known, made = set(graph.inputs), {n.output: n for n in graph.nodes}
    for node in graph.nodes:
        if isinstance(node, Op) and (all(t in known for t in node.inputs) or _constant(node)):
            known.add(node.output)
    found, chosen = {}, dict[str, tuple[list[str], list[str]]]()
    for node in graph.nodes:
        if isinstance(node, Op) and node.op == "softmax" and node.output in inner and node.inputs[0] not in known:
            scores, masks = _terms(node.inputs[0], made, known)
            if masks:
                found[node.output] = (scores, masks)
            for tensor in scores:
                chosen |= _selections(tensor, made, known)
    if not found and not chosen:
        return graph, {}
    limits, proven = reach(graph), dict[str, float]()
    if not limits:
        return graph, {}
    graph = replace(graph, shapes=dict(graph.shapes), nodes=list(graph.nodes))
    nodes: list[Node] = []
    for node in graph.nodes:
        if isinstance(node, Op) and node.output in found:
            scores, masks = found[node.output]
            size = sum(limits[t] for t in scores)
            node = _bounded(graph, nodes, node, (scores, masks), size, proven)
        elif isinstance(node, Op) and node.output in chosen:
            scores, masks = chosen[node.output]
            deepest = depth(max(limits[t] for t in scores))
            cut = {t: fresh(graph, f"{t}.bounded", graph.shapes[t]) for t in masks}
            nodes += [Op(f"{t}.bounded", "clip", [t], c, {"min": -deepest, "max": None}) for t, c in cut.items()]
            node = replace(node, inputs=[cut.get(t, t) for t in node.inputs])
        nodes.append(node)
    graph.nodes = nodes
    return graph, proven


def _constant(node: Op) -> bool:
    return node.op == "affine" and bool(node.attrs["mul"] == 0)


def _terms(tensor: str, made: Mapping[str, Node], known: set[str]) -> tuple[list[str], list[str]]:
    """What a sum is made of: tensors that follow from private values, and those that a client knows."""
    scores: list[str] = []
    masks: list[str] = []
    pending = [tensor]
    while pending:
        name = pending.pop()
        node = made.get(name)
        if name in known:
            masks.append(name)
        elif isinstance(node, Op) and (node.op == "add" or (node.op == "reshape" and _is_sum(node.inputs[0], made))):
            pending += node.inputs
        else:
            scores.append(name)
    return scores, masks


def _is_sum(tensor: str, made: Mapping[str, Node]) -> bool:
    while isinstance(node := made.get(tensor), Op) and node.op == "reshape":
        tensor = node.inputs[0]
    return isinstance(node, Op) and node.op == "add"


def _bounded(
    graph: Graph, nodes: list[Node], node: Op, terms: tuple[list[str], list[str]], size: float, proven: dict[str, float]
) -> Op:
    """Writes the mask of a softmax anew, and returns the softmax of scores and this mask."""
    (scores, masks), shape, name = terms, graph.shapes[node.output], node.name

    def put(op: str, inputs: list[str], what: str, to: tuple[int, ...] = shape, **attrs: object) -> str:
        out = fresh(graph, f"{node.output}.{what}", to)
        nodes.append(Op(f"{name}.{what}", op, inputs, out, dict(attrs)))
        return out

    scores, masks = (
        [t if graph.shapes[t] == shape else put("reshape", [t], "term") for t in tensors] for tensors in (scores, masks)
    )
    mask = masks[0]
    for other in masks[1:]:
        mask = put("add", [mask, other], "mask")
    row = tuple(1 if a == node.attrs["axis"] % len(shape) else n for a, n in enumerate(shape))
    top = put("reduce_max", [mask], "mask.top", row, axes=[node.attrs["axis"] % len(shape)])
    below = put("sub", [mask, put("broadcast", [top], "mask.tops")], "mask.below")
    deepest = depth(size)
    mask = put("clip", [below], "mask.bounded", min=-deepest, max=0.0)
    total = scores[0]
    for other in scores[1:]:
        total = put("add", [total, other], "scores")
    total = put("add", [total, mask], "masked")
    proven |= {mask: deepest, total: size + deepest}
    return replace(node, inputs=[total])


def _selections(tensor: str, made: Mapping[str, Node], known: set[str]) -> dict[str, tuple[list[str], list[str]]]:
    """Where scores are joined with one constant: by the joined tensor, its scores and its constants."""
    while isinstance(node := made.get(tensor), Op) and node.op in MOVED:
        tensor = node.inputs[0]
    if not isinstance(node, Op) or node.op != "concat":
        return {}
    masks = [t for t in node.inputs if t in known and _uniform(t, made)]
    scores = [t for t in node.inputs if t not in masks]
    return {tensor: (scores, masks)} if masks and scores and not known.intersection(scores) else {}


def _uniform(tensor: str, made: Mapping[str, Node]) -> bool:
    """Whether all elements are one constant."""
    while isinstance(node := made.get(tensor), Op) and node.op in MOVED:
        tensor = node.inputs[0]
    return isinstance(node, Op) and _constant(node)


def public_patterns(graph: Graph, inner: Collection[str] | None = None) -> Graph:
    """The graph with masks that layers add as public constants.

    A layer's result that holds -10000, or the largest negative number, beside scores has no precision left for them.

    Args:
        inner: results of the softmax in front of which masks are looked for; None for all.
    """
    made: dict[str, Node] = {n.output: n for n in graph.nodes}
    readers: dict[str, int] = {}
    for node in graph.nodes:
        for tensor in [node.input] if isinstance(node, Linear) else node.inputs:
            readers[tensor] = readers.get(tensor, 0) + 1
    # layers that add masks, with what moves their results
    masking = dict[str, list[Op]]()
    for node in graph.nodes:
        if isinstance(node, Op) and node.op == "softmax" and (inner is None or node.output in inner):
            tensor, moves = node.inputs[0], list[Op]()
            while (
                isinstance(maker := made.get(tensor), Op)
                and maker.op in {"reshape", "transpose"}
                and readers[tensor] == 1
            ):
                moves.insert(0, maker)
                tensor = maker.inputs[0]
            if isinstance(maker, Linear) and readers[tensor] == 1 and _adds(maker) and (maker.bias <= MASKING).any():
                masking[tensor] = moves
    if not masking:
        return graph
    graph = replace(graph, shapes=dict(graph.shapes), nodes=list(graph.nodes))
    moved = {move.output for moves in masking.values() for move in moves}
    nodes: list[Node] = []
    for node in graph.nodes:
        if isinstance(node, Linear) and node.output in masking:
            nodes += _opened(graph, node, masking[node.output])
        elif node.output not in moved:
            nodes.append(node)
    graph.nodes = nodes
    return graph


def _adds(layer: Linear) -> bool:
    """Whether a layer multiplies all elements by one positive number and adds to them."""
    geometry = layer.geometry
    alone = isinstance(geometry, Conv2d) and geometry.groups == geometry.input[0] == geometry.output[0]
    alone = alone and layer.weight.size == geometry.groups and geometry.input == geometry.output  # type: ignore[union-attr]
    return alone and bool(layer.weight.reshape(-1)[0] > 0 and np.all(layer.weight == layer.weight.reshape(-1)[0]))


def _opened(graph: Graph, layer: Linear, moves: list[Op]) -> list[Node]:
    """A layer that adds a mask, and the moves behind it: the layer without it, and the public pattern, each moved.

    A factor takes the place of the layer where nothing is left of it.
    """
    shape, name = graph.shapes[layer.output], layer.name
    masks = layer.bias <= MASKING
    rest = np.where(masks, 0.0, layer.bias)
    nodes: list[Node] = []

    def put(op: str, source: str, what: str, to: tuple[int, ...], **attrs: object) -> str:
        out = fresh(graph, f"{layer.output}.{what}", to)
        nodes.append(Op(f"{name}.{what}", op, [source], out, dict(attrs)))
        return out

    channels, size = len(masks), int(np.prod(shape))
    flat = put("reshape", layer.input, "mask.flat", (size,))
    first = put("slice", flat, "mask.first", (1,), starts=[0], ends=[1], axes=[0], steps=[1])
    one = put("affine", first, "mask.one", (1,), mul=0.0, add=1.0)
    weights = [[float(v) for v in np.where(masks, layer.bias, 0.0)]]
    line = put("interpolate", one, "mask.line", (channels,), axis=0, indices=[[0] * channels], weights=weights)
    image = put("reshape", line, "mask.image", (channels, 1, 1))
    assert isinstance(layer.geometry, Conv2d)
    mask = put("broadcast", image, "mask.whole", layer.geometry.output)
    if tuple(shape) != layer.geometry.output:
        mask = put("reshape", mask, "mask.shape", shape)
    if rest.any():
        scores = fresh(graph, f"{layer.output}.scores", shape)
        nodes.append(replace(layer, output=scores, bias=rest))
    else:
        factor = float(layer.weight.reshape(-1)[0])
        scores = put("reshape", layer.input, "scores.shape", shape)
        scores = put("affine", scores, "scores", shape, mul=factor, add=0.0) if factor != 1 else scores
    for move in moves:
        to = graph.shapes[move.output]
        scores, mask = (
            put(move.op, tensor, f"{what}.{move.op}", to, **move.attrs)
            for tensor, what in ((scores, "scores"), (mask, "mask"))
        )
    nodes.append(Op(name, "add", [scores, mask], moves[-1].output if moves else layer.output))
    return nodes

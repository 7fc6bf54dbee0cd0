"""Weights behind masks: what a mask of the model hides from every row has no effect, and no say in a layer's scale.

The values that a softmax weighs may be constants of the server's, a layer's weights. Where a public mask hides an
element from all rows, its column of the weights may hold anything: it is multiplied by zero. A column of a thousand
beside others below one would leave these no bit of the layer's scale. Such columns become zero here.

An element is hidden where the least that a row's largest score may be is :data:`VANISHED` above the most that the
element's may be: its exponential is zero in binary32. Least and most follow from constants, from biases, from what
moves and sums make of them, and from the limits of everything else.

A mask that is one number for a channel stands in the bias of the layer that makes the scores. It stays there, the
server's, and reaches down no further than it must.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

import numpy as np

from ...graph import Conv2d, Graph, Linear, Node, Op, Shape
from ...reference.ops import OPS
from .rows import DEPTH

Array = np.ndarray
Ends = tuple[Array, Array]
"""The least and the most that every element of a tensor may be; arrays of one image."""

# e^-104 is less than half of binary32's smallest number
VANISHED = 104.0
# ops that put elements elsewhere, or copy them
MOVED = frozenset({"broadcast", "concat", "gather", "pad", "reshape", "slice", "transpose"})
# moves between a layer and the softmax of its result
COPIED = frozenset({"reshape", "transpose"})
# ops that are least where all that they read is least
RISING = MOVED | {"add", "clip", "maximum", "minimum", "relu", "reduce_max"}
# all ops whose results' ends follow from those of what they read
FOLLOWED = RISING | {"affine", "interpolate", "sub", "softmax"}
# a bias below this one may be a mask
MASKING = -1000.0


def without_hidden(graph: Graph, inner: Collection[str], reach: Callable[[Graph], Mapping[str, float]]) -> Graph:
    """The graph with zeros for weights whose inputs are hidden from every row of a softmax, and masks in biases cut.

    Itself where there are none.

    Args:
        inner: results of the softmax that shares compute.
        reach: largest absolute values of a graph's tensors, or nothing; called only for a graph with masks.
    """
    made: dict[str, Node] = {n.output: n for n in graph.nodes}
    weighing = [n for n in graph.nodes if isinstance(n, Linear) and _reads_masked_rows(n.input, made)]
    masking = [found for found in _masking(graph, made) if found[0].output in inner]
    limits = reach(graph) if weighing or masking else {}
    if not limits:
        return graph
    ends = _Ends(graph, made, limits)
    found = dict[str, Linear]()
    for layer in weighing:
        least, most = ends.of(layer.input)
        hidden = _columns(layer, (least == 0) & (most == 0))
        if layer.weight[hidden].any():
            found[layer.output] = replace(layer, weight=np.where(hidden, 0.0, layer.weight))
    for rows, layer, moves in masking:
        _, most = ends.of(rows.output)
        hidden = _vanished_channels(graph, layer, moves, most == 0)
        if hidden.any():
            found[layer.output] = _cut(found.get(layer.output, layer), hidden, limits[layer.input])
    if not found:
        return graph
    return replace(graph, nodes=[found.get(n.output, n) for n in graph.nodes])


def depth(size: float) -> float:
    """How far a mask reaches down: twice the scores' size below a row's largest mask an element is below any score.

    Clients are told this number where the mask is public, so it is a power of two.
    """
    return 2.0 ** math.ceil(math.log2(2.0 * size + DEPTH + 1.0))


def _masking(graph: Graph, made: Mapping[str, Node]) -> list[tuple[Op, Linear, list[Op]]]:
    """Every softmax of a layer's result with low biases, that layer, and the moves between; nothing else reads them."""
    readers = Counter(t for n in graph.nodes for t in ([n.input] if isinstance(n, Linear) else n.inputs))
    readers.update(graph.outputs)
    found = []
    for node in graph.nodes:
        if not isinstance(node, Op) or node.op != "softmax":
            continue
        tensor, moves = node.inputs[0], list[Op]()
        while isinstance(maker := made.get(tensor), Op) and maker.op in COPIED and readers[tensor] == 1:
            moves.insert(0, maker)
            tensor = maker.inputs[0]
        if isinstance(maker, Linear) and readers[tensor] == 1 and (maker.bias <= MASKING).any():
            found.append((node, maker, moves))
    return found


def _vanished_channels(graph: Graph, layer: Linear, moves: list[Op], vanished: Array) -> Array:
    """Which of a layer's biases are masks: all elements that they go to vanish."""
    channels = _by_channel(layer, np.arange(layer.bias.size, dtype=np.float64), graph.shapes[layer.output])
    for move in moves:
        channels = OPS[move.op](move.attrs, [channels], graph.shapes[move.output])
    seen = set(channels[~vanished].tolist())
    return np.array([bias <= MASKING and c not in seen for c, bias in enumerate(layer.bias)])


def _by_channel(layer: Linear, values: Array, shape: Shape) -> Array:
    """A number for every bias, as the layer's result of one image."""
    return np.broadcast_to(values.reshape(-1, 1), (values.size, math.prod(shape) // values.size)).reshape(1, *shape)


def _radius(layer: Linear, limit: float) -> Array:
    """How far results may be from the biases."""
    return np.asarray(np.abs(layer.weight).reshape(len(layer.weight), -1).sum(axis=1) * limit)


def _cut(layer: Linear, hidden: Array, limit: float) -> Linear:
    """A layer whose hidden channels are one number, below all others' by as much as it takes."""
    size = (np.abs(layer.bias) + _radius(layer, limit))[~hidden].max()
    weight = np.where(hidden.reshape(-1, *(1,) * (layer.weight.ndim - 1)), 0.0, layer.weight)
    return replace(layer, weight=weight, bias=np.where(hidden, -depth(float(size)), layer.bias))


def _reads_masked_rows(tensor: str, made: Mapping[str, Node]) -> bool:
    """Whether a tensor is the moved result of a softmax, in front of which a constant or a low bias stands."""
    rows = _behind(tensor, made, MOVED, lambda n: isinstance(n, Op) and n.op == "softmax")
    return any(_behind(n.inputs[0], made, FOLLOWED, _is_mask) for n in rows if isinstance(n, Op))


def _is_mask(node: Node) -> bool:
    if isinstance(node, Linear):
        return bool((node.bias <= MASKING).any())
    return node.op == "affine" and bool(node.attrs["mul"] == 0)


def _behind(
    tensor: str, made: Mapping[str, Node], through: Collection[str], wanted: Callable[[Node], bool]
) -> list[Node]:
    """The first wanted nodes on all ways back from a tensor through some ops."""
    pending, seen, found = [tensor], set[str](), list[Node]()
    while pending:
        node = made.get(pending.pop())
        if node is None or node.output in seen:
            continue
        seen.add(node.output)
        if wanted(node):
            found.append(node)
        elif isinstance(node, Op) and node.op in through:
            pending += node.inputs
    return found


def _columns(layer: Linear, hidden: Array) -> Array:
    """Which weights read elements that are hidden: channels that are so at every place."""
    geometry = layer.geometry
    if not isinstance(geometry, Conv2d):
        return np.broadcast_to(hidden.reshape(1, -1), layer.weight.shape)
    channels, groups = hidden.reshape(geometry.input[0], -1).all(axis=1), geometry.groups
    each = np.repeat(channels.reshape(groups, -1), geometry.output[0] // groups, axis=0)
    return np.broadcast_to(each[:, :, None, None], layer.weight.shape)


class _Ends:
    """The least and the most of tensors, made when asked for."""

    def __init__(self, graph: Graph, made: Mapping[str, Node], limits: Mapping[str, float]) -> None:
        self.graph, self.made, self.limits = graph, made, limits
        self.found = dict[str, Ends]()

    def of(self, tensor: str) -> Ends:
        pending = [tensor]
        while pending:
            name = pending[-1]
            missing = [t for t in self._read(name) if t not in self.found]
            if not missing:
                self.found[name] = self._made(name)
                pending.pop()
            pending += missing
        return self.found[tensor]

    def _read(self, tensor: str) -> list[str]:
        """What must be known before the ends of a tensor."""
        node = self.made.get(tensor)
        if not isinstance(node, Op) or tensor in self.found:
            return []
        return node.inputs if node.op in FOLLOWED else []

    def _made(self, tensor: str) -> Ends:
        if tensor in self.found:
            return self.found[tensor]
        node, shape = self.made.get(tensor), self.graph.shapes[tensor]
        limit = np.full((1, *shape), float(self.limits.get(tensor, np.inf)))
        if isinstance(node, Linear):
            radius = _radius(node, float(self.limits.get(node.input, np.inf)))
            return _by_channel(node, node.bias - radius, shape), _by_channel(node, node.bias + radius, shape)
        if not self._read(tensor) or node is None:
            return -limit, limit
        ends = [self.found[t] for t in node.inputs]
        least, most = [low for low, _ in ends], [high for _, high in ends]
        if node.op in RISING:
            return OPS[node.op](node.attrs, least, shape), OPS[node.op](node.attrs, most, shape)
        if node.op == "sub":
            return least[0] - most[1], most[0] - least[1]
        if node.op == "softmax":
            return _shares(least[0], most[0], node.attrs["axis"] + 1)
        if node.op == "affine" and node.attrs["mul"] == 0:
            constant = np.full((1, *shape), float(node.attrs["add"]))
            return constant, constant
        # other sums of weighted elements are ends of constants only
        if np.array_equal(least[0], most[0]):
            value = OPS[node.op](node.attrs, least, shape)
            return value, value
        return -limit, limit


def _shares(least: Array, most: Array, axis: int) -> Ends:
    """Ends of a softmax' result: zeros where an element is hidden, else from 0 to 1."""
    hidden = most <= least.max(axis=axis, keepdims=True) - VANISHED
    return np.zeros(least.shape), np.where(hidden, 0.0, 1.0)

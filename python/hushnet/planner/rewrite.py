"""Graph rewrites that change no value and make encrypted execution cheaper.

- Relu or clip after a max pooling moves before it (both are non-decreasing, so results are equal bit for bit): the
  pooling then runs on small quantised tensors, and the activation streams with the layer's results.
- A convolution that skips positions along an axis where its kernel has one tap (ResNet's strided 1x1) is preceded by a
  slice on the client, so that positions nobody reads are not encrypted and sent.
- Nodes that no output needs are dropped.

:func:`equalise_rows` changes precision, not values: it takes the size of every output row out of a layer's weights.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from ..graph import Conv2d, Graph, Linear, Node, Op
from ..reference.float import evaluate

_MONOTONE = frozenset({"relu", "clip"})
# calibration rows that are looked at for the size of what layers read, and values of all of them
ROWS, LOOKED_AT = 32, 1 << 24


def rewrite(graph: Graph) -> Graph:
    """An equivalent graph; the given one is left as it is."""
    copied = Graph(graph.name, list(graph.inputs), list(graph.outputs), dict(graph.shapes), list(graph.nodes))
    _pool_last(copied)
    _subsample(copied)
    _prune(copied)
    return copied


def equalise_rows(graph: Graph, reach: Mapping[str, float] | None = None) -> Graph:
    """Gives every output row of a layer the same largest weight, and the client a factor for every row to undo it.

    One scale for a whole layer costs rows of small weights their precision, above all where batch normalisation was
    folded in or a row is a single channel (depthwise). A row that is hardly more than its bias (a neuron that training
    has left) keeps small weights: its bias, as large beside them, would take the bits of all other rows. The factors
    are public; in this mode the client can solve for the weights anyway.

    Args:
        reach: largest values of what layers read (:func:`reaches`), as far as known.
    """
    nodes: list[Node] = []
    shapes = dict(graph.shapes)
    for node in graph.nodes:
        if not isinstance(node, Linear):
            nodes.append(node)
            continue
        tops = np.abs(np.asarray(node.weight, dtype=np.float64)).reshape(len(node.weight), -1).max(axis=1, initial=0.0)
        top = tops.max(initial=0.0)
        factors = np.where(tops > top * 2.0**-16, tops / (top or 1.0), 1.0)
        most = (reach or {}).get(node.input, 0.0) * _largest_sum(node, tops, top)
        if most > 0.0:
            factors = np.minimum(np.maximum(factors, np.abs(np.asarray(node.bias, dtype=np.float64)) / most), 1.0)
        inner = f"{node.output}.rows"
        rows_are_channels = graph.shapes[node.output][0] == len(factors)
        if not rows_are_channels or inner in shapes or factors.min(initial=1.0) > 0.9:
            nodes.append(node)
            continue
        weight = np.asarray(node.weight, dtype=np.float64) / factors.reshape((-1,) + (1,) * (np.ndim(node.weight) - 1))
        shapes[inner] = graph.shapes[node.output]
        nodes.append(replace(node, output=inner, weight=weight, bias=np.asarray(node.bias, dtype=np.float64) / factors))
        nodes.append(Op(inner, "channel_scale", [inner], node.output, {"factor": [float(f) for f in factors]}))
    return Graph(graph.name, list(graph.inputs), list(graph.outputs), shapes, nodes)


def _largest_sum(node: Linear, tops: np.ndarray, top: float) -> float:
    """Of the absolute weights of a row, once all rows have the same largest one."""
    sums = np.abs(np.asarray(node.weight, dtype=np.float64)).reshape(len(node.weight), -1).sum(axis=1)
    return float((sums / np.where(tops > top * 2.0**-16, tops, np.inf)).max(initial=0.0)) * top


def reaches(graph: Graph, samples: Mapping[str, np.ndarray] | None) -> dict[str, float]:
    """Largest values of what layers read in some calibration rows; nothing where they are not finite, or none are."""
    if samples is None or not len(next(iter(samples.values()), ())):
        return {}
    rows = min(max(LOOKED_AT // max(1, sum(math.prod(s) for s in graph.shapes.values())), 1), ROWS)
    inputs = list(dict.fromkeys(node.input for node in graph.nodes if isinstance(node, Linear)))
    with np.errstate(all="ignore"):
        values = evaluate(replace(graph, outputs=inputs), {name: value[:rows] for name, value in samples.items()})
    tops = {name: float(np.abs(value).max(initial=0.0)) for name, value in values.items()}
    return {name: top for name, top in tops.items() if math.isfinite(top)}


def consumers(graph: Graph) -> dict[str, list[Node]]:
    """The nodes that read each tensor."""
    found: dict[str, list[Node]] = {}
    for node in graph.nodes:
        for tensor in [node.input] if isinstance(node, Linear) else dict.fromkeys(node.inputs):
            found.setdefault(tensor, []).append(node)
    return found


def _pool_last(graph: Graph) -> None:
    changed = True
    while changed:
        changed = False
        readers = consumers(graph)
        for index, pool in enumerate(graph.nodes):
            if not isinstance(pool, Op) or pool.op != "max_pool" or pool.output in graph.outputs:
                continue
            after = readers.get(pool.output, [])
            if len(after) != 1 or not isinstance(after[0], Op) or after[0].op not in _MONOTONE:
                continue
            activation = after[0]
            between = f"{pool.inputs[0]}.{activation.name}"
            if between in graph.shapes:
                continue
            graph.shapes[between] = graph.shapes[pool.inputs[0]]
            first = replace(activation, inputs=[pool.inputs[0]], output=between)
            second = replace(pool, inputs=[between], output=activation.output)
            del graph.shapes[pool.output]
            position = graph.nodes.index(activation)
            graph.nodes[index], graph.nodes[position] = first, second
            changed = True
            break


def _subsample(graph: Graph) -> None:
    nodes: list[Node] = []
    for node in graph.nodes:
        if not isinstance(node, Linear) or not isinstance(node.geometry, Conv2d):
            nodes.append(node)
            continue
        g = node.geometry
        axes = [a for a in range(2) if g.kernel[a] == 1 and g.stride[a] > 1 and g.pads[a] == 0 and g.pads[2 + a] == 0]
        if not axes:
            nodes.append(node)
            continue
        spatial = [g.output[1 + a] if a in axes else g.input[1 + a] for a in range(2)]
        shape = (g.input[0], spatial[0], spatial[1])
        name = f"{node.name}.sampled"
        attrs = {
            "axes": [1 + a for a in axes],
            "starts": [0] * len(axes),
            "ends": [g.input[1 + a] for a in axes],
            "steps": [g.stride[a] for a in axes],
        }
        graph.shapes[name] = shape
        nodes.append(Op(name, "slice", [node.input], name, attrs))
        stride = (1 if 0 in axes else g.stride[0], 1 if 1 in axes else g.stride[1])
        nodes.append(replace(node, input=name, geometry=replace(g, input=shape, stride=stride)))
    graph.nodes[:] = nodes


def _prune(graph: Graph) -> None:
    """Drops nodes that no output needs."""
    needed = set(graph.outputs)
    kept: list[Node] = []
    for node in reversed(graph.nodes):
        if node.output in needed:
            kept.append(node)
            needed.update([node.input] if isinstance(node, Linear) else node.inputs)
    graph.nodes[:] = reversed(kept)

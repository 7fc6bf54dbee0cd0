"""Diagonal layers (BatchNormalization, per-channel and per-element constants) into the layer before or behind them.

Exact over the reals; in binary64 it moves a rounding of 2^-53. BatchNormalization arrives here as a diagonal layer, so
this is the folding of batch norms too; nothing is done on the ONNX model, whose weights are float32.

- Before: ``s (W x + b) + c = (s W) x + (s b + c)``, where the layer's result has no other reader and ``s`` and ``c`` do
  not vary
  inside one of its channels.
- Behind: ``W (s x + c) + b = (W s) x + (W c + b)``, where the diagonal's result has no other reader, ``s`` and ``c`` do
  not vary
  inside an input channel, and no zero padding takes the place of ``c``. Where several layers and nothing else read the
  diagonal's result (the members of an ensemble behind one scaler), it goes into each of them.

Reshapes and transposes may stand between the two; before the diagonal also slices and means over elements of one
channel, and maxima over them where every ``s`` is positive.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..graph import Dense, Graph, Linear, Op
from .edit import Edits, carried, copy, input_scaled, is_diagonal, moves, output_scaled, per_element


def fold_diagonal(graph: Graph) -> Graph:
    """Folds until no diagonal layer can be folded."""
    graph = copy(graph)
    while _swept(graph):
        pass
    return graph


def _swept(graph: Graph) -> bool:
    """Folds what can be folded now; whether there was any."""
    links, found = Edits(graph), False
    for node in list(graph.nodes):
        if id(node) in links.slot and isinstance(node, Linear) and is_diagonal(node):
            found |= _before(graph, links, node) or _behind(graph, links, node)
    links.settle()
    return found


def _before(graph: Graph, links: Edits, diagonal: Linear) -> bool:
    positive = bool(np.all(diagonal.weight > 0))
    layer, chain = links.back(diagonal, lambda op: moves(op) or _keeps_channels(op, positive=positive))
    if layer is None:
        return False
    outputs = layer.bias.size
    shape = graph.shapes[layer.output]
    channel = np.broadcast_to(np.arange(outputs).reshape((-1,) + (1,) * (len(shape) - 1)), shape)
    where = _channels(graph, channel, chain)
    if where is None:
        return False
    where = where.reshape(-1)
    scale, shift = (_by_channel(v, where, outputs) for v in per_element(diagonal))
    if scale is None or shift is None:
        return False
    # first replace, then take out: the new layer must be the producer that is renamed
    links.replace(layer, output_scaled(layer, scale, shift))
    return links.bypass(diagonal)


def _keeps_channels(op: Op, *, positive: bool) -> bool:
    """Ops that commute with ``s x + c`` where s and c are those of one channel for all elements that are reduced."""
    if op.op == "average_pool":
        return not (op.attrs["count_include_pad"] and any(op.attrs["pads"]))
    return op.op in {"slice", "reduce_mean"} or (positive and op.op in {"max_pool", "reduce_max"})


def _channels(graph: Graph, where: np.ndarray, chain: Sequence[Op]) -> np.ndarray | None:
    """Channel of the layer that every element comes from, behind the chain.

    None where an element comes from several.
    """
    for op in chain:
        shape = graph.shapes[op.output]
        if moves(op):
            where = carried(graph, where, [op])
            continue
        if op.op == "slice":
            for axis, start, step in zip(op.attrs["axes"], op.attrs["starts"], op.attrs["steps"]):
                where = where.take(start + step * np.arange(shape[axis]), axis=axis)
            continue
        axes = tuple(op.attrs["axes"]) if "axes" in op.attrs else tuple(range(1, where.ndim))
        if np.any(where.min(axis=axes) != where.max(axis=axes)):
            return None
        kept = where.min(axis=axes, keepdims=True)
        where = kept.reshape(shape) if "axes" in op.attrs else np.broadcast_to(kept, shape)
    return where


def _by_channel(values: np.ndarray, where: np.ndarray, channels: int) -> np.ndarray | None:
    """One value a channel; None where a channel has several."""
    result = np.zeros(channels)
    flat = values.reshape(-1)
    result[where] = flat
    return result if np.array_equal(result[where], flat) else None


def _behind(graph: Graph, links: Edits, diagonal: Linear) -> bool:
    if diagonal.output in graph.outputs:
        return False
    found = _layers(graph, links, diagonal.output, [])
    if not found:
        return False
    folded = [_input_folded(graph, diagonal, layer, chain) for layer, chain in found]
    if any(layer is None for layer in folded):
        return False
    for (layer, _), new in zip(found, folded):
        assert new is not None, "layers that do not fold are left above"
        links.replace(layer, new)
    return links.bypass(diagonal)


def _layers(graph: Graph, links: Edits, tensor: str, chain: list[Op]) -> list[tuple[Linear, list[Op]]]:
    """The layers that read a tensor, each with the moves in front of it; none where something else reads it."""
    found: list[tuple[Linear, list[Op]]] = []
    for node in links.readers.get(tensor, []):
        if isinstance(node, Linear):
            found.append((node, chain))
        elif not moves(node) or node.output in graph.outputs:
            return []
        elif inner := _layers(graph, links, node.output, [*chain, node]):
            found += inner
        else:
            return []
    return found


def _input_folded(graph: Graph, diagonal: Linear, layer: Linear, chain: Sequence[Op]) -> Linear | None:
    """The layer behind a diagonal one and moves; None where that is not exact."""
    inputs = layer.geometry.inputs if isinstance(layer.geometry, Dense) else layer.geometry.input[0]
    parts = []
    for values in per_element(diagonal):
        rows = carried(graph, values, chain).reshape(inputs, -1)
        if not np.all(rows == rows[:, :1]):
            return None
        parts.append(rows[:, 0])
    return input_scaled(layer, parts[0], parts[1])

"""Scalar affine ops into the layer before or behind them, and affine after affine into one.

Exact over the reals: ``m (W x + b) + a = (m W) x + (m b + a)`` and ``W (m x + a) + b = (m W) x + (b + a sum W)``, the
latter where no zero padding takes the place of ``a``. Ops that commute with ``m x + a`` may stand between: moves, means
and, for m > 0, maxima. Fewer public constants, and fewer steps for the client.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..graph import Dense, Graph, Op
from .edit import Edits, copy, input_scaled, output_scaled

_ALWAYS = {"reshape", "transpose", "slice", "broadcast", "reduce_mean"}


def fold_affine(graph: Graph) -> Graph:
    """Folds until no affine op can be folded; ``0 x + a`` stays, which is a constant."""
    graph = copy(graph)
    while _swept(graph):
        pass
    return graph


def _swept(graph: Graph) -> bool:
    """Folds what can be folded now; whether there was any."""
    links, found = Edits(graph), False
    for node in list(graph.nodes):
        if id(node) not in links.slot or not isinstance(node, Op) or node.op != "affine" or node.attrs["mul"] == 0.0:
            continue
        found |= _identity(links, node) or _merged(links, node) or _before(links, node) or _behind(links, node)
    links.settle()
    return found


def _identity(links: Edits, node: Op) -> bool:
    return node.attrs["mul"] == 1.0 and node.attrs["add"] == 0.0 and links.bypass(node)


def _merged(links: Edits, node: Op) -> bool:
    source = links.producer.get(node.inputs[0])
    if not isinstance(source, Op) or source.op != "affine" or links.only_reader(source.output) is not node:
        return False
    mul, add = node.attrs["mul"], node.attrs["add"]
    attrs = {"mul": source.attrs["mul"] * mul, "add": source.attrs["add"] * mul + add}
    links.replace(source, replace(source, attrs=attrs))
    return links.bypass(node)


def _commutes(op: Op, mul: float) -> bool:
    if op.op == "average_pool":
        return not (op.attrs["count_include_pad"] and any(op.attrs["pads"]))
    return op.op in _ALWAYS or (mul > 0 and op.op in {"max_pool", "reduce_max"})


def _before(links: Edits, node: Op) -> bool:
    mul, add = node.attrs["mul"], node.attrs["add"]
    layer, _ = links.back(node, lambda op: _commutes(op, mul))
    if layer is None:
        return False
    size = layer.bias.size
    links.replace(layer, output_scaled(layer, np.full(size, mul), np.full(size, add)))
    return links.bypass(node)


def _behind(links: Edits, node: Op) -> bool:
    mul, add = node.attrs["mul"], node.attrs["add"]
    layer, _ = links.forward(node, lambda op: _commutes(op, mul))
    if layer is None:
        return False
    size = layer.geometry.inputs if isinstance(layer.geometry, Dense) else layer.geometry.input[0]
    folded = input_scaled(layer, np.full(size, mul), np.full(size, add))
    if folded is None:
        return False
    links.replace(layer, folded)
    return links.bypass(node)

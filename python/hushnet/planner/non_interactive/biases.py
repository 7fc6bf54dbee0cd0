"""Biases that take away what approximated activations shift on average.

An activation's polynomial is off by much the same for every input: most of what a layer behind makes of it is one
number a channel. Layers take the mean of it, over calibration data, into their biases, from the first layer on, each
behind those that are corrected already (Nagel, van Baalen, Blankevoort, Welling, "Data-free quantization through weight
equalization and bias correction", ICCV 2019, section 4.2, for rounded weights). It costs nothing under encryption.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from ...graph import Graph, Linear, Node
from ...passes.edit import copy, reads
from ...reference.float import linear
from ...reference.ops import OPS

Array = np.ndarray


def corrected(graph: Graph, exact: Mapping[str, Array], inputs: Mapping[str, Array]) -> Graph:
    """The graph with biases by which its layers have the means that they had.

    Args:
        graph: with approximated activations.
        exact: outputs of layers (rows, *shape) in the network as it was given, by name.
        inputs: the same rows, by input.
    """
    values = {name: np.asarray(value, dtype=np.float64) for name, value in inputs.items()}
    last = {name: index for index, node in enumerate(graph.nodes) for name in reads(node)}
    nodes: list[Node] = []
    for index, node in enumerate(graph.nodes):
        shape = graph.shapes[node.output]
        if isinstance(node, Linear):
            y = linear(node, values[node.input]).reshape(-1, *shape)
            if node.output in exact and np.isfinite(y).all():
                means = (exact[node.output] - y).mean(axis=(0, *range(2, y.ndim)))
                y = y + means.reshape(-1, *(1,) * (y.ndim - 2))
                node = replace(node, bias=np.asarray(node.bias, dtype=np.float64) + means)
        else:
            y = OPS[node.op](node.attrs, [values[name] for name in node.inputs], shape).reshape(-1, *shape)
        nodes.append(node)
        values[node.output] = y
        for name in reads(node):
            if last[name] == index:
                values.pop(name, None)
    graph = copy(graph)
    graph.nodes = nodes
    return graph

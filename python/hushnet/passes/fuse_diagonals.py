"""Two diagonal layers in a row whose channels do not match become one with a factor for every element.

They do not match where one varies over rows and the other over columns.

Exact over the reals: ``s2 (s1 x + c1) + c2 = (s1 s2) x + (s2 c1 + c2)``. Matching channels are :mod:`fold_diagonal`'s.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..graph import Conv2d, Graph, Linear, Op
from .edit import Links, bypass, carried, copy, fresh, is_diagonal, moves, per_element, replace_node


def fuse_diagonals(graph: Graph) -> Graph:
    """Fuses until no two diagonal layers follow each other."""
    graph = copy(graph)
    while _one(graph):
        pass
    return graph


def _one(graph: Graph) -> bool:
    links = Links(graph)
    for second in graph.nodes:
        if not isinstance(second, Linear) or not is_diagonal(second):
            continue
        first, chain = links.back(second, moves)
        if first is None or not is_diagonal(first):
            continue
        scale, shift = per_element(first)
        where = carried(graph, np.arange(scale.size).reshape(scale.shape), chain).reshape(-1)
        scale2, shift2 = (np.empty(scale.size), np.empty(scale.size))
        for target, values in zip((scale2, shift2), per_element(second)):
            target[where] = values.reshape(-1)
        scale, shift = scale.reshape(-1) * scale2, shift.reshape(-1) * scale2 + shift2
        _per_element(graph, first, scale, shift)
        return bypass(graph, Links(graph), second)
    return False


def _per_element(graph: Graph, node: Linear, scale: np.ndarray, shift: np.ndarray) -> None:
    """Replaces a diagonal layer by one with a channel for every element, between two reshapes."""
    image = (scale.size, 1, 1)
    before = fresh(graph, f"{node.input}.elements", image)
    after = fresh(graph, f"{node.output}.elements", image)
    fine = replace(
        node,
        input=before,
        output=after,
        geometry=Conv2d(image, image, (1, 1), groups=scale.size),
        weight=scale.reshape(-1, 1, 1, 1),
        bias=shift,
    )
    position = [n is node for n in graph.nodes].index(True)
    replace_node(graph, node, fine)
    graph.nodes.insert(position, Op(f"{node.name}.elements", "reshape", [node.input], before))
    graph.nodes.insert(position + 2, Op(f"{node.name}.image", "reshape", [after], node.output))

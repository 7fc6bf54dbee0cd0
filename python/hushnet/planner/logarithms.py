"""Logarithms between layers whose arguments span more powers of two than fixed point tells apart.

Fixed point has one absolute error for all values of a tensor. A logarithm asks for a relative one: of values that fall
to 2^-40 of the largest one (powers of a spectrum) nothing is left, and no number of bits that plans have mends that.
"""

from __future__ import annotations

import math
from typing import Any

from ..graph import Graph, Linear, Node, Op
from .ranges import Ranges

# powers of two of an argument that are more than bits of plans hold, beside those of an answer
WIDE = 14


def widest_logarithm(graph: Graph, ranges: Ranges) -> dict[str, Any] | None:
    """The logarithm behind a layer whose argument spans the most powers of two on the calibration data.

    Returns:
        ``node``, its name; ``tensor``, its result; ``octaves``, the powers of two. None where there is none of
        :data:`WIDE`.
    """
    found: dict[str, Any] | None = None
    behind: set[str] = set()
    for node in graph.nodes:
        if isinstance(node, Linear) or not behind.isdisjoint(node.inputs):
            behind.add(node.output)
        for op in _ops(node):
            least = ranges.least.get(op.inputs[0], 0.0)
            if op.op != "log" or behind.isdisjoint([node.output]) or least <= 0.0:
                continue
            octaves = math.ceil(math.log2(max(ranges.limit[op.inputs[0]] / least, 1.0)))
            if octaves >= max(WIDE, found["octaves"] + 1 if found else 0):
                found = {"node": op.name, "tensor": op.output, "octaves": octaves}
    return found


def _ops(node: Node) -> tuple[Op, ...]:
    """The ops of a node: those that a function of one variable is made of, or itself."""
    if isinstance(node, Linear):
        return ()
    return node.attrs["curve"].body if node.op == "function" else (node,)

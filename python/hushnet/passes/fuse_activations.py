"""Activations that exporters write as several nodes become one client op: silu, hard_swish, gelu.

One op has tighter intervals than the product that it replaces, and fewer steps. Exact over the reals up to the float32
rounding of the constants in the model (1/sqrt 2, 1/6), which must agree within 1e-6.

- ``x sigmoid(x)`` -> silu; ``x hard_sigmoid(x; 1/6, 1/2)`` -> hard_swish.
- ``x clip(x + 3; 0, 6) / 6`` in any order of the factors -> hard_swish.
- ``x/2 (1 + erf(x / sqrt 2))`` in any order of the factors -> gelu.
"""

from __future__ import annotations

import math
from typing import Any

from ..graph import Graph, Op
from .edit import Links, copy

CLOSE = 1e-6


def fuse_activations(graph: Graph) -> Graph:
    """Fuses all that match; what the fused nodes no longer feed is left to :mod:`dead_code`."""
    graph = copy(graph)
    links = Links(graph)
    for node in graph.nodes:
        if isinstance(node, Op):
            _fuse(links, node)
    return graph


def _fuse(links: Links, node: Op) -> None:
    """Rewrites the last node of a pattern in place; the nodes before it stay for other readers."""
    factor, product = 1.0, node
    if _is(node, "affine", add=0.0):
        source = links.producer.get(node.inputs[0])
        if not isinstance(source, Op):
            return
        factor, product = node.attrs["mul"], source
    if product.op != "mul":
        return
    for left, right in (product.inputs, product.inputs[::-1]):
        x, scale = _scaled(links, left)
        gate, gate_scale = _scaled(links, right)
        name = _gate(links, links.producer.get(gate), x, factor * scale * gate_scale)
        if name is not None:
            node.op, node.inputs, node.attrs = name, [x], {}
            return


def _scaled(links: Links, tensor: str) -> tuple[str, float]:
    """The tensor and factor that a public scaling makes this one from."""
    source = links.producer.get(tensor)
    if _is(source, "affine", add=0.0) and isinstance(source, Op) and source.attrs["mul"] != 0.0:
        return source.inputs[0], source.attrs["mul"]
    return tensor, 1.0


def _gate(links: Links, gate: Any, x: str, factor: float) -> str | None:
    """The activation that ``factor * x * gate`` is."""
    if _is(gate, "sigmoid") and gate.inputs == [x] and _near(factor, 1.0):
        return "silu"
    if _is(gate, "hard_sigmoid", alpha=1 / 6, beta=0.5) and gate.inputs == [x] and _near(factor, 1.0):
        return "hard_swish"
    if _is(gate, "clip", min=0.0, max=6.0) and _near(factor, 1 / 6):
        shifted: Any = links.producer.get(gate.inputs[0])
        return "hard_swish" if _is(shifted, "affine", mul=1.0, add=3.0) and shifted.inputs == [x] else None
    if _is(gate, "affine", mul=1.0, add=1.0) and _near(factor, 0.5):
        erf: Any = links.producer.get(gate.inputs[0])
        inner: Any = links.producer.get(erf.inputs[0]) if _is(erf, "erf") else None
        return "gelu" if _is(inner, "affine", mul=math.sqrt(0.5), add=0.0) and inner.inputs == [x] else None
    return None


def _is(node: Any, op: str, **attributes: float) -> bool:
    if not isinstance(node, Op) or node.op != op:
        return False
    return all(node.attrs[k] is not None and _near(node.attrs[k], v) for k, v in attributes.items())


def _near(a: float, b: float) -> bool:
    return abs(a - b) <= CLOSE

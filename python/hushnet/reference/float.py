"""The network in binary64.

a graph executed on batches of images, for calibration and as the answer that others approximate.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from ..errors import InputError
from ..graph import Conv2d, Geometry, Graph, Linear
from .linear import add_bias, apply
from .ops import OPS

Array = np.ndarray


def evaluate(graph: Graph, inputs: Mapping[str, Array], *, keep_all: bool = False) -> dict[str, Array]:
    """Runs the graph on inputs of shape (B, *per-image shape).

    Args:
        keep_all: return every tensor (inputs included), not only the outputs; otherwise tensors are freed after their
            last use.

    Raises:
        ValueError: an input is missing or has another shape, or the numbers of images differ.
    """
    values = _inputs(graph, inputs)
    uses: dict[str, int] = {}
    for node in graph.nodes:
        for name in _reads(node):
            uses[name] = uses.get(name, 0) + 1
    for name in graph.outputs:
        uses[name] = uses.get(name, 0) + 1
    for node in graph.nodes:
        shape = graph.shapes[node.output]
        if isinstance(node, Linear):
            y = linear(node, values[node.input])
        else:
            y = OPS[node.op](node.attrs, [values[name] for name in node.inputs], shape)
        values[node.output] = y.reshape(y.shape[0], *shape)
        for name in _reads(node):
            uses[name] -= 1
            if uses[name] == 0 and not keep_all:
                del values[name]
    return values if keep_all else {name: values[name] for name in graph.outputs}


def linear(node: Linear, x: Array) -> Array:
    """``W x + b`` on a batch, in binary64."""
    geometry = as_plan(node.geometry)
    return add_bias(geometry, apply(geometry, node.weight, x), node.bias)


def as_plan(geometry: Geometry) -> dict[str, Any]:
    """The geometry as ``docs/plan-format.md`` writes it."""
    return {"type": "conv2d" if isinstance(geometry, Conv2d) else "dense", **asdict(geometry)}


def _reads(node: Any) -> list[str]:
    return [node.input] if isinstance(node, Linear) else list(node.inputs)


def _inputs(graph: Graph, inputs: Mapping[str, Array]) -> dict[str, Array]:
    values: dict[str, Array] = {}
    for name in graph.inputs:
        if name not in inputs:
            raise InputError(f"input {name!r} is missing; the network reads {graph.inputs}")
        x = np.asarray(inputs[name], dtype=np.float64)
        if x.shape[1:] != tuple(graph.shapes[name]):
            raise InputError(
                f"input {name!r} has shape {x.shape}, expected (images, {', '.join(map(str, graph.shapes[name]))})"
            )
        values[name] = x
    if len({x.shape[0] for x in values.values()}) > 1:
        raise InputError(f"different numbers of images: { {name: x.shape[0] for name, x in values.items()} }")
    return values

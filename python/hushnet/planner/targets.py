"""Scales for the columns of an output that differ in size: the targets of a regression.

One scale for all of them leaves a small target a few steps, or none, and a precision that counts against the largest
one does not show it. So the last layer gives target k ``f_k`` times its value, and the client divides by ``f_k`` what
it decrypts. Factors are powers of two and follow from the calibration data alone; they tell a client how large targets
are beside one another, which its answers tell too. Precision then counts for every target by itself.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import replace

import numpy as np

from ..graph import Dense, Graph, Linear, Node, Op
from ..passes.edit import fresh
from ..reference.float import evaluate

Array = np.ndarray

# columns of an output that may have factors, and how much smaller a target is then at least
MOST_COLUMNS, SMALLER = 64, 16.0
# a small target keeps so many times the room that the margin gives the largest one, at least
ROOM = 4.0
# rows of calibration data that are looked at, of networks of many values and of others
ROWS, LOOKED_AT, MANY_ELEMENTS = 32, 512, 1_000_000
_NAME = ".targets"


def scale_targets(graph: Graph, samples: Mapping[str, Array] | None, classes: Collection[str] = ()) -> Graph:
    """The graph with factors for outputs whose columns differ in size; the given one is left as it is.

    Args:
        samples: calibration inputs by name; without them nothing is known of columns.
        classes: outputs of classifiers, whose columns are compared with one another.
    """
    made = {node.output: node for node in graph.nodes}
    read = {t for n in graph.nodes for t in ([n.input] if isinstance(n, Linear) else n.inputs)}
    found: dict[str, Linear] = {}
    for name in graph.outputs:
        node, shape = made.get(name), graph.shapes[name]
        if (
            isinstance(node, Linear)
            and isinstance(node.geometry, Dense)
            and name not in read
            and name not in classes
            and len(shape) == 1
            and 2 <= shape[0] <= MOST_COLUMNS
        ):
            found[name] = node
    if not found or samples is None or not len(next(iter(samples.values()))):
        return graph
    rows = ROWS if sum(math.prod(s) for s in graph.shapes.values()) >= MANY_ELEMENTS else LOOKED_AT
    with np.errstate(all="ignore"):
        values = evaluate(graph, {name: value[:rows] for name, value in samples.items()})
    graph = replace(graph, shapes=dict(graph.shapes), nodes=list(graph.nodes))
    for name, node in found.items():
        tops = np.abs(values[name]).max(axis=0)
        if not np.isfinite(tops).all():
            continue
        largest = float(tops.max())
        wanted = np.where(tops > largest * 2.0**-200, largest / np.maximum(tops, 1e-300), 1.0)
        factor = np.where(wanted >= SMALLER, np.exp2(np.floor(np.log2(wanted / ROOM))), 1.0)
        if (factor == 1.0).all():
            continue
        inner = fresh(graph, f"{name}{_NAME}", graph.shapes[name])
        weight = np.asarray(node.weight, np.float64) * factor[:, None]
        last: list[Node] = [
            replace(node, output=inner, weight=weight, bias=np.asarray(node.bias, np.float64) * factor),
            Op(inner, "channel_scale", [inner], name, {"factor": (1.0 / factor).tolist()}),
        ]
        place = next(i for i, n in enumerate(graph.nodes) if n is node)
        graph.nodes[place : place + 1] = last
    return graph


def target_factors(graph: Graph) -> dict[str, Array]:
    """By name of an output the factors that :func:`scale_targets` gave its columns."""
    return {
        node.output: 1.0 / np.asarray(node.attrs["factor"])
        for node in graph.nodes
        if isinstance(node, Op) and node.op == "channel_scale" and node.name.endswith(_NAME)
    }

"""Scales for the columns of an output that differ in size or lie far from zero: the targets of a regression.

One scale for all of them leaves a small target a few steps, or none, and a precision that counts against the largest
one does not show it. So the last layer gives target k ``f_k`` times its value, and the client divides by ``f_k`` what
it decrypts. A target that lies far from zero (a year, a price) leaves what it differs by a few steps in the same way:
the layer gives ``f_k (y_k - c_k)``, and the client adds ``c_k``. Factors are powers of two, centres short multiples of
one. Factors tell a client how large targets are beside one another. Centres tell bits of the last layer's bias, so they
stand in client-aided plans alone, whose clients see what every layer gives; elsewhere such targets need wider rings,
and more bits where they are opened (:func:`distances`).
Precision counts for every target by itself, against what it differs by, in every trust model.
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
# a target is centred where what it differs by is so many times smaller than it is
CENTRED = 32.0
# targets of more, or less, than so many bits before the point are brought near one
FAR = 16
# fewer rows say nothing of what a column differs by
LEAST_ROWS = 8
# less than this share of a column is no difference: binary32 hardly shows it
LEAST = 2.0**-20
_NAME = ".targets"


def regressions(graph: Graph, classes: Collection[str]) -> dict[str, Linear]:
    """By output, dense layers that give outputs of few columns, which nothing else reads and no label follows from."""
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
            and 1 <= shape[0] <= MOST_COLUMNS
        ):
            found[name] = node
    return found


def scale_targets(
    graph: Graph,
    samples: Mapping[str, Array] | None,
    classes: Collection[str] = (),
    *,
    centred: bool = False,
    unit: bool = False,
) -> Graph:
    """The graph with factors for outputs whose columns differ in size; the given one is left as it is.

    Args:
        samples: calibration inputs by name; without them nothing is known of columns.
        classes: outputs of classifiers, whose columns are compared with one another.
        centred: columns that lie far from zero are centred; of plans whose clients see what layers give.
        unit: very large and very small targets get a factor that brings them near one; of plans whose modulus holds
            values beside their scale.
    """
    found = regressions(graph, classes)
    if not found or samples is None or not len(next(iter(samples.values()))):
        return graph
    rows = ROWS if sum(math.prod(s) for s in graph.shapes.values()) >= MANY_ELEMENTS else LOOKED_AT
    with np.errstate(all="ignore"):
        values = evaluate(graph, {name: value[:rows] for name, value in samples.items()})
    graph = replace(graph, shapes=dict(graph.shapes), nodes=list(graph.nodes))
    for name, node in found.items():
        if not np.isfinite(values[name]).all():
            continue
        centre = _centres(values[name]) if centred else np.zeros(values[name].shape[1])
        tops = np.abs(values[name] - centre).max(axis=0)
        factor = _factors(tops)
        if unit and (size := float((tops * factor).max())) > 0.0 and abs(power := math.floor(math.log2(size))) > FAR:
            factor = factor * 2.0**-power
        if (factor == 1.0).all() and not centre.any():
            continue
        inner = fresh(graph, f"{name}{_NAME}", graph.shapes[name])
        weight = np.asarray(node.weight, np.float64) * factor[:, None]
        bias = (np.asarray(node.bias, np.float64) - centre) * factor
        place = next(i for i, n in enumerate(graph.nodes) if n is node)
        graph.nodes[place : place + 1] = [
            replace(node, output=inner, weight=weight, bias=bias),
            *_undone(graph, inner, name, factor, centre),
        ]
    return graph


def _factors(tops: Array) -> Array:
    """Of every column, which reaches so far from its centre."""
    largest = float(tops.max())
    wanted = np.where(tops > largest * 2.0**-200, largest / np.maximum(tops, 1e-300), 1.0)
    return np.where(wanted >= SMALLER, np.exp2(np.floor(np.log2(wanted / ROOM))), 1.0)


def _centres(values: Array) -> Array:
    """Of every column: a multiple of a quarter of its range, as a power of two; zero where it is near zero."""
    if len(values) < LEAST_ROWS:
        # rows that happen to be alike
        return np.zeros(values.shape[1])
    low, high = values.min(axis=0), values.max(axis=0)
    half, top = (high - low) / 2, np.maximum(np.abs(low), np.abs(high))
    centre = np.zeros(len(half))
    for k in np.flatnonzero((half > LEAST * top) & (top > CENTRED * half)):
        step = 2.0 ** math.floor(math.log2(half[k] / 2))
        centre[k] = round((low[k] + high[k]) / 2 / step) * step
    return centre


def _undone(graph: Graph, inner: str, name: str, factor: Array, centre: Array) -> list[Node]:
    """The client's way from what a layer gives to an output."""
    if not centre.any():
        return [Op(inner, "channel_scale", [inner], name, {"factor": (1.0 / factor).tolist()})]
    count = len(factor)
    if count == 1:
        return [Op(inner, "affine", [inner], name, {"mul": 1.0 / float(factor[0]), "add": float(centre[0])})]
    # a one behind the columns, then y / f + 1 c
    longer = fresh(graph, f"{inner}.one", (count + 1,))
    indices, weights = [list(range(count)), [count] * count], [(1.0 / factor).tolist(), centre.tolist()]
    return [
        Op(longer, "pad", [inner], longer, {"pads": [0, 1], "value": 1.0}),
        Op(inner, "interpolate", [longer], name, {"axis": 0, "indices": indices, "weights": weights}),
    ]


def target_factors(graph: Graph) -> dict[str, Array]:
    """By name of an output the factors that :func:`scale_targets` gave its columns."""
    return {name: factor for name, (factor, _) in _undoing(graph).items()}


def target_centres(graph: Graph, exact: Mapping[str, Array], classes: Collection[str] = ()) -> dict[str, Array]:
    """By name of an output whose columns count each by itself, the centres of its columns.

    Args:
        graph: with the factors and centres of :func:`scale_targets`.
        exact: values of outputs on calibration data, whose columns far from zero are found where none is centred.
        classes: as there.
    """
    found = {name: centre for name, (_, centre) in _undoing(graph).items()}
    for name in (*regressions(graph, classes), *found):
        if name in exact and len(exact[name]) and not (name in found and found[name].any()):
            values = np.asarray(exact[name], np.float64).reshape(len(exact[name]), -1)
            centre = _centres(values) if np.isfinite(values).all() else np.zeros(values.shape[1])
            if name in found or centre.any():
                found[name] = centre
    return found


def distances(graph: Graph, exact: Mapping[str, Array], centres: Mapping[str, Array]) -> dict[str, int]:
    """By name of a tensor that a layer gives for targets, bits that its columns have in common.

    So many more than usual its values need, where no centre is taken away: the largest value, as a multiple of what
    the column differs by that lies farthest from zero beside that.

    Args:
        exact: values of outputs on calibration data.
        centres: of :func:`target_centres`.
    """
    factors, made = target_factors(graph), {node.output: node for node in graph.nodes}
    found = {}
    for name, centre in centres.items():
        if name not in exact or not centre.any():
            continue
        values = np.asarray(exact[name], np.float64).reshape(len(exact[name]), -1) * factors.get(name, 1.0)
        half = np.abs(values - centre * factors.get(name, 1.0)).max(axis=0)[centre != 0.0]
        node = made[name]
        inner = node.inputs[0] if name in factors and isinstance(node, Op) else name
        if half.min() > 0:
            found[inner] = max(0, math.ceil(math.log2(float(np.abs(values).max()) / float(half.min()))))
    return found


def _undoing(graph: Graph) -> dict[str, tuple[Array, Array]]:
    found = {}
    for node in graph.nodes:
        if isinstance(node, Op) and node.name.endswith(_NAME) and node.output in graph.outputs:
            if node.op == "channel_scale":
                factor = 1.0 / np.asarray(node.attrs["factor"])
                found[node.output] = factor, np.zeros(len(factor))
            elif node.op == "affine":
                found[node.output] = np.array([1.0 / node.attrs["mul"]]), np.array([node.attrs["add"]])
            elif node.op == "interpolate":
                inverse, centre = (np.asarray(v) for v in node.attrs["weights"])
                found[node.output] = 1.0 / inverse, centre
    return found

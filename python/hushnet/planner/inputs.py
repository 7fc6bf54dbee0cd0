"""Scales for the features of an input that differ in size.

One scale for all leaves small features a few steps, or none. So the client multiplies feature k by a factor f_k
before anything is quantised or encrypted (and moves it by a centre c_k where it lies far from zero), and the first
layers read ``W / f``. That is exact over the reals: ``W x + b = (W / f) (f (x - c)) + (b + W c)``.

Factors are powers of two, and follow from the calibration data alone: they leave the smallest features two to four
times the room that the margin gives the largest. Where the caller declares a range for every feature, they follow from
these ranges, and no value of a range saturates. Weights decide one thing, whether an input has factors at all: only
where one scale costs a layer its precision (:data:`WORTH`). Images, whose pixels are alike, keep one scale, so that a
pixel that the calibration data never lit keeps the range of the others. Columns that the client makes of its inputs in
front of a dense layer (products of features, logarithms, normalised rows) have factors in the same way. What else reads
an input (the difference of an autoencoder's score, a skip) reads it as it is: factors are of layers alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from ..graph import Conv2d, Dense, Graph, Linear, Node, Op
from ..passes.edit import fresh, input_scaled
from ..reference.float import evaluate, linear
from .ranges import InputRanges, by_feature, input_intervals

Array = np.ndarray

# one scale of 12 bits is kept where the rounding of inputs moves no output by more than this share of its deviation ...
WORTH = 2.0**-8
STEPS = 2**11 - 1
# ... and where factors make it less than so many times smaller
GAIN = 2.0
# a small feature is multiplied until its planned range is between a quarter and a half of the largest feature's
ROOM = 2.0
# a feature is centred where that makes its range so many times smaller
CENTRED = 4.0
LOOKED_AT = 512
# what factors of declared ranges leave: nothing lies outside
DECLARED_ROOM = 1.0
# values of columns that clients make, of all calibration rows, that are looked at
MOST_MADE = 1 << 26


@dataclass(frozen=True)
class _Scales:
    """Factor and centre of every feature."""

    factor: Array
    centre: Array


def scale_inputs(graph: Graph, samples: Mapping[str, Array] | None, margin: float, declared: InputRanges) -> Graph:
    """The graph with factors for the features of inputs that need them; the given one is left as it is.

    Args:
        samples: calibration inputs by name; without them, and without ranges for every feature, nothing is known of
            single features, and the graph stays.
        margin: planned range over the largest calibrated value.
        declared: ranges that the caller gave. An input with one range for all keeps one scale, since every feature may
            fill it.

    Raises:
        PlanError: a declared range that is none.
    """
    given = {} if declared is None else input_intervals(graph, declared)
    own = {name: pair for name, pair in given.items() if by_feature(pair)}
    empty = samples is None or next(iter(samples.values())).shape[0] == 0
    if empty and not own:
        return graph
    graph = Graph(graph.name, list(graph.inputs), list(graph.outputs), dict(graph.shapes), list(graph.nodes))
    for name in graph.inputs:
        said = declared is not None and (not isinstance(declared, Mapping) or name in declared)
        readers = _readers(graph, name)
        if not readers or (name not in own and (said or empty)):
            continue
        rows = None if empty or samples is None else samples[name]
        if name in own:
            low, high = own[name]
            ends = np.stack([low, high])
            # the ends of every range, and rows between them
            rng = np.random.default_rng(0)
            rows = rng.uniform(low, high, (LOOKED_AT, *graph.shapes[name])) if rows is None else rows
            room, reach = DECLARED_ROOM, 1.0
        else:
            assert rows is not None, "an input without data and ranges is left out"
            ends, room, reach = rows, ROOM, margin
        centred = all(not _padded(node) for node in readers)
        scales = _scales(_features(ends, readers), room, centres=centred)
        if _needed(rows, ends, readers, scales, reach):
            _write(graph, name, readers, scales)
    if samples is not None and not empty:
        _scale_made(graph, samples, margin)
    return graph


def _scale_made(graph: Graph, samples: Mapping[str, Array], margin: float) -> None:
    """Scales for the columns that the client makes of its inputs (products, logarithms, flags) for dense layers."""
    clear, head = set(graph.inputs), list[Op]()
    for node in graph.nodes:
        if isinstance(node, Op) and all(name in clear for name in node.inputs):
            clear.add(node.output)
            head.append(node)
    made: dict[str, list[Linear]] = {}
    for node in head:
        readers = _readers(graph, node.output)
        if readers and all(map(_of_elements, readers)) and node.op not in ("reshape", "channel_scale"):
            made[node.output] = readers
    rows = len(next(iter(samples.values())))
    if not made or rows * sum(math.prod(graph.shapes[n]) for n in clear) > MOST_MADE:
        return
    values = evaluate(replace(graph, nodes=list(head), outputs=list(made)), samples)
    for name, readers in made.items():
        x = values[name]
        scales = _scales(_features(x, readers), ROOM, centres=not any(map(_padded, readers)))
        if np.isfinite(x).all() and _needed(x, x, readers, scales, margin):
            _write(graph, name, readers, scales)


def _readers(graph: Graph, tensor: str) -> list[Linear]:
    """The layers that read an input, directly or as one row behind reshapes; none where features are no single thing.

    Operators that read it beside them read on what they read.
    """
    found: list[Linear] = []
    direct: list[Linear] = []
    pending = [tensor]
    while pending:
        current = pending.pop()
        for node in graph.nodes:
            if isinstance(node, Linear):
                if node.input == current:
                    found.append(node)
                    direct += [node] if current == tensor else []
            elif node.op == "reshape" and current in node.inputs:
                pending.append(node.output)
    if all(_of_elements(node) for node in found):
        return found
    # the channels of an image: features of what reads it as it is, alone
    return found if len(direct) == len(found) and not any(isinstance(n.geometry, Dense) for n in found) else []


def _of_elements(node: Linear) -> bool:
    """Whether every element that a layer reads is a channel of its own, in order."""
    return isinstance(node.geometry, Dense) or tuple(node.geometry.input[1:]) == (1, 1)


def _padded(node: Linear) -> bool:
    return isinstance(node.geometry, Conv2d) and any(node.geometry.pads)


def _features(x: Array, readers: list[Linear]) -> Array:
    """Values as (images, features, positions): a feature is a channel of images, else an element."""
    if all(map(_of_elements, readers)):
        return x.reshape(x.shape[0], -1, 1)
    return x.reshape(x.shape[0], x.shape[1], -1)


def _scales(parts: Array, room: float, *, centres: bool) -> _Scales:
    low, high = parts.min(axis=(0, 2)), parts.max(axis=(0, 2))
    top = np.maximum(np.abs(low), np.abs(high))
    half = (high - low) / 2
    centre = np.zeros_like(top)
    if centres:
        for k in np.flatnonzero((half > 0) & (top > CENTRED * half)):
            # a multiple of a quarter of the range, as a power of two: what a client is told of a feature is short
            step = 2.0 ** math.floor(math.log2(half[k] / 2))
            middle = round((low[k] + high[k]) / 2 / step) * step
            reach = max(high[k] - middle, middle - low[k])
            if math.isfinite(middle) and reach * CENTRED < top[k]:
                centre[k] = middle
    reach = np.maximum(high - centre, centre - low)
    largest = reach.max(initial=0.0)
    factor = np.ones_like(top)
    for k in np.flatnonzero(reach > 0):
        more = math.floor(math.log2(largest / (room * reach[k])))
        if more > 0 and reach[k] > largest * 2.0**-200:
            factor[k] = 2.0**more
    return _Scales(factor, centre)


def _needed(x: Array, ends: Array, readers: list[Linear], scales: _Scales, margin: float) -> bool:
    """Whether one scale for all features costs some layer its precision, and factors give it back.

    ``x`` are usual rows, ``ends`` rows with the largest values.
    """
    step = margin * float(np.abs(ends).max(initial=0.0)) / STEPS
    scaled = (_features(ends, readers) - scales.centre[:, None]) * scales.factor[:, None]
    fine = margin * float(np.abs(scaled).max(initial=0.0)) / STEPS
    before = after = 0.0
    for node in readers:
        y = linear(node, x[:LOOKED_AT].reshape(len(x[:LOOKED_AT]), *_input_shape(node)))
        deviation = y.reshape(len(y), len(node.bias), -1).std(axis=(0, 2))
        told = deviation > 0.01 * deviation.max(initial=0.0)
        if not told.any():
            continue
        noise = [_noise(node, np.full(len(scales.factor), step)), _noise(node, fine / scales.factor)]
        before, after = (max(v, float((n[told] / deviation[told]).max())) for v, n in zip((before, after), noise))
    return before > WORTH and before > GAIN * after


def _input_shape(node: Linear) -> tuple[int, ...]:
    return tuple(node.geometry.input) if isinstance(node.geometry, Conv2d) else (node.geometry.inputs,)


def _noise(node: Linear, steps: Array) -> Array:
    """Standard deviation of every output row when feature k is rounded to multiples of ``steps[k]``."""
    if isinstance(node.geometry, Dense):
        power = node.weight**2 @ steps**2
    else:
        geometry = node.geometry
        taps = (node.weight**2).reshape(geometry.groups, geometry.output[0] // geometry.groups, -1, *geometry.kernel)
        of = (steps**2).reshape(geometry.groups, 1, -1)
        power = (taps.sum(axis=(3, 4)) * of).sum(axis=2).reshape(-1)
    return np.sqrt(power / 12.0)


def _write(graph: Graph, name: str, readers: list[Linear], scales: _Scales) -> None:
    """Puts the client's operations behind an input or what it made of some, and their inverse into the readers."""
    features = len(scales.factor)
    before: list[Node] = []
    tensor, shape = name, tuple(graph.shapes[name])
    if all(map(_of_elements, readers)) and shape != (features,):
        tensor, shape = _op(graph, before, "reshape", tensor, (features,), {}), (features,)
    if scales.centre.any():
        # as one chain of operations on one operand: a row of ones, then f x + (-f c) 1
        pads = [0] * (2 * len(shape))
        pads[len(shape)] = 1
        tensor = _op(graph, before, "pad", tensor, (features + 1, *shape[1:]), {"pads": pads, "value": 1.0})
        attrs = {
            "axis": 0,
            "indices": [list(range(features)), [features] * features],
            "weights": [scales.factor.tolist(), (-scales.factor * scales.centre).tolist()],
        }
        tensor = _op(graph, before, "interpolate", tensor, shape, attrs)
    else:
        tensor = _op(graph, before, "channel_scale", tensor, shape, {"factor": scales.factor.tolist()})
    for node in readers:
        folded = input_scaled(node, 1.0 / scales.factor, scales.centre)
        assert folded is not None, "layers with padding have no centres"
        position, source = next(i for i, n in enumerate(graph.nodes) if n is node), tensor
        if isinstance(node.geometry, Conv2d) and tuple(node.geometry.input) != shape:
            source = _op(graph, before, "reshape", tensor, tuple(node.geometry.input), {})
        graph.nodes[position] = replace(folded, input=source)
    made = next((i + 1 for i, node in enumerate(graph.nodes) if node.output == name), 0)
    graph.nodes[made:made] = before
    read = set(graph.outputs) | {t for n in graph.nodes for t in ([n.input] if isinstance(n, Linear) else n.inputs)}
    while len(kept := [n for n in graph.nodes if n.output in read]) < len(graph.nodes):
        graph.nodes[:] = kept
        read = set(graph.outputs) | {t for n in kept for t in ([n.input] if isinstance(n, Linear) else n.inputs)}


def _op(graph: Graph, nodes: list[Node], op: str, source: str, shape: tuple[int, ...], attrs: dict) -> str:
    result = fresh(graph, f"{source}.scaled", shape)
    taken, name = {n.name for n in (*graph.nodes, *nodes)}, result
    while name in taken:
        name += "'"
    nodes.append(Op(name, op, [source], result, attrs))
    return result

"""Errors behind operators that saturate: what calibration saw in front of them counts, not what they hid.

A probability of 0.999 hides an error of its logit that a probability of 0.6 shows a hundred times larger. Calibration
data that a classifier is sure of therefore says nothing of inputs that it is not sure of. The deviation in front of the
first softmax, sigmoid or tanh behind the last layers does. It is carried through what follows by the rules of
:mod:`.rules`, which hold for every input. Products in front of it have errors that grow with their values: where scores
are sums of squares, those of classes without a chance are the largest, and their errors too. Such scores count where
they decide (:func:`deciding`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from ..graph import Graph, Linear, Op
from ..plan import Plan
from ..reference.float import evaluate
from .errors import DECIDING
from .quality import LEAST_NEAREST, NEAREST, likely
from .rules import RULES

Array = np.ndarray

SATURATING = frozenset({"softmax", "sigmoid", "tanh", "hard_sigmoid", "softplus"})


@dataclass(frozen=True)
class Tail:
    """What stands between the last linear layers and an output.

    Attributes:
        sources: outputs of those layers.
        front: the client's operators behind them that nothing saturates in front of, in order.
        heads: what the others read.
        nodes: the client's operators from the first that saturates on, in order.
    """

    sources: tuple[str, ...]
    front: tuple[Op, ...]
    heads: tuple[str, ...]
    nodes: tuple[Op, ...]


def tails(graph: Graph) -> dict[str, Tail]:
    """The tail of every output behind a saturating operator; outputs that need an input beside layers have none."""
    made = {node.output: node for node in graph.nodes}
    found = {}
    for output in graph.outputs:
        names, waiting = set(), [output]
        while waiting:
            name = waiting.pop()
            node = made.get(name)
            if name in names:
                continue
            names.add(name)
            if isinstance(node, Op):
                waiting += node.inputs
        nodes = tuple(n for n in graph.nodes if n.output in names and isinstance(n, Op))
        sources = tuple(n.output for n in graph.nodes if n.output in names and isinstance(n, Linear))
        needs_input = any(name not in made for name in names)
        if sources and not needs_input and any(n.op in SATURATING for n in nodes):
            found[output] = _cut(sources, nodes)
    return found


def _cut(sources: tuple[str, ...], nodes: tuple[Op, ...]) -> Tail:
    """The tail, cut in front of what saturates first."""
    behind: set[str] = set()
    for node in nodes:
        if node.op in SATURATING or not behind.isdisjoint(node.inputs):
            behind.add(node.output)
    rest = tuple(n for n in nodes if n.output in behind)
    heads = dict.fromkeys(t for n in rest for t in n.inputs if t not in behind)
    return Tail(sources, tuple(n for n in nodes if n.output not in behind), tuple(heads), rest)


def heads(graph: Graph, tail: Tail, values: Mapping[str, Array]) -> dict[str, Array]:
    """What the saturating operators read, from values of the layers in front of them ``[rows, ...]``."""
    given = {name: values[name] for name in tail.sources}
    cut = replace(graph, inputs=list(tail.sources), outputs=list(tail.heads), nodes=list(tail.front))
    with np.errstate(all="ignore"):
        return evaluate(cut, given)


def watched_heads(plan: Plan, behind: Mapping[str, Tail]) -> dict[str, int]:
    """Of tails whose heads the client computes or opens: by name of a head its tensor in the plan.

    The plan's tail is then what the client does; where a head is computed on shares, nothing is said of it.
    """
    named = {t["name"]: t["id"] for t in plan.tensors if t["kind"] == "real"}
    return {h: named[h] for tail in behind.values() if named.keys() >= set(tail.heads) for h in tail.heads}


def stated(
    graph: Graph,
    behind: Mapping[str, Tail],
    mine: Mapping[str, Array],
    exact: Mapping[str, Array],
    limit: Mapping[str, float],
    noise: float = 0.0,
) -> dict[str, float]:
    """By output what 999 rows of 1000 stay below, whether calibration data are sure of themselves or not.

    Args:
        mine, exact: planned and original values of heads, ``[rows, ...]``; tails without them have no entry.
        limit: the range of every tensor.
        noise: what planned values do not have of errors of heads.
    """
    found = {}
    for output, tail in behind.items():
        if not mine.keys() >= set(tail.heads):
            continue
        errors = {name: error + noise for name, error in head_errors(tail, mine, exact).items()}
        most = carried(graph, tail, output, errors, limit)
        # behind a logarithm or a division no rule may bound the error: what was seen stands alone
        if math.isfinite(most):
            found[output] = most
    return found


def head_errors(tail: Tail, mine: Mapping[str, Array], exact: Mapping[str, Array]) -> dict[str, float]:
    """What errors of every head stay below in 999 rows of 1000, from planned and original values ``[rows, ...]``."""
    squashed = {n.inputs[0]: n for n in tail.nodes if n.op in ("softmax", "sigmoid") and n.inputs[0] in tail.heads}
    made = {n.output for n in tail.front}
    found = {}
    for name in tail.heads:
        true = exact[name]
        off = mine[name].reshape(true.shape) - true
        if name in made and name in squashed and true.size:
            off = deciding(off, true, squashed[name].attrs.get("axis"))
        found[name] = likely(np.abs(off).reshape(len(off), -1).max(axis=1, initial=0.0))
    return found


def deciding(off: Array, scores: Array, axis: int | None) -> Array:
    """Errors ``[n]`` that count in the nearer half of all decisions.

    Of a sigmoid, these are those of the scores nearest to zero. Of a softmax, the rows whose two largest scores are
    nearest count, with the scores that are as near to the largest: what all of them are off by moves nothing, so the
    error is half of what separates theirs.

    Args:
        off, scores: errors and scores ``[rows, ...]``.
        axis: of the classes of a softmax, in a row; None for a sigmoid.
    """
    if axis is None:
        off, gap = off.reshape(-1), np.abs(scores).reshape(-1)
        return off[np.argsort(gap)[: _half(len(gap))]]
    place = axis + 1 if axis >= 0 else axis
    classes = scores.shape[place]
    off, scores = (np.moveaxis(v, place, -1).reshape(-1, classes) for v in (off, scores))
    gap = scores.max(axis=1, keepdims=True) - scores
    second = np.partition(gap, min(1, classes - 1), axis=1)[:, min(1, classes - 1)]
    near = np.argsort(second)[: _half(len(second))]
    counted = gap[near] <= second[near[-1]]
    return (np.where(counted, off[near], -np.inf).max(axis=1) - np.where(counted, off[near], np.inf).min(axis=1)) / 2


def _half(count: int) -> int:
    return max(LEAST_NEAREST, math.ceil(NEAREST * count))


def carried(graph: Graph, tail: Tail, output: str, errors: Mapping[str, float], limit: Mapping[str, float]) -> float:
    """The largest error of an output, given that of every head and the range of every tensor.

    Comparisons, roundings and places go as they do without errors: :mod:`.jumps` has what is said of them.
    """
    spreads = {name: np.full(graph.shapes[name], errors[name]) for name in tail.heads}
    for node in tail.nodes:
        rule, shape = RULES[node.op], graph.shapes[node.output]
        pairs = [(np.full(graph.shapes[t], -limit[t]), np.full(graph.shapes[t], limit[t])) for t in node.inputs]
        with np.errstate(all="ignore"):
            given = [0.0 * spreads[t] if node.op in DECIDING else spreads[t] for t in node.inputs]
            spread = rule.spread(node.attrs, pairs, given, shape, False)
        spread = np.where(np.isnan(spread), np.inf, spread)
        spreads[node.output] = np.minimum(spread, rule.width(node.attrs))
    return float(spreads[output].max(initial=0.0))

"""Errors behind operators that saturate: what calibration saw in front of them counts, not what they hid.

A probability of 0.999 hides an error of its logit that a probability of 0.6 shows a hundred times larger. Calibration
data that a classifier is sure of therefore says nothing of inputs that it is not sure of. The deviation in front of the
last softmax, sigmoid or tanh does. It is carried through what follows by the rules of :mod:`.rules`, which hold for
every input.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ..graph import Graph, Linear, Op
from .errors import DECIDING
from .rules import RULES

Array = np.ndarray

SATURATING = frozenset({"softmax", "sigmoid", "tanh", "hard_sigmoid"})


@dataclass(frozen=True)
class Tail:
    """What stands between the last linear layers and an output.

    Attributes:
        sources: outputs of those layers.
        nodes: the client's operators behind them, in order.
    """

    sources: tuple[str, ...]
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
            found[output] = Tail(sources, nodes)
    return found


def carried(graph: Graph, tail: Tail, output: str, errors: Mapping[str, float], limit: Mapping[str, float]) -> float:
    """The largest error of an output, given that of every source and the range of every tensor.

    Comparisons, roundings and places go as they do without errors: :mod:`.jumps` has what is said of them.
    """
    spreads = {name: np.full(graph.shapes[name], errors[name]) for name in tail.sources}
    for node in tail.nodes:
        rule, shape = RULES[node.op], graph.shapes[node.output]
        pairs = [(np.full(graph.shapes[t], -limit[t]), np.full(graph.shapes[t], limit[t])) for t in node.inputs]
        with np.errstate(all="ignore"):
            given = [0.0 * spreads[t] if node.op in DECIDING else spreads[t] for t in node.inputs]
            spread = rule.spread(node.attrs, pairs, given, shape, False)
        spread = np.where(np.isnan(spread), np.inf, spread)
        spreads[node.output] = np.minimum(spread, rule.width(node.attrs))
    return float(spreads[output].max(initial=0.0))

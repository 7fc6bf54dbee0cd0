"""Errors behind operators that saturate: what calibration saw in front of them counts, not what they hid.

A probability of 0.999 hides an error of its logit that a probability of 0.6 shows a hundred times larger. Calibration
data that a classifier is sure of therefore says nothing of inputs that it is not sure of. The deviation in front of the
first softmax, sigmoid or tanh behind the last layers does. It is carried through what follows by the rules of
:mod:`.rules`, which hold for every input. Products in front of it have errors that grow with their values: where scores
are sums of squares, those of classes without a chance are the largest, and their errors too. Such scores count where
they decide (:func:`deciding`).

Probabilities that are divided by their sum (one class against the rest) have errors without a bound where the sum is
small. Rows between the calibration rows say how often it is (:func:`between`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from ..graph import Graph, Linear, Node, Op
from ..plan import Plan
from ..reference.float import evaluate
from .errors import DECIDING
from .quality import DEVIATIONS, FACTOR, LEAST_NEAREST, NEAREST, likely
from .rules import RULES

Array = np.ndarray

SATURATING = frozenset({"softmax", "sigmoid", "tanh", "hard_sigmoid", "softplus", "clip"})
# a sigmoid that is written out
_PARTS = frozenset({"exp", "div"})
# rows between calibration rows: so many, fewer where a tail has more than so many values; of so many, one may be beyond
BETWEEN, LEAST_BETWEEN, MOST_VALUES, BEYOND = 4096, 64, 1 << 23, 1000


@dataclass(frozen=True)
class Tail:
    """What stands between the last linear layers and an output.

    Attributes:
        sources: outputs of those layers.
        front: the client's operators behind them that nothing saturates in front of, in order.
        heads: what the others read.
        nodes: the client's operators from the first that saturates on, in order.
        constants: operators of which every result is the same (``x * 0 + c``): they need nothing.
    """

    sources: tuple[str, ...]
    front: tuple[Op, ...]
    heads: tuple[str, ...]
    nodes: tuple[Op, ...]
    constants: tuple[Op, ...] = ()


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
            if isinstance(node, Op) and not constant(node):
                waiting += node.inputs
        every = [n for n in graph.nodes if n.output in names and isinstance(n, Op)]
        nodes, constants = (tuple(n for n in every if constant(n) == same) for same in (False, True))
        sources = tuple(n.output for n in graph.nodes if n.output in names and isinstance(n, Linear))
        needs_input = any(name not in made for name in names)
        ops = {n.op for n in nodes}
        saturating = SATURATING | (_PARTS - {"div"} if ops >= _PARTS else frozenset())
        if sources and not needs_input and not ops.isdisjoint(saturating):
            found[output] = replace(_cut(sources, nodes, saturating, constants), constants=constants)
    return found


def constant(node: Node) -> bool:
    """Whether all results are the same."""
    return isinstance(node, Op) and node.op == "affine" and node.attrs["mul"] == 0


def _cut(
    sources: tuple[str, ...], nodes: tuple[Op, ...], saturating: frozenset[str], constants: tuple[Op, ...]
) -> Tail:
    """The tail, cut in front of what saturates first."""
    behind: set[str] = set()
    for node in nodes:
        if node.op in saturating or not behind.isdisjoint(node.inputs):
            behind.add(node.output)
    rest = tuple(n for n in nodes if n.output in behind)
    alike = {n.output for n in constants}
    heads = dict.fromkeys(t for n in rest for t in n.inputs if t not in behind and t not in alike)
    return Tail(sources, tuple(n for n in nodes if n.output not in behind), tuple(heads), rest)


def heads(graph: Graph, tail: Tail, values: Mapping[str, Array]) -> dict[str, Array]:
    """What the saturating operators read, from values of the layers in front of them ``[rows, ...]``."""
    given = {name: values[name] for name in tail.sources} | _same(graph, tail, len(values[tail.sources[0]]))
    cut = replace(graph, inputs=list(given), outputs=list(tail.heads), nodes=list(tail.front))
    with np.errstate(all="ignore"):
        return evaluate(cut, given)


def _same(graph: Graph, tail: Tail, rows: int) -> dict[str, Array]:
    """The constants of a tail, ``[rows, ...]``."""
    return {n.output: np.full((rows, *graph.shapes[n.output]), n.attrs["add"]) for n in tail.constants}


def watched_heads(plan: Plan, behind: Mapping[str, Tail], shared: Mapping[str, int] | None = None) -> dict[str, int]:
    """Of tails whose heads the client computes or opens: by name of a head its tensor in the plan.

    The plan's tail is then what the client does. Where a head is computed on shares, nothing is said of it, but where
    nothing else than clips saturates on shares.

    Args:
        shared: tensors of the plan by what they hold of the graph, of those on shares.
    """
    named = {t["name"]: t["id"] for t in plan.tensors if t["kind"] == "real"}
    found: dict[str, int] = {}
    for tail in behind.values():
        known = named
        if shared and all(n.op == "clip" or n.output in named for n in tail.nodes if n.op in SATURATING):
            known = {**shared, **named}
        if known.keys() >= set(tail.heads):
            found |= {h: known[h] for h in tail.heads}
    return found


def stated(
    graph: Graph,
    behind: Mapping[str, Tail],
    mine: Mapping[str, Array],
    exact: Mapping[str, Array],
    limit: Mapping[str, float],
    noise: float = 0.0,
    units: Mapping[str, float] | None = None,
) -> dict[str, float]:
    """By output what 999 rows of 1000 stay below, whether calibration data are sure of themselves or not.

    Args:
        mine, exact: planned and original values of heads, ``[rows, ...]``; tails without them have no entry.
        limit: the range of every tensor.
        noise: what planned values do not have of errors of heads.
        units: what a unit of a tensor that is opened behind heads is worth.
    """
    found = {}
    for output, tail in behind.items():
        if not mine.keys() >= set(tail.heads):
            continue
        errors = {name: error + noise for name, error in head_errors(tail, mine, exact).items()}
        most = carried(graph, tail, output, errors, limit)
        if _divided_by_their_sum(graph, tail):
            most = min(most, between(graph, tail, output, errors, exact, units or {}))
        # behind a logarithm or another quotient no rule may bound the error: what was seen stands alone
        if math.isfinite(most):
            found[output] = most
    return found


def _divided_by_their_sum(graph: Graph, tail: Tail) -> bool:
    """Whether an operator divides values by what is computed from them; other terms may be added to both.

    Elsewhere (a cosine of two embeddings) rows between calibration rows are not what is to be expected: halfway between
    two directions vectors are short, and errors of their quotient larger than any that a row has.
    """
    made = {n.output: n for n in tail.nodes}

    def above(name: str, whole: int = 0) -> set[str]:
        """What a tensor is computed from in the tail; of tensors that are ``whole`` alone, where that is given."""
        found, waiting = {name}, [name]
        while waiting:
            node = made.get(waiting.pop())
            for given in node.inputs if node is not None else ():
                if given not in found and (not whole or math.prod(graph.shapes[given]) == whole):
                    found.add(given)
                    waiting.append(given)
        return found

    divided = {n.output for n in tail.nodes if n.op == "div"}
    pairs = [(n.inputs[0], n.inputs[1]) for n in tail.nodes if n.op == "div" and len(n.inputs) == 2]
    # products with reciprocals, either way round
    products = [n.inputs for n in tail.nodes if n.op == "mul" and len(n.inputs) == 2]
    pairs += [(a, b) for first, second in products for a, b in ((first, second), (second, first)) if above(b) & divided]
    return any(above(a, math.prod(graph.shapes[a])) & above(b) for a, b in pairs)


def between(
    graph: Graph,
    tail: Tail,
    output: str,
    errors: Mapping[str, float],
    exact: Mapping[str, Array],
    units: Mapping[str, float],
) -> float:
    """What errors of an output stay below in 999 of 1000 rows that lie between two calibration rows.

    Rules bound no quotient whose divisor may be next to zero. A row between two of different classes is unsure, however
    sure both are. Heads are drawn on the lines between pairs of rows, evenly, with Gaussian errors, of which
    ``errors`` are :data:`~.quality.DEVIATIONS` deviations. What is opened behind them is rounded up with the
    probability of the remainder.
    """
    rng, rows = np.random.default_rng(0), len(exact[tail.heads[0]])
    values = sum(math.prod(graph.shapes[n.output]) for n in tail.nodes)
    count = max(LEAST_BETWEEN, min(BETWEEN, MOST_VALUES // max(values, 1)))
    ends, part = rng.integers(0, rows, (2, count)), rng.uniform(size=count)
    given, moved = _same(graph, tail, count), _same(graph, tail, count)
    for name in tail.heads:
        shape = tuple(graph.shapes[name])
        first, second = (exact[name].reshape(rows, *shape)[end] for end in ends)
        given[name] = first + part.reshape(-1, *[1] * len(shape)) * (second - first)
        moved[name] = given[name] + rng.normal(size=given[name].shape) * (errors[name] / DEVIATIONS)
    opened = [n.output for n in tail.nodes if n.output in units]
    cut = replace(graph, inputs=list(given), outputs=[*opened, output], nodes=list(tail.nodes))
    with np.errstate(all="ignore"):
        true, off = (evaluate(cut, v) for v in (given, moved))
        if opened:
            steps = {t: np.floor(off[t] / units[t] + rng.uniform(size=off[t].shape)) * units[t] for t in opened}
            last: list[Node] = [n for n in tail.nodes if n.output not in opened]
            rest = replace(cut, inputs=[*given, *opened], outputs=[output], nodes=last)
            off = evaluate(rest, {**moved, **steps})
        most = np.abs(off[output] - true[output]).reshape(count, -1).max(axis=1, initial=0.0)
    # rows may lie nearer to where the divisor is small than these do: room as for rows that were not seen
    return FACTOR * float(np.quantile(np.where(np.isnan(most), np.inf, most), 1 - 1 / BEYOND, method="higher"))


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
    spreads |= {n.output: np.zeros(graph.shapes[n.output]) for n in tail.constants}
    limit = {**limit, **{n.output: abs(n.attrs["add"]) for n in tail.constants}}
    for node in tail.nodes:
        rule, shape = RULES[node.op], graph.shapes[node.output]
        pairs = [(np.full(graph.shapes[t], -limit[t]), np.full(graph.shapes[t], limit[t])) for t in node.inputs]
        with np.errstate(all="ignore"):
            given = [0.0 * spreads[t] if node.op in DECIDING else spreads[t] for t in node.inputs]
            spread = rule.spread(node.attrs, pairs, given, shape, False)
        spread = np.where(np.isnan(spread), np.inf, spread)
        spreads[node.output] = np.minimum(spread, rule.width(node.attrs))
    return float(spreads[output].max(initial=0.0))

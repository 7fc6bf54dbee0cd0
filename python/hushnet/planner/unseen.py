"""Errors of roots, logarithms and quotients on rows where these are steeper than on any calibration row.

What a client computes from opened values has their error, times a slope. A logarithm is steep next to zero, and so
is a root: few rows have an argument there, and 50 calibration rows may have none of what 1000 rows have three. The
error of arguments is known from all rows, and so is how densely rows lie around such a place. So rows are drawn
between and next to calibration rows, as a smoothed bootstrap does (Silverman and Young, "The Bootstrap: To Smooth or
Not to Smooth?", Biometrika 1987), and get errors that calibration rows have shown, in front of the first steep operator
and in every layer behind it.

Comparisons, roundings and places are no matter of slopes: :mod:`.jumps` has what is said of outputs behind them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

import numpy as np

from ..graph import Graph, Linear, Node
from ..plan import Plan
from ..reference.float import linear
from ..reference.ops import OPS
from .errors import DECIDING
from .jumps import in_blocks
from .quality import FACTOR, MORE
from .tail import constant

Array = np.ndarray

# operators that are steep somewhere, whatever their operands are multiplied by
STEEP = frozenset({"sqrt", "log", "div"})
# rows that are drawn, of which one in so many may be beyond; fewer where they and what is computed from them have more
# than so many values, and none where they would not be as many
DRAWN, BEYOND, MOST_VALUES = 1 << 15, 1000, 1 << 22


@dataclass(frozen=True)
class Steep:
    """What stands between opened values and an output, with an operator of :data:`STEEP` in it.

    Attributes:
        sources: what the first steep operators are computed from, and what is read beside them further on: results of
            layers, and inputs of the network.
        nodes: operators and layers behind these, in order.
    """

    sources: tuple[str, ...]
    nodes: tuple[Node, ...]

    @property
    def layers(self) -> tuple[str, ...]:
        """Results of the layers among the nodes."""
        return tuple(n.output for n in self.nodes if isinstance(n, Linear))


Found = Mapping[str, Steep]


def steeply(graph: Graph, opened: Collection[str] | None = None) -> dict[str, Steep]:
    """By name the outputs with steep operators behind opened values, and with none that decides behind these.

    Outputs of which few rows could be drawn, as of large networks, are left out.

    Args:
        opened: tensors that clients get to know and compute the rest from; by default results of all layers.
    """
    known: set[str] = set()
    behind: set[str] = set()
    for node in graph.nodes:
        given = _reads(node)
        source = isinstance(node, Linear) if opened is None else node.output in opened
        if source or not known.isdisjoint(given):
            known.add(node.output)
        # errors come behind what is opened, and a layer's result is opened by itself
        steep = not isinstance(node, Linear) and node.op in STEEP and not known.isdisjoint(given)
        if (steep or not behind.isdisjoint(given)) and not (source and opened is not None):
            behind.add(node.output)
    found = {name: _found(graph, name, behind, opened) for name in graph.outputs if name in behind}
    return {
        name: steep
        for name, steep in found.items()
        if not any(map(_decides, steep.nodes)) and _count(graph, steep) >= BEYOND
    }


def _count(graph: Graph, steep: Steep) -> int:
    """Rows that can be drawn."""
    values = sum(math.prod(graph.shapes[name]) for name in (*steep.sources, *(n.output for n in steep.nodes)))
    return min(DRAWN, MOST_VALUES // max(values, 1))


def _found(graph: Graph, output: str, behind: set[str], opened: Collection[str] | None) -> Steep:
    """What leads to an output from the first steep operators on, with the operators in front of them."""
    made = {node.output: node for node in graph.nodes}
    sources, names, waiting = set(), set(), [output]
    while waiting:
        name = waiting.pop()
        if name in names or name in sources:
            continue
        node = made.get(name)
        ends = name not in behind and isinstance(node, Linear) if opened is None else name in opened
        if node is None or ends:
            sources.add(name)
            continue
        names.add(name)
        waiting += [] if constant(node) else _reads(node)
    return Steep(tuple(sorted(sources)), tuple(n for n in graph.nodes if n.output in names))


def _reads(node: Node) -> list[str]:
    return [node.input] if isinstance(node, Linear) else list(node.inputs)


def _decides(node: Node) -> bool:
    return not isinstance(node, Linear) and node.op in DECIDING and node.attrs.get("what") != "values"


def unseen(graph: Graph, found: Found, planned: Mapping[str, Array], exact: Mapping[str, Array]) -> dict[str, float]:
    """By output what 999 rows of 1000 stay below, of rows as dense as calibration rows where its operators are steep.

    Where more than one drawn row of 1000 has no finite error (a logarithm that is not kept from zero) there is no
    entry: what was seen stands alone.

    Args:
        planned: values of sources and layers on the calibration data, ``[rows, ...]``. Clients know inputs exactly:
            they have none.
        exact: the original network's values of sources.
    """
    stated = {}
    for output, steep in found.items():
        rows = len(exact[steep.sources[0]])
        if rows:
            most = _largest(graph, steep, output, planned, exact, _count(graph, steep))
            if math.isfinite(most):
                stated[output] = (FACTOR + MORE / math.sqrt(rows)) * most
    return stated


def sources_of(
    graph: Graph, opened: Collection[str], held: Mapping[str, int], plan: Plan
) -> tuple[dict[str, Steep], dict[str, int]]:
    """The steep operators of a plan that opens some values alone, and by name the tensors that tell their errors.

    Where all that is wanted from layers on is held on shares or by the client, errors begin at layers, else at what the
    client knows.

    Args:
        opened: tensors that the client gets to know.
        held: tensors of the plan by what they hold of the graph, of those on shares.
    """
    known = {**held, **{t["name"]: t["id"] for t in plan.tensors if t["kind"] == "real"}}
    found = steeply(graph, opened)
    for output, steep in steeply(graph).items():
        if known.keys() | set(graph.inputs) >= {*steep.sources, *steep.layers}:
            found[output] = steep
    names = {name for steep in found.values() for name in (*steep.sources, *steep.layers)}
    return found, {name: known[name] for name in names - set(graph.inputs) if name in known}


def from_samples(
    graph: Graph, found: Found, planned: Mapping[str, Array], samples: Mapping[str, Array], noise: float = 0.0
) -> dict[str, float]:
    """:func:`unseen`, with the original network's values from calibration inputs.

    Args:
        planned: values of what :func:`sources_of` names, ``[rows, ...]``.
        samples: calibration inputs.
        noise: deviation of errors that planned values do not have.
    """
    known = planned.keys() | set(graph.inputs)
    # where something is not known, calibration rows speak alone
    found = {k: s for k, s in found.items() if known >= {*s.sources, *s.layers}}
    if not found:
        return {}
    names = {name for steep in found.values() for name in steep.sources}
    exact = in_blocks(graph, dict(samples), sorted(names))
    rng = np.random.default_rng(0)
    mine = {name: v + noise * rng.normal(size=v.shape) for name, v in planned.items() if name not in graph.inputs}
    return unseen(graph, found, mine, exact)


def _largest(
    graph: Graph, steep: Steep, output: str, planned: Mapping[str, Array], exact: Mapping[str, Array], count: int
) -> float:
    """What errors of so many drawn rows stay below in 999 of 1000."""
    rng, rows = np.random.default_rng(0), len(exact[steep.sources[0]])
    first, second, shown = rng.integers(0, rows, (3, count))
    part, sign = rng.uniform(-1, 1, count) * reach(rows), rng.choice((-1.0, 1.0), count)

    def with_errors(values: Array, errors: Array) -> Array:
        """Values of drawn rows with the errors of as many calibration rows, of either sign."""
        return values + (errors[shown].reshape(count, -1) * sign[:, None]).reshape(values.shape)

    shaped = {name: exact[name].reshape(rows, *graph.shapes[name]) for name in steep.sources}
    mine = {name: planned[name].reshape(v.shape) if name in planned else v for name, v in shaped.items()}
    true = {
        name: drawn(v.reshape(rows, -1), first, second, part).reshape(count, *v.shape[1:]) for name, v in shaped.items()
    }
    off = {name: within(with_errors(v, mine[name] - shaped[name]), mine[name]) for name, v in true.items()}
    own: dict[str, Array] = {}

    def shows(name: str, value: Array) -> Array:
        """What a layer adds to the errors of what it reads, on the calibration data."""
        result = planned[name].reshape(value.shape)
        own[name] = result - value
        return result

    with np.errstate(all="ignore"):
        _run(graph, steep, output, mine, shows)
        wanted = _run(graph, steep, output, true).reshape(count, -1)
        got = _run(graph, steep, output, off, lambda name, v: with_errors(v, own[name])).reshape(count, -1)
        # a row without an answer is none of the network's
        some = np.isfinite(wanted).all(axis=1)
        errors = np.abs(got - wanted)[some].max(axis=1, initial=0.0)
    if not errors.size:
        return math.inf
    return float(np.quantile(np.where(np.isnan(errors), np.inf, errors), 1 - 1 / BEYOND, method="higher"))


def _run(
    graph: Graph,
    steep: Steep,
    output: str,
    given: Mapping[str, Array],
    layer: Callable[[str, Array], Array] = lambda _name, value: value,
) -> Array:
    """An output in binary64 from values of sources, with ``layer`` of the results of layers in their stead."""
    values, rows = dict(given), len(given[steep.sources[0]])
    for node in steep.nodes:
        shape = (rows, *graph.shapes[node.output])
        if isinstance(node, Linear):
            values[node.output] = layer(node.output, linear(node, values[node.input]).reshape(shape))
        elif constant(node):
            values[node.output] = np.full(shape, node.attrs["add"])
        else:
            taken = [values[name] for name in node.inputs]
            values[node.output] = OPS[node.op](node.attrs, taken, shape[1:]).reshape(shape)
    return values[output]


def reach(rows: int) -> float:
    """How far a drawn row is from its calibration row, as a share of the way to another one, at most.

    The difference of two rows has twice the covariance S of rows. A share that is uniform up to this one so gives a
    kernel of covariance b^2 S, with b = n^(-1/5): what the density of one value asks for (Silverman, "Density
    Estimation for Statistics and Data Analysis", 1986, section 3.4).
    """
    return math.sqrt(1.5) * rows**-0.2


def drawn(values: Array, first: Array, second: Array, part: Array) -> Array:
    """Rows next to calibration rows ``values`` [rows, elements]: ``[count, elements]``.

    Elements are thrown back at their :func:`ends`, so that rows lie as densely there as calibration rows do.

    Args:
        first, second, part: of every drawn row the two rows that it lies beside, and the share of the way.
    """
    low, high = ends(values)
    found = values[first] + part[:, None] * (values[second] - values[first])
    found = np.where(found < low, 2 * low - found, np.where(found > high, 2 * high - found, found))
    # whole numbers (flags, counts) stay as they are
    whole = (values == np.rint(values)).all(axis=0)
    return np.where(whole, values[first], np.clip(found, low, high))


def within(values: Array, seen: Array) -> Array:
    """Values ``[count, ...]`` within the :func:`ends` of those that calibration rows have: what is clipped stays so."""
    low, high = (end.reshape(values.shape[1:]) for end in ends(seen.reshape(len(seen), -1)))
    return np.clip(values, low, high)


def ends(values: Array) -> tuple[Array, Array]:
    """The least and the largest value that rows like ``values`` [rows, elements] have, by element.

    One n-th of the range beyond what n rows have, where one of them has the end alone. One that several have is where
    something ends: a ReLU, a clip.
    """
    low, high = values.min(axis=0), values.max(axis=0)
    gap = (high - low) / len(values)
    alone = [(values == end).sum(axis=0) == 1 for end in (low, high)]
    return low - gap * alone[0], high + gap * alone[1]

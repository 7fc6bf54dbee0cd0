"""Where an answer jumps: comparisons, roundings and places of largest elements behind layers.

An error moves such a result by nothing, or by a whole step: how large an error may be says nothing of an answer then.
What can be said is how many rows stand so near a jump that an error may carry them across, and how many of the
calibration rows stay on their side. The stated error is that of rows that stay.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

import numpy as np

from ..graph import Graph, Linear, Op
from ..plan import Plan
from ..reference.float import evaluate
from ..reference.ops import OPS
from .errors import DECIDING
from .quality import likely

Array = np.ndarray

# values that stand in memory at once, and that are computed behind jumps that move; rows that say how large errors are
MOST_VALUES, MOST_MOVED, FEW = 1 << 26, 1 << 28, 8
# an answer jumps where it moves by more than so many times what errors elsewhere stay below
STEP = 4.0


@dataclass(frozen=True)
class Jump:
    """An operator whose result jumps.

    Attributes:
        node: of the graph.
        operands, result: tensors of the plan.
        outputs: of the graph that it leads to.
    """

    node: Op
    operands: tuple[int, ...]
    result: int
    outputs: frozenset[str]


@dataclass(frozen=True)
class Sides:
    """Of an output, by row of the calibration data.

    Attributes:
        near: whether an error may carry the row across a jump, which moves the output by more than errors do elsewhere;
            of large networks the first rows alone are looked at.
        stays: whether the planned run is on the original network's side of all jumps.
        step: how far a row is off that is carried across, the largest of the rows near a jump.
    """

    near: Array
    stays: Array
    step: float

    @property
    def told(self) -> tuple[Array, Array, float]:
        """As :func:`~.quality.measure` takes it."""
        return self.near, self.stays, self.step


def jumps(plan: Plan, graph: Graph) -> list[Jump]:
    """What jumps behind layers, and how the plan calls it, in order."""
    private = {node.output for node in graph.nodes if isinstance(node, Linear)}
    leads: dict[str, set[str]] = {name: {name} for name in graph.outputs}
    for node in graph.nodes:
        if isinstance(node, Op) and not private.isdisjoint(node.inputs):
            private.add(node.output)
    for node in reversed(graph.nodes):
        for name in [node.input] if isinstance(node, Linear) else node.inputs:
            leads.setdefault(name, set()).update(leads.get(node.output, ()))
    named = {t["name"]: t["id"] for t in plan.tensors}
    made = {op["out"]: op for stage in plan.stages if stage["kind"] == "client" for op in stage["ops"]}
    found = []
    for node in graph.nodes:
        if not isinstance(node, Op) or node.op not in DECIDING or node.attrs.get("what") == "values":
            continue
        op = made.get(named.get(node.output, -1))
        if op is not None and op["op"] == node.op and leads.get(node.output) and not private.isdisjoint(node.inputs):
            found.append(Jump(node, tuple(op["in"]), op["out"], frozenset(leads[node.output])))
    return found


def watched(found: Collection[Jump]) -> list[int]:
    """Tensors of the plan whose values :func:`sides` needs."""
    return sorted({tensor for jump in found for tensor in (*jump.operands, jump.result)})


def sides(
    plan: Plan,
    graph: Graph,
    found: list[Jump],
    planned: Mapping[str, Array],
    samples: dict[str, Array],
    errors: Mapping[str, Array],
    noise: float = 0.0,
) -> dict[str, Sides]:
    """By output of the graph, where the rows of the calibration data stand.

    Args:
        planned: values of :func:`watched` by their names in the plan.
        errors: the largest error of every row, by output.
        noise: what the values do not have of errors of the operands.
    """
    rows = len(next(iter(samples.values())))
    if not found:
        return {}
    outputs = sorted(set().union(*(jump.outputs for jump in found)))
    names = {t["id"]: t["name"] for t in plan.tensors}
    exact = in_blocks(graph, samples, sorted({n for jump in found for n in (*jump.node.inputs, jump.node.output)}))
    same = {name: np.ones(rows, bool) for name in outputs}
    off: dict[str, float] = {}
    for jump in found:
        calm = np.logical_and.reduce([same[name] for name in jump.outputs])
        off[jump.node.output] = _operand_error(jump, exact, [planned[names[t]] for t in jump.operands], calm, noise)
        mine, true = (v.reshape(rows, -1) for v in (planned[names[jump.result]], exact[jump.node.output]))
        for name in jump.outputs:
            same[name] &= (mine == true).all(axis=1)
    sizes = {name: likely(errors[name][same[name] if same[name].sum() >= FEW else slice(None)]) for name in outputs}
    stays = {name: same[name] | (errors[name] <= sizes[name]) for name in outputs}
    leaps = _changes(graph, found, samples, off, rows)
    sided = {}
    for name in outputs:
        near, far = ~stays[name], np.where(stays[name], 0.0, errors[name])
        change = leaps.get(name)
        if change is not None:
            near, seen = near[: change.shape[1]].copy(), change > STEP * sizes[name]
            near |= seen.any(axis=0)
            far[: change.shape[1]] = np.maximum(far[: change.shape[1]], np.where(seen, change, 0.0).sum(axis=0))
        sided[name] = Sides(near, stays[name], float(far.max(initial=0.0)))
    return sided


def _changes(
    graph: Graph, found: list[Jump], samples: dict[str, Array], off: Mapping[str, float], rows: int
) -> dict[str, Array]:
    """By output, how far errors of the operands of each jump may move each of the first rows: ``[jumps, rows]``."""
    moving = [(jump, _behind(graph, jump)) for jump in found if off[jump.node.output] > 0.0]
    cost = 2 * sum(_values(cut) for _, cut in moving)
    count = min(rows, max(FEW, MOST_MOVED // max(cost, 1)))
    changes: dict[str, list[Array]] = {}
    for block in _blocks(graph, count):
        own = {name: np.asarray(x)[block] for name, x in samples.items()}
        wanted = {n for jump, cut in moving for n in (*cut.inputs, *jump.node.inputs, *cut.outputs)}
        exact = _evaluated(replace(graph, outputs=sorted(wanted)), own)
        part: dict[str, list[Array]] = {}
        for jump, cut in moving:
            change = dict.fromkeys(cut.outputs, np.zeros(len(next(iter(own.values())))))
            for moved in _moved(graph, jump, cut, exact, off[jump.node.output]):
                for name in cut.outputs:
                    step = np.abs(moved[name] - exact[name]).reshape(len(exact[name]), -1).max(axis=1, initial=0.0)
                    change[name] = np.maximum(change[name], step)
            for name in cut.outputs:
                part.setdefault(name, []).append(change[name])
        for name, steps in part.items():
            changes.setdefault(name, []).append(np.stack(steps))
    return {name: np.concatenate(parts, axis=1) for name, parts in changes.items()}


def _values(graph: Graph) -> int:
    """Values of one row that a graph computes."""
    return sum(math.prod(graph.shapes[node.output]) for node in graph.nodes)


def _blocks(graph: Graph, rows: int) -> list[slice]:
    """Rows whose values fit into memory at once."""
    each = max(1, MOST_VALUES // max(sum(math.prod(s) for s in graph.shapes.values()), 1))
    return [slice(first, min(first + each, rows)) for first in range(0, rows, each)]


def in_blocks(graph: Graph, samples: dict[str, Array], wanted: list[str]) -> dict[str, Array]:
    """Tensors of the network on all rows."""
    cut, rows = replace(graph, outputs=wanted), len(next(iter(samples.values())))
    parts = [_evaluated(cut, {k: np.asarray(x)[block] for k, x in samples.items()}) for block in _blocks(graph, rows)]
    return {name: np.concatenate([part[name] for part in parts]) for name in wanted}


def _behind(graph: Graph, jump: Jump) -> Graph:
    """What stands between a jump's result and the outputs that it leads to; inputs are what that reads."""
    reached, nodes = {jump.node.output}, []
    for node in graph.nodes:
        if not reached.isdisjoint([node.input] if isinstance(node, Linear) else node.inputs):
            reached.add(node.output)
            nodes.append(node)
    read = {n for node in nodes for n in ([node.input] if isinstance(node, Linear) else node.inputs)}
    inputs = [jump.node.output, *sorted(read - reached)]
    return replace(graph, inputs=inputs, outputs=sorted(jump.outputs), nodes=nodes)


def _evaluated(graph: Graph, inputs: Mapping[str, Array]) -> dict[str, Array]:
    with np.errstate(all="ignore"):
        return evaluate(graph, inputs)


def _operand_error(jump: Jump, exact: Mapping[str, Array], planned: list[Array], calm: Array, noise: float) -> float:
    """What errors of an operand stay below in 999 rows of 1000, by the rows that no jump has carried away."""
    rows = len(calm)
    true = [exact[name].reshape(rows, -1) for name in jump.node.inputs]
    mine = [np.asarray(value, np.float64).reshape(rows, -1) for value in planned]
    each = np.maximum.reduce([np.abs(a - b).max(axis=1, initial=0.0) for a, b in zip(mine, true)])
    # whole numbers (votes) are right, or wrong because something in front of them has jumped
    whole = all(np.array_equal(v, np.rint(v)) for v in true)
    return (likely(each[calm]) if calm.any() else 0.0) + (0.0 if whole else noise)


def _moved(graph: Graph, jump: Jump, cut: Graph, exact: Mapping[str, Array], error: float) -> list[dict[str, Array]]:
    """Outputs where an operator decides on operands that are off by an error, one way and the other."""
    node, shape = jump.node, graph.shapes[jump.node.output]
    xs = [exact[name] for name in node.inputs]
    if node.op in ("less", "equal"):
        given = [[xs[0] + e, xs[1] - e] for e in (error, -error)]
    elif node.op in ("floor", "round"):
        given = [[xs[0] + error], [xs[0] - error]]
    else:
        # the largest ones change places with those behind them
        axis, lower = node.attrs["axis"] + 1, xs[0].copy()
        places, sign = exact[node.output].astype(np.int64), 1.0 if node.attrs["largest"] else -1.0
        top = np.take_along_axis(lower, places, axis=axis)
        np.put_along_axis(lower, places, top - 2.0 * sign * error, axis=axis)
        given = [[lower]]
    kept = {name: exact[name] for name in cut.inputs[1:]}
    return [_evaluated(cut, {**kept, node.output: OPS[node.op](node.attrs, own, shape)}) for own in given]

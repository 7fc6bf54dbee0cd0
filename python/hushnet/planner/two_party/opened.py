"""The client's ops behind the opening: how errors pass through them, and which of them an index does not need."""

from __future__ import annotations

import math

import numpy as np

from ...graph import Graph, Linear
from ...plan import PlanError
from ..errors import DECIDING, FLOAT32_UNIT
from ..ranges import Ranges
from ..rules import RULES, Pair, magnitude
from .errors import Doubt
from .regions import INCREASING, Regions
from .versions import Fixed

Array = np.ndarray


def strip_for_argmax(graph: Graph) -> Graph:
    """The graph without the ops at its end that leave the index of the largest element where it is.

    Raises:
        PlanError: several outputs.
    """
    if len(graph.outputs) != 1:
        raise PlanError(f"reveal='argmax' needs one output, the network has {graph.outputs}")
    producers = {n.output: n for n in graph.nodes}
    tensor = graph.outputs[0]
    while tensor in producers:
        node = producers[tensor]
        if isinstance(node, Linear):
            break
        whole = node.op == "softmax" and math.prod(graph.shapes[tensor]) == graph.shapes[tensor][node.attrs["axis"]]
        if not (
            whole or node.op in INCREASING or node.op == "reshape" or (node.op == "affine" and node.attrs["mul"] > 0)
        ):
            break
        tensor = node.inputs[0]
    return Graph(graph.name, graph.inputs, [tensor], graph.shapes, list(graph.nodes))


def entry(worst: float, deviation: float) -> dict[str, float]:
    """Errors as the plan writes them: six standard deviations, at most the worst case."""
    return {"max_error": min(6.0 * deviation, worst), "worst_error": worst}


class Tail:
    """Errors of the network's outputs from those of the opened tensors."""

    def __init__(self, graph: Graph, regions: Regions, ranges: Ranges, fixed: Fixed) -> None:
        self.graph, self.regions, self.ranges, self.fixed = graph, regions, ranges, fixed

    def interval(self, name: str) -> Pair:
        """Of an opened or head tensor."""
        limit = self.ranges.limit.get(name, math.inf)
        if name in self.fixed.opened:
            version = self.fixed.opened[name]
            limit = (
                min(limit, version.bound * version.unit)
                if self.ranges.source == "calibration"
                else version.bound * version.unit
            )
        shape = self.graph.shapes[name]
        return np.full(shape, -limit), np.full(shape, limit)

    def errors(self, doubts: dict[str, Doubt], names: list[str]) -> dict[str, dict[str, float]]:
        """By output name.

        Raises:
            PlanError: an error that is not finite.
        """
        spread: dict[str, tuple[Pair, Array, Array]] = {}

        def known(name: str) -> tuple[Pair, Array, Array]:
            if name not in spread:
                shape = self.graph.shapes[name]
                zero = Doubt(np.zeros(()), np.zeros(()))
                doubt = doubts.get(name, zero)
                worst, deviation = (np.broadcast_to(v, shape) for v in (doubt.worst, np.sqrt(doubt.variance)))
                spread[name] = (self.interval(name), worst, deviation)
            return spread[name]

        # of a network without layers the client computes everything: a float32 reference rounds in its first op
        alone = not self.regions.shared
        planned = set(self.regions.opened)
        for node in self.regions.head if alone else self.regions.tail:
            ins = [known(t) for t in node.inputs]
            shape, rule = self.graph.shapes[node.output], RULES[node.op]
            pairs = [i[0] for i in ins]
            with np.errstate(all="ignore"):
                interval = rule.interval(node.attrs, pairs, shape)
                error = rule.spread(
                    node.attrs, pairs, [i[1] for i in ins], shape, False
                ) + FLOAT32_UNIT * 4 * magnitude(interval)
                deviation = rule.spread(node.attrs, pairs, [i[2] for i in ins], shape, True)
            if not planned.isdisjoint(node.inputs):
                planned.add(node.output)
            elif node.op in DECIDING:
                # on what the client computes from its inputs alone it decides as the network does
                error, deviation = np.zeros(shape), np.zeros(shape)
            width = rule.width(node.attrs)
            error, deviation = (np.minimum(np.where(np.isnan(v), np.inf, v), width) for v in (error, deviation))
            spread[node.output] = (interval, error, deviation)
        if alone:
            # what has no bound is left out
            alone_errors = {
                p: entry(float(known(n)[1].max(initial=0.0)), 0.0) for p, n in zip(names, self.graph.outputs)
            }
            return {p: {k: v for k, v in e.items() if math.isfinite(v)} for p, e in alone_errors.items()}
        found = {}
        for port, name in zip(names, self.graph.outputs):
            _, worst, deviation = known(name)
            errors = entry(float(worst.max(initial=0.0)), float(deviation.max(initial=0.0)))
            found[port] = {k: v for k, v in errors.items() if math.isfinite(v)}
            # calibration data tells an error where no bound does
            if len(found[port]) < len(errors) and self.ranges.source != "calibration":
                raise PlanError(
                    f"output {port!r}: the worst error is not finite (the client divides by, or takes a logarithm or "
                    "root of, a value that may come near zero). Give calibration data, rewrite the model without it, "
                    "or use more activation_bits."
                )
        return found


def carry(doubts: dict[str, Doubt], names: list[str]) -> dict[str, dict[str, float]]:
    """Errors of the scores whose largest is looked for."""
    return {
        n: entry(float(d.worst.max(initial=0.0)), float(np.sqrt(d.variance.max(initial=0.0))))
        for n, d in zip(names, doubts.values())
    }

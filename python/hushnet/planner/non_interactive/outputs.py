"""Predicted errors of a network's outputs: those of what the client decrypts, through what it computes from it."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...graph import Graph, Op
from ...reference.float import evaluate
from ..errors import DECIDING, FLOAT32_UNIT
from ..rules import RULES, Pair, magnitude
from .network import Images, Network, some
from .steps import Array

USUAL_IMAGES = 64

DRAWS = 6
# of what calibration images show, where intervals bound nothing
SAFE = 2.0


def output_errors(
    network: Network, likely: float, worst: float, samples: Images | None, *, decided: bool = False
) -> dict[str, dict[str, float]]:
    """``max_error`` and ``worst_error`` by output, from those of every element that is decrypted.

    Outputs that need no layer are the client's own: a float32 reference differs from them by its roundings. A worst
    error that has no bound (a quotient whose divisor may be zero) is left out; ``max_error`` is then twice what errors
    of that size do to calibration images, where there are any.

    Args:
        decided: comparisons, roundings and places go as they do without errors: of rows that stay where they are.
    """
    found = _own(network, samples) if network.own else {}
    last = network.tensors[network.output]
    if network.tail is None:
        return found | {n: {"max_error": likely, "worst_error": worst} for n in network.outputs if n not in found}
    first = network.tail.inputs[0]
    shape = network.tail.shapes[first]
    interval = (np.full(shape, -last.bound), np.full(shape, last.bound))
    errors = [_through(network.tail, first, interval, np.full(shape, error), decided) for error in (likely, worst)]
    seen = None
    for name in network.tail.outputs:
        most = [float(e[name].max(initial=0.0)) for e in errors]
        if not np.isfinite(most[0]) and samples is not None:
            seen = _seen(network, network.tail, likely, samples) if seen is None else seen
            most[0] = SAFE * seen[name]
        entry: dict[str, Any] = dict(zip(("max_error", "worst_error"), most))
        found[name] = {k: v for k, v in entry.items() if np.isfinite(v)}
    return {name: found[name] for name in network.outputs}


def _own(network: Network, samples: Images | None) -> dict[str, dict[str, float]]:
    """What a float32 reference of the head's outputs may be off by; what has no bound is left out."""
    head = network.head
    assert head is not None
    intervals: dict[str, Pair] = {}
    for name in head.inputs:
        shape = head.shapes[name]
        if name in network.declared:
            low, high = network.declared[name]
        else:
            rows = np.asarray([0.0, 1.0] if samples is None else samples[name])
            low, high = rows.min(initial=0.0), rows.max(initial=0.0)
        intervals[name] = (np.broadcast_to(low, shape).astype(float), np.broadcast_to(high, shape).astype(float))
    errors = {name: np.zeros(head.shapes[name]) for name in head.inputs}
    for node in head.nodes:
        assert isinstance(node, Op)
        rule, shape, pairs = RULES[node.op], head.shapes[node.output], [intervals[t] for t in node.inputs]
        with np.errstate(all="ignore"):
            intervals[node.output] = rule.interval(node.attrs, pairs, shape)
            passed = rule.spread(node.attrs, pairs, [errors[t] for t in node.inputs], shape, False)
            error = passed + 4 * FLOAT32_UNIT * magnitude(intervals[node.output])
        # it decides on its own numbers as the network does
        decides = node.op in DECIDING
        bounded = np.minimum(np.where(np.isnan(error), np.inf, error), rule.width(node.attrs))
        errors[node.output] = np.zeros(shape) if decides else bounded
    found = {}
    for name in network.own:
        most = float(errors[name].max(initial=0.0))
        # calibration data prove nothing of roundings; what only decides and moves has none
        sure = most == 0.0 or set(head.inputs) <= set(network.declared)
        known = ("max_error", "worst_error") if sure else ("max_error",)
        found[name] = dict.fromkeys(known, most) if np.isfinite(most) else {}
    return found


def _seen(network: Network, tail: Graph, error: float, samples: Images) -> dict[str, float]:
    """The largest change of every output of a tail that errors of a size make on calibration images."""
    first = tail.inputs[0]
    opened = network.values(some(samples, USUAL_IMAGES))[network.output]
    opened = opened.reshape(len(opened), *tail.shapes[first])
    rng = np.random.default_rng(0)
    with np.errstate(all="ignore"):
        exact = evaluate(tail, {first: opened})
        found = dict.fromkeys(tail.outputs, 0.0)
        for _ in range(DRAWS):
            off = evaluate(tail, {first: opened + error * rng.choice([-1.0, 1.0], opened.shape)})
            found = {n: max(found[n], float(np.abs(off[n] - exact[n]).max(initial=0.0))) for n in found}
    return found


def _through(tail: Graph, first: str, interval: Pair, error: Array, decided: bool) -> dict[str, Array]:
    """Errors of all tensors of a tail; ``decided`` as :func:`output_errors` has it."""
    intervals, errors = {first: interval}, {first: error}
    for node in tail.nodes:
        rule, shape = RULES[node.op], tail.shapes[node.output]  # type: ignore[union-attr]
        pairs, given = [intervals[t] for t in node.inputs], [errors[t] for t in node.inputs]  # type: ignore[union-attr]
        with np.errstate(all="ignore"):
            intervals[node.output] = rule.interval(node.attrs, pairs, shape)  # type: ignore[union-attr]
            if decided and node.op in DECIDING:  # type: ignore[union-attr]
                given = [np.zeros_like(e) for e in given]
            passed = rule.spread(node.attrs, pairs, given, shape, False)  # type: ignore[union-attr]
        errors[node.output] = np.minimum(np.where(np.isnan(passed), np.inf, passed), rule.width(node.attrs))  # type: ignore[union-attr]
    return errors

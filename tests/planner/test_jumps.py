"""Answers that jump: which rows stand near a jump, which stay, and that the stated error is theirs."""

from __future__ import annotations

import numpy as np
import pytest
from hushnet.graph import Graph
from hushnet.planner import compile
from hushnet.planner.precision import shortfalls
from hushnet.reference.float import evaluate

from tests.planner.planner_graphs import Builder
from tests.planner.test_statement import planned

TRUST = ["client-aided", "two-party", "non-interactive"]
SIZE = 6


def flagged(kind: str) -> tuple[Graph, np.ndarray]:
    """Scores, and beside them zeros and ones that say where they are large, or places in bins; rows of inputs."""
    b = Builder((SIZE,), seed=3).dense(4, gain=3.0)
    scores = b.at
    if kind == "flags":
        b.op("affine", mul=0.0, add=0.3)
        limit = b.at
        b.at = limit
        b.op("less", others=[scores])
    else:
        b.op("affine", mul=5.0, add=0.0).op("floor")
    b.op("add", others=[scores])
    return b.done(), np.random.default_rng(1).uniform(-1, 1, (4000, SIZE))


@pytest.mark.parametrize("kind", ["flags", "bins"])
@pytest.mark.parametrize("trust", TRUST)
def test_the_stated_error_is_that_of_rows_that_stay(trust: str, kind: str) -> None:
    graph, x = flagged(kind)
    plan = compile(graph, trust=trust, calibration=x[:1000], batch=8, margin=2.0)
    predicted = plan.predicted
    assert predicted["max_error"] < 0.05 and predicted["precision"]["reached"] >= 7
    assert 0.0 < predicted["near_jumps"] < 0.3 and 0.95 < predicted["stay"] <= 1.0
    assert any("jumps where a comparison" in note and "% stay" in note for note in plan.document["notes"])
    want = evaluate(graph, {"x": x[1000:]})[graph.outputs[0]]
    off = np.abs(planned(plan, x[1000:]) - want).max(axis=1)
    # who is further off was carried across, and there are no more of them than stand near a jump
    far = off > predicted["max_error"]
    assert far.mean() <= predicted["near_jumps"] and (off[far] > 0.5).mean() > 0.99


@pytest.mark.parametrize("trust", TRUST)
def test_what_is_continuous_has_no_jumps(trust: str) -> None:
    b = Builder((SIZE,), seed=3).dense(4, gain=3.0)
    scores = b.at
    b.op("affine", mul=0.0, add=0.0)
    zero = b.at
    b.op("less", others=[scores]).op("mul", others=[scores])
    graph = b.done()
    assert zero in graph.shapes
    x = np.random.default_rng(1).uniform(-1, 1, (500, SIZE))
    predicted = compile(graph, trust=trust, calibration=x, batch=8).predicted
    assert "near_jumps" not in predicted and predicted["precision"]["reached"] >= 7


def test_rows_that_are_carried_across_are_told() -> None:
    error = {"max_error": 0.01, "output_range": 1.0, "near_jumps": 0.4, "stay": 0.9}
    (said,) = shortfalls({"output_errors": {"y": error}})
    assert "40 % of the calibration rows" in said and "90 % stay" in said and "in front of the jumps" in said
    assert not shortfalls({"output_errors": {"y": error | {"stay": 0.99}}})

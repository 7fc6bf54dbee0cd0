"""Outputs whose columns differ in size: every target of a regression is as precise as the largest."""

from __future__ import annotations

import numpy as np
import pytest
from hushnet.graph import Graph
from hushnet.planner import compile
from hushnet.planner.quality import measure
from hushnet.planner.targets import distances, scale_targets, target_centres, target_factors
from hushnet.reference.float import evaluate

from tests.planner.planner_graphs import Builder
from tests.planner.test_statement import planned

SIZES = np.array([300.0, 0.01, 4.0])


def regression():
    """A layer whose three results are of very different size, and rows."""
    b = Builder((8,), seed=3).dense(6).op("square").dense(3)
    b.graph.nodes[-1].weight *= SIZES[:, None]
    b.graph.nodes[-1].bias *= SIZES
    return b.done(), np.random.default_rng(0).uniform(-1, 1, (400, 8))


@pytest.mark.parametrize("trust", ["client-aided", "two-party", "non-interactive"])
def test_a_small_target_is_as_precise_as_a_large_one(trust: str) -> None:
    graph, x = regression()
    plan = compile(graph, trust=trust, calibration={"x": x[:200]}, batch=8)
    # rows that keep to the calibrated ranges, and what columns reach there
    rows, reach = 0.9 * x[200:], np.abs(evaluate(graph, {"x": x[:200]})[graph.outputs[0]]).max(axis=0)
    off = np.abs(planned(plan, {"x": rows}) - evaluate(graph, {"x": rows})[graph.outputs[0]]).max(axis=0) / reach
    reached = plan.predicted["precision"]["reached"]
    assert reached >= 7 and off.max() <= 2.0**-7 and off.max() <= 2.0**-reached
    assert plan.predicted["column_error"] <= 2.0**-reached * (1 + 1e-9)
    # classes are compared with one another, so their scores keep one scale
    scores = compile(graph, trust=trust, calibration={"x": x[:200]}, batch=8, classes=(graph.outputs[0],))
    assert "column_error" not in scores.predicted


def offset(offsets: tuple[float, ...]) -> tuple[Graph, np.ndarray]:
    b = Builder((8,), seed=3).dense(6).op("square").dense(len(offsets))
    b.graph.nodes[-1].weight *= np.array([5.0, 0.1, 1.0])[: len(offsets), None]
    b.graph.nodes[-1].bias += np.array(offsets)
    return b.done(), np.random.default_rng(0).uniform(-1, 1, (400, 8))


@pytest.mark.parametrize("offsets", [(1e6,), (2000.0, -5.0, 400.0)])
def test_targets_far_from_zero_are_as_precise_as_what_they_differ_by(offsets: tuple[float, ...]) -> None:
    """Years, or prices: errors of 2^-7 of what they reach would be larger than all that they differ by."""
    graph, x = offset(offsets)
    plan = compile(graph, trust="client-aided", calibration={"x": x[:200]}, batch=8)
    rows = 0.9 * x[200:]
    want = evaluate(graph, {"x": rows})[graph.outputs[0]]
    off = np.abs(planned(plan, {"x": rows}) - want).max(axis=0) / np.ptp(want, axis=0)
    assert plan.predicted["precision"]["reached"] >= 7 and off.max() <= 2.0**-7
    scaled = scale_targets(graph, {"x": x}, centred=True)
    (centres,) = target_centres(scaled, {}).values()
    assert (np.abs(centres - np.array(offsets)) < 0.5 * np.abs(offsets)).all()
    np.testing.assert_allclose(
        evaluate(scaled, {"x": x})[graph.outputs[0]], evaluate(graph, {"x": x})[graph.outputs[0]]
    )


@pytest.mark.parametrize("offsets", [(1e6,), (2000.0, -5.0, 400.0), (-3e4,)])
@pytest.mark.parametrize("trust", ["two-party", "non-interactive"])
def test_private_plans_are_as_precise_and_tell_no_centre(trust: str, offsets: tuple[float, ...]) -> None:
    """A centre is bits of the last layer's bias, which clients of these plans do not see: rings are wider instead."""
    graph, x = offset(offsets)
    assert not any(c.any() for c in target_centres(scale_targets(graph, {"x": x}, unit=True), {}).values())
    plan = compile(graph, trust=trust, calibration={"x": x[:200]}, batch=1 if trust == "two-party" else 8)
    rows = 0.9 * x[200:]
    want = evaluate(graph, {"x": rows})[graph.outputs[0]]
    off = np.abs(planned(plan, {"x": rows}) - want).max(axis=0) / np.ptp(want, axis=0)
    # the widest ring holds 40 bits: 17 of them are what 1e6 +- 8 has in common
    least = 5 if (trust, offsets) == ("two-party", (1e6,)) else 7
    assert plan.predicted["precision"]["reached"] >= least and off.max() <= 2.0**-least
    assert plan.predicted["column_error"] <= 2.0**-least


def test_bits_that_targets_have_in_common_follow_from_the_column_that_differs_least() -> None:
    graph, _ = offset((1e6,))
    exact = {graph.outputs[0]: 1e6 + np.array([[10.0], [-10.0], *[[2.0]] * 6])}
    centres = target_centres(graph, exact)
    assert distances(graph, exact, centres) == {graph.outputs[0]: 17}
    few = {graph.outputs[0]: exact[graph.outputs[0]][:7]}
    assert not target_centres(graph, few), "a few rows may be alike"
    assert not distances(graph, {graph.outputs[0]: exact[graph.outputs[0]] - 1e6}, {graph.outputs[0]: np.zeros(1)})


@pytest.mark.parametrize("size", [1e14, 1e-12])
def test_targets_of_any_size_have_a_plan_without_interaction(size: float) -> None:
    """The modulus holds values beside their scale: a target of 2^47 takes it whole."""
    graph, x = regression()
    graph.nodes[-1].weight *= size
    graph.nodes[-1].bias *= size
    plan = compile(graph, trust="non-interactive", calibration={"x": x[:200]}, batch=8)
    assert plan.predicted["precision"]["reached"] >= 7
    want = evaluate(graph, {"x": 0.9 * x[200:]})[graph.outputs[0]]
    off = np.abs(planned(plan, {"x": 0.9 * x[200:]}) - want).max(axis=0) / np.abs(want).max(axis=0)
    assert off.max() <= 2.0**-7


def test_factors_follow_from_the_calibration_data_and_change_nothing_over_the_reals() -> None:
    graph, x = regression()
    scaled = scale_targets(graph, {"x": x})
    (factor,) = target_factors(scaled).values()
    assert factor[0] == 1.0 and factor[1] >= 2**10 and factor[2] >= 2**3 and (np.log2(factor) % 1 == 0).all()
    before, after = (evaluate(g, {"x": x})[graph.outputs[0]] for g in (graph, scaled))
    np.testing.assert_allclose(after, before, rtol=1e-12)
    assert not target_factors(graph) and scale_targets(graph, None) is graph
    alike = Builder((8,), seed=3).dense(6).op("relu").dense(3).done()
    assert not target_factors(scale_targets(alike, {"x": x}))
    # the worst column counts, whatever the largest one is
    exact = evaluate(graph, {"x": x})[graph.outputs[0]]
    wrong = exact + np.array([0.0, 1.0, 0.0]) * np.abs(exact[:, 1]).max()
    assert (
        measure(wrong, exact, columns=np.zeros(3)).column
        > 1
        > 100 * measure(wrong, exact).likely / measure(wrong, exact).span
    )


@pytest.mark.parametrize("trust", ["client-aided", "two-party", "non-interactive"])
@pytest.mark.parametrize("targets", [1, 3])
def test_nothing_is_said_of_labels_that_a_regression_does_not_have(trust: str, targets: int) -> None:
    b = Builder((6,), seed=4).dense(8).op("square").dense(targets)
    # the targets of 30, 20, 10 on average stand in one order in every row
    b.graph.nodes[-1].weight *= 0.1
    b.graph.nodes[-1].bias[:] = [30.0, 20.0, 10.0][:targets]
    graph, x = b.done(), np.random.default_rng(0).uniform(-1, 1, (60, 6))
    plan = compile(graph, trust=trust, calibration=x, batch=8)
    assert plan.predicted["calibration_rows"] == 60 and "agreement" not in plan.predicted
    assert not any("label" in note for note in plan.document["notes"])
    # of the same network as a classifier labels are the answers
    labelled = compile(graph, trust=trust, calibration=x, batch=8, classes=(graph.outputs[0],))
    assert labelled.predicted["agreement"] == 1.0
    # one sign of a single number is no label either, where rows have both
    if targets == 1:
        b.graph.nodes[-1].bias[:] = 0.0
        assert "agreement" not in compile(graph, trust=trust, calibration=x, batch=8).predicted


def test_labels_that_change_are_told_whoever_names_them() -> None:
    exact = np.array([[2.0, 1.0], [3.0, 1.0], [2.5, 2.4]])
    assert not measure(exact, exact).told
    flipped = exact.copy()
    flipped[2] = flipped[2, ::-1]
    assert measure(flipped, exact).told and measure(flipped, exact).agreement == pytest.approx(2 / 3)
    assert measure(exact, np.array([[2.0, 1.0], [1.0, 3.0]]).repeat([2, 1], axis=0)).told
    assert measure(exact, exact, squash="softmax").told and measure(exact, exact, labels=[0, 0, 0]).told

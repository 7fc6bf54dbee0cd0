"""Methods of linear layers for single images: forced by name, or the cheapest of each."""

import numpy as np
import pytest
from tests.planner.planner_graphs import Builder
from tests.two_party_plan.share_graphs import images

from hushnet import PlanError, _native
from hushnet.planner import compile
from hushnet.reference.two_party import run


def network():
    b = Builder((3, 8, 8), seed=9)
    b.conv(6).op("relu").conv(8).op("relu")
    b.op("reduce_mean", (8,), axes=[1, 2]).dense(5)
    return b.done()


@pytest.mark.parametrize("method", ["rotation-free", "convfhe"])
def test_a_forced_method_runs_as_planned_with_predicted_bytes(method):
    graph = network()
    x = images(graph, 2)
    plan = compile(graph, trust="two-party", calibration=x, method=method)
    assert {s["method"] for s in plan.stages if s["kind"] == "linear"} == {method}
    outputs, trace = _native.run_two_party(plan.to_bytes(), {"x": x[:1]}, threads=1)
    error = np.abs(outputs[graph.outputs[0]] - run(plan, x[:1])[graph.outputs[0]]).max()
    assert error <= plan.predicted["max_error"]
    cheetah = compile(graph, trust="two-party", calibration=x, method="cheetah")
    assert plan.predicted["setup_bytes"] > cheetah.predicted["setup_bytes"]


def test_the_chosen_methods_cost_no_more_than_any_single_one():
    graph = network()
    x = images(graph, 2)
    options = {"trust": "two-party", "calibration": x, "network": "wan", "queries": 1000}
    seconds = {m: compile(graph, method=m, **options).predicted["seconds"] for m in (None, "cheetah", "rotation-free", "convfhe")}
    # methods differ a little in noise, and thereby in what the other stages of the plan cost
    assert seconds[None] <= 1.05 * min(seconds.values())


def test_unknown_methods_are_refused():
    with pytest.raises(PlanError, match="method is 'gazelle'"):
        compile(network(), trust="two-party", method="gazelle")
    with pytest.raises(PlanError, match="queries is 0"):
        compile(network(), trust="two-party", queries=0)

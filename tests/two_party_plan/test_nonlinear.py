"""Non-linear layers by transfer, in trees and through digits, or by garbled circuits: what is chosen, how they run."""

import json

import numpy as np
import pytest
from hushnet import PlanError, _native
from hushnet.planner import compile, validate
from hushnet.planner.two_party.cost import account, unit_costs
from hushnet.planner.two_party.nonlinear import PROTOCOLS, compares
from hushnet.reference.two_party import run
from hushnet.report.two_party import explain
from hypothesis import HealthCheck, given, settings

from tests.planner.planner_graphs import Builder
from tests.two_party_plan.share_graphs import graphs, images
from tests.two_party_plan.test_runs import check


def network():
    """Every non-linear layer: relu, clip on both sides, overlapping maxima of uneven windows with padding.

    a leaky one has no circuit.
    """
    b = Builder((2, 7, 9), seed=3)
    b.conv(5, stride=(1, 2)).op("relu").conv(4).op("clip", min=-0.5, max=1.5)
    b.pool("max_pool", (3, 2), (2, 1), (1, 1, 0, 0)).conv(3).op("leaky_relu", alpha=0.2)
    return b.dense(6).done()


def protocols(plan):
    return {s["name"]: s.get("protocol", "ot") for s in plan.stages if compares(s)}


@pytest.mark.parametrize("reveal", ["output", "argmax"])
@pytest.mark.parametrize("protocol", ["garbled", "ripple-2", "ripple-3", "ripple-4"])
def test_layers_of_other_protocols_run_as_planned_with_predicted_bytes(protocol, reveal):
    graph = network()
    x = images(graph, 3)
    plan = compile(graph, trust="two-party", calibration=x, nonlinear=protocol, reveal=reveal)
    assert set(protocols(plan).values()) == {protocol} and len(protocols(plan)) == (3 if reveal == "output" else 4)
    outputs, trace, _ = _native.run(plan.handle(), {"x": x}, threads=1)
    if reveal == "output":
        check(graph, plan, 3)
    else:
        assert np.array_equal(outputs[graph.outputs[0]].ravel(), np.argmax(run_scores(graph, x), axis=1))
    for stage in json.loads(trace)["stages"]:
        for way in ("bytes_up", "bytes_down"):
            assert stage[way] == stage["predicted"][way], stage["name"]
    unlike = compile(graph, trust="two-party", calibration=x, nonlinear="ot", reveal=reveal)
    assert set(protocols(unlike).values()) == {"ot"}
    if protocol == "garbled":
        assert plan.predicted["rounds"] < unlike.predicted["rounds"]
        assert plan.predicted["ot_bytes"] > unlike.predicted["ot_bytes"]
    elif protocol == "ripple-2":
        assert plan.predicted["rounds"] > unlike.predicted["rounds"]
        assert plan.predicted["ot_bytes"] < unlike.predicted["ot_bytes"]


def run_scores(graph, x):
    plan = compile(graph, trust="two-party", calibration=x)
    scores = run(plan, x)[graph.outputs[0]]
    two = np.sort(scores, axis=1)[:, -2:]
    assert (two[:, 1] - two[:, 0] > 4 * plan.predicted["max_error"]).all(), "labels must not be near ties"
    return scores


@settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck))
@given(graphs())
def test_random_networks_run_as_planned(graph):
    check(graph, compile(graph, trust="two-party", nonlinear="garbled"), 1)


def test_a_group_of_images():
    graph = network()
    x = images(graph, 9)
    plan = compile(graph, trust="two-party", calibration=x, nonlinear="garbled", method="batch", batch=9)
    check(graph, plan, 9)


def small():
    return Builder((24,), seed=5).dense(20).op("relu").dense(7).done()


def test_long_delays_are_spent_on_circuits_and_explained():
    graph = small()
    x = images(graph, 4)
    chosen = {
        net: compile(graph, trust="two-party", calibration=x, network=net, reveal="argmax")
        for net in ("wan", "1mbit,1ms")
    }
    assert set(protocols(chosen["wan"]).values()) == {"garbled"}
    # 20 values cost 50 kB: half a second there
    assert protocols(chosen["1mbit,1ms"])[next(s["name"] for s in chosen["wan"].stages if s["kind"] == "relu")] == "ot"
    rows = [r for r in explain(chosen["wan"])["layers"] if r.get("method") == "garbled"]
    # a ReLU by transfer takes two messages more, a tournament many
    gaps = {r["kind"]: r["gap_seconds"] for r in rows if r["runner_up"] == "ot"}
    assert len(rows) == 2 and gaps["relu"] > 0.03 and gaps["reveal"] > 0.2
    transfer = compile(graph, trust="two-party", calibration=x, network="wan", reveal="argmax", nonlinear="ot")
    assert chosen["wan"].predicted["seconds"] < transfer.predicted["seconds"]


def test_layers_take_shorter_digits_the_more_their_bytes_cost():
    graph = Builder((2, 64, 64), seed=4).conv(24).op("relu").dense(8).op("relu").dense(3).done()
    x = images(graph, 4)
    plan, unnamed, unlike = (
        compile(graph, trust="two-party", calibration=x, network=net, nonlinear=forced)
        for net, forced in (("100mbit,1ms", None), ("loopback", None), ("100mbit,1ms", "ot"))
    )
    # 98,304 values, and eight
    large, small = protocols(plan).values()
    assert large == "ripple-2" and small != "ripple-2"
    assert plan.predicted["seconds"] < unlike.predicted["seconds"]
    assert plan.predicted["ot_bytes"] < unlike.predicted["ot_bytes"]
    told = next(r for r in explain(plan)["layers"] if r.get("method") == "ripple-2")
    assert told["runner_up"] in set(PROTOCOLS) - {"ripple-2"} and told["gap_seconds"] > 0
    # a plan for any network has fewer messages than one with trees, where its layers are no larger
    trees = compile(graph, trust="two-party", calibration=x, nonlinear="ot")
    assert set(protocols(unnamed).values()) <= {"ripple-4", "ot"}
    assert unnamed.predicted["rounds"] < trees.predicted["rounds"]


def test_large_layers_of_plans_for_any_network_take_shorter_digits():
    rounds, fewest = [], []
    for side in (16, 192):
        window = (side // 4, side // 4)
        net = Builder((2, side, side), seed=4).conv(24).op("relu").conv(4).pool("average_pool", window, window)
        graph = net.dense(3).done()
        x = images(graph, 2)
        unnamed, four = (
            compile(graph, trust="two-party", calibration=x, nonlinear=forced) for forced in (None, "ripple-4")
        )
        rounds.append(unnamed.predicted["rounds"])
        fewest.append(four.predicted["rounds"])
    # 6,144 values, and 884,736
    assert rounds[0] <= fewest[0] and rounds[1] > fewest[1]


def test_the_gain_is_real_on_a_link_with_delay():
    graph = small()
    x = images(graph, 4).astype(np.float32)
    seconds = {}
    for protocol in ("ot", "garbled"):
        plan = compile(graph, trust="two-party", calibration=x, network="wan", nonlinear=protocol, reveal="argmax")
        told = _native.clocked_two_party(plan.to_bytes(), {"x": x[:1]}, runs=2, network=(1e8, 0.04))
        seconds[protocol] = min(sum(stage[0] for stage in one) for one in json.loads(told)["runs"])
        assert seconds[protocol] == pytest.approx(plan.predicted["seconds"], rel=0.3)
    assert seconds["garbled"] < 0.8 * seconds["ot"]


def test_an_unknown_protocol_is_refused():
    with pytest.raises(PlanError, match="choose one of ot, ripple-2, ripple-3, ripple-4, garbled"):
        compile(small(), trust="two-party", nonlinear="magic")


@pytest.mark.parametrize("kind", ["sum_pool", "relu"])
def test_a_plan_with_a_protocol_out_of_place_is_refused(kind):
    b = Builder((2, 6, 6), seed=6)
    b.conv(3).op("relu").pool("average_pool", (2, 2), (2, 2))
    plan = compile(b.dense(3).done(), trust="two-party")
    stage = next(s for s in plan.stages if s["kind"] == kind)
    stage["protocol"] = "garbled" if kind == "sum_pool" else "magic"
    with pytest.raises(PlanError, match="protocol|fields|variant"):
        validate(plan)
    with pytest.raises(PlanError, match="circuit|variant"):
        account(plan.document, unit_costs())

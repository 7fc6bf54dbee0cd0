"""Plans through the real protocol: what it gives is the planned run, up to units of masking and truncation."""

import numpy as np
import pytest
from hushnet import _native
from hushnet.planner import compile
from hushnet.reference.two_party import run, unit_reach
from hypothesis import HealthCheck, given, settings

from tests.planner.planner_graphs import Builder
from tests.two_party_plan.share_graphs import graphs, images


def both(plan, x):
    outputs, *_ = _native.run(plan.handle(), x, threads=1)
    return outputs


def check(graph, plan, count):
    x = images(graph, count)
    want = run(plan, x)
    got = both(plan, {graph.inputs[0]: x})
    reach = unit_reach(plan)
    for stage in plan.stages:
        if stage["kind"] != "reveal":
            continue
        opened = plan.tensors[stage["out"]]
        for op in plan.stages[-1]["ops"]:
            if op["op"] == "dequantize" and op["in"] == [stage["out"]] and plan.tensors[op["out"]]["name"] in want:
                name = plan.tensors[op["out"]]["name"]
                units = np.abs(got[name] - want[name]) / opened["scale"]
                assert (units <= reach[opened["name"]] + 1e-9).all()


@settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))
@given(graphs())
def test_random_networks_run_as_planned(graph):
    check(graph, compile(graph, trust="two-party"), 1)


@pytest.mark.parametrize("reveal", ["output", "argmax"])
def test_a_residual_network(reveal):
    b = Builder((3, 8, 8), seed=4)
    b.conv(6).op("relu")
    skip = b.at
    b.conv(6).op("relu").conv(6).op("add", others=(skip,)).op("relu")
    b.pool("max_pool", (2, 2), (2, 2)).conv(8).op("leaky_relu", alpha=0.1)
    b.op("reduce_mean", (8,), axes=[1, 2]).dense(5)
    graph = b.done()
    x = images(graph, 2)
    plan = compile(graph, trust="two-party", calibration=x, reveal=reveal)
    if reveal == "output":
        error = np.abs(both(plan, {"x": x})[graph.outputs[0]] - run(plan, x)[graph.outputs[0]]).max()
        assert error <= plan.predicted["max_error"]
    else:
        assert both(plan, {"x": x})[graph.outputs[0]].shape == (2, 1)

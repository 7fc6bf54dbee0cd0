"""Widths of ReLUs that `bench relu` measures, and those of plans."""

from __future__ import annotations

import math

import hushnet
from hushnet.planner import compile
from hushnet_bench import relu

from tests.planner.planner_graphs import Builder
from tests.two_party_plan.share_graphs import images


def test_widths_are_those_of_a_plan() -> None:
    graph = Builder((3, 12, 12), seed=2).conv(6).op("relu").conv(8).op("relu").conv(8).op("relu").dense(4).done()
    plan = compile(graph, trust="two-party", calibration=images(graph, 4), weight_bits=8)
    found = relu.widths(hushnet.Model(plan))
    stages = [s for s in plan.stages if s["kind"] == "relu"]
    assert sum(found.values()) == sum(math.prod(plan.tensors[s["in"]]["shape"]) for s in stages if s.get("bits"))
    for ring, dropped, left in found:
        assert ring == plan.part["ring_bits"] and 2 <= left <= ring - dropped
    # values of the rows fit their rings
    assert all(left + dropped <= ring for ring, dropped, left in relu.DIVIDED.values())

"""Reaches of tensors: powers of two that both parties derive their rings from."""

from __future__ import annotations

import copy

import numpy as np
import pytest
from hushnet import _native
from hushnet.plan import Plan, PlanError
from hushnet.planner import compile, validate
from hushnet.planner.two_party.reach import converted, write_reaches

from tests.planner.planner_graphs import Builder


@pytest.mark.parametrize("kind", ["reshape", "transpose", "concat", "slice", "pad"])
def test_moves_keep_the_bit_that_a_conversion_adds(kind: str) -> None:
    # the largest bound that keeps below a power of two, with errors: the prime of slots is a little less than the power
    reach = 18
    bound = next(b for b in range(2**reach, 0, -1) if _native.reach_bits(b) == reach)
    assert converted("layer", bound, reach) == reach + 1
    tensors = [{"kind": "shared", "bound": bound} for _ in range(3)]
    layer = {"kind": "linear", "name": "layer", "method": "gala", "in": 0, "out": 1}
    move = {"kind": kind, "name": "move", "in": [1], "out": 2}
    write_reaches({"tensors": tensors, "stages": [layer, move], "params": {"two_party": {"ring_bits": 40}}})
    assert [t["reach_bits"] for t in tensors] == [reach, reach + 1, reach + 1]


def test_layers_behind_relus_are_bounded_by_one_sign_of_their_weights_at_a_time() -> None:
    b = Builder((2, 6, 6), seed=3)
    b.conv(4).op("relu").pool("max_pool", (2, 2), (2, 2)).dense(6).op("relu").dense(5).op("relu").dense(3)
    plan = compile(b.done(), trust="two-party", weight_bits=8)
    layers, narrower = [s for s in plan.stages if s["kind"] == "linear"], 0
    # what is opened is raised by half of what the opening drops
    for stage in layers[:-1]:
        source, made = (plan.tensors[stage[end]]["bound"] for end in ("in", "out"))
        weight = plan.weights[stage["weights"]].astype(np.int64)
        rows, bias = weight.reshape(len(weight), -1), plan.weights[stage["bias"]]
        plus, minus = np.maximum(rows, 0).sum(axis=1), np.maximum(-rows, 0).sum(axis=1)
        either = int((source * (plus + minus) + np.abs(bias)).max()) + 1
        one = int(np.maximum(source * plus + bias, source * minus - bias).max()) + 1
        # the image has both signs
        assert made == (either if stage is layers[0] else one)
        narrower += made < either
    assert narrower == 2
    # the server refuses a bound that the layer's inputs can pass
    changed = Plan(copy.deepcopy(plan.document), plan.weights)
    changed.tensors[layers[1]["out"]]["bound"] -= 2
    with pytest.raises(PlanError, match="reach"):
        validate(changed)

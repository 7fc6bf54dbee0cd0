"""Client-aided plans for few images.

The same integers as the batch engine's, exact bytes, and the engine that is cheaper.
"""

import copy
import sys

import hushnet
import numpy as np
import pytest
from hushnet import zoo
from hushnet.plan import Plan, PlanError
from hushnet.planner import compile
from hushnet.planner.few_images import bytes_sent, price
from hushnet.planner.precision import DEAR, cheapest
from hushnet.planner.quantise import FINER_WEIGHTS
from hushnet.reference.float import evaluate
from hushnet.reference.numpy import run as clear
from hushnet.report import explain, render
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from planner_graphs import Builder, graphs


def random_inputs(plan, images, seed=0):
    rng = np.random.default_rng(seed)
    shapes = {p["name"]: plan.tensors[p["tensor"]]["shape"] for p in plan.document["inputs"]}
    return {name: rng.uniform(-0.9, 0.9, (images, *shape)) for name, shape in shapes.items()}


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(graph=graphs(), images=st.sampled_from([1, 2, 9]))
def test_both_engines_give_the_same_answers_and_the_bytes_that_they_predict(graph, images):
    plans = {engine: compile(graph, input_range=(-1, 1), batch=images, engine=engine) for engine in ("batch", "packed")}
    inputs = random_inputs(plans["packed"], images)
    wanted = clear(plans["batch"], inputs)
    for engine, plan in plans.items():
        result = hushnet.run(hushnet.Model(plan), inputs, threads=1)
        for name, value in wanted.items():
            assert np.array_equal(np.asarray(result.outputs[name]).reshape(value.shape), value), engine
        trace, predicted = result.trace, plan.predicted
        assert [trace[k] for k in ("bytes_up", "bytes_down", "setup_bytes_down")] == [
            predicted[k] for k in ("bytes_up", "bytes_down", "setup_bytes_down")
        ]
        assert trace["rounds"] == predicted["rounds"]
        for stage, seen in zip(plan.stages, trace["stages"]):
            if stage["kind"] == "linear" and engine == "packed":
                assert seen["noise_bits"] < stage["predicted"]["noise_bits"]


def test_the_engine_follows_from_the_number_of_images():
    model = zoo.build("cryptonets-relu")
    chosen = {}
    for batch in (1, None):
        plan = hushnet.compile(model, input_range=(0, 1), batch=batch).plan
        chosen[batch] = plan.document["engine"]
        other = plan.predicted["runner_up"]
        assert other["engine"] != plan.document["engine"]
        forced = hushnet.compile(model, input_range=(0, 1), batch=batch, engine=other["engine"]).plan
        assert (forced.predicted["seconds"], bytes_sent(forced.predicted)) == (other["seconds"], other["bytes"])
        assert "runner_up" not in forced.predicted
        # No engine is left that is ten times better in both.
        assert price(plan.predicted) <= price(forced.predicted)
        assert not (
            10 * other["seconds"] < plan.predicted["seconds"] and 10 * other["bytes"] < bytes_sent(plan.predicted)
        )
    assert chosen == {1: "packed", None: "batch"}


@given(graph=graphs())
@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_explain_reads_plans_and_public_parts(graph):
    plan = compile(graph, input_range=(-1, 1), batch=1, engine="packed")
    for known in (plan, plan.public_part()):
        report = explain(known)
        assert report["parameters"]["images_per_block"] == 8 and report["engine"] == "packed"
        layers = [layer for layer in report["layers"] if layer["kind"] == "linear"]
        assert all(layer["noise_margin_bits"] > 0 and layer["method"] == "coefficients" for layer in layers)
        assert sum(layer["bytes_down"] for layer in layers) == report["totals"]["bytes_down"]
        assert render(report) is not None
    assert not any("weights" in stage for stage in plan.public_part().stages)


def test_what_cannot_be_is_refused():
    graph = zoo.build("cryptonets-relu")

    def compile(model, **options):
        return hushnet.compile(model, **options).plan

    with pytest.raises(PlanError, match="choose one of auto, batch, packed"):
        compile(graph, input_range=(0, 1), engine="fast")
    with pytest.raises(PlanError, match="options of engine 'batch'"):
        compile(graph, input_range=(0, 1), engine="packed", mask="fresh")
    with pytest.raises(PlanError, match="few images at a time"):
        compile(graph, input_range=(0, 1), engine="packed", weight_bits=14, activation_bits=14)
    plan = compile(graph, input_range=(0, 1), batch=1, engine="packed")
    for field in ("upload_bits", "body_bits", "mask_bits"):
        changed = copy.deepcopy(plan)
        layer = next(s for s in changed.stages if s["kind"] == "linear")
        layer[field] -= 2
        with pytest.raises(PlanError, match="does not stay below half of the scale"):
            Plan(changed.document, plan.weights).handle()


def test_few_images_are_told_what_the_engine_for_them_lacks(monkeypatch):
    """A captcha reader's last layer gives 131,360 results: no engine of many images takes one row of them."""

    def too_large(assembly):
        raise PlanError("one row of features takes 1796 MiB; give fewer images at once (batch=1)")

    monkeypatch.setattr("hushnet.planner.assemble.Assembly.run", too_large)
    graph = zoo.build("cryptonets-relu")
    bits = {"weight_bits": 14, "activation_bits": 14}
    for images, said in ((1, "few images at a time"), (2048, "fewer images at once")):
        with pytest.raises(PlanError, match=said):
            hushnet.compile(graph, input_range=(0, 1), batch=images, **bits)


def test_weights_are_finer_where_a_layer_has_room_beside_its_activations(monkeypatch):
    b = Builder((4, 10, 10), seed=3).conv(8).op("relu").conv(8).op("relu")
    graph = b.conv(6, (1, 1), (1, 1), (0, 0, 0, 0)).done()
    x = np.random.default_rng(4).uniform(-1, 1, (40, 4, 10, 10))

    def planned(**options):
        plan = compile(graph, calibration=x, batch=1, weight_bits=8, engine="packed", **options)
        bits = [int(np.abs(plan.weights[s["weights"]]).max()).bit_length() + 1 for _, s in plan.linear_stages()]
        error = np.abs(clear(plan, x)[graph.outputs[0]] - evaluate(graph, {"x": x})[graph.outputs[0]]).max()
        return bits, error, bytes_sent(plan.predicted)

    usual, finer = planned(), planned(most_bits=16)
    assert usual[0] == [8, 8, 8] and finer[0] == [8 + FINER_WEIGHTS] * 3
    monkeypatch.setattr("hushnet.planner.quantise.FINER_WEIGHTS", 0)
    coarse = planned(most_bits=16)
    assert coarse[0] == [8, 8, 8] and finer[1] < coarse[1] / 4 and finer[2] < 1.2 * coarse[2]


def sure_of_nothing():
    """A network of small sums whose probabilities are steep: the first bits do not reach the usual precision."""
    b = Builder((8, 12, 12), seed=5)
    b.conv(24, gain=4.0).op("hard_swish").conv(24, gain=4.0).op("hard_swish").conv(4, gain=8.0)
    return b.op("reduce_mean", (4,), axes=[1, 2]).dense(3, gain=2000.0).op("softmax", axis=0).done()


def test_no_plan_of_one_image_costs_a_hundred_times_another_for_the_usual_precision(monkeypatch):
    """More bits than the engine for few images takes were a plan of 175 GiB for one photo."""
    graph = sure_of_nothing()
    x = np.random.default_rng(1).uniform(-1, 1, (48, 8, 12, 12))
    plan = compile(graph, calibration=x, batch=1)
    assert plan.document["engine"] == "packed"
    first = compile(graph, calibration=x, batch=1, weight_bits=8)
    assert first.predicted["precision"]["reached"] < first.predicted["precision"]["asked"]
    # bits of its own, no matter what the other engine would take
    assert plan.predicted["precision"]["reached"] > first.predicted["precision"]["reached"] + 1
    assert price(plan.predicted) < DEAR * price(first.predicted)
    # who asks for more than the engine for few images has gets what there is, at its price
    module = sys.modules["hushnet.planner.compile"]
    monkeypatch.setattr(module, "FEW_IMAGES", module.FEW_IMAGES[:1])
    few = compile(graph, calibration=x, batch=1)
    assert few.document["engine"] == "packed"
    dear = compile(graph, calibration=x, batch=1, precision=few.predicted["precision"]["reached"] + 1.0)
    assert dear.document["engine"] == "batch" and price(dear.predicted) > 5 * price(plan.predicted)


def test_the_cheapest_plan_leaves_dear_ones_alone():
    def made(price_, reached):
        return Plan({"predicted": {"price": price_, "precision": {"reached": reached}}}, {})

    def taken(*pairs, priced=True):
        plans = iter([made(*p) for p in pairs])
        told = (lambda plan: plan.predicted["price"]) if priced else None
        return cheapest(lambda: next(plans), [()] * len(pairs), 7.0, told).predicted["price"]

    assert taken((1.0, 3.0), (300.0, 9.0)) == 1.0
    assert taken((1.0, 3.0), (300.0, 9.0), priced=False) == 300.0
    assert taken((1.0, 3.0), (7.0, 6.0), (300.0, 9.0), (2.0, 5.0)) == 7.0
    assert taken((1.0, 3.0), (7.0, 8.0), (0.5, 9.0)) == 7.0
    # a dear one that came first is no measure
    assert taken((300.0, 6.0), (1.0, 3.0), (2.0, 5.0)) == 2.0


def peaked(count, seed):
    """Small values with rare large ones, as activations of trained networks are; eight channels go together."""
    rng = np.random.default_rng(seed)
    parts = rng.random((count, 48, 4, 4))
    parts[rng.random(parts.shape) < 5e-4] = 40
    return np.repeat(parts, 8, axis=1) * (1 + 0.2 * rng.random((count, 384, 4, 4)))


def test_weights_leave_bits_to_peaked_inputs_and_errors_are_fed_back_for_the_same_bytes(monkeypatch):
    graph, x, fresh = (
        Builder((384, 4, 4), seed=5).conv(24, (1, 1), pads=(0, 0, 0, 0)).done(),
        peaked(64, 0),
        peaked(64, 1),
    )
    (want,) = evaluate(graph, {"x": fresh}).values()

    def planned(**options):
        plan = compile(graph, calibration=x, batch=1, weight_bits=11, most_bits=16, engine="packed", **options)
        (stage,) = (s for _, s in plan.linear_stages())
        (got,) = clear(plan, fresh).values()
        return plan, plan.tensors[stage["in"]]["bound"].bit_length() + 1, float(np.sqrt(np.square(got - want).mean()))

    balanced, more, error = planned()
    fed, _, least = planned(rounding="feedback")
    monkeypatch.setattr("hushnet.planner.quantise.COARSER_WEIGHTS", 0)
    usual, few, most = planned()
    assert more == few + 2 and error < 0.6 * most and least < 0.8 * error
    assert max(bytes_sent(p.predicted) for p in (balanced, fed)) <= 1.02 * bytes_sent(usual.predicted)
    result = hushnet.run(hushnet.Model(fed), fresh[:2], threads=1)
    (got,), (exact,) = result.outputs.values(), clear(fed, fresh[:2]).values()
    assert np.array_equal(np.asarray(got).reshape(exact.shape), exact)

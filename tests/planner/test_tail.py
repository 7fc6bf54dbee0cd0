"""Errors behind operators that saturate, bits of the few-images engine, and whole numbers that stand as they are."""

from __future__ import annotations

import hushnet
import numpy as np
import pytest
from hushnet import frontend, passes
from hushnet.planner import compile
from hushnet.planner.rewrite import equalise_rows, reaches
from hushnet.planner.tail import deciding, tails
from hushnet.reference.float import evaluate
from hushnet.reference.numpy import run
from onnx import TensorProto, helper, numpy_helper
from planner_graphs import Builder

from tests.frontend.harness import Net
from tests.planner.test_statement import planned


def model(nodes, weights, inputs, output, kind=TensorProto.FLOAT):
    return helper.make_model(
        helper.make_graph(
            nodes,
            "net",
            [helper.make_tensor_value_info(name, kind, shape) for name, shape in inputs.items()],
            [helper.make_tensor_value_info(output, TensorProto.FLOAT, None)],
            [numpy_helper.from_array(value, name) for name, value in weights.items()],
        ),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
    )


def classifier(end):
    rng = np.random.default_rng(5)
    weights = {
        "w": rng.normal(0, 0.4, (24, 32)).astype(np.float32),
        "v": rng.normal(0, 0.4, (32, 3)).astype(np.float32),
    }
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("MatMul", ["r", "v"], ["z"]),
        helper.make_node(end, ["z"], ["y"]),
    ]
    return model(nodes, weights, {"x": ["n", 24]}, "y")


@pytest.mark.parametrize("end", ["Softmax", "Sigmoid"])
def test_calibration_that_a_classifier_is_sure_of_says_what_others_get(end):
    graph = passes.default(frontend.load(classifier(end)))
    x = np.random.default_rng(2).normal(0, 3, (6000, 24))
    y = evaluate(graph, {"x": x})["y"]
    doubt = np.abs(y - 0.5).min(axis=1)
    order = np.argsort(doubt)
    sure, unsure = x[order[-200:]], x[order[:200]]
    plan = compile(graph, calibration=sure, margin=2.0)
    off = np.abs(run(plan, unsure)["y"] - y[order[:200]]).max()
    assert off <= plan.predicted["max_error"] <= plan.predicted["worst_error"]
    # what the probabilities themselves showed would have been a false statement
    assert off > 5 * plan.predicted["seen_error"]


@pytest.mark.parametrize("trust", ["client-aided", "two-party", "non-interactive"])
@pytest.mark.parametrize("kind", ["clip", "exp"])
def test_probabilities_by_their_sum_say_what_rows_between_sure_ones_get(kind, trust):
    """One class against the rest, as skl2onnx writes it: hinges that are cut, and logistic functions written out."""
    rng = np.random.default_rng(4)
    centres = 3.0 * np.eye(3)
    net = Net((3,))
    scores = net.op("MatMul", "x0", net.constant(2.0 * np.eye(3) + rng.normal(0, 0.1, (3, 3))))
    if kind == "clip":
        cut = net.op("Clip", net.op("Add", scores, net.constant(-3.0)), net.constant(-1.0), net.constant(1.0))
        chance = net.op("Mul", net.op("Add", cut, net.constant(1.0)), net.constant(0.5))
    else:
        steep = net.op("Mul", net.op("Add", scores, net.constant(-3.0)), net.constant(-9.0))
        chance = net.op("Reciprocal", net.op("Add", net.op("Exp", steep), net.constant(1.0)))
    whole = net.op("ReduceSum", chance, net.ints(1), keepdims=1)
    none = net.op("Cast", net.op("Not", net.op("Cast", whole, to=TensorProto.BOOL)), to=TensorProto.FLOAT)
    net.op("Div", net.op("Add", chance, none), net.op("Add", whole, net.op("Mul", none, net.constant(3.0))))
    graph = passes.default(frontend.read(net.model())[0])
    sure = centres[rng.integers(0, 3, 200)] + rng.uniform(-0.2, 0.2, (200, 3))
    ends, part = rng.integers(0, 200, (2, 4000)), rng.uniform(size=(4000, 1))
    between = sure[ends[0]] + part * (sure[ends[1]] - sure[ends[0]])
    plan = compile(graph, trust=trust, calibration=sure, batch=64)
    off = np.abs(planned(plan, between) - evaluate(graph, {"x0": between})[graph.outputs[0]]).max(axis=1)
    stated = plan.predicted["max_error"]
    assert np.mean(off > stated) <= 0.001, (np.quantile(off, 0.999), stated)
    assert stated < 8 * np.quantile(off, 0.999)
    # what sure rows show would have been a false statement
    assert np.quantile(off, 0.999) > 20 * plan.predicted["seen_error"]


def test_only_saturating_outputs_of_layers_have_a_tail():
    softmax = passes.default(frontend.load(classifier("Softmax")))
    (tail,) = tails(softmax).values()
    assert len(tail.sources) == 1 and any(n.op == "softmax" for n in tail.nodes)
    assert not tails(passes.default(frontend.load(classifier("Relu"))))
    added = classifier("Softmax")
    added.graph.initializer.append(numpy_helper.from_array(np.array([1], np.int64), "last"))
    added.graph.node.append(helper.make_node("ReduceSum", ["x", "last"], ["s"], keepdims=1))
    added.graph.node.append(helper.make_node("Mul", ["s", "y"], ["q"]))
    added.graph.output[0].name = "q"
    assert not tails(passes.default(frontend.load(added))), "an input beside the layers is no tail"


def test_more_bits_for_few_images_where_the_modulus_has_room():
    graph = Builder((3, 8, 8), seed=1).conv(8).op("relu").conv(8).op("relu").dense(5).done()
    x = np.random.default_rng(3).uniform(-1, 1, (32, 3, 8, 8))
    want = evaluate(graph, {graph.inputs[0]: x})[graph.outputs[0]]
    found = {}
    for most in (12, 14):
        plan = compile(graph, calibration=x, weight_bits=12, engine="packed", batch=1, most_bits=most)
        found[most] = max(t["bound"].bit_length() + 1 for t in plan.tensors if "bound" in t and ".acc" not in t["name"])
        result = hushnet.run(hushnet.Model(plan), x[:2], threads=1).outputs[graph.outputs[0]]
        off = np.abs(result.reshape(2, -1) - want[:2].reshape(2, -1)).max()
        assert off <= plan.predicted["max_error"]
        found[most, "seen"] = plan.predicted["seen_error"]
    assert found[12] <= 12 and found[14] == 14
    assert found[14, "seen"] < found[12, "seen"]
    with pytest.raises(hushnet.PlanError, match="most_bits"):
        compile(graph, calibration=x, engine="packed", most_bits=17)


def test_a_look_up_is_zeros_and_ones_of_two_bits():
    rng = np.random.default_rng(7)
    table = rng.normal(0, 1, (300, 6)).astype(np.float32)
    net = model([helper.make_node("Gather", ["t", "i"], ["y"])], {"t": table}, {"i": ["n", 4]}, "y", TensorProto.INT64)
    ids = rng.integers(-300, 300, (40, 4))
    ids[0] = (0, 299, -300, -1)
    plan = hushnet.compile(net, calibration=ids, batch=1, weight_bits=12).plan
    (stage,) = [s for s in plan.stages if s["kind"] == "linear"]
    source = plan.tensors[stage["in"]]
    assert (source["bound"], source["scale"]) == (1, 1.0)
    seen = hushnet.run(hushnet.Model(plan), ids[:3], threads=1).output
    rounding = np.abs(table).max(axis=0) / (2**11 - 1)
    assert (np.abs(seen - table[ids[:3]]) <= rounding).all()
    outside = run(plan, {"i": np.array([[300, -301, 5, 10_000]], dtype=float)})["y"]
    assert not outside[0, [0, 1, 3]].any() and outside[0, 2].any()


def test_an_error_that_no_rule_bounds_is_the_one_that_was_seen() -> None:
    """A logarithm behind a hard sigmoid: zero is in its range, and the plan held an infinite number."""
    graph = Builder((6,), seed=3).dense(4, gain=2.8).op("hard_sigmoid", alpha=0.2, beta=0.5).op("log").done()
    x = np.random.default_rng(7).uniform(-1, 1, (80, 6))
    plan = compile(graph, calibration=x[:40], batch=8, margin=2.0)
    off = np.abs(run(plan, x[40:])[graph.outputs[0]] - evaluate(graph, {"x": x[40:]})[graph.outputs[0]]).max()
    assert off <= plan.predicted["max_error"] < 0.1


@pytest.mark.parametrize("trust", ["two-party", "non-interactive"])
@pytest.mark.parametrize("end", ["Softmax", "Sigmoid"])
def test_private_plans_state_what_rows_get_that_are_not_sure(trust, end):
    weights = {"w": np.random.default_rng(5).normal(0, 0.4, (24, 3)).astype(np.float32)}
    nodes = [helper.make_node("MatMul", ["x", "w"], ["z"]), helper.make_node(end, ["z"], ["y"])]
    graph = passes.default(frontend.load(model(nodes, weights, {"x": ["n", 24]}, "y")))
    x = np.random.default_rng(2).normal(0, 6, (6000, 24))
    y = evaluate(graph, {"x": x})["y"]
    order = np.argsort(np.abs(y - 0.5).min(axis=1))
    plan = compile(graph, trust=trust, calibration={"x": x[order[-200:]]}, batch=8, margin=2.0, weight_bits=8)
    off = np.abs(planned(plan, {"x": x[order[:200]]}) - y[order[:200]]).max()
    assert off <= plan.predicted["max_error"] < 0.5
    assert off > 5 * plan.predicted["seen_error"], "what these rows showed would have been a false statement"


def test_scores_that_decide_are_those_near_the_largest():
    scores = np.array([[0.0, -1.0, -900.0]] * 40 + [[0.0, -500.0, -600.0]] * 40)
    off = np.array([[0.01, -0.01, 3.0]] * 40 + [[0.5, 0.7, 0.9]] * 40)
    found = deciding(off, scores, 0)
    assert len(found) == 40 and np.allclose(found, 0.01)
    assert np.allclose(deciding(off[:, 1], scores[:, 1], None), -0.01)


def test_a_neuron_that_is_hardly_more_than_its_bias_leaves_others_their_bits():
    graph = Builder((6,), seed=1).dense(4).op("relu").dense(3).done()
    graph.nodes[0].weight[2] *= 1e-3
    graph.nodes[0].bias[2] = 0.7
    x = np.random.default_rng(3).uniform(-1, 1, (200, 6))
    assert reaches(graph, {"x": x})["x"] == pytest.approx(1.0, abs=0.05) and not reaches(graph, None)
    plain, capped = (equalise_rows(graph, r) for r in (None, reaches(graph, {"x": x})))
    before, after = (np.abs(g.nodes[0].bias).max() for g in (plain, capped))
    assert before > 100 * after
    want = evaluate(graph, {"x": x})[graph.outputs[0]]
    for made in (plain, capped):
        np.testing.assert_allclose(evaluate(made, {"x": x})[graph.outputs[0]], want)
    plan = compile(graph, calibration=x, weight_bits=14, activation_bits=14, batch=8)
    (form,) = (t for t in plan.tensors if t["name"] == "x.q")
    assert form["scale"] * form["bound"] < 4, "the input has all of its bits"

"""Roundings of deep and wide networks: answers stay those of the planned run, and of the network itself."""

import sys
from types import SimpleNamespace

import hushnet
import numpy as np
import onnxruntime
from hushnet import PlanError, data, zoo
from hushnet.graph import Linear
from hushnet.planner import compile, validate
from hushnet.planner.precision import TWO_PARTY, TWO_PARTY_SUMS, cheapest
from hushnet.reference import two_party as reference
from hushnet.reference.float import evaluate

from tests.planner.planner_graphs import Builder
from tests.two_party_plan.share_graphs import images

RUNGS = (*TWO_PARTY, *TWO_PARTY_SUMS)


def test_a_deep_plain_network_keeps_its_labels():
    model = zoo.build("plain20-f3-d20-w1")
    x = data.synthetic((3, 32, 32), 16, seed=2).astype(np.float32)
    plan = hushnet.compile(
        model, trust="two-party", calibration=data.synthetic((3, 32, 32), 16, seed=1), weight_bits=11
    ).plan
    planned = reference.run(plan, x)["logits"]
    drawn = reference.run(plan, x, units=np.random.default_rng(3))["logits"]
    exact = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(
        None, {"image": x}
    )[0]
    spread = exact.std()
    assert np.sqrt(np.mean((drawn - planned) ** 2)) < 0.02 * spread
    assert np.sqrt(np.mean((planned - exact) ** 2)) < 0.08 * spread
    assert (drawn.argmax(1) == planned.argmax(1)).all()
    assert (drawn.argmax(1) == exact.argmax(1)).mean() >= 0.9


def test_the_planned_run_is_the_middle_of_real_ones():
    b = Builder((3, 8, 8), seed=2)
    b.conv(6).op("relu").conv(6).op("relu").conv(4)
    graph = b.done()
    x = images(graph, 4)
    plan = compile(graph, trust="two-party", calibration=x)
    name = next(plan.tensors[s["out"]]["name"] for s in plan.stages if s["kind"] == "reveal")
    planned = reference.run(plan, x, keep_all=True)[name]
    runs = [reference.run(plan, x, keep_all=True, units=np.random.default_rng(i))[name] for i in range(40)]
    middle = np.mean(runs, axis=0)
    off = np.mean(middle - planned)
    # a planned run of floors would be low by about half a unit times the weights of every layer
    assert abs(off) < 0.25 * np.mean(np.std(runs, axis=0)) + 0.05


def test_wide_layers_lose_weight_bits_before_activations_get_coarse():
    b = Builder((40, 6, 6), seed=5)
    b.conv(40).op("relu").dense(8)
    graph = b.done()
    x = images(graph, 4)
    plan = compile(graph, trust="two-party", calibration=x, weight_bits=16)
    bits = [int(np.abs(plan.weights[s["weights"]]).max()).bit_length() + 1 for _, s in plan.linear_stages()]
    assert min(bits) < 16 and any("fewer than 16 bits" in note for note in plan.document["notes"])
    read = [plan.tensors[s["in"]]["bound"].bit_length() + 1 for _, s in plan.linear_stages()]
    assert min(read) >= min(bits) - 2
    validate(plan)


def test_a_search_of_large_networks_passes_over_bits_that_cannot_be_enough():
    tried = []

    def make(reached):
        def plan(weights, activations, more=None):
            tried.append((weights, activations, more))
            bits = reached[len(tried) - 1]
            if bits is None:
                raise PlanError("no plan")
            return SimpleNamespace(predicted={"precision": {"reached": bits}})

        return plan

    # two bits short: the next rung may do
    cheapest(make([5.0, 7.5]), RUNGS, 7.0, leaps=True)
    assert [t[:2] for t in tried] == [(8, "auto"), (8, "auto")] and tried[1][2]["rounding"] == "feedback"
    tried.clear()
    # nine bits short: no rung of at most five bits more is tried
    found = cheapest(make([-2.0, 3.0, 4.0]), RUNGS, 7.0, leaps=True)
    assert [t[2] and t[2].get("sums") for t in tried] == [None, "calibrated", "calibrated"]
    assert found.predicted["precision"]["reached"] == 4.0
    tried.clear()
    # later rungs have no plan: those that were passed over are tried after all, the most bits first
    found = cheapest(make([-2.0, None, None, 1.0]), RUNGS, 7.0, leaps=True)
    assert tried[-1][0] == 13 and found.predicted["precision"]["reached"] == 1.0
    tried.clear()
    cheapest(make([-2.0] * len(RUNGS)), RUNGS, 7.0)
    assert len(tried) == len(RUNGS)


def test_what_bits_do_not_change_is_made_once(monkeypatch):
    planned = sys.modules["hushnet.planner.two_party.compile"]
    made, prepare = [], planned.prepare
    monkeypatch.setattr(planned, "prepare", lambda *given: made.append(given) or prepare(*given))
    b = Builder((3, 6, 6), seed=4)
    b.conv(4).op("relu").dense(3)
    graph = b.done()
    plan = compile(graph, trust="two-party", calibration=images(graph, 8), precision=30)
    # no rung reaches so much, so all were tried
    assert plan.predicted["precision"]["reached"] < 30 and len(made) == 1
    assert compile(graph, trust="two-party", calibration=images(graph, 8)).document != plan.document


def test_of_plans_that_are_not_precise_enough_the_lightest_of_the_best_is_taken():
    def search(made, **options):
        left = iter(made)

        def plan(weights, activations, more=None):
            reached, sent, *rest = next(left)
            kept = {"expected_agreement": rest[0]} if rest else {}
            kept |= {"agreement": rest[1]} if rest[1:] else {}
            return SimpleNamespace(predicted={"precision": {"reached": reached}, **kept, "sent": sent})

        return cheapest(plan, RUNGS[: len(made)], 7.0, **options).predicted["sent"]

    weigh = {"weigh": lambda plan: plan.predicted["sent"]}
    # 0.32 bits are a factor of 1.25
    assert search([(4.0, 100), (4.3, 300), (4.2, 200)]) == 300
    assert search([(4.0, 100), (4.3, 300), (4.2, 200)], **weigh) == 100
    assert search([(3.9, 100), (4.3, 300), (4.2, 200)], **weigh) == 200
    # nearly as good as a plan that was given up is not enough
    assert search([(3.7, 100), (4.0, 200), (4.3, 300)], **weigh) == 200
    # nor are few bytes where more labels change; and a plan that is precise enough is taken as it comes
    assert search([(4.3, 100, 0.96), (4.3, 200, 0.98), (4.0, 300, 0.98)], **weigh) == 200
    assert search([(4.3, 100, 0.976), (4.3, 200, 0.98), (4.0, 300, 0.98)], **weigh) == 100
    assert search([(4.0, 100), (7.2, 300), (7.3, 200)], **weigh) == 300
    # one label of few rows says less than errors do
    assert search([(4.2, 100, 0.98, 0.875), (4.3, 200, 0.98, 1.0)], **weigh) == 100


def test_rare_units_of_whole_values_are_in_the_stated_error(monkeypatch):
    """Zeros are whole multiples of their unit: masking alone moves them, in one of ten rows."""
    b = Builder((10,), seed=4).dense(10).op("relu").dense(2).dense(6)
    for node in b.graph.nodes:
        if isinstance(node, Linear):
            node.bias[:] = 0.0
    graph = b.done()
    options = {"trust": "two-party", "calibration": np.zeros((10, 10)), "weight_bits": 10, "activation_bits": 14}

    def beyond() -> tuple[float, float]:
        plan = compile(graph, **options)
        name = plan.document["outputs"][0]["name"]
        drawn = reference.run(plan, np.zeros((4000, 10)), units=np.random.default_rng(7))[name]
        rows = np.abs(drawn).max(axis=1)
        return float((rows > plan.predicted["max_error"]).mean()), float((rows > 0).mean())

    share, moved = beyond()
    assert 0.0 < moved < 0.2 and share <= 0.001
    # planted: the calibration rows alone
    monkeypatch.setattr("hushnet.planner.two_party.compile.REDRAWN_VALUES", 0)
    share, _ = beyond()
    assert share > 0.01


def test_the_element_that_moves_most_keeps_to_the_error_of_drawn_units():
    """A ReLU cuts all classes off but one: the mean over all elements says little of what the last one moves."""
    b = Builder((10,), seed=4).dense(40).op("relu").dense(64).op("relu")
    layers = [node for node in b.graph.nodes if isinstance(node, Linear)]
    layers[-1].bias[:] = -8.0
    layers[-1].bias[0] = 8.0
    x = np.random.default_rng(1).uniform(-1, 1, (20, 10))
    plan = compile(b.done(), trust="two-party", calibration=x, weight_bits=8, activation_bits=8)
    name = plan.document["outputs"][0]["name"]
    stated = reference.stated(plan, x[:1])
    moved = [reference.run(plan, x[:1], units=np.random.default_rng(seed))[name] for seed in range(200)]
    assert max(stated.beyond(m) for m in moved) <= 1.0
    # the others stay where they are: the mean over all, which was stated once, is passed
    errors = np.concatenate([m - stated.planned for m in moved])
    mean = reference.SIGMAS * np.sqrt((errors**2).mean()) + stated.scale
    assert np.abs(errors).max() > mean


def test_layers_take_off_what_truncations_before_them_put_on(monkeypatch):
    """These round up with probability (remainder + 1) / 2^bits: where they take few bits, a good part of a unit."""
    graph = Builder((40,), seed=6).dense(80).dense(5).done()
    layers = [node for node in graph.nodes if isinstance(node, Linear)]
    # exact in few bits, so that nothing is left of rounded weights
    layers[0].weight[:] = np.sign(layers[0].weight) * 0.25
    layers[1].weight[:] = 0.5
    x = np.random.default_rng(1).integers(-8, 8, (40, 40)) / 8
    want = evaluate(graph, {"x": x})[graph.outputs[0]]

    def off() -> float:
        plan = compile(graph, trust="two-party", calibration=x, weight_bits=3, activation_bits=6)
        name = plan.document["outputs"][0]["name"]
        runs = [reference.run(plan, x, units=np.random.default_rng(seed))[name] for seed in range(20)]
        return float((np.mean(runs, axis=0) - want).mean())

    kept = abs(off())
    # planted: layers that take nothing off
    monkeypatch.setattr("hushnet.planner.two_party.fixed.Builder.above", lambda self, version: 0.0)
    assert kept < abs(off()) / 4

"""What cannot be planned is refused with advice; a changed plan is refused with the stage."""

import copy
import io
import json

import numpy as np
import pytest
from hushnet import _native
from hushnet.plan import Plan, PlanError
from hushnet.planner import compile, validate
from hushnet.report import explain, render, trust_text

from tests.planner.planner_graphs import Builder
from tests.two_party_plan.share_graphs import images


def plan_of(graph, x=None, **options):
    # without the search for bits that reach a precision: many graphs are compiled
    return compile(graph, trust="two-party", calibration=x, **{"weight_bits": 8, **options})


def small(seed=0):
    b = Builder((2, 6, 6), seed=seed)
    b.conv(3).op("relu").pool("max_pool", (2, 2), (2, 2)).dense(4)
    return b.done()


def test_all_operators_that_cannot_run_are_listed_with_advice():
    b = Builder((2, 6, 6))
    b.conv(3).op("floor").conv(3).op("round")
    source = b.at
    b.conv(3).op("less", others=(source,)).dense(2)
    with pytest.raises(PlanError) as error:
        plan_of(b.done())
    text = str(error.value)
    for name in ("floor2", "round4", "less6", "Relu", "comparisons and roundings", "client-aided"):
        assert name in text


def test_the_same_operators_at_the_end_are_the_clients():
    b = Builder((2, 6, 6))
    b.conv(3).op("relu").dense(4).op("sigmoid").op("affine", mul=2.0, add=1.0)
    graph = b.done()
    plan = plan_of(graph)
    assert [op["op"] for op in plan.stages[-1]["ops"]] == ["dequantize", "sigmoid", "affine"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"reveal": "all"}, "reveal"),
        ({"ring_degree": 1024}, "ring_degree"),
        ({"ring_bits": 3}, "ring_bits"),
        ({"weight_bits": 1}, "weight_bits"),
        ({"activation_bits": 17}, "activation_bits"),
        ({"network": "moon"}, "network"),
        ({"margin": 0.5}, "margin"),
        ({"tiles": "auto"}, "There is no option 'tiles'"),
        ({"max_memory": 1 << 20}, "max_memory"),
        ({"activation_bits": 16, "weight_bits": 16, "ring_bits": 18}, "activation_bits or weight_bits"),
    ],
)
def test_requests_that_make_no_sense(options, words):
    with pytest.raises(PlanError, match=words):
        plan_of(small(), **options)


def test_argmax_of_a_single_score_would_always_be_zero():
    with pytest.raises(PlanError, match="needs several scores, and .* is one, whose sign is the label"):
        plan_of(Builder((2, 6, 6)).conv(3).op("relu").dense(1).done(), reveal="argmax")
    # where the label follows from one score behind the opening, the name of the tensor is no help either
    with pytest.raises(PlanError, match="needs several scores"):
        plan_of(Builder((2, 6, 6)).conv(3).op("relu").dense(1).op("sigmoid").done(), reveal="argmax")
    b = Builder((2, 6, 6)).conv(3).op("relu").dense(4)
    scores = b.at
    with pytest.raises(PlanError, match=f"end the network in its scores: until='{scores}' does"):
        plan_of(b.op("softmax", axis=0).op("floor").done(), reveal="argmax")


def test_argmax_needs_one_output_of_scores():
    b = Builder((2, 6, 6))
    b.conv(3).op("relu")
    middle = b.at
    b.dense(2)
    with pytest.raises(PlanError, match="one output"):
        plan_of(b.done(b.at, middle), reveal="argmax")
    b = Builder((2, 6, 6))
    b.conv(3).op("square")
    with pytest.raises(PlanError, match="argmax"):
        plan_of(b.done(), reveal="argmax")


def test_a_network_without_layers_is_the_clients():
    b = Builder((2, 6, 6))
    b.op("relu").op("softmax", axis=0)
    plan = plan_of(b.done())
    assert {s["kind"] for s in plan.stages} == {"client"}
    assert any("the client computes all of it by itself" in note for note in plan.document["notes"])


def stage(document, kind):
    return next(s for s in document["stages"] if s["kind"] == kind)


def tensor(document, stage, end):
    return document["tensors"][stage[end]]


CHANGES = {
    "ring": (lambda d: d["params"]["two_party"].update(ring_bits=12), "reach_bits"),
    "reach": (
        lambda d: tensor(d, stage(d, "linear"), "out").update(reach_bits=5),
        "need reach_bits 20, the plan says 5",
    ),
    "some bounds": (lambda d: tensor(d, stage(d, "linear"), "in").pop("bound"), "a plan gives all of them, or none"),
    "ranges": (lambda d: d["params"]["two_party"].update(ranges="guessed"), "expected `calibrated` or `proven`"),
    "client's reach": (
        lambda d: next(t for t in d["tensors"] if t["kind"] == "real").update(reach_bits=5),
        "reach_bits",
    ),
    "wide ring": (lambda d: d["params"]["two_party"].update(ring_bits=40), "do not fit"),
    "kind": (lambda d: stage(d, "relu").update(kind="gelu"), "stage .relu2.: unknown variant `gelu`"),
    "field": (lambda d: stage(d, "relu").update(extra=1), "stage .relu2.: unknown field `extra`"),
    "linear bound": (lambda d: tensor(d, stage(d, "linear"), "out").update(bound=5), "reach"),
    "sign": (
        lambda d: [s.update(sign="non-negative") for s in d["stages"] if s["kind"] == "truncate"],
        "nothing says that tensor",
    ),
    "norm": (lambda d: stage(d, "linear").update(weight_l2=1.0), "norm"),
    "odd norm": (lambda d: stage(d, "linear").update(weight_l2=1000.0), "power of two"),
    "norm of nothing": (lambda d: stage(d, "linear").update(weight_l2=2.0**60), "noise|ring"),
    "frac_bits": (lambda d: tensor(d, stage(d, "relu"), "out").update(frac_bits=99), "frac_bits"),
    "other frac_bits": (lambda d: tensor(d, stage(d, "relu"), "out").update(frac_bits=1), "frac_bits|fraction"),
    "bits": (lambda d: stage(d, "truncate").update(bits=0), "dropping"),
    "reveal": (lambda d: d["params"]["two_party"].update(reveal="argmax"), "reveal"),
    "window": (lambda d: stage(d, "max_pool").update(kernel=[5, 5]), "positions|window"),
    "insecure": (lambda d: d["params"].update(insecure=True), "128"),
    "trust": (lambda d: d.update(engine="batch"), "engine"),
    "missing weights": (lambda d: stage(d, "linear").pop("bias"), "only one"),
    "scale": (lambda d: tensor(d, stage(d, "share"), "in").update(scale=0.3), "scale"),
    "client on shares": (
        lambda d: d["stages"][0]["ops"].append({"op": "relu", "in": [0], "out": 1}),
        "before|shared|twice",
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_changed_plans_are_refused(change):
    plan = plan_of(small(), images(small(), 4))
    document = copy.deepcopy(plan.document)
    edit, words = CHANGES[change]
    edit(document)
    with pytest.raises(PlanError, match=words):
        validate(Plan(document, plan.weights))


def test_weights_that_reach_further_than_the_plan_says():
    plan = plan_of(small(), images(small(), 4))
    linear = plan.linear_stages()[0][1]
    heavy = np.full_like(plan.weights[linear["weights"]], 127)
    with pytest.raises(PlanError, match="reach"):
        validate(Plan(plan.document, {**plan.weights, linear["weights"]: heavy}))


def test_images_outside_of_the_calibrated_range_are_refused_by_the_client():
    from hushnet.errors import RangeError
    from hushnet.reference.two_party import run

    graph = small()
    plan = plan_of(graph, images(graph, 4))
    with pytest.raises(RangeError, match="outside the planned range"):
        run(plan, 50.0 * images(graph, 1))


def text_of(printable):
    from rich.console import Console

    console = Console(width=200, record=True, file=io.StringIO())
    console.print(printable)
    return console.export_text()


def test_explain_says_per_stage_what_it_costs_and_who_learns_what():
    graph = small()
    plan = plan_of(graph, images(graph, 4))
    facts = json.loads(_native.Plan.load(plan.to_bytes()).facts(plan.predicted["batch"]))["two_party"]
    ahead = [phase["bytes_up"] + phase["bytes_down"] for phase in facts["ahead"]]
    for seen in (plan, plan.public_part()):
        report = explain(seen)
        linear = [e for e in report["layers"] if e["kind"] == "linear"]
        assert sum(e["he_bytes"] for e in report["layers"]) == plan.predicted["he_bytes"]
        assert all(0 < e["unit_fraction"] < 0.1 and e["he_bytes"] and e["memory_bytes"] for e in linear)
        # a layer's messages carry transfers for the stages behind it, and no other protocol
        assert [e["ot_bytes"] for e in linear] == [ahead[e["stage"]] for e in linear]
        relu = next(e for e in report["layers"] if e["kind"] == "relu")
        assert relu["ot_bytes"] and relu["rounds"] and relu["seconds"] > 0 and not relu["he_bytes"]
        text = text_of(render(report))
        for word in ("two-party", "modulo 2^", "shapes only", "Rounds", linear[0]["name"]):
            assert word in text
    assert "index of the largest" in text_of(trust_text(plan_of(graph, images(graph, 4), reveal="argmax")))
    b = Builder((2, 6, 6))
    b.conv(3).op("relu").dense(4)
    scores = b.at
    b.op("softmax", axis=0)
    assert scores in text_of(trust_text(plan_of(b.done())))


@pytest.mark.parametrize(
    ("op", "attrs", "layers", "gain"),
    [
        ("hard_swish", {}, 9, 1e6),
        ("square", {}, 8, 40.0),
        ("relu", {}, 16, 1e4),
        ("abs", {}, 60, 1e8),
        ("affine", {"mul": 3.0, "add": 0.5}, 60, 1e8),
    ],
)
def test_ranges_beyond_all_numbers_are_a_sentence(op: str, attrs: dict, layers: int, gain: float) -> None:
    # without calibration, ranges of intervals grow from layer to layer
    b = Builder((1, 2, 2))
    for _ in range(layers):
        b.conv(1, gain=gain).op(op, **attrs)
    with pytest.raises(PlanError, match="no known range that numbers of a plan could hold; give calibration data"):
        compile(b.conv(1).done(), trust="two-party")

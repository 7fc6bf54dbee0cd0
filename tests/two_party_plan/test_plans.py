"""Two-party plans against the float network, their own bounds, and the run time that executes them."""

import json

import hushnet
import numpy as np
import pytest
from hushnet import _native
from hushnet.planner import compile, read
from hushnet.reference.two_party import inputs_of, off_fraction, run, unit_reach
from hushnet.report.two_party import explain
from hypothesis import HealthCheck, given, settings

from tests.frontend.harness import Net
from tests.planner.planner_graphs import Builder, float_run
from tests.two_party_plan.share_graphs import graphs, images

EXAMPLES = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))


def plan_of(graph, x=None, **options):
    # without the search for bits that reach a precision: many graphs are compiled
    return compile(graph, trust="two-party", calibration=x, **{"weight_bits": 8, **options})


def within(plan, graph, x, **how):
    """Checks the outputs of a run against the float network and returns them."""
    floats = float_run(graph, x)
    values = run(plan, {graph.inputs[0]: x}, **how)
    for name, want in floats.items():
        worst = plan.predicted["output_errors"][name]["worst_error"]
        assert np.abs(values[name] - want).max() <= worst * (1 + 1e-6) + 1e-9
    return values


@EXAMPLES
@given(graphs())
def test_runs_stay_within_the_worst_error_with_and_without_units(graph):
    x = images(graph, 6)
    for plan in (plan_of(graph, x), plan_of(graph)):
        within(plan, graph, x)
        within(plan, graph, x, units=np.random.default_rng(1))


@EXAMPLES
@given(graphs())
def test_proven_plans_hold_their_bounds_at_the_extremes(graph):
    """Without calibration every bound is proven: corners of the input interval, and units drawn, do not leave it."""
    plan = plan_of(graph, input_range=(-1.0, 1.0))
    rng = np.random.default_rng(2)
    x = rng.choice([-1.0, 1.0], (8, *graph.shapes[graph.inputs[0]]))
    x[0], x[1] = 1.0, -1.0
    values = run(plan, x, keep_all=True, units=np.random.default_rng(3))
    half = 1 << (plan.part["ring_bits"] - 1)
    for tensor in plan.tensors:
        if tensor["kind"] == "shared":
            assert np.abs(values[tensor["name"]]).max() <= tensor["bound"] < half


@EXAMPLES
@given(graphs())
def test_units_move_a_run_no_further_than_their_reach(graph):
    plan = plan_of(graph)
    x = images(graph, 4)
    exact, drawn = (run(plan, x, keep_all=True, units=u) for u in (None, np.random.default_rng(6)))
    for name, reach in unit_reach(plan).items():
        assert (np.abs(exact[name] - drawn[name]) <= reach + 1e-9).all(), name


@EXAMPLES
@given(graphs())
def test_the_run_time_reads_what_the_planner_writes(graph):
    plan = plan_of(graph, images(graph, 3))
    again = read(plan.to_bytes())
    assert again.document == plan.document and again.digest == plan.digest
    public = read(plan.public_part().to_bytes())
    assert public.is_public and not public.weights
    told = json.loads(_native.Plan.load(public.to_bytes()).facts())["two_party"]
    assert len(told["stages"]) == len(plan.stages)


def residual():
    b = Builder((3, 8, 8), seed=4)
    b.conv(6).op("relu")
    skip = b.at
    b.conv(6).op("relu").conv(6).op("add", others=(skip,)).op("relu")
    b.pool("max_pool", (2, 2), (2, 2)).conv(8).op("relu")
    b.op("reduce_mean", (8,), axes=[1, 2]).dense(5)
    return b.done()


def test_the_plan_says_who_costs_what():
    graph = residual()
    plan = plan_of(graph, images(graph, 8), nonlinear="ot")
    predicted = plan.predicted
    told = json.loads(_native.Plan.load(plan.to_bytes()).facts())["two_party"]
    for key in ("bytes_up", "bytes_down", "rounds"):
        assert predicted[key] == told["total"][key]
    assert predicted["setup_bytes"] == told["setup"]["bytes_up"] + told["setup"]["bytes_down"]
    assert predicted["bytes_up"] + predicted["bytes_down"] == predicted["he_bytes"] + predicted["ot_bytes"]
    linear = [s for _, s in plan.linear_stages()]
    bits = plan.part["ring_bits"]
    he = 0
    for stage in linear:
        figures = _native.packed_layer_cost(json.dumps(stage["geometry"]), plan.ring_degree, bits, stage["weight_l2"])
        he += figures["bytes_up"] + figures["bytes_down"]
        assert 0 < off_fraction(plan, stage) < 0.1
    assert predicted["he_bytes"] == he
    slow = plan_of(graph, images(graph, 8), network="wan", nonlinear="ot").predicted
    assert slow["seconds"] > predicted["seconds"] and slow["seconds_by_network"] == predicted["seconds_by_network"]


def test_a_ring_as_narrow_as_the_bounds_allow():
    graph = residual()
    x = images(graph, 8)
    plan = plan_of(graph, x, activation_bits=8)
    bits = plan.part["ring_bits"]
    with pytest.raises(Exception, match="do not fit a ring"):
        plan_of(graph, x, activation_bits=8, ring_bits=bits - 1)
    wide = plan_of(graph, x, activation_bits=8, ring_bits=bits + 1)
    assert wide.part["ring_bits"] == bits + 1


def test_more_bits_are_more_exact():
    graph = residual()
    x = images(graph, 16)
    want = float_run(graph, x)[graph.outputs[0]]
    errors = []
    for bits in ((6, 6), (8, 9), (10, 12)):
        plan = plan_of(graph, x, weight_bits=bits[0], activation_bits=bits[1])
        errors.append(np.abs(run(plan, x)[graph.outputs[0]] - want).max())
    assert errors[0] > 2 * errors[1] > 4 * errors[2]


def test_values_are_pooled_before_they_are_compared_and_cut_before_layers_only():
    graph = residual()
    # a ring with room for the sum of two layers: a bit less, and operands are truncated in front of it
    kinds = [s["kind"] for s in plan_of(graph, images(graph, 4), ring_bits=27).stages]
    assert kinds[kinds.index("max_pool") + 1] == "relu"
    # ReLUs and the pool drop bits themselves: one truncation in front of the layer that reads a mean, and the exact one
    assert kinds.count("truncate") == 2
    assert kinds.count("relu") == 4 and kinds.count("add") == 1


def comparisons(plan):
    """Kind, operand, bits dropped and reach of what is left (or None) of every ReLU, clip and pool."""
    found = [s for s in plan.stages if s["kind"] in ("relu", "clip", "max_pool")]
    return [(s["kind"], plan.tensors[s["in"]], s.get("bits", 0), s.get("reach_bits")) for s in found]


def test_comparisons_read_no_more_bits_than_layers_behind_them():
    b = Builder((3, 8, 8), seed=4)
    b.conv(4).op("relu").conv(4).pool("max_pool", (2, 2), (2, 2)).op("relu").conv(4).op("clip", min=0.0, max=0.75)
    graph = b.dense(5).done()
    plan = plan_of(graph, images(graph, 16), activation_bits=10)
    seen = comparisons(plan)
    assert [kind for kind, *_ in seen] == ["relu", "max_pool", "relu", "clip"]
    for kind, operand, bits, reach in seen:
        # a pool's result is what the ReLU behind it reads
        assert (bits == 0) == (operand["name"].startswith("max_pool")), kind
        if bits and kind != "clip":
            # proven, not calibrated: no value that calibration never showed changes its sign
            assert reach == _native.reach_bits((operand["bound"] >> bits) + 1)
        if bits:
            assert reach + bits <= operand["reach_bits"] + 1 <= plan.part["ring_bits"] - 1
    # the only truncation is the exact one in front of what is opened
    assert [s["exact"] for s in plan.stages if s["kind"] == "truncate"] == [True]
    told = [s for s in explain(plan)["layers"] if "compared_bits" in s]
    for stage, (kind, operand, bits, reach) in zip(told, seen, strict=True):
        compared = (reach if bits else operand["reach_bits"]) + (kind == "max_pool")
        assert stage["compared_bits"] == compared
        said = f"compares {compared} of {compared + bits} bits" if bits else f"compares {compared} bits"
        assert stage["what"].endswith(said)


@pytest.mark.parametrize("how", ["mean", "end", "opened"])
def test_a_comparison_keeps_its_bits_where_somebody_needs_them(how):
    b = Builder((3, 8, 8), seed=4).conv(4)
    if how == "end":
        # between two units of what the layer behind it reads
        b.op("clip", min=0.0, max=0.7071)
    else:
        b.op("relu")
    relu = b.at
    if how == "mean":
        b.pool("average_pool", (3, 3), (2, 2))
    b.dense(5)
    graph = b.done(b.at, relu) if how == "opened" else b.done()
    plan = plan_of(graph, images(graph, 16), activation_bits=10)
    ((_, _, bits, _),) = comparisons(plan)
    assert bits == 0


def test_values_that_fill_the_ring_drop_bits_as_others_do():
    """A truncation of values of any sign would need a comparison of its own there."""
    graph = Builder((16, 8, 8), seed=4).conv(2).op("relu").conv(1, (1, 1), (1, 1), (0, 0, 0, 0)).done()
    x = images(graph, 16)
    full = plan_of(graph, x, activation_bits=8)
    roomy = plan_of(graph, x, activation_bits=8, ring_bits=full.part["ring_bits"] + 1)
    ((_, operand, bits, reach),) = comparisons(full)
    assert operand["reach_bits"] == full.part["ring_bits"] - 1 and bits > 0
    assert reach + 1 <= full.part["ring_bits"] - bits
    assert comparisons(roomy)[0][2:] == (bits, reach)


def test_averages_of_a_power_of_two_are_free():
    b = Builder((2, 8, 8), seed=1)
    b.conv(3).op("relu").pool("average_pool", (2, 2), (2, 2)).dense(4)
    graph = b.done()
    plan = plan_of(graph, images(graph, 4))
    assert "scale" not in [s["kind"] for s in plan.stages]
    pool = next(s for s in plan.stages if s["kind"] == "sum_pool")
    source, out = (plan.tensors[pool[k]] for k in ("in", "out"))
    assert out["frac_bits"] == source["frac_bits"] + 2 and out["bound"] == 4 * source["bound"]


@pytest.mark.parametrize(("pads", "ceil"), [((1, 1, 1, 1), False), ((0, 0, 0, 0), True), ((1, 0, 0, 1), True)])
def test_windows_of_different_counts_are_exact(pads, ceil):
    b = Builder((2, 8, 7), seed=1)
    b.conv(2).pool("average_pool", (3, 3), (2, 2), pads, ceil).dense(3)
    graph = b.done()
    x = images(graph, 8)
    plan = plan_of(graph, x, weight_bits=10)
    want = float_run(graph, x)[graph.outputs[0]]
    assert np.abs(run(plan, x)[graph.outputs[0]] - want).max() < 0.02 * np.abs(want).max()


def test_argmax_opens_an_index_and_nothing_else():
    graph = residual()
    b_out = graph.outputs[0]
    x = images(graph, 32)
    plan = plan_of(graph, x, reveal="argmax", weight_bits=12)
    assert [s["what"] for s in plan.stages if s["kind"] == "reveal"] == ["argmax"]
    assert plan.tensors[plan.document["outputs"][0]["tensor"]]["shape"] == [1]
    got = run(plan, x)[b_out][:, 0]
    scores = float_run(graph, x)[b_out]
    best = np.sort(scores, axis=1)
    clear = best[:, -1] - best[:, -2] > 2 * plan.predicted["max_error"]
    assert (got == scores.argmax(axis=1))[clear].all() and clear.any()


def test_softmax_is_the_clients_and_argmax_drops_it():
    b = Builder((2, 6, 6), seed=3)
    b.conv(3).op("relu").dense(4)
    scores = b.at
    b.op("softmax", axis=0)
    graph = b.done()
    x = images(graph, 6)
    plan = plan_of(graph, x)
    assert [op["op"] for op in plan.stages[-1]["ops"]] == ["dequantize", "softmax"]
    assert any(scores in note for note in plan.document["notes"])
    within(plan, graph, x)
    label = plan_of(graph, x, reveal="argmax")
    assert all(op["op"] != "softmax" for s in label.stages if s["kind"] == "client" for op in s["ops"])
    assert [o["name"] for o in label.document["outputs"]] == graph.outputs


def test_what_is_opened_was_truncated_exactly():
    graph = residual()
    plan = plan_of(graph, images(graph, 4))
    reveal = next(s for s in plan.stages if s["kind"] == "reveal")
    before = next(s for s in plan.stages if s.get("out") == reveal["in"])
    assert before["kind"] == "truncate" and before["exact"] and before["bits"] >= 6


def test_several_inputs_and_outputs():
    b = Builder((2, 6, 6), seed=8)
    b.graph.inputs.append("y")
    b.graph.shapes["y"] = (2, 6, 6)
    b.op("sub", others=("y",)).conv(3).op("relu")
    middle = b.at
    b.conv(3).op("relu")
    graph = b.done(b.at, middle)
    rng = np.random.default_rng(0)
    x = {"x": rng.random((4, 2, 6, 6)), "y": rng.random((4, 2, 6, 6))}
    plan = plan_of(graph, x)
    assert plan.stages[0]["ops"][0]["op"] == "sub", "what depends on inputs only is the client's, in the clear"
    values = run(plan, x)
    first = graph.nodes[1]
    conv_in = x["x"] - x["y"]
    alone = Builder((2, 6, 6)).graph
    alone.nodes, alone.shapes, alone.outputs = graph.nodes[1:], graph.shapes, graph.outputs
    alone.nodes[0].input = "x"
    want = float_run(alone, conv_in)
    first.input = graph.nodes[0].output
    for name in graph.outputs:
        assert np.abs(values[name] - want[name]).max() <= plan.predicted["output_errors"][name]["worst_error"]


def test_shapes_of_stages_agree_with_the_reference():
    graph = residual()
    plan = plan_of(graph, images(graph, 2))
    values = run(plan, images(graph, 2), keep_all=True)
    for stage in plan.stages:
        for tensor in [] if stage["kind"] == "client" else [*inputs_of(stage), stage["out"]]:
            assert list(values[plan.tensors[tensor]["name"]].shape[1:]) == plan.tensors[tensor]["shape"]


@pytest.mark.parametrize(
    ("layers", "size", "relus", "extension"),
    [(1, 8, 1, "softspoken"), (2, 96, 2, "silent-small"), (6, 64, 1, "silent-tiny")],
)
def test_sessions_take_the_tiny_table_where_transfers_are_a_small_part_of_their_bytes(
    layers: int, size: int, relus: int, extension: str
):
    rng, net = np.random.default_rng(0), Net((4, size, size))
    for i in range(layers):
        net.op("Conv", net.last if i else "x0", net.weight(8, 8 if i else 4, 3, 3), pads=[1, 1, 1, 1])
        if i >= layers - relus:
            net.op("Relu", net.last)
    net.op("Conv", net.last, net.weight(1, 8, 1, 1))
    x = rng.normal(size=(2, 4, size, size)).astype(np.float32)
    model = hushnet.compile(net.model(), trust="two-party", calibration={"x0": x}, weight_bits=7, nonlinear="ot")
    told = json.loads(_native.Plan.load(model.plan.to_bytes()).facts(1))["two_party"]
    assert told["extension"] == extension

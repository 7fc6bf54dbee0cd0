"""Methods of linear layers for single images: forced by name, or the cheapest of each."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from hushnet import PlanError, _native
from hushnet.graph import Dense, Linear
from hushnet.machine import two_party as machine
from hushnet.planner import compile
from hushnet.planner.two_party import cost as cost_planned
from hushnet.planner.two_party import methods as methods_planned
from hushnet.planner.two_party.methods import PRIME, RING, ROWS, Asked, frugal
from hushnet.planner.two_party.paths import Way
from hushnet.reference import methods
from hushnet.reference.two_party import off_fraction, run, unit_reach
from hushnet.report.two_party import explain

from tests.planner.planner_graphs import Builder
from tests.two_party_plan.share_graphs import images


def test_the_planner_has_a_row_for_every_method_of_the_run_time_and_no_other():
    assert set(ROWS) == set(methods.METHODS) == {name for name, _ in _native.linear_methods()}
    geometry = {"type": "dense", "inputs": 24, "outputs": 10}
    for name, row in ROWS.items():
        assert (row.modulo == PRIME) == (name in methods.SLOTS)
        figures = row.figures(Asked(geometry, 2048))
        assert all(figures[key] > 0 for key in ("bytes_up", "bytes_down", "tiles")), name
        told = methods.ciphertexts(name, 2048, 24, 256.0)
        assert (told.unit_fraction == 0) == (name in methods.SLOTS)
    with pytest.raises(ValueError, match='no method "novel": choose one of cheetah'):
        methods.ciphertexts("novel", 2048, 24, 256.0)


def network(inputs=3, first=6, second=8):
    b = Builder((inputs, 8, 8), seed=9)
    b.conv(first).op("relu").conv(second).op("relu")
    b.op("reduce_mean", (second,), axes=[1, 2]).dense(5)
    return b.done()


@pytest.mark.parametrize("method", ["rotation-free", "convfhe"])
def test_a_forced_method_runs_as_planned_with_predicted_bytes(method):
    graph = network()
    x = images(graph, 2)
    plan = compile(graph, trust="two-party", calibration=x, method=method)
    assert {s["method"] for s in plan.stages if s["kind"] == "linear"} == {method}
    outputs, _trace, _ = _native.run(plan.handle(), {"x": x[:1]}, threads=1)
    error = np.abs(outputs[graph.outputs[0]] - run(plan, x[:1])[graph.outputs[0]]).max()
    assert error <= plan.predicted["max_error"]
    cheetah = compile(graph, trust="two-party", calibration=x, method="cheetah")
    assert plan.predicted["setup_bytes"] > cheetah.predicted["setup_bytes"]


def strided():
    """Strides, uneven pads, groups, a depthwise convolution, a convolution right after another, a dense layer."""
    b = Builder((4, 9, 11), seed=10)
    b.conv(8, stride=(2, 1), pads=(1, 0, 1, 2), groups=2).op("relu").conv(8, groups=8).conv(6, kernel=(1, 1)).op("relu")
    return b.dense(5).done()


def perceptron():
    """Dense layers alone, of sizes that are no powers of two: what methods for dense layers only run."""
    b = Builder((21,), seed=11)
    return b.dense(37).op("relu").dense(11).op("relu").dense(5).done()


@pytest.mark.parametrize("method", methods.SLOTS)
def test_slot_packed_layers_run_as_planned_without_units(method):
    computed = []
    for make in (network, strided, perceptron):
        graph = make()
        x = images(graph, 3)
        try:
            plan = compile(graph, trust="two-party", calibration=x, method=method)
        except PlanError as error:
            # some methods are for one kind of layers
            assert f"method '{method}' computes dense layers only" in str(error)
            assert any(isinstance(n, Linear) and not isinstance(n.geometry, Dense) for n in graph.nodes)
            continue
        computed.append(make)
        as_planned_without_units(plan, x[:2], method)
    assert perceptron in computed


def as_planned_without_units(plan, x, method):
    stages = [s for s in plan.stages if s["kind"] == "linear"]
    assert {s["method"] for s in stages} == {method}
    assert {s["weight_l2"] for s in stages} == {1.0}
    outputs, trace, _ = _native.run(plan.handle(), {"x": x}, threads=1)
    (name,) = outputs
    revealed = plan.tensors[next(s for s in plan.stages if s["kind"] == "reveal")["out"]]
    reach = unit_reach(plan)[revealed["name"]].reshape(-1) * revealed.get("scale", 1.0)
    assert (np.abs(outputs[name] - run(plan, x)[name]).reshape(2, -1) <= reach).all()
    assert all(off_fraction(plan, s) == 0.0 for s in stages)
    told = json.loads(trace)
    for stage in told["stages"]:
        assert (stage["bytes_up"], stage["bytes_down"], stage["turns"]) == tuple(
            stage["predicted"][k] for k in ("bytes_up", "bytes_down", "client_turns")
        )


def test_a_row_that_no_plan_may_take_by_itself_stays_available_by_name(monkeypatch):
    graph = perceptron()
    options = {"trust": "two-party", "calibration": images(graph, 3)}
    usual = compile(graph, method="gala", **options)
    of_eight = lambda: cost_planned.account(usual.document, cost_planned.packaged(), 8).stages  # noqa: E731
    before = of_eight()
    monkeypatch.setattr(methods_planned, "ROWS", {**ROWS, "gala": replace(ROWS["gala"], single=False, many=False)})
    monkeypatch.setattr(cost_planned, "ROWS", methods_planned.ROWS)
    forced = compile(graph, method="gala", **options)
    assert {s["method"] for s in forced.stages if s["kind"] == "linear"} == {"gala"}
    # eight images take eight times one image's work, not one block's
    assert forced.predicted == usual.predicted and of_eight() == before
    # the planner prices it for no layer
    chooser = methods_planned.Chooser(1, [], {}, cost_planned.packaged(), "lan", 1 << 30)
    layer = next(n for n in graph.nodes if isinstance(n, Linear))
    assert "gala" not in {w.name for w in chooser.ways(layer, 2048, {})}


def test_the_planner_takes_diagonal_where_it_is_cheapest_and_for_dense_layers_only(monkeypatch):
    figures = ROWS["diagonal"].figures
    slow = {name: replace(row, seconds=lambda _figures, _unit: 1.0) for name, row in ROWS.items()}
    cheap = replace(
        ROWS["diagonal"],
        figures=lambda a: figures(a) | {"bytes_up": 1, "bytes_down": 1, "key_bytes": 0},
        seconds=lambda _figures, _unit: 0.0,
    )
    for rows, expected in ((slow | {"diagonal": cheap}, True), (slow, False)):
        monkeypatch.setattr(methods_planned, "ROWS", rows)
        for make in (network, perceptron):
            graph = make()
            plan = compile(graph, trust="two-party", calibration=images(graph, 2))
            taken = {s["geometry"]["type"] for s in plan.stages if s["kind"] == "linear" and s["method"] == "diagonal"}
            assert taken == ({"dense"} if expected else set())


def test_explain_adds_up_what_floods_leave_over_the_answers_of_an_image():
    graph = network()
    x = images(graph, 2)
    assert (
        explain(compile(graph, trust="two-party", calibration=x, method="cheetah"))["parameters"]["statistical"] is None
    )
    plan = compile(graph, trust="two-party", calibration=x, method="gala")
    layers = [e for e in explain(plan)["layers"] if e["kind"] == "linear"]
    told = explain(plan)["parameters"]["statistical"]
    assert told["answers_per_image"] == sum(e["ciphers_down"] for e in layers) >= len(layers)
    worst = max(e["noise_bits"] - e["noise_limit_bits"] for e in layers)
    # between one answer at the loudest and as many as there are, none of which is above its limit
    assert worst <= 0.0
    assert 40 - worst - math.log2(told["answers_per_image"]) <= told["bits_per_image"] <= 40 - worst


def test_explain_says_the_runner_up_and_its_gap():
    graph = network()
    plan = compile(graph, trust="two-party", calibration=images(graph, 2))
    layers = [entry for entry in explain(plan)["layers"] if entry["kind"] == "linear"]
    assert all(
        e["runner_up"] in methods.METHODS and e["runner_up"] != e["method"] and e["gap_seconds"] >= 0 for e in layers
    )
    forced = compile(graph, trust="two-party", calibration=images(graph, 2), method="gala")
    assert {e["choice"] for e in explain(forced)["layers"] if e["kind"] == "linear"} == {"forced"}


def test_results_too_wide_for_a_prime_are_refused():
    graph = network()
    with pytest.raises(PlanError, match="gala|ring"):
        compile(graph, trust="two-party", calibration=images(graph, 2), method="gala", ring_bits=34)


def test_the_chosen_methods_cost_no_more_than_any_single_one():
    graph = network()
    x = images(graph, 2)
    options = {"trust": "two-party", "calibration": x, "network": "wan", "queries": 1000}
    seconds = {
        m: compile(graph, method=m, **options).predicted["seconds"]
        for m in (None, "cheetah", "rotation-free", "convfhe")
    }
    # methods differ a little in noise, and thereby in what the other stages of the plan cost
    assert seconds[None] <= 1.05 * min(seconds.values())


def test_the_clients_set_ups_count_in_its_memory():
    graph = network()
    x = images(graph, 2)
    options = {"trust": "two-party", "calibration": x, "method": "rotation-free", "weight_bits": 8}
    client = {
        m: compile(graph, **options | {"method": m}).predicted["client_peak_memory_bytes"]
        for m in ("convfhe", "rotation-free")
    }
    plan = compile(graph, **options)
    stages = [s for s in plan.stages if s["kind"] == "linear"]
    costs = [
        _native.coefficient_layer_cost(
            "rotation-free", json.dumps(s["geometry"]), plan.part["ring_bits"], s["weight_l2"]
        )
        for s in stages
    ]
    # what travels is packed to the bits of the primes; what is kept has whole words
    assert (
        sum(c["bytes_setup"] for c in costs)
        < sum(c["prepared_bytes"] for c in costs)
        < 2 * sum(c["bytes_setup"] for c in costs)
    )
    assert (
        abs(client["rotation-free"] - client["convfhe"] - sum(c["prepared_bytes"] for c in costs))
        < 0.1 * client["convfhe"]
    )
    most = (
        sum(plan.predicted[f"{party}_peak_memory_bytes"] for party in ("client", "server"))
        - plan.predicted["server_prepared_weight_bytes"]
    )
    compile(graph, **options, max_memory=most)
    with pytest.raises(PlanError, match="max_memory"):
        compile(graph, **options, max_memory=most - 1)


@pytest.mark.parametrize(
    ("shape", "outputs", "kernel", "merged"),
    [((3, 64, 64), 64, 7, False), ((64, 7, 9), 80, 1, True), ((256, 14, 14), 256, 3, True)],
)
def test_what_convfhe_answers_with_costs_merged_or_not(shape, outputs, kernel, merged):
    """Outputs of large images are not merged: each is opened and sent, which once was free."""
    model, _ = machine.plan(shape, outputs, kernel, "convfhe")
    (stage,) = (s for _, s in model.plan.linear_stages())
    layer = _native.coefficient_layer_cost(
        "convfhe", json.dumps(stage["geometry"]), model.plan.part["ring_bits"], stage["weight_l2"]
    )
    assert (layer["answers"] < layer["output_polys"]) == merged == (layer["rotations"] > 0)
    assert layer["answers"] * layer["ring_degree"] >= outputs * shape[1] * shape[2]
    found = machine.counted("convfhe", layer)
    assert found["convfhe_output"] == layer["answers"] and found["convfhe_rotation"] == layer["rotations"]


def test_the_planner_has_the_memory_that_a_forced_method_has():
    # of so many channels that rotation-free layers send least
    graph = network(64, 64, 64)
    options = {"trust": "two-party", "calibration": images(graph, 2), "queries": 10**6}

    def needed(p):
        told = p.predicted
        prepared = told["server_prepared_weight_bytes"]
        return told["client_peak_memory_bytes"] + told["server_peak_memory_bytes"] - prepared

    free = lambda p: sum(s.get("method") == "rotation-free" for s in p.stages)  # noqa: E731
    sent = lambda p: p.predicted["bytes_up"] + p.predicted["bytes_down"]  # noqa: E731
    forced = compile(graph, method="rotation-free", **options)
    most = needed(forced)
    at_limit = compile(graph, max_memory=most, **options)
    assert free(at_limit) >= 1 and sent(at_limit) <= sent(forced) and needed(at_limit) <= most
    # below what the free plan needs layers go another way, as long as any plan fits
    within = compile(graph, **options)
    alone = compile(graph, method="cheetah", **options)
    assert free(within) >= 1 and needed(alone) < needed(within)
    for most in (needed(within) - 1, needed(alone)):
        plan = compile(graph, max_memory=most, **options)
        assert free(plan) < free(within) and needed(plan) <= most


def test_keys_and_prepared_weights_of_slots_count_in_memory():
    graph = network()
    x = images(graph, 2)
    slots, packed = (compile(graph, trust="two-party", calibration=x, method=m).predicted for m in ("gala", "cheetah"))
    layers = [
        s for s in compile(graph, trust="two-party", calibration=x, method="gala").stages if s["kind"] == "linear"
    ]
    weights = [methods.slot_cost("gala", s["geometry"], 20)["weight_bytes"] for s in layers]
    assert slots["server_prepared_weight_bytes"] >= 0.5 * sum(weights) > 0
    for party in ("client", "server"):
        more = slots[f"{party}_peak_memory_bytes"] - packed[f"{party}_peak_memory_bytes"]
        assert more > 4 * (slots["setup_bytes"] - packed["setup_bytes"])


def test_unknown_methods_are_refused():
    with pytest.raises(PlanError, match="method is 'lattice'"):
        compile(network(), trust="two-party", method="lattice")
    with pytest.raises(PlanError, match="queries is 0"):
        compile(network(), trust="two-party", queries=0)


def test_what_sends_more_for_a_time_that_units_cannot_tell_apart_comes_second():
    ways = [
        Way("cheetah", RING, RING, 1.10, 5.0),
        Way("convfhe", RING, RING, 1.0, 8.0),
        Way("rotation-free", RING, RING, 2.0, 1.0),
    ]
    found = {w.name: w.seconds for w in frugal(ways)}
    assert found["cheetah"] == 1.10 < found["convfhe"] < found["rotation-free"] == 2.0
    # Truly faster, or sending less: as they are.
    slower = [Way("cheetah", RING, RING, 1.2, 5.0), ways[1]]
    assert frugal(slower) == slower
    assert frugal([replace(ways[0], bytes=8.0), replace(ways[1], bytes=5.0), ways[2]])[1].seconds == 1.0

"""What calibration data is good for.

Ranges that fit, biases without drift, an error estimate that holds on other images.
"""

from __future__ import annotations

import json

import numpy as np
import onnxruntime
import pytest
from hushnet import PlanError, data, zoo
from hushnet import compile as compile_model
from hushnet.planner import compile
from hushnet.planner.cost import UnitCosts, user_file
from hushnet.planner.quantise import bias_correction, quantise_weights
from hushnet.reference.float import evaluate
from hushnet.reference.numpy import run
from planner_graphs import Builder


def held_out(model, size: int, images: int, **options):
    """Largest and mean square error on other images than the calibration's, agreement, and the plan."""
    shape = (3, size, size)
    compiled = compile_model(model, calibration=data.synthetic(shape, 32, seed=1), **options)
    x = data.synthetic(shape, images, seed=2).astype(np.float32)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    want = session.run(None, {session.get_inputs()[0].name: x})[0]
    (got,) = run(compiled.plan, {compiled.plan.document["inputs"][0]["name"]: x.astype(np.float64)}).values()
    return got - want, (got.argmax(1) == want.argmax(1)).mean(), compiled.plan


@pytest.mark.parametrize("weight_bits", [6, 8])
def test_the_expected_error_of_a_deep_network_holds_on_other_images_and_is_not_far_off(weight_bits):
    error, agreement, plan = held_out(
        zoo.build("mobilenetv2", size=32, width=0.35), 32, 192, margin=2.0, weight_bits=weight_bits
    )
    predicted = plan.predicted
    assert np.abs(error).max() <= predicted["max_error"] <= 4 * np.abs(error).max()
    assert predicted["max_error"] <= predicted["worst_error"]
    # which the propagated deviations are
    assert predicted["propagated_error"] > 4 * np.abs(error).max()
    if weight_bits == 8:
        assert agreement > 0.8


def test_biases_take_away_what_rounded_weights_do_to_the_mean():
    graph = Builder((4, 6, 6), seed=3).conv(8).op("relu").conv(6).dense(5).done()
    x = np.random.default_rng(1).uniform(0, 1, (64, 4, 6, 6))
    inner = evaluate(graph, {graph.inputs[0]: x}, keep_all=True)
    for node in (n for n in graph.nodes if hasattr(n, "weight")):
        weights = quantise_weights(node, 4)
        correction = bias_correction(node, weights, inner[node.input].mean(axis=0))
        assert correction.shape == np.shape(node.bias)
    name = graph.outputs[0]
    want = inner[name]
    plan = compile(graph, calibration=x, weight_bits=4, activation_bits=12, row_scales=False)
    drift = np.abs((run(plan, x)[name] - want).mean(axis=0)).max()
    without = compile(graph, input_range=(0, 1), weight_bits=4, activation_bits=12, row_scales=False)
    assert drift < 0.3 * np.abs((run(without, x)[name] - want).mean(axis=0)).max()


def test_a_margin_does_not_widen_what_saturates():
    graph = Builder((2, 4, 4), seed=5).conv(4).op("clip", min=0.0, max=0.5).conv(3).done()
    x = np.random.default_rng(2).uniform(-3, 3, (50, 2, 4, 4))
    plan = compile(graph, calibration=x, margin=3.0)
    clipped = [t for t in plan.tensors if t["kind"] == "fixed" and t["bound"] * t["scale"] == pytest.approx(0.5)]
    assert clipped, [t["bound"] * t["scale"] for t in plan.tensors if t["kind"] == "fixed"]
    run(plan, x * 0.999)


def test_unit_costs_come_from_the_environment_the_user_or_the_package(tmp_path, monkeypatch):
    monkeypatch.delenv("HUSHNET_UNIT_COSTS", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    package = UnitCosts.load()
    assert package.machine.startswith("AMD")
    values = {**package.__dict__, "machine": "mine", "row_of_another_method": 1.0}
    user_file().parent.mkdir(parents=True)
    user_file().write_text(json.dumps(values))
    assert UnitCosts.load().machine == "mine"
    named = tmp_path / "named.json"
    named.write_text(json.dumps({**values, "machine": "named"}))
    monkeypatch.setenv("HUSHNET_UNIT_COSTS", str(named))
    assert UnitCosts.load().machine == "named"
    assert UnitCosts.load(user_file()).machine == "mine"
    for bad in (-1.0, "fast", float("nan"), None):
        named.write_text(json.dumps({**values, "byte": bad}))
        with pytest.raises(PlanError, match="measure-machine"):
            UnitCosts.load()


def test_measuring_the_machine_writes_to_the_file_that_is_named(tmp_path, monkeypatch):
    """What is measured: ``tests/two_party_plan/test_unit_costs.py``, once for all trust models."""
    import hushnet
    from hushnet import machine

    monkeypatch.setattr(machine, "rows", lambda: [machine.Row("word_product", "one product", lambda seconds: seconds)])
    monkeypatch.setattr(machine.two_party, "measure", lambda seconds, progress: {"message": 2 * seconds})
    found, path = hushnet.measure_machine(tmp_path / "here" / "costs.json", seconds=0.25)
    assert path == tmp_path / "here" / "costs.json" and json.loads(path.read_text()) == found
    assert found["word_product"] == 0.25 and found["message"] == 0.5 and found["machine"]

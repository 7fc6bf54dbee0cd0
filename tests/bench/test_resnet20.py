"""`bench resnet20`: what it says of networks in the clear, and ranges that held-out digits keep to."""

from __future__ import annotations

import hushnet
import numpy as np
import onnx
import onnxruntime
import pytest
from hushnet import zoo
from hushnet.planner.non_interactive.activation import WIDE
from hushnet_bench import resnet20


@pytest.fixture(scope="module")
def compiled() -> tuple[onnx.ModelProto, hushnet.Model, np.ndarray]:
    model = resnet20.small()
    calibration, images, labels = resnet20._data(resnet20.QUICK, model)
    assert labels is None and not np.array_equal(calibration, images)
    plan = hushnet.compile(
        model, trust="non-interactive", batch=1, calibration=calibration, activation="minimax:bits=4", precision=1.0
    )
    return model, plan, images


def test_accuracy_in_the_clear_is_that_of_the_plan(compiled: tuple[onnx.ModelProto, hushnet.Model, np.ndarray]) -> None:
    model, plan, images = compiled
    labels = resnet20._reference(model, images).argmax(axis=1)
    labels[:16] = (labels[:16] + 1) % 3
    said = resnet20._in_the_clear(model, plan, images, labels)
    assert said["held_out"] == 64 and said["accuracy_of_float"] == 0.75
    assert said["error_in_the_clear"] > 0 and said["agreement_in_the_clear"] >= 0.8
    assert 0 < said["largest_share_of_range"] <= 1 and said["out_of_range"] == []
    # an answer that is another one's is seen
    turned = resnet20._in_the_clear(model, plan, images, (labels + 1) % 3)
    assert turned["accuracy"] < said["accuracy"]


def test_values_beyond_their_range_are_named(compiled: tuple[onnx.ModelProto, hushnet.Model, np.ndarray]) -> None:
    model, plan, images = compiled
    # a plan whose polynomials are for less
    steps = next(s for s in plan.plan.stages if s["kind"] == "packed")["network"]["steps"]
    for step in steps:
        if step["kind"] == "polynomial":
            step["range"] /= 4
    said = resnet20._in_the_clear(model, plan, images, np.zeros(len(images), np.int64))
    assert said["out_of_range"] and said["largest_share_of_range"] > 1


def test_cases_are_named() -> None:
    with pytest.raises(hushnet.InputError, match="no case x: choose one of resnet20, trained"):
        resnet20.rows(quick=False, threads=1, progress=None, cases=["x"])


def test_held_out_digits_keep_to_the_ranges_of_the_calibration_digits() -> None:
    case = resnet20.CASES["trained"]
    model = resnet20._model(case)
    calibration, images, labels = resnet20._data(case, model)
    assert len(calibration) == resnet20.DIGITS and labels is not None and len(labels) == len(images) == 360
    whole = onnx.shape_inference.infer_shapes(model)
    before = [n.input[0] for n in whole.graph.node if n.op_type == "Relu"]
    assert len(before) == 19
    whole.graph.output.extend(v for v in whole.graph.value_info if v.name in before)
    session = onnxruntime.InferenceSession(whole.SerializeToString(), providers=["CPUExecutionProvider"])

    def largest(x: np.ndarray) -> np.ndarray:
        parts = [session.run(None, {"image": x[i : i + 40]})[1:] for i in range(0, len(x), 40)]
        return np.array([[np.abs(v).max() for v in part] for part in parts]).max(axis=0)

    assert (largest(images) <= WIDE * largest(calibration)).all()


def test_the_seeded_mobilenet_does_not_magnify_roundings() -> None:
    """A change of pixels by 2^-10 moves logits by less than a hundred times as much; without :data:`CALM` 900 times."""
    net = zoo.Net()
    model = net.finish("mobilenet", resnet20.mobilenet(net))
    assert sum(n.op_type == "Relu" for n in model.graph.node) == 27
    _, images, _ = resnet20._data(resnet20.CASES["mobilenet"], model)
    noise = np.random.default_rng(0).normal(size=images.shape).astype(np.float32) * 2.0**-10
    moved = resnet20._reference(model, images + noise) - resnet20._reference(model, images)
    assert float(np.sqrt((moved**2).mean())) < 100 * 2.0**-10


def test_a_network_that_is_refused_is_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(resnet20.CASES, "fine", resnet20.Case("", bits=4, precision=40.0, planned=True))
    (row,) = resnet20.rows(quick=False, threads=1, progress=None, cases=["fine"])
    assert "precise" in row["refused"] and len(row["refused"]) <= resnet20.REASON

"""Residual streams: long chains of sums keep their precision in a usual ring; values beyond all rings are refused."""

from __future__ import annotations

import hushnet
import numpy as np
import onnx
import pytest
from hushnet.plan import PlanError
from hushnet.planner.two_party import sums

from tests.architectures import ARCHITECTURES
from tests.frontend.harness import Net, expected

WIDTH, ROWS = 8, 128


def stream(blocks: int) -> onnx.ModelProto:
    """``x + W norm(x)``, so many times: only normalisations read the stream."""
    net = Net((4, WIDTH), seed=3)
    x = "x0"
    for _ in range(blocks):
        gains = net.constant(np.ones(WIDTH)), net.constant(np.zeros(WIDTH))
        y = net.op("MatMul", net.op("LayerNormalization", x, *gains, axis=-1), net.weight(WIDTH, WIDTH))
        x = net.op("Add", x, y)
    net.op("MatMul", x, net.weight(WIDTH, 3))
    return net.model()


def data(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((ROWS, 4, WIDTH)).astype(np.float32)


def test_a_long_residual_stream_is_as_precise_as_a_short_one(monkeypatch: pytest.MonkeyPatch) -> None:
    model = stream(9)
    plan = hushnet.compile(model, trust="two-party", calibration=data(1), weight_bits=12)
    predicted = plan.plan.predicted
    assert plan.plan.part["ring_bits"] <= 28 and predicted["precision"]["reached"] > 6
    got = hushnet.run(plan, data(2)[:2], threads=1).output
    assert np.abs(got - expected(model, {"x0": data(2)[:2]})[0]).max() <= predicted["max_error"]
    # without rests a term leaves room for all that are added behind it
    monkeypatch.setattr(sums, "MOST_SUMS", 99)
    try:
        coarse = hushnet.compile(model, trust="two-party", calibration=data(1), weight_bits=12).plan.predicted
    except PlanError as refused:
        assert "do not fit a ring" in str(refused)
    else:
        assert coarse["precision"]["reached"] < predicted["precision"]["reached"] - 1


def test_short_chains_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def document() -> object:
        return hushnet.compile(stream(3), trust="two-party", calibration=data(1), weight_bits=12).plan.document

    now = document()
    monkeypatch.setattr(sums, "MOST_SUMS", 99)
    assert document() == now


def test_calibrated_sums_have_a_bit_more_where_results_are_added(monkeypatch: pytest.MonkeyPatch) -> None:
    """A layer in front of a residual sum: its result is truncated before it, and needs no room for the other term."""
    net = Net((4, WIDTH), seed=5)
    inner = net.op("Gelu", net.op("MatMul", "x0", net.weight(WIDTH, 200)))
    layer = net.op("MatMul", inner, net.weight(200, WIDTH))
    stream = net.op("MatMul", "x0", net.weight(WIDTH, WIDTH))
    net.op("MatMul", net.op("Gelu", net.op("Add", stream, layer)), net.weight(WIDTH, 3))
    model = net.model()

    def bound() -> int:
        options = {"weight_bits": 14, "most_bits": 15, "sums": "calibrated"}
        plan = hushnet.compile(model, trust="two-party", calibration=data(1), **options).plan
        wide = [s for _, s in plan.linear_stages() if plan.weights[s["weights"]].shape[:2] == (WIDTH, 200)]
        return plan.tensors[wide[0]["out"]]["bound"]

    now = bound()
    monkeypatch.setattr("hushnet.planner.two_party.fixed.behind_layers", lambda steps, limits: frozenset())
    assert now > 1.5 * bound()


@pytest.mark.parametrize(("calibrated", "said"), [(False, "give calibration data"), (True, "scale the weights")])
def test_logits_beyond_all_rings_are_refused_in_a_sentence(calibrated: bool, said: str) -> None:
    model = ARCHITECTURES["vit"].small()
    (joint,) = [t for t in model.graph.initializer if t.name == "onnx::MatMul_1"]
    joint.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(joint) * np.float32(1e4), joint.name))
    x = {"input": np.random.default_rng(0).random((4, 3, 32, 32))} if calibrated else None
    with pytest.raises(PlanError, match=f"Softmax.exp.*{said}"):
        hushnet.compile(model, trust="two-party", calibration=x, weight_bits=8)

"""Logarithms of values that fall to almost nothing: held where bits reach, and said plainly where they do not."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.utils
import onnxruntime
import pytest
from hushnet import PlanError, compile, run
from hushnet.graph import Op
from hushnet.planner.two_party.curves import Curve
from hushnet.planner.two_party.functions import Asked, fit

from tests.frontend.harness import Net


def spectra(floor: float, *, cut: bool) -> Net:
    """Sums of powers, never below a floor that cuts them off or is added, their logarithms, and a layer of these."""
    net = Net((12,), seed=4)
    parts = [net.op("MatMul", "x0", net.weight(12, 10)) for _ in range(2)]
    squares = [net.op("Mul", part, part) for part in parts]
    powers = net.op("MatMul", net.op("Add", *squares), net.constant(np.abs(net.rng.normal(size=(10, 6)))))
    net.op("Log", net.op("Max" if cut else "Add", powers, net.constant(floor)))
    net.op("MatMul", net.last, net.weight(6, 3))
    return net


def loud_and_silent(rows: int, quietest: float) -> np.ndarray:
    """Rows whose sizes are spread over powers of ten."""
    rng = np.random.default_rng(rows)
    return (rng.normal(size=(rows, 12)) * 10 ** rng.uniform(quietest, 0, (rows, 1))).astype(np.float32)


@pytest.mark.parametrize("trust", ["client-aided", "two-party"])
@pytest.mark.parametrize("cut", [True, False])
def test_a_floor_that_is_never_reached_takes_no_precision(trust: str, cut: bool) -> None:
    model = spectra(1e-10, cut=cut).model()
    x, held = loud_and_silent(200, -0.3), loud_and_silent(24, -0.3)
    made = compile(model, trust=trust, calibration=x, precision=6)
    assert made.plan.predicted["precision"]["reached"] >= 6 and "widest_logarithm" not in made.plan.predicted
    (want,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x0": held})
    result = run(made, held)
    kept = np.setdiff1d(np.arange(len(held)), result.out_of_range)
    assert np.abs(result.output - want)[kept].max() <= made.plan.predicted["max_error"]


def test_a_logarithm_of_almost_nothing_is_named_with_where_to_cut() -> None:
    """What is advised is done: the file is cut there, and the part behind it reaches the precision."""
    model, x = spectra(1e-10, cut=True).model(), loud_and_silent(100, -4.0)
    made = compile(model, calibration=x)
    logarithm = made.plan.predicted["widest_logarithm"]
    assert logarithm["octaves"] > 20
    (said,) = [s for s in made.shortfalls if "does not reach the precision" in s]
    assert "powers of two" in said and "extract_model" in said and "more weight_bits" not in said
    assert repr(logarithm["tensor"]) in said
    parts = onnx.utils.Extractor(onnx.shape_inference.infer_shapes(model))
    output = model.graph.output[0].name
    front = parts.extract_model(["x0"], [logarithm["tensor"]])
    rest = parts.extract_model([logarithm["tensor"]], [output])
    (features,) = onnxruntime.InferenceSession(front.SerializeToString()).run(None, {"x0": x})
    behind = compile(rest, calibration=features)
    assert not behind.shortfalls
    (want,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x0": x[:8]})
    assert np.abs(run(behind, features[:8]).output - want).max() <= behind.plan.predicted["max_error"]


def test_a_logarithm_that_no_table_holds_is_refused_with_where_to_cut() -> None:
    """What basic-pitch's normalised logarithm of a spectrogram comes to."""
    raised = Op("raised", "affine", ["x"], "raised", {"mul": 1.0, "add": 1e-10})
    asked = Asked(unit=2.0**-16, low=0, high=1 << 24, least=None, gain=1.0, fraction=9, finer=None)
    with pytest.raises(PlanError, match="no logarithm of values next to zero.*extract_model"):
        fit(Curve("x", "y", (raised, Op("log", "log", ["raised"], "y"))), asked)
    with pytest.raises(PlanError, match="a smaller range"):
        fit(Curve("x", "y", (raised, Op("root", "sqrt", ["raised"], "y"))), asked)

"""Answers that jump: which rows stand near a jump, which stay, and that the stated error is theirs."""

from __future__ import annotations

import numpy as np
import onnx.parser
import onnxruntime as ort
import pytest
from hushnet import passes
from hushnet.frontend import load
from hushnet.graph import Graph
from hushnet.planner import compile
from hushnet.planner import jumps as jumping
from hushnet.planner.precision import shortfalls
from hushnet.reference.float import evaluate

from tests.planner.planner_graphs import Builder
from tests.planner.test_statement import planned

TRUST = ["client-aided", "two-party", "non-interactive"]
SIZE = 6


def flagged(kind: str) -> tuple[Graph, np.ndarray]:
    """Scores, and beside them zeros and ones that say where they are large, or places in bins; rows of inputs."""
    b = Builder((SIZE,), seed=3).dense(4, gain=3.0)
    scores = b.at
    if kind == "flags":
        b.op("affine", mul=0.0, add=0.3)
        limit = b.at
        b.at = limit
        b.op("less", others=[scores])
    else:
        b.op("affine", mul=5.0, add=0.0).op("floor")
    b.op("add", others=[scores])
    return b.done(), np.random.default_rng(1).uniform(-1, 1, (4000, SIZE))


@pytest.mark.parametrize("kind", ["flags", "bins"])
@pytest.mark.parametrize("trust", TRUST)
def test_the_stated_error_is_that_of_rows_that_stay(trust: str, kind: str) -> None:
    graph, x = flagged(kind)
    plan = compile(graph, trust=trust, calibration=x[:1000], batch=8, margin=2.0)
    predicted = plan.predicted
    assert predicted["max_error"] < 0.05 and predicted["precision"]["reached"] >= 7
    assert 0.0 < predicted["near_jumps"] < 0.3 and 0.95 < predicted["stay"] <= 1.0
    assert any("jumps where a comparison" in note and "% stay" in note for note in plan.document["notes"])
    want = evaluate(graph, {"x": x[1000:]})[graph.outputs[0]]
    off = np.abs(planned(plan, x[1000:]) - want).max(axis=1)
    # who is further off was carried across, and there are no more of them than stand near a jump
    far = off > predicted["max_error"]
    assert far.mean() <= predicted["near_jumps"] and (off[far] > 0.5).mean() > 0.99
    assert off.max() <= predicted["jump_error"] + predicted["max_error"] <= 2.1
    assert any("carried across are off by up to" in note for note in plan.document["notes"])


@pytest.mark.parametrize("trust", TRUST)
def test_what_is_continuous_has_no_jumps(trust: str) -> None:
    b = Builder((SIZE,), seed=3).dense(4, gain=3.0)
    scores = b.at
    b.op("affine", mul=0.0, add=0.0)
    zero = b.at
    b.op("less", others=[scores]).op("mul", others=[scores])
    graph = b.done()
    assert zero in graph.shapes
    x = np.random.default_rng(1).uniform(-1, 1, (500, SIZE))
    predicted = compile(graph, trust=trust, calibration=x, batch=8).predicted
    assert "near_jumps" not in predicted and predicted["precision"]["reached"] >= 7


# operators of ONNX that jump, as nodes from x to y that read constants c (0.3) and z (zeros)
OPERATORS = {
    "Sign": "y = Sign(x)",
    "Shrink": "y = Shrink<lambd = 0.5, bias = 0.2>(x)",
    "ThresholdedRelu": "y = ThresholdedRelu<alpha = 0.5>(x)",
    "Floor": "y = Floor(x)",
    "Ceil": "y = Ceil(x)",
    "Round": "y = Round(x)",
    "Mod": "y = Mod<fmod = 1>(x, c)",
    "Cast": "i = Cast<to = 7>(x)  y = Cast<to = 1>(i)",
    "Greater": "g = Greater(x, c)  y = Cast<to = 1>(g)",
    "Where": "g = LessOrEqual(x, c)  y = Where(g, x, z)",
    "Hardmax": "y = Hardmax(x)",
    "ArgMax": "p = ArgMax<axis = 1>(x)  q = Cast<to = 1>(p)  y = Mul(q, c)",
    "TopK": "v, p = TopK<axis = 1>(x, one)  q = Cast<to = 1>(p)  y = Add(q, v)",
}


@pytest.mark.parametrize("trust", TRUST)
@pytest.mark.parametrize("name", OPERATORS)
def test_operators_that_jump_state_it(name: str, trust: str) -> None:
    rng = np.random.default_rng(5)
    weight = ", ".join(map(str, rng.normal(0, 0.5, SIZE * 4).astype(np.float32)))
    model = onnx.parser.parse_model(
        f"""<ir_version: 9, opset_import: ["" : 18]>
        jumping (float[N,{SIZE}] input) => (float[N,K] y)
        <float[{SIZE},4] w = {{{weight}}}, float c = {{0.3}}, float z = {{0}}, int64[1] one = {{1}}>
        {{ x = MatMul(input, w)
           {OPERATORS[name]} }}"""
    )
    rows = rng.uniform(-1, 1, (3000, SIZE)).astype(np.float32)
    graph = passes.default(load(model))
    few = {"activation_bits": 8} if trust != "non-interactive" else {}
    plan = compile(graph, trust=trust, calibration=rows[:600], weight_bits=6, margin=2.0, **few)
    predicted = plan.predicted
    assert predicted["near_jumps"] > 0.02, name
    want = ort.InferenceSession(model.SerializeToString()).run(None, {"input": rows})[0]
    off = np.abs(planned(plan, rows).reshape(want.shape) - want).reshape(len(rows), -1).max(axis=1)
    far = off > predicted["max_error"] + 1e-6
    assert far.any() and far.mean() <= 1.3 * predicted["near_jumps"] + 0.01, name
    assert off.max() <= 1.05 * (predicted["jump_error"] + predicted["max_error"]), name


def test_jumps_of_large_networks_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, x = flagged("flags")
    whole = compile(graph, calibration=x[:1000], weight_bits=8).predicted
    for name, most in (("MOST_VALUES", 500), ("MOST_MOVED", 500 * 30)):
        monkeypatch.setattr(jumping, name, most)
        part = compile(graph, calibration=x[:1000], weight_bits=8).predicted
        assert part["near_jumps"] == pytest.approx(whole["near_jumps"], abs=0.0 if name == "MOST_VALUES" else 0.05)
        assert part["stay"] == whole["stay"] and part["max_error"] == whole["max_error"]


def test_rows_that_are_carried_across_are_told() -> None:
    error = {"max_error": 0.01, "output_range": 1.0, "near_jumps": 0.4, "stay": 0.9, "jump_error": 0.7}
    (said,) = shortfalls({"output_errors": {"y": error}})
    assert (
        "40 % of the calibration rows" in said
        and "90 % stay" in said
        and "up to 0.7." in said
        and "in front of the jumps" in said
    )
    assert not shortfalls({"output_errors": {"y": error | {"stay": 0.99}}})

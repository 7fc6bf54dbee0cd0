"""``--activation``: the published coefficients, fits against the definition, what is reported."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hushnet import data, frontend, passes, zoo
from hushnet.errors import PlanError
from hushnet.planner.non_interactive import parse, replace_activations
from hushnet.planner.non_interactive.activation import fit, formula
from hushnet.reference.float import evaluate
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.polynomial import polynomial as poly

from tests.frontend.harness import Net


def relu_network() -> tuple:
    images, labels, _, _ = data.digits()
    return passes.default(frontend.load(zoo.trained("mnist-cnn-relu"))), images[:200], labels[:200]


def test_published_coefficients() -> None:
    assert parse("square").coefficients == (0.0, 0.0, 1.0)
    assert parse("swish-rg5-deg2").coefficients == (0.24, 0.5, 0.1) and parse("swish-rg5-deg2").range == 5
    assert (
        parse("swish-rg7-deg4").coefficients == (0.1773, 0.5, 0.128, 0.0, -0.001328)
        and parse("swish-rg7-deg4").range == 7
    )
    # they are what their names say: approximations of swish on their ranges
    for name in ("swish-rg5-deg2", "swish-rg7-deg4"):
        chosen = parse(name)
        x = np.linspace(-chosen.range, chosen.range, 1001)
        swish = x / (1 + np.exp(-x))
        assert np.abs(poly.polyval(x, chosen.coefficients) - swish).max() < 0.3


@pytest.mark.parametrize("text", ["relu", "poly", "poly:", "poly:degree=x", "poly:range=3", "poly:degree=1",
"poly:degree=17", "poly:degree=3,range=0",
                                  "poly:degree=3,range=nan", "poly:degree=3,foo=1", "swish:degree=3",
                                  "poly:degree=3,range=inf"])  # fmt: skip
def test_what_is_no_activation_is_refused(text: str) -> None:
    with pytest.raises(PlanError, match="activation"):
        parse(text)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(-3, 3), min_size=3, max_size=8), st.floats(0.01, 100))
def test_fit_finds_polynomials(coefficients: list[float], reach: float) -> None:
    scaled = np.array(coefficients) / reach ** np.arange(len(coefficients))
    x = np.linspace(-reach, reach, 4001)
    found = np.array(fit(poly.polyval(x, scaled), x, len(scaled) - 1, reach))
    assert len(found) == len(scaled)
    assert np.abs((found - scaled) * reach ** np.arange(len(scaled))).max() <= 1e-9 * max(
        1.0, np.abs(coefficients).max()
    )


@pytest.mark.parametrize("degree", [2, 3, 5, 8])
def test_fit_is_the_least_square(degree: int) -> None:
    """The residual is orthogonal to every power, and any other polynomial is worse."""
    x = np.linspace(-4.0, 4.0, 8193)
    relu = np.maximum(x, 0.0)
    found = fit(relu, x, degree, 4.0)
    residual = poly.polyval(x, found) - relu
    for power in range(degree + 1):
        assert abs(residual @ (x / 4) ** power) < 1e-7 * len(x)
    rng = np.random.default_rng(degree)
    for _ in range(10):
        other = np.array(found) + 1e-3 * rng.standard_normal(degree + 1) / 4.0 ** np.arange(degree + 1)
        assert ((poly.polyval(x, other) - relu) ** 2).sum() > (residual**2).sum()


def test_relu_by_least_squares_has_the_known_closed_form() -> None:
    """Projection of ReLU on degree 2 over [-r, r]: 3r/32 + x/2 + 15 x^2 / (32 r)."""
    x = np.linspace(-3.0, 3.0, 8193)
    assert np.allclose(fit(np.maximum(x, 0.0), x, 2, 3.0), (9 / 32, 0.5, 15 / 96), atol=2e-3)


def test_report_is_what_happens() -> None:
    graph, images, labels = relu_network()
    before = evaluate(graph, {graph.inputs[0]: images}, keep_all=True)
    done = replace_activations(graph, "poly:degree=2,range=1.5", calibration=images, labels=labels)
    after = evaluate(done.graph, {graph.inputs[0]: images})[graph.outputs[0]]
    old = before[graph.outputs[0]].argmax(axis=1)
    assert done.agreement == float((after.argmax(axis=1) == old).mean()) < 1
    assert done.accuracy_before == float((old == labels).mean()) and done.accuracy_after == float(
        (after.argmax(axis=1) == labels).mean()
    )
    assert [a.function for a in done.activations] == ["relu", "relu"]
    for a in done.activations:
        x = np.linspace(-1.5, 1.5, 20001)
        error = np.abs(poly.polyval(x, a.coefficients) - np.maximum(x, 0.0))
        assert a.max_error == pytest.approx(error.max(), rel=1e-3) and a.rms_error == pytest.approx(
            math.sqrt((error**2).mean()), rel=1e-3
        )
        seen = before[a.tensor]
        assert a.outside == float((np.abs(seen) > 1.5).mean()) > 0 and a.largest == np.abs(seen).max()
    said = "\n".join(done.sentences())
    assert "act1: relu became" in said and "on [-1.5, 1.5]" in said and "lie outside" in said and "Accuracy" in said
    # the given graph is untouched
    assert [n.op for n in graph.nodes if hasattr(n, "op")] == ["relu", "relu"]


def test_calibration_chooses_the_range() -> None:
    graph, images, _ = relu_network()
    done = replace_activations(graph, "poly:degree=6", calibration=images)
    for a in done.activations:
        assert a.outside == 0 and a.largest < a.range < 1.2 * a.largest
    with pytest.raises(PlanError, match="names no range and there is no calibration data"):
        replace_activations(graph, "poly:degree=6")


def test_activations_of_the_client_stay() -> None:
    net = Net((6,))
    net.op("Relu", "x0")
    net.op("Gemm", net.last, net.weight(6, 6))
    net.op("Sigmoid", net.last)
    net.op("Gemm", net.last, net.weight(6, 4))
    net.op("Softmax", net.last)
    graph = passes.default(frontend.load(net.model()))
    done = replace_activations(graph, "swish-rg5-deg2")
    assert [a.function for a in done.activations] == ["sigmoid"]
    ops = [n.op for n in done.graph.nodes if hasattr(n, "op")]
    assert ops[0] == "relu" and ops[-1] == "softmax" and "sigmoid" not in ops


@pytest.mark.parametrize(
    "kind", ["Relu", "LeakyRelu", "Elu", "Sigmoid", "Tanh", "HardSwish", "HardSigmoid", "Abs", "Erf", "Exp"]
)
def test_every_activation_is_fitted_well_by_a_high_degree(kind: str) -> None:
    net = Net((5,), seed=3)
    net.op("Gemm", "x0", net.weight(5, 5))
    net.op(kind, net.last)
    net.op("Gemm", net.last, net.weight(5, 3))
    graph = passes.default(frontend.load(net.model()))
    done = replace_activations(graph, "poly:degree=14,range=2")
    (one,) = done.activations
    assert one.max_error < 0.1 and one.rms_error < 0.02
    x = np.random.default_rng(0).uniform(-0.5, 0.5, (64, 5))
    apart = evaluate(done.graph, {"x0": x})[graph.outputs[0]] - evaluate(graph, {"x0": x})[graph.outputs[0]]
    assert 0 < np.abs(apart).max() < 0.3


def test_formula() -> None:
    assert formula((0.24, 0.5, 0.1)) == "0.1 x^2 + 0.5 x + 0.24"
    assert formula((0.0, -1.0, 0.0, 1.0)) == "x^3 - x"
    assert formula((0.0,)) == "0"

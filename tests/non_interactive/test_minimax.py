"""Activations as minimax polynomials: their proven errors, what the planner chooses, encrypted networks of ReLUs."""

from __future__ import annotations

import math

import hushnet
import numpy as np
import onnx
import pytest
from hushnet import frontend, passes
from hushnet.errors import PlanError
from hushnet.planner.non_interactive import Network, minimax, parse, replace_activations
from hushnet.planner.non_interactive.steps import Multiply
from hushnet.reference.float import evaluate
from hushnet.reference.non_interactive import run as reference_run
from numpy.polynomial import polynomial as poly
from onnx import TensorProto, helper, numpy_helper

from tests.frontend.harness import expected

# errors of the best polynomials of |x| on [-1, 1] are about 0.28 / degree (Bernstein), those of ReLU half of them
BERNSTEIN = 0.13
X = np.linspace(-1.0, 1.0, 400_001)


@pytest.mark.parametrize("levels", minimax.SIGNS)
def test_the_proven_error_of_a_composite_holds_and_is_not_wide(levels: int) -> None:
    found = minimax.half(levels)
    error = np.abs(X * minimax.composed(found.stages, X) + found.constant - np.maximum(X, 0.0)).max()
    assert 0.99 * found.error < error <= found.error
    assert sum(len(c).bit_length() - 1 for c in found.stages) == levels
    assert error > BERNSTEIN / math.prod(len(c) for c in found.stages)
    fewer = [minimax.half(k).error for k in minimax.SIGNS if k < levels]
    assert all(found.error < e for e in fewer)


def test_an_exchange_ends_with_alternating_deviations_of_one_size() -> None:
    x = np.cos(np.linspace(np.pi, 0.0, 2001))
    basis = np.polynomial.chebyshev.chebvander(x, 5)
    wanted = np.exp(x)
    found, off = minimax.exchange(basis, wanted, np.ones(len(x)))
    deviation = wanted - basis @ found
    peaks = [max(run, key=abs) for run in np.split(deviation, np.flatnonzero(np.diff(np.sign(deviation))) + 1)]
    assert len(peaks) == 7 and np.allclose(np.abs(peaks), off, rtol=1e-3)


@pytest.mark.parametrize(("reach", "degree"), [(2.0, 7), (8.0, 15), (8.0, 31)])
def test_errors_of_smooth_functions_are_bounds(reach: float, degree: int) -> None:
    for function, slope in ((lambda x: 1 / (1 + np.exp(-x)), 0.25), (lambda x: x / (1 + np.exp(-x)), 1.1)):
        found = minimax.smooth(function, reach, degree)
        x = reach * X
        error = np.abs(poly.polyval(x, np.array(found)) - function(x)).max()
        bound = minimax.function_error(function, slope, found, reach)
        assert error <= bound < 1.1 * error + 1e-4
    chebyshev = np.polynomial.chebyshev.Chebyshev.interpolate(function, degree, [-reach, reach])
    assert error < np.abs(chebyshev(x) - function(x)).max()


def network(activation: str = "Relu", **attributes: float) -> tuple[onnx.ModelProto, np.ndarray]:
    """Three layers, two activations, and a sum of the first of them with what comes behind."""
    rng = np.random.default_rng(3)
    weights, nodes, h = [], [], "x"
    for k in range(3):
        values = rng.normal(size=(8, 8)) * 1.3 / np.sqrt(8)
        weights.append(numpy_helper.from_array(values.astype(np.float32), f"w{k}"))
        nodes.append(helper.make_node("MatMul", [h, f"w{k}"], [f"u{k}"], name=f"layer{k}"))
        h = f"u{k}"
        if k < 2:
            nodes.append(helper.make_node(activation, [h], [f"r{k}"], name=f"act{k}", **attributes))
            h = f"r{k}"
    nodes.append(helper.make_node("Add", ["r0", h], ["y"], name="sum"))
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 8]) for name in ("x", "y")]
    model = helper.make_model(
        helper.make_graph(nodes, "net", ends[:1], ends[1:], weights), opset_imports=[helper.make_opsetid("", 17)]
    )
    model.ir_version = 9
    return model, rng.uniform(-1, 1, size=(64, 8)).astype(np.float32)


@pytest.mark.parametrize(
    ("activation", "attributes"),
    [("Relu", {}), ("LeakyRelu", {"alpha": 0.2}), ("Abs", {}), ("Sigmoid", {}), ("Tanh", {})],
)
def test_networks_are_replaced_within_what_is_proven(activation: str, attributes: dict[str, float]) -> None:
    model, x = network(activation, **attributes)
    graph = passes.default(frontend.load(model))
    done = replace_activations(graph, "minimax:bits=8", calibration=x)
    for a in done.activations:
        assert a.proven and a.max_error <= 2.0**-8 * max(a.range, 1.0)
        assert (a.chain is not None) == (activation in ("Relu", "LeakyRelu", "Abs"))
    before, after = (evaluate(g, {"x": x})["y"] for g in (graph, done.graph))
    assert np.abs(after - before).max() < 0.05 * np.abs(before).max()


def test_layers_behind_approximated_activations_keep_their_means() -> None:
    model, x = network()
    graph = passes.default(frontend.load(model))
    done = replace_activations(graph, "minimax:bits=3", calibration=x)
    before, after = (evaluate(g, {"x": x}, keep_all=True) for g in (graph, done.graph))
    for name in ("u1", "u2"):
        off = after[name] - before[name]
        assert np.abs(off.mean(axis=0)).max() < 1e-12 < 1e-3 < np.abs(off).max()


def test_bits_are_the_fewest_that_the_precision_needs() -> None:
    model, x = network()
    graph = passes.default(frontend.load(model))
    exact = evaluate(graph, {"x": x})["y"]
    levels, errors = [], []
    for precision in (3, 5, 8):
        done = replace_activations(graph, "minimax", calibration=x, precision=precision)
        off = np.abs(evaluate(done.graph, {"x": x})["y"] - exact).max()
        assert off <= 0.5 * 2.0**-precision * np.abs(exact).max()
        levels.append(sum(len(c) for c in done.activations[0].chain.stages))
        errors.append(off)
    assert levels == sorted(levels) and levels[0] < levels[-1]
    with pytest.raises(PlanError, match="ask for less precision"):
        replace_activations(graph, "minimax", calibration=x, precision=16)
    with pytest.raises(PlanError, match="calibration"):
        replace_activations(graph, "minimax")


@pytest.mark.parametrize("text", ["minimax:bits=2", "minimax:bits=13", "minimax:bits=x", "minimax:degree=3"])
def test_what_is_no_choice_of_bits_is_refused(text: str) -> None:
    with pytest.raises(PlanError, match="activation"):
        parse(text)


def test_a_network_of_relus_without_interaction_from_onnx_to_the_answer() -> None:
    model, x = network()
    compiled = hushnet.compile(
        model, trust="non-interactive", batch=1, calibration=x, activation="minimax:bits=7", precision=4
    )
    plan = compiled.plan
    (stage,) = (s for s in plan.stages if s["kind"] == "packed")
    kinds = [s["kind"] for s in stage["network"]["steps"]]
    assert kinds.count("multiply") == 2
    want = expected(model, {"x": x})[0]
    (planned,) = reference_run(plan, x).outputs.values()
    assert np.abs(planned - want).max() <= plan.predicted["max_error"]
    got = hushnet.run(compiled, x[:2], check=True)
    (y,) = got.outputs.values()
    assert np.abs(y - want[:2]).max() <= plan.predicted["max_error"]
    assert np.abs(y - planned[:2]).max() <= plan.predicted["planned_error"]
    assert (y.argmax(axis=1) == want[:2].argmax(axis=1)).all() and not got.trace["out_of_range"]
    assert "polynomials one after the other" in str(compiled.explain()) or "q a polynomial" in str(compiled.explain())


def test_batches_of_composites_and_refusals_say_what_to_do() -> None:
    model, x = network()
    with pytest.raises(PlanError, match="batch=1"):
        hushnet.compile(model, trust="non-interactive", calibration=x, activation="minimax:bits=6")
    with pytest.raises(PlanError, match="minimax"):
        hushnet.compile(model, trust="non-interactive", batch=1, calibration=x)


def test_steps_of_a_composite_are_a_chain() -> None:
    model, x = network()
    graph = replace_activations(passes.default(frontend.load(model)), "minimax:bits=7", calibration=x)
    steps = Network.from_graph(graph.graph, calibration={"x": x}, ranges=graph.ranges).steps
    products = [s for s in steps if isinstance(s, Multiply)]
    made = {s.target: s for s in steps}
    for product in products:
        tensor = product.sources[1]
        while tensor != product.sources[0]:
            step = made[tensor]
            assert step.part and math.isfinite(step.range)
            tensor = step.source
    assert len(products) == 2

"""Guards of divisions between layers: idle in the calibration data, they are left out; otherwise they stay refused."""

from __future__ import annotations

import hushnet
import numpy as np
import pytest
from hushnet import passes
from hushnet.frontend import load
from hushnet.graph import Op
from hushnet.planner.guards import between_layers, unguarded

from tests.frontend.harness import Net, expected

FORMS = ["equal", "less", "greater", "result", "norm"]


def guarded(form: str) -> Net:
    """A layer, its rows divided by their sum (or norm), and another layer."""
    net = Net((8,))
    hidden = net.op("Relu", net.op("Gemm", "x0", net.weight(8, 16)))
    if form == "norm":
        total = net.op("ReduceL2", hidden, axes=[1], keepdims=1)
    else:
        total = net.op("ReduceSum", hidden, net.ints(1), keepdims=1)
    if form in ("less", "greater"):
        pair = (total, net.constant(1e-6)) if form == "less" else (net.constant(1e-6), total)
        closed = net.op("Less" if form == "less" else "Greater", *pair)
    else:
        closed = net.op("Equal", total, net.constant(0.0))
    if form == "result":
        quotient = net.op("Where", closed, net.constant(0.25), net.op("Div", hidden, total))
    else:
        quotient = net.op("Div", hidden, net.op("Where", closed, net.constant(2.0), total))
    net.op("Gemm", quotient, net.weight(16, 4))
    return net


@pytest.mark.parametrize("form", FORMS)
def test_idle_guards_are_left_out(form: str) -> None:
    """Rows whose divisor stays above zero are answered as by ONNX Runtime."""
    model = guarded(form).model()
    rows = np.random.default_rng(1).standard_normal((48, 8)).astype(np.float32)
    plan = hushnet.compile(model, trust="two-party", calibration=rows)
    found = next(iter(hushnet.run(plan, rows[:4]).outputs.values()))
    assert np.abs(found - expected(model, {"x0": rows[:4]})[0]).max() < 0.05


def test_guards_that_data_need_stay() -> None:
    """A row of zeros has a divisor of zero: the comparison is refused, as it was."""
    rows = np.random.default_rng(1).standard_normal((48, 8)).astype(np.float32)
    rows[3] = 0
    with pytest.raises(hushnet.BlockedPlan, match="comparisons"):
        hushnet.compile(guarded("equal").model(), trust="two-party", calibration=rows)


def test_comparisons_with_more_stay() -> None:
    """A constant above the least value decides something."""
    graph = passes.default(load(guarded("less").model()))
    (place,) = between_layers(graph)
    comparison = next(n for n in graph.nodes if isinstance(n, Op) and n.output == place)
    total = comparison.inputs[0]
    kept = unguarded(graph, {total: 1e-7})
    assert [n.output for n in kept.nodes] == [n.output for n in graph.nodes]
    assert len(unguarded(graph, {total: 1e-3}).nodes) < len(graph.nodes)


def test_comparisons_at_the_end_stay() -> None:
    """Behind the last layer the client compares what it decrypts."""
    net = Net((8,))
    y = net.op("Gemm", "x0", net.weight(8, 16))
    net.op("Where", net.op("Equal", y, net.constant(0.0)), net.constant(1.0), y)
    graph = passes.default(load(net.model()))
    assert not between_layers(graph)
    assert any(isinstance(n, Op) and n.op == "equal" for n in graph.nodes)

"""The executor in binary64: ranges for calibration, freed tensors, input errors."""

import numpy as np
import pytest
from hushnet.frontend import load
from hushnet.reference.float import evaluate

from .harness import Net


def _graph():
    net = Net((3,), (4,))
    a = net.op("MatMul", "x0", net.weight(3, 4))
    net.op("Add", net.op("Relu", a), "x1")
    return load(net.model())


def test_all_tensors_on_request():
    graph = _graph()
    inputs = {"x0": np.ones((5, 3)), "x1": np.full((5, 4), -1.0)}
    everything = evaluate(graph, inputs, keep_all=True)
    assert set(everything) == set(graph.shapes)
    assert all(v.shape == (5, *graph.shapes[n]) and v.dtype == np.float64 for n, v in everything.items())
    assert set(evaluate(graph, inputs)) == set(graph.outputs)


def test_a_batch_equals_its_images():
    graph = _graph()
    rng = np.random.default_rng(0)
    inputs = {"x0": rng.standard_normal((4, 3)), "x1": rng.standard_normal((4, 4))}
    (name,) = graph.outputs
    whole = evaluate(graph, inputs)[name]
    for i in range(4):
        single = evaluate(graph, {k: v[i : i + 1] for k, v in inputs.items()})[name]
        assert np.allclose(whole[i], single[0], rtol=0, atol=1e-12)


def test_wrong_inputs():
    graph = _graph()
    with pytest.raises(ValueError, match="'x1' is missing"):
        evaluate(graph, {"x0": np.ones((5, 3))})
    with pytest.raises(ValueError, match=r"expected \(images, 3\)"):
        evaluate(graph, {"x0": np.ones((5, 4)), "x1": np.ones((5, 4))})
    with pytest.raises(ValueError, match="different numbers of images"):
        evaluate(graph, {"x0": np.ones((5, 3)), "x1": np.ones((4, 4))})

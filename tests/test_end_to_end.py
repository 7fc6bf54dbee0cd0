"""ONNX in, encrypted answer out.

Exactly the planned fixed-point result, and ONNX Runtime within the predicted error.
"""

from __future__ import annotations

import hushnet
import numpy as np
import onnxruntime
import pytest
from hushnet.reference import numpy as fixed_point
from hypothesis import given, settings
from hypothesis import strategies as st

from .networks import random_network, single_operators

OPERATORS = single_operators()


def check_network(onnx_model, shape, images: int, seed: int, transport: str = "pipe", **options) -> hushnet.Model:
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (images, *shape)).astype(np.float32)
    calibration = np.concatenate([x, rng.uniform(-1, 1, (32, *shape)).astype(np.float32)])
    model = hushnet.compile(onnx_model, batch=images, calibration=calibration, **options)
    result = hushnet.run(model, x, transport=transport)
    planned = fixed_point.run(model.plan, {model.input_names[0]: x})
    session = onnxruntime.InferenceSession(onnx_model.SerializeToString(), providers=["CPUExecutionProvider"])
    expected = session.run(None, {"x": x})
    assert list(result.outputs) == [o.name for o in session.get_outputs()]
    for (name, got), want in zip(result.outputs.items(), expected):
        np.testing.assert_array_equal(got, planned[name])
        assert got.shape == want.shape
        worst = model.plan.predicted["output_errors"][name]["worst_error"]
        assert np.abs(got - want).max() <= worst + 1e-5 * (1 + np.abs(want).max())
    return model


@pytest.mark.parametrize("name", OPERATORS)
def test_operator(name: str) -> None:
    model = OPERATORS[name]
    shape = tuple(d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim[1:])
    check_network(model, shape, images=9, seed=1)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), images=st.integers(1, 40), weight_bits=st.sampled_from([4, 8, 8, 12]))
def test_random_network(seed: int, images: int, weight_bits: int) -> None:
    model, shape = random_network(seed)
    check_network(model, shape, images, seed % 1000, weight_bits=weight_bits)


@pytest.mark.parametrize("images", [1, 2047, 2048, 2049, 5000])
def test_any_number_of_images(images: int) -> None:
    model, shape = random_network(7)
    check_network(model, shape, images, 3, transport="loopback")


@pytest.mark.parametrize(
    "options",
    [{"mask": "fresh"}, {"mask": "sent"}, {"mask": "fresh", "drop": False}, {"ring_degree": 4096}, {"weight_bits": 16}],
)
def test_every_way_to_run(options: dict) -> None:
    model, shape = random_network(11)
    check_network(model, shape, 33, 5, **options)

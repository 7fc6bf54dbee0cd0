"""The builder's forward pass agrees with ONNX Runtime, and does not depend on the order of additions."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from hushnet import zoo
from hushnet.zoo import exact


def runtime(net: zoo.Net, output: zoo.Tensor) -> np.ndarray:
    model = net.finish("one", output)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {"image": net.inputs[0].value.astype(np.float32)})[0]


CASES = {
    "conv": lambda n, x: n.conv("l", x, 6, 3),
    "conv-strided": lambda n, x: n.conv("l", x, 5, 4, stride=3, pad=2),
    "conv-asymmetric": lambda n, x: n.conv("l", x, 5, 3, stride=2, pad=(0, 1, 2, 0), bias=False),
    "conv-grouped": lambda n, x: n.conv("l", x, 8, 3, pad=1, groups=2),
    "depthwise": lambda n, x: n.conv("l", x, 4, 3, stride=2, pad=1, groups=4),
    "norm": lambda n, x: n.batch_norm("l", x),
    "conv-norm": lambda n, x: n.conv_norm("l", x, 7, 3, pad=1, act="relu6"),
    "fc": lambda n, x: n.fc("l", x, 9),
    "max-pool": lambda n, x: n.max_pool("l", x, 3, stride=2, pad=1),
    "max-pool-ceil": lambda n, x: n.max_pool("l", x, 2, stride=2, ceil=True),
    "average-pool": lambda n, x: n.average_pool("l", x, 3, stride=2),
    "global": lambda n, x: n.global_average_pool("l", x),
    "add": lambda n, x: n.add("l", x, n.act("r", x, "swish")),
    "concat": lambda n, x: n.concat("l", x, n.act("r", x, "square")),
    "polynomial": lambda n, x: n.act("l", x, "swish-rg7-deg4"),
}

LOOSER = {"conv-norm": 1 / 64, "polynomial": 1 / 128}


@pytest.mark.parametrize("case", sorted(CASES))
def test_layers_agree_with_onnx_runtime(case: str) -> None:
    net = zoo.Net(seed=4)
    output = CASES[case](net, net.input(4, 11, 13, images=3))
    expected = runtime(net, output)
    assert output.value is not None and output.value.shape == expected.shape == (3, *output.shape)
    # every value is rounded by up to 1/512 after each of the few nodes, and a normalisation enlarges that
    np.testing.assert_allclose(output.value, expected, atol=LOOSER.get(case, 1 / 256) + 1e-4, rtol=1e-4)


def test_normalised_layers_have_unit_deviation() -> None:
    net = zoo.Net(seed=2)
    x = net.conv("a", net.input(3, 20, 20), 16, 3)
    assert x.value.std() == pytest.approx(1, rel=0.1) and np.abs(x.value.mean(axis=(0, 2, 3))).max() < 0.5
    y = net.batch_norm("n", net.conv("b", x, 16, 3, bias=False, deviation=None))
    assert y.value.std() == pytest.approx(1, rel=0.1)


def test_sums_are_exact_in_any_order() -> None:
    rng = np.random.default_rng(0)
    x = exact.snap(rng.standard_normal((2, 64, 9, 9)) * 20)
    w = exact.bell(rng.integers(0, 256, 4 * 32 * 64 * 9, dtype=np.uint8), (32, 64, 3, 3), 0.06)
    whole = exact.conv(x, w, 1, (1, 1, 1, 1), 1)
    order = rng.permutation(64)
    assert np.array_equal(whole, exact.conv(x[:, order], w[:, order], 1, (1, 1, 1, 1), 1))
    halves = exact.conv(x[:, :31], w[:, :31], 1, (1,) * 4, 1) + exact.conv(x[:, 31:], w[:, 31:], 1, (1,) * 4, 1)
    assert np.array_equal(whole, halves)


def test_weights_are_nearly_normal() -> None:
    w = exact.bell(np.random.default_rng(1).integers(0, 256, 400_000, dtype=np.uint8), (100_000,), 0.3)
    assert w.std() == pytest.approx(0.3, rel=0.04) and abs(w.mean()) < 0.005
    assert (np.abs(w) < 0.3).mean() == pytest.approx(0.683, abs=0.02)
    assert np.array_equal(w.astype(np.float32).astype(np.float64), w)


def test_a_name_is_used_once() -> None:
    net = zoo.Net()
    x = net.fc("a", net.input(5), 5)
    with pytest.raises(zoo.ZooError, match="name of its own"):
        net.fc("a", x, 5)
    assert isinstance(net.nodes[0], onnx.NodeProto)

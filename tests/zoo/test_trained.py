"""The trained files reach their accuracy under ONNX Runtime, and are what the builder writes."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from hushnet import data, zoo

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
LEAST = {"cryptonets-relu": 0.97, "cryptonets-square": 0.96}


def logits(model: onnx.ModelProto, x: np.ndarray, *names: str) -> list[np.ndarray]:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(list(names) or None, {"image": x})


def test_the_package_and_the_examples_hold_the_same_files() -> None:
    assert set(LEAST) <= set(zoo.trained_names())
    for name in zoo.trained_names():
        path = EXAMPLES / "models" / f"{name}.onnx"
        assert path.stat().st_size < 500_000
        assert path.read_bytes() == zoo.trained(name).SerializeToString()
    with pytest.raises(zoo.ZooError, match="no trained network 'x'.*cryptonets-relu"):
        zoo.trained("x")


@pytest.mark.parametrize("name", zoo.trained_names())
def test_accuracy_on_held_out_digits(name: str) -> None:
    model = zoo.trained(name)
    _, _, x, y = zoo.trained_digits(model)
    onnx.checker.check_model(model, full_check=True)
    accuracy = float((logits(model, x)[0].argmax(axis=1) == y).mean())
    noted = {p.key: float(p.value) for p in model.metadata_props}
    assert accuracy >= LEAST.get(name, 0.97)
    assert accuracy == pytest.approx(noted["held_out_accuracy"], abs=0.003)


def test_digits_have_the_shape_that_a_network_takes() -> None:
    whole = data.digits(32)
    found = zoo.trained_digits(zoo.trained("resnet20-relu"))
    assert found[0].shape == (1437, 3, 32, 32) and found[2].shape == (360, 3, 32, 32)
    for channel in range(3):
        assert np.array_equal(found[2][:, channel], whole[2][:, 0])
    assert np.array_equal(found[3], whole[3])
    assert np.array_equal(zoo.trained_digits(zoo.trained("cryptonets-relu"))[2], data.digits()[2])


@pytest.mark.parametrize("name", [n for n in zoo.trained_names() if not n.endswith("relu")])
def test_polynomial_networks_keep_small_ranges(name: str) -> None:
    model = onnx.shape_inference.infer_shapes(zoo.trained(name))
    noted = {p.key: float(p.value) for p in model.metadata_props}
    before = [
        n.input[0] for n in model.graph.node if n.op_type == "Mul" and n.input[0] == n.input[1] and "x4" not in n.name
    ]
    assert len(before) == 2
    model.graph.output.extend(v for v in model.graph.value_info if v.name in before)
    train_x, _, test_x, _ = data.digits()
    largest = max(float(np.abs(v).max()) for v in logits(model, np.concatenate([train_x, test_x]), *before))
    assert largest == pytest.approx(noted["max_abs_pre_activation"], rel=0.01)
    assert largest < 8


def test_training_writes_a_network_that_learned(tmp_path: Path) -> None:
    command = [sys.executable, str(EXAMPLES / "train_cryptonets.py"), "--epochs", "4", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.count("held-out accuracy") == 2
    _, _, x, y = data.digits()
    for name in LEAST:
        model = onnx.load_model(tmp_path / f"{name}.onnx")
        assert (logits(model, x)[0].argmax(axis=1) == y).mean() > 0.8


def _tiny_nn():
    spec = importlib.util.spec_from_file_location("tiny_nn", EXAMPLES / "tiny_nn.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("activation", ["relu", "square", "swish-rg7-deg4"])
def test_gradients_agree_with_differences(activation: str) -> None:
    nn = _tiny_nn()
    rng = np.random.default_rng(0)
    network = nn.Network(
        nn.Conv("c", 2, 3, 3, rng, stride=2, pads=(0, 1, 1, 0)),
        nn.BatchNorm("n", 3),
        nn.Activation(activation),
        nn.Conv("d", 3, 2, 2, rng, bias=False),
        nn.Activation(activation),
        nn.Dense("f", 2 * 3 * 2, 4, rng),
    )
    for layer in network.layers:
        layer.parameters = {k: v.astype(np.float64) for k, v in layer.parameters.items()}
    x, y = rng.standard_normal((5, 2, 8, 6)), rng.integers(0, 4, 5)

    def loss() -> float:
        return nn.cross_entropy(network.forward(x, training=True), y, 0.1)[0]

    network.backward(nn.cross_entropy(network.forward(x, training=True), y, 0.1)[1])
    checked = 0
    for layer in network.layers:
        for name, parameter in layer.parameters.items():
            gradient = layer.gradients[name].copy()
            for index in list(np.ndindex(parameter.shape))[:: max(1, parameter.size // 4)]:
                kept = parameter[index]
                parameter[index] = kept + 1e-5
                high = loss()
                parameter[index] = kept - 1e-5
                low = loss()
                parameter[index] = kept
                assert gradient[index] == pytest.approx((high - low) / 2e-5, rel=2e-3, abs=2e-5), (name, index)
                checked += 1
    assert checked > 20

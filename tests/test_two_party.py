"""Both sides private, from ONNX to the answer.

Within the stated units of the planned run, and the same labels on real digits.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import hushnet
import numpy as np
import pytest
from hushnet import data, zoo
from hushnet.reference import two_party as reference

from .networks import Net


def network(seed: int) -> tuple:
    rng = np.random.default_rng(seed)
    c, h, w = int(rng.integers(1, 4)), int(rng.integers(5, 10)), int(rng.integers(5, 10))
    net = Net((c, h, w), seed=seed)
    net.conv(c, 5, (3, 2), pads=[1, 1, 1, 0], strides=[int(rng.integers(1, 3)), 1])
    skip = net.op("Relu")
    net.op("Add", net.conv(5, 5, (3, 3), pads=[1, 1, 1, 1]), skip)
    net.op("Relu")
    net.op("MaxPool", kernel_shape=[2, 2], strides=[1, 2])
    net.op("GlobalAveragePool")
    net.op("Flatten", axis=1)
    net.op("Gemm", net.last, net.weight(4, 5), net.weight(4), transB=1)
    return net.model(), (c, h, w)


def opened(model: hushnet.Model) -> tuple[np.ndarray, float]:
    stage = next(s for s in model.plan.stages if s["kind"] == "reveal")
    tensor = model.plan.tensors[stage["out"]]
    return reference.unit_reach(model.plan)[tensor["name"]], tensor["scale"]


@pytest.mark.parametrize("seed", range(8))
def test_random_networks_stay_within_the_stated_units(seed: int) -> None:
    onnx_model, shape = network(seed)
    x = np.random.default_rng(seed).uniform(-1, 1, (3, *shape)).astype(np.float32)
    model = hushnet.compile(onnx_model, trust="two-party", input_range=(-1, 1))
    result = hushnet.run(model, x, threads=1)
    planned = next(iter(reference.run(model.plan, {model.input_names[0]: x}).values()))
    reach, scale = opened(model)
    assert (np.abs(result.output - planned) <= reach * scale + 1e-12).all()
    assert result.trace["bytes_up"] == result.trace["client"]["total"]["predicted"]["bytes_up"]
    assert result.trace["bytes_down"] == result.trace["client"]["total"]["predicted"]["bytes_down"]


def test_digits_with_both_sides_private(tmp_path: Path) -> None:
    train_x, _, x, labels = data.digits()
    model = hushnet.compile(zoo.trained("cryptonets-relu"), trust="two-party", calibration=train_x[:256])
    result = hushnet.run(model, x[:60].astype(np.float32))
    assert (result.output.argmax(1) == labels[:60]).mean() >= 0.95
    model.save(tmp_path / "digits.hush")
    np.save(tmp_path / "x.npy", x[:2].astype(np.float32))
    command = [sys.executable, "-m", "hushnet", "run", str(tmp_path / "digits.hush"), str(tmp_path / "x.npy"), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert np.argmax(json.loads(done.stdout)["values"]["logits"], axis=1).tolist() == labels[:2].tolist()
    explained = json.dumps(model.explain(result.trace))
    assert "two-party" in explained and "semi-honest" in explained


def test_only_the_label_is_opened_when_asked() -> None:
    train_x, _, x, _ = data.digits()
    options = {"trust": "two-party", "calibration": train_x[:64]}
    full = hushnet.compile(zoo.trained("cryptonets-relu"), **options)
    label = hushnet.compile(zoo.trained("cryptonets-relu"), reveal="argmax", **options)
    want = hushnet.run(full, x[:12].astype(np.float32)).output.argmax(1)
    got = hushnet.run(label, x[:12].astype(np.float32)).output
    assert got.size == 12 and (got.ravel() == want).all()


def test_networks_are_for_two_party_plans() -> None:
    batch = hushnet.compile(zoo.trained("cryptonets-relu"), input_range=(0, 1))
    with pytest.raises(hushnet.InputError, match="two-party"):
        hushnet.run(batch, np.zeros((1, 1, 28, 28), np.float32), network="lan")
    with pytest.raises(hushnet.InputError, match="two-party"):
        batch.explain(network="lan")

"""EfficientNet, MobileNetV3, ConvNeXt, ViT and YOLO: published sizes, sane activations, answers that run."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from hushnet import data, zoo
from hushnet_bench.architectures import activations, plain

# published parameters, exactly, and MACs of layers with weights at 224 pixels (ViT: products of patches, twelve layers
# of 197 tokens and the head, counted by hand: the usual figure has the products of attention, too; YOLOv5-nano: its
# 4.5 GFLOP at 640 pixels)
TOKENS = 197
KNOWN = {
    "efficientnet-b0": (5_288_548, 0.386e9, 0.005),
    "mobilenetv3-small": (2_542_856, 56.5e6, 0.01),
    "convnext-tiny": (28_589_128, 4.456e9, 0.005),
    "vit-tiny": (5_717_416, 196 * 768 * 192 + 12 * 12 * 192 * 192 * TOKENS + 192 * 1000, 0.0),
    "yolo-nano": (1_872_157, 4.5e9 / 2 * (224 / 640) ** 2, 0.02),
}
PARAMETERS = ("weight", "bias", "scale", "shift", "mean", "variance")
SMALL: dict[str, Any] = {"size": 64, "width": 0.25, "depth": 2, "classes": 10}


@pytest.fixture(scope="module", params=sorted(KNOWN))
def small(request: pytest.FixtureRequest) -> tuple[str, onnx.ModelProto]:
    return request.param, zoo.build(request.param, **SMALL)


@pytest.mark.parametrize("name", sorted(KNOWN))
def test_published_sizes(name: str) -> None:
    seeded = zoo.build(name, size=32)
    weights = {t.name: onnx.numpy_helper.to_array(t) for t in seeded.graph.initializer}
    weights = {k: v for k, v in weights.items() if k.rpartition(".")[2] in PARAMETERS}
    if name == "vit-tiny":
        weights["positions.weight"] = np.zeros((1, TOKENS, 192), np.float32)
    # with weights given nothing is computed
    model = zoo.build(name, weights=weights)
    onnx.checker.check_model(model, full_check=True)
    about = zoo.describe(model)
    parameters, macs, tolerance = KNOWN[name]
    assert about.parameters == parameters
    assert about.macs == pytest.approx(macs, rel=tolerance, abs=0)
    boxes = 3 * (28 * 28 + 14 * 14 + 7 * 7)
    assert about.outputs == {"logits": (boxes, 85) if name == "yolo-nano" else (1000,)}


def test_activations_neither_vanish_nor_explode_and_answers_differ(small: tuple[str, onnx.ModelProto]) -> None:
    name, model = small
    found = activations(model, data.synthetic((3, 64, 64), 4, seed=5))
    assert found["least_deviation"] > 0.03 and found["most_deviation"] < 10, found
    assert found["spread"] > 0.1 and 0.05 < found["sensitivity"] < 8, found
    y = plain(model, data.synthetic((3, 64, 64), 4, seed=6).astype(np.float32))
    assert np.isfinite(y).all() and (name == "yolo-nano" or len(set(y.argmax(axis=1))) > 1)


def test_a_layer_that_vanishes_or_explodes_is_seen() -> None:
    model = zoo.build("mobilenetv3-small", **SMALL)
    x = data.synthetic((3, 64, 64), 2, seed=5)
    (norm,) = [t for t in model.graph.initializer if t.name == "last.norm.scale"]
    exact = onnx.numpy_helper.to_array(norm)
    good = activations(model, x)
    norm.CopyFrom(onnx.numpy_helper.from_array(exact * np.float32(100), norm.name))
    large = activations(model, x)
    for tensor in model.graph.initializer:
        if tensor.name == "hidden.weight":
            tensor.CopyFrom(
                onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(tensor) * np.float32(0), tensor.name)
            )
    assert large["most_deviation"] > 10 > good["most_deviation"]
    assert activations(model, x)["spread"] < 1e-3 < good["spread"]


def test_options_that_no_network_has_are_refused() -> None:
    for wrong in ({"size": 0}, {"width": 0}, {"depth": 0}, {"width": 9}):
        with pytest.raises(zoo.ZooError, match="choose a size and a depth of 1 or more"):
            zoo.build("efficientnet-b0", **wrong)
    with pytest.raises(zoo.ZooError, match="size 100: choose a multiple of 32"):
        zoo.build("yolo-nano", size=100)
    with pytest.raises(zoo.ZooError, match="does not fit its .* choose a larger image"):
        zoo.build("vit-tiny", size=8)

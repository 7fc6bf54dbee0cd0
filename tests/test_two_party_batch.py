"""Batches with both sides private: planned by cost per image, right for any number of images, predicted exactly."""

from __future__ import annotations

import hushnet
import numpy as np
import pytest
from hushnet import data, zoo
from hushnet.reference import two_party as reference

from .networks import Net
from .test_two_party import opened


def network(seed: int) -> tuple:
    rng = np.random.default_rng(seed)
    c, h, w = int(rng.integers(1, 4)), int(rng.integers(4, 8)), int(rng.integers(4, 8))
    net = Net((c, h, w), seed=seed)
    net.conv(c, 4, (3, 2), pads=[1, 0, 1, 1], strides=[1, int(rng.integers(1, 3))])
    net.op("Relu")
    net.conv(4, 4, (3, 3), groups=2, pads=[1, 1, 1, 1])
    net.op("LeakyRelu", alpha=0.125)
    net.op("GlobalAveragePool")
    net.op("Flatten", axis=1)
    net.op("Gemm", net.last, net.weight(3, 4), net.weight(3), transB=1)
    return net.model(), (c, h, w)


def methods(model: hushnet.Model) -> list[str]:
    return [s["method"] for s in model.plan.stages if s["kind"] == "linear"]


@pytest.mark.parametrize(("seed", "images"), [(0, 1), (1, 7), (2, 33), (3, 64)])
def test_any_number_of_images_stays_within_the_stated_units(seed: int, images: int) -> None:
    onnx_model, shape = network(seed)
    x = np.random.default_rng(seed).uniform(-1, 1, (images, *shape)).astype(np.float32)
    model = hushnet.compile(onnx_model, trust="two-party", batch=2048, input_range=(-1, 1))
    assert set(methods(model)) == {"batch"}
    result = hushnet.run(model, x, threads=1)
    planned = next(iter(reference.run(model.plan, {model.input_names[0]: x}).values()))
    reach, scale = opened(model)
    assert (np.abs(result.output - planned) <= reach * scale + 1e-12).all()
    total = result.trace["client"]["total"]
    assert (total["bytes_up"], total["bytes_down"]) == (
        total["predicted"]["bytes_up"],
        total["predicted"]["bytes_down"],
    )


def test_the_planner_takes_what_is_cheaper_an_image() -> None:
    onnx_model, _ = network(5)
    options = {"trust": "two-party", "input_range": (-1, 1)}
    alone, few, many = (hushnet.compile(onnx_model, batch=n, **options) for n in (1, 2, 2048))
    assert set(methods(alone)) == {"cheetah"} and set(methods(many)) == {"batch"}
    # a handful of features is little more work as a few ciphertexts than as one; images are not
    assert methods(few)[:2] == ["cheetah"] * 2
    assert many.plan.predicted["batch"] == 2048 and alone.plan.predicted["batch"] == 1
    assert many.plan.predicted["seconds"] / 2048 < alone.plan.predicted["seconds"]
    explained = many.explain()
    assert explained["totals"]["bytes_per_image"] == pytest.approx(
        (many.plan.predicted["bytes_up"] + many.plan.predicted["bytes_down"]) / 2048
    )
    assert [layer["method"] for layer in explained["layers"] if layer["kind"] == "linear"] == methods(many)
    with pytest.raises(hushnet.PlanError, match="batch"):
        hushnet.compile(onnx_model, batch=0, **options)


def test_digits_in_a_batch_have_the_planned_labels() -> None:
    train_x, _, x, labels = data.digits()
    model = hushnet.compile(
        zoo.trained("cryptonets-relu"), trust="two-party", batch=2048, calibration=train_x[:256], weight_bits=7
    )
    result = hushnet.run(model, x[:100].astype(np.float32))
    planned = next(iter(reference.run(model.plan, {model.input_names[0]: x[:100]}).values()))
    assert (result.output.argmax(1) == planned.argmax(1)).mean() >= 0.99
    assert (result.output.argmax(1) == labels[:100]).mean() >= 0.95

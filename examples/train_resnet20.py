"""Trains ResNet-20 on handwritten digits enlarged to 32x32, in JAX on the CPU, in minutes.

    pip install hushnet[demo] jax
    python examples/train_resnet20.py

The digits are grey: all three channels of an image are equal. Weights of convolutions are written as 8-bit integers
with a scale a map, so the file has a quarter of the bytes; the accuracy noted is that of what is written.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import jax
import numpy as np
import onnx
from hushnet import data, zoo
from jax import numpy as jnp
from onnx import helper, numpy_helper
from train_digits import arguments

MAPS, BLOCKS = (16, 32, 64), 3
BATCH, RATE, MOMENTUM, DECAY, SMOOTHING = 64, 0.05, 0.9, 5e-4, 0.1
SHIFT, KEPT, EPSILON = 2, 0.9, 1e-5
WARM = 20  # steps with a rate that grows

Weights = dict[str, Any]


def grey(x: np.ndarray) -> np.ndarray:
    """Images of one channel as images of three equal ones."""
    return np.repeat(x, 3, axis=1)


def layers() -> list[tuple[str, int, int, int]]:
    """Name, input maps, output maps and kernel of every convolution, by the names of ``hushnet.zoo``."""
    found, last = [("stem", 3, MAPS[0], 3)], MAPS[0]
    for stage, maps in enumerate(MAPS, 1):
        for block in range(1, BLOCKS + 1):
            name = f"stage{stage}.{block}"
            found += [(f"{name}.a", last, maps, 3), (f"{name}.b", maps, maps, 3)]
            if last != maps:
                found.append((f"{name}.shortcut", last, maps, 1))
            last = maps
    return found


def initial(seed: int) -> tuple[Weights, Weights]:
    """Parameters before training, and running statistics of batch norms."""
    rng = np.random.default_rng(seed)
    weights: Weights = {}
    statistics: Weights = {}
    for name, inputs, outputs, kernel in layers():
        size = (outputs, inputs, kernel, kernel)
        weights[f"{name}.conv.weight"] = rng.normal(size=size) * np.sqrt(2 / (inputs * kernel * kernel))
        weights[f"{name}.norm.scale"], weights[f"{name}.norm.shift"] = np.ones(outputs), np.zeros(outputs)
        statistics[f"{name}.norm.mean"], statistics[f"{name}.norm.variance"] = np.zeros(outputs), np.ones(outputs)
    weights["fc.weight"] = rng.normal(size=(10, MAPS[-1])) * np.sqrt(1 / MAPS[-1])
    weights["fc.bias"] = np.zeros(10)
    return ({k: jnp.asarray(v, jnp.float32) for k, v in d.items()} for d in (weights, statistics))  # type: ignore[return-value]


def forward(weights: Weights, statistics: Weights, x: Any, *, training: bool) -> tuple[Any, Weights]:
    """Logits of images, and the statistics with those of the batch mixed in where it trains."""
    after = dict(statistics)

    def conv(name: str, x: Any, stride: int = 1) -> Any:
        weight = weights[f"{name}.conv.weight"]
        pad = [(weight.shape[2] // 2,) * 2] * 2
        y = jax.lax.conv_general_dilated(x, weight, (stride, stride), pad, dimension_numbers=("NCHW", "OIHW", "NCHW"))
        mean, variance = statistics[f"{name}.norm.mean"], statistics[f"{name}.norm.variance"]
        if training:
            mean, variance = y.mean((0, 2, 3)), y.var((0, 2, 3))
            for key, new in (("mean", mean), ("variance", variance)):
                after[f"{name}.norm.{key}"] = KEPT * statistics[f"{name}.norm.{key}"] + (1 - KEPT) * new
        factor = weights[f"{name}.norm.scale"] / jnp.sqrt(variance + EPSILON)
        return (y - mean[:, None, None]) * factor[:, None, None] + weights[f"{name}.norm.shift"][:, None, None]

    x = jax.nn.relu(conv("stem", x))
    for stage in range(1, len(MAPS) + 1):
        for block in range(1, BLOCKS + 1):
            name = f"stage{stage}.{block}"
            stride = 2 if stage > 1 and block == 1 else 1
            y = conv(f"{name}.b", jax.nn.relu(conv(f"{name}.a", x, stride)))
            x = jax.nn.relu(y + (conv(f"{name}.shortcut", x, stride) if stride > 1 else x))
    return x.mean((2, 3)) @ weights["fc.weight"].T + weights["fc.bias"], after


@partial(jax.jit, donate_argnums=(0, 1, 2))
def step(weights: Weights, speed: Weights, statistics: Weights, x: Any, y: Any, rate: Any) -> Any:
    """One step of stochastic gradient descent with Nesterov's momentum."""

    def loss(weights: Weights) -> tuple[Any, Weights]:
        logits, after = forward(weights, statistics, x, training=True)
        wanted = (1 - SMOOTHING) * jax.nn.one_hot(y, 10) + SMOOTHING / 10
        return -(wanted * jax.nn.log_softmax(logits)).sum(1).mean(), after

    (value, after), slope = jax.value_and_grad(loss, has_aux=True)(weights)
    slope = {k: s + DECAY * weights[k] if k.endswith("weight") else s for k, s in slope.items()}
    speed = {k: MOMENTUM * speed[k] + slope[k] for k in speed}
    weights = {k: weights[k] - rate * (slope[k] + MOMENTUM * speed[k]) for k in weights}
    return weights, speed, after, value


def moved(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The images, each moved by up to :data:`SHIFT` pixels either way."""
    wide = np.pad(x, [(0, 0), (0, 0), (SHIFT, SHIFT), (SHIFT, SHIFT)])
    size = x.shape[2]
    places = rng.integers(0, 2 * SHIFT + 1, (len(x), 2))
    return np.stack([image[:, r : r + size, c : c + size] for image, (r, c) in zip(wide, places)])


def train(x: np.ndarray, y: np.ndarray, *, epochs: int, seed: int) -> Weights:
    """Parameters and statistics by name."""
    weights, statistics = initial(seed)
    speed = {k: jnp.zeros_like(v) for k, v in weights.items()}
    rng, begun = np.random.default_rng(seed), time.monotonic()
    count = epochs * (len(x) // BATCH)
    done = 0
    for epoch in range(epochs):
        order, losses = rng.permutation(len(x)), []
        for start in range(0, len(x) - BATCH + 1, BATCH):
            rows = order[start : start + BATCH]
            rate = RATE * min(1.0, (done + 1) / WARM) * (1 + np.cos(np.pi * done / count)) / 2
            weights, speed, statistics, loss = step(weights, speed, statistics, moved(x[rows], rng), y[rows], rate)
            losses.append(float(loss))
            done += 1
        print(f"  epoch {epoch + 1}: loss {np.mean(losses):.3f}, {time.monotonic() - begun:.0f} s", flush=True)
    return {k: np.asarray(v) for k, v in {**weights, **statistics}.items()}


def narrow(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with weights of convolutions as 8-bit integers, a scale a map."""
    graph, dequantised = model.graph, []
    for tensor in [t for t in graph.initializer if len(t.dims) == 4]:
        weight = numpy_helper.to_array(tensor)
        scale = np.abs(weight).max(axis=(1, 2, 3)) / 127
        whole = np.rint(weight / scale[:, None, None, None]).astype(np.int8)
        name = tensor.name
        graph.initializer.remove(tensor)
        graph.initializer.extend(
            [
                numpy_helper.from_array(whole, f"{name}.integers"),
                numpy_helper.from_array(scale.astype(np.float32), f"{name}.scale"),
            ]
        )
        dequantised.append(
            helper.make_node("DequantizeLinear", [f"{name}.integers", f"{name}.scale"], [name], name=name, axis=0)
        )
    nodes = [*dequantised, *graph.node]
    del graph.node[:]
    graph.node.extend(nodes)
    onnx.checker.check_model(model)
    return model


def largest_operand(model: onnx.ModelProto, x: np.ndarray) -> tuple[np.ndarray, float]:
    """Logits, and the largest magnitude in front of a ReLU."""
    import onnxruntime

    whole = onnx.shape_inference.infer_shapes(model)
    before = {n.input[0] for n in whole.graph.node if n.op_type == "Relu"}
    whole.graph.output.extend(v for v in whole.graph.value_info if v.name in before)
    session = onnxruntime.InferenceSession(whole.SerializeToString(), providers=["CPUExecutionProvider"])
    parts = [session.run(None, {"image": x[i : i + BATCH]}) for i in range(0, len(x), BATCH)]
    return np.concatenate([p[0] for p in parts]), max(float(np.abs(v).max()) for p in parts for v in p[1:])


def main() -> None:
    """Trains, prints the held-out accuracy, writes ``resnet20-relu.onnx``."""
    options = arguments(str(__doc__).split("\n", 1)[0], epochs=14)
    train_x, train_y, test_x, test_y = data.digits(32)
    print(f"resnet20-relu: {len(train_x)} digits to learn from, {len(test_x)} held out")
    weights = train(grey(train_x), train_y, epochs=options.epochs, seed=options.seed)
    model = narrow(zoo.build("resnet20", weights=weights))
    logits, largest = largest_operand(model, grey(np.concatenate([train_x, test_x])))
    accuracy = float((logits[len(train_x) :].argmax(axis=1) == test_y).mean())
    figures = {
        "held_out_accuracy": accuracy,
        "max_abs_pre_activation": largest,
        "max_abs_logit": float(np.abs(logits).max()),
    }
    helper.set_model_props(model, {k: f"{v:.4f}" for k, v in figures.items()})
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "resnet20-relu.onnx"
    onnx.save_model(model, path)
    print(
        f"  held-out accuracy {accuracy:.2%}, largest |pre-activation| {largest:.2f}, largest |logit| "
        f"{figures['max_abs_logit']:.2f}; wrote {path} ({path.stat().st_size / 1e3:.0f} kB)"
    )


if __name__ == "__main__":
    main()

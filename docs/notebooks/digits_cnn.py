"""Trains the network of ``pytorch.ipynb`` with NumPy and writes it as ONNX: no PyTorch is needed.

``python docs/notebooks/digits_cnn.py docs/notebooks/digits-cnn.onnx`` takes some seconds. In PyTorch its module is

    nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(128, 10))
"""

from __future__ import annotations

import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from sklearn.datasets import load_digits

Array = np.ndarray
CHANNELS, SIDE, CLASSES = 8, 8, 10
EPOCHS, BATCH, RATE = 40, 64, 0.003


def patches(x: Array) -> Array:
    """The 3 x 3 neighbourhood of every pixel: (images, 64, 9)."""
    padded = np.pad(x[:, 0], ((0, 0), (1, 1), (1, 1)))
    views = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(1, 2))
    return views.reshape(len(x), SIDE * SIDE, 9)


def forward(weights: dict[str, Array], x: Array) -> tuple[Array, Array, Array, Array]:
    """Patches, pre-activations (images, channels, 8, 8), pooled values and scores."""
    near = patches(x)
    before = (near @ weights["0.weight"].reshape(CHANNELS, 9).T + weights["0.bias"]).transpose(0, 2, 1)
    before = before.reshape(-1, CHANNELS, SIDE, SIDE)
    windows = np.maximum(before, 0).reshape(-1, CHANNELS, 4, 2, 4, 2).transpose(0, 1, 2, 4, 3, 5)
    pooled = windows.reshape(-1, CHANNELS, 4, 4, 4)
    scores = pooled.max(axis=-1).reshape(len(x), -1) @ weights["4.weight"].T + weights["4.bias"]
    return near, before, pooled, scores


def gradients(weights: dict[str, Array], x: Array, y: Array) -> dict[str, Array]:
    """Of the mean cross entropy."""
    near, before, pooled, scores = forward(weights, x)
    scores = np.exp(scores - scores.max(axis=1, keepdims=True))
    slope = scores / scores.sum(axis=1, keepdims=True)
    slope[np.arange(len(y)), y] -= 1
    slope /= len(y)
    flat = pooled.max(axis=-1).reshape(len(x), -1)
    back = (slope @ weights["4.weight"]).reshape(-1, CHANNELS, 4, 4)
    first = np.eye(4)[pooled.argmax(axis=-1)] * back[..., None]
    spread = first.reshape(-1, CHANNELS, 4, 4, 2, 2).transpose(0, 1, 2, 4, 3, 5).reshape(before.shape) * (before > 0)
    pixels = spread.reshape(len(x), CHANNELS, -1)
    return {
        "0.weight": np.einsum("ncp,npk->ck", pixels, near).reshape(CHANNELS, 1, 3, 3),
        "0.bias": pixels.sum(axis=(0, 2)),
        "4.weight": slope.T @ flat,
        "4.bias": slope.sum(axis=0),
    }


def train(x: Array, y: Array) -> dict[str, Array]:
    """Adam on random batches."""
    rng = np.random.default_rng(0)
    shapes = {"0.weight": (CHANNELS, 1, 3, 3), "0.bias": (CHANNELS,), "4.weight": (CLASSES, 128), "4.bias": (CLASSES,)}
    weights = {k: rng.normal(size=s) * (0.3 if len(s) > 1 else 0.0) for k, s in shapes.items()}
    mean, square = ({k: np.zeros(s) for k, s in shapes.items()} for _ in range(2))
    step = 0
    for _ in range(EPOCHS):
        order = rng.permutation(len(x))
        for at in range(0, len(x), BATCH):
            step += 1
            rows = order[at : at + BATCH]
            for k, g in gradients(weights, x[rows], y[rows]).items():
                mean[k] = 0.9 * mean[k] + 0.1 * g
                square[k] = 0.999 * square[k] + 0.001 * g * g
                size = np.sqrt(square[k] / (1 - 0.999**step)) + 1e-8
                weights[k] -= RATE * mean[k] / (1 - 0.9**step) / size
    return weights


def exported(weights: dict[str, Array]) -> onnx.ModelProto:
    """The ONNX model, an operator for every part of the module."""
    named = [numpy_helper.from_array(v.astype(np.float32), k) for k, v in weights.items()]
    nodes = [
        helper.make_node(
            "Conv", ["input", "0.weight", "0.bias"], ["/0/Conv_output_0"], name="/0/Conv",
            kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[1, 1], dilations=[1, 1], group=1,
        ),
        helper.make_node("Relu", ["/0/Conv_output_0"], ["/1/Relu_output_0"], name="/1/Relu"),
        helper.make_node(
            "MaxPool", ["/1/Relu_output_0"], ["/2/MaxPool_output_0"], name="/2/MaxPool",
            kernel_shape=[2, 2], strides=[2, 2], pads=[0, 0, 0, 0], ceil_mode=0, dilations=[1, 1],
        ),
        helper.make_node("Flatten", ["/2/MaxPool_output_0"], ["/3/Flatten_output_0"], name="/3/Flatten", axis=1),
        helper.make_node("Gemm", ["/3/Flatten_output_0", "4.weight", "4.bias"], ["output"], name="/4/Gemm", transB=1),
    ]  # fmt: skip
    graph = helper.make_graph(
        nodes,
        "main_graph",
        [helper.make_tensor_value_info("input", TensorProto.FLOAT, ["batch", 1, SIDE, SIDE])],
        [helper.make_tensor_value_info("output", TensorProto.FLOAT, ["batch", CLASSES])],
        named,
    )
    made = helper.make_model(graph, producer_name="docs/notebooks/digits_cnn.py", opset_imports=[
        helper.make_opsetid("", 17)
    ])  # fmt: skip
    made.ir_version = 8
    onnx.checker.check_model(made)
    return made


def main(path: str) -> None:
    """Trains on the first 1,500 digits, and says how many of the others are right."""
    digits = load_digits()
    x, y = digits.images[:, None] / 16.0, digits.target
    weights = train(x[:1500], y[:1500])
    right = forward(weights, x[1500:])[-1].argmax(axis=1) == y[1500:]
    onnx.save(exported(weights), path)
    print(f"{right.sum()} of {len(right)} held-out digits are right.")


if __name__ == "__main__":
    main(sys.argv[1])

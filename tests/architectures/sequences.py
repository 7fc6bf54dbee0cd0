"""Sequences, volumes and rows of a table: recurrent cells, convolutions over one and three axes, embeddings."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto

from .export import Export, T

INT64 = TensorProto.INT64


def lstm_tagger(
    opset: int = 11, steps: int = 32, words: int = 5000, width: int = 64, hidden: int = 128, tags: int = 17
) -> onnx.ModelProto:
    """Token ids, a table, an LSTM, a tag for every step."""
    net = Export(40, opset)
    x = net.embedding("embedding", net.input("tokens", steps, kind=INT64), words, width)
    x = net.recurrent("LSTM", "lstm", x, hidden)
    return net.model("lstm_tagger", tags=net.linear("fc", x, tags))


def bidirectional_lstm(
    opset: int = 17, steps: int = 50, features: int = 40, hidden: int = 128, layers: int = 2, classes: int = 10
) -> onnx.ModelProto:
    """Two bidirectional layers over features; the mean of all steps is classified."""
    net = Export(41, opset)
    x = net.input("features", steps, features)
    for layer in range(layers):
        x = net.recurrent("LSTM", f"lstm.{layer}", x, hidden, both=True)
    return net.model("bidirectional_lstm", output=net.linear("fc", net.mean(x, [1], keep=False), classes))


def gru(opset: int = 14, steps: int = 50, features: int = 16, hidden: int = 64, classes: int = 5) -> onnx.ModelProto:
    """A GRU, its last step classified."""
    net = Export(42, opset)
    x = net.recurrent("GRU", "gru", net.input("features", steps, features), hidden)
    return net.model("gru", output=net.linear("fc", net.select(x, 1, -1), classes))


def cnn_1d(opset: int = 13, length: int = 1000, width: int = 32, classes: int = 5) -> onnx.ModelProto:
    """Convolutions and pools over one axis (an electrocardiogram)."""
    net = Export(43, opset)
    x = net.input("signal", 2, length)
    for level in range(4):
        x = net.act(
            "relu", net.batch_norm(f"bn{level}", net.conv(f"conv{level}", x, width * 2 ** (level // 2), 7, bias=False))
        )
        x = net.pool("MaxPool", x, 2, 2)
    x = net.flatten(net.global_pool(x))
    return net.model("cnn_1d", output=net.act("softmax", net.linear("fc", x, classes)))


def tcn(opset: int = 16, length: int = 256, width: int = 64, levels: int = 4, classes: int = 10) -> onnx.ModelProto:
    """Dilated causal convolutions: padding of both sides, its end cut off, residual sums."""
    net = Export(44, opset)
    x = net.input("signal", 4, length)
    for level in range(levels):
        with net.scope(f"network.{level}"):
            y = x
            for number in (1, 2):
                pad = 2 * 2**level
                y = net.conv(f"conv{number}", y, width, 3, pad=pad, dilation=2**level, gain=0.7)
                y = net.act("relu", net.slice(y, 2, 0, length))
            shortcut = x if x.shape[1] == width else net.conv("downsample", x, width, 1)
            x = net.act("relu", net.add(y, shortcut))
    return net.model("tcn", output=net.linear("linear", net.select(x, 2, -1), classes))


def cnn_3d(opset: int = 12, side: int = 32, frames: int = 16, width: int = 16, classes: int = 10) -> onnx.ModelProto:
    """Convolutions and pools over three axes (a scan, or a film)."""
    net = Export(45, opset)
    x = net.input("volume", 1, frames, side, side)
    for level in range(3):
        x = net.act("relu", net.conv(f"conv{level}", x, width * 2**level, 3))
        x = net.pool("AveragePool" if level == 2 else "MaxPool", x, 2, 2)
    x = net.act("relu", net.linear("fc1", net.flatten(x), 4 * width))
    return net.model("cnn_3d", output=net.linear("fc2", x, classes))


def recommender(
    opset: int = 13, users: int = 5000, items: int = 2000, fields: int = 4, width: int = 32, hidden: int = 128
) -> onnx.ModelProto:
    """Wide and deep: tables of users, items and fields, numbers beside them, a product of embeddings and an MLP."""
    net = Export(46, opset)
    user, item = net.input("user", kind=INT64), net.input("item", kind=INT64)
    context, numbers = net.input("context", fields, kind=INT64), net.input("numbers", 6)
    u, i = net.embedding("user", user, users, width), net.embedding("item", item, items, width)
    c = net.view(net.embedding("context", context, 50, 8), None, -1)
    deep = net.concat([u, i, c, numbers], 1)
    for number, size in enumerate((hidden, hidden // 2)):
        deep = net.act("relu", net.linear(f"mlp.{2 * number}", deep, size))
    joined = net.concat([net.mul(u, i), deep], 1)
    return net.model("recommender", score=net.act("sigmoid", net.linear("predict", joined, 1)))


def mlp_batch_norm(opset: int = 11, features: int = 30, width: int = 256, classes: int = 2) -> onnx.ModelProto:
    """Standardised rows, three layers with BatchNormalization and dropout gone."""
    net = Export(47, opset)
    x: T = net.input("row", features)
    x = net.op("Sub", [x, net.constant(net.rng.normal(size=(1, features)), np.float32)], x.shape)
    x = net.op("Div", [x, net.constant(net.rng.uniform(0.5, 2.0, (1, features)), np.float32)], x.shape)
    for number in range(3):
        x = net.act("relu", net.batch_norm(f"{3 * number + 1}", net.linear(f"{3 * number}", x, width)))
    return net.model("mlp_batch_norm", output=net.linear("9", x, classes))


def last_states(kind: str, both: bool, steps: int = 4, features: int = 3, hidden: int = 5) -> onnx.ModelProto:
    """Last states of a cell, those of both directions joined, classified."""
    net = Export(48, 14)
    x = net.input("features", steps, features)
    h = net.recurrent(kind, "rnn", x, hidden, both, states=True)
    rows = [net.op("Gather", [h, net.constant(-i)], (1, hidden), axis=0) for i in ((2, 1) if both else (1,))]
    joined = net.concat(rows, 1) if both else rows[0]
    return net.model("last_states", output=net.linear("fc", joined, 3))

"""Normalisations: BatchNormalization is a diagonal layer (passes fold it into its neighbour); others are computed by the client."""

from __future__ import annotations

import numpy as np

from ..builder import Builder, Value
from ..call import Call
from ..errors import Unsupported
from ..registry import operator


def _columns(vector: np.ndarray, x: Value) -> np.ndarray:
    if vector.size != x.shape[0]:
        raise Unsupported(f"{vector.size} parameters for {x.shape[0]} channels", "Export the model again.")
    return vector.reshape((-1,) + (1,) * (len(x.shape) - 1))


@operator("BatchNormalization")
def batch_normalization(call: Call, build: Builder) -> Value:
    """``scale (x - mean) / sqrt(var + epsilon) + bias`` per channel, in binary64."""
    if call.attribute("training_mode", 0):
        raise Unsupported("it is in training mode", "Export the model for inference (model.eval()).")
    x = call.tensor(0)
    if not x.shape:
        raise Unsupported("a tensor without channels", "Give it shape (batch, channels, ...).")
    scale, bias, mean, variance = (_columns(call.constant(i), x) for i in range(1, 5))
    root = variance + float(call.attribute("epsilon", 1e-5))
    if np.any(root <= 0):
        raise Unsupported("a variance that is not positive", "Repair the trained statistics.")
    factor = scale / np.sqrt(root)
    return build.diagonal(x, factor, bias - factor * mean)


def _normalised(build: Builder, x: Value, axes: list[int], epsilon: float) -> Value:
    """``(x - mean) / sqrt(var + epsilon)`` over the axes."""
    shape = tuple(1 if a in axes else n for a, n in enumerate(x.shape))
    mean = build.client("reduce_mean", x, shape=shape, axes=axes)
    centred = build.client("sub", x, build.broadcast(mean, x.shape))
    variance = build.client("reduce_mean", build.client("square", centred), shape=shape, axes=axes)
    root = build.client("sqrt", build.affine(variance, 1.0, epsilon))
    return build.client("div", centred, build.broadcast(root, x.shape))


@operator("LayerNormalization")
def layer_normalization(call: Call, build: Builder) -> Value:
    """Normalised over the last axes, then scaled and shifted by the server."""
    x = call.tensor(0)
    first = call.axis(int(call.attribute("axis", -1)), len(x.shape))
    y = _normalised(build, x, list(range(first, len(x.shape))), float(call.attribute("epsilon", 1e-5)))
    scale = np.broadcast_to(call.constant(1), x.shape)
    shift = np.broadcast_to(call.constant(2), x.shape) if call.has(2) else np.zeros(x.shape)
    return build.diagonal(y, scale, shift)


@operator("InstanceNormalization")
def instance_normalization(call: Call, build: Builder) -> Value:
    """Normalised over the spatial axes, then scaled and shifted per channel by the server."""
    x = call.tensor(0)
    if len(x.shape) < 2:
        raise Unsupported("a tensor without spatial axes", "Give it shape (batch, channels, ...).")
    y = _normalised(build, x, list(range(1, len(x.shape))), float(call.attribute("epsilon", 1e-5)))
    return build.diagonal(y, _columns(call.constant(1), x), _columns(call.constant(2), x))

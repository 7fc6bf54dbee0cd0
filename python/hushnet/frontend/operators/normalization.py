"""Normalisations: BatchNormalization is a diagonal layer (passes fold it into its neighbour).

Others are computed by the client.
"""

from __future__ import annotations

import numpy as np

from ..builder import Builder, Value
from ..call import Call
from ..errors import Unsupported
from ..registry import operator
from . import pieces


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


def _statistics(build: Builder, x: Value, axes: list[int], epsilon: float) -> tuple[Value, Value, Value]:
    """Mean over the axes, x without it, and ``sqrt(var + epsilon)``."""
    mean = pieces.reduce(build, "reduce_mean", x, axes)
    centred = build.client("sub", x, build.broadcast(mean, x.shape))
    variance = pieces.reduce(build, "reduce_mean", build.client("square", centred), axes)
    return mean, centred, build.client("sqrt", build.affine(variance, 1.0, epsilon))


def _normalised(build: Builder, x: Value, axes: list[int], epsilon: float) -> Value:
    """``(x - mean) / sqrt(var + epsilon)`` over the axes."""
    _, centred, root = _statistics(build, x, axes, epsilon)
    return build.client("div", centred, build.broadcast(root, x.shape))


def _scaled(call: Call, build: Builder, y: Value) -> Value:
    """Scaled and shifted by inputs 1 and 2 over the last axes.

    By the server where they are constant, by the client otherwise.
    """
    if call.is_constant(1) and (not call.has(2) or call.is_constant(2)):
        scale = np.broadcast_to(_trailing(call.constant(1), y), y.shape)
        shift = np.broadcast_to(_trailing(call.constant(2), y), y.shape) if call.has(2) else np.zeros(y.shape)
        return build.diagonal(y, scale, shift)
    raise Unsupported("a scale that is computed from the network's input", "Make it an initializer.")


def _trailing(constant: np.ndarray, y: Value) -> np.ndarray:
    """Without axes of size 1 in front of an image's."""
    while constant.ndim > len(y.shape) and constant.shape[0] == 1:
        constant = constant[0]
    if constant.ndim > len(y.shape):
        raise Unsupported(
            f"a scale of shape {constant.shape} for images of shape {y.shape}",
            "Give it the shape of the normalised axes.",
        )
    return constant


@operator("LayerNormalization")
def layer_normalization(call: Call, build: Builder) -> list[Value]:
    """Normalised over the last axes, then scaled and shifted by the server; mean and inverse deviation beside it."""
    x = call.tensor(0)
    first = call.axis(int(call.attribute("axis", -1)), len(x.shape))
    axes = list(range(first, len(x.shape)))
    mean, centred, root = _statistics(build, x, axes, float(call.attribute("epsilon", 1e-5)))
    y = _scaled(call, build, build.client("div", centred, build.broadcast(root, x.shape)))
    if not any(call.outputs[1:]):
        return [y]
    return [y, mean, build.client("div", build.ones(root), root)]


@operator("RMSNormalization", "SimplifiedLayerNormalization")
def rms_normalization(call: Call, build: Builder) -> Value:
    """Divided by the root of the mean square over the last axes, then scaled by the server."""
    x = call.tensor(0)
    first = call.axis(int(call.attribute("axis", -1)), len(x.shape))
    square = pieces.reduce(build, "reduce_mean", build.client("square", x), range(first, len(x.shape)))
    root = build.client("sqrt", build.affine(square, 1.0, float(call.attribute("epsilon", 1e-5))))
    return _scaled(call, build, build.client("div", x, build.broadcast(root, x.shape)))


@operator("InstanceNormalization")
def instance_normalization(call: Call, build: Builder) -> Value:
    """Normalised over the spatial axes, then scaled and shifted per channel by the server."""
    x = call.tensor(0)
    if len(x.shape) < 2:
        raise Unsupported("a tensor without spatial axes", "Give it shape (batch, channels, ...).")
    y = _normalised(build, x, list(range(1, len(x.shape))), float(call.attribute("epsilon", 1e-5)))
    return build.diagonal(y, _columns(call.constant(1), x), _columns(call.constant(2), x))


@operator("GroupNormalization")
def group_normalization(call: Call, build: Builder) -> Value:
    """Normalised over groups of channels and the spatial axes, then scaled and shifted per channel.

    Before opset 21 scales and shifts are per group.
    """
    x = call.tensor(0)
    groups, channels = int(call.attribute("num_groups", 1)), x.shape[0]
    if groups < 1 or channels % groups:
        raise Unsupported(f"{groups} groups of {channels} channels", "Export the model again.")
    grouped = build.reshape(x, (groups, x.size // groups))
    y = build.reshape(_normalised(build, grouped, [1], float(call.attribute("epsilon", 1e-5))), x.shape)
    scale, shift = (
        np.repeat(v, channels // groups) if call.opset < 21 else v for v in (call.constant(1), call.constant(2))
    )
    return build.diagonal(y, _columns(scale, x), _columns(shift, x))

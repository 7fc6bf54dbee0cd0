"""Two linear steps in a row as one, where that is exact over the reals."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ...reference.linear import add_bias, apply, geometry_shapes
from .steps import Array, Geometry, Linear


@dataclass(frozen=True)
class _Axis:
    """One spatial axis of two convolutions, ``second(first(x))``."""

    kernel: int
    stride: int
    begin: int
    end: int
    dilation: int


def compose(first: Linear, second: Linear) -> Linear | None:
    """``second(first(x))`` as one step from the source of the first to the target of the second.

    None where none is exact.

    - dense after anything: ``W2 M1``, with M1 the matrix of the first;
    - conv after conv: the kernels convolved, stride the product; exact unless the second's zero padding takes the place
      of values that
      the first would have computed from its input. Groups: both dense (groups 1), or one of them depthwise.
    """
    if second.geometry["type"] == "dense":
        geometry, weights = _dense(first, second)
    elif first.geometry["type"] == "dense":
        return None
    else:
        made = _conv(first, second)
        if made is None:
            return None
        geometry, weights = made
    image = add_bias(
        second.geometry, apply(second.geometry, second.weights, first.bias_image()[None]), np.zeros(len(second.weights))
    )[0]
    bias = collapsed(geometry, image.reshape(geometry_shapes(geometry)[1]) + second.bias_image())
    return Linear(second.name, geometry, weights, bias, first.source, second.target)


def collapsed(geometry: Geometry, bias: Array) -> Array:
    """A bias image as one value per channel where it does not depend on the position."""
    if geometry["type"] == "dense":
        return np.ascontiguousarray(bias)
    rows = bias.reshape(bias.shape[0], -1)
    return rows[:, 0].copy() if np.all(rows == rows[:, :1]) else np.ascontiguousarray(bias)


def _dense(first: Linear, second: Linear) -> tuple[Geometry, Array]:
    given, _result, _ = geometry_shapes(first.geometry)
    weights = (
        second.weights @ first.weights
        if first.geometry["type"] == "dense"
        else transposed(first.geometry, first.weights, second.weights)
    )
    return {"type": "dense", "inputs": math.prod(given), "outputs": len(second.weights)}, weights.reshape(
        len(second.weights), -1
    )


def transposed(geometry: Geometry, weights: Array, rows: Array) -> Array:
    """``rows M`` for the matrix M of a convolution: rows of shape (B, O OH OW), result (B, C, H, W)."""
    (c, height, width), (o, oh, ow) = geometry["input"], geometry["output"]
    top, left = geometry["pads"][:2]
    (kh, kw), (sh, sw), (dh, dw), groups = (geometry[k] for k in ("kernel", "stride", "dilation", "groups"))
    reach_h, reach_w = (oh - 1) * sh + (kh - 1) * dh + 1, (ow - 1) * sw + (kw - 1) * dw + 1
    out = np.zeros((len(rows), c, max(reach_h, height + top), max(reach_w, width + left)))
    y = rows.reshape(len(rows), groups, o // groups, oh * ow)
    for i in range(kh):
        for j in range(kw):
            taps = weights[:, :, i, j].reshape(groups, o // groups, c // groups)
            part = np.einsum("bgok,goc->bgck", y, taps, optimize=True).reshape(len(rows), c, oh, ow)
            out[:, :, i * dh : i * dh + (oh - 1) * sh + 1 : sh, j * dw : j * dw + (ow - 1) * sw + 1 : sw] += part
    return out[:, :, top : top + height, left : left + width]


def _conv(first: Linear, second: Linear) -> tuple[Geometry, Array] | None:
    a, b = first.geometry, second.geometry
    if not all(_padding_is_zero(a, b, axis) for axis in range(2)):
        return None
    groups = _groups(a, b)
    if groups is None:
        return None
    axes = [_axis(a, b, axis) for axis in range(2)]
    if min(axis.end for axis in axes) < 0:
        return None
    kernel = _kernel(
        a, b, first.weights, second.weights, [axis.dilation for axis in axes], [axis.kernel for axis in axes]
    )
    geometry = {
        "type": "conv2d",
        "input": list(a["input"]),
        "output": list(b["output"]),
        "kernel": [axis.kernel for axis in axes],
        "stride": [axis.stride for axis in axes],
        "pads": [axes[0].begin, axes[1].begin, axes[0].end, axes[1].end],
        "dilation": [axis.dilation for axis in axes],
        "groups": groups,
    }
    return geometry, kernel


def _padding_is_zero(a: Geometry, b: Geometry, axis: int) -> bool:
    """Whether what the second pads with zeros would be zero anyway: computed by the first from its own padding only."""
    size, inner = a["input"][1 + axis], a["output"][1 + axis]
    for j in range(b["output"][1 + axis]):
        for k in range(b["kernel"][axis]):
            q = j * b["stride"][axis] + k * b["dilation"][axis] - b["pads"][axis]
            if 0 <= q < inner:
                continue
            low = q * a["stride"][axis] - a["pads"][axis]
            taps = range(low, low + (a["kernel"][axis] - 1) * a["dilation"][axis] + 1, a["dilation"][axis])
            if any(0 <= x < size for x in taps):
                return False
    return True


def _depthwise(g: Geometry) -> bool:
    return g["groups"] == g["input"][0] == g["output"][0]


def _groups(a: Geometry, b: Geometry) -> int | None:
    if _depthwise(a):
        return b["groups"]
    if _depthwise(b):
        return a["groups"]
    return 1 if a["groups"] == b["groups"] == 1 else None


def _axis(a: Geometry, b: Geometry, axis: int) -> _Axis:
    s1, s2, d1, d2 = a["stride"][axis], b["stride"][axis], a["dilation"][axis], b["dilation"][axis]
    reach = s1 * d2 * (b["kernel"][axis] - 1) + d1 * (a["kernel"][axis] - 1)
    offsets = [s1 * d2 if b["kernel"][axis] > 1 else 0, d1 if a["kernel"][axis] > 1 else 0]
    dilation = math.gcd(*offsets) or 1
    begin = s1 * b["pads"][axis] + a["pads"][axis]
    end = (b["output"][1 + axis] - 1) * s1 * s2 + reach + 1 - a["input"][1 + axis] - begin
    if end < 0 and -end < s1 * s2:
        # rows that no window reaches
        end = 0
    return _Axis(reach // dilation + 1, s1 * s2, begin, end, dilation)


def _kernel(a: Geometry, b: Geometry, first: Array, second: Array, dilation: list[int], size: list[int]) -> Array:
    if _depthwise(a):
        channels = np.arange(b["input"][0]).reshape(b["groups"], 1, -1)
        channels = np.broadcast_to(channels, (b["groups"], b["output"][0] // b["groups"], channels.shape[2]))
        inner = first[channels.reshape(b["output"][0], -1), 0]
        out = np.zeros((*second.shape[:2], *size))
        product = lambda k, j: inner * second[:, :, k, j][:, :, None, None]  # noqa: E731
    elif _depthwise(b):
        out = np.zeros((*first.shape[:2], *size))
        product = lambda k, j: first * second[:, :, k, j][:, :, None, None]  # noqa: E731
    else:
        out = np.zeros((second.shape[0], first.shape[1], *size))
        product = lambda k, j: np.einsum("om,mcij->ocij", second[:, :, k, j], first, optimize=True)  # noqa: E731
    for k in range(b["kernel"][0]):
        for l in range(b["kernel"][1]):  # noqa: E741
            start = [n * a["stride"][x] * b["dilation"][x] // dilation[x] for x, n in enumerate((k, l))]
            step = [a["dilation"][x] // dilation[x] if a["kernel"][x] > 1 else 1 for x in range(2)]
            rows = slice(start[0], start[0] + (a["kernel"][0] - 1) * step[0] + 1, step[0])
            columns = slice(start[1], start[1] + (a["kernel"][1] - 1) * step[1] + 1, step[1])
            out[:, :, rows, columns] += product(k, l)
    return out

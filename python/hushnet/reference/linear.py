"""Dense layers and convolutions on NumPy: the same code for exact integers and for real weights.

Integer sums are exact in binary64 matrix products while every partial sum stays below 2^53, and in int64 below 2^63.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

Array = np.ndarray
Geometry = dict[str, Any]

IM2COL_BYTES = 128 << 20
# elements of depthwise results at a time: they stay in a core's cache
BLOCK = 1 << 15


def geometry_shapes(geometry: Geometry) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Per-image input shape, output shape, and weight shape of a plan geometry."""
    if geometry["type"] == "dense":
        k, m = geometry["inputs"], geometry["outputs"]
        return (k,), (m,), (m, k)
    c, out = geometry["input"][0], geometry["output"][0]
    return tuple(geometry["input"]), tuple(geometry["output"]), (out, c // geometry["groups"], *geometry["kernel"])


def apply(geometry: Geometry, weight: Array, x: Array) -> Array:
    """``W x`` (no bias) for x of shape (B, *input); result (B, *output), in the common dtype of both."""
    if geometry["type"] == "dense":
        return x.reshape(x.shape[0], -1) @ weight.T
    return _convolve(geometry, weight, x)


def add_bias(geometry: Geometry, y: Array, bias: Array) -> Array:
    """``y + bias`` with one bias per output channel or feature."""
    return y + (bias if geometry["type"] == "dense" else bias.reshape(-1, 1, 1))


def windows(geometry: Geometry, x: Array, count: int, random: np.random.Generator) -> Array:
    """What single results are sums over, as binary32 ``[vectors, groups, inputs]`` in the order of a row of weights.

    Of a dense layer one vector an image; of a convolution ``count`` windows at random places of random images.
    """
    if geometry["type"] == "dense":
        return x.reshape(x.shape[0], 1, -1).astype(np.float32)
    (kh, kw), (sh, sw), (dh, dw) = geometry["kernel"], geometry["stride"], geometry["dilation"]
    _, out_h, out_w = geometry["output"]
    image, row, column = (random.integers(0, n, count) for n in (x.shape[0], out_h, out_w))
    padded = _padded(geometry, x).transpose(0, 2, 3, 1)
    found = np.empty((count, padded.shape[3], kh * kw), dtype=np.float32)
    if padded.size <= found.size:
        # channels of a place beside one another
        padded = np.ascontiguousarray(padded, dtype=np.float32)
    for tap in range(kh * kw):
        found[:, :, tap] = padded[image, row * sh + tap // kw * dh, column * sw + tap % kw * dw]
    return found.reshape(count, geometry["groups"], -1)


def row_norms(weight: Array) -> tuple[Array, Array]:
    """L1 norm (exact integers, as int64) and L2 norm (float64) of every row of integer weights."""
    rows = weight.reshape(weight.shape[0], -1).astype(np.int64)
    return np.abs(rows).sum(axis=1), np.sqrt((rows.astype(np.float64) ** 2).sum(axis=1))


def _padded(geometry: Geometry, x: Array) -> Array:
    _, _, height, width = x.shape
    top, left, bottom, right = geometry["pads"]
    (kh, kw), (sh, sw), (dh, dw) = geometry["kernel"], geometry["stride"], geometry["dilation"]
    _, out_h, out_w = geometry["output"]
    # what the last window reads, whatever the declared padding at the end
    need_h = (out_h - 1) * sh + (kh - 1) * dh + 1
    need_w = (out_w - 1) * sw + (kw - 1) * dw + 1
    bottom = max(bottom, need_h - height - top)
    right = max(right, need_w - width - left)
    return np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right))) if top or left or bottom or right else x


def _convolve(geometry: Geometry, weight: Array, x: Array) -> Array:
    batch = x.shape[0]
    out_c, out_h, out_w = geometry["output"]
    groups = geometry["groups"]
    kh, kw = geometry["kernel"]
    in_c = geometry["input"][0]
    padded = _padded(geometry, x)
    per_image = in_c * kh * kw * out_h * out_w * 8
    dtype = np.result_type(weight, x)
    out = np.zeros((batch, out_c, out_h, out_w), dtype=dtype)
    if in_c == groups and out_c == groups:
        _depthwise(geometry, weight, padded, out)
        return out
    if per_image > IM2COL_BYTES:
        _taps(geometry, weight, padded, out)
        return out
    chunk = max(1, IM2COL_BYTES // max(1, per_image))
    rows = weight.reshape(groups, out_c // groups, -1).astype(dtype)
    for start in range(0, batch, chunk):
        # one product a group for all images of the chunk: threads of BLAS meet once, not at every image
        part = padded[start : start + chunk].astype(dtype, copy=False).transpose(1, 0, 2, 3)
        columns = np.empty((in_c, kh * kw, part.shape[1], out_h, out_w), dtype=dtype)
        for tap in range(kh * kw):
            columns[:, tap] = _tap(geometry, part, tap // kw, tap % kw)
        found = np.matmul(rows, columns.reshape(groups, -1, part.shape[1] * out_h * out_w))
        found = found.reshape(out_c, -1, out_h, out_w)
        out[start : start + chunk] = found.transpose(1, 0, 2, 3)
    return out


def _tap(geometry: Geometry, padded: Array, i: int, j: int) -> Array:
    (sh, sw), (dh, dw) = geometry["stride"], geometry["dilation"]
    _, out_h, out_w = geometry["output"]
    rows = slice(i * dh, i * dh + (out_h - 1) * sh + 1, sh)
    columns = slice(j * dw, j * dw + (out_w - 1) * sw + 1, sw)
    return padded[:, :, rows, columns]


def _depthwise(geometry: Geometry, weight: Array, padded: Array, out: Array) -> None:
    batch, channels, out_h, out_w = out.shape
    step = max(1, BLOCK // max(1, out_h * out_w))
    images = max(1, step // max(1, channels))
    taps = [(i, j, _tap(geometry, padded, i, j)) for i, j in np.ndindex(*geometry["kernel"])]
    for image, begin in itertools.product(range(0, batch, images), range(0, channels, step)):
        part = slice(begin, begin + step)
        here = slice(image, image + images), part
        for i, j, view in taps:
            out[here] += view[here] * weight[part, 0, i, j].reshape(-1, 1, 1)


def _taps(geometry: Geometry, weight: Array, padded: Array, out: Array) -> None:
    batch, out_c, out_h, out_w = out.shape
    groups = geometry["groups"]
    for i, j in np.ndindex(*geometry["kernel"]):
        rows = weight[:, :, i, j].reshape(groups, out_c // groups, -1).astype(out.dtype)
        columns = _tap(geometry, padded, i, j).astype(out.dtype).reshape(batch, groups, -1, out_h * out_w)
        out += np.matmul(rows, columns).reshape(out.shape)

"""The forward pass with which the builder normalises its weights.

Exact, so that a seed gives the same bytes everywhere.

Activations are multiples of 2^-8 and weights short integers times a scale of four significant bits, so every product
and every sum of a layer fits the 53 bits of binary64: the order in which a BLAS adds, its threads and the CPU do not
matter. Arrays are float64 ``[n, c, h, w]`` or ``[n, features]``.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

GRID = 256.0
# of probabilities, which are small
FINE_GRID = 65536.0
# values of inputs that a product of a convolution has at most, beyond those of one image
_COLUMNS = 1 << 22
_SPREAD = math.sqrt(4 * (256**2 - 1) / 12)  # standard deviation of a sum of four uniform bytes


def snap(x: np.ndarray, grid: float = GRID) -> np.ndarray:
    """The nearest multiples of 1 / grid."""
    y = x * grid
    np.rint(y, out=y)
    y *= 1 / grid
    return y


def by_table(function: Callable[[float], float], x: np.ndarray) -> np.ndarray:
    """A function of numbers on the grid, computed once for each of the numbers between the least and the largest."""
    places = np.rint(x * GRID).astype(np.int64)
    first = int(places.min())
    table = np.array([function(k / GRID) for k in range(first, int(places.max()) + 1)])
    return table[places - first]


def short(x: float) -> float:
    """``x`` rounded to four significant bits."""
    mantissa, exponent = math.frexp(x)
    return math.ldexp(round(mantissa * 16), exponent - 4)


def bell(raw: np.ndarray, shape: tuple[int, ...], deviation: float) -> np.ndarray:
    """Nearly normal weights: (sum of four bytes - 510) times a short scale.

    ``raw`` holds four bytes for every weight.
    """
    total = raw.reshape(4, -1).sum(axis=0, dtype=np.int16) - np.int16(510)
    return (total.astype(np.float64) * short(deviation / _SPREAD)).reshape(shape)


def conv(x: np.ndarray, w: np.ndarray, stride: int, pads: tuple[int, int, int, int], groups: int) -> np.ndarray:
    """Cross-correlation; not rounded to the grid yet."""
    n, channels, _, _ = x.shape
    out, per_group, kh, kw = w.shape
    if any(pads):
        x = np.pad(x, ((0, 0), (0, 0), (pads[0], pads[2]), (pads[1], pads[3])))
    windows = np.lib.stride_tricks.sliding_window_view(x, (kh, kw), axis=(2, 3))[:, :, ::stride, ::stride]
    oh, ow = windows.shape[2:4]
    if groups == channels == out:
        y = np.zeros((n, out, oh, ow))
        for i in range(kh):
            for j in range(kw):
                y += windows[..., i, j] * w[:, 0, i, j].reshape(1, -1, 1, 1)
        return y
    y = np.empty((n, out, oh, ow))
    rows, inner, places = out // groups, per_group * kh * kw, oh * ow
    # Images share a product, as many as fit: where maps are small a product reads its weights once for all of them.
    together = max(1, min(n, _COLUMNS // (inner * places)))
    for first in range(0, n, together):
        for g in range(groups):
            part = windows[first : first + together, g * per_group : (g + 1) * per_group].transpose(1, 4, 5, 0, 2, 3)
            product = w[g * rows : (g + 1) * rows].reshape(rows, inner) @ part.reshape(inner, -1)
            y[first : first + together, g * rows : (g + 1) * rows] = product.reshape(rows, -1, oh, ow).swapaxes(0, 1)
    return y


def moments(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of every channel; ``x`` on the grid, so both sums are exact."""
    axes = (0, *range(2, x.ndim))
    count = x.size // x.shape[1]
    mean = x.sum(axis=axes) / count
    return mean, np.maximum((x * x).sum(axis=axes) / count - mean * mean, 0.0)


def per_channel(values: np.ndarray, x: np.ndarray) -> np.ndarray:
    """``values`` shaped to be broadcast over ``x``."""
    return values.reshape(1, -1, *([1] * (x.ndim - 2)))


def windows(x: np.ndarray, kernel: int, stride: int, pad: int, fill: float, out: tuple[int, int]) -> np.ndarray:
    """Pooling windows ``[n, c, oh, ow, kernel, kernel]``; ``fill`` stands for what lies outside."""
    h, w = x.shape[2:]
    more = [max(0, (o - 1) * stride + kernel - pad - size) for o, size in zip(out, (h, w))]
    x = np.pad(x, ((0, 0), (0, 0), (pad, more[0]), (pad, more[1])), constant_values=fill)
    view = np.lib.stride_tricks.sliding_window_view(x, (kernel, kernel), axis=(2, 3))
    return view[:, :, ::stride, ::stride][:, :, : out[0], : out[1]]

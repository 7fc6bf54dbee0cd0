"""Poolings over one to three axes.

One spatial axis becomes a row of height 1, and ceiling mode becomes padding at the end.
"""

from __future__ import annotations

import numpy as np

from ..builder import Builder, Value
from ..call import Call
from ..errors import Unsupported
from ..registry import operator
from . import pieces
from .windows import Windows, windows


def _windows(call: Call, x: Value) -> Windows:
    spatial = x.shape[1:]
    if not 1 <= len(spatial) <= 3:
        raise Unsupported(f"a pooling over {len(spatial)} spatial axes", "Pool over one, two or three axes at a time.")
    kernel = [int(k) for k in call.attribute("kernel_shape", [])]
    w = windows(call, spatial, kernel, ceil=bool(call.attribute("ceil_mode", 0)))
    if w.blind(spatial):
        raise Unsupported(
            f"some of its windows see only padding (pads {list(w.pads)})", "Use less padding than the window is wide."
        )
    return w


def _image(call: Call, build: Builder) -> tuple[Value, Windows, int]:
    x = call.tensor(0)
    w, rank = _windows(call, x), len(x.shape) - 1
    return (build.reshape(x, (x.shape[0], 1, x.shape[1])) if rank == 1 else x), w.flat(), rank


@operator("MaxPool")
def max_pool(call: Call, build: Builder) -> Value:
    """Padding never wins."""
    x, w, rank = _image(call, build)
    y = build.client(
        "max_pool",
        x,
        shape=(x.shape[0], *w.output),
        kernel=list(w.kernel),
        stride=list(w.stride),
        pads=list(w.reaching_pads(x.shape[1:])),
        dilation=list(w.dilation),
    )
    return build.reshape(y, (x.shape[0], *w.output[-rank:]))


@operator("AveragePool")
def average_pool(call: Call, build: Builder) -> Value:
    """Divides by the elements inside the input, or with count_include_pad inside the padded input.

    The overhang behind the padding never counts.
    """
    x, w, rank = _image(call, build)
    include = bool(call.attribute("count_include_pad", 0))
    if any(d != 1 for d, k in zip(w.dilation, w.kernel) if k > 1):
        y = _sums(build, x, w, include=include, mean=True)
        return build.reshape(y, (x.shape[0], *w.output[-rank:]))
    pads = w.reaching_pads(x.shape[1:])
    if include and any(w.overhang):
        # the padding becomes part of the input, and only the overhang stays outside
        x = build.pad(x, [0, *w.begin, 0, *w.end])
        pads, include = (*(0 for _ in w.begin), *w.overhang), False
    y = build.client(
        "average_pool",
        x,
        shape=(x.shape[0], *w.output),
        kernel=list(w.kernel),
        stride=list(w.stride),
        pads=list(pads),
        count_include_pad=include,
    )
    return build.reshape(y, (x.shape[0], *w.output[-rank:]))


def _sums(build: Builder, x: Value, w: Windows, *, include: bool, mean: bool) -> Value:
    """Sums or means over windows, axis by axis: both are products of what every axis weighs."""
    for axis, size in enumerate(x.shape[1:]):
        starts = np.arange(w.output[axis]) * w.stride[axis] - w.begin[axis]
        taps = starts + np.arange(w.kernel[axis])[:, None] * w.dilation[axis]
        inside = (taps >= 0) & (taps < size)
        counted = (taps < size + w.end[axis]) if include else inside
        weights = inside / (counted.sum(axis=0) if mean else 1.0)
        x = pieces.interpolate(build, x, 1 + axis, np.clip(taps, 0, size - 1), weights)
    return x


def _norm(build: Builder, x: Value, order: float) -> Value:
    """``|x|^p``."""
    size = build.client("abs", x)
    return size if order == 1 else pieces.power(build, size, order)


def _root(build: Builder, x: Value, order: float) -> Value:
    if order == 1:
        return x
    if order == 2:
        return build.client("sqrt", x)
    # zero has a root, and no logarithm
    return pieces.power(build, build.client("clip", x, min=1e-300, max=None), 1.0 / order)


@operator("LpPool")
def lp_pool(call: Call, build: Builder) -> Value:
    """``(sum |x|^p)^(1/p)`` over windows."""
    x = call.tensor(0)
    w, order = _windows(call, x), float(call.attribute("p", 2))
    return _root(build, _sums(build, _norm(build, x, order), w, include=False, mean=False), order)


@operator("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")
def global_pool(call: Call, build: Builder) -> Value:
    """Mean, maximum or norm over all spatial axes, kept with size 1."""
    x = call.tensor(0)
    if len(x.shape) < 2:
        raise Unsupported("a tensor without spatial axes", "Give it shape (batch, channels, ...).")
    axes = range(1, len(x.shape))
    if call.op_type == "GlobalLpPool":
        order = float(call.attribute("p", 2))
        return _root(build, pieces.reduce(build, "reduce_sum", _norm(build, x, order), axes), order)
    return pieces.reduce(build, "reduce_mean" if call.op_type == "GlobalAveragePool" else "reduce_max", x, axes)


@operator("LpNormalization")
def lp_normalization(call: Call, build: Builder) -> Value:
    """Divided by the norm along an axis; zero where all is zero."""
    x = call.tensor(0)
    axis, order = call.axis(int(call.attribute("axis", -1)), len(x.shape)), float(call.attribute("p", 2))
    norm = _root(build, pieces.reduce(build, "reduce_sum", _norm(build, x, order), [axis]), order)
    zero = build.client("equal", norm, build.affine(norm, 0.0, 0.0))
    return build.client("div", x, build.broadcast(build.client("add", norm, zero), x.shape))


@operator("LRN")
def local_response(call: Call, build: Builder) -> Value:
    """``x / (bias + alpha / size * sum of squares of neighbouring channels) ^ beta``."""
    x = call.tensor(0)
    size, channels = int(call.attribute("size", 1)), x.shape[0]
    offsets = np.arange(size)[:, None] - (size - 1) // 2
    taps = np.arange(channels) + offsets
    inside = (taps >= 0) & (taps < channels)
    total = pieces.interpolate(
        build, build.client("square", x), 0, np.clip(taps, 0, channels - 1), inside.astype(np.float64)
    )
    base = build.affine(total, float(call.attribute("alpha", 1e-4)) / size, float(call.attribute("bias", 1.0)))
    return build.client("mul", x, pieces.power(build, base, -float(call.attribute("beta", 0.75))))

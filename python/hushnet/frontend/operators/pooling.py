"""Poolings; one spatial axis becomes a row of height 1, and ceiling mode becomes padding at the end."""

from __future__ import annotations

from ..builder import Builder, Value
from ..call import Call
from ..errors import Unsupported
from ..registry import operator
from .windows import Windows, windows


def _image(call: Call, build: Builder) -> tuple[Value, Windows, int]:
    x = call.tensor(0)
    spatial = x.shape[1:]
    if len(spatial) not in (1, 2):
        raise Unsupported(f"a pooling over {len(spatial)} spatial axes", "Pool over one or two axes at a time.")
    kernel = [int(k) for k in call.attribute("kernel_shape", [])]
    w = windows(call, spatial, kernel, ceil=bool(call.attribute("ceil_mode", 0)))
    if w.blind(spatial):
        raise Unsupported(f"some of its windows see only padding (pads {list(w.pads)})", "Use less padding than the window is wide.")
    return (build.reshape(x, (x.shape[0], 1, spatial[0])) if len(spatial) == 1 else x), w.flat(), len(spatial)


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
    return build.reshape(y, (x.shape[0], *w.output[2 - rank :]))


@operator("AveragePool")
def average_pool(call: Call, build: Builder) -> Value:
    """Divides by the elements inside the input, or with count_include_pad inside the padded input (never by the overhang)."""
    x, w, rank = _image(call, build)
    if any(d != 1 for d, k in zip(w.dilation, w.kernel) if k > 1):
        raise Unsupported("a dilated average pooling", "Write it as a depthwise Conv with constant weights.")
    include = bool(call.attribute("count_include_pad", 0))
    pads = w.reaching_pads(x.shape[1:])
    if include and any(w.overhang):
        # the padding becomes part of the input, and only the overhang stays outside
        x = build.pad(x, [0, *w.begin, 0, *w.end])
        pads, include = (0, 0, *w.overhang), False
    y = build.client(
        "average_pool",
        x,
        shape=(x.shape[0], *w.output),
        kernel=list(w.kernel),
        stride=list(w.stride),
        pads=list(pads),
        count_include_pad=include,
    )
    return build.reshape(y, (x.shape[0], *w.output[2 - rank :]))


@operator("GlobalAveragePool", "GlobalMaxPool")
def global_pool(call: Call, build: Builder) -> Value:
    """Mean or maximum over all spatial axes, kept with size 1."""
    x = call.tensor(0)
    if len(x.shape) < 2:
        raise Unsupported("a tensor without spatial axes", "Give it shape (batch, channels, ...).")
    name = "reduce_mean" if call.op_type == "GlobalAveragePool" else "reduce_max"
    shape = (x.shape[0],) + (1,) * (len(x.shape) - 1)
    return build.client(name, x, shape=shape, axes=list(range(1, len(x.shape))))

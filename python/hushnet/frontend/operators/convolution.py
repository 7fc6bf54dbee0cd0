"""Conv and ConvTranspose over one to three spatial axes."""

from __future__ import annotations

import math

import numpy as np

from ...graph import Conv2d
from ..builder import Builder, Value
from ..call import Call
from ..errors import Unsupported
from ..registry import operator
from .windows import Windows, windows

# weights of a layer over three axes, written as one over two
LARGEST_WEIGHTS = 1 << 27


def _weights(call: Call, x: Value, weight: np.ndarray, channels_axis: int) -> int:
    """Groups of a convolution whose weights fit its operand."""
    spatial = len(x.shape) - 1
    if not 1 <= spatial <= 3:
        raise Unsupported(f"a convolution over {spatial} spatial axes", "Use Conv over one, two or three axes.")
    groups = int(call.attribute("group", 1))
    channels = weight.shape[1] * groups if channels_axis == 1 else weight.shape[0]
    if weight.ndim != len(x.shape) + 1 or groups < 1 or x.shape[0] != channels or weight.shape[0] % groups:
        raise Unsupported(
            f"weights of shape {weight.shape} with {groups} group(s) on {x.shape[0]} channels",
            "Export the model again.",
        )
    kernel = call.attribute("kernel_shape")
    if kernel is not None and tuple(kernel) != weight.shape[2:]:
        raise Unsupported(f"kernel_shape {kernel} and weights of shape {weight.shape}", "Export the model again.")
    return groups


@operator("Conv")
def conv(call: Call, build: Builder) -> Value:
    """A layer of the server; one spatial axis becomes a row of height 1, of three the first joins the channels."""
    x = call.tensor(0)
    weight = call.constant(1)
    return convolve(call, build, x, weight, call.constant(2) if call.has(2) else None)


def convolve(call: Call, build: Builder, x: Value, weight: np.ndarray, bias: np.ndarray | None) -> Value:
    """A convolution with the node's windows and groups, and the given weights."""
    groups = _weights(call, x, weight, 1)
    return _layer(build, x, (weight, bias), windows(call, x.shape[1:], weight.shape[2:]), groups)


def _layer(build: Builder, x: Value, layer: tuple[np.ndarray, np.ndarray | None], w: Windows, groups: int) -> Value:
    spatial, (weight, bias) = x.shape[1:], layer
    if len(spatial) == 3:
        return _volume(build, x, layer, w, groups)
    w = w.flat()
    image = (x.shape[0], *spatial) if len(spatial) == 2 else (x.shape[0], 1, spatial[0])
    y = build.linear(
        _geometry(image, weight.shape[0], w, groups), x, weight.reshape(*weight.shape[:2], *w.kernel), bias
    )
    return build.reshape(y, (weight.shape[0], *w.output[2 - len(spatial) :]))


def _geometry(image: tuple[int, ...], outputs: int, w: Windows, groups: int) -> Conv2d:
    return Conv2d(
        (image[0], image[1], image[2]),
        (outputs, w.output[0], w.output[1]),
        (w.kernel[0], w.kernel[1]),
        (w.stride[0], w.stride[1]),
        (w.begin[0], w.begin[1], w.end[0], w.end[1]),
        (w.dilation[0], w.dilation[1]),
        groups,
    )


def _volume(build: Builder, x: Value, layer: tuple[np.ndarray, np.ndarray | None], w: Windows, groups: int) -> Value:
    """Depth joins the channels.

    Plane d of channel c meets plane o of output m with tap t where ``d = o stride - pad + t dilation``.
    """
    weight, bias = layer
    outputs, inside, taps = weight.shape[:3]
    depth, planes = x.shape[1], w.output[0]
    if outputs * planes * inside * depth * math.prod(weight.shape[3:]) > LARGEST_WEIGHTS:
        raise Unsupported(
            f"a convolution over three axes, of {depth} planes into {planes}, whose weights as one over two axes are "
            f"more than {LARGEST_WEIGHTS}",
            "Use a shallower volume, or fewer channels.",
        )
    full = np.zeros((outputs, planes, inside, depth, *weight.shape[3:]))
    for o in range(planes):
        for t in range(taps):
            d = o * w.stride[0] - w.begin[0] + t * w.dilation[0]
            if 0 <= d < depth:
                full[:, o, :, d] = weight[:, :, t]
    flat = Windows(w.kernel[1:], w.stride[1:], w.dilation[1:], w.begin[1:], w.end[1:], w.output[1:], w.overhang[1:])
    image = (x.shape[0] * depth, *x.shape[2:])
    geometry = _geometry(image, outputs * planes, flat, groups)
    y = build.linear(
        geometry,
        x,
        full.reshape(outputs * planes, inside * depth, *weight.shape[3:]),
        None if bias is None else np.repeat(bias.reshape(-1), planes),
    )
    return build.reshape(y, (outputs, *w.output))


@operator("ConvTranspose")
def conv_transpose(call: Call, build: Builder) -> Value:
    """A convolution without strides for every remainder of output positions by the stride, results interleaved.

    Output position ``o = q stride + r - pad`` sums ``x[q - j] w[k]`` over the taps k with ``k dilation = r + j
    stride``.
    """
    x = call.tensor(0)
    weight = call.constant(1)
    groups = _weights(call, x, weight, 0)
    spatial = x.shape[1:]
    t = _transposed(call, spatial, weight.shape[2:])
    outputs = weight.shape[1] * groups
    phases = math.prod(t.stride)
    taps = [((k - 1) * d) // s + 1 for k, d, s in zip(t.kernel, t.dilation, t.stride)]
    rows = np.zeros((groups, weight.shape[1], *t.stride, weight.shape[0] // groups, *taps))
    grouped = weight.reshape(groups, weight.shape[0] // groups, *weight.shape[1:])
    for at in np.ndindex(*t.kernel):
        place = [divmod(k * d, s) for k, d, s in zip(at, t.dilation, t.stride)]
        # taps are counted from the last: a convolution looks forwards
        index = tuple(n - 1 - j for n, (j, _) in zip(taps, place))
        rows[(slice(None), slice(None), *(r for _, r in place), slice(None), *index)] = grouped[
            (slice(None), slice(None), slice(None), *at)
        ].swapaxes(1, 2)
    # positions q that any output needs
    last = [max(0, (low + n - 1)) // s for low, n, s in zip(t.begin, t.output, t.stride)]
    x = _room(build, x, last)
    positions = [q + 1 for q in last]
    inner = tuple(n - 1 for n in taps)
    ones = (1,) * len(taps)
    w = Windows(
        tuple(taps),
        ones,
        ones,
        inner,
        tuple(q + 1 - n for q, n in zip(last, x.shape[1:])),
        tuple(positions),
        (0,) * len(taps),
    )
    bias = np.repeat(call.constant(2).reshape(-1), phases) if call.has(2) else None
    y = _layer(build, x, (rows.reshape(outputs * phases, weight.shape[0] // groups, *taps), bias), w, groups)
    return _interleaved(build, build.reshape(y, (outputs, *t.stride, *positions)), t)


def _room(build: Builder, x: Value, last: list[int]) -> Value:
    """X without the elements at the end that no output position reads."""
    for axis, q in enumerate(last):
        if q < x.shape[1 + axis] - 1:
            x = build.slice(x, 1 + axis, 0, q + 1)
    return x


def _interleaved(build: Builder, y: Value, t: Windows) -> Value:
    """(outputs, remainders..., positions...) to (outputs, axes...), cut to the output's range."""
    axes = len(t.stride)
    order = [0] + [a for i in range(axes) for a in (1 + axes + i, 1 + i)]
    y = build.transpose(y, order)
    y = build.reshape(y, (y.shape[0], *(y.shape[1 + 2 * i] * y.shape[2 + 2 * i] for i in range(axes))))
    for axis, (low, count) in enumerate(zip(t.begin, t.output)):
        y = build.slice(y, 1 + axis, low, count)
    return y


def _transposed(call: Call, spatial: tuple[int, ...], kernel: tuple[int, ...]) -> Windows:
    """Strides, dilations, what is cut from the beginning and the output's sizes."""
    rank = len(spatial)
    lists = {
        n: [int(v) for v in call.attribute(n) or [one] * rank]
        for n, one in (("strides", 1), ("dilations", 1), ("output_padding", 0))
    }
    stride, dilation, extra = lists["strides"], lists["dilations"], lists["output_padding"]
    pads = [int(v) for v in call.attribute("pads") or [0] * (2 * rank)]
    if (
        len(pads) != 2 * rank
        or any(len(v) != rank for v in lists.values())
        or min(*stride, *dilation) < 1
        or min(extra) < 0
    ):
        raise Unsupported(
            f"strides {stride}, dilations {dilation}, pads {pads} for {rank} spatial axes", "Export the model again."
        )
    shape, mode = call.attribute("output_shape"), call.attribute("auto_pad", "NOTSET")
    begin, output = [], []
    for axis, size in enumerate(spatial):
        span = stride[axis] * (size - 1) + extra[axis] + (kernel[axis] - 1) * dilation[axis] + 1
        low, high = pads[axis], pads[rank + axis]
        if shape or mode.startswith("SAME"):
            wanted = int(shape[len(shape) - rank + axis]) if shape else size * stride[axis]
            # an output that is longer than all windows ends in zeros
            total = max(0, span - wanted)
            low = total // 2 if mode == "SAME_UPPER" else total - total // 2
            high = span - wanted - low
        elif mode == "VALID":
            low, high = 0, 0
        begin.append(low)
        output.append(span - low - high)
    return Windows(tuple(kernel), tuple(stride), tuple(dilation), tuple(begin), (0,) * rank, tuple(output), (0,) * rank)

"""Conv over one or two spatial axes."""

from __future__ import annotations

from ...graph import Conv2d
from ..builder import Builder, Value
from ..call import Call
from ..errors import Unsupported
from ..registry import operator
from .windows import windows


@operator("Conv")
def conv(call: Call, build: Builder) -> Value:
    """A layer of the server; one spatial axis becomes a row of height 1."""
    x = call.tensor(0)
    weight = call.constant(1)
    spatial = x.shape[1:]
    if len(spatial) not in (1, 2):
        raise Unsupported(f"a convolution over {len(spatial)} spatial axes", "Use Conv over one or two axes (split a 3-D kernel into 2-D slices).")
    groups = int(call.attribute("group", 1))
    if weight.ndim != len(x.shape) + 1 or groups < 1 or x.shape[0] != weight.shape[1] * groups or weight.shape[0] % groups:
        raise Unsupported(f"weights of shape {weight.shape} with {groups} group(s) on {x.shape[0]} channels", "Export the model again.")
    kernel = call.attribute("kernel_shape")
    if kernel is not None and tuple(kernel) != weight.shape[2:]:
        raise Unsupported(f"kernel_shape {kernel} and weights of shape {weight.shape}", "Export the model again.")
    w = windows(call, spatial, weight.shape[2:]).flat()
    outputs = weight.shape[0]
    image = (x.shape[0], 1, *spatial) if len(spatial) == 1 else x.shape
    geometry = Conv2d(
        (image[0], image[1], image[2]),
        (outputs, w.output[0], w.output[1]),
        (w.kernel[0], w.kernel[1]),
        (w.stride[0], w.stride[1]),
        (w.begin[0], w.begin[1], w.end[0], w.end[1]),
        (w.dilation[0], w.dilation[1]),
        groups,
    )
    bias = call.constant(2) if call.has(2) else None
    y = build.linear(geometry, x, weight.reshape(outputs, weight.shape[1], *w.kernel), bias)
    return build.reshape(y, (outputs, *w.output[2 - len(spatial) :]))

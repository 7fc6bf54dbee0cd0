"""Taps of a kernel that meet nothing but padding are dropped, with the padding that only they need.

Exact: such a tap multiplies zeros for every result. Temporal networks double their dilation from layer to layer; on a
signal shorter than that, only the middle tap is left of a kernel, and the padding would be many times the signal.
"""

from __future__ import annotations

from dataclasses import replace

from ..graph import Conv2d, Graph, Linear
from .edit import copy, replace_node


def trim_kernels(graph: Graph) -> Graph:
    """Trims every convolution whose outer taps reach no element of its input."""
    graph = copy(graph)
    for node in list(graph.nodes):
        if isinstance(node, Linear) and isinstance(node.geometry, Conv2d):
            trimmed = _trimmed(node, node.geometry)
            if trimmed is not None:
                replace_node(graph, node, trimmed)
    return graph


def _trimmed(node: Linear, g: Conv2d) -> Linear | None:
    pads, kernel, dilation, weight = list(g.pads), list(g.kernel), list(g.dilation), node.weight
    for axis in (0, 1):
        first, last = _taps(
            g.input[1 + axis],
            g.output[1 + axis],
            g.kernel[axis],
            g.stride[axis],
            g.dilation[axis],
            pads[axis],
            pads[2 + axis],
        )
        if last - first == g.kernel[axis]:
            continue
        pads[axis] -= first * g.dilation[axis]
        pads[2 + axis] -= (g.kernel[axis] - last) * g.dilation[axis]
        kernel[axis] = last - first
        dilation[axis] = 1 if kernel[axis] == 1 else dilation[axis]
        weight = weight[:, :, first:last] if axis == 0 else weight[:, :, :, first:last]
    if tuple(kernel) == g.kernel:
        return None
    fine = replace(
        g, kernel=(kernel[0], kernel[1]), pads=(pads[0], pads[1], pads[2], pads[3]), dilation=(dilation[0], dilation[1])
    )
    return replace(node, geometry=fine, weight=weight)


def _taps(size: int, results: int, kernel: int, stride: int, dilation: int, before: int, after: int) -> tuple[int, int]:
    """The taps that stay: from the first, up to the last one. Padding never becomes negative."""
    first, last = 0, kernel
    # the largest place that the first tap reads is in front of the input
    while (
        last - first > 1 and (results - 1) * stride - before + first * dilation < 0 and before >= (first + 1) * dilation
    ):
        first += 1
    # the least place that the last tap reads is behind it
    while last - first > 1 and (last - 1) * dilation - before >= size and after >= (kernel - last + 1) * dilation:
        last -= 1
    return first, last

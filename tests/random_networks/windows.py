"""Convolutions, transposed convolutions and pools of every geometry, over one to three axes."""

from __future__ import annotations

import math
from typing import Any

from .draft import Draft


def _divisors(number: int) -> list[int]:
    return [d for d in range(1, number + 1) if number % d == 0]


def _window(d: Draft, rank: int, *, dilated: bool, most: int = 3) -> dict[str, Any]:
    """Kernel, strides, dilations and padding by numbers or by rule."""
    attributes: dict[str, Any] = {"kernel_shape": [d.draw(1, most) for _ in range(rank)]}
    if d.chance(0.5):
        attributes["strides"] = [d.draw(1, 3) for _ in range(rank)]
    rule = d.pick(["", "", "", "", "VALID", "SAME_UPPER", "SAME_LOWER"])
    # ONNX does not say what SAME means where a stride skips elements
    if any(s > k for s, k in zip(attributes.get("strides", ()), attributes["kernel_shape"])):
        rule = ""
    # what SAME means with dilations is not the same to every runtime
    if dilated and not rule.startswith("SAME") and d.chance(0.35):
        attributes["dilations"] = [d.draw(1, 2) for _ in range(rank)]
    if rule:
        attributes["auto_pad"] = rule
    elif d.chance(0.6):
        # pools have no padding as wide as their kernel
        kernel = attributes["kernel_shape"]
        attributes["pads"] = [d.draw(0, min(2, k - 1)) for k in kernel] + [d.draw(0, min(2, k - 1)) for k in kernel]
    return attributes


def _fits(attributes: dict[str, Any], space: list[int]) -> bool:
    """Whether a kernel fits its padded input. ONNX infers one position where a stride hides that it does not."""
    rank = len(space)
    pads, dilations = attributes.get("pads", [0] * 2 * rank), attributes.get("dilations", [1] * rank)
    kernel = attributes["kernel_shape"]
    return attributes.get("auto_pad", "").startswith("SAME") or all(
        (k - 1) * s + 1 <= n + pads[a] + pads[rank + a] for a, (k, s, n) in enumerate(zip(kernel, dilations, space))
    )


def _starts_inside(attributes: dict[str, Any], space: list[int]) -> bool:
    """Whether the last window of ceil_mode starts in the input: ONNX Runtime leaves out others, which inference has."""
    rank = len(space)
    pads, dilations = attributes.get("pads", [0] * 2 * rank), attributes.get("dilations", [1] * rank)
    for a, (k, n) in enumerate(zip(attributes["kernel_shape"], space)):
        stride, reach = attributes.get("strides", [1] * rank)[a], (k - 1) * dilations[a] + 1
        if -(-(n + pads[a] + pads[rank + a] - reach) // stride) * stride >= n + pads[a]:
            return False
    return True


def conv(d: Draft, x: str) -> str | None:
    """Any groups, strides, dilations, padding; with and without bias."""
    channels, *space = d.shapes[x]
    if not 1 <= len(space) <= 3:
        return None
    groups = d.pick(_divisors(channels)) if d.chance(0.4) else 1
    outputs = groups * d.draw(1, max(1, 6 // groups))
    attributes = _window(d, len(space), dilated=True)
    if "pads" in attributes and d.chance(0.3):
        # a convolution may pad more than its kernel reaches
        attributes["pads"] = [d.draw(0, 3) for _ in attributes["pads"]]
    if not d.chance(0.7):
        attributes.pop("auto_pad", None)
    if not _fits(attributes, space):
        return None
    inputs = [x, d.weight(outputs, channels // groups, *attributes["kernel_shape"])]
    if d.chance(0.7):
        inputs.append(d.weight(outputs))
    return d.one("Conv", *inputs, group=groups, **attributes)


def conv_transpose(d: Draft, x: str) -> str | None:
    """Any groups, strides, dilations, padding of inputs and outputs."""
    channels, *space = d.shapes[x]
    if not 1 <= len(space) <= 3:
        return None
    rank = len(space)
    groups = d.pick(_divisors(channels)) if d.chance(0.3) else 1
    each = d.draw(1, 3)
    strides = [d.draw(1, 3) for _ in range(rank)]
    attributes: dict[str, Any] = {"kernel_shape": [d.draw(1, 3) for _ in range(rank)], "strides": strides}
    if d.chance(0.3):
        attributes["dilations"] = [d.draw(1, 2) for _ in range(rank)]
    if d.chance(0.5):
        attributes["pads"] = [d.draw(0, k - 1) for k in attributes["kernel_shape"] * 2]
    if d.chance(0.3):
        attributes["output_padding"] = [d.draw(0, s - 1) for s in strides]
    inputs = [x, d.weight(channels, each, *attributes["kernel_shape"], fan_in=channels // groups * 2)]
    if d.chance(0.6):
        inputs.append(d.weight(groups * each))
    return d.one("ConvTranspose", *inputs, group=groups, **attributes)


def _pooled(d: Draft, x: str, kind: str, **more: Any) -> str | None:
    _channels, *space = d.shapes[x]
    if not 1 <= len(space) <= 3:
        return None
    attributes = _window(d, len(space), dilated=True) | more
    if any(
        (k - 1) * s + 1 > n for k, s, n in zip(attributes["kernel_shape"], attributes.get("dilations", [1] * 3), space)
    ):
        return None
    if "auto_pad" not in attributes and d.chance(0.3) and _starts_inside(attributes, space):
        attributes["ceil_mode"] = 1
    if kind == "AveragePool" and d.chance(0.5):
        attributes["count_include_pad"] = 1
    return d.one(kind, x, **attributes)


def average_pool(d: Draft, x: str) -> str | None:
    """With and without the padding in its count."""
    return _pooled(d, x, "AveragePool")


def max_pool(d: Draft, x: str) -> str | None:
    """Of any window."""
    return _pooled(d, x, "MaxPool")


def lp_pool(d: Draft, x: str) -> str | None:
    """Of the first and the second norm."""
    return _pooled(d, x, "LpPool", p=d.draw(1, 2))


def global_average(d: Draft, x: str) -> str | None:
    """The mean of every channel."""
    return None if len(d.shapes[x]) < 2 else d.one("GlobalAveragePool", x)


def global_max(d: Draft, x: str) -> str | None:
    """The maximum of every channel."""
    return None if len(d.shapes[x]) < 2 else d.one("GlobalMaxPool", x)


def batch_norm(d: Draft, x: str) -> str | None:
    """With any statistics."""
    if len(d.shapes[x]) < 1:
        return None
    n = d.shapes[x][0]
    values = (d.rng.uniform(-1.5, 1.5, n), d.rng.uniform(-1, 1, n), d.rng.uniform(-1, 1, n), d.rng.uniform(0.3, 2, n))
    return d.one("BatchNormalization", x, *(d.constant(v) for v in values))


def gemm(d: Draft, x: str) -> str | None:
    """A dense layer on all elements."""
    size = math.prod(d.shapes[x])
    flat = d.one("Flatten", x) if len(d.shapes[x]) != 1 else x
    if flat is None:
        return None
    outputs = d.draw(1, 8)
    if d.chance(0.5):
        return d.one("Gemm", flat, d.weight(outputs, size), d.weight(outputs), transB=1)
    return d.one("Gemm", flat, d.weight(size, outputs, fan_in=size), alpha=0.5)


def matmul(d: Draft, x: str) -> str | None:
    """A dense layer on the last axis."""
    last = d.shapes[x][-1]
    return d.one("MatMul", x, d.weight(last, d.draw(1, 6), fan_in=last))

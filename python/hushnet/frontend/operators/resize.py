"""Resize: along every axis a public matrix, of which each row has a few weights.

Coordinates and filters are those of the ONNX operator specification (Resize-19).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ..builder import Builder, Value
from ..call import Call
from ..errors import Unsupported
from ..registry import operator
from . import pieces

_MODES = ("nearest", "linear", "cubic")
# a position so near the middle of two elements is in the middle: ONNX Runtime (1.32) allows as much for its roundings
_TIE = 1e-6


def _rounded(x: float, tie: int) -> int:
    """The nearest element; the one below (0) or above (1) the middle of two."""
    below = math.floor(x)
    return below + (tie if abs(x - below - 0.5) <= _TIE else x - below > 0.5)


_NEAREST: dict[str, Callable[[float], int]] = {
    "round_prefer_floor": lambda x: _rounded(x, 0),
    "round_prefer_ceil": lambda x: _rounded(x, 1),
    "floor": math.floor,
    "ceil": math.ceil,
}


@dataclass(frozen=True)
class Axis:
    """One axis that changes: sizes, output elements an input element, and the region of ``tf_crop_and_resize``."""

    size: int
    output: int
    scale: float
    region: tuple[float, float]


@dataclass(frozen=True)
class Filter:
    """How a coordinate becomes weights."""

    mode: str
    transform: str
    nearest: str
    cubic: float
    exclude: bool
    antialias: bool


def coordinate(axis: Axis, transform: str, index: int) -> float:
    """Where an output position lies on the input's axis, in binary32 and in the order in which ONNX Runtime computes.

    Where ``floor`` and ``ceil`` meet a whole number, and where two elements are as near, a rounding decides.
    """
    return float(_coordinate(axis, transform, np.float32(index)))


def _coordinate(axis: Axis, transform: str, index: np.float32) -> float | np.float32:
    one = np.float32
    size, scale, output = one(axis.size), one(axis.scale), one(axis.output)
    # what the scale asks for may have a fraction: ONNX defines two modes by it, ONNX Runtime by the output's length
    length = one(axis.scale * axis.size)
    if transform == "half_pixel" or (transform == "pytorch_half_pixel" and axis.output > 1):
        return (index + one(0.5)) / scale - one(0.5)
    if transform == "pytorch_half_pixel":
        return 0.0
    if transform == "half_pixel_symmetric":
        offset = size / one(2) * (one(1) - output / (scale * size))
        # the sum is of binary64, and is rounded once
        return one(float(offset) + (float(index) + 0.5) / float(scale) - 0.5)
    if transform == "asymmetric":
        return index / scale
    if transform == "tf_half_pixel_for_nn":
        return (index + one(0.5)) / scale
    if transform == "align_corners":
        return index * (size - one(1)) / (length - one(1)) if length != 1 and index else 0.0
    if transform == "tf_crop_and_resize":
        start, end = one(axis.region[0]), one(axis.region[1])
        if length == 1:
            return one(0.5 * float(start + end) * float(size - one(1)))
        inner = index * (end - start) * (size - one(1)) / (length - one(1)) if index else one(0)
        return start * (size - one(1)) + inner
    raise Unsupported(f"coordinates by {transform!r}", "Use half_pixel, align_corners or asymmetric.")


def _cubic(distance: float, a: float) -> float:
    if distance <= 1:
        return ((a + 2) * distance - (a + 3)) * distance**2 + 1
    return ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a if distance < 2 else 0.0


def matrix(axis: Axis, filter_: Filter) -> np.ndarray:
    """The weights of every input position (columns) in every output position (rows)."""
    rows = np.zeros((axis.output, axis.size))
    stretch = min(axis.scale, 1.0) if filter_.antialias else 1.0
    reach = (1.0 if filter_.mode == "linear" else 2.0) / stretch
    for index in range(axis.output):
        x = coordinate(axis, filter_.transform, index)
        if filter_.transform == "tf_crop_and_resize" and not 0 <= x <= axis.size - 1:
            continue
        if filter_.mode == "nearest":
            rows[index, min(max(_NEAREST[filter_.nearest](x), 0), axis.size - 1)] = 1.0
            continue
        taps = range(math.ceil(x - reach), math.floor(x + reach) + 1)
        distances = [abs(p - x) * stretch for p in taps]
        weights = [max(0.0, 1.0 - d) if filter_.mode == "linear" else _cubic(d, filter_.cubic) for d in distances]
        if filter_.exclude:
            weights = [w if 0 <= p < axis.size else 0.0 for p, w in zip(taps, weights)]
        total = sum(weights) if filter_.exclude or filter_.antialias else 1.0
        for position, weight in zip(taps, weights):
            rows[index, min(max(position, 0), axis.size - 1)] += weight / total
    return rows


def _product(scale: float, size: int) -> float:
    """An axis times a scale in binary32, as ONNX infers shapes: seven tenths of 10 are 7."""
    return float(np.float32(scale) * np.float32(size))


def _sizes(call: Call, x: Value) -> tuple[list[int], list[int], list[float], list[float]]:
    """Axes (of the whole tensor), output sizes, scales and region."""
    rank, full = len(x.shape) + 1, (call.batch, *x.shape)
    given = call.attribute("axes")
    axes = list(range(rank)) if given is None else [int(a) % rank for a in given]
    scales, sizes = call.constant(2, np.zeros(0)).reshape(-1), call.integers(3) or []
    region = call.constant(1, np.zeros(0)).reshape(-1)
    policy = call.attribute("keep_aspect_ratio_policy", "stretch")
    if sizes:
        if len(sizes) != len(axes):
            raise Unsupported(f"{len(sizes)} sizes for {len(axes)} axes", "Export the model again.")
        ratios = [s / full[a] for s, a in zip(sizes, axes)]
        if policy not in {"stretch", "not_larger", "not_smaller"}:
            raise Unsupported(f"the policy {policy!r}", "Use stretch.")
        if policy != "stretch":
            ratio = min(ratios) if policy == "not_larger" else max(ratios)
            sizes, ratios = [math.floor(_product(ratio, full[a]) + 0.5) for a in axes], [ratio] * len(axes)
    else:
        if len(scales) != len(axes) or np.any(scales <= 0):
            raise Unsupported(f"scales {scales.tolist()} for {len(axes)} axes", "Export the model again.")
        ratios = [float(s) for s in scales]
        sizes = [math.floor(_product(s, full[a])) for a, s in zip(axes, ratios)]
    regions = [float(v) for v in region] if len(region) == 2 * len(axes) else [0.0] * len(axes) + [1.0] * len(axes)
    return axes, sizes, ratios, regions


@operator("Resize")
def resize(call: Call, build: Builder) -> Value:
    """Nearest positions are selected; linear and cubic ones are sums with public weights, axis by axis."""
    x = call.tensor(0)
    axes, sizes, scales, regions = _sizes(call, x)
    mode = call.attribute("mode", "nearest")
    transform = call.attribute("coordinate_transformation_mode", "half_pixel")
    nearest = call.attribute("nearest_mode", "round_prefer_floor")
    if mode not in _MODES or nearest not in _NEAREST:
        raise Unsupported(f"mode {mode!r} with {nearest!r}", "Use nearest, linear or cubic.")
    exclude, antialias = (
        bool(call.attribute("exclude_outside", 0)),
        bool(call.attribute("antialias", 0)) and mode != "nearest",
    )
    cubic = float(call.attribute("cubic_coeff_a", -0.75))
    filter_ = Filter(mode, transform, nearest, cubic, exclude and mode != "nearest", antialias)
    outside = float(call.attribute("extrapolation_value", 0.0))
    inside = np.ones((1,) * len(x.shape))
    for position in sorted(range(len(axes)), key=lambda i: scales[i]):
        axis, output = axes[position], sizes[position]
        size = call.batch if axis == 0 else x.shape[axis - 1]
        region = (regions[position], regions[len(axes) + position])
        if output == size and (scales[position] == 1.0 or axis == 0) and transform != "tf_crop_and_resize":
            continue
        if output < 1:
            raise Unsupported(f"axis {axis} shrinks to nothing", "Use a larger input.")
        rows = matrix(Axis(size, output, scales[position], region), filter_)
        if np.array_equal(rows, np.eye(size)):
            continue
        if axis == 0:
            raise Unsupported("it resizes the batch axis", "Keep the batch as it is.")
        x = pieces.mapped(build, x, axis - 1, rows)
        shown = rows.any(axis=1).reshape([-1 if a == axis - 1 else 1 for a in range(len(x.shape))])
        inside = inside * shown
    if outside and not inside.all():
        x = build.client("add", x, pieces.public(build, x, outside * (1.0 - np.broadcast_to(inside, x.shape))))
    return x

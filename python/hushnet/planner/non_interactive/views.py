"""Tensors of the graph while steps are written: polynomials of elements of a base, or several behind each other."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ...reference.ops import OPS
from .steps import Array

IDENTITY = (0.0, 1.0)


@dataclass(frozen=True)
class View:
    """``p(base[index])``; ``weight`` multiplies every element (means whose windows hold different numbers)."""

    base: int
    shape: tuple[int, ...]
    coefficients: tuple[float, ...] = IDENTITY
    index: Array | None = None
    weight: Array | None = None

    def flat(self) -> Array:
        """The element of the base at every place."""
        return np.arange(math.prod(self.shape)) if self.index is None else self.index.reshape(-1)


@dataclass(frozen=True)
class Parts:
    """Views behind each other along one axis."""

    views: tuple[View, ...]
    axis: int
    shape: tuple[int, ...]


def same(x: View, y: View) -> bool:
    """Views of the same elements."""
    return (
        x.base == y.base
        and x.shape == y.shape
        and np.array_equal(x.flat(), y.flat())
        and x.weight is None
        and y.weight is None
    )


def moved(view: View, op: str, attrs: dict, shape: tuple[int, ...]) -> View:
    """A view through an op that only moves elements; what a padding adds is element -1."""

    def through(values: Array, fill: float) -> Array:
        extra = {"value": fill} if op == "pad" else {}
        return OPS[op]({**attrs, **extra}, [values.reshape(1, *view.shape)], shape)[0].reshape(shape)

    index = np.rint(through(view.flat().astype(np.float64), -1.0)).astype(np.int64)
    weight = None if view.weight is None else through(view.weight, 1.0)
    return View(view.base, shape, view.coefficients, index, weight)


def channel_order(index: Array, image: tuple[int, ...], base: tuple[int, ...]) -> Array | None:
    """The channel of the base that every channel of an image is, where the image is whole channels of it, each once."""
    if len(base) != 3 or base[1:] != tuple(image[1:]) or index.min(initial=0) < 0:
        return None
    rows = index.reshape(image[0], -1)
    area = rows.shape[1]
    order = rows[:, 0] // area
    whole = np.array_equal(rows, order[:, None] * area + np.arange(area))
    return order if whole and len(np.unique(order)) == len(order) else None


def pieces(parts: Parts) -> list[tuple[View, Array]]:
    """Every view with the flat positions that it has in the concatenation."""
    found, start = [], 0
    where = np.arange(math.prod(parts.shape)).reshape(parts.shape)
    for view in parts.views:
        size = view.shape[parts.axis]
        found.append((view, where.take(np.arange(start, start + size), axis=parts.axis).reshape(-1)))
        start += size
    return found

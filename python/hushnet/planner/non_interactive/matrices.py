"""Layers as matrices, and what becomes of a layer's weights when it reads its input in another form."""

from __future__ import annotations

import math

import numpy as np

from ... import graph as g
from ...errors import PlanError
from ...reference.linear import apply
from .compose import collapsed
from .steps import Array
from .views import View, channel_order

MAX_MATRIX = 1 << 24


def matrix_fits(rows: int, columns: int) -> bool:
    """Whether a matrix of so many rows and columns is small enough."""
    return rows * columns <= MAX_MATRIX


def matrix_of(geometry: dict, weights: Array) -> Array:
    """The matrix of a convolution, (outputs, inputs)."""
    size = math.prod(geometry["input"])
    columns = [
        apply(geometry, weights, part.reshape(-1, *geometry["input"]))
        for part in np.array_split(np.eye(size), max(1, size // 256))
    ]
    return np.concatenate(columns).reshape(size, -1).T


def check_matrix(name: str, rows: int, columns: int) -> None:
    """PlanError where a matrix of so many rows and columns is too large for node ``name``."""
    if rows * columns > MAX_MATRIX:
        raise PlanError(
            f"node {name!r} needs a matrix of {rows} x {columns}; use a smaller image, or a layer "
            "that keeps the order of elements"
        )


def channels_back(view: View, geometry: dict, weights: Array, base: tuple[int, ...]) -> tuple[dict, Array]:
    """A convolution for the channels in the order of the base, with zeros for those that the view does not have."""
    if view.index is None:
        return geometry, weights
    order = channel_order(view.index, tuple(geometry["input"]), base)
    assert order is not None
    placed = np.zeros((len(weights), base[0], *weights.shape[2:]))
    placed[:, order] = weights
    return {**geometry, "input": list(base)}, placed


def behind_affine(geometry: dict, weights: Array, bias: Array, scale: float, shift: float) -> tuple[Array, Array]:
    """Weights and bias of a convolution of ``scale x + shift``."""
    if shift == 0.0:
        return weights * scale, bias
    ones = np.full((1, *geometry["input"]), shift)
    image = apply(geometry, weights, ones)[0] + bias.reshape(-1, 1, 1)
    return weights * scale, collapsed(geometry, image)


def restricts(node: g.Linear, where: Array, shape: tuple[int, ...]) -> bool:
    """Whether a layer can read a part of its input alone.

    Any elements of a dense one, whole channels of a convolution without groups.
    """
    if isinstance(node.geometry, g.Dense):
        return True
    area = math.prod(node.geometry.input[1:])
    whole = len(where) == len(np.unique(where // area)) * area and len(shape) == 3
    return node.geometry.groups == 1 and whole


def restricted(node: g.Linear, geometry: dict, weights: Array, where: Array) -> tuple[dict, Array]:
    """The layer on a part of its input."""
    if isinstance(node.geometry, g.Dense):
        return {**geometry, "inputs": len(where)}, weights[:, where]
    order = np.unique(where // math.prod(node.geometry.input[1:]))
    return {**geometry, "input": [len(order), *geometry["input"][1:]]}, weights[:, order]

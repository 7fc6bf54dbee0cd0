"""The graph between the front end and the planner: linear layers with float weights, and client ops.

Shapes are per image (no batch axis), channels first. Op names and attributes are those of ``docs/plan-format.md``
(without quantize and dequantize, which the planner places). Nodes are in topological order.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Dense:
    """``y = W x + b`` with W of shape (outputs, inputs); x is any tensor of ``inputs`` elements, row-major."""

    inputs: int
    outputs: int


@dataclass(frozen=True)
class Conv2d:
    """Cross-correlation as ONNX Conv has it.

    W of shape (O, C/groups, kh, kw), zero padding (top, left, bottom, right).
    """

    input: tuple[int, int, int]
    output: tuple[int, int, int]
    kernel: tuple[int, int]
    stride: tuple[int, int] = (1, 1)
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)
    dilation: tuple[int, int] = (1, 1)
    groups: int = 1


Geometry = Dense | Conv2d


@dataclass
class Linear:
    """A layer whose weights belong to the server."""

    name: str
    input: str
    output: str
    geometry: Geometry
    weight: np.ndarray  # float64
    bias: np.ndarray  # float64, shape (O,) or (M,)


@dataclass
class Op:
    """A client op (public: it carries no weights)."""

    name: str
    op: str
    inputs: list[str]
    output: str
    attrs: dict[str, Any] = field(default_factory=dict)


Node = Linear | Op


@dataclass
class Graph:
    """A network: tensors by name with their per-image shapes, nodes in topological order."""

    name: str
    inputs: list[str]
    outputs: list[str]
    shapes: dict[str, Shape]
    nodes: list[Node]


def unused(hint: str, taken: Container[str]) -> str:
    """A name of a tensor that is not taken: the hint, or the hint with a number behind it."""
    name, number = hint, 0
    while name in taken:
        number += 1
        name = f"{hint}.{number}"
    return name

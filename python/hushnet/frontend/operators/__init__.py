"""The lowerings, one module per family; importing this package fills :data:`hushnet.frontend.registry.OPERATORS`."""

from __future__ import annotations

from . import (
    activation,
    arithmetic,
    attention,
    convolution,
    einsum,
    fourier,
    logic,
    matmul,
    movement,
    normalization,
    pooling,
    quantised,
    recurrent,
    reduction,
    resize,
    shaping,
)  # fmt: skip
from .unsupported import Skipped, advice

__all__ = [
    "Skipped", "activation", "advice", "arithmetic", "attention", "convolution", "einsum", "fourier", "logic", "matmul",
    "movement", "normalization",
    "pooling", "quantised", "recurrent", "reduction", "resize", "shaping",
]  # fmt: skip

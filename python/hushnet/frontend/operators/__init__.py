"""The lowerings, one module per family; importing this package fills :data:`hushnet.frontend.registry.OPERATORS`."""

from __future__ import annotations

from . import activation, arithmetic, convolution, matmul, movement, normalization, pooling, reduction, shaping
from .unsupported import Skipped, advice

__all__ = [
    "Skipped", "activation", "advice", "arithmetic", "convolution", "matmul", "movement", "normalization", "pooling",
    "reduction", "shaping",
]  # fmt: skip

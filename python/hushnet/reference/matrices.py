"""Products of two shared tensors of matrices: sizes, what the run time says of them, and their exact sums."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import _native

Array = np.ndarray

# units that a result may be off by before it is divided: one for each cross term
UNITS = 2


@dataclass(frozen=True)
class Sizes:
    """Heads, and the matrices of each: ``rows x inner`` times ``inner x columns``."""

    heads: int
    rows: int
    inner: int
    columns: int

    @classmethod
    def of(cls, a: Sequence[int], b: Sequence[int]) -> Sizes:
        """Those of the shapes ``[..., rows, inner]`` and ``[..., inner, columns]``."""
        return cls(math.prod(a[:-2]), a[-2], a[-1], b[-1])

    @property
    def terms(self) -> int:
        """Products of an element of one operand and one of the other."""
        return self.heads * self.rows * self.inner * self.columns


@dataclass(frozen=True)
class Figures:
    """What the run time says of a product for one image.

    Attributes:
        ring_bits: of the ring in which it is computed.
        unit_fraction: of results that are a unit or two off before they are divided.
        counts: operations and bytes, by the names of ``_native.matrix_product_cost``.
    """

    ring_bits: int
    unit_fraction: float
    counts: Mapping[str, int]


@functools.lru_cache(maxsize=4096)
def figures(sizes: Sizes, reaches: tuple[int, int]) -> Figures:
    """Figures of a product of operands below ``2^reach`` each.

    Raises:
        ValueError: no ciphertexts hold it; the text says which limit is exceeded.
    """
    counts, fraction = _native.matrix_product_cost((sizes.heads, sizes.rows, sizes.inner, sizes.columns), reaches)
    return Figures(counts["ring_bits"], fraction, counts)


def of_stage(tensors: Sequence[dict[str, Any]], stage: dict[str, Any]) -> tuple[Sizes, Figures]:
    """Sizes and figures of a plan's stage."""
    a, b = (tensors[t] for t in stage["in"])
    sizes = Sizes.of(a["shape"], b["shape"])
    return sizes, figures(sizes, (reach(a), reach(b)))


def reach(tensor: dict[str, Any]) -> int:
    """The power of two below which a shared tensor's values lie."""
    return int(tensor["reach_bits"]) if "reach_bits" in tensor else _native.reach_bits(tensor["bound"])


def sums(xs: Sequence[Array], shape: tuple[int, ...]) -> Array:
    """Products of the matrices of a batch, exactly: sums are below 2^53 where ciphertexts hold them."""
    found = np.matmul(*(np.asarray(x, dtype=np.float64) for x in xs))
    return np.rint(found).astype(np.int64).reshape(len(xs[0]), *shape)


def masking(fraction: float, shape: tuple[int, ...], units: np.random.Generator) -> Array:
    """Units of masking of results, of which this fraction has one."""
    off = units.random(shape) < fraction
    found = units.integers(0, 2, size=shape)
    found *= 2
    found -= 1
    found *= off
    return found

"""Products of private tensors, as sums, differences and squares: ``x y = (x + y)^2 / 4 - (x - y)^2 / 4``.

Squares are what both engines are made for: one level, no rotation, and no scale of its own. Where one factor is known
to be much
larger than the other, both are brought to one size first, since the squares would otherwise be far larger than their
difference.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.polynomial import polynomial as poly

from ... import graph as g
from ...errors import PlanError
from .views import Parts, View, moved, same

if TYPE_CHECKING:
    from .lower import _Lowering

# ops that multiply private tensors
PRODUCTS = frozenset({"mul", "matmul"})
# factors whose sizes differ by less are multiplied as they are
UNEVEN = 4.0
# products of a matrix product, which stand in one tensor
MOST_PRODUCTS = 4096


def product(low: _Lowering, node: g.Op, shape: tuple[int, ...], x: View, y: View) -> View:
    """Element by element; of two polynomials of one tensor a polynomial."""
    if same(x, y):
        return low.with_polynomial(node, x, poly.polymul(x.coefficients, y.coefficients))
    sizes = [low.magnitudes.get(name, 0.0) for name in node.inputs]
    even = math.sqrt(sizes[1] / sizes[0]) if min(sizes, default=0.0) > 0 else 1.0
    if 1 / UNEVEN < even < UNEVEN:
        even = 1.0
    x, y = (replace(v, coefficients=tuple(k * c for c in v.coefficients)) for v, k in ((x, even), (y, 1 / even)))
    squares = []
    for word, sign in (("sum", 1.0), ("difference", -1.0)):
        part = g.Op(f"{node.name}.{word}", "add", [], f"{node.output}.{word}")
        both = low.op_add(part, shape, x, replace(y, coefficients=tuple(sign * c for c in y.coefficients)))
        square = 0.25 * sign * poly.polymul(both.coefficients, both.coefficients)
        squares.append(low.with_polynomial(part, both, square))
    return low.op_add(node, shape, *squares)


class MatrixProduct:
    """``x y`` over the last two axes: every product of an element of a row with one of a column, and their sums."""

    def __init__(self, low: _Lowering, node: g.Op, shape: tuple[int, ...]) -> None:
        self.low, self.node, self.shape = low, node, shape

    def run(self, x: View, y: View) -> View:
        """The result.

        Raises:
            PlanError: more than 4,096 products.
        """
        node, terms = self.node, x.shape[-1]
        every = (*self.shape, terms)
        if math.prod(every) > MOST_PRODUCTS:
            raise PlanError(
                f"node {node.name!r} (matmul) makes {math.prod(every)} products of private values, and non-interactive "
                f"plans take {MOST_PRODUCTS} at most; use smaller matrices, or trust='client-aided'"
            )
        rows = _spread(x, every, lambda v: v[..., :, None, :])
        columns = _spread(y, every, lambda v: np.swapaxes(v, -1, -2)[..., None, :, :])
        made = product(self.low, replace(node, output=f"{node.output}.products"), every, rows, columns)
        added = replace(node, name=f"{node.name}.added")
        return self.low.summed(added, self.shape, made, (len(every) - 1,), 1.0)


def _spread(view: View, shape: tuple[int, ...], take: Callable[[np.ndarray], np.ndarray]) -> View:
    """The elements of a view, some several times."""
    index = np.broadcast_to(take(view.flat().reshape(view.shape)), shape)
    weight = None if view.weight is None else np.broadcast_to(take(view.weight.reshape(view.shape)), shape)
    return View(view.base, shape, view.coefficients, index, weight)


def product_of_all(low: _Lowering, node: g.Op, shape: tuple[int, ...], x: View) -> View:
    """Over some axes, by halves: as many levels as the number of factors has bits."""
    axes = [a % len(x.shape) for a in node.attrs["axes"]]
    kept = [a for a in range(len(x.shape)) if a not in axes]
    count = math.prod(x.shape[a] for a in axes)
    turned = tuple(x.shape[a] for a in [*axes, *kept])
    rows = moved(x, "transpose", {"perm": [*axes, *kept]}, turned)
    view = moved(rows, "reshape", {}, (count, math.prod(shape)))
    step = 0
    while view.shape[0] > 1:
        half, odd = divmod(view.shape[0], 2)
        parts = [_slice(view, 0, half), _slice(view, half, 2 * half)]
        named = g.Op(f"{node.name}.{step}", "mul", [], f"{node.output}.{step}")
        made = product(low, named, parts[0].shape, *parts)
        if odd:
            joined = Parts((made, _slice(view, 2 * half, 2 * half + 1)), 0, (half + 1, view.shape[1]))
            made = low.single(joined, f"{named.output}.joined")
        view, step = made, step + 1
    return moved(view, "reshape", {}, shape)


def _slice(view: View, start: int, end: int) -> View:
    attrs = {"starts": [start], "ends": [end], "axes": [0], "steps": [1]}
    return moved(view, "slice", attrs, (end - start, *view.shape[1:]))

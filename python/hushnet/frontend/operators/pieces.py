"""What several lowerings are made of.

Public constants, selections of elements, comparisons, products of two activations.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..builder import Builder, Value
from ..errors import Unsupported

# elements of a public constant or of a list of indices in a plan, which every client reads
PUBLIC_ELEMENTS = 1 << 22
# largest exponent that is computed by repeated squaring
LARGEST_POWER = 64
# what takes the place of minus infinity in masks: beside scores of networks its exponential is zero, and rounding it
# costs little
MASKED = -32768.0


def public(build: Builder, like: Value, array: np.ndarray) -> Value:
    """A public constant: a one, made from an element of ``like``, times every number of the array."""
    array = np.asarray(array, dtype=np.float64)
    if array.size > PUBLIC_ELEMENTS:
        raise Unsupported(
            f"a public constant of {array.size} elements, more than {PUBLIC_ELEMENTS}", "Use a smaller input."
        )
    if not np.all(np.isfinite(array)):
        raise Unsupported("a constant that is not finite", "Repair the constant.")
    flat = build.reshape(like, (like.size,))
    one = build.ones(build.slice(flat, 0, 0, 1))
    values = array.reshape(-1)
    if np.all(values == values[:1]):
        same = build.affine(one, 0.0, float(values[0])) if values[0] != 1.0 else one
        return build.reshape(build.broadcast(same, (values.size,)), array.shape)
    made = build.client(
        "interpolate",
        one,
        shape=(values.size,),
        axis=0,
        indices=[[0] * values.size],
        weights=[[float(v) for v in values]],
    )
    return build.reshape(made, array.shape)


def gather(build: Builder, x: Value, axis: int, indices: Sequence[int]) -> Value:
    """Elements of an axis by their (public) positions.

    a slice where they are evenly spaced, an enlargement where each is repeated.
    """
    indices = [int(i) for i in indices]
    steps = set(np.diff(indices).tolist())
    if len(indices) == 1 or (len(steps) == 1 and 0 not in steps):
        step = indices[1] - indices[0] if len(indices) > 1 else 1
        return build.slice(x, axis, indices[0], len(indices), step)
    count, times = x.shape[axis], len(indices) // x.shape[axis]
    if times > 1 and indices == [i for i in range(count) for _ in range(times)]:
        lead, rest = x.shape[:axis], x.shape[axis + 1 :]
        wide = build.broadcast(build.reshape(x, (*lead, count, 1, *rest)), (*lead, count, times, *rest))
        return build.reshape(wide, (*lead, count * times, *rest))
    return _listed(build, x, axis, indices)


def _listed(build: Builder, x: Value, axis: int, indices: list[int]) -> Value:
    if len(indices) > PUBLIC_ELEMENTS:
        raise Unsupported(
            f"a selection of {len(indices)} elements, more than {PUBLIC_ELEMENTS}", "Use a smaller input."
        )
    shape = (*x.shape[:axis], len(indices), *x.shape[axis + 1 :])
    return build.client("gather", x, shape=shape, axis=axis, indices=indices)


def take_flat(build: Builder, x: Value, positions: np.ndarray) -> Value:
    """Elements of x by their row-major positions, of the positions' shape."""
    flat = build.reshape(x, (x.size,))
    positions = np.asarray(positions, dtype=np.int64)
    return build.reshape(gather(build, flat, 0, positions.reshape(-1).tolist()), positions.shape)


def interpolate(build: Builder, x: Value, axis: int, indices: np.ndarray, weights: np.ndarray) -> Value:
    """``sum_t weights[t] x[indices[t]]`` along an axis; taps that weigh nothing anywhere are dropped."""
    kept = [t for t in range(len(weights)) if np.any(weights[t] != 0.0)] or [0]
    indices, weights = np.asarray(indices)[kept], np.asarray(weights, dtype=np.float64)[kept]
    if len(kept) == 1 and np.all(weights == 1.0):
        return gather(build, x, axis, indices[0].tolist())
    if indices.size > PUBLIC_ELEMENTS:
        raise Unsupported(
            f"an interpolation with {indices.size} weights, more than {PUBLIC_ELEMENTS}", "Use a smaller input."
        )
    shape = (*x.shape[:axis], indices.shape[1], *x.shape[axis + 1 :])
    return build.client("interpolate", x, shape=shape, axis=axis, indices=indices.tolist(), weights=weights.tolist())


def mapped(build: Builder, x: Value, axis: int, matrix: np.ndarray) -> Value:
    """A public matrix (outputs, inputs) applied along an axis."""
    taps = max(1, int(np.count_nonzero(matrix, axis=1).max(initial=0)))
    order = np.argsort(matrix == 0.0, axis=1, kind="stable")[:, :taps]
    return interpolate(build, x, axis, order.T, np.take_along_axis(matrix, order, axis=1).T)


def common(build: Builder, *values: Value) -> list[Value]:
    """The values broadcast to one shape."""
    try:
        shape = np.broadcast_shapes(*(v.shape for v in values))
    except ValueError:
        raise Unsupported(
            f"shapes {[v.shape for v in values]} (per image) do not broadcast", "Reshape one of them."
        ) from None
    return [build.broadcast(v, shape) for v in values]


def complement(build: Builder, condition: Value) -> Value:
    """``1 - x``, the negation of 0 and 1."""
    return build.affine(condition, -1.0, 1.0)


def select(build: Builder, condition: Value, yes: Value, no: Value) -> Value:
    """``condition ? yes : no`` of a condition of zeros and ones, exact."""
    condition, yes, no = common(build, condition, yes, no)
    return build.client(
        "add", build.client("mul", condition, yes), build.client("mul", complement(build, condition), no)
    )


def compare(build: Builder, op: str, a: Value, b: Value) -> Value:
    """``less`` or ``equal`` as zeros and ones."""
    a, b = common(build, a, b)
    return build.client(op, a, b)


def reduce(build: Builder, op: str, x: Value, axes: Sequence[int], *, keep: bool = True) -> Value:
    """A reduction over per-image axes."""
    axes = sorted(axes)
    if not axes:
        return x
    kept = tuple(1 if a in axes else n for a, n in enumerate(x.shape))
    shape = kept if keep else tuple(n for a, n in enumerate(x.shape) if a not in axes)
    return build.client(op, x, shape=shape, axes=list(axes))


def product(build: Builder, a: Value, b: Value) -> Value:
    """NumPy's matmul of two activations, on the client.

    Their leading axes broadcast, vectors become matrices and back.
    """
    left, right = len(a.shape) == 1, len(b.shape) == 1
    a = build.reshape(a, (1, *a.shape)) if left else a
    b = build.reshape(b, (*b.shape, 1)) if right else b
    if len(a.shape) < 2 or len(b.shape) < 2 or a.shape[-1] != b.shape[-2]:
        raise Unsupported(f"a product of {a.shape} and {b.shape} (per image)", "Export the model again.")
    try:
        lead = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    except ValueError:
        raise Unsupported(f"a product of {a.shape} and {b.shape} (per image)", "Reshape one of them.") from None
    a, b = build.broadcast(a, (*lead, *a.shape[-2:])), build.broadcast(b, (*lead, *b.shape[-2:]))
    y = build.client("matmul", a, b, shape=(*lead, a.shape[-2], b.shape[-1]))
    kept = (*lead, *(() if left else a.shape[-2:-1]), *(() if right else b.shape[-1:]))
    return build.reshape(y, kept)


def power(build: Builder, x: Value, exponent: float) -> Value:
    """``x ** exponent``.

    Multiples of one half up to 64 by squares and roots, others as ``e^(exponent log x)`` of positive x.
    """
    if 2 * exponent != int(2 * exponent) or abs(exponent) > LARGEST_POWER:
        return build.client("exp", build.affine(build.client("log", x), exponent, 0.0))
    whole = int(abs(exponent))
    result = build.client("sqrt", x) if abs(exponent) != whole else None
    factor = x
    while whole:
        if whole & 1:
            result = factor if result is None else build.client("mul", result, factor)
        whole >>= 1
        if whole:
            factor = build.client("square", factor)
    if result is None:
        return build.ones(x)
    return build.client("div", build.ones(x), result) if exponent < 0 else result


def iota(build: Builder, like: Value, shape: Sequence[int], axis: int) -> Value:
    """Public positions 0, 1, ... along an axis, broadcast to a shape."""
    line = public(build, like, np.arange(shape[axis], dtype=np.float64))
    return build.broadcast(build.reshape(line, [n if a == axis else 1 for a, n in enumerate(shape)]), shape)

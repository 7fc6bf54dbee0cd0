"""Client ops of ``docs/plan-format.md`` on arrays with a leading batch axis, bit-exact with the Rust interpreter.

``OPS[name](attrs, inputs, shape)`` takes arrays of shape (B, *per-image shape) and the per-image output shape. Real
tensors are float64; the ops marked in ``FIXED_OPS`` take int64 as well. Sums run strictly in row-major order of the
reduced elements.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from . import functions as fn

Array = np.ndarray
Shape = tuple[int, ...]
Attrs = dict[str, Any]
Evaluate = Callable[[Attrs, list[Array], Shape], Array]


def _unary(f: Callable[[Array], Array]) -> Evaluate:
    return lambda _attrs, xs, _shape: f(xs[0])


def _binary(f: Callable[[Array, Array], Array]) -> Evaluate:
    return lambda _attrs, xs, _shape: f(xs[0], xs[1])


def _clip(attrs: Attrs, xs: list[Array], _shape: Shape) -> Array:
    x = xs[0]
    low, high = attrs.get("min"), attrs.get("max")
    if low is not None:
        x = fn.larger(x, low)
    if high is not None:
        x = fn.smaller(x, high)
    return x


def by_channel(values: Any, rank: int) -> Array:
    """One value, or one a channel, as an array that broadcasts over a per-image tensor of ``rank`` axes."""
    array = np.asarray(values, dtype=np.float64).reshape(-1)
    return array if array.size == 1 else array.reshape((-1,) + (1,) * (rank - 1))


def slopes(attrs: Attrs, rank: int) -> Array:
    """The slopes of ``prelu``, as :func:`by_channel`."""
    return by_channel(attrs["slope"], rank)


def _channel_scale(attrs: Attrs, xs: list[Array], shape: Shape) -> Array:
    return xs[0] * by_channel(attrs["factor"], len(shape))


def _prelu(attrs: Attrs, xs: list[Array], shape: Shape) -> Array:
    x = xs[0]
    return np.where(x < 0.0, x * slopes(attrs, len(shape)), x)


def _windows(attrs: Attrs, x: Array, shape: Shape) -> Iterator[tuple[list[slice], list[slice], list[int]]]:
    """For every tap of a pooling window, in row-major order: where it lands in the output, and which input it reads."""
    kernel = attrs["kernel"]
    rank = len(kernel)
    stride = attrs.get("stride") or [1] * rank
    pads = attrs.get("pads") or [0] * (2 * rank)
    dilation = attrs.get("dilation") or [1] * rank
    for tap in itertools.product(*(range(k) for k in kernel)):
        target, source = [], []
        for axis, t in enumerate(tap):
            size, out = x.shape[2 + axis], shape[1 + axis]
            offset = t * dilation[axis] - pads[axis]
            first = max(0, -(offset // stride[axis]))
            last = min(out, (size - 1 - offset) // stride[axis] + 1)
            count = max(0, last - first)
            target.append(slice(first, first + count))
            begin = offset + first * stride[axis]
            source.append(slice(begin, begin + (count - 1) * stride[axis] + 1 if count else begin, stride[axis]))
        yield target, source, [t * d for t, d in zip(tap, dilation)]


def _max_pool(attrs: Attrs, xs: list[Array], shape: Shape) -> Array:
    x = xs[0]
    lowest = -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min
    out = np.full((x.shape[0], *shape), lowest, dtype=x.dtype)
    for target, source, _ in _windows(attrs, x, shape):
        view = out[(slice(None), slice(None), *target)]
        np.maximum(view, x[(slice(None), slice(None), *source)], out=view)
    return out


def pool_counts(attrs: Attrs, x_shape: Shape, shape: Shape) -> Array:
    """Divisors of ``average_pool``, per output position: taps inside the input, or inside the padded input."""
    kernel = attrs["kernel"]
    rank = len(kernel)
    stride = attrs.get("stride") or [1] * rank
    pads = attrs.get("pads") or [0] * (2 * rank)
    counts = np.ones((1, 1) + (1,) * rank)
    for axis in range(rank):
        start = np.arange(shape[1 + axis]) * stride[axis] - pads[axis]
        low, high = 0, x_shape[1 + axis]
        if attrs.get("count_include_pad"):
            low, high = -pads[axis], high + pads[rank + axis]
        inside = np.minimum(start + kernel[axis], high) - np.maximum(start, low)
        counts = counts * inside.reshape((1, 1, *tuple(-1 if a == axis else 1 for a in range(rank))))
    return counts


def _average_pool(attrs: Attrs, xs: list[Array], shape: Shape) -> Array:
    x = xs[0]
    out = np.zeros((x.shape[0], *shape))
    for target, source, _ in _windows(attrs, x, shape):
        view = out[(slice(None), slice(None), *target)]
        np.add(view, x[(slice(None), slice(None), *source)], out=view)
    return out / pool_counts(attrs, x.shape[1:], shape)


def _reduced_first(attrs: Attrs, x: Array) -> Array:
    """``x`` as (R, ...kept axes), R the reduced elements in row-major order."""
    axes = sorted(a + 1 for a in attrs["axes"])
    kept = [a for a in range(x.ndim) if a not in axes]
    moved = x.transpose(axes + kept)
    return moved.reshape((-1, *moved.shape[len(axes) :]))


def _ordered_sum(rows: Array) -> Array:
    total = np.zeros(rows.shape[1:])
    for row in rows:
        total = total + row
    return total


def _reduce_sum(attrs: Attrs, xs: list[Array], shape: Shape) -> Array:
    return _ordered_sum(_reduced_first(attrs, xs[0])).reshape((-1, *shape))


def _reduce_mean(attrs: Attrs, xs: list[Array], shape: Shape) -> Array:
    rows = _reduced_first(attrs, xs[0])
    return (_ordered_sum(rows) / float(rows.shape[0])).reshape((-1, *shape))


def _reduce_max(attrs: Attrs, xs: list[Array], shape: Shape) -> Array:
    return _reduced_first(attrs, xs[0]).max(axis=0).reshape((-1, *shape))


def _reduce_prod(attrs: Attrs, xs: list[Array], shape: Shape) -> Array:
    rows = _reduced_first(attrs, xs[0])
    total = rows[0]
    for row in rows[1:]:
        total = total * row
    return total.reshape((-1, *shape))


def _matmul(_attrs: Attrs, xs: list[Array], shape: Shape) -> Array:
    left, right = xs
    total = np.zeros((left.shape[0], *shape))
    for k in range(left.shape[-1]):
        total = total + left[..., :, k : k + 1] * right[..., k : k + 1, :]
    return total


def _gather(attrs: Attrs, xs: list[Array], _shape: Shape) -> Array:
    return np.take(xs[0], np.asarray(attrs["indices"], dtype=np.int64), axis=attrs["axis"] + 1)


def tap_weights(attrs: Attrs, rank: int) -> Iterator[tuple[Array, Array]]:
    """Indices and weights of every tap of ``interpolate``.

    The weights broadcast over a per-image tensor of ``rank`` axes.
    """
    for taken, factors in zip(attrs["indices"], attrs["weights"]):
        weights = np.asarray(factors, dtype=np.float64).reshape((-1,) + (1,) * (rank - 1 - attrs["axis"]))
        yield np.asarray(taken, dtype=np.int64), weights


def _interpolate(attrs: Attrs, xs: list[Array], shape: Shape) -> Array:
    total = np.zeros((xs[0].shape[0], *shape))
    for taken, weights in tap_weights(attrs, len(shape)):
        total = total + np.take(xs[0], taken, axis=attrs["axis"] + 1) * weights
    return total


def _top_k(attrs: Attrs, xs: list[Array], shape: Shape) -> Array:
    axis = attrs["axis"] + 1
    sign = 1.0 if attrs["largest"] else -1.0
    x = xs[0] * sign
    order = np.argsort(-x, axis=axis, kind="stable").take(np.arange(shape[axis - 1]), axis=axis)
    if attrs["what"] == "indices":
        return order.astype(np.float64)
    return np.take_along_axis(x, order, axis=axis) * sign + 0.0


def _softmax(attrs: Attrs, xs: list[Array], _shape: Shape) -> Array:
    x = np.moveaxis(xs[0], attrs["axis"] + 1, 0)
    e = fn.exp(x - x.max(axis=0))
    return np.ascontiguousarray(np.moveaxis(e / _ordered_sum(e), 0, attrs["axis"] + 1))


def _reshape(_attrs: Attrs, xs: list[Array], shape: Shape) -> Array:
    return xs[0].reshape((xs[0].shape[0], *shape))


def _transpose(attrs: Attrs, xs: list[Array], _shape: Shape) -> Array:
    return np.ascontiguousarray(xs[0].transpose([0] + [p + 1 for p in attrs["perm"]]))


def _concat(attrs: Attrs, xs: list[Array], _shape: Shape) -> Array:
    return np.concatenate(xs, axis=attrs["axis"] + 1)


def _slice(attrs: Attrs, xs: list[Array], shape: Shape) -> Array:
    x = xs[0]
    for axis, start, step in zip(attrs["axes"], attrs["starts"], attrs["steps"]):
        x = np.take(x, start + step * np.arange(shape[axis]), axis=axis + 1)
    return x


def _pad(attrs: Attrs, xs: list[Array], shape: Shape) -> Array:
    pads = attrs["pads"]
    rank = len(shape)
    widths = [(0, 0)] + [(pads[a], pads[rank + a]) for a in range(rank)]
    return np.pad(xs[0], widths, constant_values=attrs.get("value", 0))


def _broadcast(_attrs: Attrs, xs: list[Array], shape: Shape) -> Array:
    x = xs[0]
    missing = len(shape) - (x.ndim - 1)
    images = x.shape[0]
    x = x.reshape((images, *(1,) * missing, *x.shape[1:]))
    return np.ascontiguousarray(np.broadcast_to(x, (images, *shape)))


OPS: dict[str, Evaluate] = {
    "affine": lambda a, xs, _s: xs[0] * a["mul"] + a["add"],
    "add": _binary(np.add),
    "sub": _binary(np.subtract),
    "mul": _binary(np.multiply),
    "div": _binary(np.divide),
    "minimum": _binary(fn.smaller),
    "maximum": _binary(fn.larger),
    "relu": _unary(lambda x: np.where(x > 0.0, x, 0.0)),
    "leaky_relu": lambda a, xs, _s: np.where(xs[0] < 0.0, a["alpha"] * xs[0], xs[0]),
    "prelu": _prelu,
    "channel_scale": _channel_scale,
    "clip": _clip,
    "abs": _unary(np.abs),
    "neg": _unary(np.negative),
    "sqrt": _unary(np.sqrt),
    "square": _unary(lambda x: x * x),
    "sigmoid": _unary(fn.sigmoid),
    "tanh": _unary(fn.tanh),
    "exp": _unary(fn.exp),
    "erf": _unary(fn.erf),
    "log": _unary(fn.log),
    "sin": _unary(fn.sin),
    "cos": _unary(fn.cos),
    "atan": _unary(fn.atan),
    "floor": _unary(np.floor),
    "round": _unary(np.rint),
    "less": _binary(lambda x, y: np.where(x < y, 1.0, 0.0)),
    "equal": _binary(lambda x, y: np.where(x == y, 1.0, 0.0)),
    "hard_sigmoid": lambda a, xs, _s: fn.hard_sigmoid(xs[0], a["alpha"], a["beta"]),
    "hard_swish": _unary(fn.hard_swish),
    "silu": _unary(fn.silu),
    "gelu": _unary(fn.gelu),
    "gelu_tanh": _unary(fn.gelu_tanh),
    "elu": lambda a, xs, _s: fn.elu(xs[0], a["alpha"]),
    "softmax": _softmax,
    "max_pool": _max_pool,
    "average_pool": _average_pool,
    "reduce_mean": _reduce_mean,
    "reduce_sum": _reduce_sum,
    "reduce_max": _reduce_max,
    "reduce_prod": _reduce_prod,
    "matmul": _matmul,
    "interpolate": _interpolate,
    "top_k": _top_k,
    "reshape": _reshape,
    "transpose": _transpose,
    "concat": _concat,
    "slice": _slice,
    "pad": _pad,
    "broadcast": _broadcast,
    "gather": _gather,
}

FIXED_OPS = frozenset({"max_pool", "reshape", "transpose", "concat", "slice", "pad", "broadcast", "gather"})

"""Reductions over per-image axes, running sums, and selections of the largest elements."""

from __future__ import annotations

from collections.abc import Callable

from ..builder import Builder, Value
from ..call import Call
from ..errors import Unsupported
from ..registry import operator
from . import pieces

Step = Callable[[Builder, Value], Value]


def _op(name: str) -> Step:
    return lambda build, x: build.client(name, x)


def _none(_build: Builder, x: Value) -> Value:
    return x


# before, reduction, after
_REDUCTIONS: dict[str, tuple[Step, str, Step]] = {
    "ReduceMean": (_none, "reduce_mean", _none),
    "ReduceSum": (_none, "reduce_sum", _none),
    "ReduceMax": (_none, "reduce_max", _none),
    "ReduceMin": (_op("neg"), "reduce_max", _op("neg")),
    "ReduceProd": (_none, "reduce_prod", _none),
    "ReduceL1": (_op("abs"), "reduce_sum", _none),
    "ReduceL2": (_op("square"), "reduce_sum", _op("sqrt")),
    "ReduceSumSquare": (_op("square"), "reduce_sum", _none),
    "ReduceLogSum": (_none, "reduce_sum", _op("log")),
}


def _axes(call: Call, rank: int) -> list[int]:
    """Axes as attribute (older opsets) or input; the batch is never reduced."""
    given = call.integers(1, "axes")
    if given:
        return sorted({call.axis(a, rank) for a in given})
    if call.attribute("noop_with_empty_axes", 0):
        return []
    raise Unsupported("it reduces over all axes, the batch too", "Name the axes, without 0.")


@operator(*_REDUCTIONS)
def reduction(call: Call, build: Builder) -> Value:
    """One of the reductions that are one client op, with an op before or after it."""
    x = call.tensor(0)
    axes = _axes(call, len(x.shape))
    before, name, after = _REDUCTIONS[call.op_type]
    return after(build, pieces.reduce(build, name, before(build, x), axes, keep=bool(call.attribute("keepdims", 1))))


@operator("ReduceLogSumExp")
def log_sum_exp(call: Call, build: Builder) -> Value:
    """``m + log(sum e^(x - m))`` with the largest value m."""
    x = call.tensor(0)
    axes, keep = _axes(call, len(x.shape)), bool(call.attribute("keepdims", 1))
    if not axes:
        return x
    top = pieces.reduce(build, "reduce_max", x, axes)
    below = build.client("exp", build.client("sub", x, build.broadcast(top, x.shape)))
    y = build.client("log", pieces.reduce(build, "reduce_sum", below, axes, keep=keep))
    return build.client("add", y, build.reshape(top, y.shape))


@operator("ArgMax", "ArgMin")
def argument(call: Call, build: Builder) -> Value:
    """The position of the first (or last) of the largest elements."""
    x = call.tensor(0)
    axis = call.axis(int(call.attribute("axis", 0)), len(x.shape))
    size = x.shape[axis]
    last = bool(call.attribute("select_last_index", 0))
    if last:
        x = build.slice(x, axis, size - 1, size, -1) if size > 1 else x
    shape = tuple(1 if a == axis else n for a, n in enumerate(x.shape))
    y = build.client("top_k", x, shape=shape, axis=axis, largest=call.op_type == "ArgMax", what="indices")
    if last:
        y = build.affine(y, -1.0, size - 1.0)
    return y if call.attribute("keepdims", 1) else build.reshape(y, [n for a, n in enumerate(shape) if a != axis])


@operator("TopK")
def top_k(call: Call, build: Builder) -> list[Value]:
    """The largest elements of an axis in order, and where they are."""
    x = call.tensor(0)
    axis = call.axis(int(call.attribute("axis", -1)), len(x.shape))
    count = (call.integers(1) or [0])[0]
    call.attribute("sorted", 1)
    if not 1 <= count <= x.shape[axis]:
        raise Unsupported(f"{count} of the {x.shape[axis]} elements of an axis", "Export the model again.")
    shape = tuple(count if a == axis else n for a, n in enumerate(x.shape))
    largest = bool(call.attribute("largest", 1))
    return [
        build.client("top_k", x, shape=shape, axis=axis, largest=largest, what=what) for what in ("values", "indices")
    ]


@operator("CumSum", "CumProd")
def running(call: Call, build: Builder) -> Value:
    """Sums (products) over distances 1, 2, 4, ...: no layer."""
    x = call.tensor(0)
    op, none = ("add", 0.0) if call.op_type == "CumSum" else ("mul", 1.0)
    axis = call.axis(int(call.constant(1).reshape(())), len(x.shape))
    size, rank = x.shape[axis], len(x.shape)
    backwards = bool(call.attribute("reverse", 0))

    def shifted(y: Value, by: int) -> Value:
        low = build.slice(y, axis, by if backwards else 0, size - by)
        pads = [0] * (2 * rank)
        pads[rank + axis if backwards else axis] = by
        return build.pad(low, pads, none)

    if call.attribute("exclusive", 0):
        x = shifted(x, 1) if size > 1 else build.affine(x, 0.0, none)
    by = 1
    while by < size:
        x = build.client(op, x, shifted(x, by))
        by *= 2
    return x


@operator("MeanVarianceNormalization")
def mean_variance(call: Call, build: Builder) -> Value:
    """``(x - mean) / (deviation + 1e-9)`` over axes of an image."""
    x = call.tensor(0)
    axes = [call.axis(int(a), len(x.shape)) for a in call.attribute("axes", [0, 2, 3])]
    centred = build.client("sub", x, build.broadcast(pieces.reduce(build, "reduce_mean", x, axes), x.shape))
    variance = pieces.reduce(build, "reduce_mean", build.client("square", centred), axes)
    return build.client(
        "div", centred, build.broadcast(build.affine(build.client("sqrt", variance), 1.0, 1e-9), x.shape)
    )

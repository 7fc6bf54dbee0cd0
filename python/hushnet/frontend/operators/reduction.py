"""Reductions over per-image axes."""

from __future__ import annotations

from collections.abc import Callable

from ..builder import Builder, Value
from ..call import Call
from ..errors import Unsupported
from ..registry import operator

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
    "ReduceL1": (_op("abs"), "reduce_sum", _none),
    "ReduceL2": (_op("square"), "reduce_sum", _op("sqrt")),
    "ReduceSumSquare": (_op("square"), "reduce_sum", _none),
}


@operator(*_REDUCTIONS)
def reduction(call: Call, build: Builder) -> Value:
    """Axes as attribute (older opsets) or input; the batch is never reduced."""
    x = call.tensor(0)
    rank = len(x.shape)
    given = call.integers(1, "axes")
    if not given:
        if call.attribute("noop_with_empty_axes", 0):
            axes: list[int] = []
        else:
            raise Unsupported("it reduces over all axes, the batch too", "Name the axes, without 0.")
    else:
        axes = sorted({call.axis(a, rank) for a in given})
    keep = bool(call.attribute("keepdims", 1))
    before, name, after = _REDUCTIONS[call.op_type]
    kept = tuple(1 if a in axes else n for a, n in enumerate(x.shape))
    shape = kept if keep else tuple(n for a, n in enumerate(x.shape) if a not in axes)
    y = before(build, x)
    if axes:
        y = build.client(name, y, shape=shape, axes=axes)
    return after(build, y)

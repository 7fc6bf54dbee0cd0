"""Functions that one table does not hold, and quotients of what calibration data shows above zero.

Networks have them that the zoo has not: roots of a wide range (pooled deviations), sums of exponentials as divisors
(linear attention, running means), their logarithms.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import hushnet
import numpy as np
import onnx
import pytest
from hushnet.graph import Op
from hushnet.planner.two_party import functions
from hushnet.planner.two_party.curves import Curve
from hushnet.reference import spline

from tests.architectures.export import Export, T
from tests.frontend.harness import expected
from tests.frontend.test_foreign import rows


def number(net: Export, value: float) -> T:
    return net.constant(value, np.float32)


def total(net: Export, x: T, axis: int, *, keep: int = 1) -> T:
    """ReduceSum over one axis."""
    shape = [1 if i == axis else n for i, n in enumerate(x.shape) if keep or i != axis]
    return net.op("ReduceSum", [x, net.constant([axis])], shape, keepdims=keep)


def linear_attention() -> onnx.ModelProto:
    """Queries and keys are elu(x) + 1; every row is divided by its own sum."""
    net = Export(20)
    x = net.input("x", 6, 8)
    q, k, v = (net.linear(name, x, 8, 0.6) for name in "qkv")
    q, k = (net.op("Add", [net.op("Elu", [z], z.shape, alpha=1.0), number(net, 1.0)], z.shape) for z in (q, k))
    norm = total(net, net.mul(q, total(net, k, 1)), 2)
    norm = net.op("Add", [norm, number(net, 1e-6)], norm.shape)
    y = net.op("Div", [net.matmul(q, net.matmul(net.transpose(k, 0, 2, 1), v)), norm], x.shape)
    return net.model("linear_attention", y=net.linear("out", net.add(x, y), 3))


def running_means() -> onnx.ModelProto:
    """Means of values weighted by exponentials that decay from step to step, as RWKV has them."""
    net = Export(6)
    x = net.input("x", 4, 6)
    k, v = net.linear("k", x, 6, 0.5), net.linear("v", x, 6, 0.7)
    e, decay = net.op("Exp", [k], k.shape), net.weight("decay", np.exp(-np.exp(net.normal((6,), 0.5))))
    found: list[T] = []
    above = below = None
    for step in range(4):
        one = net.select(e, 1, step)
        weighted = net.mul(one, net.select(v, 1, step))
        above = weighted if above is None else net.add(net.mul(above, decay), weighted)
        below = one if below is None else net.add(net.mul(below, decay), one)
        found.append(net.unsqueeze(net.op("Div", [above, below], one.shape), 1))
    return net.model("running_means", y=net.linear("out", net.concat(found, 1), 3))


def pooled_deviations() -> onnx.ModelProto:
    """Mean and deviation under learned weights, the square's mean less the mean's square: speaker embeddings."""
    net = Export(31)
    x = net.act("relu", net.conv("c", net.input("x", 6, 12), 8, 3))
    w = net.op("Softmax", [net.conv("a", x, 8, 1)], x.shape, axis=2)
    mean, square = total(net, net.mul(x, w), 2, keep=0), total(net, net.mul(net.mul(x, x), w), 2, keep=0)
    variance = net.op("Sub", [square, net.mul(mean, mean)], mean.shape)
    deviation = net.op("Sqrt", [net.op("Clip", [variance, number(net, 1e-4)], mean.shape)], mean.shape)
    return net.model("pooled_deviations", y=net.linear("out", net.concat([mean, deviation], 1), 4))


def root_features() -> onnx.ModelProto:
    """Roots of products of features, of unit length: bilinear pooling."""
    net = Export(35)
    x = net.act("relu", net.conv("c", net.input("x", 3, 6, 6), 4, 3, 2))
    f = net.op("Reshape", [x, net.constant([0, 4, 9])], (1, 4, 9))
    g = net.flatten(net.scaled(net.matmul(f, net.transpose(f, 0, 2, 1)), 1 / 9))
    g = net.op("Sqrt", [net.op("Add", [g, number(net, 1e-5)], g.shape)], g.shape)
    return net.model("root_features", y=net.linear("out", g, 3))


def pooled_logarithm() -> onnx.ModelProto:
    """The logarithm of the sum of exponentials of a map's places."""
    net = Export(45)
    x = net.conv("c", net.input("x", 3, 6, 6), 3, 3, gain=2.0)
    s = net.op("ReduceLogSumExp", [x], (1, 3), axes=[2, 3], keepdims=0)
    return net.model("pooled_logarithm", y=net.linear("out", s, 3))


NETWORKS = [linear_attention, running_means, pooled_deviations, root_features, pooled_logarithm]


@pytest.mark.parametrize("build", NETWORKS, ids=lambda f: f.__name__)
def test_answers_are_onnx_runtimes(build: Callable[[], onnx.ModelProto]) -> None:
    model = build()
    onnx.checker.check_model(model, full_check=True)
    bits = {"weight_bits": 14, "most_bits": 14, "sums": "calibrated"}
    plan = hushnet.compile(model, trust="two-party", calibration=rows(model, 48, 1), **bits)
    x = rows(model, 2, 2)
    result = hushnet.run(plan, x, threads=1)
    assert not result.out_of_range
    ((port, values),) = result.outputs.items()
    (wanted,) = expected(model, x)
    stated = plan.plan.predicted["output_errors"][port]["max_error"]
    assert stated <= 0.05 * np.abs(wanted).max(), stated
    assert np.abs(values - wanted).max() <= stated
    for stage in result.trace["stages"]:
        assert all(stage[way] == stage["predicted"][way] for way in ("bytes_up", "bytes_down")), stage["name"]


def asked(curve: str, *, high: int, least: float | None) -> tuple[Curve, functions.Asked]:
    body = (Op("f", curve, ["x"], "y", {}),)
    unit = 2.0**-12
    return Curve("x", "y", body), functions.Asked(unit, 0, high, least, gain=1.0, fraction=12, finer=0)


@pytest.mark.parametrize(("curve", "least"), [("sqrt", 0.03), ("sqrt", 2.0**-9), ("log", 0.01)])
def test_parts_add_up_to_the_function(curve: str, least: float) -> None:
    f, request = asked(curve, high=(1 << 20) - 1, least=least)
    with pytest.raises(hushnet.HushnetError, match="no approximation"):
        functions.fit(f, request)
    parts = functions.parts(f, request)
    assert 2 <= len(parts) <= functions.MOST_PARTS
    ends = [p.ends for _, p in parts if p.ends]
    # they follow each other, and the first one begins below every argument that calibration data has
    assert all(a[3] == b[2] for a, b in pairwise(ends))
    assert ends[0][2] <= least / request.unit and ends[-1][3] == request.high
    x = np.unique(np.geomspace(least / request.unit, request.high, 2000).astype(np.int64))
    got, error = np.zeros(x.shape), 0.0
    for part, narrowed in parts:
        fit = functions.fit(part, narrowed)
        stage = {"form": fit.form, "orders": fit.orders, "below": fit.below, "above": fit.above}
        got += spline.function(stage, fit.coefficients, x, 0, np.random.default_rng(3))
        error += fit.error
    exact = f(x * request.unit) * 2.0**request.fraction
    assert np.abs(got - exact).max() <= error
    assert error <= 2 * functions.ERROR * len(parts)


def test_ends_that_no_planned_result_reaches_are_left_out() -> None:
    f, request = asked("exp", high=(1 << 16) - 1, least=None)
    request = replace(request, low=-(1 << 16))
    with pytest.raises(hushnet.HushnetError, match="no approximation"):
        functions.fit(f, request)
    narrowed = functions.below(f, request, math.ldexp(2.5, request.fraction))
    assert narrowed is not None and narrowed.ends is not None
    # 2.5 is e^0.92, and the next power of two is one
    assert narrowed.ends[3] == round(1.0 / request.unit)
    assert functions.fit(f, narrowed).error <= functions.ERROR
    assert functions.below(f, request, math.inf) is None

"""Every row of the op table.

The op against its textbook definition, its interval and its error rule against samples.
"""

import numpy as np
import pytest
from hushnet.plan import PlanError
from hushnet.planner.check import ATTRIBUTES, check_op
from hushnet.planner.rules import RULES, evaluate
from hushnet.reference import functions
from hushnet.reference.ops import FIXED_OPS, OPS
from hypothesis import given, settings
from hypothesis import strategies as st
from planner_graphs import Builder, float_run

POOL = {"kernel": [2, 3], "stride": [2, 1], "pads": [1, 1, 0, 1]}
CASES = {
    "affine": ({"mul": -1.7, "add": 0.4}, (3, 4)),
    "leaky_relu": ({"alpha": 0.2}, (3, 4)),
    "prelu": ({"slope": [0.5, -0.3, 1.7]}, (3, 4)),
    "channel_scale": ({"factor": [0.5, 0.01, 1.0]}, (3, 4)),
    "clip": ({"min": -0.5, "max": 1.0}, (3, 4)),
    "hard_sigmoid": ({"alpha": 0.3, "beta": 0.4}, (3, 4)),
    "elu": ({"alpha": 0.8}, (3, 4)),
    "softmax": ({"axis": 0}, (3, 4)),
    "max_pool": ({**POOL, "dilation": [1, 1]}, (2, 3, 4)),
    "average_pool": ({**POOL, "count_include_pad": False}, (2, 3, 4)),
    "reduce_mean": ({"axes": [0, 1]}, (1, 1)),
    "reduce_sum": ({"axes": [1]}, (3, 1)),
    "reduce_max": ({"axes": [0]}, (4,)),
    "reshape": ({}, (2, 6)),
    "transpose": ({"perm": [1, 0]}, (4, 3)),
    "concat": ({"axis": 1}, (3, 8)),
    "slice": ({"starts": [3], "ends": [0], "steps": [-2], "axes": [1]}, (3, 2)),
    "pad": ({"pads": [1, 0, 0, 2], "value": 0.7}, (4, 6)),
    "broadcast": ({}, (2, 3, 4)),
    "gather": ({"axis": 1, "indices": [3, 0, 0, 2, 1]}, (3, 5)),
    "interpolate": ({"axis": 1, "indices": [[0, 3], [1, 1]], "weights": [[0.5, -1.5], [0.25, 0.0]]}, (3, 2)),
    "top_k": ({"axis": 0, "largest": False, "what": "values"}, (2, 4)),
    "reduce_prod": ({"axes": [0]}, (4,)),
    "matmul": ({}, (3, 3)),
}
# where an op has no value, or none that is a number
DOMAIN = {"sqrt": 0.0, "log": 0.1}


def case(op):
    attrs, out = CASES.get(op, ({}, (3, 4)))
    shape = (2, 4, 4) if "pool" in op else (3, 4)
    return attrs, shape, out


def test_the_table_has_a_row_for_every_op():
    assert set(RULES) == set(OPS)
    assert set(ATTRIBUTES) <= set(RULES)
    assert not [op for op in FIXED_OPS if RULES[op].elementwise]


@pytest.mark.parametrize("op", sorted(RULES))
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_interval_and_error_rules_hold(op, data):
    attrs, shape, out = case(op)
    shapes = [shape, (4, 3)] if op == "matmul" else [shape] * (RULES[op].inputs or 2)
    check_op("here", op, attrs, shapes, out)
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    width = data.draw(st.sampled_from([0.0, 0.01, 1.0, 5.0]))
    size = data.draw(st.sampled_from([1e-4, 0.1, 2.0]))
    low_end = DOMAIN.get(op, -4.0)
    pairs, errors, planned, floats = [], [], [], []
    for position, shape in enumerate(shapes):
        low = rng.uniform(low_end, 4, shape)
        if op == "div" and position == 1:
            low = low + 9
        pairs.append((low, low + width * rng.random(shape)))
        errors.append(size * rng.random(shape))
        planned.append(rng.uniform(*pairs[-1]))
        floats.append(planned[-1] + errors[-1] * rng.choice([-1.0, 0.3, 1.0], shape))
    if op in DOMAIN:
        floats = [np.maximum(f, 1e-9) for f in floats]
    rule = RULES[op]
    low, high = rule.interval(attrs, pairs, out)
    spread = rule.spread(attrs, pairs, errors, out, False)
    y, reference = (evaluate(op, attrs, xs, out) for xs in (planned, floats))
    slack = 1e-12 * (1 + np.abs(y))
    assert low.shape == high.shape == spread.shape == y.shape == out
    assert (low - slack <= y).all() and (y <= high + slack).all()
    assert (np.abs(y - reference) <= spread + slack).all()
    assert (np.abs(y - reference) <= rule.width(attrs) + slack).all()
    deviation = rule.spread(attrs, pairs, errors, out, True)
    assert deviation.shape == out and (deviation >= 0).all()


@pytest.mark.parametrize("op", sorted(RULES))
def test_ops_are_what_their_names_say(op):
    attrs, shape, out = case(op)
    x = np.random.default_rng(5).normal(size=(6, *shape)) * 2.5
    if op in DOMAIN:
        x = np.abs(x)
    b = Builder(shape)
    count = RULES[op].inputs or 2
    sources = ["x"] * count
    if op == "matmul":
        sources[1] = b.op("transpose", shape[::-1], perm=[1, 0]).at
        b.at = "x"
    graph = b.op(op, out, others=sources[1:], **attrs).done()
    values = float_run(graph, x, keep_all=True)
    got = OPS[op](attrs, [values[s] for s in sources], out)
    assert got.shape == (6, *out)
    np.testing.assert_allclose(got, values[graph.outputs[0]], rtol=1e-13, atol=2e-14)


def test_elementary_functions_at_their_seams():
    import math

    x = np.array([0.0, -0.0, 1e-300, 2.0, np.nextafter(2.0, 0), -2.0, 5.9999, 6.0, 40.0, -6.5])
    np.testing.assert_allclose(functions.erf(x), [math.erf(v) for v in x], atol=1e-14)
    assert np.signbit(functions.erf(x))[1] and not np.signbit(functions.erf(x))[0]
    x = np.array([0.0, -708.0, 708.0, 1e-20, -37.2, 300.5, 0.34657359, -0.34657359])
    np.testing.assert_allclose(functions.exp(x), np.exp(x), rtol=1e-14)
    assert functions.exp(np.array([1e9]))[0] == functions.exp(np.array([708.0]))[0]
    assert np.isnan(functions.exp(np.array([np.nan]))[0]) and np.isnan(functions.erf(np.array([np.nan]))[0])


def test_sums_run_in_order():
    # 1e16 absorbs ones that are added one at a time
    x = np.array([1e16] + [1.0] * 8 + [-1e16]).reshape(1, 10)
    assert OPS["reduce_sum"]({"axes": [0]}, [x], (1,))[0, 0] == 0.0
    x = np.array([1.0] * 8 + [1e16, -1e16]).reshape(1, 10)
    assert OPS["reduce_sum"]({"axes": [0]}, [x], (1,))[0, 0] == 8.0


@pytest.mark.parametrize(
    ("op", "attrs", "ins", "out"),
    [
        ("relu", {"alpha": 1.0}, [(3,)], (3,)),
        ("relu", {}, [(3,)], (4,)),
        ("add", {}, [(3,)], (3,)),
        ("add", {}, [(3,), (4,)], (3,)),
        ("prelu", {"slope": [1.0, 2.0]}, [(3, 2)], (3, 2)),
        ("channel_scale", {"factor": [1.0, 2.0]}, [(3, 2)], (3, 2)),
        ("channel_scale", {"factor": [-1.0]}, [(3, 2)], (3, 2)),
        ("softmax", {"axis": 2}, [(3, 2)], (3, 2)),
        ("max_pool", {**POOL, "dilation": [1, 1]}, [(2, 4, 4)], (2, 9, 4)),
        ("max_pool", {**POOL, "pads": [2, 0, 0, 0], "dilation": [1, 1]}, [(2, 4, 4)], (2, 3, 2)),
        ("max_pool", {**POOL, "kernel": [2], "dilation": [1, 1]}, [(2, 4, 4)], (2, 3, 2)),
        ("average_pool", {**POOL, "stride": [0, 1], "count_include_pad": True}, [(2, 4, 4)], (2, 3, 4)),
        ("reshape", {}, [(3, 4)], (11,)),
        ("transpose", {"perm": [0, 0]}, [(3, 4)], (3, 4)),
        ("concat", {"axis": 0}, [(3, 4), (3, 5)], (6, 4)),
        ("concat", {"axis": 5}, [(3, 4), (3, 4)], (6, 4)),
        ("slice", {"starts": [2], "ends": [4], "steps": [1], "axes": [0]}, [(3, 4)], (2, 4)),
        ("slice", {"starts": [0], "ends": [3], "steps": [0], "axes": [0]}, [(3, 4)], (1, 4)),
        ("pad", {"pads": [1, 0], "value": 0.0}, [(3, 4)], (4, 4)),
        ("broadcast", {}, [(3, 4)], (3, 5)),
        ("reduce_sum", {"axes": [2]}, [(3, 4)], (3,)),
    ],
)
def test_wrong_ops_are_refused(op, attrs, ins, out):
    with pytest.raises(PlanError, match="^place: "):
        check_op("place", op, attrs, ins, out)

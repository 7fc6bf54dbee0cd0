"""The quantised run against the float run and against the predicted errors."""

import itertools

import numpy as np
import pytest
from hushnet.graph import Conv2d, Graph, Linear
from hushnet.planner import compile, read
from hushnet.planner.ranges import linear_interval, plan_geometry, weighed
from hushnet.reference.numpy import run
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from planner_graphs import Builder, float_run, graphs

RELAXED = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


def deviation(plan, graph, x):
    planned, floats = run(plan, x), float_run(graph, x)
    return {name: float(np.abs(planned[name] - floats[name]).max()) for name in graph.outputs}


def images(graph, seed, count=40):
    """Random images with corners of the input range among them."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (count, *graph.shapes["x"]))
    x[: count // 2] = np.sign(x[: count // 2])
    x[0], x[1], x[2] = 1, -1, 0
    return x


@RELAXED
@given(graph=graphs(), bits=st.sampled_from([("auto", 8), (6, 5), (10, 12)]), seed=st.integers(0, 999))
def test_planned_run_stays_within_the_worst_error_and_the_ranges(graph, bits, seed):
    plan = compile(graph, input_range=(-1, 1), activation_bits=bits[0], weight_bits=bits[1])
    seen = deviation(plan, graph, images(graph, seed))
    assert seen[graph.outputs[0]] <= plan.predicted["worst_error"]
    assert plan.predicted["max_error"] <= plan.predicted["worst_error"]


@RELAXED
@given(graph=graphs(), seed=st.integers(0, 999))
def test_the_plan_read_back_gives_the_same_bits(graph, seed):
    plan = compile(graph, input_range=(-1, 1))
    again = read(plan.to_bytes())
    x = images(graph, seed, 7)
    first, second = run(plan, x), run(again, x, chunk=3)
    assert all(np.array_equal(first[name], second[name]) for name in graph.outputs)


def test_worst_error_is_reached_within_an_order_of_magnitude_in_one_layer():
    """One layer whose worst case can be built: the bound is not only safe but near."""
    graph = Builder((40,), seed=3).dense(1).done()
    plan = compile(graph, input_range=(-1, 1), activation_bits=4, weight_bits=4)
    w = graph.nodes[0].weight[0]
    scale = plan.tensors[1]["scale"]
    # inputs just below a rounding boundary, all erring in the direction of their weight
    x = np.sign(w) * (0.499 + np.floor(0.9 / scale)) * scale
    seen = max(
        deviation(plan, graph, np.stack([x, -x]))[graph.outputs[0]],
        deviation(plan, graph, images(graph, 0, 400))[graph.outputs[0]],
    )
    assert plan.predicted["worst_error"] / 3 <= seen <= plan.predicted["worst_error"]


@pytest.mark.parametrize("depth", [1, 4])
def test_the_estimate_covers_what_random_images_show(depth):
    b = Builder((3, 10, 10), seed=depth)
    for _ in range(depth):
        b.conv(8).op("relu")
    graph = b.dense(10).done()
    plan = compile(graph, input_range=(-1, 1))
    x = np.random.default_rng(1).uniform(-1, 1, (300, 3, 10, 10))
    seen = deviation(plan, graph, x)[graph.outputs[0]]
    assert plan.predicted["max_error"] / 100 < seen <= plan.predicted["max_error"]


@pytest.mark.parametrize("which", ["activation_bits", "weight_bits"])
def test_more_bits_give_smaller_errors(which):
    graph = Builder((2, 6, 6), seed=5).conv(4).op("tanh").conv(3).op("relu").dense(4).done()
    x = images(graph, 1, 200)
    worst, seen = [], []
    for bits in (3, 5, 7, 9):
        plan = compile(graph, input_range=(-1, 1), **{"activation_bits": 14, "weight_bits": 14, which: bits})
        worst.append(plan.predicted["worst_error"])
        seen.append(deviation(plan, graph, x)[graph.outputs[0]])
    assert all(b < a for a, b in itertools.pairwise(worst))
    assert all(b < a for a, b in itertools.pairwise(seen))


def test_zero_weights_and_constant_networks():
    graph = Builder((2, 4, 4)).conv(3).op("relu").dense(2).done()
    for node in graph.nodes:
        if hasattr(node, "weight"):
            node.weight = np.zeros_like(node.weight)
    plan = compile(graph)
    x = np.random.default_rng(0).random((4, 2, 4, 4))
    assert deviation(plan, graph, x)[graph.outputs[0]] <= plan.predicted["worst_error"]


def test_several_outputs_and_a_network_without_linear_layers():
    b = Builder((2, 4, 4), seed=2)
    b.conv(3).op("relu")
    middle = b.at
    b.dense(4)
    graph = b.done(middle, b.at)
    plan = compile(graph)
    x = np.random.default_rng(0).random((5, 2, 4, 4))
    assert set(run(plan, x)) == set(graph.outputs)
    seen = deviation(plan, graph, x)
    errors = plan.predicted["output_errors"]
    assert set(errors) == set(graph.outputs) == set(seen)
    assert all(seen[name] <= errors[name]["worst_error"] for name in seen)
    assert errors[middle]["worst_error"] == plan.predicted["worst_error"]
    plain = Builder((3, 5)).op("relu").op("softmax", axis=1).done()
    plan = compile(plain)
    x = np.random.default_rng(0).random((5, 3, 5))
    assert plan.linear_stages() == []
    np.testing.assert_allclose(run(plan, x)[plain.outputs[0]], float_run(plain, x)[plain.outputs[0]], atol=1e-14)


def test_rows_of_their_own_scale_are_more_precise() -> None:
    rng = np.random.default_rng(5)
    weight = rng.standard_normal((6, 3, 3, 3)) * np.array([1.0, 0.3, 0.1, 0.03, 0.01, 0.003]).reshape(-1, 1, 1, 1)
    node = Linear("conv", "x", "y", Conv2d((3, 6, 6), (6, 4, 4), (3, 3)), weight, rng.standard_normal(6) * 0.01)
    graph = Graph("rows", ["x"], ["y"], {"x": (3, 6, 6), "y": (6, 4, 4)}, [node])
    x = rng.uniform(0, 1, (20, 3, 6, 6))
    want = float_run(graph, x)["y"]
    errors = []
    for row_scales in (False, True):
        plan = compile(graph, calibration=x, row_scales=row_scales, weight_bits=8, activation_bits=16)
        errors.append(np.abs(run(plan, x)["y"] - want).max(axis=(0, 2, 3)))
    assert (errors[1][1:] < errors[0][1:] / 2).all(), errors


@pytest.mark.parametrize("kind", ["dense", "conv"])
def test_a_weight_of_zero_reads_no_infinite_value(kind):
    """Errors and intervals stay numbers: zero times an infinite bound is zero, not NaN, and others are infinite."""
    if kind == "dense":
        geometry, weight = {"type": "dense", "inputs": 3, "outputs": 2}, np.array([[1.0, 0.0, 2.0], [0.0, -1.0, 0.0]])
        x = np.array([3.0, np.inf, 1.0])
    else:
        image = (3, 1, 1)
        geometry = plan_geometry(Conv2d(image, (2, 1, 1), (1, 1)))
        weight = np.array([[1.0, 0.0, 2.0], [0.0, -1.0, 0.0]]).reshape(2, 3, 1, 1)
        x = np.array([3.0, np.inf, 1.0]).reshape(image)
    with np.errstate(all="raise"):
        assert weighed(geometry, np.abs(weight), x[None]).reshape(-1).tolist() == [5.0, np.inf]
        for end in (np.inf, np.nan):
            low, high = linear_interval(geometry, weight, np.zeros(2), (np.where(x > 3, -end, -x), x))
            assert np.allclose(low.reshape(-1), [-5.0, -np.inf]) and np.allclose(high.reshape(-1), [5.0, np.inf])

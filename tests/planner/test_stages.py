"""How graphs become stages: commuting quantisation, residuals, refreshes, streaming, uploads of their own."""

from functools import partial

import numpy as np
import pytest
from hushnet import planner
from hushnet.graph import Dense, Graph, Linear, Op
from hushnet.planner.rewrite import rewrite
from hushnet.reference.numpy import quantize, run
from hushnet.reference.ops import OPS
from planner_graphs import Builder, float_run

# stages as the graph has them, without the factors of rows
compile = partial(planner.compile, row_scales=False)


def ops(plan):
    return [[op["op"] for op in s["ops"]] if s["kind"] == "client" else s["name"] for s in plan.stages]


def test_quantise_and_max_pool_commute_exactly():
    x = np.random.default_rng(0).normal(size=(20, 3, 9, 7))
    attrs = {"kernel": [3, 2], "stride": [2, 2], "pads": [1, 0, 1, 1], "dilation": [1, 2]}
    tensor = {"name": "t", "scale": 0.0371, "bound": 127}
    shape = (3, 5, 3)
    before = OPS["max_pool"](attrs, [quantize(x, tensor, "s")], shape)
    after = quantize(OPS["max_pool"](attrs, [x], shape), tensor, "s")
    assert before.dtype.kind == "i" and np.array_equal(before, after)


def test_quantisation_moves_before_pooling_and_moves():
    b = (
        Builder((2, 8, 8))
        .conv(4)
        .op("relu")
        .pool("max_pool", (2, 2), (2, 2))
        .op("transpose", (4, 4, 4), perm=[1, 0, 2])
    )
    plan = compile(b.conv(3).done())
    assert ops(plan) == [
        ["quantize"],
        "conv1",
        ["dequantize", "relu", "quantize"],
        ["max_pool", "transpose"],
        "conv5",
        ["dequantize"],
    ]
    assert all(plan.tensors[op["out"]]["kind"] == "fixed" for op in plan.stages[3]["ops"])
    scales = {plan.tensors[op["out"]]["scale"] for op in plan.stages[3]["ops"]}
    assert len(scales) == 1


def test_relu_moves_before_max_pool_with_equal_results():
    graph = Builder((1, 6, 6), seed=4).conv(3).pool("max_pool", (2, 2), (2, 2)).op("relu").dense(3).done()
    rewritten = rewrite(graph)
    assert [n.op for n in rewritten.nodes if isinstance(n, Op)] == ["relu", "max_pool"]
    x = np.random.default_rng(0).normal(size=(30, 1, 6, 6))
    assert np.array_equal(float_run(graph, x)[graph.outputs[0]], float_run(rewritten, x)[graph.outputs[0]])
    assert [n.op for n in graph.nodes if isinstance(n, Op)] == ["max_pool", "relu"]


def test_strided_pointwise_convolution_uploads_only_what_it_reads():
    graph = Builder((4, 8, 9), seed=4).conv(6, (1, 1), (2, 3), (0, 0, 0, 0)).done()
    plan = compile(graph)
    ((_, stage),) = plan.linear_stages()
    assert stage["geometry"]["input"] == [4, 4, 3] and stage["geometry"]["stride"] == [1, 1]
    x = np.random.default_rng(0).random((5, 4, 8, 9))
    error = np.abs(run(plan, x)[graph.outputs[0]] - float_run(graph, x)[graph.outputs[0]]).max()
    assert error <= plan.predicted["worst_error"]


def test_layer_after_layer_gets_a_refresh():
    plan = compile(Builder((6,)).dense(5).dense(4).done())
    assert ops(plan) == [["quantize"], "dense1", ["dequantize", "quantize"], "dense2", ["dequantize"]]


def test_residual_is_kept_in_its_fixed_form():
    b = Builder((2, 5, 5)).conv(3).op("relu")
    source = b.at
    plan = compile(b.conv(3).op("add", others=(source,)).op("relu").dense(2).done())
    assert ops(plan)[4] == ["dequantize", "dequantize", "add", "relu", "quantize"]
    kept = {plan.tensors[op["in"][0]]["name"] for op in plan.stages[4]["ops"] if op["op"] == "dequantize"}
    assert kept == {f"{source}.q", "conv3_out.acc"}


def test_results_of_two_layers_are_added_without_storing_reals():
    b = Builder((2, 5, 5)).op("tanh")
    source = b.at
    b.conv(3)
    left = b.at
    b.at = source
    plan = compile(b.conv(3, (1, 1), pads=(0, 0, 0, 0)).op("add", others=(left,)).op("relu").dense(2).done())
    assert ops(plan)[-3] == ["dequantize", "dequantize", "add", "relu", "quantize"]
    assert plan.stages[1]["in"] == plan.stages[2]["in"], "one tensor, uploaded by each layer"


def test_gate_recomputes_cheap_values_and_streams():
    """Squeeze and excitation: the gated tensor has no fixed form and is made again from the layer's integers."""
    b = Builder((3, 6, 6), seed=1).conv(4).op("silu")
    gated = b.at
    b.op("reduce_mean", (4, 1, 1), axes=[1, 2]).conv(4, (1, 1), pads=(0, 0, 0, 0)).op("sigmoid")
    b.op("broadcast", (4, 6, 6)).op("mul", others=(gated,)).dense(3)
    graph = b.done()
    plan = compile(graph, input_range=(-1, 1))
    x = np.random.default_rng(0).uniform(-1, 1, (20, 3, 6, 6))
    assert (
        np.abs(run(plan, x)[graph.outputs[0]] - float_run(graph, x)[graph.outputs[0]]).max()
        <= plan.predicted["worst_error"]
    )
    silus = [op for s in plan.stages if s["kind"] == "client" for op in s["ops"] if op["op"] == "silu"]
    assert len(silus) == 2


def test_dense_takes_any_shape_without_a_reshape():
    b = Builder((2, 4, 4)).conv(3).op("relu").op("reshape", (48,)).op("reshape", (48, 1)).op("reshape", (48,))
    plan = compile(b.dense(3).done())
    assert ops(plan) == [["quantize"], "conv1", ["dequantize", "relu", "quantize"], "dense6", ["dequantize"]]


def test_nodes_that_no_output_needs_are_dropped():
    b = Builder((4,)).dense(3)
    keep = b.at
    b.op("relu").dense(2)
    plan = compile(b.done(keep))
    assert ops(plan) == [["quantize"], "dense1", ["dequantize"]]


def test_an_input_may_be_an_output():
    plan = compile(Builder((4,)).dense(3).done("x", "dense1_out"))
    x = np.random.default_rng(0).random((3, 4))
    assert np.array_equal(run(plan, x)["x"], x)


def test_two_inputs():
    graph = Graph("two", ["a", "b"], ["y"], {"a": (3,), "b": (3,), "s": (3,), "y": (2,)}, [])
    graph.nodes += [
        Op("sum", "add", ["a", "b"], "s"),
        Linear("fc", "s", "y", Dense(3, 2), np.ones((2, 3)), np.zeros(2)),
    ]
    plan = compile(graph, input_range={"a": (0, 1), "b": (-2, 2)})
    rng = np.random.default_rng(0)
    a, b = rng.random((5, 3)), rng.uniform(-2, 2, (5, 3))
    y = run(plan, {"a": a, "b": b})["y"]
    assert np.abs(y - (a + b) @ np.ones((3, 2))).max() <= plan.predicted["worst_error"]
    assert plan.tensors[plan.stages[1]["in"]]["bound"] * plan.tensors[plan.stages[1]["in"]]["scale"] == pytest.approx(
        3.0
    )


def test_bits_are_the_most_that_keep_the_modulus_cheap():
    plan = compile(Builder((1, 12, 12)).conv(4, (5, 5)).op("relu").dense(10).done())
    for _, stage in plan.linear_stages():
        bound = plan.tensors[stage["in"]]["bound"]
        assert bound in {2 ** (b - 1) - 1 for b in range(8, 13)}
        assert stage["modulus_bits"] <= 42
        if bound < 2047:
            # one more bit would have taken the modulus past 42
            assert stage["modulus_bits"] + 1 > 42

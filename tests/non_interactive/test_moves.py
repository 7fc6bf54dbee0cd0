"""Non-interactive networks whose operators move elements anywhere.

Each through an encrypted run, within the predicted error.
"""

import hushnet
import numpy as np
import pytest
from hushnet import frontend, passes
from hushnet.errors import PlanError
from hushnet.planner.non_interactive import Linear, Network
from onnx import TensorProto

from tests.frontend.harness import Net, expected


def squared(net):
    return net.op("Mul", net.last, net.last)


def transposed(net):
    squared(net)
    net.op("Transpose", net.last, perm=[0, 1, 3, 2])


def sliced(net):
    squared(net)
    net.op("Slice", net.last, net.ints(1, 0), net.ints(0, 9), net.ints(1, 2), net.ints(-1, 2))
    net.op("Concat", net.last, net.last, net.last, net.last, axis=1)


def pooled_behind_concatenation(net):
    net.op("Concat", net.last, net.op("Conv", "x0", net.weight(3, 2, 1, 1)), axis=1)
    net.op("AveragePool", net.last, kernel_shape=[2, 2])
    net.op("Slice", net.last, net.ints(1), net.ints(5), net.ints(1))


def uneven_means(net):
    net.op("AveragePool", net.last, kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    squared(net)


def sum_of_orders(net):
    net.op("Add", net.last, net.op("Transpose", net.last, perm=[0, 1, 3, 2]))
    squared(net)


def enlarged(net):
    squared(net)
    net.op("Resize", net.last, "", net.constant([1, 1, 2, 1]), mode="linear")


def reflected(net):
    squared(net)
    net.op("Pad", net.last, net.ints(0, 0, 1, 1, 0, 0, 1, 1), mode="reflect")


def padded_with_a_value(net):
    squared(net)
    net.op("Pad", net.last, net.ints(0, 0, 1, 0, 0, 0, 0, 1), net.constant(0.5))
    squared(net)


def gathered(net):
    net.op("Gather", net.last, net.ints(3, 0, 0, 2), axis=1)
    squared(net)


def activated_concatenation(net):
    net.op("Concat", net.last, net.op("Conv", "x0", net.weight(4, 2, 1, 1)), axis=2)
    squared(net)
    net.op("Gather", net.last, net.ints(0, 5, 2, 7), axis=2)


MOVES = [
    transposed, sliced, pooled_behind_concatenation, uneven_means, sum_of_orders, enlarged, reflected,
    padded_with_a_value, gathered,
    activated_concatenation,
]  # fmt: skip


def run(net):
    x = np.random.default_rng(0).normal(size=(8, *net.shapes[0]))
    model = hushnet.compile(net.model(), trust="non-interactive", calibration=x)
    got = hushnet.run(model, x[:2], transport="pipe").output
    want = expected(net.model(), {"x0": x[:2].astype(np.float32)})[0]
    assert np.abs(got - want).max() <= model.plan.document["predicted"]["max_error"]
    assert np.abs(got - want).max() <= 0.05 * np.abs(want).max()
    return model


@pytest.mark.parametrize("moves", MOVES)
def test_moves_in_front_of_a_convolution(moves):
    net = Net((2, 4, 4))
    net.op("Conv", "x0", net.weight(4, 2, 1, 1))
    moves(net)
    net.op("Conv", net.last, net.weight(2, 4, 2, 2))
    run(net)


def test_a_concatenation_is_an_output():
    net = Net((2, 4, 4))
    first = net.op("Conv", "x0", net.weight(2, 2, 1, 1))
    net.op("Concat", first, net.op("Conv", "x0", net.weight(2, 2, 1, 1)), axis=2)
    run(net)


def test_transposed_convolutions_and_three_axes():
    net = Net((2, 4, 4))
    net.op("ConvTranspose", "x0", net.weight(2, 3, 3, 3), strides=[2, 2])
    squared(net)
    net.op("Conv", net.last, net.weight(2, 3, 2, 2))
    run(net)
    net = Net((2, 3, 4, 4))
    net.op("Conv", "x0", net.weight(3, 2, 2, 2, 2))
    squared(net)
    net.op("Conv", net.last, net.weight(2, 3, 2, 1, 1))
    run(net)


@pytest.mark.parametrize("include", [0, 1])
def test_means_over_three_axes(include):
    net = Net((2, 4, 5, 5))
    squared(net)
    net.op("Conv", net.last, net.weight(2, 2, 1, 2, 2))
    window = {"kernel_shape": [2, 3, 2], "strides": [2, 1, 1], "pads": [1, 1, 0, 1, 0, 1]}
    net.op("AveragePool", net.last, count_include_pad=include, **window)
    net.op("Conv", net.last, net.weight(2, 2, 2, 1, 1))
    run(net)


@pytest.mark.parametrize(("kind", "words"), [("Less", "comparisons are not polynomial")])
def test_what_is_neither_linear_nor_a_polynomial_is_refused(kind, words):
    net = Net((2, 4, 4))
    first = net.op("Conv", "x0", net.weight(2, 2, 1, 1))
    y = net.op(kind, first, net.op("Conv", "x0", net.weight(2, 2, 1, 1)))
    if kind == "Less":
        y = net.op("Cast", y, to=1)
    net.op("Conv", y, net.weight(2, 2, 1, 1))
    with pytest.raises(PlanError, match=words):
        run(net)


def run_all(net, *outputs, batch=1):
    """Every output of an encrypted run within the error that is predicted for it."""
    rng = np.random.default_rng(0)
    x = {f"x{i}": rng.normal(size=(8, *shape)) for i, shape in enumerate(net.shapes)}
    proto = net.model(*outputs)
    model = hushnet.compile(proto, trust="non-interactive", calibration=x, batch=batch)
    some = {k: v[:2] for k, v in x.items()}
    got = hushnet.run(model, some, transport="pipe").outputs
    errors = model.plan.predicted["output_errors"]
    for port, want in zip(proto.graph.output, expected(proto, {k: v.astype(np.float32) for k, v in some.items()})):
        off = np.abs(got[port.name] - want).max()
        assert off <= errors[port.name]["max_error"] + 1e-5 * np.abs(want).max()
        assert off <= 0.05 * np.abs(want).max()
    return model


def test_several_inputs_and_outputs():
    net = Net((2, 4, 4), (3, 4, 4), (5,))
    left = squared_of(net, net.op("Conv", "x0", net.weight(2, 2, 3, 3), pads=[1, 1, 1, 1]))
    right = net.op("Conv", "x1", net.weight(2, 3, 1, 1))
    scale = net.op("Reshape", net.op("MatMul", "x2", net.weight(5, 2)), net.ints(0, 2, 1, 1))
    total = net.op("Mul", net.op("Add", left, right), scale)
    ends = [net.op("Conv", total, net.weight(2, 2, 2, 2)), net.op("Softmax", scale, axis=1), net.op("Sigmoid", "x2")]
    model = run_all(net, *ends)
    assert model.plan.predicted["output_errors"][ends[2]]["max_error"] < 1e-5


def squared_of(net, name):
    return net.op("Mul", name, name)


def product(net, y):
    net.op("Mul", y, net.op("Conv", "x0", net.weight(4, 2, 1, 1)))


def product_with_a_broadcast(net, y):
    net.op("Mul", net.op("ReduceMean", y, axes=[2, 3], keepdims=1), y)


def uneven_product(net, y):
    net.op("Mul", net.op("Mul", y, net.constant(300.0)), net.op("Conv", "x0", net.weight(4, 2, 1, 1)))


def product_of_matrices(net, y):
    net.op("MatMul", y, net.op("Transpose", y, perm=[0, 1, 3, 2]))


def product_of_an_axis(net, y):
    net.op("ReduceProd", y, axes=[1], keepdims=1)


@pytest.mark.parametrize(
    ("kind", "batch"),
    [
        (product, 64),
        (product_with_a_broadcast, 1),
        (uneven_product, 1),
        (product_of_matrices, 1),
        (product_of_an_axis, 1),
    ],
)
def test_products_of_private_tensors(kind, batch):
    net = Net((2, 3, 3))
    kind(net, net.op("Conv", "x0", net.weight(4, 2, 1, 1)))
    net.op("Conv", net.last, net.weight(2, 1 if kind is product_of_an_axis else 4, 2, 2))
    run_all(net, batch=batch)


def test_a_product_of_matrices_has_a_limit():
    net = Net((20, 20))
    y = net.op("MatMul", "x0", net.weight(20, 20))
    net.op("MatMul", net.op("MatMul", y, y), net.weight(20, 2))
    with pytest.raises(PlanError, match="makes 8000 products of private values, and non-interactive plans take 4096"):
        run_all(net)


def test_images_of_several_inputs_need_no_large_matrix():
    net = Net((2, 64, 64), (1, 64, 64))
    ends = [net.op("Conv", f"x{i}", net.weight(1, c, 3, 3), pads=[1, 1, 1, 1]) for i, c in enumerate((2, 1))]
    network = Network.from_graph(passes.default(frontend.load(net.model(*ends))))
    assert all(layer.weights.size < 100 for layer in network.steps if isinstance(layer, Linear))
    x = {f"x{i}": np.random.default_rng(i).normal(size=(1, *shape)) for i, shape in enumerate(net.shapes)}
    want = expected(net.model(*ends), {k: v.astype(np.float32) for k, v in x.items()})
    got = network.values(x)[network.output].reshape(1, 2, 64, 64)
    assert np.abs(got - np.concatenate(want, axis=1)).max() < 1e-4


def test_a_network_without_layers_is_the_clients():
    net = Net((4,), (4,))
    total = net.op("Add", "x0", "x1")
    model = run_all(net, total, net.op("Round", net.op("Mul", total, "x0")))
    assert any("the client computes all of it by itself" in note for note in model.plan.document["notes"])
    assert all(e["max_error"] < 1e-4 for e in model.plan.predicted["output_errors"].values())


def test_roundings_of_a_reference_are_stated():
    """The client computes a sine of large values in binary64, a reference in binary32."""
    net = Net((40,))
    total = net.op("ReduceSumSquare", "x0", axes=[1])
    net.op("Sin", net.op("Mul", total, net.constant(40.0)))
    model = net.model()
    rows = 3 * np.random.default_rng(2).standard_normal((16, 40)).astype(np.float32)
    plan = hushnet.compile(model, trust="non-interactive", calibration=rows)
    found = next(iter(hushnet.run(plan, rows).outputs.values()))
    off = np.abs(found - expected(model, {"x0": rows})[0]).max()
    assert 1e-4 < off <= plan.plan.predicted["output_errors"][net.last]["max_error"]


def test_private_look_ups():
    net = Net((3,))
    rows = net.op("Gather", net.weight(6, 4), "x0")
    net.op("MatMul", net.op("Mul", rows, rows), net.weight(4, 2))
    proto = net.model()
    proto.graph.input[0].type.tensor_type.elem_type = TensorProto.INT64
    x = np.random.default_rng(0).integers(0, 6, (8, 3))
    model = hushnet.compile(proto, trust="non-interactive", calibration=x, batch=1)
    want = expected(proto, {"x0": x})[0]
    got = hushnet.run(model, x, transport="pipe").output
    assert np.abs(got - want).max() <= model.plan.predicted["max_error"] < 0.05 * np.abs(want).max()


def test_errors_of_a_quotient_are_those_that_calibration_shows():
    net = Net((4,))
    y = net.op("Gemm", "x0", net.weight(4, 3), net.weight(3))
    net.op("Div", y, net.op("ReduceL2", y, axes=[1]))
    model = run_all(net)
    (errors,) = model.plan.predicted["output_errors"].values()
    assert "worst_error" not in errors and 0 < errors["max_error"] < 1


def test_an_output_has_the_shape_of_the_graph():
    net = Net((1, 4, 5))
    y = net.op("Reshape", net.op("Conv", "x0", net.weight(4, 1, 2, 2)), net.ints(0, 48, 1))
    net.op(
        "Mul",
        net.op("Conv", net.op("Reshape", y, net.ints(0, 4, 12)), net.weight(4, 4, 1)),
        net.op("Reshape", y, net.ints(0, 4, 12)),
    )
    net.op("Reshape", net.last, net.ints(0, 48, 1))
    net.op("Mul", net.last, net.op("ReduceMean", y, axes=[1], keepdims=1))
    run_all(net)

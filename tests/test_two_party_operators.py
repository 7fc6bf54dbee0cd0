"""Operators that two-party plans write with others, each between two encrypted layers, against ONNX Runtime."""

import hushnet
import numpy as np
import pytest
from hushnet.errors import HushnetError

from tests.frontend.harness import Net, expected


def mish(n, x):
    """As exporters of old opsets write it."""
    return n.op("Mul", n.op("Tanh", n.op("Softplus", x)), x)


def dead(n):
    """A branch that is zero in all calibration data, twice in a product."""
    x = n.nodes[0].output[0]
    zero = n.op("Relu", n.op("Sub", n.op("Relu", n.op("Conv", "x0", n.weight(4, 3, 1, 1))), n.constant(50.0)))
    gated = n.op("Mul", n.op("HardSigmoid", zero), zero)
    return n.op("Add", n.op("Mul", n.op("Sigmoid", x), gated), x)


OPERATORS = {
    "a branch that is zero": dead,
    "Abs": lambda n: n.op("Abs"),
    "Max": lambda n: n.op("Max", n.last, n.op("Conv", "x0", n.weight(4, 3, 1, 1))),
    "Min": lambda n: n.op("Min", n.last, n.op("Conv", "x0", n.weight(4, 3, 1, 1))),
    "PRelu of channels": lambda n: n.op("PRelu", n.last, n.constant(np.reshape([0.1, -0.3, 1.2, 0.5], (4, 1, 1)))),
    "LeakyRelu of negative slope": lambda n: n.op("LeakyRelu", n.last, alpha=-0.4),
    "nearest": lambda n: n.op("Resize", n.last, "", n.constant([1, 1, 2, 2]), mode="nearest"),
    "linear": lambda n: n.op("Resize", n.last, "", n.constant([1, 1, 2, 1.5]), mode="linear"),
    "cubic": lambda n: n.op("Resize", n.last, "", n.constant([1, 1, 0.5, 2]), mode="cubic"),
    "Gather": lambda n: n.op("Gather", n.last, n.ints(3, 0, 0, 2), axis=1),
    "Tile": lambda n: n.op("Tile", n.last, n.ints(1, 1, 2, 1)),
    "broadcast sum": lambda n: n.op("Add", n.op("GlobalMaxPool", n.last), n.nodes[0].output[0]),
    "reflection": lambda n: n.op("Pad", n.last, n.ints(0, 0, 2, 1, 0, 0, 1, 2), mode="reflect"),
    "padding with a value": lambda n: n.op("Pad", n.last, n.ints(0, 0, 2, 1, 0, 0, 1, 2), n.constant(0.5)),
    "ConvTranspose": lambda n: n.op("ConvTranspose", n.last, n.weight(4, 4, 3, 3), strides=[2, 2]),
    "Sigmoid": lambda n: n.op("Sigmoid", n.last),
    "Tanh": lambda n: n.op("Tanh", n.last),
    "Erf": lambda n: n.op("Erf", n.last),
    "Exp": lambda n: n.op("Exp", n.last),
    "Elu": lambda n: n.op("Elu", n.last, alpha=1.0),
    "Sin": lambda n: n.op("Sin", n.last),
    "HardSigmoid": lambda n: n.op("HardSigmoid", n.last),
    "HardSigmoid, falling": lambda n: n.op("HardSigmoid", n.last, alpha=-0.3),
    "HardSwish": lambda n: n.op("HardSwish", n.last),
    "SiLU": lambda n: n.op("Mul", n.last, n.op("Sigmoid", n.last)),
    "Softplus": lambda n: n.op("Softplus", n.last),
    "Mish of a LeakyRelu": lambda n: mish(n, n.op("LeakyRelu", n.last, alpha=0.4)),
    "Softsign": lambda n: n.op("Softsign", n.last),
    "Sqrt": lambda n: n.op("Sqrt", n.op("Add", n.op("Abs", n.last), n.constant(0.3))),
    "Log": lambda n: n.op("Log", n.op("Add", n.op("Abs", n.last), n.constant(0.3))),
    "Reciprocal": lambda n: n.op("Reciprocal", n.op("Add", n.op("Abs", n.last), n.constant(0.5))),
    "Pow 2": lambda n: n.op("Pow", n.last, n.constant(2.0)),
    "ReLU times sigmoid": lambda n: n.op("Mul", n.op("Relu", n.last), n.op("Sigmoid", n.nodes[0].output[0])),
    "Mul": lambda n: n.op("Mul", n.last, n.op("Conv", "x0", n.weight(4, 3, 1, 1))),
    "Mul with broadcast": lambda n: n.op("Mul", n.op("GlobalMaxPool", n.last), n.nodes[0].output[0]),
    "Div": lambda n: n.op("Div", n.nodes[0].output[0], n.op("Add", n.op("Abs", n.last), n.constant(0.5))),
    "Sub from a constant": lambda n: n.op("Sub", n.constant(1.0), n.op("Relu", n.last)),
    "CumSum": lambda n: n.op("CumSum", n.last, n.constant(2, np.int64)),
}


def run(net, *, trust="two-party", **options):
    """Outputs of an encrypted run, ONNX Runtime's, and the plan's error."""
    rng = np.random.default_rng(0)
    x = {f"x{i}": rng.normal(size=(6, *shape)) for i, shape in enumerate(net.shapes)}
    model = hushnet.compile(net.model(), trust=trust, calibration=x, weight_bits=8, **options)
    some = {k: v[:2] for k, v in x.items()}
    result = hushnet.run(model, some)
    want = expected(net.model(), {k: v.astype(np.float32) for k, v in some.items()})[0]
    (name,) = result.outputs
    return result.output, want, model.plan.document["predicted"]["output_errors"][name]


def close(got, want, errors):
    off = float(np.abs(got - want).max())
    assert off <= errors["worst_error"] + 1e-4
    # far from trivial: a wrong operator is off by the size of the outputs
    assert off <= 0.06 * float(np.abs(want).max())


@pytest.mark.parametrize("kind", sorted(OPERATORS))
def test_operator_between_layers(kind):
    net = Net((3, 6, 6))
    net.op("Conv", "x0", net.weight(4, 3, 3, 3), pads=[1, 1, 1, 1])
    OPERATORS[kind](net)
    net.op("Conv", net.last, net.weight(2, 4, 1, 1))
    close(*run(net))


def test_three_axes():
    net = Net((2, 4, 5, 5))
    net.op("Relu", net.op("Conv", "x0", net.weight(3, 2, 2, 3, 3)))
    net.op("MaxPool", net.last, kernel_shape=[2, 2, 2])
    net.op("AveragePool", net.last, kernel_shape=[2, 2, 2], pads=[1, 0, 0, 0, 1, 0], count_include_pad=0)
    net.op("Conv", net.last, net.weight(2, 3, 1, 1, 1))
    close(*run(net))


def test_one_axis():
    net = Net((3, 9))
    net.op("Relu", net.op("Conv", "x0", net.weight(4, 3, 3)))
    net.op("ConvTranspose", net.op("MaxPool", net.last, kernel_shape=[2]), net.weight(4, 2, 3), strides=[2])
    close(*run(net))


def test_products_of_private_matrices():
    net = Net((3, 4))
    net.op("MatMul", "x0", net.weight(4, 5))
    net.op("MatMul", net.last, net.op("Transpose", net.last, perm=[0, 2, 1]))
    net.op("MatMul", net.last, net.weight(3, 2))
    close(*run(net))
    close(*run(net, trust="client-aided"))


def test_products_along_an_axis_are_refused_in_one_sentence():
    net = Net((3, 4))
    net.op("MatMul", "x0", net.weight(4, 5))
    net.op("MatMul", net.op("ReduceProd", net.last, axes=[2]), net.weight(1, 2))
    with pytest.raises(HushnetError, match="write them as products of two tensors"):
        run(net)


@pytest.mark.parametrize("kind", ["Mish", "Softplus", "Softsign"])
def test_the_client_computes_the_last_function_within_a_bound(kind):
    net = Net((3, 6, 6), opset=18)
    net.op(kind, net.op("Conv", "x0", net.weight(4, 3, 3, 3)))
    close(*run(net))


def test_networks_without_weights_run():
    net = Net((3, 4))
    net.op("Softmax", net.op("Relu", "x0"))
    got, want, _ = run(net)
    assert np.abs(got - want).max() < 1e-6


@pytest.mark.parametrize("kind", ["Mul", "Div", "Add", "Max"])
def test_an_input_that_no_layer_reads_broadcasts_with_shares(kind):
    """A gate or a mask that the client gives: its copies are made before it enters."""
    net = Net((3, 4, 4), (1, 4, 1))
    net.op("Conv", "x0", net.weight(2, 3, 1, 1))
    gate = net.op("Add", net.op("Mul", "x1", "x1"), net.constant(0.5))
    net.op(kind, net.nodes[0].output[0], gate)
    net.op("Conv", net.last, net.weight(2, 2, 2, 2))
    close(*run(net))


def test_a_product_far_below_what_its_factors_reach():
    """Of factors that exclude each other; with few bits the product keeps all of its own."""
    net = Net((3, 4, 4))
    x = net.op("Conv", "x0", net.weight(2, 3, 1, 1))
    product = net.op("Mul", net.op("Relu", x), net.op("Relu", net.op("Sub", net.constant(0.01), x)))
    net.op("Conv", net.op("Add", product, x), net.weight(2, 2, 2, 2))
    close(*run(net, activation_bits=9))


def test_masks_and_constants():
    net = Net((3, 4, 4))
    net.op("Relu", net.op("Conv", "x0", net.weight(2, 3, 1, 1)))
    mask = net.constant(np.random.default_rng(2).random((1, 2, 4, 4)) < 0.5, np.bool_)
    net.op("Where", mask, net.last, net.constant(0.25))
    net.op("Conv", net.last, net.weight(2, 2, 2, 2))
    close(*run(net))

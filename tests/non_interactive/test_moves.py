"""Non-interactive networks whose operators move elements anywhere: each through an encrypted run, within the predicted error."""

import hushnet
import numpy as np
import pytest
from hushnet.errors import PlanError

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
    transposed, sliced, pooled_behind_concatenation, uneven_means, sum_of_orders, enlarged, reflected, padded_with_a_value, gathered,
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


@pytest.mark.parametrize(
    ("kind", "words"), [("Less", "comparisons are not polynomial"), ("MatMul", "products of two private matrices")]
)
def test_what_is_neither_linear_nor_a_polynomial_is_refused(kind, words):
    net = Net((2, 4, 4))
    first = net.op("Conv", "x0", net.weight(2, 2, 1, 1))
    y = net.op(kind, first, net.op("Conv", "x0", net.weight(2, 2, 1, 1)))
    if kind == "Less":
        y = net.op("Cast", y, to=1)
    net.op("Conv", y, net.weight(2, 2, 1, 1))
    with pytest.raises(PlanError, match=words):
        run(net)

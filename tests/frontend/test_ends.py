"""Head, body and tail together are the graph; polynomials written with Horner's rule are polynomials."""

from __future__ import annotations

import numpy as np
import pytest
from hushnet import passes
from hushnet.frontend import load
from hushnet.graph import Linear
from hushnet.passes import activations, replace_activations, split_ends
from hushnet.reference.float import evaluate
from numpy.polynomial import polynomial as poly

from tests.frontend.harness import Net


def through(graph, x):
    ends = split_ends(graph)
    for part in (ends.head, ends.body, ends.tail):
        if part is not None:
            x = evaluate(part, {part.inputs[0]: x})[part.outputs[0]]
    return ends, x


def whole(graph, x):
    return evaluate(graph, {graph.inputs[0]: x})[graph.outputs[0]]


def test_parts_compose_to_the_graph() -> None:
    net = Net((6, 5, 3))
    net.op("Transpose", "x0", perm=[0, 3, 1, 2])
    net.op("Mul", net.last, net.constant(0.5))
    net.op("Conv", net.last, net.weight(4, 3, 2, 2))
    hidden = net.op("Relu", net.last)
    net.op("Conv", hidden, net.weight(4, 4, 1, 1))
    net.op("Add", net.last, hidden)
    net.op("Flatten", net.last)
    net.op("Gemm", net.last, net.weight(80, 3))
    net.op("Exp", net.last)
    net.op("Softmax", net.last, axis=-1)
    graph = load(net.model())
    x = np.random.default_rng(0).standard_normal((2, 6, 5, 3))
    ends, got = through(graph, x)
    assert np.allclose(got, whole(graph, x))
    assert ends.head is not None and [n.op for n in ends.head.nodes] == ["transpose", "affine"]
    assert ends.tail is not None and [n.op for n in ends.tail.nodes][-2:] == ["exp", "softmax"]
    assert not any(isinstance(n, Linear) for part in (ends.head, ends.tail) for n in part.nodes)
    assert [n.op for n in activations(graph)] == ["relu"]


def test_a_tail_of_several_branches_is_cut_at_one_tensor() -> None:
    net = Net((4,))
    y = net.op("Gemm", "x0", net.weight(4, 4))
    net.op("Mul", net.op("Sigmoid", y), net.op("Tanh", y))
    graph = load(net.model())
    ends, _got = through(graph, np.random.default_rng(1).standard_normal((3, 4)))
    assert ends.tail is not None and {n.op for n in ends.tail.nodes} == {"sigmoid", "tanh", "mul"}
    assert len(ends.body.nodes) == 1


def test_without_layers_everything_is_the_clients() -> None:
    net = Net((4,))
    net.op("Relu", "x0")
    net.op("Tanh", net.last)
    graph = load(net.model())
    x = np.random.default_rng(1).standard_normal((3, 4))
    ends, got = through(graph, x)
    assert np.array_equal(got, whole(graph, x)) and not ends.body.nodes


def test_branches_of_the_input_have_no_head() -> None:
    net = Net((4,))
    net.op("Add", net.op("Gemm", "x0", net.weight(4, 4)), "x0")
    ends, _ = through(load(net.model()), np.zeros((1, 4)))
    assert ends.head is None and ends.tail is None and len(ends.body.nodes) == 2


def several(graph, inputs):
    """Outputs by name through the three parts."""
    ends = split_ends(graph)
    (first,) = ends.body.inputs
    (last,) = ends.body.outputs
    values = dict(inputs) if ends.head is None else {**inputs, **evaluate(ends.head, inputs)}
    values |= evaluate(ends.body, {first: values[first]})
    if ends.tail is not None:
        values |= evaluate(ends.tail, {last: values[last]})
    return ends, values


@pytest.mark.parametrize("second", [(4, 3, 3), (2, 3, 3), (5,)])
def test_several_tensors_cross_as_one(second: tuple[int, ...]) -> None:
    net = Net((4, 3, 3), second)
    left = net.op("Conv", net.op("Relu", "x0"), net.weight(2, 4, 1, 1))
    size = int(np.prod(second))
    right = net.op("Gemm", net.op("Flatten", "x1"), net.weight(size, 6))
    end = net.op("Sigmoid", net.op("Add", net.op("Flatten", left), net.op("Gemm", right, net.weight(6, 18))))
    own = net.op("Tanh", "x1")
    graph = load(net.model(end, own, net.op("Softmax", right)))
    rng = np.random.default_rng(3)
    inputs = {"x0": rng.standard_normal((2, 4, 3, 3)), "x1": rng.standard_normal((2, *second))}
    ends, got = several(graph, inputs)
    want = evaluate(graph, inputs)
    for name in graph.outputs:
        assert np.allclose(got[name], want[name])
    assert ends.head is not None and ends.head.outputs[1:] == [own]
    assert ends.tail is not None and {n.op for n in ends.tail.nodes} >= {"sigmoid", "softmax", "slice"}
    assert ends.body.shapes[ends.body.inputs[0]] == (36 + size,)


def test_images_of_one_size_cross_as_channels() -> None:
    net = Net((4, 3, 3), (2, 3, 3))
    ends = [net.op("Conv", f"x{i}", net.weight(2, c, 1, 1)) for i, c in enumerate((4, 2))]
    graph = load(net.model(*ends))
    body = split_ends(graph).body
    assert body.shapes[body.inputs[0]] == (6, 3, 3) and body.shapes[body.outputs[0]] == (4, 3, 3)


def test_several_outputs_of_ops_alone_are_the_clients() -> None:
    net = Net((4,), (4,))
    total = net.op("Add", "x0", "x1")
    graph = load(net.model(total, net.op("Mul", total, "x0")))
    ends, got = several(graph, {"x0": np.ones((1, 4)), "x1": np.full((1, 4), 2.0)})
    assert not ends.body.nodes and ends.tail is None
    assert [float(got[n][0, 0]) for n in graph.outputs] == [3.0, 3.0]


@pytest.mark.parametrize(
    "coefficients",
    [(0.0, 0.0, 1.0), (1.0, -2.0), (0.24, 0.5, 0.1), (0.5, 0.0, -1.0, 0.25), (1.0, 2.0, 3.0, 4.0, 5.0, 6.0)],
)
def test_replaced_activations_are_the_polynomial(coefficients: tuple[float, ...]) -> None:
    net = Net((5,))
    net.op("Gemm", "x0", net.weight(5, 5))
    net.op("Relu", net.last)
    net.op("Gemm", net.last, net.weight(5, 5))
    graph = passes.default(load(net.model()))
    first, act, second = graph.nodes
    done = replace_activations(graph, {act.name: coefficients})
    x = np.random.default_rng(2).standard_normal((4, 5))
    hidden = evaluate(graph, {"x0": x}, keep_all=True)[first.output]
    want = poly.polyval(hidden, coefficients) @ second.weight.T + second.bias
    assert np.allclose(whole(done, x), want)
    assert np.allclose(whole(passes.default(done), x), want)
    assert graph.nodes[1] is act and act.op == "relu"
    with pytest.raises(ValueError, match="at least 1"):
        replace_activations(graph, {act.name: (1.0,)})


def test_results_of_several_layers_are_opened_together_where_more_than_sums_follow() -> None:
    net = Net((4,))
    chances = [net.op("Softmax", net.op("MatMul", "x0", net.weight(4, 3)), axis=-1) for _ in range(3)]
    net.op("Sum", *chances)
    graph = passes.default(load(net.model()))
    x = np.random.default_rng(0).normal(size=(5, 4))
    ends, found = through(graph, x)
    np.testing.assert_allclose(found, whole(graph, x), atol=1e-12)
    assert [n.op for n in ends.body.nodes if not isinstance(n, Linear)] == ["concat"]
    assert ends.tail is not None and [n.op for n in ends.tail.nodes].count("softmax") == 3


def test_a_sum_of_layers_and_layers_behind_one_another_stay_one_result() -> None:
    net = Net((4,))
    net.op("Add", net.op("MatMul", "x0", net.weight(4, 3)), net.op("MatMul", "x0", net.weight(4, 3)))
    assert split_ends(passes.fold_constants(load(net.model()))).tail is None
    net = Net((4,))
    first = net.op("MatMul", "x0", net.weight(4, 3))
    net.op("Add", net.op("Sigmoid", net.op("MatMul", net.op("Relu", first), net.weight(3, 3))), first)
    graph = load(net.model())
    assert split_ends(graph).body.outputs == graph.outputs

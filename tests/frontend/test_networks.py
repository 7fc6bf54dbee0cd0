"""Seeded random small networks: chains, residuals, branches, the idioms of exporters; the graph equals ONNX Runtime."""

import numpy as np
import pytest
from hushnet import passes
from hushnet.frontend import load
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from .harness import OPSETS, Net, agree, close, consistent, expected, images, linears, ops

ACTIVATIONS = ["Relu", "Sigmoid", "Tanh", "LeakyRelu", "Elu", "Softsign", "Abs"]


class Image:
    """A network over images that knows its shape."""

    def __init__(self, seed: int, opset: int, batch):
        self.rng = np.random.default_rng(seed)
        self.c, self.h, self.w = (
            int(n) for n in (self.rng.integers(1, 5), self.rng.integers(4, 11), self.rng.integers(4, 11))
        )
        self.net = Net((self.c, self.h, self.w), opset=opset, batch=batch, seed=seed)

    def conv(self, c_out: int, kernel: int, groups: int = 1) -> None:
        weight = self.net.weight(c_out, self.c // groups, kernel, kernel)
        pad = int(self.rng.integers(0, kernel))
        stride = int(self.rng.integers(1, 3))
        if min(self.h, self.w) + 2 * pad < kernel:
            return
        bias = [self.net.weight(c_out)] if self.rng.random() < 0.5 else []
        self.net.op("Conv", self.net.last, weight, *bias, pads=[pad] * 4, strides=[stride] * 2, group=groups)
        self.c = c_out
        self.h, self.w = ((n + 2 * pad - kernel) // stride + 1 for n in (self.h, self.w))

    def batch_norm(self) -> None:
        net, c = self.net, self.c
        parameters = [net.weight(c), net.weight(c), net.weight(c), net.constant(net.rng.uniform(0.5, 2, c))]
        net.op("BatchNormalization", net.last, *parameters)

    def activation(self) -> None:
        self.net.op(str(self.rng.choice(ACTIVATIONS)))

    def residual(self) -> None:
        net, skip = self.net, self.net.last
        net.op("Conv", skip, net.weight(self.c, self.c, 3, 3), pads=[1] * 4)
        self.batch_norm()
        net.op("Add", *((net.last, skip) if self.rng.random() < 0.5 else (skip, net.last)))

    def branches(self) -> None:
        net, trunk, c_in = self.net, self.net.last, self.c
        parts = [trunk]
        for c in self.rng.integers(1, 4, int(self.rng.integers(1, 3))):
            parts.append(net.op("Conv", trunk, net.weight(int(c), c_in, 1, 1), net.weight(int(c))))
            self.c += int(c)
        net.op("Concat", *parts, axis=1)

    def pool(self) -> None:
        if min(self.h, self.w) >= 3:
            ceil = int(self.rng.integers(0, 2))
            self.net.op(
                str(self.rng.choice(["MaxPool", "AveragePool"])), kernel_shape=[2, 2], strides=[2, 2], ceil_mode=ceil
            )
            self.h, self.w = ((n + ceil) // 2 for n in (self.h, self.w))

    def constants(self) -> None:
        net = self.net
        shape = [(), (self.c, 1, 1), (1, self.c, 1, 1), (self.h, 1), (self.c, self.h, self.w)][
            int(self.rng.integers(0, 5))
        ]
        net.op(
            str(self.rng.choice(["Add", "Sub", "Mul", "Div"])), net.last, net.constant(net.rng.uniform(0.5, 2, shape))
        )

    def head(self) -> None:
        net = self.net
        size = self.c * self.h * self.w
        if self.rng.random() < 0.4:
            net.op("GlobalAveragePool")
            size = self.c
        net.op("Flatten", axis=1)
        if self.rng.random() < 0.5:
            net.op("Mul", net.last, net.constant(net.rng.uniform(0.5, 2, size)))
        net.op("Gemm", net.last, net.weight(5, size), net.weight(5), transB=1)
        if self.rng.random() < 0.3:
            net.op("Softmax", axis=-1)


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from(OPSETS), st.sampled_from(["N", 1, 4]))
def test_random_network(seed, opset, batch):
    image = Image(seed, opset, batch)
    steps = [
        lambda: image.conv(int(image.rng.integers(1, 6)), int(image.rng.integers(1, 4))),
        lambda: image.conv(image.c * int(image.rng.integers(1, 3)), 3, image.c),
        image.batch_norm, image.activation, image.residual, image.branches, image.pool, image.constants,
    ]  # fmt: skip
    for step in image.rng.integers(0, len(steps), int(image.rng.integers(2, 9))):
        steps[int(step)]()
    if image.rng.random() < 0.8:
        image.head()
    if image.net.nodes:
        agree(image.net.model())


def test_batch_norms_and_constants_of_a_residual_network_fold():
    net = Net((3, 8, 8))

    def conv_norm(x, c_in, c_out):
        net.op("Conv", x, net.weight(c_out, c_in, 3, 3), pads=[1] * 4)
        parameters = [
            net.weight(c_out),
            net.weight(c_out),
            net.weight(c_out),
            net.constant(net.rng.uniform(0.5, 2, c_out)),
        ]
        return net.op("BatchNormalization", net.last, *parameters)

    x = net.op("Relu", conv_norm("x0", 3, 4))
    y = net.op("Relu", conv_norm(x, 4, 4))
    net.op("Relu", net.op("Add", conv_norm(y, 4, 4), x))
    net.op("Flatten", net.op("GlobalAveragePool"))
    net.op("Add", net.op("MatMul", net.last, net.weight(4, 6)), net.weight(6))
    graph = agree(net.model())
    assert len(linears(graph)) == 4
    assert ops(graph) == ["relu", "relu", "add", "relu", "reduce_mean"]


@pytest.mark.parametrize("batch", ["batch_size", 1, 2])
@pytest.mark.parametrize("opset", OPSETS)
def test_exporters_flatten_idiom(batch, opset):
    """Shape, Gather, Unsqueeze, Concat, Reshape; identity chains; Constant nodes."""
    net = Net((2, 4, 4), opset=opset, batch=batch)
    net.op("Conv", "x0", net.op("Identity", net.weight(3, 2, 3, 3)))
    net.op("Relu", net.op("Identity", net.op("Dropout", net.op("Identity", net.last))))
    y = net.op("MaxPool", kernel_shape=[2, 2], strides=[1, 2], ceil_mode=1)
    zero = net.node_constant(0)
    first = net.op("Unsqueeze", net.op("Gather", net.op("Shape", y), zero, axis=0), net.ints(0))
    shape = net.op("Concat", first, net.ints(-1), axis=0)
    net.op("Gemm", net.op("Reshape", y, shape), net.weight(4, 3), transB=1)
    graph = agree(net.model())
    assert len(linears(graph)) == 2


def test_weights_computed_by_nodes():
    """Weight normalisation and transposed weights are constants all the same."""
    net = Net((4,))
    v = net.weight(4, 3)
    norm = net.op("ReduceL2", v, axes=[0], keepdims=1)
    weight = net.op("Mul", net.op("Div", v, norm), net.weight(1, 3))
    net.op("MatMul", "x0", net.op("Transpose", net.op("Transpose", weight, perm=[1, 0]), perm=[1, 0]))
    graph = agree(net.model())
    assert len(linears(graph)) == 1 and ops(graph) == []


def test_constant_control_flow_is_resolved():
    """An If whose condition is known, with weights inside and outside of the branch."""

    def branch(name, kind, weight):
        nodes = [
            helper.make_node("MatMul", ["x0", weight], [f"{name}_m"]),
            helper.make_node(kind, [f"{name}_m"], [f"{name}_y"]),
        ]
        return helper.make_graph(nodes, name, [], [helper.make_tensor_value_info(f"{name}_y", TensorProto.FLOAT, None)])

    net = Net((4,))
    weight, other = net.weight(4, 3), net.weight(4, 3)
    condition = net.op("Not", net.op("Identity", net.constant(False, np.bool_)))
    net.op("If", condition, then_branch=branch("a", "Relu", weight), else_branch=branch("b", "Tanh", other))
    net.op("Sigmoid")
    assert ops(agree(net.model())) == ["relu", "sigmoid"]


def test_channel_shuffle_and_sequence_first():
    net = Net((6, 3, 3))
    net.op("Reshape", "x0", net.ints(0, 2, 3, 3, 3))
    net.op("Reshape", net.op("Transpose", perm=[0, 2, 1, 3, 4]), net.ints(0, -1, 3, 3))
    net.op("Conv", net.last, net.weight(6, 3, 1, 1), group=2)
    agree(net.model())
    net = Net((5, 4))
    net.op("Transpose", perm=[1, 0, 2])
    net.op("Relu")
    net.op("Transpose", perm=[1, 0, 2])
    assert "transpose" not in ops(agree(net.model()))


def test_several_inputs_and_outputs_with_their_names():
    net = Net((3, 4), (3, 4))
    first = net.op("Add", "x0", "x1")
    second = net.op("Identity", first)
    third = net.op("Flatten", second)
    model = net.model(third, first, second, "x0")
    graph = passes.default(load(model))
    assert graph.inputs == ["x0", "x1"] and graph.outputs == [third, first, second, "x0"]
    inputs = images(model)
    close(graph, inputs, [*expected(net.model(third, first, second), inputs), inputs["x0"]])
    consistent(graph)


def test_mixed_chain_of_matmuls_over_a_sequence():
    net = Net((5, 4))
    net.op("Add", net.op("MatMul", "x0", net.weight(4, 6)), net.weight(6))
    net.op("Relu")
    net.op("Add", net.op("MatMul", net.weight(3, 5), net.last), net.weight(3, 1))
    net.op("ReduceMean", axes=[1], keepdims=0)
    graph = agree(net.model())
    assert len(linears(graph)) == 2


def test_lenet_has_only_layers_activations_and_pools():
    net = Net((1, 28, 28))
    for c_in, c_out in ((1, 6), (6, 16)):
        net.op("Conv", net.last, net.weight(c_out, c_in, 5, 5), net.weight(c_out))
        net.op("MaxPool", net.op("Relu"), kernel_shape=[2, 2], strides=[2, 2])
    net.op("Flatten")
    for a, b in ((256, 120), (120, 84), (84, 10)):
        net.op("Gemm", net.last, net.weight(a, b), net.weight(b))
        if b > 10:
            net.op("Relu")
    graph = agree(net.model())
    assert len(linears(graph)) == 5
    assert ops(graph) == ["relu", "max_pool", "relu", "max_pool", "relu", "relu"]

"""What every pass does, does not do, and never changes: the given graph and the result."""

import numpy as np
import pytest
from hushnet import passes
from hushnet.frontend import load
from hushnet.graph import Graph, Op
from hushnet.passes import edit

from .harness import Net, agree, close, consistent, expected, images, linears, ops


def run(net: Net, step, *outputs: str) -> Graph:
    """One pass on a fresh graph, which must stay as it was; the result is held against ONNX Runtime."""
    model = net.model(*outputs)
    graph = load(model)
    before = repr(graph)
    result = step(graph)
    assert repr(graph) == before
    inputs = images(model)
    close(result, inputs, expected(model, inputs))
    return result


def test_a_diagonal_folds_into_the_layer_before_it_through_moves():
    net = Net((3, 4, 5))
    net.op("Conv", "x0", net.weight(6, 3, 1, 1))
    net.op("Reshape", net.op("Transpose", perm=[0, 2, 3, 1]), net.ints(0, 20, 6))
    net.op("Add", net.op("Mul", net.last, net.weight(6)), net.weight(6))
    assert len(linears(run(net, passes.fold_diagonal))) == 1


def test_layers_of_zeros_are_the_constant_zero():
    """The first step of a loop: its state of zeros decays, is read and is added to."""
    net = Net((3, 4))
    decayed = net.op("Mul", net.op("Exp", "x0"), net.constant(np.zeros((3, 4))))
    read = net.op("MatMul", "x0", net.constant(np.zeros((4, 5))))
    state = net.op("Add", decayed, net.op("Relu", "x0"))
    net.op("MatMul", net.op("Transpose", read, perm=[0, 2, 1]), state)
    graph = run(net, passes.default)
    assert linears(graph) == [] and "exp" not in ops(graph) and "matmul" not in ops(graph)
    net = Net((4,))
    net.op("Gemm", "x0", net.constant(np.zeros((4, 2))), net.weight(2))
    assert len(linears(run(net, passes.default))) == 1


def test_a_diagonal_with_a_second_reader_before_it_stays():
    net = Net((3,))
    a = net.op("MatMul", "x0", net.weight(3, 4))
    net.op("Add", net.op("Mul", a, net.weight(4)), a)
    assert len(linears(run(net, passes.fold_diagonal))) == 2


def test_a_diagonal_goes_into_each_of_the_layers_that_alone_read_it():
    net = Net((6,))
    scaled = net.op("Mul", net.op("Sub", "x0", net.weight(6)), net.weight(6))
    first = net.op("Sigmoid", net.op("MatMul", scaled, net.weight(6, 3)))
    net.op("Add", net.op("MatMul", scaled, net.weight(6, 3)), first)
    assert len(linears(run(net, passes.default))) == 2
    net.op("Concat", net.last, scaled, axis=1)
    assert len(linears(run(net, passes.default))) == 3


def test_a_diagonal_in_front_of_a_padded_convolution_folds_only_without_shift():
    for shift, left in ((False, 1), (True, 2)):
        net = Net((3, 4, 4))
        net.op("Mul", net.op("Relu"), net.weight(3, 1, 1))
        if shift:
            net.op("Add", net.last, net.weight(3, 1, 1))
        net.op("Conv", net.last, net.weight(2, 3, 3, 3), pads=[1] * 4)
        assert len(linears(run(net, passes.default))) == left


def test_a_diagonal_folds_into_a_grouped_convolution_and_a_dense_layer_behind_it():
    net = Net((4, 5, 5))
    net.op("Add", net.op("Mul", net.op("Relu"), net.weight(4, 1, 1)), net.weight(4, 1, 1))
    net.op("Conv", net.last, net.weight(6, 2, 3, 3), group=2)
    net.op("Add", net.op("Mul", net.op("Flatten", net.op("Tanh")), net.weight(54)), net.weight(54))
    net.op("MatMul", net.last, net.weight(54, 3))
    assert len(linears(run(net, passes.default))) == 2


def test_a_batch_norm_behind_a_pooling_folds_into_the_convolution():
    for kind, positive, left in (("AveragePool", False, 1), ("MaxPool", True, 1), ("MaxPool", False, 2)):
        net = Net((3, 6, 6))
        net.op("Conv", "x0", net.weight(4, 3, 3, 3))
        net.op(kind, net.last, kernel_shape=[2, 2], strides=[2, 2])
        scale = net.constant(np.array([1, 2, 3, 4]) if positive else np.array([1, -2, 3, 4]))
        net.op("BatchNormalization", net.last, scale, net.weight(4), net.weight(4), net.constant(np.ones(4)))
        assert len(linears(run(net, passes.fold_diagonal))) == left


def test_per_element_constants_do_not_fold_into_a_convolution():
    net = Net((3, 4, 4))
    net.op("Mul", net.op("Conv", "x0", net.weight(2, 3, 1, 1)), net.weight(2, 4, 4))
    assert len(linears(run(net, passes.default))) == 2


def test_crossing_diagonals_fuse():
    net = Net((4, 5))
    net.op("Add", net.op("Mul", "x0", net.weight(4, 1)), net.weight(4, 1))
    net.op("Transpose", perm=[0, 2, 1])
    net.op("Add", net.op("Mul", net.last, net.weight(5, 1)), net.weight(5, 1))
    graph = run(net, passes.default)
    assert len(linears(graph)) == 1
    consistent(graph)


@pytest.mark.parametrize("between", ["none", "AveragePool", "MaxPool", "GlobalAveragePool", "padded"])
def test_affine_ops_fold_into_layers(between):
    net = Net((2, 6, 6))
    net.op("Mul", net.op("Conv", "x0", net.weight(3, 2, 3, 3)), net.constant(0.5))
    if between == "padded":
        net.op("AveragePool", net.last, kernel_shape=[2, 2], pads=[1, 1, 0, 0], count_include_pad=1)
    elif between.startswith("Global"):
        net.op(between)
    elif between != "none":
        net.op(between, net.last, kernel_shape=[2, 2])
    net.op("Add", net.last, net.constant(1.5))
    graph = run(net, passes.fold_affine)
    assert ops(graph).count("affine") == (1 if between == "padded" else 0)
    assert len(linears(graph)) == 1


def test_a_negative_factor_does_not_pass_a_maximum():
    net = Net((2, 6, 6))
    net.op("MaxPool", net.op("Conv", "x0", net.weight(3, 2, 3, 3)), kernel_shape=[2, 2])
    net.op("Mul", net.last, net.constant(-0.5))
    assert "affine" in ops(run(net, passes.fold_affine))


def test_an_offset_in_front_of_a_padded_convolution_stays():
    net = Net((2, 4, 4))
    net.op("Div", net.op("Sub", "x0", net.constant(0.5)), net.constant(0.25))
    net.op("Conv", net.last, net.weight(3, 2, 3, 3), pads=[1] * 4)
    graph = run(net, passes.default)
    assert ops(graph) == ["affine"] and len(linears(graph)) == 1


def test_constants_of_the_affine_op_itself_are_kept_where_nothing_is_near():
    net = Net((4,))
    net.op("Tanh", net.op("Add", net.op("Mul", net.op("Relu"), net.constant(2)), net.constant(3)))
    graph = run(net, passes.default)
    assert ops(graph) == ["relu", "affine", "tanh"]
    (affine,) = [n for n in graph.nodes if n.op == "affine"]
    assert affine.attrs == {"mul": 2.0, "add": 3.0}


def test_moves_meet_and_cancel():
    net = Net((3, 4, 5))
    net.op("Relu", net.op("Transpose", perm=[0, 2, 3, 1]))
    net.op("Sigmoid", net.op("Reshape", net.last, net.ints(0, 60)))
    net.op("Transpose", net.op("Reshape", net.last, net.ints(0, 4, 5, 3)), perm=[0, 3, 1, 2])
    assert ops(run(net, passes.default)) == ["relu", "sigmoid"]


def test_one_dimensional_networks_have_no_reshapes_inside():
    net = Net((3, 16))
    net.op("Relu", net.op("Conv", "x0", net.weight(4, 3, 3), pads=[1, 1]))
    skip = net.last
    net.op("Add", net.op("Conv", skip, net.weight(4, 4, 3), pads=[1, 1]), skip)
    net.op("MaxPool", net.op("Relu"), kernel_shape=[2], strides=[2])
    net.op("Gemm", net.op("Flatten"), net.weight(32, 2))
    graph = run(net, passes.default)
    assert ops(graph) == ["reshape", "relu", "add", "relu", "max_pool"]


def test_moves_to_two_readers_and_outputs_stay_right():
    net = Net((2, 6))
    a = net.op("Reshape", "x0", net.ints(0, 3, 4))
    b = net.op("Relu", a)
    c = net.op("Mul", a, a)
    d = net.op("Add", b, c)
    consistent(run(net, passes.default, a, b, d))


def test_dead_code_goes():
    net = Net((2, 6))
    net.op("Sigmoid", net.op("MatMul", "x0", net.weight(6, 3)))
    last = net.op("Relu", "x0")
    graph = run(net, passes.dead_code, last)
    assert ops(graph) == ["relu"] and set(graph.shapes) == {"x0", last}


def test_the_passes_are_idempotent():
    net = Net((2, 6, 6))
    net.op("Conv", "x0", net.weight(3, 2, 3, 3))
    net.op("Mul", net.op("Add", net.last, net.weight(3, 1, 1)), net.constant(2))
    net.op("Gemm", net.op("Flatten", net.op("Relu")), net.weight(48, 2))
    graph = agree(net.model())
    again = passes.default(graph)
    assert repr(again) == repr(graph)


def test_a_graph_of_moves_only_keeps_its_output():
    shapes = {"x": (2, 3), "y": (2, 3)}
    graph = Graph("g", ["x"], ["y"], shapes, [Op("copy", "reshape", ["x"], "y")])
    assert ops(passes.default(graph)) == ["reshape"]


def test_swishes_written_as_products_are_one_op():
    net = Net((4, 3))
    net.op("Mul", "x0", net.op("Sigmoid", "x0"))
    assert ops(run(net, passes.default)) == ["silu"]
    net = Net((4, 3))
    net.op("Mul", net.op("HardSigmoid", "x0", alpha=1 / 6), "x0")
    assert ops(run(net, passes.default)) == ["hard_swish"]
    for order in range(3):
        net = Net((4, 3))
        x, sixth = "x0", net.constant(6.0)
        if order == 0:
            x = net.op("Div", x, sixth)
        gate = net.op("Clip", net.op("Add", "x0", net.constant(3)), net.constant(0), net.constant(6))
        if order == 1:
            gate = net.op("Div", gate, sixth)
        net.op("Mul", x, gate)
        if order == 2:
            net.op("Div", net.last, sixth)
        assert ops(run(net, passes.default)) == ["hard_swish"]


def test_products_that_are_no_swish_stay():
    net = Net((4, 3), (4, 3))
    net.op("Mul", "x0", net.op("Sigmoid", "x1"))
    assert ops(run(net, passes.default)) == ["sigmoid", "mul"]
    net = Net((4, 3))
    net.op("Mul", "x0", net.op("HardSigmoid", "x0"))
    assert ops(run(net, passes.default)) == ["hard_sigmoid", "mul"]
    net = Net((4, 3))
    net.op("Mul", net.op("Mul", "x0", net.op("Sigmoid", "x0")), net.constant(2))
    assert ops(run(net, passes.default)) == ["silu", "affine"]


def test_a_square_is_one_op():
    net = Net((4, 3))
    net.op("Mul", "x0", "x0")
    assert ops(run(net, passes.default)) == ["square"]


def test_a_guard_against_what_is_no_number_is_gone():
    net = Net((3, 4))
    p = net.op("Softmax", "x0")
    net.op("Where", net.op("IsNaN", p), net.constant(0.0), p)
    assert ops(run(net, passes.default)) == ["softmax"]


def test_products_and_sums_with_constants_are_affine():
    net = Net((3, 4))
    zero = net.op("Mul", "x0", net.constant(0.0))
    three = net.op("Reshape", net.op("Add", zero, net.constant(3.0)), net.ints(0, 3, 4))
    y = net.op("Mul", net.op("Sub", three, net.op("Relu", "x0")), three)
    net.op("Add", net.op("Sub", y, three), zero)
    graph = run(net, passes.default)
    assert set(ops(graph)) == {"relu", "affine"} and len(ops(graph)) == 2


def test_a_scale_a_feature_has_a_channel_a_feature():
    net = Net((5, 6))
    net.op("Add", net.op("Mul", net.op("Relu"), net.weight(6)), net.weight(6))
    graph = run(net, passes.default)
    assert [layer.geometry.input for layer in linears(graph)] == [(6, 1, 5)]
    net = Net((5, 2, 3))
    net.op("Mul", net.op("Relu"), net.weight(5, 1, 3))
    assert [layer.geometry.input for layer in linears(run(net, passes.default))] == [(15, 1, 2)]


@pytest.mark.parametrize(
    ("dilation", "pads", "stride", "kernel"),
    [(1024, (2048, 2048), 1, 1), (16, (32, 32), 1, 1), (9, (18, 18), 1, 3), (8, (32, 0), 1, 2), (5, (10, 10), 3, 4),
     (64, (128, 128), 9, 1), (16, (20, 44), 1, 2), (4, (0, 40), 2, 3)],
)  # fmt: skip
def test_taps_that_meet_padding_alone_are_dropped(dilation, pads, stride, kernel):
    """A temporal network's last layers reach past its signal: of five taps one is left, and no padding."""
    net = Net((4, 12))
    size = {"kernel_shape": [5], "dilations": [dilation], "pads": list(pads), "strides": [stride]}
    net.op("Conv", "x0", net.weight(6, 4, 5), **size)
    graph = run(net, passes.trim_kernels)
    (layer,) = linears(graph)
    assert max(layer.geometry.kernel) == kernel and layer.weight.shape[2:] == layer.geometry.kernel
    assert min(layer.geometry.pads) >= 0


def test_taps_along_both_axes_of_an_image_are_dropped():
    net = Net((3, 4, 6))
    net.op("Conv", "x0", net.weight(3, 1, 3, 5), group=3, dilations=[4, 7], pads=[4, 14, 4, 14])
    (layer,) = linears(run(net, passes.trim_kernels))
    assert layer.geometry.kernel == (1, 1) and layer.geometry.pads == (0, 0, 0, 0)


def test_passes_do_not_read_the_graph_again_for_every_change(monkeypatch):
    """Loops become thousands of nodes: one look at all of them a change took minutes, and SLANet had no graph."""
    built: list[int] = []
    start = edit.Links.__init__

    def counted(self, graph):
        built.append(len(graph.nodes))
        start(self, graph)

    monkeypatch.setattr(edit.Links, "__init__", counted)
    counts = []
    for steps in (10, 80):
        net = Net((4, 6))
        for _ in range(steps):
            net.op("Reshape", net.last, net.ints(0, 6, 4))
            net.op("Relu")
            net.op("Mul", net.last, net.constant(1.5))
            net.op("Reshape", net.last, net.ints(0, 24))
            net.op("Gemm", net.last, net.weight(24, 24))
            net.op("Mul", net.last, net.constant(np.linspace(0.5, 1.0, 24)))
            net.op("Tanh")
            net.op("Reshape", net.last, net.ints(0, 4, 6))
        graph = load(net.model())
        built.clear()
        made = passes.default(graph)
        counts.append(len(built))
        assert len(linears(made)) == steps and not [n for n in ops(made) if n in ("affine", "transpose")]
    assert counts[0] == counts[1]

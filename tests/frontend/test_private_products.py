"""Recurrent cells, Einsum, Attention, normalisations and quantised networks: drawn attributes against the reference."""

import numpy as np
import onnx
import onnx.reference
import pytest
from hushnet.frontend import UnsupportedModel, load
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import TensorProto

from .harness import Net, agree, images, linears, ops

slow = settings(
    max_examples=50, deadline=None, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow]
)
small = st.integers(1, 3)
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


@st.composite
def cells(draw):
    kind = draw(st.sampled_from(sorted(GATES)))
    direction = draw(st.sampled_from(["forward", "reverse", "bidirectional"]))
    directions = 2 if direction == "bidirectional" else 1
    steps, features, hidden, gates = draw(st.integers(1, 4)), draw(small), draw(small), GATES[kind]
    net = Net((steps, features))
    inputs = [
        net.op("Transpose", "x0", perm=[1, 0, 2]),
        net.weight(directions, gates * hidden, features),
        net.weight(directions, gates * hidden, hidden),
    ]
    attributes = {"hidden_size": hidden, "direction": direction}
    if draw(st.booleans()):
        inputs.append(net.weight(directions, 2 * gates * hidden))
    if kind == "GRU":
        attributes["linear_before_reset"] = draw(st.integers(0, 1))
    if kind == "LSTM" and draw(st.booleans()):
        inputs += [""] * (7 - len(inputs)) + [net.weight(directions, 3 * hidden)]
    if draw(st.booleans()):
        attributes["clip"] = 0.8
    if draw(st.booleans()):
        chosen = {"LSTM": ["Sigmoid", "Relu", "Softsign"], "GRU": ["HardSigmoid", "Tanh"], "RNN": ["Relu"]}[kind]
        attributes["activations"] = chosen * directions
    outputs = 3 if kind == "LSTM" else 2
    y = net.op(kind, *inputs, outputs=outputs, **attributes)
    found = [net.op("Transpose", y, perm=[2, 0, 1, 3])]
    found += [net.op("Transpose", f"{y}_{i}", perm=[1, 0, 2]) for i in range(1, outputs)]
    return net.model(*found)


@slow
@given(cells())
def test_recurrent_cells(model):
    agree(model)


def test_one_layer_reads_all_steps():
    """The inputs of all steps go through one layer; every step but the first has one of its own for the state."""
    net = Net((5, 3))
    y = net.op(
        "LSTM", net.op("Transpose", "x0", perm=[1, 0, 2]), net.weight(1, 16, 3), net.weight(1, 16, 4), hidden_size=4
    )
    net.op("Transpose", y, perm=[2, 0, 1, 3])
    assert len(linears(agree(net.model()))) == 1 + 4


def test_the_usual_way_of_exporters():
    """A batch in front, one direction squeezed, the last step taken."""
    net = Net((5, 3))
    y = net.op(
        "GRU",
        net.op("Transpose", "x0", perm=[1, 0, 2]),
        net.weight(1, 12, 3),
        net.weight(1, 12, 4),
        net.weight(1, 24),
        hidden_size=4,
    )
    turned = net.op("Transpose", y, perm=[2, 1, 0, 3])
    last = net.op("Gather", net.op("Squeeze", turned, net.ints(1)), net.constant(-1, np.int64), axis=1)
    net.op("Gemm", last, net.weight(4, 2))
    agree(net.model())


def test_cells_that_are_not_known_are_refused():
    for attributes, words in [
        ({"activations": ["Tanh", "Tanh", "Sin"]}, "Sin"),
        ({"input_forget": 2, "hidden_size": 5}, "hidden_size"),
    ]:
        net = Net((2, 3))
        y = net.op(
            "LSTM", net.op("Transpose", "x0", perm=[1, 0, 2]), net.weight(1, 16, 3), net.weight(1, 16, 4), **attributes
        )
        net.op("Transpose", y, perm=[2, 0, 1, 3])
        with pytest.raises(UnsupportedModel, match=words):
            load(net.model())


EQUATIONS = [
    ("bij,bjk->bik", (2, 3), (3, 4)), ("bij,bkj->bik", (2, 3), (4, 3)), ("bij,bij->bi", (2, 3), (2, 3)), ("bi,bj->bij",
    (2,), (3,)),
    ("bhqd,bhkd->bhqk", (2, 3, 4), (2, 5, 4)), ("bii->bi", (3, 3), None), ("bij->bj", (2, 3), None), ("bijk->bkj", (2,
    3, 4), None),
    ("b...ij,b...jk->b...ik", (2, 2, 3), (2, 3, 2)),
]  # fmt: skip


@pytest.mark.parametrize(("equation", "first", "second"), EQUATIONS)
def test_sums_over_labels_of_private_tensors(equation, first, second):
    net = Net(first, second) if second else Net(first)
    net.op("Einsum", *(["x0", "x1"] if second else ["x0"]), equation=equation)
    assert not linears(agree(net.model()))


@pytest.mark.parametrize(
    ("equation", "shape", "constant"),
    [("bij,jk->bik", (2, 3), (3, 4)), ("bchw,co->bohw", (3, 2, 2), (3, 5)), ("bgi,gio->bgo", (2, 3), (2, 3, 4)),
    ("bij,ij->bij", (2, 3), (2, 3)),
     ("ij,bjk->bik", (3, 2), (4, 3)), ("bij,bjk->bik", (2, 3), None)],
)  # fmt: skip
def test_sums_over_labels_with_a_constant_are_layers(equation, shape, constant):
    net = Net(shape, batch=2)
    if constant is None:
        other = net.constant(np.broadcast_to(net.rng.standard_normal((3, 4)), (2, 3, 4)))
    else:
        other = net.weight(*constant)
    net.op("Einsum", *([other, "x0"] if equation.startswith("ij") else ["x0", other]), equation=equation)
    assert len(linears(agree(net.model()))) == 1


@slow
@given(st.integers(1, 3), st.integers(1, 3), st.integers(1, 3), st.integers(1, 3), st.booleans())
def test_products_of_private_matrices(m, k, n, lead, wide):
    net = Net((lead, m, k), (lead if wide else 1, k, n))
    net.op("MatMul", "x0", "x1")
    assert "matmul" in ops(agree(net.model()))


@st.composite
def attentions(draw):
    heads, keys = draw(st.integers(1, 2)), draw(st.integers(1, 4))
    times, queries, size, width = draw(st.integers(1, 2)), draw(st.integers(1, 4)), draw(small), draw(small)
    joined = draw(st.booleans())
    if joined:
        shapes = [(queries, heads * times * size), (keys, heads * size), (keys, heads * width)]
    else:
        shapes = [(heads * times, queries, size), (heads, keys, size), (heads, keys, width)]
    net = Net(*shapes, opset=23)
    attributes = {"is_causal": draw(st.integers(0, 1))}
    if joined:
        attributes |= {"q_num_heads": heads * times, "kv_num_heads": heads}
    if draw(st.booleans()):
        attributes["scale"] = 0.3
    if draw(st.booleans()):
        attributes["softcap"] = 2.0
    inputs = ["x0", "x1", "x2"]
    if draw(st.booleans()):
        mask = net.rng.standard_normal((queries, keys))
        mask[net.rng.random(mask.shape) < 0.3] = -np.inf
        mask[:, 0] = 0.0
        inputs.append(net.constant(mask) if draw(st.booleans()) else net.constant(np.isfinite(mask), bool))
    net.op("Attention", *inputs, **attributes)
    return net.model()


@slow
@given(attentions())
def test_attention(model):
    model.ir_version = 10
    agree(model, onnx.reference.ReferenceEvaluator(model).run(None, images(model)))


@pytest.mark.parametrize(("kind", "attributes", "shape", "opset"), [
    ("GroupNormalization", {"num_groups": 2}, (4, 3, 2), 21), ("InstanceNormalization", {}, (3, 4, 2), 17),
    ("RMSNormalization", {}, (3, 4), 23),
    ("RMSNormalization", {"axis": 1}, (3, 4), 23), ("LayerNormalization", {"axis": 1}, (3, 4), 17),
    ("MeanVarianceNormalization", {"axes": [2]}, (3, 4), 13),
    ("LpNormalization", {"axis": 2, "p": 1}, (3, 4), 13), ("LpNormalization", {}, (3, 4), 13),
])  # fmt: skip
def test_normalisations(kind, attributes, shape, opset):
    net = Net(shape, opset=opset)
    sizes = {
        "RMSNormalization": [shape[attributes.get("axis", len(shape)) - 1 :]],
        "LayerNormalization": [shape[attributes.get("axis", len(shape)) - 1 :]] * 2,
    }
    sizes |= {"GroupNormalization": [shape[:1]] * 2, "InstanceNormalization": [shape[:1]] * 2}
    net.op(kind, "x0", *(net.weight(*s) for s in sizes.get(kind, [])), **attributes)
    model = net.model()
    model.ir_version = 10
    # of norms of order 1 the reference implementation adds signed numbers; ONNX Runtime has no RMSNormalization
    # everywhere
    agree(model, onnx.reference.ReferenceEvaluator(model).run(None, images(model)) if opset > 20 else None)


def quantised_layer(per_channel):
    net = Net((2, 5, 5), opset=21)
    zero = net.constant(128, np.uint8)
    x = net.op("QuantizeLinear", "x0", net.constant(0.05), zero)
    scales = net.constant(np.array([0.01, 0.02, 0.03]) if per_channel else 0.02)
    weights = net.constant(net.rng.integers(-20, 20, (3, 2, 3, 3)), np.int8)
    offsets = net.constant(np.zeros(3) if per_channel else 0, np.int8)
    y = net.op(
        "QLinearConv",
        x,
        net.constant(0.05),
        zero,
        weights,
        scales,
        offsets,
        net.constant(0.1),
        zero,
        net.constant([5, -7, 9], np.int32),
    )
    net.op("DequantizeLinear", y, net.constant(0.1), zero)
    return net


@pytest.mark.parametrize("per_channel", [False, True])
def test_quantised_convolutions_are_read_as_float_layers(per_channel):
    """No rounding is left between the integers.

    The network that they stand for, within a step of every quantisation.
    """
    net = quantised_layer(per_channel)
    model = net.model()
    feeds = images(model)
    want = onnx.reference.ReferenceEvaluator(model).run(None, feeds)
    graph = load(model)
    assert len(linears(graph)) == 1 and "round" not in ops(graph)
    from hushnet.reference.float import evaluate

    got = evaluate(graph, feeds)[graph.outputs[0]]
    # half a step of the output, and what half a step of every integer that a filter reads makes
    (layer,) = linears(graph)
    assert np.abs(got - want[0]).max() <= 0.05 + 0.5 * np.abs(layer.weight).sum(axis=(1, 2, 3)).max()


def test_integers_that_are_outputs_are_rounded():
    net = Net((3, 4))
    net.op("QuantizeLinear", "x0", net.constant(0.1), net.constant(10, np.uint8))
    net.op("Cast", net.last, to=TensorProto.FLOAT)
    graph = agree(net.model())
    assert "round" in ops(graph)


@pytest.mark.parametrize("left", [False, True])
def test_integer_products(left):
    net = Net((3, 4))
    y = net.op("DynamicQuantizeLinear", "x0", outputs=3)
    weights = net.constant(net.rng.integers(-9, 9, (4, 3)), np.int8)
    operands = (
        [weights, y, net.constant(2, np.int8), f"{y}_2"] if left else [y, weights, f"{y}_2", net.constant(2, np.int8)]
    )
    y = net.op("Cast", net.op("MatMulInteger", *operands), to=TensorProto.FLOAT)
    net.op("Mul", y, net.op("Mul", "t0_1", net.constant(0.25)))
    feeds = images(net.model())
    (weight,) = [onnx.numpy_helper.to_array(c) for c in net.constants if c.dims[:] == [4, 3]]
    matrix = 0.25 * (weight.astype(np.float64) - 2)
    agree(net.model(), [matrix @ feeds["x0"] if left else feeds["x0"] @ matrix])

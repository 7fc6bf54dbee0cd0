"""What is said about models that cannot be compiled: every node once, by name, with a rewrite.

And about broken files.
"""

import numpy as np
import onnx
import pytest
from hushnet import frontend
from hushnet.frontend import Issue, ModelError, UnsupportedModel, check, load
from hushnet.frontend.operators.unsupported import ADVICE
from hushnet.frontend.registry import OPERATORS
from onnx import TensorProto, helper, numpy_helper

from .harness import Net, agree


def named(net: Net, kind: str, *inputs: str, name: str, outputs: int = 1, **attributes) -> str:
    out = net.op(kind, *inputs, outputs=outputs, **attributes)
    net.nodes[-1].name = name
    return out


def test_exactly_the_unsupported_nodes_are_listed():
    net = Net((3, 6, 6))
    net.op("Conv", "x0", net.weight(4, 3, 3, 3), pads=[1] * 4)
    named(net, "RandomNormalLike", net.last, name="first")
    net.op("Relu")
    named(net, "RandomUniformLike", net.last, name="second")
    net.op("Conv", net.last, net.weight(4, 4, 3, 3))
    named(net, "Det", net.last, name="third")
    issues = check(net.model())
    assert [(i.node, i.op_type) for i in issues] == [
        ("first", "RandomNormalLike"),
        ("second", "RandomUniformLike"),
        ("third", "Det"),
    ]
    assert all(i.problem and i.advice for i in issues)
    with pytest.raises(UnsupportedModel) as caught:
        load(net.model())
    assert caught.value.issues == issues
    assert "first (RandomNormalLike)" in str(caught.value)


def test_two_equal_unsupported_nodes_are_two_issues():
    net = Net((3, 4))
    a, b = named(net, "RandomNormalLike", "x0", name="one"), named(net, "RandomNormalLike", "x0", name="two")
    net.op("Add", a, b)
    assert [i.node for i in check(net.model())] == ["one", "two"]


def test_advice_is_for_operators_without_a_lowering():
    assert not set(ADVICE) & set(OPERATORS)


def test_a_supported_model_has_no_issues():
    net = Net((3, 4))
    net.op("Relu")
    assert check(net.model()) == []


def test_custom_and_unknown_operators_are_issues():
    net = Net((3, 4))
    named(net, "Wonder", "x0", name="custom", domain="my.ops")
    named(net, "NoSuchOperator", net.last, name="unknown")
    named(net, "Det", "x0", name="determinant")
    issues = check(net.model(net.nodes[1].output[0], net.last))
    assert [(i.node, i.op_type) for i in issues] == [
        ("custom", "my.ops.Wonder"),
        ("unknown", "NoSuchOperator"),
        ("determinant", "Det"),
    ]


REFUSED = {
    "of which the batch is one": lambda n: n.op("MatMul", "x0", n.op("ReduceMean", "x0", axes=[1], keepdims=0)),
    "training mode": lambda n: n.op("Dropout", "x0", n.constant(0.5), n.constant(True, np.bool_)),
    "batch axis": lambda n: n.op("ReduceMean", "x0", axes=[0, 1]),
    "all axes": lambda n: n.op("ReduceMean", "x0"),
    "across the batch": lambda n: n.op("Reshape", "x0", n.ints(3, -1)),
    "along the batch": lambda n: n.op("Softmax", "x0", axis=0),
    "batch is": lambda n: n.op("Softmax", n.op("Transpose", "x0", perm=[1, 0, 2]), axis=2),
    "batch in axis": lambda n: n.op("Transpose", "x0", perm=[1, 0, 2]),
    "a reflection of 5": lambda n: n.op("Pad", "x0", n.ints(0, 0, 1, 0, 0, 5), mode="reflect"),
    "is used": lambda n: (
        n.op("MaxPool", "x0", outputs=2, kernel_shape=[2]),
        n.op("Cast", n.nodes[-1].output[1], to=1),
    ),
    "some images": lambda n: n.op("Slice", "x0", n.ints(1), n.ints(100), n.ints(0)),
    "do not depend": lambda n: n.op("Identity", n.constant([1.0])),
    "must be constant": lambda n: n.op("Conv", "x0", "x0"),
    "narrow integers": lambda n: n.op("Cast", n.op("Cast", "x0", to=3), to=1),
    "constant zero": lambda n: n.op("Div", "x0", n.constant([1, 0, 1, 1])),
    "only padding": lambda n: n.op(
        "MaxPool", n.op("Slice", "x0", n.ints(0), n.ints(1), n.ints(2)), kernel_shape=[2], dilations=[2], pads=[1, 1]
    ),
}


@pytest.mark.parametrize("problem", list(REFUSED))
def test_refused(problem):
    net = Net((3, 4), opset=17)
    REFUSED[problem](net)
    issues = check(net.model())
    assert any(problem in i.problem for i in issues), issues
    assert all(i.advice.endswith(".") for i in issues)


def test_weights_that_are_not_finite_are_refused():
    net = Net((3,))
    net.op("MatMul", "x0", net.constant([[1.0], [np.nan], [0.0]]))
    assert "not finite" in check(net.model())[0].problem


def test_a_dynamic_image_size_is_an_issue_unless_given():
    net = Net((3, "height", "width"))
    net.op("GlobalAveragePool", net.op("Conv", "x0", net.weight(2, 3, 3, 3)))
    model = net.model()
    (issue,) = check(model)
    assert issue == Issue("x0", "input", issue.problem, issue.advice)
    assert "axis 2 (height), axis 3 (width)" in issue.problem
    assert "--shape x0=1,3,64,64" in issue.advice and "shapes={'x0': (1, 3, 64, 64)}" in issue.advice
    graph = load(model, shapes={"x0": (1, 3, 7, 5)})
    assert graph.shapes["x0"] == (3, 7, 5) and graph.shapes[graph.outputs[0]] == (2, 1, 1)
    assert load(model, samples={"x0": (16, 3, 9, 6)}).shapes["x0"] == (3, 9, 6)
    with pytest.raises(ModelError, match="4 positive sizes"):
        load(model, shapes={"x0": (3, 7, 5)})
    with pytest.raises(ModelError, match="the model says"):
        load(model, shapes={"x0": (1, 4, 7, 7)})
    with pytest.raises(ModelError, match="no input"):
        load(model, shapes={"image": (1, 3, 7, 7)})


def test_inputs_that_are_no_numbers_are_issues():
    net = Net((3,))
    net.op("Identity")
    model = net.model()
    model.graph.input[0].type.tensor_type.elem_type = TensorProto.STRING
    assert any("string" in i.problem for i in check(model))


def test_broken_files(tmp_path):
    with pytest.raises(ModelError, match="missing.onnx"):
        check(tmp_path / "missing.onnx")
    (tmp_path / "text.onnx").write_text("this is no model, only a sentence")
    with pytest.raises(ModelError, match=r"text\.onnx"):
        load(tmp_path / "text.onnx")
    (tmp_path / "empty.onnx").write_bytes(b"")
    with pytest.raises(ModelError, match="not an ONNX model"):
        load(tmp_path / "empty.onnx")
    net = Net((3,))
    net.op("Relu", "nowhere")
    with pytest.raises(ModelError, match="not valid ONNX"):
        load(net.model())
    net = Net((3,))
    net.op("MatMul", "x0", net.weight(3, 4))
    model = net.model()
    model.graph.initializer[0].raw_data = model.graph.initializer[0].raw_data[:-4]
    with pytest.raises(ModelError, match="constants"):
        load(model)


def test_external_data_lies_beside_the_model(tmp_path):
    net = Net((30,))
    net.op("MatMul", "x0", net.weight(30, 40))
    model = net.model()
    reference = agree(model)
    folder = tmp_path / "model"
    folder.mkdir()
    onnx.save(model, folder / "net.onnx", save_as_external_data=True, location="net.data", size_threshold=0)
    graph = load(folder / "net.onnx")
    assert np.array_equal(graph.nodes[0].weight, reference.nodes[0].weight)
    assert np.array_equal(load(str(folder / "net.onnx")).nodes[0].weight, reference.nodes[0].weight)
    with pytest.raises(ModelError, match="give the model's path"):
        load(onnx.load(folder / "net.onnx", load_external_data=False))
    outside = onnx.load(folder / "net.onnx", load_external_data=False)
    (tmp_path / "secret").write_bytes((folder / "net.data").read_bytes())
    for entry in outside.graph.initializer[0].external_data:
        if entry.key == "location":
            entry.value = "../secret"
    (folder / "outside.onnx").write_bytes(outside.SerializeToString())
    with pytest.raises(ModelError, match="constants"):
        load(folder / "outside.onnx")
    (folder / "net.data").unlink()
    with pytest.raises(ModelError, match="constants"):
        load(folder / "net.onnx")


def test_initializers_that_are_inputs_too_and_local_functions():
    net = Net((3,))
    weight = net.weight(3, 4)
    net.op("MatMul", "x0", weight)
    model = net.model()
    model.graph.input.append(helper.make_tensor_value_info(weight, TensorProto.FLOAT, [3, 4]))
    assert load(model).inputs == ["x0"]
    body = [helper.make_node("Sigmoid", ["a"], ["s"]), helper.make_node("Mul", ["a", "s"], ["b"])]
    opsets = [helper.make_opsetid("", 17)]
    function = helper.make_function("local", "Silu", ["a"], ["b"], body, opsets)
    net = Net((3, 2))
    net.op("Silu", "x0", domain="local")
    model = net.model()
    model.functions.append(function)
    model.opset_import.append(helper.make_opsetid("local", 1))
    agree(model)


def test_half_and_double_weights():
    for dtype in (np.float16, np.float64):
        net = Net((3,))
        net.op("MatMul", "x0", net.op("Cast", net.constant([[0.1], [0.2], [0.3]], dtype), to=1))
        agree(net.model())


def test_the_given_model_is_not_changed():
    net = Net((3,))
    net.op("Add", net.op("MatMul", "x0", net.weight(3, 4)), net.weight(4))
    model = net.model()
    before = model.SerializeToString(deterministic=True)
    load(model)
    assert model.SerializeToString(deterministic=True) == before


def test_random_constants_are_not_folded():
    net = Net((3,))
    noise = named(net, "RandomNormal", name="noise", shape=[1, 3])
    net.nodes[-1].ClearField("input")
    net.op("Add", "x0", noise)
    assert [i.node for i in check(net.model())] == ["noise"]


def test_huge_constants_are_not_made():
    net = Net((3,))
    big = named(
        net,
        "ConstantOfShape",
        net.ints(1 << 20, 1 << 20),
        name="huge",
        value=numpy_helper.from_array(np.ones(1, np.float32)),
    )
    net.op("MatMul", "x0", big)
    assert "huge" in [i.node for i in check(net.model())]


def test_the_registry_refuses_a_second_lowering():
    with pytest.raises(ValueError, match="twice"):
        frontend.registry.operator("Conv")(OPERATORS["Conv"].lower)


def test_every_op_of_the_graph_is_in_the_plan_format():
    from hushnet.reference.ops import OPS

    net = Net((3, 4, 4))
    for kind in ("Relu", "Sigmoid", "Exp", "Neg", "Softsign", "Selu"):
        net.op(kind)
    graph = load(net.model())
    assert {n.op for n in graph.nodes} <= set(OPS)

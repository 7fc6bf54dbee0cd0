"""Models as they come: old opsets, every axis, integers, functions, and attributes that nobody knows."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hushnet import frontend, passes
from hushnet.frontend import ModelError, UnsupportedModel, check, load, registry, upgrade
from hushnet.reference.float import evaluate
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from .harness import EXACT, Net, agree, agrees, conv_net, expected, network, normal

quick = settings(max_examples=40, deadline=None)


OLD = {
    "slice": (9, [helper.make_node("Slice", ["x"], ["y"], starts=[1, 0], ends=[3, 2], axes=[2, 3])]),
    "pad": (10, [helper.make_node("Pad", ["x"], ["y"], pads=[0, 0, 1, 0, 0, 0, 0, 2], value=0.5)]),
    "clip": (10, [helper.make_node("Clip", ["x"], ["y"], min=-0.5, max=0.25)]),
    "squeeze": (
        11,
        [helper.make_node("Unsqueeze", ["x"], ["t"], axes=[2]), helper.make_node("Squeeze", ["t"], ["y"], axes=[2])],
    ),
    "sum": (11, [helper.make_node("ReduceSum", ["x"], ["y"], axes=[1, 2], keepdims=0)]),
    "softmax": (11, [helper.make_node("Softmax", ["x"], ["y"])]),
    "softmax of two axes": (9, [helper.make_node("Softmax", ["x"], ["y"], axis=2)]),
    "dropout": (9, [helper.make_node("Dropout", ["x"], ["y"], ratio=0.5)]),
    "split": (11, [helper.make_node("Split", ["x"], ["y", "z"], axis=1, split=[1, 2])]),
    "oldest": (7, [helper.make_node("Relu", ["x"], ["t"]), helper.make_node("Dropout", ["t"], ["y"])]),
}


@pytest.mark.parametrize("form", OLD)
def test_old_forms_mean_what_onnx_runtime_makes_of_them(form):
    opset, nodes = OLD[form]
    model = network(nodes, {"x": [2, 3, 4, 5]}, ["y"], opset=opset, ir_version=4)
    agrees(model, {"x": normal(2, 3, 4, 5)})


def test_operators_of_before_implicit_broadcasts():
    nodes = [
        helper.make_node("Mul", ["x", "scale"], ["t"], broadcast=1, axis=1),
        helper.make_node("PRelu", ["t", "slope"], ["u"]),
        helper.make_node(
            "BatchNormalization",
            ["u", "scale", "shift", "mean", "var"],
            ["v"],
            is_test=1,
            epsilon=1e-3,
            consumed_inputs=[0, 0, 0, 1, 1],
        ),
        helper.make_node("Add", ["v", "x"], ["y"]),
    ]
    rng = np.random.default_rng(3)
    vectors = {n: rng.standard_normal(3).astype(np.float32) for n in ("scale", "slope", "shift", "mean")}
    vectors["var"] = np.square(vectors["mean"]) + np.float32(0.5)
    x = normal(2, 3, 4, 5)
    column = {n: v.reshape(3, 1, 1).astype(np.float64) for n, v in vectors.items()}
    t = x * column["scale"]
    u = np.where(t < 0, t * column["slope"], t)
    v = (u - column["mean"]) / np.sqrt(column["var"] + 1e-3) * column["scale"] + column["shift"]
    agrees(network(nodes, {"x": [2, 3, 4, 5]}, ["y"], vectors, opset=6, ir_version=3), {"x": x}, [v + x])


def test_training_and_unknown_old_forms_are_refused_with_advice():
    nodes = [helper.make_node("Dropout", ["x"], ["y"])]
    (issue,) = check(network(nodes, {"x": [1, 3]}, ["y"], opset=6))
    assert "training mode" in issue.problem and "opset_version=13" in issue.advice


def test_the_converter_is_believed_only_where_its_result_computes_the_same(monkeypatch):
    x = normal(2, 3, 4)
    model = network([helper.make_node("Softmax", ["x"], ["y"], axis=1)], {"x": [2, 3, 4]}, ["y"], opset=11)
    monkeypatch.setitem(upgrade._REWRITES, "Softmax", (13, upgrade._refuse("planted")))
    agrees(model, {"x": x})
    wrong = network([helper.make_node("Softmax", ["x"], ["y"], axis=1)], {"x": [2, 3, 4]}, ["y"], opset=13)
    monkeypatch.setattr(onnx.version_converter, "convert_version", lambda *_: wrong)
    assert any("planted" in issue.problem for issue in check(model))


AXES = {
    "softmax": lambda n, a, r: n.op("Softmax", "x0", axis=a),
    "reduce": lambda n, a, r: n.op("ReduceMean", "x0", axes=[a], keepdims=a % 2),
    "reduce all": lambda n, a, r: n.op("ReduceSum", "x0"),
    "squeeze": lambda n, a, r: n.op("Squeeze", n.op("Unsqueeze", "x0", n.ints(a)), n.ints(a)),
    "unsqueeze": lambda n, a, r: n.op("Unsqueeze", "x0", n.ints(a)),
    "concat": lambda n, a, r: n.op("Concat", "x0", "x0", axis=a),
    "slice": lambda n, a, r: n.op("Slice", "x0", n.ints(-1), n.ints(-99), n.ints(a), n.ints(-1)),
    "pad": lambda n, a, r: n.op("Pad", "x0", n.ints(*([1] * r + [2] * r)), n.constant(0.5)),
    "gather": lambda n, a, r: n.op("Gather", "x0", n.ints(0, 0), axis=a),
    "split": lambda n, a, r: n.op("Split", "x0", outputs=1, axis=a),
    "transpose": lambda n, a, r: n.op("Transpose", "x0"),
    "reshape": lambda n, a, r: n.op("Reshape", "x0", n.ints(-1)),
    "flatten": lambda n, a, r: n.op("Flatten", "x0", axis=a),
    "expand": lambda n, a, r: n.op("Expand", "x0", n.ints(2, *([1] * r))),
    "tile": lambda n, a, r: n.op("Tile", "x0", n.ints(*range(1, r + 1))),
    "add": lambda n, a, r: n.op("Add", "x0", n.constant(normal(2, *([1] * r)))),
    "add of fewer axes": lambda n, a, r: n.op("Add", "x0", n.op("ReduceMax", "x0", axes=[0], keepdims=0)),
    "matmul": lambda n, a, r: n.op("MatMul", "x0", n.weight(n.shapes[0][-1] if n.shapes[0] else n.batch, 3)),
}


@quick
@given(
    form=st.sampled_from(sorted(AXES)),
    shape=st.lists(st.integers(1, 4), min_size=1, max_size=3),
    axis=st.integers(0, 2),
    seed=st.integers(0, 9),
)
def test_every_axis_of_a_tensor_that_is_one_image(form, shape, axis, seed):
    axis %= len(shape)
    net = Net(shape[1:], batch=shape[0], seed=seed)
    AXES[form](net, axis, len(shape))
    agrees(net.model(), {"x0": normal(*shape, seed=seed)})


@pytest.mark.parametrize("transposed", [(0, 0), (1, 0), (0, 1), (1, 1)])
def test_gemm_with_the_constant_on_either_side(transposed):
    a, b = transposed
    left, right = ([4, 3] if a else [3, 4]), ([5, 4] if b else [4, 5])
    node = helper.make_node("Gemm", ["a", "b", "c"], ["y"], transA=a, transB=b, alpha=0.5, beta=2.0)
    values = {"a": normal(*left, seed=1), "b": normal(*right, seed=2), "c": normal(5, seed=3)}
    for private in ("a", "b"):
        constants = {n: v for n, v in values.items() if n != private}
        agrees(network([node], {private: list(values[private].shape)}, ["y"], constants), {private: values[private]})


def test_operators_of_images_take_a_longer_first_axis_apart():
    net = Net((3, 6, 6), batch=2)
    net.op("Conv", "x0", net.weight(4, 3, 3, 3))
    net.op("Softmax", net.last, axis=0)
    agrees(net.model(), {"x0": normal(2, 3, 6, 6)})


def test_a_symbolic_batch_is_mixed_by_no_graph_unless_one_image_is_asked_for():
    net = Net((3, 4))
    net.op("Softmax", "x0", axis=0)
    (issue,) = check(net.model())
    assert "--shape x0=1,3,4" in issue.advice
    graph = load(net.model(), shapes={"x0": (1, 3, 4)})
    assert np.array_equal(evaluate(graph, {"x0": np.zeros((2, 3, 4))})[graph.outputs[0]], np.ones((2, 3, 4)))


def test_inputs_of_any_number_type_and_unused_ones():
    for kind in (
        TensorProto.UINT8,
        TensorProto.INT32,
        TensorProto.INT64,
        TensorProto.BOOL,
        TensorProto.FLOAT16,
        TensorProto.DOUBLE,
    ):
        nodes = [helper.make_node("Cast", ["x"], ["t"], to=1), helper.make_node("MatMul", ["t", "w"], ["y"])]
        model = network(nodes, {"x": ["n", 3], "unused": ["n", 2]}, ["y"], {"w": normal(3, 2)}, kind=kind)
        dtype = helper.tensor_dtype_to_np_dtype(kind)
        feeds = {"x": np.array([[1, 0, 1]]).astype(dtype), "unused": np.zeros((1, 2), dtype)}
        assert agrees(model, feeds).inputs == ["x", "unused"]


INTEGER_TRAPS = {
    "uint8 wraps": (
        TensorProto.UINT8,
        [helper.make_node("Add", ["x", "x"], ["t"]), helper.make_node("Cast", ["t"], ["y"], to=1)],
    ),
    "narrow cast": (
        TensorProto.INT32,
        [helper.make_node("Cast", ["x"], ["t"], to=TensorProto.INT8), helper.make_node("Cast", ["t"], ["y"], to=1)],
    ),
    "float to integer": (
        TensorProto.FLOAT,
        [helper.make_node("Cast", ["x"], ["t"], to=TensorProto.UINT8), helper.make_node("Cast", ["t"], ["y"], to=1)],
    ),
}


@pytest.mark.parametrize("trap", INTEGER_TRAPS)
def test_integers_that_are_not_what_real_numbers_are_stay_out(trap):
    kind, nodes = INTEGER_TRAPS[trap]
    issues = check(network(nodes, {"x": ["n", 3]}, ["y"], kind=kind))
    assert issues and all(i.advice.endswith(".") for i in issues)


@quick
@given(
    shape=st.lists(st.integers(1, 3), min_size=0, max_size=2),
    rows=st.integers(1, 9),
    width=st.integers(0, 3),
    seed=st.integers(0, 9),
    axis=st.integers(0, 1),
)
def test_private_lookups(shape, rows, width, seed, axis):
    table = normal(*([rows, width] if width else [rows]), seed=seed)
    axis = axis if width and width > 0 else 0
    size = table.shape[axis]
    index = np.random.default_rng(seed).integers(-size, size, (2, *shape))
    model = network(
        [helper.make_node("Gather", ["table", "x"], ["y"], axis=axis)],
        {"x": list(index.shape)},
        ["y"],
        {"table": table},
        kind=TensorProto.INT64,
    )
    graph = agrees(model, {"x": index})
    assert len([n for n in graph.nodes if hasattr(n, "weight")]) == 1


def test_one_hot():
    for axis in (-1, 0, 1):
        node = helper.make_node("OneHot", ["x", "depth", "values"], ["y"], axis=axis)
        constants = {"depth": np.array(5), "values": np.array([-1, 3], np.float32)}
        model = network([node], {"x": [2, 3]}, ["y"], constants, kind=TensorProto.INT64)
        agrees(model, {"x": np.array([[0, 4, -1], [-5, 2, 3]])})


def test_operators_that_onnx_defines_by_others_need_no_lowering(monkeypatch):
    net = Net((3, 4))
    net.op("HardSwish", "x0")
    model = net.model()
    monkeypatch.delitem(registry.OPERATORS, "HardSwish")
    agrees(model, {"x0": normal(2, 3, 4)})


def test_an_attribute_that_a_lowering_does_not_know_is_read_by_onnx_or_refused(monkeypatch):
    x = normal(1, 2, 4, 4)
    nodes = [helper.make_node("SpaceToDepth", ["x"], ["y"], blocksize=2, mode="CRD")]
    model = network(nodes, {"x": [1, 2, 4, 4]}, ["y"], opset=28, ir_version=13)
    want = onnx.reference.ReferenceEvaluator(model).run(None, {"x": x})
    plain = onnx.reference.ReferenceEvaluator(
        network(
            [helper.make_node("SpaceToDepth", ["x"], ["y"], blocksize=2)],
            {"x": [1, 2, 4, 4]},
            ["y"],
            opset=28,
            ir_version=13,
        )
    )
    assert not np.array_equal(want[0], plain.run(None, {"x": x})[0]), "the attribute makes a difference"
    agrees(model, {"x": x}, want)
    monkeypatch.setattr(frontend.lowering.expand, "function", lambda *_: None)
    monkeypatch.setitem(
        registry.OPERATORS,
        "SpaceToDepth",
        registry.Operator(lambda call, build: build.reshape(call.tensor(), (8, 2, 2))),
    )
    (issue,) = check(model)
    assert "mode" in issue.problem and "not known" in issue.problem


def test_inputs_and_attributes_that_are_not_asked_for_are_refused(monkeypatch):
    net = Net((3, 4))
    net.op("Clip", "x0", net.constant(0.0), net.constant(1.0))
    monkeypatch.setitem(registry.OPERATORS, "Clip", registry.Operator(lambda call, build: call.tensor()))
    monkeypatch.setattr(frontend.lowering.expand, "function", lambda *_: None)
    (issue,) = check(net.model())
    assert "input 1" in issue.problem and "input 2" in issue.problem


def test_newer_versions_of_operators_are_refused(monkeypatch):
    net = Net((3, 4), opset=21)
    net.op("Flatten", "x0")
    model = net.model()
    assert check(model) == []
    monkeypatch.setattr(frontend.lowering, "NEWEST_OPSET", 20)
    (issue,) = check(model)
    assert "opset 21 has changed this operator" in issue.problem and "opset_version=20" in issue.advice
    model.opset_import[0].version = onnx.defs.onnx_opset_version() + 1
    assert any("the installed onnx package knows" in i.problem for i in check(model))


def test_the_known_opset_is_the_installed_one_or_newer():
    assert registry.NEWEST_OPSET >= 28


def test_sparse_and_repeated_initializers():
    dense = np.zeros((3, 4), np.float32)
    dense[0, 1], dense[2, 3] = 1.5, -2.0
    model = network([helper.make_node("MatMul", ["x", "w"], ["y"])], {"x": ["n", 3]}, ["y"])
    values = numpy_helper.from_array(np.array([1.5, -2.0], np.float32), "w")
    model.graph.sparse_initializer.append(
        helper.make_sparse_tensor(values, numpy_helper.from_array(np.array([1, 11])), [3, 4])
    )
    graph = load(model)
    assert np.array_equal(graph.nodes[0].weight, dense.T)
    model.graph.sparse_initializer[0].dims[0] = 1 << 40
    with pytest.raises(ModelError, match="elements"):
        load(model)


def test_bytes_and_paths_are_models_too(tmp_path):
    model = conv_net()
    path = tmp_path / "net.onnx"
    path.write_bytes(model.SerializeToString())
    assert load(path).shapes == load(model.SerializeToString()).shapes
    with pytest.raises(ModelError, match="not an ONNX model"):
        load(b"no model")


def test_until_ends_the_network_and_cuts_are_where_everything_goes_through():
    net = Net((3, 6, 6))
    first = net.op("Conv", "x0", net.weight(4, 3, 3, 3))
    left = net.op("Relu", first)
    right = net.op("Sigmoid", first)
    joined = net.op("Add", left, right)
    net.op("MatMul", joined, net.weight(4, 2))
    model = net.model()
    assert frontend.outline(model)[0].cuts == [first, joined, net.last]
    graph = load(model, until=[joined])
    assert graph.outputs == [joined] and len(graph.nodes) < len(load(model).nodes)
    assert load(model, until=[left, right]).outputs == [left, right]
    with pytest.raises(ModelError, match="no tensor or node"):
        load(model, until=["nowhere"])


def test_unsupported_parts_of_a_function_name_the_node_that_the_user_knows(monkeypatch):
    net = Net((3, 4))
    net.op("HardSwish", "x0")
    net.nodes[-1].name = "mine"
    for name in ("HardSwish", "HardSigmoid"):
        monkeypatch.delitem(registry.OPERATORS, name)
    monkeypatch.delitem(registry.OPERATORS, "Mul")
    with pytest.raises(UnsupportedModel) as caught:
        load(net.model())
    (issue,) = caught.value.issues
    assert issue.node == "mine" and issue.op_type == "HardSwish" and issue.problem.startswith("its part ")


def test_functions_get_the_defaults_of_their_attributes(monkeypatch):
    monkeypatch.delitem(registry.OPERATORS, "MeanVarianceNormalization", raising=False)
    x = normal(3, 3, 3, 2)
    nodes = [helper.make_node("MeanVarianceNormalization", ["x"], ["y"])]
    deviation = x - x.mean(axis=(0, 2, 3), keepdims=True)
    want = deviation / (
        np.sqrt(np.square(x).mean(axis=(0, 2, 3), keepdims=True) - np.square(x.mean(axis=(0, 2, 3), keepdims=True)))
        + 1e-9
    )
    agrees(network(nodes, {"x": [3, 3, 3, 2]}, ["y"]), {"x": x}, [want])


def test_integers_as_truth_values():
    nodes = [helper.make_node("Cast", ["x"], ["t"], to=TensorProto.BOOL), helper.make_node("Cast", ["t"], ["y"], to=1)]
    agrees(network(nodes, {"x": ["n", 4]}, ["y"], kind=TensorProto.INT64), {"x": np.array([[0, 1, -3, 7]])})


def test_values_of_a_run_are_finite():
    nodes = [helper.make_node("IsNaN", ["x"], ["t"]), helper.make_node("Cast", ["t"], ["y"], to=1)]
    agrees(network(nodes, {"x": ["n", 4]}, ["y"]), {"x": normal(2, 4)})


def test_constants_that_hold_large_numbers_are_not_large():
    model = network(
        [helper.make_node("Expand", ["numbers", "shape"], ["wide"]), helper.make_node("Cast", ["wide"], ["c"], to=1),
        helper.make_node("Add", ["x", "c"], ["y"])],
        {"x": [2, 4]}, ["y"], {"numbers": np.array([1 << 40, 1 << 41, 3, 4]), "shape": np.array([2, 4])},
    )  # fmt: skip
    agrees(model, {"x": normal(2, 4)})


@pytest.mark.parametrize("opset", [10, 13, 19])
@pytest.mark.parametrize("kind", [np.uint8, np.int8, np.int32])
def test_quantised_constants_of_every_opset(opset, kind):
    """Weights and biases are dequantised whatever opset says it; from 13 on a step a channel."""
    rng = np.random.default_rng(3)
    steps = np.float32(0.02) if opset < 13 else np.array([0.02, 0.5, 0.1], np.float32)
    zeros = np.zeros(steps.shape, kind) if kind == np.int32 else (np.zeros(steps.shape) + 3).astype(kind)
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "s", "z"], ["d"], **({"axis": 0} if opset > 12 else {})),
        helper.make_node("MatMul", ["x", "d"], ["y"]),
    ]
    constants = {"w": rng.integers(0, 99, (3, 4)).astype(kind), "s": steps, "z": zeros}
    agrees(network(nodes, {"x": ["n", 3]}, ["y"], constants, opset=opset), {"x": normal(2, 3)})


@pytest.mark.parametrize("divisor", [4, [3, 7, 1, 10]])
def test_integers_are_divided_towards_zero(divisor):
    """Of both signs, by one constant and by several."""
    nodes = [helper.make_node("Div", ["x", "d"], ["q"]), helper.make_node("Cast", ["q"], ["y"], to=TensorProto.FLOAT)]
    model = network(nodes, {"x": ["n", 4]}, ["y"], {"d": np.asarray(divisor, np.int64)}, kind=TensorProto.INT64)
    agrees(model, {"x": np.arange(-42, 42).reshape(-1, 4)})


def test_casts_to_integers_round_towards_zero():
    """As ONNX Runtime does, whole numbers among them."""
    nodes = [helper.make_node("Cast", ["x"], ["i"], to=TensorProto.INT32), helper.make_node("Cast", ["i"], ["y"], to=1)]
    values = np.array([[-2.0, -1.7, -0.2, 0.0], [0.9, 1.0, 2.5, 7.0]], np.float32)
    agrees(network(nodes, {"x": ["n", 4]}, ["y"]), {"x": values})


def test_a_constant_output_beside_others():
    """It is the same for all inputs, and given to all."""
    nodes = [
        helper.make_node("Relu", ["x"], ["y"]),
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Cast", ["s"], ["f"], to=TensorProto.FLOAT),
    ]
    model = network(nodes, {"x": [2, 4]}, ["y", "f"])
    agrees(model, {"x": normal(2, 4)})


def test_a_slice_without_elements_is_joined():
    """It changes nothing."""
    nodes = [
        helper.make_node("Slice", ["x", "three", "three", "one"], ["e"]),
        helper.make_node("Concat", ["x", "e", "x"], ["y"], axis=1),
    ]
    constants = {"three": np.array([3], np.int64), "one": np.array([1], np.int64)}
    for first in ("n", 2):
        agrees(network(nodes, {"x": [first, 4, 2]}, ["y"], constants), {"x": normal(2, 4, 2)})


def test_a_scatter_at_private_positions_is_refused():
    """Into a constant, of a constant."""
    nodes = [helper.make_node("ScatterElements", ["c", "x", "c"], ["y"], axis=1)]
    model = network(nodes, {"x": [2, 3]}, ["y"], {"c": np.ones((2, 3), np.float32)}, kind=TensorProto.INT64)
    with pytest.raises(UnsupportedModel, match="positions depend on private data"):
        load(model)


def test_what_inference_takes_for_two_sided():
    """A one-sided transform of frames has half of the frequencies, whatever ONNX infers."""
    nodes = [helper.make_node("STFT", ["x", "step", "window", "length"], ["y"], onesided=1)]
    constants = {"step": np.array(2), "window": np.hanning(8).astype(np.float32), "length": np.array(8)}
    model = network(nodes, {"x": [1, 20]}, ["y"], constants)
    agrees(model, {"x": normal(1, 20)})


def test_a_choice_has_the_type_of_what_is_chosen():
    """Where shape inference tells no types, a choice between numbers is no truth value."""
    nodes = [
        helper.make_node("Gelu", ["x"], ["g"], domain="com.microsoft"),
        helper.make_node("Less", ["g", "c"], ["l"]),
        helper.make_node("Where", ["l", "g", "c"], ["w"]),
        helper.make_node("ReduceSum", ["w"], ["y"], keepdims=0),
    ]
    model = network(nodes, {"x": [1, 4]}, ["y"], {"c": np.full((1, 1), 0.3, np.float32)})
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    agrees(model, {"x": normal(1, 4)})


def test_a_squeeze_without_axes_keeps_an_open_batch():
    """Inference with one image sees one more axis of one element than any other number of images has."""
    net = Net((1, 4, 1))
    net.op("Add", net.op("Squeeze", "x0"), net.weight(4))
    assert agree(net.model()).shapes[net.last] == (4,)
    alone = Net((1, 4, 1), batch=1)
    alone.op("Squeeze", "x0")
    assert load(alone.model(), {"x0": (1, 1, 4, 1)}).shapes[alone.last] == (4,)


@pytest.mark.parametrize("kind", [np.uint8, np.int8])
def test_tables_of_eight_bits_that_are_read_as_real_numbers(kind):
    """What quantisers make of a table of words; without the scale its integers would be rounded."""

    def model(*behind):
        limits = np.iinfo(kind)
        table = np.random.default_rng(3).integers(limits.min, limits.max + 1, (7, 4)).astype(kind)
        look = [
            helper.make_node("Gather", ["table", "x"], ["rows"], axis=0),
            helper.make_node("Transpose", ["rows"], ["turned"], perm=[0, 2, 1]),
            *behind,
        ]
        constants = {"table": table, "s": np.float32(0.031), "z": kind(3), "m": np.eye(5, dtype=np.float32)}
        return network(look, {"x": ["n", 5]}, ["y"], constants, kind=TensorProto.INT64)

    found = model(
        helper.make_node("DequantizeLinear", ["turned", "s", "z"], ["real"]),
        helper.make_node("MatMul", ["real", "m"], ["y"]),
    )
    x = np.random.default_rng(4).integers(0, 7, (3, 5))
    graph = passes.default(load(found))
    got = evaluate(graph, {"x": x.astype(np.float64)})["y"]
    assert np.abs(got - expected(found, {"x": x})[0]).max() < EXACT
    (issue,) = check(model(helper.make_node("Cast", ["turned"], ["y"], to=TensorProto.FLOAT)))
    assert "whose result would be rounded" in issue.problem


def test_a_softmax_of_unknown_rank_keeps_images_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """PP-OCRv6's recogniser: shape inference knows no rank behind a reshape by computed sizes, and Softmax is old."""
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Slice", ["s", "zero", "one"], ["n"]),
        helper.make_node("Concat", ["n", "rest"], ["to"], axis=0),
        helper.make_node("Reshape", ["x", "to"], ["r"]),
        helper.make_node("Softmax", ["r"], ["y"], axis=2),
    ]
    constants = {"zero": np.zeros(1, np.int64), "one": np.ones(1, np.int64), "rest": np.array([4, 5], np.int64)}
    model = network(nodes, {"x": ["N", 20]}, ["y"], constants, opset=11)
    monkeypatch.setattr(upgrade, "_ranks", lambda _: {})
    x = normal(3, 20)
    graph = load(model)
    want = expected(model, {"x": x})[0]
    assert np.allclose(evaluate(graph, {"x": x.astype(np.float64)})["y"], want, atol=EXACT)


def test_constants_that_the_reference_cannot_compute_go_to_onnx_runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    """A table recogniser's OneHot has its depth in a list, which ONNX's reference does not take."""
    nodes = [helper.make_node("OneHot", ["i", "depth", "values"], ["c"]), helper.make_node("Add", ["x", "c"], ["y"])]
    constants = {"i": np.array([1, 0, 3]), "depth": np.array([4], np.int64), "values": np.array([0, 1], np.float32)}
    model = network(nodes, {"x": ["N", 3, 4]}, ["y"], constants, opset=11)
    agrees(model, {"x": normal(2, 3, 4)})
    monkeypatch.setattr("hushnet.frontend.constants._by_runtime", lambda *_: None)
    with pytest.raises(UnsupportedModel, match="cannot be evaluated"):
        load(model)

"""Inputs that are numbers beside the data: named, fixed in the file, and first axes that are not one batch."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import onnx
import pytest
from hushnet import frontend
from onnx import TensorProto, helper, numpy_helper

from tests.frontend.harness import expected, results

ROOT = Path(__file__).parents[2]
X = np.random.default_rng(0).standard_normal((1, 6)).astype(np.float32)


def value(name: str, kind: int, shape: list | None) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def by_rate(*, deciding: str = "sr", shape: tuple = ()) -> onnx.ModelProto:
    """A layer, and another one where the sampling rate is 16000."""
    weights = [
        numpy_helper.from_array(np.random.default_rng(i).standard_normal((6, 3)).astype(np.float32), f"w{i}")
        for i in range(2)
    ]
    branches = {
        f"{name}_branch": helper.make_graph(
            [helper.make_node("MatMul", ["x", f"w{i}"], ["r"], name=f"mm{i}")],
            name,
            [],
            [value("r", TensorProto.FLOAT, None)],
        )
        for i, name in enumerate(("then", "else"))
    }
    nodes = [
        helper.make_node("Cast", [deciding], ["rate"], to=TensorProto.INT64),
        helper.make_node("Equal", ["rate", "wanted"], ["c"]),
        helper.make_node("If", ["c"], ["y"], name="branch", **branches),
    ]
    graph = helper.make_graph(
        nodes,
        "net",
        [value("x", TensorProto.FLOAT, ["n", 6]), value("sr", TensorProto.INT64, shape)],
        [value("y", TensorProto.FLOAT, None)],
        [*weights, numpy_helper.from_array(np.array(16000), "wanted")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def issue(model: onnx.ModelProto) -> frontend.Issue:
    (found,) = (i for i in frontend.check(model) if i.op_type == "If")
    return found


def test_a_branch_by_a_whole_number_names_the_input() -> None:
    assert issue(by_rate()).advice.startswith("It follows from sr alone. Fix that in the file")
    # a condition on the data, or on a whole vector, is no such number
    assert "constant control flow" in issue(by_rate(deciding="x")).advice
    assert "constant control flow" in issue(by_rate(shape=(3,))).advice


@pytest.mark.parametrize("rate", [16000, 8000])
def test_the_lines_of_the_document_fix_it(rate: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (ROOT / "docs" / "models.md").read_text()
    (lines,) = re.findall(r"## Fixed inputs\n.*?```python\n(.*?)```", text, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    onnx.save(by_rate(), "model.onnx")
    exec(lines.replace("16000", str(rate)), {})
    graph = frontend.load(onnx.load("fixed.onnx"))
    assert list(graph.inputs) == ["x"]
    (want,) = expected(by_rate(), {"x": X, "sr": np.array(rate)})
    np.testing.assert_allclose(results(graph, {"x": X})[graph.outputs[0]].reshape(want.shape), want, rtol=1e-5)


def test_an_axis_of_one_that_is_given_is_not_the_fixed_axis_of_another_input() -> None:
    # a state of two parts beside one row: the first axis of the row is not two
    nodes = [
        helper.make_node("Gather", ["state", "zero"], ["h"], axis=0),
        helper.make_node("Add", ["x", "h"], ["s"]),
        helper.make_node("MatMul", ["s", "w"], ["y"]),
    ]
    constants = {"zero": np.array(0), "w": np.random.default_rng(3).standard_normal((6, 3)).astype(np.float32)}
    graph = helper.make_graph(
        nodes,
        "net",
        [value("x", TensorProto.FLOAT, ["n", 6]), value("state", TensorProto.FLOAT, [2, "n", 6])],
        [value("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(v, k) for k, v in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    state = np.random.default_rng(4).standard_normal((2, 1, 6)).astype(np.float32)
    read = frontend.load(model, {"x": (1, 6), "state": (2, 1, 6)})
    (want,) = expected(model, {"x": X, "state": state})
    got = results(read, {"x": X, "state": state})[read.outputs[0]]
    assert got.size == want.size, (got.shape, want.shape)
    np.testing.assert_allclose(got.reshape(want.shape), want, rtol=1e-5)


def test_advice_on_shapes_has_a_batch_of_one_wherever_it_stands():
    ports = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, dims)
        for name, dims in (("rows", ["batch", "length"]), ("state", [2, "batch", 64]))
    ]
    graph = helper.make_graph(
        [helper.make_node("Relu", ["rows"], ["a"]), helper.make_node("Relu", ["state"], ["b"])],
        "recurrent", ports, [onnx.ValueInfoProto(name=n) for n in "ab"],
    )  # fmt: skip
    issues = frontend.check(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))
    assert any("--shape rows=1,64 " in issue.advice for issue in issues)
    assert any("--shape state=2,1,64 " in issue.advice for issue in issues)

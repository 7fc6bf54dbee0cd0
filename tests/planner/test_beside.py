"""What a file rounds inside of its network counts in the stated errors."""

import hushnet
import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper


def _rounding(step: float, *, dynamic: bool = False) -> onnx.ModelProto:
    """Two layers with eight bits of a step between them, or with a scale that each row gives."""
    rng = np.random.default_rng(4)
    first, second = (rng.normal(0, 0.5, shape).astype(np.float32) for shape in ((6, 8), (8, 3)))
    weights = {"a": first, "b": second, "s": np.float32(step), "z": np.uint8(128)}
    between = [
        helper.make_node("QuantizeLinear", ["h", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["r"]),
    ]
    if dynamic:
        between = [
            helper.make_node("DynamicQuantizeLinear", ["h"], ["q", "qs", "qz"]),
            helper.make_node("DequantizeLinear", ["q", "qs", "qz"], ["r"]),
        ]
    nodes = [
        helper.make_node("MatMul", ["x", "a"], ["h"]), *between, helper.make_node("MatMul", ["r", "b"], ["y"])
    ]  # fmt: skip
    ports = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n", w]) for n, w in (("x", 6), ("y", 3))]
    constants = [numpy_helper.from_array(np.asarray(v), k) for k, v in weights.items()]
    graph = helper.make_graph(nodes, "rounding", ports[:1], ports[1:], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)


@pytest.mark.parametrize("trust", ["client-aided", "two-party"])
@pytest.mark.parametrize("dynamic", [False, True])
def test_the_statement_holds_beside_the_file(trust, dynamic):
    """A step of 0.2 is far coarser than the plan's own bits: without it the statement would be broken."""
    model = _rounding(0.2, dynamic=dynamic)
    rng = np.random.default_rng(5)
    calibration, x = (rng.normal(size=(n, 6)).astype(np.float32) for n in (64, 200))
    plan = hushnet.compile(model, trust=trust, calibration=calibration)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    answers = np.concatenate([session.run(None, {"x": row[None]})[0] for row in x])
    off = np.abs(hushnet.run(plan, x).output - answers).max(axis=1)
    predicted = plan.plan.predicted
    assert (off > predicted["max_error"]).mean() <= 0.01
    rounding = predicted["output_errors"]["y"]["file_rounding"]
    own = predicted["max_error"] - rounding
    # the planted failure: what was stated before
    assert dynamic or (off > own).mean() > 0.5
    assert rounding > 0 and "worst_error" not in predicted
    assert any("rounds to few bits" in note and "2 calibration" not in note for note in plan.plan.document["notes"])


def test_without_calibration_data_the_plan_says_what_is_missing():
    """Nothing shows then what the roundings make."""
    plan = hushnet.compile(_rounding(0.2), input_range=(-1.0, 1.0))
    assert "file_rounding" not in plan.plan.predicted["output_errors"]["y"]
    assert any("not in the stated errors (give calibration data)" in note for note in plan.plan.document["notes"])


def test_networks_without_roundings_are_left_alone():
    """Weights of eight bits are constants: nothing of the data is rounded."""
    model = _rounding(0.2)
    del model.graph.node[1:3]
    model.graph.node[1].input[0] = "h"
    x = np.random.default_rng(1).normal(size=(16, 6))
    assert not any(
        "rounds to few bits" in note for note in hushnet.compile(model, calibration=x).plan.document["notes"]
    )

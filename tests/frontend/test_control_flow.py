"""Branches, loops and scans whose course does not depend on the data are unrolled; others are refused."""

from __future__ import annotations

import numpy as np
import pytest
from hushnet.frontend import check
from onnx import TensorProto, helper

from .harness import agrees, network, normal, ops


def test_branches_with_constant_conditions():
    def branch(kind):
        return helper.make_graph(
            [helper.make_node(kind, ["x"], ["r"])],
            kind,
            [],
            [helper.make_tensor_value_info("r", TensorProto.FLOAT, None)],
        )

    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Gather", ["s", "one"], ["n"]),
        helper.make_node("Equal", ["n", "three"], ["c"]),
        helper.make_node("If", ["c"], ["y"], then_branch=branch("Relu"), else_branch=branch("Neg")),
    ]
    for size, op in ((3, "relu"), (4, "neg")):
        model = network(nodes, {"x": ["n", size]}, ["y"], {"one": np.array(1), "three": np.array(3)})
        assert ops(agrees(model, {"x": normal(2, size)})) in ([op], [op, "reshape"])


def loop(trips, *, stop=None):
    """y = x (1 + 2 + ... ), every partial sum scanned; ``stop``: the condition ends it after so many steps."""
    body = [
        helper.make_node("Cast", ["i"], ["f"], to=1),
        helper.make_node("Add", ["f", "one"], ["g"]),
        helper.make_node("Mul", ["x", "g"], ["m"]),
        helper.make_node("Add", ["state", "m"], ["next"]),
        helper.make_node("Identity", ["next"], ["row"]),
        helper.make_node("Less", ["i", "stop"], ["go"])
        if stop is not None
        else helper.make_node("Identity", ["go_in"], ["go"]),
    ]
    ports = [("i", TensorProto.INT64, []), ("go_in", TensorProto.BOOL, []), ("state", TensorProto.FLOAT, None)]
    results_ = [("go", TensorProto.BOOL, []), ("next", TensorProto.FLOAT, None), ("row", TensorProto.FLOAT, None)]
    graph = helper.make_graph(
        body,
        "body",
        [helper.make_tensor_value_info(*p) for p in ports],
        [helper.make_tensor_value_info(*r) for r in results_],
    )
    constants = {
        "trips": np.array(trips),
        "true": np.array(True),
        "one": np.array(1, np.float32),
        "stop": np.array(stop or 0),
    }
    node = helper.make_node("Loop", ["trips", "true", "x"], ["y", "rows"], body=graph)
    return network([node], {"x": [1, 3]}, ["y", "rows"], constants)


@pytest.mark.parametrize(("trips", "stop", "steps"), [(4, None, 4), (9, 2, 3)])
def test_loops_with_a_known_number_of_steps(trips, stop, steps):
    x = normal(1, 3)
    partial = [x * (1 + k * (k + 1) / 2) for k in range(1, steps + 1)]
    agrees(loop(trips, stop=stop), {"x": x}, [partial[-1], np.stack(partial)])


def test_scans():
    body = helper.make_graph(
        [helper.make_node("Add", ["s", "row"], ["t"]), helper.make_node("Identity", ["t"], ["out"])],
        "body",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2]) for n in ("s", "row")],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2]) for n in ("t", "out")],
    )
    for axis, back in ((0, 0), (1, 1)):
        node = helper.make_node(
            "Scan",
            ["zero", "x"],
            ["last", "y"],
            body=body,
            num_scan_inputs=1,
            scan_input_axes=[axis],
            scan_input_directions=[back],
            scan_output_axes=[axis],
        )
        shape = (3, 2) if axis == 0 else (2, 3)
        agrees(network([node], {"x": list(shape)}, ["y"], {"zero": np.zeros(2, np.float32)}), {"x": normal(*shape)})


def test_control_by_the_data_is_refused():
    model = loop(3)
    model.graph.node[0].input[1] = "c"
    model.graph.node.insert(0, helper.make_node("Cast", ["total"], ["c"], to=TensorProto.BOOL))
    model.graph.node.insert(0, helper.make_node("ReduceSum", ["x"], ["total"], keepdims=0))
    assert any(i.op_type == "Loop" and "depends on the data" in i.problem for i in check(model))

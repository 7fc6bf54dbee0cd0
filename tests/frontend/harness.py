"""Small ONNX models, and the comparison of their graph in binary64 with ONNX Runtime."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnx.reference
import onnxruntime as ort
from hushnet import passes
from hushnet.frontend import load
from hushnet.graph import Graph, Linear
from hushnet.reference.float import evaluate
from onnx import TensorProto, helper, numpy_helper

OPSETS = (13, 17, 21)
TOLERANCE = 1e-4
EXACT = 1e-5
ort.set_default_logger_severity(3)


class Net:
    """Builds an ONNX graph node by node; inputs x0, x1, ... of the given per-image shapes."""

    def __init__(self, *shapes: Sequence[int], opset: int = 17, batch: str | int = "batch", seed: int = 0):
        self.rng = np.random.default_rng(seed)
        self.shapes = [tuple(s) for s in shapes]
        self.opset, self.batch = opset, batch
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.last = "x0"

    def constant(self, value: Any, dtype: Any = np.float32) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value, dtype=dtype), name))
        return name

    def node_constant(self, value: Any, dtype: Any = np.int64) -> str:
        """A Constant node instead of an initializer."""
        name = f"t{len(self.nodes)}"
        self.nodes.append(
            helper.make_node("Constant", [], [name], value=numpy_helper.from_array(np.asarray(value, dtype=dtype)))
        )
        return name

    def ints(self, *values: int) -> str:
        return self.constant(list(values), np.int64)

    def weight(self, *shape: int) -> str:
        fan_in = max(1, int(np.prod(shape[1:])))
        return self.constant(self.rng.standard_normal(shape) / np.sqrt(fan_in))

    def op(self, kind: str, *inputs: str, outputs: int = 1, **attributes: Any) -> str:
        names = [f"t{len(self.nodes)}"] + [f"t{len(self.nodes)}_{i}" for i in range(1, outputs)]
        self.nodes.append(helper.make_node(kind, list(inputs) or [self.last], names, **attributes))
        self.last = names[0]
        return names[0]

    def model(self, *outputs: str) -> onnx.ModelProto:
        inputs = [
            helper.make_tensor_value_info(f"x{i}", TensorProto.FLOAT, [self.batch, *s])
            for i, s in enumerate(self.shapes)
        ]
        results = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in outputs or [self.last]]
        graph = helper.make_graph(self.nodes, "net", inputs, results, self.constants)
        ir_version = 10 if self.opset > 19 else 8
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=ir_version)


def conv_net() -> onnx.ModelProto:
    """A convolution, a node that does nothing, and an activation."""
    net = Net((3, 6, 6))
    net.op("Relu", net.op("Identity", net.op("Conv", "x0", net.weight(4, 3, 3, 3))))
    return net.model()


def images(model: onnx.ModelProto, count: int = 3, seed: int = 1) -> dict[str, np.ndarray]:
    """Random inputs: as many images as a fixed batch has, otherwise ``count``."""
    rng = np.random.default_rng(seed)
    found = {}
    constants = {c.name for c in model.graph.initializer}
    for port in model.graph.input:
        if port.name in constants:
            continue
        dims = port.type.tensor_type.shape.dim
        sizes = [dims[0].dim_value or count, *(d.dim_value for d in dims[1:])]
        found[port.name] = (2 * rng.standard_normal(sizes)).astype(np.float32)
    return found


def expected(model: onnx.ModelProto, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
    """ONNX Runtime's outputs."""
    options = ort.SessionOptions()
    # its layout optimisation refuses some valid grouped convolutions
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"]).run(
        None, inputs
    )


def close(graph: Graph, inputs: dict[str, np.ndarray], want: Sequence[np.ndarray]) -> None:
    """Asserts that the graph's outputs are those, with the declared shapes."""
    got = evaluate(graph, inputs)
    assert len(graph.outputs) == len(want)
    for name, reference in zip(graph.outputs, want):
        assert got[name].shape == reference.shape, name
        assert got[name].shape[1:] == graph.shapes[name]
        bound = TOLERANCE * max(1.0, float(np.abs(reference).max(initial=0.0)))
        assert np.abs(got[name] - reference).max(initial=0.0) <= bound, name


def agree(model: onnx.ModelProto, want: Sequence[np.ndarray] | None = None) -> Graph:
    """Checks the lowered and the optimised graph against ONNX Runtime; returns the optimised one."""
    inputs = images(model)
    want = expected(model, inputs) if want is None else want
    plain = load(model)
    close(plain, inputs, want)
    graph = passes.default(plain)
    close(graph, inputs, want)
    consistent(graph)
    return graph


def consistent(graph: Graph) -> None:
    """Asserts the graph's own rules.

    Topological order, one producer a tensor, shapes of all, unique names of layers.
    """
    known = set(graph.inputs)
    for node in graph.nodes:
        for name in [node.input] if isinstance(node, Linear) else node.inputs:
            assert name in known, (node.name, name)
        assert node.output not in known and node.output in graph.shapes
        known.add(node.output)
    assert set(graph.outputs) <= known
    assert set(graph.shapes) == known
    names = [node.name for node in graph.nodes]
    assert len(names) == len(set(names)), names


def linears(graph: Graph) -> list[Linear]:
    return [n for n in graph.nodes if isinstance(n, Linear)]


def ops(graph: Graph) -> list[str]:
    return [n.op for n in graph.nodes if not isinstance(n, Linear)]


def network(
    nodes: Sequence[onnx.NodeProto],
    inputs: dict[str, Any],
    outputs: Sequence[str],
    constants: Any = (),
    *,
    opset: int = 17,
    kind: int = TensorProto.FLOAT,
    ir_version: int = 8,
) -> onnx.ModelProto:
    """A model of nodes; ``inputs`` name -> shape."""
    ports = [helper.make_tensor_value_info(name, kind, shape) for name, shape in inputs.items()]
    results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
    tensors = [numpy_helper.from_array(np.asarray(value), name) for name, value in dict(constants).items()]
    graph = helper.make_graph(nodes, "net", ports, results, tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir_version)


def results(graph: Graph, feeds: dict[str, Any]) -> dict[str, Any]:
    """The graph's outputs on one ONNX tensor an input, as ONNX has them.

    Without the axis of images where the tensor is the image.
    """
    images = {n: x if x.ndim == len(graph.shapes[n]) + 1 else x[None] for n, x in feeds.items()}
    return evaluate(graph, {n: x.astype(np.float64) for n, x in images.items()})


def agrees(model: onnx.ModelProto, feeds: dict[str, Any], want: Any = None) -> Graph:
    """Lowered and optimised, the graph gives what ONNX Runtime gives (or what is wanted)."""
    want = expected(model, feeds) if want is None else want
    plain = load(model)
    for graph in (plain, passes.default(plain)):
        got = results(graph, feeds)
        for name, value in zip(graph.outputs, want):
            found = got[name][0] if got[name].shape == (1, *value.shape) else got[name]
            assert found.shape == value.shape, name
            assert np.allclose(found, value, rtol=EXACT, atol=EXACT * max(1.0, np.abs(value).max(initial=0.0))), name
    return plain


def normal(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)

"""A network that grows node by node, with known shapes; what ONNX's shape inference refuses is not added."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET = 20
IMAGES = 3
LARGEST = 600


class Draft:
    """Inputs x0, x1, ... and nodes; ``shapes`` are those of an image."""

    def __init__(self, rng: np.random.Generator, inputs: Sequence[tuple[int, ...]]):
        self.rng = rng
        self.inputs = [tuple(s) for s in inputs]
        self.shapes: dict[str, tuple[int, ...]] = {f"x{i}": s for i, s in enumerate(self.inputs)}
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, onnx.TensorProto] = {}
        self.number = 0

    # draws

    def draw(self, low: int, high: int) -> int:
        """A whole number from low to high, both included."""
        return int(self.rng.integers(low, high + 1))

    def chance(self, share: float) -> bool:
        """True in that share of draws."""
        return bool(self.rng.random() < share)

    def pick(self, options: Sequence[Any]) -> Any:
        """One of the options."""
        return options[int(self.rng.integers(len(options)))]

    # nodes

    def constant(self, value: Any, dtype: Any = np.float32) -> str:
        """An initializer."""
        name = f"c{len(self.constants)}"
        self.constants[name] = numpy_helper.from_array(np.asarray(value, dtype=dtype), name)
        return name

    def ints(self, values: Sequence[int]) -> str:
        """An initializer of whole numbers."""
        return self.constant(list(values), np.int64)

    def weight(self, *shape: int, fan_in: int | None = None) -> str:
        """Weights of about unit gain."""
        reach = math.prod(shape[1:]) if fan_in is None else fan_in
        return self.constant(self.rng.standard_normal(shape) / math.sqrt(max(1, reach)))

    def add(self, kind: str, inputs: Sequence[str], *, outputs: int = 1, **attributes: Any) -> list[str] | None:
        """The results of a new node; None, and no node, where ONNX has no shape for it, or a large or empty one."""
        names = [f"t{self.number}" if i == 0 else f"t{self.number}_{i}" for i in range(outputs)]
        node = helper.make_node(kind, list(inputs), names, **attributes)
        shapes = self._inferred(node)
        if shapes is None:
            return None
        self.number += 1
        self.nodes.append(node)
        self.shapes.update(zip(names, shapes))
        return names

    def one(self, kind: str, *inputs: str, **attributes: Any) -> str | None:
        """:meth:`add` of a node with one result."""
        made = self.add(kind, inputs, **attributes)
        return None if made is None else made[0]

    def _inferred(self, node: onnx.NodeProto) -> list[tuple[int, ...]] | None:
        port = helper.make_tensor_value_info
        known = [n for n in dict.fromkeys(node.input) if n]
        given = [port(n, TensorProto.FLOAT, [IMAGES, *self.shapes[n]]) for n in known if n in self.shapes]
        fixed = [self.constants[n] for n in known if n in self.constants]
        graph = helper.make_graph([node], "g", given, [port(n, TensorProto.FLOAT, None) for n in node.output], fixed)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=9)
        try:
            inferred = onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True)
        except onnx.shape_inference.InferenceError:
            return None
        found = []
        for result in inferred.graph.output:
            dims = [d.dim_value for d in result.type.tensor_type.shape.dim]
            if not dims or dims[0] != IMAGES or min(dims) < 1 or math.prod(dims[1:]) > LARGEST:
                return None
            found.append(tuple(dims[1:]))
        return found

    def model(self, outputs: Sequence[str]) -> onnx.ModelProto:
        """The network with a symbolic batch."""
        port = helper.make_tensor_value_info
        needed, nodes = set(outputs), []
        for node in reversed(self.nodes):
            if needed & set(node.output):
                nodes.append(node)
                needed.update(node.input)
        graph = helper.make_graph(
            nodes[::-1],
            "random",
            [port(f"x{i}", TensorProto.FLOAT, ["batch", *s]) for i, s in enumerate(self.inputs) if f"x{i}" in needed],
            [port(n, TensorProto.FLOAT, ["batch", *self.shapes[n]]) for n in outputs],
            [c for n, c in self.constants.items() if n in needed],
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=9)

"""Parameters and multiply-accumulates of a network, computed from its ONNX graph."""

from __future__ import annotations

import math
from dataclasses import dataclass

import onnx
from onnx import shape_inference

from hushnet.errors import ZooError

_SMALL = 64
# operators whose constants, but for scalars, are trained
_TRAINED = ("Conv", "Gemm", "MatMul", "BatchNormalization", "LayerNormalization", "PRelu", "Add", "Mul")
_STATISTICS = (3, 4)  # inputs of BatchNormalization that are measured, not trained


@dataclass(frozen=True)
class Layer:
    """A linear layer: its operator, output shape for one image, and cost for one image."""

    name: str
    op: str
    output: tuple[int, ...]
    parameters: int
    macs: int


@dataclass(frozen=True)
class Description:
    """What a network is and costs for one image.

    Attributes:
        parameters: trained numbers: weights, biases, scales and shifts (not the running statistics of batch norm).
        macs: multiply-accumulates of the convolutions and fully connected layers, biases not counted.
        layers: those layers, in order.
        inputs, outputs: name -> shape without the batch axis.
    """

    name: str
    parameters: int
    macs: int
    layers: tuple[Layer, ...]
    inputs: dict[str, tuple[int, ...]]
    outputs: dict[str, tuple[int, ...]]


def describe(model: onnx.ModelProto) -> Description:
    """Counts a model of ``Conv``, ``Gemm`` and ``MatMul`` with constant weights.

    Other operators count no multiplications, products of two private tensors among them.

    Raises:
        ZooError: a shape that inference cannot find.
    """
    graph = shape_inference.infer_shapes(_without_weights(model), strict_mode=True).graph
    sizes = {t.name: tuple(t.dims) for t in model.graph.initializer}
    shapes = {v.name: _per_image(v) for v in (*graph.input, *graph.value_info, *graph.output) if v.name not in sizes}
    layers, trained = [], {}
    for node in graph.node:
        skip = _STATISTICS if node.op_type == "BatchNormalization" else ()
        if node.op_type in _TRAINED:
            trained.update({n: math.prod(sizes[n]) for i, n in enumerate(node.input) if sizes.get(n) and i not in skip})
        if node.op_type == "Expand" and node.input[0] in sizes:
            trained[node.input[0]] = math.prod(sizes[node.input[0]])
        if node.op_type not in ("Conv", "Gemm", "MatMul") or len(node.input) < 2 or node.input[1] not in sizes:
            continue
        if node.output[0] not in shapes:
            raise ZooError(
                f"{node.name}: its output shape cannot be inferred: give the model fixed shapes (but for the batch)"
            )
        output, weight = shapes[node.output[0]], sizes[node.input[1]]
        if node.op_type == "Conv":
            terms = math.prod(weight[1:])
        else:
            transposed = any(a.name == "transB" and a.i for a in node.attribute)
            terms = weight[-1] if transposed else weight[-2]
        parameters = sum(math.prod(sizes[n]) for n in node.input if n in sizes)
        layers.append(Layer(node.name, node.op_type, output, parameters, math.prod(output) * terms))
    inputs = [v.name for v in model.graph.input if v.name not in sizes]
    return Description(
        name=graph.name,
        parameters=sum(trained.values()),
        macs=sum(layer.macs for layer in layers),
        layers=tuple(layers),
        inputs={name: shapes[name] for name in inputs},
        outputs={v.name: shapes[v.name] for v in graph.output},
    )


def _without_weights(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with its large constants as inputs: shape inference copies a model several times."""
    graph, whole = onnx.GraphProto(), model.graph
    graph.name = whole.name
    graph.node.extend(whole.node)
    graph.input.extend(whole.input)
    graph.output.extend(whole.output)
    graph.value_info.extend(whole.value_info)
    declared = {v.name for v in whole.input}
    for tensor in whole.initializer:
        if math.prod(tensor.dims) <= _SMALL:
            graph.initializer.append(tensor)
        elif tensor.name not in declared:
            graph.input.append(onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
    return onnx.helper.make_model(graph, opset_imports=model.opset_import, ir_version=model.ir_version)


def _per_image(value: onnx.ValueInfoProto) -> tuple[int, ...]:
    dimensions = value.type.tensor_type.shape.dim[1:]
    if any(not d.HasField("dim_value") for d in dimensions):
        raise ZooError(
            f"{value.name}: a size beyond the batch is not fixed: give the model fixed shapes (but for the batch)"
        )
    return tuple(d.dim_value for d in dimensions)

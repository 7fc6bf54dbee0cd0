"""Folding of nodes whose inputs are all constant, by ONNX's own reference implementation, or ONNX Runtime."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import onnx
import onnx.reference
from onnx import helper

from .builder import Value
from .errors import Unsupported

# results above this are refused: no weight of a network that we can run has as many elements
MAX_ELEMENTS = 1 << 29
RANDOM = {"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial", "Bernoulli"}
_QUANTISING = {"DequantizeLinear", "QuantizeLinear"}
_QUANTISING_OPSET = 21
CONTROL = {"If", "Loop", "Scan", "SequenceMap", "Optional", "OptionalGetElement", "OptionalHasElement"}


def foldable(node: onnx.NodeProto) -> bool:
    """Whether a node with constant inputs may be evaluated: a standard operator, deterministic, without subgraphs."""
    return (
        node.domain in ("", "ai.onnx")
        and node.op_type not in RANDOM | CONTROL
        and not node.op_type.startswith("Sequence")
    )


def shape_of(node: onnx.NodeProto, value: Value, batch: int | None) -> np.ndarray | None:
    """The constant that Shape or Size gives for a tensor of known shape; None for other nodes.

    Args:
        batch: images along the batch axis; None where the value is the whole tensor.
    """
    full = list(value.shape)
    if batch is not None:
        full.insert(value.batch_axis, batch)
    if node.op_type == "Size":
        return np.array(math.prod(full), dtype=np.int64)
    if node.op_type != "Shape":
        return None
    attributes = {a.name: a.i for a in node.attribute}
    return np.array(full[slice(attributes.get("start", 0), attributes.get("end"))], dtype=np.int64)


def fold(
    node: onnx.NodeProto, inputs: Sequence[np.ndarray | None], opsets: Sequence[onnx.OperatorSetIdProto]
) -> list[np.ndarray]:
    """The outputs of a node with constant inputs.

    Raises:
        Unsupported: the result would be too large, or the reference implementation cannot do it.
    """
    if node.op_type == "Constant" and [a.name for a in node.attribute] == ["value"]:
        # most nodes of a loop's copies are such: a model and an evaluator each take longer than all else
        return [onnx.numpy_helper.to_array(node.attribute[0].t)]
    if _elements(node, inputs) > MAX_ELEMENTS:
        raise Unsupported(f"the constant result has more than {MAX_ELEMENTS} elements", "Store smaller constants.")
    feeds = {name: array for name, array in zip(node.input, inputs) if name and array is not None}
    ports = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in feeds.items()
    ]
    names = [o for o in node.output if o]
    outputs = [onnx.ValueInfoProto(name=name) for name in names]
    graph = helper.make_graph([node], "constant", ports, outputs)
    if node.op_type in _QUANTISING:
        # the reference has no older form than that of opset 19, which means the same
        opsets = [onnx.OperatorSetIdProto(domain=o.domain, version=max(o.version, _QUANTISING_OPSET)) for o in opsets]
    model = helper.make_model(graph, opset_imports=list(opsets), ir_version=8)
    try:
        results = onnx.reference.ReferenceEvaluator(model).run(None, feeds)
    except Exception as error:
        # forms that ONNX Runtime takes and the reference does not
        other = _by_runtime(model, feeds)
        if other is None:
            raise Unsupported(
                f"its inputs are constant but it cannot be evaluated ({error})",
                "Simplify the model, e.g. with onnxslim.",
            ) from error
        results = other
    by_name = dict(zip(names, results))
    return [np.asarray(by_name[o]) if o else np.zeros(0) for o in node.output]


def _by_runtime(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> list[np.ndarray] | None:
    """The outputs by ONNX Runtime; None where it is not installed, or refuses."""
    try:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        return list(session.run(None, feeds))
    except Exception:
        return None


def _elements(node: onnx.NodeProto, inputs: Sequence[np.ndarray | None]) -> float:
    """An upper bound for the size of the result of the operators that can make much out of little."""
    given = [i for i in inputs if i is not None]
    base = max([float(i.size) for i in given], default=1.0)
    first = np.asarray(inputs[0]) if inputs and inputs[0] is not None else np.zeros(0)
    second = (
        np.abs(np.asarray(inputs[1], dtype=np.float64)) if len(inputs) > 1 and inputs[1] is not None else np.zeros(0)
    )
    if node.op_type == "ConstantOfShape":
        return float(np.prod(np.abs(first.astype(np.float64))))
    if node.op_type in {"Expand", "Tile"}:
        return first.size * float(np.prod(np.maximum(second, 1.0)))
    if node.op_type == "Pad":
        return float(np.prod(np.asarray(first.shape, dtype=np.float64) + second.sum()))
    if node.op_type == "OneHot":
        return first.size * float(second.max(initial=1.0))
    if node.op_type in {"Resize", "Upsample"}:
        # sizes, or scales of every axis, whichever are given
        factors = [np.abs(i.astype(np.float64)) for i in given[1:] if i.size]
        return base * max([float(np.prod(np.maximum(f, 1.0))) for f in factors], default=1.0)
    if node.op_type == "Range" and len(given) == 3:
        start, limit, delta = (float(i.reshape(-1)[0]) for i in given)
        return abs((limit - start) / delta) if delta else math.inf
    return base

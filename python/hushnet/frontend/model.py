"""Reading an ONNX model: batch axis and shapes fixed, weights lifted out, shapes inferred, shape arithmetic simplified.

Float constants are replaced by typed graph inputs before any tool runs, so that no tool re-rounds a weight and none meets
the 2 GiB limit of protobuf. Integer constants stay: they are shapes, axes and indices.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Union

import numpy as np
import onnx
import onnx.inliner
from google.protobuf.message import DecodeError
from onnx import TensorProto, external_data_helper, helper, numpy_helper

from .constants import RANDOM
from .errors import Issue, ModelError

Source = Union[str, "os.PathLike[str]", onnx.ModelProto]
InputShapes = Mapping[str, Sequence[int]]

OLDEST_OPSET = 13
FLOATS = {TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE, TensorProto.BFLOAT16}
# integer constants above this are data, not shapes
KEPT_ELEMENTS = 4096
# the simplifier makes no larger constants
FOLDED_BYTES = 64 << 20


@dataclass
class Prepared:
    """A model ready to be lowered; ``problems`` are those of its inputs, opset or batch."""

    proto: onnx.ModelProto
    weights: dict[str, np.ndarray]
    opset: int = 0
    batch: int = 1
    fixed_batch: bool = False
    inputs: dict[str, tuple[int, ...]] = field(default_factory=dict)
    problems: list[Issue] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The graph's name."""
        return self.proto.graph.name or "network"


def read(source: Source, shapes: InputShapes | None = None) -> Prepared:
    """Reads a model from a file (external data lies beside it) or a ``ModelProto``.

    Raises:
        ModelError: no such file, not ONNX, external data missing or outside the model's folder.
    """
    model, folder = _open(source)
    try:
        proto, weights = _lift(model, folder)
    except (ValueError, TypeError, OSError, onnx.checker.ValidationError) as error:
        raise ModelError(f"the model's constants cannot be read: {error}. Export it again, with its external data beside it.") from error
    if proto.functions:
        try:
            proto = onnx.inliner.inline_local_functions(proto)
        except Exception as error:
            raise ModelError(f"the model's local functions cannot be inlined: {error}") from error
    _name_nodes(proto)
    prepared = Prepared(proto, weights)
    _check_opset(prepared)
    _fix_inputs(prepared, shapes or {})
    return prepared


def _open(source: Source) -> tuple[onnx.ModelProto, str]:
    if isinstance(source, onnx.ModelProto):
        return source, ""
    path = Path(source)
    try:
        model = onnx.load(str(path), load_external_data=False)
    except (OSError, DecodeError, ValueError) as error:
        raise ModelError(f"{path}: {error}. Give a .onnx file.") from error
    if not model.HasField("graph") or not (model.graph.node or model.graph.output):
        raise ModelError(f"{path} is not an ONNX model. Give a .onnx file.")
    return model, str(path.parent)


def _lift(model: onnx.ModelProto, folder: str) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """A copy of the model without its float constants, and these by name."""
    if model.graph.sparse_initializer:
        raise ModelError("sparse initializers are not supported; export the model with dense weights")
    proto = onnx.ModelProto()
    proto.ir_version = max(model.ir_version, 8)
    proto.opset_import.extend(model.opset_import)
    proto.functions.extend(model.functions)
    graph = proto.graph
    graph.name = model.graph.name
    graph.output.extend(model.graph.output)
    constant_names = {tensor.name for tensor in model.graph.initializer}
    graph.input.extend(i for i in model.graph.input if i.name not in constant_names)
    weights: dict[str, np.ndarray] = {}

    def keep(name: str, tensor: onnx.TensorProto) -> None:
        array = _array(tensor, folder)
        weights[name] = array
        if array.dtype.kind in "iub" and array.size <= KEPT_ELEMENTS:
            graph.initializer.append(numpy_helper.from_array(array, name))
        else:
            graph.input.append(helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape))

    for tensor in model.graph.initializer:
        keep(tensor.name, tensor)
    for node in model.graph.node:
        value = _constant_tensor(node)
        if value is not None:
            keep(node.output[0], value)
        else:
            graph.node.append(node)
    return proto, weights


def _constant_tensor(node: onnx.NodeProto) -> onnx.TensorProto | None:
    if node.op_type != "Constant" or node.domain not in ("", "ai.onnx") or len(node.attribute) != 1:
        return None
    return node.attribute[0].t if node.attribute[0].name == "value" else None


def _array(tensor: onnx.TensorProto, folder: str) -> np.ndarray:
    if external_data_helper.uses_external_data(tensor):
        if not folder:
            raise ModelError(f"the data of {tensor.name!r} lies in another file; give the model's path instead of a ModelProto")
        copy = onnx.TensorProto()
        copy.CopyFrom(tensor)
        external_data_helper.load_external_data_for_tensor(copy, folder)
        copy.data_location = TensorProto.DEFAULT
        tensor = copy
    return np.asarray(numpy_helper.to_array(tensor))


def _name_nodes(proto: onnx.ModelProto) -> None:
    taken = {node.name for node in proto.graph.node}
    seen: set[str] = set()
    for index, node in enumerate(proto.graph.node):
        if not node.name or node.name in seen:
            base = node.name or f"{node.op_type}_{index}"
            number, name = 1, base
            while name in taken:
                name, number = f"{base}_{number}", number + 1
            taken.add(name)
            node.name = name
        seen.add(node.name)


def _check_opset(prepared: Prepared) -> None:
    versions = [o.version for o in prepared.proto.opset_import if o.domain in ("", "ai.onnx")]
    prepared.opset = max(versions, default=0)
    if prepared.opset < OLDEST_OPSET:
        prepared.problems.append(
            Issue(
                "model",
                "opset",
                f"the model uses ONNX opset {prepared.opset}, the oldest supported is {OLDEST_OPSET}",
                f"Export it with opset_version={OLDEST_OPSET} or later, or convert it with onnx.version_converter.",
            )
        )


def _fix_inputs(prepared: Prepared, shapes: InputShapes) -> None:
    """Replaces a symbolic batch axis by 1, takes per-image shapes from ``shapes``, reports what stays unknown."""
    graph = prepared.proto.graph
    ports = [port for port in graph.input if port.name not in prepared.weights]
    for name in set(shapes) - {port.name for port in ports}:
        raise ModelError(f"the model has no input {name!r}; its inputs are {sorted(port.name for port in ports)}")
    if not ports:
        prepared.problems.append(Issue("model", "input", "the model has no input", "Export a model that reads its image as an input."))
    batches = {}
    for port in ports:
        dims = _input_dims(prepared, port, shapes.get(port.name))
        if dims is not None:
            prepared.inputs[port.name] = dims[1:]
            batches[port.name] = dims[0]
    fixed = sorted({b for b in batches.values() if b > 0})
    if len(fixed) > 1:
        prepared.problems.append(
            Issue("model", "input", f"the inputs have different batch sizes: {batches}", "Export the model with one (dynamic) batch axis.")
        )
    prepared.fixed_batch = bool(fixed) and all(b > 0 for b in batches.values())
    prepared.batch = fixed[0] if fixed else 1
    for port in ports:
        if port.name in prepared.inputs:
            dims = (prepared.batch, *prepared.inputs[port.name])
            port.type.tensor_type.shape.CopyFrom(helper.make_tensor_type_proto(TensorProto.FLOAT, dims).tensor_type.shape)
    types = {port.name: port.type for port in graph.input}
    for port in graph.output:
        if port.name in types:
            port.type.CopyFrom(types[port.name])
        elif port.type.HasField("tensor_type"):
            port.type.tensor_type.ClearField("shape")


def _input_dims(prepared: Prepared, port: onnx.ValueInfoProto, given: Sequence[int] | None) -> tuple[int, ...] | None:
    """(batch or 0, per-image shape), or None after reporting why not."""

    def report(problem: str, advice: str) -> None:
        prepared.problems.append(Issue(port.name, "input", problem, advice))

    if port.type.tensor_type.elem_type not in FLOATS:
        kind = TensorProto.DataType.Name(port.type.tensor_type.elem_type).lower()
        report(f"the input is of type {kind}", "Export the model with a float input; do the conversion before it.")
        return None
    has_shape = port.type.tensor_type.HasField("shape")
    dims = [(d.dim_value if d.HasField("dim_value") else 0, d.dim_param) for d in port.type.tensor_type.shape.dim]
    if given is not None:
        if any(int(n) < 1 for n in given) or (has_shape and len(dims) != len(given) + 1):
            raise ModelError(f"shape {tuple(given)} for input {port.name!r}: give {max(0, len(dims) - 1)} positive sizes, without the batch")
        first = dims[0][0] if dims else 0
        clash = [(d, g) for (d, _), g in zip(dims[1:], given) if d > 0 and d != g]
        if clash:
            raise ModelError(f"shape {tuple(given)} for input {port.name!r}: the model says {[d or p or '?' for d, p in dims[1:]]}")
        return (max(0, first), *(int(n) for n in given))
    if not has_shape:
        report("the input has no shape", f"Export it with a static shape, or give shapes={{{port.name!r}: (channels, height, width)}}.")
        return None
    if not dims:
        report("the input is a scalar", "Give it a batch axis in front.")
        return None
    open_axes = [f"axis {a} ({p or 'unnamed'})" for a, (d, p) in enumerate(dims) if a > 0 and d < 1]
    if open_axes:
        report(
            f"{', '.join(open_axes)} has no fixed size; only the batch (axis 0) may be dynamic",
            f"Export it with only axis 0 dynamic, or give shapes={{{port.name!r}: (...)}} with the per-image shape.",
        )
        return None
    return (max(0, dims[0][0]), *(d for d, _ in dims[1:]))


def infer(proto: onnx.ModelProto) -> onnx.ModelProto:
    """The model with the shapes that ONNX's inference finds (data propagation included); as it is where inference refuses it."""
    try:
        return onnx.shape_inference.infer_shapes(proto, data_prop=True)
    except Exception:  # noqa: BLE001 - the binding raises several types, and the checker says what is wrong
        return proto


def validate(proto: onnx.ModelProto) -> None:
    """ONNX's checker.

    Raises:
        ModelError: the model is not valid ONNX.
    """
    try:
        onnx.checker.check_model(proto)
    except onnx.checker.ValidationError as error:
        raise ModelError(f"the model is not valid ONNX: {error}") from error


def simplify(prepared: Prepared) -> Prepared | None:
    """Constant control flow resolved, repeated nodes merged by onnxslim; None where it fails or changes the interface.

    The lowering folds shape arithmetic and constants itself, so this is for what it cannot take. Fusions stay off: they re-round
    weights and hide the node names that a user knows. Random numbers are left alone: they would become constants.
    """
    if any(node.op_type in RANDOM for node in prepared.proto.graph.node):
        return None
    import onnxslim

    copy = onnx.ModelProto()
    copy.CopyFrom(prepared.proto)
    try:
        slim = onnxslim.slim(copy, skip_optimizations=["graph_fusion", "weight_tying"], no_shape_infer=True, size_threshold=FOLDED_BYTES)
        slim = infer(slim)
    except Exception:  # noqa: BLE001 - a simplifier that fails is one that is not needed
        return None
    old, new = prepared.proto.graph, slim.graph
    if [o.name for o in new.output] != [o.name for o in old.output]:
        return None
    weights = dict(prepared.weights)
    for tensor in new.initializer:
        weights[tensor.name] = np.asarray(numpy_helper.to_array(tensor))
    if any(name not in {i.name for i in old.input} for name in (i.name for i in new.input)):
        return None
    return Prepared(slim, weights, prepared.opset, prepared.batch, prepared.fixed_batch, prepared.inputs, prepared.problems)


def inferred_shapes(proto: onnx.ModelProto) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Names and static shapes (batch included) of all tensors that inference knows."""
    for info in [*proto.graph.value_info, *proto.graph.output]:
        if not info.type.HasField("tensor_type") or not info.type.tensor_type.HasField("shape"):
            continue
        dims = info.type.tensor_type.shape.dim
        if all(d.HasField("dim_value") for d in dims):
            yield info.name, tuple(d.dim_value for d in dims)

"""Reading an ONNX model: old forms upgraded, input shapes fixed, weights lifted out, shapes inferred.

Float constants are replaced by typed graph inputs before any tool runs, so that no tool re-rounds a weight and none
meets the 2 GiB limit of protobuf. Integer constants stay: they are shapes, axes and indices.
"""

from __future__ import annotations

import math
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

from ..graph import unused
from . import kinds, labels, upgrade, verify
from .constants import MAX_ELEMENTS
from .errors import Issue, ModelError
from .ports import Ports

Source = Union[str, bytes, "os.PathLike[str]", onnx.ModelProto]
InputShapes = Mapping[str, Sequence[int]]

# integer constants above this are data, not shapes
KEPT_ELEMENTS = 4096
# seconds in which a converted model must be shown to compute the same
CONVERSION_SECONDS = 60.0


@dataclass
class Prepared:
    """A model ready to be lowered.

    Attributes:
        inputs: full ONNX shapes of the inputs, 1 for a batch that is not fixed.
        stackable: whether all inputs have a first axis of one size: it may be a batch.
        batch: that size.
        fixed_batch: whether the model fixes it.
        whole: whether an image may be what the model takes at once: no input leaves its first axis open, or the caller
            has given it.
        problems: what cannot be read of inputs, opset or old forms.
        ports: what the model says of its inputs and outputs beside their tensors.
    """

    proto: onnx.ModelProto
    weights: dict[str, np.ndarray]
    opset: int = 0
    batch: int = 1
    fixed_batch: bool = False
    stackable: bool = True
    whole: bool = True
    inputs: dict[str, tuple[int, ...]] = field(default_factory=dict)
    problems: list[Issue] = field(default_factory=list)
    ports: Ports = field(default_factory=Ports)

    @property
    def name(self) -> str:
        """The graph's name."""
        return self.proto.graph.name or "network"


@dataclass(frozen=True)
class Request:
    """What the caller says about a model.

    Attributes:
        shapes: full shapes of inputs, the batch included.
        samples: shapes of calibration data (images, ...), from which open axes are taken.
        until: tensors (or nodes) that become the outputs; empty for the model's own.
        outputs: outputs that stay; empty for all, without labels that follow from the scores of another one.
    """

    shapes: InputShapes = field(default_factory=dict)
    samples: InputShapes = field(default_factory=dict)
    until: Sequence[str] = ()
    outputs: Sequence[str] = ()


def read(source: Source, request: Request = Request()) -> Prepared:
    """Reads a model from a file (external data lies beside it), bytes or a ``ModelProto``.

    Raises:
        ModelError: no such file, not ONNX, external data missing or outside the model's folder.
    """
    model, folder = _open(source)
    model, ports = labels.standard(model, request.outputs)
    try:
        proto, weights = _lift(model, folder)
    except (ValueError, TypeError, OSError, onnx.checker.ValidationError) as error:
        raise ModelError(
            f"the model's constants cannot be read: {error}. Export it again, with its external data beside it."
        ) from error
    if proto.functions:
        try:
            proto = onnx.inliner.inline_local_functions(proto)
        except Exception as error:
            raise ModelError(f"the model's local functions cannot be inlined: {error}") from error
    _name_nodes(proto)
    if request.until:
        _cut(proto, request.until)
    prepared = Prepared(proto, weights, ports=ports)
    _check_opset(prepared)
    _fix_inputs(prepared, request)
    if 0 < prepared.opset < upgrade.CANONICAL_OPSET:
        old = prepared.proto

        def same(new: onnx.ModelProto) -> bool:
            return bool(verify.within(CONVERSION_SECONDS, lambda: verify.same(old, new, weights, prepared.inputs)))

        prepared.proto, issues = upgrade.upgrade(old, prepared.opset, same)
        prepared.problems += issues
        prepared.opset = upgrade.CANONICAL_OPSET
    if prepared.stackable and not prepared.fixed_batch:
        _name_squeezed(prepared)
    prepared.proto = infer(prepared.proto)
    return prepared


def cuts(prepared: Prepared) -> list[str]:
    """Tensors behind the inputs through which everything goes that the outputs need, in the order of the graph.

    A tensor is one when no edge from a node up to it leads to a node behind it, or to an output, but from itself.
    Constants do not count.
    """
    graph = prepared.proto.graph
    private = {port.name for port in graph.input if port.name not in prepared.weights}
    last: dict[str, int] = {}
    nodes = [node for node in graph.node if node.op_type not in ("Shape", "Size")]
    for index, node in enumerate(nodes):
        for name in set(reads(node)) & private:
            last[name] = index
        if private & set(reads(node)):
            private |= {name for name in node.output if name}
    for port in graph.output:
        last[port.name] = len(nodes)
    found, open_tensors = [], {name for name in private if not any(name in node.output for node in nodes)}
    for index, node in enumerate(nodes):
        open_tensors |= {name for name in node.output if name in private}
        open_tensors = {name for name in open_tensors if last.get(name, -1) > index}
        if len(open_tensors) == 1 and open_tensors & set(node.output):
            found.append(next(iter(open_tensors)))
    return found


def input_names(source: Source) -> list[str]:
    """Names of a model's inputs, without those that are weights.

    Raises:
        ModelError: not a readable ONNX model.
    """
    graph = _open(source)[0].graph
    constants = {t.name for t in graph.initializer} | {t.values.name for t in graph.sparse_initializer}
    return [port.name for port in graph.input if port.name not in constants]


def _open(source: Source) -> tuple[onnx.ModelProto, str]:
    if isinstance(source, onnx.ModelProto):
        return source, ""
    if isinstance(source, bytes):
        model = onnx.ModelProto()
        try:
            model.ParseFromString(source)
        except DecodeError as error:
            raise ModelError(f"the bytes are not an ONNX model: {error}. Give the content of a .onnx file.") from error
        return _nonempty(model, "what was given"), ""
    if not isinstance(source, (str, os.PathLike)):
        raise ModelError(
            f"a {type(source).__name__} is no trained model. Give the path or the bytes of "
            "an ONNX file, a ModelProto, a "
            "PyTorch module or a fitted scikit-learn estimator."
        )
    path = Path(source)
    if path.suffix == ".hush":
        raise ModelError(f"{path} is a plan, which is compiled already. Give the .onnx file of the model.")
    try:
        model = onnx.load(str(path), load_external_data=False)
    except (OSError, DecodeError, ValueError) as error:
        raise ModelError(f"{path}: {error}. Give a .onnx file.") from error
    return _nonempty(model, str(path)), str(path.parent)


def _nonempty(model: onnx.ModelProto, name: str) -> onnx.ModelProto:
    if not model.HasField("graph") or not (model.graph.node or model.graph.output):
        raise ModelError(f"{name} is not an ONNX model. Give a .onnx file.")
    return model


def _lift(model: onnx.ModelProto, folder: str) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """A copy of the model without its float constants, and these by name."""
    proto = onnx.ModelProto()
    proto.ir_version = max(model.ir_version, 8)
    proto.opset_import.extend(model.opset_import)
    proto.functions.extend(model.functions)
    graph = proto.graph
    graph.name = model.graph.name
    graph.output.extend(model.graph.output)
    constant_names = {tensor.name for tensor in model.graph.initializer} | {
        t.values.name for t in model.graph.sparse_initializer
    }
    graph.input.extend(i for i in model.graph.input if i.name not in constant_names)
    weights: dict[str, np.ndarray] = {}

    def keep(name: str, array: np.ndarray) -> None:
        if name in weights:
            return
        weights[name] = array
        if array.dtype.kind in "iub" and array.size <= KEPT_ELEMENTS:
            graph.initializer.append(numpy_helper.from_array(array, name))
        else:
            graph.input.append(
                helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
            )

    for tensor in model.graph.initializer:
        keep(tensor.name, _array(tensor, folder))
    for sparse in model.graph.sparse_initializer:
        keep(sparse.values.name, _dense(sparse, folder))
    for node in model.graph.node:
        value = _constant_tensor(node)
        if value is not None:
            keep(node.output[0], _array(value, folder))
        else:
            graph.node.append(node)
    return proto, weights


def _dense(sparse: onnx.SparseTensorProto, folder: str) -> np.ndarray:
    """A sparse initializer with its zeros."""
    values, indices, shape = _array(sparse.values, folder), _array(sparse.indices, folder), tuple(sparse.dims)
    if math.prod(shape) > MAX_ELEMENTS:
        raise ValueError(
            f"the sparse initializer {sparse.values.name!r} has {math.prod(shape)} elements, "
            f"{MAX_ELEMENTS} at most are taken"
        )
    flat = np.ravel_multi_index(tuple(indices.T), shape) if indices.ndim == 2 else indices
    dense = np.zeros(math.prod(shape), dtype=values.dtype)
    dense[flat] = values
    return dense.reshape(shape)


def _constant_tensor(node: onnx.NodeProto) -> onnx.TensorProto | None:
    if node.op_type != "Constant" or node.domain not in ("", "ai.onnx") or len(node.attribute) != 1:
        return None
    return node.attribute[0].t if node.attribute[0].name == "value" else None


def _array(tensor: onnx.TensorProto, folder: str) -> np.ndarray:
    if external_data_helper.uses_external_data(tensor):
        if not folder:
            raise ModelError(
                f"the data of {tensor.name!r} lies in another file; give the model's path instead of a ModelProto"
            )
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


def _cut(proto: onnx.ModelProto, until: Sequence[str]) -> None:
    """Makes other tensors the outputs, and drops what they do not need.

    Raises:
        ModelError: no such tensor or node.
    """
    graph = proto.graph
    made = {name: node for node in graph.node for name in node.output if name}
    nodes = {node.name: node.output[0] for node in graph.node}
    chosen = [name if name in made else nodes.get(name, "") for name in until]
    for name, found in zip(until, chosen):
        if not found:
            raise ModelError(
                f"the model has no tensor or node {name!r} to end at. Give a name that `hushnet check` lists."
            )
    needed, kept = set(chosen), []
    for node in reversed(graph.node):
        if needed & set(node.output):
            kept.append(node)
            needed |= set(reads(node))
    ports = {port.name: port for port in graph.output}
    outputs = [ports.get(name, onnx.ValueInfoProto(name=name)) for name in dict.fromkeys(chosen)]
    del graph.node[:], graph.output[:]
    graph.node.extend(kept[::-1])
    graph.output.extend(outputs)
    inputs = [port for port in graph.input if port.name in needed]
    del graph.input[:]
    graph.input.extend(inputs)


def reads(node: onnx.NodeProto) -> Iterator[str]:
    """Tensors that a node reads, those inside of its subgraphs too."""
    yield from node.input
    for attribute in node.attribute:
        for inner in [attribute.g] if attribute.HasField("g") else attribute.graphs:
            for child in inner.node:
                yield from reads(child)
            yield from (port.name for port in inner.output)


def _check_opset(prepared: Prepared) -> None:
    versions = [o.version for o in prepared.proto.opset_import if o.domain in ("", "ai.onnx")]
    prepared.opset = max(versions, default=0)
    newest = onnx.defs.onnx_opset_version()
    if prepared.opset > newest:
        prepared.problems.append(
            Issue(
                "model",
                "opset",
                f"the model uses ONNX opset {prepared.opset}, the installed onnx package knows {newest}",
                f"Install a newer onnx package, or export the model with opset_version={newest}.",
            )
        )


def _fix_inputs(prepared: Prepared, request: Request) -> None:
    """Gives every input its full shape, with a batch of 1 where the batch is symbolic; reports what stays unknown."""
    graph = prepared.proto.graph
    ports = [port for port in graph.input if port.name not in prepared.weights]
    for name in set(request.shapes) - {port.name for port in ports}:
        raise ModelError(f"the model has no input {name!r}. Its inputs are {sorted(port.name for port in ports)}.")
    if not ports:
        prepared.problems.append(
            Issue("model", "input", "the model has no input", "Export a model that reads its image as an input.")
        )
    found = {}
    for port in ports:
        dims = _input_dims(prepared, port, request)
        if dims is not None:
            found[port.name] = dims
    batches = {dims[0] if dims else None for dims in found.values()}
    fixed = sorted(b for b in batches if b)
    prepared.fixed_batch = bool(fixed) and 0 not in batches
    prepared.batch = fixed[0] if fixed else 1
    # whoever gives an axis of 1 does not mean that of another input, which has another size
    one = any(dims[:1] == (0,) and name in request.shapes for name, dims in found.items())
    prepared.stackable = None not in batches and len(fixed) < 2 and not (one and prepared.batch > 1)
    prepared.whole = all(dims[:1] != (0,) or name in request.shapes for name, dims in found.items())
    for name, dims in found.items():
        first = prepared.batch if prepared.stackable else 1
        prepared.inputs[name] = (dims[0] or first, *dims[1:]) if dims else ()
    for port in ports:
        if port.name in prepared.inputs:
            kind = port.type.tensor_type.elem_type
            port.type.CopyFrom(helper.make_tensor_type_proto(kind, prepared.inputs[port.name]))
    types = {port.name: port.type for port in graph.input}
    for port in graph.output:
        if port.name in types:
            port.type.CopyFrom(types[port.name])
        elif port.type.HasField("tensor_type"):
            port.type.tensor_type.ClearField("shape")


def _name_squeezed(prepared: Prepared) -> None:
    """Gives Squeeze nodes without axes those that have one element for any batch: an open batch of 1 is not one."""
    graph = prepared.proto.graph
    if not any(node.op_type == "Squeeze" and len(node.input) == 1 for node in graph.node):
        return
    open_batch = onnx.ModelProto()
    open_batch.CopyFrom(prepared.proto)
    for port in open_batch.graph.input:
        if prepared.inputs.get(port.name):
            port.type.tensor_type.shape.dim[0].dim_param = "batch"
    known = infer(open_batch).graph
    shapes = {port.name: port.type.tensor_type.shape.dim for port in [*known.value_info, *known.input, *known.output]}
    nodes, taken = list(graph.node), {*shapes, *prepared.weights, *(node.name for node in graph.node)}
    del graph.node[:]
    for node in nodes:
        dims = shapes.get(node.input[0]) if node.op_type == "Squeeze" and len(node.input) == 1 else None
        if dims is not None and [d.dim_param for d in dims if not d.HasField("dim_value")] == ["batch"]:
            axes = np.array([place for place, d in enumerate(dims) if d.dim_value == 1], np.int64)
            name = unused(f"{node.output[0]}.axes", taken)
            value = numpy_helper.from_array(axes, name)
            graph.node.append(helper.make_node("Constant", [], [name], name=name, value=value))
            node.input.append(name)
        graph.node.append(node)


def _example(place: int, size: int, name: str) -> str:
    """A size that an axis may have: its own, 1 of a batch, wherever that stands."""
    batch = place == 0 or name.lower() in ("n", "b") or "batch" in name.lower()
    return str(size) if size else "1" if batch else "64"


def _input_dims(prepared: Prepared, port: onnx.ValueInfoProto, request: Request) -> tuple[int, ...] | None:
    """The full shape with 0 for a symbolic batch, or None after reporting why not."""

    def report(problem: str, advice: str) -> None:
        prepared.problems.append(Issue(port.name, "input", problem, advice))

    if port.type.tensor_type.elem_type not in kinds.INPUTS:
        kind = kinds.name(port.type.tensor_type.elem_type)
        report(
            f"the input is of type {kind}",
            "Export the model with an input of float, integers or booleans; do the conversion before it.",
        )
        return None
    given, sample = request.shapes.get(port.name), request.samples.get(port.name)
    has_shape = port.type.tensor_type.HasField("shape")
    dims = [(d.dim_value if d.dim_value > 0 else 0, d.dim_param) for d in port.type.tensor_type.shape.dim]
    if given is not None:
        return _given(port.name, [int(n) for n in given], [d for d, _ in dims] if has_shape else None)
    example = ",".join(_example(place, *dim) for place, dim in enumerate(dims)) if has_shape else "1,3,224,224"
    advice = (
        f"Give --shape {port.name}={example} (in Python shapes={{{port.name!r}: ({example.replace(',', ', ')})}}) with "
        "the sizes that "
        "you will use, or calibration data of that shape."
    )
    if not has_shape:
        if sample is not None and len(sample) > 1:
            return (0, *(int(n) for n in sample[1:]))
        report("the input has no shape", advice)
        return None
    sizes = [d for d, _ in dims]
    if sample is not None and len(sample) in (len(dims), len(dims) + 1):
        rest = sample[-len(dims) + 1 :] if len(dims) > 1 else ()
        sizes = [*sizes[:1], *(d or int(n) for d, n in zip(sizes[1:], rest))]
    open_axes = [f"axis {a} ({p or 'unnamed'})" for a, (d, (_, p)) in enumerate(zip(sizes, dims)) if a > 0 and d < 1]
    if open_axes:
        report(f"{', '.join(open_axes)} has no fixed size", advice)
        return None
    return tuple(sizes)


def _given(name: str, given: list[int], sizes: list[int] | None) -> tuple[int, ...]:
    """The shape that the caller gives, which must fit the model's; a first axis of 1 leaves a symbolic batch open."""
    if any(n < 1 for n in given) or (sizes is not None and len(sizes) != len(given)):
        count = "positive sizes" if sizes is None else f"{len(sizes)} positive sizes, the batch first"
        raise ModelError(f"shape {tuple(given)} for input {name!r} does not fit. Give {count}.")
    if sizes is not None and any(d > 0 and d != g for d, g in zip(sizes, given)):
        raise ModelError(
            f"shape {tuple(given)} for input {name!r} does not fit: the model says {[d or '?' for d in sizes]}. Give "
            "these sizes, or export the model with open axes."
        )
    if given and given[0] == 1 and (sizes is None or sizes[0] == 0):
        return (0, *given[1:])
    return tuple(given)


def infer(proto: onnx.ModelProto) -> onnx.ModelProto:
    """The model with the shapes that ONNX's inference finds (data propagation included).

    As it is where inference refuses it.
    """
    try:
        return onnx.shape_inference.infer_shapes(proto, data_prop=True)
    except Exception:
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


def inferred_shapes(proto: onnx.ModelProto) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Names and static shapes (batch included) of all tensors that inference knows."""
    for info in [*proto.graph.value_info, *proto.graph.output]:
        if not info.type.HasField("tensor_type") or not info.type.tensor_type.HasField("shape"):
            continue
        dims = info.type.tensor_type.shape.dim
        if all(d.HasField("dim_value") for d in dims):
            yield info.name, tuple(d.dim_value for d in dims)


def inferred_kinds(proto: onnx.ModelProto) -> Iterator[tuple[str, int]]:
    """Names and element types of all tensors that inference knows."""
    for info in [*proto.graph.value_info, *proto.graph.output, *proto.graph.input]:
        if info.type.HasField("tensor_type") and info.type.tensor_type.elem_type:
            yield info.name, info.type.tensor_type.elem_type

"""Old forms of operators rewritten to those of opset 13, node by node.

Between opset 1 and 13 attributes became inputs (``Slice``, ``Pad``, ``Clip``, ``Squeeze``, ``Split`` ...), broadcasts
became implicit (``Add`` with ``axis``), ``Softmax`` stopped to flatten its input and ``Upsample`` became ``Resize``.
From opset 13 on the lowerings read every version themselves. ``onnx.version_converter`` is asked where a form is none
of these: it gives up on whole models for one node that it does not know, and does not enter the branches of control
flow.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnx.version_converter
from onnx import TensorProto, helper, numpy_helper

from ..graph import unused
from .errors import Issue

CANONICAL_OPSET = 13

_NAMED_TYPES = {name.lower(): value for name, value in TensorProto.DataType.items()}
_ELEMENTWISE = {"Add", "Sub", "Mul", "Div", "Pow", "And", "Or", "Xor", "Equal", "Greater", "Less"}
# attributes of old versions that change nothing at inference
_INERT = {"consumed_inputs", "output_sequence"}


class Untold(Exception):
    """An old form that this module does not know.

    ``onnx.version_converter`` may, unless it says something that has no new form.
    """

    def __init__(self, reason: str, *, convertible: bool = True):
        super().__init__(reason)
        self.convertible = convertible


@dataclass
class _Scope:
    """What rewrites need to know of the model around a node: its opset, and the ranks of tensors."""

    opset: int
    ranks: Mapping[str, int]
    names: set[str]
    made: list[onnx.NodeProto] = field(default_factory=list)

    def fresh(self, hint: str) -> str:
        """A tensor name that the model does not have."""
        name = unused(hint, self.names)
        self.names.add(name)
        return name

    def constant(self, node: onnx.NodeProto, hint: str, value: np.ndarray) -> str:
        """A constant in front of the node."""
        name = self.fresh(f"{node.output[0]}.{hint}")
        self.made.append(
            helper.make_node("Constant", [], [name], name=name, value=numpy_helper.from_array(value, name))
        )
        return name

    def before(self, node: onnx.NodeProto, kind: str, inputs: Sequence[str], **attributes: Any) -> str:
        """Another node in front of the node; the name of its result."""
        name = self.fresh(f"{node.output[0]}.{kind.lower()}")
        self.made.append(helper.make_node(kind, list(inputs), [name], name=name, **attributes))
        return name

    def rank(self, name: str) -> int:
        """Axes of a tensor."""
        if name not in self.ranks:
            raise Untold(f"the number of axes of {name!r} is not known")
        return self.ranks[name]


def upgrade(
    proto: onnx.ModelProto, opset: int, same: Callable[[onnx.ModelProto], bool]
) -> tuple[onnx.ModelProto, list[Issue]]:
    """The model with all nodes in the forms of :data:`CANONICAL_OPSET`, and the nodes whose old form is not known.

    Args:
        proto: a model whose opset is below the canonical one; it is not changed.
        opset: its version of the standard operators.
        same: whether a converted model computes what the model does; the converter is not believed without.
    """
    try:
        inferred = onnx.shape_inference.infer_shapes(proto)
    except Exception:
        inferred = proto
    result = onnx.ModelProto()
    result.CopyFrom(proto)
    found = _graph(result.graph, opset, _ranks(inferred))
    issues = [issue for issue, _ in found]
    if found and all(convertible for _, convertible in found):
        converted = _converted(proto)
        if converted is not None and same(converted):
            return converted, []
    _set_opset(result, CANONICAL_OPSET)
    return result, issues


def _converted(proto: onnx.ModelProto) -> onnx.ModelProto | None:
    try:
        found = onnx.version_converter.convert_version(proto, CANONICAL_OPSET)
    except Exception:
        return None
    same = [o.name for o in found.graph.output] == [o.name for o in proto.graph.output]
    return found if same and [i.name for i in found.graph.input] == [i.name for i in proto.graph.input] else None


def _set_opset(proto: onnx.ModelProto, version: int) -> None:
    for entry in proto.opset_import:
        if entry.domain in ("", "ai.onnx"):
            entry.version = version


def _ranks(proto: onnx.ModelProto) -> dict[str, int]:
    graph = proto.graph
    ranks = {tensor.name: len(tensor.dims) for tensor in graph.initializer}
    for info in [*graph.value_info, *graph.input, *graph.output]:
        if info.type.HasField("tensor_type") and info.type.tensor_type.HasField("shape"):
            ranks[info.name] = len(info.type.tensor_type.shape.dim)
    return ranks


def _graph(graph: onnx.GraphProto, opset: int, ranks: Mapping[str, int]) -> list[tuple[Issue, bool]]:
    """Rewrites the nodes in place, those of subgraphs too; what is not known, and whether the converter may know it."""
    issues: list[tuple[Issue, bool]] = []
    names = {name for node in graph.node for name in [*node.input, *node.output]} | {t.name for t in graph.initializer}
    nodes: list[onnx.NodeProto] = []
    for old in graph.node:
        node = onnx.NodeProto()
        node.CopyFrom(old)
        for attribute in node.attribute:
            for inner in [attribute.g] if attribute.HasField("g") else attribute.graphs:
                issues += _graph(inner, opset, ranks)
        scope = _Scope(opset, ranks, names)
        if node.domain in ("", "ai.onnx"):
            _drop(node, *_INERT)
            try:
                made = _node(node, scope)
                nodes += [*scope.made, *made]
                continue
            except Untold as error:
                problem = f"opset {opset} writes this operator in a form that is not known ({error})"
                issue = Issue(
                    node.name,
                    node.op_type,
                    problem,
                    "Export the model again for inference, with opset_version=13 or later.",
                )
                issues.append((issue, error.convertible))
        nodes.append(node)
    del graph.node[:]
    graph.node.extend(nodes)
    return issues


def _node(node: onnx.NodeProto, scope: _Scope) -> list[onnx.NodeProto]:
    if scope.opset < 7 and node.op_type in _ELEMENTWISE:
        _broadcast(node, scope)
    if (rewrite := _REWRITES.get(node.op_type)) is not None and scope.opset < rewrite[0]:
        return rewrite[1](node, scope)
    return [node]


def _take(node: onnx.NodeProto, name: str) -> object:
    """Removes an attribute; its value, or None."""
    for index, attribute in enumerate(node.attribute):
        if attribute.name == name:
            value = helper.get_attribute_value(attribute)
            del node.attribute[index]
            return value
    return None


def _drop(node: onnx.NodeProto, *names: str) -> None:
    for name in names:
        _take(node, name)


def _set(node: onnx.NodeProto, name: str, value: object) -> None:
    _drop(node, name)
    node.attribute.append(helper.make_attribute(name, value))


def _input(node: onnx.NodeProto, index: int, name: str) -> None:
    while len(node.input) <= index:
        node.input.append("")
    node.input[index] = name


def _ints(*names: str) -> Callable[[onnx.NodeProto, _Scope], list[onnx.NodeProto]]:
    """Integer lists that were attributes become inputs 1, 2, ..."""

    def rewrite(node: onnx.NodeProto, scope: _Scope) -> list[onnx.NodeProto]:
        for index, name in enumerate(names, start=1):
            value = _take(node, name)
            if value is not None:
                _input(node, index, scope.constant(node, name, np.atleast_1d(np.asarray(value, dtype=np.int64))))
        return [node]

    return rewrite


def _broadcast(node: onnx.NodeProto, scope: _Scope) -> None:
    """``broadcast=1, axis=a``: the second operand's first axis meets axis a of the first operand."""
    wide, axis = _take(node, "broadcast"), _take(node, "axis")
    if not wide or axis is None:
        return
    missing = scope.rank(node.input[0]) - (int(axis) % max(1, scope.rank(node.input[0]))) - scope.rank(node.input[1])  # type: ignore[call-overload]
    if missing > 0:
        own = scope.rank(node.input[1])
        axes = scope.constant(node, "axes", np.arange(own, own + missing, dtype=np.int64))
        node.input[1] = scope.before(node, "Unsqueeze", [node.input[1], axes])


def _clip(node: onnx.NodeProto, scope: _Scope) -> list[onnx.NodeProto]:
    for index, name in ((1, "min"), (2, "max")):
        value = _take(node, name)
        if value is not None:
            _input(node, index, scope.constant(node, name, np.asarray(value, dtype=np.float32)))
    return [node]


def _cast(node: onnx.NodeProto, _scope: _Scope) -> list[onnx.NodeProto]:
    target = _take(node, "to")
    name = target.decode() if isinstance(target, bytes) else ""
    _set(node, "to", _NAMED_TYPES.get(name.lower(), 0) if name else target)
    return [node]


def _dropout(node: onnx.NodeProto, scope: _Scope) -> list[onnx.NodeProto]:
    testing = _take(node, "is_test")
    if scope.opset < 7 and not testing:
        raise Untold("is_test is not set: it is in training mode", convertible=False)
    _drop(node, "ratio")
    return [node]


def _normalization(node: onnx.NodeProto, scope: _Scope) -> list[onnx.NodeProto]:
    testing = _take(node, "is_test")
    if scope.opset < 7 and not testing:
        raise Untold("is_test is not set: it is in training mode", convertible=False)
    if _take(node, "spatial") == 0:
        raise Untold("spatial is 0: statistics of every position")
    if len([o for o in node.output if o]) > 1:
        raise Untold("it returns the statistics of training", convertible=False)
    return [node]


def _pad(node: onnx.NodeProto, scope: _Scope) -> list[onnx.NodeProto]:
    pads = _take(node, "pads")
    pads = _take(node, "paddings") if pads is None else pads
    value = _take(node, "value")
    _input(node, 1, scope.constant(node, "pads", np.asarray(pads, dtype=np.int64)))
    if value is not None:
        _input(node, 2, scope.constant(node, "value", np.asarray(value, dtype=np.float32)))
    return [node]


def _softmax(node: onnx.NodeProto, scope: _Scope) -> list[onnx.NodeProto]:
    """Axes from ``axis`` (default 1) on are one axis."""
    axis = _take(node, "axis")
    axis = 1 if axis is None else int(axis)  # type: ignore[call-overload]
    rank = scope.ranks.get(node.input[0])
    if axis == -1 or (rank is not None and axis % rank == rank - 1):
        _set(node, "axis", -1)
        return [node]
    shape = scope.before(node, "Shape", [node.input[0]])
    if rank is None and axis < 0:
        flat = scope.before(node, "Flatten", [node.input[0]], axis=axis)
    else:
        # axes in front of it stay, the batch among them
        before = axis if rank is None else axis % rank
        joined = scope.constant(node, "joined", np.asarray([0] * before + [-1], dtype=np.int64))
        flat = scope.before(node, "Reshape", [node.input[0], joined])
    inner = scope.before(node, node.op_type, [flat], axis=-1)
    return [helper.make_node("Reshape", [inner, shape], list(node.output), name=node.name)]


def _upsample(node: onnx.NodeProto, scope: _Scope) -> list[onnx.NodeProto]:
    scales = _take(node, "scales")
    if scales is not None:
        _input(node, 1, scope.constant(node, "scales", np.asarray(scales, dtype=np.float32)))
    if len(node.input) != 2:
        raise Untold("the scales of height and width are attributes of their own")
    mode = _take(node, "mode") or b"nearest"
    mode = mode.decode() if isinstance(mode, bytes) else mode
    mode = "linear" if mode in ("bilinear", "linear") else mode
    source, scales = node.input
    asymmetric: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": "asymmetric"}
    if node.op_type == "Resize" and mode == "nearest":
        # of opset 10: ONNX Runtime rounds positions down where an axis grows, and up where it shrinks
        one = scope.constant(node, "one", np.ones(1, np.float32))
        more, fewer = (scope.before(node, kind, [scales, one]) for kind in ("Max", "Min"))
        source = scope.before(node, "Resize", [source, "", more], **asymmetric, nearest_mode="floor")
        return [
            helper.make_node(
                "Resize", [source, "", fewer], list(node.output), name=node.name, **asymmetric, nearest_mode="ceil"
            )
        ]
    return [
        helper.make_node(
            "Resize", [source, "", scales], list(node.output), name=node.name, **asymmetric, nearest_mode="floor"
        )
    ]


def _prelu(node: onnx.NodeProto, scope: _Scope) -> list[onnx.NodeProto]:
    """One slope a channel, the channels on axis 1."""
    rank, own = scope.rank(node.input[0]), scope.rank(node.input[1])
    if own == 1 and rank > 2:
        axes = scope.constant(node, "axes", np.arange(1, rank - 1, dtype=np.int64))
        node.input[1] = scope.before(node, "Unsqueeze", [node.input[1], axes])
    return [node]


def _concat(node: onnx.NodeProto, _scope: _Scope) -> list[onnx.NodeProto]:
    axis = _take(node, "axis")
    _set(node, "axis", 1 if axis is None else axis)
    return [node]


def _selu(node: onnx.NodeProto, _scope: _Scope) -> list[onnx.NodeProto]:
    for name, value in (("alpha", 1.6732), ("gamma", 1.0507)):
        given = _take(node, name)
        _set(node, name, value if given is None else given)
    return [node]


def _gemm(node: onnx.NodeProto, _scope: _Scope) -> list[onnx.NodeProto]:
    _drop(node, "broadcast")
    return [node]


def _norm_order(node: onnx.NodeProto, _scope: _Scope) -> list[onnx.NodeProto]:
    order = _take(node, "p")
    order = 2.0 if order is None else order
    if float(order) != int(order):  # type: ignore[call-overload, arg-type]
        raise Untold(f"a norm of order {order}")
    _set(node, "p", int(order))  # type: ignore[call-overload]
    return [node]


def _split(node: onnx.NodeProto, scope: _Scope) -> list[onnx.NodeProto]:
    if scope.opset < 2 and len(node.input) > 1:
        return [node]
    return _ints("split")(node, scope)


def _slice(node: onnx.NodeProto, scope: _Scope) -> list[onnx.NodeProto]:
    return _ints("starts", "ends", "axes")(node, scope)


def _scatter(node: onnx.NodeProto, _scope: _Scope) -> list[onnx.NodeProto]:
    node.op_type = "ScatterElements"
    return [node]


def _refuse(reason: str) -> Callable[[onnx.NodeProto, _Scope], list[onnx.NodeProto]]:
    def rewrite(_node: onnx.NodeProto, _scope: _Scope) -> list[onnx.NodeProto]:
        raise Untold(reason)

    return rewrite


# operator -> (the first version that needs no rewrite, the rewrite)
_REWRITES: dict[str, tuple[int, Callable[[onnx.NodeProto, _Scope], list[onnx.NodeProto]]]] = {
    "BatchNormalization": (9, _normalization),
    "Cast": (6, _cast),
    "Clip": (11, _clip),
    "Concat": (4, _concat),
    "Dropout": (12, _dropout),
    "Gemm": (7, _gemm),
    "GlobalLpPool": (2, _norm_order),
    "Hardmax": (13, _softmax),
    "LogSoftmax": (13, _softmax),
    "LpPool": (2, _norm_order),
    "PRelu": (7, _prelu),
    "Pad": (11, _pad),
    "ReduceSum": (13, _ints("axes")),
    "Reshape": (5, _ints("shape")),
    "Resize": (11, _upsample),
    "Scan": (9, _refuse("its first axis is a batch")),
    "Scatter": (14, _scatter),
    "Selu": (6, _selu),
    "Slice": (10, _slice),
    "Softmax": (13, _softmax),
    "Split": (13, _split),
    "Squeeze": (13, _ints("axes")),
    "Tile": (6, _refuse("tiles and axis are inputs")),
    "TopK": (10, _ints("k")),
    "Unsqueeze": (13, _ints("axes")),
    "Upsample": (14, _upsample),
}

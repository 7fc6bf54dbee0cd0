"""Graphs that treat their first axis as any other: an image is then the whole ONNX tensor.

A tensor of ONNX shape S is a value of per-image shape S, as if every tensor of the model had a batch of 1 in front.
Nodes are rewritten to mean the same on tensors of shape (1, *S): axes count from the end, shapes get a 1 in front,
operands of a broadcast as many axes as the largest. The lowerings stay what they are. Operators that work image by
image (``Conv``, pools ...), and those that this module does not name, see a first axis of 1 as the batch; of a longer
first axis they are given one slice after the other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper

from .builder import Builder, Value
from .call import Input
from .errors import Unsupported

Lower = Callable[[onnx.NodeProto, Sequence[Input]], list[Value]]
Form = Callable[[onnx.NodeProto, list[Input], Builder, Lower], list[Value]]

_SAME = (
    "Abs Acos Acosh Asin Asinh Atan Atanh Bernoulli BitwiseNot Cast CastLike Ceil Celu Clip Cos Cosh Dropout "
    "DynamicQuantizeLinear Elu Erf Exp "
    "Floor Gelu HardSigmoid HardSwish Identity IsInf IsNaN LeakyRelu Log Mish Neg Not Reciprocal Relu Round Selu "
    "Shrink Sigmoid Sign Sin Sinh "
    "Softplus Softsign Sqrt Swish Tan Tanh ThresholdedRelu"
)
_BROADCAST = (
    "Add And BitwiseAnd BitwiseOr BitwiseXor Div Equal Greater GreaterOrEqual Less LessOrEqual Max Mean Min Mod Mul Or "
    "PRelu Pow Sub Sum SwiGLU Where Xor"
)
# operators of one axis, with its default
_AXIS = {
    "ArgMax": 0, "ArgMin": 0, "Concat": None, "Gather": 0, "GatherElements": 0, "Hardmax": -1, "LayerNormalization": -1,
    "LogSoftmax": -1, "LpNormalization": -1, "RMSNormalization": -1, "ScatterElements": 0, "Softmax": -1, "Split": 0,
    "TopK": -1,
}  # fmt: skip
_REDUCTIONS = (
    "ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare"
)


def lower_whole(node: onnx.NodeProto, inputs: Sequence[Input], build: Builder, lower: Lower) -> list[Value]:
    """Lowers a node whose values have the whole ONNX tensor as their image.

    Args:
        lower: lowers a node on values that have a batch of 1 in front.
    """
    return _FORMS.get(node.op_type, _images)(node, list(inputs), build, lower)


def changed(node: onnx.NodeProto, drop: Sequence[str] = (), **attributes: object) -> onnx.NodeProto:
    """A copy of the node with other attributes."""
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    kept = [a for a in copy.attribute if a.name not in drop and a.name not in attributes]
    del copy.attribute[:]
    copy.attribute.extend(kept)
    copy.attribute.extend(helper.make_attribute(name, value) for name, value in attributes.items())
    return copy


def _attribute(node: onnx.NodeProto, name: str) -> Any:
    return next((helper.get_attribute_value(a) for a in node.attribute if a.name == name), None)


def _ints(node: onnx.NodeProto, inputs: Sequence[Input], index: int, name: str) -> list[int] | None:
    """A list of integers from an input, or from the attribute of older opsets."""
    if index < len(inputs) and isinstance(inputs[index], np.ndarray):
        return [int(v) for v in inputs[index].reshape(-1)]  # type: ignore[union-attr]
    if index < len(inputs) and inputs[index] is not None:
        raise Unsupported(
            f"input {index} is computed from the network's input, and must be constant here", "Make it an initializer."
        )
    given = _attribute(node, name)
    return None if given is None else [int(v) for v in given]  # type: ignore[attr-defined]


def _from_end(axis: int, rank: int) -> int:
    """An axis of ``rank`` counted from the end."""
    if not -rank <= axis < rank:
        raise Unsupported(f"axis {axis} of a tensor with {rank} axes", "Export the model again.")
    return axis - rank if axis >= 0 else axis


def _shape(value: Input) -> tuple[int, ...]:
    return value.shape if value is not None else ()


def _raised(build: Builder, value: Input, rank: int) -> Input:
    """A value with ones in front of its shape; constants broadcast by themselves."""
    if isinstance(value, Value) and len(value.shape) < rank:
        return build.reshape(value, (1,) * (rank - len(value.shape)) + value.shape)
    return value


def _same(node: onnx.NodeProto, inputs: list[Input], _build: Builder, lower: Lower) -> list[Value]:
    return lower(node, inputs)


def _broadcast(node: onnx.NodeProto, inputs: list[Input], build: Builder, lower: Lower) -> list[Value]:
    rank = max(len(_shape(i)) for i in inputs)
    return lower(node, [_raised(build, i, rank) for i in inputs])


def _axis(node: onnx.NodeProto, inputs: list[Input], _build: Builder, lower: Lower) -> list[Value]:
    given = _attribute(node, "axis")
    given = _AXIS[node.op_type] if given is None else given
    if given is None:
        raise Unsupported("it names no axis", "Export the model again.")
    rank = max(len(_shape(i)) for i in inputs) if node.op_type == "Concat" else len(_shape(inputs[0]))
    if node.op_type in ("Concat", "GatherElements", "ScatterElements"):
        # constants that join tensors, or number their elements, have the batch too
        inputs = [i[None] if isinstance(i, np.ndarray) else i for i in inputs]
    return lower(changed(node, axis=_from_end(int(given), rank)), inputs)


def _reduction(node: onnx.NodeProto, inputs: list[Input], _build: Builder, lower: Lower) -> list[Value]:
    rank = len(_shape(inputs[0]))
    axes = _ints(node, inputs, 1, "axes") or []
    if not axes:
        if _attribute(node, "noop_with_empty_axes"):
            return lower(node, inputs)
        axes = list(range(rank))
    return lower(
        changed(node, drop=["axes"]), [inputs[0], np.array([_from_end(a, rank) for a in axes], dtype=np.int64)]
    )


def _squeeze(node: onnx.NodeProto, inputs: list[Input], _build: Builder, lower: Lower) -> list[Value]:
    shape = _shape(inputs[0])
    axes = _ints(node, inputs, 1, "axes")
    axes = [a for a, n in enumerate(shape) if n == 1] if axes is None else axes
    return lower(
        changed(node, drop=["axes"]), [inputs[0], np.array([_from_end(a, len(shape)) for a in axes], dtype=np.int64)]
    )


def _unsqueeze(node: onnx.NodeProto, inputs: list[Input], _build: Builder, lower: Lower) -> list[Value]:
    axes = _ints(node, inputs, 1, "axes") or []
    rank = len(_shape(inputs[0])) + len(axes)
    return lower(
        changed(node, drop=["axes"]), [inputs[0], np.array([_from_end(a, rank) for a in axes], dtype=np.int64)]
    )


def _reshape(node: onnx.NodeProto, inputs: list[Input], _build: Builder, lower: Lower) -> list[Value]:
    old, new = _shape(inputs[0]), _ints(node, inputs, 1, "shape") or []
    if not _attribute(node, "allowzero"):
        if any(n == 0 and a >= len(old) for a, n in enumerate(new)):
            raise Unsupported(f"a 0 in shape {new} beyond the {len(old)} axes of the input", "Export the model again.")
        new = [old[a] if n == 0 else n for a, n in enumerate(new)]
    return lower(changed(node, drop=["allowzero", "shape"]), [inputs[0], np.array([1, *new], dtype=np.int64)])


def _flatten(node: onnx.NodeProto, inputs: list[Input], _build: Builder, lower: Lower) -> list[Value]:
    shape = _shape(inputs[0])
    given = _attribute(node, "axis")
    axis = 1 if given is None else int(given)
    axis = axis + len(shape) if axis < 0 else axis
    full = [1, math.prod(shape[:axis]), math.prod(shape[axis:])]
    return lower(
        helper.make_node("Reshape", [*node.input, "shape"], node.output, name=node.name),
        [inputs[0], np.array(full, dtype=np.int64)],
    )


def _transpose(node: onnx.NodeProto, inputs: list[Input], _build: Builder, lower: Lower) -> list[Value]:
    rank = len(_shape(inputs[0]))
    perm = [int(p) for p in _attribute(node, "perm") or range(rank - 1, -1, -1)]  # type: ignore[attr-defined]
    return lower(changed(node, perm=[0, *(p + 1 for p in perm)]), inputs)


def _expand(node: onnx.NodeProto, inputs: list[Input], build: Builder, lower: Lower) -> list[Value]:
    target = _ints(node, inputs, 1, "shape") or []
    x = _raised(build, inputs[0], len(target))
    return lower(node, [x, np.array([1] * (len(_shape(x)) + 1 - len(target)) + target, dtype=np.int64)])


def _tile(node: onnx.NodeProto, inputs: list[Input], _build: Builder, lower: Lower) -> list[Value]:
    repeats = _ints(node, inputs, 1, "repeats") or []
    return lower(node, [inputs[0], np.array([1, *repeats], dtype=np.int64)])


def _slice(node: onnx.NodeProto, inputs: list[Input], _build: Builder, lower: Lower) -> list[Value]:
    rank = len(_shape(inputs[0]))
    starts = _ints(node, inputs, 1, "starts") or []
    axes = _ints(node, inputs, 3, "axes")
    axes = list(range(len(starts))) if axes is None else axes
    steps = inputs[4] if len(inputs) > 4 else None
    return lower(node, [*inputs[:3], np.array([_from_end(a, rank) for a in axes], dtype=np.int64), steps])


def _pad(node: onnx.NodeProto, inputs: list[Input], _build: Builder, lower: Lower) -> list[Value]:
    rank = len(_shape(inputs[0]))
    axes = _ints(node, inputs, 3, "axes")
    axes = list(range(rank)) if axes is None else axes
    value = inputs[2] if len(inputs) > 2 else None
    return lower(node, [inputs[0], inputs[1], value, np.array([_from_end(a, rank) for a in axes], dtype=np.int64)])


def _cumulative(node: onnx.NodeProto, inputs: list[Input], _build: Builder, lower: Lower) -> list[Value]:
    axes = _ints(node, inputs, 1, "axis") or [0]
    return lower(node, [inputs[0], np.array(_from_end(axes[0], len(_shape(inputs[0]))), dtype=np.int64)])


def _one_hot(node: onnx.NodeProto, inputs: list[Input], _build: Builder, lower: Lower) -> list[Value]:
    given = _attribute(node, "axis")
    return lower(changed(node, axis=_from_end(-1 if given is None else int(given), len(_shape(inputs[0])) + 1)), inputs)


def _gather_nd(node: onnx.NodeProto, inputs: list[Input], _build: Builder, lower: Lower) -> list[Value]:
    given = _attribute(node, "batch_dims")
    indices = inputs[1][None] if isinstance(inputs[1], np.ndarray) else inputs[1]
    return lower(changed(node, batch_dims=1 + (0 if given is None else int(given))), [inputs[0], indices])


def _scatter_nd(node: onnx.NodeProto, inputs: list[Input], _build: Builder, lower: Lower) -> list[Value]:
    """The tensor and its updates have the batch in front; indices count the axes of the tensor."""
    x, indices, updates = inputs
    return lower(
        node,
        [
            x[None] if isinstance(x, np.ndarray) else x,
            indices,
            updates[None] if isinstance(updates, np.ndarray) else updates,
        ],
    )


def _compress(node: onnx.NodeProto, inputs: list[Input], build: Builder, lower: Lower) -> list[Value]:
    """Without an axis, of the flattened tensor."""
    x, given = inputs[0], _attribute(node, "axis")
    if given is None and isinstance(x, Value):
        x = build.reshape(x, (math.prod(x.shape),))
    return lower(changed(node, axis=_from_end(0 if given is None else int(given), len(_shape(x)))), [x, *inputs[1:]])


def _reversed(node: onnx.NodeProto, inputs: list[Input], _build: Builder, lower: Lower) -> list[Value]:
    given = {name: _attribute(node, name) for name in ("batch_axis", "time_axis")}
    axes: dict[str, Any] = {
        name: (default if given[name] is None else int(given[name])) + 1
        for name, default in (("batch_axis", 1), ("time_axis", 0))
    }
    return lower(changed(node, **axes), inputs)


def _mean_variance(node: onnx.NodeProto, inputs: list[Input], _build: Builder, lower: Lower) -> list[Value]:
    axes = _attribute(node, "axes") or [0, 2, 3]
    return lower(changed(node, axes=[_from_end(int(a), len(_shape(inputs[0]))) for a in axes]), inputs)  # type: ignore[attr-defined]


def _quantisation(node: onnx.NodeProto, inputs: list[Input], _build: Builder, lower: Lower) -> list[Value]:
    """``axis`` matters where there is a scale a channel."""
    if math.prod(_shape(inputs[1])) == 1:
        return lower(node, inputs)
    given = _attribute(node, "axis")
    return lower(changed(node, axis=_from_end(1 if given is None else int(given), len(_shape(inputs[0])))), inputs)


def _einsum(node: onnx.NodeProto, inputs: list[Input], _build: Builder, lower: Lower) -> list[Value]:
    """A letter more in front of the terms of values and of the result."""
    given = _attribute(node, "equation")
    equation = (given.decode() if isinstance(given, bytes) else str(given)).replace(" ", "")
    left, arrow, right = equation.partition("->")
    terms = left.split(",")
    if not arrow:
        letters = sorted(c for c in set(left) - set(",.") if left.count(c) == 1)
        right = ("..." if "..." in left else "") + "".join(letters)
    free = next(c for c in "BNZYXWVUTSRQPOMLKJIHGFEDCA" if c not in equation)
    terms = [free + t if isinstance(i, Value) else t for t, i in zip(terms, inputs)]
    return lower(changed(node, equation=f"{','.join(terms)}->{free}{right}"), inputs)


def _matmul(node: onnx.NodeProto, inputs: list[Input], build: Builder, lower: Lower) -> list[Value]:
    """Vectors become matrices of one row or column; both operands get as many axes."""
    left, right = inputs
    dropped = []
    if len(_shape(left)) == 1:
        left = build.reshape(left, (1, *left.shape)) if isinstance(left, Value) else left[None]  # type: ignore[index, union-attr]
        dropped.append(-2)
    if len(_shape(right)) == 1:
        right = build.reshape(right, (*right.shape, 1)) if isinstance(right, Value) else right[:, None]  # type: ignore[index, call-overload, union-attr]
        dropped.append(-1)
    rank = max(len(_shape(left)), len(_shape(right)))
    (y,) = lower(node, [_raised(build, left, rank), _raised(build, right, rank)])
    shape = list(y.shape)
    for axis in sorted(dropped):
        del shape[axis]
    return [build.reshape(y, shape)]


def _gemm(node: onnx.NodeProto, inputs: list[Input], build: Builder, lower: Lower) -> list[Value]:
    """``MatMul``, ``Mul`` and ``Add`` of matrices."""

    def part(kind: str, *operands: Input) -> Value:
        names = [f"operand{i}" for i in range(len(operands))]
        return lower_whole(helper.make_node(kind, names, [node.output[0]], name=node.name), operands, build, lower)[0]

    def turned(value: Input, name: str) -> Input:
        if not _attribute(node, name):
            return value
        return value.T if isinstance(value, np.ndarray) else part("Transpose", value)

    y: Value = part("MatMul", turned(inputs[0], "transA"), turned(inputs[1], "transB"))
    alpha, beta = (_attribute(node, name) for name in ("alpha", "beta"))
    if alpha is not None and alpha != 1.0:
        y = part("Mul", y, np.asarray(alpha, dtype=np.float64))
    if len(inputs) > 2 and inputs[2] is not None:
        addend = inputs[2]
        if beta is not None and beta != 1.0:
            factor = np.asarray(beta, dtype=np.float64)
            addend = addend * factor if isinstance(addend, np.ndarray) else part("Mul", addend, factor)
        y = part("Add", y, addend)
    return [y]


def _images(node: onnx.NodeProto, inputs: list[Input], build: Builder, lower: Lower) -> list[Value]:
    """The first axis of all values is the batch: dropped where it is 1, otherwise taken apart (of one value)."""
    values = [i for i in inputs if isinstance(i, Value)]
    if any(not v.shape for v in values):
        raise Unsupported("a scalar of the network", "Give it shape (1, ...).")
    sizes = {v.shape[0] for v in values}
    if sizes == {1}:
        found = lower(node, [build.reshape(i, i.shape[1:]) if isinstance(i, Value) else i for i in inputs])
        return [build.reshape(v, (1, *v.shape)) for v in found]
    if len(values) != 1:
        raise Unsupported(
            f"tensors of shapes {', '.join(str(v.shape) for v in values)}, whose first axis is not one image",
            "Give every input a first axis of 1.",
        )
    x = values[0]
    parts = []
    for index in range(x.shape[0]):
        image = build.reshape(build.slice(x, 0, index, 1), x.shape[1:])
        parts.append(lower(node, [image if i is x else i for i in inputs]))
    joined = []
    for images in zip(*parts):
        rows = [build.reshape(v, (1, *v.shape)) for v in images]
        joined.append(build.client("concat", *rows, shape=(len(rows), *images[0].shape), axis=0))
    return joined


_FORMS: dict[str, Form] = {
    **dict.fromkeys(_SAME.split(), _same),
    **dict.fromkeys(_BROADCAST.split(), _broadcast),
    **dict.fromkeys(_AXIS, _axis),
    **dict.fromkeys(_REDUCTIONS.split(), _reduction),
    "CumProd": _cumulative,
    "CumSum": _cumulative,
    "DequantizeLinear": _quantisation,
    **dict.fromkeys(("Attention", "GRU", "LSTM", "RNN", "Trilu"), _same),
    "Compress": _compress,
    "Einsum": _einsum,
    "Expand": _expand,
    "Flatten": _flatten,
    "GatherND": _gather_nd,
    "Gemm": _gemm,
    "MatMul": _matmul,
    "MeanVarianceNormalization": _mean_variance,
    "OneHot": _one_hot,
    "Pad": _pad,
    "QuantizeLinear": _quantisation,
    "Reshape": _reshape,
    "ReverseSequence": _reversed,
    "ScatterND": _scatter_nd,
    "Slice": _slice,
    "Squeeze": _squeeze,
    "Tile": _tile,
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
}

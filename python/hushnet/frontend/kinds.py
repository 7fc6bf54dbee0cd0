"""Element types: which operators may read integers and booleans of the network.

A tensor of a plan holds real numbers. Integers are real numbers too, as long as an operator gives on real numbers what
ONNX defines on
integers: moves, comparisons and casts to wider types always do, sums and products where the type does not wrap around
in practice (32 bits and more). Division, shifts, and casts that cut do not; they are refused.
"""

from __future__ import annotations

import onnx
from onnx import TensorProto

from .errors import Unsupported

FLOATS: set[int] = {TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE, TensorProto.BFLOAT16}
_SIGNED: dict[int, int] = {TensorProto.INT8: 8, TensorProto.INT16: 16, TensorProto.INT32: 32, TensorProto.INT64: 64}
_UNSIGNED: dict[int, int] = {
    TensorProto.UINT8: 8,
    TensorProto.UINT16: 16,
    TensorProto.UINT32: 32,
    TensorProto.UINT64: 64,
}
INTEGERS: dict[int, int] = {**_SIGNED, **_UNSIGNED}
INPUTS: set[int] = {*FLOATS, *INTEGERS, TensorProto.BOOL}

_MOVES = {
    "Identity",
    "Reshape",
    "Flatten",
    "Squeeze",
    "Unsqueeze",
    "Transpose",
    "Expand",
    "Tile",
    "Concat",
    "Slice",
    "Split",
    "Pad",
    "Gather",
    "GatherElements",
    "GatherND",
    "Compress",
    "DepthToSpace",
    "SpaceToDepth",
    "Where",
    "Trilu",
    "ReverseSequence",
    "ScatterElements",
    "ScatterND",
    "CenterCropPad",
    "Dropout",
    "Shape",
    "Size",
    "Upsample",
    "EyeLike",
}
# the same on integers of any width: the result is one of the operands, a comparison or a choice
_ORDER = {
    "Min",
    "Max",
    "Clip",
    "Relu",
    "Equal",
    "Greater",
    "GreaterOrEqual",
    "Less",
    "LessOrEqual",
    "ReduceMax",
    "ReduceMin",
    "MaxPool",
    "GlobalMaxPool",
    "ArgMax",
    "ArgMin",
    "TopK",
    "OneHot",
    "Sign",
}
_ARITHMETIC = {
    "Add",
    "Sub",
    "Mul",
    "Neg",
    "Abs",
    "Sum",
    "ReduceSum",
    "ReduceL1",
    "ReduceSumSquare",
    "ReduceProd",
    "CumSum",
    "MatMul",
    "Gemm",
    "Einsum",
    "Pow",
}
_LOGIC = {"Not", "And", "Or", "Xor"}
# operators that are defined on integers, read as the float network of their scales
_QUANTISED = {
    "QuantizeLinear",
    "DequantizeLinear",
    "DynamicQuantizeLinear",
    "QLinearConv",
    "QLinearMatMul",
    "ConvInteger",
    "MatMulInteger",
    "Div",
    "IsNaN",
    "IsInf",
    "If",
    "Loop",
    "Scan",
}
# element types of results that are not those of the first operand: a type, or the place of a zero point that has it
MADE: dict[str, int | tuple[int]] = {
    "DequantizeLinear": TensorProto.FLOAT,
    "QuantizeLinear": (2,),
    "DynamicQuantizeLinear": TensorProto.UINT8,
    "QLinearConv": (7,),
    "QLinearMatMul": (7,),
    "ConvInteger": TensorProto.INT32,
    "MatMulInteger": TensorProto.INT32,
}


def name(kind: int) -> str:
    """The name of an element type in messages."""
    return str(TensorProto.DataType.Name(kind)).lower()


def check(node: onnx.NodeProto, kinds: list[int]) -> None:
    """Refuses a node whose operands of the network have types on which the lowering would mean something else.

    Args:
        kinds: element types of the operands that depend on the network's inputs.
    """
    op = node.op_type
    if op == "Cast":
        _check_cast(node, kinds[0])
        return
    if all(k in FLOATS for k in kinds) or op in _MOVES | _ORDER | _QUANTISED:
        return
    kind = next(k for k in kinds if k not in FLOATS)
    if kind == TensorProto.BOOL and op in _LOGIC:
        return
    if op in _ARITHMETIC and kind in INTEGERS:
        if INTEGERS[kind] < 32:
            raise Unsupported(
                f"{op} on {name(kind)}, which wraps around at {INTEGERS[kind]} bits",
                "Cast its operands to float first.",
            )
        if kind in _UNSIGNED and op in ("Sub", "Neg"):
            raise Unsupported(
                f"{op} on {name(kind)}, which has no negative numbers", "Cast its operands to float first."
            )
        return
    raise Unsupported(
        f"{op} on {name(kind)} means something else than on real numbers", "Cast its operands to float first."
    )


def keeps(node: onnx.NodeProto, kind: int) -> bool:
    """Whether a ``Cast`` of real numbers of that type changes no value that the source type holds."""
    to = next((a.i for a in node.attribute if a.name == "to"), 0)
    if kind == TensorProto.BOOL:
        return to in INPUTS
    if to in FLOATS:
        return True
    if kind in _UNSIGNED and to in _SIGNED:
        return _SIGNED[to] > _UNSIGNED[kind]
    for family in (_SIGNED, _UNSIGNED):
        if kind in family and to in family:
            return family[to] >= family[kind]
    return False


def to_truth(node: onnx.NodeProto, kind: int) -> bool:
    """Whether a ``Cast`` asks which numbers are not zero."""
    return (kind in INTEGERS or kind in FLOATS) and next(
        (a.i for a in node.attribute if a.name == "to"), 0
    ) == TensorProto.BOOL


def _check_cast(node: onnx.NodeProto, kind: int) -> None:
    to = next((a.i for a in node.attribute if a.name == "to"), 0)
    if kind in INTEGERS and to in INTEGERS and not keeps(node, kind):
        raise Unsupported(
            f"a cast from {name(kind)} to {name(to)}, which cuts values",
            f"Keep the values in {name(kind)}, or cast them to float.",
        )

"""Operators whose cases of real numbers must pass client-aided, and the cases that do not (``docs/models.md``)."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatch

from .judge import PASSED, Verdict

LISTED = frozenset(
    [
        "Abs",
        "AveragePool",
        "BatchNormalization",
        "Celu",
        "Conv",
        "ConvTranspose",
        "ConvInteger",
        "CumSum",
        "DepthToSpace",
        "DequantizeLinear",
        "DynamicQuantizeLinear",
        "Einsum",
        "Erf",
        "Exp",
        "Expand",
        "GRU",
        "Gather",
        "GatherElements",
        "GlobalAveragePool",
        "GlobalLpPool",
        "GlobalMaxPool",
        "GroupNormalization",
        "InstanceNormalization",
        "LSTM",
        "LayerNormalization",
        "Log",
        "LogSoftmax",
        "LpPool",
        "MatMul",
        "MatMulInteger",
        "Max",
        "MaxPool",
        "Mean",
        "Min",
        "Mish",
        "NonMaxSuppression",
        "PRelu",
        "Pow",
        "QLinearConv",
        "QLinearMatMul",
        "QuantizeLinear",
        "RMSNormalization",
        "RNN",
        "Reciprocal",
        "ReduceL1",
        "ReduceL2",
        "ReduceLogSum",
        "ReduceLogSumExp",
        "ReduceMax",
        "ReduceMean",
        "ReduceMin",
        "ReduceProd",
        "ReduceSum",
        "ReduceSumSquare",
        "Resize",
        "Selu",
        "Sign",
        "Slice",
        "Softplus",
        "Softsign",
        "SpaceToDepth",
        "Split",
        "Sqrt",
        "Sum",
        "ThresholdedRelu",
        "Tile",
        "TopK",
        "Upsample",
        "Where",
        "ArgMax",
        "Attention",
    ]
)
# what stands around them in models, and in the bodies of ONNX's functions
AROUND = frozenset(
    [
        "Add",
        "And",
        "Cast",
        "CastLike",
        "Clip",
        "Concat",
        "Constant",
        "ConstantOfShape",
        "Div",
        "Equal",
        "Flatten",
        "Gelu",
        "Gemm",
        "Greater",
        "Identity",
        "If",
        "LeakyRelu",
        "Less",
        "Mod",
        "Mul",
        "Neg",
        "Not",
        "Or",
        "Range",
        "Relu",
        "Reshape",
        "Shape",
        "Sigmoid",
        "Size",
        "Softmax",
        "Squeeze",
        "Sub",
        "Tanh",
        "Transpose",
        "Unsqueeze",
    ]
)
EXCEPTIONS = {
    "test_*_empty_set*": "a tensor without elements",
    "test_split_zero_size_splits_*": "a tensor without elements",
    "test_slice_start_out_of_bounds": "a tensor without elements",
    "test_batchnorm_*_training_mode": "training: statistics of the batch, which would mix images",
    "test_maxpool_with_argmax_*": "positions of maxima as an output",
    "test_nonmaxsuppression_*": "a result whose size depends on private data: choose on "
    "the client, on what it decrypts",
    "test_pow": "the case's own result overflows: 59 to the power of 59",
    "test_operator_pow": "a private exponent of a base that may be negative",
    "test_operator_sqrt": "the case's own result is no number: roots of negative values",
    "test_attention_*with_past_and_present_qk_matmul_bias_*_causal": "masked scores as an output, some minus infinity",
    "test_attention_*with_past_and_present*_expanded": "the expansion compares with minus infinity; Attention passes",
    "test_attention_*bf16_expanded": "ONNX's expansion adds minus infinity; Attention itself passes",
    "test_causal_conv_with_state_kernel_size_one_expanded": "an output without elements",
    "test_dynamicquantizelinear*_expanded": "its result is a whole number of 8 bits, with the range of the whole batch",
}


def unexplained(verdicts: Iterable[Verdict]) -> list[Verdict]:
    """Cases of real numbers, and of no operators but these, that have not passed and that no exception names."""
    return [
        v
        for v in verdicts
        if v.verdict != PASSED
        and v.real
        and set(v.operators) & LISTED
        and set(v.operators) <= LISTED | AROUND
        and not any(fnmatch(v.name, pattern) for pattern in EXCEPTIONS)
    ]


def unused(verdicts: Iterable[Verdict]) -> list[str]:
    """Exceptions that no case needs any more."""
    refused = [v.name for v in verdicts if v.verdict != PASSED]
    return [pattern for pattern in EXCEPTIONS if not any(fnmatch(name, pattern) for name in refused)]

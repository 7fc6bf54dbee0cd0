"""What to do about operators that have no lowering."""

from __future__ import annotations

import onnx


class Skipped(Exception):
    """A node whose inputs are unknown because of an earlier issue."""


_RECURRENT = "Recurrent cells are not supported; use a convolutional network, or unroll the cell into Gemm, Sigmoid and Tanh nodes."
_QUANTISED = "Export the float model: Hushnet chooses its own fixed-point scales."
_CONTROL = "Export with constant control flow (trace the model, or run onnxslim), so that no branch depends on the data."
_SELECT = "The choice depends on private data; return the scores (logits) and choose on the client after inference."
_LOGIC = "Write it with Relu, Min, Max, Clip and arithmetic."

ADVICE: dict[str, str] = {
    "ConvTranspose": "Write it as a nearest enlargement (Reshape, Expand, Reshape) followed by a Conv.",
    "Resize": "Use strided Conv or pooling to shrink; to enlarge write Unsqueeze, Expand and Reshape (nearest).",
    "Upsample": "To enlarge write Unsqueeze, Expand and Reshape (nearest).",
    "Log": "Drop it from the end of the network (apply it to the result on the client), or replace it by a trained activation.",
    "LogSoftmax": "Return the logits or use Softmax; take the logarithm of the result on the client.",
    "Softplus": "Replace it by Relu or Gelu and fine-tune.",
    "LSTM": _RECURRENT,
    "GRU": _RECURRENT,
    "RNN": _RECURRENT,
    "ArgMax": _SELECT,
    "ArgMin": _SELECT,
    "TopK": _SELECT,
    "NonMaxSuppression": _SELECT,
    "If": _CONTROL,
    "Loop": _CONTROL,
    "Scan": _CONTROL,
    "Where": _LOGIC,
    "Greater": _LOGIC,
    "Less": _LOGIC,
    "Equal": _LOGIC,
    "Not": _LOGIC,
    "Einsum": "Write it as Transpose, Reshape and MatMul with a constant.",
    "DeformConv": "Use a Conv.",
    "QLinearConv": _QUANTISED,
    "QLinearMatMul": _QUANTISED,
    "QuantizeLinear": _QUANTISED,
    "DequantizeLinear": _QUANTISED,
    "DynamicQuantizeLinear": _QUANTISED,
    "ConvInteger": _QUANTISED,
    "MatMulInteger": _QUANTISED,
    "RandomNormalLike": "Export the model for inference, without sampling.",
    "RandomUniformLike": "Export the model for inference, without sampling.",
    "GridSample": "Use fixed Slice, Pad and Reshape nodes.",
    "ScatterND": "Write it with Slice and Concat.",
    "ScatterElements": "Write it with Slice and Concat.",
    "Ceil": "Rounding has no counterpart here; remove it from the inference graph.",
    "Floor": "Rounding has no counterpart here; remove it from the inference graph.",
    "Round": "Rounding has no counterpart here; remove it from the inference graph.",
}


def advice(node: onnx.NodeProto) -> str:
    """What to do about a node whose operator is not supported."""
    if node.domain not in ("", "ai.onnx"):
        return f"Export with standard ONNX operators only; {node.domain} has its own, which no two tools read alike."
    return ADVICE.get(node.op_type, "Write it with Conv, Gemm, MatMul, arithmetic, activations, pooling, reductions and moves, or compute this part on the client.")

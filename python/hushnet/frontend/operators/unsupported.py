"""What to do about operators that have no lowering."""

from __future__ import annotations

import onnx

from ..classical import DOMAIN, REFUSED


class Skipped(Exception):
    """A node whose inputs are unknown because of an earlier issue."""


_CONTROL = (
    "Export with constant control flow (trace the model, or run onnxslim), so that no branch depends on the data."
)
_SELECT = "The choice depends on private data; return the scores (logits) and choose on the client after inference."

ADVICE: dict[str, str] = {
    "NonMaxSuppression": _SELECT,
    "If": _CONTROL,
    "Loop": _CONTROL,
    "Scan": _CONTROL,
    "DeformConv": "Use a Conv.",
    "RandomNormalLike": "Export the model for inference, without sampling.",
    "RandomUniformLike": "Export the model for inference, without sampling.",
    "GridSample": "Use fixed Slice, Pad and Reshape nodes.",
}


def advice(node: onnx.NodeProto) -> str:
    """What to do about a node whose operator is not supported."""
    if node.domain == DOMAIN and node.op_type in REFUSED:
        return REFUSED[node.op_type]
    if node.domain not in ("", "ai.onnx"):
        return f"Export with standard ONNX operators only; {node.domain} has its own, which no two tools read alike."
    return ADVICE.get(
        node.op_type,
        "Write it with Conv, Gemm, MatMul, arithmetic, activations, pooling, reductions and moves, or compute this "
        "part on the client.",
    )

"""What a model rounds inside of its network, and how far its own answers are from those of its weights in real numbers.

Files of eight bits are read as the float networks of their weights (``operators/quantised.py``). Who uses such a file
compares with what ONNX Runtime makes of it, roundings included, so a plan says how much these are.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from onnx import helper

from .model import Source
from .verify import within

Array = np.ndarray

# rows of calibration data that are tried, and seconds for all of them
ROWS = 64
SECONDS = 60.0
# operators that round what goes through them; QuantizeLinear does, unless it has a constant
_ROUNDING = ("DynamicQuantize", "QLinear", "QGemm", "QAttention")


def rounding_nodes(source: Source) -> int:
    """Nodes that round data to few bits, without those of constants; 0 for what is no ONNX model."""
    proto = _proto(source)
    if proto is None:
        return 0
    constant = {c.name for c in proto.graph.initializer}
    constant |= {o for node in proto.graph.node if node.op_type == "Constant" for o in node.output}
    return sum(
        node.op_type.startswith(_ROUNDING) or (node.op_type == "QuantizeLinear" and node.input[0] not in constant)
        for node in proto.graph.node
    )


def own_answers(source: Source, samples: Mapping[str, Array]) -> dict[str, Array]:
    """What ONNX Runtime makes of a model on the first rows of calibration data, by name of the output ``[rows, ...]``.

    Empty where ONNX Runtime is not installed, does not take the model or these inputs, or needs too long.

    Args:
        samples: arrays ``[images, ...]`` by name of the input.
    """
    if importlib.util.find_spec("onnxruntime") is None:
        return {}
    return within(SECONDS, lambda: _answers(source, samples)) or {}


def _answers(source: Source, samples: Mapping[str, Array]) -> dict[str, Array]:
    import onnxruntime

    options, quiet = onnxruntime.SessionOptions(), onnxruntime.RunOptions()
    options.log_severity_level = quiet.log_severity_level = 4
    given = source.SerializeToString() if isinstance(source, onnx.ModelProto) else source
    session = onnxruntime.InferenceSession(
        os.fspath(given) if isinstance(given, os.PathLike) else given, options, providers=["CPUExecutionProvider"]
    )
    names = [port.name for port in session.get_outputs()]
    rows = min(ROWS, *(len(value) for value in samples.values()))
    found = []
    for row in range(rows):
        feeds = {}
        for port in session.get_inputs():
            value = np.asarray(samples[port.name][row])
            value = value if value.ndim == len(port.shape) else value[None]
            feeds[port.name] = value.astype(_dtype(port.type))
        found.append(session.run(None, feeds, quiet))
    return {name: np.stack([np.asarray(answer[i]) for answer in found]) for i, name in enumerate(names)}


def _dtype(name: str) -> Any:
    """The dtype of what ONNX Runtime calls ``tensor(float)``."""
    kind = name.removeprefix("tensor(").removesuffix(")")
    kind = {"double": "double", "float16": "float16"}.get(kind, kind).upper()
    return helper.tensor_dtype_to_np_dtype(getattr(onnx.TensorProto, kind))


def _proto(source: Source) -> onnx.ModelProto | None:
    if isinstance(source, onnx.ModelProto):
        return source
    try:
        if isinstance(source, bytes):
            return onnx.load_model_from_string(source)
        return onnx.load(os.fspath(source), load_external_data=False)
    except Exception:
        return None

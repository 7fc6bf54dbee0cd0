"""Whether a rewritten model still computes what the model does: both are run on random inputs, within a time limit."""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Callable, Mapping
from typing import TypeVar

import numpy as np
import onnx
import onnx.reference
from onnx import helper

from .kinds import INTEGERS

# how far results may differ, of the largest
DIFFERENCE = 1e-4

Found = TypeVar("Found")


def within(seconds: float, work: Callable[[], Found]) -> Found | None:
    """What the work returns; None where it raises or is not done in time (its thread is then left to itself)."""
    found: list[Found] = []

    def run() -> None:
        try:
            found.append(work())
        except BaseException:
            found.clear()

    thread = threading.Thread(target=run, daemon=True, name="hushnet-simplify")
    thread.start()
    thread.join(seconds)
    return found[0] if found and not thread.is_alive() else None


def same(
    model: onnx.ModelProto,
    other: onnx.ModelProto,
    weights: Mapping[str, np.ndarray],
    inputs: Mapping[str, tuple[int, ...]],
) -> bool:
    """Whether both models give the same results on random inputs.

    Args:
        weights: constants that the models have as inputs.
        inputs: shapes of the other inputs.
    """
    values = sample(model, inputs) | dict(weights)
    want, got = execute(model, values), execute(other, values)
    if want is None or got is None or len(want) != len(got):
        return False
    return all(_close(a, b) for a, b in zip(want, got))


def _close(a: np.ndarray, b: np.ndarray) -> bool:
    if a.shape != b.shape:
        return False
    a, b = a.astype(np.float64), b.astype(np.float64)
    scale = float(np.abs(a[np.isfinite(a)]).max(initial=0.0))
    return bool(np.allclose(a, b, rtol=DIFFERENCE, atol=DIFFERENCE * max(scale, 1e-30), equal_nan=True))


def sample(model: onnx.ModelProto, inputs: Mapping[str, tuple[int, ...]], seed: int = 0) -> dict[str, np.ndarray]:
    """Random inputs of these shapes: normal numbers, integers and booleans 0 and 1."""
    rng = np.random.default_rng(seed)
    feeds = {}
    for port in model.graph.input:
        if port.name not in inputs:
            continue
        kind = port.type.tensor_type.elem_type
        whole = kind in INTEGERS or kind == onnx.TensorProto.BOOL
        shape, dtype = inputs[port.name], helper.tensor_dtype_to_np_dtype(kind)
        feeds[port.name] = (rng.integers(0, 2, shape) if whole else rng.standard_normal(shape)).astype(dtype)
    return feeds


def execute(proto: onnx.ModelProto, values: Mapping[str, np.ndarray]) -> list[np.ndarray] | None:
    """Results by ONNX Runtime where it is installed and takes the model, otherwise by ONNX's reference.

    None where neither does.
    """
    feeds = {port.name: values[port.name] for port in proto.graph.input if port.name in values}
    if importlib.util.find_spec("onnxruntime") is not None:
        try:
            import onnxruntime

            options = onnxruntime.SessionOptions()
            options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
            options.log_severity_level = 4
            session = onnxruntime.InferenceSession(
                proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
            )
            # what it cannot run is no news to the user: another way is taken
            quiet = onnxruntime.RunOptions()
            quiet.log_severity_level = 4
            return [np.asarray(v) for v in session.run(None, feeds, quiet)]
        except Exception:
            return _reference(proto, feeds)
    return _reference(proto, feeds)


def _reference(proto: onnx.ModelProto, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray] | None:
    try:
        return [np.asarray(v) for v in onnx.reference.ReferenceEvaluator(proto).run(None, dict(feeds))]
    except Exception:
        return None

"""onnxslim in front of the lowering, guarded: within a time limit, and only a result that computes what the model does.

The lowering folds constants itself. What onnxslim adds is merging of repeated nodes and shape arithmetic that it knows patterns for.
Fusions stay off: they re-round weights and hide the node names that a user knows. Random numbers are left alone: they would become
constants.
"""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import onnx
import onnx.reference
from onnx import helper, numpy_helper

from .constants import RANDOM
from .kinds import INTEGERS
from .model import Prepared, infer

# the simplifier makes no larger constants
FOLDED_BYTES = 64 << 20
# seconds that simplification, and its verification, may take; the model is taken as it came otherwise
SECONDS = 60.0
# how far results may differ, of the largest
DIFFERENCE = 1e-4

Found = TypeVar("Found")


def simplify(prepared: Prepared, *, seconds: float = SECONDS) -> Prepared | None:
    """The simplified model; None where onnxslim fails, takes too long, changes the interface or what the model computes."""
    graph = prepared.proto.graph
    if any(node.op_type in RANDOM for node in graph.node) or prepared.problems:
        return None
    slim = within(seconds, lambda: _slim(prepared.proto))
    if slim is None or _names(slim.graph.output) != _names(graph.output):
        return None
    weights = {**prepared.weights, **{t.name: np.asarray(numpy_helper.to_array(t)) for t in slim.graph.initializer}}
    if not set(_names(slim.graph.input)) <= set(_names(graph.input)):
        return None
    if [_signature(node) for node in slim.graph.node] == [_signature(node) for node in graph.node]:
        return None
    if not within(seconds, lambda: same(prepared, slim)):
        return None
    return replace(prepared, proto=infer(slim), weights=weights)


def _names(ports: Any) -> list[str]:
    return [port.name for port in ports]


def _signature(node: onnx.NodeProto) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    return node.op_type, tuple(node.input), tuple(node.output)


def _slim(proto: onnx.ModelProto) -> onnx.ModelProto:
    import onnxslim

    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    return onnxslim.slim(copy, skip_optimizations=["graph_fusion", "weight_tying"], no_shape_infer=True, size_threshold=FOLDED_BYTES)


def within(seconds: float, work: Callable[[], Found]) -> Found | None:
    """What the work returns; None where it raises or is not done in time (its thread is then left to itself)."""
    found: list[Found] = []

    def run() -> None:
        try:
            found.append(work())
        except BaseException:  # noqa: BLE001 - a simplifier that fails, in whatever way, is one that is not needed
            found.clear()

    thread = threading.Thread(target=run, daemon=True, name="hushnet-simplify")
    thread.start()
    thread.join(seconds)
    return found[0] if found and not thread.is_alive() else None


def same(prepared: Prepared, slim: onnx.ModelProto) -> bool:
    """Whether both models give the same results on random inputs."""
    feeds = sample(prepared)
    want = execute(prepared.proto, feeds | prepared.weights)
    got = execute(slim, feeds | prepared.weights)
    if want is None or got is None or len(want) != len(got):
        return False
    return all(_close(a, b) for a, b in zip(want, got))


def _close(a: np.ndarray, b: np.ndarray) -> bool:
    if a.shape != b.shape:
        return False
    a, b = a.astype(np.float64), b.astype(np.float64)
    scale = float(np.abs(a[np.isfinite(a)]).max(initial=0.0))
    return bool(np.allclose(a, b, rtol=DIFFERENCE, atol=DIFFERENCE * max(scale, 1e-30), equal_nan=True))


def sample(prepared: Prepared, seed: int = 0) -> dict[str, np.ndarray]:
    """Random inputs of the shapes that the model was prepared for: normal numbers, integers and booleans 0 and 1."""
    rng = np.random.default_rng(seed)
    feeds = {}
    for port in prepared.proto.graph.input:
        if port.name in prepared.weights or port.name not in prepared.inputs:
            continue
        kind = port.type.tensor_type.elem_type
        shape, dtype = prepared.inputs[port.name], helper.tensor_dtype_to_np_dtype(kind)
        whole = kind in INTEGERS or kind == onnx.TensorProto.BOOL
        feeds[port.name] = (rng.integers(0, 2, shape) if whole else rng.standard_normal(shape)).astype(dtype)
    return feeds


def execute(proto: onnx.ModelProto, values: Mapping[str, np.ndarray]) -> list[np.ndarray] | None:
    """Results by ONNX Runtime where it is installed and takes the model, otherwise by ONNX's reference; None where neither does."""
    feeds = {port.name: values[port.name] for port in proto.graph.input if port.name in values}
    if importlib.util.find_spec("onnxruntime") is not None:
        try:
            import onnxruntime

            options = onnxruntime.SessionOptions()
            options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
            options.log_severity_level = 4
            session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
            return [np.asarray(v) for v in session.run(None, feeds)]
        except Exception:  # noqa: BLE001 - ONNX Runtime raises types of its own for what it does not take
            return _reference(proto, feeds)
    return _reference(proto, feeds)


def _reference(proto: onnx.ModelProto, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray] | None:
    try:
        return [np.asarray(v) for v in onnx.reference.ReferenceEvaluator(proto).run(None, dict(feeds))]
    except Exception:  # noqa: BLE001 - the reference implementation has no errors of its own
        return None

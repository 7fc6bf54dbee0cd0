"""onnxslim in front of the lowering, guarded: within a time limit, and only a result that computes what the model does.

The lowering folds constants itself. What onnxslim adds is merging of repeated nodes and shape arithmetic that it knows
patterns for. Fusions stay off: they re-round weights and hide the node names that a user knows. Random numbers are left
alone: they would become constants. A graph without either (:func:`worthwhile`) is lowered as it is: importing onnxslim
and comparing its result take longer than all the rest of a small network's compilation.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from .constants import CONTROL, RANDOM
from .model import Prepared, infer
from .verify import same, within

# what computes shapes, or has graphs inside
ARITHMETIC = CONTROL | {"Shape", "Size", "NonZero", "ConstantOfShape", "Range"}
# the simplifier makes no larger constants
FOLDED_BYTES = 64 << 20
# seconds that simplification, and its verification, may take; the model is taken as it came otherwise
SECONDS = 60.0


def worthwhile(prepared: Prepared) -> bool:
    """Whether there is something that only onnxslim does.

    It computes shapes, merges a node with another one that it repeats, and drops inputs that no output needs. What is
    constant or does nothing is no reason: the lowering and the passes behind it see to that.
    """
    graph = prepared.proto.graph
    seen: set[tuple[object, ...]] = set()
    needed = set(_names(graph.output))
    for node in reversed(graph.node):
        if node.op_type in ARITHMETIC:
            return True
        if needed.intersection(node.output):
            needed.update(node.input)
        if node.op_type == "Constant":
            continue
        attributes = sorted(a.SerializeToString(deterministic=True) for a in node.attribute)
        key = (node.domain, node.op_type, *node.input, *attributes)
        if key in seen:
            return True
        seen.add(key)
    return not needed.issuperset(prepared.inputs)


def simplify(prepared: Prepared, *, seconds: float = SECONDS) -> Prepared | None:
    """The simplified model.

    None where onnxslim fails, takes too long, changes the interface or what the model computes.
    """
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
    if not within(seconds, lambda: same(prepared.proto, slim, prepared.weights, prepared.inputs)):
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
    return onnxslim.slim(
        copy, skip_optimizations=["graph_fusion", "weight_tying"], no_shape_infer=True, size_threshold=FOLDED_BYTES
    )

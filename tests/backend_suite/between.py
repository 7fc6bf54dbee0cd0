"""A case between two layers of the server's: ``--between``.

What stands in front of the first layer or behind the last one is computed by whom it belongs to, alone. Most cases
have no layer, and so say nothing of what shares compute. Here every input of real numbers is first multiplied by an
orthogonal matrix along its last axis, and is given turned back by it, so that the case's own operator reads a layer's
result. Every output of real numbers is multiplied by another such matrix, and so is what the suite expects.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from .cases import Case

# types in which the product loses nothing that the judge would see
TYPES = {np.dtype(np.float32), np.dtype(np.float64)}
WIDEST = 512


@dataclass
class _Entry:
    model: onnx.ModelProto
    data_sets: list[Any]


def turn(size: int, seed: int) -> np.ndarray:
    """A dense orthogonal matrix, the same on every machine."""
    draws = np.random.default_rng([seed, size]).standard_normal((size, size))
    return np.asarray(np.linalg.qr(draws)[0])


def _real(value: Any) -> bool:
    array = np.asarray(value)
    return (
        array.dtype in TYPES
        and array.ndim > 0
        and 0 < array.size
        and array.shape[-1] <= WIDEST
        and bool(np.isfinite(array).all())
    )


def framed(case: Case) -> Case | None:
    """The case between layers; None where it has no input or no output of real numbers."""
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    graph, inputs, outputs = model.graph, dict(case.inputs), list(case.outputs)
    front, behind = [n for n, v in inputs.items() if _real(v)], [i for i, v in enumerate(outputs) if _real(v)]
    if not front or not behind:
        return None
    for name in front:
        value = np.asarray(inputs[name])
        inside, matrix = f"{name}_turned", turn(value.shape[-1], 1).astype(value.dtype)
        _rename(graph.node, name, inside)
        graph.initializer.append(numpy_helper.from_array(matrix, f"{name}_in"))
        graph.node.insert(0, helper.make_node("MatMul", [name, f"{name}_in"], [inside]))
        inputs[name] = (value.astype(np.float64) @ matrix.T.astype(np.float64)).astype(value.dtype)
    for index in behind:
        name, value = graph.output[index].name, np.asarray(outputs[index])
        inside, matrix = f"{name}_inside", turn(value.shape[-1], 2).astype(value.dtype)
        _rename(graph.node, name, inside)
        for node in graph.node:
            for place, made in enumerate(node.output):
                if made == name:
                    node.output[place] = inside
        graph.initializer.append(numpy_helper.from_array(matrix, f"{name}_out"))
        graph.node.append(helper.make_node("MatMul", [inside, f"{name}_out"], [name]))
        outputs[index] = (value.astype(np.float64) @ matrix.astype(np.float64)).astype(value.dtype)
    del graph.value_info[:]
    return Case(case.name, case.kind, _Entry(model, [(list(inputs.values()), outputs)]))


def _rename(nodes: Any, old: str, new: str) -> None:
    """Lets all nodes read another tensor, those of inner graphs too."""
    for node in nodes:
        for place, read in enumerate(node.input):
            if read == old:
                node.input[place] = new
        for attribute in node.attribute:
            for inner in [attribute.g, *attribute.graphs]:
                _rename(inner.node, old, new)

"""A network between two layers of the server's: ``--between``.

What stands in front of the first layer or behind the last one is computed by whom it belongs to, alone. Most cases
have no layer, and so say nothing of what shares compute. Here every private input of real numbers is first multiplied
by an orthogonal matrix along its last axis, and is given turned back by it, so that the case's own operator reads a
layer's result. Every output of real numbers is multiplied by another such matrix, and so is what the suite expects.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

# types in which the product loses nothing that the judge would see
TYPES = {np.dtype(np.float32), np.dtype(np.float64)}
WIDEST = 512


def turn(size: int, seed: int) -> np.ndarray:
    """A dense orthogonal matrix, the same on every machine."""
    draws = np.random.default_rng([seed, size]).standard_normal((size, size))
    return np.asarray(np.linalg.qr(draws)[0])


def fits(value: np.ndarray) -> bool:
    """Whether a tensor can be multiplied by a matrix: real, finite, not a single number, not very wide."""
    real = value.dtype in TYPES and value.ndim > 0 and value.size > 0
    return real and value.shape[-1] <= WIDEST and bool(np.isfinite(value).all())


def framed(
    model: onnx.ModelProto, feeds: Mapping[str, np.ndarray], outputs: Sequence[np.ndarray]
) -> tuple[onnx.ModelProto, dict[str, np.ndarray], list[np.ndarray]] | None:
    """The network between layers with its private inputs and what is expected.

    None where no private input, or no output, fits.
    """
    made = onnx.ModelProto()
    made.CopyFrom(model)
    graph, given, wanted = made.graph, dict(feeds), [np.asarray(v) for v in outputs]
    front, behind = [n for n, v in given.items() if fits(v)], [i for i, v in enumerate(wanted) if fits(v)]
    if not front or not behind:
        return None
    for name in front:
        value = given[name]
        matrix = turn(value.shape[-1], 1).astype(value.dtype)
        _rename(graph.node, name, f"{name}_turned")
        graph.initializer.append(numpy_helper.from_array(matrix, f"{name}_in"))
        graph.node.insert(0, helper.make_node("MatMul", [name, f"{name}_in"], [f"{name}_turned"]))
        given[name] = _product(value, matrix.T)
    for index in behind:
        name, value = graph.output[index].name, wanted[index]
        matrix = turn(value.shape[-1], 2).astype(value.dtype)
        _rename(graph.node, name, f"{name}_inside")
        for node in graph.node:
            node.output[:] = [f"{name}_inside" if n == name else n for n in node.output]
        graph.initializer.append(numpy_helper.from_array(matrix, f"{name}_out"))
        graph.node.append(helper.make_node("MatMul", [f"{name}_inside", f"{name}_out"], [name]))
        wanted[index] = _product(value, matrix)
    return made, given, wanted


def _product(value: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    return np.asarray(value.astype(np.float64) @ matrix.astype(np.float64)).astype(value.dtype)


def _rename(nodes: Any, old: str, new: str) -> None:
    """Lets all nodes read another tensor, those of inner graphs too."""
    for node in nodes:
        node.input[:] = [new if n == old else n for n in node.input]
        for attribute in node.attribute:
            for inner in [attribute.g, *attribute.graphs]:
                _rename(inner.node, old, new)

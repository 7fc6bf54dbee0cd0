"""ONNX (opset 13 and later) to :class:`hushnet.graph.Graph`.

The first axis of every input is the batch, symbolic or fixed; the graph is per image. Server weights become ``Linear``
layers, everything else client ops with public attributes. Nothing of a model is executed but its graph.
"""

from __future__ import annotations

from ..graph import Graph
from . import model
from .errors import Issue, ModelError, UnsupportedModel
from .lowering import Driver
from .model import InputShapes, Source

__all__ = ["Issue", "ModelError", "UnsupportedModel", "check", "load"]


def load(source: Source, shapes: InputShapes | None = None) -> Graph:
    """Lowers a model, without optimisation (see :func:`hushnet.passes.default`).

    Args:
        source: path of a .onnx file (external data beside it) or a ``ModelProto``.
        shapes: per-image shapes of inputs whose shape the model leaves open.

    Raises:
        UnsupportedModel: with all :class:`Issue` s of the model.
        ModelError: not a readable, valid ONNX model.
    """
    graph, issues = _lower(source, shapes)
    if graph is None:
        raise UnsupportedModel(issues)
    return graph


def check(source: Source, shapes: InputShapes | None = None) -> list[Issue]:
    """All nodes that cannot be compiled, each with what to do about it; empty for a supported model.

    Raises:
        ModelError: not a readable, valid ONNX model.
    """
    return _lower(source, shapes)[1]


def _lower(source: Source, shapes: InputShapes | None) -> tuple[Graph | None, list[Issue]]:
    prepared = model.read(source, shapes)
    if prepared.opset < model.OLDEST_OPSET:
        return None, prepared.problems
    prepared.proto = model.infer(prepared.proto)
    invalid: ModelError | None = None
    try:
        model.validate(prepared.proto)
    except ModelError as error:
        invalid = error
    driver = Driver(prepared)
    graph = driver.run()
    if invalid is not None and not driver.issues:
        raise invalid
    if graph is None and invalid is None and not prepared.problems:
        slim = model.simplify(prepared)
        rescued = Driver(slim, simplified=True).run() if slim is not None else None
        if rescued is not None:
            return rescued, []
    return graph, driver.issues

"""ONNX to :class:`hushnet.graph.Graph`.

The first axis of every input is the batch where the graph treats it as one, symbolic or fixed; the graph is then per
image. Where it does not, an image is what the model takes at once (``whole.py``). Server weights become ``Linear``
layers, everything else client ops with public attributes. Nothing of a model is executed but its graph.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from ..graph import Graph
from . import model, simplify
from .errors import Issue, ModelError, UnsupportedModel
from .estimators import is_estimator, sklearn_model
from .lowering import Driver
from .model import InputShapes, Prepared, Request, Source
from .outline import Outline, integers
from .ports import Classes, Ports
from .pytorch import export, is_module
from .rounding import own_answers, rounding_nodes

__all__ = [
    "Classes", "Issue", "ModelError", "Outline", "Ports", "UnsupportedModel", "check", "export", "input_names",
    "is_estimator", "is_module", "load", "outline", "own_answers", "read", "rounding_nodes", "sklearn_model",
]  # fmt: skip


def load(
    source: Source, shapes: InputShapes | None = None, *, samples: InputShapes | None = None, until: Sequence[str] = ()
) -> Graph:
    """Lowers a model, without optimisation (see :func:`hushnet.passes.default`).

    Args:
        source: path of a .onnx file (external data beside it), its bytes, or a ``ModelProto``.
        shapes: full shapes of inputs, the batch first, where the model leaves axes open: ``{"x": (1, 3, 48, 192)}``.
        samples: shapes of sample data (images, ...), from which axes are taken that neither the model nor ``shapes``
            gives.
        until: names of tensors or nodes at which the network ends; by default at its own outputs.

    Raises:
        UnsupportedModel: with all :class:`Issue` s of the model.
        ModelError: not a readable, valid ONNX model.
    """
    return read(source, shapes, samples=samples, until=until)[0]


def read(
    source: Source,
    shapes: InputShapes | None = None,
    *,
    samples: InputShapes | None = None,
    until: Sequence[str] = (),
    outputs: Sequence[str] = (),
) -> tuple[Graph, Ports]:
    """What :func:`load` gives, and what the model says of its inputs and outputs.

    Args:
        outputs: names of the model's outputs that stay; by default all, without labels that are the largest column of
            another output.

    Raises:
        UnsupportedModel: with all :class:`Issue` s of the model.
        ModelError: not a readable, valid ONNX model.
    """
    graph, issues, ports = _lower(source, Request(shapes or {}, samples or {}, until, outputs))
    if graph is None:
        raise UnsupportedModel(issues)
    return graph, ports


def check(
    source: Source, shapes: InputShapes | None = None, *, samples: InputShapes | None = None, until: Sequence[str] = ()
) -> list[Issue]:
    """All nodes that cannot be compiled, each with what to do about it; empty for a supported model.

    Raises:
        ModelError: not a readable, valid ONNX model.
    """
    return _lower(source, Request(shapes or {}, samples or {}, until))[1]


def outline(
    source: Source, shapes: InputShapes | None = None, *, samples: InputShapes | None = None, until: Sequence[str] = ()
) -> tuple[Outline, set[str]]:
    """The nodes of a model and what goes between them, and names of the inputs that hold integers.

    Raises:
        ModelError: not a readable, valid ONNX model.
    """
    prepared = model.read(source, Request(shapes or {}, samples or {}, until))
    return Outline(prepared), integers(prepared)


def input_names(source: Source) -> list[str]:
    """Names of a model's inputs, without those that are weights.

    Raises:
        ModelError: not a readable ONNX model.
    """
    return model.input_names(source)


def _lower(source: Source, request: Request) -> tuple[Graph | None, list[Issue], Ports]:
    prepared = model.read(source, request)
    invalid: ModelError | None = None
    try:
        model.validate(prepared.proto)
    except ModelError as error:
        invalid = error
    # what ONNX Runtime takes is taken, whether the checker likes it or not; broken models have outputs that nothing
    # computes
    issues: list[Issue] = []
    for candidate in _candidates(prepared, valid=invalid is None):
        graph, found = _forms(candidate, simplified=candidate is not prepared)
        if graph is not None:
            return graph, [], prepared.ports
        issues = found if candidate is prepared else issues
    if not issues:
        raise invalid or ModelError("an output of the model is computed by no node. Export the model again.")
    return None, issues, prepared.ports


def _candidates(prepared: Prepared, *, valid: bool) -> Iterator[Prepared]:
    """What to lower, in the order of trial: simplified first where that can help, otherwise where nothing else does."""
    promising = valid and simplify.worthwhile(prepared)
    if not promising:
        yield prepared
    slim = simplify.simplify(prepared) if valid else None
    if slim is not None:
        yield slim
    if promising:
        yield prepared


def _forms(prepared: Prepared, *, simplified: bool) -> tuple[Graph | None, list[Issue]]:
    """The graph with a batch in front, or else of the whole tensors; without either the shorter list of issues."""
    found: list[list[Issue]] = []
    for whole in (False, True) if prepared.stackable else (True,):
        driver = Driver(prepared, whole=whole, simplified=simplified)
        graph = driver.run()
        if graph is not None and (prepared.whole or not whole):
            return graph, []
        if graph is not None:
            shapes = " ".join(f"--shape {name}={','.join(map(str, shape))}" for name, shape in prepared.inputs.items())
            return None, [
                replace(i, advice=f"{i.advice} Or give {shapes}: then one image is run at a time.") for i in found[0]
            ]
        found.append(driver.issues)
    return None, min(found, key=len)

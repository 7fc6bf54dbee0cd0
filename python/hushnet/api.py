"""The Python API: what turns trained models into plans, beside `run`, `serve`, `connect` and `Model`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, overload

import numpy as np

from hushnet import frontend, passes, planner, tables
from hushnet.arrays import array, filled, stacked
from hushnet.errors import InputError
from hushnet.frontend.labels import plain_name
from hushnet.graph import Graph
from hushnet.model import Model
from hushnet.options import (
    READING,
    ClientAided,
    Inputs,
    NonInteractive,
    Options,
    Shapes,
    TwoParty,
    help_text,
    made,
    signature,
    taking,
    taking_example,
)
from hushnet.plan import Plan


def check(
    model: Any, *, shapes: Shapes | None = None, until: str | Sequence[str] | None = None, example: Any = None
) -> list[frontend.Issue]:
    """All nodes of an ONNX model that the front end cannot read, each with what to do about it.

    Empty when it reads the whole model.

    Args:
        model: a path, the bytes of a file, a ``ModelProto``, or a ``torch.nn.Module``.
        shapes: full shapes of inputs, the batch first, where the model leaves axes open.
        until: tensors or nodes at which the network ends.
        example: inputs of a ``torch.nn.Module`` (see :func:`from_torch`).
    """
    return frontend.check(read(model, example), shapes, until=_names(until))


def read(model: Any, example: Any = None) -> Any:
    """What the front end reads.

    Modules of PyTorch and estimators of scikit-learn become a ``ModelProto``, all else stays.

    Raises:
        ModelError: PyTorch is not installed or refuses the module; an example without a module.
    """
    if frontend.is_module(model):
        return frontend.export(model, example)
    if example is not None:
        raise frontend.ModelError(
            f"example is for a torch.nn.Module, and the model is of type {type(model).__name__}. Leave example out."
        )
    return frontend.sklearn_model(model) if frontend.is_estimator(model) else model


def _names(until: str | Sequence[str] | None) -> Sequence[str]:
    return until.split(",") if isinstance(until, str) else until or ()


@overload
@taking(ClientAided)
def compile(model: Any, **options: Any) -> Model: ...
@overload
@taking(TwoParty)
def compile(model: Any, **options: Any) -> Model: ...
@overload
@taking(NonInteractive)
def compile(model: Any, **options: Any) -> Model: ...
def compile(model: Any, *, trust: str = "client-aided", **options: Any) -> Model:
    """Turns a trained model into a plan: path or bytes of ONNX, ``ModelProto``, PyTorch module, scikit-learn estimator.

    Args:
        model: the trained model.
        trust: ``client-aided``, ``two-party`` or ``non-interactive`` (who learns what: ``Model.explain``).
        options: keyword arguments of the trust model: the fields of :class:`hushnet.options.ClientAided`,
            :class:`hushnet.options.TwoParty` or :class:`hushnet.options.NonInteractive`, listed below and in
            docs/options.md.

    Raises:
        ModelError: no readable ONNX model.
        UnsupportedModel: nodes that the front end cannot read, each with what to do about it.
        PlanError: an option that the trust model does not have, with the nearest one; a network or option that cannot
            be planned, with the layer and what to do.
    """
    asked = made(trust, options)
    source = read(model, asked.example)
    graph, ports = lowered(
        source,
        calibration=asked.calibration,
        shapes=asked.shapes,
        until=_names(asked.until),
        outputs=_names(asked.outputs),
    )
    return _beside(source, graph, ports, asked, planned(graph, ports, asked))


@overload
@taking_example(ClientAided)
def from_torch(module: Any, example: Any, **options: Any) -> Model: ...
@overload
@taking_example(TwoParty)
def from_torch(module: Any, example: Any, **options: Any) -> Model: ...
@overload
@taking_example(NonInteractive)
def from_torch(module: Any, example: Any, **options: Any) -> Model: ...
def from_torch(module: Any, example: Any, **options: Any) -> Model:  # type: ignore[misc]  # one example, not two
    """Turns a ``torch.nn.Module`` into a plan: PyTorch's exporter, then :func:`compile`.

    Args:
        module: the trained module.
        example: inputs that the module takes: a tensor or array, several in a tuple, or a mapping from names of
            ``forward``. Their first axis is the batch where they share it; any number of images can be run.
        options: see :func:`compile`.

    Raises:
        ModelError: PyTorch is not installed, or its exporter refuses the module.
    """
    if not frontend.is_module(module):
        raise frontend.ModelError(
            f"from_torch takes a torch.nn.Module, and this is of type {type(module).__name__}. "
            "Give ONNX models to hushnet.compile."
        )
    return compile(module, example=example, **options)


@overload
@taking(ClientAided)
def from_sklearn(estimator: Any, **options: Any) -> Model: ...
@overload
@taking(TwoParty)
def from_sklearn(estimator: Any, **options: Any) -> Model: ...
@overload
@taking(NonInteractive)
def from_sklearn(estimator: Any, **options: Any) -> Model: ...
def from_sklearn(estimator: Any, **options: Any) -> Model:
    """Turns a fitted scikit-learn estimator or pipeline into a plan: its ONNX model, then :func:`compile`.

    No other package is needed. ``hushnet.frontend.sklearn_model`` gives the ONNX model itself.

    Args:
        estimator: scalers, imputation, PCA and column selection in front of linear models, linear support vectors or
            multi-layer perceptrons (docs/models.md has the list).
        options: see :func:`compile`; give training rows as ``calibration``.

    Raises:
        UnsupportedModel: an estimator that cannot be evaluated, with what does.
    """
    return compile(frontend.sklearn_model(estimator), **options)


# what `help` and notebooks show
compile.__doc__ = f"{compile.__doc__}\n{help_text()}"
compile.__signature__ = signature(compile)  # type: ignore[attr-defined]
from_torch.__signature__ = signature(from_torch)  # type: ignore[attr-defined]
from_sklearn.__signature__ = signature(from_sklearn)  # type: ignore[attr-defined]


def lowered(
    model: Any, *, calibration: Inputs | None, shapes: Shapes | None, until: Sequence[str], outputs: Sequence[str] = ()
) -> tuple[Graph, frontend.Ports]:
    """The graph that :func:`compile` plans, and what is known of its ports.

    The arguments are those of :func:`compile`.
    """
    samples = sample_shapes(model, calibration)
    graph, ports = frontend.read(model, shapes, samples=samples, until=until, outputs=outputs)
    return passes.default(graph), ports


def planned(graph: Graph, ports: frontend.Ports, asked: Options) -> Model:
    """The plan of a graph that was read already."""
    ports, calibration = _samples(graph, ports, asked.calibration)
    labels = asked.labels
    if labels is not None:
        labels = _places(labels, ports.classes.get(graph.outputs[0]))
    # the model was read by the other options
    changes: dict[str, Any] = {"calibration": calibration, "labels": labels, **dict.fromkeys(READING)}
    # the largest of "values" need not be the answer
    classes = tuple(name for name, found in ports.classes.items() if found.of != "values")
    plan = planner.plan(graph, replace(asked, **changes), classes)
    if ports.describe(plan.document):
        # what was checked and hashed is the plan without them
        plan = Plan(plan.document, plan.weights)
        planner.validate(plan)
    return Model(plan)


def _with_columns(ports: frontend.Ports, graph: Graph, given: Mapping[str, Any]) -> frontend.Ports:
    """Ports with the names of a frame's columns, where the model has none."""
    found = {name: tables.column_names(value) for name, value in given.items() if name not in ports.columns}
    fit = {n: names for n, names in found.items() if names and graph.shapes.get(n) == (len(names),)}
    return replace(ports, columns={**ports.columns, **fit}) if fit else ports


def _beside(source: Any, graph: Graph, ports: frontend.Ports, asked: Options, model: Model) -> Model:
    """The model, of which the stated errors count what the file rounds inside of its network."""
    nodes = frontend.rounding_nodes(source)
    if not nodes:
        return model
    document = model.plan.document
    _, samples = _samples(graph, ports, asked.calibration)
    planner.beside_file(document, graph, samples, nodes, lambda rows: frontend.own_answers(source, rows))
    # what was checked and hashed is the plan without it
    plan = Plan(document, model.plan.weights)
    planner.validate(plan)
    return Model(plan)


def _samples(
    graph: Graph, ports: frontend.Ports, calibration: Inputs | None
) -> tuple[frontend.Ports, dict[str, np.ndarray] | None]:
    """Ports that know a frame's columns, and calibration data by input, ``[images, ...]``; NaN is filled."""
    if calibration is None:
        return ports, None
    calibration = tables.by_input(calibration, graph.inputs)
    given = calibration if isinstance(calibration, Mapping) else {graph.inputs[0]: calibration}
    ports = _with_columns(ports, graph, given)
    rows = {name: tables.arranged(value, ports.columns.get(name)) for name, value in given.items()}
    images = {name: stacked(array(value), graph.shapes.get(name, ())) for name, value in rows.items()}
    return ports, {name: filled(value, ports.missing.get(name)) for name, value in images.items()}


def _places(labels: Any, classes: frontend.Classes | None) -> Any:
    """Names of classes as their places, where the model names them."""
    if classes is None:
        return labels
    places = {str(name): place for place, name in enumerate(classes.names)}
    given = [str(plain_name(v)) for v in planner.quality.one_a_row(labels).tolist()]
    unknown = [v for v in given if v not in places]
    if unknown:
        raise InputError(f"the label {unknown[0]!r} is no class of the model; its classes are {', '.join(places)}.")
    return np.asarray([places[v] for v in given], np.int64)


def sample_shapes(model: Any, calibration: Inputs | None) -> dict[str, tuple[int, ...]]:
    """Shapes of the calibration data by input."""
    if calibration is None:
        return {}
    if tables.column_names(calibration):
        calibration = tables.by_input(calibration, frontend.input_names(model))
    if isinstance(calibration, Mapping):
        return {name: np.shape(value) for name, value in calibration.items()}
    names = frontend.input_names(model)
    return {names[0]: np.shape(calibration)} if len(names) == 1 else {}

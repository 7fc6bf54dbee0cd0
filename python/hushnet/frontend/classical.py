"""Operators of the domain ai.onnx.ml rewritten to standard ones: scalers, linear models, linear support vectors.

What skl2onnx writes for a fitted estimator are such nodes between standard ones. Their constants become initializers,
their scores
matrix products, their labels the place of the largest score. ``ZipMap`` and look-ups of labels say what outputs mean:
``labels.py`` reads
them. Nodes that stay as they are cannot be lowered; :data:`REFUSED` says why.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import combinations
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from ..graph import unused

DOMAIN = "ai.onnx.ml"
# operators whose newest known form is this one are added to models that import no standard operators at all
OPSET = 17
# rows of zeros stay zeros where they are divided by their norm
TINY = 1e-30

_TREES = (
    "Decision trees, forests and boosting compare single features with thresholds, which no trust model here "
    "computes: Concrete ML evaluates them under fully homomorphic encryption, and Hushnet takes linear models and "
    "neural networks."
)
_KERNELS = (
    "Only linear kernels are evaluated, and probabilities of two classes at most: fit LinearSVC, "
    "SVC(kernel='linear') without probabilities, or a kernel approximation in front of a linear model."
)
_CATEGORIES = "Encode categories before inference: the client can do it with the fitted encoder, and send numbers."
# what to do about nodes of the domain that have no standard form
REFUSED = {
    "TreeEnsembleClassifier": _TREES,
    "TreeEnsembleRegressor": _TREES,
    "TreeEnsemble": _TREES,
    "SVMClassifier": _KERNELS,
    "SVMRegressor": _KERNELS,
    "OneHotEncoder": _CATEGORIES,
    "CategoryMapper": "Encode categories before inference: the client can do it, and send numbers.",
    "DictVectorizer": "Give the model one array of numbers: the client can make it from its dictionary.",
    "LabelEncoder": _CATEGORIES,
    "Imputer": (
        "Missing values are filled in by the client, so an Imputer must read the model's inputs: put it first in the "
        "pipeline."
    ),
    "LinearClassifier": (
        "Export it with post_transform NONE, LOGISTIC or SOFTMAX, so that the scores are plain sums or probabilities."
    ),
    "LinearRegressor": "Export it with post_transform NONE, so that the results are plain sums.",
}


def has_classical(model: onnx.ModelProto) -> bool:
    """Whether a model has operators of the domain."""
    return any(node.domain == DOMAIN for node in model.graph.node)


# an input of the model and a column of it; None: all of them, of an input that does not say how many it has
Column = tuple[str, int | None]


class Declined(Exception):
    """A node has no standard form that computes the same."""


class Rewriter:
    """The nodes of a model's graph in standard operators.

    Attributes:
        missing: by name of an input what takes the place of NaN, from ``Imputer`` nodes that read it.
        derived: tensors of labels -> tensor of scores whose largest element they name, where that is so.
        names: tensors of places of classes -> names of the classes.
        opposite: tensors of two scores that differ in their sign alone.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        self.graph = model.graph
        self.opset = max((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), default=OPSET)
        self.constants = {t.name: t for t in model.graph.initializer}
        self.producer = {name: node for node in model.graph.node for name in node.output if name}
        self.kinds = _kinds(model)
        self.widths = {p.name: _width(p) for p in model.graph.input if p.name not in self.constants}
        self.missing: dict[str, tuple[float, ...]] = {}
        self.derived: dict[str, str] = {}
        self.names: dict[str, tuple[int | str, ...]] = {}
        self.opposite: set[str] = set()
        self.nodes: list[onnx.NodeProto] = []
        self._taken = {n for node in model.graph.node for n in [*node.input, *node.output]} | set(self.constants)

    def run(self) -> None:
        """Rewrites every node that has a standard form; the others stay."""
        for node in self.graph.node:
            rule = _RULES.get(node.op_type) if node.domain == DOMAIN else _STANDARD.get(node.op_type)
            mark = len(self.nodes)
            try:
                if rule is None:
                    raise Declined
                rule(self, node)
            except Declined:
                del self.nodes[mark:]
                self.nodes.append(node)
        for name in self.widths:
            self.unread(name)

    def unread(self, name: str) -> None:
        """Lets NaN stand in columns of an input that nothing reads: zeros take its place."""
        width, taken = self.widths[name], set[int]()
        readers = [node for node in self.graph.node if name in node.input]
        for node in readers:
            places = self.constants.get(node.input[1]) if node.op_type == "Gather" else None
            if width is None or places is None or attributes(node).get("axis", 0) not in (1, -1):
                return
            taken |= {int(v) % width for v in numpy_helper.to_array(places).reshape(-1)}
        if width is None or not readers or len(taken) == width or name in {p.name for p in self.graph.output}:
            return
        filled = self.missing.get(name, (float("nan"),) * width)
        self.missing[name] = tuple(v if place in taken else 0.0 for place, v in enumerate(filled))

    def fresh(self, hint: str) -> str:
        """A tensor name that the model does not have."""
        name = unused(hint, self._taken)
        self._taken.add(name)
        return name

    def constant(self, hint: str, value: Any, dtype: Any = np.float32) -> str:
        """An initializer."""
        name = self.fresh(hint)
        tensor = numpy_helper.from_array(np.asarray(value, dtype=dtype), name)
        self.graph.initializer.append(tensor)
        self.constants[name] = tensor
        return name

    def op(self, kind: str, inputs: Sequence[str], output: str = "", **attributes: Any) -> str:
        """A standard node; the name of its result."""
        hint = output or self.fresh(f"{inputs[0]}.{kind.lower()}")
        self.nodes.append(helper.make_node(kind, list(inputs), [hint], name=f"{hint}.{kind}", **attributes))
        return hint

    def reduced(self, kind: str, x: str, output: str = "") -> str:
        """A reduction over the last axis, which stays as one of 1. Axes are an attribute or an input, by the opset."""
        since = 13 if kind == "ReduceSum" else 18
        if self.opset >= since:
            axes = self.constant(f"{x}.axes", [1], np.int64)
            return self.op(kind, [x, axes], output, keepdims=1)
        return self.op(kind, [x], output, axes=[1], keepdims=1)

    def floats(self, name: str) -> str:
        """The tensor in binary32, which all operators of the domain compute in."""
        if self.kinds.get(name, TensorProto.FLOAT) in (TensorProto.FLOAT, 0):
            return name
        return self.op("Cast", [name], to=TensorProto.FLOAT)

    def columns(self, x: str, places: Sequence[int]) -> str:
        """Columns of a tensor."""
        return self.op("Gather", [x, self.constant(f"{x}.places", list(places), np.int64)], axis=1)

    def linear(self, x: str, weight: np.ndarray, bias: np.ndarray, output: str = "") -> str:
        """``x W' + b`` with W of shape (outputs, features)."""
        hint = output or x
        product = self.op("MatMul", [self.floats(x), self.constant(f"{hint}.weight", weight.T)])
        return self.op("Add", [product, self.constant(f"{hint}.bias", bias)], output)

    def largest(self, scores: str, label: str, names: Sequence[int | str]) -> None:
        """The label output of a classifier: the place of the largest score."""
        self.op("ArgMax", [scores], label, axis=1, keepdims=1)
        self.names[label] = tuple(names)
        self.derived[label] = scores

    def origin(self, name: str) -> list[Column] | None:
        """Columns of the model's inputs that a tensor is made of; None where something is computed on the way."""
        if name in self.widths:
            width = self.widths[name]
            return [(name, None)] if width is None else [(name, place) for place in range(width)]
        node = self.producer.get(name)
        if node is None:
            return None
        if node.op_type in ("Gather", "ArrayFeatureExtractor"):
            return self.picked(node)
        if node.op_type not in ("Identity", "Cast", "Concat", "FeatureVectorizer"):
            return None
        parts = [
            self.origin(i) for i in (node.input if node.op_type in ("Concat", "FeatureVectorizer") else node.input[:1])
        ]
        return None if any(p is None for p in parts) else [column for p in parts if p is not None for column in p]

    def picked(self, node: onnx.NodeProto) -> list[Column] | None:
        """The columns that a selection takes; None where it takes something else, or columns of an unknown number."""
        places, found = self.constants.get(node.input[1]), self.origin(node.input[0])
        along = 1 if node.op_type == "ArrayFeatureExtractor" else attributes(node).get("axis", 0)
        if places is None or found is None or along not in (1, -1) or any(place is None for _, place in found):
            return None
        wanted = [int(v) for v in numpy_helper.to_array(places).reshape(-1)]
        return [found[v] for v in wanted] if all(-len(found) <= v < len(found) for v in wanted) else None


def attributes(node: onnx.NodeProto) -> dict[str, Any]:
    """A node's attributes by name; text is text."""
    found = {}
    for entry in node.attribute:
        value = helper.get_attribute_value(entry)
        if isinstance(value, bytes):
            value = value.decode()
        elif isinstance(value, list) and value and isinstance(value[0], bytes):
            value = [v.decode() for v in value]
        found[entry.name] = value
    return found


def class_names(given: dict[str, Any]) -> tuple[int | str, ...]:
    """The classes that a classifier or a ``ZipMap`` names, by whichever attribute."""
    for name in ("classlabels_strings", "classlabels_ints", "classlabels_int64s"):
        if given.get(name):
            return tuple(given[name])
    raise Declined


def _kinds(model: onnx.ModelProto) -> dict[str, int]:
    try:
        graph = onnx.shape_inference.infer_shapes(model).graph
    except Exception:
        graph = model.graph
    return {
        p.name: p.type.tensor_type.elem_type
        for p in [*graph.input, *graph.value_info, *graph.output]
        if p.type.HasField("tensor_type")
    } | {t.name: t.data_type for t in model.graph.initializer}


def _width(port: onnx.ValueInfoProto) -> int | None:
    dims = port.type.tensor_type.shape.dim
    return dims[1].dim_value if len(dims) == 2 and dims[1].dim_value > 0 else None


def _scaler(build: Rewriter, node: onnx.NodeProto) -> None:
    given = attributes(node)
    offset, scale = given.get("offset") or [0.0], given.get("scale") or [1.0]
    x = build.floats(node.input[0])
    x = build.op("Sub", [x, build.constant(f"{node.output[0]}.offset", offset)])
    build.op("Mul", [x, build.constant(f"{node.output[0]}.scale", scale)], node.output[0])


def _normalizer(build: Rewriter, node: onnx.NodeProto) -> None:
    source = build.producer.get(node.input[0])
    norm = attributes(node).get("norm", "MAX")
    softmax = source is not None and (
        source.op_type == "Softmax" or attributes(source).get("post_transform") == "SOFTMAX"
    )
    if norm == "L1" and softmax:
        # the sum of probabilities is 1
        build.op("Identity", [node.input[0]], node.output[0])
        return
    x = build.floats(node.input[0])
    if norm == "MAX":
        size = build.reduced("ReduceMax", x)
    elif norm == "L1":
        size = build.reduced("ReduceSum", build.op("Abs", [x]))
    elif norm == "L2":
        size = build.op("Sqrt", [build.reduced("ReduceSum", build.op("Mul", [x, x]))])
    else:
        raise Declined
    if norm != "MAX":
        size = build.op("Max", [size, build.constant(f"{size}.least", TINY)])
    build.op("Div", [x, size], node.output[0])


def _imputer(build: Rewriter, node: onnx.NodeProto) -> None:
    given = attributes(node)
    values = given.get("imputed_value_floats") or given.get("imputed_value_int64s") or []
    columns = build.origin(node.input[0])
    marked = given.get("replaced_value_float", float("nan"))
    if not columns or not values or not np.isnan(marked) or given.get("replaced_value_int64"):
        raise Declined
    if columns[0][1] is None and len(columns) == 1:
        found = {columns[0][0]: tuple(float(v) for v in values)}
        if any(build.missing.get(s, v) != v for s, v in found.items()):
            raise Declined
        build.missing |= found
    else:
        _fill(build, columns, values)
    build.op("Identity", [node.input[0]], node.output[0])


def _fill(build: Rewriter, columns: Sequence[Column], values: Sequence[float]) -> None:
    """Notes the value of each column, beside those of other imputers; columns without one keep their NaN."""
    listed = [float(v) for v in values] * (len(columns) if len(values) == 1 else 1)
    if len(listed) != len(columns) or any(place is None for _, place in columns):
        raise Declined
    found = {name: list(build.missing.get(name, ())) for name, _ in columns}
    for name, filled in found.items():
        filled += [float("nan")] * ((build.widths[name] or 0) - len(filled))
    for (name, place), value in zip(columns, listed):
        assert place is not None
        if not np.isnan(found[name][place]) and found[name][place] != value:
            raise Declined
        found[name][place] = value
    build.missing |= {name: tuple(filled) for name, filled in found.items()}


_TRANSFORMS = {"NONE": None, "LOGISTIC": "Sigmoid", "SOFTMAX": "Softmax"}


def _transformed(build: Rewriter, scores: str, kind: str, output: str) -> None:
    if kind not in _TRANSFORMS:
        raise Declined
    operator = _TRANSFORMS[kind]
    if operator is None:
        build.op("Identity", [scores], output)
    elif operator == "Softmax":
        build.op(operator, [scores], output, axis=1)
    else:
        build.op(operator, [scores], output)


def _linear_classifier(build: Rewriter, node: onnx.NodeProto) -> None:
    given = attributes(node)
    names = class_names(given)
    bias = np.asarray(given.get("intercepts") or [0.0] * len(names))
    weight = np.asarray(given["coefficients"]).reshape(len(bias), -1)
    if len(names) == 2 and len(bias) == 1:
        weight, bias = np.concatenate([-weight, weight]), np.concatenate([-bias, bias])
    if len(bias) != len(names):
        raise Declined
    label, output = node.output[0], node.output[1] if len(node.output) > 1 else ""
    scores = build.linear(node.input[0], weight, bias, build.fresh(f"{output or label}.scores"))
    if len(names) == 2 and np.array_equal(weight[0], -weight[1]) and bias[0] == -bias[1]:
        build.opposite.add(scores)
    if label:
        build.largest(scores, label, names)
    if output:
        _transformed(build, scores, given.get("post_transform", "NONE"), output)


def _linear_regressor(build: Rewriter, node: onnx.NodeProto) -> None:
    given = attributes(node)
    targets = int(given.get("targets", 1))
    weight = np.asarray(given["coefficients"]).reshape(targets, -1)
    bias = np.asarray(given.get("intercepts") or [0.0] * targets)
    scores = build.linear(node.input[0], weight, bias, build.fresh(f"{node.output[0]}.sums"))
    if given.get("post_transform", "NONE") != "NONE":
        raise Declined
    build.op("Identity", [scores], node.output[0])


def _support_vectors(given: dict[str, Any], count: int) -> tuple[np.ndarray, np.ndarray]:
    """Support vectors (count, features) and coefficients (rows, count) of a linear kernel."""
    if given.get("kernel_type", "LINEAR") != "LINEAR":
        raise Declined
    return np.asarray(given["support_vectors"]).reshape(count, -1), np.asarray(given["coefficients"]).reshape(-1, count)


def _svm_regressor(build: Rewriter, node: onnx.NodeProto) -> None:
    given = attributes(node)
    count = int(given.get("n_supports", 0))
    if given.get("one_class") or given.get("post_transform", "NONE") != "NONE" or count < 1:
        raise Declined
    vectors, coefficients = _support_vectors(given, count)
    scores = build.linear(node.input[0], coefficients @ vectors, np.asarray(given.get("rho") or [0.0]))
    build.op("Identity", [scores], node.output[0])


def _svm_classifier(build: Rewriter, node: onnx.NodeProto) -> None:
    given = attributes(node)
    names, counts = class_names(given), given.get("vectors_per_class")
    if not counts or len(counts) != len(names) or given.get("post_transform", "NONE") != "NONE":
        raise Declined
    if given.get("prob_a") and len(names) > 2:
        raise Declined
    vectors, coefficients = _support_vectors(given, sum(counts))
    first = np.cumsum([0, *counts])
    pairs = list(combinations(range(len(names)), 2))
    rows = []
    for i, j in pairs:
        own, other = slice(first[i], first[i + 1]), slice(first[j], first[j + 1])
        rows.append(coefficients[j - 1, own] @ vectors[own] + coefficients[i, other] @ vectors[other])
    label, output = node.output[0], node.output[1] if len(node.output) > 1 else ""
    weight, bias = np.stack(rows), np.asarray(given["rho"])
    if len(names) == 2:
        # above zero speaks for the first class
        if given.get("prob_a"):
            slope, offset = given["prob_a"][0], given["prob_b"][0]
            fitted = np.array([[-slope], [slope]])
            chances = build.linear(node.input[0], fitted @ weight, fitted @ bias + [-offset, offset])
            build.op("Sigmoid", [chances], output) if output else None
        scores = build.linear(node.input[0], np.concatenate([weight, -weight]), np.concatenate([bias, -bias]))
        if label:
            build.largest(scores, label, names)
        if output and not given.get("prob_a"):
            # the other way round than the label, as ONNX Runtime has it
            build.op("Neg", [scores], output)
        return
    scores = build.linear(node.input[0], weight, bias, build.fresh(f"{output or label}.pairs"))
    if output:
        build.op("Identity", [scores], output)
    if label:
        votes = build.op("Concat", _votes(build, scores, pairs, len(names)), axis=1)
        build.largest(votes, label, names)


def _votes(build: Rewriter, scores: str, pairs: Iterable[tuple[int, int]], classes: int) -> list[str]:
    """How many pairs speak for each class, as columns: above zero for the first of the two, else for the second."""
    against = build.op("Cast", [build.op("LessOrEqual", [scores, build.constant(f"{scores}.zero", 0.0)])], to=1)
    favour = build.op("Sub", [build.constant(f"{scores}.one", 1.0), against])
    terms: list[list[str]] = [[] for _ in range(classes)]
    for place, (i, j) in enumerate(pairs):
        terms[i].append(build.columns(favour, [place]))
        terms[j].append(build.columns(against, [place]))
    return [build.op("Sum", given) for given in terms]


def _zip_map(build: Rewriter, node: onnx.NodeProto) -> None:
    build.op("Identity", [node.input[0]], node.output[0])


def _columns(build: Rewriter, node: onnx.NodeProto) -> None:
    """Columns at constant places; look-ups of labels are read as such by ``labels.py``."""
    places = build.constants.get(node.input[1])
    if node.input[0] in build.constants:
        if places is None:
            build.op("Identity", [node.input[1]], node.output[0])
            return
        raise Declined
    if places is None:
        raise Declined
    chosen = build.columns(node.input[0], [int(v) for v in numpy_helper.to_array(places).reshape(-1)])
    build.op("Identity", [chosen], node.output[0])


def _binarizer(build: Rewriter, node: onnx.NodeProto) -> None:
    threshold = build.constant(f"{node.output[0]}.threshold", attributes(node).get("threshold", 0.0))
    above = build.op("Greater", [build.floats(node.input[0]), threshold])
    build.op("Cast", [above], node.output[0], to=TensorProto.FLOAT)


def _one_hot(build: Rewriter, node: onnx.NodeProto) -> None:
    """Zeros and ones for categories that are numbers, along a new last axis."""
    categories = attributes(node).get("cats_int64s")
    if not categories:
        raise Declined
    x = node.input[0]
    # numbers are compared as they come: what cuts them to integers in front changes no category
    while (source := build.producer.get(x)) is not None and source.op_type == "Cast":
        x = source.input[0]
    x = build.floats(x)
    if build.opset >= 13:
        each = build.op("Unsqueeze", [x, build.constant(f"{x}.last", [-1], np.int64)])
    else:
        each = build.op("Unsqueeze", [x], axes=[-1])
    hot = build.op("Equal", [each, build.constant(f"{x}.categories", categories)])
    build.op("Cast", [hot], node.output[0], to=TensorProto.FLOAT)


def _vectorizer(build: Rewriter, node: onnx.NodeProto) -> None:
    build.op("Concat", [build.floats(name) for name in node.input], node.output[0], axis=1)


def _exponential(build: Rewriter, node: onnx.NodeProto) -> None:
    """``exp(x - log(sum(exp(x))))``, as skl2onnx writes probabilities of naive Bayes, is a softmax."""
    difference = build.producer.get(node.input[0])
    if difference is None or difference.op_type != "Sub":
        raise Declined
    x, total = difference.input
    made, column = build.producer.get(total), False
    if made is not None and made.op_type == "Reshape" and made.input[1] in build.constants:
        column = numpy_helper.to_array(build.constants[made.input[1]]).tolist() == [-1, 1]
        made = build.producer.get(made.input[0]) if column else None
    if made is None or made.op_type != "ReduceLogSumExp" or made.input[0] != x:
        raise Declined
    given = attributes(made)
    axes = list(given.get("axes", ()))
    if len(made.input) > 1 and made.input[1] in build.constants:
        axes = numpy_helper.to_array(build.constants[made.input[1]]).reshape(-1).tolist()
    # without the axis of 1, or a column of them, another axis would be taken away from
    if (
        len(axes) != 1
        or axes[0] == 0
        or not ((column and axes[0] in (1, -1)) or (not column and given.get("keepdims", 1)))
    ):
        raise Declined
    build.op("Softmax", [x], node.output[0], axis=int(axes[0]))


# standard operators that stand for others in what skl2onnx writes
_STANDARD: dict[str, Callable[[Rewriter, onnx.NodeProto], None]] = {"Exp": _exponential}
_RULES: dict[str, Callable[[Rewriter, onnx.NodeProto], None]] = {
    "ArrayFeatureExtractor": _columns,
    "Binarizer": _binarizer,
    "FeatureVectorizer": _vectorizer,
    "Imputer": _imputer,
    "LinearClassifier": _linear_classifier,
    "LinearRegressor": _linear_regressor,
    "Normalizer": _normalizer,
    "OneHotEncoder": _one_hot,
    "SVMClassifier": _svm_classifier,
    "SVMRegressor": _svm_regressor,
    "Scaler": _scaler,
    "ZipMap": _zip_map,
}

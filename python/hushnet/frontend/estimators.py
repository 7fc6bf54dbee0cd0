"""Fitted scikit-learn estimators as ONNX models, without another package: ``sklearn_model``.

What is read are the fitted attributes (``coef_``, ``mean_`` ...), by the name of the class; scikit-learn itself is not
imported. The models have
what the estimator's methods give: regressors ``predict``, classifiers ``probabilities`` (``predict_proba``) or, where
they have none,
``scores`` (``decision_function``, one column a class), and ``label`` (``predict``). Weights are binary64.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from .classical import DOMAIN, OPSET, TINY
from .errors import Issue, UnsupportedModel
from .labels import plain_name

INPUT = "features"
_TREES = (
    "decision trees, forests and boosting compare single features with thresholds; Concrete ML evaluates them under "
    "fully homomorphic encryption"
)
_NEIGHBOURS = (
    "nearest neighbours compare distances to all training rows; Concrete ML evaluates small ones under fully "
    "homomorphic encryption"
)
_KERNELS = (
    "of kernel methods only linear kernels are evaluated; fit LinearSVC, LinearSVR, kernel='linear' or a multi-layer "
    "perceptron"
)
# parts of class names -> why they are not evaluated, and what does
_REFUSED = (
    (("Tree", "Forest", "Boost", "GBM", "XGB", "IsolationForest"), _TREES),
    (("KNeighbors", "RadiusNeighbors", "NearestNeighbors", "NearestCentroid"), _NEIGHBOURS),
    (("SVC", "SVR", "SVM", "GaussianProcess", "KernelRidge", "KernelPCA"), _KERNELS),
)


def is_estimator(source: object) -> bool:
    """Whether something is an estimator of scikit-learn: it can be fitted, and tells its parameters."""
    return callable(getattr(source, "fit", None)) and callable(getattr(source, "get_params", None))


def sklearn_model(estimator: Any) -> onnx.ModelProto:
    """The ONNX model of a fitted scikit-learn estimator or pipeline, for ``compile``.

    Scalers, MinMaxScaler, Normalizer, SimpleImputer, PCA, column selection, ColumnTransformer of such; linear and
    logistic regression, ridge,
    lasso and their kin, linear support vectors, linear discriminants, multi-layer perceptrons, one-vs-rest and multi-
    output of such.

    Args:
        estimator: fitted; the last step of a pipeline decides what the outputs are.

    Raises:
        UnsupportedModel: an estimator that cannot be evaluated, with what does.
    """
    features = _features(estimator)
    build = _Builder(features)
    build.estimator(estimator, INPUT, last=True)
    return build.model()


def _features(estimator: Any) -> int:
    """Columns of the input."""
    found = getattr(estimator, "n_features_in_", None)
    if found is None:
        raise _refused(estimator, "it is not fitted, or does not say how many features it takes", "Call fit first.")
    return int(found)


def _refused(estimator: Any, problem: str, advice: str) -> UnsupportedModel:
    kind = type(estimator).__name__
    return UnsupportedModel([Issue(kind, "scikit-learn", problem, advice)])


def _kind(estimator: Any) -> str:
    return type(estimator).__name__


class _Builder:
    """An ONNX graph in binary64, one input ``features`` of shape [N, F]."""

    def __init__(self, features: int) -> None:
        self.features = features
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.outputs: list[str] = []
        self.count = 0

    def op(self, kind: str, *inputs: str, domain: str = "", name: str = "", **attributes: Any) -> str:
        """A node; the name of its result."""
        if not name:
            name, self.count = f"{kind.lower()}_{self.count}", self.count + 1
        self.nodes.append(helper.make_node(kind, list(inputs), [name], name=name, domain=domain, **attributes))
        return name

    def constant(self, value: Any, dtype: Any = np.float64) -> str:
        """An initializer."""
        name = f"constant_{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(value, dtype=dtype), name))
        return name

    def affine(self, x: str, weight: np.ndarray, bias: Any) -> str:
        """``x W' + b`` with W of shape (outputs, features)."""
        product = self.op("MatMul", x, self.constant(np.atleast_2d(weight).T))
        return self.op(
            "Add", product, self.constant(np.broadcast_to(np.asarray(bias, np.float64), (len(np.atleast_2d(weight)),)))
        )

    def columns(self, x: str, places: Sequence[int]) -> str:
        """Columns of a tensor."""
        return self.op("Gather", x, self.constant(list(places), np.int64), axis=1)

    def model(self) -> onnx.ModelProto:
        """The model."""
        ports = [helper.make_tensor_value_info(INPUT, TensorProto.DOUBLE, ["rows", self.features])]
        outputs = [onnx.ValueInfoProto(name=name) for name in self.outputs]
        graph = helper.make_graph(self.nodes, "sklearn", ports, outputs, self.constants)
        domains = [helper.make_opsetid("", OPSET), helper.make_opsetid(DOMAIN, 3)]
        return helper.make_model(graph, opset_imports=domains, ir_version=8, producer_name="hushnet")

    def estimator(self, estimator: Any, x: str, *, last: bool) -> str:
        """A step: the tensor that the next one reads; the last one writes the outputs."""
        if _kind(estimator) in _WRAPPERS:
            return self.estimator(getattr(estimator, _WRAPPERS[_kind(estimator)]), x, last=last)
        if _kind(estimator) in ("Pipeline",):
            steps = [step for _, step in estimator.steps if step is not None and step != "passthrough"]
            for index, step in enumerate(steps):
                x = self.estimator(step, x, last=last and index + 1 == len(steps))
            if last and not steps:
                self.output("transformed", x)
            return x
        transform = _TRANSFORMS.get(_kind(estimator))
        if transform is not None:
            y = transform(self, estimator, x)
            if last:
                self.output("transformed", y)
            return y
        if not last:
            raise _unknown(estimator)
        found = self.scores(estimator, x)
        if not hasattr(estimator, "classes_"):
            self.output("predict", found[0])
            return found[0]
        self.classifier(estimator, *found)
        return found[0]

    def output(self, name: str, x: str) -> None:
        """An output of the model."""
        self.outputs.append(self.op("Identity", x, name=name))

    def classifier(self, estimator: Any, scores: str, chances: str | None, places: str | None) -> None:
        """The outputs of a classifier: one value a class, and the label."""
        names = [plain_name(v) for v in np.asarray(estimator.classes_)]
        numbers = all(isinstance(n, int) for n in names)
        attributes = {"classlabels_int64s": names} if numbers else {"classlabels_strings": [str(n) for n in names]}
        # ZipMap is defined on binary32
        single = self.op("Cast", chances or scores, to=TensorProto.FLOAT)
        self.outputs.append(
            self.op("ZipMap", single, domain=DOMAIN, name="probabilities" if chances else "scores", **attributes)
        )
        place = places or self.op("ArgMax", chances or scores, axis=1, keepdims=1)
        if numbers:
            listed = self.constant(names, np.int64)
        else:
            listed = f"constant_{len(self.constants)}"
            text = np.asarray([str(n) for n in names], dtype=object)
            self.constants.append(
                helper.make_tensor(listed, TensorProto.STRING, [len(names)], [t.encode() for t in text])
            )
        self.outputs.append(self.op("ArrayFeatureExtractor", listed, place, domain=DOMAIN, name="label"))

    def scores(self, estimator: Any, x: str) -> tuple[str, str | None, str | None]:
        """Scores of the last step, of classifiers one column a class.

        Also probabilities where there are any, and places of labels where they are not those of the largest score.
        """
        kind = _kind(estimator)
        if kind.startswith("MLP"):
            return self.perceptron(estimator, x)
        if kind in ("OneVsRestClassifier", "MultiOutputRegressor"):
            return self.several(estimator, x)
        if kind in ("SVC", "NuSVC", "SVR", "NuSVR") and estimator.kernel != "linear":
            raise _unknown(estimator)
        if kind in ("SVC", "NuSVC") and len(estimator.classes_) > 2:
            return self.one_against_one(estimator, x)
        if kind not in _LINEAR:
            raise _unknown(estimator)
        weight, bias = np.atleast_2d(_dense(estimator.coef_)), np.atleast_1d(estimator.intercept_)
        if not hasattr(estimator, "classes_"):
            return self.affine(x, weight, bias), None, None
        if len(weight) == 1:
            weight, bias = np.concatenate([-weight, weight]), np.concatenate([-bias, bias])
        scores = self.affine(x, weight, bias)
        return scores, self.chances(estimator, kind, scores), None

    def chances(self, estimator: Any, kind: str, scores: str) -> str | None:
        """Probabilities of a linear classifier; None where it has none. Scores of two classes are s and -s."""
        classes = len(estimator.classes_)
        if kind == "LinearDiscriminantAnalysis":
            return self.op("Sigmoid", scores) if classes == 2 else self.op("Softmax", scores, axis=1)
        if kind in ("LogisticRegression", "LogisticRegressionCV"):
            one = getattr(estimator, "multi_class", None) == "ovr" or estimator.solver == "liblinear"
            if classes == 2:
                # a multinomial fit of two classes has the scores s and -s, all others 0 and s
                doubled = getattr(estimator, "multi_class", None) == "multinomial"
                return self.op("Softmax", scores, axis=1) if doubled else self.op("Sigmoid", scores)
            return self.normalised(self.op("Sigmoid", scores)) if one else self.op("Softmax", scores, axis=1)
        if kind == "SGDClassifier" and estimator.loss == "log_loss":
            chances = self.op("Sigmoid", scores)
            return chances if classes == 2 else self.normalised(chances)
        return None

    def normalised(self, x: str) -> str:
        """Rows divided by their sum."""
        total = self.op("ReduceSum", x, self.constant([1], np.int64), keepdims=1)
        return self.op("Div", x, self.op("Max", total, self.constant(TINY)))

    def perceptron(self, estimator: Any, x: str) -> tuple[str, str | None, str | None]:
        """A multi-layer perceptron."""
        operator = _ACTIVATIONS.get(estimator.activation)
        layers = list(zip(estimator.coefs_, estimator.intercepts_))
        if operator is None or (
            hasattr(estimator, "classes_") and estimator.out_activation_ not in ("softmax", "logistic")
        ):
            raise _refused(
                estimator,
                f"activation {estimator.activation!r} is not known",
                "Fit it with relu, tanh, logistic or identity.",
            )
        if getattr(estimator, "_label_binarizer", None) is not None and estimator._label_binarizer.y_type_.startswith(
            "multilabel"
        ):
            raise _refused(estimator, "it gives several labels a row", "Fit one classifier for each label.")
        for index, (weight, bias) in enumerate(layers):
            if index + 1 == len(layers):
                break
            x = self.affine(x, weight.T, bias)
            x = self.op(operator, x) if operator != "Identity" else x
        weight, bias = layers[-1][0].T, layers[-1][1]
        if hasattr(estimator, "classes_") and len(weight) == 1:
            weight, bias = np.concatenate([-weight, weight]), np.concatenate([-bias, bias])
        scores = self.affine(x, weight, bias)
        if not hasattr(estimator, "classes_"):
            if estimator.out_activation_ == "exp":
                return self.op("Exp", scores), None, None
            return scores, None, None
        softmax = estimator.out_activation_ == "softmax"
        return scores, self.op("Softmax", scores, axis=1) if softmax else self.op("Sigmoid", scores), None

    def several(self, estimator: Any, x: str) -> tuple[str, str | None, str | None]:
        """Estimators side by side: one for each class, or for each target."""
        parts = [self.scores(e, x) for e in estimator.estimators_]
        if not hasattr(estimator, "classes_"):
            return self.op("Concat", *(p[0] for p in parts), axis=1), None, None
        if getattr(estimator, "multilabel_", False):
            raise _refused(estimator, "it gives several labels a row", "Fit one classifier for each label.")
        if len(parts) == 1:
            return parts[0]
        if any(not hasattr(e, "classes_") or len(e.classes_) != 2 for e in estimator.estimators_):
            raise _refused(estimator, "a class has no classifier of its own", "Fit it on rows of every class.")
        scores = self.op("Concat", *(self.columns(p[0], [1]) for p in parts), axis=1)
        if any(p[1] is None for p in parts):
            return scores, None, None
        return (
            scores,
            self.normalised(self.op("Concat", *(self.columns(p[1], [1]) for p in parts if p[1]), axis=1)),
            None,
        )

    def one_against_one(self, estimator: Any, x: str) -> tuple[str, str | None, str | None]:
        """Linear support vectors of several classes: pairs vote, and the sums of their scores break ties."""
        classes = len(estimator.classes_)
        pairs = list(combinations(range(classes), 2))
        against = self.affine(x, -_dense(estimator.coef_), -np.asarray(estimator.intercept_))
        second = self.op("Cast", self.op("GreaterOrEqual", against, self.constant(0.0)), to=TensorProto.DOUBLE)
        first = self.op("Sub", self.constant(1.0), second)
        votes, sums = [], []
        for c in range(classes):
            own = [(k, i == c) for k, (i, j) in enumerate(pairs) if c in (i, j)]
            votes.append(self.op("Sum", *(self.columns(first if is_first else second, [k]) for k, is_first in own)))
            parts = [self.columns(against, [k]) for k, _ in own]
            sums.append(self.op("Sum", *(self.op("Neg", p) if own[n][1] else p for n, p in enumerate(parts))))
        counted, total = self.op("Concat", *votes, axis=1), self.op("Concat", *sums, axis=1)
        places = self.op("ArgMax", counted, axis=1, keepdims=1)
        if estimator.decision_function_shape == "ovo":
            raise _refused(
                estimator, "it gives one score for each pair of classes", "Set decision_function_shape='ovr'."
            )
        size = self.op("Mul", self.op("Add", self.op("Abs", total), self.constant(1.0)), self.constant(3.0))
        scores = self.op("Add", counted, self.op("Div", total, size))
        return scores, None, self.op("ArgMax", scores, axis=1, keepdims=1) if estimator.break_ties else places


def _unknown(estimator: Any) -> UnsupportedModel:
    kind = _kind(estimator)
    for parts, reason in _REFUSED:
        if any(part in kind for part in parts):
            problem, _, advice = reason.partition("; ")
            return _refused(estimator, problem, f"{advice[:1].upper()}{advice[1:]}.")
    known = {*_LINEAR, *_TRANSFORMS, *_WRAPPERS, *_OTHERS}
    return _refused(estimator, "this estimator is not known", f"These are: {', '.join(sorted(known))}.")


def _dense(value: Any) -> np.ndarray:
    return np.asarray(value.toarray() if hasattr(value, "toarray") else value, dtype=np.float64)


def _shift_scale(offset: Any, factor: Any) -> Callable[[_Builder, str], str]:
    """``(x - offset) * factor``, either None for nothing."""

    def apply(build: _Builder, x: str) -> str:
        x = x if offset is None else build.op("Sub", x, build.constant(offset))
        return x if factor is None else build.op("Mul", x, build.constant(factor))

    return apply


def _standard(build: _Builder, e: Any, x: str) -> str:
    return _shift_scale(e.mean_ if e.with_mean else None, 1.0 / e.scale_ if e.with_std else None)(build, x)


def _robust(build: _Builder, e: Any, x: str) -> str:
    return _shift_scale(e.center_ if e.with_centering else None, 1.0 / e.scale_ if e.with_scaling else None)(build, x)


def _min_max(build: _Builder, e: Any, x: str) -> str:
    x = build.op("Add", build.op("Mul", x, build.constant(e.scale_)), build.constant(e.min_))
    if e.clip:
        low, high = e.feature_range
        x = build.op("Clip", x, build.constant(float(low)), build.constant(float(high)))
    return x


def _max_abs(build: _Builder, e: Any, x: str) -> str:
    return _shift_scale(None, 1.0 / e.scale_)(build, x)


def _normalizer(build: _Builder, e: Any, x: str) -> str:
    kind = {"l1": "ReduceL1", "l2": "ReduceL2", "max": "ReduceMax"}[e.norm]
    size = build.op(kind, build.op("Abs", x) if kind == "ReduceMax" else x, axes=[1], keepdims=1)
    return build.op("Div", x, build.op("Max", size, build.constant(TINY)))


def _imputer(build: _Builder, e: Any, x: str) -> str:
    values = np.asarray(e.statistics_, dtype=np.float64)
    if (
        e.add_indicator
        or not (isinstance(e.missing_values, float) and np.isnan(e.missing_values))
        or not np.isfinite(values).all()
    ):
        raise _refused(
            e, "only NaN is filled in, without indicators", "Set missing_values=np.nan and add_indicator=False."
        )
    return build.op("Imputer", x, domain=DOMAIN, imputed_value_floats=[float(v) for v in values])


def _pca(build: _Builder, e: Any, x: str) -> str:
    components = _dense(e.components_)
    if getattr(e, "whiten", False):
        components = components / np.sqrt(e.explained_variance_)[:, None]
    mean = getattr(e, "mean_", None)
    return build.affine(x, components, 0.0 if mean is None else -(components @ np.asarray(mean)))


def _selected(build: _Builder, e: Any, x: str) -> str:
    return build.columns(x, [int(v) for v in e.get_support(indices=True)])


def _column_transformer(build: _Builder, e: Any, x: str) -> str:
    names = list(getattr(e, "feature_names_in_", []))
    parts = []
    for _, step, given in e.transformers_:
        places = _places(given, names, e.n_features_in_)
        if (isinstance(step, str) and step == "drop") or not places:
            continue
        part = build.columns(x, places)
        parts.append(part if isinstance(step, str) else build.estimator(step, part, last=False))
    return build.op("Concat", *parts, axis=1)


def _places(given: Any, names: Sequence[str], count: int) -> list[int]:
    """Columns as numbers."""
    if isinstance(given, slice):
        return list(range(count))[given]
    listed = np.atleast_1d(np.asarray(given))
    if listed.dtype == bool:
        return [int(v) for v in np.flatnonzero(listed)]
    return [names.index(v) if isinstance(v, str) else int(v) % count for v in listed.tolist()]


def _plain(_build: _Builder, e: Any, x: str) -> str:
    if getattr(e, "func", None) is not None:
        raise _refused(e, "a function of Python is not read", "Compute it before inference, or use scalers.")
    return x


_ACTIVATIONS = {"relu": "Relu", "tanh": "Tanh", "logistic": "Sigmoid", "identity": "Identity"}
# estimators that are the one in their attribute
_WRAPPERS = {"GridSearchCV": "best_estimator_", "RandomizedSearchCV": "best_estimator_"}
_TRANSFORMS: dict[str, Callable[[_Builder, Any, str], str]] = {
    "ColumnTransformer": _column_transformer,
    "FunctionTransformer": _plain,
    "IncrementalPCA": _pca,
    "MaxAbsScaler": _max_abs,
    "MinMaxScaler": _min_max,
    "Normalizer": _normalizer,
    "PCA": _pca,
    "RobustScaler": _robust,
    "SelectFromModel": _selected,
    "SelectKBest": _selected,
    "SelectPercentile": _selected,
    "SimpleImputer": _imputer,
    "StandardScaler": _standard,
    "TruncatedSVD": _pca,
    "VarianceThreshold": _selected,
}
_OTHERS = ("MLPClassifier", "MLPRegressor", "MultiOutputRegressor", "OneVsRestClassifier", "Pipeline")
_LINEAR = {
    "ARDRegression", "BayesianRidge", "ElasticNet", "ElasticNetCV", "HuberRegressor", "Lars", "LarsCV", "Lasso",
    "LassoCV", "LassoLars", "LassoLarsCV", "LassoLarsIC", "LinearDiscriminantAnalysis", "LinearRegression",
    "LinearSVC", "LinearSVR", "LogisticRegression", "LogisticRegressionCV", "MultiTaskElasticNet",
    "MultiTaskLasso", "NuSVC", "NuSVR", "OrthogonalMatchingPursuit", "PassiveAggressiveClassifier",
    "PassiveAggressiveRegressor", "Perceptron", "Ridge", "RidgeCV", "RidgeClassifier", "RidgeClassifierCV",
    "SGDClassifier", "SGDRegressor", "SVC", "SVR", "TheilSenRegressor",
}  # fmt: skip

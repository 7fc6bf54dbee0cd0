"""Fitted scikit-learn estimators as ONNX models, without another package: ``sklearn_model``.

What is read are the fitted attributes (``coef_``, ``mean_`` ...), by the name of the class; scikit-learn itself is not
imported. The models have
what the estimator's methods give: regressors ``predict``, classifiers ``probabilities`` (``predict_proba``) or, where
they have none,
``scores`` (``decision_function``, one column a class), and ``label`` (``predict``). Classifiers of several targets have
these once a target (``probabilities_0`` ...), those of several labels a row one column a label. Weights are binary64.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from .classical import DOMAIN
from .errors import UnsupportedModel
from .estimator_features import FEATURES, prepare
from .estimator_graph import INPUT, Reader, Scores, dense, kind, refused
from .estimator_scores import SCORES, shares, votes
from .labels import plain_name
from .ports import COLUMNS

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

    docs/models.md lists the estimators.

    Args:
        estimator: fitted; the last step of a pipeline decides what the outputs are.

    Raises:
        UnsupportedModel: an estimator that cannot be evaluated, with what does.
    """
    build = _Builder(_features(estimator))
    build.estimator(estimator)
    model = build.model()
    names = [str(name) for name in getattr(estimator, "feature_names_in_", [])]
    if names:
        model.metadata_props.add(key=COLUMNS, value=json.dumps({INPUT: names}))
    return model


def _features(estimator: Any) -> int:
    """Columns of the input."""
    found = getattr(estimator, "n_features_in_", None)
    if found is None:
        raise refused(estimator, "it is not fitted, or does not say how many features it takes", "Call fit first.")
    return int(found)


class _Builder(Reader):
    """The graph of one estimator."""

    def estimator(self, estimator: Any) -> None:
        """The whole of it, with its outputs."""
        x, last = self.last(estimator, INPUT)
        if last is None or kind(last) in FEATURES:
            self.output("transformed", x if last is None else self.prepared(last, x))
            return
        if kind(last) == "MultiOutputClassifier":
            for place, own in enumerate(last.estimators_):
                self.answers(own, self.final(own, x), f"_{place}")
            return
        self.answers(last, self.final(last, x))

    def last(self, estimator: Any, x: str) -> tuple[str, Any]:
        """What the last step of pipelines in one another reads, and that step; None where there is none."""
        while kind(estimator) in _WRAPPERS or kind(estimator) == "Pipeline":
            if kind(estimator) == "Pipeline":
                steps = [step for _, step in estimator.steps if step is not None and step != "passthrough"]
                for step in steps[:-1]:
                    x = self.prepared(step, x)
                if not steps:
                    return x, None
                estimator = steps[-1]
            else:
                estimator = _inner(estimator)
        return x, estimator

    def prepared(self, estimator: Any, x: str) -> str:
        """What a step that prepares features makes of a tensor."""
        x, last = self.last(estimator, x)
        if last is None:
            return x
        found = prepare(self, last, x)
        if found is None:
            raise _unknown(last)
        return found

    def final(self, estimator: Any, x: str) -> Scores:
        """Scores of the last step, of classifiers one column a class.

        Also probabilities where there are any, and places of labels where they are not those of the largest score.
        """
        x, last = self.last(estimator, x)
        if last is None:
            raise _unknown(estimator)
        name = kind(last)
        if name in SCORES:
            return SCORES[name](self, last, x)
        if name.startswith("MLP"):
            return self.perceptron(last, x)
        if name in ("OneVsRestClassifier", "MultiOutputRegressor"):
            return self.several(last, x)
        return self.linear(last, x)

    def output(self, name: str, x: str) -> None:
        """An output of the model."""
        self.outputs.append(self.op("Identity", x, name=name))

    def answers(self, estimator: Any, found: Scores, suffix: str = "") -> None:
        """The outputs of an estimator: predictions, or one value a class and the label."""
        scores, chances, places = found
        _, last = self.last(estimator, INPUT)
        if _several_labels(last):
            self.output(f"{'probabilities' if chances else 'scores'}{suffix}", chances or scores)
            return
        classes = range(len(last.cluster_centers_)) if hasattr(last, "cluster_centers_") else _classes(last)
        if classes is None:
            self.output(f"predict{suffix}", scores)
            return
        names = [plain_name(v) for v in np.asarray(classes)]
        numbers = all(isinstance(n, int) for n in names)
        attributes = {"classlabels_int64s": names} if numbers else {"classlabels_strings": [str(n) for n in names]}
        # ZipMap is defined on binary32
        single = self.op("Cast", chances or scores, to=TensorProto.FLOAT)
        name = f"{'probabilities' if chances else 'scores'}{suffix}"
        self.outputs.append(self.op("ZipMap", single, domain=DOMAIN, name=name, **attributes))
        place = places or self.op("ArgMax", chances or scores, axis=1, keepdims=1)
        if numbers:
            listed = self.constant(names, np.int64)
        else:
            listed = f"constant_{len(self.constants)}"
            text = np.asarray([str(n) for n in names], dtype=object)
            self.constants.append(
                helper.make_tensor(listed, TensorProto.STRING, [len(names)], [t.encode() for t in text])
            )
        self.outputs.append(self.op("ArrayFeatureExtractor", listed, place, domain=DOMAIN, name=f"label{suffix}"))

    def linear(self, estimator: Any, x: str) -> Scores:
        """A linear model, or support vectors of a linear kernel."""
        name = kind(estimator)
        if name in ("SVC", "NuSVC", "SVR", "NuSVR") and estimator.kernel != "linear":
            raise _unknown(estimator)
        if name in ("SVC", "NuSVC") and len(estimator.classes_) > 2:
            return self.one_against_one(estimator, x)
        if name not in _LINEAR:
            raise _unknown(estimator)
        weight, bias = np.atleast_2d(dense(estimator.coef_)), np.atleast_1d(estimator.intercept_)
        if not hasattr(estimator, "classes_"):
            return self.affine(x, weight, bias), None, None
        if len(weight) == 1:
            weight, bias = np.concatenate([-weight, weight]), np.concatenate([-bias, bias])
        scores = self.affine(x, weight, bias)
        return scores, self.chances(estimator, name, scores), None

    def chances(self, estimator: Any, name: str, scores: str) -> str | None:
        """Probabilities of a linear classifier; None where it has none. Scores of two classes are s and -s."""
        classes = len(estimator.classes_)
        if name == "LinearDiscriminantAnalysis":
            return shares(self, scores, classes)
        if name in ("LogisticRegression", "LogisticRegressionCV"):
            one = getattr(estimator, "multi_class", None) == "ovr" or estimator.solver == "liblinear"
            if classes == 2:
                # a multinomial fit of two classes has the scores s and -s, all others 0 and s
                doubled = getattr(estimator, "multi_class", None) == "multinomial"
                return self.op("Softmax", scores, axis=1) if doubled else self.op("Sigmoid", scores)
            return self.sigmoid_shares(scores) if one else self.op("Softmax", scores, axis=1)
        if name == "SGDClassifier" and estimator.loss == "log_loss":
            return self.op("Sigmoid", scores) if classes == 2 else self.sigmoid_shares(scores)
        return None

    def perceptron(self, estimator: Any, x: str) -> Scores:
        """A multi-layer perceptron."""
        operator = _ACTIVATIONS.get(estimator.activation)
        layers = list(zip(estimator.coefs_, estimator.intercepts_))
        if operator is None or (
            hasattr(estimator, "classes_") and estimator.out_activation_ not in ("softmax", "logistic")
        ):
            raise refused(
                estimator,
                f"activation {estimator.activation!r} is not known",
                "Fit it with relu, tanh, logistic or identity.",
            )
        for index, (weight, bias) in enumerate(layers):
            if index + 1 == len(layers):
                break
            x = self.affine(x, weight.T, bias)
            x = self.op(operator, x) if operator != "Identity" else x
        weight, bias = layers[-1][0].T, layers[-1][1]
        if hasattr(estimator, "classes_") and len(weight) == 1 and not _several_labels(estimator):
            weight, bias = np.concatenate([-weight, weight]), np.concatenate([-bias, bias])
        scores = self.affine(x, weight, bias)
        if not hasattr(estimator, "classes_"):
            if estimator.out_activation_ == "exp":
                return self.op("Exp", scores), None, None
            return scores, None, None
        softmax = estimator.out_activation_ == "softmax"
        return scores, self.op("Softmax", scores, axis=1) if softmax else self.op("Sigmoid", scores), None

    def several(self, estimator: Any, x: str) -> Scores:
        """Estimators side by side: one for each class, or for each target."""
        maps = self.targets(estimator.estimators_)
        if maps is not None and not hasattr(estimator, "classes_"):
            # one layer, whose targets count each by itself
            weight, bias = (np.concatenate(v) for v in zip(*maps, strict=True))
            return self.affine(x, weight, bias), None, None
        parts = [self.final(e, x) for e in estimator.estimators_]
        if not hasattr(estimator, "classes_"):
            return self.side_by_side([p[0] for p in parts]), None, None
        if len(parts) == 1 and not _several_labels(estimator):
            return parts[0]
        if any(not hasattr(e, "classes_") or len(e.classes_) != 2 for e in estimator.estimators_):
            raise refused(estimator, "a class has no classifier of its own", "Fit it on rows of every class.")
        scores = self.side_by_side([self.columns(p[0], [1]) for p in parts])
        if any(p[1] is None for p in parts):
            return scores, None, None
        if not _several_labels(estimator) and all(self.is_sigmoid(chances, own) for own, chances, _ in parts):
            return scores, self.sigmoid_shares(scores), None
        chances = self.side_by_side([self.columns(p[1], [1]) for p in parts if p[1]])
        return scores, chances if _several_labels(estimator) else self.normalised(chances), None

    def targets(self, estimators: Sequence[Any]) -> list[tuple[np.ndarray, np.ndarray]] | None:
        """Weights (targets, features) and biases of linear regressors; None where an estimator is none."""
        if any(
            kind(e) not in _LINEAR or hasattr(e, "classes_") or getattr(e, "kernel", "linear") != "linear"
            for e in estimators
        ):
            return None
        return [
            (weight := np.atleast_2d(dense(e.coef_)), np.broadcast_to(np.ravel(e.intercept_), (len(weight),)))
            for e in estimators
        ]

    def one_against_one(self, estimator: Any, x: str) -> Scores:
        """Linear support vectors of several classes: pairs vote, and the sums of their scores break ties."""
        if estimator.decision_function_shape == "ovo":
            raise refused(
                estimator, "it gives one score for each pair of classes", "Set decision_function_shape='ovr'."
            )
        against = self.affine(x, -dense(estimator.coef_), -np.asarray(estimator.intercept_))
        counted, scores = votes(self, against, len(estimator.classes_))
        return scores, None, self.op("ArgMax", scores if estimator.break_ties else counted, axis=1, keepdims=1)


def _inner(estimator: Any) -> Any:
    """The fitted estimator that a search or wrapper has found."""
    for name in _WRAPPERS[kind(estimator)]:
        if hasattr(estimator, name):
            return getattr(estimator, name)
    raise refused(estimator, "it keeps no fitted estimator", "Fit it, a search with refit=True.")


def _several_labels(estimator: Any) -> bool:
    """Whether a row may have several labels."""
    binarizer = getattr(estimator, "_label_binarizer", None)
    return bool(getattr(estimator, "multilabel_", False)) or (
        binarizer is not None and str(binarizer.y_type_).startswith("multilabel")
    )


def _classes(estimator: Any) -> Any:
    """Names of classes; None of what is no classifier."""
    return getattr(estimator, "classes_", None)


def _unknown(estimator: Any) -> UnsupportedModel:
    name = kind(estimator)
    for parts, reason in _REFUSED:
        if any(part in name for part in parts):
            problem, _, advice = reason.partition("; ")
            return refused(estimator, problem, f"{advice[:1].upper()}{advice[1:]}.")
    known = sorted({*_LINEAR, *FEATURES, *SCORES, *_WRAPPERS, *_OTHERS})
    advice = f"These are: {', '.join(known)}."
    if hasattr(estimator, "transform") and not hasattr(estimator, "predict"):
        advice = (
            "Where it is the first step, clients can run it themselves: compile the pipeline behind it, "
            "hushnet.from_sklearn(pipeline[1:], calibration=pipeline[:1].transform(x)), and send what it gives. "
            f"{advice}"
        )
    return refused(estimator, "this estimator is not known", advice)


_ACTIVATIONS = {"relu": "Relu", "tanh": "Tanh", "logistic": "Sigmoid", "identity": "Identity"}
# estimators that are the one in their attribute
_WRAPPERS = {
    "FrozenEstimator": ("estimator",),
    "GridSearchCV": ("best_estimator_",),
    "HalvingGridSearchCV": ("best_estimator_",),
    "HalvingRandomSearchCV": ("best_estimator_",),
    "RANSACRegressor": ("estimator_",),
    "RandomizedSearchCV": ("best_estimator_",),
    "SelfTrainingClassifier": ("estimator_", "base_estimator_"),
}
_OTHERS = (
    "MLPClassifier", "MLPRegressor", "MultiOutputClassifier", "MultiOutputRegressor", "OneVsRestClassifier", "Pipeline",
)  # fmt: skip
_LINEAR = {
    "ARDRegression", "BayesianRidge", "ElasticNet", "ElasticNetCV", "HuberRegressor", "Lars", "LarsCV", "Lasso",
    "LassoCV", "LassoLars", "LassoLarsCV", "LassoLarsIC", "LinearDiscriminantAnalysis", "LinearRegression",
    "LinearSVC", "LinearSVR", "LogisticRegression", "LogisticRegressionCV", "MultiTaskElasticNet",
    "MultiTaskElasticNetCV", "MultiTaskLasso", "MultiTaskLassoCV", "NuSVC", "NuSVR", "OrthogonalMatchingPursuit",
    "OrthogonalMatchingPursuitCV", "PassiveAggressiveClassifier", "PassiveAggressiveRegressor", "Perceptron",
    "QuantileRegressor", "Ridge", "RidgeCV", "RidgeClassifier", "RidgeClassifierCV",
    "SGDClassifier", "SGDRegressor", "SVC", "SVR", "TheilSenRegressor",
}  # fmt: skip

"""Scores of scikit-learn's estimators beside linear models and perceptrons, and of estimators made of others.

Naive Bayes, quadratic discriminants, clusters and centroids, generalised linear models; calibrated, voting, bagged and
stacked ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Any

import numpy as np
from onnx import TensorProto

from .estimator_features import function
from .estimator_graph import Reader, Scores, dense, kind, refused

# a probability of nothing has a logarithm
LEAST_CHANCE = 1e-12


def shares(build: Reader, scores: str, classes: int) -> str:
    """Probabilities of log-likelihoods. Those of two classes are s and -s."""
    return build.op("Sigmoid", scores) if classes == 2 else build.op("Softmax", scores, axis=1)


def _likelihoods(build: Reader, x: str, weight: np.ndarray, bias: np.ndarray) -> Scores:
    """Log-likelihoods that are linear in a tensor; of two classes their difference and its opposite."""
    if len(weight) == 2:
        weight, bias = (np.stack([v[0] - v[1], v[1] - v[0]]) for v in (weight, bias))
    scores = build.affine(x, weight, bias)
    return scores, shares(build, scores, len(weight)), None


def _gaussian_bayes(build: Reader, e: Any, x: str) -> Scores:
    """Distances to the means of every class in deviations, squared and summed: no term is above zero."""
    means, spreads = dense(e.theta_), np.sqrt(dense(e.var_))
    rows = (np.eye(means.shape[1])[None] / spreads[:, :, None]).reshape(-1, means.shape[1])
    bias = np.log(np.asarray(e.class_prior_)) - np.log(spreads * np.sqrt(2 * np.pi)).sum(axis=1)
    return _distances(build, x, rows, -(means / spreads).reshape(-1), bias)


def _distances(build: Reader, x: str, rows: np.ndarray, shift: np.ndarray, bias: np.ndarray) -> Scores:
    """``bias - sum (rows x + shift)^2 / 2`` less the largest bias, the rows of each class side by side.

    A bias below the largest one is a square, too, so that no layer stands behind the squares: likelihoods of far
    classes are large, and their roundings would be errors of the near ones. Of two classes the difference and its
    opposite.
    """
    classes, width = len(bias), len(rows) // len(bias)
    wider = np.zeros((classes, width + 1, rows.shape[1]))
    wider[:, :width] = rows.reshape(classes, width, -1)
    offset = np.column_stack([shift.reshape(classes, width), np.sqrt(2.0 * (bias.max() - bias))])
    off = build.affine(x, wider.reshape(-1, rows.shape[1]) / np.sqrt(2.0), offset.reshape(-1) / np.sqrt(2.0))
    each = build.op("Reshape", off, build.constant([0, classes, width + 1], np.int64))
    far = build.op("ReduceSum", build.op("Mul", each, each), build.constant([2], np.int64), keepdims=0)
    scores = build.op("Neg", far)
    if classes == 2:
        scores = build.op("Sub", scores, build.columns(scores, [1, 0]))
    return scores, shares(build, scores, classes), None


def _quadratic(build: Reader, e: Any, x: str) -> Scores:
    rows, shift, bias = [], [], []
    rank = max(len(s) for s in e.scalings_)
    for mean, turned, spread, prior in zip(e.means_, e.rotations_, e.scalings_, e.priors_):
        own = np.zeros((rank, len(mean)))
        own[: len(spread)] = (dense(turned) / np.sqrt(np.asarray(spread))).T
        rows.append(own)
        shift.append(-own @ np.asarray(mean))
        bias.append(np.log(prior) - 0.5 * np.log(np.asarray(spread)).sum())
    return _distances(build, x, np.concatenate(rows), np.concatenate(shift), np.asarray(bias))


def _discrete_bayes(build: Reader, e: Any, x: str) -> Scores:
    weight = dense(e.feature_log_prob_)
    # complements of classes have no prior, unless there is one class
    prior = np.zeros(len(weight)) if kind(e) == "ComplementNB" else np.asarray(e.class_log_prior_)
    if kind(e) == "BernoulliNB":
        absent = np.log(-np.expm1(weight))
        weight, prior = weight - absent, prior + absent.sum(axis=1)
        if e.binarize is not None:
            x = build.flags("Greater", x, float(e.binarize))
    return _likelihoods(build, x, weight, prior)


def _categorical_bayes(build: Reader, e: Any, x: str) -> Scores:
    parts = [
        build.flags("Equal", build.columns(x, [place]), np.arange(dense(chances).shape[1]))
        for place, chances in enumerate(e.feature_log_prob_)
    ]
    weight = np.concatenate([dense(chances) for chances in e.feature_log_prob_], axis=1)
    return _likelihoods(build, build.side_by_side(parts), weight, np.asarray(e.class_log_prior_))


def _clusters(build: Reader, e: Any, x: str) -> Scores:
    """Half the squared distance to each centre, less what all centres share: the nearest has the largest score."""
    centres = dense(e.cluster_centers_)
    return build.affine(x, centres, -0.5 * (centres**2).sum(axis=1)), None, None


def _centroids(build: Reader, e: Any, x: str) -> Scores:
    if e.metric != "euclidean":
        raise refused(e, f"distances of metric {e.metric!r} are not evaluated", "Fit it with metric='euclidean'.")
    centres, prior = dense(e.centroids_), getattr(e, "class_prior_", None)
    spread = np.ones(centres.shape[1])
    if prior is None or np.isclose(prior, 1 / len(centres)).all():
        bias = np.zeros(len(centres))
    else:
        bias = np.log(prior)
        own = np.asarray(e.within_class_std_dev_)
        spread[own != 0] = own[own != 0]
    centres = centres / spread
    return build.affine(x, centres / spread, bias - 0.5 * (centres**2).sum(axis=1)), None, None


def _generalised(build: Reader, e: Any, x: str) -> Scores:
    """Linear models whose prediction is an exponential of the sum."""
    found = build.affine(x, np.atleast_2d(dense(e.coef_)), np.atleast_1d(e.intercept_))
    plain = kind(e) == "TweedieRegressor" and (e.link == "identity" or (e.link == "auto" and e.power <= 0))
    return found if plain else build.op("Exp", found), None, None


def _latent(build: Reader, e: Any, x: str) -> Scores:
    weight = dense(e.coef_)
    return build.affine(x, weight, np.asarray(e.intercept_) - weight @ np.asarray(e._x_mean)), None, None


def _pairs(build: Reader, e: Any, x: str) -> Scores:
    """One classifier for every pair of classes."""
    parts = [build.final(own, x) for own in e.estimators_]
    if any(len(own.classes_) != 2 for own in e.estimators_):
        raise refused(e, "a pair of classes has no classifier of two", "Fit it on rows of every class.")
    # what has no decision function is as sure as its probability of the second class
    decided = [hasattr(own, "decision_function") for own in e.estimators_]
    if any(part[1] is None and not sure for part, sure in zip(parts, decided)):
        raise refused(e, "classifiers of pairs have neither scores nor probabilities", "Use linear ones.")
    columns = [build.columns(part[0] if sure else str(part[1]), [1]) for part, sure in zip(parts, decided)]
    against = build.side_by_side(columns)
    border = np.asarray([0.0 if sure else 0.5 for sure in decided])
    counted = votes(build, against, len(e.classes_), border)[1]
    if len(e.classes_) == 2:
        second = build.columns(counted, [1])
        above = build.op("Sub", second, build.constant(float(border[0])))
        place = build.op("ArgMax", build.side_by_side([build.op("Neg", above), above]), axis=1, keepdims=1)
        return build.side_by_side([build.op("Neg", second), second]), None, None if decided[0] else place
    return counted, None, None


def votes(build: Reader, against: str, classes: int, border: Any = 0.0) -> tuple[str, str]:
    """Votes of pairs for every class, and these with the sums of the pairs' scores to break ties.

    ``against`` has a column for every pair, from the border on for the second class of the two.
    """
    pairs = list(combinations(range(classes), 2))
    second = build.flags("GreaterOrEqual", against, border)
    first = build.op("Sub", build.constant(1.0), second)
    counts, sums = [], []
    for c in range(classes):
        own = [(k, i == c) for k, (i, j) in enumerate(pairs) if c in (i, j)]
        counts.append(build.op("Sum", *(build.columns(first if is_first else second, [k]) for k, is_first in own)))
        parts = [build.columns(against, [k]) for k, _ in own]
        sums.append(build.op("Sum", *(build.op("Neg", p) if own[n][1] else p for n, p in enumerate(parts))))
    counted, total = build.op("Concat", *counts, axis=1), build.op("Concat", *sums, axis=1)
    size = build.op("Mul", build.op("Add", build.op("Abs", total), build.constant(1.0)), build.constant(3.0))
    return counted, build.op("Add", counted, build.op("Div", total, size))


def _mean(build: Reader, parts: Sequence[str], weights: Sequence[float] | None = None) -> str:
    """The weighted mean of tensors."""
    given = np.ones(len(parts)) if weights is None else np.asarray(weights, np.float64)
    given = given / given.sum()
    terms = [build.op("Mul", part, build.constant(float(w))) for part, w in zip(parts, given)]
    return terms[0] if len(terms) == 1 else build.op("Sum", *terms)


def _chances(build: Reader, whole: Any, own: Any, x: str) -> str:
    """Probabilities of one of an estimator's classifiers."""
    found = build.final(own, x)[1]
    if found is None:
        raise refused(
            whole, f"{kind(own)} gives no probabilities that are read", "Use classifiers that have predict_proba."
        )
    _all_classes(whole, own)
    return found


def _all_classes(whole: Any, own: Any) -> None:
    """Checks that one of an estimator's classifiers knows all classes."""
    if len(own.classes_) != len(whole.classes_):
        raise refused(whole, "one of its classifiers has not seen all classes", "Fit it on rows of every class.")


def _hot(build: Reader, own: Any, x: str) -> str:
    """One for the label of a classifier, and zeros."""
    scores, _, places = build.final(own, x)
    place = places or build.op("ArgMax", scores, axis=1, keepdims=1)
    place = build.op("Cast", place, to=TensorProto.DOUBLE)
    return build.flags("Equal", place, np.arange(len(own.classes_)))


def _response(build: Reader, whole: Any, own: Any, x: str) -> tuple[str, bool]:
    """What ``decision_function`` gives, or, where there is none, probabilities; whether it is the former."""
    if hasattr(own, "decision_function"):
        return build.final(own, x)[0], True
    return _chances(build, whole, own, x), False


def _calibrated(build: Reader, e: Any, x: str) -> Scores:
    """The mean of calibrated classifiers. Calibration is behind the last layer, so the client computes it."""
    members, classes = e.calibrated_classifiers_, len(e.classes_)
    if any(len(one.estimator.classes_) != classes for one in members):
        raise refused(e, "one of its classifiers has not seen all classes", "Fit it on rows of every class.")
    found = [_response(build, e, one.estimator, x) for one in members]
    # all scores are one tensor, behind which no layer stands
    scores = build.side_by_side([score for score, _ in found])
    parts = []
    for place, (one, (_, decided)) in enumerate(zip(members, found)):
        own = [place * classes + c for c in range(classes)]
        if one.method == "temperature":
            logits = build.columns(scores, own)
            if not decided:
                logits = build.op("Log", build.op("Add", logits, build.constant(LEAST_CHANCE)))
            hot = build.op("Mul", logits, build.constant(float(one.calibrators[0].beta_)))
            parts.append(build.op("Softmax", hot, axis=1))
            continue
        places = own[1:] if classes == 2 else own
        columns = [_curve(build, e, c, build.columns(scores, [p])) for p, c in zip(places, one.calibrators)]
        if classes == 2:
            parts.append(build.side_by_side([build.op("Sub", build.constant(1.0), columns[0]), columns[0]]))
            continue
        # where no class has any, all have the same
        some = build.op("Add", build.side_by_side(columns), build.constant(LEAST_CHANCE))
        parts.append(build.normalised(some))
    mean = _mean(build, parts)
    return mean, mean, None


def _curve(build: Reader, e: Any, calibrator: Any, score: str) -> str:
    """A calibrator's probability of one column of scores."""
    if hasattr(calibrator, "a_"):
        slope, offset = -float(calibrator.a_), -float(calibrator.b_)
        return build.op(
            "Sigmoid", build.op("Add", build.op("Mul", score, build.constant(slope)), build.constant(offset))
        )
    if not hasattr(calibrator, "X_thresholds_"):
        raise refused(e, f"calibrators of type {kind(calibrator)} are not known", "Use 'sigmoid' or 'isotonic'.")
    at, chance = (np.asarray(v, np.float64) for v in (calibrator.X_thresholds_, calibrator.y_thresholds_))
    total = build.op("Add", build.op("Mul", score, build.constant(0.0)), build.constant(float(chance[0])))
    terms = [total]
    for low, high, rise in zip(at[:-1], at[1:], np.diff(chance)):
        if rise != 0.0:
            inside = build.op("Clip", score, build.constant(float(low)), build.constant(float(high)))
            moved = build.op("Sub", inside, build.constant(float(low)))
            terms.append(build.op("Mul", moved, build.constant(float(rise / (high - low)))))
    return total if len(terms) == 1 else build.op("Sum", *terms)


def _voting(build: Reader, e: Any, x: str) -> Scores:
    weights = None if e.weights is None else [w for w, (_, own) in zip(e.weights, e.estimators) if own != "drop"]
    if not hasattr(e, "classes_"):
        return _mean(build, [build.final(own, x)[0] for own in e.estimators_], weights), None, None
    if e.voting != "soft":
        return _mean(build, [_hot(build, own, x) for own in e.estimators_], weights), None, None
    mean = _mean(build, [_chances(build, e, own, x) for own in e.estimators_], weights)
    return mean, mean, None


def _bagging(build: Reader, e: Any, x: str) -> Scores:
    parts, every = [], list(range(e.n_features_in_))
    for own, features in zip(e.estimators_, e.estimators_features_):
        places = [int(v) for v in features]
        given = x if places == every else build.columns(x, places)
        if not hasattr(e, "classes_"):
            parts.append(build.final(own, given)[0])
        elif hasattr(own, "predict_proba"):
            parts.append(_chances(build, e, own, given))
        else:
            # without probabilities each of them has one vote
            _all_classes(e, own)
            parts.append(_hot(build, own, given))
    mean = _mean(build, parts)
    return mean, mean if hasattr(e, "classes_") else None, None


def _stacked(build: Reader, e: Any, x: str) -> Scores:
    parts = []
    for own, method in zip(e.estimators_, e.stack_method_):
        classes = len(getattr(e, "classes_", ()))
        if method == "predict" and classes:
            raise refused(e, f"{kind(own)} gives labels alone", "Stack classifiers that have probabilities or scores.")
        part = _chances(build, e, own, x) if method == "predict_proba" else build.final(own, x)[0]
        parts.append(build.columns(part, [1]) if classes == 2 else part)
    return build.final(e.final_estimator_, build.side_by_side([*parts, x] if e.passthrough else parts))


def _regressor_chain(build: Reader, e: Any, x: str) -> Scores:
    """Each estimator reads what those before it have predicted; linear ones are one layer together."""
    maps, order = build.targets(e.estimators_), np.argsort(np.asarray(e.order_))
    if maps is not None:
        features = maps[0][0].shape[1]
        weight, bias = np.zeros((0, features)), np.zeros(0)
        for own, offset in maps:
            # what the earlier predictions are of the features, put in
            direct, earlier = own[:, :features], own[:, features:]
            weight, bias = (
                np.concatenate([weight, direct + earlier @ weight]),
                np.append(bias, offset + earlier @ bias),
            )
        return build.affine(x, weight[order], bias[order]), None, None
    found: list[str] = []
    for own in e.estimators_:
        found.append(build.final(own, build.side_by_side([x, *found]))[0])
    return build.columns(build.side_by_side(found), order.tolist()), None, None


def _transformed_target(build: Reader, e: Any, x: str) -> Scores:
    """A regressor of a target that was scaled, or that a function was taken of."""
    found, scaler = build.final(e.regressor_, x)[0], e.transformer_
    if kind(scaler) == "FunctionTransformer":
        called = scaler.inverse_func
        return found if called is None else function(build, e, called, found), None, None
    if kind(scaler) == "StandardScaler":
        found = build.op("Mul", found, build.constant(scaler.scale_)) if scaler.with_std else found
        return build.op("Add", found, build.constant(scaler.mean_)) if scaler.with_mean else found, None, None
    if kind(scaler) == "MinMaxScaler":
        moved = build.op("Sub", found, build.constant(scaler.min_))
        return build.op("Mul", moved, build.constant(1.0 / scaler.scale_)), None, None
    raise refused(
        e, f"a target behind {kind(scaler)} is not read", "Use a StandardScaler, a MinMaxScaler or NumPy's functions."
    )


def _selected(build: Reader, e: Any, x: str) -> Scores:
    """The estimator of the features that a recursive elimination has left."""
    return build.final(e.estimator_, build.prepared(e, x))


# by the name of the class
SCORES: dict[str, Callable[[Reader, Any, str], Scores]] = {
    "BaggingClassifier": _bagging,
    "BaggingRegressor": _bagging,
    "BernoulliNB": _discrete_bayes,
    "CCA": _latent,
    "CalibratedClassifierCV": _calibrated,
    "CategoricalNB": _categorical_bayes,
    "ComplementNB": _discrete_bayes,
    "GammaRegressor": _generalised,
    "GaussianNB": _gaussian_bayes,
    "KMeans": _clusters,
    "MiniBatchKMeans": _clusters,
    "MultinomialNB": _discrete_bayes,
    "NearestCentroid": _centroids,
    "OneVsOneClassifier": _pairs,
    "PLSCanonical": _latent,
    "PLSRegression": _latent,
    "PoissonRegressor": _generalised,
    "QuadraticDiscriminantAnalysis": _quadratic,
    "RFE": _selected,
    "RFECV": _selected,
    "RegressorChain": _regressor_chain,
    "StackingClassifier": _stacked,
    "StackingRegressor": _stacked,
    "TransformedTargetRegressor": _transformed_target,
    "TweedieRegressor": _generalised,
    "VotingClassifier": _voting,
    "VotingRegressor": _voting,
}

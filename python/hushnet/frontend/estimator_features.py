"""What prepares features in scikit-learn: scalers, encoders, projections, products, selections, and unions of these.

Comparisons, products and functions of the client's own columns are computed by the client, exactly. Behind a scaler, a
projection or another layer they are computed on what that layer gives, in the way of the trust model.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from numbers import Real
from typing import Any

import numpy as np

from .classical import DOMAIN, TINY
from .estimator_graph import Reader, dense, kind, refused

_TEXT = (
    "Inputs are numbers, so clients run the encoder: compile the steps behind it, as "
    "hushnet.from_sklearn(pipeline[-1], calibration=pipeline[:-1].transform(x)), or give it columns of numbers."
)


def shift_scale(build: Reader, x: str, offset: Any, factor: Any) -> str:
    """``(x - offset) * factor``, either None for nothing."""
    x = x if offset is None else build.op("Sub", x, build.constant(offset))
    return x if factor is None else build.op("Mul", x, build.constant(factor))


def _standard(build: Reader, e: Any, x: str) -> str:
    return shift_scale(build, x, e.mean_ if e.with_mean else None, 1.0 / e.scale_ if e.with_std else None)


def _robust(build: Reader, e: Any, x: str) -> str:
    return shift_scale(build, x, e.center_ if e.with_centering else None, 1.0 / e.scale_ if e.with_scaling else None)


def _min_max(build: Reader, e: Any, x: str) -> str:
    x = build.op("Add", build.op("Mul", x, build.constant(e.scale_)), build.constant(e.min_))
    if e.clip:
        low, high = e.feature_range
        x = build.op("Clip", x, build.constant(float(low)), build.constant(float(high)))
    return x


def _max_abs(build: Reader, e: Any, x: str) -> str:
    x = shift_scale(build, x, None, 1.0 / e.scale_)
    return build.op("Clip", x, build.constant(-1.0), build.constant(1.0)) if getattr(e, "clip", False) else x


def _normalizer(build: Reader, e: Any, x: str) -> str:
    reduction = {"l1": "ReduceL1", "l2": "ReduceL2", "max": "ReduceMax"}[e.norm]
    size = build.op(reduction, build.op("Abs", x) if reduction == "ReduceMax" else x, axes=[1], keepdims=1)
    return build.op("Div", x, build.op("Max", size, build.constant(TINY)))


def _imputer(build: Reader, e: Any, x: str) -> str:
    values = np.asarray(e.statistics_)
    if (
        e.add_indicator
        or not (isinstance(e.missing_values, float) and np.isnan(e.missing_values))
        or not all(isinstance(v, Real) and math.isfinite(v) for v in values.tolist())
    ):
        raise refused(
            e,
            "only NaN is filled in, with numbers and without indicators",
            "Set missing_values=np.nan and add_indicator=False, and leave columns out that are empty or hold text.",
        )
    return build.op("Imputer", x, domain=DOMAIN, imputed_value_floats=[float(v) for v in values])


def _pca(build: Reader, e: Any, x: str) -> str:
    components = dense(e.components_)
    if getattr(e, "whiten", False):
        components = components / np.sqrt(e.explained_variance_)[:, None]
    return _projected(build, x, components, getattr(e, "mean_", None))


def _projected(build: Reader, x: str, components: np.ndarray, mean: Any = None) -> str:
    """``(x - mean) components'``."""
    return build.affine(x, components, 0.0 if mean is None else -(components @ np.asarray(mean, np.float64)))


def _components(build: Reader, e: Any, x: str) -> str:
    return _projected(build, x, dense(e.components_), getattr(e, "mean_", None))


def _factors(build: Reader, e: Any, x: str) -> str:
    """Means of the latent variables of factor analysis."""
    weighted = dense(e.components_) / np.asarray(e.noise_variance_)
    spread = np.linalg.inv(np.eye(len(weighted)) + weighted @ dense(e.components_).T)
    return _projected(build, x, spread.T @ weighted, e.mean_)


def _discriminants(build: Reader, e: Any, x: str) -> str:
    if e.solver == "lsqr":
        raise refused(e, "solver 'lsqr' has no transform", "Fit it with solver='svd' or 'eigen'.")
    axes = dense(e.scalings_)[:, : e._max_components].T
    return _projected(build, x, axes, e.xbar_ if e.solver == "svd" else None)


def _rotations(build: Reader, e: Any, x: str) -> str:
    return _projected(build, x, (dense(e.x_rotations_) / np.asarray(e._x_std)[:, None]).T, e._x_mean)


def _selected(build: Reader, e: Any, x: str) -> str:
    return build.columns(x, [int(v) for v in e.get_support(indices=True)])


def _column_transformer(build: Reader, e: Any, x: str) -> str:
    names = list(getattr(e, "feature_names_in_", []))
    weights = e.transformer_weights or {}
    parts = []
    for name, step, given in e.transformers_:
        places = _places(given, names, e.n_features_in_)
        if (isinstance(step, str) and step == "drop") or not places:
            continue
        part = build.columns(x, places)
        part = part if isinstance(step, str) else build.prepared(step, part)
        parts.append(shift_scale(build, part, None, float(weights[name])) if name in weights else part)
    return build.side_by_side(parts)


def _union(build: Reader, e: Any, x: str) -> str:
    weights = e.transformer_weights or {}
    parts = []
    for name, step in e.transformer_list:
        if isinstance(step, str) and step == "drop":
            continue
        part = x if isinstance(step, str) else build.prepared(step, x)
        parts.append(shift_scale(build, part, None, float(weights[name])) if name in weights else part)
    return build.side_by_side(parts)


def _places(given: Any, names: Sequence[str], count: int) -> list[int]:
    """Columns as numbers."""
    if isinstance(given, slice):
        return list(range(count))[given]
    listed = np.atleast_1d(np.asarray(given))
    if listed.dtype == bool:
        return [int(v) for v in np.flatnonzero(listed)]
    return [names.index(v) if isinstance(v, str) else int(v) % count for v in listed.tolist()]


def _categories(e: Any) -> list[np.ndarray]:
    """The categories of every column, numbers all of them.

    Raises:
        UnsupportedModel: a column of text, or NaN as a category.
    """
    found = []
    for place, values in enumerate(e.categories_):
        listed = np.asarray(values).tolist()
        if not all(isinstance(v, Real) for v in listed):
            text = next(v for v in listed if not isinstance(v, Real))
            raise refused(e, f"column {place} holds text ({text!r} and others)", _TEXT)
        numbers = np.asarray(listed, np.float64)
        if not np.isfinite(numbers).all():
            raise refused(
                e, f"NaN is a category of column {place}", "Put a SimpleImputer in front, and fit the encoder again."
            )
        found.append(numbers)
    return found


def _one_hot(build: Reader, e: Any, x: str) -> str:
    """A column of zeros and ones for each category that stays."""
    groups = getattr(e, "_default_to_infrequent_mappings", None)
    dropped = getattr(e, "_drop_idx_after_grouping", getattr(e, "drop_idx_", None))
    parts = []
    for place, values in enumerate(_categories(e)):
        hot = build.flags("Equal", build.columns(x, [place]), values)
        mapping = None if groups is None else groups[place]
        if mapping is not None:
            hot = _grouped(build, hot, np.asarray(mapping), rest=e.handle_unknown == "infrequent_if_exist")
        count = len(values) if mapping is None else int(max(mapping)) + 1
        gone = None if dropped is None else dropped[place]
        kept = [c for c in range(count) if gone is None or c != int(gone)]
        if kept:
            parts.append(hot if len(kept) == count else build.columns(hot, kept))
    return build.side_by_side(parts)


def _grouped(build: Reader, hot: str, mapping: np.ndarray, *, rest: bool) -> str:
    """Columns of groups of categories; with ``rest`` the last group, of rare ones, has all unknown ones too."""
    own = [np.flatnonzero(mapping == group) for group in range(int(mapping.max()) + 1)]
    parts = [build.columns(hot, [int(v) for v in places]) for places in own]
    parts = [part if len(places) == 1 else build.total(part) for part, places in zip(parts, own)]
    if rest:
        frequent = build.total(build.side_by_side(parts[:-1])) if len(parts) > 1 else None
        last = build.op("Mul", parts[-1], build.constant(0.0)) if frequent is None else frequent
        parts[-1] = build.op("Sub", build.constant(1.0), last)
    return build.side_by_side(parts)


def _ordinal(build: Reader, e: Any, x: str) -> str:
    """The place of each column's value among its categories."""
    if e.handle_unknown != "error":
        raise refused(e, "unknown categories have a code", "Set handle_unknown='error', and fit it again.")
    parts = []
    for place, values in enumerate(_categories(e)):
        if (np.diff(values) <= 0).any():
            raise refused(e, f"categories of column {place} are not in rising order", "List them in rising order.")
        reached = build.total(build.flags("GreaterOrEqual", build.columns(x, [place]), values))
        parts.append(build.op("Sub", reached, build.constant(1.0)))
    return build.side_by_side(parts)


def _target_means(build: Reader, e: Any, x: str) -> str:
    """The mean of the target for each category, that of all rows for unknown ones."""
    if e.target_type_ == "multiclass":
        raise refused(e, "a target of several classes has several codes", "Use OneHotEncoder.")
    parts = []
    for place, (values, means) in enumerate(zip(_categories(e), e.encodings_)):
        hot = build.flags("Equal", build.columns(x, [place]), values)
        overall = float(e.target_mean_)
        parts.append(build.affine(hot, (np.asarray(means, np.float64) - overall)[None], overall))
    return build.side_by_side(parts)


def _bins(build: Reader, e: Any, x: str) -> str:
    """The bin of each column, as a number or as zeros and ones."""
    parts = []
    for place, edges in enumerate(e.bin_edges_):
        inner = np.asarray(edges, np.float64)[1:-1]
        column = build.columns(x, [place])
        if not len(inner):
            zero = build.op("Mul", column, build.constant(0.0))
            parts.append(zero if e.encode == "ordinal" else build.op("Add", zero, build.constant(1.0)))
            continue
        reached = build.flags("GreaterOrEqual", column, inner)
        if e.encode == "ordinal":
            parts.append(build.total(reached))
            continue
        last = len(inner) - 1
        parts.append(build.op("Sub", build.constant(1.0), build.columns(reached, [0])))
        if last:
            lower, upper = (build.columns(reached, list(range(i, last + i))) for i in (0, 1))
            parts.append(build.op("Sub", lower, upper))
        parts.append(build.columns(reached, [last]))
    return build.side_by_side(parts)


def _ones(build: Reader, column: str) -> str:
    """A column of ones."""
    return build.op("Add", build.op("Mul", column, build.constant(0.0)), build.constant(1.0))


def _binarizer(build: Reader, e: Any, x: str) -> str:
    return build.flags("Greater", x, float(e.threshold))


def _polynomial(build: Reader, e: Any, x: str) -> str:
    """Products of columns."""
    powers = np.asarray(e.powers_)
    degrees = powers.sum(axis=1)
    parts, order = [], []
    for degree in sorted(set(degrees.tolist())):
        rows = np.flatnonzero(degrees == degree)
        order += rows.tolist()
        if degree == 0:
            parts.append(_ones(build, build.columns(x, [0])))
            continue
        # the factors of each product, as columns
        factors = np.stack([np.repeat(np.arange(powers.shape[1]), powers[row]) for row in rows])
        product = build.columns(x, [int(v) for v in factors[:, 0]])
        for place in range(1, degree):
            product = build.op("Mul", product, build.columns(x, [int(v) for v in factors[:, place]]))
        parts.append(product)
    joined = build.side_by_side(parts)
    return joined if order == sorted(order) else build.columns(joined, np.argsort(order).tolist())


def function(build: Reader, e: Any, called: Any, x: str) -> str:
    """A function of NumPy of every element.

    Raises:
        UnsupportedModel: another function of Python.
    """
    name = called.__name__ if isinstance(called, np.ufunc) else ""
    if name == "log1p":
        return build.op("Log", build.op("Add", x, build.constant(1.0)))
    if name == "expm1":
        return build.op("Sub", build.op("Exp", x), build.constant(1.0))
    if name == "square":
        return build.op("Mul", x, x)
    if name in _FUNCTIONS:
        return build.op(_FUNCTIONS[name], x)
    raise refused(
        e,
        "of functions of Python, NumPy's own are read alone",
        f"Use one of these: numpy.{', numpy.'.join(sorted([*_FUNCTIONS, 'expm1', 'log1p', 'square']))}; or let clients "
        "compute it before inference.",
    )


def _called(build: Reader, e: Any, x: str) -> str:
    if e.func is None:
        return x
    if e.kw_args:
        raise refused(e, "a function with arguments is not read", "Compute it before inference, or use scalers.")
    return function(build, e, e.func, x)


def _powers(build: Reader, e: Any, x: str) -> str:
    """Yeo and Johnson's or Box and Cox's powers, column by column."""

    def power(base: str, exponent: float) -> str:
        """``(base^exponent - 1) / exponent``."""
        logarithm = build.op("Log", base)
        if abs(exponent) < 1e-12:
            return logarithm
        raised = build.op("Exp", build.op("Mul", logarithm, build.constant(exponent)))
        return build.op("Mul", build.op("Sub", raised, build.constant(1.0)), build.constant(1.0 / exponent))

    parts = []
    for place, exponent in enumerate(np.asarray(e.lambdas_, np.float64).tolist()):
        column = build.columns(x, [place])
        if e.method == "box-cox":
            parts.append(power(column, exponent))
            continue
        above = build.op("Add", build.op("Relu", column), build.constant(1.0))
        below = build.op("Add", build.op("Relu", build.op("Neg", column)), build.constant(1.0))
        parts.append(build.op("Sub", power(above, exponent), power(below, 2.0 - exponent)))
    joined = build.side_by_side(parts)
    return _standard(build, e._scaler, joined) if e.standardize else joined


def _random_waves(build: Reader, e: Any, x: str) -> str:
    """Random Fourier features of a Gaussian kernel."""
    turned = build.op("Cos", build.affine(x, dense(e.random_weights_).T, e.random_offset_))
    return build.op("Mul", turned, build.constant(float(np.sqrt(2.0 / dense(e.random_weights_).shape[1]))))


_FUNCTIONS = {
    "absolute": "Abs", "cos": "Cos", "exp": "Exp", "log": "Log", "negative": "Neg", "reciprocal": "Reciprocal",
    "sin": "Sin", "sqrt": "Sqrt", "tanh": "Tanh",
}  # fmt: skip
# by the name of the class
FEATURES: dict[str, Callable[[Reader, Any, str], str]] = {
    "Binarizer": _binarizer,
    "ColumnTransformer": _column_transformer,
    "FactorAnalysis": _factors,
    "FastICA": _components,
    "FeatureUnion": _union,
    "FunctionTransformer": _called,
    "GaussianRandomProjection": _components,
    "GenericUnivariateSelect": _selected,
    "IncrementalPCA": _pca,
    "KBinsDiscretizer": _bins,
    "MaxAbsScaler": _max_abs,
    "MinMaxScaler": _min_max,
    "NeighborhoodComponentsAnalysis": _components,
    "Normalizer": _normalizer,
    "OneHotEncoder": _one_hot,
    "OrdinalEncoder": _ordinal,
    "PCA": _pca,
    "PolynomialFeatures": _polynomial,
    "PowerTransformer": _powers,
    "RBFSampler": _random_waves,
    "RobustScaler": _robust,
    "SelectFdr": _selected,
    "SelectFpr": _selected,
    "SelectFromModel": _selected,
    "SelectFwe": _selected,
    "SelectKBest": _selected,
    "SelectPercentile": _selected,
    "SequentialFeatureSelector": _selected,
    "SimpleImputer": _imputer,
    "SparseRandomProjection": _components,
    "StandardScaler": _standard,
    "TargetEncoder": _target_means,
    "TruncatedSVD": _pca,
    "VarianceThreshold": _selected,
}
# estimators that answer at the end of a pipeline and prepare features in front of another step
BOTH: dict[str, Callable[[Reader, Any, str], str]] = {
    "LinearDiscriminantAnalysis": _discriminants,
    "PLSCanonical": _rotations,
    "PLSRegression": _rotations,
    "RFE": _selected,
    "RFECV": _selected,
}


def prepare(build: Reader, estimator: Any, x: str) -> str | None:
    """What a step makes of its features; None where it is no step that prepares any."""
    found = FEATURES.get(kind(estimator)) or BOTH.get(kind(estimator))
    return None if found is None else found(build, estimator, x)

"""Estimators of scikit-learn that prepare features, or are made of others: the same answers, clear and encrypted."""

from __future__ import annotations

import warnings
from typing import Any

import hushnet
import numpy as np
import pytest
from hushnet import frontend
from hushnet.reference.two_party import rehearse
from sklearn import datasets
from sklearn.calibration import CalibratedClassifierCV
from sklearn.cluster import KMeans
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor
from sklearn.cross_decomposition import PLSRegression
from sklearn.decomposition import PCA, FactorAnalysis, FastICA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis, QuadraticDiscriminantAnalysis
from sklearn.ensemble import (
    BaggingClassifier,
    BaggingRegressor,
    RandomForestClassifier,
    StackingClassifier,
    StackingRegressor,
    VotingClassifier,
    VotingRegressor,
)
from sklearn.feature_selection import RFE
from sklearn.impute import SimpleImputer
from sklearn.kernel_approximation import RBFSampler
from sklearn.linear_model import (
    GammaRegressor,
    LinearRegression,
    LogisticRegression,
    LogisticRegressionCV,
    PoissonRegressor,
    QuantileRegressor,
    RANSACRegressor,
    Ridge,
    SGDClassifier,
    TweedieRegressor,
)
from sklearn.multiclass import OneVsOneClassifier, OneVsRestClassifier
from sklearn.multioutput import MultiOutputClassifier, MultiOutputRegressor, RegressorChain
from sklearn.naive_bayes import BernoulliNB, CategoricalNB, ComplementNB, GaussianNB, MultinomialNB
from sklearn.neighbors import NearestCentroid
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import FeatureUnion, make_pipeline, make_union
from sklearn.preprocessing import (
    Binarizer,
    FunctionTransformer,
    KBinsDiscretizer,
    MinMaxScaler,
    OneHotEncoder,
    OrdinalEncoder,
    PolynomialFeatures,
    PowerTransformer,
    SplineTransformer,
    StandardScaler,
    TargetEncoder,
)
from sklearn.random_projection import GaussianRandomProjection
from sklearn.svm import SVC, SVR, LinearSVC

from tests.test_tabular import CANCER_X, CANCER_Y, IRIS_X, IRIS_Y, NAMES, TRUST, fitted, in_the_clear

RNG = np.random.default_rng(4)
# two columns of numbers that stand for categories, two of measurements
MIXED = np.column_stack([RNG.integers(0, 4, 150) * 10, RNG.choice([1.5, 2.5, 7.0], 150, p=[0.7, 0.25, 0.05]), IRIS_X])
HOLES = np.where(RNG.random(MIXED.shape) < 0.05, np.nan, MIXED)
COUNTS = np.rint(IRIS_X * 3)
TARGETS = np.stack([IRIS_X[:, 0] * 2 - IRIS_X[:, 3], IRIS_X[:, 2] + 1], axis=1)
FLAGS = np.stack([IRIS_Y == 1, IRIS_X[:, 0] > 5.8, IRIS_X[:, 3] > 1], axis=1).astype(int)


def columns(*, encoder: Any, **options: Any) -> ColumnTransformer:
    """The usual preprocessing of a table."""
    numbers = make_pipeline(SimpleImputer(strategy="median"), StandardScaler())
    return ColumnTransformer([("cat", encoder, [0, 1]), ("num", numbers, [2, 3, 5])], **options)


def filled(x: np.ndarray) -> np.ndarray:
    """Holes in columns of measurements alone."""
    return np.column_stack([MIXED[:, :2], x[:, 2:]])


CLASSIFIERS = {
    "one-hot": (make_pipeline(columns(encoder=OneHotEncoder()), LogisticRegression()), filled(HOLES)),
    "one-hot-drop": (make_pipeline(columns(encoder=OneHotEncoder(drop="first")), LogisticRegression()), MIXED),
    "one-hot-rare": (
        make_pipeline(
            columns(encoder=OneHotEncoder(min_frequency=0.2, handle_unknown="infrequent_if_exist")),
            LogisticRegression(),
        ),
        MIXED,
    ),
    "weighted-columns": (
        make_pipeline(columns(encoder="passthrough", transformer_weights={"num": 3.0}), LogisticRegression()),
        MIXED,
    ),
    "remainder": (
        make_pipeline(ColumnTransformer([("s", StandardScaler(), [3])], remainder="passthrough"), LogisticRegression()),
        MIXED,
    ),
    "ordinal": (make_pipeline(columns(encoder=OrdinalEncoder()), LogisticRegression()), MIXED),
    "bins": (make_pipeline(KBinsDiscretizer(4), LogisticRegression()), IRIS_X),
    "bins-ordinal": (make_pipeline(KBinsDiscretizer(3, encode="ordinal", strategy="uniform"), GaussianNB()), IRIS_X),
    "binarizer": (make_pipeline(Binarizer(threshold=3.0), LogisticRegression()), IRIS_X),
    "polynomial-scaled": (make_pipeline(StandardScaler(), PolynomialFeatures(2), LogisticRegression()), IRIS_X),
    "union": (
        make_pipeline(
            FeatureUnion(
                [("p", PCA(2, whiten=True)), ("s", StandardScaler()), ("x", "drop")], transformer_weights={"p": 2.0}
            ),
            LogisticRegressionCV(cv=3),
        ),
        IRIS_X,
    ),
    "powers": (make_pipeline(PowerTransformer(), LogisticRegression()), IRIS_X - 2),
    "box-cox": (make_pipeline(PowerTransformer("box-cox", standardize=False), LogisticRegression()), IRIS_X),
    "log": (make_pipeline(FunctionTransformer(np.log1p), StandardScaler(), LogisticRegression()), IRIS_X),
    "waves": (make_pipeline(StandardScaler(), RBFSampler(n_components=20, random_state=0), SGDClassifier()), IRIS_X),
    "projected": (make_pipeline(GaussianRandomProjection(3, random_state=0), LogisticRegression()), IRIS_X),
    "factors": (make_pipeline(make_union(FactorAnalysis(2), FastICA(2, random_state=0)), LogisticRegression()), IRIS_X),
    "discriminants": (make_pipeline(LinearDiscriminantAnalysis(), LogisticRegression()), IRIS_X),
    "gaussian": (GaussianNB(), IRIS_X),
    "multinomial": (MultinomialNB(), COUNTS),
    "complement": (ComplementNB(), COUNTS),
    "bernoulli": (BernoulliNB(binarize=3.0), IRIS_X),
    "categorical": (CategoricalNB(min_categories=25), COUNTS),
    "quadratic": (make_pipeline(StandardScaler(), QuadraticDiscriminantAnalysis()), IRIS_X),
    "calibrated": (CalibratedClassifierCV(make_pipeline(StandardScaler(), LinearSVC()), cv=3), IRIS_X),
    "calibrated-isotonic": (CalibratedClassifierCV(GaussianNB(), method="isotonic", cv=2), IRIS_X),
    "voting": (VotingClassifier([("l", LogisticRegression()), ("g", GaussianNB())], voting="soft"), IRIS_X),
    "voting-weights": (
        VotingClassifier([("l", LogisticRegression()), ("g", GaussianNB())], voting="soft", weights=[3, 1]),
        IRIS_X,
    ),
    "bagging": (
        BaggingClassifier(LogisticRegression(), n_estimators=3, max_features=0.5, random_state=0),
        IRIS_X,
    ),
    "stacking": (StackingClassifier([("l", LogisticRegression()), ("s", LinearSVC())], cv=2), IRIS_X),
    "stacking-passthrough": (StackingClassifier([("g", GaussianNB())], cv=2, passthrough=True), IRIS_X),
    "voting-hard": (VotingClassifier([("l", LogisticRegression()), ("s", LinearSVC()), ("g", GaussianNB())]), IRIS_X),
    "voting-hard-weights": (
        VotingClassifier([("l", LogisticRegression()), ("g", GaussianNB())], weights=[1, 2]),
        IRIS_X,
    ),
    "bagging-votes": (BaggingClassifier(LinearSVC(), n_estimators=5, random_state=0), IRIS_X),
    "pairs": (OneVsOneClassifier(LinearSVC()), IRIS_X),
    "pairs-chances": (OneVsOneClassifier(GaussianNB()), IRIS_X),
    "eliminated": (RFE(LogisticRegression(), n_features_to_select=2), IRIS_X),
}  # fmt: skip


@pytest.mark.parametrize("name", CLASSIFIERS)
@pytest.mark.parametrize("classes", [2, 3])
def test_a_classifier_gives_what_scikit_learn_does(name: str, classes: int) -> None:
    model, x = CLASSIFIERS[name]
    kept = np.flatnonzero((IRIS_Y > 0) | (classes == 3))
    x, y = x[kept], NAMES[kept]
    model = fitted(model, x, y)
    x = x[1::2]
    got = in_the_clear(frontend.sklearn_model(model), x)
    np.testing.assert_array_equal(got.label, model.predict(x))
    if "probabilities" in got.outputs:
        want = model.predict_proba(x)
    elif hasattr(model, "decision_function"):
        want = model.decision_function(x)
        want = np.stack([-want, want], axis=1) if want.ndim == 1 else want
    else:
        # hard votes: shares of them
        want = np.mean([np.eye(classes)[v] for v in model.transform(x).T], axis=0) if model.weights is None else None
    by_class = got.by_class()
    if want is not None:
        np.testing.assert_allclose(np.stack(list(by_class.values()), axis=1), want, rtol=1e-6, atol=1e-6)
    assert list(by_class) == list(model.classes_)


REGRESSORS = {
    "polynomial": (make_pipeline(PolynomialFeatures(3, interaction_only=True, include_bias=False), Ridge()), TARGETS),
    "poisson": (make_pipeline(StandardScaler(), PoissonRegressor()), IRIS_Y),
    "gamma": (GammaRegressor(), IRIS_Y + 1.0),
    "tweedie": (TweedieRegressor(power=0), IRIS_Y),
    "quantile": (QuantileRegressor(alpha=0.01), IRIS_X[:, 0]),
    "latent": (PLSRegression(2), TARGETS),
    "voting": (VotingRegressor([("a", Ridge()), ("b", make_pipeline(StandardScaler(), Ridge(5)))]), IRIS_X[:, 0]),
    "bagging": (BaggingRegressor(Ridge(), n_estimators=3, random_state=1), TARGETS),
    "stacking": (StackingRegressor([("a", Ridge()), ("b", PLSRegression(1))], cv=2), IRIS_X[:, 0]),
    "chain": (RegressorChain(Ridge(), order=[1, 0]), TARGETS),
    "chain-of-pipelines": (RegressorChain(make_pipeline(StandardScaler(), Ridge()), order=[1, 0]), TARGETS),
    "several-targets": (MultiOutputRegressor(SVR(kernel="linear")), TARGETS),
    "consensus": (RANSACRegressor(LinearRegression(), random_state=0), IRIS_X[:, 2] * 2),
    "log-target": (TransformedTargetRegressor(Ridge(), func=np.log1p, inverse_func=np.expm1), IRIS_X[:, 0]),
    "scaled-target": (TransformedTargetRegressor(Ridge(), transformer=MinMaxScaler()), TARGETS),
    "target-codes": (
        make_pipeline(ColumnTransformer([("t", TargetEncoder(cv=2, random_state=0), [0])], remainder="passthrough"),
                      Ridge()),
        IRIS_X[:, 0] * 2,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REGRESSORS)
def test_a_regressor_gives_what_scikit_learn_does(name: str) -> None:
    model, y = REGRESSORS[name]
    x = COUNTS if name == "target-codes" else IRIS_X
    model = fitted(model, x, y)
    want = model.predict(x[1::2])
    got = in_the_clear(frontend.sklearn_model(model), x[1::2]).output
    np.testing.assert_allclose(got.reshape(want.shape), want, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("trust", ["client-aided", "two-party", "non-interactive"])
@pytest.mark.parametrize("several", [MultiOutputRegressor, RegressorChain])
def test_targets_of_several_regressors_count_each_by_itself(several: Any, trust: str) -> None:
    """A target of 300 +- 2 beside one of some hundreds: side by side, none of them was known to be one."""
    x = IRIS_X[1::2]
    targets = np.stack([100.0 * IRIS_X[:, 2], 300.0 + IRIS_X[:, 0]], axis=1)
    model = fitted(make_pipeline(StandardScaler(), several(Ridge())), IRIS_X, targets)
    want = model.predict(x)
    predicted = (plan := hushnet.from_sklearn(model, calibration=IRIS_X[::2], trust=trust)).plan.predicted
    off = np.abs(hushnet.run(plan, x).output - want).max(axis=0)
    reach = np.abs(want - [0.0, want[:, 1].mean()]).max(axis=0)
    assert (off < 1.2 * predicted["output_errors"]["predict"]["column_error"] * reach).all()
    said = any("does not reach the precision" in note for note in plan.plan.document["notes"])
    # without interaction 300 and 2 share the bits of one modulus, and the plan says so
    assert said if trust == "non-interactive" else (off < 2.0**-7 * reach).all()


def test_a_cluster_is_the_nearest_centre() -> None:
    model = KMeans(4, n_init=1, random_state=0).fit(IRIS_X)
    np.testing.assert_array_equal(in_the_clear(frontend.sklearn_model(model), IRIS_X).label, model.predict(IRIS_X))
    centroids = NearestCentroid(priors="empirical").fit(IRIS_X[30:], NAMES[30:])
    got = in_the_clear(frontend.sklearn_model(centroids), IRIS_X).label
    np.testing.assert_array_equal(got, centroids.predict(IRIS_X))


def test_several_targets_have_labels_of_their_own() -> None:
    wanted = np.column_stack([NAMES, np.where(IRIS_X[:, 0] > 5.8, "long", "short")])
    model = MultiOutputClassifier(make_pipeline(StandardScaler(), LogisticRegression())).fit(IRIS_X, wanted)
    got = in_the_clear(frontend.sklearn_model(model), IRIS_X)
    assert list(got.labels) == ["probabilities_0", "probabilities_1"]
    np.testing.assert_array_equal(np.column_stack(list(got.labels.values())), model.predict(IRIS_X))
    with pytest.raises(ValueError, match=r"labels\['probabilities_0'\]"):
        _ = got.label


@pytest.mark.parametrize("model", [MLPClassifier((5,), max_iter=5), OneVsRestClassifier(LogisticRegression())])
def test_several_labels_a_row_are_a_column_each(model: Any) -> None:
    model = fitted(model, IRIS_X, FLAGS)
    got = in_the_clear(frontend.sklearn_model(model), IRIS_X)
    np.testing.assert_allclose(got.output, model.predict_proba(IRIS_X), atol=1e-9)
    assert not got.labels


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (OneHotEncoder(), ("column 0 holds text ('setosa'", "calibration=pipeline[:-1].transform(x)")),
        (ColumnTransformer([("c", OneHotEncoder(), [0])]), ("holds text", "pipeline[-1]")),
        (FunctionTransformer(), ()),
    ],
)
def test_text_is_encoded_by_the_client(step: Any, words: tuple[str, ...]) -> None:
    x = NAMES.reshape(-1, 1)
    if not words:
        step, words, x = FunctionTransformer(np.cbrt), ("numpy.log1p", "let clients compute it"), IRIS_X
    with pytest.raises(hushnet.UnsupportedModel) as caught:
        hushnet.from_sklearn(make_pipeline(step, LogisticRegression()).fit(x, NAMES))
    assert all(word in str(caught.value) for word in words)


def test_a_first_step_that_is_not_read_is_left_to_clients() -> None:
    pipeline = make_pipeline(SplineTransformer(3), StandardScaler(), LogisticRegression()).fit(IRIS_X, NAMES)
    with pytest.raises(hushnet.UnsupportedModel, match=r"SplineTransformer.*from_sklearn\(pipeline\[1:\], calibration"):
        hushnet.from_sklearn(pipeline)
    made = pipeline[:1].transform(IRIS_X)
    plan = hushnet.from_sklearn(pipeline[1:], calibration=made, batch=8)
    np.testing.assert_array_equal(hushnet.run(plan, made[::10]).label, pipeline.predict(IRIS_X[::10]))


def test_what_the_message_advises_works() -> None:
    x = np.column_stack([NAMES[::-1], np.where(IRIS_X[:, 0] > 6, "a", "b")])
    pipeline = make_pipeline(OneHotEncoder(), LogisticRegression()).fit(x, NAMES)
    # a sparse matrix, as encoders give it, and what a table of several types becomes
    plan = hushnet.from_sklearn(pipeline[-1], calibration=pipeline[:-1].transform(x), batch=8)
    encoded, want = pipeline[:-1].transform(x[::10]), pipeline.predict(x[::10])
    np.testing.assert_array_equal(hushnet.run(plan, encoded).label, want)
    np.testing.assert_array_equal(hushnet.run(plan, encoded.toarray().astype(object)).label, want)
    with pytest.raises(hushnet.InputError, match="has dtype <U10, wanted"):
        hushnet.run(plan, x[::10])


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (VotingClassifier([("t", RandomForestClassifier(2))], voting="soft"), ("RandomForestClassifier", "thresholds")),
        (StackingClassifier([("l", LogisticRegression())], stack_method="predict"), ("labels alone",)),
        (make_pipeline(OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1), LogisticRegression()),
         ("handle_unknown='error'",)),
        (NearestCentroid(metric="manhattan"), ("metric='euclidean'",)),
    ],
)  # fmt: skip
def test_what_cannot_be_evaluated_says_what_can(model: Any, words: tuple[str, ...]) -> None:
    with pytest.raises(hushnet.UnsupportedModel) as caught:
        hushnet.from_sklearn(fitted(model, IRIS_X, IRIS_Y))
    assert all(word in str(caught.value) for word in words)


ENCRYPTED = {
    "one-hot": ("client-aided", "two-party", "non-interactive"),
    "gaussian": ("client-aided", "two-party", "non-interactive"),
    "polynomial-scaled": ("client-aided", "two-party", "non-interactive"),
    "calibrated": ("client-aided", "two-party", "non-interactive"),
}


@pytest.mark.parametrize(("name", "trust"), [(n, t) for n, trusts in ENCRYPTED.items() for t in trusts])
def test_encrypted_answers_are_the_classes(name: str, trust: str) -> None:
    model, x = CLASSIFIERS[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = model.fit(x[::2], NAMES[::2])
    plan = hushnet.from_sklearn(model, trust=trust, calibration=x[::2], batch=4)
    rows = x[1::36]
    result = hushnet.run(plan, rows)
    want = model.predict_proba(rows)
    np.testing.assert_allclose(np.stack(list(result.by_class().values()), axis=1), want, atol=0.02)
    assert (result.label == model.predict(rows))[np.sort(want)[:, -1] > 0.6].all()


MEMBERS = {
    "soft": VotingClassifier([("l", LogisticRegression()), ("m", LogisticRegression(C=0.1))], voting="soft"),
    "hard": VotingClassifier([("l", LogisticRegression()), ("s", LinearSVC()), ("d", LinearDiscriminantAnalysis())]),
    "bagged": BaggingClassifier(LogisticRegression(), n_estimators=4, random_state=0),
    "votes": BaggingClassifier(LinearSVC(), n_estimators=4, random_state=0),
    "pairs": SVC(kernel="linear"),
}


@pytest.mark.parametrize("trust", ["client-aided", "two-party", "non-interactive"])
@pytest.mark.parametrize("name", MEMBERS)
def test_members_behind_a_scaler_answer_in_every_trust_model(name: str, trust: str) -> None:
    """A mean of probabilities, votes, and what scores of pairs of classes say."""
    x = IRIS_X * np.array([0.01, 100.0, 1.0, 5.0])
    model = fitted(make_pipeline(StandardScaler(), MEMBERS[name]), x[::2], NAMES[::2])
    plan = hushnet.from_sklearn(model, trust=trust, calibration=x[::2], batch=16)
    predicted, rows = plan.plan.predicted, x[1::5]
    assert predicted["precision"]["reached"] >= 7 and predicted.get("stay", 1.0) >= 0.995 and not plan.shortfalls
    result = hushnet.run(plan, rows)
    assert (result.label == model.predict(rows)).mean() >= 0.98
    if name in ("soft", "bagged"):
        np.testing.assert_allclose(result.output, model.predict_proba(rows), atol=0.02)


@pytest.mark.parametrize("trust", ["client-aided", "two-party", "non-interactive"])
def test_labels_of_votes_are_expected_to_stay_by_how_near_votes_are(trust: str) -> None:
    """A place of a largest vote says nothing of how near the votes were: too few bits got one label of fifty wrong."""
    order = np.random.default_rng(1).permutation(150)
    x, y = IRIS_X[order], NAMES[order]
    model = fitted(SVC(kernel="linear"), x[:100], y[:100])
    plan = hushnet.from_sklearn(model, trust=trust, calibration=x[:100], batch=16)
    assert plan.plan.predicted["max_error"] < 0.05 and plan.plan.predicted["precision"]["reached"] >= 7
    np.testing.assert_array_equal(hushnet.run(plan, x[100:]).label, model.predict(x[100:]))


@pytest.mark.parametrize("trust", ["client-aided", "two-party"])
def test_coarse_probabilities_of_large_scores_say_why(trust: str) -> None:
    """Logarithms of likelihoods reach hundreds, and differences of a hundredth decide where classes are even."""
    model = fitted(make_pipeline(StandardScaler(), LogisticRegression(C=1e9, max_iter=9000)), CANCER_X, CANCER_Y)
    plan = hushnet.from_sklearn(model, trust=trust, calibration=CANCER_X[::2], precision=14)
    (said,) = plan.shortfalls
    assert (
        "made of scores that reach" in said and "14 bits of a probability take 2" in said and "weight_bits" not in said
    )
    assert plan.plan.predicted["score_range"] > 64


@pytest.mark.parametrize("trust", ["client-aided", "two-party", "non-interactive"])
def test_arrays_in_the_order_of_columns_are_read_row_by_row(trust: str) -> None:
    """A selection of columns, or a transpose, often lies in memory column by column: answers were wrong once."""
    model = fitted(LogisticRegression(), IRIS_X, NAMES)
    plan = hushnet.from_sklearn(model, trust=trust, calibration=np.asfortranarray(IRIS_X), batch=4)
    rows = np.asfortranarray(IRIS_X[::15])
    assert not rows.flags.c_contiguous
    for x in (rows, rows.astype(np.float32, order="F")):
        np.testing.assert_array_equal(hushnet.run(plan, x).label, model.predict(rows))


@pytest.mark.parametrize("trust", ["client-aided", "two-party"])
def test_products_of_raw_columns_have_factors_of_their_own(trust: str) -> None:
    """Products of features of 0.1 and 1000 differ by 10^8 in size."""
    x = IRIS_X * np.array([0.01, 100.0, 1.0, 5.0])
    model = make_pipeline(PolynomialFeatures(2), StandardScaler(), Ridge()).fit(x[::2], IRIS_X[::2, 0] * IRIS_X[::2, 3])
    plan = hushnet.from_sklearn(model, trust=trust, calibration=x[::2], batch=8)
    want = model.predict(x[1::2])
    assert plan.plan.predicted["precision"]["reached"] >= 7
    assert np.abs(hushnet.run(plan, x[1::2]).output.reshape(-1) - want).max() <= 2.0**-7 * np.abs(want).max()


def test_rows_and_places_that_are_not_finite_are_named() -> None:
    plan = fitted(LogisticRegression(), IRIS_X, NAMES)
    x = IRIS_X.copy()
    x[[3, 7], 2] = np.nan
    with pytest.raises(hushnet.PlanError, match=r"2 of 150 rows \(the first is row 3\), at places 2 of a row.*Imputer"):
        hushnet.from_sklearn(plan, calibration=x)


WINE_X, WINE_Y = datasets.load_wine(return_X_y=True)


@pytest.mark.parametrize("trust", TRUST)
@pytest.mark.parametrize(
    ("model", "x", "y"),
    [
        (GaussianNB(), IRIS_X, NAMES),
        (GaussianNB(), CANCER_X, CANCER_Y),
        (QuadraticDiscriminantAnalysis(), WINE_X, WINE_Y),
    ],
    ids=["gaussian", "two-classes", "quadratic"],
)
def test_likelihoods_of_far_classes_cost_near_ones_nothing(trust: str, model: Any, x: Any, y: Any) -> None:
    """Scores reach hundreds where a class has no chance: a scale for all of them left even classes 4 bits."""
    model = fitted(model, x, y)
    plan = hushnet.from_sklearn(model, trust=trust, calibration=x[::2])
    rows = x[1::2][:24]
    result = hushnet.run(plan, rows)
    np.testing.assert_array_equal(result.label, model.predict(rows))
    off = np.abs(result.output - model.predict_proba(rows)).max()
    reached = plan.plan.predicted["precision"]["reached"]
    # quadratic discriminants of 45 rows of 13 features are large
    assert off <= plan.plan.predicted["max_error"] <= 2.0**-4.4 and reached >= 4.4
    if trust == "client-aided":
        assert reached >= 6.5
    if trust == "two-party":
        # rings of 28 bits left them 4.5 to 6.5 bits; a ring of 36 has room for biases, inputs and what is opened
        assert reached >= 7 and not plan.shortfalls
        assert plan.plan.document["params"]["two_party"]["ring_bits"] == 36


def test_the_widest_ring_is_the_last_choice_and_is_no_users_choice_taken_from_them() -> None:
    model = fitted(make_pipeline(StandardScaler(), LogisticRegression()), WINE_X, WINE_Y)
    near = hushnet.from_sklearn(model, trust="two-party", calibration=WINE_X[::2])
    assert near.plan.document["params"]["two_party"]["ring_bits"] <= 28
    far = fitted(GaussianNB(), WINE_X, WINE_Y)
    for given in ({"method": "cheetah"}, {"ring_bits": 28}, {"activation_bits": 12}):
        plan = hushnet.from_sklearn(far, trust="two-party", calibration=WINE_X[::2], **given)
        assert plan.plan.document["params"]["two_party"]["ring_bits"] <= 28 and plan.shortfalls
    for batch in (1, 64):
        plan = hushnet.from_sklearn(far, trust="two-party", calibration=WINE_X[::2], batch=batch)
        assert plan.plan.predicted["precision"]["reached"] >= 7, batch


@pytest.mark.parametrize(("x", "y"), [(IRIS_X, NAMES), (WINE_X, WINE_Y)], ids=["iris", "wine"])
def test_statements_of_likelihoods_hold_on_many_rows(x: Any, y: Any) -> None:
    """Rows as the model says that they are spread: of three classes, of which two overlap."""
    rng = np.random.default_rng(8)
    model = fitted(GaussianNB(), x, y)
    plan = hushnet.from_sklearn(model, trust="two-party", calibration=x[::2])
    which = rng.integers(0, len(model.theta_), 5000)
    rows = rng.normal(model.theta_[which], np.sqrt(model.var_[which]))
    rows = rows[((rows >= x.min(axis=0)) & (rows <= x.max(axis=0))).all(axis=1)]
    assert len(rows) > 2000
    found, _ = rehearse(plan.plan, {"features": rows}, rng)
    off = np.abs(found["probabilities"] - model.predict_proba(rows)).max(axis=1)
    stated = plan.plan.predicted["max_error"]
    assert (off > stated).mean() <= 0.001 and stated < 2.0**-7


@pytest.mark.parametrize("trust", TRUST)
def test_a_row_that_no_class_claims_has_the_probabilities_of_its_likeliest(trust: str) -> None:
    """Sigmoids that are all near zero, divided by their sum: its errors were as large as the quotient."""
    model = fitted(make_pipeline(StandardScaler(), SGDClassifier(loss="log_loss", random_state=0)), WINE_X, WINE_Y)
    plan = hushnet.from_sklearn(model, trust=trust, calibration=WINE_X[::2])
    rows = WINE_X[1::2][:40]
    off = np.abs(hushnet.run(plan, rows).output - model.predict_proba(rows)).max(axis=1)
    assert (off <= plan.plan.predicted["max_error"]).all()

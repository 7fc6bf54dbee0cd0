"""scikit-learn's estimators and their ONNX: the same answers in the clear, and encrypted in every trust model."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import hushnet
import numpy as np
import onnx
import onnxruntime as ort
import pytest
from hushnet import frontend, passes
from hushnet.reference.float import evaluate
from onnx import TensorProto, helper
from sklearn import datasets
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.ensemble import GradientBoostingClassifier, RandomForestClassifier
from sklearn.feature_selection import SelectKBest
from sklearn.impute import SimpleImputer
from sklearn.linear_model import Lasso, LinearRegression, LogisticRegression, Perceptron, RidgeClassifier, SGDClassifier
from sklearn.model_selection import GridSearchCV
from sklearn.multiclass import OneVsRestClassifier
from sklearn.multioutput import MultiOutputRegressor
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, Normalizer, RobustScaler, StandardScaler
from sklearn.svm import SVC, SVR, LinearSVC, LinearSVR
from sklearn.tree import DecisionTreeClassifier

IRIS_X, IRIS_Y = datasets.load_iris(return_X_y=True)
NAMES = np.array(["setosa", "versicolor", "virginica"])[IRIS_Y]
CANCER_X, CANCER_Y = datasets.load_breast_cancer(return_X_y=True)
HOLES = np.where(np.random.default_rng(0).random(IRIS_X.shape) < 0.05, np.nan, IRIS_X)
TARGETS = np.stack([IRIS_Y, 3 * IRIS_X[:, 0]], axis=1)
TRUST = ("client-aided", "two-party", "non-interactive")


def fitted(model: Any, x: np.ndarray, y: np.ndarray) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(x[::2], y[::2])


def in_the_clear(model: onnx.ModelProto, x: np.ndarray) -> hushnet.Result:
    """The graph in binary64, read as a run's result is."""
    graph, ports = frontend.read(model)
    name = graph.inputs[0]
    fill = ports.missing.get(name)
    x = x if fill is None else np.where(np.isnan(x), fill, x)
    return hushnet.Result(
        evaluate(passes.default(graph), {name: x}), {}, {k: c.entry() for k, c in ports.classes.items()}
    )


CLASSIFIERS = {
    "multinomial": (make_pipeline(StandardScaler(), LogisticRegression()), IRIS_X, NAMES),
    "binary": (make_pipeline(MinMaxScaler(clip=True), LogisticRegression()), CANCER_X, CANCER_Y),
    "one-vs-rest": (make_pipeline(Normalizer(), OneVsRestClassifier(LogisticRegression())), IRIS_X, IRIS_Y),
    "one-vs-rest-svm": (make_pipeline(Normalizer("l1"), OneVsRestClassifier(LinearSVC())), IRIS_X, IRIS_Y),
    "imputed": (make_pipeline(SimpleImputer(), PCA(2, whiten=True), LinearSVC()), HOLES, IRIS_Y),
    "linear-svm": (make_pipeline(RobustScaler(), LinearSVC()), CANCER_X, CANCER_Y),
    "svc": (make_pipeline(StandardScaler(), SVC(kernel="linear")), CANCER_X, CANCER_Y),
    "svc-pairs": (SVC(kernel="linear"), IRIS_X, NAMES),
    "svc-ties": (SVC(kernel="linear", break_ties=True), IRIS_X, IRIS_Y),
    "sgd": (make_pipeline(StandardScaler(), SGDClassifier(loss="log_loss")), IRIS_X, IRIS_Y),
    "lda": (LinearDiscriminantAnalysis(), IRIS_X, IRIS_Y),
    "lda-binary": (LinearDiscriminantAnalysis(), CANCER_X, CANCER_Y),
    "ridge": (RidgeClassifier(), CANCER_X, CANCER_Y),
    "booleans": (make_pipeline(MaxAbsScaler(), Perceptron()), CANCER_X, CANCER_Y > 0),
    "floats": (make_pipeline(StandardScaler(), LogisticRegression()), IRIS_X, (IRIS_Y > 0).astype(float)),
    "search": (GridSearchCV(LogisticRegression(max_iter=50), {"C": [0.1, 1.0]}, cv=2), IRIS_X, IRIS_Y),
    "columns": (
        make_pipeline(
            ColumnTransformer([("a", StandardScaler(), [2, 0]), ("b", "drop", [1])], remainder="passthrough"),
            SelectKBest(k=2),
            TruncatedSVD(1),
            LogisticRegression(),
        ),
        IRIS_X,
        IRIS_Y,
    ),
} | {
    f"mlp-{activation}-{len(set(y))}": (
        make_pipeline(StandardScaler(), MLPClassifier((8, 5), activation=activation, max_iter=20)),
        x,
        y,
    )
    for activation in ("relu", "tanh", "logistic", "identity")
    for x, y in ((IRIS_X, NAMES), (CANCER_X, CANCER_Y))
}


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_a_classifier_gives_what_scikit_learn_does(name: str) -> None:
    model = fitted(*CLASSIFIERS[name])
    x = CLASSIFIERS[name][1][1::2]
    got = in_the_clear(frontend.sklearn_model(model), x)
    np.testing.assert_array_equal(got.label, model.predict(x))
    if "probabilities" in got.outputs:
        want = model.predict_proba(x)
    else:
        want = model.decision_function(x)
        want = np.stack([-want, want], axis=1) if want.ndim == 1 else want
    by_class = got.by_class()
    np.testing.assert_allclose(np.stack(list(by_class.values()), axis=1), want, rtol=1e-6, atol=1e-6)
    assert list(by_class) == list(model.classes_)


REGRESSORS = {
    "linear": (LinearRegression(), TARGETS),
    "lasso": (MultiOutputRegressor(Lasso(0.01)), TARGETS),
    "svr": (make_pipeline(StandardScaler(), SVR(kernel="linear")), IRIS_Y),
    "linear-svr": (LinearSVR(), IRIS_Y),
    "mlp": (MLPRegressor(activation="tanh", max_iter=20), TARGETS),
    "mlp-one": (MLPRegressor(activation="relu", max_iter=20), IRIS_Y),
}


@pytest.mark.parametrize("name", REGRESSORS)
def test_a_regressor_gives_what_scikit_learn_does(name: str) -> None:
    model, y = REGRESSORS[name]
    model = fitted(model, IRIS_X, y)
    want = model.predict(IRIS_X[1::2])
    got = in_the_clear(frontend.sklearn_model(model), IRIS_X[1::2]).output
    np.testing.assert_allclose(got.reshape(want.shape), want, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("trust", TRUST)
@pytest.mark.parametrize("reveal", [False, True])
def test_encrypted_answers_are_the_classes(trust: str, reveal: bool, tmp_path: Path) -> None:
    if reveal and trust != "two-party":
        pytest.skip("only two-party plans open an index")
    model = fitted(make_pipeline(SimpleImputer(), Normalizer(), LogisticRegression(C=100.0)), HOLES, NAMES)
    x = HOLES[1:30:2] if trust == "two-party" else HOLES[1::2]
    options = {"reveal": "argmax"} if reveal else {}
    plan = hushnet.compile(
        frontend.sklearn_model(model), trust=trust, calibration=HOLES[::2], batch=len(x) if not reveal else 1, **options
    )
    plan.save(tmp_path / "model.hush")
    plan = hushnet.Model.load(tmp_path / "model.hush")
    result = hushnet.run(plan, x)
    want = model.predict_proba(x)
    if not reveal:
        np.testing.assert_allclose(result.outputs["probabilities"], want, atol=0.03)
    clear = np.sort(want, axis=1)[:, -1] - np.sort(want, axis=1)[:, -2] > 0.1
    assert clear.mean() > 0.8
    np.testing.assert_array_equal(result.label[clear], model.predict(x)[clear])
    # a client that has the public part alone fills in and names the classes too
    server = hushnet.serve(plan)
    try:
        with hushnet.connect(f"hush://127.0.0.1:{server.port}") as client:
            np.testing.assert_array_equal(client.infer(x).label[clear], model.predict(x)[clear])
    finally:
        server.stop()


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (DecisionTreeClassifier(), ("thresholds", "Concrete ML")),
        (RandomForestClassifier(2), ("thresholds", "Concrete ML")),
        (GradientBoostingClassifier(n_estimators=2), ("thresholds", "Concrete ML")),
        (KNeighborsClassifier(2), ("distances", "Concrete ML")),
        (SVC(), ("linear kernels", "kernel='linear'")),
        (SVR(), ("linear kernels", "kernel='linear'")),
    ],
)
def test_what_cannot_be_evaluated_is_refused_by_name(model: Any, words: tuple[str, ...]) -> None:
    model = fitted(make_pipeline(StandardScaler(), model), IRIS_X, IRIS_Y)
    with pytest.raises(hushnet.HushnetError) as caught:
        hushnet.from_sklearn(model)
    assert all(word in str(caught.value) for word in (type(model.steps[-1][1]).__name__, *words))
    with pytest.raises(hushnet.HushnetError, match="not fitted"):
        hushnet.from_sklearn(LogisticRegression())


# What skl2onnx 1.20 writes, node by node: (operator, inputs, outputs, attributes); domain ai.onnx.ml unless it is a
# standard operator.
STANDARD = {
    "Cast",
    "Flatten",
    "Floor",
    "Gather",
    "Identity",
    "ArgMax",
    "Reshape",
    "MatMul",
    "Add",
    "Mul",
    "Concat",
    "Div",
    "ReduceSum",
    "Slice",
    "Softmax",
    "Relu",
}
W = np.random.default_rng(1).normal(size=(3, 4)).astype(np.float32)
PLACE = np.array([1], np.int64)


def written(
    nodes: list[tuple[str, list[str], list[str], dict[str, Any]]],
    outputs: list[str],
    inputs: tuple[tuple[str, int], ...] = (("X", 4),),
    **constants: np.ndarray,
) -> onnx.ModelProto:
    made = [
        helper.make_node(k, i, o, name=f"n{n}", domain="" if k in STANDARD else "ai.onnx.ml", **a)
        for n, (k, i, o, a) in enumerate(nodes)
    ]
    ports = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [None, w]) for n, w in inputs]
    tensors = [
        helper.make_tensor(n, TensorProto.STRING, v.shape, [s.encode() for s in v.ravel()])
        if v.dtype.kind == "U"
        else onnx.numpy_helper.from_array(v, n)
        for n, v in constants.items()
    ]
    graph = helper.make_graph(made, "written", ports, [onnx.ValueInfoProto(name=n) for n in outputs], tensors)
    graph = onnx.ModelProto(graph=graph, ir_version=8)
    graph.opset_import.extend([helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 1)])
    return graph


def linear(transform: str, classes: int = 3, **more: Any) -> tuple[str, list[str], list[str], dict[str, Any]]:
    weight = W[:classes] if classes > 2 else np.stack([-W[0], W[0]])
    bias = [0.3, -0.2, 0.1] if classes > 2 else [-0.3, 0.3]
    return (
        "LinearClassifier", ["S"], ["label", "raw"],
        {"coefficients": weight.ravel().tolist(), "intercepts": bias, "post_transform": transform, **more},
    )  # fmt: skip


SCALER = ("Scaler", ["X"], ["S"], {"offset": [5.0, 3.0, 4.0, 1.0], "scale": [1.2, 2.0, 0.5, 1.3]})
TEXT = {"classlabels_strings": ["a", "b", "c"]}
SVM = {
    "classlabels_ints": [0, 1, 2], "coefficients": [1.0, 0.5, -0.7, 0.2, -1.0, 0.4, -0.3, 0.9],
    "kernel_params": [0.1, 0.0, 3.0], "kernel_type": "LINEAR", "post_transform": "NONE", "rho": [0.3, -0.1, 0.2],
    "support_vectors": [*W.ravel().tolist(), 1.0, -1.0, 0.5, 0.2],
    "vectors_per_class": [1, 2, 1],
}  # fmt: skip
SVM2 = SVM | {
    "classlabels_ints": [5, 7], "coefficients": [1.0, 0.5, -0.7, 0.2], "rho": [0.3], "vectors_per_class": [2, 2]
}  # fmt: skip
EXPORTS: dict[str, tuple[onnx.ModelProto, dict[str, str]]] = {
    "multinomial": (
        written(
            [
                SCALER,
                linear("SOFTMAX", **TEXT),
                ("Identity", ["label"], ["output_label"], {}),
                ("Normalizer", ["raw"], ["probabilities"], {"norm": "L1"}),
                ("ZipMap", ["probabilities"], ["output_probability"], TEXT),
            ],
            ["output_label", "output_probability"],
        ),
        {"output_probability": "columns"},
    ),
    "one-vs-rest": (
        written(
            [
                SCALER,
                linear("LOGISTIC", classlabels_ints=[3, 4, 9]),
                ("Cast", ["label"], ["output_label"], {"to": 7}),
                ("Normalizer", ["raw"], ["probabilities"], {"norm": "L1"}),
                ("ZipMap", ["probabilities"], ["output_probability"], {"classlabels_int64s": [3, 4, 9]}),
            ],
            ["output_label", "output_probability"],
        ),
        {"output_probability": "columns"},
    ),
    "binary-score": (
        written(
            [
                SCALER,
                linear("NONE", 2, classlabels_ints=[0, 1]),
                ("ArrayFeatureExtractor", ["raw", "place"], ["probabilities"], {}),
            ],
            ["label", "probabilities"],
            place=PLACE,
        ),
        {"probabilities": "sign"},
    ),
    "perceptron": (
        written(
            [
                ("MatMul", ["X", "w"], ["t0"], {}),
                ("Relu", ["t0"], ["t1"], {}),
                ("MatMul", ["t1", "v"], ["t2"], {}),
                ("Softmax", ["t2"], ["p"], {}),
                ("ArgMax", ["p"], ["best"], {"axis": 1}),
                ("ZipMap", ["p"], ["output_probability"], TEXT),
                ("ArrayFeatureExtractor", ["classes", "best"], ["name"], {}),
                ("Reshape", ["name", "flat"], ["label"], {}),
                ("Identity", ["label"], ["output_label"], {}),
            ],
            ["output_label", "output_probability"],
            w=W.T.copy(),
            v=W[:, :3].copy(),
            classes=np.array(["a", "b", "c"]),
            flat=np.array([-1], np.int64),
        ),
        {"output_probability": "columns"},
    ),
    "support-vectors": (
        written([("SVMClassifier", ["X"], ["label", "scores"], SVM)], ["label", "scores"]),
        {"label": "index"},
    ),
    "support-vectors-binary": (
        written(
            [
                ("SVMClassifier", ["X"], ["label", "s"], SVM2),
                ("ZipMap", ["s"], ["output_probability"], {"classlabels_int64s": [5, 7]}),
            ],
            ["label", "output_probability"],
        ),
        {"label": "index", "output_probability": "values"},
    ),
    "support-vectors-chances": (
        written(
            [
                ("SVMClassifier", ["X"], ["label", "s"], SVM2 | {"prob_a": [-1.2], "prob_b": [0.15]}),
                ("ZipMap", ["s"], ["output_probability"], {"classlabels_int64s": [5, 7]}),
            ],
            ["label", "output_probability"],
        ),
        {"label": "index", "output_probability": "values"},
    ),
    "support-vector-regression": (
        written(
            [
                (
                    "SVMRegressor", ["X"], ["y"],
                    {"coefficients": [1.0, -0.5, 0.2], "kernel_type": "LINEAR", "kernel_params": [0.1, 0.0, 3.0],
                     "n_supports": 3, "post_transform": "NONE", "rho": [0.4], "support_vectors": W.ravel().tolist()},
                )
            ],
            ["y"],
        ),
        {},
    ),
    "several-targets": (
        written(
            [("LinearRegressor", ["X"], ["y"],
              {"coefficients": W[:2].ravel().tolist(), "intercepts": [0.2, 0.1], "targets": 2})],
            ["y"],
        ),
        {},
    ),
    "norms": (
        written(
            [
                ("Normalizer", ["X"], ["a"], {"norm": "L2"}),
                ("Normalizer", ["X"], ["b"], {"norm": "L1"}),
                ("Normalizer", ["X"], ["c"], {"norm": "MAX"}),
                ("Binarizer", ["X"], ["d"], {"threshold": 3.0}),
                ("Concat", ["a", "b", "c", "d"], ["all"], {"axis": 1}),
                ("ArrayFeatureExtractor", ["all", "places"], ["y"], {}),
            ],
            ["y"],
            places=np.array([15, 0, 5, 10, 11, 3], np.int64),
        ),
        {},
    ),
    "categories": (
        written(
            [
                ("Gather", ["X", "two"], ["width"], {"axis": 1}),
                ("Floor", ["width"], ["floor"], {}),
                ("Cast", ["floor"], ["whole"], {"to": TensorProto.INT64}),
                ("OneHotEncoder", ["whole"], ["hot"], {"cats_int64s": [2, 4, 3], "zeros": 1}),
                ("Flatten", ["hot"], ["flat"], {"axis": 1}),
                ("Gather", ["X", "others"], ["rest"], {"axis": 1}),
                ("Imputer", ["rest"], ["filled"],
                 {"imputed_value_floats": [1.0, 2.0, 3.0], "replaced_value_float": float("nan")}),
                ("Concat", ["flat", "filled"], ["all"], {"axis": 1}),
                ("LinearRegressor", ["all"], ["y"], {"coefficients": [1.0, -2.0, 3.0, 0.5, -1.5, 2.5]}),
            ],
            ["y"],
            two=np.array([1], np.int64),
            others=np.array([3, 0, 2], np.int64),
        ),
        {},
    ),
    "columns": (
        written(
            [
                ("Concat", ["x0", "x1", "x2"], ["joined"], {"axis": 1}),
                ("Imputer", ["joined"], ["X"],
                 {"imputed_value_floats": [1.0, 2.0, 3.0, 4.0], "replaced_value_float": float("nan")}),
                SCALER,
                linear("SOFTMAX", **TEXT),
                ("ZipMap", ["raw"], ["p"], TEXT),
            ],
            ["label", "p"],
            inputs=(("x0", 1), ("x1", 2), ("x2", 1)),
        ),
        {"p": "columns"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", EXPORTS)
def test_what_skl2onnx_writes_gives_what_onnx_runtime_does(name: str) -> None:
    model, means = EXPORTS[name]
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    x = IRIS_X.astype(np.float32)
    places = np.cumsum([0, *(port.shape[1] for port in session.get_inputs())])
    feeds = {port.name: x[:, a:b].copy() for port, a, b in zip(session.get_inputs(), places, places[1:])}
    if "x0" in feeds:
        feeds["x0"][::9] = np.nan
    if name == "categories":
        feeds["X"][::9, [0, 2, 3]] = np.nan
    reference = dict(zip([port.name for port in session.get_outputs()], session.run(None, feeds)))
    graph, ports = frontend.read(model)
    filled = {
        n: np.where(np.isnan(v), ports.missing.get(n, [0.0] * v.shape[1]), v).astype(float) for n, v in feeds.items()
    }
    got = hushnet.Result(evaluate(passes.default(graph), filled), {}, {k: c.entry() for k, c in ports.classes.items()})
    assert {k: c.of for k, c in ports.classes.items()} == means
    label = next((v for k, v in reference.items() if "label" in k), None)
    if label is not None:
        np.testing.assert_array_equal(got.label, np.ravel(label))
    for output, value in got.outputs.items():
        want = reference[output]
        if means.get(output) == "index":
            continue
        if isinstance(want, list):
            assert list(want[0]) == list(got.by_class(output))
            want = np.array([list(row.values()) for row in want])
        np.testing.assert_allclose(value.reshape(want.shape), want, rtol=2e-4, atol=5e-4 if "chances" in name else 2e-5)


def test_an_estimator_compiles_as_any_other_model() -> None:
    model = fitted(make_pipeline(StandardScaler(), LogisticRegression()), IRIS_X, NAMES)
    plans = [
        hushnet.from_sklearn(model, calibration=IRIS_X, batch=8),
        hushnet.compile(model, calibration=IRIS_X, batch=8),
        hushnet.compile(frontend.sklearn_model(model), calibration=IRIS_X, batch=8),
    ]
    assert len({plan.plan.digest for plan in plans}) == 1
    with pytest.raises(hushnet.ModelError, match="a Model is no trained model"):
        hushnet.compile(plans[0])
    assert hushnet.check(model) == []
    assert not hushnet.compare(model, calibration=IRIS_X).rows[0].refused


def test_outputs_names_what_stays() -> None:
    model, _ = EXPORTS["multinomial"]
    _, ports = frontend.read(model, outputs=["output_label"])
    assert {k: c.of for k, c in ports.classes.items()} == {"output_label": "index"}
    compiled = hushnet.compile(model, outputs="output_label", calibration=IRIS_X, batch=4)
    result = hushnet.run(compiled, IRIS_X[:4].astype(np.float32))
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    np.testing.assert_array_equal(result.label, session.run(["output_label"], {"X": IRIS_X[:4].astype(np.float32)})[0])
    with pytest.raises(hushnet.HushnetError, match=r"no output 'elsewhere'.*output_label, output_probability"):
        hushnet.compile(model, outputs="elsewhere")


@pytest.mark.parametrize(
    ("operator", "attributes", "words"),
    [
        ("TreeEnsembleClassifier", {"classlabels_int64s": [0, 1]}, "Decision trees, forests and boosting"),
        ("SVMRegressor",
         {"kernel_type": "RBF", "n_supports": 1, "coefficients": [1.0], "support_vectors": [1.0] * 4},
         "linear kernels"),
        ("OneHotEncoder", {"cats_strings": ["a", "b"]}, "Encode categories before inference"),
        ("LinearRegressor", {"coefficients": [1.0] * 4, "post_transform": "PROBIT"}, "post_transform NONE"),
    ],
)  # fmt: skip
def test_operators_without_a_standard_form_are_refused(operator: str, attributes: dict[str, Any], words: str) -> None:
    outputs = ["y", "z"] if "Classifier" in operator else ["y"]
    model = written([(operator, ["X"], outputs, attributes)], outputs[:1])
    with pytest.raises(frontend.UnsupportedModel) as caught:
        frontend.read(model)
    assert operator in str(caught.value) and words in str(caught.value)


def test_a_plan_of_a_classifier_says_so_in_its_file(tmp_path: Path) -> None:
    model, _ = EXPORTS["columns"]
    compiled = hushnet.compile(model, calibration={"x0": IRIS_X[:, :1], "x1": IRIS_X[:, 1:3], "x2": IRIS_X[:, 3:]})
    for plan in (compiled.plan, compiled.plan.public_part()):
        (output,), inputs = plan.document["outputs"], plan.document["inputs"]
        assert json.dumps(output["classes"]) == '{"of": "columns", "names": ["a", "b", "c"]}'
        assert [port["missing"] for port in inputs] == [[1.0], [2.0, 3.0], [4.0]]

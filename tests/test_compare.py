"""``hushnet compare``: every way to run a model in one table, and the recommendation that follows from it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import hushnet
import numpy as np
import pytest
from hushnet import frontend
from hushnet.cli.compare import show
from hushnet.comparison import Compared, Way, recommendation
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from .test_messages import hush

X, Y = load_iris(return_X_y=True)
NAMES = np.array(["setosa", "versicolor", "virginica"])[Y]


@pytest.fixture(scope="module")
def linear() -> bytes:
    model = make_pipeline(StandardScaler(), LogisticRegression()).fit(X[::2], NAMES[::2])
    return frontend.sklearn_model(model).SerializeToString()


def test_all_trust_models_stand_side_by_side(linear: bytes, tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(linear)
    np.save(tmp_path / "x.npy", X[::2])
    np.save(tmp_path / "y.npy", NAMES[::2])
    given = ["--calibration", tmp_path / "x.npy", "--labels", tmp_path / "y.npy"]
    found = json.loads(hush("compare", tmp_path / "model.onnx", *given, "--json").stdout)
    assert [row["way"] for row in found["rows"]] == [
        "client-aided",
        "two-party",
        "non-interactive",
        "non-interactive, weights hidden",
    ]
    for row in found["rows"]:
        assert not row["refused"] and row["accuracy"] > 0.9 and row["seconds"] > 0 and row["bytes"] > 1000, row
        assert row["server_learns"] and row["client_learns"] and row["memory_bytes"] > 0 and row["error"] > 0
        # what compile says of the same plan
        own = hushnet.compile(
            linear, trust=row["trust"], batch=1, calibration=X[::2], labels=NAMES[::2],
            **({"hide_weights": True} if "hidden" in row["way"] else {}),
        ).plan.predicted  # fmt: skip
        assert row["accuracy"] == own["accuracy"]["planned"] and row["rounds"] == own["rounds"]
    text = hush("compare", tmp_path / "model.onnx", *given)
    assert text.returncode == 0 and "the server learns" in text.stdout and "Take " in text.stdout


def test_what_a_trust_model_refuses_is_told_and_the_others_stand(capsys: pytest.CaptureFixture[str]) -> None:
    model = make_pipeline(StandardScaler(), MLPClassifier((4,), max_iter=5)).fit(X, Y)
    found = hushnet.compare(frontend.sklearn_model(model), calibration=X)
    refused = {row.way.name: row.refused for row in found.rows}
    assert "polynomials" in refused["non-interactive"] and not refused["client-aided"] and not refused["two-party"]
    # once, of both ways without interaction
    show(found)
    said = " ".join(capsys.readouterr().out.split())
    assert said.count("knows sums, products and polynomials only") == 1
    assert "non-interactive; non-interactive, weights hidden: " in said


def test_the_recommendation_follows_from_the_rows() -> None:
    fast = Compared(Way("client-aided", "client-aided", weights_private=False), 1, seconds=0.1, bytes=1e6)
    private = Compared(Way("two-party", "two-party"), 1, seconds=1.0, bytes=2e6, accuracy=0.9)
    assert recommendation([fast, private]) == (
        "Take two-party: 1 s and 2 MB an image, accuracy 0.9, with inputs and weights private; client-aided is 10 "
        "times as fast, where clients may learn the weights."
    )
    assert "the fastest and keeps both" in recommendation([fast, replace(private, seconds=0.01)])
    short = replace(private, shortfalls=("Accuracy falls.",))
    assert recommendation([fast, short]).startswith("Take client-aided: ") and "no way that keeps" in recommendation(
        [fast, short]
    )
    assert recommendation([replace(fast, shortfalls=("x",)), short]).startswith("Take two-party: ")
    assert recommendation([replace(fast, refused="no")]).startswith("No trust model takes this network")


def test_labels_are_names_of_classes(linear: bytes, tmp_path: Path) -> None:
    compiled = hushnet.compile(linear, calibration=X[::2], labels=NAMES[::2], batch=8)
    assert compiled.plan.predicted["accuracy"]["planned"] > 0.9
    result = hushnet.run(compiled, X[:60])
    assert result.accuracy(NAMES[:60]) == (result.label == NAMES[:60]).mean() > 0.9
    with pytest.raises(hushnet.InputError, match="'rose' is no class of the model; its classes are setosa"):
        hushnet.compile(linear, calibration=X[:2], labels=["rose", "setosa"])
    with pytest.raises(hushnet.InputError, match="2 labels are given for 60 rows"):
        result.accuracy(NAMES[:2])
    # numbers that are no places
    numbers = np.array([3, 5, 9])[Y]
    model = frontend.sklearn_model(make_pipeline(StandardScaler(), LogisticRegression()).fit(X, numbers))
    compiled = hushnet.compile(model, calibration=X, labels=numbers.astype(float), batch=8)
    assert compiled.plan.predicted["accuracy"]["planned"] > 0.9
    assert hushnet.run(compiled, X).accuracy(numbers) > 0.9

"""The benchmark of tables: its rows, the weights that rivals are given, and rows that are lost."""

from __future__ import annotations

from typing import Any

import hushnet
import numpy as np
import pytest
from hushnet_bench import tabular


def test_rows_tell_accuracy_beside_floats_and_why_a_trust_model_refuses() -> None:
    rows = tabular.rows(quick=True, threads=1, progress=None, batch=6, cases=["scaled"], peers=[])
    assert [r["trust"] for r in rows] == [*tabular.TRUST] * 2
    for row in rows:
        if row["trust"] == "non-interactive" and "mlp" in row["case"]:
            assert "polynomials" in row["refused"] and "accuracy" not in row
            continue
        assert row["accuracy"] == row["accuracy_float"] and row["within_half_percent"] and row["rows_lost"] == 0
        assert row["rows_out_of_range"] == 0
        assert row["seconds_per_row"] > 0 and row["bytes_per_row"] > 1000


def test_labels_of_a_raw_table_are_those_of_the_float_model() -> None:
    """Scores reach 33 and are decided near 0: with errors of 2^-7 of that range a row changed its side."""
    (one,) = tabular.fitted(["breast-cancer, raw, linear-svm"], quick=False)
    for trust in tabular.TRUST:
        row = tabular.ours(one, trust, None, 1)
        assert row["rows"] == 143 and row["same_label_as_float"] == 1.0 and row["loss_percent"] == 0.0, row
        assert row["rows_lost"] == row["rows_out_of_range"] == 0


def test_unknown_cases_are_refused() -> None:
    with pytest.raises(hushnet.InputError, match="no case has a word of abalone"):
        tabular.rows(quick=True, threads=1, progress=None, cases=["abalone"])


@pytest.mark.parametrize("kind", ["logistic", "mlp-tanh", "linear-svm"])
@pytest.mark.parametrize("name", ["iris", "breast-cancer"])
def test_rivals_are_given_the_same_network(name: str, kind: str) -> None:
    (one,) = (f for f in tabular.fitted([f"{name}, scaled, {kind}"], quick=False))
    arrays, x, index = tabular.parameters(one.model), tabular.scaled(one.model, one.x), 0
    while f"w{index}" in arrays:
        x = x @ arrays[f"w{index}"].T + arrays[f"b{index}"]
        index += 1
        x = np.tanh(x) if f"w{index}" in arrays else x
    found = x.argmax(1) if x.shape[1] > 1 else (x[:, 0] > 0).astype(int)
    np.testing.assert_array_equal(one.model.classes_[found], one.model.predict(one.x))


def test_rows_outside_of_their_range_are_lost_and_the_others_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    def run(_model: Any, x: np.ndarray, **_options: Any) -> hushnet.Result:
        seen.append(len(x))
        outside = [i for i, row in enumerate(x) if row[0] < 0]
        if outside:
            error = hushnet.RangeError("outside")
            error.affected = outside[:2]
            raise error
        return hushnet.Result({"y": x}, {"seconds": 1.0})

    monkeypatch.setattr(hushnet, "run", run)
    x = np.array([[1.0], [-1.0], [2.0], [-2.0], [-3.0], [3.0]])
    result, kept, ended = tabular.answered(None, x, 1)
    assert (
        kept.tolist() == [0, 2, 5]
        and ended == 2
        and seen == [6, 4, 3]
        and result.output.tolist() == [[1.0], [2.0], [3.0]]
    )
    with pytest.raises(hushnet.RangeError):
        tabular.answered(None, -np.ones((2, 1)), 1)

"""The benchmark of tables: its rows, the weights that rivals are given, and rows that are lost."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hushnet
import numpy as np
import pytest
from hushnet.cli.main import main
from hushnet_bench import peers, tabular


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
    with pytest.raises(hushnet.InputError, match="no case has abalone in its name"):
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


RIVAL = """
import json, os, sys, time
print("a warning"); print(json.dumps({"ready": True}), flush=True)
for name in sys.argv[1:]:
    print(json.dumps({"accuracy": 0.5, "doing": "made its keys"}), flush=True)
    time.sleep(30 * (name == "slow"))
    name == "dies" and os.abort()
    print(json.dumps({"case": name, "done": True}), flush=True)
"""


def test_a_rival_that_takes_long_or_dies_loses_one_row(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HUSHNET_PEERS", str(tmp_path))
    assert [row["error"] for row in peers.each("rival", "r.py", ["a", "b"], 1.0)] == [
        "rival is not installed: make peers"
    ] * 2
    (tmp_path / "rival" / "bin").mkdir(parents=True)
    (tmp_path / "rival" / "bin" / "python").symlink_to(sys.executable)
    (tmp_path / "r.py").write_text(RIVAL)
    monkeypatch.setattr(peers, "PROGRAMS", tmp_path)
    rows = list(peers.each("rival", "r.py", ["a", "slow", "b", "dies", "c"], 1.0))
    assert [row.get("case") for row in rows] == ["a", None, "b", None, "c"]
    assert all(row["accuracy"] == 0.5 and "doing" not in row for row in rows if "error" not in row)
    assert rows[1]["stopped"] == "stopped after 1 s, while it made its keys"
    assert rows[3]["error"].startswith("rival ended") and not any("ready" in row for row in rows)


def test_a_name_of_a_case_from_a_row_and_a_limit_are_options_of_the_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given: list[tuple[int, float]] = []

    def each(_name: str, _script: str, places: list[str], seconds: float) -> Iterator[dict[str, Any]]:
        given.append((len(places), seconds))
        yield from ({"stopped": f"stopped after {seconds:.0f} s"} for _ in places)

    monkeypatch.setattr(peers, "each", each)
    monkeypatch.setattr(tabular, "ours", lambda one, trust, *_: {"case": one.case, "method": f"hushnet {trust}"})
    line = ["hushnet", "bench", "tabular", "--json", "--seconds", "7", "--peers", "concrete-ml", "--cases"]
    # with the space a comma belongs to the name; without it is between two names
    for cases, count in (("iris, raw, logistic", 1), ("iris,wine", 20), ("iris, raw,wine, raw", 10)):
        monkeypatch.setattr(sys, "argv", [*line, cases])
        with pytest.raises(SystemExit) as end:
            main()
        rows = json.loads(capsys.readouterr().out)["rows"]
        assert end.value.code in (0, None) and len(rows) == 4 * count and given.pop() == (count, 7.0)
        assert rows[-1]["stopped"] == "stopped after 7 s"


def test_rows_of_an_interrupted_run_are_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[str] = []

    def each(_name: str, _script: str, places: list[str], _seconds: float) -> Iterator[dict[str, Any]]:
        for place in places:
            asked.append(Path(place, "case.json").read_text())
            if len(asked) == 2:
                raise KeyboardInterrupt
            yield {"accuracy": 1.0}

    monkeypatch.setattr(peers, "each", each)
    monkeypatch.setattr(
        tabular, "ours", lambda one, trust, _count, _threads: {"case": one.case, "method": f"hushnet {trust}"}
    )
    run, kept = {"quick": True, "threads": 1, "progress": None}, tmp_path / "rows.jsonl"
    with pytest.raises(KeyboardInterrupt):
        tabular.rows(**run, keep=kept)
    with kept.open("a") as file:
        file.write('\n{"case": "cut')
    rows = tabular.rows(**run, keep=kept)
    assert len(rows) == 8 and len(asked) == 3
    assert [row.get("kept", False) for row in rows] == [True] * 7 + [False]
    assert [row["loss_percent"] <= 0 for row in rows if row["method"] == tabular.RIVAL] == [True, True]

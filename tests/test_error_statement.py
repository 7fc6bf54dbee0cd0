"""The smallest size of ``python -m tests.error_statement``, and that it finds a statement that is too small."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hushnet.planner import quality

from tests.error_statement import judge as judging
from tests.error_statement.__main__ import main
from tests.error_statement.sources import KINDS, TRUST, sources

SMALL = ["--rows", "200", "--seconds", "1", "--calibration", "60", "--json"]
FEW = [
    ("operators", "Gemm"),
    ("operators", "Softmax"),
    ("operators", "ArgMax"),
    ("random", "17"),
    ("polynomial", "residual"),
]


@pytest.mark.parametrize(("kind", "name"), FEW, ids=[f"{kind}-{name}" for kind, name in FEW])
def test_statements_hold_on_rows_of_every_trust_model(kind: str, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--kind", kind, "--only", name, *SMALL]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    held = [row for row in rows if row["verdict"] == "held"]
    assert {row["trust"] for row in rows} == set(TRUST) and len(held) >= 2
    assert all(row["rows"] == 200 and row["beyond"] == row["rigorous"] == 0 for row in held)


def test_a_statement_that_is_too_small_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    assert main(["--kind", "operators", "--only", "Gemm", "--trust", "client-aided", *SMALL]) == 0
    monkeypatch.setattr(quality, "likely", lambda off: 0.5 * float(np.median(off)))
    assert main(["--kind", "operators", "--only", "Gemm", "--trust", "client-aided", *SMALL]) == 1


def test_rows_that_leave_their_ranges_are_left_out_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    (source,) = (s for s in sources(("operators",)) if s.name == "Gemm")
    monkeypatch.setattr(judging, "MARGIN", 1.0)
    found = {
        trust: judging.judge(source, trust, rows=400, seconds=5, calibration=3)
        for trust in ("client-aided", "two-party")
    }
    assert all(row.outside > 0 and row.rows + row.outside == 400 for row in found.values()), found


def test_every_kind_has_networks() -> None:
    assert {source.kind for source in sources()} == set(KINDS)
    assert len({(source.kind, source.name) for source in sources()}) == len(list(sources())) > 200

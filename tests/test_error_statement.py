"""The smallest size of ``python -m tests.error_statement``, and that it finds a statement that is too small."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hushnet.graph import Graph, Op
from hushnet.planner import quality
from hushnet.reference.float import evaluate

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


def test_few_rows_state_enough_of_outputs_that_grow_with_their_values() -> None:
    """A product of products: 60 sets of 100 rows, the statement of each beside all other rows."""
    (source,) = (s for s in sources(("drawn",)) if s.name == "client-aided 9")
    graph, whole = source.graph()
    rng = np.random.default_rng(5)
    plan = judging.planned(graph, "client-aided", source.rows(graph, whole, rng, 100))
    x = source.rows(graph, whole, rng, 6000)
    got, kept = judging.answered(plan, x, rng)
    off = np.abs(got["t10"] - evaluate(graph, x)["t10"][kept]).reshape(int(kept.sum()), -1).max(axis=1)
    broken = {False: 0, True: 0}
    for _ in range(60):
        order = rng.permutation(len(off))
        for grows in broken:
            most = quality.likely(off[order[:100]], grows=grows)
            broken[grows] += int((off[order[100:]] > most).sum() * 1000 > len(off) - 100)
    assert "t10" in quality.growing(graph)
    # what other outputs state would be too small for one set in six
    assert broken[False] > 8 and broken[True] <= 6 and broken[True] < broken[False] / 2


def test_what_normalises_or_is_bounded_ends_growth() -> None:
    def grows(*steps: tuple[str, list[str], dict[str, object]]) -> bool:
        nodes = [Op(f"n{i}", op, names, f"t{i}", dict(attrs)) for i, (op, names, attrs) in enumerate(steps)]
        shapes = {"x": (4,), **{node.output: (4,) for node in nodes}}
        return bool(quality.growing(Graph("g", ["x"], [nodes[-1].output], shapes, list(nodes))))

    square, over = ("square", ["x"], {}), {"axes": [0]}
    assert grows(square) and grows(square, ("mul", ["t0", "x"], {})) and grows(("exp", ["x"], {}))
    assert grows(square, ("relu", ["t0"], {}), ("add", ["t1", "x"], {}))
    assert not grows(("relu", ["x"], {}), ("sigmoid", ["t0"], {}), ("mul", ["t0", "t1"], {}))
    assert not grows(square, ("tanh", ["t0"], {})) and not grows(square, ("sqrt", ["t0"], {}))
    assert not grows(square, ("reduce_mean", ["t0"], over), ("sqrt", ["t1"], {}), ("div", ["x", "t2"], {}))


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

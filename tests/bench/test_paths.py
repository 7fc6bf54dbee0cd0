"""Benches on machines that lack an instruction set: rows of it are left out and named, the others run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest
from hushnet import HushnetError, InputError, _native
from hushnet.cli.main import app
from hushnet_bench import cryptonets_relu, measure
from hushnet_bench.registry import plot, render, run
from typer.testing import CliRunner

ROW = {"images": 8, "seconds": 1.0, "images_per_second": 8.0}


def test_instruction_sets_are_those_that_the_run_time_knows_in_its_order() -> None:
    assert _native.simd() in measure.SIMD
    # The run time takes every name but those above what the machine has.
    taken = []
    for path in measure.SIMD:
        environment = dict(os.environ) | {"HUSHNET_SIMD": path, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
        command = [sys.executable, "-c", "from hushnet import _native; print(_native.simd())"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        taken.append(done.returncode == 0)
        assert done.stdout.strip() == path if taken[-1] else "asks for more than this processor has" in done.stderr
    assert taken == sorted(taken, reverse=True) and taken[0]
    best = measure.SIMD[sum(taken) - 1]
    assert [measure.usable(p, best) for p in measure.SIMD] == taken


def test_arm_has_its_own_path_and_plain_rust() -> None:
    paths = [*measure.SIMD, "neon"]
    assert [p for p in paths if measure.usable(p, "neon")] == ["portable", "neon"]
    assert not any(measure.usable("neon", best) for best in measure.SIMD)


@pytest.mark.parametrize("best", ["portable", "avx2", "avx512", "ifma", "amx"])
def test_cryptonets_relu_leaves_out_the_rows_that_a_machine_has_no_kernels_for(
    monkeypatch: pytest.MonkeyPatch, best: str
) -> None:
    ran = []

    def apart(*_: Any, simd: str, **__: Any) -> dict[str, Any]:
        if measure.SIMD.index(simd) > measure.SIMD.index(best):
            raise HushnetError(
                f"HUSHNET_SIMD={simd} asks for more than this processor has ({best}); unset it or lower it"
            )
        ran.append(simd)
        return dict(ROW)

    monkeypatch.setattr(_native, "simd", lambda: best)
    monkeypatch.setattr(cryptonets_relu, "measure", lambda *_, **__: dict(ROW))
    monkeypatch.setattr(cryptonets_relu, "measure_apart", apart)
    said = json.loads(CliRunner().invoke(app, ["bench", "cryptonets-relu", "--batch", "16", "--json"]).output)
    rows = {r["case"].removeprefix("kernels: "): r for r in said["rows"] if r["case"].startswith("kernels: ")}
    assert list(rows) == ["ifma", "avx2", "portable"]
    for path, row in rows.items():
        if path in ran:
            assert row["ratio"] > 0 and "note" not in row
        else:
            assert "images_per_second" not in row
            assert (
                row["note"]
                == f"left out: this row needs {path}, and this machine (or HUSHNET_SIMD) has no more than {best}"
            )
    assert "portable" in ran and ("ifma" in ran) == (best in ("ifma", "amx"))
    # The table and the picture take such rows, too.
    table = render(said)
    assert table.row_count == len(said["rows"])


def test_the_picture_takes_rows_without_figures(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    rows = [{"case": "a", "method": "m"} | ROW, {"case": "kernels: ifma", "method": "m", "note": "left out"}]
    result = {
        "name": "cryptonets-relu",
        "threads": 1,
        "machine": {"cpu": "c", "simd": "avx2"},
        "source": "s",
        "rows": rows,
    }
    plot(result, tmp_path / "p.png")
    assert (tmp_path / "p.png").stat().st_size > 0


def test_pictures_have_bytes_beside_speed_and_are_the_same_when_drawn_again(tmp_path: Any) -> None:
    rows = [
        {
            "case": c,
            "method": "m",
            "seconds": 1.0,
            "microseconds_per_element": 1.0 + i,
            "bytes_per_element": 100.0 * (i + 1),
        }
        for i, c in enumerate(("sigmoid", "exp"))
    ]
    result = {"name": "smooth", "threads": 1, "machine": {"cpu": "c"}, "source": "s", "rows": rows}
    for name in ("a.svg", "b.svg"):
        plot(result, tmp_path / name)
    drawn = (tmp_path / "a.svg").read_text()
    assert "microseconds per element" in drawn and "bytes per element" in drawn and "sigmoid" in drawn
    assert drawn == (tmp_path / "b.svg").read_text()


def test_a_benchmark_without_an_option_says_so_in_the_words_of_the_command() -> None:
    with pytest.raises(InputError, match=r"^Benchmark relu has no --peers: it has no options of its own\.$"):
        run("relu", peers=["none"])
    with pytest.raises(InputError, match=r"^Benchmark mobilenetv2 has no --cases: it takes --size, --batch\.$"):
        run("mobilenetv2", cases=["a"])

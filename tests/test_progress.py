"""What ``run`` and ``infer`` show while they work: a bar for every layer, its bytes, the time left; else nothing."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import hushnet
import numpy as np
import pytest
from hushnet.cli import progress
from hushnet.cli.progress import Bars, clock, layer_bars, megabytes
from hushnet.report import Step, expected
from rich.console import Console
from rich.progress import Progress

from tests.planner.planner_graphs import Builder

X = np.random.default_rng(0).uniform(0, 1, (5, 2, 4, 4))
KINDS = {
    "client-aided": {"batch": 2048},
    "few images": {"batch": 1, "engine": "packed"},
    "two-party": {"trust": "two-party"},
    "non-interactive": {"trust": "non-interactive", "calibration": X, "batch": 1},
    "non-interactive, batches": {"trust": "non-interactive", "calibration": X, "batch": 4096},
}


@pytest.fixture(scope="module")
def models() -> dict[str, hushnet.Model]:
    found = {}
    for kind, options in KINDS.items():
        op = "square" if kind.startswith("non") else "relu"
        graph = Builder((2, 4, 4)).conv(3).op(op).conv(2).done()
        found[kind] = hushnet.Model(hushnet.planner.compile(graph, **options))
    return found


def terminal() -> Console:
    return Console(file=io.StringIO(), force_terminal=True, width=100)


@pytest.mark.parametrize("kind", KINDS)
def test_every_layer_has_a_bar_and_bytes_are_those_of_the_run(kind: str, models: dict[str, hushnet.Model]) -> None:
    model = models[kind]
    steps = expected(model.plan, len(X))
    with layer_bars(lambda: steps, quiet=False, console=terminal()) as bars:
        result = hushnet.run(model, X, progress=bars)
        # the run time tells the beginning of parts: nearly all is done
        assert bars.progress.tasks[0].completed > 0.4
    shown = [task.description for task in bars.progress.tasks]
    assert {step.name for step in steps if step.bytes} <= set(shown)
    assert all(task.finished for task in bars.progress.tasks), shown
    whole = sum(step.bytes for step in steps)
    seen = result.trace["bytes_up"] + result.trace["bytes_down"]
    # frames around blocks and the order of images are no layer's
    assert abs(whole - seen) <= 0.01 * seen + 200 * len(X), (whole, seen)
    # what a client knows of a server's plan gives the same
    public = expected(model.plan.public_part(), len(X))
    assert [step.bytes for step in public] == [step.bytes for step in steps]


def test_the_time_left_follows_from_the_run_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    steps = [Step("a", 1e6, 1.0), Step("client", 0, 0.0), Step("b", 3e6, 3.0)]
    bars = Bars(Progress(console=terminal()), steps)
    (whole,) = bars.progress.tasks
    assert whole.fields["end"] == pytest.approx(104.0)
    bars("[1/2] a", 0, 4)
    now[0] = 110.0
    bars("[1/2] a", 4, 4)
    assert whole.description == "block 1 of 2" and whole.completed == pytest.approx(1 / 8)
    # an eighth took ten seconds: seventy are left
    assert whole.fields["end"] == pytest.approx(180.0) and whole.fields["sent"] == "0.5 of 4.0 MB"
    bars("[1/2] client", 1, 1)
    bars("[1/2] b", 1, 2)
    assert [t.description for t in bars.progress.tasks] == ["block 1 of 2", "a", "b"]
    assert bars.progress.tasks[1].finished and bars.progress.tasks[2].fields["sent"] == "0.8 of 1.5 MB"
    for name in ("[2/2] a", "[2/2] client", "[2/2] b"):
        bars(name, 1, 1)
    assert whole.finished and len(bars.progress.tasks) == 5


def test_long_networks_keep_to_the_screen() -> None:
    bars = Bars(Progress(console=terminal()), [Step(f"[red]{i}", 1e3, 1.0) for i in range(60)])
    bars("setup", 1, 1)
    for i in range(60):
        bars(f"[red]{i}", 1, 1)
    assert len(bars.progress.tasks) == progress.SHOWN + 1
    assert bars.progress.tasks[-1].description == "[red]59" and bars.progress.tasks[0].finished


def test_texts() -> None:
    assert [clock(s) for s in (-1, 0.4, 61, 3661)] == ["0:00", "0:00", "1:01", "1:01:01"]
    assert (megabytes(1e6, 4e6), megabytes(10, 2000), megabytes(0, 0)) == ("1.0 of 4.0 MB", "0.0 of 2.0 kB", "")


def test_nothing_is_drawn_where_nobody_looks() -> None:
    def never() -> list[Step]:
        raise AssertionError("asked for steps that nobody sees")

    for quiet, console in ((True, terminal()), (False, Console(file=io.StringIO()))):
        with layer_bars(never, quiet=quiet, console=console) as tell:
            assert tell is None
        with progress.working("Planning", quiet=quiet, console=console):
            pass
        assert console.file.getvalue() == ""


def on_a_terminal(*arguments: object) -> tuple[int, str, str]:
    """Exit code, standard output, and what standard error shows, which is a terminal."""
    pty = pytest.importorskip("pty", reason="Windows has no pseudo-terminals")
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "hushnet", *map(str, arguments)]
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "110"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=theirs, text=True, env=environment) as process:
        os.close(theirs)
        seen = b""
        while True:
            try:
                more = os.read(ours, 1 << 16)
            except OSError:
                break
            if not more:
                break
            seen += more
        assert process.stdout is not None
        printed = process.stdout.read()
    os.close(ours)
    return process.returncode, printed, re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", seen.decode())


def test_the_command_line_draws_on_a_terminal_and_json_stays_clean(
    tmp_path: Path, models: dict[str, hushnet.Model]
) -> None:
    np.save(tmp_path / "x.npy", X)
    models["two-party"].save(tmp_path / "m.hush")
    code, printed, seen = on_a_terminal("run", tmp_path / "m.hush", tmp_path / "x.npy")
    assert code == 0 and "all layers" in seen and "conv" in seen and "left" in seen and "kB" in seen, seen
    assert "━" not in printed and "5 images in" in printed
    code, printed, seen = on_a_terminal("run", tmp_path / "m.hush", tmp_path / "x.npy", "--json")
    assert code == 0 and json.loads(printed)["images"] == 5 and seen == ""

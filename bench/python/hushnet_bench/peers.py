"""Rivals from PyPI, measured in the same run: each in an environment of its own that ``make peers`` sets up.

An environment is ``NAME`` under ``$HUSHNET_PEERS``, or under ``hushnet-peers`` in the user's cache; the programs that
run there are in ``programs/``. A benchmark whose rival is absent says so in its rows.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

PROGRAMS = Path(__file__).parent / "programs"
PATIENCE = 1800.0
# what a rival may take until it is ready for its first case: importing its libraries
START = 120.0
ENDED = "the process ended"


def folder() -> Path:
    """Where the environments are."""
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(os.environ.get("HUSHNET_PEERS") or Path(cache) / "hushnet-peers")


def measure(name: str, script: str, arguments: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Runs a rival's script; its rows by case. A row with ``error`` where a case failed.

    Under ``""`` when there is no rival.
    """
    python, path = folder() / name / "bin" / "python", PROGRAMS / script
    if not python.exists():
        return {"": {"error": f"{name} is not installed: make peers"}}
    try:
        done = subprocess.run(
            [str(python), str(path), *arguments], capture_output=True, text=True, check=False, timeout=PATIENCE
        )
    except subprocess.TimeoutExpired:
        return {"": {"error": f"{name} took longer than {PATIENCE:.0f} s"}}
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if not rows:
        return {"": {"error": f"{name} ended with {done.returncode}: {done.stderr.strip()[-300:]}"}}
    return {row["case"]: row for row in rows}


def each(name: str, script: str, arguments: Sequence[str], seconds: float) -> Iterator[dict[str, Any]]:
    """A rival's row of every argument, in turn, from one process while all goes well.

    The script prints ``{"ready": true}`` once, then objects that become an argument's row together; the last one has
    ``"done": true``. A case that takes longer than ``seconds`` is stopped, and its row says so beside what it had
    (``doing``: what it was at). One that ends the process has ``error``. Others then run in a new process.
    """
    python, path, left = folder() / name / "bin" / "python", PROGRAMS / script, list(arguments)
    if not python.exists():
        yield from ({"error": f"{name} is not installed: make peers"} for _ in left)
        return
    while left:
        with (
            tempfile.TemporaryFile("w+") as log,
            subprocess.Popen([str(python), str(path), *left], stdout=subprocess.PIPE, stderr=log, text=True) as run,
        ):
            try:
                for row in _rows(run, len(left), seconds):
                    left.pop(0)
                    if row.get("error") == ENDED:
                        log.seek(0)
                        row["error"] = f"{name} ended: {' '.join(log.read().split())[-300:]}"
                    yield row
            finally:
                # also when whoever asks for rows is interrupted
                run.kill()


def _rows(run: subprocess.Popen[str], count: int, seconds: float) -> Iterator[dict[str, Any]]:
    """Rows of a process, up to one that took too long, or that ended it."""
    lines: queue.Queue[str] = queue.Queue()
    threading.Thread(target=_lines, args=(run, lines), daemon=True).start()
    for index in range(count):
        row, ended = _case(lines, START if index == 0 else 0.0, seconds)
        if ended:
            # before the row is given: what is measured next has the machine to itself
            run.kill()
        yield row
        if ended:
            return


def _lines(run: subprocess.Popen[str], lines: queue.Queue[str]) -> None:
    """Every line of a process that may be an object, and an empty one at its end."""
    for line in run.stdout or ():
        if line.startswith("{"):
            lines.put(line)
    lines.put("")


def _case(lines: queue.Queue[str], start: float, seconds: float) -> tuple[dict[str, Any], bool]:
    """The row of one case, and whether the process is of no more use."""
    row: dict[str, Any] = {}
    limit = start or seconds
    until = time.monotonic() + limit
    while not row.pop("done", False):
        try:
            line = lines.get(timeout=max(until - time.monotonic(), 0.0))
        except queue.Empty:
            doing = row.pop("doing", "evaluated the model" if not start else "imported its libraries")
            return row | {"stopped": f"stopped after {limit:.0f} s, while it {doing}"}, True
        if not line:
            return row | {"error": ENDED}, True
        found = json.loads(line)
        if found.pop("ready", False):
            start, limit = 0.0, seconds
            until = time.monotonic() + limit
        row |= found
    row.pop("doing", None)
    return row, False


def beside(rows: dict[str, dict[str, Any]], case: str, ours: dict[str, Any]) -> dict[str, Any]:
    """Columns of a rival's case beside our row.

    Its figures and how many times faster we are (medians, best runs, processor), or why there are none.
    """
    row = rows.get(case) or rows.get("") or {"error": "not measured"}
    if "error" in row:
        return {"peer": row["error"]}
    return {
        "peer": row["peer"],
        "peer_seconds": row["seconds"],
        "peer_processor_seconds": row["processor_seconds"],
        "peer_bytes": row.get("bytes"),
        "times_faster": row["seconds"] / ours["seconds"],
        "times_faster_best": min(row["runs"]) / ours["best_seconds"],
        "times_less_processor": row["processor_seconds"] / ours["processor_seconds"],
    }

"""Rivals from PyPI, measured in the same run: each in an environment of its own that ``make peers`` sets up.

An environment is ``NAME`` under ``$HUSHNET_PEERS``, or under ``hushnet-peers`` in the user's cache; the programs that
run there are in ``programs/``. A benchmark whose rival is absent says so in its rows.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

PROGRAMS = Path(__file__).parent / "programs"
PATIENCE = 1800.0


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

"""Measuring one plan: several runs, the median, errors against the float network, peak memory."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Literal

import hushnet
import numpy as np
from hushnet import Model, _native

# Names that HUSHNET_SIMD takes, each with what the ones before it have.
SIMD = ("portable", "avx2", "avx512", "ifma", "vnni", "amx")


def usable(path: str, best: str | None = None) -> bool:
    """Whether a process here can be told to use an instruction set.

    This machine has it, and `HUSHNET_SIMD` does not forbid it.

    Args:
        best: the most that there is; by default what this process runs on.
    """
    best = _native.simd() if best is None else best
    if "neon" in (path, best):
        # ARM has this one and plain Rust.
        return best == "neon" and path in ("portable", "neon")
    return SIMD.index(path) <= SIMD.index(best)


def left_out(path: str) -> str:
    """The note of a row that needs an instruction set which is not there."""
    return f"left out: this row needs {path}, and this machine (or HUSHNET_SIMD) has no more than {_native.simd()}"


def measure(
    model: Model,
    x: np.ndarray,
    *,
    threads: int,
    runs: int = 3,
    reference: np.ndarray | None = None,
    transport: Literal["pipe", "loopback"] = "loopback",
) -> dict[str, Any]:
    """Median interactive seconds of both parties together, set-up apart, bytes, rounds, memory, error."""
    results = [hushnet.run(model, x, threads=threads, transport=transport) for _ in range(runs)]
    traces = [r.trace for r in results]
    seconds = statistics.median(t["seconds"] for t in traces)
    trace, last = traces[-1], results[-1]
    row = {
        "images": trace["images"],
        "seconds": seconds,
        "images_per_second": trace["images"] / seconds,
        "setup_seconds": statistics.median(t["setup_seconds"] for t in traces),
        "setup_bytes_down": trace["setup_bytes_down"],
        "bytes_up": trace["bytes_up"],
        "bytes_down": trace["bytes_down"],
        "megabytes_per_image": (trace["bytes_up"] + trace["bytes_down"]) / trace["images"] / 1e6,
        "rounds": trace["rounds"],
        "peak_memory_bytes": trace["peak_memory_bytes"],
        "predicted_error": model.plan.predicted["max_error"],
    }
    if reference is not None:
        y = next(iter(last.outputs.values()))[: len(reference)]
        row["max_error"] = float(np.abs(y - reference).max())
        row["agreement"] = float((y.reshape(len(y), -1).argmax(1) == reference.reshape(len(y), -1).argmax(1)).mean())
    return row


def measure_apart(model: Model, x: np.ndarray, *, threads: int, runs: int, simd: str | None = None) -> dict[str, Any]:
    """:func:`measure` in a process of its own (its peak memory is its own), on another SIMD path if asked."""
    with tempfile.TemporaryDirectory() as folder:
        plan, images = Path(folder) / "plan.hush", Path(folder) / "x.npy"
        model.save(plan)
        np.save(images, x)
        environment = dict(os.environ) | ({"HUSHNET_SIMD": simd} if simd else {})
        command = [sys.executable, "-m", "hushnet_bench.measure", str(plan), str(images), str(threads), str(runs)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise hushnet.HushnetError(f"the measuring process ended with {done.returncode}: {done.stderr.strip()[-500:]}")
    return json.loads(done.stdout.splitlines()[-1])


def _child(plan: str, images: str, threads: str, runs: str) -> None:
    print(json.dumps(measure(Model.load(plan), np.load(images), threads=int(threads), runs=int(runs))))


if __name__ == "__main__":
    _child(*sys.argv[1:])

"""One CKKS bootstrap: seconds, levels left, precision beside the derived, bytes, memory; OpenFHE's beside it."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

from hushnet_bench import peers
from hushnet_bench.registry import Benchmark

# slots of messages, runs, slots and levels of OpenFHE's (its bootstrap of 2^15 slots takes 16 GB)
CASES = [("full", 1 << 15, 3, None), ("sparse", 1 << 12, 3, 1 << 12)]
QUICK_DEGREE = 1 << 11
LEVELS = 8


@dataclass(frozen=True)
class Bars:
    """What one thread with AVX-512 is to keep."""

    seconds: float
    bits: float = 20.0
    levels: int = LEVELS
    key_bytes: int = 1_500_000_000
    failure_bits: float = -40.0


BARS = {"full": Bars(5.0), "sparse": Bars(2.5)}

CHILD = """
import json, resource, sys
from hushnet_bench import _native
slots, runs, degree = json.loads(sys.argv[1])
row = json.loads(_native.bootstrap_measure(slots, runs, degree))
row["peak_memory_bytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
print(json.dumps(row))
"""


def _ours(slots: int, runs: int, degree: int | None) -> dict[str, Any]:
    """In a process of its own, so that the peak of memory is its own."""
    words = [sys.executable, "-c", CHILD, json.dumps([slots, runs, degree])]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    measured: dict[str, Any] = json.loads(done.stdout)
    return measured


def rows(*, quick: bool, threads: int, progress: Any, peer: bool = True) -> list[dict[str, Any]]:
    """A row a packing; with ``quick`` the same steps in a ring of 2^11 without security."""
    del threads  # a bootstrap runs on one
    cases = [("quick", QUICK_DEGREE // 2, 1, None), ("quick, sparse", 64, 1, None)] if quick else CASES
    out: list[dict[str, Any]] = []
    for case, slots, runs, rival in cases:
        if progress:
            progress(f"bootstrap: {case}", len(out), len(cases))
        row = _ours(slots, runs, QUICK_DEGREE if quick else None)
        row |= {"case": f"{case}, {slots} slots", "method": "hushnet", "seconds": statistics.median(row["runs"])}
        row["processor_seconds"] = statistics.median(row["processor_runs"])
        row["best_seconds"] = min(row["runs"])
        if case in BARS:
            bars = BARS[case]
            row["kept"] = {
                "seconds": row["seconds"] <= bars.seconds,
                "bits": row["rms_error_bits"] >= bars.bits,
                "levels": row["levels_left"] >= bars.levels,
                "key_bytes": row["key_bytes"] <= bars.key_bytes,
                "failure": row["failure_bits"] <= bars.failure_bits,
            }
        if rival and peer:
            found = peers.measure("openfhe", "openfhe_bootstrap.py", [str(rival), str(LEVELS)])
            row["openfhe"] = found.get("bootstrap") or found.get("")
            if "seconds" in row["openfhe"]:
                row["times_faster"] = row["openfhe"]["seconds"] / row["seconds"]
        out.append(row)
    return out


BENCHMARK = Benchmark(
    name="bootstrap",
    about="one CKKS bootstrap, full and sparse: seconds, precision beside the derived, bytes; OpenFHE's beside it",
    source="docs/bootstrapping.md",
    run=rows,
)

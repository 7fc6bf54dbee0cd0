"""The smallest size of every benchmark, side by side, each on a core of its own: ``python bench/quick.py HUSHNET``.

``HUSHNET`` is the command to call. What a benchmark writes is shown when it fails; none is begun after a failure.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from threading import Event

LONGEST = ("two-party-methods", "real-models", "resnet50", "ngraph-he2", "serve")


def names(hushnet: str) -> list[str]:
    """What there is to run; ends the program where the list cannot be had or is empty."""
    done = subprocess.run([hushnet, "bench", "--list", "--json"], stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        sys.exit("the list of benchmarks could not be had")
    found = [row["name"] for row in json.loads(done.stdout)]
    if not found:
        sys.exit("hushnet bench --list names no benchmark")
    # The longest first, so that no core waits for one that began last.
    return sorted(found, key=lambda name: name not in LONGEST)


def cores() -> list[int | None]:
    """The cores that this process may use; one without a number where the system does not tell."""
    return [*sorted(os.sched_getaffinity(0))] if hasattr(os, "sched_getaffinity") else [None]


def run(hushnet: str, name: str) -> tuple[int, str]:
    """One benchmark: its exit status, and what it wrote."""
    done = subprocess.run(
        [hushnet, "bench", name, "--quick", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
        # One thread of BLAS: its threads would wait for each other on the one core.
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
    )
    return done.returncode, done.stdout


def main(hushnet: str) -> int:
    """Runs all; 1 when one failed."""
    failed = Event()
    free: SimpleQueue[int | None] = SimpleQueue()
    for core in cores():
        free.put(core)

    def pin() -> None:
        # Affinity is a thread's own, and what it starts inherits it.
        if (core := free.get()) is not None:
            os.sched_setaffinity(0, {core})

    def one(name: str) -> None:
        if failed.is_set():
            return
        start = time.monotonic()
        status, written = run(hushnet, name)
        told = f"== bench {name} --quick: {time.monotonic() - start:.0f} s"
        if status:
            failed.set()
            told = f"{written.rstrip()}\n{told}, failed with status {status}"
        print(told, flush=True)

    with ThreadPoolExecutor(len(cores()), initializer=pin) as pool:
        for done in [pool.submit(one, name) for name in names(hushnet)]:
            done.result()
    return int(failed.is_set())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))

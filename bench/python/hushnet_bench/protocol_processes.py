"""A native protocol between two processes on loopback, one core each: how the two-party protocols are measured.

``python -m hushnet_bench.protocol_processes FUNCTION OPTIONS [ADDRESS]`` is one of them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import hushnet

# Taken when this module is imported: a benchmark pins its own process to fewer.
CORES = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
PATIENCE = 600.0


def measure(function: str, /, **options: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Runs ``hushnet_bench._native.FUNCTION(**options)`` as party 0 and as party 1; what each of them says."""
    first = _start(function, options, None, 0)
    try:
        line = first.stdout.readline() if first.stdout else ""
        if not line.startswith("port "):
            raise _failed(first)
        second = _start(function, options, f"127.0.0.1:{int(line.split()[1])}", 1)
        try:
            theirs = _result(second)
            return _result(first), theirs
        finally:
            second.kill()
    finally:
        first.kill()
        first.wait()


def _start(function: str, options: dict[str, Any], address: str | None, party: int) -> subprocess.Popen[str]:
    command = [
        sys.executable,
        "-m",
        "hushnet_bench.protocol_processes",
        function,
        json.dumps(options),
        str(core(party)),
        *([address] if address else []),
    ]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def core(party: int) -> int:
    """The core of a party; -1 where processes cannot be pinned."""
    return CORES[party % len(CORES)] if CORES else -1


def _result(process: subprocess.Popen[str]) -> dict[str, Any]:
    out, errors = process.communicate(timeout=PATIENCE)
    if process.returncode:
        raise hushnet.HushnetError(f"a measuring process ended with {process.returncode}: {errors.strip()[-500:]}")
    result: dict[str, Any] = json.loads(out.splitlines()[-1])
    return result


def _failed(process: subprocess.Popen[str]) -> hushnet.HushnetError:
    _, errors = process.communicate(timeout=PATIENCE)
    return hushnet.HushnetError(f"a measuring process did not start: {errors.strip()[-500:]}")


def _child(function: str, options: str, on: str, address: str | None = None) -> None:
    from hushnet_bench import _native as measuring

    if int(on) >= 0:
        os.sched_setaffinity(0, {int(on)})
    announce = None if address else lambda port: print(f"port {port}", flush=True)
    print(getattr(measuring, function)(address, announce, **json.loads(options)), flush=True)


if __name__ == "__main__":
    _child(*sys.argv[1:])

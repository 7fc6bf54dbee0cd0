"""A plan served by one process and used by another, a core each, over loopback: what both parties measured."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hushnet
import numpy as np

from hushnet_bench.namespaces import Link

# what this process may use, before a benchmark narrows it
_ALLOWED = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
START_SECONDS, TRACE_SECONDS = 600.0, 60.0


@dataclass(frozen=True)
class Measured:
    """Outputs of all runs' images, the client's traces of all runs, and the server's trace of the session.

    Attributes:
        shared: the parties shared cores, because there are too few.
        offline: the client's trace of what was prepared before, with ``kept_bytes`` of each party; None: nothing was.
    """

    outputs: dict[str, np.ndarray]
    client: list[dict[str, Any]]
    server: dict[str, Any]
    shared: bool
    offline: dict[str, Any] | None = None

    @property
    def median(self) -> dict[str, Any]:
        """The client's trace of the run of median time."""
        return sorted(self.client, key=lambda t: t["seconds"])[len(self.client) // 2]


def cores(threads: int) -> tuple[set[int], set[int], bool]:
    """Cores of server and client, and whether they are the same ones."""
    server, client = set(_ALLOWED[:threads]), set(_ALLOWED[threads : 2 * threads])
    return (server, client, False) if len(client) == threads else (server, server, True)


def measure(
    model: hushnet.Model,
    x: np.ndarray | Mapping[str, np.ndarray],
    *,
    batch: int = 1,
    threads: int = 1,
    seconds: float | None = None,
    link: Link | None = None,
    prepared: bool = False,
) -> Measured:
    """Runs a plan between two processes, in one session, ``batch`` of the images ``x`` after the other.

    Args:
        x: images of the one input, or of each input by name.
        threads: cores of each party, to which its process is pinned.
        seconds: no further run begins after so many seconds of them.
        link: network namespaces that the processes run in; None for loopback.
        prepared: every inference is prepared before, in a session of its own (``Measured.offline``).

    Raises:
        HushnetError: a process ended early; with what it said.
    """
    server_cores, client_cores, shared = cores(threads)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model.save(folder / "plan.hush")
        arrays = dict(x) if isinstance(x, Mapping) else {model.input_names[0]: x}
        inputs: dict[str, Any] = {f"x{i}": v for i, v in enumerate(arrays.values())}
        np.savez(folder / "x.npz", **inputs)
        with _server(folder, threads, server_cores, link, prepared) as (url, process, started):
            before = cpu_seconds(process.pid)
            order = {
                "folder": name,
                "url": url,
                "threads": threads,
                "batch": batch,
                "seconds": seconds,
                "inputs": list(arrays),
                "prepared": prepared,
                "server": process.pid,
            }
            done = subprocess.run(
                [
                    *(link.client if link else []),
                    sys.executable,
                    "-m",
                    "hushnet_bench.two_processes",
                    json.dumps(order),
                ],
                capture_output=True,
                text=True,
                check=False,
                preexec_fn=_pin(client_cores),
                env=_environment(threads),
            )
            if done.returncode:
                raise hushnet.HushnetError(
                    f"the client process ended with {done.returncode}: {done.stderr.strip()[-500:]}"
                )
            server = json.loads(_line(folder / "server.jsonl", 2 if prepared else 1)) | {
                "cpu_seconds": cpu_seconds(process.pid) - before,
                "start_seconds": started,
            }
        with np.load(folder / "outputs.npz") as archive:
            outputs = {name: archive[name] for name in archive.files}
        offline = json.loads((folder / "offline.json").read_text()) if prepared else None
        return Measured(outputs, json.loads((folder / "client.json").read_text()), server, shared, offline)


def _environment(threads: int) -> dict[str, str]:
    return dict(os.environ) | dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), str(threads))


def _pin(chosen: set[int]) -> Any:
    return (lambda: os.sched_setaffinity(0, chosen)) if chosen else None


@contextmanager
def _server(
    folder: Path, threads: int, chosen: set[int], link: Link | None, prepared: bool
) -> Iterator[tuple[str, subprocess.Popen[str], float]]:
    """The server's URL, its process, and the seconds after which it listened: Python's start, and all weights."""
    host = link.host if link else "127.0.0.1"
    command = [
        *(link.server if link else []),
        sys.executable,
        "-m",
        "hushnet",
        "serve",
        str(folder / "plan.hush"),
        "--listen",
        f"{host}:0",
        "--json",
        # Once a model, and not in an inference that waits for it: seconds of it are told by themselves.
        "--prepare-first",
    ]
    command += [
        "--threads",
        str(threads),
        "--trace",
        str(folder / "server.jsonl"),
        "--idle-timeout",
        str(START_SECONDS),
        *(("--prepared", str(folder / "server-units")) if prepared else ()),
    ]
    with open(folder / "server.err", "w+") as errors:
        started = time.monotonic()
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            preexec_fn=_pin(chosen),
            env=_environment(threads),
        )
        try:
            line = process.stdout.readline() if process.stdout else ""
            if not line or "url" not in json.loads(line):
                errors.seek(0)
                raise hushnet.HushnetError(f"the server process did not start: {line} {errors.read()[-500:]}")
            yield json.loads(line)["url"], process, time.monotonic() - started
        finally:
            process.terminate()
            process.wait(timeout=30)


def cpu_seconds(pid: int) -> float:
    """Seconds of processor time that a process has used so far (Linux; 0 elsewhere)."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _line(path: Path, sessions: int) -> str:
    """The server's trace of the last of so many sessions, which comes when the session has ended."""
    limit = time.monotonic() + TRACE_SECONDS
    while time.monotonic() < limit:
        if path.exists() and path.read_text().count("\n") >= sessions:
            return path.read_text().splitlines()[-1]
        time.sleep(0.05)
    raise hushnet.HushnetError("the server wrote no trace")


def _client(order: dict[str, Any]) -> None:
    folder = Path(order["folder"])
    with np.load(folder / "x.npz") as archive:
        x = {name: archive[f"x{i}"] for i, name in enumerate(order["inputs"])}
    batch, limit = order["batch"], order["seconds"]
    results: list[hushnet.Result] = []
    units = folder / "client-units" if order["prepared"] else None
    if units:
        with hushnet.connect(order["url"], threads=order["threads"], prepared=units) as connection:
            offline = connection.prepare(len(next(iter(x.values()))))
        kept = {n: sum(f.stat().st_size for f in (folder / f"{n}-units").glob("*.unit")) for n in ("client", "server")}
        (folder / "offline.json").write_text(json.dumps(offline | {"kept_bytes": kept}))
    started = time.monotonic()
    with hushnet.connect(order["url"], threads=order["threads"], images=batch, prepared=units) as connection:
        for first in range(0, len(next(iter(x.values()))), batch):
            if results and limit is not None and time.monotonic() - started > limit:
                break
            cpu, server = time.process_time(), cpu_seconds(order["server"])
            results.append(connection.infer({name: v[first : first + batch] for name, v in x.items()}))
            results[-1].trace["cpu_seconds"] = time.process_time() - cpu
            results[-1].trace["server_cpu_seconds"] = cpu_seconds(order["server"]) - server
    outputs: dict[str, Any] = {k: np.concatenate([r.outputs[k] for r in results]) for k in results[0].outputs}
    np.savez(folder / "outputs.npz", **outputs)
    (folder / "client.json").write_text(json.dumps([r.trace for r in results]))


if __name__ == "__main__":
    _client(json.loads(sys.argv[1]))

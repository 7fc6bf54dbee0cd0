"""Several servers behind one front on a Ray cluster: workers that are killed, throughput by their number, data sets."""

from __future__ import annotations

import hashlib
import os
import random
import signal
import socket
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import hushnet
import hushnet.ray
import numpy as np
from hushnet.ray.front import until
from hushnet.ray.replica import patiently
from hushnet.ray.service import needed

from hushnet_bench import faults, service
from hushnet_bench.registry import Benchmark

CASES = ("kill", "throughput", "map", "reload")
CLIENTS, REPLICAS = 32, 3
# Seconds for which a client tries again; for which clients come at one number of replicas.
PATIENCE, LOAD_SECONDS = 60.0, 8.0
# Kinds of frames that say the same in every session: greeting, block, end. A two-party session's first bytes name the
# plan (docs/two-party.md).
PLAIN, OPENING = {1, 5, 8}, b"HN2P"


def rows(
    *, quick: bool, threads: int, progress: Any, cases: Sequence[str] | None = None, **_: Any
) -> list[dict[str, Any]]:
    """One row a measurement; ``cases`` of :data:`CASES`."""
    wanted = tuple(CASES if cases is None else cases)
    unknown = sorted(set(wanted) - set(CASES))
    if unknown:
        raise hushnet.InputError(f"ray: no case {unknown[0]!r}: choose of {', '.join(CASES)}")
    if quick:
        try:
            needed()
        except hushnet.HushnetError as error:
            return [{"case": "ray", "skipped": str(error)}]
    out: list[dict[str, Any]] = []
    with local(REPLICAS), tempfile.TemporaryDirectory() as name:
        networks = [service.tiny(trust, Path(name)) for trust in service.TRUSTS]
        for case in CASES:
            if case in wanted:
                out += ROWS[case](networks, Path(name), quick)
    return out


@contextmanager
def local(workers: int) -> Iterator[None]:
    """A cluster of this machine alone, with as many processors as workers are wanted, however many it has."""
    ray = needed()
    # Workers are as important as their clients here; Ray's own value puts them behind all else on the machine.
    os.environ.setdefault("RAY_worker_niceness", "0")
    ray.init(
        num_cpus=2 * workers, include_dashboard=False, log_to_driver=False, object_store_memory=256 << 20,
        configure_logging=False,
    )  # fmt: skip
    # What Ray says of workers that died is no part of the document; it says some of it as it ends.
    with redirect_stdout(sys.stderr):
        try:
            yield
        finally:
            ray.shutdown()


class Tap:
    """A door in front of a server that keeps what clients send, to see whether anything is sent twice."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._door = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.port = int(self._door.getsockname()[1])
        self.streams: list[bytearray] = []
        self._thread = threading.Thread(target=self._take, daemon=True)
        self._thread.start()

    def _take(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._door.accept()
                kept = bytearray()
                self.streams.append(kept)
                threading.Thread(target=self._pass, args=(client, kept), daemon=True).start()

    def _pass(self, client: socket.socket, kept: bytearray) -> None:
        with client, suppress(OSError), socket.create_connection(("127.0.0.1", self._target)) as server:
            back = threading.Thread(target=faults.pump, args=(server, client, bytearray()), daemon=True)
            back.start()
            faults.pump(client, server, kept)
            back.join()

    def repeated(self) -> dict[str, int]:
        """Frames that clients have sent, and how many of them are equal to another one."""
        seen: Counter[bytes] = Counter()
        for stream in self.streams:
            for frame in faults.frames(bytes(stream)):
                payload = frame[faults.HEADER :]
                # What is short says what is done, and has nothing random.
                if frame[3] not in PLAIN and len(payload) >= 32 and not payload.startswith(OPENING):
                    seen[hashlib.sha256(payload).digest()] += 1
        return {"frames": seen.total(), "repeated_frames": seen.total() - len(seen)}

    def close(self) -> None:
        """Takes no more."""
        self._door.close()


@dataclass
class Tally:
    """What clients got; shared by their threads."""

    right: int = 0
    wrong: int = 0
    tries: int = 0
    failed: list[str] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)


def ask(url: str, network: service.Network, row: int, tally: Tally) -> None:
    """One inference of a client that tries again when its server is gone."""

    def once() -> np.ndarray:
        with tally.lock:
            tally.tries += 1
        with hushnet.connect(f"{url}/{network.trust}", threads=1) as client:
            return next(iter(client.infer(network.rows[row : row + 1]).outputs.values()))

    begun = time.monotonic()
    try:
        got = patiently(once, PATIENCE)
    except hushnet.HushnetError as error:
        with tally.lock:
            tally.failed.append(f"{network.trust}: {error}")
        return
    right = np.abs(got - network.answers[row : row + 1]).max() <= 2 * network.tolerance
    with tally.lock:
        tally.right, tally.wrong = tally.right + bool(right), tally.wrong + (not right)
        tally.seconds.append(time.monotonic() - begun)


def kill(networks: list[service.Network], _: Path, quick: bool) -> list[dict[str, Any]]:
    """A worker is killed in the middle of the work of many clients: each has right answers in the end."""
    clients, each, tally = 8 if quick else CLIENTS, 4, Tally()
    models = {network.trust: network.plan for network in networks}
    with hushnet.ray.serve(models, replicas=2 if quick else REPLICAS, max_sessions=64) as served:
        tap = Tap(served.port)
        url = f"hush://127.0.0.1:{tap.port}"

        def work(number: int) -> None:
            rng = random.Random(number)
            for turn in range(each):
                ask(url, networks[(number + turn) % len(networks)], rng.randrange(8), tally)

        threads = [threading.Thread(target=work, args=(n,)) for n in range(clients)]
        start = time.monotonic()
        for thread in threads:
            thread.start()
        # In the middle: a quarter has its answers, and the one that is killed has clients now.
        until(lambda: tally.right >= clients * each // 4, PATIENCE)
        victim = max(served.replicas(), key=lambda r: (r["connections"] or {"active": 0})["active"])
        os.kill(victim["pid"], signal.SIGKILL)
        killed = time.monotonic()
        for thread in threads:
            thread.join()
        took = time.monotonic() - start

        def back() -> bool:
            return any(r["name"] == victim["name"] and r["pid"] != victim["pid"] for r in served.replicas())

        again = until(back, PATIENCE)
        told: dict[str, Any] = {
            "clients": clients,
            "replicas": len(served.replicas()),
            "answers": tally.right,
            "wrong": tally.wrong,
        }
        told |= {"without_answer": len(tally.failed), "tries_again": tally.tries - clients * each}
        told |= {"connections_of_the_killed": (victim["connections"] or {}).get("active", 0), "seconds": took}
        told |= {"seconds_until_it_was_back": time.monotonic() - killed if again else None}
        told |= {"slowest_answer_seconds": max(tally.seconds, default=None), "failures": tally.failed[:3]}
        told |= tap.repeated()
        tap.close()
    ok = tally.right == clients * each and not tally.wrong and not told["repeated_frames"] and again
    return [{"case": "kill", "ok": ok} | told]


def throughput(networks: list[service.Network], _: Path, quick: bool) -> list[dict[str, Any]]:
    """Sessions a second by the number of replicas: measured here, and computed for machines with a core for each."""
    out: list[dict[str, Any]] = []
    for network in networks[:1] if quick else networks:
        cost: dict[str, float] = {}
        for replicas in (1, 2) if quick else (1, 2, REPLICAS):
            with hushnet.ray.serve({network.trust: network.plan}, replicas=replicas, max_sessions=64) as served:
                tally, stop = Tally(), threading.Event()

                def work(tally: Tally = tally, stop: threading.Event = stop, url: str = served.url) -> None:
                    while not stop.is_set():
                        ask(url, network, 0, tally)  # noqa: B023 - all threads end before the next network

                pids = [r["pid"] for r in served.replicas()]
                front = served.front.thread_id()
                before = sum(_cpu(pid) for pid in pids), _cpu(os.getpid(), front)
                threads = [threading.Thread(target=work) for _ in range(4 * replicas)]
                start = time.monotonic()
                for thread in threads:
                    thread.start()
                stop.wait(1.0 if quick else LOAD_SECONDS)
                stop.set()
                for thread in threads:
                    thread.join()
                took = time.monotonic() - start
                servers, passed = sum(_cpu(pid) for pid in pids) - before[0], _cpu(os.getpid(), front) - before[1]
            if tally.wrong or tally.failed or not tally.right:
                raise hushnet.HushnetError(f"ray: {tally.wrong} wrong answers, {tally.failed[:1]}")
            told = {
                "server_cpu_seconds_a_session": servers / tally.right,
                "front_cpu_seconds_a_session": passed / tally.right,
            }
            cost = cost or told
            row: dict[str, Any] = {"case": "throughput", "network": network.name, "method": network.trust}
            row |= {"replicas": replicas}
            row |= {"clients": 4 * replicas, "sessions_per_second": tally.right / took, "kind": "measured"}
            out.append(row | {"cores": len(os.sched_getaffinity(0)), "wrong": tally.wrong} | told)
        # A core for each replica, one for the front, and clients elsewhere; what one replica's run measured.
        each, passing = cost["server_cpu_seconds_a_session"], max(cost["front_cpu_seconds_a_session"], 1e-6)
        for replicas in (1, 2, 4, 8, 16, 32):
            row = {"case": "throughput", "network": network.name, "method": network.trust, "replicas": replicas}
            out.append(row | {"sessions_per_second": min(replicas / each, 1 / passing), "kind": "computed"})
    return out


def _cpu(pid: int, thread: int | None = None) -> float:
    """Processor seconds of a process, or of one of its threads, so far."""
    path = Path(f"/proc/{pid}/stat" if thread is None else f"/proc/{pid}/task/{thread}/stat")
    after = path.read_text().rpartition(")")[2].split()
    return (int(after[11]) + int(after[12])) / os.sysconf("SC_CLK_TCK")


def mapped(networks: list[service.Network], folder: Path, quick: bool) -> list[dict[str, Any]]:
    """A data set: cut off and begun again, with a worker killed; each batch has one answer, and is asked for once."""
    network, size = networks[0], 4
    count = 8 if quick else 24
    inputs = np.concatenate([network.rows] * (count * size // len(network.rows)))
    wanted = np.concatenate([network.answers] * (count * size // len(network.rows)))
    results, seen, killed = folder / "results", [0], [0]

    class CutOffError(Exception):
        pass

    def cut(done: int, _: int) -> None:
        seen[0] = done
        if done == count // 3:
            raise CutOffError

    def attack(done: int, _: int) -> None:
        if done == count // 2 and not killed[0]:
            pids = _workers("Worker")
            killed[0] = len(pids[:1])
            for pid in pids[:1]:
                os.kill(pid, signal.SIGKILL)

    with hushnet.ray.serve(network.plan, replicas=2, max_sessions=16) as served:
        with suppress(CutOffError):
            hushnet.ray.map(served.url, inputs, results, size=size, workers=2, progress=cut)
        first = {path.name: path.stat().st_mtime_ns for path in results.glob("batch-*.npz")}
        start = time.monotonic()
        got = hushnet.ray.map(served.url, inputs, results, size=size, workers=2, progress=attack)
        took = time.monotonic() - start
        kept = sum((results / name).stat().st_mtime_ns == at for name, at in first.items())
        until(lambda: all(not r["stats"]["active"] for r in served.replicas()), 10)
        blocks = sum(r["stats"]["blocks"] for r in served.replicas())
    wrong = int((np.abs(next(iter(got.values())) - wanted) > 2 * network.tolerance).any(1).sum())
    told: dict[str, Any] = {
        "batches": count,
        "kept_of_the_first_run": kept,
        "seconds": took,
        "workers_killed": killed[0],
    }
    # Of what was under way when it was cut off or killed, up to a batch a worker was computed twice and answered once.
    ok = not wrong and kept == len(first) == seen[0] and count <= blocks <= count + 4
    return [{"case": "map", "ok": ok, "wrong_rows": wrong, "blocks_computed": blocks} | told]


def _workers(kind: str) -> list[int]:
    """Processes of Ray's that have an object of a class."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if path.read_bytes().startswith(f"ray::{kind}".encode()) and _descends(int(path.parent.name), os.getpid()):
                found.append(int(path.parent.name))
    return sorted(found)


def _descends(pid: int, ancestor: int) -> bool:
    while pid > 1 and pid != ancestor:
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return pid == ancestor


def reload(networks: list[service.Network], folder: Path, _: bool) -> list[dict[str, Any]]:
    """Other weights while clients work: a session keeps what it began with, new ones get them, also after a kill."""
    first = networks[0]
    (folder / "second").mkdir(exist_ok=True)
    other = service.tiny(first.trust, folder / "second", seed=5)
    tally = Tally()
    with hushnet.ray.serve({first.trust: first.plan}, replicas=2, max_sessions=16) as served:
        with hushnet.connect(f"{served.url}/{first.trust}", threads=1) as old:
            old.infer(first.rows[:1])
            start = time.monotonic()
            served.reload({first.trust: other.plan})
            took = time.monotonic() - start
            kept = next(iter(old.infer(first.rows[:1]).outputs.values()))
        for row in range(4):
            ask(served.url, other, row, tally)
        victim = served.replicas()[0]
        os.kill(victim["pid"], signal.SIGKILL)
        back = until(
            lambda: served.replicas()[0]["pid"] != victim["pid"] and served.replicas()[0]["generation"] == 1, PATIENCE
        )
        for row in range(4):
            ask(served.url, other, row, tally)
    same = bool(np.abs(kept - first.answers[:1]).max() <= 2 * first.tolerance)
    ok = same and back and tally.right == 8 and not tally.wrong
    told = {"seconds": took, "answers": tally.right, "wrong": tally.wrong, "session_keeps_its_plan": same}
    return [{"case": "reload", "ok": ok} | told | {"killed_one_has_the_new_plan": back, "failures": tally.failed[:3]}]


ROWS = {"kill": kill, "throughput": throughput, "map": mapped, "reload": reload}
BENCHMARK = Benchmark(
    "ray", "servers on a Ray cluster: a worker killed, throughput by their number, data sets", "-", rows
)

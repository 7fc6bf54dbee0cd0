"""A server as its operator meets it: load, memory, bad peers, restarts, in all trust models."""

from __future__ import annotations

import os
import random
import socket
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import hushnet
import numpy as np

from hushnet_bench import faults, service
from hushnet_bench.registry import Benchmark

CLIENTS = (1, 4, 16, 64)
CASES = ("load", "bad-peers", "restart", "memory", "many")
# Sessions one after the other, and at once.
SEQUENTIAL, AT_ONCE = 10_000, 256
# Seconds that clients come one after the other at one load.
LOAD_SECONDS = 8.0
BAD = 200
# Where peers that misbehave come from; a good client's own address is the first one.
ADDRESSES = ("127.0.0.1", "127.0.0.2") if sys.platform == "linux" else ("127.0.0.1",)
# What sessions of the memory table hold: networks, images of a block.
MEMORY = (("mlp-784-128-128-10", (1, 64)), ("mnist-cnn", (1,)))


def rows(
    *, quick: bool, threads: int, progress: Any, cases: Sequence[str] | None = None, **_: Any
) -> list[dict[str, Any]]:
    """One row a measurement; ``cases`` of :data:`CASES`, of one trust model where one stands behind a colon."""
    asked = tuple(CASES if cases is None else cases)
    known = [*CASES, *(f"{case}:{trust}" for case in CASES for trust in service.TRUSTS)]
    unknown = sorted(set(asked) - set(known))
    if unknown:
        behind = f"each with or without a trust model behind it (:{service.TRUSTS[0]})"
        raise hushnet.InputError(f"serve: no case {unknown[0]!r}: choose of {', '.join(CASES)}, {behind}")
    out: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for trust in service.TRUSTS:
            wanted = {case for case in CASES if case in asked or f"{case}:{trust}" in asked}
            if not wanted - {"memory"}:
                continue
            network = service.tiny(trust, folder)
            if "load" in wanted:
                out += load(network, (1, 4) if quick else CLIENTS, 0.4 if quick else LOAD_SECONDS, threads)
            if "bad-peers" in wanted and (not quick or trust == "two-party"):
                out += [bad_peers(network, 20 if quick else BAD, threads, address) for address in ADDRESSES]
            if "many" in wanted and (not quick or trust == "client-aided"):
                size = (40, 4) if quick else (SEQUENTIAL, AT_ONCE)
                out.append(many(network, *size, threads, progress))
            if "restart" in wanted and (not quick or trust == "non-interactive"):
                out.append(restart(network, folder, threads))
                if trust != "non-interactive" and not quick:
                    # what is measured is the server, so no bits are searched for
                    few: dict[str, Any] = {"images": 1, "calibration": 2, "weight_bits": 8, "batch": 1}
                    for shape in ("resnet50", "resnet50-224"):
                        out.append(restart(service.network(shape, trust, folder, **few), folder, threads))
        for architecture, images in () if quick else MEMORY:
            for trust in service.TRUSTS:
                if "memory" in asked or f"memory:{trust}" in asked:
                    out += memory(architecture, trust, images, folder, threads)
    return out


def session(url: str, x: np.ndarray, network: service.Network, keys: Path | None = None) -> float:
    """Seconds of one session with one inference whose answer is right.

    Raises:
        HushnetError: it is wrong.
    """
    start = time.perf_counter()
    options: dict[str, Any] = {} if keys is None else {"keys": keys}
    with hushnet.connect(url, threads=1, **options) as client:
        got = next(iter(client.infer(x).outputs.values()))
    seconds = time.perf_counter() - start
    off = float(np.abs(got[:1] - network.answers[:1]).max())
    if off > 2 * network.tolerance:
        raise hushnet.HushnetError(f"{network.name}, {network.trust}: a wrong answer, off by {off:.3g}")
    return seconds


def load(network: service.Network, clients: Sequence[int], seconds: float, threads: int) -> list[dict[str, Any]]:
    """Sessions a second and their times, by clients at once that come again and again."""
    out = []
    with service.served(network.plan, "--max-sessions", 64, "--threads", threads, "--log-level", "error") as server:
        session(server.url, network.rows[:1], network)
        for count in clients:
            times: list[float] = []
            failed: list[str] = []
            end = time.perf_counter() + seconds
            server.forget_peak()
            before = server.resident()

            def come(end: float = end, times: list[float] = times, failed: list[str] = failed) -> None:
                while time.perf_counter() < end:
                    try:
                        times.append(session(server.url, network.rows[:1], network))
                    except hushnet.HushnetError as error:
                        failed.append(str(error))
                        return

            start = time.perf_counter()
            _together(come, count)
            took = time.perf_counter() - start
            if failed:
                raise hushnet.HushnetError(f"{len(failed)} of {count} clients failed: {failed[0]}")
            peak = max(0, server.peak() - before)
            out.append(
                _row(network, "load", clients=count, sessions=len(times), sessions_per_second=len(times) / took)
                | {"p50_seconds": _part(times, 0.5), "p99_seconds": _part(times, 0.99)}
                | {"megabytes_a_client": peak / count / 1e6}
            )
    return out


def many(network: service.Network, sequential: int, at_once: int, threads: int, progress: Any) -> dict[str, Any]:
    """Very many sessions one after the other, then many at once: what the server holds before, meanwhile and after.

    Every answer is compared.
    """
    options: tuple[str | int, ...] = (
        "--max-sessions",
        at_once,
        "--max-connections",
        4 * at_once,
        "--line",
        600,
        "--memory",
        64,
    )
    options += ("--idle-timeout", 600, "--patience", 600, "--threads", threads, "--log-level", "error")
    held: list[dict[str, int]] = []

    def look(server: service.Served) -> dict[str, int]:
        return {"bytes": server.resident(), "threads": server.threads(), "descriptors": server.descriptors()}

    with service.served(network.plan, *options) as server:
        # Pools of threads and of memory fill.
        for _ in range(max(8, sequential // 50)):
            session(server.url, network.rows[:1], network)
        start = time.perf_counter()
        for number in range(sequential):
            session(server.url, network.rows[:1], network)
            if number % max(1, sequential // 50) == 0:
                held.append(look(server))
                if progress:
                    progress(f"serve: {network.trust}", number, sequential)
        took, quarter = time.perf_counter() - start, max(1, len(held) // 4)
        first, last = (
            {k: sum(h[k] for h in part) / len(part) for k in held[0]} for part in (held[:quarter], held[-quarter:])
        )
        times: list[float] = []
        failed: list[str] = []
        gate = threading.Barrier(at_once)

        def come() -> None:
            try:
                with hushnet.connect(server.url, threads=1) as client:
                    gate.wait(600)
                    begun = time.perf_counter()
                    got = next(iter(client.infer(network.rows[:1]).outputs.values()))
                    gate.wait(600)
                    times.append(time.perf_counter() - begun)
                if np.abs(got - network.answers[:1]).max() > 2 * network.tolerance:
                    failed.append("a wrong answer")
            except (hushnet.HushnetError, threading.BrokenBarrierError) as error:
                gate.abort()
                failed.append(f"{type(error).__name__}: {error}")

        server.forget_peak()
        _together(come, at_once)
        peak = server.peak()
        # Threads that wait for work end after ten seconds; buffers that nobody needs go back as soon.
        service.until(lambda: server.threads() <= last["threads"] + 2, 40)
        service.until(lambda: server.resident() <= 1.1 * last["bytes"] + (24 << 20), 40)
        after = look(server)
    told: dict[str, Any] = {"sequential": sequential, "seconds": took, "sessions_per_second": sequential / took}
    told |= {
        f"{k}_{when}": value for when, h in (("first_quarter", first), ("last_quarter", last)) for k, value in h.items()
    }
    told |= {"at_once": at_once, "answered_at_once": len(times), "failed": len(failed), "failures": failed[:3]}
    told |= {"peak_bytes_at_once": peak} | {f"{k}_after": value for k, value in after.items()}
    flat = all(
        last[k] <= first[k] * 1.05 + slack for k, slack in (("bytes", 4 << 20), ("threads", 2), ("descriptors", 2))
    )
    back = after["threads"] <= last["threads"] + 2 and after["descriptors"] <= last["descriptors"] + 2
    return _row(network, "many", ok=flat and back and not failed, **told)


def bad_peers(network: service.Network, count: int, threads: int, address: str = "127.0.0.1") -> dict[str, Any]:
    """A good client alone, and beside peers that keep connections, greetings and slots for as long as they may.

    Args:
        address: of the others; where it is the client's own they are one peer, and wait in one line.
    """
    options = ("--max-sessions", 4, "--threads", threads, "--line", 20, "--log-level", "error")
    with service.served(network.plan, *options) as server, ExitStack() as stack:
        alone = statistics.median(session(server.url, network.rows[:1], network) for _ in range(3))
        recorded = faults.record(server.port, network.rows[:1])
        rng, stream = random.Random(1), recorded.stream
        beginnings = [b"", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"GET /ws HTTP/1.1\r\nHost:", stream[:20]]
        for number in range(count):
            where = ("127.0.0.1", server.port)
            peer = stack.enter_context(socket.create_connection(where, timeout=5, source_address=(address, 0)))
            kind = number % (len(beginnings) + 1)
            some = beginnings[kind] if kind < len(beginnings) else stream[: rng.randrange(100, len(stream))]
            with suppress(OSError):
                peer.settimeout(0.2)
                peer.sendall(some)
        waiting = server.metric("clients_waiting")
        beside = [session(server.url, network.rows[:1], network) for _ in range(3)]
    told: dict[str, Any] = {
        "peers": count,
        "peers_are": "one peer with it" if address == ADDRESSES[0] else "another peer",
    }
    told |= {"waiting": waiting, "seconds_alone": alone, "seconds": max(beside), "seconds_more": max(beside) - alone}
    return _row(network, "bad-peers", **told, load=os.getloadavg()[0])


def restart(network: service.Network, folder: Path, threads: int) -> dict[str, Any]:
    """Seconds from starting a server that was killed to its first answer, and what the client sends before it.

    ``warm_seconds`` are those of a session before the kill, with weights that were prepared: the rest is the restart's.
    """
    options = ["--threads", str(threads), "--log-level", "info"]
    keys = None
    if network.trust == "non-interactive":
        keys = folder / "client"
        options += ["--keys", str(folder / "server")]
    with service.served(network.plan, *options) as server:
        session(server.url, network.rows[:1], network, keys)
        start = time.perf_counter()
        session(server.url, network.rows[:1], network, keys)
        warm = time.perf_counter() - start
        port = server.port
        server.process.kill()
        server.process.wait()
    start = time.perf_counter()
    with service.served(network.plan, *options, port=port) as server:
        started, listened = time.perf_counter() - start, server.processor_seconds()
        named: dict[str, Any] = {} if keys is None else {"keys": keys}
        with hushnet.connect(server.url, threads=1, **named) as client:
            trace = client.infer(network.rows[:1]).trace
        told = {"seconds": time.perf_counter() - start, "seconds_to_listen": started}
        told |= {"warm_seconds": warm, "seconds_of_the_restart": told["seconds"] - warm}
        told |= {"processor_seconds_to_listen": listened, "plan_bytes": network.plan.stat().st_size}
        prepared = [line for line in server.log if "the weights are prepared" in line]
        if prepared:
            told["seconds_to_prepare_weights"] = float(prepared[0].rpartition("seconds=")[2])
    if keys is not None:
        told["key_bytes_sent_again"] = trace["setup_bytes_up"]
    return _row(network, "restart", **told)


def memory(
    architecture: str, trust: str, images: Sequence[int], folder: Path, threads: int, clients: int = 4
) -> list[dict[str, Any]]:
    """What sessions really hold beside what the server reserves for them."""
    network = service.network(
        architecture, trust, folder, images=2, **({"batch": 1} if trust == "non-interactive" else {})
    )
    out = []
    options = ("--max-sessions", 64, "--threads", threads, "--log-level", "error")
    for count in images if trust == "two-party" else images[:1]:
        x = np.repeat(network.rows[:1], count, 0)
        with service.served(network.plan, *options) as server:
            before = server.resident()
            server.forget_peak()
            gate = threading.Barrier(clients)

            def work(gate: threading.Barrier = gate, x: np.ndarray = x) -> None:
                with hushnet.connect(server.url, threads=1) as client:
                    gate.wait(120)
                    client.infer(x)
                    gate.wait(120)

            _together(work, clients)
            held = (server.peak() - before) / clients
            reserved = server.metric("memory_reserved_peak_bytes") / clients
            most = sum(server.about["session_memory"].values())
        out.append(
            _row(network, "memory", images=count, clients=clients)
            | {"megabytes_a_session": held / 1e6, "megabytes_reserved_a_session": reserved / 1e6}
            | {"megabytes_largest_session": most / 1e6, "sessions": server.about["sessions"]}
        )
    return out


def _together(act: Any, count: int) -> None:
    threads = [threading.Thread(target=act) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _part(times: list[float], part: float) -> float:
    return sorted(times)[min(len(times) - 1, int(part * len(times)))]


def _row(network: service.Network, case: str, **told: Any) -> dict[str, Any]:
    return {"case": case, "method": network.trust, "network": network.name} | told


BENCHMARK = Benchmark(
    "serve", "a server under load: sessions a second, memory, bad peers, restart to first answer", "-", rows
)

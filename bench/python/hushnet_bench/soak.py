"""Good clients and faults against servers of all trust models for as long as one likes: answers, and what servers hold.

``python -m hushnet_bench.soak --seconds 1800 --seed 1`` prints one JSON document and ends with 1 where anything is
wrong: an answer that is not the reference's, an error that no fault explains, or memory, descriptors or threads that
grow.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import hushnet
import numpy as np

from hushnet_bench import faults, service
from hushnet_bench.registry import machine

# What a server may hold more at the end than in the beginning: allocators keep some of what they had.
GROWTH_BYTES, GROWTH_PART = 24 << 20, 0.10
GROWTH_THREADS, GROWTH_DESCRIPTORS = 4, 4
DEVIATIONS = 3.0
# The part of a run that is left out in the beginning, while caches fill and threads start; and the least seconds that
# tell something of growth.
WARM, LEAST_SECONDS = 0.4, 60.0
# Largest file that the server with a full disk may write.
DISK = 1 << 16
# Days that a wall clock is wrong at most: less than half of those that keys are kept for.
DAYS = 10
CHILD = "import sys,hushnet,numpy as np; c=hushnet.connect(sys.argv[1],threads=1); x=np.load(sys.argv[2]);\n" + (
    "while True: c.infer(x); print(flush=True)"
)


@dataclass
class Tally:
    """What happened; shared by all threads."""

    right: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    refused: int = 0
    # Another program's server answered on the port.
    strangers: int = 0
    interrupted: int = 0
    wrong: list[str] = field(default_factory=list)
    unexplained: list[str] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)


@dataclass
class Target:
    """A server under test with the network that it serves."""

    name: str
    network: service.Network
    server: service.Served
    # Errors of the connection are the fault's while it is not steady.
    steady: bool = True
    keys: Path | None = None
    samples: list[dict[str, float]] = field(default_factory=list)

    def sample(self, start: float) -> None:
        """Notes what the server holds now."""
        with suppress(OSError, KeyError):
            self.samples.append(
                {
                    "seconds": time.monotonic() - start,
                    "bytes": self.server.resident(),
                    "threads": self.server.threads(),
                    "descriptors": self.server.descriptors(),
                }
            )


def ask(target: Target, tally: Tally, rng: random.Random) -> None:
    """One session of a good client, each answer compared."""
    network = target.network
    begun = time.monotonic()
    try:
        options: dict[str, Any] = {"keys": target.keys} if target.keys is not None else {}
        with hushnet.connect(target.server.url, threads=1, plan=target.network.plan, **options) as client:
            for _ in range(rng.choice([1, 1, 1, 2, 3])):
                at = rng.randrange(len(network.rows))
                count = rng.randrange(1, len(network.rows) - at + 1)
                got = next(iter(client.infer(network.rows[at : at + count]).outputs.values()))
                _compare(target, tally, got, network.answers[at : at + count])
    except hushnet.HushnetError as error:
        text = f"{target.name}: {type(error).__name__}: {error}"
        with tally.lock:
            if "another plan" in text:
                tally.strangers += 1
            elif "full" in text or "guests" in text:
                tally.refused += 1
            elif not target.steady and isinstance(error, (hushnet.TransportError, hushnet.ProtocolError)):
                tally.interrupted += 1
            else:
                tally.unexplained.append(text)
        time.sleep(0.05)
    else:
        with tally.lock:
            tally.seconds.append(time.monotonic() - begun)


def _compare(target: Target, tally: Tally, got: np.ndarray, wanted: np.ndarray) -> None:
    """Counts an answer; wrong is what is further from the reference's than the plan says of either."""
    off = float(np.abs(got - wanted).max()) if got.shape == wanted.shape else float("inf")
    with tally.lock:
        if off <= 2 * target.network.tolerance:
            tally.right[target.name] += len(got)
        else:
            tally.wrong.append(f"{target.name}: off by {off:.3g}, allowed {2 * target.network.tolerance:.3g}")


def attack(target: Target, session: faults.Recorded, tally: Tally, rng: random.Random) -> None:
    """One fault of a kind that a peer can do alone."""
    kind = rng.choice(sorted(faults.FAULTS))
    with suppress(OSError):
        faults.FAULTS[kind](target.server.port, session, rng)
    with tally.lock:
        tally.faults[kind] += 1


def kill_client(target: Target, folder: Path, tally: Tally) -> None:
    """A client process is killed in the middle of its work."""
    rows = folder / f"{target.name}-rows.npy"
    np.save(rows, target.network.rows)
    command = [sys.executable, "-c", CHILD, target.server.url, str(rows)]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert child.stdout is not None
    child.stdout.readline()
    child.kill()
    child.wait()
    child.stdout.close()
    with tally.lock:
        tally.faults["killed client"] += 1


def hang_up(target: Target, tally: Tally) -> None:
    """SIGHUP while clients work."""
    target.server.process.send_signal(signal.SIGHUP)
    with tally.lock:
        tally.faults["SIGHUP"] += 1


def exhaust(target: Target, tally: Tally) -> None:
    """More connections than the server has descriptors for; good clients may be turned away meanwhile, not later."""
    target.steady = False
    peers = []
    try:
        with suppress(OSError):
            for _ in range(150):
                peers.append(socket.create_connection(("127.0.0.1", target.server.port), timeout=2))
        time.sleep(0.3)
    finally:
        for peer in peers:
            peer.close()
    time.sleep(1.0)
    target.steady = True
    with tally.lock:
        tally.faults["exhausted descriptors"] += 1


def jump(clock: faults.Clock, tally: Tally, rng: random.Random) -> None:
    """The wall clock of all servers goes forth or back, by up to :data:`DAYS` days."""
    clock.jump(rng.randrange(-DAYS, DAYS + 1) * 86_400 + rng.randrange(3600))
    with tally.lock:
        tally.faults["clock jump"] += 1


def fill(target: Target, tally: Tally, rng: random.Random) -> None:
    """A client whose keys the server cannot write, because its disk is full, gets its answer all the same."""
    with tempfile.TemporaryDirectory() as own:
        ask(Target(target.name, target.network, target.server, keys=Path(own)), tally, rng)
    with tally.lock:
        tally.faults["full disk"] += 1


class Restarted:
    """A server that is killed with SIGKILL and started again on its port, with the keys that it has kept."""

    def __init__(self, target: Target, options: list[str], tally: Tally, clock: faults.Clock):
        self.target, self.options, self.tally, self.clock = target, options, tally, clock
        self.stack = ExitStack()
        self.kept = self.sent = 0
        self.seconds: list[float] = []

    def again(self) -> None:
        """Kills it, starts it, and asks whether a client that comes again sends its keys."""
        target, begun = self.target, time.monotonic()
        target.steady = False
        port = target.server.port
        target.server.process.kill()
        target.server.process.wait()
        begun = time.monotonic()
        again = service.served(target.network.plan, *self.options, port=port, environment=self.clock.environment)
        target.server = self.stack.enter_context(again)
        with hushnet.connect(target.server.url, threads=1, keys=target.keys, plan=target.network.plan) as client:
            result = client.infer(target.network.rows[:1])
        self.seconds.append(time.monotonic() - begun)
        _compare(target, self.tally, next(iter(result.outputs.values())), target.network.answers[:1])
        target.steady = True
        if result.trace["setup_bytes_up"] < 1000:
            self.kept += 1
        else:
            self.sent += 1
        with self.tally.lock:
            self.tally.faults["kill -9 of the server"] += 1


def flat(samples: list[dict[str, float]]) -> dict[str, Any]:
    """End against begin and the slope of the least-squares line, of what a server held once it was warm."""
    samples = samples[int(WARM * len(samples)) :]
    seconds = np.array([s["seconds"] for s in samples])
    judged = len(samples) > 8 and bool(seconds[-1] - seconds[0] >= LEAST_SECONDS)
    told: dict[str, Any] = {"samples": len(samples), "judged": judged, "flat": True}
    if not judged:
        return told
    for what, slack in (("bytes", GROWTH_BYTES), ("threads", GROWTH_THREADS), ("descriptors", GROWTH_DESCRIPTORS)):
        values = np.array([s[what] for s in samples])
        part = max(1, len(values) // 4)
        begin, end = float(values[:part].mean()), float(values[-part:].mean())
        slope, start = (float(v) for v in np.polyfit(seconds - seconds[0], values, 1))
        grown = slope * float(seconds[-1] - seconds[0])
        # What goes up and down without growing moves the means of quarters so much by chance.
        chance = DEVIATIONS * float((values - start - slope * (seconds - seconds[0])).std()) * (2 / part) ** 0.5
        allowed = slack + GROWTH_PART * begin + chance
        told[what] = {"begin": begin, "end": end, "slope_a_second": slope, "peak": float(values.max())}
        told["flat"] = told["flat"] and end - begin <= allowed and grown <= allowed
    return told


def _limited() -> None:
    """In the server of full disks: files may not become large."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (DISK, DISK))


def _few() -> None:
    """In the server of few descriptors."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (160, 160))


def _repeat(stop: threading.Event, tally: Tally, act: Callable[[], None], pause: float = 0.0) -> threading.Thread:
    def run() -> None:
        while not stop.is_set():
            try:
                act()
            except Exception:  # an error of the test itself must not pass for a survivor
                with tally.lock:
                    tally.unexplained.append(traceback.format_exc(limit=3))
            if pause:
                stop.wait(pause)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


def run(seconds: float, seed: int = 1, clients: int = 4, attackers: int = 4) -> dict[str, Any]:
    """Runs for so long and tells what came of it.

    Args:
        seed: of what clients ask and which faults they do; times are the machine's.
        clients: good ones at once.
        attackers: peers at once that do what faults.py has.
    """
    tally, stop = Tally(), threading.Event()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        common = ["--max-sessions", "6", "--memory", "1", "--patience", "0.5", "--line", "20", "--log-level", "warning"]
        clock = faults.Clock(folder)
        targets = []
        for trust in service.TRUSTS:
            network = service.tiny(trust, folder, seed=seed)
            extra = ["--record", folder / "recorded"] if trust == "client-aided" else []
            limit = _few if trust == "two-party" else None
            server = stack.enter_context(
                service.served(network.plan, *common, *extra, before=limit, environment=clock.environment)
            )
            targets.append(Target(trust, network, server))
        network = targets[2].network
        full = [*common, "--keys", str(folder / "full")]
        server = stack.enter_context(
            service.served(network.plan, *full, before=_limited, environment=clock.environment)
        )
        targets.append(Target("full disk", network, server, keys=folder / "client-full"))
        kept = [*common, "--keys", str(folder / "kept")]
        server = stack.enter_context(service.served(network.plan, *kept, environment=clock.environment))
        targets.append(Target("restarted", network, server, keys=folder / "client-kept"))
        sessions = {t.name: faults.record(t.server.port, t.network.rows[:1]) for t in targets}
        _warm(targets, tally)
        restarted = Restarted(targets[-1], kept, tally, clock)
        stack.enter_context(restarted.stack)
        before = [(t, t.server.threads(), t.server.descriptors()) for t in targets[:-1]]

        def client(number: int) -> Callable[[], None]:
            rng = random.Random(f"{seed} client {number}")
            return lambda: ask(rng.choice(targets), tally, rng)

        def attacker(number: int) -> Callable[[], None]:
            rng = random.Random(f"{seed} attacker {number}")

            def act() -> None:
                target = rng.choice(targets[:-1])
                attack(target, sessions[target.name], tally, rng)

            return act

        start = time.monotonic()
        threads = [_repeat(stop, tally, client(n)) for n in range(clients)]
        threads += [_repeat(stop, tally, attacker(n)) for n in range(attackers)]
        rare = max(3.0, seconds / 60)
        rng = random.Random(f"{seed} rare")
        threads += [
            _repeat(stop, tally, lambda: kill_client(rng.choice(targets[:3]), folder, tally), rare),
            _repeat(stop, tally, lambda: hang_up(rng.choice(targets[:3]), tally), rare / 2),
            _repeat(stop, tally, lambda: exhaust(targets[1], tally), 2 * rare),
            _repeat(stop, tally, restarted.again, 2 * rare),
            _repeat(stop, tally, lambda: fill(targets[3], tally, random.Random(0)), rare / 4),
        ]
        if clock.works:
            moves = random.Random(f"{seed} clock")
            threads.append(_repeat(stop, tally, lambda: jump(clock, tally, moves), rare / 4))
        while time.monotonic() - start < seconds:
            stop.wait(min(1.0, seconds / 20))
            for target in targets[:-1]:
                target.sample(start)
        stop.set()
        for thread in threads:
            thread.join(60)
        tally.unexplained += ["a thread of the soak hangs"] * sum(t.is_alive() for t in threads)
        held = [_settled(*row) for row in before]
        for target in targets:
            if target.server.process.poll() is not None:
                tally.unexplained.append(f"{target.name}: the server has ended: {target.server.log[-3:]}")
        return _told(tally, targets, held, restarted, seconds, seed)


def _warm(targets: list[Target], tally: Tally) -> None:
    for target in targets:
        ask(target, tally, random.Random(0))


def _settled(target: Target, threads: int, descriptors: int) -> dict[str, Any]:
    """Whether all that clients had is given back once they are gone."""
    server = target.server
    back = service.until(lambda: server.descriptors() <= descriptors and server.threads() <= threads + 2, 30)
    now = {"threads": server.threads(), "descriptors": server.descriptors()}
    return {"server": target.name, "before": {"threads": threads, "descriptors": descriptors}, "after": now, "ok": back}


def _told(
    tally: Tally, targets: list[Target], held: list[dict[str, Any]], restarted: Restarted, seconds: float, seed: int
) -> dict[str, Any]:
    servers = {t.name: flat(t.samples) for t in targets[:-1]}
    times = sorted(tally.seconds)
    at = lambda part: times[min(len(times) - 1, int(part * len(times)))] if times else None  # noqa: E731
    wrong, unexplained = len(tally.wrong), len(tally.unexplained)
    grown = [name for name, s in servers.items() if not s["flat"]]
    kept = [h for h in held if not h["ok"]]
    return {
        "name": "soak",
        "machine": machine(),
        "seconds": seconds,
        "seed": seed,
        "sessions": len(times),
        "session_seconds": {"p50": at(0.5), "p99": at(0.99)},
        "answers": dict(tally.right),
        "faults": dict(sorted(tally.faults.items())),
        "faults_in_all": sum(tally.faults.values()),
        "refused": tally.refused,
        "other_servers_met": tally.strangers,
        "interrupted": tally.interrupted,
        "restarts": {
            "keys_known": restarted.kept,
            "keys_sent_again": restarted.sent,
            "seconds_to_first_answer": restarted.seconds,
        },
        "servers": servers,
        "after_the_last_client": held,
        "wrong": wrong,
        "wrong_answers": tally.wrong[:5],
        "unexplained": unexplained,
        "unexplained_errors": tally.unexplained[:5],
        "grown": grown,
        "ok": not (wrong or unexplained or grown or kept or restarted.sent),
    }


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=1800)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--clients", type=int, default=4, help="good clients at once")
    parser.add_argument("--attackers", type=int, default=4, help="peers at once that misbehave")
    asked = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    told = run(asked.seconds, asked.seed, asked.clients, asked.attackers)
    print(json.dumps(told, indent=1))
    return 0 if told["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())

"""Memory of sessions and keys that are kept, as ``hushnet serve`` and its clients have them; real processes."""

from __future__ import annotations

import ctypes
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import hushnet
import numpy as np
import pytest
from hushnet_bench import faults, service, soak
from typer.testing import CliRunner

MIB = 1 << 20


def right(network: service.Network, url: str, **options: object) -> dict[str, object]:
    """The trace of a session whose answer is the reference's."""
    with hushnet.connect(url, threads=1, **options) as client:  # type: ignore[arg-type]
        result = client.infer(network.rows[:1])
    (got,) = result.outputs.values()
    np.testing.assert_allclose(got, network.answers[:1], atol=2 * network.tolerance)
    return result.trace


def test_a_small_network_has_all_slots_and_who_hoards_memory_gives_it(tmp_path: Path) -> None:
    network = service.tiny("two-party", tmp_path)
    with service.served(network.plan, "--max-sessions", 64) as server:
        assert server.about["sessions"] == 64
        right(network, server.url)
        one, largest = server.metric("memory_reserved_peak_bytes"), server.about["session_memory"]
        assert one < 16 * MIB < largest["block"]
    # Room for a few sessions, for the largest block and no second one.
    memory = sum(largest.values()) + 8 * largest["session"] + 8 * MIB
    options = ("--max-sessions", 8, "--memory", memory / 2**30, "--patience", 0.5, "--line", 20)
    rows = np.repeat(network.rows[:1], 4096, 0)
    with service.served(network.plan, *options) as server, ExitStack() as stack:
        assert server.about["sessions"] >= 4
        # Clients that announce the largest block and send nothing of it.
        announced = len(faults.record(server.port, network.rows[:1]).stream) + 40 * len(rows)
        for _ in range(3):
            stack.enter_context(faults.stalled(server.port, rows, announced))
        hoarded = largest["block"] // 2
        assert service.until(lambda: server.metric("memory_reserved_bytes") > hoarded, 20), server.log
        begun = time.monotonic()
        right(network, server.url)
        assert time.monotonic() - begun < 15
        assert server.metric("memory_reserved_peak_bytes") <= memory
        assert server.process.poll() is None


def test_all_slots_that_are_granted_work_at_once_whatever_the_memory(tmp_path: Path) -> None:
    network, slots = service.tiny("non-interactive", tmp_path), 8
    # Of so much memory 256 bytes are counted as one, which no session's size is a multiple of.
    options = ("--max-sessions", slots, "--memory", 64, "--patience", 600, "--line", 600)
    with service.served(network.plan, *options) as server:
        assert server.about["sessions"] == slots
        gate, answered = threading.Barrier(slots), []

        def work() -> None:
            with hushnet.connect(server.url, threads=1) as client:
                client.infer(network.rows[:1])
                # All hold their slots now.
                gate.wait(30)
                answered.append(client.infer(network.rows[:1]))

        threads = [threading.Thread(target=work) for _ in range(slots)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(answered) == slots


def test_keys_are_sent_once_also_to_a_server_that_was_killed(tmp_path: Path) -> None:
    network = service.tiny("non-interactive", tmp_path)
    rows = tmp_path / "rows.npy"
    np.save(rows, network.rows[:1])
    options = ("--keys", tmp_path / "server", "--keys-quota", 1, "--keys-days", 2)
    own = tmp_path / "client"
    with service.served(network.plan, *options) as server:
        whole = right(network, server.url)["setup_bytes_up"]
        assert right(network, server.url, keys=own)["setup_bytes_up"] >= whole > 10_000
        assert right(network, server.url, keys=own)["setup_bytes_up"] < 100
        port = server.port
        server.process.kill()
        server.process.wait()
    with service.served(network.plan, *options, port=port) as server:
        assert right(network, server.url, keys=own)["setup_bytes_up"] < 100
        trace = tmp_path / "trace.json"
        from hushnet.cli.main import app

        asked = ["infer", server.url, str(rows), "--keys", str(own), "--trace", str(trace), "--json"]
        assert CliRunner().invoke(app, asked).exit_code == 0
        assert '"setup_bytes_up": 5' in trace.read_text().replace("\n", "")
        # a second server shares the folder: its clients' keys are the same
        with service.served(network.plan, *options) as second:
            moved = tmp_path / "moved"
            assert right(network, second.url, keys=moved)["setup_bytes_up"] >= whole
            assert right(network, second.url, keys=moved)["setup_bytes_up"] < 100
            assert len(list((tmp_path / "server").glob("*.keys"))) == 2


def test_growth_is_found() -> None:
    def held(what: str, values: np.ndarray) -> bool:
        row = {"bytes": 4e8, "threads": 9.0, "descriptors": 8.0}
        return soak.flat([row | {"seconds": float(i), what: float(v)} for i, v in enumerate(values)])["flat"]

    steady, rng = np.ones(200), np.random.default_rng(1)
    assert held("bytes", 4e8 * steady + rng.uniform(0, 3e7, 200))
    assert not held("bytes", 4e8 + 1e6 * np.arange(200))
    assert held("descriptors", 8 + rng.integers(0, 60, 200))
    assert not held("descriptors", 8 + np.arange(200) / 10)
    assert not held("threads", 9 + np.arange(200) / 10)


def test_a_wrong_answer_and_an_unexplained_error_are_found(tmp_path: Path) -> None:
    network = service.tiny("client-aided", tmp_path)
    with service.served(network.plan) as server:
        target, tally = soak.Target("good", network, server), soak.Tally()
        rng = soak.random.Random(1)
        soak.ask(target, tally, rng)
        assert tally.right["good"] > 0 and not tally.wrong
        soak.ask(
            soak.Target("bad", service.Network(**(vars(network) | {"answers": network.answers + 1})), server),
            tally,
            rng,
        )
        assert tally.wrong and not tally.unexplained
        server.process.kill()
        server.process.wait()
        soak.ask(target, tally, rng)
        assert len(tally.unexplained) == 1
        soak.ask(soak.Target("restarted", network, server, steady=False), tally, rng)
        assert len(tally.unexplained) == 1 and tally.interrupted == 1


def test_recorded_sessions_are_frames(tmp_path: Path) -> None:
    network = service.tiny("client-aided", tmp_path)
    with service.served(network.plan) as server:
        recorded = faults.record(server.port, network.rows[:1])
        assert len(recorded.frames) >= 5 and all(f[:2] == b"HN" for f in recorded.frames)


# Live bytes of a process as its allocator counts them: neither what is free but kept, nor what other processes do.
COUNTING = """
import ctypes, gc, sys, time, hushnet
from hushnet import _native

NAMES = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"

class Info(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in NAMES.split()]

libc = ctypes.CDLL(None)
libc.mallinfo2.restype = Info
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
server = hushnet.serve(sys.argv[1], max_sessions=int(sys.argv[2]), threads=int(sys.argv[3]))
print(server.port, flush=True)
for line in sys.stdin:
    while any(server.stats()[what] for what in ("active", "guests", "waiting")):
        time.sleep(0.01)
    for _ in range(int(line)):
        libc.malloc(4096)
    server.traces()
    time.sleep(0.1)
    _native.release_buffers(), _native.release_buffers()
    gc.collect()
    info = libc.mallinfo2()
    print(info.uordblks + info.hblkhd, flush=True)
"""
# Bytes that allocators' lists and Python's may hold more for all sessions together.
SLACK = 96 << 10


def grown(
    network: service.Network, sessions: int, planted: int = 0, at_once: int = 2, threads: int = 1, rounds: int = 1
) -> int:
    """Bytes that a server holds more after so many sessions than after the first ones, two at a time.

    Args:
        rounds: what each session leaves grows in every one of them; room for two sessions' work at the same moment,
            which is kept, grows once, and sessions may not have met before. The least growth of a round counts.
        at_once: sessions at a time after the first ones.
        threads: of the server; 0: those of the machine, and each session's work begins on a thread of its own.
    """
    command = [sys.executable, "-c", COUNTING, str(network.plan), str(max(4, at_once)), str(threads)]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdin is not None and child.stdout is not None
    url = f"hush://127.0.0.1:{int(child.stdout.readline())}"

    def held(planted: int) -> int:
        assert child.stdin is not None and child.stdout is not None
        print(planted, file=child.stdin, flush=True)
        return int(child.stdout.readline())

    def come(count: int) -> None:
        for _ in range(count):
            right(network, url)

    def work(count: int, at_once: int = 2) -> None:
        threads = [threading.Thread(target=come, args=(count // at_once,)) for _ in range(at_once)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    try:
        work(12)
        first, least = held(0), None
        for _ in range(rounds):
            work(sessions, at_once)
            now = held(planted)
            for _ in range(8):
                # a connection's last words may still be on their way
                if now - first < SLACK:
                    break
                time.sleep(0.3)
                now = held(0)
            least = now - first if least is None else min(least, now - first)
            if least < SLACK:
                break
            first = now
        assert least is not None
        return least
    finally:
        child.kill()
        child.wait()
        child.stdin.close()
        child.stdout.close()


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="the C library does not count live bytes")
@pytest.mark.parametrize("trust", service.TRUSTS)
def test_nothing_is_kept_of_sessions_that_have_ended(trust: str, tmp_path: Path) -> None:
    network = service.tiny(trust, tmp_path)
    assert grown(network, 24, rounds=3) < SLACK
    if trust == "client-aided":
        assert grown(network, 24, planted=24, rounds=3) > SLACK, "four kilobytes that each session leaves are found"


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="the C library does not count live bytes")
def test_more_sessions_at_once_leave_no_more_behind(tmp_path: Path) -> None:
    # The threads of the machine may keep 64 MiB each. Those of sessions, eight here, kept as much each.
    network = service.tiny("non-interactive", tmp_path)
    assert grown(network, 24, at_once=8, threads=0) < 45 * MIB

"""Kills of either party while inferences are prepared and spent: ``python -m tests.kills --count 1000``.

A server and a client run in processes of their own, on folders that outlive them. One of both is killed (SIGKILL) at a
random time and started again, so many times. The server's record of all that clients send tells how often each prepared
inference was announced: once when it is prepared, and once when it is spent. Every answer that came is a right one.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import socket
import time
from pathlib import Path
from typing import Any, NoReturn

import hushnet
import numpy as np

# exit codes of a client that has seen what must not be
WRONG = 3


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _serve(plan: Path, folder: Path, port: int) -> NoReturn:
    while True:
        try:
            handle = hushnet.serve(
                str(plan), port=port, threads=1, prepared=folder / "server", record=folder / "record"
            )
            break
        except hushnet.TransportError:
            time.sleep(0.01)
    (folder / "ready").write_text(str(os.getpid()))
    while handle.running:
        time.sleep(0.05)
    os._exit(0)


def _ask(url: str, folder: Path, x: np.ndarray, planned: np.ndarray, reach: float) -> NoReturn:
    """Prepares and spends without an end; notes what it prepared, and how many answers were right."""
    notes = os.open(folder / "notes", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    while True:
        lost = contextlib.suppress(hushnet.TransportError, hushnet.ProtocolError)
        with lost, hushnet.connect(url, threads=1, prepared=folder / "client") as connection:
            while True:
                if (connection.prepared or 0) < 2:
                    connection.prepare(2)
                for name in os.listdir(folder / "client"):
                    if name.endswith(".unit"):
                        os.write(notes, f"{name.removesuffix('.unit').partition('-')[2]}\n".encode())
                if np.abs(connection.infer(x).output - planned).max() > reach:
                    os._exit(WRONG)
                os.write(notes, b"answer\n")
        time.sleep(0.005)


def _start(child: Any, *arguments: Any) -> int:
    """A process that does this and nothing else."""
    pid = os.fork()
    if pid == 0:
        try:
            child(*arguments)
        finally:
            os._exit(1)
    return pid


def _progress(notes: Path, seconds: float = 30.0) -> None:
    """Waits until the client has noted something more, or for so many seconds."""
    size = lambda: notes.stat().st_size if notes.exists() else 0  # noqa: E731
    before, limit = size(), time.monotonic() + seconds
    while size() == before and time.monotonic() < limit:
        time.sleep(0.002)


def _counted(record: bytes, units: set[str]) -> dict[bytes, int]:
    """How often each 16-byte name stands in the record, in one pass that sieves places by their first three bytes."""
    found = {bytes.fromhex(unit): 0 for unit in units}
    begins = np.zeros(1 << 24, dtype=bool)
    begins[[int.from_bytes(name[:3], "little") for name in found]] = True
    step = 1 << 24
    for at in range(0, len(record), step):
        part = np.frombuffer(record[at : at + step + 2], dtype=np.uint8).astype(np.uint32)
        for i in at + np.flatnonzero(begins[part[:-2] | part[1:-1] << 8 | part[2:] << 16]):
            name = record[i : i + 16]
            if name in found:
                found[name] += 1
    return found


def kills(plan: Path, x: np.ndarray, folder: Path, count: int, *, reach: float, seed: int = 0) -> dict[str, int]:
    """Kills either party so many times and counts what became of every prepared inference.

    Args:
        plan: a two-party plan.
        x: one image.
        folder: an empty one for both parties' folders and records.
        reach: how far a right answer may be from the planned one.

    Returns:
        ``kills``, ``prepared`` (inferences that a client has had), ``spent``, ``twice`` (announced more than once: must
        be 0), ``answers`` (right ones) and ``wrong`` (must be 0).
    """
    from hushnet.reference import two_party as reference

    model = hushnet.Model.load(plan)
    planned = next(iter(reference.run(model.plan, {model.input_names[0]: x}).values()))
    rng, port = random.Random(seed), free_port()
    url = f"hush://127.0.0.1:{port}"
    parties = [(_serve, plan, folder, port), (_ask, url, folder, x, planned, reach)]
    alive, wrong = [_start(*party) for party in parties], 0
    try:
        for _ in range(count):
            # mostly somewhere in or between exchanges, however slow the machine is; sometimes as a party begins
            if rng.random() < 0.8:
                _progress(folder / "notes")
            time.sleep(rng.uniform(0.0, 0.3))
            which = rng.randrange(2)
            os.kill(alive[which], signal.SIGKILL)
            status = os.waitpid(alive[which], 0)[1]
            wrong += os.waitstatus_to_exitcode(status) == WRONG
            alive[which] = _start(*parties[which])
    finally:
        for pid in alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    record = folder / "record"
    lines = (folder / "notes").read_text().split() if (folder / "notes").exists() else []
    units = set(lines) - {"answer"}
    announced = list(_counted(record.read_bytes() if record.exists() else b"", units).values())
    return {
        "kills": count,
        "prepared": len(units),
        "spent": sum(times == 2 for times in announced),
        "twice": sum(times > 2 for times in announced),
        "answers": lines.count("answer"),
        "wrong": wrong,
    }


def _compiled(folder: Path) -> NoReturn:
    from tests.test_prepared import small

    x, reach = small(folder / "net.hush")
    np.save(folder / "x.npy", x)
    (folder / "reach").write_text(str(reach))
    os._exit(0)


def main() -> None:
    """The command line: a small network, and so many kills of it."""
    import tempfile

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1000, help="kills")
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        # compiled in a process of its own: a fork of one that has threads would inherit their locks
        os.waitpid(_start(_compiled, folder), 0)
        x, reach = np.load(folder / "x.npy"), float((folder / "reach").read_text())
        print(json.dumps(kills(folder / "net.hush", x, folder, chosen.count, reach=reach, seed=chosen.seed)))


if __name__ == "__main__":
    main()

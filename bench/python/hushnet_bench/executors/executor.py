"""Other libraries as executors of non-interactive networks.

Programs in interpreters of their own, requests as JSON lines.

The programs are in ``hushnet_bench/programs``; ``make peers`` installs the libraries, each in an environment of its
own.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from hushnet import HushnetError

from hushnet_bench import peers

Array = np.ndarray
Spec = tuple[dict[str, Any], dict[str, Array]]


class PeerMissing(HushnetError):
    """A library to compare with is not installed."""


class PeerFailed(HushnetError):
    """A library refused or ended."""


@dataclass(frozen=True)
class Parameters:
    """What the channel-wise circuit runs with.

    Attributes:
        ring_degree: N; the comparison has 16384.
        scale_bits: bits of the scale and of every prime that is rescaled away; the comparison has 30.
        first_bits: bits of the prime that is left at the end: the scale's and those of the largest result, with a sign.
        special_bits: bits of the key-switching prime (SEAL; OpenFHE chooses its own).
        mode: OpenFHE's scaling technique.
    """

    ring_degree: int = 16384
    scale_bits: int = 30
    first_bits: int = 45
    special_bits: int = 45
    mode: str = "FIXEDMANUAL"


def interpreter(library: str) -> Path:
    """The interpreter that has a library: in ``$HUSHNET_PEERS``, or ``hushnet-peers`` in the user's cache.

    Raises:
        PeerMissing: none found.
    """
    python = peers.folder() / library / "bin" / "python"
    if not python.exists():
        raise PeerMissing(
            f"{library} is not installed for comparisons: run `make peers`, or name the folder of its environments in "
            "HUSHNET_PEERS"
        )
    return python


class Executor:
    """One worker process; also a context manager."""

    def __init__(self, library: str, parameters: Parameters | None = None, *, core: int | None = None) -> None:
        self.peer, self.parameters = library, parameters or Parameters()
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
        environment.pop("PYTHONPATH", None)
        if core is not None:
            environment["HUSHNET_PEER_CORE"] = str(core)
        self._folder = tempfile.TemporaryDirectory()
        self._errors = open(Path(self._folder.name) / "errors", "w+")  # noqa: SIM115 - lives as long as the worker
        command = [str(interpreter(library)), str(peers.PROGRAMS / f"{library}_worker.py")]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env=environment,
            cwd=peers.PROGRAMS,
        )

    @property
    def pid(self) -> int:
        """The worker's process id."""
        return self._process.pid

    def setup(self, spec: Spec, *, sample: int | None = None) -> dict[str, Any]:
        """Lays the network out, makes keys; returns parameters, counts of operations, bytes of keys.

        Args:
            spec: ``Network.spec()``.
            sample: compute so many channels of every layer only and scale the times up (an estimate; there is no
                output).
        """
        document, arrays = spec
        path = self._path("network.npz")
        named: dict[str, Any] = dict(arrays)
        np.savez(path, **named)
        return self._ask({"do": "setup", "spec": document, "arrays": str(path), "sample": sample})

    def run(self, images: Array) -> tuple[Array | None, dict[str, Any]]:
        """The output tensor for images (B, elements of the input tensor), one at a time, and seconds of every step."""
        given, result = self._path("images.npy"), self._path("outputs.npy")
        np.save(given, np.asarray(images, dtype=np.float64))
        answer = self._ask({"do": "run", "images": str(given), "outputs": str(result)})
        return (np.load(result) if answer["complete"] else None), answer

    def operations(
        self, vectors: Mapping[str, Array], depth: int, rotations: Sequence[int], scalar: float
    ) -> tuple[dict[str, Array], dict[str, Any]]:
        """Single operations on slot vectors x, y, w (w and a scalar in the clear) and on x + iy, decrypted, by name.

        And the parameters. Sums of rotations take the first two steps, with the weights w and y. Complex results are
        all real parts, then all imaginary ones.
        """
        given, result = self._path("vectors.npz"), self._path("results.npz")
        named: dict[str, Any] = dict(vectors)
        np.savez(given, **named)
        request = {
            "do": "operations",
            "vectors": str(given),
            "outputs": str(result),
            "depth": depth,
            "rotations": list(rotations),
            "scalar": scalar,
        }
        answer = self._ask(request)
        return dict(np.load(result)), answer

    def primitives(self, depth: int, *, seconds: float = 0.5) -> dict[str, Any]:
        """Median microseconds of every primitive at the top level."""
        return self._ask({"do": "primitives", "depth": depth, "seconds": seconds})

    def close(self) -> None:
        """Ends the worker."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._errors.close()
        self._folder.cleanup()

    def __enter__(self) -> Executor:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _path(self, name: str) -> Path:
        return Path(self._folder.name) / name

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        p = self.parameters
        own = {
            "ring_degree": p.ring_degree,
            "scale_bits": p.scale_bits,
            "first_bits": p.first_bits,
            "special_bits": p.special_bits,
            "mode": p.mode,
        }
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps({**own, **request}) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise PeerFailed(self._ended()) from None
        for line in self._process.stdout:
            if line.startswith("JSON "):
                answer = json.loads(line[5:])
                if "error" in answer:
                    raise PeerFailed(f"{self.peer}: {answer['error']}\n{answer['where']}")
                return answer
        raise PeerFailed(self._ended())

    def _ended(self) -> str:
        self._process.wait()
        self._errors.seek(0)
        return f"{self.peer} ended with {self._process.returncode}: {self._errors.read()[-1500:]}"


class MemoryLog:
    """Resident bytes of a process over time; a context manager."""

    def __init__(self, pid: int, interval: float = 0.05) -> None:
        self.pid, self.interval = pid, interval
        self.samples: list[tuple[float, int]] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> MemoryLog:
        self._start = time.perf_counter()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    @property
    def peak(self) -> int:
        """Most bytes seen."""
        return max((bytes_ for _, bytes_ in self.samples), default=0)

    def _watch(self) -> None:
        page = os.sysconf("SC_PAGE_SIZE")
        while not self._stop.wait(self.interval):
            try:
                resident = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * page
            except (OSError, IndexError):
                return
            self.samples.append((time.perf_counter() - self._start, resident))

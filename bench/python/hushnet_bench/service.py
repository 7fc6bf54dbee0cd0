"""A server in a process of its own, what it holds, and the networks that it is measured with."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import hushnet
import numpy as np

START_SECONDS = 120.0
# Lines of the server's log that are kept.
LOG_LINES = 2000
TRUSTS = ("client-aided", "two-party", "non-interactive")


@dataclass
class Served:
    """A running ``hushnet serve``.

    Attributes:
        about: what it said of itself at its start, as JSON.
        log: the last lines of its log.
    """

    process: subprocess.Popen[str]
    about: dict[str, Any]
    log: list[str] = field(default_factory=list)

    @property
    def url(self) -> str:
        """Where clients find it."""
        return str(self.about["url"])

    @property
    def port(self) -> int:
        """Its port."""
        return int(self.about["port"])

    def resident(self) -> int:
        """Bytes of memory that it has now."""
        return _status(self.process.pid)["VmRSS"]

    def peak(self) -> int:
        """Most bytes of memory that it has had since :meth:`forget_peak`."""
        return _status(self.process.pid)["VmHWM"]

    def forget_peak(self) -> None:
        """The peak counts from now on."""
        Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")

    def metric(self, name: str) -> int:
        """A figure of its ``/metrics``."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=30) as page:
            lines = page.read().decode().splitlines()
        return int(next(line.split()[1] for line in lines if line.startswith(f"hushnet_{name} ")))

    def processor_seconds(self) -> float:
        """Seconds of processors that it has taken so far."""
        about = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(about[11]) + int(about[12])) / os.sysconf("SC_CLK_TCK")

    def threads(self) -> int:
        """Threads that it has now."""
        return len(os.listdir(f"/proc/{self.process.pid}/task"))

    def descriptors(self) -> int:
        """Files and sockets that it has open now."""
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))


def _status(pid: int) -> dict[str, int]:
    rows = Path(f"/proc/{pid}/status").read_text().splitlines()
    pairs = (row.split() for row in rows if row.startswith(("VmRSS", "VmHWM")))
    return {pair[0].rstrip(":"): int(pair[1]) << 10 for pair in pairs}


@contextmanager
def served(
    plan: Path,
    *options: Any,
    port: int = 0,
    before: Callable[[], None] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Iterator[Served]:
    """The server of a plan, until the block is left.

    Args:
        before: called in the server's process before it begins, for limits.
        environment: variables beside those that there are.

    Raises:
        HushnetError: it did not start; with the last of what it said.
    """
    command = [sys.executable, "-m", "hushnet", "serve", str(plan), "--listen", f"127.0.0.1:{port}", "--json"]
    process = subprocess.Popen(
        [*command, *map(str, options)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=before,
        env={**os.environ, **(environment or {})},
    )
    assert process.stdout is not None and process.stderr is not None
    lines: list[str] = []

    def read() -> None:
        for line in process.stderr or ():
            lines.append(line.rstrip())
            del lines[:-LOG_LINES]

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    try:
        said = process.stdout.readline()
        if not said:
            process.wait(10)
            raise hushnet.HushnetError(f"the server did not start: {lines[-3:]}")
        yield Served(process, json.loads(said), lines)
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        process.wait()
        reader.join(10)
        process.stdout.close()
        process.stderr.close()


@dataclass(frozen=True)
class Network:
    """A compiled network with rows for it, and what the plan's reference executor answers to them."""

    name: str
    trust: str
    plan: Path
    rows: np.ndarray
    answers: np.ndarray
    tolerance: float


def network(
    name: str, trust: str, folder: Path, *, images: int = 8, seed: int = 0, calibration: int = 32, **options: Any
) -> Network:
    """Compiles an architecture of the zoo into ``folder``.

    Args:
        images: rows to have answers for.
        calibration: rows to calibrate with.
    """
    from hushnet import zoo

    # Some architectures have one activation, and no choice.
    chosen: dict[str, Any] = {"activation": "square"} if trust == "non-interactive" else {}
    model = zoo.build(name, seed, **chosen)
    rng = np.random.default_rng(seed)
    shape = (max(images, calibration), *(d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim[1:]))
    rows = rng.uniform(0, 1, shape).astype(np.float32)
    return _compiled(name, trust, model, rows, folder, images, options)


def tiny(trust: str, folder: Path, *, seed: int = 0) -> Network:
    """A perceptron 6-5-3, which costs next to nothing in any trust model."""
    from onnx import TensorProto, helper

    rng = np.random.default_rng(seed)
    weights = [
        helper.make_tensor(name, TensorProto.FLOAT, shape, rng.normal(0, 0.5, shape).astype(np.float32).ravel())
        for name, shape in (("w", (6, 5)), ("v", (5, 3)))
    ]
    act = ("Mul", ["a", "a"]) if trust == "non-interactive" else ("Relu", ["a"])
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node(act[0], act[1], ["b"]),
        helper.make_node("MatMul", ["b", "v"], ["y"]),
    ]
    value = helper.make_tensor_value_info
    ends = ([value("x", TensorProto.FLOAT, ["n", 6])], [value("y", TensorProto.FLOAT, ["n", 3])])
    model = helper.make_model(helper.make_graph(nodes, "tiny", *ends, weights))
    rows = rng.uniform(-1, 1, (32, 6)).astype(np.float32)
    options = {"batch": 1} if trust == "non-interactive" else {}
    return _compiled("tiny", trust, model, rows, folder, 8, options)


def _compiled(
    name: str, trust: str, model: Any, rows: np.ndarray, folder: Path, images: int, options: dict[str, Any]
) -> Network:
    compiled = hushnet.compile(model, trust=trust, calibration=rows, **options)  # type: ignore[call-overload]
    path = folder / f"{name}-{trust}.hush"
    compiled.save(path)
    answers = next(iter(hushnet.run(compiled, rows[:images]).outputs.values()))
    return Network(name, trust, path, rows[:images], answers, float(compiled.plan.predicted["max_error"]))


def until(condition: Any, seconds: float) -> bool:
    """Whether a condition came true in so many seconds."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.02)
    return bool(condition())

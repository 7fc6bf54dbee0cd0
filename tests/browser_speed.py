"""``python -m tests.browser_speed``: the client in a headless Chromium beside the native one on one thread, as JSON.

For each trust model the same plan, the same inputs and a server of one thread in a process of its own. ``processor``
is what the client's process computed (the browser's renderer, this process), which a busy machine hardly moves;
``worker`` is the part of the page's worker, which computes: the rest is the browser's compiling and moving bytes.
``wall`` is what passed, the server's work included. ``set_up`` opens a session and runs one input, the browser's
compiling of the module included; ``early`` is one of the next five inputs, while the browser still compiles what it
finds to be used often; ``run`` is one input after :data:`WARM` more, fewer where they are long: blocks of the two
clients take turns, and a ratio is the median of the blocks' ratios (``blocks``), since a machine's speed changes
within minutes. Processor seconds of a browser come in hundredths, so inputs are timed many at a time. ``native_paths``
are processor seconds of ``run`` of native clients that are held to lesser instruction sets (``HUSHNET_SIMD``),
``ratio_paths`` the browser's over them: vectors of a page have 128 bits and no product of whole words.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import json
import math
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hushnet
import numpy as np
from hushnet import data, webpage, zoo

from tests.chromium import Page, program
from tests.test_browser import served

# Inputs behind the first one, and before those that count as `run`.
EARLY, WARM, WARM_SECONDS = 5, 30, 10
# Blocks of inputs, of which the median counts, and seconds that one takes at least.
BLOCKS, BLOCK_SECONDS = 7, 1.5
CASES: dict[str, tuple[str, dict[str, Any], int]] = {
    "client-aided, one image": ("cryptonets-relu", {"trust": "client-aided", "batch": 1}, 1),
    "client-aided, 2048 images": ("cryptonets-relu", {"trust": "client-aided", "batch": 2048}, 2048),
    "two-party, one image": ("cryptonets-relu", {"trust": "two-party"}, 1),
    "non-interactive, one image": ("cryptonets-square", {"trust": "non-interactive", "batch": 1}, 1),
}
# Instruction sets that the native client is held to beside its own.
PATHS = ("avx2", "portable")


Clocks = dict[str, Callable[[], float]]
Seconds = dict[str, float]


def clocked(clocks: Clocks, work: Callable[[], Any]) -> Seconds:
    """Seconds of a piece of work by each clock."""
    before = {name: clock() for name, clock in clocks.items()}
    work()
    return {name: clock() - before[name] for name, clock in clocks.items()}


class Client:
    """A client with an open session; ``work`` runs so many inputs."""

    def __init__(self, clocks: Clocks, first: Callable[[], Any], work: Callable[[int], Any]) -> None:
        self.clocks, self.work = clocks, work
        self.told: dict[str, Any] = {"set_up": clocked(clocks, first)}

    def each(self, count: int) -> Seconds:
        """Seconds of one of so many inputs."""
        return {name: seconds / count for name, seconds in clocked(self.clocks, lambda: self.work(count)).items()}

    def warm(self) -> int:
        """Runs early inputs, and until the client has its speed; how many a block has."""
        early = self.told["early"] = self.each(EARLY)
        # Long inputs are computed by compiled code sooner.
        warm = self.each(max(2, min(WARM, math.ceil(WARM_SECONDS / early["wall"]))))
        return min(math.ceil(BLOCK_SECONDS / warm["wall"]), 500)


def timed(*clients: Client) -> list[list[Seconds]]:
    """Seconds of one input, early and later; for every block those of each client."""
    counts = [client.warm() for client in clients]
    blocks = [[client.each(count) for client, count in zip(clients, counts, strict=True)] for _ in range(BLOCKS)]
    for client, of in zip(clients, zip(*blocks, strict=True), strict=True):
        client.told["run"] = {name: statistics.median(block[name] for block in of) for name in client.clocks}
    return blocks


def own() -> float:
    """Processor seconds of this process."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


@contextlib.contextmanager
def native(url: str, x: np.ndarray) -> Iterator[Client]:
    """The client of this process."""
    with contextlib.ExitStack() as stack:
        found: list[hushnet.Connection] = []

        def first() -> None:
            found.append(stack.enter_context(hushnet.connect(url, threads=1)))
            found[0].infer(x)

        clocks = {"processor": own, "wall": time.perf_counter}
        client = Client(clocks, first, lambda count: [found[0].infer(x) for _ in range(count)])
        yield client
        client.told["simd"] = found[0].infer(x).trace["simd"]


def held_to(path: str, url: str, x: np.ndarray) -> dict[str, Any] | None:
    """:func:`native` in a process that may use no more than an instruction set; nothing where it has less."""
    with tempfile.TemporaryDirectory() as folder:
        np.save(file := Path(folder) / "x.npy", x)
        command = [sys.executable, "-m", "tests.browser_speed", "--native", url, str(file)]
        environment = os.environ | {"HUSHNET_SIMD": path}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        assert "HUSHNET_SIMD" in done.stderr, done.stderr
        return None
    return dict(json.loads(done.stdout))


@contextlib.contextmanager
def browser(page_url: str, x: np.ndarray) -> Iterator[Client]:
    """The client of a page: images are drawn in the page, since their values do not change what is computed."""
    with Page(page_url) as page:
        page.wait("document.querySelector('#ways button')")
        # A browser that is asked for its traffic writes every frame into a message to who asked: several times what
        # sending it takes.
        page.call("Network.disable")
        page.value(
            "(async () => { window.client = await import('/hushnet/index.js');"
            f"const data = Float32Array.from({{ length: {x.size} }}, (_, i) => (i * 37 % 101) / 101);"
            f"window.given = {{ image: {{ shape: {json.dumps(x.shape)}, data }} }}; }})()"
        )
        first = (
            "(async () => { window.session = await client.connect(location.origin); await session.infer(given); })()"
        )
        again = "(async () => {{ for (let i = 0; i < {}; i++) await session.infer(given); }})()"
        clocks = {"processor": page.processor, "worker": page.workers, "wall": time.perf_counter}
        client = Client(clocks, lambda: page.value(first), lambda count: page.value(again.format(count)))
        yield client
        isolated = page.value("crossOriginIsolated")
        simd = page.value("session.infer(given).then((answer) => answer.trace.simd)")
        client.told |= {"browser": page.version(), "isolated": isolated, "threads": 1, "simd": simd}


def ratios(here: Client, there: Client, blocks: list[list[Seconds]]) -> dict[str, float]:
    """How many times the native client's seconds those of the browser are."""
    found = {}
    for clock, theirs in (("processor", "processor"), ("worker", "processor"), ("wall", "wall")):
        for part in ("set_up", "early"):
            found[f"{part}_{clock}"] = there.told[part][clock] / here.told[part][theirs]
        found[f"run_{clock}"] = statistics.median(b[clock] / a[theirs] for a, b in blocks)
    return {name: round(ratio, 2) for name, ratio in found.items()}


def row(name: str) -> dict[str, Any]:
    """One trust model."""
    net, options, count = CASES[name]
    train, _, test, _ = data.digits()
    model = hushnet.compile(zoo.trained(net), calibration=train[:128], name="digits", **options)
    x = np.resize(test, (count, *test.shape[1:])).astype(np.float32)
    with tempfile.TemporaryDirectory() as folder, served(Path(folder), model, "--threads", "1") as told:
        with native(told["url"], x) as here, browser(told["page"], x) as there:
            blocks = timed(here, there)
        found = {path: held_to(path, told["url"], x) for path in PATHS}
    paths = {path: told["run"]["processor"] for path, told in found.items() if told}
    ratio_paths = {
        path: {clock: round(there.told["run"][clock] / seconds, 2) for clock in ("processor", "worker")}
        for path, seconds in paths.items()
    }
    each = [round(b["processor"] / a["processor"], 2) for a, b in blocks]
    return {
        "case": name,
        "native": here.told,
        "browser": there.told,
        "ratio": ratios(here, there, blocks),
        "blocks": each,
        "native_paths": paths,
        "ratio_paths": ratio_paths,
        "load": round(os.getloadavg()[0], 1),
    }


def downloaded() -> int:
    """Bytes of the package that a page downloads, compressed."""
    files = sorted((webpage.FOLDER / "hushnet").rglob("*.*"))
    return len(gzip.compress(b"".join(f.read_bytes() for f in files), 9))


def main() -> int:
    """Prints a JSON object for every case, and the package's size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", default=list(CASES), help=f"of {', '.join(CASES)}")
    parser.add_argument("--json", action="store_true", help="prints JSON, as without it")
    parser.add_argument("--native", nargs=2, metavar=("URL", "FILE"), help="only the native client on inputs of a file")
    arguments = parser.parse_args()
    if arguments.native:
        url, file = arguments.native
        with native(url, np.load(file)) as client:
            timed(client)
        print(json.dumps(client.told))
        return 0
    if not program():
        print("there is no Chromium on PATH", file=sys.stderr)
        return 1
    for name in arguments.cases:
        print(json.dumps(row(name)), flush=True)
    print(json.dumps({"gzipped": downloaded()}))
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Both sides private over networks with latency and limited bandwidth: measured time beside the predicted one.

Measured twice: both parties in one process over a throttled connection, and, where the machine allows it, two processes in two
network namespaces. Predicted: what ``explain --network`` says, from the plan and unit costs alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import hushnet
from hushnet import data, zoo
from hushnet.bench import namespaces
from hushnet.bench.registry import Benchmark
from hushnet.bench.two_party import NETWORKS, SAMPLES, WEIGHT_BITS
from hushnet.bench.two_processes import measure
from hushnet.planner.two_party import cost

NAMES = ("mlp", "cifar10-cnn")
LINKS = ("wan", "20mbit,10ms")
RUNS = 3


def rows(*, quick: bool, threads: int, progress: Any) -> list[dict[str, Any]]:
    """A row for every network of layers, link, and way of making the link."""
    found = []
    for name in NAMES[:1] if quick else NAMES:
        network = NETWORKS[name]
        calibration = data.synthetic(network.shape, SAMPLES, seed=1)
        x = data.synthetic(network.shape, RUNS, seed=2).astype(np.float32)
        model = hushnet.compile(zoo.build(network.name), trust="two-party", calibration=calibration, weight_bits=WEIGHT_BITS, name=name)
        for link in LINKS:
            found.append(_row(name, link, "throttled connection, one process", model, throttled(model, x, link, threads), link))
            try:
                seconds, real = in_namespaces(model, x, link, threads)
            except namespaces.Unavailable as error:
                found.append({"case": f"{name}, {link}", "method": "network namespaces", "skipped": str(error)})
                continue
            note = "" if real == link else f" (no netem here: {real})"
            found.append(_row(name, link, f"two processes in network namespaces{note}", model, seconds, real))
    return found


def throttled(model: hushnet.Model, x: np.ndarray, link: str | None, threads: int = 1) -> float:
    """Seconds of the fastest run; None: over memory."""
    return min(hushnet.run(model, x[i:i + 1], threads=threads, network=link).trace["seconds"] for i in range(len(x)))


def in_namespaces(model: hushnet.Model, x: np.ndarray, link: str, threads: int = 1) -> tuple[float, str]:
    """Seconds of the fastest run between two processes, and the link that there really was.

    Raises:
        Unavailable: no namespaces on this machine.
    """
    wanted = cost.link(link)
    with namespaces.link(wanted["bits_per_second"], wanted["round_trip_seconds"]) as made:
        seen = measure(model, x, threads=threads, link=made)
        real = link if made.round_trip_seconds else f"{made.bits_per_second / 1e6:g}mbit,0ms"
        return min(t["seconds"] for t in seen.client), real


def _row(name: str, link: str, method: str, model: hushnet.Model, seconds: float, real: str) -> dict[str, Any]:
    predicted = model.explain(network=real)["totals"]["seconds"]
    return {"case": f"{name}, {link}", "method": method, "seconds": seconds, "predicted_seconds": predicted, "ratio": seconds / predicted}


BENCHMARK = Benchmark(
    name="two-party-network",
    about="both sides private over networks of limited bandwidth and latency: measured and predicted time",
    source="-",
    run=rows,
)

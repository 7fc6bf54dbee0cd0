"""Both sides private over networks with latency and limited bandwidth: measured time beside the predicted one.

Measured three times: by clocks of processor time that messages carry (what a machine with nothing else to do takes), by
the wall clock with both parties in one process over a throttled connection, and, where the machine allows it, with two
processes in two network namespaces; always the first image of a new session, its set-up apart. Predicted: what
``explain --network`` says, from the plan and unit costs alone, which are calibrated at the start of the same run.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from functools import partial
from typing import Any

import hushnet
import numpy as np
from hushnet import _native, data, zoo
from hushnet.machine import two_party as machine
from hushnet.planner.two_party import cost

from hushnet_bench import namespaces
from hushnet_bench.registry import Benchmark
from hushnet_bench.two_party import NETWORKS, SAMPLES, WEIGHT_BITS, checked
from hushnet_bench.two_processes import cores, measure

NAMES = ("mlp", "cifar10-cnn", "plain20")
LINKS = ("1gbit,1ms", "wan", "20mbit,10ms")
RUNS = 5
CALIBRATION_SECONDS = 0.5
MODELLED = 0.3

Seen = tuple[float, np.ndarray]


def rows(*, quick: bool, threads: int, progress: Any) -> list[dict[str, Any]]:
    """A row for every network of layers, link, and way of making the link."""
    if hasattr(os, "sched_setaffinity"):
        server, client, _ = cores(threads)
        os.sched_setaffinity(0, server | client)
    unit = cost.unit_costs() if quick else {**cost.unit_costs(), **machine.measure(CALIBRATION_SECONDS)}
    found = []
    for name in NAMES[:1] if quick else NAMES:
        network = NETWORKS[name]
        samples = data.synthetic(network.shape, SAMPLES, seed=1)
        x = data.synthetic(network.shape, 1 if quick else RUNS, seed=2).astype(np.float32)
        model = hushnet.compile(
            zoo.build(network.name), trust="two-party", calibration=samples, weight_bits=WEIGHT_BITS, name=name
        )
        for link in LINKS:
            found.append(_clocked(f"{name}, {link}", model, x, unit, link))
            found.append(
                _row(
                    f"{name}, {link}",
                    "throttled connection, one process",
                    model,
                    x,
                    unit,
                    partial(_throttled, model, x, link, threads),
                )
            )
            try:
                found.append(
                    _row(
                        f"{name}, {link}",
                        "two processes in network namespaces",
                        model,
                        x,
                        unit,
                        partial(in_namespaces, model, x, link, threads),
                    )
                )
            except namespaces.Unavailable as error:
                found.append({"case": f"{name}, {link}", "method": "network namespaces", "skipped": str(error)})
    return found


def throttled(model: hushnet.Model, x: np.ndarray, link: str | None, threads: int = 1) -> Seen:
    """Seconds of the fastest run, each image in a session of its own, and the outputs; None: over memory."""
    seen = [hushnet.run(model, x[i : i + 1], threads=threads, network=link) for i in range(len(x))]
    return min(r.trace["seconds"] for r in seen), np.concatenate([r.output for r in seen])


def _throttled(model: hushnet.Model, x: np.ndarray, link: str, threads: int) -> tuple[Seen, str]:
    return throttled(model, x, link, threads), link


def in_namespaces(model: hushnet.Model, x: np.ndarray, link: str, threads: int = 1) -> tuple[Seen, str]:
    """The same between two processes, and the link that there really was.

    Raises:
        Unavailable: no namespaces on this machine.
    """
    wanted = cost.link(link)
    with namespaces.link(wanted["bits_per_second"], wanted["round_trip_seconds"]) as made:
        seen = [measure(model, x[i : i + 1], threads=threads, link=made) for i in range(len(x))]
        real = link if made.round_trip_seconds else f"{made.bits_per_second / 1e6:g}mbit,0ms"
        outputs = np.concatenate([next(iter(s.outputs.values())) for s in seen])
        return (min(s.client[0]["seconds"] for s in seen), outputs), real


def predicted(model: hushnet.Model, link: str, unit: dict[str, Any]) -> float:
    """Seconds of the first image over a link, by these unit costs."""
    found = cost.account(model.plan.document, unit, 1)
    return cost.seconds(found.total, sum(s.compute for s in found.stages), cost.link(link, unit))


def _clocked(case: str, model: hushnet.Model, x: np.ndarray, unit: dict[str, Any], link: str) -> dict[str, Any]:
    """The real protocol by the clocks of ``docs/two-party.md``, to which sockets and wake-ups are unknown.

    Nor are they predicted here.
    """
    far = cost.link(link, unit)
    pair = (far["bits_per_second"], far["round_trip_seconds"])
    runs = [
        json.loads(_native.clocked_two_party(model.plan.to_bytes(), model.named_inputs(x[i : i + 1]), pair))
        for i in range(len(x))
    ]
    seconds = min(sum(stage[0] for stage in run["runs"][0]) for run in runs)
    return {
        "case": case,
        "method": "clocks of processor time, one process",
        **_compared(seconds, predicted(model, link, {**unit, "message": 0.0, "byte": 0.0}), link, len(x)),
    }


def _compared(seconds: float, expected: float, link: str, runs: int) -> dict[str, Any]:
    ratio = seconds / expected
    return {
        "link": link,
        "runs": runs,
        "seconds": seconds,
        "predicted_seconds": expected,
        "ratio": ratio,
        "within_30_percent": abs(ratio - 1.0) <= MODELLED,
    }


def _row(
    case: str,
    method: str,
    model: hushnet.Model,
    x: np.ndarray,
    unit: dict[str, Any],
    run: Callable[[], tuple[Seen, str]],
) -> dict[str, Any]:
    (seconds, outputs), real = run()
    return {
        "case": case,
        "method": method,
        **_compared(seconds, predicted(model, real, unit), real, len(x)),
        **checked(model, x, outputs),
    }


BENCHMARK = Benchmark(
    name="two-party-network",
    about="both sides private over networks of limited bandwidth and latency: measured and predicted time",
    source="-",
    run=rows,
)

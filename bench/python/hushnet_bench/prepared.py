"""Inferences that are prepared before their image, beside the same network without.

Two processes, a core each: seconds and bytes before the image, with it, and what either party keeps of one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import hushnet
import numpy as np
from hushnet import data, zoo

from hushnet_bench.registry import Benchmark
from hushnet_bench.two_party import (
    DRAW_SECONDS,
    NETWORKS,
    QUICK_DRAW_SECONDS,
    QUICK_SAMPLES,
    SAMPLES,
    WEIGHT_BITS,
    checked,
)
from hushnet_bench.two_processes import Measured, measure

CASES, QUICK = ("squeezenet", "resnet50"), ("mlp",)
RUNS = 2


def rows(
    *, quick: bool, threads: int, progress: Any, cases: Sequence[str] | None = None, size: int | None = None
) -> list[dict[str, Any]]:
    """Two rows a network of ``hushnet_bench.two_party.NETWORKS``: as it is, and prepared."""
    wanted = tuple(cases or (QUICK if quick else CASES))
    if unknown := sorted(set(wanted) - set(NETWORKS)):
        raise hushnet.InputError(f"prepared: no case {unknown[0]!r}: choose of {', '.join(NETWORKS)}")
    found = []
    for case in wanted:
        network = NETWORKS[case]
        options: dict[str, Any] = {"size": size} if size and network.quick else dict(network.quick if quick else {})
        shape = (network.shape[0], options["size"], options["size"]) if options else network.shape
        calibration = data.synthetic(shape, QUICK_SAMPLES if quick else SAMPLES, seed=1)
        x = data.synthetic(shape, RUNS, seed=2).astype(np.float32)
        model = hushnet.compile(
            zoo.build(network.name, **options),
            trust="two-party",
            calibration=calibration,
            weight_bits=WEIGHT_BITS,
            name=case,
        )
        told = model.explain()["totals"]
        for prepared in (False, True):
            seen = measure(model, x, threads=threads, prepared=prepared)
            trace, outputs = seen.median, next(iter(seen.outputs.values()))
            found.append(
                {
                    "case": f"{case} {'x'.join(map(str, shape))}{', prepared' if prepared else ''}",
                    "method": f"hushnet two-party, two processes, {threads} core(s) a party"
                    + (" (the same ones)" if seen.shared else ""),
                    "seconds": trace["seconds"],
                    "client_cpu_seconds": min(t["cpu_seconds"] for t in seen.client),
                    "server_cpu_seconds": min(t["server_cpu_seconds"] for t in seen.client),
                    "megabytes": (trace["bytes_up"] + trace["bytes_down"]) / 1e6,
                    "rounds": trace["rounds"],
                    **(_before(seen, told["prepared"], len(x)) if prepared else {}),
                    **checked(model, x, outputs, QUICK_DRAW_SECONDS if quick else DRAW_SECONDS),
                }
            )
    return found


def _before(seen: Measured, told: dict[str, Any], count: int) -> dict[str, Any]:
    """What an image cost before, what is kept of it, and whether both parts send what was predicted."""
    offline, trace = seen.offline or {}, seen.median
    return {
        "offline_seconds": offline["seconds"] / count,
        "offline_megabytes": (offline["bytes_up"] + offline["bytes_down"]) / count / 1e6,
        "client_keeps_megabytes": offline["kept_bytes"]["client"] / count / 1e6,
        "server_keeps_megabytes": offline["kept_bytes"]["server"] / count / 1e6,
        "online_bytes_as_predicted": [trace["total"][way] for way in ("bytes_up", "bytes_down")]
        == [trace["total"]["predicted"][way] for way in ("bytes_up", "bytes_down")],
        "kept_bytes_as_predicted": [offline["kept_bytes"][party] for party in ("client", "server")]
        == [count * told[f"{party}_bytes"] for party in ("client", "server")],
        "stages_not_prepared": len(told["unprepared"]),
    }


BENCHMARK = Benchmark(
    name="prepared",
    about="two-party networks whose linear layers are prepared before the image: online, offline, storage",
    source="DELPHI (USENIX Security 2020): preprocessing and online phase",
    run=rows,
)

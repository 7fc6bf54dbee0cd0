"""Single linear layers with both sides private between two processes, SPU's Cheetah protocol beside."""

from __future__ import annotations

import json
import statistics
from typing import Any

from hushnet_bench import peers
from hushnet_bench.protocol_processes import core, measure
from hushnet_bench.registry import Benchmark

RING_BITS = 28


def _conv(channels: int, side: int, outputs: int, kernel: int, stride: int = 1) -> dict[str, Any]:
    pad = kernel // 2
    size = (side + 2 * pad - kernel) // stride + 1
    return {
        "type": "conv2d",
        "input": [channels, side, side],
        "output": [outputs, size, size],
        "kernel": [kernel, kernel],
        "stride": [stride, stride],
        "pads": [pad] * 4,
        "dilation": [1, 1],
        "groups": 1,
    }


# case -> (geometry, OpenCheetah on such a machine, 37-bit ring: seconds, MB up, MB down)
LAYERS: dict[str, tuple[dict[str, Any], tuple[float, float, float]]] = {
    "16x16@128, 1x1@128": (_conv(128, 16, 128, 1), (0.22, 0.5, 4.1)),
    "16x16@128, 3x3@128": (_conv(128, 16, 128, 3), (0.28, 0.7, 4.1)),
    "56x56@64, 3x3@64": (_conv(64, 56, 64, 3), (0.78, 4.0, 3.3)),
    "16x16@2048, 1x1@512": (_conv(2048, 16, 512, 1), (10.0, 8.0, 16.4)),
    "224x224@3, 7x7@64, stride 2": (_conv(3, 224, 64, 7, 2), (1.50, 3.0, 52.0)),
    "56x56@64, 1x1@256": (_conv(64, 56, 256, 1), (0.93, 4.0, 13.0)),
    "56x56@256, 1x1@64": (_conv(256, 56, 64, 1), (1.21, 16.0, 3.3)),
    "14x14@256, 3x3@256": (_conv(256, 14, 256, 3), (0.76, 1.0, 8.1)),
    "7x7@512, 3x3@512": (_conv(512, 7, 512, 3), (1.26, 0.7, 15.7)),
    "FC 2048->1001": ({"type": "dense", "inputs": 2048, "outputs": 1001}, (0.14, 1.3, 0.8)),
}
SPU_CASES = list(LAYERS)[:3]


def rows(*, quick: bool, threads: int, progress: Any) -> list[dict[str, Any]]:
    """A row a layer: from the client's first request to both parties' shares; bytes.

    The joint result against plaintext.
    """
    rival: dict[str, dict[str, Any]] = {"": {"error": "left out of --quick"}}
    layers = (
        {"4x4@8, 3x3@8": (_conv(8, 4, 8, 3), None), "FC 64->10": ({"type": "dense", "inputs": 64, "outputs": 10}, None)}
        if quick
        else LAYERS
    )
    if not quick:
        if progress:
            progress("two-party-layers: SPU", 0, len(layers) + 1)
        rival = peers.measure("spu", "spu_cheetah.py", [*SPU_CASES, "--runs", "3", "--cores", f"{core(0)},{core(1)}"])
    out: list[dict[str, Any]] = []
    for case, (geometry, published) in layers.items():
        if progress:
            progress(f"two-party-layers: {case}", len(out) + 1, len(layers) + 1)
        row = _row(case, geometry, repeat=1 if quick else 11)
        if case in SPU_CASES or quick:
            row |= peers.beside(rival, case, row)
        if published:
            seconds, up, down = published
            row |= {
                "published": seconds,
                "published_megabytes_up": up,
                "published_megabytes_down": down,
                "published_seconds_over_ours": seconds / row["seconds"],
            }
            row["bytes_at_most_published"] = row["megabytes"] <= up + down
        out.append(row)
    return out


def _row(case: str, geometry: dict[str, Any], repeat: int) -> dict[str, Any]:
    server, client = measure("measure_layer", geometry=json.dumps(geometry), ring_bits=RING_BITS, repeat=repeat)
    runs = list(zip(server.pop("runs"), client.pop("runs")))
    up, down = client["bytes_up"] / 1e6, client["bytes_down"] / 1e6
    return {
        "case": case,
        "method": "hushnet cheetah, two processes, one core each",
        "ring_bits": RING_BITS,
        "seconds": statistics.median(max(a[0], b[0]) for a, b in runs),
        "best_seconds": min(max(a[0], b[0]) for a, b in runs),
        "processor_seconds": statistics.median(a[1] + b[1] for a, b in runs),
        "megabytes_up": up,
        "megabytes_down": down,
        "megabytes": up + down,
        "bytes_as_predicted": client["bytes_as_predicted"],
    } | server


BENCHMARK = Benchmark(
    name="two-party-layers",
    about="single linear layers on shares, re-randomised and masked, weights encoded ahead, two processes",
    source="OpenCheetah on such a machine (37-bit ring), SPU-Cheetah (64-bit ring) in the same run",
    run=rows,
)

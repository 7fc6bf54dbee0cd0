"""MobileNetV2 (width 0.35) in batches, client-aided: nGraph-HE2, Table 8."""

from __future__ import annotations

from typing import Any, Literal

import hushnet
import numpy as np
from hushnet import data, zoo

from hushnet_bench.cryptonets_relu import _float
from hushnet_bench.measure import measure
from hushnet_bench.registry import Benchmark

# image side -> (ms an image on localhost, MB an image, client GB, server GB); 56 threads, batch 4096
PUBLISHED = {
    96: (27, 38.4, 8.6, 60.3),
    128: (46, 63.7, 12.6, 100.4),
    160: (71, 107.5, 17.9, 161.0),
    192: (103, 152.2, 24.2, 239.2),
    224: (129, 206.9, 56.9, 324.3),
}


def rows(*, quick: bool, threads: int, progress: Any, size: int = 96, batch: int = 2048) -> list[dict[str, Any]]:
    """One row: this size and batch."""
    size, batch = (32, 64) if quick else (size, batch)
    onnx_model = zoo.build("mobilenetv2", size=size, width=0.35)
    calibration = data.synthetic((3, size, size), 32, seed=1)
    x = data.synthetic((3, size, size), batch, seed=2).astype(np.float32)
    # one block: shared masks would only move work and bytes into a set-up that nothing else uses
    mask: Literal["fresh", "auto"] = "fresh" if batch <= 2048 else "auto"
    model = hushnet.compile(
        onnx_model,
        batch=batch,
        calibration=calibration,
        margin=2.0,
        mask=mask,
        weight_bits=8,
        name=f"mobilenetv2-0.35-{size}",
    )
    reference = _float(onnx_model, x[:32])
    row = measure(model, x, threads=threads, runs=1, reference=reference)
    row |= {
        "case": f"0.35-{size}, batch {batch}",
        "method": "hushnet batch",
        "milliseconds_per_image": 1e3 * row["seconds"] / batch,
        "predicted_peak_memory_bytes": sum(
            model.plan.predicted[f"{s}_peak_memory_bytes"] for s in ("client", "server")
        ),
    }
    if size in PUBLISHED:
        ms, mb, _, server_gb = PUBLISHED[size]
        row |= {
            "published": ms,
            "ratio": ms / row["milliseconds_per_image"],
            "published_megabytes_per_image": mb,
            "published_server_gigabytes": server_gb,
        }
    return [{"case": row.pop("case"), "method": row.pop("method")} | row]


BENCHMARK = Benchmark(
    name="mobilenetv2",
    about="MobileNetV2-0.35 at --size 96..224, batch, client-aided",
    source="nGraph-HE2, Table 8: 27..129 ms an image on 56 threads, 38..207 MB an image, server 60..324 GB",
    run=rows,
)

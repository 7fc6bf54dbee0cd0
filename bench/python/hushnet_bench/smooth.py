"""Functions of one variable, products and squares on shares between two processes."""

from __future__ import annotations

import statistics
from typing import Any

from hushnet_bench.protocol_processes import measure
from hushnet_bench.registry import Benchmark

SPU = "SPU 0.9.5 Cheetah, 64-bit ring, AVX2, microseconds and bytes an element"
# case -> (interval, what SPU took on such a machine: microseconds, bytes)
CASES: dict[str, tuple[tuple[float, float], tuple[int, int] | None]] = {
    "sigmoid": ((-8.0, 8.0), (705, 4527)),
    "silu": ((-8.0, 8.0), (701, 4842)),
    "gelu": ((-8.0, 8.0), (170, 2804)),
    "tanh": ((-4.0, 4.0), None),
    "exp": ((-8.0, 0.0), (82, 1146)),
    "softplus": ((-8.0, 8.0), None),
    "erf": ((-4.0, 4.0), None),
    "reciprocal": ((1.0, 2.0), None),
    "inverseroot": ((1.0, 2.0), None),
    "product": ((0.0, 1.0), (16, 315)),
    "square": ((0.0, 1.0), None),
}


def rows(*, quick: bool, threads: int, progress: Any) -> list[dict[str, Any]]:
    """A row a case: medians of several runs, bytes, messages in turn, the largest error and its bound."""
    values, repeat = (1 << 10, 1) if quick else (1 << 16, 5)
    out = []
    for case, (interval, published) in CASES.items():
        if progress:
            progress(f"smooth: {case}", len(out), len(CASES))
        first, second = measure("measure_smooth", function=case, values=values, interval=interval, repeat=repeat)
        runs = list(zip(first.pop("runs"), second.pop("runs")))
        seconds = statistics.median(max(a[0], b[0]) for a, b in runs)
        row: dict[str, Any] = {
            "case": case,
            "method": "hushnet, two processes, one core each",
            "seconds": seconds,
            "best_seconds": min(max(a[0], b[0]) for a, b in runs),
            "processor_seconds": statistics.median(a[1] + b[1] for a, b in runs),
            "processor_microseconds_each_party": [
                1e6 * statistics.median(run[party][1] for run in runs) / values for party in (0, 1)
            ],
            "microseconds_per_element": 1e6 * seconds / values,
            "bytes_per_element": first.pop("bytes") / values,
        }
        if published:
            row["published"] = f"{SPU}: {published[0]}, {published[1]}"
        out.append(row | first)
    return out


BENCHMARK = Benchmark(
    name="smooth",
    about="sigmoid, SiLU, GELU, exp and others, products and squares on shares (2^16 values), two processes",
    source=SPU,
    run=rows,
)

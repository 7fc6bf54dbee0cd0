"""Functions of one variable, products and squares on shares between two processes; softmax as stages of a plan."""

from __future__ import annotations

import statistics
from typing import Any

import hushnet
import numpy as np
from hushnet import Model
from hushnet.graph import Conv2d, Graph, Linear, Op
from hushnet.planner import compile

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
    out.append(softmax(quick=quick))
    return out


# elements of a softmax's row, and what SPU took for 64 rows: microseconds and bytes an element
ROW, PUBLISHED_SOFTMAX = 128, (553, 4950)


def softmax_network(rows: int) -> Graph:
    """Logits of rows, their softmax, and the rows' mean."""
    shape, mean = (rows, 1, ROW), (1, 1, ROW)
    logits = Conv2d(shape, shape, (1, 1), groups=rows)
    nodes = [
        Linear("logits", "x", "logits", logits, np.ones((rows, 1, 1, 1)), np.zeros(rows)),
        Op("softmax", "softmax", ["logits"], "softmax", {"axis": 2}),
        Linear("mean", "softmax", "y", Conv2d(shape, mean, (1, 1)), np.full((1, rows, 1, 1), 1 / rows), np.zeros(1)),
    ]
    return Graph("softmax", ["x"], ["y"], {"x": shape, "logits": shape, "softmax": shape, "y": mean}, nodes)


def softmax(*, quick: bool) -> dict[str, Any]:
    """Softmax of rows of 128 in a plan: bytes of its stages with their oblivious transfers, and the largest error."""
    rows, repeat = (4, 1) if quick else (512, 3)
    graph, rng = softmax_network(rows), np.random.default_rng(0)
    x = rng.normal(size=(4, rows, 1, ROW)) * 2
    plan = compile(graph, trust="two-party", calibration=x, weight_bits=8)
    results = [hushnet.run(Model(plan), x[:1], threads=1) for _ in range(repeat)]
    # between the layers: truncation of logits to softmax
    stages = [
        [s for s in r.trace["stages"] if s["kind"] not in {"linear", "client", "share", "reveal"}] for r in results
    ]
    stages = [[s for s in found if not s["name"].startswith("y.")] for found in stages]
    seconds = statistics.median(sum(s["seconds"] for s in found) for found in stages)
    exact = np.exp(x[:1] - x[:1].max(axis=-1, keepdims=True))
    exact = (exact / exact.sum(axis=-1, keepdims=True)).mean(axis=1, keepdims=True)
    return {
        "case": f"softmax, rows of {ROW}",
        "method": "hushnet, stages of a plan, both parties in one process, one thread each",
        "rows": rows,
        "ring_bits": plan.part["ring_bits"],
        "seconds": seconds,
        "microseconds_per_element": 1e6 * seconds / (rows * ROW),
        "bytes_per_element": sum(s["bytes_up"] + s["bytes_down"] for s in stages[0]) / (rows * ROW),
        "error_of_mean": float(np.abs(results[0].output.reshape(exact.shape) - exact).max()),
        "published": f"{SPU}: {PUBLISHED_SOFTMAX[0]}, {PUBLISHED_SOFTMAX[1]}",
    }


BENCHMARK = Benchmark(
    name="smooth",
    about="sigmoid, SiLU, GELU, exp, products, squares on shares (2^16 values), two processes; softmax in a plan",
    source=SPU,
    run=rows,
)

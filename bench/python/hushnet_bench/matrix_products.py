"""Products of two shared matrices, as stages of plans, between two processes; SPU's beside them in the same run."""

from __future__ import annotations

from typing import Any

import hushnet
import numpy as np
from hushnet.machine.two_party import product
from hushnet.planner.two_party.cost import PRODUCTS
from hushnet.reference import two_party as reference
from hushnet.reference.matrices import of_stage

from hushnet_bench import peers, two_processes
from hushnet_bench.protocol_processes import core
from hushnet_bench.registry import Benchmark

SPU = "SPU 0.9.5 Cheetah, 64-bit ring, AVX2, one core a party"
# heads, rows, inner axis, columns: attention of MiniLM and BERT over 128 tokens, both ways; one matrix
SIZES = [(12, 128, 32, 128), (12, 128, 128, 32), (12, 128, 64, 128), (1, 128, 64, 128)]
QUICK = [(2, 6, 4, 5)]
# what SPU took on such a machine: seconds, bytes
PUBLISHED = {(1, 128, 64, 128): (0.84, 1.4e6)}
RUNS = 5
# cases that SPU runs, too
RIVALS = ("12 heads, 128x64 times 64x128", "1 heads, 128x64 times 64x128")


def rows(*, quick: bool, threads: int, progress: Any) -> list[dict[str, Any]]:
    """A row a product: medians of its stage in several runs, its bytes, the largest error beside the stated one."""
    cases = QUICK if quick else SIZES
    rival: dict[str, dict[str, Any]] = {"": {"error": "left out of --quick"}}
    if not quick:
        if progress:
            progress("matrix-products: SPU", 0, len(cases))
        rival = peers.measure("spu", "spu_cheetah.py", [*RIVALS, "--runs", "3", "--cores", f"{core(0)},{core(1)}"])
    out: list[dict[str, Any]] = []
    for sizes in cases:
        heads, n, k, m = sizes
        case = f"{heads} heads, {n}x{k} times {k}x{m}"
        if progress:
            progress(f"matrix-products: {case}", len(out), len(cases))
        row = _row(case, sizes, runs=1 if quick else RUNS, threads=threads)
        out.append(row | _beside(rival, case, row["seconds"]))
    return out


def _beside(rival: dict[str, dict[str, Any]], case: str, seconds: float) -> dict[str, Any]:
    """SPU's figures of a case, in the same run."""
    if case not in RIVALS:
        return {}
    row = rival.get(case) or rival.get("") or {"error": "not measured"}
    if "error" in row:
        return {"peer": row["error"]}
    told = {f"peer_{k}": row[k] for k in ("seconds", "bytes", "max_error")}
    return {"peer": row["peer"], **told, "times_faster": row["seconds"] / seconds}


def _row(case: str, sizes: tuple[int, int, int, int], *, runs: int, threads: int) -> dict[str, Any]:
    model, x = product(sizes)
    index = next(i for i, s in enumerate(model.plan.stages) if s["kind"] == PRODUCTS)
    figures = of_stage(model.plan.tensors, model.plan.stages[index])[1]
    repeated = np.repeat(x, runs, axis=0)
    found = two_processes.measure(model, repeated, threads=threads)
    stages = [trace["stages"][index] for trace in found.client]
    (got,) = found.outputs.values()
    planned = reference.stated(model.plan, repeated)
    beyond = planned.beyond(got.reshape(planned.planned.shape))
    if beyond > 1:
        raise hushnet.HushnetError(f"{case}: results are {beyond:.2f} stated errors from the planned ones")
    row: dict[str, Any] = {
        "case": case,
        "method": "hushnet, two processes, one core each" + (" (shared)" if found.shared else ""),
        "seconds": float(np.median([s["seconds"] for s in stages])),
        "best_seconds": min(s["seconds"] for s in stages),
        "server_seconds": (found.server["stages"][index]["seconds"] - found.server["stages"][index]["waiting"])
        / len(found.client),
        "client_seconds": float(np.median([s["seconds"] - s["waiting"] for s in stages])),
        "ring_bits": model.plan.part["ring_bits"],
        "product_ring_bits": figures.ring_bits,
        "bytes_up": stages[0]["bytes_up"],
        "bytes_down": stages[0]["bytes_down"],
        "bytes_as_predicted": all(s[way] == s["predicted"][way] for s in stages for way in ("bytes_up", "bytes_down")),
        "key_bytes": model.plan.predicted["setup_bytes"],
        "off_by_stated_errors": beyond,
    }
    if sizes in PUBLISHED:
        row["published"] = f"{SPU}: {PUBLISHED[sizes][0]} s, {PUBLISHED[sizes][1] / 1e6} MB"
    return row


BENCHMARK = Benchmark(
    name="matrix-products",
    about="products of two shared matrices (heads of attention over 128 tokens), two processes",
    source=SPU,
    run=rows,
)

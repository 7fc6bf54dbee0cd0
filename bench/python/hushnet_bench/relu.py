"""Exact ReLU and max-pool on shares between two processes.

By oblivious transfer, SPU's Cheetah protocol beside, and by garbled circuits.
"""

from __future__ import annotations

import math
import statistics
from typing import Any

import hushnet

from hushnet_bench import peers
from hushnet_bench.protocol_processes import core, measure
from hushnet_bench.registry import Benchmark

OPEN_CHEETAH = "OpenCheetah on such a machine, 37 bits, 12 dropped: 5.9 s, 43 bytes"
SPU = "SPU-Cheetah on such a machine, 64 bits: 24.7 s, 112 bytes"
BYTES_PER_AND = 32  # two halves of 16 bytes; what else travels is stated apart
# what sessions take: a group of its code's table fits the second-level cache of most machines
OT = "silent-small"
# bits of the digits that signs are compared by, as plans take them for layers of so many values
DIGITS = 3
# case -> (ring bits, dropped bits, what stands beside)
RELUS = {
    "64-bit": (64, 0, SPU),
    "37-bit": (37, 0, SPU),
    "20-bit": (20, 0, SPU),
    "37-bit, 12 low bits dropped": (37, 12, OPEN_CHEETAH),
}
# case -> ring bits, bits dropped by the truncation, bits left: ReLU and truncation as one stage and in two, at the
# widths that most values of the networks' plans have (`widths` tells those of a plan)
DIVIDED = {
    "ResNet-50, 26-bit values, 12 truncated": (28, 12, 14),
    "ResNet-50, 27-bit values, 12 truncated": (28, 12, 15),
    "ResNet-50, 28-bit values, 12 truncated": (28, 12, 16),
    "open-nsfw, 26-bit values, 11 truncated": (28, 11, 15),
    "open-nsfw, 25-bit values, 10 truncated": (28, 10, 15),
}
# case -> ring bits or a prime, and the case of the OT protocol that it stands beside. The prime is GALA's: 20 bits,
# with slots at every ring degree.
GARBLED = {
    "garbled, 37-bit": ({"ring_bits": 37}, "37-bit"),
    "garbled, 20-bit": ({"ring_bits": 20}, "20-bit"),
    "garbled, modulo a 20-bit prime": ({"prime": 786433}, "20-bit"),
}
# case -> channels, side, kernel, stride: about as many comparisons as there are ReLUs
POOLS = {"max-pool 2x2": (85, 128, 2, 2), "max-pool 3x3/2": (55, 113, 3, 2)}


def rows(*, quick: bool, threads: int, progress: Any) -> list[dict[str, Any]]:
    """A row a case: medians of several runs of both parties, bytes, rounds, the check of the joint result."""
    values, repeat = (1 << 12, 1) if quick else (1 << 20, 5)
    steps = len(RELUS) + len(GARBLED) + len(POOLS) + (0 if quick else 1)
    rival: dict[str, dict[str, Any]] = {"": {"error": "left out of --quick"}}
    if not quick:
        if progress:
            progress("relu: SPU", 0, steps)
        rival = peers.measure("spu", "spu_cheetah.py", ["relu-2^20", "--runs", "3", "--cores", f"{core(0)},{core(1)}"])
    out: list[dict[str, Any]] = []
    for case, (bits, drop, published) in RELUS.items():
        if progress:
            progress(f"relu: {case}", steps - len(RELUS) - len(GARBLED) - len(POOLS) + len(out), steps)
        row = _row(case, values=values, ring_bits=bits, drop_bits=drop, repeat=repeat)
        row.pop("and_gates")
        row |= {
            "nanoseconds_per_relu": 1e9 * row["seconds"] / values,
            "bytes_per_relu": row.pop("bytes") / values,
            "published": published,
        }
        row |= peers.beside(rival, "relu-2^20", row)
        if row.get("peer_bytes"):
            row["peer_bytes_per_relu"] = row.pop("peer_bytes") / values
        out.append(row)
    relu = out[1]
    out += _divided_rows(values, repeat)
    out += _garbled_rows({r["case"]: r for r in out}, 1 << 10 if quick else 1 << 16, min(repeat, 3))
    for case, (channels, side, kernel, stride) in POOLS.items():
        if progress:
            progress(f"relu: {case}", steps - len(RELUS) - len(GARBLED) - len(POOLS) + len(out), steps)
        pool = [2, side // 8, side // 8, kernel, stride] if quick else [channels, side, side, kernel, stride]
        row = _row(case, pool=pool, ring_bits=37, repeat=repeat)
        row.pop("and_gates")
        comparisons = row["comparisons"]
        out.append(
            row
            | {
                "bytes_per_output": row["bytes"] / row["outputs"],
                "comparisons_per_output": comparisons / row["outputs"],
                "relus_per_comparison": row["seconds"] / comparisons * values / relu["seconds"],
                "relus_per_comparison_processor": row["processor_seconds"]
                / comparisons
                * values
                / relu["processor_seconds"],
                "relus_per_comparison_bytes": row.pop("bytes") / comparisons / relu["bytes_per_relu"],
            }
        )
    return out


def _divided_rows(values: int, repeat: int) -> list[dict[str, Any]]:
    """ReLU and the truncation behind it in one stage, and in two, all bits that values have compared."""
    found = []
    for case, (bits, drop, kept) in DIVIDED.items():
        apart, one = (
            _row(case, values=values, ring_bits=bits, drop_bits=drop, kept_bits=kept, apart=apart, repeat=repeat)
            for apart in (True, False)
        )
        one.pop("and_gates")
        sent = one.pop("bytes")
        found.append(
            one
            | {
                "nanoseconds_per_relu": 1e9 * one["seconds"] / values,
                "bytes_per_relu": sent / values,
                "times_apart_bytes": sent / apart["bytes"],
                "times_apart_seconds": one["seconds"] / apart["seconds"],
                "times_apart_processor": one["processor_seconds"] / apart["processor_seconds"],
                "apart_right": apart["correct"] and apart["bytes_as_predicted"],
            }
        )
    return found


def widths(model: hushnet.Model) -> dict[tuple[int, int, int], int]:
    """How many values of a plan's ReLUs have such ring bits, bits dropped and bits left: values of :data:`DIVIDED`."""
    plan, found = model.plan, dict[tuple[int, int, int], int]()
    for stage in plan.stages:
        if stage["kind"] == "relu" and stage.get("bits"):
            key = (plan.part["ring_bits"], stage["bits"], stage["reach_bits"] + 1)
            found[key] = found.get(key, 0) + math.prod(plan.tensors[stage["in"]]["shape"])
    return found


def _garbled_rows(ot: dict[str, dict[str, Any]], values: int, repeat: int) -> list[dict[str, Any]]:
    """Half gates: bytes and processor time of an AND gate and of a ReLU, and how often those of the OT protocol."""
    found = []
    for case, (modulus, beside) in GARBLED.items():
        row = _row(case, values=values, garbled=True, repeat=repeat, **modulus)
        gates, each = row.pop("and_gates"), row.pop("bytes") / values
        nanoseconds, other = 1e9 * row["seconds"] / values, ot[beside]
        found.append(
            row
            | {
                "nanoseconds_per_relu": nanoseconds,
                "processor_nanoseconds_per_relu": 1e9 * row["processor_seconds"] / values,
                "bytes_per_relu": each,
                "ands_per_relu": gates / values,
                "ands_per_second": gates / row["seconds"],
                "bytes_per_and": BYTES_PER_AND,
                "bytes_beside_tables_per_relu": each - BYTES_PER_AND * gates / values,
                "times_ot_seconds": nanoseconds / other["nanoseconds_per_relu"],
                "times_ot_bytes": each / other["bytes_per_relu"],
            }
        )
    return found


def _row(case: str, **options: Any) -> dict[str, Any]:
    # signs from which low bits were dropped are compared in a tree
    tree = options.get("garbled") or (options.get("drop_bits") and "kept_bits" not in options)
    digits = {} if tree else {"digits": DIGITS}
    first, second = measure("measure_relu", ot=OT, **digits, **options)
    runs = list(zip(first.pop("runs"), second.pop("runs")))
    return {
        "case": case,
        "method": "hushnet, two processes, one core each",
        "ot": OT,
        **digits,
        "seconds": statistics.median(max(a[0], b[0]) for a, b in runs),
        "best_seconds": min(max(a[0], b[0]) for a, b in runs),
        "processor_seconds": statistics.median(a[1] + b[1] for a, b in runs),
    } | first


BENCHMARK = Benchmark(
    name="relu",
    about="exact ReLU (2^20 values) and max-pool on shares, two processes",
    source=f"{SPU}; {OPEN_CHEETAH}",
    run=rows,
)

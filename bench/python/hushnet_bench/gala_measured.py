"""Measured rows of the gala benchmark: Tables IV, VI, VIII, X and XI.

Random 20-bit shares and 8-bit weights at 128-bit parameters, each method under those with the least work
(:func:`fastest`); both parties on one thread, processor time of that thread, every result compared with the layer
computed in the clear. ``linear_seconds`` is the server's work between ciphertexts, for GALA with both parties'
rotate-and-sum on shares, as the paper counts it; weights' evaluation forms are made ahead, or apart where they would
not fit (``weights``).
"""

from __future__ import annotations

import contextlib
import json
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

from hushnet import _native

from hushnet_bench import _native as measuring
from hushnet_bench import gala_choice
from hushnet_bench.gala_layers import SLOTS, Row, add_row, conv, dense, layers_of

# table, case, geometry, published milliseconds of GAZELLE (LAN), published ratio of GALA.
MEASURED = (
    ("VI", "1x2048", dense(2048, 1), 1.9, 59.0),
    ("VI", "2x1024", dense(1024, 2), 1.8, 13.0),
    ("VI", "16x128", dense(128, 16), 1.2, 19.0),
    ("VIII", "16x16@128, 1x1@128", conv(128, 16, 128, 1), 321.0, 9.0),
    ("VIII", "16x16@128, 3x3@128", conv(128, 16, 128, 3), 457.0, 2.6),
    ("VIII", "16x16@2048, 1x1@512", conv(2048, 16, 512, 1), 20583.0, 14.0),
    ("VIII", "16x16@2048, 5x5@64", conv(2048, 16, 64, 5), 5875.0, 1.7),
)
# name -> zoo name, published ratio of GALA's linear part.
NETWORKS = {
    "MLP": ("mlp-784-128-128-10", 1.0),
    "AlexNet": ("alexnet", 2.5),
    "VGG": ("vgg16", 2.7),
    "ResNet-18": ("resnet18", 3.2),
    "ResNet-50": ("resnet50", 8.3),
    "ResNet-101": ("resnet101", 7.7),
    "ResNet-152": ("resnet152", 7.5),
}
# above so many products a layer is run once, without what is no row of the paper
LARGE = 1 << 15


def measure(geometry: str, method: str, **options: Any) -> Row:
    """A layer by a slot-packed method; see ``hushnet_bench._native.slot_layer_measure``."""
    return json.loads(measuring.slot_layer_measure(geometry, method, **options))


def fastest(geometry: str, method: str, rival: str, **options: Any) -> Row:
    """The faster run of a layer by a method, under the method's own parameters and under those of its rival.

    The method's own parameters have the least counted work. The rival's run only where they differ and hold the
    noise, so that a comparison does not hang on how well parameters were predicted.
    """
    chosen = {m: json.loads(_native.slot_layer_cost(geometry, m))["parameters"] for m in (method, rival)}
    runs = [measure(geometry, method, **options)]
    if chosen[method] != chosen[rival]:
        with contextlib.suppress(ValueError):  # noise that those parameters do not hold
            runs.append(measure(geometry, method, parameters_for=rival, **options))
    return min(runs, key=linear)


def linear(r: Row) -> float:
    """The linear part: for GALA with both parties' rotate-and-sum on shares, as the paper counts it."""
    return r["linear_seconds"] + (2 * r["share_seconds"] if r["method"].startswith("gala") else 0.0)


def served(r: Row) -> float:
    """The server's seconds, protection of answers included."""
    return r["receive_seconds"] + r["linear_seconds"] + r["answer_seconds"] + r["share_seconds"]


def both(r: Row) -> float:
    """Processor seconds of both parties on one query."""
    return r["request_seconds"] + served(r) + r["open_seconds"]


def slot_row(table: str, case: str, method: str, r: Row) -> Row:
    """What is told of a measured layer."""
    p = r["parameters"]
    return {
        "table": table, "case": case, "method": method, "linear_seconds": linear(r), "seconds": served(r),
        "both_seconds": both(r),
        "product_seconds": r["product_seconds"], "switching_seconds": r["switching_seconds"],
        "protect_seconds": r["answer_seconds"],
        "weights": "prepared" if r["prepared"] else f"streamed, {r['encode_seconds']:.2f} s apart",
        "bytes_up": r["bytes_up"], "bytes_down": r["bytes_down"], "key_bytes": r["key_bytes"], "keys": r["keys"],
        "public_key_bytes": r["public_key_bytes"], "correct": r["correct"],
        "counters_match_formula": r["counted"] == r["formula"], "ring_degree": p["ring_degree"],
        "modulus_bits": p["modulus_bits"],
        "primes": f"{p['primes']} x {p['prime_bits']} bits", "noise_within": (r["noise"] or {}).get("within"),
        "counted": r["counted"],
    }  # fmt: skip


def ratios(gazelle: Row, gala: Row, published: float) -> Row:
    """GALA over GAZELLE, bare and with what both add to hide weights.

    The row says what the time goes to where the ratio is below the published one.
    """
    ratio = linear(gazelle) / linear(gala)
    protected = (linear(gazelle) + gazelle["answer_seconds"]) / (linear(gala) + gala["answer_seconds"])
    row: Row = {"ratio": ratio, "ratio_protected": protected, "published": published, "reached": ratio >= published}
    if ratio >= published:
        return row
    a, b = gazelle["counted"], gala["counted"]
    return row | {
        "why": f"of GALA's {linear(gala):.3g} s products take {gala['product_seconds']:.3g} and key switches "
        f"{gala['switching_seconds']:.3g}, of GAZELLE's {linear(gazelle):.3g} s "
        f"{gazelle['product_seconds']:.3g} and {gazelle['switching_seconds']:.3g}: {b['sc_mult']} products and "
        f"{b['perm'] + b['hst_perm']} key switches against {a['sc_mult']} and "
        f"{a['perm'] + a['hst_perm']}, N = {gala['parameters']['ring_degree']} against "
        f"{gazelle['parameters']['ring_degree']}; at 128 bits a ciphertext has "
        f"{gala['parameters']['ring_degree'] // SLOTS} times the paper's {SLOTS} slots, and c_i/c_n, GALA's gain, is "
        "as much smaller"
    }


def _cheetah(geometry: str, repeats: int) -> Row:
    r = json.loads(measuring.cheetah_layer_measure(geometry, repeats=repeats))
    client = r["request_seconds"] + r["open_seconds"]
    return {
        "method": "cheetah", "seconds": r["server_seconds"], "both_seconds": client + r["server_seconds"],
        "chain_seconds": gala_choice.cheetah(geometry, r["server_seconds"], client),
        "bytes_up": r["bytes_up"], "bytes_down": r["bytes_down"], "correct": r["off"] <= 1,
        "ring_degree": r["ring_degree"],
        "weights": "prepared" if r["prepared"] else "streamed",
    }  # fmt: skip


def _published_slots(table: str, case: str, geometry: str, published: float) -> Row:
    """The paper's own comparison: as many slots as it has.

    Below 128 bits, so it says what the method gains, not what it costs.
    """
    runs = {m: measure(geometry, m, repeats=3, insecure_ring_degree=SLOTS) for m in ("gazelle", "gala")}
    return {
        "table": table, "case": case, "method": "gala over gazelle "
            f"at {SLOTS} slots", "insecure": True, **ratios(runs["gazelle"], runs["gala"], published),
        "correct": all(r["correct"] for r in runs.values()), "gazelle_seconds": linear(runs["gazelle"]),
        "linear_seconds": linear(runs["gala"]),
        "counted": {m: r["counted"] for m, r in runs.items()},
        "note": "the paper's number of slots, insecure by today's tables: channels a ciphertext, and so permutations, "
            "as the paper counts them",
    }  # fmt: skip


def case_rows(
    table: str, case: str, geometry: str, milliseconds: float, published: float, *, quick: bool, unit: Row
) -> list[Row]:
    """A row of Table VI or VIII by every method, and the planner's choice."""
    dense_layer = table == "VI"
    large = json.loads(measuring.slot_layer_counts(geometry, "gala", 8192))["formula"]["sc_mult"] > LARGE
    repeats = 1 if large else (3 if quick else 30) if dense_layer else (1 if quick else 3)
    if large:
        gazelle, gala = (measure(geometry, m, repeats=1) for m in ("gazelle", "gala"))
    else:
        gazelle = fastest(geometry, "gazelle", "gala", repeats=repeats, noise=True)
        gala = fastest(geometry, "gala", "gazelle", repeats=repeats, noise=True)
    rows = [slot_row(table, case, "gazelle", gazelle) | {"published_seconds": milliseconds / 1e3}]
    delphi = slot_row(table, case, "delphi-style (offline; online in the clear)", gazelle)
    rows.append(delphi | {"online_seconds": gazelle["plain_seconds"]})
    rows.append(slot_row(table, case, "gala", gala) | ratios(gazelle, gala, published))
    if not dense_layer:
        steps = measure(geometry, "gala-steps", repeats=repeats)
        note = (
            "ours: kernel grouping with some of the c_n - 1 steps done to the inputs, hoisted together with the "
            "kernel's own rotations (docs/slots.md)"
        )
        rows.append(slot_row(table, case, "gala-steps", steps) | ratios(gazelle, steps, published) | {"note": note})
        if not quick and not large:
            rows.append(_published_slots(table, case, geometry, published))
    cheetah = _cheetah(geometry, repeats)
    rows.append({"table": table, "case": case} | cheetah)
    measured = {"gazelle": both(gazelle), "gala": both(gala), "cheetah": cheetah["chain_seconds"]}
    measured |= gala_choice.coefficients(geometry, 1 if quick or large else 3, unit=unit)
    return [*rows, {"table": table, "case": case} | gala_choice.choice(geometry, measured, unit=unit)]


def noise_rows(quick: bool) -> list[Row]:
    """Table IV: the same layer by both methods under the same parameters, noise beside its bound."""
    rows = []
    for case, geometry in (
        ("16x128", dense(128, 16)),
        ("64x512", dense(512, 64)),
        ("16x16@64, 1x1@64", conv(64, 16, 64, 1)),
    )[: 2 if quick else 3]:
        noises = {
            m: measure(geometry, m, repeats=1, noise=True, parameters_for="gazelle")["noise"]
            for m in ("gazelle", "gala")
        }
        for method, noise in noises.items():
            rows.append({"table": "IV", "case": case, "method": method} | noise)
        rows[-1]["bits_below_gazelle"] = noises["gazelle"]["largest_bits"] - noises["gala"]["largest_bits"]
    return rows


class Layers:
    """Layers of whole networks, each distinct one measured once by every method."""

    def __init__(self, unit: Row) -> None:
        self.unit = unit
        self.found: dict[str, tuple[dict[str, Row], Row]] = {}

    def measure(self, geometry: str) -> tuple[dict[str, Row], Row]:
        """Rows to be summed, by method, and the planner's choice."""
        if geometry in self.found:
            return self.found[geometry]
        parts: dict[str, Row] = {}
        measured: dict[str, float] = {}
        for method in ("gazelle", "gala"):
            r = measure(geometry, method, repeats=1)
            part = {
                k: r[k] for k in ("product_seconds", "switching_seconds", "answer_seconds", "bytes_up", "bytes_down")
            }
            part |= {
                "linear_seconds": linear(r),
                "seconds": served(r),
                "both_seconds": both(r),
                "correct": int(r["correct"]),
                "layers": 1,
            }
            parts[method], measured[method] = part, both(r)
            # DELPHI: the same ciphertext work before the query is known, products in the clear afterwards
            if method == "gazelle":
                parts["delphi-style"] = {
                    k: part[k] for k in ("linear_seconds", "seconds", "bytes_up", "bytes_down", "correct", "layers")
                }
                parts["delphi-style"]["online_seconds"] = r["plain_seconds"]
        r = _cheetah(geometry, 1)
        part = {k: r[k] for k in ("seconds", "both_seconds", "chain_seconds", "bytes_up", "bytes_down")}
        parts["cheetah"] = part | {"correct": int(r["correct"]), "layers": 1}
        measured |= {"cheetah": r["chain_seconds"]} | gala_choice.coefficients(geometry, 1, unit=self.unit)
        self.found[geometry] = (parts, gala_choice.choice(geometry, measured, unit=self.unit))
        return self.found[geometry]


def network_rows(network: str, layers: Layers, progress: Any) -> list[Row]:
    """All linear layers of a network: the sum over distinct layers, times how often they occur."""
    zoo_name, published = NETWORKS[network]
    totals: dict[str, Row] = {}
    single: dict[str, float] = {}
    covered, picks = Counter[str](), Counter[str]()
    planned, start = 0.0, time.monotonic()
    shapes = Counter(layers_of(zoo_name))
    for number, (geometry, times) in enumerate(shapes.items()):
        if progress:
            progress(f"gala: {network}", number, len(shapes))
        parts, choice = layers.measure(geometry)
        for method, part in parts.items():
            add_row(totals.setdefault(method, {}), part, times)
        picks[choice["method"].removeprefix("planner: ")] += times
        planned += times * (choice["seconds"] if "seconds" in choice else choice["best_seconds"])
        add_row(single, choice["total_seconds"], times)
        covered.update(dict.fromkeys(choice["total_seconds"], times))
    table = "X" if network == "MLP" else "XI"
    rows: list[Row] = []
    for method, total in totals.items():
        row: Row = {"table": table, "case": network, "method": method} | total
        row["correct"] = total["correct"] == total["layers"]
        if method == "gala":
            row |= _network_ratio(totals["gazelle"], total, published)
        rows.append(row)
    # only methods that every layer has a row for can carry the network alone
    alone = {m: s for m, s in single.items() if covered[m] == covered["cheetah"]}
    best = min(alone, key=alone.__getitem__)
    rows.append({
        "table": table, "case": network, "method": "planner", "picks": dict(picks), "chain_seconds": planned,
        "best_method": best,
        "best_seconds": alone[best], "within_5_percent": planned <= 1.05 * alone[best], "total_seconds": alone,
        "bench_seconds": time.monotonic() - start,
    })  # fmt: skip
    return rows


def _network_ratio(gazelle: Row, gala: Row, published: float) -> Row:
    ratio = gazelle["linear_seconds"] / gala["linear_seconds"]
    protected = (gazelle["linear_seconds"] + gazelle["answer_seconds"]) / (
        gala["linear_seconds"] + gala["answer_seconds"]
    )
    row: Row = {"ratio": ratio, "ratio_protected": protected, "published": published, "reached": ratio >= published}
    if ratio < published:
        shares = {
            m: f"{r['linear_seconds']:.3g} s: products {r['product_seconds']:.3g}, key switches "
            f"{r['switching_seconds']:.3g}"
            for m, r in (("GAZELLE", gazelle), ("GALA", gala))
        }
        row["why"] = (
            "; ".join(f"{m} {s}" for m, s in shares.items())
            + f"; at 128 bits a ciphertext has two to four times the paper's {SLOTS} slots, so "
            "that c_i/c_n is as much smaller"
        )
    return row


def measured_rows(chosen: set[str], networks: list[str], *, quick: bool, unit: Row, progress: Any) -> Iterator[Row]:
    """Rows of Tables IV, VI, VIII, X and XI, case by case."""
    if "noise" in chosen:
        yield from noise_rows(quick)
    cases = [c for c in (MEASURED[:4] if quick else MEASURED) if c[0] in chosen]
    for number, case in enumerate(cases):
        if progress:
            progress(f"gala: Table {case[0]}, {case[1]}", number, len(cases))
        start = time.monotonic()
        for row in case_rows(*case, quick=quick, unit=unit):
            yield row | ({"bench_seconds": time.monotonic() - start} if row["method"].startswith("planner") else {})
    layers = Layers(unit)
    for network in networks:
        yield from network_rows(network, layers, progress)

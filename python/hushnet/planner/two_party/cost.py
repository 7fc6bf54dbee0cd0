"""Predicted bytes, rounds, seconds and memory of a two-party plan, for one image in a new session.

Bytes are exact: those of ciphertexts follow from the packing, those of protocols from a dry run of them (``mpc_cost``). Rounds are
messages on the longest chain of dependent ones; every linear stage counts two (requests leave together, answers stream back).
Seconds are compute on one core a party (both parties' work one after the other), transfers and one-way delays.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from importlib import resources
from typing import Any

from ... import _native
from ...plan import PlanError

Document = dict[str, Any]
Stage = dict[str, Any]

EXTENSIONS = ("iknp", "silent-small", "silent-medium", "silent-large")
# greeting and plan digest; public key seed; announcement of one image
HELLO_BYTES, SEED_BYTES, BEGIN_BYTES = 40, 32, 36
PRIME_BITS = 50
SHARE_BYTES = 8
# values of a protocol that are in work at once, and bytes for each
PASS = {"iknp": 1 << 14, "silent-small": 1 << 20, "silent-medium": 1 << 20, "silent-large": 1 << 20}
VALUE_BYTES = 150
EXTENSION_BYTES = {"iknp": 8 << 20, "silent-small": 32 << 20, "silent-medium": 64 << 20, "silent-large": 192 << 20}


@dataclass(frozen=True)
class Traffic:
    """Bytes from client and server, and rounds."""

    up: int = 0
    down: int = 0
    rounds: int = 0


@dataclass(frozen=True)
class StageCost:
    """One stage: ciphertexts, protocol messages, seconds of computing; ``packing`` of linear stages."""

    he: Traffic
    ot: Traffic
    compute: float
    packing: dict[str, int]


def unit_costs(path: str | None = None) -> dict[str, Any]:
    """Seconds of one core for one unit of work, and networks by name.

    Raises:
        PlanError: the file cannot be read, or lacks a figure.
    """
    default = json.loads(resources.files(__package__).joinpath("network_costs.json").read_text())
    if path is None:
        return default
    try:
        with open(path) as file:
            given = json.load(file)
        if not isinstance(given, dict) or not set(given) <= set(default):
            raise ValueError(f"fields must be among {sorted(default)}")
    except (OSError, ValueError) as error:
        raise PlanError(f"unit costs in {path} cannot be used ({error}); give a JSON object like the package's network_costs.json") from None
    return {**default, **given}


def elements(tensor: dict[str, Any]) -> int:
    """Elements of a tensor."""
    return math.prod(tensor["shape"])


def protocol(document: Document, stage: Stage) -> list[dict[str, Any]]:
    """The protocols that a stage runs, as ``mpc_cost`` takes them."""
    tensors, ring = document["tensors"], document["params"]["ring_bits"]
    kind = stage["kind"]
    if kind in {"client", "linear", "share", "sum_pool", "scale", "add", "reshape", "transpose", "concat", "slice", "pad"}:
        return []
    source = tensors[stage["in"]]
    n = elements(source)
    if kind in {"relu", "clip"}:
        return [{"op": kind, "n": n}]
    if kind == "leaky_relu":
        bits = stage["log_denominator"]
        sign = _sign(source["bound"] << bits, ring)
        return [{"op": kind, "n": n, "numerator": stage["numerator"], "log_denominator": bits, "sign": sign}]
    if kind == "truncate":
        sign = "non-negative" if stage["sign"] == "non-negative" else _sign(source["bound"], ring)
        return [{"op": kind, "n": n, "bits": stage["bits"], "sign": sign, "exact": stage.get("exact", False)}]
    if kind == "max_pool":
        c, h, w = source["shape"]
        return [{"op": kind, "channels": c, "height": h, "width": w, **{k: stage[k] for k in ("kernel", "stride", "pads")}}]
    if stage["what"] == "argmax":
        return [{"op": "argmax", "classes": n}, {"op": "open_index", "classes": n}]
    return [{"op": "open", "n": n}]


def _sign(bound: int, ring_bits: int) -> str:
    """What a truncation may assume of values up to ``bound``, a unit of errors included."""
    return "small" if bound < (1 << (ring_bits - 2)) - (bound >> 8) - 2 else "any"


@dataclass(frozen=True)
class Account:
    """Costs of all stages, and of the session's set-up, with one OT extension."""

    extension: str
    setup: Traffic
    stages: list[StageCost]


def account(document: Document, unit: dict[str, Any], extension: str | None = None) -> Account:
    """Costs with the OT extension that sends least (or the given one)."""
    return min((_account(document, unit, e) for e in ([extension] if extension else EXTENSIONS)), key=_sent)


def _sent(found: Account) -> int:
    return found.setup.up + found.setup.down + sum(s.ot.up + s.ot.down for s in found.stages)


def _account(document: Document, unit: dict[str, Any], extension: str) -> Account:
    degree, ring = document["params"]["ring_degree"], document["params"]["ring_bits"]
    lists = [protocol(document, s) for s in document["stages"]]
    flat = [p for protocols in lists for p in protocols]
    setup, *costs = (Traffic(*c) for c in _native.mpc_cost(json.dumps(flat), ring, extension))
    key = SEED_BYTES + -(-degree * PRIME_BITS // 8)
    setup = Traffic(setup.up + HELLO_BYTES + key + BEGIN_BYTES, setup.down, setup.rounds + 1)
    stages = []
    for stage, protocols in zip(document["stages"], lists):
        mine, costs = costs[:len(protocols)], costs[len(protocols):]
        ot = Traffic(sum(c.up for c in mine), sum(c.down for c in mine), sum(c.rounds for c in mine))
        he, packing = Traffic(), {}
        if stage["kind"] == "linear":
            packing = _native.packed_layer_cost(json.dumps(stage["geometry"]), degree, ring)
            he = Traffic(packing["bytes_up"], packing["bytes_down"], 2)
        stages.append(StageCost(he, ot, _compute(document, stage, protocols, packing, unit), packing))
    return Account(extension, setup, stages)


def _compute(document: Document, stage: Stage, protocols: list[dict[str, Any]], packing: dict[str, int], unit: dict[str, Any]) -> float:
    ring = document["params"]["ring_bits"]
    seconds = 0.0
    if packing:
        for figure, what in (("input_poly", "input_polys"), ("output_poly", "output_polys"), ("product", "products")):
            seconds += unit[figure] * packing[what]
    for p in protocols:
        compared, selected = _work(p, ring)
        seconds += compared * unit["compared_bit"] + selected * unit["selected_value"]
    if stage["kind"] != "client":
        seconds += elements(document["tensors"][stage["out"]]) * unit["local_element"]
    return seconds


def _work(protocol: dict[str, Any], ring: int) -> tuple[int, int]:
    """Bits that are compared, and values that are selected."""
    op = protocol["op"]
    if op == "max_pool":
        kernel, stride = protocol["kernel"], protocol["stride"]
        rows = protocol["channels"] * protocol["height"] * -(-protocol["width"] // stride[1])
        n = rows * (kernel[1] - 1) + rows // max(stride[0], 1) * (kernel[0] - 1)
        return n * ring, n
    if op == "argmax":
        return protocol["classes"] * ring, 2 * protocol["classes"]
    n = protocol.get("n", 0)
    if op == "truncate":
        compared = (ring if protocol["sign"] == "any" else 0) + (protocol["bits"] if protocol["exact"] else 0)
        return n * compared, n
    factor = {"relu": 1, "leaky_relu": 1, "clip": 2}.get(op, 0)
    return n * ring * factor, n * (factor + (op == "leaky_relu"))


def seconds(traffic: Traffic, compute: float, network: dict[str, Any]) -> float:
    """Computing, one-way delays, and the transfers of both directions one after the other."""
    transfer = 0.0 if network["bits_per_second"] is None else 8 * (traffic.up + traffic.down) / network["bits_per_second"]
    return compute + traffic.rounds * network["round_trip_seconds"] / 2 + transfer


def total(found: Account) -> Traffic:
    """Of one image, the set-up not counted."""
    parts = [t for s in found.stages for t in (s.he, s.ot)]
    return Traffic(sum(t.up for t in parts), sum(t.down for t in parts), sum(t.rounds for t in parts))


def peak_elements(document: Document) -> int:
    """Most elements of shared tensors that are alive at once."""
    last: dict[int, int] = {}
    shared = {t["id"] for t in document["tensors"] if t["kind"] == "shared"}
    reads = [([] if s["kind"] == "client" else s["in"] if isinstance(s["in"], list) else [s["in"]]) for s in document["stages"]]
    for index, (stage, ins) in enumerate(zip(document["stages"], reads)):
        for tensor in [*ins, stage.get("out", -1)]:
            last[tensor] = index
    alive = peak = 0
    sizes = {t["id"]: elements(t) for t in document["tensors"]}
    for index, (stage, ins) in enumerate(zip(document["stages"], reads)):
        made = stage.get("out", -1)
        alive += sizes[made] if made in shared else 0
        peak = max(peak, alive)
        alive -= sum(sizes[t] for t in {*ins, made} & shared if last[t] == index)
    return peak


def memory(document: Document, found: Account, weight_bytes: int) -> tuple[int, int]:
    """Peak bytes of client and server: shares, one pass of a protocol, the OT extension, ciphertexts of one stage; prepared weights."""
    degree = document["params"]["ring_degree"]
    values = max((elements(document["tensors"][s["in"]]) for s in document["stages"] if protocol(document, s)), default=0)
    shares = SHARE_BYTES * peak_elements(document)
    work = min(values * 2, PASS[found.extension]) * VALUE_BYTES + EXTENSION_BYTES[found.extension]
    polys = [2 * SHARE_BYTES * degree * (s.packing["input_polys"] + s.packing["output_polys"]) // s.packing["tiles"] for s in found.stages if s.packing]
    wire = max((s.he.up + s.he.down for s in found.stages), default=0)
    prepared = sum(SHARE_BYTES * degree * s.packing["weight_polys"] for s in found.stages if s.packing)
    client = shares + work + wire + max(polys, default=0) // 2
    return client, shares + work + wire + max(polys, default=0) + prepared + weight_bytes


def predicted(document: Document, weight_bytes: int, unit: dict[str, Any], network: str) -> dict[str, Any]:
    """The plan's ``predicted``, errors left out.

    Raises:
        PlanError: no such network.
    """
    if network not in unit["networks"]:
        raise PlanError(f"there is no network {network!r}; choose one of {', '.join(unit['networks'])}")
    found = account(document, unit)
    traffic, compute = total(found), sum(s.compute for s in found.stages)
    client, server = memory(document, found, weight_bytes)
    return {
        "batch": 1,
        "network": network,
        "extension": found.extension,
        "seconds": seconds(traffic, compute, unit["networks"][network]),
        "seconds_by_network": {name: seconds(traffic, compute, link) for name, link in unit["networks"].items()},
        "seconds_compute": compute,
        "bytes_up": traffic.up,
        "bytes_down": traffic.down,
        "he_bytes": sum(s.he.up + s.he.down for s in found.stages),
        "ot_bytes": sum(s.ot.up + s.ot.down for s in found.stages),
        "setup_bytes": found.setup.up + found.setup.down,
        "rounds": traffic.rounds,
        "client_peak_memory_bytes": client,
        "server_peak_memory_bytes": server,
    }

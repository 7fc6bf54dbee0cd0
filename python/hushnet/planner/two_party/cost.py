"""Predicted bytes, rounds, seconds and memory of a two-party plan.

They hold for the images that run together first in a new session.

Bytes and rounds are the executor's own prediction, exact; rounds are messages on the longest chain of dependent ones.
Seconds are the work on the longest chain of dependent work, on one core a party, transfers and one-way delays; unit
costs come from ``hushnet measure-machine``, terms from ``docs/two-party.md``.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from ... import _native
from ...plan import Plan, PlanError
from ...reference import matrices
from ...reference.methods import SLOTS, slot_bits
from ..cost import ENVIRONMENT, UnitCosts, of_package, user_file, without_weights
from .methods import PRIME, ROWS, Asked, layer_seconds
from .regions import COPIED

Document = dict[str, Any]
# stages with ciphertexts, and those of them whose operands are both shared
PRODUCTS = "matrix_product"
ENCRYPTED = frozenset({"linear", PRODUCTS})
# unit costs of products of matrices, and the figures that they count with
MATRIX_UNITS = {
    "matrix_request": "requests",
    "matrix_plain": "plain",
    "matrix_product": "products",
    "matrix_rotation": "merges",
    "matrix_answer": "answers",
    "matrix_term": "terms",
}
Stage = dict[str, Any]

SHARE_BYTES = 8
# values of a protocol that are in work at once, and bytes for each
SILENT_PASS, OTHER_PASS = 1 << 20, 1 << 14
VALUE_BYTES = 150
LABEL_BYTES = 16
# tables, keys and OTs in stock (measured)
EXTENSION_BYTES, SILENT_BYTES = 24 << 20, 56 << 20
# what a server's process takes beside a client's: its listeners and their threads (measured)
SERVER_BYTES = 20 << 20
# a server holds its weights as the file has them, and as the run time reads them
WEIGHT_COPIES = 2
# bytes of keys in memory for one that travels: both polynomials in whole words, and what is on its way (measured)
KEY_COPIES = 5
# what a server keeps of its weights in evaluation form unless told otherwise (``--weight-memory``)
WEIGHT_BYTES = 4 << 30
# names of the OT extensions in unit costs; others are taken as the nearest of these
EXTENSIONS = {
    "iknp": "softspoken",
    "softspoken": "softspoken",
    "silent-tiny": "silent_tiny",
    "silent-small": "silent_small",
}


@dataclass(frozen=True)
class Traffic:
    """Bytes from client and server, and rounds."""

    up: int = 0
    down: int = 0
    rounds: int = 0

    def without(self, part: Traffic) -> Traffic:
        """What is left of it beside a part."""
        return Traffic(self.up - part.up, self.down - part.down, self.rounds - part.rounds)


@dataclass(frozen=True)
class StageCost:
    """One stage: ciphertexts, protocol messages, seconds of computing; ``packing`` of linear stages.

    ``work`` of others, for one image, by oblivious transfer: bits ``compared``, values ``selected`` and ``truncated``,
    terms of products ``multiplied``, entries of tables ``looked_up``.
    """

    he: Traffic
    ot: Traffic
    compute: float
    packing: dict[str, int]
    work: dict[str, int]


def packaged() -> dict[str, Any]:
    """The package's unit costs for this machine's instruction set.

    Measured on one machine, and what they are in proportion to each other on most.
    """
    return of_package(__package__, "network_costs.json")


def unit_costs(path: str | None = None) -> dict[str, Any]:
    """Seconds of one core for one unit of work, and networks by name.

    The package's figures, replaced by those of ``path``, of the file that ``HUSHNET_UNIT_COSTS`` names, or of the
    user's (``hushnet measure-machine``); figures of other engines are passed over.

    Raises:
        PlanError: the file cannot be read, or holds what is no unit cost.
    """
    default = packaged()
    chosen = path or os.environ.get(ENVIRONMENT) or (str(user_file()) if user_file().exists() else None)
    if chosen is None:
        return default
    known = {*default, *(f.name for f in fields(UnitCosts))}
    try:
        with open(chosen) as file:
            given = json.load(file)
        if not isinstance(given, dict) or not set(given) <= known:
            raise ValueError(f"fields must be among {sorted(known)}")
        if any(not 0 <= float(v) < 1e9 for k, v in given.items() if k not in ("machine", "networks")):
            raise ValueError("a cost is no number of seconds")
    except (OSError, TypeError, ValueError) as error:
        reason = (
            f"unit costs in {chosen} cannot be used ({error}); give a JSON object like the package's network_costs.json"
        )
        raise PlanError(f"{reason}, or make one with `hushnet measure-machine`") from None
    return {**default, **{k: v for k, v in given.items() if k in default}}


_SPEC = re.compile(r"(\d+(?:\.\d+)?)([kmg]?)bit,(\d+(?:\.\d+)?)(s|ms|us)")
_RATE = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9}
_TIME = {"s": 1.0, "ms": 1e-3, "us": 1e-6}


def link(network: str, unit: dict[str, Any] | None = None) -> dict[str, Any]:
    """``bits_per_second`` (None: no limit) and ``round_trip_seconds`` of a network, by name or as ``"200mbit,5ms"``.

    Raises:
        PlanError: neither a name nor such a text.
    """
    named = (unit or unit_costs())["networks"]
    if network in named:
        return named[network]
    found = _SPEC.fullmatch(network.strip().lower())
    if found is None or float(found[1]) == 0.0:
        raise PlanError(
            f"there is no network {network!r}; choose one of {', '.join(named)}, or bandwidth and round trip like "
            "'200mbit,5ms'"
        )
    return {
        "bits_per_second": float(found[1]) * _RATE[found[2]],
        "round_trip_seconds": float(found[3]) * _TIME[found[4]],
    }


def elements(tensor: dict[str, Any]) -> int:
    """Elements of a tensor."""
    return math.prod(tensor["shape"])


@dataclass(frozen=True)
class Account:
    """Costs of ``images`` images together with one OT extension: of all stages, of the session's set-up, and in all.

    ``total`` and ``compute`` have the message that begins the images beside all stages.
    """

    images: int
    extension: str
    setup: Traffic
    stages: list[StageCost]
    total: Traffic
    peak_elements: int
    setup_compute: float
    compute: float
    # the same images prepared ahead: bytes before and with the input, and what each party keeps; None: nothing can be
    prepared: dict[str, Any] | None = None


def account(document: Document, unit: dict[str, Any], images: int = 1, handle: _native.Plan | None = None) -> Account:
    """Costs of so many images together with the OT extension that the run time will choose.

    Args:
        handle: the plan of the document, where it is checked already.

    Raises:
        PlanError: the run time refuses the plan.
    """
    degree, ring = document["params"]["ring_degree"], document["params"]["two_party"]["ring_bits"]
    handle = handle or _native.Plan.load(without_weights(Plan(document)).to_bytes())
    told = json.loads(handle.facts(images))["two_party"]
    stages: list[StageCost] = []
    slotted = [
        document["tensors"][s["out"]]["reach_bits"]
        for s in document["stages"]
        if s["kind"] == "linear" and s["method"] in SLOTS
    ]
    first = _first_layer(document, unit)
    suffix = EXTENSIONS.get(told["extension"], "silent_medium")
    for stage, phase, later, extensions, gates, work in zip(
        document["stages"], told["stages"], told["ahead"], told["extensions"], told["gates"], told["work"]
    ):
        linear = stage["kind"] in ENCRYPTED
        traffic, packing = _traffic(phase), {}
        if stage["kind"] == PRODUCTS:
            packing = matrix_figures(document, stage)
        elif linear:
            plain = slot_bits(slotted) if slotted else 0
            packing = ROWS[stage["method"]].figures(
                Asked(stage["geometry"], degree, ring, stage["weight_l2"], plain, min(images, degree))
            )
        compute = _compute(document, stage, packing, work, unit, images) + passage(traffic, unit)
        compute += (
            sum(unit[name] * count for name, count in extended(suffix, extensions).items())
            + unit["garbled_gate"] * gates
        )
        if linear:
            compute, first = compute + first, 0.0
        # what a stage with ciphertexts ensures for later ones is oblivious transfers, as all of another stage
        he = traffic.without(_traffic(later)) if linear else Traffic()
        stages.append(StageCost(he, traffic.without(he), compute, packing, work))
    setup, total = _traffic(told["setup"]), _traffic(told["total"])
    spent = [t for s in stages for t in (s.he, s.ot)]
    begin = Traffic(*(getattr(total, f) - sum(getattr(t, f) for t in spent) for f in ("up", "down", "rounds")))
    return Account(
        images,
        told["extension"],
        setup,
        stages,
        total,
        told["peak_elements"],
        _setup(document, stages, unit) + passage(setup, unit),
        passage(begin, unit) + sum(s.compute for s in stages),
        told["prepared"],
    )


def matrix_figures(document: Document, stage: Stage) -> dict[str, int]:
    """What a product of matrices costs for one image: operations, and bytes of ciphertexts that the server holds."""
    sizes, found = matrices.of_stage(document["tensors"], stage)
    return {**found.counts, "terms": sizes.terms, "window_bytes": found.counts["working_bytes"], "tiles": 1}


def matrix_seconds(figures: Mapping[str, int], unit: dict[str, Any]) -> float:
    """Both parties' computing on a product of matrices, for one image."""
    return sum(unit[name] * figures[what] for name, what in MATRIX_UNITS.items())


def passage(traffic: Traffic, unit: dict[str, Any]) -> float:
    """What messages cost beside transfers and delays.

    Work of every round, sockets and threads, and both ends' handling of bytes.
    """
    return traffic.rounds * (unit["message"] + unit["round"]) + (traffic.up + traffic.down) * unit["byte"]


def extended(suffix: str, work: dict[str, int]) -> dict[str, int]:
    """How often each unit cost of an OT extension counts.

    Starts, steps, and OTs when they are made, or drawn (silent).
    """
    ots = work["drawn" if suffix.startswith("silent") else "made"]
    return {f"ot_start_{suffix}": work["starts"], f"ot_step_{suffix}": work["steps"], f"ot_{suffix}": ots}


def _keys(document: Document) -> set[str]:
    """Methods, as unit costs name them, for which a session has keys of their own."""
    return {keys for s in document["stages"] if s["kind"] == "linear" if (keys := ROWS[s["method"]].keys) is not None}


def _first_layer(document: Document, unit: dict[str, Any]) -> float:
    """The server's reading of keys, for which a session's first linear layer waits."""
    products = any(s["kind"] == PRODUCTS for s in document["stages"])
    names = [f"{k}_first_layer" for k in _keys(document)] + (["matrix_first_layer"] if products else [])
    return unit["first_layer"] + sum(max(0.0, unit.get(name, 0.0) - unit["first_layer"]) for name in names)


def _setup(document: Document, stages: list[StageCost], unit: dict[str, Any]) -> float:
    """Seconds of computing of a session's set-up: base OTs, keys, and what layers do once."""
    seconds = unit["session_keys"] + sum(max(0.0, unit[f"{k}_keys"] - unit["session_keys"]) for k in _keys(document))
    if any(s["kind"] == PRODUCTS for s in document["stages"]):
        seconds += max(0.0, unit["matrix_keys"] - unit["session_keys"])
    return seconds + sum(
        ROWS[s["method"]].layer_seconds(c.packing, unit)
        for s, c in zip(document["stages"], stages)
        if s["kind"] == "linear"
    )


def has_client(name: str) -> bool:
    """Whether the client has a part in a unit of linear work; ``NAME_client`` is that part's cost."""
    return not name.endswith(("product", "word", "rotation"))


def _traffic(phase: dict[str, int]) -> Traffic:
    return Traffic(phase["bytes_up"], phase["bytes_down"], phase["rounds"])


def _compute(
    document: Document, stage: Stage, packing: dict[str, int], work: dict[str, int], unit: dict[str, Any], images: int
) -> float:
    count = images * elements(document["tensors"][stage["out"]]) if "out" in stage else 0
    if stage["kind"] == "client":
        # what only moves elements is read in place
        outs = [op["out"] for op in stage["ops"] if op["op"] not in COPIED]
        return images * sum(elements(document["tensors"][t]) for t in outs) * unit["client_element"]
    seconds = count * unit["local_element"]
    if stage["kind"] == PRODUCTS:
        return seconds + images * (matrix_seconds(packing, unit) + work["truncated"] * unit["truncated_value"])
    if packing:
        row = ROWS[stage["method"]]
        if row.modulo == PRIME:
            converted = elements(document["tensors"][stage["in"]]) + elements(document["tensors"][stage["out"]])
            seconds += images * converted * unit["selected_value"]
        blocks = -(-images // document["params"]["ring_degree"]) if row.blocks else images
        return seconds + layer_seconds(stage["method"], packing, unit, blocks)
    own = (
        work["compared"] * unit["compared_bit"]
        + work["selected"] * unit["selected_value"]
        + work["truncated"] * unit["truncated_value"]
        + work["multiplied"] * unit["product_term"]
        + work["looked_up"] * unit["table_entry"]
    )
    return seconds + images * own


def seconds(traffic: Traffic, compute: float, network: dict[str, Any]) -> float:
    """Computing, one-way delays, and the transfers of both directions one after the other."""
    transfer = (
        0.0 if network["bits_per_second"] is None else 8 * (traffic.up + traffic.down) / network["bits_per_second"]
    )
    return compute + traffic.rounds * network["round_trip_seconds"] / 2 + transfer


def memory(document: Document, found: Account, weight_bytes: int, unit: dict[str, Any]) -> tuple[int, int]:
    """Peak bytes of client and server.

    The process itself, shares, one pass of a protocol, the OT extension, ciphertexts of one stage; keys of slot-packed
    layers; the client's set-ups of rotation-free layers; the server's weights, twice as they are and in evaluation form
    as far as they are kept.
    """
    degree = document["params"]["ring_degree"]
    values = found.images * max((s.work["selected"] + s.work["truncated"] for s in found.stages), default=0)
    shares = SHARE_BYTES * found.peak_elements * found.images
    silent = found.extension.startswith("silent")
    most = SILENT_PASS if silent else OTHER_PASS
    work = max(
        min(values, most) * VALUE_BYTES,
        min(_labels(document, found.images), most * document["params"]["two_party"]["ring_bits"]) * LABEL_BYTES,
    ) + (SILENT_BYTES if silent else EXTENSION_BYTES)
    layers = [s for s in found.stages if s.packing]
    polys = max((_ciphertexts(s.packing, degree) for s in layers), default=0)
    wire = max((s.he.up + s.he.down for s in layers), default=0)
    slots = any(s.get("method") in SLOTS for s in document["stages"])
    base = int(unit["process_bytes"]) + shares + work + wire + (KEY_COPIES * found.setup.up if slots else 0)
    server = SERVER_BYTES + polys + WEIGHT_COPIES * weight_bytes + kept(document, found)
    return base + polys // 2 + set_ups(document, found), base + server


def set_ups(document: Document, found: Account) -> int:
    """Bytes of what the client keeps of layers.

    Of rotation-free ones two polynomials for one of the weights, of the same words.
    """
    linear = ((ROWS[s["method"]], c.packing) for s, c in zip(document["stages"], found.stages) if s["kind"] == "linear")
    return sum(row.kept_bytes(packing) for row, packing in linear if row.keeps == "set-ups")


def _labels(document: Document, images: int) -> int:
    """Most input labels that the client holds for one garbled stage: one a bit of its shares."""
    read = [elements(document["tensors"][s["in"]]) for s in document["stages"] if s.get("protocol") == "garbled"]
    return images * max(read, default=0) * document["params"]["two_party"]["ring_bits"]


def kept(document: Document, found: Account, room: int = WEIGHT_BYTES) -> int:
    """Bytes of weights that a server keeps in evaluation form: what saves most a byte first, while it fits."""
    bytes_of = SHARE_BYTES * document["params"]["ring_degree"]
    size = lambda p: p.get("prepared_bytes", bytes_of * p["weight_polys"])  # noqa: E731
    layers = [
        (-s.packing.get("keeping_uses", s.packing["tiles"]), index, size(s.packing))
        for index, s in enumerate(found.stages)
        if "weight_polys" in s.packing
    ]
    total = 0
    for _, _, size in sorted(layers):
        if total + size <= room:
            total += size
    return total


def _ciphertexts(packing: dict[str, int], degree: int) -> int:
    """Bytes of a stage's ciphertexts in work."""
    if "window_bytes" in packing:
        return packing["window_bytes"]
    return 2 * SHARE_BYTES * degree * (packing["input_polys"] + packing["output_polys"]) // packing["tiles"]


def prepared(document: Document, found: Account) -> int:
    """Bytes of the weights in evaluation form."""
    degree = document["params"]["ring_degree"]
    others = sum(s.packing.get("prepared_bytes", 0) for s in found.stages)
    polys = sum(s.packing.get("weight_polys", 0) for s in found.stages if "prepared_bytes" not in s.packing)
    return SHARE_BYTES * degree * polys + others


def predicted(
    document: Document,
    weight_bytes: int,
    unit: dict[str, Any],
    network: str,
    images: int = 1,
    found: Account | None = None,
) -> dict[str, Any]:
    """The plan's ``predicted``, errors left out: of ``images`` images that run together.

    ``found`` are the document's costs, where they are known.

    Raises:
        PlanError: no such network.
    """
    chosen = link(network, unit)
    found = found or account(document, unit, images)
    traffic, compute = found.total, found.compute
    client, server = memory(document, found, weight_bytes, unit)
    return {
        "batch": images,
        "network": network,
        "extension": found.extension,
        "seconds": seconds(traffic, compute, chosen),
        "seconds_by_network": {name: seconds(traffic, compute, link) for name, link in unit["networks"].items()},
        "seconds_compute": compute,
        "setup_seconds": seconds(found.setup, found.setup_compute, chosen),
        "bytes_up": traffic.up,
        "bytes_down": traffic.down,
        "he_bytes": (he := sum(s.he.up + s.he.down for s in found.stages)),
        "ot_bytes": traffic.up + traffic.down - he,
        "setup_bytes": found.setup.up + found.setup.down,
        "rounds": traffic.rounds,
        "client_peak_memory_bytes": client,
        "client_set_up_memory_bytes": set_ups(document, found),
        "server_peak_memory_bytes": server,
        "server_prepared_weight_bytes": kept(document, found),
        "server_all_prepared_weight_bytes": prepared(document, found),
    }

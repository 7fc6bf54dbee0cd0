"""Which protocol computes a non-linear layer on shares: oblivious transfer, in a tree or through digits, or a circuit.

All are exact and read and leave shares modulo 2^l, so there is nothing to convert and every layer is chosen by itself:
seconds of its work, of its messages one after the other, and of its bytes over the plan's network. A comparison by
oblivious transfer sends some tens of bytes a value: in a tree (``ot``) in about six messages, by a carry through digits
of two to four bits (``ripple-2`` to ``ripple-4``) in a message for each digit, with fewer transfers. A garbled circuit
takes 32 bytes an AND gate, about 3 l gates a value, in two messages. So comparisons of few bits go through digits, of
many bits in a tree where messages are dear, and small layers on networks of long delay are garbled.
"""

from __future__ import annotations

from typing import Any

from . import cost
from .methods import ACCURACY

TRANSFERS = ("ot", "ripple-2", "ripple-3", "ripple-4")
PROTOCOLS = (*TRANSFERS, "garbled")
KINDS = frozenset({"relu", "clip", "max_pool"})
# where the network has no limit of its own: a plan for loopback would give any number of bytes for a microsecond. The
# round trip, of parties some hundred kilometres apart, counts between protocols by oblivious transfer
UNKNOWN_BANDWIDTH, UNKNOWN_ROUND_TRIP = 1e9, 0.01
Document = dict[str, Any]


def compares(stage: dict[str, Any]) -> bool:
    """Whether there is a choice of protocols for the stage."""
    return stage["kind"] in KINDS or (stage["kind"] == "reveal" and stage["what"] == "argmax")


def choose(
    document: Document, unit: dict[str, Any], network: str, images: int, forced: str | None
) -> tuple[dict[str, Any], cost.Account | None]:
    """Writes ``protocol`` into the document's stages that compare.

    Returns what the choice of every non-linear stage rests on, by name, and the costs of the document as it is then,
    where the choice needed them.

    A plan that names no network may meet any: it weighs messages of trees and digits against their bytes as over a
    link of :data:`UNKNOWN_BANDWIDTH` and :data:`UNKNOWN_ROUND_TRIP`. A garbled circuit is taken where it saves more
    than unit costs can be wrong by, and where the whole, set-up included, gains by it.

    Args:
        network: a name, or bandwidth and round trip like ``"200mbit,5ms"``.
        forced: one of :data:`PROTOCOLS` for all layers; None for the cheapest of each.
    """
    stages = [i for i, s in enumerate(document["stages"]) if compares(s)]
    if not stages:
        return {}, None
    names = [document["stages"][i]["name"] for i in stages]
    if forced is not None:
        _write(document, dict.fromkeys(stages, forced))
        return {name: {"choice": "forced"} for name in names}, None
    link = cost.link(network, unit)
    far = link
    if link["bits_per_second"] is None:
        link = {**link, "bits_per_second": UNKNOWN_BANDWIDTH}
        far = {**link, "round_trip_seconds": UNKNOWN_ROUND_TRIP}
    accounts = {p: cost.account(_with(document, dict.fromkeys(stages, p)), unit, images) for p in PROTOCOLS}

    def spent(p: str, i: int, over: dict[str, Any]) -> float:
        stage = accounts[p].stages[i]
        return cost.seconds(stage.ot, stage.compute, over)

    found, taken = accounts["ot"], dict.fromkeys(stages, "ot")

    def better(tried: dict[int, str], over: dict[str, Any]) -> tuple[cost.Account, dict[int, str]]:
        if tried == taken:
            return found, taken
        whole = cost.account(_with(document, tried), unit, images)
        return (whole, tried) if _whole(whole, over) < _whole(found, over) else (found, taken)

    found, taken = better({i: min(TRANSFERS, key=lambda p: spent(p, i, far)) for i in stages}, far)
    # a circuit's work is counted in other units than that of transfers
    circuits = [i for i in stages if ACCURACY * spent("garbled", i, link) < spent(taken[i], i, link)]
    found, taken = better({**taken, **dict.fromkeys(circuits, "garbled")}, link)
    _write(document, taken)
    told = {}
    for i, name in zip(stages, names):
        gaps = {p: spent(p, i, over) - spent(taken[i], i, over) for p, over in _links(taken[i], link, far).items()}
        # digits of other lengths may be the same ones
        other = min((p for p in gaps if gaps[p] != 0.0), key=gaps.__getitem__)
        told[name] = {"choice": "cheaper", "runner_up": other, "gap_seconds": gaps[other] / images}
    return told, found


def _links(taken: str, link: dict[str, Any], far: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Over which link each protocol is compared with the one that is taken."""
    return {p: link if "garbled" in (p, taken) else far for p in PROTOCOLS}


def _write(document: Document, chosen: dict[int, str]) -> None:
    for i, protocol in chosen.items():
        if protocol != "ot":
            document["stages"][i]["protocol"] = protocol


def _with(document: Document, chosen: dict[int, str]) -> Document:
    written = {**document, "stages": [dict(s) for s in document["stages"]]}
    _write(written, chosen)
    return written


def _whole(account: cost.Account, link: dict[str, Any]) -> float:
    return cost.seconds(account.total, account.compute, link) + cost.seconds(account.setup, account.setup_compute, link)

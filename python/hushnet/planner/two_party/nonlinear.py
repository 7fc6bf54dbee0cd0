"""Which protocol computes a non-linear layer on shares: oblivious transfer, in a tree or bit by bit, or a circuit.

All are exact and read and leave shares modulo 2^l, so there is nothing to convert and every layer is chosen by itself:
seconds of its work, of its messages one after the other, and of its bytes over the plan's network. A comparison by
oblivious transfer sends some tens of bytes a value in about six messages; bit by bit (``ripple``) a sixth of them less,
in a message for every bit; a garbled circuit 32 bytes an AND gate, about 3 l gates a value, in two. Small layers on
networks of long delay are garbled, and large ones on networks of short delay go bit by bit.
"""

from __future__ import annotations

from typing import Any

from . import cost
from .methods import ACCURACY

PROTOCOLS = ("ot", "ripple", "garbled")
KINDS = frozenset({"relu", "clip", "max_pool"})
# bits a second, where the network has no limit of its own: a plan for loopback would give any number of bytes for a
# microsecond
UNKNOWN_BANDWIDTH = 1e9
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

    Bit by bit is taken where it is cheaper over a network that is named: a plan for any network keeps its messages
    few. A garbled circuit is taken where it saves more than unit costs can be wrong by, and where the whole, set-up
    included, gains by it.

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
    offered = list(PROTOCOLS)
    if link["bits_per_second"] is None:
        link = {**link, "bits_per_second": UNKNOWN_BANDWIDTH}
        offered.remove("ripple")
    accounts = {p: cost.account(_with(document, dict.fromkeys(stages, p)), unit, images) for p in offered}
    spent = {p: [cost.seconds(s.ot, s.compute, link) for s in a.stages] for p, a in accounts.items()}
    # a circuit's work is counted in other units than that of transfers
    counted = {p: [(ACCURACY if p == "garbled" else 1.0) * t for t in spent[p]] for p in offered}
    chosen = {i: min(offered, key=lambda p: counted[p][i]) for i in stages}
    found, taken = accounts["ot"], dict.fromkeys(stages, "ot")
    for tried in (chosen, {i: min(offered[:-1], key=lambda p: counted[p][i]) for i in stages}):
        if tried != taken:
            mixed = cost.account(_with(document, tried), unit, images)
            if _whole(mixed, link) < _whole(found, link):
                found, taken = mixed, tried
    _write(document, taken)
    told = {}
    for i, name in zip(stages, names):
        other = min((p for p in offered if p != taken[i]), key=lambda p: spent[p][i])
        told[name] = {
            "choice": "cheaper",
            "runner_up": other,
            "gap_seconds": (spent[other][i] - spent[taken[i]][i]) / images,
        }
    return told, found


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

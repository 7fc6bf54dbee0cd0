"""Which protocol computes a non-linear layer on shares: oblivious transfer, or a garbled circuit.

Both are exact and read and leave shares modulo 2^l, so there is nothing to convert and every layer is chosen by itself:
seconds of its work, of its messages one after the other, and of its bytes over the plan's network. A comparison by
oblivious transfer sends some tens of bytes a value in about ten messages; a garbled circuit 32 bytes an AND gate, about
3 l gates a value, in two. Small layers on networks of long delay are garbled.
"""

from __future__ import annotations

from typing import Any

from . import cost
from .methods import ACCURACY

PROTOCOLS = ("ot", "garbled")
KINDS = frozenset({"relu", "clip", "max_pool"})
# bits a second, where the network has no limit of its own: a plan for loopback would give any number of bytes for a
# microsecond
UNKNOWN_BANDWIDTH = 1e9
Document = dict[str, Any]


def garbles(stage: dict[str, Any]) -> bool:
    """Whether a garbled circuit can compute the stage."""
    return stage["kind"] in KINDS or (stage["kind"] == "reveal" and stage["what"] == "argmax")


def choose(
    document: Document, unit: dict[str, Any], network: str, images: int, forced: str | None
) -> tuple[dict[str, Any], cost.Account | None]:
    """Writes ``protocol`` into the document's garbled stages.

    Returns what the choice of every non-linear stage rests on, by name, and the costs of the document as it is then,
    where the choice needed them.

    A garbled circuit is taken where it saves more than unit costs can be wrong by, and where the whole, set-up
    included, gains by it.

    Args:
        network: a name, or bandwidth and round trip like ``"200mbit,5ms"``.
        forced: one of :data:`PROTOCOLS` for all layers; None for the cheaper of each.
    """
    stages = [i for i, s in enumerate(document["stages"]) if garbles(s)]
    if not stages:
        return {}, None
    names = [document["stages"][i]["name"] for i in stages]
    if forced is not None:
        _write(document, set(stages) if forced == "garbled" else set())
        return {name: {"choice": "forced"} for name in names}, None
    link = cost.link(network, unit)
    if link["bits_per_second"] is None:
        link = {**link, "bits_per_second": UNKNOWN_BANDWIDTH}
    accounts = [cost.account(_with(document, chosen), unit, images) for chosen in (set(), set(stages))]
    transfer, garbled = ([cost.seconds(s.ot, s.compute, link) for s in a.stages] for a in accounts)
    chosen = {i for i in stages if ACCURACY * garbled[i] < transfer[i]}
    found = accounts[0]
    if chosen:
        mixed = cost.account(_with(document, chosen), unit, images)
        if _whole(mixed, link) < _whole(found, link):
            found = mixed
        else:
            chosen = set()
    _write(document, chosen)
    told = {}
    for i, name in zip(stages, names):
        taken, other = (garbled[i], transfer[i]) if i in chosen else (transfer[i], garbled[i])
        told[name] = {
            "choice": "cheaper",
            "runner_up": PROTOCOLS[i not in chosen],
            "gap_seconds": (other - taken) / images,
        }
    return told, found


def _write(document: Document, chosen: set[int]) -> None:
    for i in chosen:
        document["stages"][i]["protocol"] = "garbled"


def _with(document: Document, chosen: set[int]) -> Document:
    return {
        **document,
        "stages": [{**s, "protocol": "garbled"} if i in chosen else s for i, s in enumerate(document["stages"])],
    }


def _whole(account: cost.Account, link: dict[str, Any]) -> float:
    return cost.seconds(account.total, account.compute, link) + cost.seconds(account.setup, account.setup_compute, link)

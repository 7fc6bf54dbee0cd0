"""Bounds rounded up to powers of two.

What both parties derive rings of comparisons, truncations and conversions from.
"""

from __future__ import annotations

from typing import Any

from ... import _native
from ...plan import PlanError
from ...reference.methods import SLOTS
from ...reference.two_party import COMPARING, divided, with_errors
from .regions import MOVES


def write_reaches(document: dict[str, Any]) -> None:
    """Writes ``reach_bits`` of every shared tensor, clip and comparison that drops bits.

    They follow from exact bounds, methods being chosen.

    Raises:
        PlanError: the prime of slot-packed results, a little below its power of two, needs a bit that the ring of
            shares does not have.
    """
    tensors, ring = document["tensors"], document["params"]["two_party"]["ring_bits"]
    for tensor in tensors:
        if tensor["kind"] == "shared":
            tensor["reach_bits"] = _native.reach_bits(tensor["bound"])
    for stage in document["stages"]:
        bits = stage.get("bits", 0) if stage["kind"] in COMPARING else 0
        if stage["kind"] == "clip" or bits:
            far = max(abs(stage["low"]), abs(stage["high"])) if stage["kind"] == "clip" else 0
            stage["reach_bits"] = _native.reach_bits(divided(tensors[stage["in"]]["bound"], bits) + far)
        elif stage["kind"] == "linear" and stage["method"] in SLOTS:
            out = tensors[stage["out"]]
            out["reach_bits"] = converted(stage["name"], out["bound"], out["reach_bits"])
            if out["reach_bits"] >= ring:
                raise PlanError(
                    f"layer {stage['name']!r}: its results need a ring of {ring + 1} bits in slots; give ring_bits, or "
                    "use another method"
                )
        elif stage["kind"] in MOVES:
            # what is moved keeps what a layer's conversion added
            out = tensors[stage["out"]]
            out["reach_bits"] = max(out["reach_bits"], *(tensors[t]["reach_bits"] for t in stage["in"]))


def converted(layer: str, bound: int, reach: int) -> int:
    """The reach at which a prime converts results up to a bound.

    One bit more where they come between the prime and its power of two.

    Raises:
        PlanError: no prime is wide enough.
    """
    try:
        while _native.slot_plain(reach)[1] < with_errors(bound):
            reach += 1
    except ValueError as error:
        raise PlanError(
            f"layer {layer!r}: {error}; use fewer weight_bits or activation_bits, or another method"
        ) from None
    return reach

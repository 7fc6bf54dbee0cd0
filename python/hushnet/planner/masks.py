"""Which linear stages keep their masks for a session, within a memory budget."""

from __future__ import annotations

from typing import Any

from ..plan import PlanError
from .cost import UnitCosts, product_cost, products_per_word
from .memory import kept
from .tiles import layout


def saving(stage: dict[str, Any], ring_degree: int, unit: UnitCosts) -> float:
    """Seconds a block that shared masks save: half of the products, the second part of every result, mask expansion."""
    rows = layout(stage["geometry"])
    products = products_per_word(stage["geometry"]) * ring_degree * product_cost(stage["geometry"], unit)
    extra = (
        rows.out_features
        * ring_degree
        * (stage["modulus_bits"] / 8 * unit.byte + unit.server_word + unit.transform_word)
    )
    expansion = rows.in_features * ring_degree * (2 * unit.mask_word + unit.transform_word)
    return products + extra + expansion


def choose_masks(
    stages: list[dict[str, Any]], ring_degree: int, blocks: int, budget: int, forced: str, unit: UnitCosts
) -> list[str]:
    """``shared`` or ``fresh`` for every linear stage: the best savings a kept byte first, while the budget lasts.

    Raises:
        PlanError: an unknown mode.
    """
    if forced not in ("auto", "shared", "fresh", "sent"):
        raise PlanError(f"mask is {forced!r}; give 'auto', 'shared', 'fresh' or 'sent'")
    if forced != "auto":
        return [forced] * len(stages)
    sizes = [kept(stage, ring_degree, blocks) for stage in stages]
    gains = [saving(stage, ring_degree, unit) / size for stage, size in zip(stages, sizes)]
    chosen = ["fresh"] * len(stages)
    for index in sorted(range(len(stages)), key=lambda i: -gains[i]):
        if sizes[index] <= budget:
            budget -= sizes[index]
            chosen[index] = "shared"
    return chosen

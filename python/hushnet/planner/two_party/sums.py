"""Chains of sums: how much room their terms leave each other, and where they are cut down to their calibrated range.

A sum's bound is that of its terms, so n sums behind one another (a residual stream that only normalisations read) need
n bits of the ring, or terms that are as many bits coarser. A truncation may state the calibrated range instead, which
is far below what a layer's weights allow. In long chains every term is truncated to a few bits more than a factor has,
and so are sums of layers' results where calibration bounds these.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from .steps import Step

if TYPE_CHECKING:
    from .fixed import Builder
    from .versions import Version

# sums behind one another that need no rest, bits that a term keeps beyond those of factors, and that it may have more
MOST_SUMS = 4
WIDER, SPARE = 4, 4

# steps whose operands need a bit of room, for a comparison or a truncation
ONE_MORE = frozenset(
    {"linear", "clip", "leaky_relu", "function", "product", "matrix_product", "hard_swish", "settle", "match"}
)
SUMS = frozenset({"add", "shift"})
# steps whose result has the bound of what they read
THROUGH = frozenset({"max_pool", "sum_pool", "scale", "gain", "concat", "reshape", "transpose", "slice", "pad"})


def doublings(steps: Sequence[Step], opened: Mapping[str, int], resting: Collection[str] = ()) -> dict[str, int]:
    """How often a tensor of unknown sign is doubled before its next bound.

    Sums and differences of two need a bit each, a truncation without known sign one.

    Args:
        opened: of the tensors that are opened.
        resting: results of sums whose terms are truncated.
    """
    room = dict(opened)
    for step in reversed(steps):
        after = room.get(step.output, 0)
        if step.output in resting:
            after = 1
        elif step.kind in SUMS:
            after += 1
        elif step.kind == "relu":
            after = 0
        elif step.kind in ONE_MORE:
            after = 1
        elif step.kind in {"max_pool", "sum_pool", "scale", "gain", "concat"}:
            after = max(after, 1)
        for tensor in step.inputs:
            room[tensor] = max(room.get(tensor, 0), after)
    return room


def long_chains(steps: Sequence[Step], room: Mapping[str, int], limits: Mapping[str, float]) -> frozenset[str]:
    """Results of the sums of two tensors in chains of more than :data:`MOST_SUMS` whose terms have a calibrated range.

    Args:
        room: :func:`doublings` without rests.
    """
    before: dict[str, int] = {}
    for step in steps:
        behind = max((before.get(t, 0) for t in step.inputs), default=0)
        before[step.output] = behind + 1 if step.kind in SUMS else behind if step.kind in THROUGH else 0
    return frozenset(
        s.output
        for s in steps
        if s.kind == "add"
        and before[s.output] + room.get(s.output, 0) > MOST_SUMS
        and all(limits.get(t, 0.0) > 0 for t in s.inputs)
    )


def behind_layers(steps: Sequence[Step], limits: Mapping[str, float]) -> frozenset[str]:
    """Results of the sums of two tensors, one or both a layer's results, whose terms have a calibrated range.

    Where calibration bounds the layer's sums, a truncation before the addition leaves them a bit more of the ring.
    """
    made = {s.output: s for s in steps}

    def of_layer(tensor: str) -> bool:
        while tensor in made and made[tensor].kind in ("reshape", "transpose"):
            tensor = made[tensor].inputs[0]
        return tensor in made and made[tensor].kind == "linear"

    return frozenset(
        s.output
        for s in steps
        if s.kind == "add" and all(limits.get(t, 0.0) > 0 for t in s.inputs) and any(map(of_layer, s.inputs))
    )


def rested(builder: Builder, name: str, version: Version) -> Version:
    """A term of a long chain with a few bits more than a factor, where its bound takes many more."""
    bits = (builder.request.activation_bits or builder.request.most_bits) + WIDER
    if version.bound.bit_length() <= bits + SPARE:
        return version
    reach = min(version.bound * version.unit, builder.request.limits[name]) / version.gain
    drop = version.frac_bits + math.ceil(math.log2(max(reach, 1e-9))) + 1 - bits
    return builder.truncated(name, version, drop) if drop > 0 else version

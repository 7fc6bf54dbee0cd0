"""Comparisons of what a truncation keeps: a ReLU, a clip or a pool whose result is read coarser compares fewer bits.

``relu(x / 2^s)`` is ``relu(x) / 2^s``. The stage drops the s bits by itself: each party shifts its share, all that
follows works in the narrow ring that is left, and only the result returns to the ring of the shares. That holds for
values that fill the ring, too, whose truncation alone would take a comparison.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from ...reference.two_party import reach_bits
from .steps import Step

if TYPE_CHECKING:
    from .fixed import Builder
    from .versions import Version

# steps that read a tensor as layers do (Builder.read), and those whose result has the bits of what they read
READING = frozenset({"linear", "add", "max_pool", "sum_pool", "concat", "pad", "reshape", "slice", "transpose"})
KEEPING = frozenset({"relu", "clip", "max_pool"})


def wanted(builder: Builder, name: str, version: Version) -> int | None:
    """frac_bits of a tensor beyond which nobody reads it; None where somebody reads it as it is."""
    steps, group = builder.reading.get(name, []), builder.root(name)
    if not steps or name in builder.request.opened:
        return None
    if group in builder.layers:
        if group in builder.joined and version.gain != 1.0:
            return None
        return builder.target_bits(name, version) if all(s.kind in READING for s in steps) else None
    after = [wanted(builder, s.output, version) for s in steps if s.kind in KEEPING]
    known = [bits for bits in after if bits is not None]
    return max(known) if len(known) == len(steps) else None


def compared(builder: Builder, step: Step) -> tuple[Version, dict[str, int]]:
    """What a comparison works on, and the fields that say so: as many ``bits`` dropped as its readers drop.

    A maximum that need not be exact drops bits until its unit is ``rough``. The bound stays the proven one: values that
    calibration never showed keep their sign. Ends of a clip between two coarse units keep the bits. So do values whose
    coarse bound, units of errors included, takes more than is left of the ring.
    """
    name = step.inputs[0]
    if step.kind == "max_pool" and builder.root(name) in builder.layers:
        return builder.read(name), {}
    source = builder.natural[name]
    result = replace(source, positive=step.kind == "relu" or source.positive)
    fine = wanted(builder, step.output, builder.calibrated(step.output, result))
    if "rough" in step.attrs:
        rough = math.ceil(math.log2(source.gain / step.attrs["rough"]))
        fine = rough if fine is None else min(fine, rough)
    if fine is None or fine >= source.frac_bits:
        return source, {}
    unit = math.ldexp(source.gain, -fine)
    ends = [step.attrs[end] for end in ("low", "high")] if step.kind == "clip" else []
    if any(end is not None and math.fmod(end, unit) for end in ends):
        return source, {}
    bits = min(source.frac_bits - fine, builder.out.ring_bits - 2)
    coarse = replace(source, frac_bits=source.frac_bits - bits, bound=(source.bound >> bits) + 1)
    # differences of two values, or of a value and an end, take as much again
    far = max((coarse.bound if e is None else abs(round(e / coarse.unit)) for e in ends), default=0)
    compared_bits = reach_bits(coarse.bound + min(coarse.bound, far)) + (2 if step.kind == "max_pool" else 1)
    if compared_bits > builder.out.ring_bits - bits:
        return source, {}
    return coarse, {"bits": bits}

"""Truncations in front of comparisons: a ReLU, a clip or a pool whose result is read coarser compares fewer bits.

``relu(x / 2^s)`` is ``relu(x) / 2^s``, and the truncation sends as many bytes on either side, so the comparison saves
the s bits: of a value of 24 bits that layers read in 12, two fifths of its bytes.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from ...reference.two_party import with_errors
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


def compared(builder: Builder, step: Step) -> Version:
    """What a comparison reads: truncated in front of it where its result would be behind it.

    The bound stays the proven one: values that calibration never showed keep their sign. A ring that the values fill,
    where the truncation would be dear, leaves it behind the comparison. So do ends of a clip between two coarse units.
    """
    name = step.inputs[0]
    if step.kind == "max_pool" and builder.root(name) in builder.layers:
        return builder.read(name)
    source = builder.natural[name]
    result = replace(source, positive=step.kind == "relu" or source.positive)
    fine = wanted(builder, step.output, builder.calibrated(step.output, result))
    if fine is None or fine >= source.frac_bits or 2 * with_errors(source.bound) > builder.limit:
        return source
    unit = math.ldexp(source.gain, -fine)
    ends = (step.attrs[end] for end in ("low", "high")) if step.kind == "clip" else ()
    if any(end is not None and math.fmod(end, unit) for end in ends):
        return source
    return builder.truncated(name, source, source.frac_bits - fine, proven=True)

"""Seconds that a schedule takes on one core, from operation counts and unit costs measured on the machines of ``docs``."""

from __future__ import annotations

import math

from .schedule import Schedule, word_products

# seconds
WORD_PRODUCT_52 = 0.04e-9
WORD_PRODUCT_64 = 0.08e-9
CIPHER_PRODUCT_WORD = 1.2e-9
COMBINED_WORD = 0.5e-9
BUTTERFLY = 0.20e-9
SAMPLED_WORD = 2.6e-9
ENCODED_SLOT = 9e-9


def predicted_seconds(schedule: Schedule, images: int) -> float:
    """Both parties together on one core, for a block; ``images`` is not used but for what follows from it."""
    n = schedule.ring_degree
    transform = n * math.log2(n) / 2 * BUTTERFLY
    levels, special = len(schedule.prime_bits), len(schedule.special)
    widest = max(schedule.prime_bits)
    client = schedule.tensors[0]
    seconds = client.size * (client.level * (transform + 2 * n * SAMPLED_WORD) + n / 2 * ENCODED_SLOT)
    for stage in schedule.stages:
        out, source = schedule.tensors[stage.target], schedule.tensors[stage.sources[0]]
        words = n * out.level * out.parts
        if stage.kind == "linear" and stage.layer is not None and stage.weights is not None:
            l1 = float(abs(stage.weights.reshape(len(stage.weights), -1).astype(float)).sum(axis=1).max())
            unit = WORD_PRODUCT_52 if math.log2(l1 + 1) + widest < 51 else WORD_PRODUCT_64
            seconds += word_products(stage.layer) * words * unit
        elif stage.kind == "multiply":
            seconds += out.size * n * out.level * CIPHER_PRODUCT_WORD
        elif stage.kind == "combine":
            seconds += out.size * len(stage.sources) * words * COMBINED_WORD
        else:
            transforms = 2 * source.level * source.parts
            if stage.kind == "relinearise":
                transforms = source.level * (source.level + special) + 2 * (source.level + special)
            seconds += out.size * transforms * transform * 1.5
    result = schedule.tensors[schedule.output]
    return seconds + result.size * (levels * transform + n / 2 * ENCODED_SLOT * 2)

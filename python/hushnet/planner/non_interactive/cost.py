"""Seconds that a schedule takes on one core, from operation counts and unit costs of two kinds of machine."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from ..cost import instruction_set
from .primes import DIGIT_BITS
from .schedule import Schedule, word_products

# butterflies of a word that the conjugate-invariant ring folds
FOLD = 1.5
# relinearisation and rescaling beside their transforms
AROUND_TRANSFORMS = 1.5


@dataclass(frozen=True)
class Units:
    """Seconds of one thread.

    Attributes:
        word_product: one word of a ciphertext times a weight: sums below 2^52, and wider ones.
        digit_products: the same for words of two, three and four digits, where kernels multiply digits; None: they
            multiply words.
        cipher_product_word: one word of a product of ciphertexts.
        combined_word: one word of a sum of tensors.
        butterfly: one butterfly of a transform.
        sampled_word: one uniform word, at one party, with what encryption and bytes do to it.
        encoded_slot: one slot encoded.
    """

    word_product: tuple[float, float]
    digit_products: tuple[float, float, float] | None
    cipher_product_word: float
    combined_word: float
    butterfly: float
    sampled_word: float
    encoded_slot: float

    def product(self, widest: float, l1: float) -> float:
        """One product of a word below 2^``widest``, in a sum of weights that are ``l1`` together."""
        if self.digit_products is not None:
            return self.digit_products[max(2, math.ceil(widest / DIGIT_BITS - 0.01)) - 2]
        return self.word_product[math.log2(l1 + 1) + widest >= 51]


# Zen 5 with AVX-512 IFMA; Zen 3, whose AVX2 kernels multiply digits: from stage times of `cryptonets-square`, in which
# nothing is combined (that figure, and what a slot costs to encode, are in proportion)
WIDE = Units((0.04e-9, 0.08e-9), None, 1.2e-9, 0.5e-9, 0.20e-9, 2.6e-9, 9e-9)
NARROW = Units((0.0, 0.0), (0.075e-9, 0.15e-9, 0.225e-9), 2.1e-9, 1.0e-9, 0.75e-9, 8.8e-9, 15e-9)


def units() -> Units:
    """What this machine's instruction set is near to."""
    return NARROW if instruction_set() == "avx2" else WIDE


def predicted_seconds(schedule: Schedule) -> float:
    """Both parties together on one core, for a block."""
    n, unit = schedule.ring_degree, units()
    transform = n * (math.log2(n) / 2 + FOLD * schedule.scales.invariant) * unit.butterfly
    levels, special = len(schedule.prime_bits), len(schedule.special)
    widest = max(schedule.prime_bits)
    client = schedule.tensors[0]
    seconds = client.size * (
        client.level * (transform + 2 * n * unit.sampled_word) + schedule.slots * unit.encoded_slot
    )
    for stage in schedule.stages:
        out, source = schedule.tensors[stage.target], schedule.tensors[stage.sources[0]]
        words = n * out.level * out.parts
        if stage.kind == "linear" and stage.layer is not None and stage.weights is not None:
            l1 = float(abs(stage.weights.reshape(len(stage.weights), -1).astype(float)).sum(axis=1).max())
            seconds += word_products(stage.layer) * words * unit.product(widest, l1)
        elif stage.kind == "multiply":
            seconds += out.size * n * out.level * unit.cipher_product_word
        elif stage.kind == "combine":
            seconds += out.size * len(stage.sources) * words * unit.combined_word
        else:
            transforms = 2 * source.level * source.parts
            if stage.kind == "relinearise":
                transforms = source.level * (source.level + special) + 2 * (source.level + special)
            seconds += out.size * transforms * transform * AROUND_TRANSFORMS
    result = schedule.tensors[schedule.output]
    return seconds + result.size * (levels * transform + schedule.slots * unit.encoded_slot * 2)


def client_bytes(document: dict[str, Any], images: int) -> int:
    """The client's memory: values of the encrypted and decrypted tensors, and frames in flight."""
    up = sum(math.prod(t["shape"]) for t in document["tensors"] if t["kind"] == "real")
    return 8 * images * up * 2 + (64 << 20)

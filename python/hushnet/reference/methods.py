"""What a linear stage's method means for its ciphertexts.

Parameters, the norm they rest on, the fraction of results a unit off.

``cheetah``, ``rotation-free`` and ``convfhe`` pack one image in polynomials; ``batch`` has one feature of many images
in one; those of :data:`SLOTS` pack one image in slots and compute on shares modulo a prime, exactly.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from .. import _native

# the registry of the run time (`crates/runtime/src/two_party/methods`), which says what each is
METHODS = tuple(name for name, _ in _native.linear_methods())
# exact ones, whose shares go through a prime: one image in slots; parameters follow from geometry and the prime, not
# from weights
SLOTS = tuple(name for name, exact in _native.linear_methods() if exact)


@dataclass(frozen=True)
class Ciphertexts:
    """Parameters of a stage on shares.

    Attributes:
        modulus_bits: of requests; 0 for slots, where it depends on the layer.
        response_bits: of answers; 0 for slots.
        noise_bits: log2 of the noise before answers are rounded, exceeded with probability below 2^-41.
        unit_fraction: of results that are a unit off.
    """

    modulus_bits: int
    response_bits: int
    noise_bits: float
    unit_fraction: float


def ciphertexts(method: str, ring_degree: int, ring_bits: int, weight_l2: float) -> Ciphertexts:
    """Parameters of a method; ValueError when it has none for such noise and shares."""
    return Ciphertexts(*_native.linear_parameters(method, ring_degree, ring_bits, weight_l2))


def norm(method: str, geometry: dict[str, Any], ring_degree: int, weights: np.ndarray) -> float:
    """Euclidean norm of the weights that the noise of one answer rests on.

    All that meet in a polynomial, or those of one output; 1 for slots, whose parameters hold for all weights, so that
    nothing of them is told.
    """
    flat = np.ascontiguousarray(weights.reshape(-1).astype(np.int16))
    return _native.linear_norm(method, json.dumps(geometry), ring_degree, flat)


@lru_cache(maxsize=4096)
def _slot_row(geometry: str, method: str, plain_bits: int) -> str:
    """Asked once for all layers of a geometry, at all ring degrees of a plan: counting permutations takes a while."""
    return _native.slot_layer_cost(geometry, method, plain_bits)


def slot_cost(method: str, geometry: dict[str, Any], plain_bits: int) -> dict[str, Any]:
    """A slot-packed layer's row: operations, bytes, ciphertexts, ``weight_words`` and parameters, flat.

    ValueError when no parameters hold its noise.
    """
    row = json.loads(_slot_row(json.dumps(geometry), method, plain_bits))
    parameters = row["parameters"]
    return {
        **row["counts"],
        "ring_degree": parameters["ring_degree"],
        "modulus_bits": parameters["modulus_bits"],
        "primes": parameters["primes"],
        "special": int(parameters["special_bits"] > 0),
        "digits": -(-parameters["prime_bits"] // parameters["digit_bits"]) if parameters["digit_bits"] else 1,
        "plain_bits": plain_bits,
        "ciphers_up": row["ciphers_up"],
        "ciphers_down": row["ciphers_down"],
        "bytes_up": row["bytes_up"],
        "bytes_down": row["bytes_down"],
        "key_bytes": row["key_bytes"],
        "weight_bytes": row["weight_bytes"],
        "prepared_bytes": row["weight_bytes"],
        # in the unit that weights of other methods are counted in: two limbs
        "weight_polys": row["weight_bytes"] // (16 * parameters["ring_degree"]),
        "tiles": 1,
        "window_bytes": row["working_bytes"],
        # log2 of the norm of an answer's noise, and of the largest that its flood hides with 40 bits
        "noise_bits": row["noise_bits"],
        "noise_limit_bits": row["noise_limit_bits"],
    }


def slot_bits(reaches: list[int]) -> int:
    """Bits of the prime that all slot-packed stages of a plan share, from ``reach_bits`` of their results."""
    return _native.slot_plain(max(reaches))[0]

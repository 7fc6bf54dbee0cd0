"""What a linear stage's method means for its ciphertexts: parameters, the norm they rest on, the fraction of results a unit off.

``cheetah``, ``rotation-free`` and ``convfhe`` pack one image in polynomials; ``batch`` has one feature of many images in one; ``gala`` and ``gazelle``
pack one image in slots and compute on shares modulo a prime, exactly.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import _native

METHODS = ("cheetah", "rotation-free", "convfhe", "batch", "gala", "gazelle")
# one image in coefficients, at ring degrees of their own
COEFFICIENTS = ("rotation-free", "convfhe")
# one image in slots: parameters follow from geometry and the prime, not from weights
SLOTS = ("gala", "gazelle")
# results of such a ring keep within a quarter of the widest prime
WIDEST_SLOT_RING = 28
PRIME_BITS = 50


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
    if method in SLOTS:
        if ring_bits > WIDEST_SLOT_RING:
            raise ValueError(f"shares of {ring_bits} bits are wider than the {WIDEST_SLOT_RING} that method {method!r} takes; use fewer weight or activation bits")
        return Ciphertexts(0, 0, 0.0, 0.0)
    if method == "batch":
        return Ciphertexts(*_native.batch_share_parameters(ring_degree, ring_bits, weight_l2))
    if method in COEFFICIENTS:
        return Ciphertexts(*_native.coefficient_stage_parameters(method, ring_bits, weight_l2))
    return Ciphertexts(PRIME_BITS, *_native.packed_stage_parameters(ring_degree, ring_bits, weight_l2))


def norm(method: str, geometry: dict[str, Any], ring_degree: int, weights: np.ndarray) -> float:
    """Euclidean norm of the weights that the noise of one answer rests on: all that meet in a polynomial, or those of one output; 1 for slots, whose
    parameters hold for all weights, so that nothing of them is told."""
    if method in SLOTS:
        return 1.0
    if method == "batch":
        squares = weights.reshape(weights.shape[0], -1).astype(np.int64) ** 2
        return float(np.sqrt(squares.sum(axis=1).max(initial=0)))
    flat = np.ascontiguousarray(weights.reshape(-1).astype(np.int16))
    if method in COEFFICIENTS:
        return _native.coefficient_weight_l2(method, json.dumps(geometry), flat)
    return _native.packed_weight_l2(json.dumps(geometry), ring_degree, flat)


def slot_cost(method: str, geometry: dict[str, Any], plain_bits: int) -> dict[str, Any]:
    """A slot-packed layer's row: operations, bytes, ciphertexts, ``weight_words`` and parameters, flat; ValueError when no parameters hold its noise."""
    row = json.loads(_native.slot_layer_cost(json.dumps(geometry), method, plain_bits))
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

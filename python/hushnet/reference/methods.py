"""What a linear stage's method means for its ciphertexts: parameters, the norm they rest on, the fraction of results a unit off.

``cheetah``, ``rotation-free`` and ``convfhe`` pack one image in polynomials; ``batch`` has one feature of many images in one.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import _native

METHODS = ("cheetah", "rotation-free", "convfhe", "batch")
# one image in coefficients, at ring degrees of their own
COEFFICIENTS = ("rotation-free", "convfhe")
PRIME_BITS = 50


@dataclass(frozen=True)
class Ciphertexts:
    """Parameters of a stage on shares.

    Attributes:
        modulus_bits: of requests.
        response_bits: of answers.
        noise_bits: log2 of the noise before answers are rounded, exceeded with probability below 2^-41.
        unit_fraction: of results that are a unit off.
    """

    modulus_bits: int
    response_bits: int
    noise_bits: float
    unit_fraction: float


def ciphertexts(method: str, ring_degree: int, ring_bits: int, weight_l2: float) -> Ciphertexts:
    """Parameters of a method; ValueError when it has none for such noise and shares."""
    if method == "batch":
        return Ciphertexts(*_native.batch_share_parameters(ring_degree, ring_bits, weight_l2))
    if method in COEFFICIENTS:
        return Ciphertexts(*_native.coefficient_stage_parameters(method, ring_bits, weight_l2))
    return Ciphertexts(PRIME_BITS, *_native.packed_stage_parameters(ring_degree, ring_bits, weight_l2))


def norm(method: str, geometry: dict[str, Any], ring_degree: int, weights: np.ndarray) -> float:
    """Euclidean norm of the weights that the noise of one answer rests on: all that meet in a polynomial, or those of one output."""
    if method == "batch":
        squares = weights.reshape(weights.shape[0], -1).astype(np.int64) ** 2
        return float(np.sqrt(squares.sum(axis=1).max(initial=0)))
    flat = np.ascontiguousarray(weights.reshape(-1).astype(np.int16))
    if method in COEFFICIENTS:
        return _native.coefficient_weight_l2(method, json.dumps(geometry), flat)
    return _native.packed_weight_l2(json.dumps(geometry), ring_degree, flat)

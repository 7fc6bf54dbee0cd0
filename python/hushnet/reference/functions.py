"""The elementary functions of ``docs/functions.md`` on binary64 arrays, operation by operation.

Every executor evaluates the same additions, multiplications, divisions and comparisons in the same order, so that NumPy,
Rust and wasm agree bit for bit; ``np.exp`` and friends are therefore not used.
"""

from __future__ import annotations

import math

import numpy as np

Array = np.ndarray

LOG2E = 1.4426950408889634
LN2_HI = float.fromhex("0x1.62e42fee00000p-1")
LN2_LO = float.fromhex("0x1.a39ef35793c76p-33")
TWO_OVER_SQRT_PI = 1.1283791670955126
ONE_OVER_SQRT_PI = 0.5641895835477563
EXP_LIMIT = 708.0
_EXP_COEFFICIENTS = [1.0 / math.factorial(i) for i in range(14)]


def larger(a: Array, b: Array | float) -> Array:
    """``a > b ? a : b``."""
    return np.where(a > b, a, b)


def smaller(a: Array, b: Array | float) -> Array:
    """``a < b ? a : b``."""
    return np.where(a < b, a, b)


def exp(x: Array) -> Array:
    """``e^x`` for x clamped to [-708, 708]; relative error below 1e-14."""
    x = np.where(np.isnan(x), x, smaller(larger(x, -EXP_LIMIT), EXP_LIMIT))
    n = np.rint(x * LOG2E)
    r = (x - n * LN2_HI) - n * LN2_LO
    p = np.full_like(r, _EXP_COEFFICIENTS[13])
    for c in reversed(_EXP_COEFFICIENTS[:13]):
        p = p * r + c
    finite = np.isfinite(n)
    return np.where(finite, np.ldexp(p, np.where(finite, n, 0.0).astype(np.int32)), np.nan)


def sigmoid(x: Array) -> Array:
    """``1 / (1 + e^-x)``."""
    return 1.0 / (1.0 + exp(-x))


def tanh(x: Array) -> Array:
    """``2 sigmoid(2x) - 1``."""
    return 2.0 * sigmoid(2.0 * x) - 1.0


def _erf_series(z: Array) -> Array:
    twice_square = (2.0 * z) * z
    t = z
    s = z
    for n in range(1, 41):
        t = t * (twice_square / float(2 * n + 1))
        s = s + t
    return (s * TWO_OVER_SQRT_PI) * exp(-(z * z))


def _erf_fraction(z: Array) -> Array:
    f = np.zeros_like(z)
    for n in range(60, 0, -1):
        f = (n / 2) / (z + f)
    return 1.0 - (exp(-(z * z)) * ONE_OVER_SQRT_PI) / (z + f)


def erf(x: Array) -> Array:
    """The error function: a series below 2, a continued fraction below 6, then 1; odd."""
    x = np.asarray(x, dtype=np.float64)
    z = np.abs(x)
    out = np.ones_like(z)
    low = z < 2.0
    middle = (z >= 2.0) & (z < 6.0)
    out[low] = _erf_series(z[low])
    out[middle] = _erf_fraction(z[middle])
    return np.where(np.isnan(x), np.nan, np.copysign(out, x))


def silu(x: Array) -> Array:
    """``x sigmoid(x)``."""
    return x * sigmoid(x)


def gelu(x: Array) -> Array:
    """``x/2 (1 + erf(x / sqrt 2))``."""
    return (0.5 * x) * (1.0 + erf(x * 0.7071067811865476))


def gelu_tanh(x: Array) -> Array:
    """The tanh approximation of gelu."""
    return (0.5 * x) * (1.0 + tanh(0.7978845608028654 * (x + (0.044715 * x) * (x * x))))


def elu(x: Array, alpha: float) -> Array:
    """``x < 0 ? alpha (e^x - 1) : x``."""
    return np.where(x < 0.0, alpha * (exp(x) - 1.0), x)


def hard_sigmoid(x: Array, alpha: float, beta: float) -> Array:
    """``min(max(alpha x + beta, 0), 1)``."""
    return smaller(larger(alpha * x + beta, 0.0), 1.0)


def hard_swish(x: Array) -> Array:
    """``x min(max(x/6 + 1/2, 0), 1)``."""
    return x * hard_sigmoid(x, 0.16666666666666666, 0.5)

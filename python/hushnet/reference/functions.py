"""The elementary functions of ``docs/functions.md`` on binary64 arrays, operation by operation.

Every executor evaluates the same additions, multiplications, divisions and comparisons in the same order, so that
NumPy, Rust and wasm agree bit for bit; ``np.exp`` and friends are therefore not used.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import numpy as np

Array = np.ndarray

# elements at a time: what is computed of them stays in a core's cache
BLOCK = 1 << 13

LOG2E = 1.4426950408889634
LN2_HI = float.fromhex("0x1.62e42fee00000p-1")
LN2_LO = float.fromhex("0x1.a39ef35793c76p-33")
TWO_OVER_SQRT_PI = 1.1283791670955126
ONE_OVER_SQRT_PI = 0.5641895835477563
EXP_LIMIT = 708.0
_INVERSE_FACTORIALS = [1.0 / math.factorial(i) for i in range(20)]
_EXP_COEFFICIENTS = _INVERSE_FACTORIALS[:14]
SQRT_2 = 1.4142135623730951
TWO_OVER_PI = 0.6366197723675814
HALF_PI = 1.5707963267948966
# pi/2 in three parts, of which the first two have 33 bits
HALF_PI_PARTS = (
    float.fromhex("0x1.921fb54400000p+0"),
    float.fromhex("0x1.0b4611a600000p-34"),
    float.fromhex("0x1.3198a2e037073p-69"),
)


def _in_blocks(function: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """The same function of every element, of some thousand at a time."""

    @functools.wraps(function)
    def found(x: Array) -> Array:
        x = np.asarray(x, dtype=np.float64)
        if x.size <= BLOCK:
            return function(x)
        flat, out = x.reshape(-1), np.empty(x.size)
        for begin in range(0, x.size, BLOCK):
            out[begin : begin + BLOCK] = function(flat[begin : begin + BLOCK])
        return out.reshape(x.shape)

    return found


def larger(a: Array, b: Array | float) -> Array:
    """``a > b ? a : b``."""
    return np.where(a > b, a, b)


def smaller(a: Array, b: Array | float) -> Array:
    """``a < b ? a : b``."""
    return np.where(a < b, a, b)


@_in_blocks
def exp(x: Array) -> Array:
    """``e^x`` for x clamped to [-708, 708]; relative error below 1e-14."""
    x = np.minimum(np.maximum(x, -EXP_LIMIT), EXP_LIMIT)
    n = np.rint(x * LOG2E)
    r = (x - n * LN2_HI) - n * LN2_LO
    p = np.full_like(r, _EXP_COEFFICIENTS[13])
    for c in reversed(_EXP_COEFFICIENTS[:13]):
        p *= r
        p += c
    known = ~np.isnan(x)
    if known.all():
        return p * _power(n)
    return np.where(known, p * _power(np.where(known, n, 0.0)), np.nan)


def _power(n: Array) -> Array:
    """``2^n`` for whole n of normal numbers: a product with it is exact, as with ldexp."""
    return ((n.astype(np.int64) + 1023) << 52).view(np.float64)


@_in_blocks
def log(x: Array) -> Array:
    """The natural logarithm; minus infinity of zero, NaN of what is negative."""
    x = np.asarray(x, dtype=np.float64)
    m, e = np.frexp(np.where(x > 0, x, 1.0))
    # mantissas from 1, as the definition has them
    above = 2.0 * m > SQRT_2
    m, n = np.where(above, m, 2.0 * m), np.where(above, e, e - 1).astype(np.float64)
    s = (m - 1.0) / (m + 1.0)
    z = s * s
    p = np.full_like(z, 1.0 / 23.0)
    for k in range(10, -1, -1):
        p = p * z + 1.0 / (2 * k + 1)
    value = n * LN2_HI + ((2.0 * s) * p + n * LN2_LO)
    return np.where(x > 0, value, np.where(x == 0, -np.inf, np.nan))


def _quadrant(x: Array) -> tuple[Array, Array, Array]:
    """Sine and cosine of the remainder by multiples of pi/2, and the quadrant."""
    n = np.rint(x * TWO_OVER_PI)
    r = ((x - n * HALF_PI_PARTS[0]) - n * HALF_PI_PARTS[1]) - n * HALF_PI_PARTS[2]
    r = smaller(larger(r, -0.8), 0.8)
    z = r * r
    sine, cosine = np.full_like(z, _INVERSE_FACTORIALS[19]), np.full_like(z, _INVERSE_FACTORIALS[18])
    for k in range(8, -1, -1):
        sine = _INVERSE_FACTORIALS[2 * k + 1] - z * sine
        cosine = _INVERSE_FACTORIALS[2 * k] - z * cosine
    return r * sine, cosine, n - 4.0 * np.floor(0.25 * n)


@_in_blocks
def sin(x: Array) -> Array:
    """The sine of an angle in radians."""
    sine, cosine, q = _quadrant(np.asarray(x, dtype=np.float64))
    value = np.where((q == 0.0) | (q == 2.0), sine, cosine)
    return np.where(q >= 2.0, -value, value)


@_in_blocks
def cos(x: Array) -> Array:
    """The cosine of an angle in radians."""
    sine, cosine, q = _quadrant(np.asarray(x, dtype=np.float64))
    value = np.where((q == 0.0) | (q == 2.0), cosine, sine)
    return np.where((q == 1.0) | (q == 2.0), -value, value)


def _halved(w: Array) -> Array:
    return w / (1.0 + np.sqrt(1.0 + w * w))


@_in_blocks
def atan(x: Array) -> Array:
    """The arc tangent, in radians."""
    x = np.asarray(x, dtype=np.float64)
    z = np.abs(x)
    with np.errstate(divide="ignore"):
        w = _halved(_halved(np.where(z > 1.0, 1.0 / z, z)))
    y = w * w
    p = np.full_like(y, 1.0 / 25.0)
    for k in range(11, -1, -1):
        p = 1.0 / (2 * k + 1) - y * p
    small = 4.0 * (w * p)
    return np.copysign(np.where(z > 1.0, HALF_PI - small, small), x)


@_in_blocks
def sigmoid(x: Array) -> Array:
    """``1 / (1 + e^-x)``."""
    return 1.0 / (1.0 + exp(-x))


@_in_blocks
def tanh(x: Array) -> Array:
    """``2 sigmoid(2x) - 1``."""
    return 2.0 * sigmoid(2.0 * x) - 1.0


def _erf_series(z: Array) -> Array:
    twice_square = (2.0 * z) * z
    t = z.copy()
    s = z.copy()
    for n in range(1, 41):
        t *= twice_square / float(2 * n + 1)
        s += t
    return (s * TWO_OVER_SQRT_PI) * exp(-(z * z))


def _erf_fraction(z: Array) -> Array:
    f = np.zeros_like(z)
    for n in range(60, 0, -1):
        f = (n / 2) / (z + f)
    return 1.0 - (exp(-(z * z)) * ONE_OVER_SQRT_PI) / (z + f)


@_in_blocks
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


@_in_blocks
def silu(x: Array) -> Array:
    """``x sigmoid(x)``."""
    return x * sigmoid(x)


@_in_blocks
def gelu(x: Array) -> Array:
    """``x/2 (1 + erf(x / sqrt 2))``."""
    return (0.5 * x) * (1.0 + erf(x * 0.7071067811865476))


@_in_blocks
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

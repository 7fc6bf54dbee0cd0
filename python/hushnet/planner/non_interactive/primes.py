"""Primes and the security table: what bounds depth."""

from __future__ import annotations

import math
from functools import lru_cache

from ... import _native

RING_DEGREES = (2048, 4096, 8192, 16384, 32768)
MOST_BITS = 50
# Words are multiplied by weights in digits of so many bits where there is no wider product; a prime above 2^32 would
# take three of them.
DIGIT_BITS = 16
_WITNESSES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37)


def limit_bits(ring_degree: int) -> int:
    """Largest log2 of all primes together at 128 bits."""
    return _native.max_modulus_bits(ring_degree) or 0


def least_bits(order: int) -> int:
    """Narrowest primes worth asking for: some dozens of primes = 1 mod the order of the roots of unity exist nearby."""
    return int(math.log2(order)) + 6


def is_prime(n: int) -> bool:
    """Exact below 2^64 (Miller-Rabin with the first twelve primes)."""
    if n < 2 or any(n % p == 0 for p in _WITNESSES):
        return n in _WITNESSES
    odd, twos = n - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    for a in _WITNESSES:
        x = pow(a, odd, n)
        if x in (1, n - 1):
            continue
        for _ in range(twos - 1):
            x = x * x % n
            if x == n - 1:
                break
        else:
            return False
    return True


@lru_cache(maxsize=4096)
def _near(step: int, bits: int, rank: int) -> int:
    found = -1
    centre = 1 << bits
    for d in range(centre // (2 * step)):
        for p in (centre - d * step + 1, centre + (d + 1) * step + 1):
            if p < 1 << MOST_BITS and not (bits % DIGIT_BITS == 0 and p > centre) and is_prime(p):
                found += 1
                if found == rank:
                    return p
    return 0


def choose(order: int, bits: list[float]) -> list[int] | None:
    """Distinct primes = 1 mod ``order``, each nearest to its 2^bits; None when there are too few.

    Bits are rounded to whole ones. For multiples of :data:`DIGIT_BITS` the prime lies below 2^bits.
    """
    taken: set[int] = set()
    out = []
    for b in bits:
        rank = 0
        while (p := _near(order, round(b), rank)) in taken:
            rank += 1
        if p == 0:
            return None
        taken.add(p)
        out.append(p)
    return out

"""Our own CKKS as a backend of the channel-wise circuit (``programs/circuit.py``).

The same operations in the same order as on SEAL and OpenFHE, so that only the library differs. Not the product: that is
``layers::packed``, which does much less work.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from hushnet_bench import _native as measuring
from hushnet_bench.programs.circuit import Circuit, Counter

Array = np.ndarray


class Own(Counter):
    """All keys in one object.

    Level l of the circuit has l + 1 primes here, and scale S_(l-1) = S_l^2 / q_l as on SEAL.
    """

    def __init__(
        self,
        ring_degree: int,
        data_primes: Sequence[int],
        special_primes: Sequence[int],
        scale_bits: int,
        steps: Sequence[int],
        *,
        conjugation: bool = False,
    ) -> None:
        super().__init__(ring_degree // 2)
        self.ckks = measuring.Ckks(
            ring_degree, list(data_primes), list(special_primes), scale_bits, list(steps), None, conjugation
        )
        self.top = len(data_primes) - 1
        self.primes = self.ckks.primes
        self.scales = {self.top: 2.0**scale_bits}
        for level in range(self.top, 0, -1):
            self.scales[level - 1] = self.scales[level] ** 2 / self.primes[level]
        self.ones = np.ones(self.slots)

    def encode(self, values: Any, level: int, scale: float) -> Any:
        """A plaintext at a level of the circuit."""
        start = time.thread_time()
        vector = values if isinstance(values, np.ndarray) else float(values) * self.ones
        plain = self.ckks.encode(vector, float(np.abs(vector).max()) or 1.0, level + 1, scale)
        self.encode_seconds += time.thread_time() - start
        return plain

    def encrypt(self, values: Array) -> Any:
        self.count("encrypt")
        return self.ckks.encrypt(self.encode(values, self.top, self.scales[self.top]))

    def encrypt_complex(self, values: Array, *, secret: bool = False) -> Any:
        """Complex slots, with the public key or the secret one (then half of it is a seed)."""
        return self.ckks.encrypt(self.ckks.encode_complex(values, float(np.abs(values).max()) or 1.0), secret)

    def decrypt_complex(self, a: Any) -> Array:
        """Complex slots."""
        return self.ckks.decode_complex(self.ckks.decrypt(a))

    def decrypt(self, a: Any) -> Array:
        """Slots."""
        return self.ckks.decode(self.ckks.decrypt(a))

    def zero(self, level: int) -> Any:
        return self.ckks.encrypt(self.encode(0.0 * self.ones, level, self.scales[level]))

    def add(self, a: Any, b: Any) -> Any:
        self.count("add")
        return self.ckks.add(a, b)

    add_to = add

    def sub(self, a: Any, b: Any) -> Any:
        self.count("add")
        return self.ckks.sub(a, b)

    def negate(self, a: Any) -> Any:
        return self.ckks.sub(self.ckks.sub(a, a), a)

    def add_plain(self, a: Any, values: Array, level: int) -> Any:
        self.count("add_plain")
        return self.ckks.add_plain(a, self.encode(values, level, a.scale))

    def multiply_plain(self, a: Any, values: Any, level: int) -> Any:
        self.count("multiply_plain")
        return self.ckks.multiply_plain(
            a, self.encode(values, level, self.scales[level - 1] * self.primes[level] / a.scale)
        )

    def multiply(self, a: Any, b: Any) -> Any:
        self.count("multiply")
        self.count("relinearise")
        return self.ckks.relinearise(self.ckks.multiply(a, b))

    def square(self, a: Any) -> Any:
        self.count("square")
        self.count("relinearise")
        return self.ckks.relinearise(self.ckks.square(a))

    def rescale(self, a: Any) -> Any:
        self.count("rescale")
        return self.ckks.rescale(a)

    def lower(self, a: Any, level: int, wanted: int) -> Any:
        if level == wanted:
            return a
        self.count("lower")
        return self.rescale(self.multiply_plain(self.ckks.drop_to(a, wanted + 2), 1.0, wanted + 1))

    def rotate(self, a: Any, step: int) -> Any:
        step %= self.slots
        if step == 0:
            return a
        self.count("rotate")
        return self.ckks.rotate(a, step)

    def bounded(self, a: Any, bound: float) -> Any:
        return a.with_bound(min(a.bound, bound + a.error_bound))


def run(
    spec: tuple[dict[str, Any], dict[str, Array]],
    image: Array,
    primes: Sequence[int],
    *,
    ring_degree: int,
    scale_bits: int,
) -> tuple[Array, float, Circuit]:
    """The circuit on one image.

    Output, largest predicted error of the ciphertexts, and the circuit with times and counts.

    Args:
        spec: ``Network.spec()``.
        image: elements of the input tensor.
        primes: data primes, then one special prime; bits, or the primes themselves.
        ring_degree: N.
        scale_bits: log2 of the scale.
    """
    circuit = Circuit(*spec, ring_degree // 2)
    _, steps = circuit.plan()
    own = Own(ring_degree, primes[:-1], primes[-1:], scale_bits, steps)
    result = circuit.run(own, image)
    return circuit.read([own.decrypt(c) for c in result]), max(c.error_bound for c in result), circuit

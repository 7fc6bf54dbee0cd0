"""What the benchmarks measure in Rust. No part of the product: stand-ins of published protocols are insecure, and parties share a process."""

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

def slot_layer_counts(geometry_json: str, method_name: str, slots: int) -> str:
    """Operations of a slot-packed layer as JSON: ``formula`` and ``counted`` (``perm``, ``dec_perm``, ``hst_perm``, ``sc_mult``, ``add``),
    ``channels_per_cipher``, ``inputs``, ``outputs``, ``tiles``, ``keys``. Methods: naive, diagonal, extended (dense), siso,
    gazelle-input (convolutions), gazelle, gala."""

def slot_layer_measure(
    geometry_json: str,
    method_name: str,
    plain_bits: int = 20,
    repeats: int = 3,
    noise: bool = False,
    parameters_for: str | None = None,
    insecure_ring_degree: int | None = None,
) -> str:
    """Runs a slot-packed layer on random shares and weights, both parties on one thread; processor seconds by phase, bytes, counters and
    formula, ``correct``, and with ``noise`` measured noise beside its bounds, as JSON.

    Args:
        parameters_for: take the parameters that another method needs.
        insecure_ring_degree: that many slots, below 128 bits: to repeat published counts.
    """

def cheetah_layer_measure(geometry_json: str, ring_bits: int = 20, repeats: int = 3) -> str:
    """Runs a coefficient-packed layer on random shares and weights, both parties on one thread; processor seconds, bytes, and ``off``,
    the largest distance of summed shares from the result, as JSON."""

def bootstrap_measure(slots: int, runs: int = 1, insecure_ring_degree: int | None = None) -> str:
    """Bootstraps a random message (``first_seconds``) and ``runs`` more under fresh keys, both parties in one object; seconds (``runs``), the thread's processor seconds in all and by step, errors in bits beside the
    derived ones, levels left, bytes, key switches, as JSON.

    Args:
        insecure_ring_degree: the same steps in a small ring, below 128 bits.
    """

class CkksPlaintext:
    """An encoded vector of :class:`Ckks`."""

class CkksCiphertext:
    """A ciphertext of :class:`Ckks`."""

    level: int
    scale: float
    bound: float
    error_bound: float

    def with_bound(self, bound: float) -> CkksCiphertext:
        """The same with a tighter bound of the message, which the caller knows."""

class Ckks:
    """RNS-CKKS operation by operation with all keys in one object: for comparisons with other libraries, not for use.

    Primes are given by their bits or themselves; errors are ValueErrors.
    """

    primes: list[int]

    def __init__(
        self,
        ring_degree: int,
        data_primes: list[int],
        special_primes: list[int],
        scale_bits: int,
        rotations: list[int],
        digits: int | None = None,
        conjugation: bool = False,
    ) -> None: ...
    def encode(
        self, values: NDArray[Any], bound: float, level: int | None = None, scale: float | None = None
    ) -> CkksPlaintext: ...
    def decode(self, p: CkksPlaintext) -> NDArray[Any]: ...
    def encode_complex(
        self, values: NDArray[Any], bound: float, level: int | None = None, scale: float | None = None
    ) -> CkksPlaintext: ...
    def decode_complex(self, p: CkksPlaintext) -> NDArray[Any]: ...
    def encrypt(self, p: CkksPlaintext, symmetric: bool = False) -> CkksCiphertext: ...
    def decrypt(self, c: CkksCiphertext) -> CkksPlaintext: ...
    def add(self, a: CkksCiphertext, b: CkksCiphertext) -> CkksCiphertext: ...
    def sub(self, a: CkksCiphertext, b: CkksCiphertext) -> CkksCiphertext: ...
    def add_plain(self, a: CkksCiphertext, p: CkksPlaintext) -> CkksCiphertext: ...
    def multiply_plain(self, a: CkksCiphertext, p: CkksPlaintext) -> CkksCiphertext: ...
    def add_scalar(self, a: CkksCiphertext, value: float) -> CkksCiphertext: ...
    def multiply_scalar(self, a: CkksCiphertext, value: float, scale: float) -> CkksCiphertext: ...
    def multiply(self, a: CkksCiphertext, b: CkksCiphertext) -> CkksCiphertext: ...
    def square(self, a: CkksCiphertext) -> CkksCiphertext: ...
    def relinearise(self, a: CkksCiphertext) -> CkksCiphertext: ...
    def relinearise_rescale(self, a: CkksCiphertext) -> CkksCiphertext: ...
    def rescale(self, a: CkksCiphertext) -> CkksCiphertext: ...
    def drop_to(self, a: CkksCiphertext, level: int) -> CkksCiphertext: ...
    def rotate(self, a: CkksCiphertext, steps: int) -> CkksCiphertext: ...
    def rotate_many(self, a: CkksCiphertext, steps: list[int]) -> list[CkksCiphertext]: ...
    def conjugate(self, a: CkksCiphertext) -> CkksCiphertext: ...
    def hoisted_sum(self, a: CkksCiphertext, terms: list[tuple[int, NDArray[Any]]], scale: float) -> CkksCiphertext:
        """``sum_k w_k rot(a, s_k)`` for terms (s_k, w_k), weights encoded at ``scale``."""

    def rotate_sum_rescale(
        self, a: CkksCiphertext, terms: list[tuple[int, NDArray[Any]]], scale: float, bound: float
    ) -> CkksCiphertext:
        """``sum_k rot(w_k a, s_k)``, rescaled; slots of the result are within ``bound``."""

def measure_relu(
    address: str | None = None,
    announce: Callable[[int], Any] | None = None,
    *,
    values: int = 0,
    ring_bits: int = 64,
    drop_bits: int = 0,
    pool: tuple[int, int, int, int, int] | None = None,
    ot: Literal["silent-tiny", "silent-small", "silent-medium", "silent-large"] = "silent-small",
    repeat: int = 3,
    garbled: bool = False,
    prime: int | None = None,
    kept_bits: int | None = None,
    apart: bool = False,
    digits: int = 0,
) -> str:
    """One party of a measurement of ReLU (``garbled``: by a garbled circuit; ``prime``: on shares modulo it, garbled only;
    ``kept_bits``: divided by 2^drop_bits, which leaves so many bits, in one step or in two, ``apart``; signs in a
    tree, or by a carry through ``digits`` of so many bits), or of max-pool (``pool``: channels, height, width, kernel, stride), between two processes: JSON. Without ``address`` party 0, which tells its port to ``announce`` and checks the joint result."""

def measure_layer(
    address: str | None = None,
    announce: Callable[[int], Any] | None = None,
    *,
    geometry: str,
    ring_bits: int,
    repeat: int = 3,
) -> str:
    """One party of a measurement of a linear layer (JSON of its geometry as in a plan) on shares between two processes: JSON.
    Party 0 is the server and checks the joint result, party 1 the client and counts the bytes."""

def rotation_free_layer(
    geometry_json: str,
    methods: list[str],
    ring_bits: int = 26,
    runs: int = 3,
    ring_degree: int = 8192,
    most: int = 32,
    insecure_parameters: bool = False,
) -> str:
    """One linear layer by several methods, on one thread, as JSON by method: ``seconds``, ``operations``, bytes. Methods: compact, flooded,
    cheetah, convfhe; with ``insecure_parameters`` published, cheetah-published, convfhe-published, at ``ring_degree`` with at most ``most``
    weight polynomials, used in turn. ValueError for other methods and layers that do not fit."""

def rotation_free_attack(setups: int, profile: str = "published") -> list[tuple[int, float]]:
    """The averaging attack on k = 1, 4, 16, ... repeated set-ups. ``published``: ``(k, error)``, root mean square over 64 weights in
    [-1, 1]; ``compact``, ``flooded``: ``(k, correlation)`` with the weights, in deviations of what no relation gives."""

def measure_smooth(
    address: str | None = None,
    announce: Callable[[int], Any] | None = None,
    *,
    function: str,
    values: int,
    interval: Sequence[float] = (-8.0, 8.0),
    error: float = 2**-10,
    repeat: int = 3,
) -> str:
    """One party of a measurement of a function of one variable on shares (37 bits, 12 of them fractional), of ``product`` or ``square`` (16 bits): JSON.
    Party 0 has no ``address``, and calls ``announce(port)``."""

def relu_bytes(values: int, ring_bits: int) -> int:
    """Bytes of exact ReLU on so many shares in one new session, its set-up included."""

class PackedRun:
    """A polynomial network for one image under CKKS with rotations (docs/packed.md), with both parties."""

    def __init__(self, spec_json: str, tensors: dict[str, NDArray[np.float64]], options_json: str = "{}") -> None:
        """As ``hushnet._native.PackedCircuit``."""

    def report(self) -> str:
        """Parameters, operations, key bytes, memory, predicted errors and seconds, as JSON."""

    def run(self, image: NDArray[np.float64], threads: int = 1) -> tuple[NDArray[np.float64], str]:
        """Client and server in this process, each with its own keys: ``(output, trace JSON)``. The first call makes keys and encodes
        the weights. The trace has ``seconds`` (``setup``, ``encrypt``, ``evaluate``, ``decrypt``), ``cpu_seconds`` (for one thread), ``steps``,
        ``counts``, ``peak_memory_bytes``, ``error`` (against binary64) and ``out_of_range`` (values outside of a polynomial's range).
        """

def ngraph_primitives(ring_degree: int, levels: int, trials: int = 200) -> str:
    """Seconds of the primitives of nGraph-HE2's tables, as JSON: ``native``, ``portable``, ``layer``, ``widths``, ``encodings``."""

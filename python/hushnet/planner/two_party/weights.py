"""Integer weights of the layers, at the bits that each layer's ciphertexts and ring leave."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ...graph import Linear
from ..feedback import Moments

Array = np.ndarray

# layers with heavy weights get fewer bits, down to so many, rather than a narrower ring or coarse activations
LEAST_WEIGHT_BITS = 6
# of weights: activations add at most as many, and plans hold 64
MOST_FRACTION = 40
# zero bits at the end that integers keep: opened values lose as many bits of a layer's result
KEPT_ZEROS = 6
# bits that layers of one weight an output have beyond the others', and the most: no sum of them needs room in the ring
DIAGONAL_BITS, MOST_WEIGHT_BITS = 4, 16


@dataclass(frozen=True)
class Quantised:
    """Integer weights of a layer that reads a version with some gain.

    ``weight * 2^-frac_bits`` is near ``gain * float weights``. ``sides`` are the sums of what is positive and of what
    is negative in each row, both without sign. ``shift`` is what error feedback adds to the bias, a real number for
    every output. ``noise`` is the root mean square of what rounding does to a result, None where there are no moments
    of what the layer reads.
    """

    weight: Array
    frac_bits: int
    sides: Array
    shift: Array | float = 0.0
    noise: float | None = None

    def reach(self, positive: bool) -> Array:
        """How far the sums of each row go above and below zero, for every unit that inputs go from zero.

        Inputs that are never negative meet one sign of the weights on either side; others meet all of them on both.
        """
        return self.sides if positive else np.broadcast_to(self.sides.sum(axis=0), self.sides.shape)


@dataclass(frozen=True)
class Rounded:
    """Weights of a layer, times a scale, as integers.

    ``zeros`` are zero bits at the end of all of them. ``sides``, ``shift`` and ``noise`` are those of
    :class:`Quantised` in units of the integers.
    """

    integers: Array
    zeros: int
    sides: Array
    shift: Array | float
    noise: float | None


# by layer, scale and bits
Kept = dict[tuple[str, float, int], Rounded]


class Weights:
    """Quantised weights by layer and gain, kept between attempts.

    ``fewer`` holds layers with fewer bits than asked for. With ``moments`` of what layers read, errors of rounding are
    fed back; without, weights are rounded to nearest. ``rounded`` are kept for all who plan one graph.
    """

    def __init__(self, bits: int, moments: Moments | None = None, rounded: Kept | None = None) -> None:
        self.bits, self.moments = bits, moments
        self.rounded: Kept = {} if rounded is None else rounded
        self.kept: dict[tuple[str, float, int], Quantised] = {}
        self.biases: dict[str, float] = {}
        self.fewer: dict[str, int] = {}

    def fork(self) -> Weights:
        """The same, with decisions of its own on fewer bits."""
        other = Weights(self.bits, self.moments, self.rounded)
        other.kept, other.biases, other.fewer = self.kept, self.biases, dict(self.fewer)
        return other

    def finer(self, layer: Linear, gain: float, fine: int, bits: int) -> bool:
        """Whether a layer's weights are finer than inputs of ``bits`` bits, ``fine`` of them behind the point.

        Finer are the ones whose roundings do less to the layer's results. A truncation rounds up or down at random: the
        variance of its errors is a sixth of a unit's square. Without moments of what the layer reads, finer are the
        ones of more bits.
        """
        weights = self(layer, gain)
        if weights.noise is None:
            return self.of(layer) > bits
        norm = math.sqrt(float(np.square(layer.weight, dtype=np.float64).sum()) / len(layer.weight))
        return weights.noise <= math.ldexp(gain, -fine) * norm / math.sqrt(6)

    def of(self, layer: Linear) -> int:
        """Bits of a layer's weights."""
        if layer.output in self.fewer:
            return self.fewer[layer.output]
        alone = layer.weight.size == layer.weight.shape[0]
        return min(self.bits + DIAGONAL_BITS, MOST_WEIGHT_BITS) if alone else self.bits

    def bias(self, layer: Linear) -> float:
        """The largest absolute value of a layer's bias."""
        if layer.output not in self.biases:
            self.biases[layer.output] = float(np.abs(layer.bias).max(initial=0.0))
        return self.biases[layer.output]

    def lower(self, layer: Linear) -> None:
        """A bit less for a layer."""
        self.fewer[layer.output] = self.of(layer) - 1

    def __call__(self, layer: Linear, gain: float) -> Quantised:
        """Symmetric, the finest power of two that the bits allow."""
        bits = self.of(layer)
        key = (layer.output, gain, bits)
        if key not in self.kept:
            limit = 2 ** (bits - 1) - 1
            top = float(np.abs(layer.weight).max(initial=0.0)) * gain
            fine = 0
            if top > 0:
                fine = min(math.floor(math.log2(limit / top)), MOST_FRACTION)
                while fine < MOST_FRACTION and round(math.ldexp(top, fine + 1)) <= limit:
                    fine += 1
                while round(math.ldexp(top, fine)) > limit:
                    fine -= 1
            self.kept[key] = self._quantised(layer, gain, fine, bits)
        return self.kept[key]

    def _quantised(self, layer: Linear, gain: float, fine: int, bits: int) -> Quantised:
        # gains that are powers of two have the same integers
        scale = math.ldexp(gain, fine)
        key = (layer.output, scale, bits)
        if key not in self.rounded:
            self.rounded[key] = self._rounded(layer, scale, 2 ** (bits - 1) - 1)
        made = self.rounded[key]
        shift = np.ldexp(made.shift, -fine) / gain
        noise = None if made.noise is None else math.ldexp(made.noise, -fine) / gain
        # zeros at the end of all of them say nothing, and cost the sums as many bits
        idle = min(max(made.zeros - KEPT_ZEROS, 0), max(fine, 0))
        integers, sides = made.integers, made.sides
        if idle:
            integers, sides = _narrow(integers >> idle), sides >> idle
        return Quantised(integers, fine - idle, sides, shift, noise)

    def _rounded(self, layer: Linear, scale: float, limit: int) -> Rounded:
        scaled = np.asarray(layer.weight, dtype=np.float64) * scale
        fed = None if self.moments is None else self.moments.rounded(layer, scaled, limit)
        values, shift, noise = (np.rint(scaled), 0.0, None) if fed is None else fed
        integers = _narrow(values.astype(np.int16))
        rows = integers.reshape(integers.shape[0], -1)
        sides = np.stack([sign * np.where(sign * rows > 0, rows, 0).sum(axis=1, dtype=np.int64) for sign in (1, -1)])
        return Rounded(integers, _zeros(integers), sides, shift, noise)


def _narrow(integers: Array) -> Array:
    """The same as int8 where these hold them."""
    return integers.astype(np.int8) if np.abs(integers).max(initial=0) <= np.iinfo(np.int8).max else integers


def _zeros(integers: Array) -> int:
    """Zero bits at the end of all integers; 0 where all are zero."""
    joined = int(np.bitwise_or.reduce(integers, axis=None))
    return (joined & -joined).bit_length() - 1 if joined else 0

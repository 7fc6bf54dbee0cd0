"""Seeded images for networks without a data set: the same bytes on every machine."""

from __future__ import annotations

import zlib

import numpy as np

from hushnet.errors import DataError

_CELLS = 4


def words(count: int, seed: int, label: str) -> np.ndarray:
    """``count`` uniform 64-bit words of PCG64, a stream of its own for every ``(seed, label)``.

    Stable across NumPy versions.
    """
    if seed < 0:
        raise DataError(f"seed is {seed}: choose 0 or more")
    return np.random.PCG64([seed, zlib.crc32(label.encode())]).random_raw(count)


def uniform_bytes(count: int, seed: int, label: str) -> np.ndarray:
    """``count`` uniform bytes of the same streams."""
    return words(-(-count // 8), seed, label).astype("<u8").view(np.uint8)[:count]


def synthetic(shape: tuple[int, ...], n: int, seed: int) -> np.ndarray:
    """``n`` inputs of a shape, float32 in [0, 1], multiples of 1/1024.

    An image ``[c, h, w]`` is three parts a coarse pattern (4x4 cells of uniform brightness, of each channel) and one
    part uniform noise of every pixel, so that images differ in what deep layers see. Other shapes are uniform noise.

    Args:
        shape: of one input, without the batch axis.
        n: number of inputs.
        seed: 0 or more; different seeds give independent inputs of one distribution.

    Raises:
        DataError: a negative number or size.
    """
    if n < 0 or any(s < 0 for s in shape):
        raise DataError(f"{n} inputs of shape {shape}: sizes are 0 or more")
    count = n * int(np.prod(shape, dtype=np.int64))
    noise = uniform_bytes(count, seed, f"noise {shape}").reshape(n, *shape).astype(np.float32)
    if len(shape) != 3:
        return noise * np.float32(4 / 1024)
    channels, height, width = shape
    cells = uniform_bytes(n * channels * _CELLS * _CELLS, seed, f"cells {shape}").reshape(n, channels, _CELLS, _CELLS)
    rows, columns = np.arange(height) * _CELLS // max(height, 1), np.arange(width) * _CELLS // max(width, 1)
    coarse = cells[:, :, rows][:, :, :, columns].astype(np.float32)
    return (coarse * np.float32(3) + noise) * np.float32(1 / 1024)

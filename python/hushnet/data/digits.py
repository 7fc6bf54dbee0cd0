"""Handwritten digits (8x8 scans that come with the package), enlarged to the shape of MNIST.

``digits.csv.gz`` is the test set of E. Alpaydin and C. Kaynak, "Optical Recognition of Handwritten Digits" (UCI Machine
Learning Repository, 1998, CC BY 4.0, https://doi.org/10.24432/C50P49), unchanged, as scikit-learn brings it.
"""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np

from hushnet.data.synthetic import words
from hushnet.errors import DataError

HELD_OUT = 360
_LEVELS = 16.0


def digits(
    size: int = 28, *, held_out: int = HELD_OUT, seed: int = 0
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The 1,797 digits as ``size`` x ``size`` images, split at random (by ``seed``) into training and held-out ones.

    Returns:
        ``train_x, train_y, test_x, test_y``: images float32 ``[n, 1, size, size]`` in [0, 1], labels int64 ``[n]``.

    Raises:
        DataError: ``held_out`` leaves one side empty.
    """
    rows = _rows()
    images, labels = rows[:, :-1].reshape(-1, 8, 8) / _LEVELS, rows[:, -1].astype(np.int64)
    if not 0 < held_out < len(labels):
        raise DataError(f"held_out is {held_out}: choose 1 to {len(labels) - 1}")
    x = enlarge(images, size).astype(np.float32)[:, None]
    order = np.argsort(words(len(labels), seed, "digits"), kind="stable")
    train, test = order[held_out:], order[:held_out]
    return x[train], labels[train], x[test], labels[test]


def _rows() -> np.ndarray:
    """64 pixels from 0 to 16 and the label of every digit."""
    with gzip.open(Path(__file__).with_name("digits.csv.gz"), "rt") as file:
        return np.loadtxt(file, delimiter=",", ndmin=2)


def enlarge(images: np.ndarray, size: int) -> np.ndarray:
    """Bilinear interpolation of square images ``[n, s, s]`` to ``[n, size, size]``.

    Output pixel i has its centre at ``u = (i + 1/2) s / size - 1/2`` of the input, clamped to [0, s - 1], and along
    each axis the value ``(1 - f) v[floor(u)] + f v[floor(u) + 1]`` with ``f = u - floor(u)``: the range of values is
    kept.

    Raises:
        DataError: images that are not ``[n, s, s]``, or a size below 1.
    """
    if images.ndim != 3 or images.shape[1] != images.shape[2] or images.shape[1] < 1:
        raise DataError(f"images of shape {images.shape}: give square ones, [n, s, s]")
    if size < 1:
        raise DataError(f"size is {size}: choose 1 or more")
    side = images.shape[1]
    matrix = np.zeros((size, side))
    for i in range(size):
        u = min(max((i + 0.5) * side / size - 0.5, 0.0), side - 1.0)
        low = int(u)
        matrix[i, low] += 1 - (u - low)
        matrix[i, min(low + 1, side - 1)] += u - low
    return matrix @ images @ matrix.T

"""Loaders on files made here, whole and damaged in every way; the digits; synthetic images."""

from __future__ import annotations

import gzip
import importlib
import struct
import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hushnet import data
from hushnet.data import DataError

CODES = {0x08: np.uint8, 0x09: np.int8, 0x0B: np.int16, 0x0C: np.int32, 0x0D: np.float32, 0x0E: np.float64}


def idx(array: np.ndarray, code: int) -> bytes:
    return (
        bytes([0, 0, code, array.ndim])
        + struct.pack(f">{array.ndim}I", *array.shape)
        + array.astype(array.dtype.newbyteorder(">")).tobytes()
    )


@pytest.mark.parametrize("code", sorted(CODES))
@pytest.mark.parametrize("shape", [(7,), (3, 5), (4, 28, 28), (0, 28, 28), (2, 1, 3, 2)])
@pytest.mark.parametrize("compressed", [False, True])
def test_idx_round_trip(tmp_path: Path, code: int, shape: tuple[int, ...], compressed: bool) -> None:
    array = np.random.default_rng(code).integers(0, 100, shape).astype(CODES[code])
    path = tmp_path / "x"
    path.write_bytes(gzip.compress(idx(array, code)) if compressed else idx(array, code))
    got = data.load_idx(path)
    assert got.dtype == CODES[code] and got.shape == shape and np.array_equal(got, array)


GOOD = idx(np.arange(24, dtype=np.uint8).reshape(2, 3, 4), 8)
DAMAGED = {
    "empty": (b"", "ends within the magic"),
    "cut magic": (GOOD[:3], "ends within the magic"),
    "cut sizes": (GOOD[:10], "ends within the sizes"),
    "cut data": (GOOD[:-1], "announces 24 bytes of data and holds 23"),
    "left over": (GOOD + b"\0", "holds more than the 24 bytes"),
    "not idx": (b"\x89PNG" + GOOD, "not an IDX file"),
    "unknown type": (b"\0\0\x0a" + GOOD[3:], "not an IDX file"),
    "no axes": (b"\0\0\x08\0", "0 axes"),
    "many axes": (b"\0\0\x08\xff" + bytes(4 * 255), "255 axes"),
    "huge": (b"\0\0\x0e\x03" + b"\xff" * 12, "more than the limit"),
    "large": (
        b"\0\0\x08\x01" + struct.pack(">I", 3 << 30) + b"12345",
        "announces 3221225472 bytes of data and holds 5",
    ),
    "cut gzip": (gzip.compress(GOOD)[:-12], "cannot be decompressed"),
    "flipped gzip": (gzip.compress(GOOD)[:-6] + b"\1\2\3\4\5\6", "cannot be decompressed"),
    "gzip header only": (b"\x1f\x8b\x08", "cannot be decompressed"),
}


@pytest.mark.parametrize("case", sorted(DAMAGED))
def test_damaged_idx_files_are_refused_without_allocating(tmp_path: Path, case: str) -> None:
    body, message = DAMAGED[case]
    path = tmp_path / "bad"
    path.write_bytes(body)
    tracemalloc.start()
    with pytest.raises(DataError, match=message):
        data.load_idx(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 << 20


def test_a_gzip_bomb_stays_small(tmp_path: Path) -> None:
    path = tmp_path / "bomb.gz"
    path.write_bytes(gzip.compress(GOOD + bytes(64 << 20)))
    tracemalloc.start()
    with pytest.raises(DataError, match="holds more than"):
        data.load_idx(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 << 20


def test_missing_files_and_limits(tmp_path: Path) -> None:
    for load in (data.load_idx, data.load_cifar10):
        with pytest.raises(DataError, match="cannot be read"):
            load(tmp_path / "none")
    with pytest.raises(DataError, match="cannot be read"):
        data.load_idx(tmp_path)
    path = tmp_path / "x"
    path.write_bytes(GOOD)
    assert data.load_idx(path, max_bytes=24).size == 24
    with pytest.raises(DataError, match="raise max_bytes"):
        data.load_idx(path, max_bytes=23)


def cifar(n: int, seed: int) -> tuple[np.ndarray, np.ndarray, bytes]:
    rng = np.random.default_rng(seed)
    images, labels = rng.integers(0, 256, (n, 3, 32, 32), dtype=np.uint8), rng.integers(0, 10, n)
    return images, labels, b"".join(bytes([label]) + image.tobytes() for label, image in zip(labels, images))


def test_cifar10_file_and_folder(tmp_path: Path) -> None:
    parts = [cifar(3, seed) for seed in range(6)]
    for number, (_, _, body) in enumerate(parts[:5], 1):
        (tmp_path / f"data_batch_{number}.bin").write_bytes(body)
    with pytest.raises(DataError, match=r"test_batch.bin: cannot be read"):
        data.load_cifar10(tmp_path, test=True)
    (tmp_path / "test_batch.bin").write_bytes(gzip.compress(parts[5][2]))
    x, y = data.load_cifar10(tmp_path)
    assert np.array_equal(x, np.concatenate([p[0] for p in parts[:5]])) and np.array_equal(
        y, np.concatenate([p[1] for p in parts[:5]])
    )
    x, y = data.load_cifar10(tmp_path, test=True)
    assert np.array_equal(x, parts[5][0]) and np.array_equal(y, parts[5][1]) and y.dtype == np.int64
    assert np.array_equal(data.load_cifar10(tmp_path / "data_batch_2.bin")[0], parts[1][0])


@pytest.mark.parametrize(
    ("body", "message"),
    [(b"", "0 bytes"), (cifar(2, 0)[2][:-1], "6145 bytes"), (b"\x0a" + bytes(3072), "label 10 in record 0")],
)
def test_damaged_cifar10_files_are_refused(tmp_path: Path, body: bytes, message: str) -> None:
    path = tmp_path / "bad.bin"
    path.write_bytes(body)
    with pytest.raises(DataError, match=message):
        data.load_cifar10(path)


def test_cifar10_limit(tmp_path: Path) -> None:
    path = tmp_path / "x.bin"
    path.write_bytes(cifar(2, 0)[2])
    assert len(data.load_cifar10(path, max_bytes=6146)[1]) == 2
    with pytest.raises(DataError, match="raise max_bytes"):
        data.load_cifar10(path, max_bytes=6145)


def test_as_images() -> None:
    x = data.as_images(np.array([[[0, 255], [51, 102]]], np.uint8))
    assert x.dtype == np.float32 and x.shape == (1, 1, 2, 2)
    np.testing.assert_allclose(x.ravel(), [0, 1, 0.2, 0.4], rtol=1e-6)
    assert data.as_images(np.zeros((2, 3, 4, 5), np.uint8)).shape == (2, 3, 4, 5)
    for wrong in (np.zeros((2, 2, 2), np.float32), np.zeros(4, np.uint8)):
        with pytest.raises(DataError, match="uint8"):
            data.as_images(wrong)


def test_digits() -> None:
    train_x, train_y, test_x, test_y = data.digits()
    assert train_x.shape == (1437, 1, 28, 28) and test_x.shape == (360, 1, 28, 28)
    assert train_x.dtype == test_x.dtype == np.float32 and train_y.dtype == test_y.dtype == np.int64
    assert train_x.min() == 0 and train_x.max() == 1
    assert (
        set(test_y) == set(range(10))
        and len(np.unique(np.concatenate([train_x, test_x]).reshape(1797, -1), axis=0)) == 1797
    )
    again, other = data.digits(), data.digits(seed=1)
    assert np.array_equal(again[2], test_x) and not np.array_equal(other[3], test_y)
    assert data.digits(size=8, held_out=300)[2].shape == (300, 1, 8, 8)
    with pytest.raises(DataError, match="choose 1 to 1796"):
        data.digits(held_out=1797)


def test_enlarge_is_bilinear() -> None:
    x = np.random.default_rng(0).random((3, 8, 8))
    np.testing.assert_allclose(data.enlarge(x, 8), x)
    ramp = np.tile(np.arange(8.0), (1, 8, 1))
    centres = np.clip((np.arange(28) + 0.5) * 8 / 28 - 0.5, 0, 7)
    np.testing.assert_allclose(data.enlarge(ramp, 28)[0], np.tile(centres, (28, 1)))
    np.testing.assert_allclose(data.enlarge(np.ones((1, 3, 3)), 17), 1)
    # a point between four pixels, by hand: rows 0 and 1 at f = 1/2, columns 0 and 1 at f = 0 (clamped) and 1/2
    np.testing.assert_allclose(
        data.enlarge(np.array([[[0.0, 4.0], [8.0, 20.0]]]), 3)[0], [[0, 2, 4], [4, 8, 12], [8, 14, 20]]
    )
    for images, size in ((np.zeros((2, 8, 7)), 28), (np.zeros((8, 8)), 28), (np.zeros((1, 8, 8)), 0)):
        with pytest.raises(DataError):
            data.enlarge(images, size)


@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 5, 7), (10,), (3, 96, 96)])
def test_synthetic(shape: tuple[int, ...]) -> None:
    x = data.synthetic(shape, 5, seed=1)
    assert x.dtype == np.float32 and x.shape == (5, *shape) and x.min() >= 0 and x.max() < 1
    assert np.array_equal(x, data.synthetic(shape, 5, seed=1)) and not np.array_equal(
        x, data.synthetic(shape, 5, seed=2)
    )
    assert np.array_equal(x * 1024, np.rint(x * 1024)) and len(np.unique(x.reshape(5, -1), axis=0)) == 5
    assert data.synthetic(shape, 0, seed=1).shape == (0, *shape)


def test_synthetic_is_pinned_and_checked() -> None:
    assert (data.synthetic((2, 2, 2), 1, seed=0).ravel() * 1024).astype(int).tolist() == [
        850,
        808,
        671,
        453,
        645,
        895,
        230,
        753,
    ]
    with pytest.raises(DataError, match="0 or more"):
        data.synthetic((3,), -1, seed=0)
    with pytest.raises(DataError, match="seed is -1"):
        data.synthetic((3,), 1, seed=-1)


def test_digits_are_scikit_learns_and_read_without_it() -> None:
    from sklearn.datasets import load_digits

    bunch, rows = load_digits(), importlib.import_module("hushnet.data.digits")._rows()
    assert np.array_equal(rows[:, :-1], bunch.data) and np.array_equal(rows[:, -1], bunch.target)
    program = "import sys; from hushnet import data; data.digits(); sys.exit('sklearn' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0

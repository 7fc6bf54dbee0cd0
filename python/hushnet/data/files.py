"""Readers for the files in which MNIST and CIFAR-10 are published.

Sizes are checked against the header (or the record length) before anything of that size is allocated; a compressed file
is inflated in pieces and never beyond what its header announces.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np

from hushnet.errors import DataError

PathLike = str | Path

MAX_BYTES = 4 << 30
_PIECE = 1 << 20
_IDX_TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
_IDX_MAX_AXES = 8
_CIFAR_PIXELS = 3 * 32 * 32
_CIFAR_RECORD = 1 + _CIFAR_PIXELS


def load_idx(path: PathLike, *, max_bytes: int = MAX_BYTES) -> np.ndarray:
    """Reads an IDX file (MNIST's format), compressed with gzip or not.

    The format: two zero bytes, a type code, the number of axes d (1 to 8 here), d big-endian 32-bit sizes, then the
    elements in row-major order, big-endian.

    Args:
        path: for example ``train-images-idx3-ubyte.gz`` (uint8 ``[60000, 28, 28]``) or ``train-labels-idx1-ubyte``.
        max_bytes: refuse more data than this.

    Returns:
        The array in native byte order; see :func:`as_images` for what a network takes.

    Raises:
        DataError: no such file, not an IDX file, sizes beyond ``max_bytes``, data missing or left over.
    """
    path = Path(path)
    with _open(path) as stream:
        magic = _read(stream, 4, path, "the magic number")
        if magic[:2] != b"\0\0" or magic[2] not in _IDX_TYPES:
            raise DataError(f"{path}: not an IDX file (it begins with {magic.hex()}): give MNIST's original files")
        if not 1 <= magic[3] <= _IDX_MAX_AXES:
            raise DataError(
                f"{path}: {magic[3]} axes, 1 to {_IDX_MAX_AXES} are read: the file is damaged, fetch it again"
            )
        dtype = np.dtype(_IDX_TYPES[magic[2]])
        header = _read(stream, 4 * magic[3], path, "the sizes")
        shape = tuple(int.from_bytes(header[i : i + 4], "big") for i in range(0, len(header), 4))
        size = dtype.itemsize
        for n in shape:
            size *= n
        body = _read_exactly(stream, size, path, max_bytes)
    return np.frombuffer(body, dtype).reshape(shape).astype(dtype.newbyteorder("="))


def load_cifar10(path: PathLike, *, test: bool = False, max_bytes: int = MAX_BYTES) -> tuple[np.ndarray, np.ndarray]:
    """Reads CIFAR-10's binary version.

    A file is a row of records of 3,073 bytes: a label 0 to 9, then 32x32 pixels of red, of green, of blue, row-major.

    Args:
        path: one ``.bin`` file (gzip allowed), or the folder of the published archive.
        test: of a folder, ``test_batch.bin`` and not ``data_batch_1.bin`` to ``data_batch_5.bin``.
        max_bytes: refuse more data than this, in one file.

    Returns:
        Images, uint8 ``[n, 3, 32, 32]``, and labels, int64 ``[n]``; see :func:`as_images` for what a network takes.

    Raises:
        DataError: no such file, a length that is no multiple of a record, a label beyond 9, more than ``max_bytes``.
    """
    path = Path(path)
    if path.is_dir():
        names = ["test_batch.bin"] if test else [f"data_batch_{i}.bin" for i in range(1, 6)]
        parts = [load_cifar10(path / name, max_bytes=max_bytes) for name in names]
        return np.concatenate([x for x, _ in parts]), np.concatenate([y for _, y in parts])
    with _open(path) as stream:
        body = _read_all(stream, path, max_bytes)
    if not body or len(body) % _CIFAR_RECORD:
        raise DataError(
            f"{path}: {len(body)} bytes are not a positive number of {_CIFAR_RECORD}-byte records: "
            "give the binary version of CIFAR-10 (not the Python one), and fetch it again if it was cut"
        )
    records = np.frombuffer(body, np.uint8).reshape(-1, _CIFAR_RECORD)
    labels = records[:, 0].astype(np.int64)
    wrong = np.flatnonzero(labels > 9)
    if wrong.size:
        raise DataError(
            f"{path}: label {labels[wrong[0]]} in record {wrong[0]}, labels are 0 to 9: not a CIFAR-10 file"
        )
    return records[:, 1:].reshape(-1, 3, 32, 32).copy(), labels


def as_images(pixels: np.ndarray) -> np.ndarray:
    """What a network takes: float32 ``[n, c, h, w]`` in [0, 1] from uint8 ``[n, h, w]`` or ``[n, c, h, w]``.

    Raises:
        DataError: another type or number of axes.
    """
    if pixels.dtype != np.uint8 or pixels.ndim not in (3, 4):
        raise DataError(f"{pixels.dtype} pixels with {pixels.ndim} axes: give uint8 [n, h, w] or [n, c, h, w]")
    if pixels.ndim == 3:
        pixels = pixels[:, None]
    return pixels.astype(np.float32) / np.float32(255)


@contextmanager
def _open(path: Path) -> Iterator[BinaryIO]:
    try:
        file = path.open("rb")
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from error
    with file:
        compressed = file.read(2) == b"\x1f\x8b"
        file.seek(0)
        yield cast(BinaryIO, gzip.GzipFile(fileobj=file)) if compressed else file


def _read(stream: BinaryIO, count: int, path: Path, what: str) -> bytes:
    """Exactly ``count`` bytes, or an error that says what is missing."""
    data = _piece(stream, count, path)
    if len(data) < count:
        raise DataError(f"{path}: ends within {what}: the file is cut, fetch it again")
    return data


def _read_exactly(stream: BinaryIO, count: int, path: Path, limit: int) -> bytes:
    """The rest of the stream, which must be ``count`` bytes; memory grows with what is there, not with ``count``."""
    if count > limit:
        raise DataError(
            f"{path}: announces {count} bytes, more than the limit of {limit}: the header "
            "is damaged, or raise max_bytes"
        )
    body = _gather(stream, count + 1, path)
    if len(body) < count:
        raise DataError(
            f"{path}: announces {count} bytes of data and holds {len(body)}: the file is cut, fetch it again"
        )
    if len(body) > count:
        raise DataError(
            f"{path}: holds more than the {count} bytes it announces: the header is damaged, fetch it again"
        )
    return bytes(body)


def _read_all(stream: BinaryIO, path: Path, limit: int) -> bytes:
    body = _gather(stream, limit + 1, path)
    if len(body) > limit:
        raise DataError(f"{path}: holds more than the limit of {limit} bytes: raise max_bytes")
    return bytes(body)


def _gather(stream: BinaryIO, most: int, path: Path) -> bytearray:
    body = bytearray()
    while len(body) < most:
        piece = _piece(stream, min(_PIECE, most - len(body)), path)
        if not piece:
            break
        body += piece
    return body


def _piece(stream: BinaryIO, count: int, path: Path) -> bytes:
    try:
        return stream.read(count)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(
            f"{path}: cannot be decompressed or read ({error}): the file is damaged, fetch it again"
        ) from error

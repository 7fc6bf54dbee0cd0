"""Answers of a data set in a folder, batch by batch, so that work that was cut off goes on where it was."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from hushnet.errors import InputError

MANIFEST, LOCK = "manifest.json", "lock"


class Results:
    """The folder of one data set: a manifest that says which, and one file for each batch that has its answer."""

    def __init__(self, folder: Path, inputs: Mapping[str, np.ndarray], size: int, target: str) -> None:
        """Makes the folder, or goes on with what is there; one process at a time.

        Args:
            inputs: arrays ``[rows, ...]`` by name; names are those of one data set in all calls.
            size: rows of a batch.
            target: what answers, for the message when it is another.

        Raises:
            InputError: the folder holds answers of something else, or another process writes to it.
        """
        self.folder, self.size = folder, size
        self.rows = len(next(iter(inputs.values())))
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._lock = _locked(folder / LOCK)
        said = {"inputs": digest(inputs), "rows": self.rows, "size": size, "target": target}
        path = folder / MANIFEST
        if not path.exists():
            _write(path, json.dumps(said, indent=1).encode())
        try:
            found = json.loads(path.read_text())
        except (OSError, ValueError):
            found = None
        if found != said:
            self.close()
            other = [k for k in said if not isinstance(found, dict) or found.get(k) != said[k]]
            raise InputError(
                f"{folder} holds answers of other {' and '.join(other)}. Give each data set a folder of its own, or "
                "remove this one."
            )

    @property
    def batches(self) -> int:
        """How many there are in all."""
        return -(-self.rows // self.size)

    def slice(self, number: int) -> slice:
        """Rows of a batch."""
        return slice(number * self.size, min(self.rows, (number + 1) * self.size))

    def missing(self) -> list[int]:
        """Batches without an answer, in order."""
        return [n for n in range(self.batches) if not self._path(n).exists()]

    def put(self, number: int, outputs: Mapping[str, np.ndarray]) -> None:
        """Keeps the answer of a batch; after a crash it is there whole or not at all.

        Raises:
            InputError: the batch has an answer already.
        """
        path = self._path(number)
        if path.exists():
            raise InputError(f"{path} is there already: batch {number} would be done twice.")
        with (scratch := path.with_suffix(".part")).open("wb") as file:
            os.chmod(scratch, 0o600)
            np.savez(file, **outputs)  # type: ignore[arg-type]
            file.flush()
            os.fsync(file.fileno())
        os.replace(scratch, path)

    def get(self) -> dict[str, np.ndarray]:
        """All answers, in the order of the rows.

        Raises:
            InputError: some are missing.
        """
        if missing := self.missing():
            raise InputError(f"{self.folder}: {len(missing)} of {self.batches} batches have no answer yet.")
        parts: list[dict[str, np.ndarray]] = []
        for number in range(self.batches):
            with np.load(self._path(number)) as file:
                parts.append({name: file[name] for name in file.files})
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]} if parts else {}

    def close(self) -> None:
        """Another process may go on."""
        with suppress(OSError):
            os.close(self._lock)

    def _path(self, number: int) -> Path:
        return self.folder / f"batch-{number:08}.npz"


def digest(inputs: Mapping[str, np.ndarray]) -> str:
    """SHA-256 of names, shapes, types and values."""
    found = hashlib.sha256()
    for name in sorted(inputs):
        array = np.ascontiguousarray(inputs[name])
        found.update(json.dumps([name, array.dtype.str, array.shape]).encode())
        found.update(array.tobytes())
    return found.hexdigest()


def _locked(path: Path) -> int:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        import fcntl
    except ImportError:  # a system without such locks
        return descriptor
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise InputError(f"Another process writes answers to {path.parent}. Wait for it, or end it.") from None
    return descriptor


def _write(path: Path, data: bytes) -> None:
    scratch = path.with_suffix(".part")
    with scratch.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(scratch, path)


def told(inputs: Any) -> dict[str, np.ndarray]:
    """Inputs as arrays by name; an array alone has no name.

    Raises:
        InputError: there are none, or they have different numbers of rows.
    """
    arrays = inputs if isinstance(inputs, Mapping) else {"": inputs}
    out = {str(name): np.asarray(value) for name, value in arrays.items()}
    rows = {len(value) if value.ndim else 0 for value in out.values()}
    if len(rows) != 1 or 0 in rows:
        raise InputError("A data set has arrays with rows, as many in each. Give an array, or arrays by name.")
    return out

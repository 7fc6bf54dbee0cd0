"""What a folder of wheels holds: names, sizes, contents, the machine of each extension, the source archive."""

from __future__ import annotations

import re
import struct
import tarfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from tests.gates import wheel

ROOT = Path(__file__).resolve().parents[2]
# Most bytes of a wheel, and of the source archive.
LIMIT = 12_000_000
# ELF machines by the architecture that ends a platform tag.
MACHINES = {"x86_64": 62, "aarch64": 183}
# Oldest C library that a wheel may ask for, by its kind.
OLDEST = {"manylinux": (2, 17), "musllinux": (1, 2)}

_NAME = re.compile(r"hushnet-(?P<version>[^-]+)-cp310-abi3-(?P<platform>[^-]+)\.whl")
_PLATFORM = re.compile(r"(?P<kind>manylinux|musllinux)_(?P<major>\d+)_(?P<minor>\d+)_(?P<machine>\w+)")


@dataclass(frozen=True)
class Platform:
    """The first tag of a wheel's platforms: manylinux_2_17_x86_64 and its kin."""

    kind: str
    library: tuple[int, int]
    machine: str


def platform(name: str) -> Platform | None:
    """The platform that a wheel's name states; nothing where it is no abi3 wheel of Hushnet for Linux."""
    found = _NAME.fullmatch(name)
    tags = found["platform"].split(".") if found else []
    first = next((m for m in map(_PLATFORM.fullmatch, tags) if m), None)
    if first is None:
        return None
    return Platform(first["kind"], (int(first["major"]), int(first["minor"])), first["machine"])


def machine(binary: bytes) -> int | None:
    """The machine of a 64-bit little-endian ELF file."""
    if binary[:6] != b"\x7fELF\x02\x01" or len(binary) < 20:
        return None
    return int(struct.unpack_from("<H", binary, 18)[0])


def problems(path: Path, root: Path = ROOT) -> list[str]:
    """What is wrong with one wheel."""
    of = platform(path.name)
    if of is None:
        return [f"{path.name}: no tag of an abi3 wheel of Hushnet for Linux, such as cp310-abi3-manylinux_2_17_x86_64"]
    out = [f"{path.name}: {path.stat().st_size:,} bytes, at most {LIMIT:,}"] if path.stat().st_size > LIMIT else []
    if of.library != OLDEST[of.kind]:
        out.append(f"{path.name}: needs {of.kind} {of.library}, must run on {OLDEST[of.kind]}")
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
        for name in (n for n in names if n.endswith(".so")):
            found = machine(archive.read(name))
            if found is None or found != MACHINES.get(of.machine):
                out.append(f"{path.name}: {name} is for ELF machine {found}, the tag says {of.machine}")
        package = root / "python/hushnet"
        wanted = (f for f in package.rglob("*.py*") if f.suffix in (".py", ".pyi") and "__pycache__" not in f.parts)
        absent = sorted(
            str(f.relative_to(package.parent)) for f in wanted if str(f.relative_to(root / "python")) not in names
        )
    out += [f"{path.name}: {name} is not in it" for name in absent]
    lacking = sorted(name for name in wheel.PAGE if name not in names)
    out += [f"{path.name}: {name} is not in it (make web)" for name in lacking]
    return out + wheel.contents(root, path)


def source_problems(path: Path) -> list[str]:
    """What is wrong with the source archive."""
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    needed = (
        "Cargo.lock",
        "Cargo.toml",
        "pyproject.toml",
        "PKG-INFO",
        "crates/python/Cargo.toml",
        "python/hushnet/__init__.py",
    )
    out = [f"{path.name}: {name} is not in it" for name in needed if name not in names]
    out += [f"{path.name}: {name} is a built file" for name in sorted(names) if name.endswith((".so", ".pyd", ".whl"))]
    if path.stat().st_size > LIMIT:
        out.append(f"{path.name}: {path.stat().st_size:,} bytes, at most {LIMIT:,}")
    return out

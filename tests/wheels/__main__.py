"""``python -m tests.wheels FOLDER [--aarch64 ROOT] [--json]``: what a folder of built wheels is worth.

Sizes, tags and contents are read. The wheel of this machine is installed into a clean environment of every Python from
3.10 to 3.13 that is found, with no compiler on PATH, and runs `hushnet demo`. With ``--aarch64`` the wheel for arm64
runs all trust models under qemu-aarch64; ROOT comes from ``tests/wheels/arm64_root.sh ROOT``. Status 1 where something
fails.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
from pathlib import Path
from typing import Any

from tests.wheels import files, install


def of_machine(wheels: list[Path], kind: str, machine: str) -> Path | None:
    """The wheel of one platform."""
    for path in wheels:
        found = files.platform(path.name)
        if found and (found.kind, found.machine) == (kind, machine):
            return path
    return None


def installed(wheel: Path) -> tuple[dict[str, Any], list[str]]:
    """The demo on every Python of this machine, and what failed."""
    found = install.pythons()
    names = [".".join(map(str, v)) for v in install.VERSIONS]
    out, wrong = {}, [f"Python {n} is not on this machine" for n in names if n not in found]
    for name, python in found.items():
        try:
            out[name] = install.demo(python, wheel)
        except RuntimeError as error:
            wrong.append(f"Python {name}: {error}")
            continue
        if out[name]["seconds"] > install.LIMIT:
            wrong.append(
                f"Python {name}: {out[name]['seconds']} s from install to the demo's end, at most {install.LIMIT}"
            )
        if not out[name]["equal_to_plaintext_fixed_point"]:
            wrong.append(f"Python {name}: the demo's answers are not the planned ones")
    return out, wrong


def main(arguments: list[str]) -> int:
    """Checks, prints, and returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.wheels")
    parser.add_argument("folder", type=Path, help="what `make wheels` wrote: target/wheels")
    parser.add_argument("--aarch64", type=Path, metavar="ROOT", help="a root file system for arm64 with Python")
    parser.add_argument("--no-install", action="store_true", help="read the files only")
    parser.add_argument("--json", action="store_true", help="figures as JSON")
    given = parser.parse_args(arguments)
    wheels, archives = sorted(given.folder.glob("*.whl")), sorted(given.folder.glob("*.tar.gz"))
    wrong = [p for path in wheels for p in files.problems(path)] + [
        p for path in archives for p in files.source_problems(path)
    ]
    if not wheels:
        wrong.append(f"{given.folder} has no wheel: make wheels")
    figures: dict[str, Any] = {"bytes": {p.name: p.stat().st_size for p in [*wheels, *archives]}}
    here = of_machine(wheels, "manylinux", platform.machine())
    if here and not given.no_install:
        figures["demo"], failed = installed(here)
        wrong += failed
    if given.aarch64:
        arm = of_machine(wheels, "manylinux", "aarch64")
        if arm is None:
            wrong.append(f"{given.folder} has no manylinux wheel for aarch64")
        else:
            figures["aarch64"] = install.emulated(given.aarch64, arm)
            wrong += [] if figures["aarch64"]["equal"] else ["aarch64: kernel paths give different answers"]
    figures["problems"] = wrong
    if given.json:
        sys.stdout.write(json.dumps(figures, indent=2) + "\n")
    else:
        lines = [f"{name}: {size / 1e6:.1f} MB" for name, size in figures["bytes"].items()]
        lines += [
            f"Python {name}: {f['seconds']} s ({f['install_seconds']} s to install, {f['demo_seconds']} s of demo)"
            for name, f in figures.get("demo", {}).items()
        ]
        lines += [
            f"aarch64 under qemu, {name} path: " + ", ".join(f"{trust} {s} s" for trust, s in f["seconds"].items())
            for name, f in figures.get("aarch64", {}).get("paths", {}).items()
        ]
        sys.stdout.write("\n".join([*lines, *wrong]) + "\n")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

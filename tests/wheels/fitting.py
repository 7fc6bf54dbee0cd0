"""Prints the wheel that `make demo` may use instead of a build: this Python installs it, and no source is newer.

``HUSHNET_WHEEL`` names one, whatever its age. Otherwise it is the newest in the folder that is named first, unless a
source is newer. Status 0 and nothing printed: build. Runs with any Python that has pip.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path


def tags() -> set[str]:
    """What this Python installs, as names of wheels say it; nothing where it has no pip."""
    try:
        from pip._vendor.packaging.tags import sys_tags
    except ImportError:
        return set()
    return {str(tag) for tag in sys_tags()}


def fits(wheel: Path, installed: set[str]) -> bool:
    """Whether one of a wheel's tags is among those that are installed."""
    parts = wheel.name.removesuffix(".whl").split("-")
    if wheel.suffix != ".whl" or len(parts) < 5:
        return False
    pythons, abis, platforms = (part.split(".") for part in parts[-3:])
    return any(f"{p}-{a}-{m}" in installed for p in pythons for a in abis for m in platforms)


def chosen(folder: Path, sources: list[Path], named: str, installed: set[str]) -> Path | None:
    """The wheel to use.

    Raises:
        SystemExit: the one that is named is not there, or for another machine or Python.
    """
    if named:
        wheel = Path(named)
        if not wheel.is_file():
            raise SystemExit(f"HUSHNET_WHEEL names {wheel}, which is not there")
        if not fits(wheel, installed):
            raise SystemExit(
                f"HUSHNET_WHEEL names {wheel}, which this Python ({sys.version.split()[0]}) cannot install"
            )
        return wheel
    found = [w for w in folder.glob("hushnet-*.whl") if fits(w, installed)]
    changed = max((s.stat().st_mtime for s in sources if s.is_file()), default=0.0)
    newest = max(found, key=lambda w: w.stat().st_mtime, default=None)
    return newest if newest and newest.stat().st_mtime >= changed else None


def main(arguments: list[str]) -> None:
    """Prints the path, or nothing."""
    sources = [
        p
        for name in arguments[1:]
        for p in ([Path(name)] if Path(name).is_file() else Path(name).rglob("*.[rpt]*"))
        # what Python compiles is no source
        if "__pycache__" not in p.parts
    ]
    wheel = chosen(Path(arguments[0]), sources, os.environ.get("HUSHNET_WHEEL", ""), tags())
    if wheel:
        sys.stdout.write(f"{wheel.resolve()}\n")


if __name__ == "__main__":
    main(sys.argv[1:])

"""What the wheel needs at run time is installed here and carries a permissive licence.

``python -m tests.gates.licences``.

The list is not typed: it is pyproject's dependencies, with those of the extra `demo`, those of the benchmarks' package,
and all that they need in turn. pip-licenses reads what a package's metadata says; a package that it does not list has
failed, because it lists only what is installed and says nothing of the rest.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

EXTRAS = ("demo",)
# Projects of this repository: the product, and its benchmarks.
PROJECTS = ("pyproject.toml", "bench/pyproject.toml")
# Parts of a licence's name, as classifiers and SPDX expressions have them.
PERMISSIVE = ("MIT", "BSD", "Apache", "PSF", "Python Software Foundation", "ISC", "Zlib", "CC0")


def required(root: Path) -> tuple[set[str], list[str]]:
    """Names of all packages that are needed, and what is wrong with them: absent ones."""
    projects = [tomllib.loads((root / path).read_text())["project"] for path in PROJECTS]
    listed = [r for project in projects for r in project["dependencies"]]
    for extra in EXTRAS:
        listed += projects[0]["optional-dependencies"][extra]
    # Our own packages are no dependencies of others.
    own = {canonicalize_name(project["name"]) for project in projects}
    names: set[str] = set()
    problems = []
    waiting = [Requirement(r) for r in listed]
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        if name in names | own or (
            requirement.marker and not any(requirement.marker.evaluate({"extra": e}) for e in ("", *requirement.extras))
        ):
            continue
        names.add(name)
        try:
            needs = metadata.requires(requirement.name) or []
        except metadata.PackageNotFoundError:
            problems.append(
                f"{name}: pyproject.toml needs this package, and it is not installed, so its "
                "licence is unknown; install it"
            )
            continue
        waiting += [
            r
            for r in map(Requirement, needs)
            if not r.marker or any(r.marker.evaluate({"extra": e}) for e in ("", *requirement.extras))
        ]
    return names, problems


def judge(names: set[str], rows: list[dict[str, Any]]) -> list[str]:
    """What is wrong with pip-licenses' rows for these packages: missing ones, and licences that are not permissive."""
    found = {canonicalize_name(row["Name"]): row["License"] for row in rows}
    problems = [f"{name}: pip-licenses says nothing of this package" for name in sorted(names - set(found))]
    for name in sorted(names & set(found)):
        # All of these hold together; of alternatives, one is enough.
        for part in re.split(r";| AND ", found[name]):
            if not any(allowed in choice for choice in part.split(" OR ") for allowed in PERMISSIVE):
                problems.append(f"{name}: licence '{part.strip()}' is not among {', '.join(PERMISSIVE)}")
    return problems


def main(root: Path) -> int:
    """Prints what does not hold; exit status 1 when something does."""
    names, problems = required(root)
    command = [sys.executable, "-m", "piplicenses", "--format=json", "--packages", *sorted(names)]
    problems += judge(names, json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
    print("\n".join(problems) or f"licences: {len(names)} packages are permissive: {', '.join(sorted(names))}")
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main(Path(__file__).resolve().parents[2]))

"""What the wheel needs at run time is installed here and carries a permissive licence.

``python -m tests.gates.licences``.

The list is not typed: it is pyproject's dependencies, with those of the extra `demo`, those of the benchmarks' package,
and all that they need in turn. pip-licenses reads what a package's metadata says; a package that it does not list has
failed, because it lists only what is installed and says nothing of the rest.

The extras `otel` and `ray` are not installed here: pip is asked what it would install, and what that says of itself.
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
# Extras that are not installed for the tests.
OTHERS = ("otel", "ray")
# Projects of this repository: the product, and its benchmarks.
PROJECTS = ("pyproject.toml", "bench/pyproject.toml")
# Parts of a licence's name, as classifiers and SPDX expressions have them.
PERMISSIVE = ("MIT", "BSD", "Apache", "PSF", "Python Software Foundation", "ISC", "Zlib", "CC0")
# Exceptions, by name and licence, with the reasons: packages of the extras alone; we neither change nor hand them on.
EXCEPTIONS = {("certifi", "MPL-2.0"): "the certificates of authorities, as a file"}


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


def resolved(root: Path) -> list[dict[str, Any]]:
    """Rows as pip-licenses has them, of all packages that pip would install for the extras that are not here."""
    extras = tomllib.loads((root / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    listed = [requirement for extra in OTHERS for requirement in extras[extra]]
    command = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--dry-run", "--quiet"]
    command += ["--ignore-installed", "--report", "-", *listed]
    report = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return [stated(package["metadata"]) for package in report["install"]]


def stated(package: dict[str, Any]) -> dict[str, Any]:
    """Name and licence of a package, from its metadata: an expression, else a text of one line, else classifiers."""
    licence = package.get("license_expression") or package.get("license") or ""
    if not licence or "\n" in licence:
        of = (c.rpartition(" :: ")[2] for c in package.get("classifier", []) if c.startswith("License :: "))
        licence = "; ".join(of) or "UNKNOWN"
    return {"Name": canonicalize_name(package["name"]), "License": licence}


def judge(names: set[str], rows: list[dict[str, Any]]) -> list[str]:
    """What is wrong with pip-licenses' rows for these packages: missing ones, and licences that are not permissive."""
    found = {canonicalize_name(row["Name"]): row["License"] for row in rows}
    problems = [f"{name}: pip-licenses says nothing of this package" for name in sorted(names - set(found))]
    for name in sorted(names & set(found)):
        if (name, found[name]) in EXCEPTIONS:
            continue
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
    more = resolved(root)
    problems += judge({row["Name"] for row in more}, more)
    names |= {row["Name"] for row in more}
    print("\n".join(problems) or f"licences: {len(names)} packages are permissive: {', '.join(sorted(names))}")
    for (name, licence), reason in EXCEPTIONS.items():
        print(f"licences: an exception, {name} ({licence}): {reason}")
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main(Path(__file__).resolve().parents[2]))

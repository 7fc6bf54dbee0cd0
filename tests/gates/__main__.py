"""Runs all gates on this tree; exit status 1 when something does not hold."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.gates import descriptions, documents, fuzzing, imports, modules, secrets, truths, wheel

GATES = {
    "crates and modules": modules,
    "Python imports": imports,
    "secrets": secrets,
    "documents": documents,
    "descriptions": descriptions,
    "second truths": truths,
    "wheel": wheel,
    "items of fuzz builds": fuzzing,
}


def main(root: Path) -> int:
    found = [f"{name}: {problem}" for name, gate in GATES.items() for problem in gate.problems(root)]
    print("\n".join(found) or f"gates: {', '.join(GATES)} hold")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main(Path(__file__).resolve().parents[2]))

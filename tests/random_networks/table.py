"""What a trust model may refuse between layers, by the table of ``docs/models.md``."""

from __future__ import annotations

from functools import cache
from pathlib import Path

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "models.md"
HEADER = "| operators | in a plan | two-party | non-interactive |"


def rows(text: str) -> list[list[str]]:
    """The cells of the table of operators."""
    lines = text[text.index(HEADER) :].splitlines()[2:]
    found = []
    for line in lines:
        if not line.startswith("|"):
            break
        found.append([cell.strip() for cell in line.strip("|").split("|")])
    return found


@cache
def refused_by(trust: str) -> frozenset[str]:
    """Names in a plan of what is not taken everywhere; client-aided plans take everything."""
    if trust == "client-aided":
        return frozenset()
    column = {"two-party": 2, "non-interactive": 3}[trust]
    table = rows(DOCUMENT.read_text(encoding="utf-8"))
    return frozenset(name.strip() for row in table if row[column] != "yes" for name in row[1].split(","))

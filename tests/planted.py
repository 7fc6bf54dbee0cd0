"""What tests of gates plant violations with: changes of a copy of this tree (fixture ``tree``)."""

from __future__ import annotations

from pathlib import Path


def append(tree: Path, name: str, text: str) -> None:
    path = tree / name
    path.write_text(path.read_text() + text)


def replace(tree: Path, name: str, old: str, new: str) -> None:
    path = tree / name
    text = path.read_text()
    assert text.count(old) >= 1, f"{name} has no {old!r}"
    path.write_text(text.replace(old, new, 1))


def only(problems: list[str], *parts: str) -> None:
    """There is one problem, and it says all of this."""
    assert len(problems) == 1, problems
    for part in parts:
        assert part in problems[0], (part, problems)

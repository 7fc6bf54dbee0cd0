"""Public functions, types and constants of the crates are described in more than four words.

The compiler asks for a comment on every public item (``missing_docs``); this gate asks that it says something. A field
or a variant whose name says all may stay short, so there is a ceiling for their number, which only falls.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.gates import rust

CRATES = ("ring", "matmul", "rlwe", "mpc", "layers", "runtime", "published")
# A description of so many words or fewer is short.
WORDS = 4
# Fields and variants that are short now, and how far their number may fall below that before the ceiling must follow.
CEILING = 690
SLACK = 25
# Folders whose functions and types are not described yet.
UNFINISHED = ("crates/mpc/src/ot/",)
_ITEM = re.compile(
    r"^[ \t]*pub (?:(?:const |unsafe |async |extern )*fn|struct|enum|trait|union|type|static(?: mut)?|const) (\w+)",
    re.M,
)
_FIELD = re.compile(r"^[ \t]*pub (\w+):", re.M)
_TRAIT = re.compile(r"\bpub trait (\w+)")
_METHOD = re.compile(r"^[ \t]*(?:(?:const|unsafe|async) )*fn (\w+)", re.M)
_ENUM = re.compile(r"\bpub enum (\w+)[^{;]*\{")
_VARIANT = re.compile(r"^[ \t]*([A-Z]\w*)\s*(?=[,({=]|$)", re.M)
_INNER = re.compile(r"^[ \t]*(\w+):", re.M)


@dataclass(frozen=True)
class Item:
    """A public item: its place and name, whether it is a field or a variant (``part``), the words of its comment."""

    place: str
    name: str
    part: bool
    words: int


def items(root: Path) -> list[Item]:
    """The public items of all crates that have a comment."""
    return [item for crate in CRATES for source in rust.sources(root, crate) for item in _of(root, source)]


def problems(root: Path) -> list[str]:
    """Short descriptions of functions, types and constants, and more short fields and variants than the ceiling."""
    short = [item for item in items(root) if item.words <= WORDS]
    found = [
        f"{item.place}: {item.name} is described in {item.words} words; "
        "say what it is, its shape, units and range, and what it refuses"
        for item in short
        if not item.part and not item.place.startswith(UNFINISHED)
    ]
    parts = [item for item in short if item.part]
    if len(parts) > CEILING:
        found.append(
            f"{len(parts)} public fields and variants are described in {WORDS} words or fewer, "
            f"and there may be {CEILING} "
            f"(tests/gates/descriptions.py); describe the new ones, such as {parts[-1].name} at {parts[-1].place}"
        )
    if len(parts) < CEILING - SLACK:
        found.append(
            f"{len(parts)} public fields and variants are described in {WORDS} words or fewer: lower CEILING in "
            f"tests/gates/descriptions.py from {CEILING}"
        )
    return found


def _of(root: Path, source: rust.Source) -> Iterator[Item]:
    lines = (root / source.path).read_text().split("\n")
    spans = [(m, False) for m in _ITEM.finditer(source.code)]
    spans += [(m, True) for m in _FIELD.finditer(source.code)]
    for trait in _TRAIT.finditer(source.code):
        end = rust.item_end(source.code, trait.start())
        spans += [(m, False) for m in _METHOD.finditer(source.code, trait.end(), end)]
    for enum in _ENUM.finditer(source.code):
        end = rust.item_end(source.code, enum.start())
        spans += [(m, True) for m in _VARIANT.finditer(source.code, enum.end(), end)]
        spans += [(m, True) for m in _INNER.finditer(source.code, enum.end(), end)]
    for match, part in spans:
        line = source.line(match.start(1))
        if words := _comment(lines, line - 1):
            yield Item(f"{source.path}:{line}", match.group(1), part, words)


def _comment(lines: list[str], at: int) -> int:
    """Words of the comment above a line, attributes between them left out; 0 where there is none."""
    words, i = 0, at - 1
    while i >= 0:
        text = lines[i].strip()
        if text.startswith("///"):
            words += len(re.findall(r"[^\s#]\S*", text[3:]))
        elif not (text.startswith("#[") or text.endswith(")]")):
            break
        i -= 1
    return words

"""Reads Rust sources as far as gates need: text without comments, strings and tests; paths; items."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_TOKENS = re.compile(
    r"""//[^\n]*
    |/\*(?:[^*]|\*(?!/))*\*/
    |b?r(?P<hashes>\#*)"(?:.|\n)*?"(?P=hashes)
    |b?"(?:\\(?:.|\n)|[^"\\])*"
    |b?'(?:\\[^\n]{1,9}?|[^'\\\n])'
    """,
    re.X,
)
_TEST = re.compile(r"#\[cfg\((?:test|all\(test\b[^\]]*)\)\]")
_WORD = r"[A-Za-z_]\w*"
# Crates that are no part of the product, by name, with their folders; all others stand under crates/.
BENCHMARKS = {"bench": "bench/native", "kernels": "bench/kernels", "published": "bench/published"}


def folder(crate: str) -> str:
    """A crate's folder below the root."""
    return BENCHMARKS.get(crate, f"crates/{crate}")


@dataclass(frozen=True)
class Source:
    """A file.

    ``path`` below the root, ``module`` below its crate, ``code`` without comments, strings and test items (same lines).
    """

    path: str
    module: tuple[str, ...]
    code: str

    def line(self, offset: int) -> int:
        """Number of the line of an offset in ``code``."""
        return self.code.count("\n", 0, offset) + 1


def blank(text: str) -> str:
    """The same length and lines, but spaces."""
    return re.sub(r"[^\n]", " ", text)


@cache
def strip(text: str) -> str:
    """Code without comments, string and character literals, and without items under ``#[cfg(test)]``.

    Lines and offsets stay.
    """
    text = _TOKENS.sub(lambda m: blank(m.group()), text)
    start = 0
    while match := _TEST.search(text, start):
        end = item_end(text, match.end())
        text = text[: match.start()] + blank(text[match.start() : end]) + text[end:]
        start = end
    return text


def item_end(text: str, start: int) -> int:
    """Where the item ends that begins at ``start``: behind its ``;``, or behind the brace that closes its body."""
    depth, i = 0, start
    while i < len(text):
        c = text[i]
        if c in "([{":
            depth += 1
        elif c in ")]}":
            depth -= 1
            if depth == 0 and c == "}":
                return i + 1
        elif c == ";" and depth == 0:
            return i + 1
        i += 1
    return len(text)


def is_test(path: Path) -> bool:
    """Whether a file holds tests only."""
    return path.stem == "tests" or path.stem.endswith("_tests") or "tests" in path.parts


def sources(root: Path, crate: str) -> list[Source]:
    """All files of a crate's ``src`` but tests."""
    base = root / folder(crate) / "src"
    found = []
    for path in sorted(base.rglob("*.rs")):
        below = path.relative_to(base)
        if is_test(below):
            continue
        parts = below.with_suffix("").parts
        module = parts[:-1] if parts[-1] in ("mod", "lib", "main") else parts
        found.append(Source(path.relative_to(root).as_posix(), module, strip(path.read_text())))
    return found


def tree(text: str) -> list[tuple[str, ...]]:
    """The paths of a use tree: ``a::{b, c::D as E, *}`` gives a::b, a::c::D and a::*."""
    text = text.strip()
    if not text:
        return []
    brace = text.find("{")
    if brace < 0:
        parts = [p.strip() for p in re.split(r"\bas\b", text)[0].split("::")]
        return [tuple(p for p in parts if p)]
    head = [p.strip() for p in text[:brace].split("::") if p.strip()]
    inner, out, depth, part = text[brace + 1 : text.rindex("}")], [], 0, ""
    for c in inner + ",":
        depth += (c == "{") - (c == "}")
        if c == "," and depth == 0:
            out += [(*head, *path) for path in tree(part)]
            part = ""
        else:
            part += c
    return [path[:-1] if path[-1:] == ("self",) else path for path in out]


def paths(source: Source) -> list[tuple[tuple[str, ...], int]]:
    """All paths that a file writes, with their lines: of ``use`` in full, and those in its code (``a::b::C``)."""
    return list(_paths(source))


@cache
def _paths(source: Source) -> tuple[tuple[tuple[str, ...], int], ...]:
    found, rest = [], source.code
    for match in re.finditer(r"\buse\s+([^;]+);", source.code):
        found += [(path, source.line(match.start())) for path in tree(match.group(1))]
        rest = rest[: match.start()] + blank(match.group()) + rest[match.end() :]
    for match in re.finditer(rf"(?<![\w:]){_WORD}(?:\s*::\s*{_WORD})+", rest):
        found.append((tuple(p.strip() for p in match.group().split("::")), source.line(match.start())))
    return tuple(found)


@cache
def uses(source: Source) -> list[tuple[tuple[str, ...], int]]:
    """The paths of a file's ``use`` items only."""
    return [
        (path, source.line(match.start()))
        for match in re.finditer(r"\buse\s+([^;]+);", source.code)
        for path in tree(match.group(1))
    ]


def absolute(path: tuple[str, ...], module: tuple[str, ...]) -> tuple[str, ...] | None:
    """A path below the crate's root, ``None`` when it does not begin with ``crate``, ``self`` or ``super``."""
    if path[0] == "crate":
        return path[1:]
    if path[0] not in ("self", "super"):
        return None
    base, i = list(module), 0
    while i < len(path) and path[i] in ("self", "super"):
        if path[i] == "super":
            base = base[:-1]
        i += 1
    return (*base, *path[i:])


@cache
def types(source: Source) -> dict[str, int]:
    """The structs and enums that a file defines, with the offset of each."""
    return {m.group(1): m.start() for m in re.finditer(rf"\b(?:struct|enum)\s+({_WORD})", source.code)}


@cache
def items_of(source: Source, name: str) -> list[tuple[int, int]]:
    """Where the definition of a type and its ``impl`` blocks stand: offsets of begin and end."""
    pattern = rf"\b(?:(?:struct|enum)\s+{name}\b|impl\b[^{{;]*?\b{name}\b(?:<[^{{;]*?>)?\s*(?:where[^{{;]*)?(?={{))"
    return [(m.start(), item_end(source.code, m.start())) for m in re.finditer(pattern, source.code)]

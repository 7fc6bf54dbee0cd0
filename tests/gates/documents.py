"""Documents and comments cite only what is in the repository.

Files, folders, headings, anchors, the numbered facts of docs/two-party.md; of commands that run tests the programs, and
the tests that their words choose.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

# Documents that others, and this gate, rely on.
REQUIRED = (
    "README.md", "SECURITY.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/architecture.md", "docs/two-party.md",
    "docs/non-interactive.md",
    "docs/plan-format.md", "docs/wire-protocol.md",
)  # fmt: skip
FOLDERS = ("crates", "python", "tests", "docs", "bench", "fuzz", "examples")
SKIPPED = {"target", ".venv", ".git", "__pycache__", ".pytest_cache", ".hypothesis", "node_modules", "out", "shared"}
# These plant false citations, or name what must not be cited.
OWN = ("tests/gates/", "tests/test_gates.py", "tests/test_gates_of_files.py")
FACTS = "docs/two-party.md"
# Names of pages that stand outside of the repository.
ELSEWHERE = re.compile(r"\bpapers/\w|\bprotocols'? page\b|`protocols`|\bprotocols, section\b")

_LINK = re.compile(r"\[[^\]\n]*\]\(([^)\s]+)\)")
_CODE = re.compile(r"`([^`\n]+)`")
_FILE = re.compile(r"[\w.-]+(?:/[\w.-]+)*\.(?:rs|py|pyi|md|toml|svg|txt)|(?:[\w.-]+/)*[\w.-]+/")
_ROOTED = re.compile(rf"(?<![\w/.-])(?:{'|'.join(FOLDERS)})/[\w./-]*\w")
_SECTION = re.compile(r"([\w./-]+\.md)`?\)?, \*([^*\n]+)\*")
_FACT = re.compile(r"\bfacts? (\d)(?:(?: and|,) (\d))?(?: and (\d))?(?!\w)", re.I)


def problems(root: Path) -> list[str]:
    """Everything that is cited and not there."""
    files = _walk(root)
    documents, sources = _cited_from(root, files)
    out = [f"{name}: this document is missing" for name in REQUIRED if not (root / name).is_file()]
    known = {path.relative_to(root).as_posix() for path in files}
    # Folders, and every ending of a path: documents leave out the beginning.
    known |= {"/".join(name.split("/")[:i]) for name in known for i in range(1, name.count("/") + 1)}
    suffixes = {"/".join(parts[i:]) for parts in (name.split("/") for name in known) for i in range(len(parts))}
    headings = {path.relative_to(root).as_posix(): _headings(path.read_text()) for path in documents}
    for path in documents:
        where, text = path.relative_to(root).as_posix(), path.read_text()
        out += [f"{where}:{line}: {problem}" for line, problem in _links(path, text, root, headings)]
        for number, token in _tokens(text):
            if token.rstrip("/") not in suffixes and not (path.parent / token).exists():
                out.append(f"{where}:{number}: `{token}` is cited, and there is no such file or folder")
        out += [f"{where}:{number}: `{code}`: {problem}" for number, code, problem in _tests(root, text)]
    for path in (*documents, *sources):
        where, text = path.relative_to(root).as_posix(), path.read_text()
        cites_facts = where == FACTS or Path(FACTS).name in text
        for number, line in _citing(text):
            out += [
                f"{where}:{number}: {problem}" for problem in _line(line, path.suffix, known, headings, cites_facts)
            ]
    return sorted(set(out))


def _walk(root: Path) -> list[Path]:
    """All files, without those that builds and tools leave."""
    out = []
    for folder, inner, names in os.walk(root):
        inner[:] = sorted(set(inner) - SKIPPED)
        out += [Path(folder) / name for name in sorted(names)]
    return out


def _cited_from(root: Path, files: list[Path]) -> tuple[list[Path], list[Path]]:
    """Documents, and sources whose comments cite."""
    found = [
        p for p in files if p.suffix in (".md", ".rs", ".py") and not p.relative_to(root).as_posix().startswith(OWN)
    ]
    return [p for p in found if p.suffix == ".md"], [p for p in found if p.suffix != ".md"]


@cache
def _tokens(text: str) -> tuple[tuple[int, str], ...]:
    """What a document sets in code and looks like a file or a folder, with lines."""
    return tuple(
        (number, token)
        for number, line in enumerate(text.split("\n"), 1)
        for code in _CODE.findall(line)
        for token in code.split()
        # What builds leave is in no checkout.
        if token.split("/")[0] not in SKIPPED and _FILE.fullmatch(token)
    )


@cache
def _commands(text: str) -> tuple[tuple[int, str], ...]:
    """What a document sets in code and runs chosen tests, with lines."""
    return tuple(
        (number, code)
        for number, line in enumerate(text.split("\n"), 1)
        for code in _CODE.findall(line)
        if {"--test", "--lib"} & set(words := code.split()) or (words[:1] == ["pytest"] and "-k" in words)
    )


def _tests(root: Path, text: str) -> Iterator[tuple[int, str, str]]:
    """Commands that run tests and would run none."""
    for number, code in _commands(text):
        words = code.split()
        if words[0] == "pytest":
            read = "".join(f.read_text() for w in words if w.endswith(".py") and (f := root / w).is_file())
            for word in re.findall(r"[\w-]+", code.partition(" -k ")[2]):
                if word not in ("and", "or", "not") and word.lower() not in read.lower():
                    yield number, code, f"no test has {word} in its name"
            continue
        crate = root / "crates" / words[words.index("-p") + 1].removeprefix("hushnet-") if "-p" in words else None
        if words[:2] != ["cargo", "test"] or crate is None:
            yield number, code, "it is no whole command, `cargo test -p CRATE ...`"
            continue
        at = words.index("--test") + 1 if "--test" in words else words.index("--lib")
        place = crate / "tests" / words[at] if "--test" in words else crate / "src"
        files = [f for f in (place.with_suffix(".rs"), *place.rglob("*.rs")) if f.is_file()]
        if not files:
            yield number, code, f"{crate.name} has no such test program"
            continue
        names = [*re.findall(r"\bfn (\w+)", "".join(f.read_text() for f in files)), *(f.stem for f in files)]
        names += [f.parent.name for f in files]
        for word in (w for w in words[at + 1 :] if not w.startswith("-")):
            if not all(any(part in name for name in names) for part in word.split("::")):
                yield number, code, f"no test has {word} in its name"


@cache
def _citing(text: str) -> tuple[tuple[int, str], ...]:
    """The lines of a text that cite anything, with their numbers."""
    patterns = (_ROOTED, _SECTION, ELSEWHERE, _FACT)
    return tuple(
        (number, line)
        for number, line in enumerate(text.split("\n"), 1)
        if any(pattern.search(line) for pattern in patterns)
    )


@cache
def _headings(text: str) -> dict[str, str]:
    """Headings of a document by their anchors."""
    out: dict[str, str] = {}
    fenced = False
    for line in text.split("\n"):
        fenced ^= line.startswith("```")
        if fenced or not (match := re.match(r"#+ +(.*?)\s*$", line)):
            continue
        title = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", match.group(1)).replace("`", "")
        anchor = re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
        count = 0
        while (name := anchor if not count else f"{anchor}-{count}") in out:
            count += 1
        out[name] = title
    return out


def _links(path: Path, text: str, root: Path, headings: dict[str, dict[str, str]]) -> Iterator[tuple[int, str]]:
    for match in _LINK.finditer(text):
        target, line = match.group(1), text.count("\n", 0, match.start()) + 1
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        to = (path.parent / name).resolve() if name else path.resolve()
        if not to.exists():
            yield line, f"the link to {target} leads nowhere"
        elif anchor and to.suffix == ".md":
            there = to.relative_to(root.resolve()).as_posix()
            if anchor not in headings.get(there, {}):
                yield line, f"{there} has no heading for the anchor #{anchor}"


def _line(
    line: str, suffix: str, known: set[str], headings: dict[str, dict[str, str]], cites_facts: bool
) -> Iterator[str]:
    for match in _ROOTED.finditer(line):
        if suffix != ".md" and match.group().rstrip(".") not in known:
            yield f"{match.group()} is cited, and there is no such file or folder"
    for name, heading in _SECTION.findall(line):
        there = [h for path, h in headings.items() if path == name or path.endswith(f"/{name}")]
        if not any(title.startswith(heading) for h in there for title in h.values()):
            yield f"{name} has no heading that begins with '{heading}'"
    if match := ELSEWHERE.search(line):
        yield f"'{match.group()}' names a page outside of the repository; bring the argument in and cite its place"
    for numbers in _FACT.findall(line):
        facts = [t for t in headings.get(FACTS, {}).values() if re.match(r"Fact \d:", t)]
        for n in filter(None, numbers):
            if not any(t.startswith(f"Fact {n}:") for t in facts):
                yield f"{FACTS} has no fact {n}"
        if not cites_facts:
            yield f"a numbered fact is cited without its place ({FACTS})"

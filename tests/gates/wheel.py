"""The wheel that users install holds the product alone.

No benchmark, no rival, no stand-in of an insecure protocol (bench/).

``problems(root)`` reads the sources; ``python -m tests.gates.wheel FILE.whl`` reads a wheel that was built (`make
wheel`).
"""

from __future__ import annotations

import re
import sys
import zipfile
from pathlib import Path

from tests.gates import rust

PACKAGE = "hushnet"
EXTENSION = "python"
MEASURING = "bench"
STAND_INS = "published"
# What the source of a wheel's Python, and of its extension, is.
SETTINGS = {"manifest-path": "crates/python/Cargo.toml", "module-name": "hushnet._native", "python-source": "python"}
# What git ignores, and wheels have all the same.
INCLUDED = 'include = [{ path = "python/hushnet/web/**/*", format = "wheel" }]'
# Of `hushnet serve --web`: files that `make web` puts into the package, and a checkout need not have.
PAGE = tuple(
    f"hushnet/web/{n}" for n in ("index.html", "page.js", "hushnet/index.js", "hushnet/wasm/hushnet_wasm_bg.wasm")
)

_FUNCTION = re.compile(r"wrap_pyfunction!\(\s*(?:\w+::)*(\w+)")
_CLASS = re.compile(r"add_class::<\s*(?:\w+::)*(\w+)")
_NAMED = re.compile(
    r"#\[pyclass\([^\]]*\bname\s*=\s*\"(\w+)\"[^\]]*\)\]\s*(?:pub(?:\([^)]*\))?\s+)?(?:struct|enum)\s+(\w+)"
)


def exports(root: Path, crate: str) -> set[str]:
    """Names that a crate's extension gives Python."""
    found: set[str] = set()
    renamed: dict[str, str] = {}
    for source in rust.sources(root, crate):
        found |= {m.group(1) for pattern in (_FUNCTION, _CLASS) for m in pattern.finditer(source.code)}
        renamed |= {m.group(2): m.group(1) for m in _NAMED.finditer((root / source.path).read_text())}
    return {renamed.get(name, name) for name in found}


def problems(root: Path) -> list[str]:
    """What would put benchmarks into the wheel."""
    measuring, users = exports(root, MEASURING), exports(root, EXTENSION)
    out = [
        f"{rust.folder(c)}: no function or class is registered, so this gate reads nothing"
        for c, e in ((MEASURING, measuring), (EXTENSION, users))
        if not e
    ]
    out += [
        f"{rust.folder(EXTENSION)}: {name} is what benchmarks measure, and must not be in the users' extension"
        for name in sorted(measuring & users)
    ]
    for source in rust.sources(root, EXTENSION):
        if found := re.search(r"\bInsecure\w*", source.code):
            out.append(
                f"{source.path}:{source.line(found.start())}: the users' extension must not name {found.group()}: "
                "parameters below 128 bits are for benchmarks"
            )
    folders = sorted(p.name for p in (root / "python").iterdir() if p.is_dir() and p.name != "__pycache__")
    out += [f"python/{name}: the wheel's sources are python/{PACKAGE} alone" for name in folders if name != PACKAGE]
    text = (root / "pyproject.toml").read_text()
    settings = text.partition("[tool.maturin]")[2].partition("\n[")[0]
    out += [
        f'pyproject.toml: [tool.maturin] must say {k} = "{v}"'
        for k, v in SETTINGS.items()
        if f'{k} = "{v}"' not in settings
    ]
    out += [
        "pyproject.toml: [tool.maturin] must not include further files"
        for line in re.findall(r"^include\b.*", settings, re.M)
        if line != INCLUDED
    ]
    return out


def _bounded(mark: bytes) -> bytes:
    """A pattern of a name that is no part of a longer one."""
    return rb"(?<![A-Za-z_])" + re.escape(mark) + rb"(?![A-Za-z_])"


def contents(root: Path, wheel: Path) -> list[str]:
    """What a built wheel holds and must not, or lacks."""
    out, extensions = [], 0
    marks = {name.encode() for name in exports(root, MEASURING)}
    # Names of files stand in a binary where its code can panic, names of crates where symbols are kept.
    marks |= {rust.folder(c).encode() for c in rust.BENCHMARKS} | {b"hushnet_published"}
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            top = name.split("/")[0]
            if top != PACKAGE and not re.fullmatch(rf"{PACKAGE}-[^/]*\.(dist-info|data)", top):
                out.append(f"{wheel.name}: {name} is not of package {PACKAGE}")
            elif (
                not name.endswith("/")
                and top == PACKAGE
                and not name.startswith(f"{PACKAGE}/_native")
                and name not in PAGE
                and not (root / "python" / name).is_file()
            ):
                out.append(f"{wheel.name}: {name} is not in python/{PACKAGE}")
            if name.endswith((".so", ".pyd", ".dylib")):
                extensions += 1
                binary = archive.read(name)
                # Bytes are found many times faster than a pattern, which is asked only where they are.
                found = {mark for mark in marks if mark in binary and re.search(_bounded(mark), binary)}
                out += [
                    f"{wheel.name}: {name} holds {mark.decode()}, which is what benchmarks measure"
                    for mark in sorted(found)
                ]
    return out + ([] if extensions == 1 else [f"{wheel.name}: {extensions} extensions, must be 1"])


def main(root: Path, wheels: list[str]) -> int:
    """Prints what does not hold; exit status 1 when something does, or when there is no wheel."""
    found = [p for w in wheels for p in contents(root, Path(w))] if wheels else ["name a wheel"]
    print("\n".join(found) or f"wheel: {', '.join(Path(w).name for w in wheels)} holds {PACKAGE} alone")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main(Path(__file__).resolve().parents[2], sys.argv[1:]))

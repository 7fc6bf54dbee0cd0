"""Crates, and modules inside of crates, depend one way (docs/architecture.md)."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.gates import rust

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # pytest brings it along

# What each crate's library may depend on, on every target.
CRATES: dict[str, set[str]] = {
    "ring": set(),
    "matmul": {"ring"},
    "rlwe": {"ring"},
    "mpc": {"ring"},
    "layers": {"ring", "matmul", "rlwe"},
    "runtime": {"ring", "matmul", "rlwe", "layers", "mpc"},
    # Tests only: its edges are dev-dependencies.
    "masks": set(),
    "python": {"ring", "rlwe", "layers", "mpc", "runtime"},
    # The client in pages: it knows the run time alone.
    "wasm": {"runtime"},
    # Benchmarks and insecure stand-ins: no crate of the product names them.
    "published": {"ring", "rlwe", "layers"},
    "bench": {"ring", "matmul", "rlwe", "layers", "mpc", "runtime", "published"},
    # Programs for criterion: their edges are dev-dependencies.
    "kernels": set(),
}
# What tests, benches and examples of a crate may depend on besides.
DEVELOPMENT: dict[str, set[str]] = {
    "rlwe": {"matmul"},
    "kernels": {"ring", "matmul", "rlwe", "layers", "mpc"},
    "masks": {"ring", "matmul", "rlwe", "mpc", "layers", "runtime"},
}
# Workspaces beside this one, and what they may depend on.
BESIDE: dict[str, set[str]] = {"fuzz": {"ring", "rlwe", "mpc", "layers", "runtime"}}

# Modules inside of crates, each with the modules that it may use.
MODULES: dict[str, dict[str, set[str]]] = {
    "rlwe": {
        "security": set(),
        "error": set(),
        "mask": {"error"},
        # Names of uses for the ledger of tests.
        "uses": set(),
        "batch": {"security"},
        "batch_cipher": {"batch", "error", "mask", "uses"},
        "batch_server": {"batch", "error"},
        "packed": {"batch", "error", "security", "uses"},
        "coefficients": {"batch", "error", "packed", "security", "uses"},
        "one_poly": {"batch", "error", "security", "uses"},
        "batch_shares": {"batch", "batch_cipher", "error", "mask", "packed", "security", "uses"},
        "pack_lwe": {"batch", "error", "one_poly", "packed", "uses"},
        # Products of shares: packed encryption of a wider modulus, with merging.
        "wide": {"batch", "error", "pack_lwe", "security", "uses"},
        "ckks": {"batch", "security", "uses"},
        "bfv": {"batch", "ckks", "security", "uses"},
    },
    "layers": {
        "batch": set(),
        "phases": {"batch"},
        "geometries": {"batch", "phases"},
        # One layout of polynomials for all methods that pack an image in coefficients.
        "layout": {"batch", "phases"},
        "batch_shares": {"batch"},
        "ckks_batch": {"batch"},
        "packed": {"batch"},
        "cheetah": {"batch", "layout"},
        "coefficients": {"batch", "layout"},
        "rotation_free": {"batch", "layout", "phases"},
        "convfhe": {"batch", "cheetah", "layout", "rotation_free"},
        "matrix_product": {"batch", "layout"},
        # The base of the slot methods and, as files of it, the methods themselves.
        "slots": {"batch", "phases"},
        # Products of words, without ciphertexts.
        "words": {"batch"},
    },
    "runtime": {
        # The plan and the client program that it compiles into are one circle; so are channel and wire; so are plans
        # and what leaves of them.
        "plan": {"program", "public", "tally", "wire"},
        "public": {"plan"},
        "program": {"error", "plan"},
        "error": {"plan", "program"},
        # Counts of what plans cost.
        "tally": set(),
        # Files that parties keep between sessions.
        "store": set(),
        # Weights that are on their way.
        "pending": {"error"},
        "compute": {"error"},
        "io": {"compute", "error", "plan", "program"},
        "trace": {"plan"},
        "channel": {"error", "wire"},
        "wire": {"channel", "error"},
        # A trust model uses no other one. `session` has the traits that each of them implements, and names them all;
        # `transport` knows the traits only.
        "client_aided": {
            "channel",
            "compute",
            "error",
            "io",
            "pending",
            "plan",
            "program",
            "session",
            "tally",
            "trace",
            "wire",
        },
        "two_party": {
            "channel",
            "compute",
            "error",
            "io",
            "pending",
            "plan",
            "program",
            "public",
            "session",
            "store",
            "tally",
            "trace",
            "wire",
        },
        "non_interactive": {
            "channel",
            "compute",
            "error",
            "io",
            "pending",
            "plan",
            "program",
            "public",
            "session",
            "store",
            "tally",
            "trace",
            "wire",
        },
        "session": {
            "channel",
            "client_aided",
            "compute",
            "error",
            "io",
            "non_interactive",
            "pending",
            "plan",
            "public",
            "trace",
            "two_party",
            "wire",
        },
        "transport": {"channel", "error", "pending", "plan", "session", "trace", "wire"},
        "local": {
            "channel",
            "client_aided",
            "error",
            "io",
            "non_interactive",
            "session",
            "trace",
            "transport",
            "two_party",
        },
        "calibrate": {"compute", "error", "io", "session", "two_party"},
    },
}
SECTIONS = ("dependencies", "build-dependencies", "dev-dependencies")


def problems(root: Path) -> list[str]:
    """Edges that the tables do not allow, and what the tables name and the tree lacks."""
    return [*_crates(root), *(p for crate, table in MODULES.items() for p in _modules(root, crate, table))]


def _crates(root: Path) -> Iterator[str]:
    found = {
        path.parent.relative_to(root).as_posix()
        for place in ("crates", "bench")
        for path in (root / place).glob("*/Cargo.toml")
    }
    listed = {rust.folder(crate): crate for crate in CRATES}
    yield from (f"{c}: this crate is not in the table of tests/gates/modules.py" for c in sorted(found - set(listed)))
    yield from (
        f"{c}: the table of tests/gates/modules.py names this crate, and there is none"
        for c in sorted(set(listed) - found)
    )
    shared = _shared(root)
    for place in sorted(found & set(listed)):
        crate, manifest = listed[place], f"{place}/Cargo.toml"
        for section, name in _dependencies(root / manifest, shared):
            allowed = CRATES[crate] | (DEVELOPMENT.get(crate, set()) if "dev-" in section else set())
            if name not in allowed:
                yield f"{manifest}: [{section}] must not name hushnet-{name}"
    for folder, allowed in BESIDE.items():
        manifest = root / folder / "Cargo.toml"
        if not manifest.is_file():
            yield f"{folder}/Cargo.toml: the table of tests/gates/modules.py names this manifest, and there is none"
            continue
        for section, name in _dependencies(manifest, {}):
            if name not in allowed:
                yield f"{folder}/Cargo.toml: [{section}] must not name hushnet-{name}"


def _shared(root: Path) -> dict[str, Any]:
    manifest = root / "Cargo.toml"
    return tomllib.loads(manifest.read_text())["workspace"]["dependencies"] if manifest.is_file() else {}


def _dependencies(manifest: Path, shared: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Sections and crates of ours that a manifest depends on: of all targets, renamed ones and paths included."""
    document = tomllib.loads(manifest.read_text())
    tables = [(section, document.get(section, {})) for section in SECTIONS]
    for target, parts in document.get("target", {}).items():
        tables += [(f"target.{target}.{section}", parts.get(section, {})) for section in SECTIONS]
    for section, table in tables:
        for key, value in table.items():
            entry = value if isinstance(value, dict) else {}
            if entry.get("workspace") and isinstance(shared.get(key), dict):
                entry = {**shared[key], **entry}
            package = entry.get("package", key)
            path = Path(entry.get("path", ""))
            inside = path.name if {"crates", "bench"} & set(path.parts) or ".." in path.parts else ""
            for name in {package.removeprefix("hushnet-") if package.startswith("hushnet-") else inside} - {""}:
                yield section, name


def _modules(root: Path, crate: str, table: dict[str, set[str]]) -> Iterator[str]:
    found = rust.sources(root, crate)
    here = {s.module[0] for s in found if s.module}
    where = f"crates/{crate}/src"
    yield from (f"{where}: module {m} is not in the table of tests/gates/modules.py" for m in sorted(here - set(table)))
    yield from (
        f"{where}: the table of tests/gates/modules.py names module {m}, and there is none"
        for m in sorted(set(table) - here)
    )
    exported = {}
    for source in (s for s in found if not s.module):
        for path, _ in rust.uses(source):
            below = rust.absolute(path, ()) or path
            if below[0] in here:
                exported[below[-1]] = below[0]
    for source in (s for s in found if s.module and s.module[0] in table):
        own, told = source.module[0], set()
        for path, line in rust.paths(source):
            below = rust.absolute(path, source.module)
            if not below:
                continue
            target = below[0] if below[0] in here else exported.get(below[0], own)
            if target != own and target not in table[own] and target not in told:
                told.add(target)
                yield f"{source.path}:{line}: module {own} must not use module {target} of its crate"

"""Python modules import downward only (docs/architecture.md) and hold no cryptography.

An import counts wherever in a file it stands.

The product is one package, the benchmarks are another; only the command line of the product names the benchmarks.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

PACKAGE = "hushnet"
# Every module of python/hushnet with those that it may import; `__init__` is the package itself, `_native` the compiled
# extension.
ALLOWED: dict[str, set[str]] = {
    "_native": set(),
    "errors": set(),
    "graph": set(),
    "options": {"_native", "errors"},
    "data": {"errors"},
    "zoo": {"data", "errors"},
    "plan": {"_native", "errors"},
    "frontend": {"errors", "graph"},
    "passes": {"graph"},
    "reference": {"_native", "errors", "graph", "plan"},
    "planner": {"_native", "errors", "graph", "options", "passes", "plan", "reference"},
    "report": {"_native", "errors", "plan", "planner", "reference"},
    "result": {"errors", "frontend", "planner"},
    "tables": {"errors"},
    "arrays": {"errors", "options", "tables"},
    "model": {"_native", "arrays", "errors", "options", "plan", "planner", "report"},
    "marks": {"errors", "reference"},
    "sessions": {"_native", "arrays", "errors", "marks", "model", "options", "plan", "planner", "reference", "result"},
    "webpage": {"errors", "plan"},
    "serving": {"_native", "errors", "model", "webpage"},
    "api": {"arrays", "errors", "frontend", "graph", "model", "options", "passes", "plan", "planner", "tables"},
    "assess": {"api", "errors", "frontend", "graph", "model", "options"},
    "comparison": {"_native", "api", "errors", "frontend", "options"},
    "demos": {"__init__", "data", "errors", "options", "zoo"},
    "machine": {"_native", "api", "model", "planner", "reference", "serving", "sessions"},
    # Servers and clients in worker processes of a cluster; nothing else needs it.
    "ray": {"_native", "errors", "model", "options", "serving", "sessions"},
    "__init__": {"api", "comparison", "errors", "frontend", "machine", "model", "result", "serving", "sessions"},
    "cli": {
        "__init__",
        "_native",
        "assess",
        "comparison",
        "data",
        "demos",
        "frontend",
        "machine",
        "options",
        "passes",
        "reference",
        "report",
        "webpage",
        "zoo",
    },
    "__main__": {"cli"},
}
# Keys, ciphers and randomness for them are Rust's.
CRYPTOGRAPHY = {"Crypto", "Cryptodome", "cryptography", "hmac", "nacl", "openfhe", "seal", "secrets", "ssl", "tenseal"}
# The benchmarks' package, the modules of the product that it may import, and the one that may import it.
BENCHMARKS = "hushnet_bench"
BENCHMARKED = {
    "__init__",
    "_native",
    "data",
    "demos",
    "frontend",
    "graph",
    "machine",
    "passes",
    "planner",
    "ray",
    "reference",
    "zoo",
}
BENCHMARKS_FROM = "cli"
# Other libraries run in processes of their own, to compare with.
RIVALS = f"bench/python/{BENCHMARKS}/programs/"


def problems(root: Path) -> list[str]:
    """Imports that the table does not allow, and modules that the table or the tree lacks."""
    base = root / "python" / PACKAGE
    modules = {
        p.stem if p.suffix else p.name
        for p in base.glob("*")
        if p.suffix in (".py", ".pyi") or (p / "__init__.py").is_file()
    }
    out = [
        f"python/{PACKAGE}: module {m} is not in the table of tests/gates/imports.py"
        for m in sorted(modules - set(ALLOWED))
    ]
    out += [
        f"python/{PACKAGE}: the table of tests/gates/imports.py names module {m}, and there is none"
        for m in sorted(set(ALLOWED) - modules)
    ]
    for path in sorted(base.rglob("*.py")):
        where = path.relative_to(root).as_posix()
        parts = path.relative_to(base).with_suffix("").parts
        told = set()
        for name, line in _imports(path.read_text(), (PACKAGE, *parts)):
            target = _target(name, modules)
            if target is None:
                out += _foreign(name, where, line)
                if name[0] == BENCHMARKS and parts[0] != BENCHMARKS_FROM:
                    out.append(
                        f"{where}:{line}: {PACKAGE}.{parts[0]} must not import {BENCHMARKS}, "
                        "which is no part of the product"
                    )
            elif parts[0] in ALLOWED and target != parts[0] and target not in ALLOWED[parts[0]] | told:
                told.add(target)
                out.append(
                    f"{where}:{line}: {PACKAGE}.{parts[0]} must not import "
                    f"{PACKAGE if target == '__init__' else f'{PACKAGE}.{target}'}"
                )
    return out + _benchmarks(root, modules)


def _benchmarks(root: Path, modules: set[str]) -> list[str]:
    """The same for the benchmarks' package, which stands above the product's."""
    base, out = root / "bench/python" / BENCHMARKS, []
    if not (base / "__init__.py").is_file():
        return [f"bench/python: tests/gates/imports.py names package {BENCHMARKS}, and there is none"]
    for path in sorted(base.rglob("*.py")):
        where = path.relative_to(root).as_posix()
        for name, line in _imports(path.read_text(), (BENCHMARKS, *path.relative_to(base).with_suffix("").parts)):
            target = _target(name, modules)
            out += _foreign(name, where, line)
            if target is not None and (target not in BENCHMARKED or where.startswith(RIVALS)):
                out.append(
                    f"{where}:{line}: {BENCHMARKS} must not import "
                    f"{PACKAGE}{'' if target == '__init__' else f'.{target}'} here"
                )
    return sorted(set(out))


def _foreign(name: tuple[str, ...], where: str, line: int) -> list[str]:
    if name[0] in CRYPTOGRAPHY and not where.startswith(RIVALS):
        return [f"{where}:{line}: Python holds no cryptography, and must not import {name[0]}"]
    return []


def _target(name: tuple[str, ...], modules: set[str]) -> str | None:
    """The module of the package that an import reaches, `__init__` for the package and what it exports.

    ``None`` for other packages.
    """
    if name[0] != PACKAGE:
        return None
    return name[1] if len(name) > 1 and name[1] in modules else "__init__"


@cache
def _imports(text: str, module: tuple[str, ...]) -> tuple[tuple[tuple[str, ...], int], ...]:
    """Absolute names that a module imports, with lines; a text is parsed once.

    Relative imports resolved, and `importlib.import_module("...")`.
    """
    return tuple(_imported(text, module))


def _imported(text: str, module: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], int]]:
    # The package that relative names start from: a package's own `__init__` counts as inside of it.
    package = module[:-1]
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from ((tuple(alias.name.split(".")), node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            stem = (*base, *(node.module.split(".") if node.module else ()))
            yield from (((*stem, alias.name), node.lineno) for alias in node.names)
        elif (
            isinstance(node, ast.Call)
            and node.args
            and isinstance(node.args[0], ast.Constant)
            and isinstance(node.args[0].value, str)
        ):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called in ("import_module", "__import__"):
                yield tuple(node.args[0].value.split(".")), node.lineno

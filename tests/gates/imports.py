"""Python modules import downward only (docs/architecture.md), wherever in a file the import stands, and hold no cryptography."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

PACKAGE = "hushnet"
# Every module of python/hushnet with those that it may import; `__init__` is the package itself, `_native` the compiled extension.
ALLOWED: dict[str, set[str]] = {
    "_native": set(),
    "errors": set(),
    "graph": set(),
    "data": {"errors"},
    "zoo": {"data", "errors"},
    "plan": {"_native", "errors"},
    "frontend": {"errors", "graph"},
    "passes": {"graph"},
    "reference": {"_native", "errors", "graph", "plan"},
    "planner": {"_native", "errors", "graph", "passes", "plan", "reference"},
    "report": {"_native", "errors", "plan", "planner", "reference"},
    "api": {"_native", "errors", "frontend", "passes", "plan", "planner", "reference", "report"},
    "assess": {"api", "errors", "frontend"},
    "calibrate": {"_native", "api", "planner", "reference"},
    "__init__": {"api", "calibrate", "errors"},
    "bench": {"__init__", "_native", "calibrate", "data", "frontend", "graph", "passes", "planner", "reference", "zoo"},
    "cli": {"__init__", "_native", "assess", "bench", "calibrate", "data", "frontend", "passes", "reference", "report", "zoo"},
    "__main__": {"cli"},
}
# Keys, ciphers and randomness for them are Rust's.
CRYPTOGRAPHY = {"Crypto", "Cryptodome", "cryptography", "hmac", "nacl", "openfhe", "seal", "secrets", "ssl", "tenseal"}
# Other libraries run in processes of their own, to compare with.
RIVALS = "python/hushnet/reference/peers/"


def problems(root: Path) -> list[str]:
    """Imports that the table does not allow, and modules that the table or the tree lacks."""
    base = root / "python" / PACKAGE
    modules = {p.stem if p.suffix else p.name for p in base.glob("*") if p.suffix in (".py", ".pyi") or (p / "__init__.py").is_file()}
    out = [f"python/{PACKAGE}: module {m} is not in the table of tests/gates/imports.py" for m in sorted(modules - set(ALLOWED))]
    out += [f"python/{PACKAGE}: the table of tests/gates/imports.py names module {m}, and there is none" for m in sorted(set(ALLOWED) - modules)]
    for path in sorted(base.rglob("*.py")):
        where = path.relative_to(root).as_posix()
        parts = path.relative_to(base).with_suffix("").parts
        told = set()
        for name, line in _imports(path.read_text(), (PACKAGE, *parts)):
            target = _target(name, modules)
            if target is None:
                if name[0] in CRYPTOGRAPHY and not where.startswith(RIVALS):
                    out.append(f"{where}:{line}: Python holds no cryptography, and must not import {name[0]}")
            elif parts[0] in ALLOWED and target != parts[0] and target not in ALLOWED[parts[0]] | told:
                told.add(target)
                out.append(f"{where}:{line}: {PACKAGE}.{parts[0]} must not import {PACKAGE if target == '__init__' else f'{PACKAGE}.{target}'}")
    return out


def _target(name: tuple[str, ...], modules: set[str]) -> str | None:
    """The module of the package that an import reaches, `__init__` for the package and what it exports; ``None`` for other packages."""
    if name[0] != PACKAGE:
        return None
    return name[1] if len(name) > 1 and name[1] in modules else "__init__"


def _imports(text: str, module: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], int]]:
    """Absolute names that a module imports, with lines: relative imports resolved, and `importlib.import_module("...")`."""
    # The package that relative names start from: a package's own `__init__` counts as inside of it.
    package = module[:-1]
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from ((tuple(alias.name.split(".")), node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            stem = (*base, *(node.module.split(".") if node.module else ()))
            yield from (((*stem, alias.name), node.lineno) for alias in node.names)
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant) and isinstance(node.args[0].value, str):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called in ("import_module", "__import__"):
                yield tuple(node.args[0].value.split(".")), node.lineno

"""What the run time decides stands in Rust once.

Python reads constants of noise, keys, frames and the plan format from ``_native``.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

PACKAGE = "python/hushnet"
# Numbers that stand in Rust, with where Python finds them.
NUMBERS: dict[float, str] = {
    7.631: "_native.ERROR_TAIL",
    10.5: "_native.ERROR_VARIANCE",
    25600: "bytes_key of _native.coefficient_layer_cost",
}
# Names that are read from `_native`, and must not be given a number here.
NAMES: dict[str, str] = {
    "VERSION": "_native.PLAN_VERSION",
    "ERROR_TAIL": "_native.ERROR_TAIL",
    "ERROR_VARIANCE": "_native.ERROR_VARIANCE",
    "STATISTICAL_BITS": "_native.STATISTICAL_BITS",
    "CHEAP_MODULUS_BITS": "_native.single_part_bits",
    "HEADER_BYTES": "cost of _native.Plan.facts",
    "KEY_BYTES": "bytes_key of _native.coefficient_layer_cost",
}
# Modules that wrote the run time's check again.
GONE = ("planner/validate.py", "planner/two_party/validate.py")


def problems(root: Path) -> list[str]:
    """Numbers that are typed again, and checks that are written again."""
    base = root / PACKAGE
    if not base.is_dir():
        return [f"{PACKAGE}: tests/gates/truths.py names this folder, and there is none"]
    out = [
        f"{PACKAGE}/{name}: plans are checked by _native.check_plan alone" for name in GONE if (base / name).exists()
    ]
    for path in sorted(base.rglob("*.py")):
        where = path.relative_to(root).as_posix()
        out += [f"{where}:{line}: {what}" for line, what in _found(path.read_text())]
    return out


@cache
def _found(text: str) -> tuple[tuple[int, str], ...]:
    """What a file types, with lines; a text is parsed once."""
    return tuple(_typed(ast.parse(text)))


def _typed(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and type(node.value) in (int, float) and node.value in NUMBERS:
            yield node.lineno, f"the number {node.value} is the run time's; read {NUMBERS[node.value]}"
        elif isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = [n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name) and n.id in NAMES]
            if names and not any(isinstance(n, (ast.Name, ast.Attribute)) for n in ast.walk(node.value)):
                yield node.lineno, f"{names[0]} is the run time's; read {NAMES[names[0]]}"

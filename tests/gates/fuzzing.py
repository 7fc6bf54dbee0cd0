"""What exists for the fuzz targets alone (``cfg(fuzzing)``) stays where the table says.

No build of the product turns it on.

A hook skips base OTs, which is the end of all privacy where it runs. So it needs a flag of the compiler that only
``fuzz/run.sh`` passes, and a call besides.
"""

from __future__ import annotations

import re
from pathlib import Path

from tests.gates import rust

# Files of the crates with items that only fuzz builds have.
HOOKS = {
    "crates/mpc/src/lib.rs",
    "crates/mpc/src/session.rs",
    "crates/mpc/src/ot/ferret.rs",
    "crates/mpc/src/ot/ledger.rs",
}
# Files that may pass the flag to the compiler.
FLAGS = {"fuzz/run.sh"}
_CFG = re.compile(r"\bcfg(?:_attr)?!?\s*\([^\n]*\bfuzzing\b")
# What fuzz builds lack, as pages do, is no hook: every build of the product has it.
_LEFT_OUT = re.compile(r"\bcfg\(not\(any\([^()\n]*, fuzzing\)\)\)")
_FLAG = re.compile(r"--cfg[ =\"',]+fuzzing|rustc-cfg[:=]+fuzzing")
# Where flags of a build are found.
BUILDS = (
    "Makefile",
    "pyproject.toml",
    "Cargo.toml",
    ".cargo/*",
    ".ci/**/*",
    "crates/*/Cargo.toml",
    "crates/*/build.rs",
    "fuzz/*.sh",
    "fuzz/*.toml",
    "bench/**/*",
    "python/**/*.py",
)


def problems(root: Path) -> list[str]:
    """Hooks outside of the table, rows of the table without hooks, and other files that turn them on."""
    found = []
    crates = [p.parent.name for p in sorted((root / "crates").glob("*/Cargo.toml"))]
    hooked = {
        s.path: s.line(match.start())
        for c in crates
        for s in rust.sources(root, c)
        for match in _CFG.finditer(s.code)
        if not _LEFT_OUT.match(s.code, match.start())
    }
    for path in sorted(set(hooked) - HOOKS):
        found.append(
            f"{path}:{hooked[path]}: an item of fuzz builds outside of the files that may have them; see "
            "tests/gates/fuzzing.py"
        )
    found += [
        f"{path}: no item of fuzz builds is there any more; take its row out of tests/gates/fuzzing.py"
        for path in sorted(HOOKS - set(hooked))
    ]
    flagged = set()
    for pattern in BUILDS:
        for path in root.glob(pattern):
            if path.is_file() and path.suffix != ".lock" and _FLAG.search(path.read_text(errors="replace")):
                flagged.add(path.relative_to(root).as_posix())
    found += [
        f"{path}: passes --cfg fuzzing, which skips base OTs; only fuzz/run.sh may" for path in sorted(flagged - FLAGS)
    ]
    found += [
        f"{path}: does not pass --cfg fuzzing, without which the fuzz targets do not compile"
        for path in sorted(FLAGS - flagged)
    ]
    return found

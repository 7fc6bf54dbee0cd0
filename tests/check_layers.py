"""Folders follow dependency (docs/architecture.md): fails on an edge that points upward, and on cryptography in Python."""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ALLOWED = {
    "ring": set(),
    "matmul": {"ring"},
    "rlwe": {"ring"},
    "mpc": {"ring"},
    "layers": {"ring", "matmul", "rlwe"},
    "runtime": {"ring", "matmul", "rlwe", "layers", "mpc"},
    # Tests only: no edge of the product.
    "masks": set(),
    "python": {"ring", "matmul", "rlwe", "layers", "mpc", "runtime"},
}
PYTHON_LAYERS = ["graph", "frontend", "passes", "reference", "planner", "report", "api", "calibrate", "bench", "cli"]


def main() -> int:
    problems = []
    for manifest in sorted((ROOT / "crates").glob("*/Cargo.toml")):
        crate = manifest.parent.name
        if crate not in ALLOWED:
            problems.append(f"crates/{crate}: not in the layering table of {Path(__file__).name}")
            continue
        section = re.search(r"^\[dependencies\]$(.*?)(?=^\[|\Z)", manifest.read_text(), re.M | re.S)
        used = set(re.findall(r"^hushnet-(\w+)", section.group(1), re.M)) if section else set()
        problems += [f"crates/{crate} must not depend on {d}" for d in sorted(used - ALLOWED[crate])]
    server = ROOT / "crates/runtime/src/server"
    files = [server.with_suffix(".rs"), *server.glob("**/*.rs")]
    for path in (p for p in files if p.exists()):
        if "ClientKey" in path.read_text():
            problems.append(f"{path.relative_to(ROOT)}: the server side must not name ClientKey")
    for lower, name in enumerate(PYTHON_LAYERS[:-1]):
        base = ROOT / "python/hushnet" / name
        for path in [base.with_suffix(".py"), *base.glob("**/*.py")]:
            if not path.exists():
                continue
            for upper in PYTHON_LAYERS[lower + 1 :]:
                if re.search(rf"^\s*(from hushnet(\.{upper}\b| import .*\b{upper}\b)|import hushnet\.{upper}\b)", path.read_text(), re.M):
                    problems.append(f"{path.relative_to(ROOT)} must not import hushnet.{upper}")
    print("\n".join(problems) or "layers: no upward edge")
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())

"""The notebooks of ``docs/notebooks``: their code cells run in order, and the documents name them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs/notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
# what a kernel does: cells in one name space, and the value of a last expression shown as HTML or text
KERNEL = """
import ast, json, sys
names, shown = {"__name__": "__main__"}, []
for cell in json.load(sys.stdin):
    body = ast.parse(cell["source"], cell["id"])
    last = body.body.pop() if body.body and isinstance(body.body[-1], ast.Expr) else None
    try:
        exec(compile(body, cell["id"], "exec"), names)
        value = None if last is None else eval(compile(ast.Expression(last.value), cell["id"], "eval"), names)
    except BaseException:
        print("in", cell["id"], file=sys.stderr)
        raise
    if value is not None:
        html = getattr(value, "_repr_html_", None)
        print(f"[html of {type(value).__name__}: {len(html())}]" if html else repr(value))
"""


def cells(path: Path, kind: str) -> list[dict[str, Any]]:
    """The cells of a kind, with their text as one string."""
    document = json.loads(path.read_text(encoding="utf-8"))
    assert (document["nbformat"], document["metadata"]["kernelspec"]["language"]) == (4, "python")
    found = [cell for cell in document["cells"] if cell["cell_type"] == kind]
    return [{"id": cell["id"], "source": "".join(cell["source"]), **cell.get("metadata", {})} for cell in found]


def run(code: list[dict[str, Any]], folder: Path) -> subprocess.CompletedProcess[str]:
    """Runs cells in a process of their own, in a folder that has the notebooks' files."""
    shutil.copytree(FOLDER, folder, dirs_exist_ok=True)
    paths = [str(ROOT / "python"), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    where = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, "-c", KERNEL],
        input=json.dumps(code), cwd=folder, env=where, capture_output=True, text=True, check=False, timeout=500,
    )  # fmt: skip


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_from_its_first_cell_to_its_last(path: Path, tmp_path: Path) -> None:
    done = run(cells(path, "code"), tmp_path)
    assert done.returncode == 0, f"{path.name}: {done.stderr[-3000:]}"
    assert "[html of Explanation" in done.stdout and "Warning" not in done.stderr, done.stdout + done.stderr


def test_a_cell_that_fails_is_named(tmp_path: Path) -> None:
    code = [{"id": "cell-1", "source": "x = 1\nx"}, {"id": "cell-2", "source": "assert x == 2"}]
    done = run(code, tmp_path)
    assert done.returncode == 1 and "in cell-2" in done.stderr and done.stdout == "1\n"


def test_notebooks_hold_no_outputs_and_the_readme_names_them() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["polynomial-activations", "pytorch", "scikit-learn"]
    readme = (ROOT / "README.md").read_text()
    for path in NOTEBOOKS:
        assert f"docs/notebooks/{path.name}" in readme
        document = json.loads(path.read_text(encoding="utf-8"))
        assert not any(cell.get("outputs") or cell.get("execution_count") for cell in document["cells"]), path.name
        assert len({cell["id"] for cell in document["cells"]}) == len(document["cells"])

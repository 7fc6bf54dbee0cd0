"""Fixtures that tests of several files share."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
LEFT_OUT = shutil.ignore_patterns(
    "target",
    ".venv",
    ".git",
    "__pycache__",
    ".pytest_cache",
    ".hypothesis",
    "*.so",
    "out",
    "shared",
    "node_modules",
    "dist",
)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of what gates read."""
    copy = tmp_path / "tree"
    shutil.copytree(ROOT, copy, ignore=LEFT_OUT)
    return copy

"""Fixtures that tests of several files share, and which tests share a process."""

from __future__ import annotations

import gc
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
LEFT_OUT = shutil.ignore_patterns(
    "target",
    ".venv",
    ".git",
    "__pycache__",
    ".mypy_cache",
    ".pytest_cache",
    ".ruff_cache",
    ".hypothesis",
    "*.so",
    "out",
    "shared",
    "node_modules",
    "dist",
)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests with what a file sets up for all of them, or with copies of this tree, run in one process of several."""
    for item in items:
        found = item._fixtureinfo.name2fixturedefs if isinstance(item, pytest.Function) else {}
        if "originals" in found:
            item.add_marker(pytest.mark.xdist_group("tree"))
        elif any(fixture.scope == "module" for fixtures in found.values() for fixture in fixtures):
            item.add_marker(pytest.mark.xdist_group(item.path.stem))


def pytest_collection_finish() -> None:
    """What all tests have imported stays: the collector of garbage need not look through it again and again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def originals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what gates read, which stays as it is."""
    copy = tmp_path_factory.mktemp("originals") / "tree"
    shutil.copytree(ROOT, copy, ignore=LEFT_OUT)
    return copy


@pytest.fixture(scope="session")
def changed(originals: Path) -> Path:
    """A second one, which tests change in turn."""
    return Path(shutil.copytree(originals, originals.parent / "changed"))


@pytest.fixture
def tree(originals: Path, changed: Path) -> Iterator[Path]:
    """A copy of what gates read; what a test does to it is undone behind it."""
    yield changed
    before, after = _files(originals), _files(changed)
    for name in after.keys() - before.keys():
        (changed / name).unlink()
    for name in [name for name, file in before.items() if after.get(name) != file]:
        (changed / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(originals / name, changed / name)
    for folder, _, _ in os.walk(changed, topdown=False):
        if not (originals / Path(folder).relative_to(changed)).is_dir():
            os.rmdir(folder)


def _files(folder: Path) -> dict[Path, tuple[int, int]]:
    """Every file below a folder with its time of change and its size, both of which a copy has from its original."""
    found = {}
    for place, _, names in os.walk(folder):
        for name in names:
            told = os.stat(os.path.join(place, name))
            found[Path(place, name).relative_to(folder)] = (told.st_mtime_ns, told.st_size)
    return found

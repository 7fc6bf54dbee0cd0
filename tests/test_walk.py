"""``python -m tests.walk`` runs what the page shows, in its order, and tells where a stranger would be stuck."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests import walk


def stand_in(folder: Path, failing: str) -> Path:
    """A program that does nothing, and fails at one verb; beside it an interpreter that does nothing either."""
    for name in ("hushnet", "python"):
        path = folder / name
        path.write_text(f'#!/bin/sh\necho "$*" >> \'{folder}/ran\'\n[ "$1" != {failing} ]\n')
        path.chmod(0o755)
    return folder / "hushnet"


def test_a_step_that_fails_is_told_and_the_walk_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = tmp_path / "bin"
    place.mkdir()
    status = walk.main(["--hushnet", str(stand_in(place, "explain")), "--keep", str(tmp_path / "files"), "--json"])
    told = json.loads(capsys.readouterr().out)
    verbs = [s["step"].split()[1] for s in told["steps"] if s["step"].startswith("hushnet")]
    assert verbs == ["check", "compare", "compile", "explain", "run", "serve", "infer", "serve"]
    # a server that ends at once is stuck, too, and nobody asks it
    assert status == 1 and [s.split()[1] for s in told["stuck"]] == ["explain", "serve", "serve"]
    assert "check model.onnx\n" in (place / "ran").read_text()


def test_the_page_has_every_step_that_the_walk_takes() -> None:
    text = walk.PAGE.read_text()
    assert "--web" in text[text.index("## A model and samples") :] and "127.0.0.1:8765" in text
    assert [language for language, _ in walk.parts(text)].count("python") == 2
    assert walk.parts("```\na\n```\n```python\nb\n```\n") == [("", "a\n"), ("python", "b\n")]

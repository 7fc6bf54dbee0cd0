"""The checks of wheels report planted faults, and `make demo` takes a wheel only where it fits and is fresh."""

from __future__ import annotations

import json
import os
import re
import tarfile
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.gates.wheel import PAGE
from tests.test_deploy import parsed
from tests.wheels import __main__ as command
from tests.wheels import files, fitting, install, probe

ROOT = Path(__file__).resolve().parent.parent
MANYLINUX = "hushnet-0.1.0-cp310-abi3-manylinux_2_17_x86_64.manylinux2014_x86_64.whl"


def elf(machine: int) -> bytes:
    return b"\x7fELF\x02\x01" + bytes(10) + b"\x03\0" + machine.to_bytes(2, "little") + bytes(44)


def made(folder: Path, name: str = MANYLINUX, machine: int = 62, leave_out: str = "", more: int = 0) -> Path:
    """A wheel with the sources of this tree, and a stand-in for the extension."""
    path = folder / name
    with zipfile.ZipFile(path, "w") as archive:
        for source in sorted((ROOT / "python/hushnet").rglob("*.py*")):
            inside = str(source.relative_to(ROOT / "python"))
            if source.suffix in (".py", ".pyi") and inside != leave_out:
                archive.write(source, inside)
        for page in set(PAGE) - {leave_out}:
            archive.writestr(page, "")
        archive.writestr("hushnet/_native.abi3.so", elf(machine) + bytes(more))
    return path


@pytest.mark.parametrize(
    ("planted", "told"),
    [
        ({"name": MANYLINUX.replace("_2_17_", "_2_28_")}, "needs manylinux (2, 28), must run on (2, 17)"),
        ({"name": "hushnet-0.1.0-cp310-abi3-linux_x86_64.whl"}, "no tag of an abi3 wheel"),
        ({"name": MANYLINUX.replace("cp310-abi3", "cp311-cp311")}, "no tag of an abi3 wheel"),
        ({"machine": 183}, "is for ELF machine 183, the tag says x86_64"),
        ({"leave_out": "hushnet/api.py"}, "hushnet/api.py is not in it"),
        ({"leave_out": "hushnet/web/page.js"}, "hushnet/web/page.js is not in it (make web)"),
        ({"more": files.LIMIT}, "bytes, at most 12,000,000"),
    ],
)
def test_faults_of_a_wheel_are_told(tmp_path: Path, planted: dict, told: str) -> None:
    assert files.problems(made(tmp_path)) == []
    [problem] = files.problems(made(tmp_path, **planted))
    assert told in problem


def test_each_platform_is_known_by_its_name() -> None:
    for target, kind, machine in (
        ("manylinux2014_aarch64.manylinux_2_17_aarch64", "manylinux", "aarch64"),
        ("musllinux_1_2_x86_64", "musllinux", "x86_64"),
    ):
        found = files.platform(f"hushnet-0.1.0-cp310-abi3-{target}.whl")
        assert found == files.Platform(kind, files.OLDEST[kind], machine)


def test_a_source_archive_without_its_lock_file_is_told(tmp_path: Path) -> None:
    path = tmp_path / "hushnet-0.1.0.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for name in ("Cargo.toml", "pyproject.toml", "crates/python/Cargo.toml", "python/hushnet/__init__.py"):
            archive.add(ROOT / name, f"hushnet-0.1.0/{name}")
        archive.add(ROOT / "pyproject.toml", "hushnet-0.1.0/PKG-INFO")
        archive.add(ROOT / "LICENSE", "hushnet-0.1.0/python/hushnet/_native.abi3.so")
    told = files.source_problems(path)
    assert ["Cargo.lock is not in it" in told[0], "is a built file" in told[1]] == [True, True]


def test_the_command_tells_figures_and_faults(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main([str(tmp_path), "--no-install", "--json"]) == 1
    assert "make wheels" in json.loads(capsys.readouterr().out)["problems"][0]
    wheel = made(tmp_path)
    assert command.main([str(tmp_path), "--no-install", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"bytes": {wheel.name: wheel.stat().st_size}, "problems": []}
    assert command.main([str(tmp_path), "--no-install", "--aarch64", str(tmp_path)]) == 1
    assert "no manylinux wheel for aarch64" in capsys.readouterr().out


def test_a_folder_with_a_compiler_is_refused(tmp_path: Path) -> None:
    assert install.bare(tmp_path)["PATH"] == str(tmp_path)
    (tmp_path / "gcc").write_text("#!/bin/sh\n")
    (tmp_path / "gcc").chmod(0o755)
    with pytest.raises(RuntimeError, match="has a compiler: gcc"):
        install.bare(tmp_path)


def test_a_slow_or_wrong_demo_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(install, "pythons", lambda: {"3.10": tmp_path, "3.11": tmp_path, "3.12": tmp_path})
    answers = [
        {"seconds": 61.0, "equal_to_plaintext_fixed_point": True},
        {"seconds": 9.0, "equal_to_plaintext_fixed_point": False},
    ]

    def demo(python: Path, wheel: Path) -> dict:
        if not answers:
            raise RuntimeError("pip install: status 1")
        return answers.pop(0)

    monkeypatch.setattr(install, "demo", demo)
    _, wrong = command.installed(tmp_path)
    assert [re.sub(" .*", "", w.partition(": ")[2]) for w in wrong] == ["", "61.0", "the", "pip"]
    assert wrong[0] == "Python 3.13 is not on this machine"


def test_the_demo_takes_a_wheel_that_fits_and_is_no_older_than_the_sources(tmp_path: Path) -> None:
    tags = {"cp310-abi3-manylinux_2_17_x86_64"}
    source = tmp_path / "lib.rs"
    source.write_text("")
    assert fitting.chosen(tmp_path, [source], "", tags) is None
    wheel, other = (tmp_path / n for n in (MANYLINUX, MANYLINUX.replace("x86_64", "aarch64")))
    for path in (wheel, other):
        path.write_bytes(b"")
    os.utime(source, (1000, 1000))
    assert fitting.chosen(tmp_path, [source], "", tags) == wheel
    assert fitting.chosen(tmp_path, [source], "", set()) is None
    os.utime(wheel, (999, 999))
    assert fitting.chosen(tmp_path, [source], "", tags) is None
    assert fitting.chosen(tmp_path, [source], str(wheel), tags) == wheel
    for named, told in ((str(other), "cannot install"), (str(tmp_path / "none.whl"), "not there")):
        with pytest.raises(SystemExit, match=told):
            fitting.chosen(tmp_path, [source], named, tags)


def test_the_probe_of_other_machines_passes_on_this_one(capsys: pytest.CaptureFixture[str]) -> None:
    probe.main()
    said = SimpleNamespace(**json.loads(capsys.readouterr().out))
    assert set(said.seconds) == {"client-aided", "two-party", "non-interactive"} and said.answers["client-aided"]


def test_the_recipes_of_other_systems_build_what_the_makefile_builds() -> None:
    """deploy/wheels.yaml: its targets, its check of contents, and its Python are those of this tree."""
    text = (ROOT / "deploy/wheels.yaml").read_text()
    [recipe] = parsed(text)
    assert set(recipe["jobs"]) == {"linux", "macos", "windows"}
    makefile = (ROOT / "Makefile").read_text()
    for name in re.findall(r"make (\w+)", text):
        assert re.search(rf"^{name}:", makefile, re.M), name
    for job in ("macos", "windows"):
        commands = " ".join(step.get("run", "") for step in recipe["jobs"][job]["steps"])
        assert "maturin build" in commands and "--locked" in commands and "hushnet demo" in commands
        assert "python -m tests.gates.wheel" in commands
        # they take the page that the first job has built
        assert recipe["jobs"][job]["needs"] == "linux"
        folder = makefile.split("\nSITE := ", 1)[1].split("\n", 1)[0]
        assert folder in str(recipe["jobs"][job]["steps"])
    assert "aarch64-apple-darwin" in text and "x86_64-pc-windows-msvc" in text

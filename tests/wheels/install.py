"""A wheel in clean environments: every Python of this machine without a compiler, and arm64 under qemu-aarch64."""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

VERSIONS = ((3, 10), (3, 11), (3, 12), (3, 13))
COMPILERS = ("cc", "gcc", "clang", "c++", "g++", "cargo", "rustc", "zig")
# Most seconds from an empty environment to the end of `hushnet demo`.
LIMIT = 60
PROBE = Path(__file__).with_name("probe.py")


def pythons(folder: Path | None = None) -> dict[str, Path]:
    """An interpreter of each version, by version: pyenv's, or what is on PATH."""
    found: dict[str, Path] = {}
    folder = folder or Path.home() / ".pyenv/versions"
    for version in VERSIONS:
        name = ".".join(map(str, version))
        candidates = [p for p in folder.glob(f"{name}.*/bin/python") if p.exists()]
        on_path = shutil.which(f"python{name}")
        for python in [*sorted(candidates), *([Path(on_path)] if on_path else [])]:
            done = subprocess.run(
                [python, "-c", "import sys, venv; print(*sys.version_info[:2])"], capture_output=True, text=True
            )
            if done.returncode == 0 and done.stdout.split() == [str(v) for v in version]:
                found[name] = python
                break
    return found


def _run(command: list[Any], environment: dict[str, str], what: str, patience: float = 900) -> str:
    done = subprocess.run(
        [str(c) for c in command],
        env=environment,
        capture_output=True,
        text=True,
        timeout=patience,
        cwd=tempfile.gettempdir(),
    )
    if done.returncode:
        raise RuntimeError(f"{what}: status {done.returncode}: {(done.stderr or done.stdout)[-2000:]}")
    return done.stdout


def bare(folder: Path) -> dict[str, str]:
    """This environment with one folder on PATH, and no compiler in it."""
    kept = {k: v for k, v in os.environ.items() if not re.match(r"PYTHON|VIRTUAL_ENV|CC$|CXX$|RUST|CARGO", k)}
    kept["PATH"] = str(folder)
    there = [c for c in COMPILERS if shutil.which(c, path=kept["PATH"])]
    if there:
        raise RuntimeError(f"{folder} has a compiler: {', '.join(there)}")
    return kept


def demo(python: Path, wheel: Path) -> dict[str, Any]:
    """Seconds of `pip install` and of `hushnet demo` in a new environment, and what the demo said."""
    with tempfile.TemporaryDirectory(prefix="hushnet-wheel-") as place:
        home = Path(place) / "env"
        start, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
        _run([python, "-m", "venv", home], dict(os.environ), "a new environment")
        environment = bare(home / "bin")
        pip = [
            home / "bin/python",
            "-m",
            "pip",
            "install",
            "-q",
            "--disable-pip-version-check",
            "--only-binary",
            ":all:",
        ]
        _run([*pip, f"hushnet @ {wheel.resolve().as_uri()}"], environment, "pip install")
        installed = time.monotonic()
        said = _run(
            [home / "bin/hushnet", "demo", "--out", Path(place) / "demo", "--json"], environment, "hushnet demo"
        )
        ended = time.monotonic()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    answer = json.loads(said)
    return {
        "install_seconds": round(installed - start, 1),
        "demo_seconds": round(ended - installed, 1),
        "seconds": round(ended - start, 1),
        # What others do on this machine lengthens the seconds above, and not these.
        "processor_seconds": round(used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime, 1),
        "load": round(os.getloadavg()[0], 1),
        "equal_to_plaintext_fixed_point": answer["equal_to_plaintext_fixed_point"],
    }


def site(wheel: Path, version: str, folder: Path) -> None:
    """The wheel and what it needs, for arm64 and one version of Python, unpacked into a folder."""
    platforms = [f"manylinux_2_{minor}_aarch64" for minor in range(17, 37)] + ["manylinux2014_aarch64"]
    tags = [word for platform in platforms for word in ("--platform", platform)]
    command = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--only-binary", ":all:"]
    command += [*tags, "--python-version", version, "--implementation", "cp", "--abi", f"cp{version.replace('.', '')}"]
    command += ["--abi", "abi3", "--target", str(folder), str(wheel.resolve())]
    _run(command, dict(os.environ), "pip install for arm64")


def emulated(root: Path, wheel: Path, paths: tuple[str, ...] = ("portable", "")) -> dict[str, Any]:
    """All trust models on arm64 under qemu-aarch64, on each kernel path (`""`: the best), and whether paths agree."""
    emulator = shutil.which("qemu-aarch64")
    if emulator is None:
        raise RuntimeError("qemu-aarch64 is not on PATH: apt-get install qemu-user")
    root = root.resolve()
    arm = [emulator, "-L", str(root), str(root / "usr/bin/python3")]
    base = {
        "PYTHONHOME": str(root / "usr"),
        "PATH": "/nowhere",
        "OPENBLAS_NUM_THREADS": "1",
        "LANG": "C.UTF-8",
        "HOME": tempfile.gettempdir(),
    }
    version = _run([*arm, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"], base, "Python for arm64").strip()
    with tempfile.TemporaryDirectory(prefix="hushnet-arm64-") as place:
        site(wheel, version, Path(place))
        by_path = {}
        for path in paths:
            environment = base | {"PYTHONPATH": place} | ({"HUSHNET_SIMD": path} if path else {})
            by_path[path or "best"] = json.loads(_run([*arm, PROBE], environment, f"arm64, {path or 'best'} path"))
    answers = [json.dumps(found["answers"]) for found in by_path.values()]
    return {"python": version, "paths": by_path, "equal": len(set(answers)) == 1}

"""Commands of the Makefile link what ``make setup`` built: among cargo's units no library stands twice."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests import constant_time

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # pytest brings it along

ROOT = Path(__file__).resolve().parent.parent
# Crates that a feature of the ring, for tests only, makes another build of.
OURS = {"ring", "matmul", "rlwe", "mpc", "layers", "runtime"}


@dataclass(frozen=True)
class Unit:
    """One call of the compiler: a package's target, how it is compiled, and its features."""

    package: str
    name: str
    kind: str
    mode: str
    features: tuple[str, ...]

    @property
    def library(self) -> bool:
        """Whether other units link this one (procedural macros and build scripts included)."""
        return self.mode in ("build", "run-custom-build") and self.kind not in ("example", "bin", "cdylib")


def units(command: list[str]) -> dict[str, Unit]:
    """The units of a cargo command, each under a digest of all that decides whether cargo takes a built one."""
    # `cargo test -- names` would end the options; no command here has names.
    done = subprocess.run(
        [*command, "--unit-graph", "-Z", "unstable-options"],
        cwd=ROOT,
        env={**os.environ, "RUSTC_BOOTSTRAP": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    graph = json.loads(done.stdout)
    assert graph["version"] == 1, "cargo writes another form of its unit graph"
    rows: list[dict[str, Any]] = graph["units"]
    digests: dict[int, str] = {}

    def digest(index: int) -> str:
        if index not in digests:
            row = rows[index]
            own = [row[key] for key in ("pkg_id", "target", "profile", "platform", "mode", "features")]
            below = sorted((digest(d["index"]), d["extern_crate_name"]) for d in row["dependencies"])
            digests[index] = hashlib.sha256(json.dumps([own, below], sort_keys=True).encode()).hexdigest()
        return digests[index]

    return {
        digest(i): Unit(
            row["pkg_id"], row["target"]["name"], row["target"]["kind"][0], row["mode"], tuple(row["features"])
        )
        for i, row in enumerate(rows)
    }


def recipe(target: str) -> list[list[str]]:
    """The cargo commands of a target of the Makefile."""
    options = ["-o", "setup", "PROFILE=fast", "LINT_TESTS="]
    done = subprocess.run(["make", "-n", *options, target], cwd=ROOT, capture_output=True, text=True, check=True)
    # Assignments to variables stand before some of them.
    lines = [re.sub(r"""^(\w+=("[^"]*"|\S+) +)+""", "", line) for line in done.stdout.splitlines()]
    found = [shlex.split(line) for line in lines if line.startswith("cargo ")]
    assert found, done.stdout
    return found


def installed(folder: Path) -> dict[str, Unit]:
    """What maturin has cargo build for a project, in ``make setup``."""
    maturin = tomllib.loads((folder / "pyproject.toml").read_text())["tool"]["maturin"]
    package = tomllib.loads((folder / maturin["manifest-path"]).read_text())["package"]["name"]
    features = ",".join(maturin["features"])
    return units(["cargo", "build", "-p", package, "--features", features, "--profile", "fast", "--locked"])


def again(command: list[str], built: dict[str, Unit]) -> set[Unit]:
    """The libraries among what ``built`` has that a command would compile a second time."""
    packages = {(u.package, u.name, u.kind) for u in built.values() if u.library}
    return {
        u
        for key, u in units(command).items()
        if u.library and key not in built and (u.package, u.name, u.kind) in packages
    }


@pytest.fixture(scope="module")
def built() -> dict[str, Unit]:
    return installed(ROOT) | installed(ROOT / "bench")


def ours(found: set[Unit]) -> set[str]:
    """Names of our crates; fails when a crate of others is among them."""
    names = {u.name.removeprefix("hushnet_") for u in found}
    assert names <= OURS, sorted(u.package for u in found if u.name.removeprefix("hushnet_") not in OURS)
    return names


def test_both_extensions_are_linked_from_one_build_of_the_libraries() -> None:
    product, benchmarks = installed(ROOT), installed(ROOT / "bench")
    assert len(product) > 100 and any(u.name == "hushnet_runtime" for u in product.values())
    assert {u.name for key, u in benchmarks.items() if key not in product} == {"hushnet_bench", "hushnet_published"}


def test_rust_tests_link_what_setup_built(built: dict[str, Unit]) -> None:
    (tests,), (masks,) = recipe("test-rust-product"), recipe("test-rust-ledger")
    (hostile,) = recipe("test-rust-hostile")
    assert sorted(recipe("test-rust")) == sorted([tests, masks, hostile])
    # What one recipe leaves out is what the other runs, by the same program.
    left_out = tests[tests.index("--") + 1 :]
    tests = tests[: tests.index("--")]
    assert set(left_out[::2]) == {"--skip"} and hostile[-2:] == ["--test", "hostile_plans"]
    for part in left_out[1::2]:
        found = {p for p in (ROOT / "crates").rglob("*.rs") if re.search(rf"fn \w*{part}\w*\(", p.read_text())}
        assert found == {ROOT / "crates/runtime/tests/hostile_plans/main.rs"}, part
    assert {k for k, u in units(hostile).items() if u.name == "hostile_plans"} <= units(tests).keys()
    assert again(tests, built) == again(hostile, built) == set()
    # Examples are compiled by the linter: two of them have one name, and each costs seconds.
    # Extensions have no tests of their own, and no program can be linked from one.
    assert not any(u.kind in ("example", "cdylib") for u in units(tests).values())
    # Tests are built and run: of every crate that has any.
    tested = {u.name for u in units(tests).values() if u.mode == "test" and u.kind == "lib"}
    assert tested == {f"hushnet_{crate}" for crate in OURS | {"published"}}
    # The ledger is a feature of the ring, so that all that stands on it is another build, and nothing else is.
    assert ours(again(masks, built)) == OURS
    assert any(u.features == ("ledger",) for u in again(masks, built))


def test_no_document_of_a_crate_holds_a_program() -> None:
    """``make test`` calls no ``cargo test --doc``, which reads every crate for seconds: it would find nothing."""
    fence = re.compile(r"^\s*(//[/!]|\*|#!?\[doc)\s*.*(```|~~~)", re.M)
    assert fence.search("    /// ```\n") and fence.search("//! ~~~rust\n")
    sources = [p for folder in ("crates", "bench") for p in (ROOT / folder).rglob("*.rs")]
    assert len(sources) > 300
    assert [str(p) for p in sources if fence.search(p.read_text())] == []


def test_constant_time_links_what_setup_built(built: dict[str, Unit]) -> None:
    mpc, rlwe = constant_time.CRATES
    # As in the ledger's case, for the feature that marks secrets.
    assert ours(again(constant_time.command(mpc), built)) == {"ring", "mpc"}
    assert ours(again(constant_time.command(rlwe), built)) == {"ring", "rlwe", "matmul"}


def test_fuzz_targets_take_macros_and_build_scripts_that_setup_built(built: dict[str, Unit]) -> None:
    there = [
        "cargo",
        "metadata",
        "--manifest-path",
        "fuzz/Cargo.toml",
        "--locked",
        "--offline",
        "--format-version",
        "1",
    ]
    if subprocess.run(there, cwd=ROOT, capture_output=True, check=False).returncode:
        pytest.skip("crates of the fuzz targets are not here yet: `make fuzz-quick` fetches them")
    script = (ROOT / "fuzz/run.sh").read_text()
    command = shlex.split(
        re.search(r"^\s*(cargo build .*)$", script, re.M)[1].replace("$HOST", "x86_64-unknown-linux-gnu")
    )
    assert "export CARGO_TARGET_DIR=${FUZZ_TARGET_DIR:-$PWD/target}\n" in script
    found = units(command)
    macros = {u.name for u in found.values() if u.kind == "proc-macro"}
    assert {"serde_derive", "prost_derive", "tokio_macros"} <= macros
    assert macros.isdisjoint(u.name for key, u in found.items() if key not in built)


def test_lint_takes_macros_that_setup_built_and_checks_dependencies_once(built: dict[str, Unit]) -> None:
    lint = [shlex.split(shlex.join(command).split(" -- ")[0]) for command in recipe("lint-rust")[1:]]
    commands = [c if c[1] == "doc" else [c[0], "check", *(w for w in c[2:] if w != "--no-deps")] for c in lint]
    assert [command[1] for command in lint] == ["clippy", "clippy", "doc"]
    workspace, ledger, documents = (units(command) for command in commands)
    for found in (workspace, ledger, documents):
        macros = {u.name for u in found.values() if u.kind == "proc-macro" and u.mode == "build"}
        assert {"serde_derive", "tokio_macros"} <= macros
    for command in commands:
        assert not any(u.kind == "proc-macro" for u in again(command, built))
    twice = {u.name for key, u in ledger.items() if key not in workspace and "crates.io" in u.package}
    # Those whose features are others for the kernels' benchmarks
    assert len(twice) <= 14, sorted(twice)
    checked_for_documents(documents, workspace)


def checked_for_documents(documents: dict[str, Unit], checked: dict[str, Unit]) -> None:
    """Rustdoc reads what the linter has checked: it compiles nothing."""
    assert {u.name for key, u in documents.items() if key not in checked and u.mode != "doc"} == set()
    assert any(u.mode == "check" and u.name == "hushnet_ring" for u in documents.values())


def test_documents_for_browsers_read_what_the_linter_has_checked() -> None:
    there = ["cargo", "metadata", "--locked", "--offline", "--format-version", "1"]
    for_browsers = ["--filter-platform", "wasm32-unknown-unknown"]
    if subprocess.run([*there, *for_browsers], cwd=ROOT, capture_output=True, check=False).returncode:
        pytest.skip("crates of the browser's module are not here yet: `make web` fetches them")
    lint, documents = recipe("lint-web")
    checked = [lint[0], "check", *lint[2 : lint.index("--")]]
    checked_for_documents(units(documents), units(checked))


@pytest.mark.parametrize("target", ["lint-rust", "lint-web"])
def test_rustdoc_calls_the_compiler_that_the_linter_calls(target: str) -> None:
    """Checked crates are clippy's own: cargo takes them for a command with the same driver and the same arguments."""
    done = subprocess.run(["make", "-n", "-o", "setup", target], cwd=ROOT, capture_output=True, text=True, check=True)
    (line,) = (line for line in done.stdout.splitlines() if " cargo doc " in line)
    words = shlex.split(line)
    given = dict(word.split("=", 1) for word in words[: words.index("cargo")])
    sysroot = subprocess.run(["rustc", "--print", "sysroot"], capture_output=True, text=True, check=True).stdout.strip()
    assert given["RUSTC_WORKSPACE_WRAPPER"] == f"{sysroot}/bin/clippy-driver"
    (lint,) = (
        line for line in done.stdout.splitlines() if "cargo clippy --workspace" in line or "cargo clippy -q" in line
    )
    arguments = shlex.split(lint)
    arguments = arguments[arguments.index("--") + 1 :]
    assert given["CLIPPY_ARGS"] == "".join(f"{word}__CLIPPY_HACKERY__" for word in arguments)
    assert "--no-deps" not in lint


def test_a_command_that_diverges_is_seen(built: dict[str, Unit]) -> None:
    (tests,) = recipe("test-rust-product")
    tests = tests[: tests.index("--")]
    plain = [word for word in tests if not word.startswith(("--features", "pyo3/"))]
    for name in ("hushnet-python", "hushnet-bench"):
        plain += ["--exclude", name]
    assert {"hyper", "hushnet_runtime"} <= {u.name for u in again(plain, built)}
    other = ["release" if word == "fast" else word for word in tests]
    assert len(again(other, built)) > 100


def test_the_wheel_of_ci_is_linked_from_what_setup_built() -> None:
    profiles = dict(re.findall(r"(\w*PROFILE)=(\w+)", (ROOT / ".ci/run").read_text()))
    assert profiles == {"PROFILE": "fast", "WHEEL_PROFILE": "fast"}


@pytest.mark.parametrize(
    ("given", "level"),
    [
        (["--crate-name", "sockets", "--test"], "0"),
        (["--crate-name", "hushnet_ring", "--test"], "1"),
        (["--crate-name", "hushnet_ring", "--crate-type", "lib"], None),
    ],
)
def test_only_programs_of_tests_are_built_with_less_optimisation(given: list[str], level: str | None) -> None:
    """Libraries stay those of `make setup`: `tests/rustc.sh` hands them on as they came."""
    plain = {name: value for name, value in os.environ.items() if name != "HUSHNET_CLIPPY_DRIVER"}
    wrapper = [ROOT / "tests/rustc.sh", "echo"]
    said = subprocess.run([*wrapper, *given], capture_output=True, text=True, check=True, env=plain).stdout
    behind = [] if level is None else f"-C opt-level={level} -C debug-assertions=off -C overflow-checks=off".split()
    assert said.split() == [*given, *behind]
    # The driver stands in front of them, and of nothing else.
    linted = {**plain, "HUSHNET_CLIPPY_DRIVER": "echo"}
    said = subprocess.run([*wrapper, *given], capture_output=True, text=True, check=True, env=linted).stdout
    assert said.split() == [*(["echo"] if level else []), *given, *behind]


@pytest.mark.parametrize(
    ("options", "code", "fails"),
    [
        (["--test"], "#[test]\nfn one() -> () {\n    return;\n}\n", True),
        (["--test"], "#[test]\nfn one() {}\n", False),
        # The ring with the ledger, which no command of the linter reads in CI.
        (["--cfg", 'feature="ledger"', "--crate-type", "lib"], "pub fn one() -> () {\n    return;\n}\n", True),
        # A library of the product is compiled by rustc: its code is what users run.
        (["--crate-type", "lib"], "pub fn one() -> () {\n    return;\n}\n", False),
    ],
)
def test_programs_of_tests_are_linted_as_they_are_built(
    tmp_path: Path, options: list[str], code: str, fails: bool
) -> None:
    """With ``LINT_TESTS=1``, as in CI, where ``lint-rust`` leaves them out."""
    sysroot = subprocess.run(["rustc", "--print", "sysroot"], capture_output=True, text=True, check=True).stdout.strip()
    driver = Path(sysroot, "bin/clippy-driver")
    if not driver.exists():
        pytest.skip("clippy is not installed beside rustc")
    (tmp_path / "one.rs").write_text(code)
    done = subprocess.run(
        [ROOT / "tests/rustc.sh", "rustc", "one.rs", "--crate-name", "one", "--edition", "2021", *options],
        cwd=tmp_path,
        env={**os.environ, "HUSHNET_CLIPPY_DRIVER": str(driver)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert bool(done.returncode) == fails, done.stderr
    assert ("needless_return" in done.stderr) == fails

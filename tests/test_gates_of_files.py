"""Gates of documents, licences, the wheel and the Makefile report planted violations, as ``test_gates.py`` has it."""

from __future__ import annotations

import re
import shutil
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from hushnet import _native
from hushnet.cli.main import VERBS

from tests.gates import documents, licences, wheel
from tests.planted import append, only, replace

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parent.parent


# What users install


def test_the_users_extension_exports_nothing_that_benchmarks_measure() -> None:
    measuring = wheel.exports(ROOT, "bench")
    assert {
        "Ckks",
        "PackedRun",
        "measure_relu",
        "rotation_free_layer",
        "slot_layer_measure",
        "ngraph_primitives",
    } <= measuring
    assert not measuring & set(dir(_native))
    # The gate reads the names that there are.
    assert wheel.exports(ROOT, "python") <= set(dir(_native))


def test_a_measuring_function_or_package_in_the_wheels_sources_is_reported(tree: Path) -> None:
    for name, planted, told in (
        (
            "crates/python/src/slots.rs",
            "fn more(m: &M) { m.add_function(wrap_pyfunction!(slot_layer_measure, m)?); }\n",
            "slot_layer_measure is what benchmarks measure",
        ),
        (
            "crates/python/src/packed.rs",
            "fn more(m: &M) { m.add_class::<packed::PackedRun>()?; }\n",
            "PackedRun is what benchmarks measure",
        ),
        ("crates/python/src/slots.rs", "use hushnet_rlwe::ckks::Insecure;\n", "must not name Insecure"),
    ):
        text = (tree / name).read_text()
        append(tree, name, planted)
        only(wheel.problems(tree), told)
        (tree / name).write_text(text)
    (tree / "python/hushnet_bench").mkdir()
    only(wheel.problems(tree), "python/hushnet_bench: the wheel's sources")


def test_settings_that_take_more_into_the_wheel_are_reported(tree: Path) -> None:
    replace(
        tree, "pyproject.toml", 'python-source = "python"', 'python-source = "bench/python"\ninclude = ["bench/**"]'
    )
    assert ["must say python-source" in p or "must not include" in p for p in wheel.problems(tree)] == [True, True]


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("hushnet_bench/registry.py", b"", "is not of package hushnet"),
        ("hushnet/bench/registry.py", b"", "is not in python/hushnet"),
        ("hushnet/_native.abi3.so", b"\x7fELF\0rotation_free_layer\0", "holds rotation_free_layer"),
        ("hushnet/_native.abi3.so", b"\x7fELF\0bench/published/src/lib.rs\0", "holds bench/published"),
        ("hushnet/_native.abi3.so", b"\x7fELF\0_ZN17hushnet_published6attack\0", "holds hushnet_published"),
        ("hushnet/more.abi3.so", b"\x7fELF", "2 extensions"),
    ],
)
def test_a_wheel_that_holds_benchmarks_is_reported(tmp_path: Path, name: str, content: bytes, told: str) -> None:
    files = {
        "hushnet/__init__.py": b"",
        "hushnet/_native.abi3.so": b"\x7fELF\0slot_layer_cost\0",
        "hushnet-0.1.0.dist-info/METADATA": b"",
    }
    path = tmp_path / "hushnet-0.1.0-cp310-abi3-linux_x86_64.whl"
    for planted in ({}, {name: content}):
        with zipfile.ZipFile(path, "w") as archive:
            for file, text in (files | planted).items():
                archive.writestr(file, text)
        found = wheel.contents(ROOT, path)
        assert any(told in p for p in found) if planted else found == [], found
    assert wheel.main(ROOT, [str(path)]) == 1 and wheel.main(ROOT, []) == 1


# Documents


@pytest.mark.parametrize(
    ("name", "planted", "told"),
    [
        ("docs/mpc.md", "\nSee [there](nowhere.md).\n", "nowhere.md leads nowhere"),
        ("docs/mpc.md", "\nSee [there](two-party.md#no-such-heading).\n", "#no-such-heading"),
        ("README.md", "\nIn `crates/ring/src/absent.rs`.\n", "`crates/ring/src/absent.rs`"),
        ("SECURITY.md", "\nIn `planner/absent.py`.\n", "`planner/absent.py`"),
        ("docs/non-interactive.md", "\nThe scheme (`papers/some.txt`).\n", "papers/s"),
        ("docs/mpc.md", "\nAs in two-party.md, *No such heading*.\n", "'No such heading'"),
        ("docs/mpc.md", "\nAs fact 9 of two-party.md says.\n", "no fact 9"),
        ("docs/functions.md", "\nAs fact 1 says.\n", "without its place"),
        ("crates/ring/src/prime.rs", "// `docs/absent.md` has the argument.\n", "docs/absent.md"),
        ("crates/rlwe/src/packed/mod.rs", "// (facts 1 and 2 of the protocols' page)\n", "protocols' page"),
        ("crates/rlwe/src/packed/mod.rs", "// `protocols`, section 5.\n", "`protocols`"),
        ("python/hushnet/graph.py", "# see crates/runtime/src/server/mod.rs\n", "crates/runtime/src/server/mod.rs"),
        ("docs/serving.md", "\nBy `cargo test -p hushnet-runtime --test absent tls`.\n", "no such test program"),
        ("docs/serving.md", "\nBy `cargo test -p hushnet-runtime --test waiting absence`.\n", "no test has absence"),
        ("docs/serving.md", "\nBy `cargo test -p hushnet-runtime --lib counted::absence`.\n", "no test has counted"),
        ("docs/serving.md", "\nAnd `--test waiting`.\n", "no whole command"),
        ("docs/serving.md", '\nBy `pytest tests/test_serve.py -k "trace or absence"`.\n', "no test has absence"),
    ],
)
def test_a_citation_of_what_is_not_in_the_tree_is_reported(tree: Path, name: str, planted: str, told: str) -> None:
    append(tree, name, planted)
    found = documents.problems(tree)
    assert found and all(p.startswith(f"{name}:") for p in found) and any(told in p for p in found), found


def test_a_document_or_file_that_is_taken_away_is_reported(tree: Path) -> None:
    (tree / "docs/plan-format.md").unlink()
    found = documents.problems(tree)
    assert "docs/plan-format.md: this document is missing" in found
    assert any(p.startswith("docs/non-interactive.md:") and "plan-format.md leads nowhere" in p for p in found)
    assert any(p.startswith("crates/") and "docs/plan-format.md is cited" in p for p in found)


def test_the_readme_and_security_say_the_same_of_values_outside_their_ranges() -> None:
    claims = []
    for name in ("README.md", "SECURITY.md"):
        text = " ".join((ROOT / name).read_text().split())
        claims.append(re.findall(r"With `client-aided`, a row of which a value left .*? wrong without notice\.", text))
        # Nothing else is promised of wrong answers.
        assert not re.findall(r"never a wrong answer", text), name
    assert len(claims[0]) == 1 and claims[0] == claims[1]


def test_a_fact_without_its_heading_is_reported(tree: Path) -> None:
    replace(tree, "docs/two-party.md", "### Fact 2: noise tells the weights", "### Noise tells the weights")
    found = documents.problems(tree)
    assert any(p.startswith("crates/rlwe/src/bfv/finish.rs:") and "no fact 2" in p for p in found)
    assert any(p.startswith("docs/rotation-free.md:") and "#fact-2-noise-tells-the-weights" in p for p in found)


# Licences, and what the Makefile runs


def test_every_dependency_of_the_package_is_judged_and_an_absent_one_is_reported(tmp_path: Path) -> None:
    names, problems = licences.required(ROOT)
    assert {"numpy", "onnx", "protobuf", "typer", "rich", "matplotlib"} <= names and problems == []
    text = (ROOT / "pyproject.toml").read_text()
    (tmp_path / "bench").mkdir()
    shutil.copy(ROOT / "bench/pyproject.toml", tmp_path / "bench")
    (tmp_path / "pyproject.toml").write_text(
        text.replace('dependencies = ["numpy>=1.24"', 'dependencies = ["numpy>=1.24", "absent-package"', 1)
    )
    names, problems = licences.required(tmp_path)
    only(problems, "absent-package", "not installed")
    rows = [{"Name": "NumPy", "License": "BSD-3-Clause AND 0BSD AND MIT"}]
    assert licences.judge({"numpy"}, rows) == []
    only(licences.judge({"numpy", "absent-package"}, rows), "absent-package", "says nothing")
    only(
        licences.judge({"numpy"}, [{"Name": "numpy", "License": "BSD; GNU General Public License v3"}]),
        "numpy",
        "GNU General Public License",
    )
    assert licences.judge({"numpy"}, [{"Name": "numpy", "License": "GPL-3.0 OR MIT"}]) == []
    only(licences.judge({"numpy"}, [{"Name": "numpy", "License": "UNKNOWN"}]), "UNKNOWN")


def test_extras_that_are_not_installed_are_judged_by_what_they_say_of_themselves() -> None:
    named = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(licences.EXTRAS + licences.OTHERS) == set(named) - {"test"}

    def said(name: str, **metadata: Any) -> list[str]:
        row = licences.stated({"name": name, **metadata})
        return licences.judge({row["Name"]}, [row])

    classifier = ["License :: OSI Approved :: GNU General Public License v3 (GPLv3)"]
    assert said("a", license_expression="Apache-2.0 OR BSD-2-Clause") == said("b", license="3-Clause BSD License") == []
    only(said("c", license="the whole\ntext", classifier=classifier), "GNU General Public License")
    only(said("d"), "UNKNOWN")
    assert said("certifi", license="MPL-2.0") == []
    only(said("other", license="MPL-2.0"), "MPL-2.0")
    only(said("certifi", license="GPL-3.0"), "GPL-3.0")


def test_lint_reads_every_crate_and_runs_the_gates() -> None:
    makefile = (ROOT / "Makefile").read_text()
    parts = ("lint-rust", "lint-python", "lint-web", "lint-fuzz")
    rules = {name: makefile.split(f"\n{name}:", 1)[1].split("\n\n", 1)[0] for name in ("lint", *parts)}
    assert set(parts) <= set(rules["lint"].split())
    lint = "".join(rules[name] for name in parts)
    # Examples, benches and tests of all members, the Python extension included; the workspace excludes fuzz only, the
    # masks are apart, because nothing of the product is built with their ledger, and the browser's module is checked
    # for what it is compiled for.
    clippy = re.findall(r"cargo clippy (.*)", lint)
    assert all(c.removesuffix(")").endswith("-- -D warnings") for c in clippy)
    everything = [c for c in clippy if "--workspace" in c]
    assert len(everything) == 1 and re.findall(r"--exclude (\S+)", everything[0]) == ["hushnet-masks", "hushnet-wasm"]
    assert "$(LINTED)" in everything[0]
    # Either all targets, or all but programs of tests, which clippy's driver then compiles (tests/test_builds.py).
    linted = re.search(r"^LINTED = \$\(if \$\(LINT_TESTS\),(.*),(.*)\)$", makefile, re.M)
    assert linted and linted.groups() == ("--lib --bins --examples --benches", "--all-targets")
    exported = re.search(r"^(test-rust-.*): export HUSHNET_CLIPPY_DRIVER = \$\(CLIPPY_DRIVER\)$", makefile, re.M)
    programs = set(re.findall(r"^(test-rust-\w+):$", makefile, re.M))
    assert exported and set(exported[1].split()) == programs and len(programs) == 3
    assert any("-p hushnet-masks -p hushnet-ring" in c and "--no-deps --all-targets" in c for c in clippy)
    assert any("$(WASM_CRATES) --lib $(WASM_BUILD)" in c for c in clippy)
    assert re.search(r"^WASM_CRATES := \$\(foreach crate,ring matmul rlwe layers mpc runtime wasm,", makefile, re.M)
    assert "fuzz/run.sh lint" in rules["lint-fuzz"]
    documents = re.findall(r"RUSTDOCFLAGS=\"-D warnings\" cargo doc (.*)", lint)
    assert [re.findall(r"--workspace|-p \S+", c) for c in documents] == [["--workspace"], ["-p hushnet-wasm"]]
    # CI lints the fuzz targets where it builds them, and the rest by these rules.
    ci = (ROOT / ".ci/run").read_text()
    lanes = {target for lane in re.findall(r"^\s*lane \w+ (.*)", ci, re.M) for target in lane.split()}
    assert set(parts) - lanes == {"lint-fuzz"} and "fuzz-quick" in lanes
    build = (ROOT / "fuzz/run.sh").read_text().split("\nbuild() {", 1)[1].split("\n}\n", 1)[0]
    assert "RUSTC_WORKSPACE_WRAPPER=$driver" in build and "warnings" in build
    assert "-m tests.gates" in lint
    workspace = (ROOT / "Cargo.toml").read_text()
    assert (
        'members = ["crates/*", "bench/kernels", "bench/native", "bench/published"]' in workspace
        and 'exclude = ["fuzz", "web/bindgen"]' in workspace
    )


def test_commands_stand_in_files_of_their_own() -> None:
    """One file a verb, so that no file of the command line holds several."""
    files = {p.stem: p.read_text().count("\n") for p in (ROOT / "python/hushnet/cli").glob("*.py")}
    assert len(files) > len(VERBS) and max(files.values()) <= 400, files
    for verb in VERBS.values():
        assert verb.__module__ != "hushnet.cli.main", verb
    assert len({verb.__module__ for verb in VERBS.values()}) == len(VERBS)

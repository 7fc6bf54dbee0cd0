"""Gates report planted violations: each test changes one thing in a copy of this tree, and the gate names it."""

from __future__ import annotations

import re
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest
from hushnet import _native

from tests.gates import descriptions, documents, fuzzing, imports, licences, modules, secrets, truths, wheel

ROOT = Path(__file__).resolve().parent.parent
LEFT_OUT = shutil.ignore_patterns(
    "target", ".venv", ".git", "__pycache__", ".pytest_cache", ".hypothesis", "*.so", "out", "shared"
)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of what gates read."""
    copy = tmp_path / "tree"
    shutil.copytree(ROOT, copy, ignore=LEFT_OUT)
    return copy


def append(tree: Path, name: str, text: str) -> None:
    path = tree / name
    path.write_text(path.read_text() + text)


def replace(tree: Path, name: str, old: str, new: str) -> None:
    path = tree / name
    text = path.read_text()
    assert text.count(old) >= 1, f"{name} has no {old!r}"
    path.write_text(text.replace(old, new, 1))


def only(problems: list[str], *parts: str) -> None:
    """There is one problem, and it says all of this."""
    assert len(problems) == 1, problems
    for part in parts:
        assert part in problems[0], (part, problems)


def test_this_tree_has_no_violation() -> None:
    for gate in (modules, imports, secrets, documents, descriptions, wheel, fuzzing):
        assert gate.problems(ROOT) == []


# Descriptions of public items


@pytest.fixture
def ring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tree with one crate."""
    shutil.copytree(ROOT / "crates/ring/src", tmp_path / "crates/ring/src")
    monkeypatch.setattr(descriptions, "CRATES", ("ring",))
    short = sum(item.part and item.words <= descriptions.WORDS for item in descriptions.items(tmp_path))
    monkeypatch.setattr(descriptions, "CEILING", short)
    return tmp_path


@pytest.mark.parametrize(
    ("planted", "name"),
    [
        ("/// Some shape.\npub fn planted() {}\n", "planted"),
        ("/// Some shape.\n#[must_use]\npub const fn planted() -> u8 {\n    0\n}\n", "planted"),
        ("/// Some shape.\npub struct Planted;\n", "Planted"),
        (
            "/// What a planted type of this test has to offer.\npub trait T {\n    /// It.\n    fn planted();\n}\n",
            "planted",
        ),
        ("/// Some number.\npub const PLANTED: u8 = 1;\n", "PLANTED"),
    ],
)
def test_a_short_description_is_reported(ring: Path, planted: str, name: str) -> None:
    assert descriptions.problems(ring) == []
    append(ring, "crates/ring/src/prime.rs", planted)
    only(descriptions.problems(ring), "ring/src/prime.rs", f"{name} is described in", "say what it is")


def test_short_fields_and_variants_may_not_grow_in_number(ring: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = descriptions.CEILING
    described = "/// A type of this test that has a part.\npub "
    append(ring, "crates/ring/src/prime.rs", described + "struct P {\n    /// A.\n    pub a: u8,\n}\n")
    only(descriptions.problems(ring), f"{now + 1} public fields", f"there may be {now}")
    append(ring, "crates/ring/src/prime.rs", described + "enum E {\n    /// A.\n    A,\n    /// B.\n    B(u8),\n}\n")
    only(descriptions.problems(ring), f"{now + 3} public fields")
    monkeypatch.setattr(descriptions, "CEILING", now + 4 + descriptions.SLACK)
    only(descriptions.problems(ring), "lower CEILING")


# Items of fuzz builds


@pytest.mark.parametrize(
    "planted", ["#[cfg(fuzzing)]\npub fn planted() {}\n", "fn planted() -> bool { cfg!(any(fuzzing, test)) }\n"]
)
def test_an_item_of_fuzz_builds_elsewhere_is_reported(tree: Path, planted: str) -> None:
    append(tree, "crates/runtime/src/two_party/client.rs", planted)
    only(fuzzing.problems(tree), "crates/runtime/src/two_party/client.rs:", "fuzz builds")


def test_a_build_of_the_product_with_items_of_fuzz_builds_is_reported(tree: Path) -> None:
    (tree / ".cargo").mkdir()
    (tree / ".cargo/config.toml").write_text('[build]\nrustflags = ["--cfg", "fuzzing"]\n')
    only(fuzzing.problems(tree), ".cargo/config.toml", "--cfg fuzzing")
    shutil.rmtree(tree / ".cargo")
    append(tree, "Makefile", "planted:\n\tRUSTFLAGS='--cfg fuzzing' maturin develop\n")
    only(fuzzing.problems(tree), "Makefile", "maturin develop")


def test_hooks_and_flags_that_are_missing_are_reported(tree: Path) -> None:
    replace(tree, "crates/mpc/src/session.rs", "#[cfg(fuzzing)]", "")
    replace(tree, "fuzz/run.sh", "--cfg fuzzing", "")
    found = fuzzing.problems(tree)
    assert len(found) == 2
    assert any("session.rs" in p and "take its row out" in p for p in found) and any("fuzz/run.sh" in p for p in found)


# Crates and modules


@pytest.mark.parametrize(
    ("planted", "section"),
    [
        ("[dependencies]\nhushnet-layers.workspace = true\n", "[dependencies]"),
        ('[dependencies]\nthings = { path = "../layers" }\n', "[dependencies]"),
        ('[dependencies]\nthings = { package = "hushnet-layers", version = "0" }\n', "[dependencies]"),
        ('[dependencies.hushnet-layers]\npath = "../layers"\n', "[dependencies]"),
        ("[target.'cfg(target_os = \"linux\")'.dependencies]\nhushnet-layers.workspace = true\n", "cfg(target_os"),
        ("[build-dependencies]\nhushnet-layers.workspace = true\n", "[build-dependencies]"),
        ("[dev-dependencies]\nhushnet-layers.workspace = true\n", "[dev-dependencies]"),
    ],
)
def test_a_crate_that_depends_upward_is_reported_in_every_form_of_dependency(
    tree: Path, planted: str, section: str
) -> None:
    head = '[package]\nname = "hushnet-matmul"\n'
    (tree / "crates/matmul/Cargo.toml").write_text(head + planted)
    only(modules.problems(tree), "crates/matmul/Cargo.toml", section, "hushnet-layers")


def test_crates_that_are_missing_or_new_are_reported(tree: Path) -> None:
    (tree / "crates/ring/Cargo.toml").unlink()
    only(modules.problems(tree), "crates/ring", "there is none")
    (tree / "crates/novel").mkdir()
    (tree / "crates/novel/Cargo.toml").write_text('[package]\nname = "hushnet-novel"\n')
    assert any("crates/novel" in p and "not in the table" in p for p in modules.problems(tree))
    (tree / "fuzz/Cargo.toml").unlink()
    assert any("fuzz/Cargo.toml" in p and "there is none" in p for p in modules.problems(tree))
    (tree / "bench/published/Cargo.toml").unlink()
    (tree / "bench/novel").mkdir()
    (tree / "bench/novel/Cargo.toml").write_text('[package]\nname = "hushnet-novel-bench"\n')
    found = modules.problems(tree)
    assert any("bench/published" in p and "there is none" in p for p in found) and any(
        "bench/novel" in p and "not in the table" in p for p in found
    )


def test_a_crate_of_the_product_that_depends_on_benchmarks_is_reported(tree: Path) -> None:
    forms = (
        "hushnet-published.workspace = true",
        'things = { path = "../../bench/published" }',
        'things = { package = "hushnet-bench", version = "0" }',
    )
    for crate in ("layers", "runtime", "python", "masks"):
        path = tree / f"crates/{crate}/Cargo.toml"
        text = path.read_text()
        for planted in forms:
            path.write_text(f'[package]\nname = "hushnet-{crate}"\n[dependencies]\n{planted}\n')
            only(modules.problems(tree), f"crates/{crate}/Cargo.toml", "must not name hushnet-")
        path.write_text(text)


@pytest.mark.parametrize(
    "planted",
    [
        "use crate::one_poly::OnePolySpec;\n",
        "use crate::{security::TABLE_128 as t, one_poly::{self, OnePolySpec as Spec}};\n",
        "fn planted() { let _ = super::one_poly::MAX; }\n",
        "/// Re-exported at the root.\nuse crate::ClientKey;\n",
    ],
)
def test_a_module_that_uses_one_above_it_is_reported(tree: Path, planted: str) -> None:
    append(tree, "crates/rlwe/src/security.rs", planted)
    only(modules.problems(tree), "crates/rlwe/src/security.rs:", "module security must not use module")


@pytest.mark.parametrize(
    ("file", "planted", "target"),
    [
        # Transport knows the traits of sessions, and no trust model; a trust model knows no other one, and no
        # connection.
        ("transport/server.rs", "use crate::two_party::TwoPartyModel;\n", "two_party"),
        ("transport/bridge.rs", "use crate::ServerPlan;\n", "client_aided"),
        ("two_party/client.rs", "use crate::client_aided::Client as _;\n", "client_aided"),
        ("non_interactive/server.rs", "fn planted() { let _ = crate::transport::connect; }\n", "transport"),
    ],
)
def test_a_transport_that_names_a_trust_model_and_trust_models_that_name_others_are_reported(
    tree: Path, file: str, planted: str, target: str
) -> None:
    append(tree, f"crates/runtime/src/{file}", planted)
    only(modules.problems(tree), f"crates/runtime/src/{file}:", f"must not use module {target}")


def test_modules_in_comments_strings_and_tests_are_none(tree: Path) -> None:
    planted = (
        '// crate::one_poly\n/* crate::one_poly */\nconst P: &str = "crate::one_poly::X";\n#[cfg(test)]\nmod more { '
        "use crate::one_poly::OnePolySpec; }\n"
    )
    append(tree, "crates/rlwe/src/security.rs", planted)
    assert modules.problems(tree) == []


def test_modules_that_are_missing_or_new_are_reported(tree: Path) -> None:
    (tree / "crates/rlwe/src/security.rs").unlink()
    (tree / "crates/rlwe/src/novel.rs").write_text("//! New.\n")
    found = modules.problems(tree)
    assert any("names module security" in p for p in found) and any(
        "module novel is not in the table" in p for p in found
    )


# Second truths


@pytest.mark.parametrize(
    ("planted", "said"),
    [
        ("def noise(x):\n    return 7.631 * x\n", "read _native.ERROR_TAIL"),
        ("LIMITS = {'key': 32 + 25600}\n", "read bytes_key"),
        ("HEADER_BYTES = 16\n", "HEADER_BYTES is the run time's"),
        ("CHEAP_MODULUS_BITS: dict = {2048: 42}\n", "read _native.single_part_bits"),
        ("TAIL, STATISTICAL_BITS = 3.0, 40.0\n", "read _native.STATISTICAL_BITS"),
    ],
)
def test_a_constant_of_the_run_time_that_is_typed_again_is_reported(tree: Path, planted: str, said: str) -> None:
    append(tree, "python/hushnet/planner/cost.py", planted)
    only(truths.problems(tree), "python/hushnet/planner/cost.py:", said)


def test_constants_that_are_read_are_fine_and_a_second_check_is_not(tree: Path) -> None:
    append(
        tree,
        "python/hushnet/planner/cost.py",
        "VERSION = _native.PLAN_VERSION\nERROR_TAIL, OTHER = _native.ERROR_TAIL, 3\n",
    )
    assert truths.problems(tree) == []
    (tree / "python/hushnet/planner/validate.py").write_text("")
    only(truths.problems(tree), "planner/validate.py", "_native.check_plan alone")


# Python imports


@pytest.mark.parametrize(
    ("module", "planted", "target"),
    [
        ("plan.py", "from .planner.read import validate\n", "hushnet.planner"),
        ("plan.py", "def late():\n    from . import planner\n", "hushnet.planner"),
        ("graph.py", "import hushnet.api\n", "hushnet.api"),
        (
            "reference/numpy.py",
            "class Late:\n    def run(self):\n        from ..planner import compile\n",
            "hushnet.planner",
        ),
        ("passes/__init__.py", "from ..frontend import load\n", "hushnet.frontend"),
        ("planner/cost.py", "from hushnet import Model\n", "must not import hushnet"),
        ("report/render.py", "import importlib\nlate = importlib.import_module('hushnet.cli.main')\n", "hushnet.cli"),
    ],
)
def test_an_import_that_points_upward_is_reported_wherever_it_stands(
    tree: Path, module: str, planted: str, target: str
) -> None:
    append(tree, f"python/hushnet/{module}", planted)
    only(imports.problems(tree), f"python/hushnet/{module}:", target)


def test_python_modules_that_are_missing_or_new_are_reported(tree: Path) -> None:
    (tree / "python/hushnet/novel.py").write_text("")
    only(imports.problems(tree), "module novel is not in the table")
    (tree / "python/hushnet/novel.py").unlink()
    (tree / "python/hushnet/graph.py").unlink()
    assert any("names module graph, and there is none" in p for p in imports.problems(tree))


def test_imports_between_the_product_and_its_benchmarks_that_the_table_forbids_are_reported(tree: Path) -> None:
    for module, planted, told in (
        (
            "python/hushnet/planner/cost.py",
            "def late():\n    import hushnet_bench\n",
            "hushnet.planner must not import hushnet_bench",
        ),
        (
            "python/hushnet/api.py",
            "from hushnet_bench.registry import run\n",
            "hushnet.api must not import hushnet_bench",
        ),
        (
            "bench/python/hushnet_bench/measure.py",
            "from hushnet.cli.main import app\n",
            "hushnet_bench must not import hushnet.cli",
        ),
        (
            "bench/python/hushnet_bench/measure.py",
            "import hushnet.report\n",
            "hushnet_bench must not import hushnet.report",
        ),
        ("bench/python/hushnet_bench/executors/seal.py", "import seal\n", "no cryptography, and must not import seal"),
        (
            "bench/python/hushnet_bench/programs/worker.py",
            "from hushnet import data\n",
            "hushnet_bench must not import hushnet",
        ),
    ):
        text = (tree / module).read_text()
        append(tree, module, planted)
        only(imports.problems(tree), f"{module}:", told)
        (tree / module).write_text(text)


def test_a_missing_package_of_benchmarks_is_reported(tree: Path) -> None:
    shutil.rmtree(tree / "bench/python")
    only(imports.problems(tree), "hushnet_bench", "there is none")


def test_cryptography_in_python_is_reported(tree: Path) -> None:
    append(
        tree, "python/hushnet/data/digits.py", "def key():\n    import secrets\n    return secrets.token_bytes(32)\n"
    )
    only(imports.problems(tree), "python/hushnet/data/digits.py:", "no cryptography", "secrets")


# Secrets


@pytest.mark.parametrize("side", ["server", "client"])
def test_a_side_that_names_a_secret_of_the_other_is_reported_in_every_file_of_every_trust_model(
    tree: Path, side: str
) -> None:
    files, planted = {
        "server": (secrets.SERVER_FILES, "use hushnet_rlwe::batch_shares::ShareKey;\n"),
        "client": (secrets.CLIENT_FILES, "use hushnet_layers::cheetah::CheetahLinear;\n"),
    }[side]
    assert set(files) == {"all", "client-aided", "two-party", "non-interactive"} and all(files.values())
    name = {"server": "ShareKey", "client": "CheetahLinear"}[side]
    for trust, names in files.items():
        for file in names:
            path = tree / "crates" / file
            text = path.read_text()
            path.write_text(planted + text)
            only(secrets.problems(tree), f"crates/{file}:1: the {side}'s side ({trust}) must not name {name}")
            path.write_text(text)


def test_every_secret_of_a_client_is_reported_where_a_server_names_it(tree: Path) -> None:
    path = tree / "crates/runtime/src/two_party/server.rs"
    text = path.read_text()
    places = [(place, kind) for place, kinds in secrets.CLIENT.items() for kind in sorted(kinds)]
    for number, (place, kind) in enumerate(places):
        crate, *parts = place.removesuffix(".rs").removesuffix("/mod").split("/")
        way = "::".join(["crate" if crate == "runtime" else f"hushnet_{crate}", *parts[1:]])
        forms = f"use {way}::{kind};\n", f"use {way}::{{self, {kind} as _}};\n", f"fn planted(_: &{way}::{kind}) {{}}\n"
        path.write_text(text + forms[number % len(forms)])
        found = [p for p in secrets.problems(tree) if "must not name" in p]
        assert any(f"must not name {kind} of crates/{place}" in p for p in found), (forms[number % len(forms)], found)


@pytest.mark.parametrize(
    ("name", "planted", "told"),
    [
        # A half of a method in a file of both.
        (
            "layers/src/slots/linear.rs",
            "impl SlotLinear {\n    fn planted(&self, key: &SecretKey) {}\n}\n",
            "SlotLinear) must not name SecretKey",
        ),
        (
            "layers/src/cheetah/client.rs",
            "impl CheetahClient {\n    fn planted(&self, w: &WeightPoly) {}\n}\n",
            "must not name WeightPoly",
        ),
        # Ways round the name.
        ("runtime/src/two_party/server.rs", "use super::methods::slots::client::*;\n", "must not import all names"),
        ("rlwe/src/bfv/mod.rs", "pub use client::SecretKey as Handle;\n", "must not have another name"),
        ("rlwe/src/bfv/mod.rs", "pub type Handle = client::SecretKey;\n", "must not have another name"),
        # Types that nobody has classified.
        ("rlwe/src/bfv/noise.rs", "pub struct NovelKey(Vec<u64>);\n", "whose secret NovelKey is"),
        (
            "runtime/src/compute.rs",
            "struct Wiped(Vec<u8>);\nimpl Drop for Wiped {\n    fn drop(&mut self) {\n       "
            " self.0.zeroize();\n    }\n}\n",
            "whose secret Wiped is",
        ),
        ("mpc/src/ring.rs", "#[derive(Clone, ZeroizeOnDrop)]\npub struct Wiped(Vec<u8>);\n", "whose secret Wiped is"),
        # Secrets that can be printed.
        (
            "rlwe/src/bfv/client.rs",
            "impl std::fmt::Debug for SecretKey {\n}\n",
            "SecretKey holds a secret and must not be printable",
        ),
    ],
)
def test_halves_detours_unclassified_and_printable_secrets_are_reported(
    tree: Path, name: str, planted: str, told: str
) -> None:
    append(tree, f"crates/{name}", planted)
    found = secrets.problems(tree)
    assert found and all(p.startswith(f"crates/{name}:") for p in found) and any(told in p for p in found), found


METHOD = "crates/runtime/src/two_party/methods/novel"


def test_a_new_linear_method_goes_by_path(tree: Path) -> None:
    """No row of a table is needed for it, and none is needed to see what it must not do."""
    (tree / METHOD).mkdir()
    (tree / METHOD / "mod.rs").write_text("mod client;\nmod server;\nstruct Layout;\n")
    only(secrets.problems(tree)[:1], "has a file client.rs, and there is none")
    (tree / METHOD / "client.rs").write_text("struct Held(Vec<u8>);\n")
    (tree / METHOD / "server.rs").write_text("struct Weighed;\n")
    assert secrets.problems(tree) == []
    for half, planted, told in (
        ("server", "use hushnet_rlwe::packed::PackedClient;\n", "server's side (two-party) must not name PackedClient"),
        ("server", "use super::client::Held;\n", "must not name Held"),
        ("client", "use super::server::Weighed;\n", "must not name Weighed"),
        ("client", "#[derive(Debug)]\nstruct Shown;\n", "Shown holds a secret and must not be printable"),
        ("mod", "use hushnet_rlwe::packed::PackedServer;\n", "both sides of a method"),
        ("mod", "struct FreshKey;\n", "whose secret FreshKey is"),
    ):
        path = tree / METHOD / f"{half}.rs"
        text = path.read_text()
        path.write_text(text + planted)
        only(secrets.problems(tree), f"{METHOD}/{half}.rs:", told)
        path.write_text(text)


def test_a_derived_debug_of_a_secret_is_reported(tree: Path) -> None:
    replace(
        tree, "crates/rlwe/src/batch_cipher.rs", "pub struct ClientKey", "#[derive(Clone, Debug)]\npub struct ClientKey"
    )
    only(secrets.problems(tree), "ClientKey holds a secret and must not be printable")


def test_files_and_types_of_the_tables_that_are_missing_or_new_are_reported(tree: Path) -> None:
    (tree / "crates/runtime/src/non_interactive/server.rs").unlink()
    replace(tree, "crates/rlwe/src/bfv/client.rs", "pub struct SecretKey", "pub struct Renamed")
    (tree / "crates/runtime/src/novel").mkdir()
    (tree / "crates/runtime/src/novel/server.rs").write_text("//! New.\n")
    found = secrets.problems(tree)
    assert any("runtime/src/non_interactive/server.rs" in p and "there is none" in p for p in found)
    assert any("rlwe/src/bfv/client.rs" in p and "names type SecretKey" in p for p in found)
    assert any("runtime/src/novel/server.rs" in p and "which side" in p for p in found)


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


def test_both_extensions_are_linked_from_one_build_of_the_libraries() -> None:
    built = []
    for crate in ("hushnet-python", "hushnet-bench"):
        command = [
            "cargo",
            "tree",
            "--locked",
            "-p",
            crate,
            "-e",
            "normal,build",
            "--features",
            "pyo3/extension-module",
            "-f",
            "{p} {f}",
            "--prefix",
            "none",
        ]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        # A crate that is named again has a star.
        lines = {line.removesuffix(" (*)") for line in done.stdout.splitlines()}
        built.append({line.split()[0]: line for line in lines})
    common = built[0].keys() & built[1].keys()
    assert {"hushnet-runtime", "log", "pyo3", "tokio"} <= common
    assert {name: built[0][name] for name in common} == {name: built[1][name] for name in common}
    assert {name for name in built[1].keys() - common if name.startswith("hushnet-")} == {
        "hushnet-bench",
        "hushnet-published",
    }


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


@pytest.mark.parametrize(
    ("hushnet", "told"),
    [
        ("#!/bin/sh\nexit 3\n", ""),
        ("#!/bin/sh\necho []\n", "names no benchmark"),
        (
            '#!/bin/sh\ncase "$*" in *--list*) echo \'[{"name": "a"}, {"name": "b"}]\';; '
            "*a*) exit 0;; *) exit 4;; esac\n",
            "== bench b --quick",
        ),
    ],
)
def test_bench_quick_fails_when_there_is_no_list_or_a_benchmark_fails(tmp_path: Path, hushnet: str, told: str) -> None:
    shutil.copy(ROOT / "Makefile", tmp_path)
    folder = tmp_path / ".venv/bin"
    folder.mkdir(parents=True)
    (folder / "hushnet").write_text(hushnet)
    (folder / "hushnet").chmod(0o755)
    (folder / "python").symlink_to(shutil.which("python3") or "/usr/bin/python3")
    # `setup` is up to date.
    command = ["make", "-s", "-o", "setup", "bench-quick"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode != 0 and told in done.stdout, done
    (folder / "hushnet").write_text('#!/bin/sh\ncase "$*" in *--list*) echo \'[{"name": "a"}]\';; esac\n')
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "== bench a --quick" in done.stdout, done


def test_lint_reads_every_crate_and_runs_the_gates() -> None:
    makefile = (ROOT / "Makefile").read_text()
    lint = makefile.split("\nlint:", 1)[1].split("\n\n", 1)[0]
    # Examples, benches and tests of all members, the Python extension included; the workspace excludes fuzz only, and
    # the masks are apart, because nothing of the product is built with their ledger.
    clippy = re.findall(r"cargo clippy (.*)", lint)
    assert any(
        "--workspace --exclude hushnet-masks --all-targets" in c and "-D warnings" in c and c.count("--exclude") == 1
        for c in clippy
    )
    assert any("-p hushnet-masks --all-targets" in c and "-D warnings" in c for c in clippy)
    assert any("fuzz/Cargo.toml" in c and "-D warnings" in c for c in clippy)
    assert re.search(r"RUSTDOCFLAGS=\"-D warnings\" cargo doc --workspace --exclude hushnet-masks --no-deps", lint)
    assert "-m tests.gates" in lint
    workspace = (ROOT / "Cargo.toml").read_text()
    assert (
        'members = ["crates/*", "bench/native", "bench/published"]' in workspace and 'exclude = ["fuzz"]' in workspace
    )

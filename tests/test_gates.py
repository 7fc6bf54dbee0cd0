"""Gates report planted violations: each test changes one thing in a copy of this tree, and the gate names it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.gates import descriptions, documents, fuzzing, imports, modules, secrets, truths, wheel
from tests.planted import append, only, replace

ROOT = Path(__file__).resolve().parent.parent


# What is read of this tree is not read again for its copies (tests/conftest.py), in the same process.
@pytest.mark.xdist_group("tree")
def test_this_tree_has_no_violation() -> None:
    for gate in (modules, imports, secrets, documents, descriptions, wheel, fuzzing):
        assert gate.problems(ROOT) == []


@pytest.mark.xdist_group("tree")
def test_a_second_look_parses_no_text_again(monkeypatch: pytest.MonkeyPatch) -> None:
    for gate in (imports, truths, secrets, documents):
        assert gate.problems(ROOT) == []

    def parsed(*_: object) -> None:
        raise AssertionError("an unchanged text was parsed again")

    # Only for the second look: pytest parses the text of a test that fails.
    with monkeypatch.context() as second:
        second.setattr("ast.parse", parsed)
        second.setattr(documents, "_CODE", None)
        second.setattr(secrets, "_ZEROISED", None)
        found = [gate.problems(ROOT) for gate in (imports, truths, secrets, documents)]
    assert found == [[], [], [], []]


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
    "planted",
    [
        "#[cfg(fuzzing)]\npub fn planted() {}\n",
        "fn planted() -> bool { cfg!(any(fuzzing, test)) }\n",
        "#[cfg(not(any(test, not(fuzzing))))]\npub fn planted() {}\n",
    ],
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
    only(fuzzing.problems(tree), "Makefile", "passes --cfg fuzzing")


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
        (
            "report/rendering.py",
            "import importlib\nlate = importlib.import_module('hushnet.cli.main')\n",
            "hushnet.cli",
        ),
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

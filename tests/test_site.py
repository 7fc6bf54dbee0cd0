"""The documentation site: its pages, their links, and the catalogue of errors. ``make docs`` builds it strictly."""

from __future__ import annotations

import importlib.util
import inspect
import json
import posixpath
import re
from pathlib import Path
from types import ModuleType

import hushnet
import pytest

from tests import site_figures

ROOT = Path(__file__).parent.parent


def loaded_hooks() -> ModuleType:
    """What MkDocs asks while it builds."""
    spec = importlib.util.spec_from_file_location("hooks", ROOT / "docs/site/hooks.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def hooks() -> ModuleType:
    """As :func:`loaded_hooks`."""
    return loaded_hooks()


def nav() -> list[str]:
    """Pages that the navigation names."""
    text = (ROOT / "mkdocs.yml").read_text()
    return re.findall(r"^ +- (?:[^:\n]+: )?(\S+\.md)$", text[text.index("\nnav:") :], re.MULTILINE)


def pages(hooks: ModuleType) -> dict[str, str]:
    """Every page of the site with its text."""
    found = {p.relative_to(ROOT / "docs").as_posix(): p.read_text() for p in ROOT.glob("docs/**/*.md")}
    return found | hooks.made()


def test_the_navigation_names_every_page_once(hooks: ModuleType) -> None:
    named = nav()
    assert sorted(named) == sorted(pages(hooks)) and len(named) == len(set(named)) > 30
    assert named[:3] == ["index.md", "getting-started.md", "trust-models.md"]


def lost(page: str, text: str, known: set[str]) -> list[str]:
    """Links of a page of the site that lead to no page, and pictures that are not there."""
    out = []
    for target in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S)):
        there = posixpath.normpath(posixpath.join(posixpath.dirname(page), target.partition("#")[0] or page))
        inside = not there.startswith("..") and (ROOT / "docs" / there).is_file()
        if not re.match(r"[a-z]+:", target) and there not in known and not inside:
            out.append(f"{page}: {target}")
    return out


def test_links_lead_to_pages_of_the_site(hooks: ModuleType) -> None:
    found = pages(hooks)
    wrong = [p for page, text in found.items() for p in lost(page, hooks.relinked(text, page), set(found))]
    assert not wrong, wrong
    # as they stand, links of these pages lead out of the site
    assert lost("index.md", found["index.md"], set(found))
    assert lost("project/README.md", found["project/README.md"], set(found))


def test_links_are_written_as_the_site_has_them(hooks: ModuleType) -> None:
    for page, text, wanted in (
        ("faq.md", "[S](../SECURITY.md#model)", "[S](project/SECURITY.md#model)"),
        ("project/README.md", "[a](docs/models.md)", "[a](../models.md)"),
        ("project/README.md", "![p](docs/pictures/hushnet.svg)", "![p](../pictures/hushnet.svg)"),
        ("two-party.md", "[m](../crates/mpc/src/lib.rs)", "m (`crates/mpc/src/lib.rs`)"),
        ("security/README.md", "[e](estimate.py), [c](lwe.csv)", "e (`docs/security/estimate.py`), [c](lwe.csv)"),
        ("faq.md", "[n](notebooks/pytorch.ipynb) [o](https://a.b/c)", "[n](notebooks/pytorch.md) [o](https://a.b/c)"),
        ("faq.md", "![p](pictures/a.svg)\n```\n[x](../y.rs)\n```", "![p](pictures/a.svg)\n```\n[x](../y.rs)\n```"),
    ):
        assert hooks.relinked(text, page) == wanted


def test_the_catalogue_names_every_exception_with_its_fields_and_every_exit_code() -> None:
    text = (ROOT / "docs/errors.md").read_text()
    rows = dict(re.findall(r"^\| `(\w+)` \|(.*)\|$", text, re.MULTILINE))
    kinds = {n: k for n in hushnet.__all__ if inspect.isclass(k := getattr(hushnet, n)) and issubclass(k, Exception)}
    assert set(rows) == set(kinds)
    for name, kind in kinds.items():
        about, fields, advice = (cell.strip() for cell in re.split(r" \|(?= )", rows[name]))
        assert about and advice, name
        told = set(re.findall(r"`(\w+)`", fields))
        source = inspect.getsource(kind.__init__) if "__init__" in vars(kind) else ""
        has = set(re.findall(r"self\.(\w+)", source))
        assert has <= told, (name, has - told)
        assert told or not has
    codes = re.findall(r"^\| (\d+) \|", text, re.MULTILINE)
    assert codes == ["0", "1", "2", "3", "4", "130"]
    assert codes == re.findall(r"^\| (\d+) \|", (ROOT / "docs/command-line.md").read_text(), re.MULTILINE)


def test_the_rust_page_leads_to_every_crate_of_the_product_and_make_docs_builds_these() -> None:
    text = (ROOT / "docs/rust-api.md").read_text()
    named = re.findall(r'<a href="rust/(\w+)/index.html">`([\w-]+)`</a>', text)
    assert all(folder == crate.replace("-", "_") for folder, crate in named)
    # the bindings and the page's client have APIs of other languages, and the ledger has tests alone
    folders = {p.parent.name for p in ROOT.glob("crates/*/Cargo.toml")} - {"python", "wasm", "masks"}
    assert {crate for _, crate in named} == {f"hushnet-{name}" for name in folders}
    recipe = re.search(r"^docs:.*?\n\n", (ROOT / "Makefile").read_text(), re.M | re.S)
    assert recipe and set(re.search(r"foreach crate,([\w ]+),", recipe[0])[1].split()) == folders
    assert "cp -r target/doc out/docs/rust" in recipe[0]


def test_the_wheel_needs_none_of_the_sites_packages() -> None:
    assert "mkdocs" not in (ROOT / "pyproject.toml").read_text()
    # MkDocs counts no warnings where it is quiet
    assert "mkdocs build --strict\n" in (ROOT / "Makefile").read_text()


def test_the_figures_of_the_site_tell_what_is_wrong(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert site_figures.main(["--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["problems"] == [] and told["site"]["pages"] == told["site"]["pages_in_navigation"] > 30
    assert told["explain_html"]["layers"] == 2 and told["explain_html"]["bytes"] < 100_000
    monkeypatch.setattr(site_figures, "README_LINES", 10)
    monkeypatch.setitem(site_figures.test_commands.RUN_BY, ("README.md", "python"), None)
    assert site_figures.main(["--json"]) == 1
    problems = json.loads(capsys.readouterr().out)["problems"]
    assert problems == ["README.md (python)", f"README.md has {told['site']['readme_lines']} lines"]

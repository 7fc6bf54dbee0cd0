"""``python -m tests.site_figures [--build] [--json]``: what the documentation site and the pictures are worth.

Pages and links of the site, commands of documents and those that do not exist, pieces of programs and the test that
runs each, notebooks, lines of the README, and the page of ``explain --html`` of a small plan with a trace: its bytes,
what it loads from elsewhere, and whether measured figures stand beside predicted ones. ``--build`` runs ``make docs``,
too. Status 1 where something is wrong.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import hushnet
import numpy as np
from hushnet import planner
from hushnet.cli.main import app
from hushnet.graph import Dense, Graph, Linear, Op
from typer.testing import CliRunner

from tests import test_commands, test_site

ROOT = Path(__file__).resolve().parent.parent
README_LINES = 90


def site() -> dict[str, Any]:
    """Pages, links, commands and pieces of programs."""
    hooks = test_site.loaded_hooks()
    found = test_site.pages(hooks)
    lost = [p for page, text in found.items() for p in test_site.lost(page, hooks.relinked(text, page), set(found))]
    written = [
        (document.name, words, whole)
        for document in test_commands.DOCUMENTS
        for words, whole in test_commands.commands(document.read_text())
    ]
    unknown = [
        f"{name}: {' '.join(words)}" for name, words, whole in written if test_commands.problem(words, whole=whole)
    ]
    blocks = {
        f"{path.relative_to(ROOT).as_posix()} ({language})": test_commands.RUN_BY.get(
            (path.relative_to(ROOT).as_posix(), language)
        )
        for path in test_commands.DOCUMENTS
        for language, _ in test_commands.blocks(path.read_text())
        if language
    }
    lines = len((ROOT / "README.md").read_text().splitlines())
    return {
        "pages": len(found),
        "pages_in_navigation": len(test_site.nav()),
        "lost_links": lost,
        "commands": len(written),
        "unknown_commands": unknown,
        "programs_run_by": {name: by or "no program" for name, by in blocks.items() if by is not None},
        "programs_that_nobody_runs": [name for name, by in blocks.items() if by is None],
        "pages_run_whole": list(test_commands.PAGES),
        "notebooks": sorted(p.name for p in ROOT.glob("docs/notebooks/*.ipynb")),
        "readme_lines": lines,
    }


def pictures() -> dict[str, Any]:
    """The page of ``explain --html`` of a small two-party plan that has run."""
    rng = np.random.default_rng(0)
    nodes = [
        Linear("first", "x", "h", Dense(6, 4), rng.normal(size=(4, 6)), np.zeros(4)),
        Op("relu", "relu", ["h"], "r", {}),
        Linear("second", "r", "y", Dense(4, 3), rng.normal(size=(3, 4)), np.zeros(3)),
    ]
    graph = Graph("small", ["x"], ["y"], {"x": (6,), "h": (4,), "r": (4,), "y": (3,)}, nodes)
    x = rng.uniform(-1, 1, (40, 6))
    model = hushnet.Model(planner.compile(graph, trust="two-party", calibration=x))
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        model.save(folder / "m.hush")
        (folder / "t.json").write_text(json.dumps(hushnet.run(model, x[:2]).trace))
        words = ["explain", str(folder / "m.hush"), "--html", str(folder / "p.html"), "--trace", str(folder / "t.json")]
        done = CliRunner().invoke(app, words)
        assert done.exit_code == 0, done.output
        text = (folder / "p.html").read_text(encoding="utf-8")
    return {
        "bytes": len(text.encode()),
        "loads_from_elsewhere": re.findall(r"(?:src|href)=[\"'](?!#|data:)([^\"']+)", text),
        "drawings": text.count("<svg"),
        "layers": sum(stage["kind"] == "linear" for stage in model.plan.document["stages"]),
        "measured_beside_predicted": "easured" in text and "redicted" in text,
    }


def main(arguments: list[str]) -> int:
    """Checks, prints, and returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.site_figures")
    parser.add_argument("--build", action="store_true", help="run make docs, too")
    parser.add_argument("--json", action="store_true", help="figures as JSON")
    given = parser.parse_args(arguments)
    figures: dict[str, Any] = {"site": site(), "explain_html": pictures()}
    of, drawn = figures["site"], figures["explain_html"]
    wrong = [
        *of["lost_links"],
        *of["unknown_commands"],
        *of["programs_that_nobody_runs"],
        *drawn["loads_from_elsewhere"],
    ]
    wrong += [] if of["pages"] == of["pages_in_navigation"] else ["pages that the navigation does not name"]
    wrong += [] if of["readme_lines"] <= README_LINES else [f"README.md has {of['readme_lines']} lines"]
    wrong += [] if drawn["measured_beside_predicted"] else ["explain --html has no measured figures"]
    if given.build:
        done = subprocess.run(["make", "docs"], cwd=ROOT, capture_output=True, text=True)
        figures["strict_build"] = {"status": done.returncode, "pages": len(list((ROOT / "out/docs").rglob("*.html")))}
        wrong += [] if done.returncode == 0 else [done.stderr[-1000:]]
    figures["problems"] = wrong
    if given.json:
        sys.stdout.write(json.dumps(figures, indent=2) + "\n")
    else:
        sys.stdout.write("\n".join([f"{of['pages']} pages, {of['commands']} commands", *wrong]) + "\n")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

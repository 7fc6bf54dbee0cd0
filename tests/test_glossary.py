"""Every column and row that ``explain`` prints is explained under ``--verbose`` and in docs/glossary.md."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import hushnet
import numpy as np
import pytest
from hushnet.report import render
from hushnet.report.glossary import GLOSSARY, terms
from rich.console import Console

from tests.planner.planner_graphs import Builder

ROOT = Path(__file__).parent.parent
X = np.random.default_rng(0).uniform(0, 1, (20, 2, 4, 4))


def plans() -> Iterator[hushnet.Model]:
    relu = Builder((2, 4, 4)).conv(3).op("relu").conv(2).done()
    squares = Builder((2, 4, 4)).conv(3).op("square").conv(2).done()
    compiled = hushnet.planner.compile
    for options in (
        {"batch": 2048},
        {"batch": 1, "engine": "packed"},
        {"trust": "two-party"},
        {"trust": "two-party", "method": "gala"},
        {"calibration": X},
    ):
        yield hushnet.Model(compiled(relu, **options))
    for more in ({"batch": 1}, {"batch": 4096}, {"batch": 1, "hide_weights": True}):
        yield hushnet.Model(compiled(squares, trust="non-interactive", calibration=X, **more))


@pytest.fixture(scope="module")
def printed() -> list[tuple[str, list[str], str]]:
    """Of every plan: trust model, words of its tables, and what ``--verbose`` prints."""
    found = []
    for model in plans():
        runs = hushnet.run(model, X[:2]).trace
        for trace in (None, runs):
            explained = model.explain(trace)
            console = Console(file=io.StringIO(), width=160)
            console.print(render(explained, verbose=True))
            words = list(terms(render(explained)))
            found.append((explained["trust"]["mode"], words, console.file.getvalue()))
    return found


def test_every_column_and_row_has_a_sentence_under_verbose(printed: list[tuple[str, list[str], str]]) -> None:
    for trust, words, text in printed:
        assert len(words) > 15
        said = " ".join(text.split())
        for word in words:
            assert " ".join(GLOSSARY[trust][word].split()) in said, (trust, word)


def test_every_sentence_is_used_and_is_a_sentence(printed: list[tuple[str, list[str], str]]) -> None:
    columns = {(trust, word) for trust, words, _ in printed for word in words}
    # these follow from options that no plan here has
    rare = {"Accuracy", "Of it", "Rigorous bound", "Agreement", "Labels", "Precision", "Error", "Jumps"}
    for trust, entries in GLOSSARY.items():
        for word, sentence in entries.items():
            assert sentence.endswith("."), (trust, word)
            assert (trust, word) in columns or word in rare, f"{trust}: {word} stands in no table"


def test_the_document_has_the_same_sentences() -> None:
    document = (ROOT / "docs" / "glossary.md").read_text()
    for trust, entries in GLOSSARY.items():
        for word, sentence in entries.items():
            assert f"| {word} | {sentence} |" in document, (trust, word)

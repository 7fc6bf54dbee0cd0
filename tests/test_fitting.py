"""Tables on narrow terminals: one record after another instead of words that are cut to letters."""

from __future__ import annotations

import io

import hushnet
import pytest
from hushnet.report import render
from hushnet.report.fitting import Table, listed
from rich.console import Console
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from tests.test_tabular import IRIS_X, NAMES, fitted


def printed(what: object, width: int) -> list[str]:
    console = Console(width=width, file=io.StringIO())
    console.print(what)
    return str(console.file.getvalue()).splitlines()


def table() -> Table:
    found = Table("name", "what it is", "bytes", title="A title", caption="A caption")
    found.add_row("first-layer-of-all", "a convolution of images", "123456789 MiB")
    found.add_row("second", "", "1 B", style="dim")
    return found


def test_a_table_that_fits_is_a_table() -> None:
    assert any("┃ name" in line for line in printed(table(), 80))


def test_a_table_that_does_not_fit_is_records() -> None:
    lines = printed(table(), 40)
    assert not any("┃" in line for line in lines) and max(map(len, lines)) <= 40
    text = [line.rstrip() for line in lines]
    assert text[0] == "A title" and text[-1] == "A caption"
    first = text.index("first-layer-of-all")
    assert text[first + 1].split() == ["what", "it", "is", "a", "convolution", "of", "images"]
    assert text[first + 2].split() == ["bytes", "123456789", "MiB"]
    # an empty cell has no line
    assert text[text.index("second") + 1].split() == ["bytes", "1", "B"]


@pytest.mark.parametrize("width", [60, 80])
@pytest.mark.parametrize("trust", ["client-aided", "two-party", "non-interactive"])
def test_an_explanation_keeps_its_words_on_a_narrow_terminal(trust: str, width: int) -> None:
    model = fitted(make_pipeline(StandardScaler(), LogisticRegression()), IRIS_X, NAMES)
    plan = hushnet.from_sklearn(model, trust=trust, calibration=IRIS_X, batch=8)
    lines = printed(render(plan.explain(), verbose=True), width)
    assert max(map(len, lines)) <= width
    words = {word for line in lines for word in line.replace("│", " ").split()}
    for layer in plan.explain()["layers"]:
        assert layer["name"] in words, layer["name"]


def test_operators_are_listed_once() -> None:
    assert listed(["slice", "add", "slice", "slice"]) == "slice (3), add"
    assert not listed([])

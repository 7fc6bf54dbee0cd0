"""The page that ``explain --html`` writes: whole, safe whatever names hold, and of a bounded length."""

from __future__ import annotations

import io
import json
import re
from contextlib import redirect_stderr, redirect_stdout
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import hushnet
import numpy as np
import pytest
from hushnet import report
from hushnet.cli.main import main
from hushnet.plan import Plan
from hushnet.report.pages import charts, lanes
from hushnet.report.pages.steps import Step, folded, steps
from hushnet.report.units import seconds, size
from onnx import TensorProto, helper, numpy_helper

VOID = {"meta", "br"}
KNOWN = {
    "html", "head", "meta", "title", "style", "body", "main", "header", "h1", "h2", "p", "span", "div", "section", "b",
    "i", "bdi", "strong", "svg", "g", "line", "rect", "text", "polygon", "polyline", "circle",
    "table", "thead", "tbody",
    "tr", "th", "td", "dl", "dt", "dd", "ul", "li", "footer",
}  # fmt: skip
HOSTILE = (
    "<script>alert(1)</script>\"'&",
    "</style></svg><img src=http://x onerror=alert(1)>",
    "\u202egnp.x\x00\x1b[31m",
)


class Reader(HTMLParser):
    """Elements, attributes and texts; a tag that is not closed in its place is an error."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.text = ""
        self.heights: list[float] = []
        self.feed(text)
        self.close()
        assert not self.open, self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {key for key, _ in attrs}
        self.heights += [float((v or "").split()[3]) for k, v in attrs if k == "viewbox"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, text: str) -> None:
        if self.open and self.open[-1] != "style":
            self.text += text


def read(explained: Any) -> Reader:
    """The page's parts; it asks for nothing from elsewhere, runs nothing, and holds elements of this project alone."""
    text = report.page(explained)
    found = Reader(text)
    assert found.tags <= KNOWN, found.tags - KNOWN
    assert not {a for a in found.attributes if a.startswith("on") or a in ("src", "href", "xlink:href", "srcset")}
    style = re.search("<style>(.*)</style>", text, re.S)
    assert style and not re.search(r"url\(|@import|expression", style[1])
    assert "default-src &#x27;none&#x27;;" in text
    assert not re.search("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]", text)
    return found


def network(names: tuple[str, ...], outputs: str = "y") -> Any:
    """Dense layers with ReLUs between them, named as told."""
    rng = np.random.default_rng(0)
    nodes, weights, source = [], [], "x"
    for place, name in enumerate(names):
        weights.append(numpy_helper.from_array((rng.normal(size=(6, 6)) / 2.5).astype(np.float32), f"w{place}"))
        last = place + 1 == len(names)
        linear = outputs if last else f"a{place}"
        nodes.append(helper.make_node("MatMul", [source, f"w{place}"], [linear], name=name))
        if not last:
            nodes.append(helper.make_node("Relu", [linear], [f"r{place}"], name=f"relu {name}"))
        source = f"r{place}"
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n", 6]) for n in ("x", outputs)]
    graph = helper.make_graph(nodes, names[0], ends[:1], ends[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


OPTIONS: dict[str, dict[str, Any]] = {
    "client-aided": {"batch": 8},
    "two-party": {},
    "non-interactive": {"batch": 8, "activation": "square"},
}


@pytest.fixture(scope="module", params=list(OPTIONS))
def compiled(request: pytest.FixtureRequest) -> tuple[hushnet.Model, np.ndarray]:
    x = np.random.default_rng(1).uniform(-1, 1, (40, 6)).astype(np.float32)
    labels = (x @ np.ones(6) > 0).astype(np.int64)
    names = ("first", "second", "third")
    model = hushnet.compile(network(names), trust=request.param, calibration=x, labels=labels, **OPTIONS[request.param])
    return model, x


def test_a_page_tells_what_the_plan_tells(compiled: tuple[hushnet.Model, np.ndarray]) -> None:
    model, x = compiled
    explained = model.explain(hushnet.run(model, x).trace)
    found = read(explained)
    trust, totals, answers = explained["trust"], explained["totals"], explained["answers"]
    for fact in (
        *(trust[k] for k in ("mode", "server_learns", "client_learns", "who_computes_nonlinear_layers", "warning")),
        *explained["notes"],
        *(size(totals[k]) for k in ("bytes_up", "bytes_down", "client_peak_memory_bytes")),
        seconds(totals["seconds"]),
        seconds(explained["measured"]["seconds"]),
        *(f"{100 * share:.4g} %" for share in (answers["agreement"], *answers["accuracy"].values())),
        "Measured beside predicted",
        "How errors grow",
        "Seconds by layer",
        explained["digest"],
        *(layer["name"] for layer in explained["layers"]),
    ):
        assert fact in found.text, fact
    plain = read(model.explain())
    assert "Measured beside predicted" not in plain.text and "What crosses the wire" in plain.text


def test_a_public_part_has_a_page_without_what_the_server_alone_knows(
    compiled: tuple[hushnet.Model, np.ndarray], tmp_path: Path
) -> None:
    model, _ = compiled
    path = tmp_path / "public.hush"
    path.write_bytes(model.public_part())
    found = read(hushnet.Model.load(path).explain())
    assert "what a client receives" in found.text
    open_ = model.plan.document["trust"] == "client-aided"
    assert ("How errors grow" in found.text) == open_ and ("Accuracy" in found.text) == open_


@pytest.mark.parametrize("trust", list(OPTIONS))
def test_names_of_models_are_text(trust: str) -> None:
    model = hushnet.compile(network(HOSTILE, "<b>y</b>"), trust=trust, **OPTIONS[trust])
    trace = hushnet.run(model, np.zeros((3, 6), np.float32)).trace
    found = read(model.explain(trace))
    assert "<script>alert(1)</script>\"'&" in found.text and "<b>y</b> 6" in found.text
    assert "\N{REPLACEMENT CHARACTER}[31m" in found.text


def test_a_deep_network_has_a_page_of_bounded_length() -> None:
    model = hushnet.compile(network(tuple(f"layer{i}" for i in range(90))), trust="client-aided", batch=8)
    explained = model.explain()
    assert len(explained["layers"]) > 150
    found = read(explained)
    assert max(found.heights) < 2000 and sum(found.heights) < 3500, found.heights
    whole = steps(explained)
    for most in (lanes.MOST, charts.MOST):
        rows = folded(whole, most)
        assert len(rows) <= most and sum(r.count for r in rows) == len(whole)
        for key in ("up", "down", "rounds"):
            assert sum(getattr(r, key) for r in rows) == sum(getattr(s, key) for s in whole)
        assert sum(r.seconds or 0 for r in rows) == pytest.approx(sum(s.seconds or 0 for s in whole))
        assert max(r.error or 0 for r in rows) == max(s.error or 0 for s in whole)
    assert all(f"layer{i}" in found.text for i in range(90))


def test_steps_that_send_nothing_are_drawn_with_their_neighbours() -> None:
    quiet = [Step(f"s{i}", "both", "add", seconds=1.0) for i in range(5)]
    rows = folded([*quiet, Step("t", "both", "relu", up=8)], 3)
    assert [(r.count, r.up, r.seconds) for r in rows] == [(5, 0, 5.0), (1, 8, None)]


@pytest.mark.parametrize("trust", ["client-aided", "two-party"])
def test_errors_of_layers_are_those_that_the_plan_predicts(trust: str) -> None:
    x = np.random.default_rng(1).uniform(-1, 1, (40, 6)).astype(np.float32)
    model = hushnet.compile(network(("a", "b", "c")), trust=trust, calibration=x, batch=1)
    predicted = model.plan.predicted
    shares = predicted["layer_errors"]
    assert {"a", "b", "c"} <= set(shares) <= {stage["name"] for stage in model.plan.stages}
    # the last one is the propagated error beside the range that is planned for: 1.25 times the largest value
    span = predicted["propagated_error"] / list(shares.values())[-1]
    assert span == pytest.approx(1.25 * predicted["output_range"], rel=0.05)
    public = Plan.parse(model.public_part()).predicted
    assert ("layer_errors" in public) == (trust == "client-aided")


def command(*arguments: object) -> tuple[int, str, str]:
    stdout, stderr = io.StringIO(), io.StringIO()
    try:
        with pytest.MonkeyPatch.context() as patch, redirect_stdout(stdout), redirect_stderr(stderr):
            patch.setattr("sys.argv", ["hushnet", *map(str, arguments)])
            main()
    except SystemExit as end:
        return int(end.code or 0), stdout.getvalue(), stderr.getvalue()
    return 0, stdout.getvalue(), stderr.getvalue()


def test_the_command_writes_the_page(tmp_path: Path) -> None:
    plan, page = tmp_path / "a.hush", tmp_path / "a.html"
    hushnet.compile(network(("first",)), batch=4).save(plan)
    code, out, err = command("explain", plan, "--html", page)
    assert code == 0 and f"Wrote {page}" in "".join(out.splitlines()), err
    assert page.read_text().startswith("<!DOCTYPE html>")
    code, out, _ = command("explain", plan, "--html", page, "--json")
    assert code == 0 and json.loads(out)["name"] == "first"
    code, _, err = command("explain", tmp_path / "absent.hush", "--html", tmp_path / "no" / "a.html")
    assert code == 1 and "there is no folder" in " ".join(err.split())

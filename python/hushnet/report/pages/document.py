"""``page(report)``: the sections of the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..answers import precision_text
from ..units import seconds, size
from . import charts, lanes
from .facts import measured, parameters
from .layers import table
from .markup import Safe, element, escaped, joined, name
from .steps import Step, folded, steps
from .style import CSS

Report = Mapping[str, Any]

# nothing is fetched and nothing runs, whatever a name holds
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
_LANES = {
    "client-aided": "Every layer's input goes up encrypted. The server multiplies, and the result comes down. The "
    "client decrypts it and computes the non-linear step itself.",
    "two-party": "Both parties hold random-looking shares of every value. The server's weights meet ciphertexts in "
    "the linear layers; both compute the others together.",
    "non-interactive": "The encrypted input goes up once, the server computes alone, and the encrypted answer comes "
    "down once.",
}


def page(report: Report) -> str:
    """The HTML document of :func:`hushnet.report.explain`'s dict."""
    found = steps(report)
    body = element(
        "main",
        _head(report),
        _tiles(report),
        _who(report),
        _answers(report),
        _measured(report),
        _picture(report, found),
        _traffic(report, found),
        _times(report, found),
        _errors(report, found),
        _section("Layers", _LAYERS, table(found)),
        _section("Parameters", None, _pairs(parameters(report))),
        _notes(report),
        element("footer", f"{report['producer']}, plan ", name(report["digest"])),
    )
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", f"{report['name']}: {report['trust']['mode']}"),
        element("style", Safe(CSS)),
    )
    return "<!DOCTYPE html>\n" + element("html", head, element("body", body), lang="en") + "\n"


_LAYERS = "Bytes and times are for the whole batch. The terms below the table say what each column means."


def _head(report: Report) -> Safe:
    pills = [element("span", report["trust"]["mode"], class_="pill")]
    if report["parameters"].get("insecure"):
        pills.append(element("span", "INSECURE parameters", class_="pill bad"))
    if report["public_part"]:
        pills.append(element("span", "public part: what a client receives", class_="pill"))
    ports = [
        f"{port['name']} {'x'.join(map(str, port['shape']))}" for key in ("inputs", "outputs") for port in report[key]
    ]
    count = len(report["inputs"])
    arrow = f"{', '.join(ports[:count])} \N{RIGHTWARDS ARROW} {', '.join(ports[count:])}"
    return element("header", element("h1", name(report["name"])), *pills, element("span", arrow, class_="soft"))


def _tiles(report: Report) -> Safe:
    t, images = report["totals"], report["totals"].get("batch", 1)
    shown = [(str(images), "image" if images == 1 else "images that are planned for at once")]
    if "seconds" in t:
        shown.append((seconds(t["seconds"]), f"predicted, {seconds(t['seconds'] / images)} an image"))
    shown.append((size(t["bytes_up"]), "the client sends"))
    shown.append((size(t["bytes_down"]), "the server sends"))
    shown.append((str(t["rounds"]), "round" if t["rounds"] == 1 else "rounds"))
    shown.append((size(t["client_peak_memory_bytes"]), "of memory on the client"))
    if "server_peak_memory_bytes" in t:
        shown.append((size(t["server_peak_memory_bytes"]), "of memory on the server"))
    tiles = [element("div", element("b", value), element("span", label), class_="tile") for value, label in shown]
    return element("div", *tiles, class_="tiles")


def _who(report: Report) -> Safe:
    trust = report["trust"]
    cards = [
        element("div", element("strong", title), _sentence(trust[key]), class_=side)
        for title, key, side in (
            ("The server learns", "server_learns", "server"),
            ("The client learns", "client_learns", "client"),
            ("Non-linear layers are computed by", "who_computes_nonlinear_layers", "both"),
        )
    ]
    warning = [element("p", trust["warning"], class_="warn")] if trust["warning"] else []
    return _section("Who learns what", None, element("div", *cards, class_="who"), *warning)


def _sentence(text: str) -> Safe:
    return element("span", text)


def _answers(report: Report) -> Safe:
    found = report["answers"]
    if not found:
        return Safe("")
    bars = []
    if "accuracy" in found:
        bars.append(("Accuracy, original network", found["accuracy"]["float"], "c-client"))
        bars.append(("Accuracy, this plan", found["accuracy"]["planned"], "good"))
    if "agreement" in found:
        bars.append(("Same label as the original", found["agreement"], "good"))
    pairs = []
    error = found.get("error")
    if error is not None and error["expected"] is not None:
        pairs.append(("Error in a usual row", f"{error['expected']:.3g}"))
        pairs.append(("In 999 rows of 1000, at most", f"{error['likely']:.3g}"))
        if error["seen"] is not None:
            pairs.append(("Largest seen", f"{error['seen']:.3g} on the calibration data"))
    elif error is not None:
        pairs.append(("Error", f"about {error['likely']:.3g}, propagated; calibration data would tell"))
    if error is not None and error["output_range"] is not None:
        pairs.append(("Outputs reach", f"{error['output_range']:.3g}"))
    if "precision" in found:
        precision = found["precision"]
        pairs.append(("Precision", precision_text(precision)))
    rows = found.get("calibration_rows")
    about = None if rows is None else f"On {rows} calibration rows, against the original network in floating point."
    return _section("What the answers are worth", about, charts.shares(bars) if bars else Safe(""), _pairs(pairs))


def _measured(report: Report) -> Safe:
    if "measured" not in report:
        return Safe("")
    head = element("tr", element("th", "", class_="l"), element("th", "predicted"), element("th", "measured"))
    rows = [
        element("tr", element("td", label, class_="l"), element("td", planned), element("td", seen))
        for label, planned, seen in measured(report)
    ]
    return _section(
        "Measured beside predicted",
        "The measured figures are those of the trace. Predicted seconds are of one thread and both parties.",
        element("div", element("table", head, *rows), class_="wide"),
    )


def _picture(report: Report, found: Sequence[Step]) -> Safe:
    totals = report["totals"]
    rows = folded(found, lanes.MOST)
    grouped = (
        "" if len(rows) == len(found) else f" {len(found)} layers are drawn as {len(rows)}: a row sums its layers."
    )
    return _section(
        "What crosses the wire",
        _LANES[report["trust"]["mode"]] + grouped,
        lanes.lanes(found, lanes.setup_of(totals), size, seconds),
    )


def _traffic(report: Report, found: Sequence[Step]) -> Safe:
    if report["trust"]["mode"] == "non-interactive":
        return Safe("")
    seen = any(s.measured_up is not None for s in found)
    key = _legend([("client", "client to server"), ("server", "server to client"), *_seen(seen)])
    return _section("Bytes by layer", _about(report, found), key, charts.traffic(folded(found, charts.MOST), size))


def _times(report: Report, found: Sequence[Step]) -> Safe:
    known, seen = (any(getattr(s, key) is not None for s in found) for key in ("seconds", "measured"))
    if not known and not seen:
        return Safe("")
    sides = [
        s for s in ("client", "server", "both") if any(step.side == s and step.seconds is not None for step in found)
    ]
    words = {
        "client": "the client alone",
        "server": "a linear layer" if report["trust"]["mode"] != "non-interactive" else "the server",
        "both": "both together",
    }
    key = _legend([*((s, words[s]) for s in sides), *_seen(seen)])
    return _section("Seconds by layer", _about(report, found), key, charts.times(folded(found, charts.MOST), seconds))


def _errors(report: Report, found: Sequence[Step]) -> Safe:
    if not any(s.error for s in found):
        return Safe("")
    asked = report["answers"].get("precision", {}).get("asked")
    said = (
        "What roundings and noise may leave after each layer, as a share of the layer's largest value: six standard "
        "deviations, propagated from layer to layer. The scale is logarithmic."
    )
    if report["trust"]["mode"] == "non-interactive":
        said = (
            "The likely error of roundings and noise after each step, as a share of the step's bound. What polynomials "
            "differ from the activations is not in it. The scale is logarithmic."
        )
    return _section("How errors grow", said, charts.errors(folded(found, charts.MOST), asked))


def _seen(seen: bool) -> list[tuple[str, str]]:
    return [("seen", "measured")] if seen else []


def _about(report: Report, found: Sequence[Step]) -> str | None:
    """What a chart's columns are for."""
    said, count = [], len(folded(found, charts.MOST))
    if count < len(found):
        said.append(f"{len(found)} layers in {count} columns.")
    if "measured" in report:
        seen, planned = report["measured"], report["totals"].get("batch", 1)
        said.append(f"Predicted for {planned} images on one thread, measured with {seen.get('images', '?')} images")
        said[-1] += f" on {seen['threads']}." if "threads" in seen else "."
    return " ".join(said) or None


def _legend(entries: Sequence[tuple[str, str]]) -> Safe:
    return element(
        "div", *(element("span", element("i", class_=kind), text) for kind, text in entries), class_="legend"
    )


def _notes(report: Report) -> Safe:
    if not report["notes"]:
        return Safe("")
    return _section("Notes", None, element("ul", *(element("li", note) for note in report["notes"])))


def _pairs(rows: Sequence[tuple[str, str]]) -> Safe:
    if not rows:
        return Safe("")
    return element("dl", joined(joined([element("dt", a), element("dd", escaped(b))]) for a, b in rows))


def _section(title: str, about: str | None, *parts: Safe) -> Safe:
    said = [element("p", about, class_="sub")] if about else []
    return element("section", element("h2", title), *said, *parts)

"""``render(report)``: an explanation for people, with rich."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Group
from rich.panel import Panel
from rich.text import Text

from ..plan import Plan
from . import answers, non_interactive, two_party
from .explaining import TRUST
from .fitting import Table, listed
from .glossary import GLOSSARY, glossary
from .units import seconds, size

Report = Mapping[str, Any]


def render(report: Report, *, verbose: bool = False) -> Group:
    """A printable of :func:`hushnet.report.explain`'s dict.

    ``verbose`` adds rigorous bounds of errors, and what every column and row says.
    """
    first = [answers.table(report, verbose=verbose)] if report["answers"] else []
    mode = report["trust"]["mode"]
    parts: list[Any]
    if mode == "two-party":
        parts = [*first, two_party.tables(report, size, seconds), two_party.totals(report, size, seconds)]
    elif mode == "non-interactive":
        parts = [*first, non_interactive.tables(report, size, seconds), non_interactive.totals(report, size, seconds)]
    else:
        measured = [_measured(report)] if any("measured" in layer for layer in report["layers"]) else []
        parts = [*first, _parameters(report), _layers(report), *measured, _totals(report)]
    explained = [glossary(Group(*parts), mode)] if verbose else []
    return Group(_trust(report), *parts, _notes(report), *explained)


def trust_text(plan: Plan) -> Text:
    """Who learns what under a plan, in a few lines."""
    mode = plan.document["trust"]
    if mode == "two-party":
        return _who_learns_what(two_party.trust(plan))
    if mode == "non-interactive":
        return _who_learns_what(non_interactive.trust(plan))
    return _who_learns_what({"mode": mode, **TRUST[mode]})


def _who_learns_what(trust: Mapping[str, str]) -> Text:
    text = Text()
    for label, key in (
        ("Non-linear layers  ", "who_computes_nonlinear_layers"),
        ("The server learns  ", "server_learns"),
        ("The client learns  ", "client_learns"),
    ):
        text.append(label, style="bold")
        text.append(trust[key] + "\n")
    if trust["warning"]:
        text.append(trust["warning"], style="yellow")
    text.rstrip()
    return text


def _trust(report: Report) -> Panel:
    return Panel(
        _who_learns_what(report["trust"]),
        title=Text(f"{report['name']}: {report['trust']['mode']}"),
        title_align="left",
    )


def _parameters(report: Report) -> Table:
    p = report["parameters"]
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    widths = p["modulus_bits"]
    table.add_row("Ring degree N", f"{p['ring_degree']} ({p['images_per_block']} images in a block)")
    table.add_row(
        "log2 q",
        f"{widths['least']} to {widths['most']} bits, the table allows {p['modulus_bits_limit']} for 128-bit security",
    )
    grade = (
        "INSECURE"
        if p["insecure"]
        else f"at least {p['security_bits']} bits, about {p['estimated_security_bits']} estimated"
    )
    table.add_row("Security", grade)
    table.add_row("Wrong result", p["failure_probability"])
    return table


def _layers(report: Report) -> Group:
    """Two tables that fit a narrow terminal.

    What every layer costs, and with which parameters and precision it runs.
    """
    costs = Table(title="Layers, for the whole batch", title_justify="left", header_style="bold")
    for column in ("layer", "what", "up", "down", "client", "server", "tiles"):
        costs.add_column(column, justify="left" if column in ("layer", "what") else "right")
    precision = Table(title="Parameters and precision of linear layers", title_justify="left", header_style="bold")
    few = any("upload_bits" in layer for layer in report["layers"])
    for column in ("layer", "up/down/sum" if few else "k/d/u", "mask", "input range", "margin", "memory c/s"):
        precision.add_column(column, justify="left" if column == "layer" else "right")
    for layer in report["layers"]:
        if layer["kind"] == "client":
            ops = listed(op for op in layer["ops"] if op not in ("quantize", "dequantize")) or "encode or decode"
            costs.add_row(layer["name"], f"client: {ops}", "", "", seconds(layer["seconds_client"]), style="dim")
            continue
        traffic = (size(layer["bytes_up"]), size(layer["bytes_down"]))
        times = (seconds(layer["seconds_client"]), seconds(layer["seconds_server"]))
        costs.add_row(layer["name"], layer["geometry"], *traffic, *times, str(layer["tiles"]))
        span = layer["input_range"]
        precision.add_row(
            layer["name"],
            _widths(layer),
            layer["mask"],
            f"±{span['largest']:.4g} in {span['bits']} bits",
            f"{layer['noise_margin_bits']:.2f} bits",
            f"{size(layer['client_memory_bytes'])} / {size(layer['server_memory_bytes'])}",
        )
    said = (precision.columns[1].header, "margin")
    precision.caption = "\n".join(f"{name}: {GLOSSARY['client-aided'][str(name)]}" for name in said)
    precision.caption_justify = "left"
    return Group(costs, precision)


def _widths(layer: Report) -> str:
    """The bits of a layer's words."""
    keys = (
        ("upload_bits", "body_bits", "mask_bits")
        if "upload_bits" in layer
        else ("modulus_bits", "delta_bits", "drop_bits")
    )
    return "/".join(str(layer[key]) for key in keys)


_MEASURED = ("seconds_client", "seconds_server", "bytes_up", "bytes_down", "noise_bits")


def _measured(report: Report) -> Table:
    table = Table(title="Predicted / measured", title_justify="left", header_style="bold")
    table.add_column("layer")
    for key in _MEASURED:
        table.add_column(key.replace("_", " "), justify="right")
    table.add_column("largest value of planned", justify="right")
    for layer in report["layers"]:
        seen = layer.get("measured")
        if not seen:
            continue
        cells = []
        for key in _MEASURED:
            show = size if key.startswith("bytes") else seconds if key.startswith("seconds") else "{:.2f}".format
            cells.append(
                " / ".join(show(side[key]) if key in side else "-" for side in (layer, seen)) if key in layer else ""
            )
        cells.append("; ".join(f"{r['largest']:.4g} of {r['planned']:.4g}" for r in seen["ranges"].values()))
        table.add_row(layer["name"], *cells)
    return table


def _totals(report: Report) -> Table:
    t = report["totals"]
    table = Table(title="Totals", title_justify="left", show_header=False, box=None, padding=(0, 2, 0, 0))
    table.add_row("Batch", f"{t['batch']} images, {t['blocks']} blocks, {t['rounds']} rounds")
    table.add_row(
        "Time", f"{seconds(t['seconds'])} on one thread for both parties, {seconds(t['seconds_per_image'])} an image"
    )
    table.add_row(
        "Traffic", f"{size(t['bytes_up'])} up, {size(t['bytes_down'])} down, {size(t['bytes_per_image'])} an image"
    )
    table.add_row(
        "Set-up, once a session",
        f"{size(t['setup_bytes_down'])} down; {size(t['kept_masks_bytes'])} of masks kept by the client",
    )
    if "runner_up" in t:
        other = t["runner_up"]
        table.add_row(
            "Other engine", f"{other['engine']}: {seconds(other['seconds'])}, {size(other['bytes'])} for the same batch"
        )
    table.add_row(
        "Peak memory", f"client {size(t['client_peak_memory_bytes'])}, server {size(t['server_peak_memory_bytes'])}"
    )
    return table


def _notes(report: Report) -> Text:
    return Text("\n".join(f"- {note}" for note in report["notes"]))

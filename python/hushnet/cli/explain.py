"""``hushnet explain``: what a plan costs, and who learns what."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import typer

import hushnet
from hushnet import report
from hushnet.cli.common import PAGES, check_output, emit, explained_in_flags, out, plan_file
from hushnet.cli.options import NETWORKS, TWO_PARTY, Insecure, Json


def explain(
    plan: Path = typer.Argument(..., help="The plan (.hush), as compile wrote it."),
    trace: Path | None = typer.Option(None, help="A trace written by run or infer: measured beside predicted."),
    network: str | None = typer.Option(
        None, help=f"What time is predicted for, loopback, {NETWORKS}.", rich_help_panel=TWO_PARTY
    ),
    verbose: bool = typer.Option(False, "--verbose", help="Rigorous bounds of errors, and what every column says."),
    html: Path | None = typer.Option(None, "--html", help="Write one self-contained page with pictures instead."),
    as_json: bool = Json,
    insecure: bool = Insecure,
) -> None:
    """Per layer: method, parameters, time, bytes, precision, and who learns what."""
    check_output(html, PAGES, what="a page")
    measured = _trace(trace) if trace else None
    explained = hushnet.Model.load(plan_file(plan), allow_insecure=insecure).explain(measured, network=network)
    if html is not None:
        html.write_text(report.page(explained), encoding="utf-8")
    if as_json:
        emit(explained)
    elif html is None:
        out.print(report.render(explained_in_flags(explained), verbose=verbose))
    else:
        out.print(f"Wrote {html}.")


def _trace(path: Path) -> dict[str, Any]:
    """A trace as ``run`` and ``infer`` write it."""
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise hushnet.InputError(f"{path} is not a trace: {error}. Give a file that run --trace has written.") from None
    if not isinstance(found, dict):
        raise hushnet.InputError(f"{path} is not a trace. Give a file that run --trace has written.")
    return found

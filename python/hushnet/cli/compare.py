"""``hushnet compare``: a table of all ways to run a model, who learns what, and a recommendation."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

import hushnet
from hushnet.cli.common import (
    counted,
    emit,
    in_flags,
    names,
    onnx_file,
    out,
    read_arrays,
    read_labels,
    read_shapes,
    sentence,
)
from hushnet.cli.options import CalibrationLabels, CalibrationNeeded, Json, Outputs, Shape, Until
from hushnet.cli.progress import working
from hushnet.report.fitting import Table
from hushnet.report.units import seconds, size

if TYPE_CHECKING:
    from hushnet.comparison import Compared, Comparison


def compare(
    model: Path = typer.Argument(..., help="ONNX file."),
    calibration: Path = CalibrationNeeded,
    labels: Path | None = CalibrationLabels,
    batch: int = typer.Option(1, min=1, help="Images sent at once, the same for all ways."),
    methods: bool = typer.Option(False, "--methods", help="Single methods and engines too."),
    shape: list[str] = Shape,
    until: str | None = Until,
    outputs: str | None = Outputs,
    as_json: bool = Json,
) -> None:
    """All trust models side by side: who learns what, accuracy, error, cost, and a recommendation."""
    with working("Planning for each trust model", quiet=as_json):
        found = hushnet.compare(
            onnx_file(model),
            calibration=read_arrays(calibration),
            labels=None if labels is None else read_labels(labels),
            batch=batch,
            methods=methods,
            shapes=read_shapes(shape),
            until=names(until),
            outputs=names(outputs),
        )
    emit(found.as_json()) if as_json else show(found)
    if all(row.refused for row in found.rows):
        raise typer.Exit(1)


def show(found: Comparison) -> None:
    """The tables."""
    made = [row for row in found.rows if not row.refused]
    if made:
        table = Table("way", "weights", "accuracy", "agreement", "error", "seconds", "bytes", "memory", "rounds")
        table.title = f"For one image, {counted(made[0].batch, 'image')} sent at once (set-up counts)"
        for row in made:
            table.add_row(*_cells(row))
        out.print(table)
        learns = Table("way", "the server learns", "the client learns", show_lines=True)
        for trust in dict.fromkeys(row.way.trust for row in made):
            learns.add_row(trust, *next(row.learns for row in made if row.way.trust == trust))
        out.print(learns)
    # what is said of several ways is said once
    said: dict[str, list[str]] = {}
    for row in found.rows:
        texts = [sentence(in_flags(row.refused))] if row.refused else []
        for text in (*texts, *map(in_flags, row.shortfalls)):
            said.setdefault(text, []).append(row.way.name)
    for text, ways in said.items():
        out.print(f"{'; '.join(ways)}: {text}", highlight=False)
    out.print(found.recommendation, highlight=False, style="bold")


def _cells(row: Compared) -> tuple[str, ...]:
    return (
        row.way.name,
        "private" if row.way.weights_private else "can be solved for",
        "" if row.accuracy is None else f"{row.accuracy:.4g}",
        "" if row.agreement is None else f"{100 * row.agreement:.4g} %",
        "" if row.error is None else f"{row.error:.3g}",
        seconds(row.seconds or 0.0),
        size(row.bytes or 0.0),
        size(row.memory_bytes or 0),
        str(row.rounds if row.rounds is not None else ""),
    )

"""``hushnet compile``: from an ONNX file to a plan. Its options are those of :mod:`hushnet.options`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer

import hushnet
from hushnet import report
from hushnet.cli.common import (
    PLANS,
    check_output,
    declared_ranges,
    emit,
    err,
    explained_in_flags,
    in_flags,
    onnx_file,
    out,
)
from hushnet.cli.options import Json, read_options, taking_options
from hushnet.cli.progress import working
from hushnet.options import KINDS


@taking_options
def compile_(
    model: Path = typer.Argument(..., help="ONNX file."),
    output: Path = typer.Option(..., "-o", "--output", help="The plan to write (.hush). It holds the weights."),
    trust: str = typer.Option(
        "client-aided",
        help="Who computes the non-linear layers: client-aided, two-party or non-interactive (nobody: polynomials).",
        autocompletion=lambda: list(KINDS),
    ),
    strict: bool = typer.Option(
        False, "--strict", help="Exit with status 3 where the precision is not reached or accuracy falls."
    ),
    feature_ranges: Path | None = typer.Option(
        None,
        help="As --input-range, for every feature (.npy): an array [2, ...] of the input's shape with least and "
        "largest values, of table columns or of an image's channels.",
    ),
    as_json: bool = Json,
    **given: Any,
) -> None:
    """Choose packing, parameters and protocol for a network, and write the plan."""
    check_output(output, PLANS, what="a plan")
    options: dict[str, Any] = {"trust": trust, **read_options(given)}
    if feature_ranges is not None:
        options["input_range"] = declared_ranges(options.get("input_range"), feature_ranges)
    with working("Planning: ranges, parameters, cost", quiet=as_json):
        compiled = hushnet.compile(onnx_file(model), **options)
    compiled.save(output)
    explained = compiled.explain()
    if as_json:
        emit({"plan": str(output), "shortfalls": compiled.shortfalls, "explain": explained})
    else:
        out.print(report.render(explained_in_flags(explained)))
        out.print(f"Wrote {output} (with weights: it stays on the server).")
    for sentence in [*compiled.shortfalls, *heavy(compiled.plan.predicted)]:
        err.print(f"Warning: {in_flags(sentence)}", style="bold red", markup=False, highlight=False)
    if strict and compiled.shortfalls:
        raise typer.Exit(3)


# of one image, above which nobody would start a run without knowing
HEAVY_BYTES = 2**30


def heavy(predicted: Mapping[str, Any]) -> list[str]:
    """A sentence where an image takes gigabytes: there may be a plan with fewer bits that takes megabytes."""
    each = (predicted["bytes_up"] + predicted["bytes_down"]) / predicted.get("batch", 1)
    if each <= HEAVY_BYTES:
        return []
    return [
        f"An image sends {each / 2**30:.3g} GiB. Ask for fewer bits (--precision), choose the engine for few images "
        "(--engine packed), or send many images at once (--batch), and compare."
    ]

"""``hushnet run``: both parties on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, cast

import typer

import hushnet
from hushnet import report
from hushnet.cli.answers import finish
from hushnet.cli.common import ARRAYS, check_output, count, plan_file, read_arrays
from hushnet.cli.options import NETWORKS, NON_INTERACTIVE, TWO_PARTY, Insecure, Json, Labels, StrictRows, Threads, Trace
from hushnet.cli.progress import layer_bars


def run(
    plan: Path = typer.Argument(..., help="The plan with weights (.hush), as compile wrote it."),
    images: Path = typer.Argument(..., help="Inputs (.npy, .npz, or MNIST IDX)."),
    output: Path | None = typer.Option(None, "-o", "--output", help="Where to write the outputs (.npz or .npy)."),
    threads: int | None = Threads,
    transport: str = typer.Option("loopback", help="loopback (a real socket) or pipe (in memory)."),
    network: str | None = typer.Option(
        None, help=f"Slow the connection down to {NETWORKS}.", rich_help_panel=TWO_PARTY
    ),
    check: bool = typer.Option(
        False,
        "--check",
        help="Run the network in the clear too, and tell which polynomials' operands left their ranges.",
        rich_help_panel=NON_INTERACTIVE,
    ),
    labels: Path | None = Labels,
    strict_rows: bool = StrictRows,
    trace: Path | None = Trace,
    as_json: bool = Json,
    insecure: bool = Insecure,
) -> None:
    """Both parties on this machine, the real protocol over a loopback socket."""
    check_output(output, ARRAYS, read=(images, labels))
    check_output(trace, what="a trace")
    inputs = read_arrays(images)
    model = hushnet.Model.load(plan_file(plan), allow_insecure=insecure)
    check_output(output, ARRAYS, [port["name"] for port in model.plan.document["outputs"]])
    with layer_bars(lambda: report.expected(model.plan, count(inputs)), quiet=as_json) as bar:
        result = hushnet.run(
            model,
            inputs,
            threads=threads,
            progress=bar,
            transport=cast(Literal["pipe", "loopback"], transport),  # others are refused by the run itself
            network=network,
            check=check,
            allow_insecure=insecure,
        )
    finish(result, output, trace, as_json, strict=strict_rows, labels=labels)

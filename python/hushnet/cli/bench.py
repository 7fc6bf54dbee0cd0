"""``hushnet bench``: published tables beside our own figures (package hushnet-bench)."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

import typer

import hushnet
from hushnet.cli.common import emit, out, progress_bar
from hushnet.cli.options import Json, Threads
from hushnet.report.fitting import Table


def _benchmarks() -> Any:
    """The package of the benchmarks.

    It stands apart, so that users' wheels hold no rivals and no insecure stand-ins.
    """
    try:
        return importlib.import_module("hushnet_bench")
    except ModuleNotFoundError as missing:
        if missing.name != "hushnet_bench":
            raise
        raise hushnet.HushnetError(
            "The benchmarks are a package of their own, hushnet-bench, which is not installed. "
            "Install it from a checkout of the repository: run `pip install ./bench` there, or `make setup`."
        ) from None


def _names() -> list[str]:
    """For shell completion; none where the package is missing."""
    try:
        return list(_benchmarks().registry())
    except hushnet.HushnetError:
        return []


def words(text: str) -> list[str]:
    """Names with commas between them; names of cases in rows may hold a comma with a space behind it."""
    return re.split(r",(?! )", text)


def bench(
    name: str | None = typer.Argument(None, help="Which benchmark; --list names them.", autocompletion=_names),
    list_: bool = typer.Option(False, "--list", help="Name the benchmarks."),
    quick: bool = typer.Option(False, "--quick", help="The smallest size."),
    threads: int | None = Threads,
    size: int | None = typer.Option(None, help="Image side, where a benchmark has sizes."),
    batch: int | None = typer.Option(None, min=1, help="Images."),
    cases: str | None = typer.Option(
        None,
        help="Only these cases, comma-separated, where a benchmark has several. A comma before a space is part of a "
        "case's name: 'iris, raw, logistic' is one case.",
    ),
    peers: str | None = typer.Option(None, help="Only these other libraries, comma-separated; 'none' for ours alone."),
    seconds: float | None = typer.Option(
        None, min=1, help="Stop a case of another library after so long, where a benchmark does (tabular: 300)."
    ),
    keep: Path | None = typer.Option(
        None, help="Write rows to this file as they are measured, and go on from there, where a benchmark takes long."
    ),
    plot: Path | None = typer.Option(
        None, help="Write a picture: PNG, or SVG by its name. Bars of speed and bytes, or the benchmark's own."
    ),
    as_json: bool = Json,
) -> None:
    """Reproduce a published table beside our own figures (package hushnet-bench)."""
    benches = _benchmarks()
    if list_ or name is None:
        rows = [{"name": b.name, "about": b.about, "source": b.source} for b in benches.registry().values()]
        if as_json:
            emit(rows)
        else:
            table = Table("name", "what it measures", "beside", title="Benchmarks: hushnet bench NAME", show_lines=True)
            for row in rows:
                table.add_row(row["name"], row["about"], "" if row["source"] == "-" else row["source"])
            out.print(table)
        return
    given = {"threads": threads, "size": size, "batch": batch, "seconds": seconds}
    options: dict[str, Any] = {k: v for k, v in given.items() if v is not None}
    for key, text in (("cases", cases), ("peers", peers)):
        if text is not None:
            options[key] = [] if text == "none" else words(text)
    if keep is not None:
        options["keep"] = keep
    with progress_bar(as_json) as bar:
        result = benches.run(name, quick=quick, progress=bar, **options)
    emit(result) if as_json else out.print(benches.render(result))
    if plot:
        benches.plot(result, plot)

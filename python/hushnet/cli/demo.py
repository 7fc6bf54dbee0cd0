"""``hushnet demo``: encrypted answers beside those in the clear."""

from __future__ import annotations

from pathlib import Path

import typer

from hushnet.cli.common import emit
from hushnet.cli.options import Json, Threads


def demo(
    name: str = typer.Argument(
        "digits",
        help="digits, or a real trained network: ocr, photo, file-type, embedding.",
        autocompletion=lambda: ["digits", "ocr", "photo", "file-type", "embedding"],
    ),
    inputs: list[Path] = typer.Argument(
        None, help="Files to run on: pictures, any files, or text with a sentence a line (default: inputs are made)."
    ),
    out_dir: Path = typer.Option(Path("hushnet-demo"), "--out", help="Folder for pictures, tables and plans."),
    images: int = typer.Option(360, min=1, help="Held-out digits to classify."),
    count: int = typer.Option(8, min=1, max=1000, help="Inputs to make for a real network."),
    trust: str = typer.Option("client-aided", help="client-aided or two-party (real networks)."),
    threads: int | None = Threads,
    as_json: bool = Json,
) -> None:
    """Encrypted answers beside those in the clear: handwritten digits, or a real network that `zoo get` fetches."""
    if name == "digits":
        from hushnet.cli.digits import run_demo

        result = run_demo(out_dir, images, quiet=as_json)
    else:
        from hushnet.cli import real

        result = real.run_demo(name, list(inputs or []), out_dir, count, trust, threads, quiet=as_json)
    if as_json:
        emit(result)

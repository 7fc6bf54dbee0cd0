"""``hushnet zoo``: architectures with seeded weights, and trained networks out of packages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

import hushnet
from hushnet import zoo
from hushnet.cli.common import emit, out
from hushnet.cli.options import Json


def zoo_(
    name: str | None = typer.Argument(None, help="An architecture, or `get`."),
    real_name: str | None = typer.Argument(None, metavar="[MODEL]", help="After `get`: the trained network to fetch."),
    output: Path | None = typer.Option(None, "-o", "--output", help="Where to write the ONNX file."),
    table: Path | None = typer.Option(None, help="A JSON table with further networks for `get` (docs/models.md)."),
    seed: int = 0,
    size: int | None = typer.Option(None, help="Image side (mobilenetv2)."),
    width: float | None = typer.Option(None, help="Width multiplier (mobilenetv2)."),
    as_json: bool = Json,
) -> None:
    """Write an architecture of the papers as ONNX with seeded weights, or fetch a trained network (`get NAME`).

    Without a name, list all.
    """
    from hushnet.cli import real

    if name is None and as_json:
        emit([*zoo.names(), *zoo.real_models(table)])
    elif name is None:
        out.print("\n".join(zoo.names()))
        out.print(real.listing(table))
    if name == "get":
        found = real.get(real_name, output, table)
        emit(found) if as_json else real.print_got(found)
    if name in (None, "get"):
        return
    if name in zoo.real_models(table):
        raise hushnet.InputError(f"{name} is a trained network. `hushnet zoo get {name}` fetches it.")
    if name not in zoo.names():
        raise hushnet.InputError(f"no architecture {name!r}: choose one of {', '.join(zoo.names())}")
    options: dict[str, Any] = {k: v for k, v in {"size": size, "width": width}.items() if v is not None}
    model = zoo.build(name, seed=seed, **options)
    path = output or Path(f"{name}.onnx")
    path.write_bytes(model.SerializeToString())
    emit({"model": str(path)}) if as_json else out.print(f"Wrote {path}")

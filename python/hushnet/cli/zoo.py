"""``hushnet zoo``: architectures with seeded weights, and trained networks out of packages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

import hushnet
from hushnet.cli.common import emit, out
from hushnet.cli.options import Json
from hushnet.report.fitting import Table


def _names() -> list[str]:
    """What may stand behind the verb."""
    from hushnet import zoo

    return ["get", *zoo.names()]


def _trained() -> list[str]:
    """What may stand behind `get`."""
    from hushnet import zoo

    return list(zoo.real_models())


def zoo_(
    name: str | None = typer.Argument(None, help="An architecture, or `get`.", autocompletion=_names),
    real_name: str | None = typer.Argument(
        None, metavar="[MODEL]", help="After `get`: the trained network to fetch.", autocompletion=_trained
    ),
    output: Path | None = typer.Option(None, "-o", "--output", help="Where to write the ONNX file."),
    table: Path | None = typer.Option(None, help="A JSON table with further networks for `get` (docs/models.md)."),
    seed: int = typer.Option(0, min=0, help="Of the weights: a seed gives the same file on every machine."),
    size: int | None = typer.Option(None, help="Image side, where an architecture leaves it open."),
    width: float | None = typer.Option(None, help="Width multiplier, where an architecture has one."),
    depth: int | None = typer.Option(None, help="Blocks of a stage at most, where an architecture leaves them open."),
    classes: int | None = typer.Option(None, min=1, help="Outputs, where an architecture leaves them open."),
    activation: str | None = typer.Option(None, help="What follows the layers, where an architecture leaves it open."),
    as_json: bool = Json,
) -> None:
    """Write an architecture of the papers as ONNX with seeded weights, or fetch a trained network (`get NAME`).

    Without a name, list all.
    """
    from hushnet import zoo
    from hushnet.cli import real

    if name is None and as_json:
        emit([*zoo.names(), *zoo.real_models(table)])
    elif name is None:
        out.print(_architectures())
        out.print(real.listing(table))
    if name == "get":
        found = real.get(real_name, output, table)
        emit(found) if as_json else real.print_got(found)
    if name in (None, "get"):
        return
    if name in zoo.real_models(table):
        raise hushnet.InputError(f"{name} is a trained network. `hushnet zoo get {name}` fetches it.")
    options: dict[str, Any] = {
        k: v
        for k, v in {"size": size, "width": width, "depth": depth, "classes": classes, "activation": activation}.items()
        if v is not None
    }
    model = zoo.build(name, seed=seed, **options)
    path = output or Path(f"{name}.onnx")
    path.write_bytes(model.SerializeToString())
    emit({"model": str(path)}) if as_json else out.print(f"Wrote {path}")


def _architectures() -> Table:
    """The table of architectures."""
    from hushnet import zoo

    shown = Table("name", "what it is", "options", title="Architectures with seeded weights: hushnet zoo NAME")
    for name in zoo.names():
        row = zoo.get(name)
        shown.add_row(name, row.about, ", ".join(f"--{option}" for option in row.options))
    return shown

"""``hushnet measure-machine``: unit costs of this machine."""

from __future__ import annotations

from pathlib import Path

import typer

import hushnet
from hushnet.cli.common import emit, out
from hushnet.cli.options import Json


def calibrate() -> None:
    """The former name of measure-machine."""
    raise hushnet.InputError(
        "`hushnet calibrate` is now `hushnet measure-machine`: it measures unit costs, while --calibration names "
        "sample inputs."
    )


def measure_machine(
    output: Path | None = typer.Option(
        None, "-o", "--output", help="File to write (default: the user's, which the planner then reads)."
    ),
    seconds: float = typer.Option(0.3, min=0.01, max=60, help="Time for each unit cost."),
    as_json: bool = Json,
) -> None:
    """Measure what each kind of work costs on this machine, for predicted times."""
    from hushnet.machine import rows

    found, path = hushnet.measure_machine(output, seconds=seconds)
    if as_json:
        emit({"path": str(path), "unit_costs": found})
        return
    # every entry but the machine's name is a number
    costs = {name: value for name, value in found.items() if isinstance(value, float | int)}
    for row in rows():
        out.print(f"{row.name:16} {costs[row.name] * 1e9:9.4f} ns  {row.about}", highlight=False)
    listed = {"machine", *(row.name for row in rows())}
    out.print("Two-party plans (docs/two-party.md has their terms):")
    for name in sorted(set(costs) - listed):
        out.print(f"{name:28} {costs[name] * 1e9:14.4f} ns", highlight=False)
    out.print(f"Wrote {path}; HUSHNET_UNIT_COSTS names another file.", highlight=False)

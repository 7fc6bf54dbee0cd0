"""``hushnet check``: a table of trust models, one of what stands in the way, and where the network could be cut."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from hushnet import InputError
from hushnet.cli.common import emit, in_flags, names, onnx_file, out, read_arrays, read_shapes, sentence
from hushnet.cli.options import Batch, Calibration, Json, Shape, Until
from hushnet.cli.progress import working
from hushnet.options import KINDS
from hushnet.report.fitting import Table

if TYPE_CHECKING:
    from hushnet.assess import Assessment, Group


@dataclass(frozen=True)
class Checked:
    """The assessments of all trust models that were asked for; ``calibrated``: with calibration data."""

    assessments: tuple[Assessment, ...]
    calibrated: bool = True

    @property
    def compiles(self) -> bool:
        """Whether some trust model takes the whole network."""
        return any(a.compiles for a in self.assessments)

    def as_json(self, model: str) -> dict[str, Any]:
        """The document that ``--json`` prints."""
        return {"model": model, "supported": self.compiles, "trust": {a.trust: a.as_json() for a in self.assessments}}

    def print(self) -> None:
        """The tables."""
        out.print(_costs(self.assessments))
        for groups, trusts in _same(self.assessments).items():
            if groups:
                out.print(_blocking(groups, trusts))
        for a in self.assessments:
            for line in _remarks(a):
                out.print(line, highlight=False)
        if self.compiles and not self.calibrated:
            out.print(
                "Without calibration data the figures are those of 8-bit plans. What compile makes for the precision "
                "may cost several times as much: --calibration says.",
                highlight=False,
            )


def check(
    model: Path = typer.Argument(..., help="ONNX file."),
    trust: str = typer.Option(
        "all", help="client-aided, two-party, non-interactive or all.", autocompletion=lambda: ["all", *KINDS]
    ),
    shape: list[str] = Shape,
    until: str | None = Until,
    batch: int | None = Batch,
    calibration: Path | None = Calibration,
    as_json: bool = Json,
) -> None:
    """Whether each trust model takes a network: its cost, or every node in the way with what to do.

    Where a network is not taken, the place is named where it could end, so that the client computes the rest.
    """
    with working("Planning for each trust model", quiet=as_json):
        found = run_check(
            onnx_file(model),
            trust,
            batch=batch,
            calibration=read_arrays(calibration) if calibration else None,
            shapes=read_shapes(shape),
            until=names(until),
        )
    emit(found.as_json(str(model))) if as_json else found.print()
    if not found.compiles:
        raise typer.Exit(1)


def run_check(model: str, trust: str, **options: Any) -> Checked:
    """Asks one trust model, or all."""
    from hushnet.assess import assess_all

    if trust not in ("all", *KINDS):
        raise InputError(f"--trust {trust}: choose one of {', '.join(KINDS)} or all.")
    found = assess_all(model, tuple(KINDS) if trust == "all" else (trust,), **options)
    return Checked(found, calibrated=options.get("calibration") is not None)


def _remarks(a: Assessment) -> list[str]:
    """What the tables do not say, as sentences."""
    calibrated = "Compile it with --calibration: ranges that hold for all inputs are too wide for it."
    if a.compiles:
        return [f"{a.trust}: the figures are those of random inputs. {calibrated}"] if a.made_up else []
    if not a.until:
        return [f"{a.trust}: no cut was found. Not even the first layers run encrypted."]
    line = f"{a.trust}: layers up to {a.until} run encrypted. The rest can run on the client (--until {a.until})."
    return [f"{line} {calibrated}" if a.made_up else line]


def _costs(assessments: tuple[Assessment, ...]) -> Table:
    table = Table("trust model", "compiles", "images", "seconds", "MB up", "MB down")
    table.title = "Predicted for the images of the third column, sent at once (--batch)"
    for a in assessments:
        table.add_row(
            a.trust,
            "yes" if a.compiles else "no",
            str(a.batch) if a.compiles else "",
            *(_number(v) for v in _figures(a)),
        )
    return table


def _figures(a: Assessment) -> tuple[float | None, ...]:
    return (a.seconds, *(None if v is None else v / 1e6 for v in (a.bytes_up, a.bytes_down)))


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"


def _same(assessments: tuple[Assessment, ...]) -> dict[tuple[Group, ...], list[str]]:
    """Trust models that fail for the same reasons, together."""
    found: dict[tuple[Group, ...], list[str]] = {}
    for a in assessments:
        found.setdefault(a.groups, []).append(a.trust)
    return found


def _blocking(groups: tuple[Group, ...], trusts: list[str]) -> Table:
    table = Table(
        "operator", "nodes", "what is wrong", "what to do", title=f"In the way of {', '.join(trusts)}", show_lines=True
    )
    for group in groups:
        names = ", ".join(group.nodes[:2]) + (f" and {group.count - 2} more" if group.count > 2 else "")
        problem, advice = in_flags(group.problem), in_flags(group.advice)
        table.add_row(group.op_type, f"{group.count}: {names}", sentence(problem), sentence(advice) if advice else "")
    return table

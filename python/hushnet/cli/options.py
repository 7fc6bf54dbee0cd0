"""Parameters of commands: those that several share, and those that follow from :mod:`hushnet.options`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import typer

from hushnet.cli.common import names, read_arrays, read_labels, read_shapes
from hushnet.options import KINDS, Field, merged, table, takers

# titles of panels of --help: options that one trust model alone has
TWO_PARTY = "Two-party plans: both sides private"
NON_INTERACTIVE = "Non-interactive plans: the server alone computes"
_PANELS = {
    "client-aided": "Client-aided plans: the client computes non-linear layers",
    "two-party": TWO_PARTY,
    "non-interactive": NON_INTERACTIVE,
}
NETWORKS = "lan, wan, or bandwidth and round trip like 200mbit,5ms"
# of options whose values are no plain numbers or strings: the command line's type, and how it is read
_READ: dict[str, tuple[Any, Callable[[Any], Any]]] = {
    "shapes": (list[str], read_shapes),
    "until": (str, names),
    "outputs": (str, names),
    "calibration": (Path, read_arrays),
    "labels": (Path, read_labels),
    "input_range": (tuple[float, float], tuple),
}
# and what is to be said of them here
_WRITTEN = {
    "shapes": "Written as x=1,3,48,192, once for each input.",
    "until": "Several: comma-separated.",
    "outputs": "Several: comma-separated.",
    "calibration": "A .npy or .npz file.",
    "labels": "A .npy file.",
    "input_range": "Arrays: --feature-ranges.",
}
# characters of values that are shown beside a name
_LONG = 30

Verb = TypeVar("Verb", bound=Callable[..., None])


def panel(name: str) -> str | None:
    """The panel of an option; None where every trust model has it."""
    whose = takers(name)
    if len(whose) == len(KINDS):
        return None
    return _PANELS[whose[0]] if len(whose) == 1 else f"{' and '.join(whose).capitalize()} plans"


def parameter(name: str, *, required: bool = False) -> Any:
    """The command line's parameter for an option of ``compile``.

    Args:
        required: the command does not run without it.
    """
    fields = [table(KINDS[trust])[name] for trust in takers(name)]
    option, values = fields[0].option, [str(v) for v in (*fields[0].values, *fields[0].option.choices)]
    about = merged(name, lambda f: f.option.about)
    listed = "|".join(values)
    if len(listed) > _LONG:
        about, listed = f"{about} One of {', '.join(values)}.", ""
    told = [about, _WRITTEN.get(name, "")]
    told += [] if required else [f"Default: {merged(name, lambda f: f.default_said)}."]
    limits: dict[str, Any] = {}
    if not option.there and option.above is None and _kind(fields[0]) in (int, float):
        limits = {"min": _end(min, [f.option.least for f in fields]), "max": _end(max, [f.option.most for f in fields])}
    return typer.Option(
        ... if required else [] if name == "shapes" else None,
        option.flag,
        help=" ".join(text for text in told if text),
        metavar=option.there[0] if option.there else None if fields[0].numbers else listed or None,
        rich_help_panel=panel(name),
        **limits,
    )


def _end(choose: Callable[[Any], float], ends: list[float | None]) -> float | None:
    """The outer of the ends of a range, where every trust model has one."""
    return None if None in ends else choose(ends)


def _kind(field: Field) -> Any:
    """The type of an option on the command line."""
    if field.name in _READ:
        return _READ[field.name][0]
    if field.option.there:
        return float
    if field.kinds == (bool,):
        return bool
    if field.numbers and not field.values:
        return field.numbers[0]
    return str


def options_of_compile() -> dict[str, Field]:
    """The options that the command line has, by name."""
    found: dict[str, Field] = {}
    for kind in KINDS.values():
        for name, field in table(kind).items():
            if field.option.flag:
                found.setdefault(name, field)
    return found


def taking_options(verb: Verb) -> Verb:
    """A command whose ``**given`` are the options of ``compile``, in front of its ``as_json``."""
    own = [p for p in inspect.signature(verb, eval_str=True).parameters.values() if p.kind is not p.VAR_KEYWORD]
    more = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=parameter(name),
            annotation=list[str] if name == "shapes" else _kind(field) | None,
        )
        for name, field in options_of_compile().items()
    ]
    keyword = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own]
    verb.__signature__ = inspect.Signature([*keyword[:-1], *more, keyword[-1]])  # type: ignore[attr-defined]
    return verb


def read_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """The options that were given, as ``hushnet.compile`` takes them."""
    fields, found = options_of_compile(), {}
    for name, value in given.items():
        if value in (None, []):
            continue
        field = fields[name]
        if name in _READ:
            value = _READ[name][1](value)
        elif field.option.there:
            value = int(value * field.option.there[1])
        elif isinstance(value, str) and field.numbers and value.isdecimal():
            value = int(value)
        found[name] = value
    return found


Json = typer.Option(False, "--json", help="Print one JSON document instead of text.")
Threads = typer.Option(None, "--threads", min=1, help="Worker threads (default: all cores).")
Insecure = typer.Option(False, "--insecure-parameters", help="Accept plans below 128 bits; everything printed says so.")
Trace = typer.Option(None, "--trace", help="Write the trace (per stage: seconds, bytes, rounds, noise margin) as JSON.")
# of clients of a server
Ca = typer.Option(None, "--ca", help="Trust this authority, or this certificate that is signed by itself (PEM).")
Cert = typer.Option(None, "--cert", help="Certificate and key (PEM) to show to servers that ask clients for them.")
ModelName = typer.Option(
    None, "--model", help="The model to ask for, where the server has several; hush://host/NAME says it, too."
)
TokenFile = typer.Option(
    None,
    "--token-file",
    help="File with the token that the server asks for; without it the variable HUSHNET_TOKEN, if it is set.",
)
Retry = typer.Option(
    0,
    "--retry",
    min=0,
    help="Times to try again when the server is full, after the time that it says and up to half as much more.",
)
InsecureTls = typer.Option(False, "--insecure-tls", help="Do not check the server's certificate.")
Setups = typer.Option(
    None, "--setups", help="Folder to keep set-ups in for the next session.", rich_help_panel=TWO_PARTY
)
MaxMemory = typer.Option(
    None, "--max-memory", help="GiB that the client may take for the server's plan (default 32).", min=0
)
Labels = typer.Option(
    None,
    "--labels",
    help="Right answers of the inputs (.npy: whole numbers, or names of classes): accuracy is printed.",
)
StrictRows = typer.Option(False, "--strict-rows", help="NaN for every row of which a value left its planned range.")
Shape = parameter("shapes")
Until = parameter("until")
Outputs = parameter("outputs")
Batch = parameter("batch")
Calibration = parameter("calibration")
CalibrationNeeded = parameter("calibration", required=True)
CalibrationLabels = parameter("labels")

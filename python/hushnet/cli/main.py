"""``hushnet``: compile, check, compare, explain, run, serve, prepare, infer, bench, demo, measure-machine, zoo."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from importlib.metadata import version

import numpy as np
import typer
from rich.text import Text

import hushnet
from hushnet.cli.bench import bench
from hushnet.cli.check import check
from hushnet.cli.common import err, in_flags, sentence
from hushnet.cli.compare import compare
from hushnet.cli.compile import compile_
from hushnet.cli.demo import demo
from hushnet.cli.explain import explain
from hushnet.cli.infer import infer, prepare
from hushnet.cli.machine import calibrate, measure_machine
from hushnet.cli.run import run
from hushnet.cli.serve import serve
from hushnet.cli.zoo import zoo_

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Run a trained neural network on inputs that the server never sees.",
    epilog=(
        "Exit status: 0: done; 1: an error, or no trust model takes the network (check, "
        "compare); 2: the command line is "
        "wrong; 3: a plan that falls short (compile --strict); 130: interrupted."
    ),
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"hushnet {version('hushnet')}")
        raise typer.Exit


@app.callback()
def common(
    _: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Say which version this is."),
) -> None:
    """Run a trained neural network on inputs that the server never sees."""


# in the order of --help
VERBS: dict[str, Callable[..., None]] = {
    "compile": compile_,
    "check": check,
    "compare": compare,
    "explain": explain,
    "run": run,
    "serve": serve,
    "prepare": prepare,
    "infer": infer,
    "bench": bench,
    "demo": demo,
    "measure-machine": measure_machine,
    "zoo": zoo_,
}
for name, verb in VERBS.items():
    app.command(name)(verb)
app.command("calibrate", hidden=True, context_settings={"allow_extra_args": True, "ignore_unknown_options": True})(
    calibrate
)


def main() -> None:
    """Entry point: typed errors become one line on standard error (an object with ``--json``) and exit code 1."""
    try:
        # numbers beyond a range are told in sentences; NumPy's warnings would name lines of the source
        with np.errstate(all="ignore"):
            app(prog_name="hushnet")
    except (hushnet.HushnetError, ValueError, OSError) as error:
        message = sentence(in_flags(str(error)))
        if "--json" in sys.argv:
            print(json.dumps({"error": {"type": type(error).__name__, "message": message}}))
        else:
            said = Text.assemble((f"{type(error).__name__}:", "bold red"), " ", message)
            err.print(said, highlight=False)
        raise SystemExit(1) from None

"""``hushnet``: compile, check, compare, explain, run, serve, prepare, infer, bench, demo, measure-machine, zoo."""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable
from typing import NoReturn

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
from hushnet.cli.infer import infer
from hushnet.cli.machine import calibrate, measure_machine
from hushnet.cli.prepare import prepare
from hushnet.cli.run import run
from hushnet.cli.serve import serve
from hushnet.cli.zoo import zoo_

# of errors that are no user's
FAULT = "InternalError"
REPORT = (
    "This is a fault of hushnet, not of what you gave. Report it: the command, what `hushnet --version` says, and the "
    "lines of the traceback. They name files and may hold values of yours; look through them first."
)
NO_MEMORY = "Take fewer inputs at once, or a smaller batch (--batch)."

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Run a trained neural network on inputs that the server never sees.",
    epilog=(
        "Exit status: 0: done; 1: an error, or no trust model takes the network (check, "
        "compare); 2: the command line is "
        "wrong; 3: a plan that falls short (compile --strict); 4: a fault of hushnet itself; 130: interrupted."
    ),
)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

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
    """Entry point: an error becomes one line on standard error (an object with ``--json``) and an exit code.

    The code is 1 where what was given is wrong, and 4 where Hushnet is: the traceback stands in front of the line then.
    """
    try:
        # numbers beyond a range are told in sentences; NumPy's warnings would name lines of the source
        with np.errstate(all="ignore"):
            app(prog_name="hushnet")
    except (hushnet.HushnetError, OSError) as error:
        _failed(type(error).__name__, sentence(in_flags(str(error))), 1)
    except MemoryError as error:
        _failed("MemoryError", f"This machine has too little memory. {NO_MEMORY} {error}".strip(), 1)
    except Exception as error:
        trace = traceback.format_exc()
        if "--json" not in sys.argv:
            err.print(trace.rstrip(), highlight=False)
        _failed(FAULT, f"{type(error).__name__}: {sentence(str(error))} {REPORT}", 4, trace.splitlines())


def _failed(kind: str, message: str, code: int, trace: list[str] | None = None) -> NoReturn:
    """The last line of a command that ends in an error, and its exit code."""
    if "--json" in sys.argv:
        about: dict[str, object] = {"type": kind, "message": message}
        print(json.dumps({"error": about if trace is None else about | {"traceback": trace}}))
    else:
        err.print(Text.assemble((f"{kind}:", "bold red"), " ", message), highlight=False)
    raise SystemExit(code) from None

"""``hushnet prepare``: inferences whose inputs are not known yet."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import typer

from hushnet.cli.common import check_output, counted, emit, out
from hushnet.cli.connecting import connected, read_token, retried
from hushnet.cli.options import (
    Ca,
    Cert,
    InsecureTls,
    Json,
    MaxMemory,
    ModelName,
    Retry,
    Setups,
    Threads,
    TokenFile,
    Trace,
)


def prepare(
    url: str = typer.Argument(..., help="Address of the server, as `hushnet infer` takes it."),
    number: int = typer.Option(
        ..., "-n", "--number", min=1, help="Inferences to prepare: one for every image to come."
    ),
    folder: Path = typer.Option(
        ..., "--folder", help="Where this client's half of them is kept, for `infer --prepared`."
    ),
    ca: Path | None = Ca,
    cert: tuple[Path, Path] | None = Cert,
    model: str | None = ModelName,
    token_file: Path | None = TokenFile,
    retry: int = Retry,
    insecure_tls: bool = InsecureTls,
    setups: Path | None = Setups,
    max_memory: float | None = MaxMemory,
    threads: int | None = Threads,
    trace: Path | None = Trace,
    as_json: bool = Json,
) -> None:
    """Do all work of inferences that their inputs do not change, before these are known (two-party plans)."""
    check_output(trace, what="a trace")
    options: dict[str, Any] = {
        "ca": str(ca) if ca else None,
        "insecure_tls": insecure_tls,
        "threads": threads,
        "setups": setups,
        "model": model,
        "token": read_token(token_file),
        "cert": cert,
        "prepared": folder,
    }
    if max_memory is not None:
        options["max_memory"] = int(max_memory * 2**30)

    def once() -> tuple[dict[str, Any], int]:
        with connected(url, options) as connection:
            told = connection.prepare(number)
            return told, connection.prepared or 0

    told, held = retried(once, retry)
    if trace:
        trace.write_text(json.dumps(told, indent=1))
    summary = {name: told[name] for name in ("units", "seconds", "bytes_up", "bytes_down")} | {"prepared": held}
    if as_json:
        emit(summary)
        return
    up, down = (told[k] / number / 1e6 for k in ("bytes_up", "bytes_down"))
    out.print(
        f"{counted(number, 'inference')} prepared in {told['seconds']:.3f} s, {up:.4f} MB up and {down:.4f} MB down "
        f"each. {folder} holds {held} for this server.",
        highlight=False,
    )

"""``hushnet infer``: a client of a server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

import hushnet
from hushnet import report
from hushnet.cli.answers import finish
from hushnet.cli.common import ARRAYS, check_output, count, read_arrays
from hushnet.cli.connecting import connected, read_token, retried
from hushnet.cli.options import (
    NON_INTERACTIVE,
    TWO_PARTY,
    Ca,
    Cert,
    InsecureTls,
    Json,
    Labels,
    MaxMemory,
    ModelName,
    Retry,
    Setups,
    StrictRows,
    Threads,
    TokenFile,
    Trace,
)
from hushnet.cli.progress import layer_bars


def infer(
    url: str = typer.Argument(
        ..., help="hush://host:port or hushs://host:port (TLS), /NAME for a model; ws:// and wss:// through proxies"
    ),
    images: Path = typer.Argument(..., help="Inputs (.npy, .npz, or MNIST IDX)."),
    output: Path | None = typer.Option(None, "-o", "--output", help="Where to write the outputs (.npz or .npy)."),
    ca: Path | None = Ca,
    cert: tuple[Path, Path] | None = Cert,
    model: str | None = ModelName,
    token_file: Path | None = TokenFile,
    retry: int = Retry,
    insecure_tls: bool = InsecureTls,
    setups: Path | None = Setups,
    setups_quota: float | None = typer.Option(
        None, help="GiB that all set-ups in the folder may take (default 16).", min=0, rich_help_panel=TWO_PARTY
    ),
    setups_days: float | None = typer.Option(
        None, help="Set-ups not used for so many days are removed (default 30).", min=0.001, rich_help_panel=TWO_PARTY
    ),
    max_memory: float | None = MaxMemory,
    prepared: Path | None = typer.Option(
        None,
        help="Spend inferences that `hushnet prepare` has left in this folder, one for every image.",
        rich_help_panel=TWO_PARTY,
    ),
    plan_digest: str | None = typer.Option(
        None, help="Refuse a public plan of another SHA-256.", rich_help_panel=TWO_PARTY
    ),
    plan: Path | None = typer.Option(
        None, help="Refuse a server of another plan than this file's (.hush, with or without weights)."
    ),
    keys: Path | None = typer.Option(
        None,
        help="Folder to keep the secret of this client's keys in: a server that knows the keys is sent none.",
        rich_help_panel=NON_INTERACTIVE,
    ),
    threads: int | None = Threads,
    labels: Path | None = Labels,
    strict_rows: bool = StrictRows,
    trace: Path | None = Trace,
    as_json: bool = Json,
) -> None:
    """Encrypt inputs, compute with a server, decrypt the outputs."""
    check_output(output, ARRAYS, read=(images, labels))
    check_output(trace, what="a trace")
    x = read_arrays(images)
    images_sent = count(x)
    options: dict[str, Any] = {
        "ca": str(ca) if ca else None,
        "insecure_tls": insecure_tls,
        "threads": threads,
        "images": images_sent or None,
        "setups": setups,
        "model": model,
        "token": read_token(token_file),
        "cert": cert,
    }
    options |= {"setups_days": setups_days, "plan_digest": plan_digest, "keys": keys, "plan": plan}
    options["prepared"] = prepared
    options |= {
        name: int(gib * 2**30)
        for name, gib in (("setups_quota", setups_quota), ("max_memory", max_memory))
        if gib is not None
    }

    def once() -> hushnet.Result:
        with connected(url, options) as connection:
            check_output(output, ARRAYS, [port["name"] for port in connection.plan["outputs"]])
            with layer_bars(lambda: report.expected(connection.public_part(), images_sent), quiet=as_json) as bar:
                return connection.infer(x, progress=bar)

    result = retried(once, retry)
    finish(result, output, trace, as_json, strict=strict_rows, labels=labels)

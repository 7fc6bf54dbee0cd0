"""``hushnet infer``: a client of a server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

import hushnet
from hushnet.cli.answers import finish
from hushnet.cli.common import ARRAYS, check_output, progress_bar, read_arrays
from hushnet.cli.options import TWO_PARTY, Json, Labels, StrictRows, Threads, Trace


def infer(
    url: str = typer.Argument(
        ..., help="hush://host:port or hushs://host:port (TLS); ws:// and wss:// through proxies"
    ),
    images: Path = typer.Argument(..., help="Inputs (.npy, .npz, or MNIST IDX)."),
    output: Path | None = typer.Option(None, "-o", "--output"),
    ca: Path | None = typer.Option(None, help="Trust this CA or self-signed certificate (PEM)."),
    insecure_tls: bool = typer.Option(False, help="Do not check the server's certificate."),
    setups: Path | None = typer.Option(
        None, help="Folder to keep set-ups in for the next session.", rich_help_panel=TWO_PARTY
    ),
    setups_quota: float | None = typer.Option(
        None, help="GiB that all set-ups in the folder may take (default 16).", min=0, rich_help_panel=TWO_PARTY
    ),
    setups_days: float | None = typer.Option(
        None, help="Set-ups not used for so many days are removed (default 30).", min=0.001, rich_help_panel=TWO_PARTY
    ),
    max_memory: float | None = typer.Option(
        None, help="GiB that the client may take for the server's plan (default 32).", min=0
    ),
    plan_digest: str | None = typer.Option(
        None, help="Refuse a public plan of another SHA-256.", rich_help_panel=TWO_PARTY
    ),
    threads: int | None = Threads,
    labels: Path | None = Labels,
    strict_rows: bool = StrictRows,
    trace: Path | None = Trace,
    as_json: bool = Json,
) -> None:
    """Encrypt inputs, compute with a server, decrypt the outputs."""
    check_output(output, ARRAYS)
    check_output(trace)
    x = read_arrays(images)
    count = len(next(iter(x.values())) if isinstance(x, dict) else x)
    options: dict[str, Any] = {
        "ca": str(ca) if ca else None,
        "insecure_tls": insecure_tls,
        "threads": threads,
        "images": count or None,
        "setups": setups,
    }
    options |= {"setups_days": setups_days, "plan_digest": plan_digest}
    options |= {
        name: int(gib * 2**30)
        for name, gib in (("setups_quota", setups_quota), ("max_memory", max_memory))
        if gib is not None
    }
    with hushnet.connect(url, **options) as connection:
        check_output(output, ARRAYS, [port["name"] for port in connection.plan["outputs"]])
        with progress_bar(as_json) as bar:
            result = connection.infer(x, progress=bar)
    finish(result, output, trace, as_json, strict=strict_rows, labels=labels)

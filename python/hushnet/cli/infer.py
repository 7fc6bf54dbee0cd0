"""``hushnet infer``: a client of a server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

import hushnet
from hushnet.cli.answers import finish
from hushnet.cli.common import ARRAYS, check_output, count, read_arrays, sentence
from hushnet.cli.options import NON_INTERACTIVE, TWO_PARTY, Json, Labels, StrictRows, Threads, Trace
from hushnet.cli.progress import layer_bars
from hushnet.report import expected


def infer(
    url: str = typer.Argument(
        ..., help="hush://host:port or hushs://host:port (TLS); ws:// and wss:// through proxies"
    ),
    images: Path = typer.Argument(..., help="Inputs (.npy, .npz, or MNIST IDX)."),
    output: Path | None = typer.Option(None, "-o", "--output", help="Where to write the outputs (.npz or .npy)."),
    ca: Path | None = typer.Option(
        None, help="Trust this authority, or this certificate that is signed by itself (PEM)."
    ),
    insecure_tls: bool = typer.Option(False, "--insecure-tls", help="Do not check the server's certificate."),
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
    check_output(output, ARRAYS)
    check_output(trace)
    x = read_arrays(images)
    images_sent = count(x)
    options: dict[str, Any] = {
        "ca": str(ca) if ca else None,
        "insecure_tls": insecure_tls,
        "threads": threads,
        "images": images_sent or None,
        "setups": setups,
    }
    options |= {"setups_days": setups_days, "plan_digest": plan_digest, "keys": keys}
    options |= {
        name: int(gib * 2**30)
        for name, gib in (("setups_quota", setups_quota), ("max_memory", max_memory))
        if gib is not None
    }
    with _connected(url, options) as connection:
        check_output(output, ARRAYS, [port["name"] for port in connection.plan["outputs"]])
        with layer_bars(lambda: expected(connection.public_part(), images_sent), quiet=as_json) as bar:
            result = connection.infer(x, progress=bar)
    finish(result, output, trace, as_json, strict=strict_rows, labels=labels)


# what a stranger meets first: scheme of the address, what the connection says, and what to do
_HINTS = (
    ("hush", "closed the connection", "If the server was started with --tls, its address begins with hushs://."),
    ("ws", "closed the connection", "If the server was started with --tls, its address begins with wss://."),
    ("hushs", "InvalidContentType", "The server speaks no TLS: its address begins with hush://."),
    ("wss", "InvalidContentType", "The server speaks no TLS: its address begins with ws://."),
)


def _connected(url: str, options: dict[str, Any]) -> hushnet.Connection:
    """A connection.

    Raises:
        TransportError: with what the address should be, where that follows.
    """
    try:
        return hushnet.connect(url, **options)
    except hushnet.TransportError as error:
        scheme = url.partition("://")[0]
        for of, said, advice in _HINTS:
            if of == scheme and said in str(error):
                raise hushnet.TransportError(f"{sentence(str(error))} {advice}") from None
        raise

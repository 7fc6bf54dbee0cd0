"""``hushnet infer``: a client of a server."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import typer

import hushnet
from hushnet.cli.answers import finish
from hushnet.cli.common import ARRAYS, check_output, count, err, read_arrays, sentence
from hushnet.cli.options import NON_INTERACTIVE, TWO_PARTY, Json, Labels, StrictRows, Threads, Trace
from hushnet.cli.progress import layer_bars
from hushnet.report import expected

Answer = TypeVar("Answer")


def infer(
    url: str = typer.Argument(
        ..., help="hush://host:port or hushs://host:port (TLS), /NAME for a model; ws:// and wss:// through proxies"
    ),
    images: Path = typer.Argument(..., help="Inputs (.npy, .npz, or MNIST IDX)."),
    output: Path | None = typer.Option(None, "-o", "--output", help="Where to write the outputs (.npz or .npy)."),
    ca: Path | None = typer.Option(
        None, help="Trust this authority, or this certificate that is signed by itself (PEM)."
    ),
    cert: tuple[Path, Path] | None = typer.Option(
        None, help="Certificate and key (PEM) to show to servers that ask clients for them."
    ),
    model: str | None = typer.Option(
        None, help="The model to ask for, where the server has several; hush://host/NAME says it, too."
    ),
    token_file: Path | None = typer.Option(
        None, help="File with the token that the server asks for; without it the variable HUSHNET_TOKEN, if it is set."
    ),
    retry: int = typer.Option(
        0,
        min=0,
        help="Times to try again when the server is full, after the time that it says and up to half as much more.",
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
            with layer_bars(lambda: expected(connection.public_part(), images_sent), quiet=as_json) as bar:
                return connection.infer(x, progress=bar)

    result = retried(once, retry)
    finish(result, output, trace, as_json, strict=strict_rows, labels=labels)


def retried(once: Callable[[], Answer], times: int) -> Answer:
    """Does something again, so many times at most, when a server says that it is full.

    It waits for as long as the server says, and up to half as long more: clients that were refused together do not
    come back together.
    """
    for left in range(times, -1, -1):
        try:
            return once()
        except hushnet.ProtocolError as error:
            if error.retry_after is None or not left:
                raise
            wait = error.retry_after * random.uniform(1.0, 1.5)
            again = "once more" if left == 1 else f"{left} times more"
            err.print(f"{sentence(str(error))} Trying {again}, in {wait:.1f} s.")
            time.sleep(wait)
    raise AssertionError("the last time returns or raises")


def read_token(path: Path | None) -> str | None:
    """The token of a file, or of the environment.

    Raises:
        InputError: the file cannot be read, or there is nothing in it.
    """
    if path is None:
        return os.environ.get("HUSHNET_TOKEN") or None
    try:
        text = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise hushnet.InputError(f"--token-file {path} cannot be read: {type(error).__name__}.") from None
    if not text:
        raise hushnet.InputError(f"--token-file {path} is empty: it holds the token that the server's operator gave.")
    return text


# what a stranger meets first: scheme of the address, what the connection says, and what to do
_HINTS = (
    ("hush", "closed the connection", "If the server was started with --tls, its address begins with hushs://."),
    ("ws", "closed the connection", "If the server was started with --tls, its address begins with wss://."),
    ("hushs", "InvalidContentType", "The server speaks no TLS: its address begins with hush://."),
    ("wss", "InvalidContentType", "The server speaks no TLS: its address begins with ws://."),
)


def connected(url: str, options: dict[str, Any]) -> hushnet.Connection:
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

"""``hushnet serve``: a server of a plan."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import typer

import hushnet
from hushnet import _native, report
from hushnet.cli.common import check_output, out, plan_file
from hushnet.cli.options import TWO_PARTY, Insecure, Json, Threads


def serve(
    plan: Path = typer.Argument(..., help="The plan with weights (.hush), as compile wrote it."),
    listen: str = typer.Option("127.0.0.1:8765", help="host:port; 0.0.0.0 for all interfaces, port 0 for any free."),
    tls: tuple[Path, Path] | None = typer.Option(
        None, help="Certificate chain and key (PEM); docs/command-line.md tells how to make them."
    ),
    threads: int | None = Threads,
    max_sessions: int = typer.Option(16, min=1, help="Clients at a time; more are refused."),
    idle_timeout: float = typer.Option(60.0, help="Seconds without a message after which a session is closed."),
    record: Path | None = typer.Option(
        None, help="Append everything that clients send to this file: all that the server sees of it."
    ),
    trace: Path | None = typer.Option(
        None,
        "--trace",
        help="Append this party's trace of every session, one JSON object a line.",
        rich_help_panel=TWO_PARTY,
    ),
    weight_memory: float | None = typer.Option(
        None, min=0.0, help="GiB for weights in evaluation form (default 2).", rich_help_panel=TWO_PARTY
    ),
    as_json: bool = Json,
    insecure: bool = Insecure,
) -> None:
    """Serve a plan to clients, until Ctrl-C.

    /ws speaks the protocol, /healthz and /metrics tell how the server is.
    """
    host, _, port = listen.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65535:
        raise hushnet.InputError(f"--listen {listen}: give host:port, for example 0.0.0.0:8765")
    check_output(record)
    check_output(trace)
    model = hushnet.Model.load(plan_file(plan), allow_insecure=insecure)
    options: dict[str, Any] = {"max_sessions": max_sessions, "idle_timeout": idle_timeout, "allow_insecure": insecure}
    if record:
        options["record"] = str(record)
    if tls:
        options |= {"tls_cert": str(tls[0]), "tls_key": str(tls[1])}
    if threads:
        options["threads"] = threads
    if weight_memory is not None:
        options["weight_memory"] = int(weight_memory * 2**30)
    handle = hushnet.serve(model, host=host.strip("[]"), port=int(port), **options)
    scheme = "hushs" if tls else "hush"
    url = f"{scheme}://{host}:{handle.port}"
    websocket = f"{'wss' if tls else 'ws'}://{host}:{handle.port}/ws"
    if as_json:
        print(json.dumps({"url": url, "websocket": websocket, "port": handle.port}), flush=True)
    else:
        out.print(report.trust_text(model.plan))
        out.print(f"Serving {model.plan.document['name']} at {url} and {websocket} (Ctrl-C ends).")
    _until_interrupted(handle, trace)


def _until_interrupted(handle: _native.ServerHandle, trace: Path | None) -> None:
    try:
        while not handle.join(None if trace is None else 0.2):
            _append(trace, handle.traces())
    except KeyboardInterrupt:
        handle.stop()
    _append(trace, handle.traces())


def _append(path: Path | None, traces: list[str]) -> None:
    if path is not None and traces:
        with path.open("a") as file:
            file.writelines(f"{t}\n" for t in traces)

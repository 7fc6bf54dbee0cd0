"""``hushnet serve``: a server of a plan."""

from __future__ import annotations

import json
from enum import Enum
from pathlib import Path
from typing import Any

import typer

import hushnet
from hushnet import report
from hushnet.cli.common import check_output, out, plan_file
from hushnet.cli.operate import descriptors, log, operate, start_log
from hushnet.cli.options import NON_INTERACTIVE, TWO_PARTY, Insecure, Json, Threads


class LogFormat(str, Enum):
    """Forms of the server's log."""

    TEXT = "text"
    JSON = "json"


class LogLevel(str, Enum):
    """Levels of the server's log."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


def serve(
    plan: Path = typer.Argument(..., help="The plan with weights (.hush), as compile wrote it."),
    listen: str = typer.Option("127.0.0.1:8765", help="host:port; 0.0.0.0 for all interfaces, port 0 for any free."),
    tls: tuple[Path, Path] | None = typer.Option(
        None, help="Certificate chain and key (PEM); docs/command-line.md tells how to make them."
    ),
    threads: int | None = Threads,
    max_sessions: int = typer.Option(
        16, min=1, help="Sessions in work at once; fewer where --memory does not hold them."
    ),
    memory: float = typer.Option(16.0, min=0.001, help="GiB for all sessions together."),
    max_connections: int = typer.Option(1024, min=1, help="Connections at once; more are closed as they come."),
    idle_timeout: float = typer.Option(60.0, help="Seconds without a message after which a session is closed."),
    line: float = typer.Option(10.0, help="Seconds that a client waits for a slot of a full server at most."),
    patience: float = typer.Option(
        1.0, help="Seconds that a session may keep a full server waiting while others stand in line."
    ),
    session_time: float = typer.Option(
        3600.0, help="Age in seconds at which a session of a full server gives its slot to the next in line."
    ),
    grace: float = typer.Option(10.0, help="Seconds that blocks in work have to finish when the server is stopped."),
    origin: list[str] = typer.Option(
        [],
        help="Origin (https://host) whose web pages may connect, beside the server's own; may be given more than once.",
    ),
    log_format: LogFormat = typer.Option(LogFormat.TEXT, help="Lines of the log on standard error."),
    log_level: LogLevel = typer.Option(LogLevel.INFO, help="Least level that is logged."),
    record: Path | None = typer.Option(
        None, help="Append everything that clients send to this file: all that the server sees of it."
    ),
    trace: Path | None = typer.Option(
        None,
        "--trace",
        help="Append this party's trace of every session, one JSON object a line.",
        rich_help_panel=TWO_PARTY,
    ),
    keys: Path | None = typer.Option(
        None,
        help="Keep clients' evaluation keys in this folder, so that one that comes again sends none.",
        rich_help_panel=NON_INTERACTIVE,
    ),
    keys_quota: float | None = typer.Option(
        None, min=0.0, help="GiB of all keys in the folder (default 16).", rich_help_panel=NON_INTERACTIVE
    ),
    keys_days: float | None = typer.Option(
        None, help="Keys that nobody has used for so long are removed (default 30).", rich_help_panel=NON_INTERACTIVE
    ),
    weight_memory: float | None = typer.Option(
        None, min=0.0, help="GiB for weights in evaluation form (default 2).", rich_help_panel=TWO_PARTY
    ),
    as_json: bool = Json,
    insecure: bool = Insecure,
) -> None:
    """Serve a plan to clients, over TCP and WebSocket.

    /ws speaks the protocol; /livez, /healthz and /metrics tell how the server is.

    SIGTERM and Ctrl-C let blocks in work finish; SIGHUP reads the certificate again.
    """
    host, _, port = listen.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65535:
        raise hushnet.InputError(f"--listen {listen}: give host:port, for example 0.0.0.0:8765")
    check_output(record)
    check_output(trace)
    model = hushnet.Model.load(plan_file(plan), allow_insecure=insecure)
    start_log(log_format.value, log_level.value)
    connections = descriptors(max_connections)
    if connections < max_connections:
        log.warning(
            "%d connections at once, not %d: raise the limit of open files (ulimit -n)", connections, max_connections
        )
    options: dict[str, Any] = {
        "max_sessions": max_sessions,
        "memory_limit": int(memory * 2**30),
        "max_connections": connections,
        "idle_timeout": idle_timeout,
        "line": line,
        "patience": patience,
        "session_time": session_time,
        "grace": grace,
        "origins": origin,
        "allow_insecure": insecure,
    }
    if record:
        options["record"] = str(record)
    options |= {"keys": keys, "keys_days": keys_days}
    if keys_quota is not None:
        options["keys_quota"] = int(keys_quota * 2**30)
    if tls:
        options |= {"tls_cert": str(tls[0]), "tls_key": str(tls[1])}
    if threads:
        options["threads"] = threads
    if weight_memory is not None:
        options["weight_memory"] = int(weight_memory * 2**30)
    handle = hushnet.serve(model, host=host.strip("[]"), port=int(port), **options)
    if handle.sessions < max_sessions:
        log.warning(
            "%d sessions at once, not %d: each may need %.3g GiB of --memory %g, and %.3g GiB more while it works",
            handle.sessions,
            max_sessions,
            handle.session_memory["session"] / 2**30,
            memory,
            (handle.session_memory["set_up"] + handle.session_memory["block"]) / 2**30,
        )
    scheme = "hushs" if tls else "hush"
    url = f"{scheme}://{host}:{handle.port}"
    websocket = f"{'wss' if tls else 'ws'}://{host}:{handle.port}/ws"
    if as_json:
        said = {"url": url, "websocket": websocket, "port": handle.port, "sessions": handle.sessions}
        said |= {"session_memory": handle.session_memory}
        print(json.dumps(said), flush=True)
    else:
        out.print(report.trust_text(model.plan))
        name = model.plan.document["name"]
        out.print(f"Serving {name} at {url} and {websocket}, {handle.sessions} sessions at once (Ctrl-C ends).")
    operate(handle, trace)

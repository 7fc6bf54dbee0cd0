"""``hushnet serve``: a server of one plan or of several."""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Any

import typer

import hushnet
from hushnet import _native, report, webpage
from hushnet.cli.common import check_output, counted, out
from hushnet.cli.hosting import Hosting
from hushnet.cli.operate import descriptors, log, operate, start_log
from hushnet.cli.options import NON_INTERACTIVE, TWO_PARTY, Insecure, Json, Threads
from hushnet.cli.telemetry import Spans


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
    plans: list[Path] = typer.Argument(
        ...,
        help="Plans with weights (.hush) that compile wrote, or folders of them; a model's name is its file's stem.",
    ),
    listen: str = typer.Option("127.0.0.1:8765", help="host:port; 0.0.0.0 for all interfaces, port 0 for any free."),
    tls: tuple[Path, Path] | None = typer.Option(
        None, help="Certificate chain and key (PEM); docs/command-line.md tells how to make them."
    ),
    client_ca: Path | None = typer.Option(
        None, help="Take clients alone that show a certificate signed by an authority of this file (PEM); needs --tls."
    ),
    tokens: Path | None = typer.Option(
        None, help="Take clients alone that show a token of this file: lines `name token` or `name sha256:HEX`."
    ),
    list_models: bool = typer.Option(
        False, "--list-models", help="Tell clients that ask for a model that there is not which ones there are."
    ),
    admin: str | None = typer.Option(
        None,
        help="host:port (or port, on 127.0.0.1) for health, metrics and metadata; clients' port then has /livez alone.",
    ),
    threads: int | None = Threads,
    max_sessions: int = typer.Option(
        16, min=1, help="Sessions in work at once; fewer where --memory does not hold them."
    ),
    memory: float = typer.Option(16.0, min=0.001, help="GiB for all sessions together."),
    max_connections: int = typer.Option(1024, min=1, help="Connections at once; more are closed as they come."),
    max_connections_per_peer: int | None = typer.Option(None, min=1, help="Connections of one address at once."),
    max_sessions_per_peer: int | None = typer.Option(
        None, min=1, help="Sessions in work at once of one peer: a token's owner, a certificate, or an address."
    ),
    hourly_traffic_per_peer: float | None = typer.Option(
        None, min=0.000001, help="GiB that one peer may send and receive in an hour."
    ),
    hourly_traffic: float | None = typer.Option(
        None, min=0.000001, help="GiB that all clients together may send and receive in an hour."
    ),
    idle_timeout: float = typer.Option(60.0, help="Seconds without a message after which a session is closed."),
    line: float = typer.Option(10.0, help="Seconds that a client waits for a slot of a full server at most."),
    patience: float = typer.Option(
        1.0, help="Seconds that a session may keep a full server waiting while others stand in line."
    ),
    session_time: float = typer.Option(
        3600.0, help="Age in seconds at which a session of a full server gives its slot to the next in line."
    ),
    grace: float = typer.Option(
        10.0, min=0, help="Seconds that blocks in work have to finish when the server is stopped."
    ),
    origin: list[str] = typer.Option(
        [],
        help="Origin (https://host) whose web pages may connect, beside the server's own; may be given more than once.",
    ),
    proxy: list[str] = typer.Option(
        [],
        help="IP address of a proxy whose connections begin with a PROXY header (version 2) that says who the client "
        "is; may be given more than once.",
    ),
    log_format: LogFormat = typer.Option(LogFormat.TEXT, help="Lines of the log on standard error."),
    log_level: LogLevel = typer.Option(LogLevel.INFO, help="Least level that is logged."),
    record: Path | None = typer.Option(
        None,
        help="Append everything that clients send to this file: all that the server sees of it. At 1 GiB it becomes "
        "FILE.1.",
    ),
    trace: Path | None = typer.Option(
        None,
        "--trace",
        help="Append this party's trace of every session, one JSON object a line. At 1 GiB the file becomes FILE.1.",
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
    store: Path | None = typer.Option(
        None,
        help="Keep preparations in this folder: clients' set-ups are then good for a server that is started anew.",
        rich_help_panel=TWO_PARTY,
    ),
    store_days: float | None = typer.Option(
        None,
        min=0.001,
        help="Preparations that no server was started with for so long are removed (default 30).",
        rich_help_panel=TWO_PARTY,
    ),
    prepared: Path | None = typer.Option(
        None,
        help="Let clients prepare inferences, and keep this server's half of them in this folder.",
        rich_help_panel=TWO_PARTY,
    ),
    prepared_quota: float | None = typer.Option(
        None, min=0.0, help="GiB of all prepared inferences (default 64).", rich_help_panel=TWO_PARTY
    ),
    prepared_client_quota: float | None = typer.Option(
        None, min=0.0, help="GiB of those of one client (default 4).", rich_help_panel=TWO_PARTY
    ),
    prepared_days: float | None = typer.Option(
        None,
        min=0.001,
        help="Prepared inferences that nobody has used for so long are removed (default 30).",
        rich_help_panel=TWO_PARTY,
    ),
    weight_memory: float | None = typer.Option(
        None, min=0.0, help="GiB for weights in evaluation form (default 4).", rich_help_panel=TWO_PARTY
    ),
    otlp: str | None = typer.Option(
        None, help="Send a trace of every session to this collector of OpenTelemetry (OTLP over HTTP)."
    ),
    prepare_first: bool = typer.Option(
        False,
        "--prepare-first",
        help="Prepare all weights before the server listens; without it clients wait for them.",
    ),
    web: bool = typer.Option(
        False, "--web", help="Show a page on the same port, with which visitors of a browser ask the models."
    ),
    web_input: Path | None = typer.Option(
        None,
        help="What the page says of the input (JSON): how a picture becomes numbers, labels, examples; with --web.",
    ),
    as_json: bool = Json,
    insecure: bool = Insecure,
) -> None:
    """Serve plans to clients, over TCP and WebSocket.

    /ws speaks the protocol; /livez, /readyz, /healthz, /metrics and /v2 tell how the server is.

    SIGTERM and Ctrl-C let blocks in work finish; SIGHUP reads certificate, tokens and plans again.
    """
    host, port = _address("--listen", listen, "0.0.0.0:8765")
    operators = _address("--admin", admin if ":" in admin else f":{admin}", "127.0.0.1:9765") if admin else None
    check_output(record, what="a record")
    check_output(trace, what="a trace")
    if web_input and not web:
        raise hushnet.InputError("--web-input says what the page of --web shows: give --web, too")
    described = webpage.read(web_input) if web_input else None
    spans = Spans(otlp) if otlp else None
    hosting = Hosting(plans, insecure)
    models = hosting.load()
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
        "list_models": list_models,
        "connections_per_peer": max_connections_per_peer,
        "sessions_per_peer": max_sessions_per_peer,
        "admin": operators,
        "keys": keys,
        "keys_days": keys_days,
        "proxies": proxy or None,
        "prepare_first": prepare_first,
        "store": store,
        "store_days": store_days,
        "prepared": prepared,
        "prepared_days": prepared_days,
        "reports": spans is not None,
    }
    if web:
        # a server that asks for tokens tells nothing of its models to who has none
        named = {name: model.plan for name, model in models.items()}
        options["web"] = webpage.files(named, described, hidden=tokens is not None)
    options |= {
        name: int(gib * 2**30)
        for name, gib in (
            ("hourly_bytes_per_peer", hourly_traffic_per_peer),
            ("hourly_bytes", hourly_traffic),
            ("keys_quota", keys_quota),
            ("prepared_quota", prepared_quota),
            ("prepared_client_quota", prepared_client_quota),
        )
        if gib is not None
    }
    options |= {
        name: str(path)
        for name, path in (("record", record), ("tokens", tokens), ("client_ca", client_ca))
        if path is not None
    }
    if tls:
        options |= {"tls_cert": str(tls[0]), "tls_key": str(tls[1])}
    if threads:
        options["threads"] = threads
    if weight_memory is not None:
        options["weight_memory"] = int(weight_memory * 2**30)
    handle = hushnet.serve(models, host=host, port=port, **options)
    if handle.sessions < max_sessions:
        log.warning(
            "%d sessions at once, not %d: each may need %.3g GiB of --memory %g, and %.3g GiB more while it works",
            handle.sessions,
            max_sessions,
            handle.session_memory["session"] / 2**30,
            memory,
            (handle.session_memory["set_up"] + handle.session_memory["block"]) / 2**30,
        )
    host = listen.rpartition(":")[0]
    told = (lambda: spans.send(handle.reports())) if spans else None
    try:
        operate(handle, trace, hosting.reload, lambda: _say(handle, models, host, tls is not None, as_json, web), told)
    finally:
        if spans:
            spans.close()


def _address(flag: str, text: str, example: str) -> tuple[str, int]:
    """Host and port of ``host:port``; of ``:port`` this machine."""
    host, mark, port = text.rpartition(":")
    if not mark or not port.isdigit() or int(port) > 65535 or (flag == "--listen" and not host):
        raise hushnet.InputError(f"{flag} {text}: give host:port, for example {example}")
    return host.strip("[]") or "127.0.0.1", int(port)


def _say(
    handle: _native.ServerHandle, models: Mapping[str, hushnet.Model], host: str, secure: bool, as_json: bool, web: bool
) -> None:
    """Tells the operator where clients connect to, and what they find there."""
    url = f"{'hushs' if secure else 'hush'}://{host}:{handle.port}"
    page = f"{'https' if secure else 'http'}://{host}:{handle.port}/"
    websocket = f"{'wss' if secure else 'ws'}://{host}:{handle.port}/ws"
    if as_json:
        said: dict[str, Any] = {
            "url": url,
            "websocket": websocket,
            "port": handle.port,
            "sessions": handle.sessions,
            "session_memory": handle.session_memory,
            "models": sorted(models),
        }
        if web:
            said["page"] = page
        if handle.admin_address:
            said["admin"] = f"http://{handle.admin_address}"
        print(json.dumps(said), flush=True)
        return
    for name in sorted(models):
        if len(models) > 1:
            out.print(f"{name}:")
        out.print(report.trust_text(models[name].plan))
    names = ", ".join(sorted(models))
    what = names if len(models) == 1 else f"{counted(len(models), 'model')} ({names})"
    out.print(f"Serving {what} at {url} and {websocket}, {handle.sessions} sessions at once (Ctrl-C ends).")
    if len(models) > 1:
        out.print(f"Clients name one of them: {url}/{min(models)}")
    if web:
        out.print(f"A page for browsers: {page}")
    if handle.admin_address:
        out.print(f"Health and metrics: http://{handle.admin_address}/metrics")

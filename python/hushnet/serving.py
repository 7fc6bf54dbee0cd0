"""Servers of compiled networks."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from pathlib import Path

from hushnet import _native, webpage
from hushnet.errors import InputError, asked
from hushnet.model import Model, loaded


def _served(
    model: Model | str | Path | Mapping[str, Model | str | Path], allow_insecure: bool
) -> _native.Plan | dict[str, _native.Plan]:
    """What a server takes: one plan, or plans by name."""
    if not isinstance(model, Mapping):
        return loaded(model, allow_insecure).native(allow_insecure=allow_insecure)
    return {name: loaded(one, allow_insecure).native(allow_insecure=allow_insecure) for name, one in model.items()}


def serve(
    model: Model | str | Path | Mapping[str, Model | str | Path],
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    tls_cert: str | Path | None = None,
    tls_key: str | Path | None = None,
    max_sessions: int = 64,
    memory_limit: int = 16 << 30,
    idle_timeout: float = 120.0,
    handshake_timeout: float = 10.0,
    grace: float = 10.0,
    threads: int | None = None,
    record: str | Path | None = None,
    weight_memory: int | None = None,
    max_connections: int = 1024,
    line: float = 10.0,
    patience: float = 1.0,
    session_time: float = 3600.0,
    origins: Sequence[str] | None = None,
    tokens: str | Path | None = None,
    client_ca: str | Path | None = None,
    admin: tuple[str, int] | None = None,
    list_models: bool = False,
    connections_per_peer: int | None = None,
    sessions_per_peer: int | None = None,
    hourly_bytes_per_peer: int | None = None,
    hourly_bytes: int | None = None,
    keys: str | Path | None = None,
    keys_quota: int | None = None,
    keys_days: float | None = None,
    proxies: Sequence[str] | None = None,
    prepare_first: bool = True,
    store: str | Path | None = None,
    store_days: float | None = None,
    prepared: str | Path | None = None,
    prepared_quota: int | None = None,
    prepared_client_quota: int | None = None,
    prepared_days: float | None = None,
    reports: bool = False,
    web: Sequence[webpage.File] | None = None,
    allow_insecure: bool = False,
) -> _native.ServerHandle:
    """Starts a server in the background; ``handle.port`` tells the port, ``handle.stop()`` ends it.

    Traces of two-party sessions: ``handle.traces()``. Other models from now on: ``handle.set_models({name: plan})``.

    Args:
        model: a compiled network, the path of its ``.hush`` file, or several by the names that clients ask for.
        port: 0 for any free one.
        tls_cert: PEM file with the certificate chain; with ``tls_key``.
        max_sessions: in work at once. A client takes a slot when it sends something to work on, not when it connects.
        memory_limit: bytes of all sessions together. What a session holds between blocks lowers the number of sessions;
            what a block needs is waited for.
        idle_timeout: seconds to wait for a frame that is due.
        handshake_timeout: seconds for TLS, HTTP and the greeting.
        grace: seconds that blocks in work have when the server stops.
        threads: None for all cores.
        record: file to which everything that clients encrypt is appended as it came. At 1 GiB it becomes ``FILE.1``,
            in the place of the one before.
        weight_memory: two-party: bytes for weights in evaluation form; None for 4 GiB.
        max_connections: at once; more are closed as they come.
        line: seconds that a client waits for a slot of a full server at most.
        patience: seconds that a session may keep a full server waiting while others stand in line, beside ten times
            what the server worked for it.
        session_time: age in seconds at which a session of a full server gives its slot to the next in line, between
            two blocks.
        origins: origins (``https://host``) whose web pages may open ``/ws``, beside the server's own.
        tokens: file of the tokens that clients need, lines ``name token`` or ``name sha256:HEX`` (docs/serving.md).
        client_ca: PEM file of authorities; clients need a certificate that one of them has signed.
        admin: host and port for health, metrics and what is told of models; the port of clients then has ``/ws`` and
            ``/livez`` alone.
        list_models: clients that ask for a model that there is not learn the names of those that there are.
        connections_per_peer: at once, of one address; None for no limit of its own, as in what follows.
        sessions_per_peer: in work at once, of one peer: the owner of a token, a certificate, or an address.
        hourly_bytes_per_peer: bytes of frames in an hour, both ways together, of one peer.
        hourly_bytes: bytes of frames in an hour of all peers.
        keys: non-interactive: folder that clients' evaluation keys are kept in, so that a client that comes again sends
            none, also after a restart.
        keys_quota: bytes of all keys in the folder (default 16 GiB); those used longest ago make room.
        keys_days: keys that no session has used for so many days are removed (default 30).
        proxies: IP addresses of proxies whose connections begin with a PROXY header (version 2) that says who the
            client is. Without them a proxy is one peer with all its clients.
        prepare_first: prepare all weights before the server listens. Without it the server listens at once, sessions
            wait where they need weights, and a plan whose weights cannot be prepared ends the server: ``handle.join()``
            raises then.
        store: two-party: folder that the preparation of each model is kept in, so that a server that is started anew
            goes on with the set-ups that its clients have. What is in it is as secret as the weights.
        store_days: preparations that no server was started with for so many days are removed (default 30).
        prepared: two-party: folder for the server's half of inferences that clients prepare before they have inputs;
            None: clients are told that there are none. What is in it is as secret as the weights, and must not be put
            back from a backup.
        prepared_quota: bytes of all of them (default 64 GiB); what does not fit is refused.
        prepared_client_quota: bytes of those of one client (default 4 GiB).
        prepared_days: prepared inferences that nobody has used for so many days are removed (default 30).
        reports: keep what is told of sessions that ended for ``handle.reports()``: times and counts, as JSON.
        web: files of a page for visitors on the same port (:func:`hushnet.webpage.files`).
        allow_insecure: serve plans below 128 bits.

    Raises:
        PlanError: a plan has no weights, or one session needs more than ``memory_limit``.
        TransportError: the port, the certificate, the tokens or a name cannot be used.
    """
    with asked():
        return _native.serve(
            _served(model, allow_insecure),
            host,
            port,
            tls_cert=tls_cert,
            tls_key=tls_key,
            max_sessions=max_sessions,
            memory_limit=memory_limit,
            idle_timeout=idle_timeout,
            handshake_timeout=handshake_timeout,
            grace=grace,
            threads=threads,
            record=record,
            weight_memory=weight_memory,
            max_connections=max_connections,
            line=line,
            patience=patience,
            session_time=session_time,
            origins=None if origins is None else list(origins),
            tokens=tokens,
            client_ca=client_ca,
            admin=admin,
            list_models=list_models,
            connections_per_peer=connections_per_peer,
            sessions_per_peer=sessions_per_peer,
            hourly_bytes_per_peer=hourly_bytes_per_peer,
            hourly_bytes=hourly_bytes,
            keys=None if keys is None else Path(keys),
            keys_quota=keys_quota,
            keys_age=None if keys_days is None else keys_days * 86400,
            proxies=None if proxies is None else [_ip(text) for text in proxies],
            prepare_first=prepare_first,
            store=None if store is None else Path(store),
            store_age=None if store_days is None else store_days * 86400,
            units=None if prepared is None else Path(prepared),
            units_quota=prepared_quota,
            units_client_quota=prepared_client_quota,
            units_age=None if prepared_days is None else prepared_days * 86400,
            reports=reports,
            web=None if web is None else list(web),
        )


def _ip(text: str) -> str:
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        raise InputError(
            f"proxies: {text!r} is no IP address. Give addresses like 10.0.0.5, no names and no networks."
        ) from None

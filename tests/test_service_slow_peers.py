"""Peers that are slow on purpose: on every carrier and at every step they are closed, and a good client is answered."""

from __future__ import annotations

import random
import shutil
import signal
import socket
import ssl
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import hushnet
import numpy as np
import pytest

from tests.test_serve import served
from tests.test_service import ROWS, network, right, soon

# Seconds that a connection has for TLS, a request or a greeting; that a frame may take.
HANDSHAKE, IDLE = 1.0, 2.0
PEERS = 60
# What a good client may take longer beside them: the product's own bar.
LATER = 2.0
UPGRADE = (
    b"GET /ws HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return network(tmp_path_factory.mktemp("slow") / "net.hush", 0)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("tls")
    cert, key = folder / "cert.pem", folder / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "30", "-subj", "/CN=localhost"]
    names = ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", str(key), "-out", str(cert)]
    subprocess.run([*command, *names], check=True, capture_output=True)
    return cert, key


def greeting() -> bytes:
    """A greeting, and the header of a frame of which little comes."""
    hello = b"\x08\x02"
    return b"HN\x01\x01" + bytes(8) + len(hello).to_bytes(4, "little") + hello


def client_hello() -> bytes:
    """What a TLS client says first."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.create_default_context()
    with suppress(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing, server_hostname="localhost").do_handshake()
    return outgoing.read()


def masked(first: int, payload: bytes) -> bytes:
    """A frame of a WebSocket from a client, masked with zeros."""
    return bytes([first, 0x80 | len(payload)]) + bytes(4) + payload


@contextmanager
def dripping(port: int, begin: bytes, piece: bytes, pause: float = 0.1) -> Iterator[Callable[[], int]]:
    """Peers that send ``begin`` and then ``piece`` again and again; how many of them the server has closed."""
    stop, closed = threading.Event(), set()

    def drip(peers: list[socket.socket]) -> None:
        while not stop.wait(pause):
            for number, peer in enumerate(peers):
                if number in closed:
                    continue
                try:
                    peer.sendall(piece)
                    peer.setblocking(False)
                    if peer.recv(1 << 16) == b"":
                        closed.add(number)
                except BlockingIOError:
                    pass
                except OSError:
                    closed.add(number)

    with ExitStack() as stack:
        peers = []
        for _ in range(PEERS):
            peer = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=10))
            with suppress(OSError):
                peer.sendall(begin)
            peers.append(peer)
        thread = threading.Thread(target=drip, args=(peers,))
        thread.start()
        try:
            yield lambda: len(closed)
        finally:
            stop.set()
            thread.join()


def timed(url: str, plan: Path, **options: Any) -> float:
    begun = time.perf_counter()
    with hushnet.connect(url, **options) as connection:
        assert right(connection, plan)
    return time.perf_counter() - begun


# What they send first, what they send then, and whether TLS is asked for.
SLOW = {
    "a request, byte by byte": (b"GET /ws HTTP/1.1\r\nX: ", b"a", False),
    "headers, one after the other": (b"GET /metrics HTTP/1.1\r\n", b"X: a\r\n", False),
    "HTTP/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"\0\0\0\x04\0\0\0\0\0", False),
    "the beginning of HTTP/2": (b"PR", b"", False),
    "HTTP/2 that says nothing": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\x04\0\0\0\0\0", b"", False),
    "one byte of a greeting": (b"H", b"", False),
    "a greeting, byte by byte": (greeting()[:6], b"\0", False),
    "a frame, byte by byte": (greeting() + b"HN\x01\x06" + bytes(8) + b"\0\x10\0\0", b"a", False),
    "a WebSocket that says nothing": (UPGRADE, b"", False),
    "a WebSocket that pings": (UPGRADE, masked(0x89, b"alive"), False),
    "a message in pieces without end": (UPGRADE + masked(0x02, b"H"), masked(0x00, b"N"), False),
    "a TLS handshake, byte by byte": (client_hello()[:40], b"", True),
    "a TLS handshake of one byte now and then": (client_hello()[:5], b"\x01", True),
}


@pytest.mark.parametrize("kind", SLOW)
def test_slow_peers_are_closed_and_keep_nobody_waiting(plan: Path, certificate: tuple[Path, Path], kind: str) -> None:
    begin, piece, tls = SLOW[kind]
    options: dict[str, Any] = {"max_sessions": 4, "handshake_timeout": HANDSHAKE, "idle_timeout": IDLE}
    trust: dict[str, Any] = {}
    if tls:
        options |= {"tls_cert": certificate[0], "tls_key": certificate[1]}
        trust["ca"] = certificate[0]
    with hushnet.serve(plan, **options) as server:
        url = f"{'hushs' if tls else 'hush'}://localhost:{server.port}"
        alone = min(timed(url, plan, **trust) for _ in range(3))
        begun = time.monotonic()
        with dripping(server.port, begin, piece) as closed:
            assert timed(url, plan, **trust) < alone + LATER
            # The frame that follows a greeting has the time of a frame; a closed socket is seen when it is written to.
            soon(lambda: closed() == PEERS)
            assert time.monotonic() - begun < HANDSHAKE + IDLE + 8
            assert timed(url, plan, **trust) < alone + LATER
        soon(lambda: server.stats()["active"] == server.stats()["guests"] == 0)


def test_a_peer_that_says_nothing_within_tls_is_closed(plan: Path, certificate: tuple[Path, Path]) -> None:
    context = ssl.create_default_context(cafile=str(certificate[0]))
    context.set_alpn_protocols(["http/1.1"])
    options: dict[str, Any] = {"tls_cert": certificate[0], "tls_key": certificate[1]}
    with hushnet.serve(plan, handshake_timeout=HANDSHAKE, **options) as server, ExitStack() as stack:
        for said in (b"", b"P", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"):
            raw = stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=10))
            peer = stack.enter_context(context.wrap_socket(raw, server_hostname="localhost"))
            peer.sendall(said)
            with suppress(ConnectionError, ssl.SSLEOFError):
                assert peer.recv(100) == b""  # a timeout fails


def test_pages_that_nobody_reads_let_their_connections_go(plan: Path) -> None:
    page = ("/", "text/html", "a1", bytes(16 << 20))
    with (
        hushnet.serve(plan, handshake_timeout=HANDSHAKE, max_connections=8, web=[page]) as server,
        ExitStack() as stack,
    ):
        for number in range(8):
            peer = stack.enter_context(socket.socket())
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            peer.bind((f"127.0.0.{2 + number}", 0))
            peer.connect(("127.0.0.1", server.port))
            peer.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        # all of them are taken in
        time.sleep(0.7)
        url = f"hush://127.0.0.1:{server.port}"

        def answered() -> bool:
            with suppress(hushnet.HushnetError):
                return timed(url, plan) > 0
            return False

        soon(answered)


def test_a_slow_peer_that_is_not_closed_is_found(plan: Path) -> None:
    with (
        hushnet.serve(plan, handshake_timeout=60, idle_timeout=60) as server,
        dripping(server.port, b"GET /ws HTTP/1.1\r\nX: ", b"a") as closed,
    ):
        time.sleep(HANDSHAKE + IDLE)
        assert closed() == 0


@pytest.mark.parametrize("address", ["127.0.0.2", "127.0.0.1"])
def test_probes_are_answered_beside_peers_that_hold_the_listener_of_operators(plan: Path, address: str) -> None:
    # A probe that fails has the server ended by whoever runs it.
    with served(plan, "--admin", "0") as (_, about, _lines), ExitStack() as stack:
        port = int(about["admin"].rpartition(":")[2])
        for _ in range(3 * 64):
            there = ("127.0.0.1", port)
            peer = stack.enter_context(socket.create_connection(there, timeout=5, source_address=(address, 0)))
            with suppress(OSError):
                peer.sendall(b"GET /healthz HTTP/1.1\r\nX: ")
        for path in ("livez", "healthz", "metrics"):
            with urllib.request.urlopen(f"{about['admin']}/{path}", timeout=5) as page:
                assert page.status == 200


def test_models_that_change_all_the_time_are_one_or_the_other(tmp_path: Path) -> None:
    """Plans are replaced and read again under sessions, as fast as it goes: each answer is of one whole plan."""
    plans = [network(tmp_path / f"plan{i}.hush", i) for i in range(2)]
    wanted = [hushnet.run(plan, ROWS).output for plan in plans]
    folder = tmp_path / "models"
    folder.mkdir()
    shutil.copy(plans[0], folder / "net.hush")
    answers: list[int] = []
    failed: list[str] = []
    stop = threading.Event()
    with served(folder, "--log-level", "error") as (process, about, _):

        def come() -> None:
            while not stop.is_set():
                try:
                    with hushnet.connect(about["url"], model="net", threads=1) as client:
                        got = [client.infer(ROWS).output for _ in range(2)]
                except hushnet.HushnetError as error:
                    failed.append(str(error))
                    return
                near = [i for i in range(2) if all(np.allclose(one, wanted[i], atol=1e-9) for one in got)]
                answers.extend(near)
                if len(near) != 1:
                    failed.append("an answer of neither plan, or of both")

        threads = [threading.Thread(target=come) for _ in range(3)]
        for thread in threads:
            thread.start()
        # Forty times, and on a slow machine until sessions have met both plans. In even steps a server that reads for
        # two of them would meet one plan only.
        turn, until, steps = 0, time.monotonic() + 60, random.Random(1)
        while turn < 40 or (len(set(answers)) < 2 and not failed and time.monotonic() < until):
            fresh = folder / "fresh"
            shutil.copy(plans[(turn + 1) % 2], fresh)
            fresh.rename(folder / "net.hush")
            for _ in range(1 + turn % 3):
                process.send_signal(signal.SIGHUP)
            time.sleep(steps.uniform(0.01, 0.09))
            turn += 1
        stop.set()
        for thread in threads:
            thread.join()
        assert process.poll() is None
        # What lies there at the end is what is served, however signals and readings met.
        until, last = time.monotonic() + 60, None
        while last != turn % 2 and time.monotonic() < until:
            with hushnet.connect(about["url"], model="net", threads=1) as client:
                got = client.infer(ROWS).output
            last = next(i for i in range(2) if np.allclose(got, wanted[i], atol=1e-9))
    assert not failed and set(answers) == {0, 1} and last == turn % 2

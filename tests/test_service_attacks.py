"""A server among peers that mean harm: each is cut off, costs little, and a good client is answered beside it."""

from __future__ import annotations

import json
import socket
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import hushnet
import numpy as np
import pytest
from hushnet_bench import faults
from onnx import TensorProto, helper

from tests.test_serve import served
from tests.test_telemetry import ROWS, network

# Bytes that sixteen peers of a kind may make a server hold.
MOST = 64 << 20


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, dict[str, Any]]]:
    path = tmp_path_factory.mktemp("attacks") / "net.hush"
    network("two-party").save(path)
    with served(path, "--max-sessions", 2, "--idle-timeout", 5, "--line", 60) as (process, about, _):
        answered(about)
        yield process, about


def answered(about: dict[str, Any]) -> None:
    with hushnet.connect(about["url"]) as client:
        assert np.isfinite(next(iter(client.infer(ROWS).outputs.values()))).all()


def resident(process: Any) -> int:
    text = Path(f"/proc/{process.pid}/status").read_text()
    return int(next(line.split()[1] for line in text.splitlines() if line.startswith("VmRSS"))) << 10


def metric(about: dict[str, Any], name: str) -> int:
    with urllib.request.urlopen(f"http://127.0.0.1:{about['port']}/metrics", timeout=30) as page:
        text = page.read().decode()
    return int(next(line.split()[1] for line in text.splitlines() if line.startswith(f"hushnet_{name} ")))


def peer(about: dict[str, Any]) -> socket.socket:
    return socket.create_connection(("127.0.0.1", about["port"]), timeout=20)


def until(condition: Any, seconds: float = 30) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.05)
    return False


BOMBS = {
    "one header without end": lambda: b"GET /metrics HTTP/1.1\r\nX: ",
    "headers without end": lambda: b"GET /metrics HTTP/1.1\r\n",
    "a line without end": lambda: b"GET /",
    "a body that nobody wants": lambda: b"POST /metrics HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n",
    "HTTP/2": lambda: b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + 64 * b"\0\0\0\x04\0\0\0\0\0",
}


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("bomb", BOMBS)
def test_bytes_without_end_are_cut_off_and_cost_little(server: tuple[Any, dict[str, Any]], bomb: str) -> None:
    process, about = server
    before, most = resident(process), 0
    piece = b"X-A: " + 1000 * b"a" + b"\r\n" if bomb == "headers without end" else 1024 * b"a"
    with ExitStack() as stack:
        peers = [stack.enter_context(peer(about)) for _ in range(16)]
        for one in peers:
            with suppress(OSError):
                one.sendall(BOMBS[bomb]())
                for _ in range(256):
                    one.sendall(16 * piece)
            # The server has closed, or does so when its time for a request is over: a timeout here fails.
            with suppress(ConnectionError):
                while one.recv(1 << 16):
                    pass
            most = max(most, resident(process) - before)
        answered(about)
    assert most < MOST, f"{bomb}: {most >> 20} MiB"


def test_a_peer_that_sends_no_more_gives_its_place(server: tuple[Any, dict[str, Any]]) -> None:
    _, about = server
    frames = b"HN\x01\x01" + bytes(8) + (2).to_bytes(4, "little") + b"\x08\x02"
    with ExitStack() as stack:
        for _ in range(16):
            one = stack.enter_context(peer(about))
            one.sendall(frames)
            one.shutdown(socket.SHUT_WR)
        assert until(lambda: metric(about, "clients_guests") == 0)
        answered(about)


def test_a_guest_that_is_not_read_and_leaves_is_gone(server: tuple[Any, dict[str, Any]]) -> None:
    _, about = server
    hello, first, *_ = faults.record(about["port"], ROWS[:1]).frames
    # More frames than a guest's are read, none of them work, and too few of them to go on with.
    pieces = [first[:12] + (1).to_bytes(4, "little") + bytes([byte]) for byte in first[16:24]]
    assert len(pieces) == 8 and len(first) > 24
    with peer(about) as one:
        one.sendall(hello + b"".join(pieces))
        assert until(lambda: metric(about, "clients_guests") == 1)
        time.sleep(0.3)
    begun = time.monotonic()
    assert until(lambda: metric(about, "clients_guests") == 0)
    assert time.monotonic() - begun < 3, "not only when nothing has come for five seconds"


def computed(about: dict[str, Any], blocks: int) -> bool:
    return until(lambda: metric(about, "blocks_total") >= blocks)


def wide(path: Path) -> Path:
    """A layer whose answer has 35 MB, for 60 kB of a question."""
    rng, value = np.random.default_rng(1), helper.make_tensor_value_info
    weights = helper.make_tensor("w", TensorProto.FLOAT, (6, 2048), rng.normal(0, 0.5, 6 * 2048).astype(np.float32))
    ends = [value("x", TensorProto.FLOAT, ["n", 6])], [value("y", TensorProto.FLOAT, ["n", 2048])]
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "wide", *ends, [weights])
    hushnet.compile(helper.make_model(graph), trust="client-aided", calibration=ROWS).save(path)
    return path


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_answers_that_nobody_reads_are_of_one_session_at_a_time(tmp_path: Path) -> None:
    limits = ("--max-sessions", 1, "--patience", 0.3, "--line", 60, "--idle-timeout", 60)
    with served(wide(tmp_path / "wide.hush"), *limits) as (process, about, _), ExitStack() as stack:
        recorded = faults.record(about["port"], ROWS[:1])
        before, blocks = resident(process), metric(about, "blocks_total")
        for number in range(8):
            one = stack.enter_context(socket.socket())
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
            one.settimeout(20)
            one.connect(("127.0.0.1", about["port"]))
            one.sendall(recorded.stream)
            assert computed(about, blocks + number + 1)
        time.sleep(0.5)
        assert metric(about, "sessions_active") == 1, "what waits for a peer is in use"
        held = resident(process) - before
        answered(about)
    assert held < 2 * about["session_memory"]["session"], f"{held >> 20} MiB for eight deaf peers"


def test_peers_that_read_nothing_keep_nobody_waiting(server: tuple[Any, dict[str, Any]]) -> None:
    _, about = server
    with ExitStack() as stack:
        for _ in range(64):
            one = stack.enter_context(peer(about))
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
            one.sendall(b"GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n")
        answered(about)


def test_the_openapi_document_has_every_page_and_no_loose_end(server: tuple[Any, dict[str, Any]]) -> None:
    _, about = server
    with urllib.request.urlopen(f"http://127.0.0.1:{about['port']}/openapi.json", timeout=10) as page:
        document = json.loads(page.read())
    pages = (Path(__file__).parent.parent / "crates/runtime/src/transport/pages_server.rs").read_text()
    routes = {part.split('"')[0] for part in pages.split('.route("')[1:]}
    assert set(document["paths"]) == routes - {"/ws", "/ws/{model}", "/openapi.json"}

    def references(value: Any) -> Iterator[str]:
        if isinstance(value, dict):
            for key, inner in value.items():
                if key == "$ref":
                    yield inner
                yield from references(inner)
        elif isinstance(value, list):
            for inner in value:
                yield from references(inner)

    for reference in references(document):
        at: Any = document
        for part in reference.removeprefix("#/").split("/"):
            at = at[part]
    for path, what in document["paths"].items():
        named = {p["name"] for p in what["get"].get("parameters", []) if p["in"] == "path"}
        assert named == ({"model"} if "{model}" in path else set())
        assert all(answer["description"] for answer in what["get"]["responses"].values())

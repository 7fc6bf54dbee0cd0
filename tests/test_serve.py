"""``hushnet serve`` as an operator and as an attacker meet it: signals, logs, certificates, limits."""

from __future__ import annotations

import json
import logging
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import hushnet
import numpy as np
import pytest
from hushnet.cli import operate as operating
from hushnet.cli.operate import JsonLines, descriptors, operate
from onnx import TensorProto, helper

ROWS = np.random.default_rng(5).uniform(-1, 1, (4, 6)).astype(np.float32)


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small two-party network."""
    rng = np.random.default_rng(3)
    weights = [
        helper.make_tensor(name, TensorProto.FLOAT, shape, rng.normal(0, 0.5, shape).astype(np.float32).ravel())
        for name, shape in (("w", (6, 5)), ("v", (5, 3)))
    ]
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("MatMul", ["b", "v"], ["y"]),
    ]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "g", [value("x", TensorProto.FLOAT, ["n", 6])], [value("y", TensorProto.FLOAT, ["n", 3])], weights
    )
    path = tmp_path_factory.mktemp("serve") / "net.hush"
    hushnet.compile(helper.make_model(graph), trust="two-party", calibration=ROWS).save(path)
    return path


@contextmanager
def served(plan: Path, *extra: Any) -> Iterator[tuple[subprocess.Popen[str], dict[str, Any], list[str]]]:
    """The process, what it says of itself, and its log, of which nothing is lost when the block is left."""
    command = [sys.executable, "-m", "hushnet", "serve", str(plan), "--listen", "127.0.0.1:0", "--json"]
    process = subprocess.Popen([*command, *map(str, extra)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stderr is not None
    lines: list[str] = []
    reader = threading.Thread(target=lambda: lines.extend(process.stderr), daemon=True)  # type: ignore[arg-type]
    reader.start()
    try:
        yield process, json.loads(process.stdout.readline()), lines
    finally:
        process.kill()
        process.wait()
        reader.join(10)


def http(port: int, path: str) -> str:
    """The whole answer to a request."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as peer:
        peer.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        return b"".join(iter(lambda: peer.recv(4096), b"")).decode()


class Idle:
    """A server that has nothing to do, as the loop of the command sees it; it ends after ``looks`` looks."""

    def __init__(self, looks: int) -> None:
        self.looks, self.certificates = looks, 0

    def join(self, seconds: float) -> bool:
        time.sleep(0.01)
        self.looks -= 1
        return self.looks < 0

    def stop(self) -> None:
        self.looks = 0

    def traces(self) -> list[str]:
        return []

    def stats(self) -> dict[str, int]:
        return {"sessions": 0, "active": 0}

    def reload_certificate(self) -> None:
        self.certificates += 1

    def reload_tokens(self) -> None:
        pass


def test_signals_are_heard_once_a_server_is_announced() -> None:
    idle, read, before = Idle(100), threading.Event(), signal.getsignal(signal.SIGHUP)
    # the default action would end this process
    operate(idle, None, lambda _: read.set(), lambda: signal.raise_signal(signal.SIGHUP))  # type: ignore[arg-type]
    assert read.is_set() and idle.certificates == 1
    assert signal.getsignal(signal.SIGHUP) is before


def test_a_plan_that_cannot_be_prepared_ends_the_server_with_the_reason() -> None:
    class Failing(Idle):
        def join(self, seconds: float) -> bool:
            raise hushnet.PlanError("a weight is missing")

    with pytest.raises(hushnet.PlanError, match="a weight is missing"):
        operate(Failing(1), None)  # type: ignore[arg-type]


@pytest.mark.parametrize("extra", [(), ("--prepare-first",)])
def test_a_server_says_when_its_weights_are_prepared(plan: Path, extra: tuple[str, ...]) -> None:
    with served(plan, *extra) as (_, about, lines):
        with hushnet.connect(about["url"]) as client:
            client.infer(ROWS)
        assert http(about["port"], "/readyz").endswith("ok\n") and http(about["port"], "/healthz").endswith("ok\n")
    assert any("the weights are prepared" in line for line in lines) is not bool(extra)


def test_a_signal_while_files_are_read_reads_them_once_more() -> None:
    idle, begun, reads = Idle(10**6), threading.Event(), []

    def slow(_: object) -> None:
        reads.append(len(reads))
        begun.set()
        time.sleep(0.2)
        if len(reads) == 2:
            idle.stop()

    def ask() -> None:
        signal.raise_signal(signal.SIGHUP)
        begun.wait(10)
        for _ in range(3):
            signal.raise_signal(signal.SIGHUP)

    operate(idle, None, slow, ask)  # type: ignore[arg-type]
    assert reads == [0, 1]


def test_sigterm_drains_and_the_log_is_json(plan: Path, tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    with served(plan, "--log-format", "json", "--trace", trace) as (process, about, lines):
        assert about["sessions"] == 16 and http(about["port"], "/healthz").endswith("ok\n")
        with hushnet.connect(about["url"]) as client:
            first = client.infer(ROWS)
            process.send_signal(signal.SIGTERM)
            time.sleep(0.3)
            assert process.poll() is None or process.returncode == 0
            with pytest.raises(hushnet.HushnetError):
                client.infer(ROWS)
        assert process.wait(15) == 0
        np.testing.assert_array_equal(first.outputs["y"].shape, (4, 3))
    records = [json.loads(line) for line in lines]
    assert all({"time", "level", "logger", "message"} <= set(r) for r in records)
    greeted = [r for r in records if r["message"] == "a client greets"]
    assert len(greeted) == 1 and greeted[0]["peer"].startswith("127.0.0.1:") and isinstance(greeted[0]["session"], int)
    assert any("SIGTERM" in r["message"] for r in records) and records[-1]["message"] == "the server has stopped"


def test_a_trace_that_cannot_be_written_ends_nothing(plan: Path, tmp_path: Path) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    with served(plan, "--trace", folder / "trace.jsonl") as (process, about, lines):
        (folder / "trace.jsonl").unlink(missing_ok=True)
        folder.rmdir()
        for _ in range(2):
            with hushnet.connect(about["url"]) as client:
                client.infer(ROWS)
            time.sleep(0.6)
            assert process.poll() is None
    assert sum("traces are lost" in line for line in lines) == 2


def test_sighup_reads_the_usual_certificate_again(plan: Path, tmp_path: Path) -> None:
    def certificate(name: str) -> None:
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "30", "-subj", f"/CN={name}"]
            + ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
            + ["-keyout", str(tmp_path / "key.pem"), "-out", str(tmp_path / "cert.pem")],
            check=True,
            capture_output=True,
        )

    certificate("first")
    tls = ("--tls", tmp_path / "cert.pem", tmp_path / "key.pem")
    with served(plan, *tls) as (process, about, lines):
        hushnet.connect(about["url"], ca=tmp_path / "cert.pem").close()
        certificate("second")
        with pytest.raises(hushnet.TransportError, match="CA file"):
            hushnet.connect(about["url"], ca=tmp_path / "cert.pem")
        process.send_signal(signal.SIGHUP)
        time.sleep(0.5)
        hushnet.connect(about["url"], ca=tmp_path / "cert.pem").close()
        (tmp_path / "cert.pem").write_text("nothing")
        process.send_signal(signal.SIGHUP)
        time.sleep(0.5)
        assert process.poll() is None
    assert any("the certificate that the server has stays" in line for line in lines)


def test_sessions_that_memory_does_not_hold_are_said(plan: Path) -> None:
    with served(plan, "--max-sessions", 10_000, "--memory", 4) as (_, about, lines):
        assert 1 <= about["sessions"] < 10_000
    assert any(f"{about['sessions']} sessions at once, not 10000" in line for line in lines)


def test_pages_of_other_origins_need_a_name(plan: Path) -> None:
    with served(plan, "--origin", "https://ours.example") as (_, about, _lines):
        for origin, status in (("https://theirs.example", "403"), ("https://ours.example", "101")):
            with socket.create_connection(("127.0.0.1", about["port"]), timeout=10) as peer:
                peer.sendall(
                    b"GET /ws HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
                    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
                    + f"Origin: {origin}\r\n\r\n".encode()
                )
                assert peer.recv(4096).decode().split()[1] == status


def test_traces_of_sessions_fill_no_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, line = tmp_path / "trace.jsonl", 99 * "a"
    monkeypatch.setattr(operating, "TRACES", 1000)
    for number in range(57):
        operating._append(path, [f"{number:02}{line[2:]}"])
    lines = [int(said[:2]) for name in ("trace.jsonl.1", "trace.jsonl") for said in (tmp_path / name).open()]
    assert lines == list(range(40, 57)) and len(list(tmp_path.iterdir())) == 2


def test_open_files_bound_connections() -> None:
    assert descriptors(10) == 10 and 1 <= descriptors(10**9) < 10**9


def test_errors_in_the_log_keep_their_text() -> None:
    text = 'a session ends in an error session=7 peer=127.0.0.1:90 seconds=0.25 error=layer "fc": x=3 is too much'
    said = json.loads(JsonLines().format(logging.LogRecord("hushnet_runtime", 30, "", 0, text, None, None)))
    assert said["message"] == "a session ends in an error" and said["error"] == 'layer "fc": x=3 is too much'
    assert (said["session"], said["peer"], said["seconds"], said["level"]) == (7, "127.0.0.1:90", 0.25, "warning")

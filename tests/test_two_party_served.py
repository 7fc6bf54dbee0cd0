"""Two-party plans between processes: the command line and the API, traces of both sides, and peers that misbehave."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hushnet
import numpy as np
import pytest
from hushnet import data, zoo
from hushnet.reference import two_party as reference
from onnx import TensorProto, helper, numpy_helper


def hush(*arguments: object, check: bool = True) -> subprocess.CompletedProcess:
    done = subprocess.run(
        [sys.executable, "-m", "hushnet", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    if check:
        assert done.returncode == 0, done.stderr + done.stdout
    return done


class Server:
    """``hushnet serve`` in a process of its own."""

    def __init__(self, plan: Path, *extra: object):
        command = [
            sys.executable,
            "-m",
            "hushnet",
            "serve",
            str(plan),
            "--listen",
            "127.0.0.1:0",
            "--json",
            *map(str, extra),
        ]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.about = json.loads(self.process.stdout.readline())
        self.url, self.port = self.about["url"], self.about["port"]

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait(timeout=10)


@pytest.fixture(scope="module")
def images() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    train_x, _, x, labels = data.digits()
    return train_x[:256], x[:12].astype(np.float32), labels[:12]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, images: tuple) -> Path:
    path = tmp_path_factory.mktemp("served")
    np.save(path / "calibration.npy", images[0].astype(np.float32))
    np.save(path / "x.npy", images[1])
    (path / "model.onnx").write_bytes(zoo.trained("cryptonets-relu").SerializeToString())
    for reveal in ("output", "argmax"):
        options = ("--trust", "two-party", "--calibration", path / "calibration.npy", "--reveal", reveal)
        hush("compile", path / "model.onnx", "-o", path / f"{reveal}.hush", *options)
    return path


def within_reach(model: hushnet.Model, x: np.ndarray, got: np.ndarray) -> None:
    planned = next(iter(reference.run(model.plan, {model.input_names[0]: x}).values()))
    stage = next(s for s in model.plan.stages if s["kind"] == "reveal")
    tensor = model.plan.tensors[stage["out"]]
    assert (np.abs(got - planned) <= reference.unit_reach(model.plan)[tensor["name"]] * tensor["scale"] + 1e-12).all()


def lines(path: Path, count: int) -> list[dict[str, Any]]:
    for _ in range(100):
        if path.exists() and path.read_text().count("\n") >= count:
            break
        time.sleep(0.05)
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_two_processes_with_a_trace_on_each_side(folder: Path, images: tuple) -> None:
    with Server(folder / "output.hush", "--trace", folder / "server.jsonl", "--threads", 1) as server:
        hush(
            "infer",
            server.url,
            folder / "x.npy",
            "-o",
            folder / "y.npy",
            "--trace",
            folder / "client.json",
            "--threads",
            1,
            "--json",
        )
        (theirs,) = lines(folder / "server.jsonl", 1)
    got = np.load(folder / "y.npy")
    assert (got.argmax(1) == images[2]).all()
    within_reach(hushnet.Model.load(folder / "output.hush"), images[1], got)
    ours = json.loads((folder / "client.json").read_text())
    assert (ours["party"], theirs["party"]) == ("client", "server")
    for phase in ("setup", "total"):
        for way in ("bytes_up", "bytes_down"):
            assert ours[phase][way] == theirs[phase][way] == ours[phase]["predicted"][way], (phase, way)
    for a, b in zip(ours["stages"], theirs["stages"]):
        assert (a["kind"], a["bytes_up"], a["bytes_down"]) == (b["kind"], b["bytes_up"], b["bytes_down"])
    explained = json.loads(hush("explain", folder / "output.hush", "--trace", folder / "client.json", "--json").stdout)
    assert any("measured" in layer for layer in explained["layers"])


def test_only_the_label_leaves_the_server(folder: Path, images: tuple) -> None:
    with Server(folder / "argmax.hush") as server:
        done = json.loads(hush("infer", server.url, folder / "x.npy", "--json").stdout)
    assert np.array(done["values"]["logits"]).ravel().tolist() == images[2].tolist()


def test_the_api_serves_many_batches_and_says_what_is_wrong(folder: Path, images: tuple) -> None:
    model = hushnet.Model.load(folder / "output.hush")
    with (
        hushnet.serve(model, threads=1) as handle,
        hushnet.connect(f"ws://127.0.0.1:{handle.port}", threads=1) as connection,
    ):
        assert connection.plan["trust"] == "two-party" and "weights" not in json.dumps(connection.plan["stages"][2])
        seen: list[str] = []
        for part in (images[1][:1], images[1][1:4]):
            result = connection.infer(part, progress=lambda name, *_: seen.append(name))
            within_reach(model, part, result.output)
            assert result.trace["images"] == len(part)
        assert len(seen) == 2 * len(model.plan.stages)
        # wrong inputs leave the session open
        for bad, word in ((np.zeros((1, 1, 27, 28)), "28"), (np.full((1, 1, 28, 28), np.nan), "finite")):
            with pytest.raises(hushnet.InputError, match=word):
                connection.infer(bad)
        within_reach(model, images[1][4:5], connection.infer(images[1][4:5]).output)
        # inputs outside of the planned range are clamped, and their rows named
        outside = np.concatenate([images[1][:1], np.full((1, 1, 28, 28), 1e6), images[1][1:2]])
        result = connection.infer(outside)
        assert result.out_of_range == (1,) and result.range_error.value == 1e6 and result.range_error.bound
        within_reach(model, images[1][:2], result.output[[0, 2]])
        assert np.isnan(result.strict()["logits"][1]).all() and np.isfinite(result.strict()["logits"][[0, 2]]).all()
        within_reach(model, images[1][4:5], connection.infer(images[1][4:5]).output)
        connection.close()
        with pytest.raises(hushnet.TransportError, match="closed"):
            connection.infer(images[1][:1])
        with hushnet.connect(f"ws://127.0.0.1:{handle.port}") as again:
            within_reach(model, images[1][:1], again.infer(images[1][:1]).output)
        again.close()
        for _ in range(100):
            if handle.stats()["active"] == 0:
                break
            time.sleep(0.05)
        traces = [json.loads(t) for t in handle.traces()]
        assert [t["images"] for t in traces] == [9, 1] and handle.traces() == [] and handle.stats()["images"] == 10


def test_a_caller_may_stop_in_the_middle(folder: Path, images: tuple) -> None:
    model = hushnet.Model.load(folder / "output.hush")

    def stop(name: str, *_: int) -> None:
        if name.endswith("truncate") or "conv" in name:
            raise KeyError("enough")

    with hushnet.serve(model) as handle:
        with hushnet.connect(f"ws://127.0.0.1:{handle.port}") as connection, pytest.raises(KeyError, match="enough"):
            connection.infer(images[1][:1], progress=stop)
        with hushnet.connect(f"ws://127.0.0.1:{handle.port}") as connection:
            within_reach(model, images[1][:1], connection.infer(images[1][:1]).output)


# -- peers that misbehave


class Peer:
    """A WebSocket by hand, that can say anything."""

    def __init__(self, port: int):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=20)
        key = base64.b64encode(os.urandom(16)).decode()
        head = (
            "GET /ws HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: "
            f"{key}\r\nSec-WebSocket-Version: 13\r\n\r\n"
        )
        self.socket.sendall(head.encode())
        self.file = self.socket.makefile("rb")
        while self.file.readline() not in (b"\r\n", b""):
            pass

    def message(self, data: bytes, opcode: int = 2) -> None:
        size = (
            bytes([0x80 | 126]) + struct.pack(">H", len(data))
            if len(data) < 1 << 16
            else bytes([0x80 | 127]) + struct.pack(">Q", len(data))
        )
        self.socket.sendall(bytes([0x80 | opcode]) + size + bytes(4) + data)

    def receive(self) -> tuple[int, bytes]:
        first, second = self.file.read(2)
        size = second & 127
        size = (
            struct.unpack(">H", self.file.read(2))[0]
            if size == 126
            else struct.unpack(">Q", self.file.read(8))[0]
            if size == 127
            else size
        )
        return first & 15, self.file.read(size)

    def said(self) -> str:
        """What the server said at the end, as far as it could."""
        try:
            while True:
                opcode, data = self.receive()
                if opcode == 8 or not data:
                    return "closed"
                if data[3:4] == b"\x09":
                    return data[16:].decode("utf-8", "replace")
        except (OSError, ValueError):
            return "closed"


def frame(kind: int, payload: bytes, version: int = 1, magic: bytes = b"HN") -> bytes:
    return magic + bytes([version, kind]) + bytes(8) + struct.pack("<I", len(payload)) + payload


HELLO = frame(1, b"\x08\x02\x12\x04test")


def greeted(port: int) -> Peer:
    peer = Peer(port)
    peer.message(HELLO)
    assert peer.receive()[1][3] == 2
    return peer


def after_hello(payload: bytes) -> Callable[[int], str]:
    def act(port: int) -> str:
        peer = greeted(port)
        peer.message(frame(11, payload))
        return peer.said()

    return act


def only(message: bytes, opcode: int = 2) -> Callable[[int], str]:
    def act(port: int) -> str:
        peer = Peer(port)
        peer.message(message, opcode)
        return peer.said()

    return act


def closing(port: int) -> str:
    peer = greeted(port)
    peer.message(frame(11, b"HN2P\x06\x01\x00\x00"))
    peer.socket.close()
    return "closed"


# Version of two-party sessions (docs/two-party.md).
SESSIONS = 13
MISDEEDS: dict[str, tuple[Callable[[int], str], str]] = {
    "wrong frame version": (only(frame(1, b"", version=9)), "version 9"),
    "wrong protocol version": (only(frame(1, b"\x08\x07")), "version 7"),
    "not a frame": (only(os.urandom(300)), "frame"),
    "text": (only(b"hello", opcode=1), "frame"),
    "oversized": (only(frame(1, bytes(1 << 19))), "limit|closed"),
    "another kind": (only(frame(6, b"12345")), "expected"),
    "length that lies": (only(HELLO[:12] + struct.pack("<I", 1 << 30) + HELLO[16:]), "frame|length"),
    "no two-party greeting": (after_hello(os.urandom(64)), "greeting"),
    "another two-party version": (after_hello(b"HN2P" + bytes([SESSIONS + 1]) + bytes(35)), f"version {SESSIONS + 1}"),
    # It sends other messages for the same plan.
    "the former two-party version": (
        after_hello(b"HN2P" + bytes([SESSIONS - 1]) + bytes(35)),
        f"version {SESSIONS - 1}",
    ),
    "another plan": (after_hello(b"HN2P" + bytes([SESSIONS, 1]) + bytes(34)), "another plan"),
    "closing in the greeting": (closing, "closed"),
}


@pytest.fixture(scope="module")
def server(folder: Path) -> Any:
    with Server(folder / "output.hush", "--idle-timeout", 5, "--threads", 1) as running:
        yield running


@pytest.mark.parametrize("misdeed", sorted(MISDEEDS))
def test_the_server_tells_bad_peers_and_lives_on(server: Server, folder: Path, misdeed: str, images: tuple) -> None:
    act, words = MISDEEDS[misdeed]
    said = act(server.port)
    assert any(word in said for word in words.split("|")), said
    with hushnet.connect(server.url) as connection:
        within_reach(hushnet.Model.load(folder / "output.hush"), images[1][:1], connection.infer(images[1][:1]).output)


class Proxy:
    """Between client and server; cuts the connection after so many bytes in one direction, or spoils what follows."""

    def __init__(self, port: int, after: int, *, down: bool, spoil: bool = False):
        self.after, self.down, self.spoil = after, down, spoil
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.target = port
        threading.Thread(target=self.run, daemon=True).start()

    def run(self) -> None:
        near, _ = self.listener.accept()
        far = socket.create_connection(("127.0.0.1", self.target))
        pumps = [
            threading.Thread(target=self.pump, args=pair, daemon=True)
            for pair in ((near, far, False), (far, near, True))
        ]
        for pump in pumps:
            pump.start()
        for pump in pumps:
            pump.join()
        self.listener.close()

    def pump(self, source: socket.socket, sink: socket.socket, down: bool) -> None:
        passed = 0
        try:
            while block := source.recv(1 << 16):
                if down == self.down and passed + len(block) > self.after:
                    keep = max(0, self.after - passed)
                    sink.sendall(block[:keep])
                    if not self.spoil:
                        break
                    block = os.urandom(len(block) - keep)
                    passed += keep
                sink.sendall(block)
                passed += len(block)
        except OSError:
            pass
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize("down", [False, True])
@pytest.mark.parametrize("after", [3_000, 30_000, 60_000, 120_000])
@pytest.mark.parametrize("spoil", [False, True])
def test_connections_that_break_in_any_layer_end_in_typed_errors(
    server: Server, images: tuple, folder: Path, down: bool, after: int, spoil: bool
) -> None:
    proxy = Proxy(server.port, after, down=down, spoil=spoil)
    ends = (hushnet.TransportError, hushnet.ProtocolError, hushnet.PlanError)
    with pytest.raises(ends), hushnet.connect(f"ws://127.0.0.1:{proxy.port}") as connection:
        connection.infer(np.concatenate([images[1]] * 2))
    if spoil and down and after == 120_000:
        with hushnet.connect(server.url) as connection:
            within_reach(
                hushnet.Model.load(folder / "output.hush"), images[1][:1], connection.infer(images[1][:1]).output
            )


def test_set_ups_are_kept_between_sessions(folder: Path, images: tuple, tmp_path: Path) -> None:
    options = ("--trust", "two-party", "--calibration", folder / "calibration.npy", "--method", "rotation-free")
    hush("compile", folder / "model.onnx", "-o", tmp_path / "plan.hush", *options)
    model, x, kept = hushnet.Model.load(tmp_path / "plan.hush"), images[1][:2], tmp_path / "kept" / "here"
    with Server(tmp_path / "plan.hush", "--weight-memory", "0") as server:
        sent = []
        for setups in (None, kept, str(kept)):
            with hushnet.connect(server.url, setups=setups) as connection:
                result = connection.infer(x)
            within_reach(model, x, next(iter(result.outputs.values())))
            sent.append(result.trace["setup_bytes_down"])
        assert sent[0] == sent[1] > 10 * sent[2]
        size = {f: f.stat().st_size for f in kept.iterdir()}
        assert sum(size.values()) > 0.9 * (sent[1] - sent[2])
        # From the command line, with a file cut and one that is not a set-up.
        first, second = sorted(kept.iterdir(), key=lambda f: -f.stat().st_size)[:2]
        first.write_bytes(first.read_bytes()[: size[first] // 2])
        second.write_bytes(b"no set-up")
        np.save(tmp_path / "x.npy", x)
        hush("infer", server.url, tmp_path / "x.npy", "--setups", kept, "-o", tmp_path / "y.npy")
        assert {f: f.stat().st_size for f in kept.iterdir()} == size
        with pytest.raises(hushnet.HushnetError, match="set-ups cannot be kept in"):
            hushnet.connect(server.url, setups=tmp_path / "x.npy")
        # A quota that the set-ups do not fit, a limit of memory, a plan that is not the one expected: refused, with the
        # option that says so.
        elsewhere = tmp_path / "elsewhere"
        with pytest.raises(hushnet.HushnetError, match="--setups-quota"):
            hushnet.connect(server.url, setups=elsewhere, setups_quota=1000)
        assert not list(elsewhere.iterdir())
        for limit in (("--setups", elsewhere, "--setups-quota", "0.000001"), ("--max-memory", "0.001")):
            refused = hush("infer", server.url, tmp_path / "x.npy", *limit, check=False)
            assert refused.returncode != 0 and limit[-2] in refused.stderr.replace("\n", "")
        with pytest.raises(hushnet.PlanError, match="--max-memory"):
            hushnet.connect(server.url, max_memory=1 << 20)
        with hushnet.connect(server.url) as connection:
            digest = connection.plan_digest
        assert digest is not None
        hushnet.connect(server.url, plan_digest=digest).close()
        with pytest.raises(hushnet.PlanError, match="another digest"):
            hushnet.connect(server.url, plan_digest="0" * 64)
        with pytest.raises(ValueError, match="64 hexadecimal digits"):
            hushnet.connect(server.url, plan_digest="12")
    # Started anew, the server makes another set-up.
    with Server(tmp_path / "plan.hush") as server, hushnet.connect(server.url, setups=kept) as connection:
        again = connection.infer(x)
    assert again.trace["setup_bytes_down"] == sent[1]
    within_reach(model, x, next(iter(again.outputs.values())))
    # Unless it keeps its preparation: then it goes on with what clients have, also after it was killed.
    told, port = [], 0
    for _ in range(2):
        where = ("--store", tmp_path / "store", "--listen", f"127.0.0.1:{port}")
        with Server(tmp_path / "plan.hush", *where) as server:
            port = server.port
            with hushnet.connect(server.url, setups=kept, plan=model) as connection:
                result = connection.infer(x)
            server.process.kill()
        within_reach(model, x, next(iter(result.outputs.values())))
        told.append(result.trace["setup_bytes_down"])
    assert told == [sent[1], sent[2]]


def test_a_servers_memory_is_what_the_plan_says(tmp_path: Path) -> None:
    """Of a plan whose weights are most of it: they are held twice, and once in evaluation form."""
    rng = np.random.default_rng(0)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("MatMul", ["h", "v"], ["y"])]
    weights = {"w": rng.normal(size=(3072, 3072)) / 55, "v": rng.normal(size=(3072, 8)) / 55}
    graph = helper.make_graph(
        nodes,
        "wide",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3072])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 8])],
        [numpy_helper.from_array(v.astype(np.float32), k) for k, v in weights.items()],
    )
    x = rng.uniform(-1, 1, (4, 3072)).astype(np.float32)
    options = {"calibration": x, "weight_bits": 12, "method": "cheetah", "network": "lan"}
    model = hushnet.compile(helper.make_model(graph), trust="two-party", **options)
    model.save(tmp_path / "wide.hush")
    with Server(tmp_path / "wide.hush", "--threads", 1) as server:
        with hushnet.connect(server.url, threads=1) as client:
            client.infer(x[:1])
        status = Path(f"/proc/{server.process.pid}/status").read_text()
    (peak,) = (1024 * int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))
    stated = model.plan.predicted["server_peak_memory_bytes"]
    assert 0.9 < peak / stated < 1.1, (peak, stated)

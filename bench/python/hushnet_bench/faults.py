"""Peers that do to a server what networks, accidents and attackers do: each act is a function of a recorded session."""

from __future__ import annotations

import random
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import hushnet
import numpy as np

# Bytes of a frame's header, and where its payload's length stands (docs/wire-protocol.md).
HEADER, LENGTH = 16, 12
# Longest that a peer who misbehaves waits for the server.
PATIENCE = 5.0


@dataclass(frozen=True)
class Recorded:
    """What a good client sent in one session, frame by frame."""

    frames: tuple[bytes, ...]

    @property
    def stream(self) -> bytes:
        """All of it."""
        return b"".join(self.frames)


def record(port: int, rows: np.ndarray) -> Recorded:
    """Runs one session through a relay that keeps what the client sends."""
    sent = bytearray()
    with socket.create_server(("127.0.0.1", 0)) as door:
        relay = threading.Thread(target=_relay, args=(door, port, sent, None), daemon=True)
        relay.start()
        with hushnet.connect(f"hush://127.0.0.1:{door.getsockname()[1]}", threads=1) as client:
            client.infer(rows)
        relay.join(PATIENCE)
    return Recorded(tuple(frames(bytes(sent))))


@contextmanager
def stalled(port: int, rows: np.ndarray, most: int) -> Iterator[None]:
    """A session whose client sends so many bytes, and then no more while the block lasts, over open connections."""
    over = threading.Event()

    def work(url: str) -> None:
        with suppress(hushnet.HushnetError), hushnet.connect(url, threads=1) as client:
            client.infer(rows)

    with socket.create_server(("127.0.0.1", 0)) as door:
        url = f"hush://127.0.0.1:{door.getsockname()[1]}"
        relay = threading.Thread(target=_relay, args=(door, port, bytearray(), (most, over)), daemon=True)
        client = threading.Thread(target=work, args=(url,), daemon=True)
        relay.start()
        client.start()
        try:
            yield
        finally:
            over.set()
            relay.join(PATIENCE)
            client.join(PATIENCE)


# After so many bytes nothing more is handed on until the event.
Stall = tuple[int, threading.Event] | None


def _relay(door: socket.socket, port: int, sent: bytearray, stall: Stall) -> None:
    client, _ = door.accept()
    with client, socket.create_connection(("127.0.0.1", port)) as server:
        back = threading.Thread(target=pump, args=(server, client, bytearray(), None), daemon=True)
        back.start()
        pump(client, server, sent, stall)
        if stall is None:
            back.join(PATIENCE)


def pump(source: socket.socket, sink: socket.socket, kept: bytearray, stall: Stall = None) -> None:
    """Hands on what comes, and keeps it."""
    with suppress(OSError):
        while chunk := source.recv(1 << 16):
            if stall is not None and len(kept) + len(chunk) > stall[0]:
                sink.sendall(chunk[: stall[0] - len(kept)])
                stall[1].wait()
                return
            kept += chunk
            sink.sendall(chunk)
        sink.shutdown(socket.SHUT_WR)


def frames(stream: bytes) -> list[bytes]:
    """The whole frames of a stream, and the beginning of one that is cut off."""
    out, at = [], 0
    while at + HEADER <= len(stream):
        end = at + HEADER + int.from_bytes(stream[at + LENGTH : at + HEADER], "little")
        out.append(stream[at:end])
        at = end
    return out


Fault = Callable[[int, Recorded, random.Random], None]


def _connected(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)


def _heard(peer: socket.socket, seconds: float = PATIENCE) -> None:
    """Reads until the server closes, or for so long."""
    end = time.monotonic() + seconds
    with suppress(OSError):
        while (left := end - time.monotonic()) > 0:
            peer.settimeout(left)
            if not peer.recv(1 << 16):
                return


def _say(peer: socket.socket, data: bytes) -> None:
    """Sends what the server still takes."""
    with suppress(OSError):
        peer.sendall(data)


def cut(port: int, session: Recorded, rng: random.Random) -> None:
    """Vanishes in the middle of a frame, with a reset."""
    stream = session.stream
    with _connected(port) as peer:
        _say(peer, stream[: rng.randrange(1, len(stream))])
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def slow(port: int, session: Recorded, rng: random.Random) -> None:
    """Sends a byte now and then, and gives up."""
    with _connected(port) as peer:
        for byte in session.stream[: rng.randrange(4, 40)]:
            _say(peer, bytes([byte]))
            time.sleep(0.02)


def garbage(port: int, _: Recorded, rng: random.Random) -> None:
    """Random bytes, with or without the first bytes of a frame."""
    with _connected(port) as peer:
        start = rng.choice([b"", b"HN", b"HN\x01\x01", b"GET /ws HTTP/1.1\r\n", b"GET /metrics HTTP/1.1\r\n\r\n"])
        _say(peer, start + rng.randbytes(rng.randrange(1, 20_000)))
        _heard(peer, 0.5)


def half_open(port: int, session: Recorded, rng: random.Random) -> None:
    """Says that it will send no more in the middle of a session, and listens."""
    stream = session.stream
    with _connected(port) as peer:
        _say(peer, stream[: rng.randrange(1, len(stream))])
        with suppress(OSError):
            peer.shutdown(socket.SHUT_WR)
        _heard(peer, 1.0)


def reordered(port: int, session: Recorded, rng: random.Random) -> None:
    """Frames in another order, some twice, some never."""
    frames = list(session.frames)
    first = rng.randrange(len(frames))
    rest = frames[first:]
    rng.shuffle(rest)
    with _connected(port) as peer:
        _say(peer, b"".join(frames[:first] + rest[: rng.randrange(len(rest) + 1)] + rest[:1]))
        _heard(peer, 0.5)


def flipped(port: int, session: Recorded, rng: random.Random) -> None:
    """One bit of a session is another."""
    stream = bytearray(session.stream)
    stream[rng.randrange(min(len(stream), rng.choice([64, 4096, len(stream)])))] ^= 1 << rng.randrange(8)
    with _connected(port) as peer:
        _say(peer, bytes(stream))
        _heard(peer, 0.5)


def hoarder(port: int, session: Recorded, rng: random.Random) -> None:
    """Begins to work, keeps what it has got, and sends nothing more for a while."""
    stream = session.stream
    with _connected(port) as peer:
        _say(peer, stream[: rng.randrange(len(stream) // 2, len(stream))])
        _heard(peer, rng.uniform(0.2, 2.0))


def deaf(port: int, session: Recorded, rng: random.Random) -> None:
    """Sends all and reads nothing."""
    with _connected(port) as peer:
        peer.settimeout(1.0)
        _say(peer, session.stream)
        time.sleep(rng.uniform(0.05, 0.5))


def idle(port: int, _: Recorded, rng: random.Random) -> None:
    """Connects and says nothing."""
    with _connected(port):
        time.sleep(rng.uniform(0.05, 0.5))


FAULTS: dict[str, Fault] = {
    f.__name__: f for f in (cut, slow, garbage, half_open, reordered, flipped, hoarder, deaf, idle)
}

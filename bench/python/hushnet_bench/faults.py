"""Peers that do to a server what networks, accidents and attackers do: each act is a function of a recorded session."""

from __future__ import annotations

import random
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

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
    """Hands on what comes, and keeps it; its end, too, also where that is a reset."""
    with suppress(OSError):
        while chunk := source.recv(1 << 16):
            if stall is not None and len(kept) + len(chunk) > stall[0]:
                sink.sendall(chunk[: stall[0] - len(kept)])
                stall[1].wait()
                return
            kept += chunk
            sink.sendall(chunk)
    with suppress(OSError):
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


def reordered_close(port: int, session: Recorded, rng: random.Random) -> None:
    """Says goodbye, and closes its half or not, before frames that should stand before that."""
    frames = list(session.frames)
    end = frames.pop()
    at = rng.randrange(len(frames) + 1)
    with _connected(port) as peer:
        _say(peer, b"".join(frames[:at]) + end)
        if rng.random() < 0.5:
            with suppress(OSError):
                peer.shutdown(socket.SHUT_WR)
        _say(peer, b"".join(frames[at:]) + end)
        _heard(peer, 0.5)


def websocket(port: int, session: Recorded, rng: random.Random) -> None:
    """A WebSocket, then pings, pieces without end, a close with frames behind it, or nothing more."""
    with _connected(port) as peer:
        _say(peer, WEBSOCKET)
        for _ in range(rng.randrange(1, 6)):
            code, final = rng.choice([(2, True), (2, False), (0, False), (9, True), (8, True), (3, True)])
            payload = rng.choice(session.frames) if code in (0, 2) else rng.randbytes(rng.randrange(126))
            _say(peer, _masked(code, final, payload, rng.randbytes(4)))
        _heard(peer, rng.uniform(0.05, 0.5))


WEBSOCKET = b"\r\n".join(
    [
        b"GET /ws HTTP/1.1",
        b"Host: 127.0.0.1",
        b"Upgrade: websocket",
        b"Connection: Upgrade",
        b"Sec-WebSocket-Version: 13",
        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
        b"",
        b"",
    ]
)


def _masked(code: int, final: bool, payload: bytes, mask: bytes) -> bytes:
    """A frame of a WebSocket's client (RFC 6455, 5.2)."""
    length = len(payload)
    if length < 126:
        size = bytes([128 | length])
    elif length < 1 << 16:
        size = bytes([128 | 126]) + length.to_bytes(2, "big")
    else:
        size = bytes([128 | 127]) + length.to_bytes(8, "big")
    key = np.frombuffer((mask * (length // 4 + 1))[:length], np.uint8)
    return bytes([128 * final | code]) + size + mask + (np.frombuffer(payload, np.uint8) ^ key).tobytes()


FAULTS: dict[str, Fault] = {
    f.__name__: f
    for f in (cut, slow, garbage, half_open, reordered, reordered_close, websocket, flipped, hoarder, deaf, idle)
}

# Between a program and the C library: the wall clock goes wrong by the seconds that a file holds. Clocks that measure
# time are left alone, as they are when a clock is set.
CLOCK = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>

static volatile long *wrong;

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("HUSHNET_WRONG_CLOCK");
    int file = path ? open(path, O_RDONLY) : -1;
    void *at = file < 0 ? MAP_FAILED : mmap(0, sizeof(long), PROT_READ, MAP_SHARED, file, 0);
    wrong = at == MAP_FAILED ? 0 : at;
}

static long by(void) { return wrong ? *wrong : 0; }

int clock_gettime(clockid_t which, struct timespec *out) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int failed = real(which, out);
    if (!failed && (which == CLOCK_REALTIME || which == CLOCK_REALTIME_COARSE)) out->tv_sec += by();
    return failed;
}

time_t time(time_t *out) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (out) *out = now.tv_sec;
    return now.tv_sec;
}

int gettimeofday(struct timeval *out, void *zone) {
    struct timespec now;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &now);
    out->tv_sec = now.tv_sec;
    out->tv_usec = now.tv_nsec / 1000;
    return 0;
}
"""


class Clock:
    """The wall clock of processes that are started with :attr:`environment`: right until :meth:`jump`."""

    def __init__(self, folder: Path) -> None:
        self.file, self.environment = folder / "clock", dict[str, str]()
        self.file.write_bytes(bytes(8))
        source, library = folder / "clock.c", folder / "clock.so"
        source.write_text(CLOCK)
        command = ["cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(source), "-ldl"]
        with suppress(OSError, subprocess.CalledProcessError):
            subprocess.run(command, check=True, capture_output=True)
            self.environment = {"LD_PRELOAD": str(library), "HUSHNET_WRONG_CLOCK": str(self.file)}

    @property
    def works(self) -> bool:
        """Whether there is a C compiler, without which the clock stays right."""
        return bool(self.environment)

    def jump(self, seconds: int) -> None:
        """From now on it is wrong by so many seconds."""
        with self.file.open("r+b") as file:
            file.write(seconds.to_bytes(8, "little", signed=True))

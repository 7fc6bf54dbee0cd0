"""A front for several servers: it passes bytes between clients and servers, and looks into none of them.

A session is one connection, so it stays with the server that it began with. TLS ends at the servers, whose certificate
and tokens clients see as if there were no front.
"""

from __future__ import annotations

import asyncio
import hashlib
import ipaddress
import math
import struct
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from hushnet.errors import TransportError

# Bytes that are passed on at once.
CHUNK = 1 << 18
# A server may have so many times the connections of an even share before a client goes to its second choice.
BOUND = 1.25
# What a PROXY header begins with (HAProxy, "The PROXY protocol", version 2).
SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"
# Seconds between two looks for a server while there is none.
LOOK = 0.05

Made = TypeVar("Made")


@dataclass
class Backend:
    """A server behind the front.

    Attributes:
        name: what stays the same when the server is started anew at another port.
        active: connections that it has now.
        total: connections that it has had.
    """

    name: str
    host: str
    port: int
    active: int = 0
    total: int = 0


def choice(client: str, backends: list[Backend]) -> list[Backend]:
    """Servers in the order in which a client should try them.

    Each client has an order of its own that does not depend on which other servers there are (rendezvous hashing),
    so it comes back to the server that it had. Servers with more than their share of connections come last
    (consistent hashing with bounded loads, Mirrokni, Thorup, Zadimoghaddam, 2016).
    """

    def rank(backend: Backend) -> bytes:
        return hashlib.blake2b(f"{client}\n{backend.name}".encode(), digest_size=8).digest()

    share = math.ceil(BOUND * (sum(b.active for b in backends) + 1) / max(1, len(backends)))
    ranked = sorted(backends, key=rank)
    room = [b for b in ranked if b.active < share]
    return room + sorted((b for b in ranked if b.active >= share), key=lambda b: b.active)


def introduction(client: Sequence[Any], front: Sequence[Any]) -> bytes:
    """The header of the PROXY protocol, version 2, that tells a server whose connection this is."""
    ends = [ipaddress.ip_address(end[0].partition("%")[0]) for end in (client, front)]
    ports = struct.pack(">HH", client[1], front[1])
    rest = b"".join(end.packed for end in ends) + ports
    return SIGNATURE + struct.pack(">BBH", 0x21, 0x11 if ends[0].version == 4 else 0x21, len(rest)) + rest


class Front:
    """Listens, and passes connections on to servers; on a thread of its own."""

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        max_connections: int = 4096,
        patience: float = 30.0,
        introduces: bool = False,
    ) -> None:
        """Opens the port.

        Args:
            port: 0 for any free one.
            max_connections: at once; more are closed as they come.
            patience: seconds that a client is kept while no server can be reached.
            introduces: tells servers who the client is by a PROXY header; they must know that it comes.

        Raises:
            TransportError: the port cannot be used.
        """
        self.max_connections, self.patience, self.introduces = max_connections, patience, introduces
        self.refused = 0
        self._backends: dict[str, Backend] = {}
        self._lock = threading.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="hushnet-front", daemon=True)
        self._thread.start()
        try:
            self._server = self._run(asyncio.start_server(self._take, host, port, limit=CHUNK))
        except OSError as error:
            self._end()
            raise TransportError(f"The front cannot listen on {host}:{port}: {error}. Choose another port.") from None
        self.host, self.port = host, int(self._server.sockets[0].getsockname()[1])

    def put(self, name: str, host: str, port: int) -> None:
        """New clients may go to this server from now on."""
        with self._lock:
            known = self._backends.get(name)
            if known is None or (known.host, known.port) != (host, port):
                self._backends[name] = Backend(name, host, port)

    def drop(self, name: str) -> None:
        """New clients no longer go to this server; those that it has stay."""
        with self._lock:
            self._backends.pop(name, None)

    def backends(self) -> dict[str, Backend]:
        """The servers that new clients may go to, by name."""
        with self._lock:
            return dict(self._backends)

    def thread_id(self) -> int | None:
        """The system's number of the thread that passes bytes."""
        return self._thread.native_id

    def stop(self, grace: float = 0.0) -> None:
        """Takes no more connections, and cuts those that are left after so many seconds."""
        if not self._thread.is_alive():
            return
        self._loop.call_soon_threadsafe(self._server.close)
        end = time.monotonic() + grace
        while self._tasks and time.monotonic() < end:
            time.sleep(LOOK)
        self._run(self._cut())
        self._end()

    async def _cut(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        if not self._thread.is_alive():
            self._loop.close()

    def _run(self, made: Awaitable[Made]) -> Made:
        async def wait() -> Made:
            return await made

        return asyncio.run_coroutine_threadsafe(wait(), self._loop).result(30)

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if len(self._tasks) >= self.max_connections:
            self.refused += 1
            writer.close()
            return
        self._tasks.add(task)
        try:
            await self._pass(reader, writer)
        except (OSError, asyncio.CancelledError):
            pass  # either side is gone: the other one is closed below
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        client = str(writer.get_extra_info("peername", ("?",))[0])
        reached = await self._reach(client)
        if reached is None:
            self.refused += 1
            return
        backend, (far_reader, far_writer) = reached
        if self.introduces:
            far_writer.write(introduction(writer.get_extra_info("peername"), writer.get_extra_info("sockname")))
        up = asyncio.ensure_future(_pour(reader, far_writer))
        down = asyncio.ensure_future(_pour(far_reader, writer))
        try:
            await asyncio.wait({up, down}, return_when=asyncio.FIRST_COMPLETED)
            # A client may end its side first. A server that has ended, has ended the session.
            if up.done() and up.exception() is None:
                await down
        finally:
            up.cancel()
            down.cancel()
            await asyncio.gather(up, down, return_exceptions=True)
            far_writer.close()
            with self._lock:
                backend.active -= 1

    async def _reach(self, client: str) -> tuple[Backend, tuple[asyncio.StreamReader, asyncio.StreamWriter]] | None:
        """A connection to the first of a client's servers that takes it, as soon as one does."""
        end = time.monotonic() + self.patience
        while time.monotonic() < end:
            for backend in self._choices(client):
                # Counted before it is reached, so that clients who come together spread.
                with self._lock:
                    backend.active += 1
                try:
                    streams = await asyncio.open_connection(backend.host, backend.port, limit=CHUNK)
                except BaseException as error:
                    with self._lock:
                        backend.active -= 1
                    if not isinstance(error, OSError):
                        raise
                    continue
                with self._lock:
                    backend.total += 1
                return backend, streams
            await asyncio.sleep(LOOK)
        return None

    def _choices(self, client: str) -> list[Backend]:
        with self._lock:
            return choice(client, list(self._backends.values()))


async def _pour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Passes on what comes until its end, and then says that it has ended."""
    while data := await reader.read(CHUNK):
        writer.write(data)
        await writer.drain()
    with suppress(OSError, RuntimeError):  # the far side is gone already
        writer.write_eof()


def until(condition: Callable[[], bool], seconds: float) -> bool:
    """Whether something came true in so many seconds."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(LOOK)
    return True

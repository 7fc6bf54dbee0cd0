"""What stands between clients and servers in benchmarks of faults."""

from __future__ import annotations

import socket
import struct
import threading

import pytest
from hushnet_bench import faults


def connected() -> tuple[socket.socket, socket.socket]:
    """Both ends of a connection."""
    with socket.create_server(("127.0.0.1", 0)) as door:
        near = socket.create_connection(door.getsockname())
        return near, door.accept()[0]


@pytest.mark.parametrize("reset", [False, True])
def test_what_hands_on_hands_on_an_end_and_a_reset(reset: bool) -> None:
    (server, source), (sink, client) = connected(), connected()
    with source, sink, client:
        hands = threading.Thread(target=faults.pump, args=(source, sink, bytearray()))
        hands.start()
        server.sendall(b"some")
        client.settimeout(10)
        assert client.recv(4) == b"some"
        if reset:
            # As a killed process that has not read all leaves its connection.
            server.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        server.close()
        assert client.recv(1) == b"", "a client that hears no end waits for minutes"
        hands.join(10)
        assert not hands.is_alive()

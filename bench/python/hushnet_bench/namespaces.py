"""Two network namespaces joined by a pair of virtual interfaces with limited bandwidth and delay.

The delay needs a kernel with netem.

Needs Linux, root, and ``ip`` and ``tc``; what is missing is said by :class:`Unavailable`.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

SERVER, CLIENT = "10.77.0.1", "10.77.0.2"
# small against what even a small network sends; larger packets are cut
BURST_BYTES, QUEUE_BYTES = 16 << 10, 64 << 20


class Unavailable(Exception):
    """This machine does not let us make such a network; why."""


@dataclass(frozen=True)
class Link:
    """How to start processes on both sides, and what the link really is.

    Attributes:
        server, client: words in front of a command.
        host: address of the server's side.
        round_trip_seconds: 0 where the kernel cannot delay packets.
    """

    server: list[str]
    client: list[str]
    host: str
    bits_per_second: float
    round_trip_seconds: float


def _do(*words: str) -> None:
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False)
    except OSError as error:
        raise Unavailable(f"{words[0]}: {error}") from None
    if done.returncode:
        raise Unavailable(f"{' '.join(words)}: {done.stderr.strip() or done.returncode}")


@contextmanager
def link(bits_per_second: float, round_trip_seconds: float) -> Iterator[Link]:
    """Two namespaces for as long as the context lasts.

    Raises:
        Unavailable: no such network can be made here.
    """
    spaces = [f"hushnet-{os.getpid()}-{side}" for side in ("a", "b")]
    devices = [f"hn{os.getpid() % 100_000}{side}" for side in ("a", "b")]
    try:
        for space in spaces:
            _do("ip", "netns", "add", space)
        _do("ip", "link", "add", devices[0], "type", "veth", "peer", "name", devices[1])
        for space, device, address in zip(spaces, devices, (SERVER, CLIENT)):
            _do("ip", "link", "set", device, "netns", space)
            _do("ip", "-n", space, "address", "add", f"{address}/24", "dev", device)
            for name in (device, "lo"):
                _do("ip", "-n", space, "link", "set", name, "up")
        delayed = (
            all(_delay(s, d, round_trip_seconds / 2) for s, d in zip(spaces, devices)) if round_trip_seconds else False
        )
        for space, device in zip(spaces, devices):
            parent = ["parent", "1:1"] if delayed else ["root"]
            limits = ["rate", f"{bits_per_second:.0f}", "burst", str(BURST_BYTES), "limit", str(QUEUE_BYTES)]
            _do("tc", "-n", space, "qdisc", "add", "dev", device, *parent, "tbf", *limits)
        run = [["ip", "netns", "exec", space] for space in spaces]
        yield Link(run[0], run[1], SERVER, bits_per_second, round_trip_seconds if delayed else 0.0)
    finally:
        for space in spaces:
            subprocess.run(["ip", "netns", "del", space], capture_output=True, check=False)


def _delay(space: str, device: str, seconds: float) -> bool:
    try:
        _do(
            "tc",
            "-n",
            space,
            "qdisc",
            "add",
            "dev",
            device,
            "root",
            "handle",
            "1:",
            "netem",
            "delay",
            f"{seconds * 1e6:.0f}us",
            "limit",
            "100000",
        )
    except Unavailable:
        return False
    return True

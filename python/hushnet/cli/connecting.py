"""How commands reach a server: its token, its address, and again when it is full."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import hushnet
from hushnet.cli.common import err, sentence

Answer = TypeVar("Answer")


def retried(once: Callable[[], Answer], times: int) -> Answer:
    """Does something again, so many times at most, when a server says that it is full.

    It waits for as long as the server says, and up to half as long more: clients that were refused together do not
    come back together.
    """
    for left in range(times, -1, -1):
        try:
            return once()
        except hushnet.ProtocolError as error:
            if error.retry_after is None or not left:
                raise
            wait = error.retry_after * random.uniform(1.0, 1.5)
            again = "once more" if left == 1 else f"{left} times more"
            err.print(f"{sentence(str(error))} Trying {again}, in {wait:.1f} s.")
            time.sleep(wait)
    raise AssertionError("the last time returns or raises")


def read_token(path: Path | None) -> str | None:
    """The token of a file, or of the environment.

    Raises:
        InputError: the file cannot be read, or there is nothing in it.
    """
    if path is None:
        return os.environ.get("HUSHNET_TOKEN") or None
    try:
        text = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise hushnet.InputError(f"--token-file {path} cannot be read: {type(error).__name__}.") from None
    if not text:
        raise hushnet.InputError(f"--token-file {path} is empty: it holds the token that the server's operator gave.")
    return text


# what a stranger meets first: scheme of the address, what the connection says, and what to do
_HINTS = (
    ("hush", "closed the connection", "If the server was started with --tls, its address begins with hushs://."),
    ("ws", "closed the connection", "If the server was started with --tls, its address begins with wss://."),
    ("hushs", "InvalidContentType", "The server speaks no TLS: its address begins with hush://."),
    ("wss", "InvalidContentType", "The server speaks no TLS: its address begins with ws://."),
)


def connected(url: str, options: dict[str, Any]) -> hushnet.Connection:
    """A connection.

    Raises:
        TransportError: with what the address should be, where that follows.
    """
    try:
        return hushnet.connect(url, **options)
    except hushnet.TransportError as error:
        scheme = url.partition("://")[0]
        for of, said, advice in _HINTS:
            if of == scheme and said in str(error):
                raise hushnet.TransportError(f"{sentence(str(error))} {advice}") from None
        raise

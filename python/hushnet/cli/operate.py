"""What ``hushnet serve`` does while it serves: signals, logs, traces, memory."""

from __future__ import annotations

import ctypes
import json
import logging
import queue
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

from hushnet import HushnetError, _native

log = logging.getLogger("hushnet.serve")
# Seconds between two looks at the server.
LOOK = 0.2
# Seconds between two times that memory of ended sessions goes back to the system while others work; and for how long
# after the last of them the server gives buffers back that it no longer needs.
TRIM, AFTER = 5.0, 12.0
# Bytes of a file of traces at most: one that is full becomes FILE.1, in the place of the one before.
TRACES = 1 << 30
# Descriptors beside those of connections: files, the runtime's own, the interpreter's.
OWN_DESCRIPTORS = 64
# What the server's records say behind their text.
_FIELDS = re.compile(r" (\w+)=(\"[^\"]*\"|\S+)")


class JsonLines(logging.Formatter):
    """One JSON object a line: time, level, logger, message and the record's fields (session, peer, ...)."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as JSON."""
        text, _, error = record.getMessage().partition(" error=")
        said: dict[str, Any] = {
            "time": stamp(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _FIELDS.sub("", text),
        }
        said |= {key: _value(value) for key, value in _FIELDS.findall(text)}
        if error:
            said["error"] = error
        return json.dumps(said)


class TextLines(logging.Formatter):
    """One line a record: time, level, message."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as a line."""
        return f"{stamp(record)} {record.levelname.lower():7} {record.getMessage()}"


def stamp(record: logging.LogRecord) -> str:
    """A record's time: UTC, ISO 8601, milliseconds."""
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03}Z"


def _value(text: str) -> str | int | float:
    for kind in (int, float):
        with suppress(ValueError):
            return kind(text)
    return text.strip('"')


def start_log(form: str, level: str) -> None:
    """Sends records of the server to standard error, as lines of text or of JSON."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines() if form == "json" else TextLines())
    for name in ("hushnet", "hushnet_runtime"):
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.propagate = False
        logger.setLevel(level.upper())


def descriptors(connections: int) -> int:
    """Raises the process's limit of open files for so many connections; returns how many it allows."""
    try:
        import resource
    except ImportError:  # no such limit on this system
        return connections
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + OWN_DESCRIPTORS
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return connections
    allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
        soft = allowed
    return max(1, min(connections, soft - OWN_DESCRIPTORS))


def operate(
    handle: _native.ServerHandle,
    trace: Path | None,
    reload: Callable[[_native.ServerHandle], None] | None = None,
    ready: Callable[[], None] | None = None,
    told: Callable[[], None] | None = None,
) -> None:
    """Serves until the server has stopped.

    SIGTERM and the first SIGINT: blocks in work finish, nothing new begins. A second SIGINT ends at once. SIGHUP:
    certificates, tokens and models are read again.

    Args:
        reload: reads the models again; it may take long.
        told: called now and then, and at the end: takes what there is to tell of sessions that ended.
        ready: called once signals are heard; who is told of the server before that could end it by a SIGHUP.
    """
    trim, ended, trimmed, busy = _trim(), 0, 0.0, 0.0
    with _signals(handle, reload):
        if ready:
            ready()
        while not handle.join(LOOK):
            _append(trace, handle.traces())
            if told:
                told()
            stats = handle.stats()
            over, now = stats["sessions"] - stats["active"], time.monotonic()
            # A server that is never idle gives back, too, though not after every session.
            due = now - trimmed > TRIM
            if over > ended and (stats["active"] == 0 or due):
                ended, trimmed, busy = over, now, now
                trim()
            elif due and busy and trimmed < busy + AFTER:
                trimmed = now
                trim()
    _append(trace, handle.traces())
    if told:
        told()
    log.info("the server has stopped")


class _Reloading:
    """Reads files again, on a thread of its own: signals that end the server are heard meanwhile."""

    def __init__(self, handle: _native.ServerHandle, models: Callable[[_native.ServerHandle], None] | None) -> None:
        self.handle, self.models = handle, models
        # A simple queue: a signal may come while another's handler puts.
        self.asked: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self.thread = threading.Thread(target=self._work, name="hushnet-reload")
        self.thread.start()

    def ask(self) -> None:
        """Reads all files again, once more where that goes on already."""
        self.asked.put(True)

    def _work(self) -> None:
        while self.asked.get():
            while not self.asked.empty():
                if not self.asked.get():
                    return
            for what, read in (
                ("the certificate that the server has stays", self.handle.reload_certificate),
                ("the tokens that the server has stay", self.handle.reload_tokens),
            ):
                try:
                    read()
                except HushnetError as error:
                    log.warning("SIGHUP: %s: %s", what, error)
            if self.models:
                self.models(self.handle)

    def end(self) -> None:
        """Waits for what is being read: the interpreter must not end under it."""
        self.asked.put(False)
        self.thread.join()


@contextmanager
def _signals(handle: _native.ServerHandle, models: Callable[[_native.ServerHandle], None] | None) -> Iterator[None]:
    stopping = False
    reloading = _Reloading(handle, models)

    def stop(number: int, _: FrameType | None) -> None:
        nonlocal stopping
        if stopping and number == signal.SIGINT:
            raise KeyboardInterrupt
        stopping = True
        log.info("%s: blocks in work finish, nothing new begins", signal.Signals(number).name)
        handle.stop()

    def reload(_: int, __: FrameType | None) -> None:
        reloading.ask()

    wanted: dict[str, Callable[[int, FrameType | None], None]] = {"SIGTERM": stop, "SIGINT": stop, "SIGHUP": reload}
    known = {getattr(signal, name): act for name, act in wanted.items() if hasattr(signal, name)}
    before = {number: signal.signal(number, act) for number, act in known.items()}
    try:
        yield
    finally:
        reloading.end()
        for number, act in before.items():
            signal.signal(number, act)


def _trim() -> Callable[[], None]:
    """Gives memory of ended sessions back to the system, where the C library can."""
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):
        return lambda: None
    return lambda: trim(ctypes.c_size_t(0)) and None


def _append(path: Path | None, traces: list[str]) -> None:
    if path is None or not traces:
        return
    try:
        text = "".join(f"{t}\n" for t in traces)
        # What is no file of its own, as a pipe, has no length and stays.
        if path.is_file() and path.stat().st_size and path.stat().st_size + len(text) > TRACES:
            path.replace(f"{path}.1")
        with path.open("a") as file:
            file.write(text)
    except OSError as error:
        log.warning("%d traces are lost: %s", len(traces), error)

"""What runs in Ray's worker processes: servers, and clients that work through a data set."""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from hushnet import _native
from hushnet.errors import HushnetError, ProtocolError, TransportError
from hushnet.model import Model
from hushnet.serving import serve
from hushnet.sessions import Connection, connect

# Seconds before a client asks again whose connection failed; doubled each time, up to the most.
PAUSE, MOST = 0.2, 5.0


class Replica:
    """One server with its models, in a worker process.

    Methods are what the front's supervisor calls; clients reach the server over TCP alone.
    """

    def __init__(self, options: Mapping[str, Any], host: str | None) -> None:
        """Waits for its models.

        Args:
            options: of :func:`hushnet.serve`.
            host: address to listen on; None for this machine's own in the cluster.
        """
        self.options, self.host = dict(options), host
        self.allow_insecure = bool(options.get("allow_insecure"))
        self.generation = -1
        self.handle: _native.ServerHandle | None = None
        # Methods run on several threads: two plans are not read at once.
        self.reading = threading.Lock()

    def about(self) -> dict[str, Any]:
        """Where it listens, what it is, and its counters; before it has models its process alone."""
        said = {"pid": os.getpid(), "generation": self.generation}
        if self.handle is None or self.generation < 0:
            return said
        where = {"host": self.host, "port": self.handle.port, "sessions": self.handle.sessions}
        return said | where | {"stats": self.handle.stats()}

    def set_models(self, models: Mapping[str, Any], generation: int) -> None:
        """Serves these models from now on; sessions keep the ones that they began with.

        Args:
            models: what Ray gets the bytes of plan files by, by name.
            generation: which of the service's models these are; it rises with each reload. Older ones than there are
                change nothing.

        Raises:
            HushnetError: one of them cannot be served. Then those that there are stay.
        """
        import ray

        with self.reading:
            if generation <= self.generation:
                return
            read = {}
            with tempfile.TemporaryDirectory() as folder:
                for name, plan in models.items():
                    path = Path(folder) / "plan.hush"
                    path.write_bytes(ray.get(plan))
                    read[name] = Model.load(path, allow_insecure=self.allow_insecure)
            if self.handle is None:
                self.host = self.host or str(ray.util.get_node_ip_address())
                self.handle = serve(read, host=self.host, port=0, **self.options)
            else:
                insecure = self.allow_insecure
                self.handle.set_models({name: model.native(allow_insecure=insecure) for name, model in read.items()})
            self.generation = generation

    def stop(self) -> None:
        """Lets blocks in work finish."""
        if self.handle is not None:
            self.handle.stop()
            self.handle.join()


def patiently(act: Callable[[], Any], seconds: float) -> Any:
    """Does something again until it succeeds, where the connection failed or the server was full, for so many seconds.

    Raises:
        HushnetError: the last failure, or one that trying again does not mend.
    """
    end, pause = time.monotonic() + seconds, PAUSE
    while True:
        try:
            return act()
        except (TransportError, ProtocolError) as error:
            wait = getattr(error, "retry_after", None)
            if (isinstance(error, ProtocolError) and wait is None) or time.monotonic() > end:
                raise
            time.sleep(pause if wait is None else min(float(wait), MOST))
            pause = min(2 * pause, MOST)


class Worker:
    """A client in a worker process: it keeps its connection from batch to batch, and opens another when that fails."""

    def __init__(self, url: str, options: Mapping[str, Any], patience: float) -> None:
        """Connects when the first batch comes.

        Args:
            options: of :func:`hushnet.connect`.
            patience: seconds for which a batch is tried again when its connection fails or the server is full.
        """
        self.url, self.options, self.patience = url, dict(options), patience
        self.connection: Connection | None = None

    def infer(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Answers of one batch, NaN in rows that left the range that the plan was made for.

        Raises:
            HushnetError: it has none, in spite of trying again.
        """

        def once() -> dict[str, np.ndarray]:
            if self.connection is None:
                self.connection = connect(self.url, **self.options)
            try:
                result = self.connection.infer(inputs[""] if "" in inputs else dict(inputs))
            except HushnetError:
                # Another session has other randomness: nothing of this one is used again.
                self.connection = None
                raise
            return result.strict()

        return dict(patiently(once, self.patience))

    def close(self) -> None:
        """Ends the session."""
        if self.connection is not None:
            self.connection.close()

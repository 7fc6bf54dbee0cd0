"""Replicas behind one front: started, watched, started anew, more and fewer of them."""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hushnet.errors import HushnetError
from hushnet.model import Model
from hushnet.ray.front import Front
from hushnet.ray.replica import Replica

log = logging.getLogger("hushnet.ray")
# Seconds between two looks at the replicas, and for which one may be silent before no new clients go to it.
LOOK, SILENT = 0.25, 5.0
# Seconds of a replica's start, with its plans' weights.
START = 600.0
# Clients stand in line for so many seconds before there is one more replica; one has no client for so many before
# there is one less.
MORE, FEWER = 2.0, 60.0


def needed() -> Any:
    """The module ``ray``.

    Raises:
        HushnetError: it is not installed.
    """
    try:
        import ray
    except ImportError:
        raise HushnetError("hushnet.ray needs Ray, which is not installed: pip install 'hushnet[ray]'.") from None
    return ray


def read(model: Model | str | Path, allow_insecure: bool) -> bytes:
    """The bytes of a plan file, which have been checked."""
    loaded = model if isinstance(model, Model) else Model.load(model, allow_insecure=allow_insecure)
    loaded.native(allow_insecure=allow_insecure)
    return loaded.plan.to_bytes()


@dataclass
class Running:
    """A replica as its supervisor knows it."""

    name: str
    actor: Any
    about: dict[str, Any] = field(default_factory=dict)
    # What was asked of it and has not been answered; when it last answered, and last had a client.
    asked: Any = None
    heard: float = 0.0
    used: float = 0.0
    # The process that was told to read models, and which.
    told: tuple[int, int] = (0, 0)
    leaving: bool = False

    def serves(self) -> bool:
        """Whether it has clients, as far as is known."""
        stats = self.about.get("stats", {})
        return any(stats.get(name, 0) for name in ("active", "waiting", "guests"))


class Service:
    """Replicas behind one port; made by :func:`hushnet.ray.serve`."""

    def __init__(
        self,
        models: Model | str | Path | Mapping[str, Model | str | Path],
        replicas: tuple[int, int],
        address: tuple[str, int],
        options: Mapping[str, Any],
    ) -> None:
        """Starts the least number of replicas and waits until all of them listen."""
        self._ray = needed()
        self._range = replicas
        # Where the front's connections come from, as replicas see them.
        own = {"127.0.0.1", str(self._ray.util.get_node_ip_address())}
        self._options = {**options, "proxies": [*options.get("proxies", ()), *sorted(own)]}
        self._insecure = bool(options.get("allow_insecure"))
        self._generation, self._models = 0, self._kept(models)
        self._names = itertools.count()
        self._lock = threading.RLock()
        self._line_since: float | None = None
        self._over = threading.Event()
        self.front = Front(*address, introduces=True)
        self._running: list[Running] = []
        try:
            started = [self._more() for _ in range(replicas[0])]
            for one, answer in started:
                self._get(answer, START)
                self._hear(one, self._get(one.actor.about.remote(), START))
        except BaseException:
            self.stop()
            raise
        self._supervisor = threading.Thread(target=self._supervise, name="hushnet-replicas", daemon=True)
        self._supervisor.start()

    @property
    def port(self) -> int:
        """The front's port."""
        return self.front.port

    @property
    def url(self) -> str:
        """Where clients find the service."""
        return f"{'hushs' if self._options.get('tls_cert') else 'hush'}://{self.front.host}:{self.port}"

    def replicas(self) -> list[dict[str, Any]]:
        """What is known of each replica: name, address, process, models' generation, counters, connections."""
        backends = self.front.backends()
        with self._lock:
            found = []
            for one in self._running:
                backend = backends.get(one.name)
                serving = {"active": backend.active, "total": backend.total} if backend else None
                found.append({"name": one.name, **one.about, "connections": serving})
            return found

    def reload(self, models: Model | str | Path | Mapping[str, Model | str | Path]) -> None:
        """Serves these models from now on; sessions keep the ones that they began with.

        Returns when all replicas that run have them.

        Raises:
            HushnetError: a plan cannot be served, or a replica does not answer. Then replicas may differ until the
                next call.
        """
        kept = self._kept(models)
        with self._lock:
            self._models, self._generation = kept, self._generation + 1
            running, generation = list(self._running), self._generation
        for one in running:
            self._get(one.actor.set_models.remote(kept, generation), START)
            self._hear(one, self._get(one.actor.about.remote(), START))

    def scale(self, count: int) -> None:
        """So many replicas from now on; those that are too many serve the sessions that they have."""
        with self._lock:
            self._range = (count, count)

    def stop(self, grace: float = 10.0) -> None:
        """Takes no more clients; blocks in work may finish within so many seconds."""
        self._over.set()
        supervisor = getattr(self, "_supervisor", None)
        if supervisor is not None and supervisor is not threading.current_thread():
            supervisor.join(2 * SILENT)
        with self._lock:
            running, self._running = self._running, []
        for one in running:
            self.front.drop(one.name)
        ends = [one.actor.stop.remote() for one in running]
        if ends:
            with suppress(Exception):  # a replica that is gone has stopped
                self._ray.wait(ends, num_returns=len(ends), timeout=grace + 2)
        for one in running:
            self._ray.kill(one.actor)
        self.front.stop()

    def __enter__(self) -> Service:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _kept(self, models: Model | str | Path | Mapping[str, Model | str | Path]) -> dict[str, Any]:
        """Plans in Ray's store, from where each replica reads them."""
        named = models if isinstance(models, Mapping) else {"model": models}
        return {name: self._ray.put(read(model, self._insecure)) for name, model in named.items()}

    def _get(self, answer: Any, seconds: float) -> Any:
        """What a replica answers.

        Raises:
            HushnetError: it fails, or does not answer in time.
        """
        try:
            return self._ray.get(answer, timeout=seconds)
        except self._ray.exceptions.RayError as error:
            raise HushnetError(f"A replica fails: {getattr(error, 'cause', None) or error}") from None

    def _more(self) -> tuple[Running, Any]:
        """One replica more, which serves nobody until it has its models, and what tells when it has them."""
        actor = self._ray.remote(Replica).options(
            num_cpus=self._options.get("threads") or 1, max_restarts=-1, max_concurrency=4
        )
        host = self._host()
        with self._lock:
            name = f"replica-{next(self._names)}"
            one = Running(name, actor.remote(self._options, host))
            one.heard = one.used = time.monotonic()
            self._running.append(one)
            return one, one.actor.set_models.remote(self._models, self._generation)

    def _host(self) -> str | None:
        """The address that replicas listen on: this machine's own where the cluster has no other, else each one's."""
        nodes = [node for node in self._ray.nodes() if node["Alive"]]
        return "127.0.0.1" if len(nodes) == 1 else None

    def _hear(self, one: Running, about: dict[str, Any]) -> None:
        """A replica has answered: it takes clients, unless it has no models, or old ones."""
        now = time.monotonic()
        one.about, one.heard = about, now
        if one.serves():
            one.used = now
        if about["generation"] < self._generation:
            # It was started anew, or could not read them. Old ones go on meanwhile where it has some.
            if about["generation"] < 0:
                self.front.drop(one.name)
            if one.told != (told := (about["pid"], self._generation)):
                one.told = told
                one.actor.set_models.remote(self._models, self._generation)
        elif not one.leaving:
            self.front.put(one.name, about["host"], about["port"])

    def _supervise(self) -> None:
        while not self._over.wait(LOOK):
            try:
                self._look()
            except Exception:  # the front goes on with the replicas that there are
                log.exception("the replicas could not be looked at")

    def _look(self) -> None:
        ray = self._ray
        with self._lock:
            running = list(self._running)
        for one in running:
            if one.asked is None:
                one.asked = one.actor.about.remote()
        asked = [one.asked for one in running]
        ready = set(ray.wait(asked, num_returns=len(asked), timeout=LOOK)[0]) if asked else set()
        now = time.monotonic()
        for one in running:
            if one.asked in ready:
                answer, one.asked = one.asked, None
                try:
                    self._hear(one, ray.get(answer))
                except ray.exceptions.RayError as error:
                    # Ray starts it anew; its clients come again.
                    if one.name in self.front.backends():
                        log.warning("replica %s is gone: %s", one.name, type(error).__name__)
                    self.front.drop(one.name)
            elif now - one.heard > SILENT:
                self.front.drop(one.name)
        self._fit(now)

    def _fit(self, now: float) -> None:
        """One replica more while clients stand in line, one less where one has none for long; within the range."""
        with self._lock:
            least, most = self._range
            staying = [one for one in self._running if not one.leaving]
            waiting = sum(one.about.get("stats", {}).get("waiting", 0) for one in staying)
            self._line_since = (self._line_since or now) if waiting else None
            pressed = self._line_since is not None and now - self._line_since > MORE
            if len(staying) < least or (pressed and len(staying) < most):
                self._line_since = None
                log.info("replica %s is started", self._more()[0].name)
            elif len(staying) > least:
                idle = [one for one in staying if now - one.used > FEWER]
                if len(staying) > most or idle:
                    one = (idle or staying)[-1]
                    one.leaving = True
                    self.front.drop(one.name)
            for one in [r for r in self._running if r.leaving and not r.serves()]:
                log.info("replica %s is stopped", one.name)
                self._running.remove(one)
                # With the last reference to it the process ends.
                one.actor.stop.remote()

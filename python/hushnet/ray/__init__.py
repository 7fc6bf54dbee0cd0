"""Serving from several machines, and work through data sets, over a Ray cluster (docs/cluster.md).

``pip install 'hushnet[ray]'``; nothing else of Hushnet needs Ray.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from hushnet.errors import HushnetError, InputError
from hushnet.model import Model
from hushnet.options import Inputs
from hushnet.ray.replica import Worker
from hushnet.ray.results import Results, told
from hushnet.ray.service import Service, needed

__all__ = ["Service", "map", "serve"]


def serve(
    models: Model | str | Path | Mapping[str, Model | str | Path],
    *,
    replicas: int | tuple[int, int] = 1,
    host: str = "127.0.0.1",
    port: int = 0,
    threads: int = 1,
    **options: Any,
) -> Service:
    """Serves models from several worker processes of a Ray cluster behind one port of this process.

    Clients connect to ``service.url`` as to any server. The block of a ``with`` statement ends the service.

    Args:
        models: a compiled network, the path of its ``.hush`` file, or several by the names that clients ask for.
        replicas: servers, or the least and the most of them: then there is one more while clients stand in line.
        host: address that the front listens on.
        port: the front's, 0 for any free one.
        threads: of each replica; as many processors of the cluster are taken for it.
        options: of :func:`hushnet.serve`, for each replica. Paths among them (``tls_cert``, ``tokens``, ``keys``)
            must be the same files on all machines.

    Raises:
        HushnetError: Ray is not installed, or a replica does not start.
        TransportError: the front's port cannot be used.
    """
    least, most = (replicas, replicas) if isinstance(replicas, int) else replicas
    if not 1 <= least <= most:
        raise InputError(f"replicas={replicas}: give a number from 1 on, or the least and the most of them.")
    for name in ("host", "port", "record", "admin"):
        if name in options:
            raise InputError(f"{name}: replicas have no {name} of their own. Leave it out.")
    return Service(models, (least, most), (host, port), {"threads": threads, **options})


def map(
    url: str,
    inputs: Inputs,
    folder: str | Path,
    *,
    size: int = 64,
    workers: int = 2,
    patience: float = 120.0,
    progress: Callable[[int, int], None] | None = None,
    **options: Any,
) -> dict[str, np.ndarray]:
    """Answers for a data set from a server, with clients in several worker processes of a Ray cluster.

    The cluster is the client's: inputs and answers are in the clear on it. Each worker encrypts its batches itself.
    Answers are kept in ``folder`` batch by batch. A call that was cut off goes on where it was, and what has its
    answer is not asked again. Rows that left the range that the plan was made for are NaN.

    Args:
        url: of the server, as for :func:`hushnet.connect`.
        inputs: an array ``[rows, ...]``, or arrays by name.
        folder: of the answers; one for each data set. They are in the clear.
        size: rows of a batch.
        workers: processes at once.
        patience: seconds for which a batch is tried again when its connection fails or the server is full.
        progress: called with the number of batches that have their answer, and of all.
        options: of :func:`hushnet.connect`, for each worker.

    Raises:
        HushnetError: Ray is not installed, or a batch got no answer in time.
        InputError: the folder holds answers of another data set.
    """
    if size < 1 or workers < 1:
        raise InputError(f"size={size}, workers={workers}: both are 1 or more.")
    arrays = told(inputs)
    # Where tokens are files, their paths are the same here and there; the address alone says which server it is.
    results = Results(Path(folder), arrays, size, url)
    try:
        waiting = results.missing()
        if progress:
            progress(results.batches - len(waiting), results.batches)
        if waiting:
            _work(results, waiting, arrays, _pool(url, options, patience, min(workers, len(waiting))), progress)
        return results.get()
    finally:
        results.close()


def _pool(url: str, options: Mapping[str, Any], patience: float, count: int) -> list[Any]:
    actor = needed().remote(Worker).options(num_cpus=1, max_restarts=-1, max_task_retries=-1)
    return [actor.remote(url, dict(options), patience) for _ in range(count)]


def _work(
    results: Results,
    waiting: list[int],
    arrays: Mapping[str, np.ndarray],
    workers: list[Any],
    progress: Callable[[int, int], None] | None,
) -> None:
    """Gives each worker a batch at a time; Ray starts a worker anew that died, and gives it its batch again."""
    ray = needed()
    free, todo = list(workers), list(reversed(waiting))
    at: dict[Any, tuple[int, Any]] = {}
    left = len(waiting)
    try:
        while todo or at:
            while free and todo:
                number, worker = todo.pop(), free.pop()
                batch = {name: value[results.slice(number)] for name, value in arrays.items()}
                at[worker.infer.remote(batch)] = (number, worker)
            done, _ = ray.wait(list(at), num_returns=1)
            for answer in done:
                number, worker = at.pop(answer)
                try:
                    results.put(number, ray.get(answer))
                except ray.exceptions.RayTaskError as error:
                    raise HushnetError(f"Batch {number} has no answer: {error.cause or error}") from None
                free.append(worker)
                left -= 1
                if progress:
                    progress(results.batches - left, results.batches)
    finally:
        for worker in workers:
            ray.kill(worker)

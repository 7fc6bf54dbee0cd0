"""One thread of NumPy's BLAS while many small products are computed.

A plan takes thousands of products of a millisecond or less, with other work between them. Threads of OpenBLAS spin
while they wait for the next one: they take a core's time, and slow down what runs there. Sums that several threads
make are rounded otherwise, so that a plan would depend on their number.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

_held = threading.Lock()


@cache
def _controller() -> Any:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController().select(user_api="blas")


@contextmanager
def one_thread() -> Iterator[None]:
    """Keeps BLAS to one thread inside; a decorator too.

    The number is the process's: who is first inside sets it, and sets it back. Who comes while that one is inside
    changes nothing, and may have more threads once it has left.
    """
    if not _held.acquire(blocking=False):
        yield
        return
    try:
        with _controller().limit(limits=1, user_api="blas"):
            yield
    finally:
        _held.release()

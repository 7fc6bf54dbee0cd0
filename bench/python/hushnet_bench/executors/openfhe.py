"""OpenFHE as an executor: the same circuit, rescaled by hand (FIXEDMANUAL) or by the library (FLEXIBLEAUTO)."""

from __future__ import annotations

from dataclasses import replace

from hushnet_bench.executors.executor import Executor, Parameters

MODES = ("FIXEDMANUAL", "FLEXIBLEAUTO")


def executor(parameters: Parameters | None = None, *, mode: str = "FIXEDMANUAL", core: int | None = None) -> Executor:
    """A worker with ``openfhe``; PeerMissing where it is not installed."""
    if mode not in MODES:
        raise ValueError(f"mode is {mode!r}; choose one of {', '.join(MODES)}")
    return Executor("openfhe", replace(parameters or Parameters(), mode=mode), core=core)

"""Microsoft SEAL as an executor.

The channel-wise circuit of the SEAL/OpenFHE comparison (``programs/circuit.py``), exact scales.
"""

from __future__ import annotations

from hushnet_bench.executors.executor import Executor, Parameters


def executor(parameters: Parameters | None = None, *, core: int | None = None) -> Executor:
    """A worker with ``seal-python``; PeerMissing where it is not installed."""
    return Executor("seal", parameters, core=core)

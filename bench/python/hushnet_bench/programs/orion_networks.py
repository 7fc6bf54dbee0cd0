"""Orion's LoLA and LeNet on one encrypted image, in an environment of its own (``make peers-orion``); nothing of ours.

``python orion_networks.py FOLDER RUNS CASE..``: parameters and images are ``FOLDER/CASE.npz``; a JSON line for every
case. Parameters of the scheme are those that Orion's own examples have for these networks, in the ring of real slots.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import resource
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

SCHEMES: dict[str, dict[str, Any]] = {
    "lola": {"LogN": 13, "LogQ": [29, 26, 26, 26, 26, 26], "LogP": [29, 29], "LogScale": 26, "H": 8192},
    "lenet": {"LogN": 14, "LogQ": [45, 35, 35, 35, 35, 35, 35, 35], "LogP": [45, 45], "LogScale": 35},
}
# Orion's batch norms have torch's names
NORM = {"scale": "weight", "shift": "bias", "mean": "running_mean", "variance": "running_var"}


def network(case: str, arrays: dict[str, np.ndarray]) -> Any:
    """Orion's own network with the given parameters."""
    import orion.models
    import torch

    net = {"lola": orion.models.LoLA, "lenet": orion.models.LeNet}[case]()
    state = net.state_dict()
    for key in state:
        layer, _, what = key.rpartition(".")
        if what == "num_batches_tracked":
            continue
        names = [f"{layer}.{what}", *(f"{layer}.{ours}" for ours, theirs in NORM.items() if theirs == what)]
        found = next(arrays[name] for name in names if name in arrays)
        state[key] = torch.from_numpy(found.astype(np.float32)).reshape(state[key].shape)
    net.load_state_dict(state)
    net.eval()
    return net


def row(folder: Path, case: str, runs: int) -> dict[str, Any]:
    """One case: seconds of an image from encoding to decoding, and of the network alone."""
    import orion
    import torch

    arrays = dict(np.load(folder / f"{case}.npz"))
    images = torch.from_numpy(arrays.pop("images"))
    net = network(case, arrays)
    begun = time.perf_counter()
    config = {
        "ckks_params": {**SCHEMES[case], "RingType": "ConjugateInvariant"},
        "orion": {"margin": 2, "embedding_method": "hybrid", "backend": "lattigo", "debug": False, "io_mode": "none"},
    }
    scheme = orion.init_scheme(config)
    # The images that it is fitted to are those that a ciphertext holds: one. Squares need no ranges.
    orion.fit(net, images[:1])
    level = orion.compile(net)
    setup = time.perf_counter() - begun
    spent: list[tuple[float, float, float]] = []
    off = largest = 0.0
    for index in range(runs + 1):
        image = images[index % len(images) :][:1]
        net.eval()
        with torch.no_grad():
            want = net(image).numpy().reshape(-1)
        net.he()
        wall, processor = time.perf_counter(), time.process_time()
        sent = orion.encrypt(orion.encode(image, level))
        before = time.perf_counter()
        answer = net(sent)
        alone = time.perf_counter() - before
        got = np.asarray(answer.decrypt().decode(), dtype=np.float64).reshape(-1)[: want.size]
        spent.append((time.perf_counter() - wall, time.process_time() - processor, alone))
        off, largest = max(off, float(np.abs(got - want).max())), max(largest, float(np.abs(want).max()))
    # the first run fills caches
    wall_runs, processor_runs, network_runs = (list(t) for t in zip(*spent[1:]))
    del scheme
    return {
        "case": case,
        "peer": f"Orion {importlib.metadata.version('orion-fhe')} (Lattigo)",
        "seconds": statistics.median(wall_runs),
        "runs": wall_runs,
        "processor_seconds": statistics.median(processor_runs),
        "network_seconds": statistics.median(network_runs),
        "setup_seconds": setup,
        "max_error": off,
        "largest_output": largest,
        "peak_memory_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


def main() -> None:
    folder, runs, *cases = sys.argv[1:]
    # what Orion says of its work goes where nobody takes it for a row
    told, said = os.dup(1), os.dup(2)
    os.dup2(said, 1)
    import torch

    torch.set_num_threads(1)
    for case in cases:
        found: dict[str, Any]
        try:
            found = row(Path(folder), case, int(runs))
        except Exception as error:
            found = {"case": case, "error": f"{type(error).__name__}: {error}"[:300]}
        with contextlib.suppress(BrokenPipeError):
            os.write(told, (json.dumps(found) + "\n").encode())


if __name__ == "__main__":
    main()

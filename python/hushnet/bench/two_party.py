"""Whole networks with both sides private: trust two-party, one image, checked against the planned fixed-point run."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

import hushnet
from hushnet import data, zoo
from hushnet.bench.registry import Benchmark
from hushnet.reference import two_party as reference

# name -> (zoo name, input shape, options for --quick, published or measured rivals)
NETWORKS: dict[str, tuple[str, tuple[int, ...], dict[str, int], str]] = {
    "mlp": ("mlp-784-128-128-10", (1, 28, 28), {}, "SPU-Cheetah on such a machine: 0.50 s, 1.45 MB"),
    "cifar10-cnn": ("cifar10-cnn", (3, 32, 32), {}, "-"),
    "plain20": ("plain20-f3-d20-w1", (3, 32, 32), {}, "rotation-free CNN: 7.5 s server, 7.9 s client, 24.7 MB"),
    "resnet18": ("resnet18", (3, 32, 32), {}, "GALA: 13 s"),
    "squeezenet": ("squeezenet", (3, 227, 227), {"size": 64}, "OpenCheetah on such a machine: 53 s, 260 MB"),
    "resnet50": ("resnet50-224", (3, 224, 224), {"size": 64}, "rotation-free CNN: 292 s server, 295 s client, 641 MB; Cheetah: 1258 s, 10.97 GB"),
}


def rows(network: str, *, quick: bool, threads: int, progress: Any, batch: int = 1) -> list[dict[str, Any]]:
    """One row: seconds of a private inference after the session's set-up, bytes, rounds, and the check of the result."""
    name, shape, small, published = NETWORKS[network]
    options = small if quick else {}
    if options:
        shape = (shape[0], options["size"], options["size"])
    onnx_model = zoo.build(name, **options)
    calibration = data.synthetic(shape, 16, seed=1)
    x = data.synthetic(shape, batch, seed=2).astype(np.float32)
    model = hushnet.compile(onnx_model, trust="two-party", calibration=calibration, weight_bits=10, name=network)
    results = [hushnet.run(model, x, threads=threads, progress=progress) for _ in range(1 if quick else 3)]
    result = sorted(results, key=lambda r: r.trace["seconds"])[len(results) // 2]
    got = next(iter(result.outputs.values()))
    planned = next(iter(reference.run(model.plan, {model.input_names[0]: x}).values()))
    reach = _reach(model)
    trace = result.trace
    return [
        {
            "case": f"{network} {'x'.join(map(str, shape))}, {batch} image(s)",
            "method": "hushnet two-party, both parties in one process, a thread pool each",
            "seconds": trace["seconds"],
            "setup_seconds": trace["setup_seconds"],
            "bytes_up": trace["bytes_up"],
            "bytes_down": trace["bytes_down"],
            "megabytes": (trace["bytes_up"] + trace["bytes_down"]) / 1e6,
            "rounds": trace["rounds"],
            "peak_memory_bytes": trace["peak_memory_bytes"],
            "ring_bits": trace["ring_bits"],
            "max_error": float(np.abs(got - planned).max()),
            "predicted_error": reach,
            "within_predicted": bool(np.abs(got - planned).max() <= reach),
            "agreement": float((got.reshape(batch, -1).argmax(1) == planned.reshape(batch, -1).argmax(1)).mean()),
            "predicted_seconds": model.plan.predicted["seconds"],
            "published": published,
        }
    ]


def _reach(model: hushnet.Model) -> float:
    """How far the one-unit roundings of masking and truncation may move an output from the planned run, at most."""
    revealed = next(s for s in model.plan.stages if s["kind"] == "reveal")
    opened = model.plan.tensors[revealed["out"]]
    return float(np.max(reference.unit_reach(model.plan)[opened["name"]])) * opened.get("scale", 1.0)


BENCHMARKS = [
    Benchmark(
        name=name,
        about=f"{name} with both sides private (two-party), one image",
        source=published,
        run=partial(rows, name),
    )
    for name, (_, _, _, published) in NETWORKS.items()
]

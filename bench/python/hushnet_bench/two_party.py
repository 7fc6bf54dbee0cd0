"""Whole networks with both sides private.

Trust two-party, one image, server and client in processes of their own, a core each.

The result is checked against the planned fixed-point run, and both parties' bytes, rounds and memory stand beside what
was predicted.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any

import hushnet
import numpy as np
from hushnet import data, zoo
from hushnet.reference import two_party as reference

from hushnet_bench.registry import Benchmark
from hushnet_bench.two_processes import Measured, measure

SAMPLES, QUICK_SAMPLES = 16, 4
WEIGHT_BITS = 11
# runs of one network, an image of its own each: at most so many, and none begins after so many seconds of them
RUNS, SECONDS = 7, 20.0
# of runs that draw units for the stated error
DRAW_SECONDS, QUICK_DRAW_SECONDS = 20.0, 2.0


@dataclass(frozen=True)
class Network:
    """A network of the zoo.

    Attributes:
        quick: options for ``--quick``.
        stand_in: a network of the same layers, fewer of them, for ``--quick``; empty for the network itself.
        published: what others took, measured on such a machine or published.
    """

    name: str
    shape: tuple[int, ...]
    published: str
    quick: dict[str, int] = field(default_factory=dict)
    stand_in: str = ""


NETWORKS = {
    "mlp": Network("mlp-784-128-128-10", (1, 28, 28), "SPU-Cheetah on such a machine: 0.50 s, 1.45 MB"),
    "cifar10-cnn": Network("cifar10-cnn", (3, 32, 32), "-"),
    "plain20": Network("plain20-f3-d20-w1", (3, 32, 32), "rotation-free CNN: 7.5 s server, 7.9 s client, 24.7 MB"),
    "resnet18": Network("resnet18", (3, 32, 32), "GALA: 13 s"),
    "resnet152": Network(
        "resnet152", (3, 32, 32), "GALA: 87 s, GAZELLE: 659 s (LAN, N = 2048)", stand_in="resnet14-narrow"
    ),
    "squeezenet": Network("squeezenet", (3, 227, 227), "OpenCheetah on such a machine: 53 s, 260 MB", {"size": 64}),
    "resnet50": Network(
        "resnet50-224",
        (3, 224, 224),
        "rotation-free CNN: 292 s server, 295 s client, 641 MB; Cheetah: 1258 s, 10.97 GB",
        {"size": 64},
    ),
}


def rows(
    bench: str, *, quick: bool, threads: int, progress: Any, batch: int = 1, size: int | None = None
) -> list[dict[str, Any]]:
    """One row.

    Seconds of a private inference after the session's set-up, bytes, rounds, memory, and the check of the result.
    """
    network = NETWORKS[bench]
    options: dict[str, Any] = dict(network.quick) if quick and size is None else {}
    if size is not None:
        if not network.quick:
            raise hushnet.InputError(f"{bench} has one image size, {network.shape[1]}")
        options = {"size": size}
    shape = (network.shape[0], options["size"], options["size"]) if options else network.shape
    name = network.stand_in if quick and network.stand_in else network.name
    onnx_model = zoo.build(name, **options)
    calibration = data.synthetic(shape, QUICK_SAMPLES if quick else SAMPLES, seed=1)
    x = data.synthetic(shape, batch * (1 if quick else RUNS), seed=2).astype(np.float32)
    model = hushnet.compile(onnx_model, trust="two-party", calibration=calibration, weight_bits=WEIGHT_BITS, name=bench)
    seen = measure(model, x, batch=batch, threads=threads, seconds=SECONDS)
    outputs = next(iter(seen.outputs.values()))
    return [
        {
            "case": f"{bench if name == network.name else name} {'x'.join(map(str, shape))}, {batch} image(s)",
            "method": f"hushnet two-party, two processes, {threads} core(s) a party"
            + (" (the same ones)" if seen.shared else ""),
            **_measured(seen),
            **_predicted(model, batch),
            **_checked(model, onnx_model, x[: len(outputs)], outputs, QUICK_DRAW_SECONDS if quick else DRAW_SECONDS),
            "published": network.published,
        }
    ]


def _measured(seen: Measured) -> dict[str, Any]:
    trace, server = seen.median, seen.server
    runs = len(seen.client)
    return {
        "runs": runs,
        "seconds": trace["seconds"],
        "seconds_all": [t["seconds"] for t in seen.client],
        "client_busy_seconds": trace["seconds"] - trace["total"]["waiting"],
        "server_busy_seconds": (server["total"]["seconds"] - server["total"]["waiting"]) / runs,
        "client_cpu_seconds": min(t["cpu_seconds"] for t in seen.client),
        "server_cpu_seconds": server["cpu_seconds"] / runs,
        "server_start_seconds": server["start_seconds"],
        "setup_seconds": trace["setup_seconds"],
        "setup_bytes": trace["setup_bytes_up"] + trace["setup_bytes_down"],
        "bytes_up": trace["bytes_up"],
        "bytes_down": trace["bytes_down"],
        "megabytes": (trace["bytes_up"] + trace["bytes_down"]) / 1e6,
        "rounds": trace["rounds"],
        "client_peak_memory_bytes": max(t["peak_memory_bytes"] or 0 for t in seen.client),
        "server_peak_memory_bytes": server["peak_memory_bytes"],
        "ring_bits": trace["ring_bits"],
    }


def _predicted(model: hushnet.Model, batch: int) -> dict[str, Any]:
    names = (
        "seconds",
        "setup_seconds",
        "bytes_up",
        "bytes_down",
        "rounds",
        "client_peak_memory_bytes",
        "server_peak_memory_bytes",
    )
    return {f"predicted_{k}": model.plan.predicted[k] for k in names} if batch == 1 else {}


def checked(model: hushnet.Model, x: np.ndarray, got: np.ndarray, seconds: float = DRAW_SECONDS) -> dict[str, Any]:
    """A result against the planned fixed-point run; ``seconds`` of it may go into drawing units.

    Elements within the error that the planned units come to, and equal labels wherever the two largest planned values
    are further apart than that.

    Raises:
        HushnetError: they are not.
    """
    stated = reference.stated(model.plan, {model.input_names[0]: x}, seconds=seconds)
    label = lambda y: y.reshape(len(x), -1).argmax(1)  # noqa: E731
    equal, clear = label(got) == label(stated.planned), ~stated.ties()
    error = float(np.abs(got - stated.planned).max())
    if stated.beyond(got) > 1.0 or error > _reach(model):
        raise hushnet.HushnetError(
            f"{model.plan.name}: the result is {error:.3g} from the planned run, {stated.beyond(got):.2f} times the "
            "stated error"
        )
    if not equal[clear].all():
        raise hushnet.HushnetError(
            f"{model.plan.name}: the label of image {np.flatnonzero(clear & ~equal)[0]} is not the planned one, which "
            "is no near tie"
        )
    return {
        "images_checked": len(x),
        "max_error": error,
        "max_error_units": error / stated.scale,
        "stated_error_units": float(stated.error.max()) / stated.scale,
        "within_stated": True,
        "error_bound": _reach(model),
        "predicted_error": model.plan.predicted["max_error"],
        "agreement": float(equal.mean()),
        "near_ties": int((~clear).sum()),
    }


def _checked(model: hushnet.Model, onnx_model: Any, x: np.ndarray, got: np.ndarray, seconds: float) -> dict[str, Any]:
    """:func:`checked` and, where it is installed, ONNX Runtime."""
    row = checked(model, x, got, seconds)
    try:
        import onnxruntime
    except ImportError:
        return row
    label = lambda y: y.reshape(len(x), -1).argmax(1)  # noqa: E731
    session = onnxruntime.InferenceSession(onnx_model.SerializeToString(), providers=["CPUExecutionProvider"])
    exact = session.run(None, {session.get_inputs()[0].name: x})[0]
    return row | {
        "error_to_onnx": float(np.abs(got - exact).max()),
        "agreement_with_onnx": float((label(got) == label(exact)).mean()),
    }


def _reach(model: hushnet.Model) -> float:
    """How far the one-unit roundings of masking and truncation may move an output from the planned run, at most."""
    revealed = next(s for s in model.plan.stages if s["kind"] == "reveal")
    opened = model.plan.tensors[revealed["out"]]
    return float(np.max(reference.unit_reach(model.plan)[opened["name"]])) * opened.get("scale", 1.0)


BENCHMARKS = [
    Benchmark(
        name=name,
        about=f"{network.name} with both sides private (two-party), one image, two processes with a core each "
        "(--threads: cores a party)",
        source=network.published,
        run=partial(rows, name),
    )
    for name, network in NETWORKS.items()
]

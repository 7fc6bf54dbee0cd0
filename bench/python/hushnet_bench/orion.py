"""LoLA and LeNet on one encrypted image, ours beside Orion's: the same weights, one core, in the same run.

Both compute on real slots with squares in the place of activations. Orion has a process of its own (``make
peers-orion``), with the parameters of its own examples. Seconds are those of an image from encryption to decryption.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hushnet
import numpy as np
import onnx
from hushnet.data import synthetic
from hushnet.zoo import Net, Tensor
from onnx import numpy_helper

from hushnet_bench.peers import measure
from hushnet_bench.registry import Benchmark

BITS, CALIBRATION, SEEDS = 7, 64, (7, 8)
RUNS, MORE, TIMES = 5, 4, 4.0
# With bootstraps Orion takes more memory than it may here: its read-me says so.
UNMEASURED = (
    "ResNet-20 takes about 32 GB with Orion (its read-me); its paper (arXiv 2311.03470) has it 2.38 times faster than "
    "what was before it"
)


def lola(net: Net) -> Tensor:
    """A 2x2 convolution of stride 2, and layers of 100 and 10 outputs."""
    x = net.input(1, 28, 28, images=64)
    x = net.act("act1", net.batch_norm("bn1", net.conv("conv1", x, 5, 2, stride=2)), "square")
    x = net.act("act2", net.batch_norm("bn2", net.fc("fc1", x, 100)), "square")
    return net.fc("fc2", x, 10, last=True)


def lenet(net: Net) -> Tensor:
    """Two 5x5 convolutions of stride 2 with 32 and 64 maps, and layers of 512 and 10 outputs."""
    x = net.input(1, 28, 28, images=64)
    for number, maps in ((1, 32), (2, 64)):
        x = net.batch_norm(f"bn{number}", net.conv(f"conv{number}", x, maps, 5, stride=2, pad=2))
        x = net.act(f"act{number}", x, "square")
    x = net.act("act3", net.batch_norm("bn3", net.fc("fc1", x, 512)), "square")
    return net.fc("fc2", x, 10, last=True)


CASES: dict[str, Callable[[Net], Tensor]] = {"lola": lola, "lenet": lenet}


def rows(
    *, quick: bool, threads: int, progress: Any, cases: list[str] | None = None, peers: list[str] | None = None
) -> list[dict[str, Any]]:
    """A row a network; ``quick``: LoLA, ours alone."""
    wrong = [name for name in cases or [] if name not in CASES]
    if wrong:
        raise hushnet.InputError(f"no case {', '.join(wrong)}: choose one of {', '.join(CASES)}.")
    chosen = cases or (["lola"] if quick else [*CASES])
    runs = 1 if quick else RUNS
    beside = not quick and (peers is None or "orion" in peers)
    out: list[dict[str, Any]] = []
    for name in chosen:
        if progress:
            progress(f"orion: {name}", len(out), len(chosen))
        net = Net()
        model = net.finish(name, CASES[name](net))
        images = synthetic((1, 28, 28), runs, SEEDS[1])
        calibration = synthetic((1, 28, 28), CALIBRATION, SEEDS[0])
        row = {"case": name, "method": "hushnet non-interactive packed", **_ours(model, calibration, images, threads)}
        if beside:
            row["orion"] = _orion(name, model, images, runs)
            if "seconds" in row["orion"]:
                theirs = row["orion"]
                row["not_measured"] = UNMEASURED
                row["times_faster"] = theirs["seconds"] / row["seconds"]
                row["times_less_processor"] = theirs["processor_seconds"] / row["processor_seconds"]
                row["kept"] = {
                    "times": row["times_less_processor"] >= TIMES,
                    "error": row["max_error"] <= row["predicted_error"],
                    "labels": row["agreement"] == 1.0,
                }
        out.append(row)
    return out


def _ours(model: onnx.ModelProto, calibration: np.ndarray, images: np.ndarray, threads: int) -> dict[str, Any]:
    compiled = hushnet.compile(model, trust="non-interactive", batch=1, calibration=calibration, precision=BITS)
    # A session to get warm, as Orion's first run is not counted either, then one image and many: keys are made in every
    # session and are no part of an image's seconds, so processor seconds are those that more images take more.
    spent: list[float] = []
    for count in (1, 1, 1 + MORE * len(images)):
        given = np.resize(images, (count, *images.shape[1:]))
        begun = time.process_time()
        result = hushnet.run(compiled, given, threads=threads, transport="pipe")
        spent.append(time.process_time() - begun)
    truth = _reference(model, images)
    (y,) = result.outputs.values()
    got = y[: len(images)]
    off = np.abs(got - truth)
    predicted = compiled.plan.predicted
    return {
        "seconds": result.trace["seconds"] / len(given),
        "processor_seconds": (spent[2] - spent[1]) / (len(given) - 1),
        "setup_seconds": result.trace["setup_seconds"],
        "key_bytes": predicted["setup_bytes_up"],
        "levels": predicted["depth"],
        "max_error": float(off.max()),
        "predicted_error": predicted["max_error"],
        "largest_output": float(np.abs(truth).max()),
        "agreement": float((got.argmax(axis=1) == truth.argmax(axis=1)).mean()),
    }


def _orion(name: str, model: onnx.ModelProto, images: np.ndarray, runs: int) -> dict[str, Any]:
    arrays: dict[str, Any] = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    arrays["images"] = images
    with tempfile.TemporaryDirectory() as folder:
        np.savez(Path(folder) / f"{name}.npz", **arrays)
        found = measure("orion", "orion_networks.py", [folder, str(runs), name])
    return found.get(name) or found[""]


def _reference(model: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    import onnxruntime

    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    found: np.ndarray = session.run(None, {session.get_inputs()[0].name: x})[0]
    return found


BENCHMARK = Benchmark(
    name="orion",
    about="LoLA and LeNet on one encrypted image beside Orion (make peers-orion), the same weights",
    source="Ebel et al., ASPLOS 2025",
    run=rows,
)

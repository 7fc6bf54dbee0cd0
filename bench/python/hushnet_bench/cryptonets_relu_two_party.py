"""CryptoNets-ReLU in batches with both sides private: the client sees no pre-activation, which nGraph-HE2 shows it."""

from __future__ import annotations

import statistics
import time
from typing import Any

import hushnet
import numpy as np
from hushnet import data, zoo
from hushnet.reference import two_party as reference

from hushnet_bench.registry import Benchmark
from hushnet_bench.two_party import checked

PUBLISHED = 694.0  # images/s, one thread, pre-activations shown to the client


def rows(*, quick: bool, threads: int, progress: Any, batch: int = 4096) -> list[dict[str, Any]]:
    """One row: both parties on the cores of the run (one by default), the session's set-up apart.

    Held-out digits against the planned run.
    """
    images = 64 if quick else batch
    train_x, _, x, labels = data.digits()
    model = hushnet.compile(
        zoo.trained("cryptonets-relu"),
        trust="two-party",
        batch=min(images, 2048),
        calibration=train_x[:256],
        weight_bits=6,
        activation_bits=8,
        name="cryptonets-relu-two-party",
    )
    sent = np.resize(x, (images, *x.shape[1:])).astype(np.float32)
    runs = []
    for _ in range(1 if quick else 3):
        processor = time.process_time()
        result = hushnet.run(model, sent, threads=threads, progress=progress)
        runs.append((result.trace["seconds"], time.process_time() - processor))
    trace, got = result.trace, result.output
    known = min(images, len(x))
    check = checked(model, x[:known].astype(np.float32), got[:known])
    seconds = statistics.median(r[0] for r in runs)
    total = trace["bytes_up"] + trace["bytes_down"]
    given = next(s for s in trace["stages"] if s["kind"] == "linear")["bytes_up"]
    counted = trace["client"]["total"]
    planned = next(iter(reference.run(model.plan, {model.input_names[0]: x[:known]}).values()))
    return [
        {
            "case": f"{images} images, {trace['client']['groups']} groups",
            "method": "hushnet batch two-party, both parties on the same core(s)",
            "images": images,
            "seconds": seconds,
            "images_per_second": images / seconds,
            "processor_seconds": min(r[1] for r in runs),
            "images_per_processor_second": images / min(r[1] for r in runs),
            "setup_seconds": trace["setup_seconds"],
            "kilobytes_per_image": total / images / 1e3,
            "kilobytes_per_image_after_input": (total - given) / images / 1e3,
            "bytes_as_predicted": all(counted[k] == counted["predicted"][k] for k in ("bytes_up", "bytes_down")),
            "rounds": trace["rounds"],
            "ring_bits": trace["ring_bits"],
            "ot": trace["client"]["ot"],
            "methods": sorted({s["method"] for s in model.plan.stages if s["kind"] == "linear"}),
            "peak_memory_bytes": trace["peak_memory_bytes"],
            "accuracy": float((got[:known].argmax(1) == labels[:known]).mean()),
            "accuracy_planned": float((planned.argmax(1) == labels[:known]).mean()),
            **check,
            "predicted_seconds": model.plan.predicted["seconds"] * images / model.plan.predicted["batch"],
            "published": PUBLISHED,
        }
    ]


BENCHMARK = Benchmark(
    name="cryptonets-relu-two-party",
    about="CryptoNets-ReLU, batch, both sides private, both parties on one core",
    source="nGraph-HE2 reaches 694 images/s on one thread by showing the client every pre-activation",
    run=rows,
)

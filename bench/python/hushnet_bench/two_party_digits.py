"""Trained networks on held-out handwritten digits with both sides private.

Accuracy in floats, of the planned fixed-point run, and encrypted.

GALA's Table XIII loses at most 0.5 % by fixed point: ``loss_percent`` is what the encrypted run loses against floats.
"""

from __future__ import annotations

from typing import Any

import hushnet
import numpy as np
from hushnet import data, frontend, passes, zoo
from hushnet.reference import float as float_reference
from hushnet.reference import two_party as reference

from hushnet_bench.registry import Benchmark
from hushnet_bench.two_party import checked
from hushnet_bench.two_processes import measure

NETWORKS = ("cryptonets-relu", "mnist-cnn-relu")
SAMPLES = 256
MOST_LOSS = 0.005


def rows(*, quick: bool, threads: int, progress: Any, batch: int | None = None) -> list[dict[str, Any]]:
    """A row a network: images of one session, labels against those in the clear and against the true ones."""
    train_x, _, x, labels = data.digits()
    count = batch or (20 if quick else 360)
    x, labels = x[:count].astype(np.float32), labels[:count]
    found = []
    for name in NETWORKS:
        onnx_model = zoo.trained(name)
        model = hushnet.compile(onnx_model, trust="two-party", calibration=train_x[:SAMPLES], weight_bits=10, name=name)
        seen = measure(model, x, batch=len(x), threads=threads)
        outputs = next(iter(seen.outputs.values()))
        private = outputs.argmax(1)
        planned = next(iter(reference.run(model.plan, {model.input_names[0]: x}).values())).argmax(1)
        graph = passes.default(frontend.load(onnx_model))
        plain = float_reference.evaluate(graph, {graph.inputs[0]: x})[graph.outputs[0]].argmax(1)
        trace = seen.median
        found.append(
            {
                "case": f"{name}, {len(x)} held-out digits",
                "method": f"hushnet two-party, two processes, {threads} core(s) a party",
                "seconds": trace["seconds"],
                "images_per_second": len(x) / trace["seconds"],
                "kilobytes_per_image": (trace["bytes_up"] + trace["bytes_down"]) / len(x) / 1e3,
                "accuracy": (accuracy := float((private == labels).mean())),
                "accuracy_planned": float((planned == labels).mean()),
                "accuracy_in_the_clear": (clear := float((plain == labels).mean())),
                "loss_percent": 100 * (clear - accuracy),
                "within_half_percent": clear - accuracy <= MOST_LOSS,
                "same_label_as_in_the_clear": float((private == plain).mean()),
                "same_label_as_planned": float((private == planned).mean()),
                **checked(model, x, outputs),
            }
        )
    return found


BENCHMARK = Benchmark(
    name="two-party-digits",
    about="trained networks on held-out digits with both sides private: accuracy beside that in the clear",
    source="scikit-learn's digits; GALA, Table XIII: at most 0.5 % lost by fixed point",
    run=rows,
)

"""CryptoNets with squares, nobody but the server computing, at N = 8,192, both parties on the given cores.

8,192 images a block, one in every slot of the conjugate-invariant ring, and the published 4,096, for which half as many
complex slots do.
"""

from __future__ import annotations

from typing import Any

import hushnet
import numpy as np
from hushnet import data, zoo

from hushnet_bench.measure import measure
from hushnet_bench.registry import Benchmark

PUBLISHED = 4096 / 29.62  # images/s, one thread (Table 3)


BATCH, PUBLISHED_BATCH = 8192, 4096


def rows(*, quick: bool, threads: int, progress: Any, batch: int = BATCH) -> list[dict[str, Any]]:
    """The trained network on the held-out digits, repeated to fill the batch; then with single choices turned round."""
    train_x, _, test_x, test_y = data.digits()
    onnx_model = zoo.trained("cryptonets-square")
    reference = _float(onnx_model, test_x)

    def build(images: int, **options: Any) -> hushnet.Model:
        return hushnet.compile(
            onnx_model,
            trust="non-interactive",
            batch=images,
            calibration=train_x[:256],
            name="cryptonets-square",
            **options,
        )

    cases: list[tuple[str, dict[str, Any]]] = [("all on", {"ring_degree": 8192})]
    if not quick:
        cases += [
            (f"batches of {PUBLISHED_BATCH}", {"ring_degree": 8192, "images": PUBLISHED_BATCH}),
            ("cyclotomic ring, two blocks", {"ring_degree": 8192, "packing": "real"}),
            ("eager rescaling (after every layer)", {"lazy": False}),
            ("three bits more precision", {"precision": 10.0}),
            ("weights hidden (flooded, N by the planner)", {"hide_weights": True}),
        ]
    out: list[dict[str, Any]] = []
    for number, (case, options) in enumerate(cases):
        if progress:
            progress("cryptonets-square", number, len(cases))
        count = options.pop("images", batch)
        try:
            model = build(count, **options)
        except hushnet.PlanError as refused:
            out.append({"case": case, "method": "hushnet non-interactive batch", "note": f"refused: {refused}"})
            continue
        images = np.resize(test_x, (count, *test_x.shape[1:])).astype(np.float32)
        row = measure(model, images, threads=threads, runs=1 if quick else 5 if number < 2 else 2, reference=reference)
        out.append(
            {"case": case, "method": "hushnet non-interactive batch"}
            | row
            | _parameters(model)
            | {"published": PUBLISHED}
        )
        out[-1]["ratio"] = row["images_per_second"] / PUBLISHED
        out[-1]["note"] = f"{len(test_y)} held-out digits, repeated to {len(images)} images"
    for row in out:
        if "images_per_second" in row:
            row["against_all_on"] = row["images_per_second"] / out[0]["images_per_second"]
    return out


def _parameters(model: hushnet.Model) -> dict[str, Any]:
    p = model.explain()["parameters"]
    return {
        "ring_degree": p["ring_degree"],
        "packing": p["packing"],
        "prime_bits": p["data_prime_bits"],
        "modulus_bits": p["modulus_bits"],
        "flood_bits": p["flood_bits"],
    }


def _float(onnx_model: Any, x: np.ndarray) -> np.ndarray:
    import onnxruntime

    session = onnxruntime.InferenceSession(onnx_model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {session.get_inputs()[0].name: x.astype(np.float32)})[0]


BENCHMARK = Benchmark(
    name="cryptonets-square",
    about="CryptoNets with squares, non-interactive, batches of 8192 and of 4096: trained network on the held-out "
    "digits, repeated to fill the batch",
    source="nGraph-HE2, Table 3: 29.62 s a batch of 4,096 on one thread (138 images/s), 2.05 s on 24 (1,998)",
    run=rows,
)

"""CryptoNets-ReLU in batches, client-aided.

nGraph-HE2, Tables 6 and 7, and our optimisations switched off one by one.
"""

from __future__ import annotations

from typing import Any

import hushnet
import numpy as np
from hushnet import data, zoo

from hushnet_bench.measure import left_out, measure, measure_apart, usable
from hushnet_bench.registry import Benchmark

PUBLISHED = 694.0  # images/s, one thread, complex packing, batch 2048, localhost (Table 6)


def rows(*, quick: bool, threads: int, progress: Any, batch: int = 16384) -> list[dict[str, Any]]:
    """Ours, then with one optimisation switched off in each row."""
    batch = 2048 if quick else batch
    runs = 1 if quick else 5
    train_x, _, test_x, _ = data.digits()
    x = np.resize(test_x, (batch, *test_x.shape[1:])).astype(np.float32)
    onnx_model = zoo.trained("cryptonets-relu")

    def build(**options: Any) -> hushnet.Model:
        # the bits of the published row, whatever precision they give
        return hushnet.compile(
            onnx_model, batch=batch, calibration=train_x[:256], weight_bits=8, name="cryptonets-relu", **options
        )

    full = build()
    reference = _float(onnx_model, x[: len(test_x)])
    cases = [
        ("all on", full, {}, batch),
        ("masks fresh in every block", build(mask="fresh"), {}, batch),
        ("uploads without seeds (second polynomial sent)", build(mask="sent"), {}, batch),
        ("results not cut (no modulus switch)", build(mask="fresh", drop=False), {}, batch),
        ("N = 4096", build(ring_degree=4096), {}, batch),
        ("half-full blocks (real slot packing's capacity)", full, {"half": True}, batch),
    ]
    simd = [] if quick else ["ifma", "avx2", "portable"]
    out = []
    for number, (case, model, how, images) in enumerate(cases):
        if progress:
            progress("cryptonets-relu", number, len(cases) + len(simd))
        if how.get("half"):
            row = measure(model, x[:1024], threads=threads, runs=runs, reference=reference[:1024])
        else:
            row = measure(model, x[:images], threads=threads, runs=runs, reference=reference)
        out.append({"case": case, "method": "hushnet batch"} | row)
    for number, path in enumerate(simd):
        if progress:
            progress("cryptonets-relu", len(cases) + number, len(cases) + len(simd))
        row = (
            measure_apart(full, x[:4096], threads=threads, runs=3, simd=path)
            if usable(path)
            else {"note": left_out(path)}
        )
        out.append({"case": f"kernels: {path}", "method": "hushnet batch"} | row)
    for row in (r for r in out if "images_per_second" in r):
        row |= {"published": PUBLISHED, "ratio": row["images_per_second"] / PUBLISHED}
        row["against_all_on"] = row["images_per_second"] / out[0]["images_per_second"]
    return out


def _float(onnx_model: Any, x: np.ndarray) -> np.ndarray:
    import onnxruntime

    session = onnxruntime.InferenceSession(onnx_model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {session.get_inputs()[0].name: x.astype(np.float32)})[0]


BENCHMARK = Benchmark(
    name="cryptonets-relu",
    about="CryptoNets-ReLU, batch, client-aided; optimisations switched off one by one",
    source="nGraph-HE2, Tables 6 and 7: 694 images/s on one thread, 2,959 on 24 over LAN",
    run=rows,
)

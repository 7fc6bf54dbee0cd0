"""What a plan's answers are worth: the planned run beside the original network, on the calibration data.

Errors are against the network as it was given, in binary64: roundings count, and polynomials in the place of
activations. A row is one image.

- ``expected_error``: mean over rows of a row's largest error.
- ``max_error``: what 999 rows of 1000 that keep to their ranges stay below (:func:`likely`).

An output that is a softmax or a sigmoid has small errors wherever the calibration rows are sure of themselves, and
large ones where another row is not. Such an output's error therefore counts as if every row stood where the function
is steepest (:func:`steepest`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..graph import Graph, Op
from ..plan import PlanError

Array = np.ndarray

# max_error: so many times the largest error of n rows, FACTOR + MORE / sqrt(n), and at least so many times their
# root mean square
FACTOR, MORE, DEVIATIONS = 1.5, 3.0, 4.0
# probabilities below this are as good as none
NO_CHANCE = 1e-3
# accuracy and agreement may fall by this much before anyone is warned
ACCURACY_FALL, AGREEMENT_FALL = 0.005, 0.02
SQUASHED = ("softmax", "sigmoid")


@dataclass(frozen=True)
class Quality:
    """Of one output.

    Attributes:
        expected, likely, largest: errors: the mean over rows, what 999 rows of 1000 keep, and the largest seen.
        span: largest absolute value of the original network's output.
        rows: calibration rows.
        agreement: share of rows whose label is that of the original network.
        accuracy: shares of right labels of the original network and of the plan, where labels were given.
    """

    expected: float
    likely: float
    largest: float
    span: float
    rows: int
    agreement: float
    accuracy: tuple[float, float] | None = None

    @property
    def bits(self) -> float:
        """``likely`` is 2^-bits of the output's range."""
        return math.log2(self.span / self.likely) if self.likely > 0 and self.span > 0 else 64.0

    def errors(self, worst: float | None) -> dict[str, float]:
        """The fields of ``output_errors`` that calibration data gives."""
        most = math.inf if worst is None else worst
        return {
            "expected_error": min(self.expected, most),
            "max_error": min(self.likely, most),
            "seen_error": self.largest,
            "output_range": self.span,
        }


def squashed(graph: Graph) -> dict[str, str]:
    """Which outputs are a softmax or a sigmoid, directly or behind moves."""
    producers = {n.output: n for n in graph.nodes}
    found = {}
    for name in graph.outputs:
        node = producers.get(name)
        while isinstance(node, Op) and node.op in {"reshape", "transpose"}:
            node = producers.get(node.inputs[0])
        if isinstance(node, Op) and node.op in SQUASHED:
            found[name] = node.op
    return found


def measure(planned: Array, exact: Array, labels: Any = None, squash: str | None = None) -> Quality:
    """The quality of an output: planned and original values ``[rows, ...]``; ``squash`` as :func:`squashed` has it.

    Raises:
        PlanError: labels for other rows, or that are no whole numbers.
    """
    rows = len(exact)
    exact, planned = exact.reshape(rows, -1), planned.reshape(rows, -1)
    off = np.abs(planned - exact).max(axis=1, initial=0.0)
    far = off if squash is None else np.maximum(off, steepest(planned, exact, squash))
    mine, wanted = label_of(planned, exact), label_of(exact, exact)
    accuracy = None
    if labels is not None:
        right = check_labels(labels, rows)
        accuracy = (float((wanted == right).mean()), float((mine == right).mean()))
    span = float(np.abs(exact).max(initial=0.0))
    agreement = float((mine == wanted).mean())
    return Quality(float(off.mean()), likely(far), float(off.max(initial=0.0)), span, rows, agreement, accuracy)


def likely(off: Array) -> float:
    """What 999 of 1000 rows stay below, from the largest errors of some rows.

    Errors are sums of many roundings: near normal in a row, of sizes that differ between rows. The largest of few rows
    says less than that of many.
    """
    largest = float(off.max(initial=0.0))
    return max(
        (FACTOR + MORE / math.sqrt(max(len(off), 1))) * largest, DEVIATIONS * math.sqrt(float(np.square(off).mean()))
    )


def steepest(planned: Array, exact: Array, squash: str) -> Array:
    """The error of every row if its logits' errors came where the function is steepest.

    A logit's error e moves a probability by at most tanh(e / 4) in a sigmoid, and by tanh(e / 2) in a softmax when no
    logit is off by more than e.
    """
    least, most = NO_CHANCE, 1.0 - NO_CHANCE
    a, b = np.clip(planned, least, most), np.clip(exact, least, most)
    if squash == "sigmoid":
        moved = np.abs(np.log(a / (1 - a)) - np.log(b / (1 - b)))
        return np.tanh(moved.max(axis=1, initial=0.0) / 4)
    moved = np.log(a) - np.log(b)
    return np.tanh((moved.max(axis=1, initial=0.0) - moved.min(axis=1, initial=0.0)) / 4)


def label_of(values: Array, exact: Array) -> Array:
    """The label of every row: the index of its largest element.

    Of rows of one element: whether it is above one half where the original outputs are probabilities, else above zero.
    """
    flat = np.asarray(values).reshape(len(values), -1)
    if flat.shape[1] != 1:
        return flat.argmax(axis=1) if flat.shape[1] else np.zeros(len(flat), np.int64)
    probability = float(exact.min(initial=0.0)) >= 0 and float(exact.max(initial=0.0)) <= 1
    return (flat[:, 0] > (0.5 if probability else 0.0)).astype(np.int64)


def check_labels(labels: Any, rows: int) -> Array:
    """Labels as whole numbers, one a row.

    Raises:
        PlanError: not whole numbers, or not one a row.
    """
    found = np.asarray(labels)
    if found.size != rows or found.dtype.kind not in "iub":
        raise PlanError(
            f"labels have shape {found.shape} and dtype {found.dtype}; give one whole number for each of the {rows} "
            "rows"
        )
    return found.reshape(-1).astype(np.int64)


def said(found: Mapping[str, Quality]) -> dict[str, Any]:
    """What ``predicted`` says of agreement and accuracy: of the first output."""
    first = next(iter(found.values()))
    entry: dict[str, Any] = {"calibration_rows": first.rows, "agreement": first.agreement}
    if first.accuracy is not None:
        entry["accuracy"] = {"float": first.accuracy[0], "planned": first.accuracy[1]}
    return entry

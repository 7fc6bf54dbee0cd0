"""What a plan's answers are worth: the planned run beside the original network, on the calibration data.

Errors are against the network as it was given, in binary64: roundings count, and polynomials in the place of
activations. A row is one image.

- ``expected_error``: mean over rows of a row's largest error; noise that the planned run does not draw counts
  (:func:`largest_of`).
- ``max_error``: what 999 rows of 1000 that keep to their ranges stay below (:func:`likely`).

An output that is a softmax or a sigmoid has small errors wherever the calibration rows are sure of themselves, and
large ones where another row is not. Such an output's error therefore counts as if every row stood where the function
is steepest (:func:`steepest`).

A label has no error that grows: it is right or wrong. Few rows show few wrong ones, so the share of labels that stay is
expected from all rows: each has a distance to its next label, and errors are as likely to bridge it as their size says
(:func:`kept`). Outputs that are places themselves (:func:`places`) are compared as such.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np

from ..graph import Graph, Linear, Op
from ..plan import PlanError
from .rules import RULES

Array = np.ndarray
Several = tuple[tuple[int, ...], int | None]

# max_error: so many times the largest error of n rows, FACTOR + MORE / sqrt(n), and at least so many times their
# root mean square
FACTOR, MORE, DEVIATIONS = 1.5, 3.0, 4.0
# in the stead of MORE where errors grow with values (:func:`growing`); such powers of inputs are outputs then
GROWS, POWER = 14.0, 2.0
# where the largest errors, of a share of the rows, fall off more slowly than an exponential, max_error follows them
TOP, LEAST_TOP, HEAVY = 0.1, 5, 0.5
# probabilities below this are as good as none
NO_CHANCE = 1e-3
# accuracy and agreement may fall by this much before anyone is warned
ACCURACY_FALL, AGREEMENT_FALL = 0.005, 0.02
UNBOUNDED = (
    "The model divides, or takes a root or logarithm, of values that could be zero: no worst error follows from the "
    "ranges. The likely error is that of the calibration data."
)
SQUASHED = ("softmax", "sigmoid")
_MOVES = frozenset({"reshape", "transpose"})
# rows whose distances to their next labels are least, of which the size of errors is taken: these decide labels
NEAREST, LEAST_NEAREST = 0.5, 16
# of the rows that an error of 999 rows of 1000 may carry across a jump, the share that a usual one does: where these
# errors are four deviations, s / sqrt(2 pi) by 4 s
CROSSED = 0.1
# rows that tell how densely rows lie around the border between two labels, and the share of all that may tell it
FEW, NEAR = 8, 0.03
# where the i-th of n ordered draws stands: the quantile (i - BLOM) / (n + 1 - 2 BLOM)
BLOM = 0.375


@dataclass(frozen=True)
class Quality:
    """Of one output.

    Attributes:
        expected, likely, largest: errors: the mean over rows, what 999 rows of 1000 keep, and the largest seen.
        span: largest absolute value of the original network's output; of a softmax or sigmoid 1.
        rows: calibration rows.
        agreement: share of rows whose label is that of the original network; of places, share of equal ones.
        accuracy: shares of right labels of the original network and of the plan, where labels were given.
        expected_agreement: the share of other rows whose label is expected to stay (:func:`kept`).
        place: whether the output holds places: differences of these say nothing of how precise a plan is.
        positions: labels of a row, of which ``agreement`` counts each.
        column: what 999 rows of 1000 keep of each column, as a share of how far the column reaches from its centre; of
            the worst one of an output whose columns differ in size or lie far from zero, else 0.
        near, stay: of an output that jumps (:mod:`.jumps`), shares of the rows that stand near a jump, and that stay
            on their side; ``expected``, ``likely`` and ``largest`` are of rows that stay.
        step: how far a row is off that is carried across a jump, the largest of the calibration rows near one.
        told: whether the rows have labels at all, so that ``agreement`` says something: not the sign of a number that a
            regression gives, nor the largest of columns that stand in one order in every row.
    """

    expected: float
    likely: float
    largest: float
    span: float
    rows: int
    agreement: float
    accuracy: tuple[float, float] | None = None
    expected_agreement: float = 1.0
    place: bool = False
    positions: int = 1
    column: float = 0.0
    near: float = 0.0
    stay: float = 1.0
    step: float = 0.0
    told: bool = True

    @property
    def bits(self) -> float:
        """``likely`` is 2^-bits of the output's range."""
        return math.log2(self.span / self.likely) if self.likely > 0 and self.span > 0 else 64.0

    def errors(self, worst: float | None) -> dict[str, float]:
        """The fields of ``output_errors`` that calibration data gives."""
        most = math.inf if worst is None else worst
        if self.place:
            # any place may come in the stead of the right one; how often is what agreement says
            return {"expected_error": self.expected, "seen_error": self.largest} | (
                {} if worst is None else {"max_error": worst}
            )
        return {
            "expected_error": min(self.expected, most),
            "max_error": min(self.likely, most),
            "seen_error": self.largest,
            "output_range": self.span,
        } | self._more(most)

    def _more(self, most: float) -> dict[str, float]:
        """Of outputs whose columns differ in size, or that jump."""
        column = {"column_error": self.column} if self.column else {}
        jumps = {"near_jumps": self.near, "stay": self.stay, "jump_error": min(self.step, most)}
        return column | (jumps if self.near else {})


def squashed(graph: Graph) -> dict[str, str]:
    """Which outputs are a softmax or a sigmoid, directly or behind moves."""
    producers = {n.output: n for n in graph.nodes}
    found = {}
    for name in graph.outputs:
        node = producers.get(name)
        while isinstance(node, Op) and node.op in _MOVES:
            node = producers.get(node.inputs[0])
        if isinstance(node, Op) and node.op in SQUASHED:
            found[name] = node.op
    return found


def steep(graph: Graph) -> list[str]:
    """What the softmax and sigmoids of :func:`squashed` read: scores."""
    producers = {n.output: n for n in graph.nodes}
    found = []
    for name in squashed(graph):
        node = producers[name]
        while isinstance(node, Op) and node.op in _MOVES:
            node = producers[node.inputs[0]]
        found += node.inputs if isinstance(node, Op) else []
    return found


def sequences(graph: Graph) -> dict[str, Several]:
    """Outputs that have a label at each of several positions, with their shape and the axis of classes.

    A softmax at each of several positions (of a line, say) has one. A map of sigmoids (where text stands in a picture)
    has no such axis: each of its elements is on one side of one half.
    """
    found: dict[str, Several] = {}
    for name, function in squashed(graph).items():
        shape = tuple(graph.shapes[name])
        # sigmoids of transposed convolutions stand in front of moves; which axis a softmax then had is not followed
        if function == "sigmoid" and sum(size > 1 for size in shape) > 1:
            found[name] = (shape, None)
    for node in graph.nodes:
        if isinstance(node, Op) and node.op == "softmax" and node.output in graph.outputs:
            shape = tuple(graph.shapes[node.output])
            axis = int(node.attrs["axis"]) % max(len(shape), 1)
            if math.prod(shape) > shape[axis]:
                found[node.output] = (shape, axis)
    return found


def places(graph: Graph) -> frozenset[str]:
    """The outputs that are places of largest or least elements (ArgMax, indices of TopK), directly or behind moves."""
    producers = {n.output: n for n in graph.nodes}
    found = set()
    for name in graph.outputs:
        node = producers.get(name)
        while isinstance(node, Op) and node.op in _MOVES:
            node = producers.get(node.inputs[0])
        if isinstance(node, Op) and node.op == "top_k" and node.attrs["what"] != "values":
            found.add(name)
    return frozenset(found)


def growing(graph: Graph) -> frozenset[str]:
    """The outputs whose errors grow with values: products of values, or exponentials of them.

    A row's error is then as large as its values are, and few rows show few large values. So it is where products stand
    in front of layers, too: the roundings of weights are multiplied by them. What normalises (a quotient by a norm) or
    is bounded (a sigmoid, a softmax) ends the growth.
    """
    power = dict.fromkeys(graph.inputs, 1.0)
    for node in graph.nodes:
        if isinstance(node, Linear):
            power[node.output] = max(power[node.input], 0.0)
        else:
            power[node.output] = _power(node, [power[name] for name in node.inputs])
    return frozenset(name for name in graph.outputs if power[name] >= POWER)


def _power(node: Op, given: list[float]) -> float:
    """Which power of inputs an operator's result grows as, from those of its operands."""
    if math.isfinite(float(np.max(RULES[node.op].width(node.attrs)))) or node.attrs.get("mul") == 0:
        # bounded, or a constant
        return 0.0
    if node.op in ("mul", "matmul"):
        return sum(given)
    if node.op == "div":
        return given[0] - given[1]
    if node.op in ("square", "reduce_prod"):
        return 2.0 * given[0]
    if node.op == "exp":
        return POWER * max(given[0], 1.0)
    return {"sqrt": given[0] / 2.0, "log": 0.0}.get(node.op, max(given))


def measure(
    planned: Array,
    exact: Array,
    labels: Any = None,
    squash: str | None = None,
    *,
    grows: bool = False,
    place: bool = False,
    noise: float = 0.0,
    several: Several | None = None,
    columns: Array | None = None,
    jumping: tuple[Array, Array, float] | None = None,
    redrawn: Array | None = None,
) -> Quality:
    """The quality of an output: planned and original values ``[rows, ...]``.

    Args:
        labels: right answers.
        grows: whether the output is one of :func:`growing`.
        squash: as :func:`squashed` has it.
        several: as :func:`sequences` has it: every position has a label, and a softmax or sigmoid of its own.
        place: whether the output is one of :func:`places`.
        noise: deviation of errors that the planned values do not have.
        columns: centres of columns that differ in size or lie far from zero (:mod:`.targets`): each counts against how
            far it reaches from there.
        jumping: of an output that jumps, whether each row is near a jump, whether it stays on its side, and how far off
            a row is that does not.
        redrawn: largest errors of the rows in runs that draw their units anew: ``[runs, rows]``.

    Raises:
        PlanError: labels for other rows, or that are no whole numbers.
    """
    rows = len(exact)
    exact, planned = exact.reshape(rows, -1), planned.reshape(rows, -1)
    parts = (planned, exact)
    near, stay = (0.0, 1.0) if jumping is None or not rows else (float(v.mean()) for v in jumping[:2])
    calm = np.ones(rows, bool) if place or jumping is None or not jumping[1].any() else jumping[1]
    off = np.abs(planned - exact).max(axis=1, initial=0.0)[calm]
    if several is not None and exact.size and labels is None:
        parts = (_positions(planned, several), _positions(exact, several))
    first, second = (v.reshape(rows, -1, v.shape[1])[calm].reshape(-1, v.shape[1]) if v.size else v for v in parts)
    stated = likely(off, grows=grows) if squash is None else unsure(off, first, second, squash)
    if redrawn is not None and not place:
        still = calm.copy()
        if jumping is not None:
            still[: len(jumping[0])] &= ~jumping[0]
        stated = max(stated, within(redrawn[:, still]))
    mine, wanted = (np.rint(v[:, 0]).astype(np.int64) if place and v.shape[1] else label_of(v, exact) for v in parts)
    accuracy = None
    if labels is not None:
        right = check_labels(labels, rows, None if place else max(exact.shape[1], 2))
        accuracy = (float((wanted == right).mean()), float((mine == right).mean()))
    # a detector may be sure of all calibration rows: probabilities reach 1 all the same
    span = float(np.abs(exact).max(initial=0.0)) if squash is None else 1.0
    if place:
        # every place is an answer
        agreement = float((np.rint(planned) == np.rint(exact)).mean()) if exact.size else 1.0
        expected = agreement - CROSSED * near
    else:
        agreement, expected = float((mine == wanted).mean()), kept(*parts, noise)
    # of a single number that no sigmoid makes, and of columns that always stand in one order, nobody has named a label
    told = place or squash is not None or several is not None or accuracy is not None
    told = told or (exact.shape[1] > 1 and (agreement < 1 or len(np.unique(wanted)) > 1))
    usual = np.hypot(off, 0.0 if place else noise * largest_of(exact.shape[1]))
    return Quality(
        float(usual.mean()),
        stated,
        float(off.max(initial=0.0)),
        span,
        rows,
        agreement,
        accuracy,
        min(max(expected, 0.0), 1.0),
        place,
        len(wanted) // rows if rows else 1,
        0.0 if columns is None else _worst_column(planned[calm], exact[calm], columns),
        near,
        stay,
        0.0 if jumping is None else jumping[2],
        told,
    )


def _positions(values: Array, several: Several) -> Array:
    """Labels of all positions one after the other: ``[rows * positions, classes]``."""
    shape, axis = several
    if axis is None:
        return values.reshape(-1, 1)
    return np.moveaxis(values.reshape(-1, *shape), axis + 1, -1).reshape(-1, shape[axis])


def _worst_column(planned: Array, exact: Array, centres: Array) -> float:
    """The largest share that a column's errors may be of how far it reaches from its centre."""
    tops, off = np.abs(exact - centres).max(axis=0, initial=0.0), np.abs(planned - exact)
    return max((likely(off[:, k]) / float(top) for k, top in enumerate(tops) if top > 0), default=0.0)


def largest_of(count: int) -> float:
    """The largest size of ``count`` independent standard normal values, in a usual draw: its median, nearly.

    The order statistic's place is G. Blom's, Statistical Estimates and Transformed Beta-Variables (1958).
    """
    share = (count - BLOM) / (count + 1 - 2 * BLOM)
    return NormalDist().inv_cdf((1 + share) / 2) if count else 0.0


def kept(planned: Array, exact: Array, noise: float = 0.0) -> float:
    """The share of rows like these ``[rows, elements]`` whose label is expected to stay.

    A row's label changes when the error of its distance to the next label is larger than that distance. These errors
    are taken as Gaussian, with the deviation s that the rows nearest to their next labels show. Where s is so small
    that hardly a row is as near, as many rows as :data:`FEW` tell how densely rows lie there: with a density f,
    f s / sqrt(2 pi) of all labels change.

    Args:
        noise: deviation of further errors of every element.
    """
    if exact.shape[1] == 0:
        return 1.0
    if exact.shape[1] == 1:
        border = 0.5 if _probabilities(exact) else 0.0
        distance, off, elements = np.abs(exact[:, 0] - border), planned[:, 0] - exact[:, 0], 1
    else:
        order = np.argpartition(-exact, 1, axis=1)[:, :2]
        first, second = np.take_along_axis(exact, order, axis=1).T
        distance, moved = np.abs(first - second), np.take_along_axis(planned - exact, order, axis=1)
        off, elements = moved[:, 0] - moved[:, 1], 2
    near = np.argsort(distance)[: max(LEAST_NEAREST, math.ceil(NEAREST * len(distance)))]
    deviation = math.sqrt(float(np.square(off[near]).mean()) + elements * noise * noise)
    if deviation == 0.0:
        return 1.0
    # beyond forty deviations erfc is zero in binary64
    close = distance[distance < 40.0 * deviation]
    seen = sum(0.5 * math.erfc(d / (deviation * math.sqrt(2.0))) for d in close.tolist()) / len(distance)
    few = min(max(FEW, math.ceil(NEAR * len(distance))), len(distance))
    reach = float(np.sort(distance)[few - 1])
    dense = few / len(distance) / reach * deviation / math.sqrt(2.0 * math.pi) if reach > 3.0 * deviation else 0.0
    return 1.0 - max(seen, dense)


def likely(off: Array, *, grows: bool = False) -> float:
    """What 999 of 1000 rows stay below, from the largest errors of some rows.

    Errors are sums of many roundings: near normal in a row, of sizes that differ between rows. The largest of few rows
    says less than that of many. Products of values have errors with heavier tails: rows that show them tell how heavy
    (:func:`decayed`), and few rows may not show them (``grows``: whether the output is one of :func:`growing`).
    """
    largest = float(off.max(initial=0.0))
    return max(
        (FACTOR + (GROWS if grows else MORE) / math.sqrt(max(len(off), 1))) * largest,
        DEVIATIONS * math.sqrt(float(np.square(off).mean())),
        decayed(off),
    )


def within(errors: Array) -> float:
    """What 999 of 1000 of these errors keep."""
    return float(np.quantile(errors, 0.999, method="higher")) if errors.size else 0.0


def decayed(off: Array) -> float:
    """Where errors decay as a power, what 999 rows of 1000 stay below by that power; else 0.

    The exponent is Hill's estimate ("A Simple General Approach to Inference About the Tail of a Distribution", Annals
    of Statistics 1975) over the largest tenth. Rows that were not seen have errors that decay no more slowly than those
    of a quotient, with the exponent 1: errors of rows that are sure of themselves differ by powers of ten.
    """
    count = math.ceil(TOP * len(off))
    if count < LEAST_TOP:
        return 0.0
    top = np.sort(off)[-count:]
    if top[0] <= 0:
        return 0.0
    exponent = float(np.log(top / top[0]).mean())
    if exponent <= HEAVY:
        return 0.0
    most = FACTOR * float(top[-1]) * max(1.0, 1000.0 / len(off))
    # an exponent of hundreds is beyond what floats hold
    return min(most, float(top[0]) * math.exp(min(exponent * math.log(1000.0 * count / len(off)), 700.0)))


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


def unsure(off: Array, planned: Array, exact: Array, squash: str) -> float:
    """:func:`likely` of a softmax or sigmoid: of the rows that show what their logits' errors are.

    A row that is sure of all its elements hides them. Its own error, perhaps 1e-9, is no sign of how errors of others
    decay, so such rows count with their largest error alone.

    Args:
        off: largest errors of rows; planned and exact may have several positions a row.
    """
    rows = len(off)
    hidden = np.maximum(*(np.minimum(v, 1.0 - v).max(axis=1, initial=0.0) for v in (planned, exact))) <= NO_CHANCE
    shown = ~hidden.reshape(rows, -1).all(axis=1) if rows else np.zeros(0, bool)
    far = np.maximum(off, steepest(planned, exact, squash).reshape(rows, -1).max(axis=1, initial=0.0)) if rows else off
    own = (FACTOR + MORE / math.sqrt(max(rows, 1))) * float(off.max(initial=0.0))
    return max(own, likely(far[shown])) if shown.any() else own


def label_of(values: Array, exact: Array) -> Array:
    """The label of every row: the index of its largest element.

    Of rows of one element: whether it is above one half where the original outputs are probabilities, else above zero.
    """
    flat = np.asarray(values).reshape(len(values), -1)
    if flat.shape[1] != 1:
        return flat.argmax(axis=1) if flat.shape[1] else np.zeros(len(flat), np.int64)
    return (flat[:, 0] > (0.5 if _probabilities(exact) else 0.0)).astype(np.int64)


def _probabilities(exact: Array) -> bool:
    """Whether the original outputs may be probabilities."""
    return float(exact.min(initial=0.0)) >= 0 and float(exact.max(initial=0.0)) <= 1


def check_labels(labels: Any, rows: int, classes: int | None = None) -> Array:
    """Labels as whole numbers, one a row.

    Args:
        classes: how many the answers tell apart, where that is known.

    Raises:
        PlanError: not whole numbers, not one a row, or of other classes than there are.
    """
    found = one_a_row(labels)
    if found.size != rows or found.dtype.kind not in "iub":
        raise PlanError(
            f"labels have shape {np.shape(labels)} and dtype {found.dtype}; give one whole number for each of the "
            f"{rows} rows."
        )
    if classes is not None and rows and not 0 <= int(found.min()) <= int(found.max()) < classes:
        raise PlanError(
            f"labels are {found.min()} to {found.max()}, and the answers tell {classes} classes apart: give 0 to "
            f"{classes - 1}. Values that a regression is to give are no labels: leave them out."
        )
    return found.astype(np.int64)


def one_a_row(labels: Any) -> Array:
    """Labels as ``[rows]``; those that are whole numbers written as floats as integers.

    Raises:
        PlanError: several columns, as of one-hot rows.
    """
    found = np.asarray(labels)
    if found.ndim > 1 and found.size != len(found):
        raise PlanError(
            f"labels have shape {found.shape}; give one for each row. Of rows with a one at the right class "
            "labels.argmax(axis=1) makes them."
        )
    found = found.reshape(-1)
    if found.dtype.kind == "f" and np.array_equal(found, np.rint(found)):
        found = found.astype(np.int64)
    return found


def said(found: Mapping[str, Quality], classes: Collection[str] = ()) -> dict[str, Any]:
    """What ``predicted`` says of agreement and accuracy: of the first output.

    Args:
        classes: outputs whose labels are the answers. What is expected of labels is said of the one that keeps fewest.
    """
    name, first = next(iter(found.items()))
    entry: dict[str, Any] = {"calibration_rows": first.rows}
    if first.told or name in classes:
        entry["agreement"] = first.agreement
    if first.positions > 1:
        entry["positions"] = first.positions
    jumping = [(q.near, q.stay, q.step) for q in found.values() if q.near and not q.place]
    if jumping:
        near, stay, step = zip(*jumping, strict=True)
        entry |= {"near_jumps": max(near), "stay": min(stay), "jump_error": max(step)}
    labelled = [quality.expected_agreement for name, quality in found.items() if name in classes]
    if labelled:
        entry["expected_agreement"] = min(labelled)
    if first.accuracy is not None:
        entry["accuracy"] = {"float": first.accuracy[0], "planned": first.accuracy[1]}
    return entry

"""One network in one trust model: compiled, run on rows that it was not calibrated on, errors beside the statement."""

from __future__ import annotations

import math
import time
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from hushnet.errors import HushnetError, RangeError
from hushnet.graph import Graph
from hushnet.plan import Plan
from hushnet.planner import compile
from hushnet.reference import non_interactive as ciphers
from hushnet.reference import numpy as fixed
from hushnet.reference import two_party as shares
from hushnet.reference.float import evaluate

from .sources import Rows, Source

HELD, BROKEN, REFUSED, UNUSABLE, CRASHED = "held", "broken", "refused", "unusable", "crashed"
VERDICTS = (HELD, BROKEN, REFUSED, UNUSABLE, CRASHED)
# of so many rows one may have a larger error
KEPT = 1000
MARGIN, BYTES, MOST_BLOCK = 2.0, 64 << 20, 500
# what binary64 rounds, of the largest output
ROUNDING = 1e-12
# polynomials in the place of activations
ACTIVATION = "poly:degree=4"
_CIPHERS = "non-interactive"


@dataclass
class Found:
    """What came of a network.

    Attributes:
        rows: that kept to their ranges and were compared; ``outside``: others.
        beyond: rows with an error above ``max_error`` in the output that has most of them.
        worst: the largest error over ``max_error``; tight: the error that 999 of 1000 rows keep over it.
        rigorous: rows with an error above ``worst_error``.
    """

    kind: str
    name: str
    trust: str
    verdict: str = HELD
    rows: int = 0
    outside: int = 0
    beyond: int = 0
    worst: float = 0.0
    tight: float = 0.0
    rigorous: int = 0
    seconds: float = 0.0
    reason: str = ""

    @property
    def share(self) -> float:
        """Of rows that are beyond."""
        return self.beyond / self.rows if self.rows else 0.0

    def as_json(self) -> dict[str, Any]:
        """A row of the table."""
        return {**asdict(self), "share": self.share}


def judge(source: Source, trust: str, *, rows: int, seconds: float, calibration: int) -> Found:
    """Compiles with default options (polynomials for activations where ciphertexts need them), runs and compares."""
    found, started = Found(source.kind, source.name, trust), time.monotonic()
    rng = np.random.default_rng(1)
    try:
        graph, whole = source.graph()
        samples = source.rows(graph, whole, rng, calibration)
        plan = planned(graph, trust, samples)
    except HushnetError as error:
        found.verdict, found.reason = REFUSED, " ".join(str(error).split())[:300]
        return found
    except Exception as error:
        found.verdict, found.reason = CRASHED, f"{type(error).__name__}: {error}"[:300]
        return found
    names = {p["name"] for p in plan.document["outputs"]}
    block = max(1, min(MOST_BLOCK, rows, BYTES // (8 * sum(math.prod(s) for s in graph.shapes.values()) + 1)))
    errors: dict[str, list[np.ndarray]] = {name: [] for name in names}
    run_started = time.monotonic()
    while found.rows + found.outside < rows and time.monotonic() - run_started < seconds:
        x = source.rows(graph, whole, rng, min(block, rows - found.rows - found.outside))
        want = evaluate(graph, x)
        got, kept = answered(plan, x, rng)
        found.outside += len(kept) - int(kept.sum())
        found.rows += int(kept.sum())
        for name, value in got.items():
            off = np.abs(value - want[name][kept]).reshape(len(value), -1).max(axis=1, initial=0.0)
            slack = ROUNDING * float(np.abs(want[name]).max(initial=0.0))
            errors[name].append(np.maximum(off - slack, 0.0))
    compare(plan, {k: np.concatenate(v) for k, v in errors.items() if v}, found)
    found.seconds = round(time.monotonic() - started, 2)
    return found


def planned(graph: Graph, trust: str, samples: Rows) -> Plan:
    """The plan with default options; non-interactive with polynomials where it is refused without.

    Raises:
        HushnetError: it is refused.
    """
    try:
        return compile(graph, trust=trust, calibration=samples, margin=MARGIN, batch=1 if trust == "two-party" else 64)
    except HushnetError as error:
        if trust != _CIPHERS or "--activation" not in str(error):
            raise
    return compile(graph, trust=trust, calibration=samples, margin=MARGIN, batch=64, activation=ACTIVATION)


def answered(plan: Plan, x: Rows, rng: np.random.Generator) -> tuple[Rows, np.ndarray]:
    """Answers of the rows that keep to their ranges, and which these are."""
    count = len(next(iter(x.values())))
    try:
        return _run(plan, x, rng)
    except RangeError:
        if count == 1:
            return {}, np.zeros(1, bool)
    half = count // 2
    parts = [answered(plan, {k: v[part] for k, v in x.items()}, rng) for part in (slice(0, half), slice(half, count))]
    known = [values for values, kept in parts if kept.any()]
    names = known[0] if known else {}
    return {n: np.concatenate([values[n] for values in known]) for n in names}, np.concatenate([k for _, k in parts])


def _run(plan: Plan, x: Rows, rng: np.random.Generator) -> tuple[Rows, np.ndarray]:
    count, trust = len(next(iter(x.values()))), plan.document["trust"]
    outputs = [p["name"] for p in plan.document["outputs"]]
    if trust == "client-aided":
        return fixed.run(plan, x), np.ones(count, bool)
    if trust == "two-party":
        values = shares.run(plan, x, units=rng, keep_all=True)
        kept = np.ones(count, bool)
        for tensor in plan.tensors:
            if tensor["kind"] == "shared" and tensor["name"] in values:
                top = np.abs(values[tensor["name"]]).reshape(count, -1).max(axis=1, initial=0)
                kept &= top <= shares.with_errors(tensor["bound"])
        return {name: values[name][kept] for name in outputs}, kept
    values = ciphers.run(plan, x).outputs
    return {name: values[name] for name in outputs}, np.ones(count, bool)


def compare(plan: Plan, errors: Rows, found: Found) -> None:
    """Counts rows beyond what the plan states of each output."""
    if not found.rows:
        found.verdict, found.reason = UNUSABLE, "no row keeps to its ranges"
        return
    predicted = plan.predicted
    for name, off in errors.items():
        stated = predicted["output_errors"][name]
        most = stated["max_error"]
        # rows near a jump may be carried across it; the statement is of the others
        near = math.ceil(stated.get("near_jumps", 0.0) * found.rows)
        found.beyond = max(found.beyond, int((off > most).sum()) - near)
        if most > 0:
            found.worst = max(found.worst, float(off.max(initial=0.0)) / most)
            found.tight = max(found.tight, float(np.quantile(off, 1 - 1 / KEPT)) / most)
        if "worst_error" in stated and _rigorous(plan):
            found.rigorous += int((off > stated["worst_error"]).sum())
    if found.beyond * KEPT > found.rows or found.rigorous:
        found.verdict = BROKEN


def _rigorous(plan: Plan) -> bool:
    """Whether ``worst_error`` is against the original network: not where polynomials stand for activations."""
    return plan.document["trust"] != _CIPHERS

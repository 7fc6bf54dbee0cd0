"""The cheapest plan whose answers are as precise as was asked for.

Precision is in bits: what 999 rows of 1000 keep (:mod:`.quality`) is at most 2^-bits of the output's range, for every
output. With labels the plan's accuracy on the calibration data must not fall either. Bits of weights and of
activations are tried from few to many; the first plan that is precise enough is taken. Where none is, the most
precise one is, and the plan says by how much it falls short.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from ..options import DEFAULT_BITS
from ..plan import Plan, PlanError
from .quality import ACCURACY_FALL, AGREEMENT_FALL

# without calibration data: an error that is this share of outputs of random inputs is told
COARSE = 0.5

# bits of weights and of activations, cheap first
CLIENT_AIDED: tuple[tuple[int, int | str], ...] = ((8, "auto"), (10, "auto"), (12, 12), (14, 14), (16, 16))
TWO_PARTY: tuple[tuple[int, int | str], ...] = ((8, "auto"), (10, "auto"), (12, "auto"), (14, "auto"))


def check_precision(precision: float | None, *, calibrated: bool) -> None:
    """Checks what the caller asks for.

    Raises:
        PlanError: there is nothing that it could be measured on.
    """
    if precision is not None and not calibrated:
        raise PlanError(
            "precision is measured on calibration data, and there is none; give calibration data, or leave precision "
            "out and choose weight_bits"
        )


def cheapest(make: Callable[[int, int | str], Plan], rungs: Sequence[tuple[int, int | str]], asked: float) -> Plan:
    """The first of the plans that reaches ``asked`` bits; else the most precise.

    Raises:
        PlanError: the first rung's, when no rung has a plan.
    """
    best: Plan | None = None
    refused: PlanError | None = None
    for weight_bits, activation_bits in rungs:
        try:
            plan = make(weight_bits, activation_bits)
        except PlanError as error:
            refused = refused or error
            continue
        if _enough(plan, asked):
            return plan
        if best is None or _shortage(plan) < _shortage(best):
            best = plan
    if best is None:
        raise refused or PlanError("no bits were tried")
    return best


def _enough(plan: Plan, asked: float) -> bool:
    """Whether a plan is as precise as asked for; where labels alone are opened, whether they are the right ones."""
    if "precision" in plan.predicted:
        return plan.predicted["precision"]["reached"] >= asked and not _falls(plan)
    return plan.predicted.get("agreement", 1.0) >= 1 - ACCURACY_FALL and not _falls(plan)


def _shortage(plan: Plan) -> tuple[bool, float, float]:
    """Less is better."""
    predicted = plan.predicted
    return (
        _falls(plan),
        -float(predicted.get("precision", {}).get("reached", 0.0)),
        -float(predicted.get("agreement", 0.0)),
    )


def state(document: dict[str, Any], asked: float | None) -> None:
    """Writes what precision was asked for and what calibration data shows; notes say what is not reached."""
    predicted = document["predicted"]
    found = [e for e in predicted.get("output_errors", {}).values() if "output_range" in e]
    if found:
        bits = [
            math.log2(e["output_range"] / e["max_error"]) if e["output_range"] and e["max_error"] else 64.0
            for e in found
        ]
        predicted["precision"] = {"asked": DEFAULT_BITS if asked is None else float(asked), "reached": min(bits)}
    document["notes"] += shortfalls(predicted)


def _falls(plan: Plan) -> bool:
    accuracy = plan.predicted.get("accuracy")
    return accuracy is not None and accuracy["planned"] < accuracy["float"] - ACCURACY_FALL


def shortfalls(predicted: dict[str, Any]) -> list[str]:
    """Sentences on what a plan does not reach; empty for a plan that does."""
    found = []
    for name, error in predicted.get("output_errors", {}).items():
        size = error.get("random_output_range")
        if size is not None and error["max_error"] > size * COARSE:
            found.append(
                f"Errors of output {name!r} may be {error['max_error']:.3g}, and random inputs give outputs of at "
                f"most {size:.3g}: "
                "answers may be wrong. Ranges follow from interval arithmetic, which is too wide for this network; "
                "give calibration data."
            )
    precision, accuracy = predicted.get("precision", {}), predicted.get("accuracy")
    if "asked" in precision and precision["reached"] < precision["asked"]:
        found.append(
            f"The plan does not reach the precision of {precision['asked']:g} bits: errors of its answers stay below "
            f"2^-{precision['reached']:.2g} of the "
            "output's range in 999 rows of 1000. Give more calibration data or more weight_bits and activation_bits, "
            "or ask for less."
        )
    if accuracy is not None and accuracy["planned"] < accuracy["float"] - ACCURACY_FALL:
        found.append(
            f"Accuracy on the calibration data falls from {accuracy['float']:.4g} to {accuracy['planned']:.4g}. Do "
            "not use this plan without a look at "
            "its answers: more weight_bits and activation_bits, or another trust model, may do better."
        )
    agreement = predicted.get("agreement")
    if accuracy is None and agreement is not None and agreement < 1 - AGREEMENT_FALL:
        found.append(
            f"The plan's labels are those of the original network for {100 * agreement:.4g} % of the calibration "
            "rows only. Give labels to see what that "
            "costs in accuracy."
        )
    return found

"""The cheapest plan whose answers are as precise as was asked for.

Precision is in bits: what 999 rows of 1000 keep (:mod:`.quality`) is at most 2^-bits of the output's range, for every
output. Where classes are the answers, at most one label of :data:`LABELS` may be expected to change: a few large rows
widen an output's range, and errors that are small against it are large against the distance to the next label. With
labels the plan's accuracy on the calibration data must not fall either. Bits of weights and of
activations are tried from few to many; the first plan that is precise enough is taken. Where none is, the cheapest one
is of those that are nearly as precise as the most precise one (:data:`NEARLY`), and it says by how much it falls short.
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

# fewer bits than these are none
LEAST_TOLD = 0.5
# more bits than these have no power of two in binary64
MOST_TOLD = 1023.0
# of so many labels of a classifier one may be expected to change
LABELS = 4000

# scores from which on their size alone is why probabilities are coarse
LARGE_SCORES = 64.0
# rows of calibration data that may be carried across a jump (:mod:`.jumps`) before more bits are tried
STRAYED = 0.005

# the share of an error from which on its cause alone is told
MOST_OF_IT = 0.5

# bits of weights and of activations, and further choices; cheap first
Rung = tuple[Any, ...]
CLIENT_AIDED: tuple[Rung, ...] = ((8, "auto"), (10, "auto"), (12, 12), (14, 14), (16, 16))
# errors of rounded weights are fed back where rounding to nearest is not enough: the same bytes, and minutes of
# planning for networks of many layers
FED = {"rounding": "feedback"}
# of few images, where the engine for these is the cheaper one: its own modulus says how many bits activations have.
# The bits of the other rungs may be more than it takes, and the other engine costs a hundred times as much
FEW_IMAGES: tuple[Rung, ...] = (
    (10, "auto", {"engine": "packed", "most_bits": 14}),
    (11, "auto", {"engine": "packed", "most_bits": 16}),
    (11, "auto", {"engine": "packed", "most_bits": 16} | FED),
)
# of plans that are tried for the usual precision, so many times the cheapest one's price is too dear
DEAR = 8.0
TWO_PARTY: tuple[Rung, ...] = (
    (8, "auto"),
    (8, "auto", FED),
    (10, "auto", FED),
    (12, "auto", FED),
    (14, "auto", FED),
    # activations of more bits where the ring of all layers has room: it is as wide as the layer needs that sums most
    (12, "auto", FED | {"most_bits": 14}),
    (13, "auto", FED | {"most_bits": 16}),
)
# of networks with few weights: rings as wide as the bits need. Rotation-free layers carry them, whose set-up sends
# polynomials for all weights; for many images at once, batches at the larger ring degree. Targets far from zero take
# bits of the ring that weights then lack.
WIDE = ((14, 14), (16, 16))
WIDE_FAR = ((9, 11), (10, 12), (12, 12), *WIDE)


# where nothing else is precise enough: a ring whose layers have room for biases, for inputs and for what is opened.
# Distances that are squared by the client (likelihoods) need it: near rows, small distances count beside large biases
WIDEST: tuple[dict[str, Any], ...] = (
    {"ring_bits": 36, "most_bits": 16},
    {"ring_bits": 36, "most_bits": 20, "output_bits": 20},
)


def wide(images: int, *, far: bool) -> tuple[Rung, ...]:
    """Rungs of wide rings.

    Args:
        far: whether targets lie far from zero.
    """
    return tuple((*bits, _carrier(images)) for bits in (WIDE_FAR if far else WIDE))


def widest(images: int) -> tuple[Rung, ...]:
    """Rungs of the widest ring, the last to be tried."""
    return tuple((16, "auto", _carrier(images) | FED | more) for more in WIDEST)


def _carrier(images: int) -> dict[str, Any]:
    """How layers of wide rings are computed."""
    return {"method": "rotation-free"} if images == 1 else {"method": "batch", "ring_degree": 4096}


FEW_WEIGHTS = 1 << 18
# sums by calibration data leave bits of the ring to both, and weights are as fine as their noise lets them be
TWO_PARTY_SUMS: tuple[Rung, ...] = tuple((14, "auto", FED | {"most_bits": m, "sums": "calibrated"}) for m in (14, 16))
# plans of networks with more weights take minutes each: bits that fall short by far are passed over
MANY_WEIGHTS = 1 << 22
# the most activation bits of 'auto'
AUTO_MOST = 12
# bits of precision that a rung may win beyond those that it has more
SURPLUS = 2.0
# errors that are at most so many times the least ones are as good, where none is small enough
NEARLY = 1.25


def without_rows(rungs: Sequence[Rung]) -> tuple[Rung, ...]:
    """Rungs for few rows of calibration data, which do not say how errors are fed back: the same bits once."""
    found: list[Rung] = []
    for bits, activations, *more in rungs:
        kept = {k: v for k, v in (more[0] if more else {}).items() if k not in FED}
        rung = (bits, activations, kept) if kept else (bits, activations)
        found += [rung] if rung not in found else []
    return tuple(found)


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


def cheapest(
    make: Callable[..., Plan],
    rungs: Sequence[Rung],
    asked: float,
    price: Callable[[Plan], float] | None = None,
    *,
    weigh: Callable[[Plan], float] | None = None,
    leaps: bool = False,
) -> Plan:
    """The first of the plans that reaches ``asked`` bits; else the most precise.

    Args:
        price: of a plan; where it is given, one of :data:`DEAR` times the price of another is not taken.
        weigh: where it is given and no plan is precise enough, the lightest is taken of those that are nearly as
            precise as the most precise one.
        leaps: rungs are passed over that are too few bits above one that falls short; where no later one has a plan,
            they are tried after all.

    Raises:
        PlanError: the first rung's, when no rung has a plan.
    """
    best: Plan | None = None
    refused: PlanError | None = None
    most = math.inf
    passed: list[Rung] = []
    # plans that may be as good as the best one
    near: list[Plan] = []
    lacking, below = -math.inf, 0.0

    def tried(rung: Rung) -> Plan | None:
        nonlocal refused
        try:
            return make(*rung)
        except PlanError as error:
            refused = refused or error
            return None

    for rung in rungs:
        if leaps and _bits(rung) - below + SURPLUS < lacking:
            passed.append(rung)
            continue
        plan = tried(rung)
        if plan is None:
            continue
        if price is not None:
            paid = price(plan)
            if paid > most:
                continue
            if best is not None and price(best) > DEAR * paid:
                best = None
            most = min(most, DEAR * paid)
        if _enough(plan, asked):
            return plan
        if best is None or _shortage(plan) < _shortage(best):
            best = plan
            passed.clear()
        near = [p for p in (*near, plan) if p is best or (weigh is not None and _nearly(p, best))]
        if leaps:
            lacking, below = asked - _reached(plan), _bits(rung)
    for rung in reversed(passed):
        plan = tried(rung)
        if plan is not None:
            best = plan if best is None or _shortage(plan) < _shortage(best) else best
            near.append(plan)
            break
    if best is None:
        raise refused or PlanError("no bits were tried")
    if weigh is None:
        return best
    return min((p for p in near if p is best or _nearly(p, best)), key=weigh)


def _nearly(plan: Plan, best: Plan) -> bool:
    """Whether a plan's errors, and labels that it changes, are at most :data:`NEARLY` times those of the best one.

    Labels of the calibration rows, which may be few, count where no error is measured.
    """
    falls, *shares, bits, seen = _shortage(plan)
    best_falls, *best_shares, best_bits, best_seen = _shortage(best)
    if "precision" not in best.predicted:
        shares, best_shares = [*shares, seen], [*best_shares, best_seen]
    changed = all(1 + share <= NEARLY * (1 + least) for share, least in zip(shares, best_shares, strict=True))
    return falls <= best_falls and changed and bits - best_bits <= math.log2(NEARLY)


def _bits(rung: Rung) -> float:
    """Bits of a rung's weights or activations, whichever are fewer; no bound where its sums leave room for more."""
    weights, activations, more = (*rung, {})[:3]
    if more.get("sums") == "calibrated":
        return math.inf
    return float(min(weights, more.get("most_bits", AUTO_MOST) if activations == "auto" else activations))


def _reached(plan: Plan) -> float:
    """Bits that a plan reaches; no bound where nothing is measured in bits."""
    return float(plan.predicted.get("precision", {}).get("reached", math.inf))


def _enough(plan: Plan, asked: float) -> bool:
    """Whether a plan is as precise as asked for; where labels alone are opened, whether they are the right ones."""
    if _falls(plan) or not labels_stay(plan.predicted) or plan.predicted.get("stay", 1.0) < 1 - STRAYED:
        return False
    if "precision" in plan.predicted:
        return bool(plan.predicted["precision"]["reached"] >= asked)
    return bool(plan.predicted.get("agreement", 1.0) >= 1 - ACCURACY_FALL)


def labels_stay(predicted: dict[str, Any]) -> bool:
    """Whether labels are expected to stay, where they are the answers."""
    return bool(predicted.get("expected_agreement", 1.0) >= 1 - 1 / LABELS)


def _shortage(plan: Plan) -> tuple[bool, float, float, float, float]:
    """Less is better."""
    predicted = plan.predicted
    return (
        _falls(plan),
        # enough is enough
        -min(float(predicted.get("expected_agreement", 1.0)), 1 - 1 / LABELS),
        -min(float(predicted.get("stay", 1.0)), 1 - STRAYED),
        -float(predicted.get("precision", {}).get("reached", 0.0)),
        -float(predicted.get("agreement", 0.0)),
    )


def state(document: dict[str, Any], asked: float | None) -> None:
    """Writes what precision was asked for and what calibration data shows; notes say what is not reached."""
    predicted = document["predicted"]
    found = [e for e in predicted.get("output_errors", {}).values() if "output_range" in e]
    if found:
        bits = [
            math.log2(e["output_range"]) - math.log2(e["max_error"]) if e["output_range"] and e["max_error"] else 64.0
            for e in found
        ]
        # columns that differ in size count each against what it reaches itself
        bits += [-math.log2(e["column_error"]) for e in found if e.get("column_error")]
        predicted["precision"] = {"asked": DEFAULT_BITS if asked is None else float(asked), "reached": min(bits)}
    document["notes"] += [_jumping(name, e) for name, e in predicted.get("output_errors", {}).items() if _near(e)]
    document["notes"] += shortfalls(predicted)


def _near(error: dict[str, Any]) -> bool:
    """Whether rows of an output stand near a jump, and nothing is short of that."""
    return bool(error.get("near_jumps")) and error["stay"] >= 1 - AGREEMENT_FALL


def _jumping(name: str, error: dict[str, Any]) -> str:
    """What is known of an output that jumps; plans of before have no size of jumps."""
    far = f"up to {error['jump_error']:.3g}" if "jump_error" in error else "more"
    return (
        f"Output {name!r} jumps where a comparison, a rounding or the place of a largest value changes. "
        f"{100 * error['near_jumps']:.3g} % of the calibration rows stand so near a jump that errors may carry them "
        f"across, and {100 * error['stay']:.4g} % stay on their side. The stated error is that of rows that stay; rows "
        f"that are carried across are off by {far}."
    )


def _falls(plan: Plan) -> bool:
    accuracy = plan.predicted.get("accuracy")
    return accuracy is not None and accuracy["planned"] < accuracy["float"] - ACCURACY_FALL


def _way_on(predicted: dict[str, Any]) -> str:
    """What helps against the largest part of an error."""
    part, scores = predicted.get("polynomial_share", 0.0), predicted.get("score_range", 0.0)
    asked = predicted["precision"]["asked"]
    if part <= MOST_OF_IT and scores >= LARGE_SCORES:
        # an error e of scores moves a probability by tanh(e / 2) at most
        return (
            f"Probabilities are made of scores that reach {scores:.3g}: where two classes are even, {asked:g} bits of "
            f"a probability take {math.log2(scores) + asked - 1:.0f} bits of a score. Labels need fewer. Fit a model "
            "with smaller scores (more regularisation, smoother variances), or ask for less."
        )
    logarithm = predicted.get("widest_logarithm")
    if part <= MOST_OF_IT and logarithm is not None:
        return (
            f"Logarithm {logarithm['node']!r} reads values that span {logarithm['octaves']} powers of two on the "
            "calibration data. Plans hold values with one error for large and small ones, so small ones have no "
            "logarithm, and more bits help little. If what stands in front of it is a known transform, as a "
            "spectrogram is, let clients compute it: onnx.utils.extract_model cuts the file at "
            f"{logarithm['tensor']!r}, and the part behind it is compiled with values of that tensor as calibration "
            "data. Or raise the constant that values are cut off at or that is added to them, and fit the network to "
            "that."
        )
    if part <= MOST_OF_IT:
        return "Give more calibration data or more weight_bits and activation_bits, or ask for less."
    return (
        f"{100 * part:.3g} % of the error in a usual row comes from the polynomials in the place of activations, which "
        "more bits do not mend. Take polynomials of a higher degree than these (activation='poly:degree=d' with a "
        "larger d), train the network with polynomials, choose another trust model, or ask for less."
    )


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
        if error.get("near_jumps") and not _near(error):
            found.append(
                f"{_jumping(name, error)} Ask for more bits of precision, or end the network in front of the jumps."
            )
    precision, accuracy = predicted.get("precision", {}), predicted.get("accuracy")
    if "asked" in precision and precision["reached"] < precision["asked"]:
        reached = precision["reached"]
        # never rounded up to what was asked for
        bits = math.floor(10 * reached) / 10
        share = f"2^-{bits:g} of" if reached >= LEAST_TOLD else f"{2.0 ** min(-reached, MOST_TOLD):.3g} times"
        found.append(
            f"The plan does not reach the precision of {precision['asked']:g} bits: errors of its answers stay below "
            f"{share} the output's range in 999 rows of 1000. {_way_on(predicted)}"
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

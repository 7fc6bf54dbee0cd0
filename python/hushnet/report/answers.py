"""What a plan's answers are worth: agreement, accuracy, errors and precision, for every trust model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .fitting import Table

Report = Mapping[str, Any]

# of ``predicted``, what is said of answers; a public part has none of it, but that of client-aided plans
FIELDS = (
    "agreement",
    "expected_agreement",
    "accuracy",
    "calibration_rows",
    "positions",
    "precision",
    "near_jumps",
    "stay",
    "jump_error",
)


def answers(predicted: Mapping[str, Any]) -> dict[str, Any]:
    """The part of an explanation that tells what the plan's answers are worth; empty where nothing is known."""
    found = {key: predicted[key] for key in FIELDS if key in predicted}
    if "max_error" in predicted:
        found["error"] = {
            "expected": predicted.get("expected_error"),
            "likely": predicted["max_error"],
            "seen": predicted.get("seen_error"),
            "rigorous": predicted.get("worst_error"),
            "output_range": predicted.get("output_range"),
            "rounding_and_noise": predicted.get("planned_error"),
            "drawn": predicted["max_error"] < predicted.get("propagated_error", predicted["max_error"]),
        }
    return found


def table(report: Report, *, verbose: bool) -> Table:
    """The answers' table; ``verbose`` adds the rigorous error."""
    found = report["answers"]
    rows = Table(title="Answers", title_justify="left", show_header=False, box=None, padding=(0, 2, 0, 0))
    count = found.get("calibration_rows")
    if "agreement" in found:
        of = f"{count} calibration rows have"
        if "positions" in found:
            of = f"the {found['positions']} positions of {count} calibration rows have"
        rows.add_row("Agreement", f"{100 * found['agreement']:.4g} % of {of} the original network's label")
    if "expected_agreement" in found:
        rows.add_row(
            "Labels", f"{100 * found['expected_agreement']:.4g} % of other such rows are expected to keep theirs"
        )
    if "accuracy" in found:
        accuracy = found["accuracy"]
        rows.add_row(
            "Accuracy",
            f"{accuracy['planned']:.4g} on the calibration data; the original network has {accuracy['float']:.4g}",
        )
    error = found.get("error")
    if error is None:
        return rows
    if error["expected"] is not None:
        reach = "" if error["output_range"] is None else f" (outputs reach {error['output_range']:.3g})"
        rows.add_row(
            "Error", f"{error['expected']:.3g} in a usual row, at most {error['likely']:.3g} in 999 rows of 1000{reach}"
        )
        rows.add_row("", "against the original network, for rows that keep to their ranges")
        if found.get("near_jumps"):
            # plans of before have no size of jumps
            moves = f", which moves answers by up to {found['jump_error']:.3g}" if "jump_error" in found else ""
            rows.add_row(
                "Jumps",
                f"{100 * found['near_jumps']:.3g} % of the calibration rows stand so near a jump that errors may carry "
                f"them across{moves}; {100 * found['stay']:.4g} % stay, and the error is theirs",
            )
    else:
        source = "in rows drawn from the declared ranges" if error["drawn"] else "propagated"
        rows.add_row("Error", f"about {error['likely']:.3g}, {source}; calibration data would tell")
    if "precision" in found:
        rows.add_row("Precision", precision_text(found["precision"]))
    if verbose:
        if error["rounding_and_noise"] is not None:
            rows.add_row("Of it", f"{error['rounding_and_noise']:.3g} from roundings and noise")
        rigorous = "none is known" if error["rigorous"] is None else f"{error['rigorous']:.3g}"
        rows.add_row("Rigorous bound", f"{rigorous}, of roundings and noise, for every input within the ranges")
    return rows


def precision_text(precision: Mapping[str, float]) -> str:
    """The bits that a plan reaches beside those that were asked for."""
    reached, asked = precision["reached"], f"{precision['asked']:g} bits were asked for"
    return f"{reached:.3g} bits; {asked}" if reached > 0 else f"none: errors may be as large as the outputs; {asked}"

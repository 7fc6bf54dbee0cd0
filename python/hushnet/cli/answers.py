"""What ``run`` and ``infer`` print and write of answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

import hushnet
from hushnet.cli.common import counted, emit, out, read_labels, write_outputs


def _summary(result: hushnet.Result) -> dict[str, Any]:
    trace = result.trace
    images = trace["images"]
    checked = {"out_of_range": trace["out_of_range"]} if "out_of_range" in trace else {}
    return (
        {
            "images": images,
            "seconds": trace["seconds"],
            "images_per_second": images / trace["seconds"] if trace["seconds"] else None,
            "bytes_up": trace["bytes_up"],
            "bytes_down": trace["bytes_down"],
            "outputs": {name: list(value.shape) for name, value in result.outputs.items()},
            "rows_out_of_range": list(result.out_of_range),
        }
        # what these images cost before, never hidden
        | ({"prepared": trace["prepared"]} if "prepared" in trace else {})
        | checked
        | ({"labels": {k: v.tolist() for k, v in result.labels.items()}} if result.labels else {})
    )


def finish(
    result: hushnet.Result, output: Path | None, trace: Path | None, as_json: bool, *, strict: bool, labels: Path | None
) -> None:
    """Writes outputs and trace, and prints what came out.

    Args:
        strict: rows out of range are NaN.
        labels: right answers, for accuracy.
    """
    outputs = result.strict() if strict else result.outputs
    accuracy = None if labels is None else result.accuracy(read_labels(labels))
    if output:
        write_outputs(output, outputs)
    if trace:
        trace.write_text(json.dumps(result.trace, indent=1))
    summary = _summary(result) | ({} if accuracy is None else {"accuracy": accuracy})
    if as_json:
        if not output:
            # JSON has no NaN
            summary["values"] = {
                name: np.where(np.isnan(value), np.array(None), value).tolist() for name, value in outputs.items()
            }
        emit(summary)
        return
    up, down = (summary[k] / summary["images"] / 1e6 for k in ("bytes_up", "bytes_down"))
    out.print(
        f"{counted(summary['images'], 'image')} in {summary['seconds']:.3f} s "
        f"({_pace(summary['images_per_second'])}), "
        f"{up:.4f} MB up and {down:.4f} MB down an image."
    )
    if "prepared" in summary:
        before = summary["prepared"]
        up, down = (before[k] / summary["images"] / 1e6 for k in ("bytes_up", "bytes_down"))
        out.print(
            f"Prepared before, in {before['seconds']:.3f} s: {up:.4f} MB up and {down:.4f} MB down an image.",
            highlight=False,
        )
    for reach in summary.get("out_of_range", []):
        out.print(
            f"The operand of the polynomial at '{reach['tensor']}' reaches {reach['largest']:.4g}, beyond its range of "
            f"{reach['range']:.4g}, "
            f"in {reach['outside']} values: the answers of these images may be wrong."
        )
    if summary.get("out_of_range") == []:
        out.print("Every polynomial's operand kept to its range.")
    if accuracy is not None:
        out.print(f"Accuracy of the encrypted run: {accuracy:.4g}.", highlight=False)
    if result.out_of_range:
        out.print(_left(result), highlight=False, markup=False)
    for name, value in outputs.items():
        first = np.array2string(value[0].ravel()[:10], precision=4)
        out.print(f"{name} {tuple(value.shape)}: first image {first}" + (f" -> {output}" if output else ""))
    for name, value in result.labels.items():
        listed = ", ".join(str(v) for v in value[:10]) + (f" and {len(value) - 10} more" if len(value) > 10 else "")
        out.print(f"Classes by {name}: {listed}.", highlight=False, markup=False)


def _pace(images: float | None) -> str:
    """Images a second; seconds an image where these are fewer than one."""
    if not images:
        return "in no time"
    return f"{images:.0f} images/s" if images >= 10 else f"{1 / images:.3g} s an image"


def _left(result: hushnet.Result) -> str:
    """The rows that left a planned range, in a sentence."""
    rows, error = result.out_of_range, result.range_error
    named = ", ".join(map(str, rows[:20])) + (f" and {len(rows) - 20} more" if len(rows) > 20 else "")
    first = ""
    if error is not None and error.given is not None and error.position is not None:
        # a name of the plan's says nothing to a user who knows the inputs
        place = ", ".join(map(str, error.position))
        first = f" The first is {error.given:.6g}, input '{error.input}' at [{place}] of row {error.image}."
    elif error is not None:
        first = f" The first is {error.value:.6g} in '{error.tensor}' of row {error.image}."
    left = (
        f"{len(rows)} of {result.trace['images']} rows left a planned range and may have wrong answers: {named}.{first}"
    )
    if len(rows) == result.trace["images"] > 1:
        # most often bytes of pixels where numbers up to 1 are wanted, or raw features where scaled ones are
        return (
            f"{left} No row stands: scale the inputs as the calibration data was (pixels 0 to 1, or 0 to 255?), or "
            "compile with calibration data that covers such inputs."
        )
    return f"{left} Other rows stand. Compile with calibration data that covers such inputs, or with a larger --margin."

"""``hushnet zoo get`` and ``hushnet demo ocr|photo|file-type|embedding``: real trained networks under encryption."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, cast

import numpy as np

from hushnet import InputError, demos, zoo
from hushnet.cli.common import out, progress_bar
from hushnet.options import Trust
from hushnet.report.fitting import Table

_SHOWN = 20
_COLUMNS = 4


def get(name: str | None, output: Path | None, table: Path | None) -> dict[str, Any]:
    """Fetches a model into the cache, and copies the ONNX file where that is asked for."""
    if name is None:
        raise InputError(f"`zoo get` needs a name. Choose one of {', '.join(zoo.real_models(table))}.")
    row = zoo.real_models(table).get(name)
    files = zoo.fetch(name, table=table)
    if row is None:
        raise InputError(f"There is no trained network {name!r} to fetch.")
    if output is not None:
        shutil.copyfile(files[0], output)
    return {
        "model": str(output or files[0]),
        "files": [str(f) for f in files],
        "licence": row.licence,
        "about": row.about,
        "input": row.input,
        "shapes": {k: list(v) for k, v in row.shapes.items()},
        "sha256": row.files[0].sha256,
    }


def print_got(found: dict[str, Any]) -> None:
    """What was fetched, and the command that compiles it."""
    shapes = "".join(f" --shape {k}={','.join(map(str, v))}" for k, v in found["shapes"].items())
    out.print(f"{found['model']}: {found['about']}. Licence: {found['licence']}.", highlight=False, markup=False)
    out.print(f"Input: {found['input']}.", highlight=False, markup=False)
    out.print(
        f"Next: hushnet compile {found['model']} -o model.hush --batch 1{shapes} --calibration samples.npz",
        highlight=False,
        markup=False,
        soft_wrap=True,
    )


def listing(table: Path | None) -> Table:
    """The table of real networks."""
    shown = Table("name", "what it does", "licence", "package", title="Trained networks: hushnet zoo get NAME")
    for row in zoo.real_models(table).values():
        shown.add_row(row.name, row.about, row.licence, f"{row.files[0].package} {row.files[0].version}")
    return shown


def run_demo(
    name: str, inputs: list[Path], folder: Path, count: int, trust: str, threads: int | None, *, quiet: bool
) -> dict[str, Any]:
    """Runs every network of a demo, prints and writes what came out; the figures."""
    if name not in demos.DEMOS:
        raise InputError(f"There is no demo {name!r}. Choose one of digits, {', '.join(demos.DEMOS)}.")
    for path in inputs:
        if not path.is_file():
            raise InputError(f"{path} is no file. Name the files that the demo shall run on.")
    folder.mkdir(parents=True, exist_ok=True)
    rows = []
    for model in demos.DEMOS[name]:
        with progress_bar(quiet) as bar:
            found = demos.compare(
                model,
                count=count,
                paths=inputs,
                trust=cast(Trust, trust),  # another one is refused by the compilation
                threads=threads,
                progress=bar,
            )
        row = found.figures() | {"question": demos.TASKS[model].question, "answers": _answers(found)}
        row["written"] = str(write(folder, found))
        rows.append(row)
        if not quiet:
            _print(found, row)
    (folder / f"{name}.json").write_text(json.dumps(rows, indent=1))
    return {"demo": name, "trust": trust, "models": rows, "table": str(folder / f"{name}.json")}


def _answers(found: demos.Comparison) -> list[dict[str, Any]]:
    rows = zip(found.samples.names, found.answers, found.plain_answers, found.agree)
    return [{"input": n, "encrypted": a, "onnx_runtime": b, "same": same} for n, a, b, same in rows]


def _print(found: demos.Comparison, row: dict[str, Any]) -> None:
    shown = Table("input", "encrypted", "ONNX Runtime", "same", title=f"{found.model}: {row['question']}")
    for answer in row["answers"][:_SHOWN]:
        texts = [str(answer[k]) for k in ("input", "encrypted", "onnx_runtime")]
        shown.add_row(*texts, "yes" if answer["same"] else "no")
    out.print(shown)
    left_out = len(found.samples) - _SHOWN
    if left_out > 0:
        out.print(f"{left_out} more rows are in the file.")
    sides = "" if found.sides is None else f", and {100 * found.sides:.4g} % of all positions on their side"
    sent = (found.bytes_up + found.bytes_down + found.setup_bytes_down) / len(found.samples) / 1e6
    out.print(
        f"{found.same} of {len(found.samples)} answers are those of ONNX Runtime ({found.trust}). "
        f"The largest difference of an output is {found.error:.4g}; "
        f"the plan predicts at most {found.predicted_error:.4g}{sides}.\n"
        f"{found.seconds / len(found.samples):.2f} s and {sent:.2f} MB an input; "
        f"compiled in {found.compile_seconds:.0f} s. "
        f"Written: {row['written']}",
        highlight=False,
        soft_wrap=True,
    )


def write(folder: Path, found: demos.Comparison) -> Path:
    """A picture of the inputs with both answers where inputs are pictures, otherwise a table as text."""
    if isinstance(found.samples.shown[0], str):
        path = folder / f"{found.model}.tsv"
        lines = ["input\tencrypted\tONNX Runtime\tsame"]
        lines += ["\t".join(str(v).replace("\t", " ") for v in answer.values()) for answer in _answers(found)]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return path
    return _picture(folder / f"{found.model}.png", found)


def _picture(path: Path, found: demos.Comparison) -> Path:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import patches, pyplot

    count = min(len(found.samples), _SHOWN)
    rows = -(-count // _COLUMNS)
    size = (4 * _COLUMNS, 2.2 * rows + 0.5)
    figure, axes = pyplot.subplots(rows, _COLUMNS, figsize=size, squeeze=False, layout="constrained")
    for axis in axes.ravel():
        axis.axis("off")
    for axis, shown, answer in zip(axes.ravel(), found.samples.shown, _answers(found)):
        axis.imshow(np.asarray(shown))
        text = f"encrypted: {answer['encrypted']}\nONNX Runtime: {answer['onnx_runtime']}"
        if found.model == "pp-ocr-detector":
            for box in json.loads(answer["encrypted"]):
                corner, sizes = (box[1], box[0]), (box[3] - box[1], box[2] - box[0])
                axis.add_patch(patches.Rectangle(corner, *sizes, fill=False, edgecolor="#1b7837"))
            text = "regions of text, encrypted: " + str(len(json.loads(answer["encrypted"])))
        # text of inputs is shown as it is: a dollar sign starts no formula
        colour = "#1b7837" if answer["same"] else "#b2182b"
        axis.set_title(text.replace("$", r"\$"), fontsize=8, color=colour)
    figure.suptitle(f"{found.model}, {found.trust}: {found.same} of {len(found.samples)} answers are ONNX Runtime's")
    figure.savefig(path, dpi=90)
    pyplot.close(figure)
    return path

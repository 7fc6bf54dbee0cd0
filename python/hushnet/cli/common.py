"""What all commands share: printing, progress, reading arrays."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from hushnet import InputError, data
from hushnet.options import KINDS, table

# names, paths and messages are printed as they are: brackets are no markup, and :1234 is no emoji
out = Console(width=None if Console().is_terminal else 120, markup=False, emoji=False)
err = Console(stderr=True, soft_wrap=True, markup=False, emoji=False)
ARRAYS = (".npy", ".npz")
PLANS, PAGES = (".hush",), (".html", ".htm")
# endings of models and data, which no trace or record is named by
KEPT = (*ARRAYS, *PLANS, ".onnx", ".csv", ".pt", ".pth", ".pkl", ".joblib", ".safetensors")
# names of Python's options in messages -> those of the command line
FLAGS = {
    name: field.option.flag for kind in KINDS.values() for name, field in table(kind).items() if field.option.flag
} | {"setups_days": "--setups-days", "setups_quota": "--setups-quota", "keys_days": "--keys-days", "trust": "--trust"}
# names that are no words of prose
_NAMES = "|".join(name for name in FLAGS if "_" in name)


def in_flags(message: str) -> str:
    """A message for the command line: names of options as they are written there."""

    def flag(found: re.Match[str]) -> str:
        return found[1] + FLAGS.get(found[2], found[2]) if found[2] in FLAGS else found[0]

    def flags(found: re.Match[str]) -> str:
        return f"The options are {', '.join(sorted(FLAGS[n] for n in found[1].split(', ') if n in FLAGS))}."

    message = re.sub(r"The options are ([\w, ]+)\.", flags, message)
    message = re.sub(r"^()(\w+)(?= is )", flag, message)
    message = re.sub(r"(no option |you mean )'(\w+)'", flag, message)
    message = re.sub(r"\b(trust|reveal|method|engine|nonlinear|until)='([^']+)'", r"--\1 \2", message)
    message = message.replace("naming its file as the CA file", "naming its file with --ca")
    message = message.replace("with a CA file", "with --ca FILE").replace(
        "explicitly (insecure TLS)", "with --insecure-tls"
    )
    return re.sub(rf"(?<![\w-])()({_NAMES})\b(?!['\"(])", flag, message)


def explained_in_flags(explained: dict[str, Any]) -> dict[str, Any]:
    """What is said of a plan, for the command line."""
    trust = explained["trust"]
    warning = trust["warning"] and in_flags(trust["warning"])
    return {**explained, "trust": {**trust, "warning": warning}, "notes": [in_flags(n) for n in explained["notes"]]}


def emit(value: Any) -> None:
    """Prints one JSON document to standard output."""
    print(json.dumps(value, indent=2, allow_nan=False, default=_jsonable))


def _jsonable(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"{type(value).__name__} in JSON output")


def counted(number: int, what: str) -> str:
    """A number of things: ``1 image``, ``2 images``."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def sentence(text: str) -> str:
    """Words with a full stop behind them."""
    return text if text.endswith((".", "!", "?")) else f"{text}."


@contextmanager
def progress_bar(quiet: bool) -> Iterator[Any | None]:
    """A callback ``(stage, done, total)`` that moves a progress bar on standard error; None when quiet."""
    if quiet or not err.is_terminal:
        yield None
        return
    with Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.completed}/{task.total}"),
        TimeElapsedColumn(),
        console=err,
    ) as bars:
        tasks: dict[str, Any] = {}

        def update(stage: str, done: int, total: int) -> None:
            if stage not in tasks:
                tasks[stage] = bars.add_task(stage, total=total)
            bars.update(tasks[stage], completed=done, total=total)

        yield update


def read_labels(path: Path) -> Any:
    """Right answers, as :func:`read_arrays` reads them."""
    return read_arrays(path, what="labels")


def read_arrays(path: Path, *, what: str = "inputs") -> Any:
    """Inputs from ``.npy`` (one array), ``.npz`` (one array per input name), or MNIST IDX files."""
    if not path.exists():
        raise InputError(f"{path}: there is no such file. Give a .npy or .npz file of {what}.")
    try:
        if path.suffix == ".npy":
            return np.load(path, allow_pickle=False)
        if path.suffix == ".npz":
            with np.load(path, allow_pickle=False) as archive:
                return {name: archive[name] for name in archive.files}
        if "idx" in path.name:
            return data.as_images(data.load_idx(path))
    except (ValueError, OSError, EOFError) as error:
        # NumPy's advice to load it all the same, with pickle, would run whatever is in the file
        objects = "pickle" in str(error)
        told = "it holds Python objects, or is no array file at all" if objects else f"{error}"
        words = " Of labels that are words, save array.astype(str)." if objects else ""
        raise InputError(
            f"{path} is no readable array file: {told}. Write it with numpy.save or numpy.savez.{words}"
        ) from error
    raise InputError(f"{path}: give a .npy or .npz file (or MNIST's IDX files).{_instead(path)}")


def _instead(path: Path) -> str:
    """What to do with a file of another kind."""
    kind = path.suffix.lower()
    if kind in (".hush", ".onnx"):
        return " The plan or model comes first, then the inputs."
    if kind in (".csv", ".tsv", ".txt"):
        return f" A table of numbers becomes one by numpy.save('{path.stem}.npy', numpy.loadtxt('{path.name}', ...))."
    if kind in (".png", ".jpg", ".jpeg", ".gif", ".bmp", ".webp"):
        return " Scale a picture as it was for the training, and write it with numpy.save."
    return ""


def count(inputs: Any) -> int:
    """Images of inputs that :func:`read_arrays` has read; one where the array has no axis for them."""
    first = next(iter(inputs.values()), np.zeros(0)) if isinstance(inputs, dict) else inputs
    return len(first) if np.ndim(first) else 1


def declared_ranges(together: Any, by_feature: Path) -> Any:
    """What ``--input-range`` or ``--feature-ranges`` declare: a pair, or a pair of arrays (by input in ``.npz`` files).

    Raises:
        InputError: both are given, or a file does not hold least and largest values.
    """
    if together is not None:
        raise InputError("--input-range and --feature-ranges both declare the inputs' ranges. Give one of them.")
    found = read_arrays(by_feature)
    for array in found.values() if isinstance(found, dict) else [found]:
        if array.ndim < 2 or len(array) != 2 or array.dtype.kind not in "fiu":
            raise InputError(
                f"{by_feature}: an array of shape {array.shape} and type {array.dtype} holds no least and largest "
                "values. Give numbers of shape [2, features]."
            )
    return {name: tuple(array) for name, array in found.items()} if isinstance(found, dict) else tuple(found)


def read_shapes(given: list[str]) -> dict[str, tuple[int, ...]]:
    """``x=1,3,48,192`` for each input, as shapes by name."""
    shapes = {}
    for text in given:
        name, mark, sizes = text.rpartition("=")
        parts = sizes.split(",")
        if not mark or not name or not all(part.strip().isdigit() and int(part) > 0 for part in parts):
            raise InputError(
                f"--shape {text}: give the input's name and its sizes, the batch first, for example x=1,3,48,192"
            )
        shapes[name] = tuple(int(part) for part in parts)
    return shapes


def names(text: str | None) -> list[str]:
    """Names with commas between them."""
    return text.split(",") if text else []


def onnx_file(path: Path) -> str:
    """The path of a model.

    Raises:
        InputError: there is no such file.
    """
    if not path.is_file():
        raise InputError(f"{path}: there is no such file. Give the path of an ONNX model.")
    return str(path)


def plan_file(path: Path) -> Path:
    """The path of a plan.

    Raises:
        InputError: there is no such file.
    """
    if not path.is_file():
        raise InputError(f"{path}: there is no such file. Give a plan that `hushnet compile` has written (.hush).")
    return path


def check_output(
    path: Path | None,
    suffixes: tuple[str, ...] = (),
    outputs: Sequence[str] = (),
    *,
    what: str = "the outputs",
    read: Sequence[Path | None] = (),
) -> None:
    """Whether a file can be written, before anything is computed or sent.

    Args:
        suffixes: what the name must end in; without any, it must not be that of a user's model or data.
        outputs: names of the network's outputs, where they are known: a ``.npy`` file holds one array.
        what: what is written.
        read: files that the command reads, which are not written over.

    Raises:
        InputError: the path, what is wrong with it and what to give.
    """
    if path is None:
        return
    if suffixes and path.suffix not in suffixes:
        raise InputError(f"{path} cannot hold {what}: give a file name that ends in {' or '.join(suffixes)}.")
    if not suffixes and path.suffix in KEPT:
        raise InputError(f"{path} is the name of a model or of data, which {what} would write over: give another.")
    if any(other is not None and path.resolve() == other.resolve() for other in read):
        raise InputError(f"{path} is read by this command, and {what} would write over it: give another name.")
    if path.suffix == ".npy" and outputs and len(outputs) > 1:
        raise InputError(
            f"{path} holds one array, and the network has {len(outputs)} outputs ({', '.join(outputs)}): "
            "give a .npz file."
        )
    folder = path.absolute().parent
    if path.is_dir():
        raise InputError(f"{path} is a folder: give the name of a file in it.")
    if not folder.is_dir():
        raise InputError(f"{path} cannot be written: there is no folder {folder}. Make it first.")
    if not os.access(path if path.exists() else folder, os.W_OK):
        raise InputError(f"{path} cannot be written: you may not write there. Give another place.")


def write_outputs(path: Path, outputs: dict[str, np.ndarray]) -> None:
    """``.npz`` with one array per output, or ``.npy`` when there is one."""
    if path.suffix == ".npy" and len(outputs) == 1:
        np.save(path, next(iter(outputs.values())))
    else:
        arrays: dict[str, Any] = dict(outputs)
        np.savez(path, **arrays)

"""What users give as inputs, as arrays of float with the images in front."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hushnet import tables
from hushnet.errors import InputError, axes_hint
from hushnet.options import Inputs


def named_inputs(document: Mapping[str, Any], x: Inputs) -> dict[str, np.ndarray]:
    """An array for the only input, or a mapping from names to arrays, as arrays ``[images, ...]`` of float by name."""
    shapes = {i["name"]: document["tensors"][i["tensor"]]["shape"] for i in document["inputs"]}
    columns = {i["name"]: i.get("columns") for i in document["inputs"]}
    x = tables.by_input(x, list(shapes))
    if not isinstance(x, Mapping):
        if len(shapes) != 1:
            raise InputError(f"the network has inputs {', '.join(shapes)}: pass a dict with one array each")
        x = {next(iter(shapes)): x}
    missing = {i["name"]: i["missing"] for i in document["inputs"] if i.get("missing")}
    rows = {name: tables.arranged(value, columns.get(name)) for name, value in x.items()}
    images = {name: stacked(array(value), shapes.get(name, ())) for name, value in rows.items()}
    for name, value in images.items():
        # shapes without such a hint are refused by the run itself
        if hint := axes_hint(value.shape, shapes.get(name, value.shape[1:])):
            wanted = ", ".join(map(str, ("images", *shapes[name])))
            raise InputError(f"input {name!r} has shape {list(value.shape)}, wanted [{wanted}].{hint}")
    return {name: filled(value, missing.get(name)) for name, value in images.items()}


def array(value: Any) -> np.ndarray:
    """An array of numbers: of a sparse matrix, too, and of a table whose columns have several types."""
    x = np.asarray(value.toarray() if hasattr(value, "toarray") else value)
    if x.dtype != object:
        return x
    try:
        return x.astype(np.float64)
    except (TypeError, ValueError):
        # text: what reads the array says so
        return x


def filled(x: np.ndarray, missing: Sequence[float] | None) -> np.ndarray:
    """Images with what the model puts in the place of NaN."""
    if missing is None or x.dtype.kind != "f" or not np.isnan(x).any():
        return x
    values = np.asarray(missing, dtype=x.dtype)
    if values.size > 1 and values.size != math.prod(x.shape[1:]):
        return x
    return np.where(np.isnan(x), values if values.size == 1 else values.reshape(x.shape[1:]), x)


def stacked(x: np.ndarray, shape: Sequence[int]) -> np.ndarray:
    """Images of a shape: one alone gets the axis in front, and numbers of other types than float become float."""
    if x.shape == tuple(shape):
        x = x[None]
    if x.dtype.kind in "iub" or x.dtype == np.float16:
        # binary32 holds integers of 16 bits, binary64 those below 2^53
        x = x.astype(np.float32 if x.dtype.itemsize <= 2 else np.float64)
    return x

"""Frames of named columns (pandas, polars, and what is like them) as arrays: columns are found by their names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any

import numpy as np

from .errors import InputError

# names that a message lists
SHOWN = 5


def column_names(value: Any) -> tuple[str, ...]:
    """Names of a frame's columns; empty of what is no frame, or whose columns have no names but numbers."""
    if isinstance(value, (np.ndarray, Mapping)) or not hasattr(value, "columns") or not hasattr(value, "shape"):
        return ()
    names = tuple(value.columns)
    return names if names and all(isinstance(name, str) for name in names) else ()


def by_input(value: Any, inputs: Sequence[str]) -> Any:
    """A frame as a mapping, a column for each of several inputs; all else as it is.

    Raises:
        InputError: a column is missing, or no input has its name.
    """
    names = column_names(value)
    if len(inputs) < 2 or not names:
        return value
    check_names(names, inputs, "inputs")
    return {name: numbers(value, (name,)) for name in inputs}


def arranged(value: Any, wanted: Sequence[str] | None) -> Any:
    """A frame's numbers in the order that a model knows its columns in; all else as it is.

    Args:
        wanted: names of the columns that the model was fitted with; None where it has none.

    Raises:
        InputError: a column is missing or unknown, or holds no numbers.
    """
    names = column_names(value)
    if not names:
        return value
    if wanted is not None:
        check_names(names, wanted, "columns")
    return numbers(value, names if wanted is None else wanted)


def check_names(given: Sequence[str], wanted: Sequence[str], what: str) -> None:
    """Checks that two lists of names are equal but for their order.

    Raises:
        InputError: they are not; with the names.
    """
    missing, unknown = [n for n in wanted if n not in given], [n for n in given if n not in wanted]
    if len(set(given)) < len(given):
        twice = next(n for n in given if list(given).count(n) > 1)
        raise InputError(f"the table has two columns {twice!r}; give each column once.")
    if not missing and not unknown:
        return
    told = []
    if missing:
        told.append(f"the table lacks {_listed(missing)}")
    if unknown:
        near = get_close_matches(unknown[0], missing, 1)
        told.append(
            f"{'it' if missing else 'the table'} has {_listed(unknown)}, which the model does not know"
            + (f" (did you mean {near[0]!r}?)" if near else "")
        )
    raise InputError(
        f"{', and '.join(told)}. The model's {what} are {_listed(wanted)}: give exactly these, in any order, or an "
        "array of numbers in their order."
    )


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(repr(n) for n in names[:SHOWN])
    return shown + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")


def numbers(frame: Any, names: Sequence[str]) -> np.ndarray:
    """Columns of a frame as one array of binary64, missing values as NaN.

    Raises:
        InputError: a column holds no numbers.
    """
    return np.column_stack([_column(frame[name], name) for name in names])


def _column(series: Any, name: str) -> np.ndarray:
    kind = getattr(getattr(series, "dtype", None), "kind", "")
    try:
        if kind in ("m", "M"):
            raise TypeError
        try:
            return np.asarray(series.to_numpy(dtype="float64", na_value=np.nan))
        except (AttributeError, TypeError):
            return np.asarray(series, dtype=np.float64)
    except (TypeError, ValueError):
        what = "dates or times" if kind in ("m", "M") else "values that are no numbers"
        raise InputError(
            f"column {name!r} holds {what}. Models read numbers: encode the column as it was for the fit, or run the "
            "encoder on the client and compile what comes behind it."
        ) from None

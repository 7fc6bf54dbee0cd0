"""Options from what a caller gives: typed keyword arguments, checks, and suggestions for misspelt names."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Concatenate, ParamSpec, TypeVar

from hushnet.errors import OptionError, choose

from .option import table
from .trust import KINDS, ClientAided, Options

P = ParamSpec("P")
R = TypeVar("R")


def taking(kind: Callable[P, Options]) -> Callable[[Callable[..., R]], Callable[Concatenate[Any, P], R]]:
    """For type checkers: a function of one argument takes the fields of ``kind`` as keyword arguments besides."""
    del kind
    return lambda function: function


def taking_example(kind: Callable[P, Options]) -> Callable[[Callable[..., R]], Callable[Concatenate[Any, Any, P], R]]:
    """As :func:`taking`, for a function of two arguments."""
    del kind
    return lambda function: function


def takers(name: str) -> list[str]:
    """The trust models that have an option."""
    return [trust for trust, kind in KINDS.items() if name in table(kind)]


def made(trust: str, given: Mapping[str, Any]) -> Options:
    """The options of a trust model, checked one by one.

    Raises:
        OptionError: a name that the trust model does not have, with the nearest one and whose it is; a value of another
            type, or outside of its range.
    """
    kind = KINDS.get(trust) if isinstance(trust, str) else None
    if kind is None:
        raise OptionError(f"trust is {trust!r}; {choose(trust, KINDS)}.", "trust", trust)
    known = table(kind)
    unknown = sorted(name for name in given if name not in known)
    if unknown:
        said = " ".join([*(_unknown(n, trust) for n in unknown), f"The options are {_listed(known)}."])
        first, near = unknown[0], _nearest(unknown[0], trust)
        whose = takers(near or first)
        raise OptionError(said, first, given[first], trust=trust, takes=whose, nearest=near)
    for name, value in given.items():
        try:
            known[name].check(value)
        except OptionError as error:
            error.trust, error.takes = trust, tuple(takers(name))
            raise
    make: Any = kind
    return make(trust=trust, **given)


def _listed(names: Mapping[str, Any]) -> str:
    return ", ".join(sorted([*names, "trust"]))


def _unknown(name: str, trust: str) -> str:
    """What to do about a name that the trust model does not have."""
    if whose := takers(name):
        return f"There is no option {name!r} with trust={trust!r}. {_taken(whose)}"
    if near := _nearest(name, trust):
        return f"There is no option {name!r}: did you mean {near!r}? {_taken(takers(near))}"
    return f"There is no option {name!r}."


def _nearest(name: str, trust: str) -> str:
    """The option that was probably meant, of the trust model before all others; "" where the name exists or none is."""
    if takers(name):
        return ""
    everywhere = dict.fromkeys(n for kind in (KINDS[trust], *KINDS.values()) for n in table(kind))
    for names in (table(KINDS[trust]), everywhere):
        if near := difflib.get_close_matches(name, names, n=1):
            return near[0]
    return ""


def _taken(whose: Sequence[str]) -> str:
    if len(whose) == len(KINDS):
        return "Plans of every trust model take it."
    return f"{' and '.join(whose).capitalize()} plans take it."


def signature(function: Callable[..., Any]) -> inspect.Signature:
    """The signature of a function whose ``**options`` are those of all trust models, each by name."""
    own = inspect.signature(function)
    given = [p for p in own.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
    names = [p.name for p in given]
    known = {"trust": ClientAided.trust} | {n: f.default for kind in KINDS.values() for n, f in table(kind).items()}
    more = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default)
        for name, default in known.items()
        if name not in names
    ]
    return own.replace(parameters=[*given, *more])

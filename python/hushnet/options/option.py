"""What is known of an option: its text, unit, range and flag; and the fields of a class of options."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import MISSING, dataclass, fields, replace
from numbers import Integral, Real
from types import UnionType
from typing import Any, Literal, Union
from typing import get_args as arguments
from typing import get_origin as origin
from typing import get_type_hints as type_hints

import numpy as np

from hushnet.errors import OptionError


@dataclass(frozen=True)
class Option:
    """What is known of an option beside its name, type and default.

    Attributes:
        about: what it does, as sentences.
        unit: what its number counts; "" of other values.
        least, most: the range of its number, ends included; None where there is no end.
        above: the range of its number, without this end.
        without: what holds where the default is None.
        choices: its values, where the type does not name them.
        flag: its name on the command line; "" where only Python has it.
        there: the unit of the command line, and how many of ``unit`` it is.
    """

    about: str
    unit: str = ""
    least: float | None = None
    most: float | None = None
    above: float | None = None
    without: str = ""
    choices: tuple[str, ...] = ()
    flag: str = ""
    there: tuple[str, float] | None = None

    def wanted(self, values: Sequence[Any], kinds: Sequence[type]) -> str:
        """What to give, in words."""
        if values and not set(kinds) & {int, float}:
            return f"choose one of {', '.join(map(str, values))}"
        whole = "a whole number" if float not in kinds else "a number"
        of = f" of {self.unit}" if self.unit else ""
        if self.least == 1 and self.most is None:
            said = f"a positive {whole.removeprefix('a ')}{of}"
        elif self.above is not None:
            said = f"{whole}{of}, more than {self.above:g} and at most {self.most:g}"
        elif self.least is not None and self.most is not None:
            said = f"{whole}{of} from {self.least:g} to {self.most:g}"
        else:
            said = f"{whole}{of}" + (f" of at least {self.least:g}" if self.least is not None else "")
        return f"give {said}" + "".join(f", or {value!r}" for value in values)

    def holds(self, number: float) -> bool:
        """Whether a number is in the range."""
        return (
            (self.least is None or number >= self.least)
            and (self.most is None or number <= self.most)
            and (self.above is None or number > self.above)
        )


@dataclass(frozen=True)
class Field:
    """An option of one trust model.

    Attributes:
        kinds: types that its value may have.
        values: strings, numbers or None that stand for themselves.
    """

    name: str
    option: Option
    default: Any
    kinds: tuple[Any, ...]
    values: tuple[Any, ...]

    @property
    def numbers(self) -> tuple[type, ...]:
        """Types of numbers that its value may have."""
        return tuple(k for k in self.kinds if k in (int, float))

    @property
    def default_said(self) -> str:
        """The default in words."""
        if self.default is None:
            return self.option.without
        if isinstance(self.default, bool):
            return "yes" if self.default else "no"
        if self.option.there and self.default % self.option.there[1] == 0:
            return f"{self.default / self.option.there[1]:g} {self.option.there[0]}"
        return str(self.default)

    def check(self, value: Any) -> None:
        """OptionError where the value is of another type or outside of its range."""
        if value is None and self.default is None:
            return
        names = [v for v in (*self.values, *self.option.choices) if v is not None]
        numbers = self.numbers
        if any(value is v or (type(value) is type(v) and value == v) for v in names):
            return
        plain = isinstance(value, Real) and not isinstance(value, (bool, np.bool_))
        if numbers and plain and (float in numbers or isinstance(value, Integral)) and self.option.holds(float(value)):
            return
        if numbers or names:
            raise self._wrong(value, self.option.wanted(names, numbers))
        if self.kinds == (bool,) and not isinstance(value, bool):
            raise self._wrong(value, "give True or False")
        if self.kinds == (str,) and not isinstance(value, str):
            raise self._wrong(value, "give a string")

    def _wrong(self, value: Any, wanted: str) -> OptionError:
        return OptionError(f"{self.name} is {value!r}; {wanted}.", self.name, value)


# of the classes that were asked for
_TABLES: dict[type, dict[str, Field]] = {}


def table(kind: Any) -> dict[str, Field]:
    """The options of a class by name, in their order there."""
    if kind not in _TABLES:
        _TABLES[kind] = _fields(kind)
    return _TABLES[kind]


def _fields(kind: Any) -> dict[str, Field]:
    hints, found = type_hints(kind, include_extras=True), {}
    for entry in fields(kind):
        if entry.name == "trust":
            continue
        annotated = hints[entry.name]
        hint, option = arguments(annotated)
        members = arguments(hint) if origin(hint) in (Union, UnionType) else (hint,)
        values = tuple(v for m in members if origin(m) is Literal for v in arguments(m))
        kinds = tuple(m for m in members if origin(m) is not Literal and m is not type(None))
        assert entry.default is not MISSING
        if entry.name == "batch":
            option = replace(option, without=str(kind.usual_batch))
        found[entry.name] = Field(entry.name, option, entry.default, kinds, values)
    return found

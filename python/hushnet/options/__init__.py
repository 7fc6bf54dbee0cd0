"""The options of ``compile`` by trust model: the one place for names, types, ranges, units, defaults and texts.

A trust model's options are a dataclass (:mod:`.trust`). From its fields follow the keyword arguments of
:func:`hushnet.compile` (:func:`taking`), the checks of values and the suggestions for misspelt names (:func:`made`),
``--help`` of the command line with its panels, and the tables of ``docs/options.md`` (:func:`document`).
"""

from .made import made, signature, takers, taking, taking_example
from .option import Field, Option, table
from .text import document, groups, help_text, merged
from .trust import (
    DEFAULT_BITS,
    KINDS,
    READING,
    ClientAided,
    FixedPoint,
    Inputs,
    NonInteractive,
    Options,
    Shapes,
    Trust,
    TwoParty,
)

__all__ = [
    "DEFAULT_BITS", "KINDS", "READING", "ClientAided", "Field", "FixedPoint", "Inputs", "NonInteractive", "Option",
    "Options", "Shapes", "Trust", "TwoParty", "document", "groups", "help_text", "made", "merged", "signature", "table",
    "takers", "taking", "taking_example",
]  # fmt: skip

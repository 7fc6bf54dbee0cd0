"""The table of all layers, and what its columns mean."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..units import seconds, size
from .markup import Safe, element, joined, name, short
from .steps import Step


@dataclass(frozen=True)
class Column:
    """A column: its head, what it means, and its text for a step; empty everywhere, it is left out."""

    head: str
    means: str
    text: Callable[[Step], str]
    left: bool = False


def _size(count: int | None) -> str:
    return size(count) if count else ""


def _seconds(value: float | None) -> str:
    return seconds(value) if value else ""


COLUMNS = (
    Column("layer", "the node of the model", lambda s: short(s.name, 44), left=True),
    Column("who", "who works: the client, the server, or both on shares", lambda s: s.side, left=True),
    Column("what", "the shapes of a linear layer, or what is computed", lambda s: s.what, left=True),
    Column(
        "method", "how: the linear method, the protocol, or the level of the ciphertexts", lambda s: s.method, left=True
    ),
    Column("up", "bytes that the client sends, predicted", lambda s: _size(s.up)),
    Column("down", "bytes that the server sends, predicted", lambda s: _size(s.down)),
    Column("rounds", "messages that wait for each other", lambda s: str(s.rounds or "")),
    Column("time", "seconds of both parties, predicted", lambda s: _seconds(s.seconds)),
    Column("measured", "seconds of the run that the trace tells", lambda s: _seconds(s.measured)),
    Column(
        "measured bytes", "bytes of that run, both ways", lambda s: _size((s.measured_up or 0) + (s.measured_down or 0))
    ),
    Column(
        "error",
        "likely error behind the layer, as a share of its range",
        lambda s: f"{100 * s.error:.2g} %" if s.error else "",
    ),
    Column("memory", "bytes that the layer needs on the side that needs more", lambda s: _size(s.memory)),
)


def table(found: Sequence[Step]) -> Safe:
    """All layers, and the meaning of the columns that are shown."""
    shown = [c for c in COLUMNS if any(c.text(s) for s in found)]
    head = element("tr", *(element("th", c.head, class_=_class(c)) for c in shown))
    rows = [
        element("tr", *(element("td", name(c.text(s)) if c.left else c.text(s), class_=_class(c)) for c in shown))
        for s in found
    ]
    meanings = joined(joined([element("dt", c.head), element("dd", c.means)]) for c in shown)
    whole = element("table", element("thead", head), element("tbody", *rows))
    return joined([element("div", whole, class_="rows"), element("dl", meanings)])


def _class(column: Column) -> str | None:
    return "l t" if column.head == "what" else "l" if column.left else None

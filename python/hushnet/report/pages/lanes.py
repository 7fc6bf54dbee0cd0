"""The picture of a run: the client's lane, the server's, and what crosses between them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from .markup import Safe, element, joined, short
from .steps import Step, folded

WIDTH = 1000
CLIENT, SERVER, BOX = 170, 830, 300
# rows of the picture: a network of more layers is drawn in groups
MOST = 26

Format = Callable[[float], str]


def lanes(found: Sequence[Step], setup: Setup, size: Format, seconds: Format) -> Safe:
    """The steps from top to bottom; ``setup`` is what is sent once a session."""
    rows = folded(found, MOST)
    parts: list[Safe] = []
    y = 64.0
    largest = max([1, setup.up, setup.down, setup.both, *(v for s in rows for v in (s.up, s.down))])
    if setup.up or setup.down:
        parts.append(_arrows(y + 4, CLIENT + 6, SERVER - 6, (setup.up, setup.down), size, largest))
    if setup.both:
        thick = _thick(setup.both, largest)
        parts.append(_arrow(y + 28, WIDTH / 2, CLIENT + 6, "both", "", thick))
        parts.append(_arrow(y + 28, WIDTH / 2, SERVER - 6, "both", f"{size(setup.both)} both ways", thick))
    if setup != Setup():
        parts.append(element("text", "set-up, once a session", x=WIDTH / 2, y=y + 52, class_="dim small mid"))
        y += 66
    for step in rows:
        height, drawn = _row(y, step, size, seconds, largest)
        parts.append(drawn)
        y += height
    bottom = y + 4
    lives = [element("line", x1=x, x2=x, y1=46, y2=bottom, class_="life") for x in (CLIENT, SERVER)]
    heads = [_head(CLIENT, "Client", "client"), _head(SERVER, "Server", "server")]
    drawing = element(
        "svg",
        *lives,
        *heads,
        *parts,
        viewBox=f"0 0 {WIDTH} {bottom + 6:.0f}",
        role="img",
        aria_label="What client and server compute, and what they send each other",
    )
    return element("div", drawing, class_="wide")


@dataclass(frozen=True)
class Setup:
    """Bytes that are sent once a session: by the client, by the server, and those of which only the sum is known."""

    up: int = 0
    down: int = 0
    both: int = 0


def setup_of(totals: Mapping[str, Any]) -> Setup:
    """The set-up of a session, of any trust model."""
    if "setup_bytes" in totals:
        return Setup(both=int(totals["setup_bytes"]))
    return Setup(int(totals.get("setup_bytes_up", 0)), int(totals.get("setup_bytes_down", 0)))


def _head(x: int, text: str, side: str) -> Safe:
    return joined(
        [
            element("rect", x=x - BOX / 2, y=8, width=BOX, height=36, rx=9, class_=f"c-{side}"),
            element("text", text, x=x, y=31, class_="head mid", style="fill:var(--paper)"),
        ]
    )


def _row(y: float, step: Step, size: Format, seconds: Format, largest: int) -> tuple[float, Safe]:
    """A step at height ``y``: its height and its drawing."""
    time = None if step.seconds is None and step.measured is None else seconds(_time(step))
    left = CLIENT + (BOX / 2 if step.side != "server" else 6)
    right = SERVER - (BOX / 2 if step.side != "client" else 6)
    parts = []
    if step.side in ("client", "both"):
        parts.append(_box(CLIENT, y, _half(step, "client"), time))
    if step.side in ("server", "both"):
        parts.append(_box(SERVER, y, _half(step, "server"), time))
    parts.append(_arrows(y, left, right, (step.up, step.down), size, largest))
    if step.rounds > 1:
        parts.append(element("text", f"{step.rounds} rounds", x=WIDTH / 2, y=y + 54, class_="dim small mid"))
    title = f"{step.name}: {step.what}; {size(step.up)} up, {size(step.down)} down"
    return 64 if step.sends else 52, element("g", element("title", title), *parts)


def _half(step: Step, side: str) -> Step:
    """What one party does in a row of several layers."""
    done = step.client if side == "client" else step.server
    return replace(step, what=done, side=side) if step.count > 1 and step.side == "both" else step


def _time(step: Step) -> float:
    """Predicted seconds, or those of a run where none are predicted."""
    return step.seconds if step.seconds is not None else step.measured or 0.0


def _box(x: int, y: float, step: Step, time: str | None) -> Safe:
    start, end = x - BOX / 2, x + BOX / 2
    parts = [
        element("rect", x=start, y=y, width=BOX, height=42, rx=8, class_=f"b-{step.side}"),
        element("text", short(step.name, 38 if time is None else 29), x=start + 12, y=y + 17, class_="name"),
        element("text", short(step.what, 44), x=start + 12, y=y + 33, class_="dim small"),
    ]
    if time is not None:
        parts.append(element("text", time, x=end - 12, y=y + 17, class_="dim small end"))
    return joined(parts)


def _arrows(y: float, left: float, right: float, sent: tuple[int, int], size: Format, largest: int) -> Safe:
    """What the client sends (to the right) above what the server sends (to the left)."""
    up, down = sent
    both = up > 0 and down > 0
    parts = []
    if up > 0:
        parts.append(_arrow(y + (15 if both else 24), left, right, "client", size(up), _thick(up, largest)))
    if down > 0:
        parts.append(_arrow(y + (37 if both else 24), right, left, "server", size(down), _thick(down, largest)))
    return joined(parts)


def _arrow(y: float, start: float, end: float, side: str, label: str, thick: float) -> Safe:
    sign = 1 if end > start else -1
    tip = end - sign * 12
    points = f"{end},{y} {tip},{y - 7} {tip},{y + 7}"
    return joined(
        [
            element("line", x1=start, x2=tip, y1=y, y2=y, class_=f"s-{side}", stroke_width=f"{thick:.1f}"),
            element("polygon", points=points, class_=f"c-{side}"),
            element("text", label, x=WIDTH / 2, y=y - 5 - thick / 2, class_="small mid"),
        ]
    )


def _thick(count: int, largest: int) -> float:
    """1 to 6 pixels, by the logarithm of bytes."""
    return 1 + 5 * max(0.0, 1 + math.log10(count / largest) / 4)

"""Charts by layer as inline SVG: bytes each way, seconds, growth of errors; and bars of shares."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from .markup import Safe, element, joined, short
from .steps import Step

WIDTH, LEFT, RIGHT = 1000, 84, 14
# columns of one chart; more layers are drawn several as one
MOST = 120
# names below a chart
_NAMED = 20
_BELOW = 74

Format = Callable[[float], str]


def traffic(found: Sequence[Step], size: Format) -> Safe:
    """Bytes of every step: the client's upward, the server's downward, those of a run as outlines."""
    half = 96.0
    seen = [v for s in found for v in (s.measured_up, s.measured_down) if v is not None]
    most = max([1, *(v for s in found for v in (s.up, s.down)), *seen])
    axis = half + 14
    parts = [_grid(axis - half, size(most)), _grid(axis, "0"), _grid(axis + half, size(most))]
    for place, (x, width, step) in enumerate(_columns(found)):
        up, down = half * step.up / most, half * step.down / most
        title = f"{step.name}: {size(step.up)} up, {size(step.down)} down"
        bars = [_bar(x, axis - up, width, up, "c-client"), _bar(x, axis, width, down, "c-server")]
        if step.measured_up is not None and step.measured_down is not None:
            bars.append(_outline(x, axis - half * step.measured_up / most, width, half * step.measured_up / most))
            bars.append(_outline(x, axis, width, half * step.measured_down / most))
            title += f"; measured {size(step.measured_up)} up, {size(step.measured_down)} down"
        parts.append(element("g", element("title", title), *bars))
        parts.append(_label(found, place, x + width / 2, axis + half + 14))
    return _svg("Bytes by layer", parts, axis + half + _BELOW)


def times(found: Sequence[Step], seconds: Format) -> Safe:
    """Predicted seconds of every step, and those of a run as outlines."""
    height = 150.0
    most = max([1e-9, *(v for s in found for v in (s.seconds, s.measured) if v is not None)])
    base = height + 14
    parts = [_grid(base - height, seconds(most)), _grid(base - height / 2, seconds(most / 2)), _grid(base, "0")]
    for place, (x, width, step) in enumerate(_columns(found)):
        title, bars = step.name, []
        if step.seconds is not None:
            bars.append(
                _bar(x, base - height * step.seconds / most, width, height * step.seconds / most, f"c-{step.side}")
            )
            title += f": {seconds(step.seconds)} predicted"
        if step.measured is not None:
            bars.append(_outline(x, base - height * step.measured / most, width, height * step.measured / most))
            title += f", {seconds(step.measured)} measured"
        parts.append(element("g", element("title", title), *bars))
        parts.append(_label(found, place, x + width / 2, base + 14))
    return _svg("Seconds by layer", parts, base + _BELOW)


def errors(found: Sequence[Step], asked: float | None) -> Safe:
    """The likely error after every step as a share of the step's range, on a logarithmic scale."""
    height, top = 170.0, 14.0
    known = [s.error for s in found if s.error]
    span = [*known, *([2.0**-asked] if asked is not None else [])]
    high = math.ceil(math.log10(max(span)) + 1e-9)
    low = min(math.floor(math.log10(min(span))), high - 1)
    every = max(1, (high - low + 6) // 7)

    def place_of(share: float) -> float:
        return top + height * (high - math.log10(share)) / (high - low)

    parts = [_grid(place_of(10.0**power), _share(10.0**power)) for power in range(low, high + 1, every)]
    if asked is not None:
        y = place_of(2.0**-asked)
        parts.append(element("line", x1=LEFT, x2=WIDTH - RIGHT, y1=_n(y), y2=_n(y), class_="mark"))
        parts.append(
            element(
                "text",
                f"precision asked for: 2^-{asked:g} of the output's range",
                x=WIDTH - RIGHT,
                y=_n(y - 5),
                class_="dim small end",
            )
        )
    points, dots = [], []
    for place, (x, width, step) in enumerate(_columns(found)):
        parts.append(_label(found, place, x + width / 2, top + height + 14))
        if step.error:
            centre, y = x + width / 2, place_of(step.error)
            points.append(f"{_n(centre)},{_n(y)}")
            dots.append(
                element(
                    "circle",
                    element("title", f"{step.name}: {_share(step.error)} of its range"),
                    cx=_n(centre),
                    cy=_n(y),
                    r=3.5 if len(found) <= 60 else 2,
                    class_="c-both",
                )
            )
    parts.append(element("polyline", points=" ".join(points), class_="line s-both"))
    return _svg("Error by layer", [*parts, *dots], top + height + _BELOW)


def shares(rows: Sequence[tuple[str, float, str]]) -> Safe:
    """Horizontal bars of shares from 0 to 1: label, share, class of the bar."""
    parts, left, width = [], 190, 700
    for place, (label, share, kind) in enumerate(rows):
        y = 6 + 30 * place
        parts += [
            element("text", label, x=left - 12, y=y + 14, class_="end"),
            element("rect", x=left, y=y, width=width, height=18, rx=5, class_="track"),
            element("rect", x=left, y=y, width=_n(width * min(1.0, max(0.0, share))), height=18, rx=5, class_=kind),
            element("text", f"{100 * share:.4g} %", x=left + width + 12, y=y + 14, class_="name"),
        ]
    return _svg("Accuracy and agreement", parts, 12 + 30 * len(rows))


def _columns(found: Sequence[Step]) -> list[tuple[float, float, Step]]:
    each = (WIDTH - LEFT - RIGHT) / max(1, len(found))
    width = min(54.0, each * 0.68)
    return [(LEFT + each * (i + 0.5) - width / 2, width, step) for i, step in enumerate(found)]


def _label(found: Sequence[Step], place: int, x: float, y: float) -> Safe:
    """The name below a column; of many columns, of every few."""
    if place % max(1, -(-len(found) // _NAMED)):
        return Safe("")
    text = short(found[place].name, 17)
    return element("text", text, transform=f"translate({_n(x)} {_n(y)}) rotate(-32)", class_="dim small end")


def _grid(y: float, label: str) -> Safe:
    return joined(
        [
            element("line", x1=LEFT, x2=WIDTH - RIGHT, y1=_n(y), y2=_n(y), class_="grid"),
            element("text", label, x=LEFT - 8, y=_n(y + 4), class_="dim small end"),
        ]
    )


def _bar(x: float, y: float, width: float, height: float, kind: str) -> Safe:
    # what is not nothing is seen
    shown = max(height, 1.0) if height > 0 else 0.0
    return element("rect", x=_n(x), y=_n(y), width=_n(width), height=_n(shown), class_=kind)


def _outline(x: float, y: float, width: float, height: float) -> Safe:
    return element("rect", x=_n(x - 2), y=_n(y), width=_n(width + 4), height=_n(height), class_="measured")


def _svg(label: str, parts: Sequence[Safe], height: float) -> Safe:
    drawing = element("svg", *parts, viewBox=f"0 0 {WIDTH} {_n(height)}", role="img", aria_label=label)
    return element("div", drawing, class_="wide")


def _share(share: float) -> str:
    return f"{100 * share:.3g} %"


def _n(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")

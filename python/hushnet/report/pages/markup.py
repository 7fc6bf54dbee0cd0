"""Elements of HTML and SVG with every text and attribute escaped."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable

# what no document may hold: control characters, and halves of surrogate pairs
_FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
# elements without an end
_VOID = frozenset({"meta", "br"})


class Safe(str):
    """Markup that is escaped already."""

    __slots__ = ()


def escaped(text: object) -> Safe:
    """A text as markup shows it; markup stays as it is."""
    if isinstance(text, Safe):
        return text
    return Safe(html.escape(_FORBIDDEN.sub("\N{REPLACEMENT CHARACTER}", str(text)), quote=True))


def element(tag: str, *children: object, **attributes: object) -> Safe:
    """An element; attributes that are None are left out, and ``class_`` and ``stroke_width`` lose or turn their bar."""
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escaped(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    if tag in _VOID:
        return Safe(f"<{tag}{given}>")
    return Safe(f"<{tag}{given}>{''.join(map(escaped, children))}</{tag}>")


def name(text: object) -> Safe:
    """A name out of a model: its direction of writing turns nothing around it."""
    return element("bdi", text)


def joined(parts: Iterable[Safe]) -> Safe:
    """Several elements one behind the other."""
    return Safe("".join(parts))


def short(text: str, most: int) -> str:
    """A text of at most ``most`` characters, its middle left out."""
    if len(text) <= most:
        return text
    front = (most - 1) // 2
    return f"{text[:front]}\N{HORIZONTAL ELLIPSIS}{text[front + 1 - most :]}"

"""Bytes and seconds with their units, as people read them."""

from __future__ import annotations


def size(count: float) -> str:
    """Bytes with a binary unit."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1024 or unit == "GiB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.2f} {unit}"
        count /= 1024
    raise AssertionError("unreachable: the last unit always returns")


def seconds(value: float) -> str:
    """Seconds with a metric unit."""
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if abs(value) * factor >= 1 or unit == "us":
            return f"{value * factor:.2f} {unit}"
    raise AssertionError("unreachable: the last unit always returns")

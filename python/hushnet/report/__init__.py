"""Explains a plan: who learns what, and per layer method, parameters, range, precision, bytes, time and memory.

What a name needs is imported when the name is first used: tables of the command line need no planner.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .explaining import explain
    from .explanation import Explanation
    from .pages import page
    from .rendering import render, trust_text
    from .steps import Step, expected

__all__ = ["Explanation", "Step", "expected", "explain", "page", "render", "trust_text"]

# Where the names above stand.
_HOMES = {
    "Explanation": "explanation",
    "Step": "steps",
    "expected": "steps",
    "explain": "explaining",
    "page": "pages",
    "render": "rendering",
    "trust_text": "rendering",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'hushnet.report' has no attribute {name!r}")
    found = getattr(import_module(f"hushnet.report.{_HOMES[name]}"), name)
    globals()[name] = found
    return found

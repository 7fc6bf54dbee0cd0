"""Explains a plan: who learns what, and per layer method, parameters, range, precision, bytes, time and memory."""

from .expected import Step, expected
from .explain import explain
from .explanation import Explanation
from .pages import page
from .render import render, trust_text

__all__ = ["Explanation", "Step", "expected", "explain", "page", "render", "trust_text"]

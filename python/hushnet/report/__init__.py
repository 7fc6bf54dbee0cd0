"""Explains a plan: who learns what, and per layer method, parameters, range, precision, bytes, time and memory."""

from .explain import explain
from .explanation import Explanation
from .render import render, trust_text

__all__ = ["Explanation", "explain", "render", "trust_text"]

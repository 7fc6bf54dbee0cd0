"""Explains a plan: who learns what, and per layer method, parameters, range, precision, bytes, time and memory."""

from .explain import explain
from .render import render

__all__ = ["explain", "render"]

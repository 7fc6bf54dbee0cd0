"""Operators of ONNX Runtime's own domain; importing this package fills :data:`hushnet.frontend.contrib.rules.RULES`."""

from __future__ import annotations

from . import attention, fused, quantised
from .rules import DOMAIN, READERS, RULES, Operand, known, standard

__all__ = ["DOMAIN", "READERS", "RULES", "Operand", "attention", "fused", "known", "quantised", "standard"]

"""Graph and calibration data to plan: ranges, fixed point, parameters, tiles, cost and predicted error."""

from .beside import beside_file
from .compile import compile, plan
from .cost import UnitCosts
from .read import load, read, validate

__all__ = ["UnitCosts", "beside_file", "compile", "load", "plan", "read", "validate"]

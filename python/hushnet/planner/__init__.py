"""Graph and calibration data to plan: ranges, fixed point, parameters, tiles, cost and predicted error."""

from .compile import Calibration, Options, compile
from .cost import UnitCosts
from .read import load, read, validate

__all__ = ["Calibration", "Options", "UnitCosts", "compile", "load", "read", "validate"]

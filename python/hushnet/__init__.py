"""Run a trained neural network on inputs that the server never sees."""

from hushnet.api import Connection, Model, Result, check, compile, connect, run, serve
from hushnet.calibrate import calibrate
from hushnet.errors import HushnetError, InputError, PlanError, ProtocolError, RangeError, TransportError

__all__ = [
    "Connection", "HushnetError", "InputError", "Model", "PlanError", "ProtocolError", "RangeError", "Result",
    "TransportError", "calibrate", "check", "compile", "connect", "run", "serve",
]  # fmt: skip

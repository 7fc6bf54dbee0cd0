"""Run a trained neural network on inputs that the server never sees."""

from hushnet.api import check, compile, from_sklearn, from_torch
from hushnet.compare import compare
from hushnet.errors import (
    BlockedPlan,
    DataError,
    DemoError,
    HushnetError,
    InputError,
    LimitError,
    OptionError,
    PlanError,
    PreparedError,
    ProtocolError,
    RangeError,
    TransportError,
    ZooError,
)
from hushnet.frontend import ModelError, UnsupportedModel
from hushnet.machine import measure_machine
from hushnet.model import Model
from hushnet.result import Result
from hushnet.serving import serve
from hushnet.sessions import Connection, connect, run

__all__ = [
    "BlockedPlan", "Connection", "DataError", "DemoError", "HushnetError", "InputError", "LimitError", "Model",
    "ModelError", "OptionError", "PlanError", "PreparedError", "ProtocolError", "RangeError", "Result",
    "TransportError", "UnsupportedModel", "ZooError", "check", "compare", "compile", "connect", "from_sklearn",
    "from_torch", "measure_machine", "run", "serve",
]  # fmt: skip


def __getattr__(name: str) -> object:
    if name == "calibrate":
        raise AttributeError(
            "hushnet.calibrate is now hushnet.measure_machine: it measures unit costs, while `calibration` names "
            "sample inputs."
        )
    raise AttributeError(f"module 'hushnet' has no attribute {name!r}")

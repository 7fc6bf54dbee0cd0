"""Run a trained neural network on inputs that the server never sees.

What a name needs is imported when the name is first used: a server, or a client, starts without the reader of models.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

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

if TYPE_CHECKING:
    from hushnet.api import check, compile, from_sklearn, from_torch
    from hushnet.comparison import compare
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

# Where the names above stand that the errors are not among.
_HOMES = {
    **dict.fromkeys(("check", "compile", "from_sklearn", "from_torch"), "api"),
    "compare": "comparison",
    **dict.fromkeys(("ModelError", "UnsupportedModel"), "frontend"),
    "measure_machine": "machine",
    "Model": "model",
    "Result": "result",
    "serve": "serving",
    **dict.fromkeys(("Connection", "connect", "run"), "sessions"),
}
# Modules that are there without an import of their own.
_MODULES = {
    *_HOMES.values(),
    *("arrays", "frontend", "graph", "options", "passes", "plan", "planner", "reference", "report", "tables"),
    "webpage",
}


def __getattr__(name: str) -> object:
    if name in _HOMES:
        found = getattr(import_module(f"hushnet.{_HOMES[name]}"), name)
        globals()[name] = found
        return found
    if name in _MODULES:
        return import_module(f"hushnet.{name}")
    if name == "calibrate":
        raise AttributeError(
            "hushnet.calibrate is now hushnet.measure_machine: it measures unit costs, while `calibration` names "
            "sample inputs."
        )
    raise AttributeError(f"module 'hushnet' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

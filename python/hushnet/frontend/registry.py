"""The table of operators: ONNX operator name -> function that lowers a node to the graph.

To add an operator, write one function in a module of ``operators/``::

    @operator("Softsign")
    def softsign(call: Call, build: Builder) -> Value:
        x = call.tensor(0)
        return build.client("div", x, build.affine(build.client("abs", x), 1.0, 1.0))

It returns the value (or a list of values) of the node's outputs and raises :class:`~hushnet.frontend.errors.Unsupported`
for what it cannot do. Nodes whose inputs are all constant never get here: the driver folds them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Union

if TYPE_CHECKING:
    from .builder import Builder, Value
    from .call import Call

Lowering = Callable[["Call", "Builder"], Union["Value", list["Value"]]]


@dataclass(frozen=True)
class Operator:
    """A lowering; ``batch_anywhere``: it takes tensors whose batch axis is not the first."""

    lower: Lowering
    batch_anywhere: bool = False


OPERATORS: dict[str, Operator] = {}


def operator(*names: str, batch_anywhere: bool = False) -> Callable[[Lowering], Lowering]:
    """Registers a lowering under one or more ONNX operator names."""

    def register(lower: Lowering) -> Lowering:
        for name in names:
            if name in OPERATORS:
                raise ValueError(f"operator {name} is registered twice")
            OPERATORS[name] = Operator(lower, batch_anywhere)
        return lower

    return register

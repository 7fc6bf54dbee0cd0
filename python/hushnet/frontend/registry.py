"""The table of operators: ONNX operator name -> function that lowers a node to the graph.

To add an operator, write one function in a module of ``operators/``::

    @operator("Softsign")
    def softsign(call: Call, build: Builder) -> Value:
        x = call.tensor(0)
        return build.client("div", x, build.affine(build.client("abs", x), 1.0, 1.0))

It returns the value (or a list of values) of the node's outputs and raises
:class:`~hushnet.frontend.errors.Unsupported` for what it cannot do. Nodes whose inputs are all constant never get here:
the driver folds them.

A lowering declares the attributes and inputs that it knows by asking for them (``call.attribute``, ``call.tensor``,
``call.constant``, ``call.has`` ...). An attribute that a node has, that differs from ONNX's default and that the
lowering did not ask for is refused, so is an input: a newer version of the operator may have brought it. :data:`INERT`
names those that say nothing about inference. Versions of operators newer than :data:`NEWEST_OPSET` are refused.

Shapes and axes are per image. Where a graph treats its first axis as any other (``frontend/whole.py``), an image is the
whole ONNX
tensor: nodes are rewritten, so that lowerings see a batch of 1 in front of it. An operator that ``whole.py`` does not
name is lowered image by image.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Union

if TYPE_CHECKING:
    import numpy as np

    from .builder import Builder, Value
    from .call import Call

Lowering = Callable[["Call", "Builder"], Union["Value", list["Value"], "np.ndarray"]]

# the operators of this opset have been read; one that a later opset changed is refused until its lowering has been read
# again
NEWEST_OPSET = 28

# attributes by name and inputs by index that say nothing about inference
INERT: dict[str, frozenset[str | int]] = {
    # with axes this says nothing, and without them a reduction asks for it
    **dict.fromkeys(
        [
            f"Reduce{kind}"
            for kind in ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")
        ],
        frozenset({"noop_with_empty_axes"}),
    ),
    "BatchNormalization": frozenset({"momentum"}),
    "Cast": frozenset({"saturate", "round_mode"}),
    "CastLike": frozenset({"saturate", "round_mode", 1}),
    "Dropout": frozenset({"seed", "ratio", 1}),
    "GroupNormalization": frozenset({"stash_type"}),
    "LayerNormalization": frozenset({"stash_type"}),
    "MaxPool": frozenset({"storage_order"}),
    "RMSNormalization": frozenset({"stash_type"}),
    "Split": frozenset({"num_outputs"}),
}


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

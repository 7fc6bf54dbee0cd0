"""Operators of the domain com.microsoft, written with standard ones.

ONNX Runtime's optimiser and its quantisation tools write them into the files that packages ship. Each becomes a few
standard nodes in the place of the node, so that types, shapes, constants and whole tensors are those of any other node.
A rule asks for the attributes and inputs that it knows; a node that has others is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import helper

from ..errors import Unsupported
from ..expand import Expansion

DOMAIN = "com.microsoft"
# what ONNX Runtime takes where an attribute does not say: added to scores that a mask hides
HIDDEN = -10000.0


@dataclass(frozen=True)
class Operand:
    """An input of a node: its tensor's name, ONNX shape and element type, and its value where it is constant."""

    name: str
    shape: tuple[int, ...]
    kind: int
    value: np.ndarray | None = None


class Writer:
    """The standard nodes that take the place of one node. Their results get the names of its outputs."""

    def __init__(self, node: onnx.NodeProto, operands: Sequence[Operand | None], wanted: frozenset[str]):
        self.node = node
        self.operands = list(operands)
        self.wanted = [name if name in wanted else "" for name in node.output]
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, np.ndarray] = {}
        self._attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        self._asked: set[str | int] = set()

    def attribute(self, name: str, default: Any = None) -> Any:
        """The attribute's value, strings decoded."""
        self._asked.add(name)
        value = self._attributes.get(name, default)
        return value.decode("utf-8", "replace") if isinstance(value, bytes) else value

    def given(self, index: int) -> Operand | None:
        """An input, or None where it is not given."""
        self._asked.add(index)
        return self.operands[index] if index < len(self.operands) else None

    def operand(self, index: int) -> Operand:
        """An input that must be given."""
        found = self.given(index)
        if found is None:
            raise Unsupported(f"input {index} is missing", "Export the model again.")
        return found

    def name(self, index: int) -> str:
        """The tensor of an input that must be given."""
        return self.operand(index).name

    def fixed(self, index: int) -> np.ndarray:
        """The value of an input that must be constant."""
        found = self.operand(index)
        if found.value is None:
            raise Unsupported(
                f"input {index} ({found.name}) is computed from the network's input, and must be constant here",
                "Make it an initializer.",
            )
        return found.value

    def constant(self, value: Any, kind: Any = np.float32) -> str:
        """A constant of the new nodes."""
        name = f"{self._prefix()}/constant{len(self.constants)}"
        self.constants[name] = np.asarray(value, dtype=kind)
        return name

    def op(self, kind: str, *inputs: str, outputs: int = 1, **attributes: Any) -> str:
        """A standard node; the name of its first result."""
        return self.several(kind, *inputs, outputs=outputs, **attributes)[0]

    def several(self, kind: str, *inputs: str, outputs: int, **attributes: Any) -> list[str]:
        """A standard node of several results."""
        name = f"{self._prefix()}/{kind}{len(self.nodes)}"
        names = [name, *(f"{name}.{i}" for i in range(1, outputs))]
        given = {key: value for key, value in attributes.items() if value is not None}
        self.nodes.append(helper.make_node(kind, list(inputs), names, name=name, **given))
        return names

    def finish(self, *results: str) -> Expansion:
        """The nodes, whose results get the names of the outputs.

        Raises:
            Unsupported: the node says something that the rule has not asked for, or an output is read that it does not
                make.
        """
        unknown = [f"attribute {n}={v!r}" for n, v in self._attributes.items() if n not in self._asked]
        unknown += [f"input {i}" for i, v in enumerate(self.operands) if v is not None and i not in self._asked]
        if unknown:
            raise Unsupported(
                f"{', '.join(unknown)} is not known for {DOMAIN}.{self.node.op_type}",
                "Export the model with standard ONNX operators, or without ONNX Runtime's optimisation.",
            )
        missing = [name for name, made in zip(self.wanted, [*results, *[""] * len(self.wanted)]) if name and not made]
        if missing:
            raise Unsupported(
                f"its output {missing[0]!r} is used and cannot be computed", "Export the model without this output."
            )
        self._rename(results)
        return Expansion(self.nodes, self.constants, [*self.wanted])

    def _rename(self, results: Sequence[str]) -> None:
        """Gives results the names of the outputs; those that are inputs or constants are copied."""
        own = {name for node in self.nodes for name in node.output}
        names: dict[str, str] = {}
        for name, made in zip(self.wanted, results):
            if name and made in own and made not in names:
                names[made] = name
        for node in self.nodes:
            for tensors in (node.input, node.output):
                for index, tensor in enumerate(tensors):
                    tensors[index] = names.get(tensor, tensor)
        for name, made in zip(self.wanted, results):
            if name and names.get(made) != name:
                self.nodes.append(helper.make_node("Identity", [names.get(made, made)], [name], name=name))

    def _prefix(self) -> str:
        return str(self.node.output[0] or self.node.name)


Rule = Callable[[Writer], Sequence[str]]

RULES: dict[str, Rule] = {}
# operators that read a quantised tensor as the real numbers that it stands for
READERS = frozenset(
    [
        "DequantizeLinear",
        "MatMulIntegerToFloat",
        "QAttention",
        "QGemm",
        "QLinearAdd",
        "QLinearAveragePool",
        "QLinearConcat",
        "QLinearConv",
        "QLinearGlobalAveragePool",
        "QLinearLeakyRelu",
        "QLinearMul",
        "QLinearSigmoid",
        "QLinearSoftmax",
    ]
)


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Registers how operators of the domain are written."""

    def register(write: Rule) -> Rule:
        for name in names:
            if name in RULES:
                raise ValueError(f"operator {name} is registered twice")
            RULES[name] = write
        return write

    return register


def known(node: onnx.NodeProto) -> bool:
    """Whether a node is of the domain, and has a rule."""
    return node.domain == DOMAIN and node.op_type in RULES


def standard(node: onnx.NodeProto, operands: Sequence[Operand | None], wanted: frozenset[str]) -> Expansion:
    """Standard nodes that compute what a node of the domain does.

    Args:
        operands: its inputs, None for those that are not given.
        wanted: tensors that something reads.

    Raises:
        Unsupported: the node says what the rule does not know.
    """
    writer = Writer(node, operands, wanted)
    return writer.finish(*RULES[node.op_type](writer))


def activated(w: Writer, x: str, name: str | None, parameters: Sequence[float]) -> str:
    """An activation that a fused operator names, with its parameters in ONNX Runtime's order."""
    if not name:
        return x
    if name in ("Relu", "Tanh", "Sigmoid") and not parameters:
        return w.op(name, x)
    if name == "LeakyRelu" and len(parameters) <= 1:
        return w.op(name, x, alpha=float([*parameters, 0.01][0]))
    if name == "HardSigmoid" and len(parameters) in (0, 2):
        alpha, beta = parameters or (0.2, 0.5)
        return w.op(name, x, alpha=float(alpha), beta=float(beta))
    if name == "Clip" and len(parameters) == 2:
        return w.op(name, x, w.constant(parameters[0]), w.constant(parameters[1]))
    raise Unsupported(
        f"the activation {name} with parameters {list(parameters)}", "Export the model without ONNX Runtime's fusions."
    )


def added(w: Writer, x: str, index: int) -> str:
    """A tensor plus an input, where that is given."""
    other = w.given(index)
    return x if other is None else w.op("Add", x, other.name)


def channels_first(w: Writer, x: Operand) -> str:
    """A tensor whose last axis is the channels, with these behind the batch."""
    rank = len(x.shape)
    return w.op("Transpose", x.name, perm=[0, rank - 1, *range(1, rank - 1)])


def channels_last(w: Writer, x: str, rank: int) -> str:
    """The way back."""
    return w.op("Transpose", x, perm=[0, *range(2, rank), 1])


def zero_of(w: Writer, index: int, kind: int) -> str:
    """A zero point, or a zero of the type where it is not given."""
    found = w.given(index)
    return found.name if found else w.constant(0, helper.tensor_dtype_to_np_dtype(kind))

"""The graph under construction: lowerings append client ops and linear layers to it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..graph import Conv2d, Dense, Geometry, Graph, Linear, Node, Op, Shape
from .errors import Unsupported

# what an infinite element stays one through; ReLU, softmax, exponentials and maxima give what infinity gives
_KEEPS_INFINITY = frozenset(
    {"reshape", "transpose", "gather", "slice", "concat", "pad", "broadcast", "interpolate", "affine", "neg", "add"}
    | {"sub", "mul", "abs", "leaky_relu", "prelu", "reduce_sum", "reduce_mean"}
)


@dataclass(frozen=True)
class Value:
    """A tensor of the graph: per-image shape; ``batch_axis`` is where ONNX has the batch, 0 nearly always."""

    name: str
    shape: Shape
    batch_axis: int = 0

    @property
    def size(self) -> int:
        """Elements per image."""
        return math.prod(self.shape)


class Builder:
    """Appends nodes; tensors of one ONNX node are named after its first output."""

    def __init__(self, reserved: Iterable[str]):
        self.nodes: list[Node] = []
        self.shapes: dict[str, Shape] = {}
        self._taken = set(reserved)
        self._node_names: set[str] = set()
        self._scope = ("", "")
        self._start = 0
        self._infinite: list[Node] = []

    def begin(self, node: str, output: str) -> None:
        """What follows belongs to the named ONNX node."""
        self._scope = (node, output)
        self._start = len(self.nodes)

    def rollback(self) -> None:
        """Takes back what the current ONNX node has appended."""
        for node in self.nodes[self._start :]:
            self.shapes.pop(node.output, None)
            self._taken.discard(node.output)
            self._node_names.discard(node.name)
        del self.nodes[self._start :]

    def finish(self, values: Sequence[Value], outputs: Sequence[str]) -> list[Value]:
        """Gives the values that the current ONNX node has made the names of its outputs."""
        own = {node.output for node in self.nodes[self._start :]}
        renamed: dict[str, str] = {}
        result = []
        for value, name in zip(values, outputs):
            if not isinstance(value, Value):
                # a constant that the lowering knows
                result.append(value)
                continue
            if value.name in own and value.name not in renamed and name:
                renamed[value.name] = name
                self.shapes[name] = self.shapes.pop(value.name)
            result.append(Value(renamed.get(value.name, value.name), value.shape, value.batch_axis))
        for node in self.nodes[self._start :]:
            node.output = renamed.get(node.output, node.output)
            if isinstance(node, Linear):
                node.input = renamed.get(node.input, node.input)
            else:
                node.inputs = [renamed.get(i, i) for i in node.inputs]
        return result

    def _tensor(self, shape: Shape) -> str:
        index = 0
        while (name := f"{self._scope[1]}.{index}") in self._taken:
            index += 1
        self._taken.add(name)
        self.shapes[name] = tuple(int(n) for n in shape)
        return name

    def _node(self, kind: str) -> str:
        name, index = self._scope[0], 0
        if name in self._node_names:
            name = f"{self._scope[0]}.{kind}"
        while name in self._node_names:
            index += 1
            name = f"{self._scope[0]}.{kind}{index}"
        self._node_names.add(name)
        return name

    def client(self, op: str, *inputs: Value, shape: Shape | None = None, **attributes: Any) -> Value:
        """A client op; the output has the first input's shape unless told."""
        shape = inputs[0].shape if shape is None else tuple(shape)
        name = self._tensor(shape)
        self.nodes.append(Op(self._node(op), op, [v.name for v in inputs], name, attributes))
        return Value(name, shape, inputs[0].batch_axis)

    def linear(self, geometry: Geometry, x: Value, weight: np.ndarray, bias: np.ndarray | None = None) -> Value:
        """A layer of the server; x is reshaped to a convolution's (C, H, W) where needed. Dense gives shape (M,)."""
        outputs = geometry.outputs if isinstance(geometry, Dense) else geometry.output[0]
        weight = np.ascontiguousarray(weight, dtype=np.float64)
        bias = np.zeros(outputs) if bias is None else np.ascontiguousarray(bias, dtype=np.float64).reshape(outputs)
        if not (np.all(np.isfinite(weight)) and np.all(np.isfinite(bias))):
            raise Unsupported("weights that are not finite", "Repair the trained weights.")
        if isinstance(geometry, Conv2d):
            x = self.reshape(x, geometry.input)
        shape = (geometry.outputs,) if isinstance(geometry, Dense) else geometry.output
        name = self._tensor(shape)
        self.nodes.append(Linear(self._node("linear"), x.name, name, geometry, weight, bias))
        return Value(name, shape)

    def reshape(self, x: Value, shape: Sequence[int]) -> Value:
        """Row-major reshape within an image; nothing where the shape is the same."""
        shape = tuple(int(n) for n in shape)
        return x if shape == x.shape else self.client("reshape", x, shape=shape)

    def transpose(self, x: Value, perm: Sequence[int]) -> Value:
        """Axes permuted; nothing for the identity."""
        perm = [int(p) for p in perm]
        if perm == list(range(len(x.shape))):
            return x
        return self.client("transpose", x, shape=tuple(x.shape[p] for p in perm), perm=perm)

    def move_axis(self, x: Value, source: int, target: int) -> Value:
        """One axis moved, the others in order."""
        perm = [a for a in range(len(x.shape)) if a != source]
        perm.insert(target, source)
        return self.transpose(x, perm)

    def broadcast(self, x: Value, shape: Sequence[int]) -> Value:
        """NumPy's broadcast within an image; nothing where the shape is the same."""
        shape = tuple(int(n) for n in shape)
        return x if shape == x.shape else self.client("broadcast", x, shape=shape)

    def affine(self, x: Value, mul: float, add: float) -> Value:
        """``x * mul + add`` with public scalars."""
        if not (math.isfinite(mul) and math.isfinite(add)):
            raise Unsupported(f"a scalar constant that is not finite ({mul} and {add})", "Remove the operation.")
        return self.client("affine", x, mul=float(mul), add=float(add))

    def ones(self, x: Value) -> Value:
        """Ones of x's shape (finite x)."""
        return self.affine(x, 0.0, 1.0)

    def slice(self, x: Value, axis: int, start: int, count: int, step: int = 1) -> Value:
        """``count`` elements of one axis; ``ends`` is -1 where a negative step goes past the first element."""
        if (start, count, step) == (0, x.shape[axis], 1):
            return x
        shape = (*x.shape[:axis], count, *x.shape[axis + 1 :])
        end = start + (count - 1) * step + (1 if step > 0 else -1)
        return self.client("slice", x, shape=shape, starts=[start], ends=[end], steps=[step], axes=[axis])

    def infinite(self, x: Value) -> Value:
        """Notes that x, made by the current ONNX node, has large numbers in the place of infinite ones."""
        self._infinite += [node for node in self.nodes[self._start :] if node.output == x.name]
        return x

    def reaches_infinity(self) -> set[str]:
        """Names of tensors that would hold infinite elements, and hold large numbers instead."""
        found: set[str] = set()
        marked = {id(node) for node in self._infinite}
        for node in self.nodes:
            inputs = [node.input] if isinstance(node, Linear) else node.inputs
            keeps = isinstance(node, Linear) or node.op in _KEEPS_INFINITY
            if id(node) in marked or (keeps and not found.isdisjoint(inputs)):
                found.add(node.output)
        return found

    def pad(self, x: Value, pads: Sequence[int], value: float = 0.0) -> Value:
        """Constant padding, ``pads`` begins then ends of every axis."""
        rank = len(x.shape)
        if not any(pads):
            return x
        shape = tuple(n + pads[a] + pads[rank + a] for a, n in enumerate(x.shape))
        return self.client("pad", x, shape=shape, pads=[int(p) for p in pads], value=float(value))

    def diagonal(self, x: Value, scale: np.ndarray, shift: np.ndarray) -> Value:
        """``x * scale + shift`` with secret arrays that broadcast to x: a depthwise 1x1 convolution.

        The channels are the leading axes up to the last along which an array varies; x is reshaped to them. Axes along
        which nothing varies go behind these first, so that a scale a feature has a channel a feature.
        """
        scale = np.broadcast_to(np.asarray(scale, dtype=np.float64), x.shape)
        shift = np.broadcast_to(np.asarray(shift, dtype=np.float64), x.shape)
        axes = [a for a in range(len(x.shape)) if _varies(scale, a) or _varies(shift, a)]
        lead = axes[-1] + 1 if axes else min(1, len(x.shape))
        if math.prod(x.shape[a] for a in axes) < math.prod(x.shape[:lead]) and axes:
            order = axes + [a for a in range(len(x.shape)) if a not in axes]
            y = self.diagonal(self.transpose(x, order), scale.transpose(order), shift.transpose(order))
            return self.transpose(y, [order.index(a) for a in range(len(order))])
        channels = math.prod(x.shape[:lead])
        first = (slice(None),) * lead + (0,) * (len(x.shape) - lead)
        inner = x.shape[lead:]
        height, width = inner if len(inner) == 2 else (1, inner[0]) if len(inner) == 1 else (math.prod(inner), 1)
        image = (channels, height, width)
        geometry = Conv2d(image, image, (1, 1), groups=channels)
        y = self.linear(geometry, x, scale[first].reshape(channels, 1, 1, 1), shift[first].reshape(channels))
        return self.reshape(y, x.shape)

    def graph(self, name: str, inputs: Sequence[Value], outputs: Sequence[tuple[str, Value]]) -> Graph:
        """The finished graph; outputs that are other tensors under a second name are copied."""
        names = []
        taken = {n: self._aside(n) for n, value in outputs if value.name != n and n in self.shapes}
        for name_, given in outputs:
            value = replace(given, name=taken.get(given.name, given.name))
            if value.name != name_:
                self.nodes.append(Op(self._copy(name_), "reshape", [value.name], name_))
                self.shapes[name_] = value.shape
            names.append(name_)
        shapes = {**{v.name: v.shape for v in inputs}, **self.shapes}
        return Graph(name, [v.name for v in inputs], names, shapes, self.nodes)

    def _aside(self, name: str) -> str:
        """Gives a tensor another name, where an output of the network needs its own."""
        self.begin(name, f"{name}.whole")
        other = self._tensor(self.shapes.pop(name))
        for node in self.nodes:
            node.output = other if node.output == name else node.output
            if isinstance(node, Linear):
                node.input = other if node.input == name else node.input
            else:
                node.inputs = [other if i == name else i for i in node.inputs]
        return other

    def _copy(self, output: str) -> str:
        self.begin(f"{output}.copy", output)
        return self._node("reshape")


def _varies(array: np.ndarray, axis: int) -> bool:
    """Whether an array has different values along an axis."""
    return array.shape[axis] > 1 and bool(np.any(array != array.take([0], axis=axis)))

"""Writes ONNX graphs as PyTorch's exporter does: its names, Constants, shape arithmetic, forms of the opset.

Weights are seeded. Shapes are tracked with a batch of 1; the model's own batch is symbolic or fixed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Sizes = Sequence[int]


@dataclass(frozen=True)
class T:
    """A tensor: its name and its shape, with 1 for the batch."""

    name: str
    shape: tuple[int, ...]


class Export:
    """A model being written.

    Args:
        seed: of the weights.
        opset: 11 to 20; nodes take the forms of it.
        batch: a name for a symbolic batch, or a fixed size of 1.
    """

    def __init__(self, seed: int = 0, opset: int = 17, batch: str | int = "batch_size"):
        self.rng = np.random.default_rng(seed)
        self.opset, self.batch = opset, batch
        self.nodes: list[onnx.NodeProto] = []
        self.tensors: list[onnx.TensorProto] = []
        self.inputs: list[onnx.ValueInfoProto] = []
        self._path: list[str] = []
        self._names: set[str] = set()
        self._count = 0

    # -- ends

    def input(self, name: str, *shape: int, kind: int = TensorProto.FLOAT) -> T:
        """An input of a shape for one image."""
        self.inputs.append(helper.make_tensor_value_info(name, kind, [self.batch, *shape]))
        return T(name, (1, *shape))

    def model(self, name: str, **outputs: T) -> onnx.ModelProto:
        """The model; outputs get these names."""
        renamed = {t.name: k for k, t in outputs.items()}
        for node in self.nodes:
            node.input[:] = [renamed.get(i, i) for i in node.input]
            node.output[:] = [renamed.get(o, o) for o in node.output]
        ports = [
            helper.make_tensor_value_info(k, TensorProto.FLOAT, [self.batch, *t.shape[1:]]) for k, t in outputs.items()
        ]
        graph = helper.make_graph(self.nodes, name, self.inputs, ports, self.tensors)
        opsets = [helper.make_opsetid("", self.opset)]
        version = 6 if self.opset < 13 else 8 if self.opset < 19 else 9
        return helper.make_model(graph, opset_imports=opsets, ir_version=version, producer_name="pytorch")

    @contextmanager
    def scope(self, name: str) -> Iterator[None]:
        """A submodule: nodes inside are called ``/outer/outer.name/Op``."""
        self._path.append(name)
        yield
        self._path.pop()

    # -- nodes and constants

    def op(self, kind: str, inputs: Sequence[T | str], *shapes: Sizes, **attributes: Any) -> Any:
        """A node; one tensor for every shape given."""
        base = "/" + "/".join([*(".".join(self._path[: i + 1]) for i in range(len(self._path))), kind])
        name, number = base, 0
        while name in self._names:
            number += 1
            name = f"{base}_{number}"
        self._names.add(name)
        outputs = [T(f"{name}_output_{i}", tuple(int(n) for n in s)) for i, s in enumerate(shapes)]
        given = [i.name if isinstance(i, T) else i for i in inputs]
        self.nodes.append(helper.make_node(kind, given, [o.name for o in outputs], name=name, **attributes))
        return outputs[0] if len(outputs) == 1 else outputs

    def constant(self, value: Any, dtype: Any = np.int64) -> T:
        """A Constant node."""
        array = np.asarray(value, dtype=dtype)
        return self.op("Constant", [], array.shape, value=numpy_helper.from_array(array))

    def weight(self, name: str, array: np.ndarray) -> str:
        """An initializer under the submodule's name; ``onnx::`` names are numbered, as constant folding leaves them."""
        if name.startswith("onnx::"):
            self._count += 1
            full = f"{name}_{self._count}"
        else:
            full = ".".join([*self._path, name])
        self.tensors.append(numpy_helper.from_array(np.asarray(array, dtype=np.float32), full))
        return full

    def normal(self, shape: Sizes, deviation: float) -> np.ndarray:
        """Seeded normal numbers."""
        return self.rng.standard_normal(tuple(shape), dtype=np.float32) * np.float32(deviation)

    def filters(self, out: int, rest: Sizes, gain: float = 1.0) -> np.ndarray:
        """Weights of a layer, by He's rule."""
        return self.normal((out, *rest), gain * math.sqrt(2.0 / math.prod(rest)))

    # -- layers

    def conv(
        self,
        name: str,
        x: T,
        out: int,
        kernel: int | Sizes,
        stride: int | Sizes = 1,
        pad: int | Sizes | None = None,
        groups: int = 1,
        dilation: int = 1,
        gain: float = 1.0,
        bias: bool = True,
    ) -> T:
        """Convolution over all spatial axes; pads default to half the kernel."""
        spatial = len(x.shape) - 2
        kernels = _list(kernel, spatial)
        strides = _list(stride, spatial)
        pads = [dilation * (k - 1) // 2 for k in kernels] if pad is None else _list(pad, spatial)
        sizes = [
            (n + 2 * p - dilation * (k - 1) - 1) // s + 1 for n, p, k, s in zip(x.shape[2:], pads, kernels, strides)
        ]
        with self.scope(name):
            names = [self.weight("weight", self.filters(out, (x.shape[1] // groups, *kernels), gain))]
            if bias:
                names.append(self.weight("bias", self.normal((out,), 0.05)))
            return self.op(
                "Conv", [x, *names], (1, out, *sizes), dilations=[dilation] * spatial, group=groups,
                kernel_shape=kernels, pads=[*pads, *pads], strides=strides,
            )  # fmt: skip

    def conv_transpose(self, name: str, x: T, out: int, kernel: int, stride: int, pad: int, extra: int = 0) -> T:
        """Transposed convolution over two axes."""
        sizes = [(n - 1) * stride - 2 * pad + kernel + extra for n in x.shape[2:]]
        with self.scope(name):
            weight = self.weight("weight", self.filters(x.shape[1], (out, kernel, kernel), math.sqrt(stride)))
            bias = self.weight("bias", self.normal((out,), 0.05))
            more = {"output_padding": [extra] * 2} if extra else {}
            return self.op(
                "ConvTranspose", [x, weight, bias], (1, out, *sizes), dilations=[1, 1], group=1,
                kernel_shape=[kernel] * 2, pads=[pad] * 4, strides=[stride] * 2, **more,
            )  # fmt: skip

    def batch_norm(self, name: str, x: T) -> T:
        """BatchNormalization that the exporter could not fold."""
        channels = x.shape[1]
        with self.scope(name):
            names = [
                self.weight("weight", 1 + self.normal((channels,), 0.1)),
                self.weight("bias", self.normal((channels,), 0.1)),
                self.weight("running_mean", self.normal((channels,), 0.1)),
                self.weight("running_var", 1 + np.abs(self.normal((channels,), 0.2))),
            ]
            return self.op("BatchNormalization", [x, *names], x.shape, epsilon=1e-5, momentum=0.9)

    def linear(self, name: str, x: T, out: int, gain: float = 1.0, bias: bool = True) -> T:
        """Gemm of matrices, MatMul and Add of everything else."""
        columns = x.shape[-1]
        with self.scope(name):
            if len(x.shape) == 2 and bias:
                weight = self.weight("weight", self.filters(out, (columns,), gain))
                return self.op(
                    "Gemm", [x, weight, self.weight("bias", self.normal((out,), 0.05))], (1, out), alpha=1.0, beta=1.0,
                    transB=1,
                )  # fmt: skip
            weight = self.weight("onnx::MatMul", self.filters(out, (columns,), gain).T)
            y = self.op("MatMul", [x, weight], (*x.shape[:-1], out))
            if not bias:
                return y
            return self.op("Add", [self.weight("bias", self.normal((out,), 0.05)), y], y.shape)

    def layer_norm(self, name: str, x: T) -> T:
        """LayerNormalization since opset 17, before that its eight parts."""
        with self.scope(name):
            scale = self.weight("weight", 1 + self.normal(x.shape[-1:], 0.1))
            shift = self.weight("bias", self.normal(x.shape[-1:], 0.1))
            if self.opset >= 17:
                return self.op("LayerNormalization", [x, scale, shift], x.shape, axis=-1, epsilon=1e-5)
            centred = self.op("Sub", [x, self.mean(x, [-1])], x.shape)
            square = self.op("Pow", [centred, self.constant(2.0, np.float32)], x.shape)
            variance = self.mean(square, [-1])
            variance = self.op("Add", [variance, self.constant(1e-5, np.float32)], variance.shape)
            y = self.op("Div", [centred, self.op("Sqrt", [variance], variance.shape)], x.shape)
            return self.op("Add", [self.op("Mul", [y, scale], x.shape), shift], x.shape)

    def embedding(self, name: str, ids: T, rows: int, width: int) -> T:
        """A look-up in a table."""
        with self.scope(name):
            return self.op("Gather", [self.weight("weight", self.normal((rows, width), 1.0)), ids], (*ids.shape, width))

    # -- activations

    def act(self, kind: str, x: T) -> T:
        """An activation as the opset has it: the methods below, without their underscore."""
        return getattr(self, f"_{kind}")(x)

    def _relu(self, x: T) -> T:
        return self.op("Relu", [x], x.shape)

    def _relu6(self, x: T) -> T:
        return self.op("Clip", [x, self.constant(0.0, np.float32), self.constant(6.0, np.float32)], x.shape)

    def _hardsigmoid(self, x: T) -> T:
        return self.op("HardSigmoid", [x], x.shape, alpha=1 / 6)

    def _hardswish(self, x: T) -> T:
        if self.opset >= 14:
            return self.op("HardSwish", [x], x.shape)
        shifted = self.op("Add", [x, self.constant(3.0, np.float32)], x.shape)
        clipped = self._relu6(shifted)
        gate = self.op("Div", [clipped, self.constant(6.0, np.float32)], x.shape)
        return self.op("Mul", [x, gate], x.shape)

    def _silu(self, x: T) -> T:
        return self.op("Mul", [x, self._sigmoid(x)], x.shape)

    def _gelu(self, x: T) -> T:
        if self.opset >= 20:
            return self.op("Gelu", [x], x.shape)
        scaled = self.op("Div", [x, self.constant(math.sqrt(2.0), np.float32)], x.shape)
        error = self.op("Erf", [scaled], x.shape)
        gate = self.op("Add", [error, self.constant(1.0, np.float32)], x.shape)
        return self.op("Mul", [self.op("Mul", [x, gate], x.shape), self.constant(0.5, np.float32)], x.shape)

    def _gelu_tanh(self, x: T) -> T:
        """GPT's, by a power and a tanh."""
        cube = self.op("Pow", [x, self.constant(3.0, np.float32)], x.shape)
        inner = self.op("Add", [x, self.op("Mul", [cube, self.constant(0.044715, np.float32)], x.shape)], x.shape)
        inner = self.op("Mul", [inner, self.constant(math.sqrt(2 / math.pi), np.float32)], x.shape)
        gate = self.op("Add", [self._tanh(inner), self.constant(1.0, np.float32)], x.shape)
        half = self.op("Mul", [x, self.constant(0.5, np.float32)], x.shape)
        return self.op("Mul", [half, gate], x.shape)

    def _tanh(self, x: T) -> T:
        return self.op("Tanh", [x], x.shape)

    def _sigmoid(self, x: T) -> T:
        return self.op("Sigmoid", [x], x.shape)

    def _leaky(self, x: T) -> T:
        return self.op("LeakyRelu", [x], x.shape, alpha=0.1)

    def _softmax(self, x: T) -> T:
        return self.op("Softmax", [x], x.shape, axis=-1 if self.opset >= 13 else len(x.shape) - 1)

    # -- arithmetic and moves

    def add(self, x: T, y: T) -> T:
        """A sum; shapes broadcast."""
        return self.op("Add", [x, y], np.broadcast_shapes(x.shape, y.shape))

    def mul(self, x: T, y: T | str) -> T:
        """A product; shapes broadcast."""
        shape = np.broadcast_shapes(x.shape, y.shape) if isinstance(y, T) else x.shape
        return self.op("Mul", [x, y], shape)

    def matmul(self, x: T, y: T) -> T:
        """A product of two private tensors."""
        return self.op("MatMul", [x, y], (*x.shape[:-1], y.shape[-1]))

    def scaled(self, x: T, factor: float) -> T:
        """A product with a Constant."""
        return self.op("Mul", [x, self.constant(factor, np.float32)], x.shape)

    def mean(self, x: T, axes: Sizes, keep: bool = True) -> T:
        """ReduceMean, its axes an input since opset 18."""
        where = [a % len(x.shape) for a in axes]
        shape = [1 if i in where else n for i, n in enumerate(x.shape) if keep or i not in where]
        if self.opset >= 18:
            return self.op("ReduceMean", [x, self.constant(list(axes))], shape, keepdims=int(keep))
        return self.op("ReduceMean", [x], shape, axes=list(axes), keepdims=int(keep))

    def pool(self, kind: str, x: T, kernel: int, stride: int, pad: int = 0, ceil: bool = False) -> T:
        """MaxPool or AveragePool over all spatial axes."""
        spatial = len(x.shape) - 2
        sizes = [(n + 2 * pad - kernel + (stride - 1 if ceil else 0)) // stride + 1 for n in x.shape[2:]]
        sizes = [
            s - 1 if ceil and (s - 1) * stride >= n + pad else s for s, n in zip(sizes, x.shape[2:])
        ]  # no window starts in the padding
        return self.op(
            kind, [x], (*x.shape[:2], *sizes), ceil_mode=int(ceil), kernel_shape=[kernel] * spatial,
            pads=[pad] * (2 * spatial), strides=[stride] * spatial,
        )  # fmt: skip

    def global_pool(self, x: T) -> T:
        """The mean over all positions."""
        return self.op("GlobalAveragePool", [x], (*x.shape[:2], *[1] * (len(x.shape) - 2)))

    def flatten(self, x: T) -> T:
        """Everything behind the batch in one axis."""
        return self.op("Flatten", [x], (1, math.prod(x.shape[1:])), axis=1)

    def transpose(self, x: T, *perm: int) -> T:
        """Axes permuted, the batch included."""
        return self.op("Transpose", [x], [x.shape[p] for p in perm], perm=list(perm))

    def concat(self, parts: Sequence[T], axis: int) -> T:
        """Tensors behind each other."""
        shape = list(parts[0].shape)
        shape[axis] = sum(p.shape[axis] for p in parts)
        return self.op("Concat", parts, shape, axis=axis)

    def view(self, x: T, *sizes: int | None) -> T:
        """``x.view(x.size(0), ...)``: None takes that axis from the tensor's Shape, -1 is what remains."""
        taken = [x.shape[i] if n is None else n for i, n in enumerate(sizes)]
        rest = math.prod(x.shape) // math.prod(n for n in taken if n != -1)
        shape = [rest if n == -1 else n for n in taken]
        parts = []
        for axis, size in enumerate(sizes):
            if size is None:
                whole = self.op("Shape", [x], (len(x.shape),))
                one = self.op("Gather", [whole, self.constant(axis)], (), axis=0)
                parts.append(self.unsqueeze(one, 0))
            else:
                parts.append(self.constant([size]))
        whole = self.op("Concat", parts, (len(parts),), axis=0)
        return self.op("Reshape", [x, whole], shape)

    def unsqueeze(self, x: T, axis: int) -> T:
        """An axis of 1; the axis is an input since opset 13."""
        shape = [*x.shape[:axis], 1, *x.shape[axis:]]
        if self.opset >= 13:
            return self.op("Unsqueeze", [x, self.constant([axis])], shape)
        return self.op("Unsqueeze", [x], shape, axes=[axis])

    def squeeze(self, x: T, axis: int) -> T:
        """Without an axis of 1."""
        shape = [n for a, n in enumerate(x.shape) if a != axis]
        if self.opset >= 13:
            return self.op("Squeeze", [x, self.constant([axis])], shape)
        return self.op("Squeeze", [x], shape, axes=[axis])

    def split(self, x: T, sizes: Sizes, axis: int) -> list[T]:
        """Pieces of an axis; the sizes are an input since opset 13."""
        shapes = [[n if a != axis else s for a, n in enumerate(x.shape)] for s in sizes]
        if self.opset >= 13:
            return list(self.op("Split", [x, self.constant(list(sizes))], *shapes, axis=axis))
        return list(self.op("Split", [x], *shapes, axis=axis, split=list(sizes)))

    def slice(self, x: T, axis: int, start: int, end: int, step: int = 1) -> T:
        """A part of one axis, with the bounds that tracing writes."""
        size = len(range(x.shape[axis])[start:end:step])
        bounds = [self.constant([v]) for v in (start, end, axis, step)]
        return self.op("Slice", [x, *bounds], [size if a == axis else n for a, n in enumerate(x.shape)])

    def select(self, x: T, axis: int, index: int) -> T:
        """``x[:, index]``."""
        return self.op("Gather", [x, self.constant(index)], [n for a, n in enumerate(x.shape) if a != axis], axis=axis)

    def resize(self, x: T, factor: int, mode: str) -> T:
        """Resize by a factor over two axes."""
        size = (*x.shape[:2], *(n * factor for n in x.shape[2:]))
        how = (
            {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
            if mode == "nearest"
            else {"mode": "linear", "coordinate_transformation_mode": "half_pixel"}
        )
        scales = self.constant([1.0, 1.0, factor, factor], np.float32)
        region = "" if self.opset >= 13 else self.constant([], np.float32)
        return self.op("Resize", [x, region, scales], size, cubic_coeff_a=-0.75, **how)

    def recurrent(self, kind: str, name: str, x: T, hidden: int, both: bool = False, states: bool = False) -> T:
        """LSTM or GRU over [batch, time, features]; [batch, time, directions * hidden].

        With ``states`` the last states: [directions, batch, hidden].
        """
        gates, directions = {"LSTM": 4, "GRU": 3}[kind], 2 if both else 1
        steps, width = x.shape[1], x.shape[2]
        with self.scope(name):
            deviation = 1.0 / math.sqrt(hidden)
            names = [
                self.weight(f"onnx::{kind}", self.normal(shape, deviation))
                for shape in (
                    (directions, gates * hidden, width),
                    (directions, gates * hidden, hidden),
                    (directions, 2 * gates * hidden),
                )
            ]
            first_states = [self._zeros(x, directions, hidden) for _ in range(2 if kind == "LSTM" else 1)]
            first = self.transpose(x, 1, 0, 2)
            more = {"linear_before_reset": 1} if kind == "GRU" else {}
            shapes = [(steps, directions, 1, hidden), *[(directions, 1, hidden)] * len(first_states)]
            y, h, *_ = self.op(
                kind, [first, *names, "", *first_states], *shapes, hidden_size=hidden,
                direction="bidirectional" if both else "forward", **more,
            )  # fmt: skip
            if states:
                return h
            if both:
                y = self.transpose(y, 0, 2, 1, 3)
                shape = (steps, 1, directions * hidden)
                y = self.op("Reshape", [y, self.constant([0, 0, -1])], shape)
            else:
                y = self.squeeze(y, 1)
            return self.transpose(y, 1, 0, 2)

    def _zeros(self, x: T, directions: int, hidden: int) -> T:
        """A first state, its batch taken from the input's Shape."""
        whole = self.op("Shape", [x], (3,))
        one = self.unsqueeze(self.op("Gather", [whole, self.constant(0)], (), axis=0), 0)
        sizes = self.op("Concat", [self.constant([directions]), one, self.constant([hidden])], (3,), axis=0)
        return self.op(
            "ConstantOfShape", [sizes], (directions, 1, hidden), value=numpy_helper.from_array(np.zeros(1, np.float32))
        )


def _list(value: int | Sizes, count: int) -> list[int]:
    return [value] * count if isinstance(value, int) else list(value)

"""Layer calls that write an ONNX graph (opset 17, symbolic batch) with seeded weights.

Weights are drawn as He initialisation has it (deviation sqrt(2 / fan-in)), every parameter from a stream of its own
named by (seed, parameter). While the graph is written, a few synthetic images pass through it (:mod:`.exact`), and each
layer is normalised by what they show: a BatchNormalization takes its running mean and variance from them; a layer with
a bias and no normalisation after it is scaled to unit deviation and its bias takes the mean away (the last one:
deviation 2). So activations keep their size through any depth and the outputs of different inputs differ. Given weights
are used as they are, and nothing is computed. Axes count without the batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from hushnet.data import synthetic
from hushnet.data.synthetic import uniform_bytes
from hushnet.errors import ZooError
from hushnet.zoo import exact

OPSET = 17
IR_VERSION = 8
EPSILON = 1e-5
_NORM_EPSILON = 1e-6
BATCH = "N"
_CALIBRATION_SEED = 20_000
_SMALLEST_VARIANCE = 1e-3

Pads = tuple[int, int, int, int]


@dataclass
class Tensor:
    """A value in the graph: its name, its shape for one image, and what the calibration images gave."""

    name: str
    shape: tuple[int, ...]
    value: np.ndarray | None


# of inputs on the grid, results of these are on it
_ON_THE_GRID = {"Relu", "MaxPool", "Flatten", "Concat", "Slice"}


class Net:
    """A network being written; every layer takes a name (its parameters are ``NAME.weight`` and so on) and tensors."""

    def __init__(self, seed: int = 0, weights: Mapping[str, np.ndarray] | None = None):
        self.seed = seed
        self.weights = weights
        self.nodes: list[onnx.NodeProto] = []
        self.parameters: dict[str, np.ndarray] = {}
        self.inputs: list[Tensor] = []
        self._constants: dict[str, np.ndarray] = {}
        # shapes that shape inference does not find
        self._told: list[onnx.ValueInfoProto] = []

    # -- ends of the graph

    def input(self, *shape: int, images: int = 8) -> Tensor:
        """The input, of a shape for one image; ``images`` synthetic ones are used for normalisation."""
        value = None
        if self.weights is None:
            value = exact.snap(synthetic(shape, images, _CALIBRATION_SEED).astype(np.float64))
        tensor = Tensor("image", shape, value)
        self.inputs.append(tensor)
        return tensor

    def finish(self, name: str, output: Tensor) -> onnx.ModelProto:
        """The model, checked; its output is called ``logits``."""
        if self.weights is not None and set(self.weights) - set(self.parameters):
            extra = ", ".join(sorted(set(self.weights) - set(self.parameters)))
            raise ZooError(f"{name} has no parameters {extra}: it has {', '.join(self.parameters)}")
        for node in self.nodes:
            node.input[:] = ["logits" if i == output.name else i for i in node.input]
            node.output[:] = ["logits" if o == output.name else o for o in node.output]
        tensors = [numpy_helper.from_array(v, k) for k, v in {**self.parameters, **self._constants}.items()]
        graph = helper.make_graph(
            self.nodes,
            name,
            [helper.make_tensor_value_info(t.name, TensorProto.FLOAT, [BATCH, *t.shape]) for t in self.inputs],
            [helper.make_tensor_value_info("logits", TensorProto.FLOAT, [BATCH, *output.shape])],
            tensors,
            value_info=self._told,
        )
        model = helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION, producer_name="hushnet"
        )
        onnx.checker.check_model(model)
        return model

    # -- layers with parameters

    def conv(
        self,
        name: str,
        x: Tensor,
        out: int,
        kernel: int,
        *,
        stride: int = 1,
        pad: int | Pads = 0,
        groups: int = 1,
        bias: bool = True,
        deviation: float | None = 1.0,
        shift: float = 0.0,
        smooth: float = 0.0,
    ) -> Tensor:
        """Convolution; ``pad`` for all sides or (top, left, bottom, right).

        The output is normalised to ``deviation`` around ``shift``; None leaves the weights as drawn, for
        :meth:`batch_norm` to follow. ``smooth`` (0 to 1) is the part of the weights' variance that all taps of a kernel
        share.
        """
        channels, h, w = x.shape
        pads = (pad,) * 4 if isinstance(pad, int) else pad
        oh, ow = (h + pads[0] + pads[2] - kernel) // stride + 1, (w + pads[1] + pads[3] - kernel) // stride + 1
        if oh < 1 or ow < 1:
            raise ZooError(f"{name}: a {kernel}x{kernel} kernel does not fit its {h}x{w} input: choose a larger image")
        shape = (out, channels // groups, kernel, kernel)
        weight = self._drawn(name, shape, smooth)
        value = None if x.value is None else exact.conv(x.value, weight, stride, pads, groups)
        names, value = self._scaled(name, weight, value, bias, deviation, shift)
        attributes: dict[str, Any] = {
            "kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": list(pads), "group": groups,
        }  # fmt: skip
        return self._node("Conv", name, [x.name, *names], (out, oh, ow), value, **attributes)

    def batch_norm(self, name: str, x: Tensor, *, gain: float = 1.0, shift: float = 0.0) -> Tensor:
        """BatchNormalization over the channels, scale near ``gain`` and shift near ``shift``."""
        channels = x.shape[0]
        mean = variance = np.zeros(0)
        if x.value is not None:
            mean, variance = exact.moments(x.value)
            variance = np.maximum(variance, _SMALLEST_VARIANCE)
        scale = self._parameter(
            f"{name}.scale", (channels,), lambda: gain * (1 + self._bell(f"{name}.scale", (channels,), 0.1))
        )
        shifts = self._parameter(
            f"{name}.shift", (channels,), lambda: shift + self._bell(f"{name}.shift", (channels,), 0.1)
        )
        mean = self._parameter(f"{name}.mean", (channels,), lambda: mean)
        variance = self._parameter(f"{name}.variance", (channels,), lambda: variance)
        value = None
        if x.value is not None:
            factor = scale.astype(np.float64) / np.sqrt(variance.astype(np.float64) + EPSILON)
            value = x.value - exact.per_channel(mean.astype(np.float64), x.value)
            value *= exact.per_channel(factor, x.value)
            value += exact.per_channel(shifts.astype(np.float64), x.value)
        names = [f"{name}.{p}" for p in ("scale", "shift", "mean", "variance")]
        return self._node("BatchNormalization", name, [x.name, *names], x.shape, value, epsilon=EPSILON)

    def conv_norm(
        self,
        name: str,
        x: Tensor,
        out: int,
        kernel: int,
        *,
        act: str | None = "relu",
        gain: float = 1.0,
        shift: float = 0.0,
        **options: Any,
    ) -> Tensor:
        """Convolution without bias, BatchNormalization (see there), activation (None: linear)."""
        x = self.conv(f"{name}.conv", x, out, kernel, bias=False, deviation=None, **options)
        x = self.batch_norm(f"{name}.norm", x, gain=gain, shift=shift)
        return x if act is None else self.act(f"{name}.{act}", x, act)

    def fc(self, name: str, x: Tensor, out: int, *, bias: bool = True, last: bool = False) -> Tensor:
        """Fully connected layer; anything but a vector is flattened first."""
        if len(x.shape) > 1:
            x = self.flatten(f"{name}.flatten", x)
        weight = self._drawn(name, (out, x.shape[0]))
        value = None if x.value is None else x.value @ weight.T
        names, value = self._scaled(name, weight, value, bias, 2.0 if last else 1.0)
        return self._node("Gemm", name, [x.name, *names], (out,), value, transB=1)

    def linear(self, name: str, x: Tensor, out: int, *, deviation: float = 1.0) -> Tensor:
        """The same layer for every row of the last axis: MatMul, and Add of a bias."""
        shape = (*x.shape[:-1], out)
        weight = self._drawn(name, (out, x.shape[-1]))
        value = None if x.value is None else x.value.reshape(-1, x.shape[-1]) @ weight.T
        names, value = self._scaled(name, weight, value, True, deviation, transposed=True)
        product = self._node("MatMul", f"{name}.product", [x.name, names[0]], shape, None)
        return self._node(
            "Add", name, [names[1], product.name], shape, None if value is None else value.reshape(-1, *shape)
        )

    def layer_norm(self, name: str, x: Tensor) -> Tensor:
        """LayerNormalization over the last axis, gains near 1 and shifts near 0."""
        width = x.shape[-1:]
        gain = self._parameter(f"{name}.weight", width, lambda: 1 + self._bell(f"{name}.weight", width, 0.1))
        shift = self._parameter(f"{name}.bias", width, lambda: self._bell(f"{name}.bias", width, 0.1))
        value = None
        if x.value is not None:
            # values on the grid: both sums are exact
            mean = x.value.sum(axis=-1, keepdims=True) / width[0]
            variance = (x.value * x.value).sum(axis=-1, keepdims=True) / width[0] - mean * mean
            value = (x.value - mean) / np.sqrt(np.maximum(variance, 0.0) + _NORM_EPSILON)
            value = value * gain.astype(np.float64) + shift.astype(np.float64)
        names = [f"{name}.weight", f"{name}.bias"]
        return self._node("LayerNormalization", name, [x.name, *names], x.shape, value, axis=-1, epsilon=_NORM_EPSILON)

    def learned(
        self, op: str, name: str, x: Tensor, shape: tuple[int, ...], *, mean: float, deviation: float
    ) -> Tensor:
        """``Add`` or ``Mul`` of a parameter ``NAME.weight`` that broadcasts: positions, a scale of every channel."""
        weight = self._parameter(
            f"{name}.weight", shape, lambda: mean + self._bell(f"{name}.weight", shape, deviation)
        ).astype(np.float64)
        value = None
        if x.value is not None:
            value = x.value + weight if op == "Add" else x.value * weight
        return self._node(op, name, [x.name, f"{name}.weight"], x.shape, value)

    def class_token(self, name: str, x: Tensor) -> Tensor:
        """A learned row in front of the rows of ``x [tokens, width]``, expanded to the batch as exporters do it."""
        width = x.shape[1]
        token = self._parameter(
            f"{name}.weight", (1, 1, width), lambda: self._bell(f"{name}.weight", (1, 1, width), 0.5)
        )
        whole = self._node("Shape", f"{name}.shape", [x.name], (), None)
        ends = [self._constant(f"{name}.{k}", [v], np.int64) for k, v in (("first", 0), ("second", 1))]
        batch = self._node("Slice", f"{name}.batch", [whole.name, *ends], (), None)
        rest = self._constant(f"{name}.rest", [1, width], np.int64)
        sizes = self._node("Concat", f"{name}.sizes", [batch.name, rest], (), None, axis=0)
        value = None if x.value is None else np.broadcast_to(token, (len(x.value), 1, width)).astype(np.float64)
        row = self._node("Expand", f"{name}.row", [f"{name}.weight", sizes.name], (1, width), value)
        self._told.append(helper.make_tensor_value_info(row.name, TensorProto.FLOAT, [BATCH, 1, width]))
        return self.concat(name, row, x)

    # -- layers without parameters

    def act(self, name: str, x: Tensor, kind: str) -> Tensor:
        """An activation: one of :data:`ACTIVATIONS`; swish-rg5-deg2 and swish-rg7-deg4 are polynomials."""
        if kind not in ACTIVATIONS:
            raise ZooError(f"no activation {kind!r}: choose one of {', '.join(ACTIVATIONS)}")
        v = x.value
        if kind in _OPERATORS:
            op, function, attributes = _OPERATORS[kind]
            return self._node(op, name, [x.name], x.shape, None if v is None else function(v), **attributes)
        if kind == "relu6":
            bounds = [self._constant("zero", 0.0), self._constant("six", 6.0)]
            return self._node("Clip", name, [x.name, *bounds], x.shape, None if v is None else np.clip(v, 0, 6))
        if kind == "square":
            return self._node("Mul", name, [x.name, x.name], x.shape, None if v is None else v * v)
        if kind == "swish":
            gate = self.act(f"{name}.sigmoid", x, "sigmoid")
            return self._node("Mul", name, [x.name, gate.name], x.shape, None if v is None else v * gate.value)
        if kind == "gelu":
            return self._gelu(name, x)
        return self._polynomial(name, x, ACTIVATIONS[kind])

    def max_pool(
        self, name: str, x: Tensor, kernel: int, *, stride: int | None = None, pad: int = 0, ceil: bool = False
    ) -> Tensor:
        """Maximum of windows; ``ceil`` keeps a last window that hangs over the edge."""
        stride = stride or kernel
        out = self._pooled(name, x, kernel, stride, pad, ceil)
        value = None
        if x.value is not None:
            value = exact.windows(x.value, kernel, stride, pad, -math.inf, out).max(axis=(4, 5))
        attributes: dict[str, Any] = {
            "kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": [pad] * 4, "ceil_mode": int(ceil),
        }  # fmt: skip
        return self._node("MaxPool", name, [x.name], (x.shape[0], *out), value, **attributes)

    def average_pool(self, name: str, x: Tensor, kernel: int, *, stride: int | None = None) -> Tensor:
        """Mean of windows, without padding."""
        stride = stride or kernel
        out = self._pooled(name, x, kernel, stride, 0, False)
        value = None
        if x.value is not None:
            value = exact.windows(x.value, kernel, stride, 0, 0.0, out).sum(axis=(4, 5)) / kernel**2
        return self._node(
            "AveragePool", name, [x.name], (x.shape[0], *out), value, kernel_shape=[kernel] * 2, strides=[stride] * 2
        )

    def global_average_pool(self, name: str, x: Tensor) -> Tensor:
        """Mean of every channel, ``[c, 1, 1]``."""
        value = None
        if x.value is not None:
            value = x.value.sum(axis=(2, 3), keepdims=True) / (x.shape[1] * x.shape[2])
        return self._node("GlobalAveragePool", name, [x.name], (x.shape[0], 1, 1), value)

    def flatten(self, name: str, x: Tensor) -> Tensor:
        """All features in one axis, row-major."""
        value = None if x.value is None else x.value.reshape(len(x.value), -1)
        return self._node("Flatten", name, [x.name], (math.prod(x.shape),), value, axis=1)

    def add(self, name: str, a: Tensor, b: Tensor) -> Tensor:
        """Sum of two tensors of one shape."""
        value = None if a.value is None or b.value is None else a.value + b.value
        return self._node("Add", name, [a.name, b.name], a.shape, value)

    def mul(self, name: str, a: Tensor, b: Tensor) -> Tensor:
        """Product of two tensors, of which one may be broadcast over the other."""
        value = None if a.value is None or b.value is None else a.value * b.value
        return self._node("Mul", name, [a.name, b.name], np.broadcast_shapes(a.shape, b.shape), value)

    def matmul(self, name: str, a: Tensor, b: Tensor) -> Tensor:
        """Products of matrices, the last two axes of two tensors."""
        value = None if a.value is None or b.value is None else a.value @ b.value
        return self._node("MatMul", name, [a.name, b.name], (*a.shape[:-1], b.shape[-1]), value)

    def scaled(self, name: str, x: Tensor, factor: float) -> Tensor:
        """Product with a constant."""
        value = None if x.value is None else x.value * factor
        return self._node("Mul", name, [x.name, self._constant(f"{name}.factor", factor)], x.shape, value)

    def softmax(self, name: str, x: Tensor) -> Tensor:
        """Softmax of the last axis."""
        value = None
        if x.value is not None:
            value = np.exp(x.value - x.value.max(axis=-1, keepdims=True))
            value /= value.sum(axis=-1, keepdims=True)
        return self._node("Softmax", name, [x.name], x.shape, value, grid=exact.FINE_GRID, axis=-1)

    def transpose(self, name: str, x: Tensor, *perm: int) -> Tensor:
        """Axes permuted."""
        whole = [0, *(p + 1 for p in perm)]
        value = None if x.value is None else np.ascontiguousarray(x.value.transpose(whole))
        return self._node("Transpose", name, [x.name], tuple(x.shape[p] for p in perm), value, perm=whole)

    def reshape(self, name: str, x: Tensor, *shape: int) -> Tensor:
        """The same elements in another shape."""
        value = None if x.value is None else x.value.reshape(-1, *shape)
        return self._node("Reshape", name, [x.name, self._constant(f"{name}.to", [0, *shape], np.int64)], shape, value)

    def row(self, name: str, x: Tensor, index: int) -> Tensor:
        """One of the rows ``[rows, ...]``."""
        place = self._constant(f"{name}.place", index, np.int64)
        value = None if x.value is None else x.value[:, index]
        return self._node("Gather", name, [x.name, place], x.shape[1:], value, axis=1)

    def split(self, name: str, x: Tensor, count: int) -> list[Tensor]:
        """The last axis in equal parts."""
        size = x.shape[-1] // count
        values = [None] * count if x.value is None else np.split(x.value, count, axis=-1)
        outputs = [f"{name}.out{i}" for i in range(count)]
        sizes = self._constant(f"{name}.sizes", [size] * count, np.int64)
        self.nodes.append(helper.make_node("Split", [x.name, sizes], outputs, name=name, axis=-1))
        return [Tensor(o, (*x.shape[:-1], size), v) for o, v in zip(outputs, values)]

    def doubled(self, name: str, x: Tensor) -> Tensor:
        """An image of twice the size, every pixel four times."""
        value = None if x.value is None else x.value.repeat(2, axis=2).repeat(2, axis=3)
        scales = self._constant(f"{name}.scales", [1.0, 1.0, 2.0, 2.0])
        how: dict[str, Any] = {
            "mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor",
        }  # fmt: skip
        channels, h, w = x.shape
        return self._node("Resize", name, [x.name, "", scales], (channels, 2 * h, 2 * w), value, **how)

    def concat(self, name: str, *parts: Tensor) -> Tensor:
        """Channels (rows of a matrix) side by side."""
        value = None
        if all(p.value is not None for p in parts):
            value = np.concatenate([p.value for p in parts if p.value is not None], axis=1)
        shape = (sum(p.shape[0] for p in parts), *parts[0].shape[1:])
        return self._node("Concat", name, [p.name for p in parts], shape, value, axis=1)

    # -- inside

    def _node(
        self,
        op: str,
        name: str,
        inputs: list[str],
        shape: tuple[int, ...],
        value: np.ndarray | None,
        *,
        grid: float = exact.GRID,
        **attributes: Any,
    ) -> Tensor:
        self.nodes.append(helper.make_node(op, inputs, [f"{name}.out"], name=name, **attributes))
        if value is not None and op not in _ON_THE_GRID:
            value = exact.snap(value, grid)
        return Tensor(f"{name}.out", shape, value)

    def _constant(self, name: str, value: float | list[int] | list[float], dtype: Any = np.float32) -> str:
        self._constants[name] = np.array(value, dtype)
        return name

    def _bell(self, name: str, shape: tuple[int, ...], deviation: float) -> np.ndarray:
        return exact.bell(uniform_bytes(4 * math.prod(shape), self.seed, name), shape, deviation)

    def _drawn(self, name: str, shape: tuple[int, ...], smooth: float = 0.0) -> np.ndarray:
        """The weight of a layer as drawn, before normalisation (nothing when weights are given).

        ``smooth``: the part of the variance that all taps of a kernel share.
        """
        if self.weights is not None:
            return np.zeros(shape)
        deviation = math.sqrt(2 / math.prod(shape[1:]))
        drawn = self._bell(f"{name}.weight", shape, deviation)
        if not smooth or math.prod(shape[2:]) == 1:
            return drawn
        common = self._bell(f"{name}.weight.common", (*shape[:2], 1, 1), deviation)
        return drawn * exact.short(math.sqrt(1 - smooth)) + common * exact.short(math.sqrt(smooth))

    def _scaled(
        self,
        name: str,
        weight: np.ndarray,
        value: np.ndarray | None,
        bias: bool,
        deviation: float | None,
        shift: float = 0.0,
        *,
        transposed: bool = False,
    ) -> tuple[list[str], np.ndarray | None]:
        """Normalises weight and bias to the deviation (None: leaves them), stores them (the weight ``transposed``).

        Their names and the new output.
        """
        offset = np.zeros(len(weight))
        if value is not None and deviation is not None:
            mean, variance = exact.moments(exact.snap(value))
            # with a bias the means are taken away, and what counts is the spread within the channels
            size = variance.mean() if bias else (variance + mean * mean).mean()
            factor = exact.short(deviation / math.sqrt(max(size, _SMALLEST_VARIANCE)))
            weight, value = weight * factor, value * factor
            if bias:
                offset = exact.snap(self._bell(f"{name}.bias", offset.shape, 0.1) + shift - mean * factor)
        weight = weight.T if transposed else weight
        self._parameter(f"{name}.weight", weight.shape, lambda: weight)
        if not bias:
            return [f"{name}.weight"], value
        self._parameter(f"{name}.bias", offset.shape, lambda: offset)
        return [f"{name}.weight", f"{name}.bias"], None if value is None else value + exact.per_channel(offset, value)

    def _parameter(self, name: str, shape: tuple[int, ...], make: Any) -> np.ndarray:
        if name in self.parameters:
            raise ZooError(f"two layers have a parameter {name}: give every layer a name of its own")
        if self.weights is None:
            array = make()
        elif name in self.weights:
            array = np.asarray(self.weights[name])
            if array.shape != shape or not np.isfinite(array).all():
                raise ZooError(f"{name}: give finite numbers of shape {shape}, not {array.shape}")
        else:
            raise ZooError(f"{name} of shape {shape} is missing among the given weights")
        self.parameters[name] = np.ascontiguousarray(array, dtype=np.float32)
        return self.parameters[name]

    def _pooled(self, name: str, x: Tensor, kernel: int, stride: int, pad: int, ceil: bool) -> tuple[int, int]:
        h, w = ((s + 2 * pad - kernel + (stride - 1 if ceil else 0)) // stride + 1 for s in x.shape[1:])
        if h < 1 or w < 1:
            raise ZooError(
                f"{name}: a {kernel}x{kernel} window does not fit its "
                f"{x.shape[1]}x{x.shape[2]} input: choose a larger image"
            )
        return h, w

    def _polynomial(self, name: str, x: Tensor, coefficients: tuple[float, ...]) -> Tensor:
        """c0 + c1 x + c2 x^2 [+ c4 x^4], the powers by squaring."""
        c0, c1, c2, _, c4 = (*coefficients, 0.0, 0.0)[:5]
        v = x.value
        squared = None if v is None else v * v
        power = self._node("Mul", f"{name}.x2", [x.name, x.name], x.shape, squared)
        terms = [self._times(f"{name}.c1", x, c1), self._times(f"{name}.c2", power, c2)]
        if c4:
            fourth = None if power.value is None else power.value * power.value
            terms.append(
                self._times(
                    f"{name}.c4", self._node("Mul", f"{name}.x4", [power.name, power.name], x.shape, fourth), c4
                )
            )
        total = terms[0]
        for number, term in enumerate(terms[1:]):
            total = self.add(f"{name}.sum{number}", total, term)
        value = None if total.value is None else total.value + c0
        return self._node("Add", name, [total.name, self._constant(f"{name}.c0", c0)], x.shape, value)

    def _gelu(self, name: str, x: Tensor) -> Tensor:
        """``x (1 + erf(x / sqrt 2)) / 2``, written out."""
        scalars = {"root": math.sqrt(2.0), "one": 1.0, "half": 0.5}
        root, one, half = (self._constant(f"gelu.{k}", v) for k, v in scalars.items())
        y = self._node("Div", f"{name}.div", [x.name, root], x.shape, None)
        y = self._node("Erf", f"{name}.erf", [y.name], x.shape, None)
        y = self._node("Add", f"{name}.add", [y.name, one], x.shape, None)
        y = self._node("Mul", f"{name}.mul", [x.name, y.name], x.shape, None)
        value = None if x.value is None else exact.by_table(_gelu, x.value)
        return self._node("Mul", name, [y.name, half], x.shape, value)

    def _times(self, name: str, x: Tensor, factor: float) -> Tensor:
        value = None if x.value is None else x.value * factor
        return self._node("Mul", f"{name}.mul", [x.name, self._constant(name, factor)], x.shape, value)


def _gelu(x: float) -> float:
    return 0.5 * x * (1.0 + math.erf(x / math.sqrt(2.0)))


# activations that are one operator: it, what it computes, and its attributes
_OPERATORS: dict[str, tuple[str, Callable[[np.ndarray], np.ndarray], dict[str, float]]] = {
    "relu": ("Relu", lambda v: np.maximum(v, 0), {}),
    "sigmoid": ("Sigmoid", lambda v: 1 / (1 + np.exp(-v)), {}),
    "hard-sigmoid": ("HardSigmoid", lambda v: np.clip(v / 6 + 0.5, 0, 1), {"alpha": 1 / 6, "beta": 0.5}),
    "hard-swish": ("HardSwish", lambda v: v * np.clip(v / 6 + 0.5, 0, 1), {}),
}
# name -> coefficients of 1, x, x^2, x^3, x^4 where it is a polynomial that is not built otherwise
ACTIVATIONS: dict[str, tuple[float, ...]] = {
    **dict.fromkeys(_OPERATORS, ()),
    "relu6": (),
    "square": (),
    "swish": (),
    "gelu": (),
    "swish-rg5-deg2": (0.24, 0.5, 0.1),
    "swish-rg7-deg4": (0.1773, 0.5, 0.128, 0.0, -0.001328),
}

"""Networks as other hands write them: nothing of :mod:`.export`, other names, other forms, other habits.

Keras by way of tf2onnx, PyTorch's newer exporter, hand-written graphs. Weights are seeded and small.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Sizes = Sequence[int | str]


class Foreign:
    """A graph node by node; names are made of ``pattern``, in which ``{}`` is a number."""

    def __init__(self, seed: int, opset: int, pattern: str, producer: str = "unknown") -> None:
        self.rng = np.random.default_rng(seed)
        self.opset, self.pattern, self.producer = opset, pattern, producer
        self.nodes: list[onnx.NodeProto] = []
        self.tensors: list[onnx.TensorProto] = []
        self.ports: list[onnx.ValueInfoProto] = []
        self.count = 0

    def name(self, what: str) -> str:
        """A name that nothing has yet."""
        self.count += 1
        return self.pattern.format(what, self.count)

    def input(self, name: str, *shape: int | str, kind: int = TensorProto.FLOAT) -> str:
        """An input with these axes, the batch among them."""
        self.ports.append(helper.make_tensor_value_info(name, kind, list(shape)))
        return name

    def const(self, value: Any, dtype: Any = np.float32) -> str:
        """An initializer."""
        name = self.name("Const")
        self.tensors.append(numpy_helper.from_array(np.asarray(value, dtype=dtype), name))
        return name

    def ints(self, *values: int) -> str:
        """An initializer of one axis of integers."""
        return self.const(list(values), np.int64)

    def weight(self, *shape: int, gain: float = 1.0, fan: int | None = None) -> str:
        """Normal weights of deviation ``gain / sqrt(fan)``, by default what an output sums."""
        fan = fan or math.prod(shape[1:])
        return self.const(self.rng.standard_normal(shape) * gain / math.sqrt(fan))

    def op(self, kind: str, *inputs: str, outputs: int = 1, **attributes: Any) -> Any:
        """A node; its output, or several."""
        name = self.name(kind)
        made = [f"{name}:{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(kind, list(inputs), made, name=name, **attributes))
        return made[0] if outputs == 1 else made

    def model(self, **outputs: tuple[str, Sizes]) -> onnx.ModelProto:
        """The model, with outputs under these names and of these shapes."""
        for name, (tensor, _) in outputs.items():
            self.nodes.append(helper.make_node("Identity", [tensor], [name], name=self.name("Identity")))
        results = [helper.make_tensor_value_info(n, TensorProto.FLOAT, list(s)) for n, (_, s) in outputs.items()]
        graph = helper.make_graph(self.nodes, "main_graph", self.ports, results, self.tensors)
        version = 7 if self.opset < 15 else 8 if self.opset < 20 else 10
        return helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=version, producer_name=self.producer
        )

    # -- what several of them have

    def norm(self, x: str, channels: int) -> str:
        """BatchNormalization with statistics far from 0 and 1, as trained ones are."""
        rng = self.rng
        values = (rng.uniform(0.5, 1.5, channels), rng.normal(0, 0.2, channels), rng.normal(0.3, 0.2, channels))
        return self.op("BatchNormalization", x, *map(self.const, values), self.const(rng.uniform(0.3, 1.2, channels)))

    def dense(self, x: str, inputs: int, outputs: int, gain: float = 1.0) -> str:
        """MatMul, and Add of a bias behind it."""
        product = self.op("MatMul", x, self.weight(inputs, outputs, gain=gain, fan=inputs))
        return self.op("Add", product, self.const(self.rng.normal(0, 0.1, outputs)))

    def size(self, x: str, axis: int) -> str:
        """``[x.shape[axis]]``, by Shape, Gather and Unsqueeze."""
        one = self.op("Gather", self.op("Shape", x), self.const(axis, np.int64), axis=0)
        return self.op("Unsqueeze", one, self.ints(0))

    def viewed(self, x: str, *sizes: int | str) -> str:
        """Reshape by Concat of computed sizes: a string is a tensor of one size."""
        parts = [self.ints(s) if isinstance(s, int) else s for s in sizes]
        return self.op("Reshape", x, self.op("Concat", *parts, axis=0))

    def mean(self, x: str, *axes: int, keep: bool = True) -> str:
        """ReduceMean, its axes an input since opset 18."""
        if self.opset >= 18:
            return self.op("ReduceMean", x, self.ints(*axes), keepdims=int(keep))
        return self.op("ReduceMean", x, axes=list(axes), keepdims=int(keep))


def keras_image() -> onnx.ModelProto:
    """tf2onnx: channels last, SAME padding that is not even, BatchNormalization behind the activation, Squeeze."""
    net = Foreign(1, 13, "StatefulPartitionedCall/model/{}__{}", "tf2onnx")
    x = net.input("input_1", "unk__12", 17, 15, 3)
    x = net.op("Transpose", x, perm=[0, 3, 1, 2])
    x = net.op("Conv", x, net.weight(8, 3, 3, 3, gain=1.4), strides=[2, 2], auto_pad="SAME_UPPER", kernel_shape=[3, 3])
    x = net.norm(net.op("Relu", net.op("Add", x, net.const(net.rng.normal(0, 0.1, (1, 8, 1, 1))))), 8)
    # back to channels last and at once to channels first again, as partial optimisation leaves it
    x = net.op("Transpose", net.op("Transpose", x, perm=[0, 2, 3, 1]), perm=[0, 3, 1, 2])
    y = net.op("Conv", x, net.weight(8, 1, 3, 3, gain=1.4), group=8, pads=[1, 1, 1, 1], kernel_shape=[3, 3])
    # ReLU6 as Min and Max
    y = net.op("Min", net.op("Max", net.norm(y, 8), net.const(0.0)), net.const(6.0))
    x = net.op("Concat", x, net.op("Conv", y, net.weight(4, 8, 1, 1)), axis=1)
    x = net.op("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2], auto_pad="VALID")
    x = net.op("Transpose", x, perm=[0, 2, 3, 1])
    x = net.op("Reshape", x, net.ints(-1, 4 * 4 * 12))
    x = net.norm(net.op("LeakyRelu", net.dense(x, 192, 16, gain=1.4), alpha=0.3), 16)
    return net.model(dense_1=(net.op("Softmax", net.dense(x, 16, 5, gain=2.0), axis=-1), ["unk__13", 5]))


def torch_attention() -> onnx.ModelProto:
    """PyTorch's newer exporter: one view of queries, keys and values, roots of sizes, a guard against NaN."""
    net = Foreign(2, 17, "/blocks/{}_{}", "pytorch")
    width, heads, tokens = 8, 2, 5
    x = net.input("tokens", "batch", tokens, 12)
    x = net.op("Add", net.dense(x, 12, width), net.const(net.rng.normal(0, 0.5, (1, tokens, width))))
    for _ in range(1):
        y = net.op(
            "LayerNormalization", x, net.const(net.rng.uniform(0.5, 1.5, width)),
            net.const(net.rng.normal(0, 0.1, width)), axis=-1,
        )  # fmt: skip
        y = net.dense(y, width, 3 * width)
        y = net.viewed(y, net.size(x, 0), net.size(x, 1), 3, heads, width // heads)
        y = net.op("Transpose", y, perm=[2, 0, 3, 1, 4])
        q, k, v = (net.op("Gather", y, net.const(i, np.int64), axis=0) for i in range(3))
        # torch.nn.functional.scaled_dot_product_attention: both factors times the root of the scale
        last = net.op("Slice", net.op("Shape", q), net.ints(-1), net.ints(1 << 62))
        scale = net.op("Div", net.const([1.0]), net.op("Sqrt", net.op("Cast", last, to=TensorProto.FLOAT)))
        root = net.op("Sqrt", scale)
        k = net.op("Transpose", k, perm=[0, 1, 3, 2])
        scores = net.op("MatMul", net.op("Mul", q, root), net.op("Mul", k, root))
        shares = net.op("Softmax", scores, axis=-1)
        shares = net.op("Where", net.op("IsNaN", shares), net.const(0.0), shares)
        y = net.op("Transpose", net.op("MatMul", shares, v), perm=[0, 2, 1, 3])
        x = net.op("Add", x, net.dense(net.viewed(y, net.size(x, 0), net.size(x, 1), width), width, width, gain=0.5))
        # LayerNorm and GELU in their parts
        away = net.op("Sub", x, net.mean(x, -1))
        spread = net.op("Add", net.mean(net.op("Pow", away, net.const(2.0)), -1), net.const(1e-5))
        y = net.op("Mul", net.op("Div", away, net.op("Sqrt", spread)), net.const(net.rng.uniform(0.5, 1.5, width)))
        y = net.dense(y, width, 2 * width)
        gate = net.op("Add", net.op("Erf", net.op("Div", y, net.const(math.sqrt(2)))), net.const(1.0))
        y = net.op("Mul", net.op("Mul", y, gate), net.const(0.5))
        x = net.op("Add", x, net.dense(y, 2 * width, width, gain=0.5))
    return net.model(logits=(net.dense(net.mean(x, 1, keep=False), width, 4, gain=2.0), ["batch", 4]))


def decoder_block() -> onnx.ModelProto:
    """A block of a language model: RMS normalisation in parts, rotated queries and keys, a causal mask, SwiGLU."""
    net = Foreign(3, 18, "/model/layers.0/{}_{}", "pytorch")
    width, heads, tokens = 16, 2, 6
    each = width // heads
    x = net.input("hidden", "N", tokens, width)

    def rms(x: str) -> str:
        spread = net.op("Add", net.mean(net.op("Mul", x, x), -1), net.const(1e-6))
        root = net.op("Reciprocal", net.op("Sqrt", spread))
        return net.op("Mul", net.const(net.rng.uniform(0.5, 1.5, width)), net.op("Mul", x, root))

    angles = np.arange(tokens)[:, None] / 100.0 ** (np.arange(each // 2) / (each // 2))
    cos, sin = (net.const(np.tile(f(angles), 2)[None, None]) for f in (np.cos, np.sin))

    def rotated(x: str) -> str:
        low = net.op("Slice", x, net.ints(0), net.ints(each // 2), net.ints(3), net.ints(1))
        high = net.op("Slice", x, net.ints(each // 2), net.ints((1 << 63) - 1), net.ints(3), net.ints(1))
        turned = net.op("Concat", net.op("Neg", high), low, axis=-1)
        return net.op("Add", net.op("Mul", x, cos), net.op("Mul", turned, sin))

    def headed(x: str) -> str:
        y = net.op("MatMul", x, net.weight(width, width, fan=width))
        return net.op("Transpose", net.op("Reshape", y, net.ints(0, 0, heads, each)), perm=[0, 2, 1, 3])

    y = rms(x)
    q, k, v = rotated(headed(y)), rotated(headed(y)), headed(y)
    scores = net.op("MatMul", q, net.op("Transpose", k, perm=[0, 1, 3, 2]))
    scores = net.op("Mul", scores, net.const(each**-0.5))
    later = net.const(np.triu(np.full((tokens, tokens), np.finfo(np.float32).min), 1)[None, None])
    shares = net.op("Softmax", net.op("Add", scores, later), axis=-1)
    y = net.op("Transpose", net.op("MatMul", shares, v), perm=[0, 2, 1, 3])
    y = net.op("Reshape", y, net.ints(0, 0, width))
    x = net.op("Add", x, net.op("MatMul", y, net.weight(width, width, fan=width, gain=0.5)))
    y = rms(x)
    gate = net.op("MatMul", y, net.weight(width, 24, fan=width))
    gate = net.op("Mul", gate, net.op("Sigmoid", gate))
    y = net.op("Mul", gate, net.op("MatMul", y, net.weight(width, 24, fan=width)))
    x = net.op("Add", x, net.op("MatMul", y, net.weight(24, width, fan=24, gain=0.5)))
    return net.model(out=(net.op("MatMul", rms(x), net.weight(width, 9, fan=width)), ["N", tokens, 9]))


def group_norm_image() -> onnx.ModelProto:
    """A block of a diffusion network: GroupNorm by InstanceNormalization between Reshapes, SiLU, a shortcut."""
    net = Foreign(4, 14, "/down_blocks.0/{}_{}", "pytorch")
    x = net.input("sample", "batch", 4, 9, 7)
    x = net.op("Conv", x, net.weight(8, 4, 3, 3), net.const(net.rng.normal(0, 0.1, 8)), pads=[1, 1, 1, 1])

    def normed(x: str, channels: int, groups: int) -> str:
        y = net.op("Reshape", x, net.ints(0, groups, -1))
        y = net.op("InstanceNormalization", y, net.const(np.ones(groups)), net.const(np.zeros(groups)), epsilon=1e-5)
        y = net.op("Reshape", y, net.op("Shape", x))
        y = net.op("Mul", y, net.const(net.rng.uniform(0.5, 1.5, (channels, 1, 1))))
        return net.op("Add", y, net.const(net.rng.normal(0, 0.2, (channels, 1, 1))))

    y = normed(x, 8, 4)
    y = net.op("Conv", net.op("Mul", y, net.op("Sigmoid", y)), net.weight(12, 8, 3, 3, gain=1.4), pads=[1, 1, 1, 1])
    x = net.op("Add", net.op("Conv", x, net.weight(12, 8, 1, 1)), y)
    x = net.op("Conv", x, net.weight(3, 12, 3, 3), pads=[1, 1, 1, 1], strides=[2, 2])
    return net.model(out_sample=(x, ["batch", 3, 5, 4]))


def pixel_shuffle() -> onnx.ModelProto:
    """Super-resolution: PRelu a channel, PixelShuffle by Reshape and Transpose with sizes from Shape, a skip, Tanh."""
    net = Foreign(5, 16, "{}.{}", "pytorch")
    x = first = net.input("low", "b", 1, 7, 6)
    for channels, inputs in ((8, 1), (8, 8)):
        x = net.op("Conv", x, net.weight(channels, inputs, 3, 3, gain=1.3), pads=[1, 1, 1, 1])
        x = net.op("PRelu", x, net.const(net.rng.uniform(0.05, 0.4, (channels, 1, 1))))
    x = net.op("Conv", x, net.weight(4, 8, 3, 3), net.const(net.rng.normal(0, 0.1, 4)), pads=[1, 1, 1, 1])
    rows, columns = net.size(x, 2), net.size(x, 3)
    x = net.viewed(x, net.size(x, 0), 1, 2, 2, rows, columns)
    x = net.op("Transpose", x, perm=[0, 1, 4, 2, 5, 3])
    sizes = [net.op("Mul", n, net.ints(2)) for n in (rows, columns)]
    x = net.viewed(x, net.size(first, 0), 1, *sizes)
    wide = net.op(
        "Resize", first, "", net.const([1.0, 1.0, 2.0, 2.0]), mode="linear",
        coordinate_transformation_mode="pytorch_half_pixel",
    )  # fmt: skip
    return net.model(high=(net.op("Tanh", net.op("Add", x, wide)), ["b", 1, 14, 12]))


def gated_means() -> onnx.ModelProto:
    """Squeeze-and-excite by ReduceMean, Gemm and two Unsqueezes; hard sigmoid by Clip and Div; ends in a mean."""
    net = Foreign(6, 18, "features.{}.{}", "pytorch")
    x = net.input("pixel_values", "batch_size", 3, 12, 12)
    x = net.op("Conv", x, net.weight(12, 3, 3, 3, gain=1.4), strides=[2, 2], pads=[1, 1, 1, 1])
    x = net.op("HardSwish", net.norm(x, 12))
    for _ in range(2):
        y = net.op("Conv", x, net.weight(12, 1, 5, 5, gain=1.4), group=12, pads=[2, 2, 2, 2])
        y = net.op("Relu", net.norm(y, 12))
        gate = net.mean(y, 2, 3, keep=False)
        gate = net.op("Relu", net.op("Gemm", gate, net.weight(4, 12, gain=1.4), transB=1))
        gate = net.op("Gemm", gate, net.weight(12, 4, gain=2.0), net.const(net.rng.normal(0, 0.3, 12)), transB=1)
        gate = net.op("Clip", net.op("Add", gate, net.const(3.0)), net.const(0.0), net.const(6.0))
        gate = net.op("Div", gate, net.const(6.0))
        gate = net.op("Unsqueeze", net.op("Unsqueeze", gate, net.ints(2)), net.ints(3))
        x = net.op("Add", x, net.op("Conv", net.op("Mul", y, gate), net.weight(12, 12, 1, 1)))
    x = net.mean(x, 2, 3, keep=False)
    return net.model(logits=(net.op("Gemm", x, net.weight(6, 12, gain=2.0), transB=1), ["batch_size", 6]))


def lstm_pooled() -> onnx.ModelProto:
    """Keras: a bidirectional LSTM over time-major data, attention over its states, a weighted sum."""
    net = Foreign(7, 15, "sequential/{}/{}", "keras2onnx")
    steps, features, hidden = 3, 4, 4
    x = net.input("series", "N", steps, features)
    x = net.op("Transpose", x, perm=[1, 0, 2])
    cells = [net.weight(2, 4 * hidden, n, fan=n) for n in (features, hidden)]
    y = net.op("LSTM", x, *cells, net.const(net.rng.normal(0, 0.1, (2, 8 * hidden))), "", outputs=3,
               direction="bidirectional", hidden_size=hidden)[0]  # fmt: skip
    y = net.op("Reshape", net.op("Transpose", y, perm=[2, 0, 1, 3]), net.ints(0, 0, -1))
    scores = net.dense(net.op("Tanh", net.dense(y, 2 * hidden, 8)), 8, 1, gain=2.0)
    shares = net.op("Softmax", scores, axis=1)
    pooled = net.op("ReduceSum", net.op("Mul", y, shares), net.ints(1), keepdims=0)
    return net.model(probability=(net.op("Sigmoid", net.dense(pooled, 2 * hidden, 1, gain=2.0)), ["N", 1]))


def temporal() -> onnx.ModelProto:
    """TCN: dilated causal convolutions whose padding is cut off behind them, and the last step."""
    net = Foreign(8, 11, "TemporalConvNet.{}_{}", "pytorch")
    x = net.input("x", "batch", 3, 20)
    inputs = 3
    for level, channels in enumerate((6, 6, 8)):
        reach = 2 * 2**level
        y = net.op("Conv", x, net.weight(channels, inputs, 3, gain=1.4), dilations=[2**level], pads=[reach, reach])
        # Chomp1d
        y = net.op("Slice", y, net.ints(0), net.ints(-reach), net.ints(2), net.ints(1))
        y = net.op("Relu", y)
        x = x if inputs == channels else net.op("Conv", x, net.weight(channels, inputs, 1))
        x, inputs = net.op("Relu", net.op("Add", y, x)), channels
    last = net.op("Gather", x, net.const(-1, np.int64), axis=2)
    y = net.op("Gemm", last, net.weight(3, 8), net.const(np.zeros(3)), transB=1)
    return net.model(y=(net.op("LogSoftmax", y, axis=1), ["batch", 3]))


def autoencoder() -> onnx.ModelProto:
    """Convolutions to a code and ConvTranspose back, with output paddings, to pixels between 0 and 1."""
    net = Foreign(9, 12, "{}__{}")
    x = net.input("image", "None", 1, 14, 10)
    for channels, inputs in ((6, 1), (8, 6)):
        x = net.op("Conv", x, net.weight(channels, inputs, 3, 3, gain=1.4), strides=[2, 2], pads=[1, 1, 1, 1])
        x = net.op("Elu", x, alpha=1.0)
    code = net.dense(net.op("Flatten", x), 8 * 4 * 3, 10)
    x = net.op("Softplus", net.dense(net.op("Tanh", code), 10, 8 * 4 * 3))
    x = net.op("Reshape", x, net.ints(-1, 8, 4, 3))
    x = net.op("ConvTranspose", x, net.weight(8, 6, 3, 3, fan=18), strides=[2, 2], pads=[1, 1, 1, 1],
               output_padding=[0, 0])  # fmt: skip
    x = net.op("Relu", x)
    x = net.op("ConvTranspose", x, net.weight(6, 1, 3, 3, fan=13), net.const([0.1]), strides=[2, 2],
               pads=[1, 1, 1, 1], output_padding=[1, 1])  # fmt: skip
    return net.model(again=(net.op("Sigmoid", x), ["None", 1, 14, 10]))


def siamese() -> onnx.ModelProto:
    """Two inputs, one set of weights, cosine similarity by norms that are clipped away from zero."""
    net = Foreign(10, 17, "encoder/{}:{}")
    ports = [net.input(n, "rows", 2, 8, 8) for n in ("anchor", "other")]
    first, second = net.weight(6, 2, 3, 3, gain=1.4), net.weight(8, 6, 3, 3, gain=1.4)
    matrix, shift = net.weight(8 * 2 * 2, 8, fan=32), net.const(net.rng.normal(0, 0.1, 8))

    def code(x: str) -> str:
        for weight in (first, second):
            x = net.op("Relu", net.op("Conv", x, weight, strides=[2, 2], pads=[1, 1, 1, 1]))
        return net.op("Add", net.op("MatMul", net.op("Flatten", x, axis=1), matrix), shift)

    a, b = map(code, ports)
    inner = net.op("ReduceSum", net.op("Mul", a, b), net.ints(1), keepdims=0)
    sizes = [net.op("ReduceL2", v, axes=[1], keepdims=0) for v in (a, b)]
    size = net.op("Clip", net.op("Mul", *sizes), net.const(1e-8))
    return net.model(similarity=(net.op("Div", inner, size), ["rows"]))


def odd_unet() -> onnx.ModelProto:
    """U-Net on odd sizes: what was doubled is padded to what it joins, by sizes that the graph computes."""
    net = Foreign(11, 13, "/up{}/{}", "pytorch")
    x = net.input("scan", "batch", 1, 13, 11)

    def double(x: str, inputs: int, channels: int) -> str:
        for n in (inputs, channels):
            x = net.op("Conv", x, net.weight(channels, n, 3, 3, gain=1.4), pads=[1, 1, 1, 1])
            x = net.op("Relu", net.norm(x, channels))
        return x

    downs = [double(x, 1, 4)]
    for channels in (8, 8):
        y = net.op("MaxPool", downs[-1], kernel_shape=[2, 2], strides=[2, 2])
        downs.append(double(y, 4 if len(downs) == 1 else 8, channels))
    x = downs.pop()
    for channels, kind in ((8, "ConvTranspose"), (4, "Resize")):
        skip = downs.pop()
        if kind == "Resize":
            half = {"mode": "linear", "coordinate_transformation_mode": "align_corners"}
            x = net.op("Resize", x, "", net.const([1.0, 1.0, 2.0, 2.0]), **half)
        else:
            x = net.op("ConvTranspose", x, net.weight(8, 8, 2, 2, fan=8), strides=[2, 2])
        # F.pad(x, [d // 2, d - d // 2, ...]) with d = skip.size - x.size
        pads = [net.ints(0, 0)]
        for end in (0, 1):
            for axis in (2, 3):
                more = net.op("Sub", net.size(skip, axis), net.size(x, axis))
                less = net.op("Div", more, net.ints(2))
                pads.append(net.op("Sub", more, less) if end else less)
            pads += [net.ints(0, 0)] * (1 - end)
        x = net.op("Pad", x, net.op("Concat", *pads, axis=0), net.const(0.0), mode="constant")
        x = double(net.op("Concat", skip, x, axis=1), 8 + channels, channels)
    return net.model(mask=(net.op("Conv", x, net.weight(2, 4, 1, 1)), ["batch", 2, 13, 11]))


FOREIGN: dict[str, Callable[[], onnx.ModelProto]] = {
    f.__name__: f
    for f in (
        keras_image, torch_attention, decoder_block, group_norm_image, pixel_shuffle, gated_means, lstm_pooled,
        temporal, autoencoder, siamese, odd_unet,
    )
}  # fmt: skip

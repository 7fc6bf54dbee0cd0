"""Small ONNX networks for the tests: every supported operator alone, and seeded random chains with branches."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


class Net:
    """Builds an ONNX graph layer by layer; shapes are tracked by ONNX's own inference at the end."""

    def __init__(self, shape: tuple[int, ...], seed: int = 0, opset: int = 17):
        self.rng = np.random.default_rng(seed)
        self.shape, self.opset = shape, opset
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.last = "x"

    def constant(self, value: np.ndarray) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(value, name))
        return name

    def weight(self, *shape: int, gain: float = 1.0) -> str:
        fan_in = max(1, int(np.prod(shape[1:])))
        return self.constant((self.rng.standard_normal(shape) * gain / np.sqrt(fan_in)).astype(np.float32))

    def op(self, kind: str, *inputs: str, outputs: int = 1, **attributes: Any) -> str:
        """Adds a node; without inputs it takes the last output first."""
        names = [f"t{len(self.nodes)}_{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(kind, list(inputs) or [self.last], names, **attributes))
        self.last = names[0]
        return names[0]

    def conv(
        self, c_in: int, c_out: int, kernel: tuple[int, int], groups: int = 1, bias: bool = True, **attributes: Any
    ) -> str:
        inputs = [self.last, self.weight(c_out, c_in // groups, *kernel)]
        if bias:
            inputs.append(self.weight(c_out))
        return self.op("Conv", *inputs, group=groups, kernel_shape=list(kernel), **attributes)

    def model(self, *outputs: str) -> onnx.ModelProto:
        names = list(outputs) or [self.last]
        graph = helper.make_graph(
            self.nodes,
            "net",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", *self.shape])],
            [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in names],
            self.constants,
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=8)
        return onnx.shape_inference.infer_shapes(model)


def single_operators() -> dict[str, onnx.ModelProto]:
    """One model for every supported operator (and for its awkward attributes)."""
    models: dict[str, onnx.ModelProto] = {}

    def add(name: str, shape: tuple[int, ...], build: Any, opset: int = 17) -> None:
        net = Net(shape, seed=len(models), opset=opset)
        build(net)
        models[name] = net.model()

    image = (4, 7, 9)
    add("Conv", image, lambda n: n.conv(4, 3, (3, 2), strides=[2, 1], pads=[1, 0, 2, 1], dilations=[1, 2]))
    add("Conv-groups", image, lambda n: n.conv(4, 6, (3, 3), groups=2, pads=[1, 1, 1, 1], bias=False))
    add("Conv-depthwise", image, lambda n: n.conv(4, 8, (3, 3), groups=4, strides=[2, 2]))
    add("Conv-same", image, lambda n: n.conv(4, 5, (5, 5), auto_pad="SAME_UPPER", strides=[2, 3]))
    add(
        "Conv-1d",
        (3, 11),
        lambda n: n.op("Conv", n.last, n.weight(5, 3, 4), n.weight(5), kernel_shape=[4], strides=[2], pads=[1, 2]),
    )
    add("Gemm", (13,), lambda n: n.op("Gemm", n.last, n.weight(7, 13), n.weight(7), transB=1, alpha=0.5, beta=2.0))
    add("MatMul", (13,), lambda n: n.op("MatMul", n.last, n.weight(13, 6)))
    add("MatMul-leading", (5, 13), lambda n: n.op("MatMul", n.last, n.weight(13, 6)))
    for kind in ("Add", "Sub", "Mul", "Div"):
        scalar = np.float32(1.7)
        channels = np.linspace(0.5, 2.0, 4, dtype=np.float32).reshape(4, 1, 1)
        add(f"{kind}-scalar", image, lambda n, k=kind, c=scalar: n.op(k, n.last, n.constant(c)))
        add(f"{kind}-channels", image, lambda n, k=kind, c=channels: n.op(k, n.last, n.constant(c)))
    add("Sub-left", image, lambda n: n.op("Sub", n.constant(np.float32(1.0)), n.last))
    add("Add-elements", image, lambda n: n.op("Add", n.last, n.weight(*image)))
    add("Mul-elements", image, lambda n: n.op("Mul", n.last, n.weight(*image)))

    def residual(net: Net) -> None:
        left = net.conv(4, 4, (3, 3), pads=[1, 1, 1, 1])
        net.op("Relu")
        net.op("Add", net.conv(4, 4, (1, 1)), left)

    add("Add-residual", image, residual)

    def batch_norm(net: Net) -> None:
        ones = np.ones(4, np.float32)
        parameters = [ones * 1.3, ones * 0.2, ones * 0.1, np.linspace(0.5, 2, 4, dtype=np.float32)]
        net.op("BatchNormalization", net.last, *(net.constant(p) for p in parameters))

    add("BatchNormalization", image, batch_norm)
    add("Conv-BatchNormalization", image, lambda n: (n.conv(4, 4, (3, 3)), batch_norm(n)))
    for kind in ("Relu", "Sigmoid", "Tanh", "HardSwish", "Erf", "Identity", "Abs", "Neg"):
        add(kind, image, lambda n, k=kind: n.op(k))
    add("LeakyRelu", image, lambda n: n.op("LeakyRelu", alpha=0.1))
    add(
        "PRelu",
        image,
        lambda n: n.op("PRelu", n.last, n.constant(np.linspace(-0.5, 0.5, 4, dtype=np.float32).reshape(4, 1, 1))),
    )
    add("Clip", image, lambda n: n.op("Clip", n.last, n.constant(np.float32(0)), n.constant(np.float32(6))))
    add("Clip-low", image, lambda n: n.op("Clip", n.last, n.constant(np.float32(-0.3))))
    add("HardSigmoid", image, lambda n: n.op("HardSigmoid", alpha=0.3, beta=0.4))
    add("Elu", image, lambda n: n.op("Elu", alpha=0.7))
    add("Gelu", image, lambda n: n.op("Gelu"), opset=20)
    add("Gelu-tanh", image, lambda n: n.op("Gelu", approximate="tanh"), opset=20)
    add("Softmax", (10,), lambda n: n.op("Softmax", axis=-1))
    add("Softmax-channels", image, lambda n: n.op("Softmax", axis=1))
    add("MaxPool", image, lambda n: n.op("MaxPool", kernel_shape=[3, 2], strides=[2, 2], pads=[1, 0, 1, 1]))
    add("MaxPool-ceil", image, lambda n: n.op("MaxPool", kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1))
    add("AveragePool", image, lambda n: n.op("AveragePool", kernel_shape=[3, 2], strides=[2, 1], pads=[1, 0, 1, 1]))
    add(
        "AveragePool-pad",
        image,
        lambda n: n.op("AveragePool", kernel_shape=[2, 2], pads=[1, 1, 0, 0], count_include_pad=1),
    )
    add("GlobalAveragePool", image, lambda n: n.op("GlobalAveragePool"))
    add("ReduceMean", image, lambda n: n.op("ReduceMean", axes=[2, 3], keepdims=0))
    add(
        "ReduceMean-18",
        image,
        lambda n: n.op("ReduceMean", n.last, n.constant(np.array([1], np.int64)), keepdims=1),
        opset=18,
    )
    for kind in ("Sin", "Cos", "Atan", "Floor", "Round", "Softplus", "Sign", "LogSoftmax", "Hardmax"):
        add(kind, image, lambda n, k=kind: n.op(k))
    add("Log", image, lambda n: n.op("Log", n.op("Sigmoid")))
    add("Less", image, lambda n: n.op("Cast", n.op("Less", n.last, n.constant(np.float32(0.1))), to=TensorProto.FLOAT))
    add(
        "Equal",
        image,
        lambda n: n.op("Cast", n.op("Equal", n.op("Round"), n.constant(np.float32(1.0))), to=TensorProto.FLOAT),
    )
    add("ReduceProd", image, lambda n: n.op("ReduceProd", axes=[2], keepdims=1))
    add("MatMul-private", (5, 6), lambda n: n.op("MatMul", "x", n.op("Transpose", "x", perm=[0, 2, 1])))
    add("TopK", image, lambda n: n.op("TopK", "x", n.constant(np.array([3], np.int64)), outputs=2, axis=3))
    add("ArgMax", image, lambda n: n.op("Cast", n.op("ArgMax", axis=1), to=TensorProto.FLOAT))
    add(
        "Resize-linear",
        image,
        lambda n: n.op("Resize", "x", "", n.constant(np.array([1, 1, 2, 0.5], np.float32)), mode="linear"),
    )
    add(
        "Resize-nearest",
        image,
        lambda n: n.op("Resize", "x", "", n.constant(np.array([1, 1, 1.5, 2], np.float32)), mode="nearest"),
    )
    add(
        "Gather-Conv",
        image,
        lambda n: (n.op("Gather", "x", n.constant(np.array([3, 0, 2], np.int64)), axis=1), n.conv(3, 2, (2, 2))),
    )
    add(
        "ConvTranspose",
        image,
        lambda n: n.op("ConvTranspose", "x", n.weight(4, 3, 3, 2), strides=[2, 3], pads=[1, 0, 0, 1]),
    )
    add(
        "Conv-3d",
        (2, 4, 5, 5),
        lambda n: n.op("Conv", "x", n.weight(3, 2, 2, 3, 3), pads=[0, 1, 1, 1, 1, 1], strides=[2, 1, 2]),
    )
    add("Flatten", image, lambda n: n.op("Flatten", axis=1))
    add("Reshape", image, lambda n: n.op("Reshape", n.last, n.constant(np.array([0, 7, -1], np.int64))))
    add("Transpose", image, lambda n: n.op("Transpose", perm=[0, 3, 1, 2]))
    add("Squeeze", (4, 1, 9), lambda n: n.op("Squeeze", n.last, n.constant(np.array([2], np.int64))))
    add("Unsqueeze", (4, 9), lambda n: n.op("Unsqueeze", n.last, n.constant(np.array([2], np.int64))))

    def concat(net: Net) -> None:
        left = net.conv(4, 3, (1, 1))
        net.op("Concat", left, net.op("Relu", "x"), axis=1)

    add("Concat", image, concat)
    ends = np.iinfo(np.int64).max
    add(
        "Slice",
        image,
        lambda n: n.op(
            "Slice", n.last, *(n.constant(np.array(v, np.int64)) for v in ([1, -1], [6, -ends], [2, 3], [2, -2]))
        ),
    )
    add(
        "Pad",
        image,
        lambda n: n.op(
            "Pad", n.last, n.constant(np.array([0, 0, 1, 2, 0, 1, 0, 3], np.int64)), n.constant(np.float32(0.5))
        ),
    )
    add("Dropout", image, lambda n: n.op("Dropout"))

    def split(net: Net) -> None:
        a = net.op("Split", net.last, net.constant(np.array([1, 3], np.int64)), outputs=2, axis=1)
        net.op("Concat", a.replace("_0", "_1"), a, axis=1)

    add("Split", image, split)
    return models


def random_network(seed: int) -> tuple[onnx.ModelProto, tuple[int, ...]]:
    """A small network: convolutions, activations, pools, a residual or a concat branch, a dense head.

    From the seed alone.
    """
    rng = np.random.default_rng(seed)
    c, h, w = int(rng.integers(1, 5)), int(rng.integers(6, 12)), int(rng.integers(6, 12))
    net = Net((c, h, w), seed=seed)
    shape = (c, h, w)
    for _ in range(int(rng.integers(1, 4))):
        kernel = (int(rng.integers(1, 4)), int(rng.integers(1, 4)))
        c_out = int(rng.integers(1, 7))
        groups = c if rng.random() < 0.3 else 1
        c_out = c_out * c if groups > 1 and c_out * c <= 8 else (c if groups > 1 else c_out)
        pads = [int(p) for p in rng.integers(0, 2, 4)]
        strides = [int(s) for s in rng.integers(1, 3, 2)]
        if any(n + a + b < k for n, k, a, b in zip((h, w), kernel, pads[:2], pads[2:])):
            continue
        net.conv(c, c_out, kernel, groups=groups, bias=bool(rng.random() < 0.7), pads=pads, strides=strides)
        h, w = ((n + a + b - k) // s + 1 for n, k, a, b, s in zip((h, w), kernel, pads[:2], pads[2:], strides))
        c = c_out
        skip = net.last
        net.op(str(rng.choice(["Relu", "Sigmoid", "Tanh", "LeakyRelu", "HardSwish", "Elu"])))
        branch = rng.random()
        if branch < 0.3:
            net.op("Add", net.conv(c, c, (3, 3), pads=[1, 1, 1, 1]), skip)
        elif branch < 0.5:
            net.op("Concat", net.last, skip, axis=1)
            c *= 2
        if min(h, w) >= 4 and rng.random() < 0.5:
            kind = str(rng.choice(["MaxPool", "AveragePool"]))
            net.op(kind, kernel_shape=[2, 2], strides=[2, 2])
            h, w = h // 2, w // 2
    net.op("Flatten", axis=1)
    net.op("Gemm", net.last, net.weight(5, c * h * w), net.weight(5), transB=1)
    if rng.random() < 0.3:
        net.op("Softmax", axis=-1)
    return net.model(), shape

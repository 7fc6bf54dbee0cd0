"""Random ONNX networks with polynomial activations.

They have convolutions, batch norms, means, dense layers and residual sums.
"""

from __future__ import annotations

import numpy as np
import onnx
from hypothesis import strategies as st

from tests.frontend.harness import Net

POLYNOMIALS = {
    "square": (0, 0, 0.3),
    "deg2": (0.24, 0.5, 0.1),
    "deg3": (0.1, 0.4, 0.1, -0.05),
    "deg4": (0.1773, 0.5, 0.128, 0, -0.001328),
}


class Random(Net):
    """Layers with tracked shapes."""

    def __init__(self, shape: tuple[int, ...], seed: int):
        super().__init__(shape, seed=seed)
        self.shape = shape

    def activation(self, name: str) -> None:
        """``sum a_k x^k`` written with Mul and Add."""
        x, power, total = self.last, self.last, None
        for k, a in enumerate(POLYNOMIALS[name][1:], 1):
            if k > 1:
                power = self.op("Mul", power, x)
            if a:
                term = self.op("Mul", power, self.constant(a))
                total = term if total is None else self.op("Add", total, term)
        self.last = total
        if POLYNOMIALS[name][0]:
            self.op("Add", total, self.constant(POLYNOMIALS[name][0]))

    def conv(
        self,
        channels: int,
        kernel: tuple[int, int],
        stride: tuple[int, int],
        pads: tuple[int, ...],
        groups: int,
        dilation: int = 1,
    ) -> bool:
        c, h, w = self.shape
        out = [
            (n + pads[a] + pads[2 + a] - (kernel[a] - 1) * dilation - 1) // stride[a] + 1 for a, n in enumerate((h, w))
        ]
        if min(out) < 1:
            return False
        weight, bias = (
            self.weight(channels, c // groups, *kernel),
            self.constant(0.3 * self.rng.standard_normal(channels)),
        )
        self.op(
            "Conv",
            self.last,
            weight,
            bias,
            strides=list(stride),
            pads=list(pads),
            group=groups,
            dilations=[dilation] * 2,
        )
        self.shape = (channels, *out)
        return True

    def batch_norm(self) -> None:
        n = self.shape[0]
        scale, bias, mean = (
            self.constant(v)
            for v in (self.rng.uniform(-1.5, 1.5, n), self.rng.uniform(-1, 1, n), self.rng.uniform(-1, 1, n))
        )
        self.op("BatchNormalization", self.last, scale, bias, mean, self.constant(self.rng.uniform(0.3, 2, n)))

    def pool(self, kernel: int, stride: int, pad: int, include: int) -> bool:
        c, h, w = self.shape
        out = [(n + 2 * pad - kernel) // stride + 1 for n in (h, w)]
        if min(out) < 1 or pad >= kernel:
            return False
        self.op(
            "AveragePool",
            self.last,
            kernel_shape=[kernel] * 2,
            strides=[stride] * 2,
            pads=[pad] * 4,
            count_include_pad=include,
        )
        self.shape = (c, *out)
        return True

    def dense(self, outputs: int) -> None:
        if len(self.shape) == 3:
            self.op("Flatten", self.last)
        inputs = int(np.prod(self.shape))
        self.op(
            "Gemm",
            self.last,
            self.weight(outputs, inputs),
            self.constant(0.3 * self.rng.standard_normal(outputs)),
            transB=1,
        )
        self.shape = (outputs,)

    def residual(self, activation: str) -> None:
        source, shape = self.last, self.shape
        self.conv(shape[0], (3, 3), (1, 1), (1, 1, 1, 1), 1)
        self.batch_norm()
        self.op("Add", self.last, source)
        self.activation(activation)


@st.composite
def networks(draw: st.DrawFn) -> onnx.ModelProto:
    """Two to five blocks on an image, a dense end."""
    side = draw(st.integers(6, 9))
    net = Random((draw(st.sampled_from([1, 2, 4])), side, draw(st.integers(6, 9))), draw(st.integers(0, 1000)))
    kinds = st.sampled_from(sorted(POLYNOMIALS))
    for _ in range(draw(st.integers(2, 5))):
        block = draw(st.sampled_from(["conv", "conv", "residual", "pool", "norm", "concat", "activation"]))
        if block == "conv":
            kernel = (draw(st.integers(1, 3)), draw(st.integers(1, 3)))
            pads = tuple(draw(st.integers(0, 1)) for _ in range(4))
            groups = net.shape[0] if draw(st.booleans()) else 1
            net.conv(
                net.shape[0] * 2 if groups > 1 else draw(st.sampled_from([2, 4])),
                kernel,
                (draw(st.integers(1, 2)), 1),
                pads,
                groups,
            )
            if draw(st.booleans()):
                net.batch_norm()
            if draw(st.booleans()):
                net.activation(draw(kinds))
        elif block == "residual":
            net.residual(draw(kinds))
        elif block == "pool":
            kernel = draw(st.integers(2, 3))
            pad = draw(st.integers(0, 1))
            net.pool(kernel, draw(st.integers(1, 2)), pad, 1)
        elif block == "norm":
            net.batch_norm()
        elif block == "concat":
            x, shape = net.last, net.shape
            net.conv(2, (1, 1), (1, 1), (0, 0, 0, 0), 1)
            net.activation(draw(kinds))
            net.op("Concat", x, net.last, axis=1)
            net.shape = (shape[0] + 2, *shape[1:])
            net.conv(4, (2, 2), (1, 1), (1, 1, 0, 0), 1)
        else:
            net.activation(draw(kinds))
    if draw(st.booleans()):
        net.op("GlobalAveragePool", net.last)
        net.shape = (net.shape[0], 1, 1)
    if draw(st.booleans()):
        net.dense(6)
        net.activation(draw(kinds))
    net.dense(3)
    if draw(st.booleans()):
        net.op("Softmax", net.last, axis=-1)
    return net.model()


def residual(activation: str) -> Random:
    net = Random((2, 6, 6), 3)
    net.conv(4, (3, 3), (1, 1), (1, 1, 1, 1), 1)
    net.activation(activation)
    net.residual(activation)
    net.dense(3)
    return net


def pooled(activation: str) -> Random:
    net = Random((3, 8, 8), 4)
    net.conv(4, (3, 3), (1, 1), (1, 1, 1, 1), 1)
    net.activation(activation)
    net.pool(2, 2, 0, 0)
    net.conv(6, (3, 3), (1, 1), (1, 1, 1, 1), 1)
    net.activation(activation)
    net.op("GlobalAveragePool", net.last)
    net.shape = (6, 1, 1)
    net.dense(4)
    return net


def strided(activation: str) -> Random:
    net = Random((1, 9, 7), 5)
    net.conv(3, (3, 2), (2, 1), (0, 1, 1, 0), 1)
    net.batch_norm()
    net.activation(activation)
    net.dense(5)
    net.activation(activation)
    net.dense(3)
    net.op("Softmax", net.last, axis=-1)
    return net

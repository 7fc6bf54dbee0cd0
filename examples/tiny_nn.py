"""Just enough of a neural network in NumPy to train the small networks: layers with their gradients, Adam, a loop.

Every layer has ``parameters`` and ``gradients`` by the names that ``hushnet.zoo`` gives them; ``forward`` keeps what
``backward`` needs. Arrays are float32, images ``[n, c, h, w]``.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable

import numpy as np
from hushnet.zoo import ACTIVATIONS

Array = np.ndarray


class Layer(ABC):
    """A layer: parameters and gradients by name, an output, and the gradient of its input."""

    def __init__(self) -> None:
        self.parameters: dict[str, Array] = {}
        self.gradients: dict[str, Array] = {}

    @abstractmethod
    def forward(self, x: Array, training: bool) -> Array:
        """The output for a batch."""

    @abstractmethod
    def backward(self, dy: Array) -> Array:
        """The gradient of the input; keeps those of the parameters."""


class Dense(Layer):
    """``y = x W^T + b``; images are flattened."""

    def __init__(
        self, name: str, inputs: int, outputs: int, rng: np.random.Generator, *, bias: bool = True, gain: float = 1.0
    ):
        super().__init__()
        self.name = name
        self.parameters[f"{name}.weight"] = he(rng, (outputs, inputs), gain)
        if bias:
            self.parameters[f"{name}.bias"] = np.zeros(outputs, np.float32)

    def forward(self, x: Array, training: bool) -> Array:
        """The outputs of a batch ``x``; keeps what :meth:`backward` needs."""
        self.shape = x.shape
        self.x = x.reshape(len(x), -1)
        return self.x @ self.parameters[f"{self.name}.weight"].T + self.parameters.get(f"{self.name}.bias", 0)

    def backward(self, dy: Array) -> Array:
        """Stores the gradients of the parameters, and returns that of the input, from the output's ``dy``."""
        self.gradients[f"{self.name}.weight"] = dy.T @ self.x
        if f"{self.name}.bias" in self.parameters:
            self.gradients[f"{self.name}.bias"] = dy.sum(axis=0)
        return (dy @ self.parameters[f"{self.name}.weight"]).reshape(self.shape)


class Conv(Layer):
    """Cross-correlation as a matrix product over patches (im2col); ``pads`` (top, left, bottom, right)."""

    def __init__(
        self,
        name: str,
        channels: int,
        maps: int,
        kernel: int,
        rng: np.random.Generator,
        *,
        stride: int = 1,
        pads: tuple[int, int, int, int] = (0, 0, 0, 0),
        bias: bool = True,
        gain: float = 1.0,
    ):
        super().__init__()
        self.name, self.kernel, self.stride, self.pads = name, kernel, stride, pads
        self.parameters[f"{name}.weight"] = he(rng, (maps, channels, kernel, kernel), gain)
        if bias:
            self.parameters[f"{name}.bias"] = np.zeros(maps, np.float32)

    def forward(self, x: Array, training: bool) -> Array:
        """The outputs of a batch ``x``; keeps what :meth:`backward` needs."""
        top, left, bottom, right = self.pads
        x = np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)))
        self.padded = x.shape
        weight = self.parameters[f"{self.name}.weight"]
        windows = np.lib.stride_tricks.sliding_window_view(x, (self.kernel,) * 2, axis=(2, 3))[
            :, :, :: self.stride, :: self.stride
        ]
        n, _, oh, ow = windows.shape[:4]
        self.patches = windows.transpose(0, 2, 3, 1, 4, 5).reshape(n * oh * ow, -1)
        y = self.patches @ weight.reshape(len(weight), -1).T + self.parameters.get(f"{self.name}.bias", 0)
        return y.reshape(n, oh, ow, -1).transpose(0, 3, 1, 2)

    def backward(self, dy: Array) -> Array:
        """Stores the gradients of the parameters, and returns that of the input, from the output's ``dy``."""
        weight = self.parameters[f"{self.name}.weight"]
        n, maps, oh, ow = dy.shape
        rows = dy.transpose(0, 2, 3, 1).reshape(-1, maps)
        self.gradients[f"{self.name}.weight"] = (rows.T @ self.patches).reshape(weight.shape)
        if f"{self.name}.bias" in self.parameters:
            self.gradients[f"{self.name}.bias"] = rows.sum(axis=0)
        k, s = self.kernel, self.stride
        patches = (rows @ weight.reshape(maps, -1)).reshape(n, oh, ow, -1, k, k).transpose(0, 3, 1, 2, 4, 5)
        dx = np.zeros(self.padded, np.float32)
        for i in range(k):
            for j in range(k):
                dx[:, :, i : i + s * (oh - 1) + 1 : s, j : j + s * (ow - 1) + 1 : s] += patches[..., i, j]
        top, left, bottom, right = self.pads
        return dx[:, :, top : dx.shape[2] - bottom, left : dx.shape[3] - right]


class BatchNorm(Layer):
    """Normalises every channel by the batch while training, by running statistics afterwards."""

    def __init__(self, name: str, channels: int, *, gain: float = 1.0, momentum: float = 0.05, epsilon: float = 1e-5):
        super().__init__()
        self.name, self.momentum, self.epsilon = name, momentum, epsilon
        self.parameters[f"{name}.scale"] = np.full(channels, gain, np.float32)
        self.parameters[f"{name}.shift"] = np.zeros(channels, np.float32)
        self.statistics = {
            f"{name}.mean": np.zeros(channels, np.float32),
            f"{name}.variance": np.ones(channels, np.float32),
        }

    def forward(self, x: Array, training: bool) -> Array:
        """The outputs of a batch ``x``; keeps what :meth:`backward` needs."""
        mean, variance = self.statistics[f"{self.name}.mean"], self.statistics[f"{self.name}.variance"]
        if training:
            fresh = x.mean(axis=(0, 2, 3)), x.var(axis=(0, 2, 3))
            mean += self.momentum * (fresh[0] - mean)
            variance += self.momentum * (fresh[1] - variance)
            mean, variance = fresh
        self.root = np.sqrt(variance + self.epsilon)[:, None, None]
        self.normal = (x - mean[:, None, None]) / self.root
        return (
            self.normal * self.parameters[f"{self.name}.scale"][:, None, None]
            + self.parameters[f"{self.name}.shift"][:, None, None]
        )

    def backward(self, dy: Array) -> Array:
        """Stores the gradients of the parameters, and returns that of the input, from the output's ``dy``."""
        self.gradients[f"{self.name}.shift"] = dy.sum(axis=(0, 2, 3))
        self.gradients[f"{self.name}.scale"] = (dy * self.normal).sum(axis=(0, 2, 3))
        count = dy.size // dy.shape[1]
        mean, slope = (self.gradients[f"{self.name}.{p}"][:, None, None] / count for p in ("shift", "scale"))
        return (dy - mean - self.normal * slope) * (self.parameters[f"{self.name}.scale"][:, None, None] / self.root)


class Activation(Layer):
    """``relu``, ``square``, or a polynomial of ``hushnet.zoo.ACTIVATIONS``. Remembers the largest |input|.

    Inputs beyond ``limit`` are pulled back while training.

    The pull is the gradient of ``strength * sum(max(|x| - limit, 0)^2) / 2`` over an image: networks for encrypted
    evaluation need small ranges, and x^2 would otherwise let them grow.
    """

    def __init__(self, kind: str, *, limit: float = np.inf, strength: float = 0.0):
        super().__init__()
        self.kind, self.limit, self.strength = kind, limit, strength
        self.coefficients = (0.0, 0.0, 1.0) if kind == "square" else ACTIVATIONS[kind]
        self.slope = tuple(i * c for i, c in enumerate(self.coefficients))[1:]
        self.largest = 0.0

    def forward(self, x: Array, training: bool) -> Array:
        """The outputs of a batch ``x``; keeps what :meth:`backward` needs."""
        self.x = x
        self.largest = max(self.largest, float(np.abs(x).max()))
        return np.maximum(x, 0) if self.kind == "relu" else polynomial(self.coefficients, x)

    def backward(self, dy: Array) -> Array:
        """Stores the gradients of the parameters, and returns that of the input, from the output's ``dy``."""
        dx = dy * ((self.x > 0) if self.kind == "relu" else polynomial(self.slope, self.x))
        if self.strength:
            excess = self.x - np.clip(self.x, -self.limit, self.limit)
            dx = dx + excess * np.float32(self.strength / len(self.x))
        return dx


class Network:
    """Layers in a row."""

    def __init__(self, *layers: Layer):
        self.layers = layers

    def forward(self, x: Array, *, training: bool = False) -> Array:
        """The outputs for a batch."""
        for layer in self.layers:
            x = layer.forward(x, training)
        return x

    def backward(self, dy: Array) -> None:
        """Fills every layer's gradients."""
        for layer in reversed(self.layers):
            dy = layer.backward(dy)

    def weights(self) -> dict[str, Array]:
        """All parameters and running statistics by name, as ``hushnet.zoo.build(..., weights=...)`` takes them."""
        found: dict[str, Array] = {}
        for layer in self.layers:
            found |= layer.parameters | getattr(layer, "statistics", {})
        return found

    def largest_input(self, x: Array) -> float:
        """The largest |pre-activation| on a set of images."""
        activations = [layer for layer in self.layers if isinstance(layer, Activation)]
        for layer in activations:
            layer.largest = 0.0
        self.forward(x)
        return max(layer.largest for layer in activations)


def polynomial(coefficients: tuple[float, ...], x: Array) -> Array:
    """``c0 + c1 x + c2 x^2 + ...`` by Horner's rule."""
    y = np.zeros_like(x)
    for c in reversed(coefficients):
        y = y * x + np.float32(c)
    return y


def he(rng: np.random.Generator, shape: tuple[int, ...], gain: float) -> Array:
    """Normal weights of deviation ``gain * sqrt(2 / fan-in)``."""
    return (rng.standard_normal(shape) * gain * np.sqrt(2 / np.prod(shape[1:]))).astype(np.float32)


def jitter(x: Array, rng: np.random.Generator, reach: int = 2) -> Array:
    """Every image shifted by up to ``reach`` pixels along both axes, its edge repeated."""
    size = x.shape[2:]
    padded = np.pad(x, ((0, 0), (0, 0), (reach, reach), (reach, reach)), mode="edge")
    moved = np.empty_like(x)
    for i, (down, right) in enumerate(rng.integers(0, 2 * reach + 1, (len(x), 2))):
        moved[i] = padded[i, :, down : down + size[0], right : right + size[1]]
    return moved


def cross_entropy(logits: Array, labels: Array, smoothing: float) -> tuple[float, Array]:
    """Mean loss against smoothed labels, and its gradient."""
    shifted = logits - logits.max(axis=1, keepdims=True)
    exponentials = np.exp(shifted)
    total = exponentials.sum(axis=1, keepdims=True)
    target = np.full_like(logits, smoothing / logits.shape[1])
    target[np.arange(len(labels)), labels] += 1 - smoothing
    loss = -(target * (shifted - np.log(total))).sum() / len(labels)
    return float(loss), (exponentials / total - target) / len(labels)


def train(
    network: Network,
    x: Array,
    y: Array,
    *,
    epochs: int,
    seed: int,
    batch: int = 64,
    rate: float = 3e-3,
    decay: float = 1e-2,
    smoothing: float = 0.05,
    say: Callable[[str], None] = print,
) -> None:
    """Adam with decoupled weight decay and a cosine schedule, gradients clipped to norm 1, images jittered."""
    rng = np.random.default_rng(seed)
    moments: dict[str, tuple[Array, Array]] = {}
    steps, step, started = epochs * (len(x) // batch), 0, time.perf_counter()
    for epoch in range(epochs):
        order, losses = rng.permutation(len(x)), []
        for start in range(0, len(x) // batch * batch, batch):
            part = order[start : start + batch]
            loss, gradient = cross_entropy(network.forward(jitter(x[part], rng), training=True), y[part], smoothing)
            network.backward(gradient)
            losses.append(loss)
            _adam(network, moments, step, rate * 0.5 * (1 + np.cos(np.pi * step / steps)), decay)
            step += 1
        if epoch % 10 == 9 or epoch + 1 == epochs:
            say(f"  epoch {epoch + 1:3d}: loss {np.mean(losses):.4f}, {time.perf_counter() - started:.0f} s")


def _adam(network: Network, moments: dict[str, tuple[Array, Array]], step: int, rate: float, decay: float) -> None:
    gradients = {name: g for layer in network.layers for name, g in layer.gradients.items()}
    norm = np.sqrt(sum(float((g * g).sum()) for g in gradients.values()))
    for layer in network.layers:
        for name, p in layer.parameters.items():
            g = gradients[name] / max(norm, 1.0)
            m, v = moments.setdefault(name, (np.zeros_like(p), np.zeros_like(p)))
            m += 0.1 * (g - m)
            v += 0.001 * (g * g - v)
            update = (m / (1 - 0.9 ** (step + 1))) / (np.sqrt(v / (1 - 0.999 ** (step + 1))) + 1e-8)
            p -= (rate * (update + (decay * p if p.ndim > 1 else 0))).astype(np.float32)

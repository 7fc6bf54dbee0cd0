"""What works on elements: with constants, with other private tensors, and alone."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .draft import Draft


def _broadcast(d: Draft, shape: tuple[int, ...]) -> tuple[int, ...]:
    """A shape that broadcasts to one."""
    if d.chance(0.3):
        return ()
    kept = tuple(1 if d.chance(0.4) else n for n in shape)
    drop = d.draw(0, len(kept) - 1) if d.chance(0.3) else 0
    return (1, *kept) if not drop and d.chance(0.5) else kept[drop:]


def with_constant(d: Draft, x: str) -> str | None:
    """Sums, differences, products and quotients with a constant on either side, scalar or broadcast."""
    shape = _broadcast(d, d.shapes[x])
    kind = d.pick(["Add", "Sub", "Mul", "Div"])
    value = d.rng.uniform(0.4, 1.6, shape) * d.rng.choice([-1.0, 1.0], shape)
    constant = d.constant(value)
    return d.one(kind, constant, x) if kind != "Div" and d.chance(0.3) else d.one(kind, x, constant)


def extremum_with_constant(d: Draft, x: str) -> str | None:
    """The larger or smaller of an element and a constant."""
    return d.one(d.pick(["Max", "Min"]), x, d.constant(d.rng.uniform(-0.5, 0.5, _broadcast(d, d.shapes[x]))))


def partner(d: Draft, x: str) -> str | None:
    """A tensor that broadcasts with another one: made from it, or one that is there."""
    shape = d.shapes[x]
    fitting = [n for n, s in d.shapes.items() if n != x and len(s) == len(shape) and _fits(s, shape)]
    if fitting and d.chance(0.6):
        return d.pick(fitting)
    axes = [a + 1 for a in range(len(shape)) if d.chance(0.4)]
    if axes and d.chance(0.6):
        return d.one("ReduceMean", x, d.ints(axes), keepdims=1)
    if len(shape) == 3:
        return d.one("Conv", x, d.weight(shape[0], shape[0], 3, 3), pads=[1, 1, 1, 1])
    return d.one("MatMul", x, d.weight(shape[-1], shape[-1]))


def _fits(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    return all(m == n or 1 in (m, n) for m, n in zip(a, b))


def pair(kinds: tuple[str, ...]) -> Any:
    """Two private tensors, broadcast."""

    def made(d: Draft, x: str) -> str | None:
        other = partner(d, x)
        if other is None:
            return None
        return d.one(d.pick(kinds), *((x, other) if d.chance(0.7) else (other, x)))

    return made


def join(d: Draft, x: str) -> str | None:
    """A concatenation with another tensor along any axis."""
    shape = d.shapes[x]
    other = partner(d, x)
    if other is None:
        return None
    differ = [a for a, (m, n) in enumerate(zip(shape, d.shapes[other])) if m != n]
    if len(differ) > 1:
        return None
    axis = differ[0] if differ else d.draw(0, len(shape) - 1)
    return d.one("Concat", *([x, other] if d.chance(0.5) else [other, x]), axis=axis + 1)


def residual(d: Draft, x: str) -> str | None:
    """A layer and an activation beside the tensor itself."""
    shape = d.shapes[x]
    if len(shape) != 3:
        return None
    y = d.one("Conv", x, d.weight(shape[0], shape[0], 3, 3), d.weight(shape[0]), pads=[1, 1, 1, 1])
    return None if y is None else d.one("Add", *((x, y) if d.chance(0.5) else (y, x)))


def unary(*kinds: str, **attributes: Any) -> Any:
    """One of some functions of an element."""

    def made(d: Draft, x: str) -> str | None:
        return d.one(d.pick(kinds), x, **attributes)

    return made


def slopes(d: Draft, x: str) -> str | None:
    """LeakyRelu, and PRelu with slopes of channels or one slope."""
    if d.chance(0.5):
        return d.one("LeakyRelu", x, alpha=round(d.rng.uniform(-0.3, 0.9), 2))
    shape = d.shapes[x]
    channels = (shape[0], *(1,) * (len(shape) - 1)) if d.chance(0.7) else (1,)
    return d.one("PRelu", x, d.constant(d.rng.uniform(-0.3, 1.2, channels)))


def clip(d: Draft, x: str) -> str | None:
    """With both ends, or one."""
    low, high = round(d.rng.uniform(-1, 0), 2), round(d.rng.uniform(0.2, 1.5), 2)
    ends = d.pick([(low, high), (0.0, high), (low, None), (None, high)])
    return d.one("Clip", x, *("" if e is None else d.constant(e) for e in ends))


def swish(d: Draft, x: str) -> str | None:
    """A tensor times a bounded function of it, as exporters write SiLU, hard-swish and Mish."""
    kind = d.pick(["Sigmoid", "HardSigmoid", "Tanh", "Softplus"])
    y = d.one(kind, x)
    if y is not None and kind == "Softplus":
        y = d.one("Tanh", y)
    return None if y is None else d.one("Mul", *((x, y) if d.chance(0.5) else (y, x)))


def _layer(d: Draft, x: str, outputs: int) -> str | None:
    """A layer over channels, or over the last axis where there are no channels; the other axes stay."""
    shape = d.shapes[x]
    if len(shape) < 2:
        return d.one("MatMul", x, d.weight(shape[-1], outputs, fan_in=shape[-1]))
    ones = [1] * (len(shape) - 1)
    return d.one("Conv", x, d.weight(outputs, shape[0], *ones), d.weight(outputs))


def branches(d: Draft, x: str) -> str | None:
    """The product of two layers, of which one may be a gate."""
    width = d.draw(1, 6)
    value, gate = _layer(d, x, width), _layer(d, x, width)
    if gate is not None and d.chance(0.7):
        gate = d.one(d.pick(["Sigmoid", "Tanh", "Gelu", "Relu", "HardSigmoid"]), gate)
    return None if value is None or gate is None else d.one("Mul", value, gate)


def squeeze_and_excite(d: Draft, x: str) -> str | None:
    """Channels scaled by what follows from their means, written with a pool or a mean."""
    shape = d.shapes[x]
    if len(shape) < 2:
        return None
    axes = d.ints(range(2, len(shape) + 1))
    mean = d.one("GlobalAveragePool", x) if d.chance(0.5) else d.one("ReduceMean", x, axes, keepdims=1)
    inner = None if mean is None else _layer(d, mean, d.draw(1, 4))
    inner = None if inner is None else d.one(d.pick(["Relu", "HardSwish", "Sigmoid"]), inner)
    scale = None if inner is None else _layer(d, inner, shape[0])
    scale = None if scale is None else d.one(d.pick(["Sigmoid", "HardSigmoid"]), scale)
    return None if scale is None else d.one("Mul", *((x, scale) if d.chance(0.5) else (scale, x)))


def polynomial(d: Draft, x: str) -> str | None:
    """A square, a power, or a polynomial by Horner's rule."""
    kind = d.draw(0, 2)
    if kind == 0:
        return d.one("Mul", x, x)
    if kind == 1:
        return d.one("Pow", x, d.constant(float(d.draw(2, 3))))
    y = d.one("Mul", x, d.constant(round(d.rng.uniform(0.1, 0.5), 2)))
    if y is None:
        return None
    y = d.one("Add", y, d.constant(round(d.rng.uniform(-0.5, 0.5), 2)))
    return None if y is None else d.one("Mul", y, x)


def product_of_matrices(d: Draft, x: str) -> str | None:
    """A matrix product of two private tensors."""
    shape = d.shapes[x]
    if not 2 <= len(shape) <= 3 or shape[-1] > 12 or math.prod(shape) > 150:
        return None
    turned = d.one("Transpose", x, perm=[*range(len(shape) - 1), len(shape), len(shape) - 1])
    return None if turned is None else d.one("MatMul", x, turned)


def softmax(d: Draft, x: str) -> str | None:
    """Along any axis of an image."""
    return d.one(d.pick(["Softmax", "LogSoftmax"]), x, axis=d.draw(1, len(d.shapes[x])))


def normalise(d: Draft, x: str) -> str | None:
    """By the tensor's own statistics."""
    shape = d.shapes[x]
    if len(shape) >= 2 and d.chance(0.5) and math.prod(shape[1:]) > 3:
        return d.one("InstanceNormalization", x, d.weight(shape[0]), d.weight(shape[0]))
    if shape[-1] < 3:
        return None
    ones = np.ones(shape[-1])
    return d.one("LayerNormalization", x, d.constant(ones), d.weight(shape[-1]), axis=len(shape))

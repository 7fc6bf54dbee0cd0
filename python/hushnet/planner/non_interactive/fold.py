"""Exact rewrites of steps: fewer steps, fewer levels, fewer products.

- Linear after linear becomes one (:mod:`compose`), by the rule of :func:`merge`.
- A polynomial's constant moves into the biases of the layers that read it; a square is completed,
  ``a x^2 + b x + c = a (x + b/2a)^2 + (c - b^2/4a)``, with the shift in the bias of the layer before, so that a
  polynomial of degree 2 is one square (:mod:`normalise` then takes the ``a`` out).
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.polynomial import polynomial as poly

from .compose import collapsed, compose
from .steps import Add, Linear, Polynomial, Steps, sources

# "auto" merges two layers where that costs at most this share of all products more
SHARE = 0.05
# a leading term below this share of the largest on the range is rounding noise of the fit
NEGLIGIBLE = 1e-10
# completing a square may make values this many times larger than the polynomial's own
GROWTH = 16.0


def prune(steps: Steps) -> None:
    """Drops what the output does not need."""
    needed, kept = {steps.output}, []
    for step in reversed(steps.steps):
        if step.target in needed:
            kept.append(step)
            needed.update(sources(step))
    steps.steps = kept[::-1]


def merge(steps: Steps, rule: str) -> list[str]:
    """Merges pairs of layers; returns sentences that say which.

    Args:
        rule: "auto" merges where the products do not grow, or by at most 5 % of all products (a diagonal layer, a mean
            in front of
            a small dense layer; not a mean in front of a large convolution, which would read k^2 times as many taps);
            "always" wherever it is exact; "never".
    """
    said: list[str] = []
    while rule != "never" and _merge_one(steps, rule, said):
        pass
    return said


def _merge_one(steps: Steps, rule: str, said: list[str]) -> bool:
    total = steps.multiply_adds()
    for second in steps.linears():
        first = steps.producer(second.source)
        if (
            not isinstance(first, Linear)
            or steps.only_reader(second.source) is not second
            or _too_large(first, second, rule, total)
        ):
            continue
        merged = compose(first, second)
        if merged is None or (
            rule == "auto" and merged.multiply_adds > first.multiply_adds + second.multiply_adds + SHARE * total
        ):
            continue
        steps.steps = [merged if s is second else s for s in steps.steps if s is not first]
        said.append(f"{first.name} merged into {second.name}")
        return True
    return False


def _too_large(first: Linear, second: Linear, rule: str, total: int) -> bool:
    """Whether a product of matrices is not worth making only to be refused."""
    if second.geometry["type"] != "dense":
        return False
    inputs = math.prod(first.geometry["input"]) if first.geometry["type"] == "conv2d" else first.geometry["inputs"]
    return rule == "auto" and inputs * len(second.weights) > first.multiply_adds + second.multiply_adds + SHARE * total


def drop_negligible(steps: Steps) -> None:
    """Leading coefficients that are rounding noise on the planned range go."""
    for step in steps.steps:
        if not isinstance(step, Polynomial):
            continue
        sizes = [abs(c) * step.range**k for k, c in enumerate(step.coefficients)]
        degree = max((k for k, size in enumerate(sizes) if size > NEGLIGIBLE * max(sizes)), default=1)
        step.coefficients = step.coefficients[: max(degree, 1) + 1]


def linear_polynomials(steps: Steps) -> None:
    """Polynomials of degree 1 become part of the layers around them, or a diagonal layer."""
    for index, step in enumerate(steps.steps):
        if isinstance(step, Polynomial) and step.degree == 1:
            tensor = steps.tensors[step.source]
            shift, scale = step.coefficients
            if len(tensor.shape) == 3:
                channels, image = tensor.shape[0], list(tensor.shape)
                geometry: dict[str, Any] = {
                    "type": "conv2d",
                    "input": image,
                    "output": image,
                    "kernel": [1, 1],
                    "stride": [1, 1],
                    "pads": [0] * 4,
                }
                geometry |= {"dilation": [1, 1], "groups": channels}
                weights = np.full((channels, 1, 1, 1), scale)
            else:
                channels = tensor.size
                geometry = {"type": "dense", "inputs": channels, "outputs": channels}
                weights = scale * np.eye(channels)
            steps.steps[index] = Linear(
                step.name, geometry, weights, np.full(channels, shift), step.source, step.target
            )


def complete_squares(steps: Steps) -> None:
    """Makes polynomials of degree 2 squares where the layers before can take the shift."""
    for step in steps.steps:
        if not isinstance(step, Polynomial) or step.degree != 2 or step.coefficients[1] == 0.0:
            continue
        c, b, a = step.coefficients
        shift = b / (2 * a)
        reach = step.range
        largest = max(abs(poly.polyval(x, step.coefficients)) for x in (-reach, reach))
        if abs(a) * (reach + abs(shift)) ** 2 > GROWTH * largest:
            continue
        bearer = _shift_bearer(steps, step)
        if bearer is None:
            continue
        bearer.bias = bearer.bias + shift
        steps.tensors[step.source].shift += shift
        step.interval = (step.interval[0] + shift, step.interval[1] + shift)
        step.coefficients = (c - a * shift * shift, 0.0, a)


def _shift_bearer(steps: Steps, step: Polynomial) -> Linear | None:
    """The layer whose bias can carry a shift of the polynomial's operand: nothing else may see it."""
    if steps.only_reader(step.source) is not step:
        return None
    producer = steps.producer(step.source)
    if isinstance(producer, Linear):
        return producer
    if isinstance(producer, Add):
        for term in producer.sources:
            made = steps.producer(term)
            if isinstance(made, Linear) and steps.only_reader(term) is producer:
                return made
    return None


def constants_forward(steps: Steps) -> None:
    """Adds constants of polynomials to the biases of the layers that read them, unless a padding or a sum does too."""
    for step in steps.steps:
        if not isinstance(step, Polynomial) or step.coefficients[0] == 0.0 or step.target == steps.output:
            continue
        readers = steps.readers(step.target)
        if not all(isinstance(r, Linear) and not _padded(r) for r in readers):
            continue
        constant = step.coefficients[0]
        for reader in readers:
            assert isinstance(reader, Linear)
            _absorb(reader, constant)
        step.coefficients = (0.0, *step.coefficients[1:])


def _padded(layer: Linear) -> bool:
    return layer.geometry["type"] == "conv2d" and any(layer.geometry["pads"])


def _absorb(layer: Linear, constant: float) -> None:
    sums = constant * layer.weights.reshape(len(layer.weights), -1).sum(axis=1)
    if layer.bias.shape == sums.shape:
        layer.bias = layer.bias + sums
    else:
        layer.bias = collapsed(layer.geometry, layer.bias + sums.reshape(-1, 1, 1))


def clamp(steps: Steps, threshold: float) -> int:
    """Moves weights away from zero: ``0 <= w < threshold`` to threshold, ``-threshold < w < 0`` to -threshold.

    The SEAL/OpenFHE comparison does so (section 4.5), so that no plaintext is zero. Layers that only add stay.

    Returns:
        How many weights changed.
    """
    changed = 0
    for layer in steps.linears():
        if layer.is_sum:
            continue
        tiny = np.abs(layer.weights) < threshold
        changed += int(tiny.sum())
        layer.weights = np.where(tiny, np.where(layer.weights < 0, -threshold, threshold), layer.weights)
    return changed


def with_scale(layer: Linear, given: float, wanted: float) -> Linear:
    """The layer for a source in units of ``given`` and a target in units of ``wanted``."""
    weights = layer.weights * (given / wanted)
    whole = np.rint(weights)
    # a mean that became a sum has exact ones (and zeros; tiny weights are none)
    if (
        layer.geometry["type"] == "conv2d"
        and np.all(np.abs(weights - whole) <= 1e-12 * np.abs(whole))
        and np.all(np.abs(whole) <= 1)
    ):
        weights = whole
    return replace(layer, weights=weights, bias=layer.bias / wanted)

"""Units.

Every tensor t is kept as value / s_t, with the s_t chosen so that polynomials and means need no multiplication of their
own.

With u = log s the wishes are linear equations:

- input and output keep their units: u = 0 (must hold);
- a sum has the units of its terms: u_term = u_sum (must hold);
- a product has those of both factors: u_a + u_b = u_product (must hold);
- a polynomial of degree d has leading coefficient +-1: c_d s_in^d / s_out = +-1, so u_out - d u_in = log |c_d|;
- a mean over n elements becomes a sum with weights 1 (no product, no level): u_out - u_in = -log n.

Wishes that contradict what is already there are dropped, later polynomials and means first. Of all solutions the one
nearest (least squares) to u = log bound is taken, so that every tensor's planned magnitude is near 1. Layers absorb the
units of both sides in their weights. This is the folding of activation coefficients of the SEAL/OpenFHE comparison
(section 4.5) for any graph, residual sums included.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from .fold import with_scale
from .steps import Add, Array, Linear, Multiply, Polynomial, Steps

CONSISTENT = 1e-9


def normalise(steps: Steps, *, balance: bool = True) -> None:
    """Rescales tensors, layers and polynomials in place.

    ``balance=False`` takes the solution nearest to the graph's own units.
    """
    position = {key: index for index, key in enumerate(steps.tensors)}
    start = np.zeros(len(position))
    if balance:
        for key, index in position.items():
            bound = steps.tensors[key].bound
            start[index] = math.log(bound) if 0 < bound < math.inf else 0.0
    rows = _Rows(len(position), position)
    for tensor in {steps.input, steps.output}:
        rows.must({tensor: 1.0}, 0.0)
    for step in steps.steps:
        if isinstance(step, Add):
            for term in step.sources:
                rows.must({term: 1.0, step.target: -1.0} if term != step.target else {}, 0.0)
        elif isinstance(step, Multiply):
            rows.must({step.sources[0]: 1.0, step.sources[1]: 1.0, step.target: -1.0}, 0.0)
    for step in steps.steps:
        if isinstance(step, Polynomial) and not step.part:
            rows.wish({step.target: 1.0, step.source: -float(step.degree)}, math.log(abs(step.coefficients[-1])))
    for step in steps.steps:
        if isinstance(step, Linear) and (weight := mean_weight(step)) is not None:
            rows.wish({step.target: 1.0, step.source: -1.0}, math.log(weight))
    units = np.exp(rows.nearest(start))
    # Exactly: the input's bound is public, and last bits of a solution depend on all coefficients, which may be hidden.
    units[[position[steps.input], position[steps.output]]] = 1.0
    _apply(steps, {key: float(units[index]) for key, index in position.items()})


def mean_weight(layer: Linear) -> float | None:
    """The one weight of a depthwise convolution whose weights are all equal and positive."""
    g = layer.geometry
    if g["type"] != "conv2d" or not g["groups"] == g["input"][0] == g["output"][0] or math.prod(g["kernel"]) == 1:
        return None
    first = float(layer.weights.flat[0])
    return first if first > 0 and np.all(layer.weights == first) else None


class _Rows:
    """Linear equations, kept consistent."""

    def __init__(self, size: int, position: dict[int, int]) -> None:
        self.size, self.position = size, position
        self.matrix: list[Array] = []
        self.right: list[float] = []

    def must(self, terms: dict[int, float], value: float) -> None:
        row = np.zeros(self.size)
        for key, factor in terms.items():
            row[self.position[key]] += factor
        self.matrix.append(row)
        self.right.append(value)

    def wish(self, terms: dict[int, float], value: float) -> None:
        self.must(terms, value)
        u = self.nearest(np.zeros(self.size))
        if np.abs(np.array(self.matrix) @ u - np.array(self.right)).max() > CONSISTENT * max(
            1.0, *map(abs, self.right)
        ):
            self.matrix.pop()
            self.right.pop()

    def nearest(self, start: Array) -> Array:
        """The solution nearest to ``start``."""
        matrix, right = np.array(self.matrix), np.array(self.right)
        return start + np.linalg.lstsq(matrix, right - matrix @ start, rcond=1e-12)[0]


def _apply(steps: Steps, unit: dict[int, float]) -> None:
    for index, step in enumerate(steps.steps):
        if isinstance(step, Linear):
            steps.steps[index] = with_scale(step, unit[step.source], unit[step.target])
        elif isinstance(step, Polynomial):
            s, t = unit[step.source], unit[step.target]
            coefficients = [c * s**k / t + 0.0 for k, c in enumerate(step.coefficients)]
            if abs(abs(coefficients[-1]) - 1.0) < 1e-9:
                coefficients[-1] = math.copysign(1.0, coefficients[-1])
            low, high = step.interval
            steps.steps[index] = replace(step, coefficients=tuple(coefficients), interval=(low / s, high / s))
        elif isinstance(step, Multiply):
            steps.steps[index] = replace(step, constant=step.constant / unit[step.target])
    for key, tensor in steps.tensors.items():
        s = unit[key]
        tensor.factor *= s
        tensor.bound /= s
        tensor.interval = (tensor.interval[0] / s, tensor.interval[1] / s)

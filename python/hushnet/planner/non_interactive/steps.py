"""What an encrypted evaluation consists of: four kinds of steps between numbered tensors."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...reference.linear import geometry_shapes

Array = np.ndarray
Geometry = dict[str, Any]


@dataclass
class Tensor:
    """A tensor between steps.

    Attributes:
        id: its number; ids are dense from 0, the input is the first.
        name: the graph's name for it (or one derived from it).
        shape: per image, channels first.
        bound: planned largest magnitude: calibrated times the safety factor, or what interval arithmetic gives where
            that is less.
        interval: smallest and largest value that interval arithmetic over the declared inputs allows.
        factor: value in the graph + shift = factor * value here (see :mod:`normalise`).
        shift: what completing a square added; only operands of polynomials have one.
    """

    id: int
    name: str
    shape: tuple[int, ...]
    bound: float = math.inf
    interval: tuple[float, float] = (-math.inf, math.inf)
    factor: float = 1.0
    shift: float = 0.0

    @property
    def size(self) -> int:
        """Elements per image."""
        return math.prod(self.shape)


@dataclass
class Linear:
    """``target = W source + b``.

    ``geometry`` is that of ``docs/plan-format.md`` and ``weights`` of its weight shape; a conv2d reads a tensor of
    exactly its input shape, a dense layer one of any shape with its number of elements. ``bias`` has one value per
    output row (M,) or channel (O,), or, where folding made it depend on the position, the shape of the output.
    """

    name: str
    geometry: Geometry
    weights: Array
    bias: Array
    source: int
    target: int

    @property
    def multiply_adds(self) -> int:
        """Products of a weight and a value, padding included."""
        shape = geometry_shapes(self.geometry)
        return math.prod(shape[1]) * math.prod(shape[2][1:])

    @property
    def is_sum(self) -> bool:
        """Whether every weight is 1, 0 or -1: additions and subtractions only, no level."""
        return bool(np.all((self.weights == 0.0) | (np.abs(self.weights) == 1.0)))

    def bias_image(self) -> Array:
        """The bias for every output element, of the output's shape."""
        shape = geometry_shapes(self.geometry)[1]
        return (
            self.bias.reshape(shape)
            if self.bias.size == math.prod(shape)
            else np.broadcast_to(self.bias.reshape(-1, 1, 1), shape)
        )


@dataclass
class Polynomial:
    """``target = sum_k coefficients[k] source^k``, elementwise; planned for operands in ``interval``."""

    name: str
    coefficients: tuple[float, ...]
    source: int
    target: int
    interval: tuple[float, float]
    # one of several that an activation is; operands outside of its interval are not planned for
    part: bool = False

    @property
    def range(self) -> float:
        """Largest magnitude of the operand that is planned for."""
        return max(abs(self.interval[0]), abs(self.interval[1]))

    @property
    def degree(self) -> int:
        """The highest power with a coefficient."""
        return len(self.coefficients) - 1

    @property
    def depth(self) -> int:
        """Levels.

        Ceil(log2 degree), one more where the leading coefficient is not +-1 and no lower level is left to absorb it.
        """
        levels = (self.degree - 1).bit_length()
        exact = self.degree == 1 << levels
        return levels + (exact and abs(self.coefficients[-1]) != 1.0)


@dataclass
class Add:
    """``target = sum of sources``."""

    name: str
    sources: tuple[int, ...]
    target: int


@dataclass
class Multiply:
    """``target = sources[0] sources[1] + constant``, elementwise.

    Polynomials one after the other make the second of the first.
    """

    name: str
    sources: tuple[int, int]
    target: int
    constant: float = 0.0


Step = Linear | Polynomial | Add | Multiply


def sources(step: Step) -> tuple[int, ...]:
    """The tensors that a step reads."""
    return step.sources if isinstance(step, (Add, Multiply)) else (step.source,)


@dataclass
class Steps:
    """A list of steps in order of execution, with its tensors."""

    tensors: dict[int, Tensor] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)
    input: int = 0
    output: int = 0

    def tensor(self, name: str, shape: tuple[int, ...]) -> int:
        """A new tensor."""
        taken = {t.name for t in self.tensors.values()}
        unique, number = name, 1
        while unique in taken:
            number += 1
            unique = f"{name}.{number}"
        key = max(self.tensors, default=-1) + 1
        self.tensors[key] = Tensor(key, unique, tuple(int(n) for n in shape))
        return key

    def readers(self, tensor: int) -> list[Step]:
        """Steps that read a tensor."""
        return [s for s in self.steps if tensor in sources(s)]

    def producer(self, tensor: int) -> Step | None:
        """The step that makes a tensor; None for the input."""
        return next((s for s in self.steps if s.target == tensor), None)

    def only_reader(self, tensor: int) -> Step | None:
        """The one step that reads a tensor once; None where there are others, or it is the output."""
        found = self.readers(tensor)
        alone = len(found) == 1 and sources(found[0]).count(tensor) == 1 and tensor != self.output
        return found[0] if alone else None

    def linears(self) -> Iterator[Linear]:
        """The linear steps."""
        return (s for s in self.steps if isinstance(s, Linear))

    def multiply_adds(self) -> int:
        """Products of weights and values of all linear steps."""
        return sum(s.multiply_adds for s in self.linears())

    def renumber(self) -> None:
        """Ids dense and in order of computation; tensors that no step touches go."""
        order = [self.input] + [s.target for s in self.steps]
        new = {old: index for index, old in enumerate(order)}
        for step in self.steps:
            if isinstance(step, Add):
                step.sources = tuple(new[t] for t in step.sources)
            elif isinstance(step, Multiply):
                step.sources = (new[step.sources[0]], new[step.sources[1]])
            else:
                step.source = new[step.source]
            step.target = new[step.target]
        self.tensors = {new[old]: self.tensors[old] for old in order}
        for key, tensor in self.tensors.items():
            tensor.id = key
        self.input, self.output = 0, new[self.output]

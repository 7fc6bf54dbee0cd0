"""What fixed point asks for and what comes of it: requests, versions of tensors, and the stages of a shared region.

A *version* of a tensor is a plan tensor v with ``value = v * 2^-frac_bits * gain``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from ...graph import Linear
from ...plan import PlanError
from ..document import Draft

MOST_ACTIVATION_BITS = 12


class DoesNotFit(Exception):
    """Some value needs a wider ring; carries the step's name."""


def too_wide(name: str) -> PlanError:
    """The refusal of values for which there are no numbers: ranges of intervals grow from layer to layer."""
    return PlanError(
        f"layer {name!r}: its values have no known range that numbers of a plan could hold; "
        "give calibration data, which shows the range that is needed"
    )


@dataclass(frozen=True)
class Version:
    """A plan tensor that holds ``value / (2^-frac_bits gain)``."""

    tensor: int
    frac_bits: int
    bound: int
    positive: bool
    gain: float

    @property
    def unit(self) -> float:
        """What one unit of the integer is worth."""
        return math.ldexp(self.gain, -self.frac_bits)


@dataclass(frozen=True)
class Request:
    """What the fixed point depends on beside the steps.

    Attributes:
        limits: largest |x| by graph tensor, where calibration showed one.
        inputs: interval of every tensor that enters, in front of the steps.
        opened: tensors that are opened.
        argmax: whether only an index is opened.
        weight_bits, output_bits: bits of weights and of opened values, sign included.
        activation_bits: bits of every tensor that a layer reads; None: the most up to ``most_bits`` that the ring
            allows.
        most_bits: the most of these.
        least: least value by graph tensor, where calibration showed none below it.
        roomy: rings narrower than this one are not taken where quotients of small values would be coarse.
        whole: tensors that enter and hold whole numbers (one-hot vectors): bits behind the point say nothing there.
        far: of opened tensors that lie far from zero, bits that their values have in common: these are opened, too.
        shown_sums: whether calibration bounds the sums of layers (:data:`SUM_AIR` times), or their weights alone.
    """

    limits: Mapping[str, float]
    inputs: Mapping[str, tuple[float, float]]
    opened: list[str]
    argmax: bool
    weight_bits: int
    activation_bits: int | None
    output_bits: int
    most_bits: int = MOST_ACTIVATION_BITS
    least: Mapping[str, float] = field(default_factory=dict)
    roomy: int = 0
    whole: frozenset[str] = frozenset()
    shown_sums: bool = False
    far: Mapping[str, int] = field(default_factory=dict)


@dataclass
class Fixed(Draft):
    """The result: tensors, stages and weights of the shared region, as the plan has them.

    Tensors and stages have no name in common.

    Attributes:
        layers: the float layer of every linear stage.
        entering, opened: the version of every tensor that enters or is opened.
        names: the graph or step tensor that a plan tensor holds.
        offsets: units that a layer's bias was raised by, so that the truncation behind it rounds to nearest.
        factors: real factor of scale stages whose integer factor only comes near.
        slopes: real slope of leaky activations, by stage.
        gains, results: gain of what a linear stage reads, and units of its result by 2^-frac_bits.
        reach: largest real value by tensor.
        least_bits: fewest bits of a tensor that a layer reads.
        proven: largest real value by tensor, where steps prove it.
        fewer: bits of the weights of layers that have fewer than asked for, by name.
    """

    ring_bits: int = 0
    layers: dict[str, Linear] = field(default_factory=dict)
    entering: dict[str, Version] = field(default_factory=dict)
    opened: dict[str, Version] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)
    offsets: dict[str, int] = field(default_factory=dict)
    factors: dict[str, float] = field(default_factory=dict)
    slopes: dict[str, float] = field(default_factory=dict)
    gains: dict[str, float] = field(default_factory=dict)
    results: dict[str, float] = field(default_factory=dict)
    reach: dict[str, float] = field(default_factory=dict)
    least_bits: int = MOST_ACTIVATION_BITS
    fewer: dict[str, int] = field(default_factory=dict)
    proven: dict[str, float] = field(default_factory=dict)

"""The ring width and the activation bits: the narrowest ring, within what the ciphertexts hold."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from ...graph import Linear
from ...plan import PlanError
from ...reference import methods
from ..ranges import plan_geometry
from .elementwise import Full
from .steps import Step
from .versions import DoesNotFit, Fixed, Request, too_wide
from .weights import LEAST_WEIGHT_BITS, Weights

RING_DEGREES = (2048, 4096)
LEAST_RING, MOST_RING = 8, 40
UNLIMITED_RING = 900
# "auto": wider rings than this are taken only to keep activations at GOOD_BITS
CHEAP_RING = 28
DEAR_RING = 31
GOOD_BITS = 8
LEAST_GOOD_BITS = 4


@dataclass(frozen=True)
class Chosen:
    """A fixed-point plan and the ring degree of its ciphertexts."""

    fixed: Fixed
    ring_degree: int


class TooHeavy(Exception):
    """A layer's weights leave no room for noise in its ring."""

    def __init__(self, layer: Linear, problem: str) -> None:
        super().__init__(problem)
        self.layer = layer


def norm(method: str, layer: Linear, weight: np.ndarray, ring_degree: int) -> float:
    """Euclidean norm of the weights that the noise of one answer rests on, rounded up to a power of two.

    Raises:
        PlanError: the layer's receptive field does not fit a polynomial.
    """
    try:
        exact = methods.norm(method, plan_geometry(layer.geometry), ring_degree, weight)
    except ValueError as error:
        raise PlanError(f"layer {layer.name!r}: {error}; use a smaller kernel") from None
    return 2.0 ** math.ceil(math.log2(max(exact, 1.0)))


def widest_ring(method: str, ring_degree: int, weight_l2: float) -> int:
    """The widest ring of shares that a layer's ciphertexts carry; 0 when none."""
    for bits in range(MOST_RING, 0, -1):
        try:
            methods.ciphertexts(method, ring_degree, bits, weight_l2)
        except ValueError:
            continue
        return bits
    return 0


class Search:
    """Attempts at ring widths for the steps of one network."""

    def __init__(
        self,
        steps: list[Step],
        request: Request,
        entering: Mapping[str, tuple[int, ...]],
        weights: Weights,
        method: Callable[[Linear, int], str] = lambda layer, ring_degree: "cheetah",
    ) -> None:
        self.steps, self.request, self.entering = steps, request, entering
        self.weights, self.method = weights, method
        try:
            self.reach = self.build(UNLIMITED_RING, {}).reach
        except DoesNotFit as error:
            if not request.limits:
                raise too_wide(str(error)) from None
            raise PlanError(
                f"layer {str(error)!r}: its values on the calibration data are so large that no ring holds them and "
                "the precision that it needs; scale the weights in front of it down, check the data, or use "
                "trust='client-aided'"
            ) from None

    def build(self, ring_bits: int, reach: Mapping[str, float] | None = None) -> Fixed:
        """One attempt.

        Raises:
            DoesNotFit: a value needs a wider ring.
        """
        return Full(self.steps, self.request, self.weights, ring_bits, self.reach if reach is None else reach).run(
            self.entering
        )

    def run(self, ring_bits: int | None, ring_degree: int | None) -> Chosen:
        """The plan at the narrowest ring, or at the given one.

        Raises:
            PlanError: nothing fits; with the layers and bits.
        """
        problem = ""
        for degree in RING_DEGREES if ring_degree is None else (ring_degree,):
            try:
                return self.run_at(degree, ring_bits)
            except PlanError as error:
                problem = problem or str(error)
        raise PlanError(problem)

    def run_at(self, degree: int, ring_bits: int | None) -> Chosen:
        """The plan at a ring degree.

        A layer whose weights are too heavy for its ring loses bits of them, and all is tried again.

        Raises:
            PlanError: nothing fits.
        """
        while True:
            most, layer = self.capacity(degree, min(ring_bits or CHEAP_RING, CHEAP_RING))
            fixed, blocking = self.at_degree(most, ring_bits)
            if fixed is None:
                raise PlanError(
                    f"the values of {blocking!r} do not fit a ring of {ring_bits or most} bits (layer {layer!r} "
                    f"carries {most} at ring degree "
                    f"{degree}); use fewer activation_bits or weight_bits, "
                    + ("" if self.request.limits else "give calibration data, ")
                    + "or scale the network's weights down"
                )
            try:
                return Chosen(self.normed(fixed, degree), degree)
            except TooHeavy as error:
                if self.weights.of(error.layer) <= LEAST_WEIGHT_BITS:
                    raise PlanError(f"layer {error.layer.name!r}: {error}; use fewer weight_bits") from None
                self.weights.lower(error.layer)

    def capacity(self, degree: int, wanted: int) -> tuple[int, str]:
        """The widest ring that all layers carry, and the layer that carries least.

        Weights that do not let a layer carry the wanted one lose bits.
        """
        least = (MOST_RING, "")
        for step in self.steps:
            if step.layer is not None:
                # a gain changes the norm by less than two
                carried = self.carried(step.layer, degree)
                while carried < wanted and self.weights.of(step.layer) > LEAST_WEIGHT_BITS:
                    self.weights.lower(step.layer)
                    carried = self.carried(step.layer, degree)
                least = min(least, (carried, step.layer.name))
        return least

    def carried(self, layer: Linear, degree: int) -> int:
        """The widest ring that a layer carries at a gain of 1."""
        method = self.method(layer, degree)
        return widest_ring(method, degree, norm(method, layer, self.weights(layer, 1.0).weight, degree))

    def at_degree(self, most: int, ring_bits: int | None) -> tuple[Fixed | None, str]:
        """The best fixed-point plan at a ring degree, in a ring of ``ring_bits`` or of at most ``most`` bits.

        Returns:
            The plan, or None where none fits, and then the name of the step whose values do not fit.
        """
        if ring_bits is None:
            # first with room where small values are divided by
            self.request = replace(self.request, roomy=min(CHEAP_RING, most))
            with suppress(PlanError):
                found = self.narrowest(most, ring_bits)
                if found[0] is not None:
                    self.request = replace(self.request, roomy=0)
                    return found
            self.request = replace(self.request, roomy=0)
        return self.narrowest(most, ring_bits)

    def narrowest(self, most: int, ring_bits: int | None) -> tuple[Fixed | None, str]:
        """:meth:`at_degree`, with as much room as the request asks for."""
        blocking, refused = "", list[PlanError]()
        found: list[Fixed] = []
        for bits in range(LEAST_RING, most + 1) if ring_bits is None else [ring_bits]:
            if bits > most:
                return None, self.steps[0].name
            try:
                fixed = self.build(bits)
            except DoesNotFit as error:
                blocking = str(error)
                continue
            except PlanError as error:
                # a function whose argument is coarse in a narrow ring: a wider one may do
                refused.append(error)
                continue
            if (
                self.request.activation_bits is not None
                or ring_bits is not None
                or fixed.least_bits == self.request.most_bits
            ):
                found.append(fixed)
                break
            found.append(fixed)
            if bits >= CHEAP_RING and fixed.least_bits >= GOOD_BITS:
                break
        if not found and refused:
            raise refused[-1]
        good = [f for f in found if f.ring_bits <= DEAR_RING or f.least_bits >= GOOD_BITS] or found
        return (good[-1] if good and good[-1].least_bits >= self.floor(ring_bits) else None), blocking or (
            self.steps[0].name if self.steps else ""
        )

    def floor(self, ring_bits: int | None) -> int:
        """Fewest fraction bits for which a smaller ring is taken; 0 where the caller gave ring or activation bits."""
        return 0 if ring_bits is not None or self.request.activation_bits is not None else LEAST_GOOD_BITS

    def normed(self, fixed: Fixed, degree: int) -> Fixed:
        """Writes the norm of every layer's weights, and checks that its ciphertexts carry the ring.

        Raises:
            TooHeavy: a layer whose noise leaves no room.
        """
        stages = []
        for stage in fixed.stages:
            if stage["kind"] == "linear":
                layer = fixed.layers[stage["name"]]
                method = self.method(layer, degree)
                l2 = norm(method, layer, fixed.weights[stage["weights"]], degree)
                try:
                    methods.ciphertexts(method, degree, fixed.ring_bits, l2)
                except ValueError as error:
                    raise TooHeavy(fixed.layers[stage["name"]], str(error)) from None
                stage = {**stage, "method": method, "weight_l2": l2}
            stages.append(stage)
        return replace(fixed, stages=stages)

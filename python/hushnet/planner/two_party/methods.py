"""Which method computes a linear layer on shares: one image packed in polynomials (three ways), or one feature of many images in each."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from ... import _native
from ...graph import Linear, Shape
from ...reference.methods import COEFFICIENTS
from ..ranges import plan_geometry
from .steps import Step

# for the comparison only: the ring and the norm move bytes by some per cent
TYPICAL_RING, TYPICAL_NORM = 24, 1024.0
# bytes that a plan's layers of methods other than cheetah may keep together: these keep all weights in evaluation form
MOST_KEPT = 1 << 30


def largest_pair(steps: list[Step], entering: Mapping[str, Shape]) -> int:
    """Most elements of one image that a step reads and writes: about what is alive at once."""
    shapes = {**entering, **{s.output: s.shape for s in steps}}
    return max((math.prod(s.shape) + sum(math.prod(shapes[t]) for t in s.inputs if t in shapes) for s in steps), default=1)


class Chooser:
    """The cheaper method of every layer, by seconds an image: computing, and bytes over the plan's network.

    Attributes:
        batch: images that come at once.
        peak: elements of an image that are alive at once, which limits the images that run together.
        memory: bytes that a layer's ciphertexts may take at the server.
        forced: the method of all layers; None for the cheapest of each.
        queries: images that one set-up serves: set-ups of rotation-free layers count for so much less.
    """

    def __init__(
        self, batch: int, peak: int, unit: dict[str, Any], network: str, memory: int, forced: str | None = None, queries: int = 1
    ) -> None:
        self.batch, self.peak, self.unit, self.memory = batch, peak, unit, memory
        self.forced, self.queries = forced, queries
        self.bandwidth = unit["networks"].get(network, {}).get("bits_per_second")
        self.chosen: dict[tuple[str, int], str] = {}
        self.kept: dict[int, int] = {}

    def images(self, ring_degree: int) -> int:
        """Images that run through the stages together."""
        return max(1, min(self.batch, _native.two_party_group(ring_degree, self.peak)))

    def __call__(self, layer: Linear, ring_degree: int) -> str:
        key = (layer.name, ring_degree)
        if key not in self.chosen:
            self.chosen[key] = self.choose(layer, ring_degree)
        return self.chosen[key]

    def choose(self, layer: Linear, ring_degree: int) -> str:
        if self.forced is not None:
            return self.forced
        if self.batch == 1:
            return self.one_image(layer, ring_degree)
        geometry, images = json.dumps(plan_geometry(layer.geometry)), min(self.images(ring_degree), ring_degree)
        try:
            batch = _native.batch_share_layer_cost(geometry, ring_degree, TYPICAL_RING, TYPICAL_NORM, images)
        except ValueError:
            return "cheetah"
        try:
            packed = _native.packed_layer_cost(geometry, ring_degree, TYPICAL_RING)
        except ValueError:
            return "batch"
        if batch["window_bytes"] > self.memory:
            return "cheetah"
        each = (batch_seconds(batch, self.unit) + self.transfer(batch)) / images
        return "batch" if each < packed_seconds(packed, self.unit) + self.transfer(packed) else "cheetah"

    def one_image(self, layer: Linear, ring_degree: int) -> str:
        """The cheapest method for single images."""
        geometry = json.dumps(plan_geometry(layer.geometry))
        seconds, keeps = {}, {"cheetah": 0}
        room = min(self.memory, MOST_KEPT) - self.kept.get(ring_degree, 0)
        try:
            packed = _native.packed_layer_cost(geometry, ring_degree, TYPICAL_RING)
            seconds["cheetah"] = packed_seconds(packed, self.unit) + self.transfer(packed)
        except ValueError:
            pass
        for method in COEFFICIENTS:
            try:
                cost = _native.coefficient_layer_cost(method, geometry, TYPICAL_RING, TYPICAL_NORM)
            except ValueError:
                continue
            once = self.setup(method, cost)
            if once["bytes"] <= room:
                keeps[method] = int(once["bytes"])
                seconds[method] = coefficient_seconds(method, cost, self.unit) + self.transfer(cost) + once["seconds"] / self.queries
        best = min(seconds, key=seconds.__getitem__, default="cheetah")
        self.kept[ring_degree] = self.kept.get(ring_degree, 0) + keeps[best]
        return best

    def setup(self, method: str, cost: Mapping[str, int]) -> dict[str, float]:
        """Seconds of a layer's set-up, and the bytes that a party keeps: weights in evaluation form (two limbs), set-ups."""
        prepared = 16 * cost["ring_degree"] * cost["weight_polys"]
        if method != "rotation-free":
            return {"seconds": 0.0, "bytes": prepared}
        travel = 0.0 if self.bandwidth is None else 8 * cost["bytes_setup"] / self.bandwidth
        return {"seconds": travel + self.unit["rotation_free_weight"] * cost["weight_polys"], "bytes": prepared + 3 * cost["bytes_setup"]}

    def transfer(self, layer: Mapping[str, int]) -> float:
        return 0.0 if self.bandwidth is None else 8 * (layer["bytes_up"] + layer["bytes_down"]) / self.bandwidth


def packed_seconds(layer: Mapping[str, int], unit: dict[str, Any]) -> float:
    """Both parties' computing on a packed layer, for one image."""
    return sum(unit[figure] * layer[what] for figure, what in (("input_poly", "input_polys"), ("output_poly", "output_polys"), ("product", "products")))


def coefficient_seconds(method: str, layer: Mapping[str, int], unit: dict[str, Any]) -> float:
    """Both parties' computing on a layer of method rotation-free or convfhe, for one image."""
    figure = method.replace("-", "_")
    size = layer["ring_degree"] / 4096
    seconds = size * (unit[f"{figure}_input"] * layer["input_polys"] + unit[f"{figure}_product"] * layer["products"])
    if method == "convfhe":
        return seconds + unit["convfhe_rotation"] * layer["rotations"]
    return seconds + size * unit["rotation_free_output"] * layer["output_polys"] * (0.2 + 1.0 / layer["spacing"])


def batch_seconds(layer: Mapping[str, int], unit: dict[str, Any]) -> float:
    """Both parties' computing on a batch layer, for one block of images."""
    return sum(unit[figure] * layer[what] for figure, what in (("batch_input", "inputs"), ("batch_output", "outputs"), ("batch_word", "word_products")))

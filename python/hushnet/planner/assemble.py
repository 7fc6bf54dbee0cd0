"""Completes a lowered plan.

Parameters, masks and tiles of every linear stage within the memory limit, and predicted cost.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..errors import LimitError
from ..plan import Plan
from . import cost, memory
from .cost import UnitCosts
from .masks import choose_masks
from .quantise import Quantisation, stage_parameters
from .tiles import plan_tiles, split

GIB = 1 << 30
# shares of the mask budget that are tried, before the memory limit is said to be too small
MASK_SHARES = (1.0, 0.5, 0.25, 0.0)


@dataclass(frozen=True)
class Request:
    """What a caller asked for, as far as stages depend on it; fields as in ``compile`` and ``Options``."""

    batch: int
    max_memory: int
    mask: str
    mask_memory: int
    drop: bool
    tiles: str
    unit: UnitCosts


@dataclass
class Assembly:
    """A plan in the making; ``layers`` are (name, graph output) of its linear stages by index."""

    plan: Plan
    layers: dict[int, tuple[str, str]]
    quantisation: Quantisation
    request: Request

    def run(self) -> None:
        """Fills the linear stages and the prediction of the document.

        Raises:
            LimitError: client and server do not fit the memory limit.
            PlanError: a row of features fits no message.
        """
        self.document = self.plan.document
        self.weight_bytes = sum(w.nbytes for w in self.plan.weights.values())
        self.degree = self.quantisation.ring_degree
        self.blocks = cost.blocks(self.request.batch, self.degree)
        for share in MASK_SHARES:
            noise = self.complete(int(self.request.mask_memory * share))
            if self.fits():
                break
        else:
            client, server = self.peaks()
            raise LimitError(
                f"client and server need {client / GIB:.2f} and {server / GIB:.2f} GiB, max_memory is "
                f"{self.request.max_memory / GIB:.2f} GiB; give fewer images at once (batch=1), raise max_memory, "
                "or use smaller images",
                "memory",
                needed=client + server,
                limit=self.request.max_memory,
                unit="bytes",
            )
        self.predict(noise)

    def complete(self, mask_memory: int) -> dict[int, float]:
        """Parameters, masks and tiles of every linear stage; returns log2 of the noise by stage."""
        stages = self.document["stages"]
        noise: dict[int, float] = {}

        def parameters(index: int, mask: str) -> dict[str, Any]:
            name, output = self.layers[index]
            bound = self.quantisation.bounds[output]
            p = stage_parameters(name, self.degree, self.quantisation.weights[output].l2, bound, mask == "shared")
            noise[index] = p.noise_bits
            drop = {"drop_bits": p.drop_bits if self.request.drop else 0}
            if mask != "shared":
                drop["mask_drop_bits"] = p.mask_drop_bits if self.request.drop else 0
            return {"modulus_bits": p.modulus_bits, "delta_bits": p.delta_bits, **drop, "mask": mask}

        for index in self.layers:
            stages[index].update(parameters(index, "fresh"))
        linear = [stages[index] for index in self.layers]
        masks = choose_masks(linear, self.degree, self.blocks, mask_memory, self.request.mask, self.request.unit)
        for mask, index in zip(masks, self.layers):
            stage = stages[index]
            stage.pop("mask_drop_bits")
            stage.update(parameters(index, mask))
            sizes = cost.word_bytes(self.degree, stage)
            stage["tiles"] = plan_tiles(stage["name"], stage["geometry"], sizes, self.request.tiles == "auto")
        return noise

    def peaks(self) -> tuple[int, int]:
        """Peak bytes of client and server."""
        return memory.peaks(self.document, self.weight_bytes, self.blocks)

    def fits(self) -> bool:
        """Narrows tiles until client and server fit the limit together; False when one row a tile is too much."""
        stages = self.document["stages"]
        while sum(self.peaks()) > self.request.max_memory:
            candidates = [
                (memory.server_stage(stages[i], self.degree) + memory.client_stage(stages[i], self.degree), i)
                for i in self.layers
                if self.request.tiles == "auto" and stages[i]["geometry"]["type"] == "conv2d" and _band(stages[i]) > 1
            ]
            if not candidates:
                return False
            stage = stages[max(candidates)[1]]
            stage["tiles"] = split(stage["geometry"], _band(stage) // 2)
        return True

    def predict(self, noise: dict[int, float]) -> None:
        """The ``predicted`` objects of the linear stages and of the plan."""
        unit = self.request.unit
        exact = cost.sent(self.plan, self.request.batch)
        seconds = 0.0
        for index, stage in enumerate(self.document["stages"]):
            if stage["kind"] == "client":
                seconds += cost.client_seconds(stage, self.document["tensors"], self.degree, self.blocks, unit)
                continue
            bytes_of = (exact["stages"][index], exact["stage_setups"][index])
            predicted = cost.linear_prediction(stage, self.degree, self.blocks, bytes_of, noise[index], unit)
            stage["predicted"] = predicted
            seconds += predicted["seconds_client"] + predicted["seconds_server"]
        client, server = self.peaks()
        self.document["predicted"] = {
            "batch": self.request.batch,
            "seconds": seconds,
            "bytes_up": exact["total"]["bytes_up"],
            "bytes_down": exact["total"]["bytes_down"],
            "setup_bytes_down": exact["setup"]["bytes_down"],
            "client_peak_memory_bytes": client,
            "server_peak_memory_bytes": server,
            "rounds": len(self.layers) * self.blocks,
            "max_error": 0.0,
            "worst_error": 0.0,
        }


def _band(stage: dict[str, Any]) -> int:
    return max(t["outputs"][1] - t["outputs"][0] for t in stage["tiles"])

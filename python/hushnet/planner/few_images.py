"""Client-aided plans for few images.

Coefficient-packed linear layers (docs/client-aided-image.md), their parameters and what they cost.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import _native
from ..errors import LimitError
from ..plan import Plan, PlanError
from . import cost, memory
from .assemble import GIB, Request
from .quantise import Quantisation

METHOD = "coefficients"
WORD_BYTES = 8
# seconds that a byte counts where engines are compared: a network of 500 Mbit/s
BYTE_SECONDS = 16e-9
# bytes of weights in evaluation form that a server keeps unless told otherwise
WEIGHT_ROOM = _native.DEFAULT_WEIGHT_BYTES


def together(batch: int) -> int:
    """Images of a batch that run through the stages at the same time."""
    return min(batch, _native.IMAGES_TOGETHER)


def bytes_sent(predicted: dict[str, Any]) -> int:
    """Bytes of a whole run both ways, set-up included."""
    return sum(predicted.get(which, 0) for which in ("bytes_up", "bytes_down", "setup_bytes_up", "setup_bytes_down"))


def price(predicted: dict[str, Any]) -> float:
    """Seconds of a whole run, its bytes over a network of 500 Mbit/s included: what engines are compared by."""
    return predicted["seconds"] + BYTE_SECONDS * bytes_sent(predicted)


@dataclass
class FewImages:
    """A plan in the making; ``layers`` are (name, graph output) of its linear stages by index."""

    plan: Plan
    layers: dict[int, tuple[str, str]]
    quantisation: Quantisation
    request: Request

    def run(self) -> None:
        """Fills the linear stages and the prediction of the document.

        Raises:
            PlanError: a layer that does not fit, with its name.
            LimitError: client and server do not fit the memory limit.
        """
        self.document, self.weights = self.plan.document, self.plan.weights
        self.document["engine"] = "packed"
        self.degree = self.quantisation.ring_degree
        self.sizes: dict[int, dict[str, Any]] = {}
        for index, (name, output) in self.layers.items():
            stage = self.document["stages"][index]
            self.sizes[index] = self.layer(name, stage, self.quantisation.bounds[output])
            stage.update(method=METHOD, **{k: self.sizes[index][k] for k in ("upload_bits", "body_bits", "mask_bits")})
        self.predict()
        predicted = self.document["predicted"]
        client, server = predicted["client_peak_memory_bytes"], predicted["server_peak_memory_bytes"]
        if client + server > self.request.max_memory:
            raise LimitError(
                f"client and server need {client / GIB:.2f} and {server / GIB:.2f} GiB, max_memory is "
                f"{self.request.max_memory / GIB:.2f} GiB; raise max_memory, or use smaller images",
                "memory",
                needed=client + server,
                limit=self.request.max_memory,
                unit="bytes",
            )

    def layer(self, name: str, stage: dict[str, Any], bound: int) -> dict[str, Any]:
        """Parameters, sizes and work of a layer for one image."""
        if bound >= 1 << 63:
            raise PlanError(
                f"layer {name!r}: results need {bound.bit_length() + 1} bits, at most 64 are allowed; use fewer weight "
                "or activation bits"
            )
        flat = np.ascontiguousarray(self.weights[stage["weights"]], dtype=np.int16).reshape(-1)
        try:
            return dict(_native.few_images_layer(json.dumps(stage["geometry"]), self.degree, flat, bound))
        except ValueError as error:
            raise PlanError(f"layer {name!r}, few images at a time: {error}") from None

    def predict(self) -> None:
        """The ``predicted`` objects of the linear stages and of the plan. Bytes are exact.

        Seconds are of one thread on each side.
        """
        unit, batch = self.request.unit, self.request.batch
        streamed = self.streamed()
        exact = cost.sent(self.plan, batch)
        seconds = 0.0
        for index, stage in enumerate(self.document["stages"]):
            if index not in self.layers:
                seconds += cost.client_seconds(stage, self.document["tensors"], 1, batch, unit, unit.few_op_element)
                continue
            bytes_of = (exact["stages"][index], exact["stage_setups"][index])
            predicted = layer_prediction(self.sizes[index], self.degree, batch, bytes_of, index in streamed, unit)
            stage["predicted"] = predicted
            seconds += predicted["seconds_client"] + predicted["seconds_server"]
        client, server = self.peaks()
        self.document["predicted"] = {
            "batch": batch,
            "seconds": seconds,
            "bytes_up": exact["total"]["bytes_up"],
            "bytes_down": exact["total"]["bytes_down"],
            "setup_bytes_down": exact["setup"]["bytes_down"],
            "client_peak_memory_bytes": client,
            "server_peak_memory_bytes": server,
            "rounds": exact["total"]["rounds"],
            "max_error": 0.0,
            "worst_error": 0.0,
        }

    def streamed(self) -> set[int]:
        """Layers whose weights do not fit the room for evaluation forms, as the server chooses them.

        Layers of many tiles first.
        """
        room, out = WEIGHT_ROOM, set()
        for index in sorted(self.layers, key=lambda i: (-self.sizes[i]["tiles"], i)):
            need = self.sizes[index]["prepared_bytes"]
            if need <= room:
                room -= need
            else:
                out.add(index)
        return out

    def peaks(self) -> tuple[int, int]:
        """Peak bytes of client and server: stored tensors, keys, kept sums of masks, messages.

        Weights, and their evaluation forms.
        """
        images = together(self.request.batch)
        stored = memory.stored_bytes(self.document, images)
        tensors = self.document["tensors"]

        def held(index: int) -> int:
            size, stage = self.sizes[index], self.document["stages"][index]
            results = int(np.prod(tensors[stage["out"]]["shape"])) * WORD_BYTES * images
            return results + 2 * size["request_bytes"] + size["largest_response_bytes"]

        polynomial = WORD_BYTES * self.degree
        keys = max((self.sizes[i]["tiles"] for i in self.layers), default=0) * polynomial * images
        kept = sum(s["mask_polys"] * polynomial for s in self.sizes.values())
        client = max((s + (held(i) if i in self.layers else 0) for i, s in enumerate(stored)), default=0)
        prepared = sum(self.sizes[i]["prepared_bytes"] for i in self.layers if i not in self.streamed())
        work = (
            s["input_polys"] // s["tiles"] * polynomial + 2 * s["request_bytes"] + s["setup_bytes"]
            for s in self.sizes.values()
        )
        return client + keys + kept, sum(w.nbytes for w in self.weights.values()) + prepared + max(work, default=0)


def layer_prediction(
    size: dict[str, Any],
    degree: int,
    images: int,
    bytes_of: tuple[dict[str, int], dict[str, int]],
    streamed: bool,
    unit: cost.UnitCosts,
) -> dict[str, Any]:
    """The ``predicted`` object of a linear stage for a session of so many images.

    Args:
        bytes_of: bytes of all images, and those once a session, as :func:`.cost.sent` tells them.
    """
    run, setup = bytes_of
    # requests and answers cost both parties about the same
    ends = (
        degree
        * images
        * (size["input_polys"] * unit.request_coefficient + size["output_polys"] * unit.answer_coefficient)
        / 2
    )
    sums = degree * size["mask_polys"] * unit.sum_coefficient / 2
    pairs = degree * (size["products"] * images + size["weight_polys"])
    work = pairs * (unit.pair_coefficient + (unit.weight_coefficient if streamed else 0.0))
    traffic = (run["bytes_up"] + run["bytes_down"] + setup["bytes_down"]) * unit.byte / 2
    told = (
        "tiles",
        "input_polys",
        "output_polys",
        "mask_polys",
        "request_bytes",
        "largest_response_bytes",
        "prepared_bytes",
    )
    return {
        **{key: size[key] for key in told},
        "word_products": size["products"] * degree * images,
        "bytes_up": run["bytes_up"],
        "bytes_down": run["bytes_down"],
        "setup_bytes_down": setup["bytes_down"],
        "noise_bits": size["noise_bits"],
        "noise_margin_bits": size["noise_margin_bits"],
        "seconds_client": ends + sums + traffic,
        "seconds_server": ends + sums + work + traffic,
    }

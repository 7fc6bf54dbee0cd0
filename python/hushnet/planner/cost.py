"""Predicted work, bytes and seconds. Bytes are exact (docs/wire-protocol.md): 16-byte headers and packed words."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from importlib import resources
from pathlib import Path
from typing import Any

from ..plan import PlanError
from .tiles import layout

HEADER_BYTES = 16


@dataclass(frozen=True)
class UnitCosts:
    """Seconds of one thread for one unit of work.

    Attributes:
        word_product: one ciphertext word times one weight.
        encrypt_word: one word of an upload, with a known mask.
        decrypt_word: one word of a download.
        mask_word: one word of a mask made from the seed.
        op_element: one element of one client op.
        byte: one byte through a loopback socket, packed and unpacked.
    """

    word_product: float
    encrypt_word: float
    decrypt_word: float
    mask_word: float
    op_element: float
    byte: float
    machine: str = "default"

    @classmethod
    def load(cls, path: str | Path | None = None) -> UnitCosts:
        """Reads a file made by ``hushnet calibrate``; the package's own figures when none is given.

        Raises:
            PlanError: the file cannot be read as unit costs.
        """
        text = resources.files(__package__).joinpath("unit_costs.json").read_text() if path is None else _read(path)
        try:
            values = json.loads(text)
            costs = cls(**values)
            if any(not getattr(costs, f.name) >= 0 for f in fields(cls) if f.name != "machine"):
                raise ValueError("a cost is negative")
        except (TypeError, ValueError) as error:
            raise PlanError(f"unit costs in {path}: {error}; make the file with `hushnet calibrate`") from None
        return costs


def _read(path: str | Path) -> str:
    try:
        return Path(path).read_text()
    except OSError as error:
        raise PlanError(f"unit costs cannot be read ({error}); make the file with `hushnet calibrate`") from None


def blocks(batch: int, ring_degree: int) -> int:
    """Blocks of N images that a batch takes."""
    return -(-batch // ring_degree)


def block_frames(batch: int, ring_degree: int) -> int:
    """Bytes of the Block frames that announce a batch in a new session: a header, and index and image count in protobuf."""

    def field(value: int) -> int:
        return 1 + max(1, -(-value.bit_length() // 7)) if value else 0

    total = 0
    for index in range(blocks(batch, ring_degree)):
        images = min(ring_degree, batch - index * ring_degree)
        total += HEADER_BYTES + field(index) + field(images)
    return total


def products_per_word(geometry: dict[str, Any]) -> int:
    """Weights times features of a linear stage, taps in the padding not counted."""
    if geometry["type"] == "dense":
        return geometry["inputs"] * geometry["outputs"]
    taps = 1
    for axis in range(2):
        size, out = geometry["input"][1 + axis], geometry["output"][1 + axis]
        stride, dilation, pad = geometry["stride"][axis], geometry["dilation"][axis], geometry["pads"][axis]
        taps *= sum(
            0 <= o * stride - pad + t * dilation < size for o in range(out) for t in range(geometry["kernel"][axis])
        )
    return geometry["output"][0] * geometry["input"][0] // geometry["groups"] * taps


def word_bytes(ring_degree: int, modulus_bits: int, drop_bits: int, mask: str) -> tuple[int, int]:
    """Payload bytes of one feature in a Request and in a Response."""
    down = ring_degree * (modulus_bits - drop_bits) // 8
    return ring_degree * modulus_bits // 8, down * (2 if mask == "fresh" else 1)


def stage_bytes(stage: dict[str, Any], ring_degree: int) -> tuple[int, int, int]:
    """Bytes up and down for one block, and of SetupMask frames once a session."""
    rows = layout(stage["geometry"])
    up, down = word_bytes(ring_degree, stage["modulus_bits"], stage["drop_bits"], stage["mask"])
    headers = HEADER_BYTES * len(stage["tiles"])
    setup = headers + rows.out_features * up if stage["mask"] == "shared" else 0
    return headers + rows.in_features * up, headers + rows.out_features * down, setup


def linear_prediction(stage: dict[str, Any], ring_degree: int, count: int, noise_bits: float, unit: UnitCosts) -> dict[str, Any]:
    """The ``predicted`` object of a linear stage for ``count`` blocks; seconds are of one thread on each side."""
    fresh = stage["mask"] == "fresh"
    rows = layout(stage["geometry"])
    up, down, setup = stage_bytes(stage, ring_degree)
    products = products_per_word(stage["geometry"]) * ring_degree * (2 if fresh else 1)
    uploaded, returned = rows.in_features * ring_degree, rows.out_features * ring_degree
    client = uploaded * unit.encrypt_word + returned * unit.decrypt_word + (uploaded * unit.mask_word if fresh else 0.0)
    server = products * unit.word_product + (uploaded * unit.mask_word if fresh else 0.0)
    # packing and unpacking are shared evenly
    traffic = (up + down) * unit.byte / 2
    return {
        "word_products": products * count,
        "bytes_up": up * count,
        "bytes_down": down * count,
        "setup_bytes_down": setup,
        "noise_bits": noise_bits,
        "seconds_client": (client + traffic) * count,
        "seconds_server": (server + traffic) * count,
    }


def client_seconds(stage: dict[str, Any], tensors: list[dict[str, Any]], ring_degree: int, count: int, unit: UnitCosts) -> float:
    """Seconds of a client stage for ``count`` blocks, by elements written (or read, when more)."""
    elements = 0
    for op in stage["ops"]:
        sizes = [_elements(tensors[t]) for t in [*op["in"], op["out"]]]
        taps = 1
        for k in op.get("kernel", []):
            taps *= k
        elements += max(max(sizes), sizes[-1] * taps)
    return elements * ring_degree * count * unit.op_element


def _elements(tensor: dict[str, Any]) -> int:
    n = 1
    for size in tensor["shape"]:
        n *= size
    return n

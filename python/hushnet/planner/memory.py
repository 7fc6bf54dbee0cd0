"""Predicted peak memory of both sides for one block, by what the executors hold."""

from __future__ import annotations

import math
from typing import Any

from .cost import word_bytes
from .rules import RULES
from .tiles import layout, resident_rows

Document = dict[str, Any]

WORD_BYTES = 8
IN_FLIGHT = 2


def element_bytes(tensor: dict[str, Any]) -> int:
    """Bytes of a stored element: 2, 4 or 8 for fixed tensors by their bound, 8 for real ones."""
    if tensor["kind"] == "real":
        return 8
    return 2 if tensor["bound"] < 1 << 15 else 4 if tensor["bound"] < 1 << 31 else 8


def streamable(stage: dict[str, Any]) -> bool:
    """Whether executors run a client stage tile by tile: all ops elementwise."""
    return stage["kind"] == "client" and all(
        op["op"] in {"quantize", "dequantize"} or RULES[op["op"]].elementwise for op in stage["ops"]
    )


def live_ranges(document: Document) -> dict[int, tuple[int, int]]:
    """Stages between which each tensor is stored: written in the first, last read in the second."""
    spans: dict[int, tuple[int, int]] = {port["tensor"]: (-1, -1) for port in document["inputs"]}

    def touch(tensor: int, index: int) -> None:
        first, _ = spans.get(tensor, (index, index))
        spans[tensor] = (first, index)

    for index, stage in enumerate(document["stages"]):
        if stage["kind"] == "linear":
            touch(stage["input"], index)
            touch(stage["output"], index)
        else:
            for op in stage["ops"]:
                for tensor in [*op["in"], op["out"]]:
                    touch(tensor, index)
    for port in document["outputs"]:
        touch(port["tensor"], len(document["stages"]))
    return spans


def stored_bytes(document: Document, images: int) -> list[int]:
    """Bytes of the client's stored tensors during every stage.

    A tensor that lives in one client stage only is held a chunk of images at a time and not counted; the result of a linear
    layer that the following streamable stage alone reads is held a tile at a time and not counted either.
    """
    stages, tensors = document["stages"], document["tensors"]
    totals = [0] * len(stages)
    for tensor, (first, last) in live_ranges(document).items():
        if first == last and first >= 0 and stages[first]["kind"] == "client":
            continue
        streamed = first >= 0 and stages[first]["kind"] == "linear" and last == first + 1 < len(stages) and streamable(stages[last])
        if streamed:
            continue
        size = math.prod(tensors[tensor]["shape"]) * element_bytes(tensors[tensor]) * images
        for index in range(max(first, 0), min(last, len(stages) - 1) + 1):
            totals[index] += size
    return totals


def kept_masks(stage: dict[str, Any], ring_degree: int) -> int:
    """Bytes that a client keeps for a session of a shared-mask stage: input masks and their sums, in NTT form."""
    rows = layout(stage["geometry"])
    return (rows.in_features + rows.out_features) * ring_degree * WORD_BYTES


def _largest_tile(stage: dict[str, Any], ring_degree: int) -> tuple[int, int, int]:
    """Largest request and response payload of a tile, and features of its results."""
    rows = layout(stage["geometry"])
    up, down = word_bytes(ring_degree, stage["modulus_bits"], stage["drop_bits"], stage["mask"])
    new = max(t["inputs"][1] - t["inputs"][0] for t in stage["tiles"]) * rows.in_row
    out = max(t["outputs"][1] - t["outputs"][0] for t in stage["tiles"]) * rows.out_row
    return new * up, out * down, out


def server_stage(stage: dict[str, Any], ring_degree: int) -> int:
    """Server bytes of a linear stage: the window of input rows, one tile of results, messages."""
    rows = layout(stage["geometry"])
    parts = 2 if stage["mask"] == "fresh" else 1
    request, response, out = _largest_tile(stage, ring_degree)
    window = resident_rows(stage["geometry"], stage["tiles"]) * rows.in_row
    return (window + out) * ring_degree * WORD_BYTES * parts + IN_FLIGHT * request + response


def client_stage(stage: dict[str, Any], ring_degree: int) -> int:
    """Client bytes of a linear stage besides stored tensors: messages of the tiles in flight and one tile of values."""
    request, response, out = _largest_tile(stage, ring_degree)
    return IN_FLIGHT * (request + response) + out * ring_degree * WORD_BYTES


def peaks(document: Document, weight_bytes: int) -> tuple[int, int]:
    """Peak bytes of client and server for one block of N images, kept masks and weights included."""
    degree = document["params"]["ring_degree"]
    linear = [s for s in document["stages"] if s["kind"] == "linear"]
    kept = sum(kept_masks(s, degree) for s in linear if s["mask"] == "shared")
    stored = stored_bytes(document, degree)
    client = max(
        (
            held + (client_stage(stage, degree) if stage["kind"] == "linear" else 0)
            for held, stage in zip(stored, document["stages"])
        ),
        default=0,
    )
    server = max((server_stage(s, degree) for s in linear), default=0)
    return client + kept, server + weight_bytes

"""Tiles of a linear stage: bands of output rows whose messages and buffers stay within limits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..plan import PlanError

Geometry = dict[str, Any]
Tile = dict[str, list[int]]

# a message aims at half of the largest, so that two tiles in flight overlap without holding much
TARGET_MESSAGE_BYTES = 16 << 20
LARGEST_MESSAGE_BYTES = 32 << 20
LARGEST_FRAME_BYTES = 1 << 30


@dataclass(frozen=True)
class Layout:
    """Rows of a linear stage's input and output, and features (ciphertexts) in a row."""

    in_rows: int
    in_row: int
    out_rows: int
    out_row: int

    @property
    def in_features(self) -> int:
        """Ciphertexts uploaded for a block."""
        return self.in_rows * self.in_row

    @property
    def out_features(self) -> int:
        """Ciphertexts returned for a block."""
        return self.out_rows * self.out_row


def layout(geometry: Geometry) -> Layout:
    """Rows and features a row: image rows for conv2d, single features for dense."""
    if geometry["type"] == "dense":
        return Layout(geometry["inputs"], 1, geometry["outputs"], 1)
    (c, h, w), (o, oh, ow) = geometry["input"], geometry["output"]
    return Layout(h, c * w, oh, o * ow)


def rows_needed(geometry: Geometry, row: int) -> int:
    """Input rows that must have arrived before output row ``row`` can be computed."""
    if geometry["type"] == "dense":
        return geometry["inputs"]
    last = row * geometry["stride"][0] + (geometry["kernel"][0] - 1) * geometry["dilation"][0] - geometry["pads"][0]
    return min(max(last + 1, 0), geometry["input"][1])


def first_needed(geometry: Geometry, row: int) -> int:
    """First input row that output row ``row`` or a later one reads."""
    if geometry["type"] == "dense":
        return 0
    return min(max(row * geometry["stride"][0] - geometry["pads"][0], 0), geometry["input"][1])


def split(geometry: Geometry, band: int) -> list[Tile]:
    """Bands of ``band`` output rows, each with the input rows that are new for it; the last takes all rows left."""
    rows = layout(geometry)
    tiles, arrived = [], 0
    for start in range(0, rows.out_rows, band):
        end = min(start + band, rows.out_rows)
        needed = rows.in_rows if end == rows.out_rows else max(arrived, rows_needed(geometry, end - 1))
        tiles.append({"inputs": [arrived, needed], "outputs": [start, end]})
        arrived = needed
    return tiles


def resident_rows(geometry: Geometry, tiles: list[Tile]) -> int:
    """Most input rows that the server holds at once."""
    held = 0
    for tile in tiles:
        start = tile["outputs"][0]
        held = max(held, tile["inputs"][1] - min(first_needed(geometry, start), tile["inputs"][0]))
    return held


def plan_tiles(layer: str, geometry: Geometry, word_bytes: tuple[float, float], many: bool) -> list[Tile]:
    """Tiles whose messages are near the target; ``word_bytes`` are bytes of a feature in a request and in a response.

    Args:
        many: False for one tile, whatever its size.

    Raises:
        PlanError: a single row does not fit a frame.
    """
    rows = layout(geometry)
    up, down = rows.in_row * word_bytes[0], rows.out_row * word_bytes[1]
    if max(up, down) > LARGEST_FRAME_BYTES:
        raise PlanError(
            f"layer {layer!r}: one row of features takes {max(up, down) / 2**20:.0f} MiB, a message holds "
            f"{LARGEST_FRAME_BYTES >> 20} MiB; give fewer images at once (batch=1), use smaller images or ring degree "
            "2048"
        )
    if not many:
        return split(geometry, rows.out_rows)
    if geometry["type"] == "dense":
        return _dense(rows, up, down)
    band = rows.out_rows
    while band > 1 and _largest_message(split(geometry, band), up, down) > TARGET_MESSAGE_BYTES:
        band -= 1
    band = -(-rows.out_rows // -(-rows.out_rows // band))
    return split(geometry, band)


def _largest_message(tiles: list[Tile], up: float, down: float) -> float:
    return max(max((t["inputs"][1] - t["inputs"][0]) * up, (t["outputs"][1] - t["outputs"][0]) * down) for t in tiles)


def _even(total: int, size: float, limit: int) -> list[tuple[int, int]]:
    parts = max(1, min(total, -(-int(total * size) // limit)))
    step = -(-total // parts)
    return [(i, min(i + step, total)) for i in range(0, total, step)]


def _dense(rows: Layout, up: float, down: float) -> list[Tile]:
    """Uploads in pieces without results, then results in pieces; the last upload and the first results share a tile."""
    tiles = [{"inputs": list(r), "outputs": [0, 0]} for r in _even(rows.in_rows, up, LARGEST_MESSAGE_BYTES)]
    results = _even(rows.out_rows, down, LARGEST_MESSAGE_BYTES)
    tiles[-1]["outputs"] = list(results[0])
    return tiles + [{"inputs": [rows.in_rows, rows.in_rows], "outputs": list(r)} for r in results[1:]]

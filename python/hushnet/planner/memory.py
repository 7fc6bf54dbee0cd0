"""Predicted peak memory of both sides for one block, by what the executors hold."""

from __future__ import annotations

import math
from typing import Any

from .cost import word_bytes
from .quantise import mask_parts
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


def by_rows(op: str) -> bool:
    """Whether feature i of the result depends on feature i of the operands only (reshapes included)."""
    return op in {"quantize", "dequantize", "reshape"} or RULES[op].elementwise


def segments(document: Document) -> list[list[list[dict[str, Any]]]]:
    """Client ops of every stage in the groups that executors run.

    Elementwise runs of one size, single ops otherwise.
    """
    found = []
    for stage in document["stages"]:
        groups: list[list[dict[str, Any]]] = []
        features = None
        for op in stage.get("ops", []):
            size = _elements(document, op["out"])
            if groups and by_rows(op["op"]) and features == size:
                groups[-1].append(op)
            else:
                groups.append([op])
            features = size if by_rows(op["op"]) else None
        found.append(groups)
    return found


def _elements(document: Document, tensor: int) -> int:
    return math.prod(document["tensors"][tensor]["shape"])


def _last_reads(document: Document, groups: list[list[list[dict[str, Any]]]]) -> dict[int, tuple[int, int]]:
    last: dict[int, tuple[int, int]] = {}
    for index, stage in enumerate(document["stages"]):
        if stage["kind"] == "linear":
            last[stage["in"]] = last[stage["out"]] = (index, 0)
        for number, group in enumerate(groups[index]):
            for op in group:
                for tensor in [*op["in"], op["out"]]:
                    last[tensor] = (index, number)
    for port in document["outputs"]:
        last[port["tensor"]] = (len(document["stages"]), 0)
    return last


def _stores(group: list[dict[str, Any]], last: dict[int, tuple[int, int]], now: tuple[int, int]) -> list[int]:
    if len(group) == 1 and not by_rows(group[0]["op"]):
        # an op on whole tensors copies a network input that it reads
        return [group[0]["out"], *group[0]["in"]]
    return [op["out"] for op in group if last[op["out"]] > now]


def _loads(group: list[dict[str, Any]]) -> set[int]:
    made = {op["out"] for op in group}
    return {t for op in group for t in op["in"]} - made


def stored_bytes(document: Document, images: int) -> list[int]:
    """Most bytes of the client's stored tensors in every stage, for blocks of ``images``.

    Of a run of elementwise ops only what is read later is stored. A linear stage's result that the next stage's first
    run reads is handed over feature by feature, and stored only when something later reads it as well; that run's
    results are stored while the linear stage runs.
    """
    groups = segments(document)
    last = _last_reads(document, groups)
    size = {t["id"]: math.prod(t["shape"]) * element_bytes(t) * images for t in document["tensors"]}
    alive: dict[int, int] = {}
    totals = [0] * len(document["stages"])

    def step(index: int, made: list[int]) -> None:
        alive.update((t, size[t]) for t in made)
        totals[index] = max(totals[index], sum(alive.values()))

    def free(now: tuple[int, int]) -> None:
        for tensor in [t for t in alive if last[t] <= now]:
            del alive[tensor]

    for index, stage in enumerate(document["stages"]):
        if stage["kind"] == "linear":
            after = groups[index + 1][0] if index + 1 < len(groups) and groups[index + 1] else []
            fused = by_rows(after[0]["op"]) and stage["out"] in _loads(after) if after else False
            keep = not fused or last[stage["out"]] > (index + 1, 0)
            made = [stage["out"]] if keep else []
            step(index, made + (_stores(after, last, (index + 1, 0)) if fused else []))
            if not fused:
                free((index, 0))
            continue
        for number, group in enumerate(groups[index]):
            step(index, _stores(group, last, (index, number)))
            free((index, number))
    return totals


def kept_sums(stage: dict[str, Any], ring_degree: int) -> int:
    """Bytes of the sums of masks that a client keeps for a session of a shared-mask stage, in NTT form."""
    return layout(stage["geometry"]).out_features * ring_degree * WORD_BYTES * mask_parts(stage, ring_degree)


def kept_inputs(stage: dict[str, Any], ring_degree: int) -> int:
    """Bytes of the input masks that a client keeps from the second block of a session on, in NTT form."""
    return layout(stage["geometry"]).in_features * ring_degree * WORD_BYTES * mask_parts(stage, ring_degree)


def kept(stage: dict[str, Any], ring_degree: int, blocks: int) -> int:
    """Both of them, as far as a session of ``blocks`` keeps them."""
    return kept_sums(stage, ring_degree) + (kept_inputs(stage, ring_degree) if blocks > 1 else 0)


def _largest_tile(stage: dict[str, Any], ring_degree: int) -> tuple[int, int, int]:
    """Largest request and response payload of a tile, and features of its results."""
    rows = layout(stage["geometry"])
    up, down = word_bytes(ring_degree, stage)
    new = max(t["inputs"][1] - t["inputs"][0] for t in stage["tiles"]) * rows.in_row
    out = max(t["outputs"][1] - t["outputs"][0] for t in stage["tiles"]) * rows.out_row
    return new * up, out * down, out


def server_stage(stage: dict[str, Any], ring_degree: int) -> int:
    """Server bytes of a linear stage: the window of input rows (and of masks), one tile of results, its messages."""
    rows = layout(stage["geometry"])
    windows = 1 if stage["mask"] == "shared" else 2
    request, response, out = _largest_tile(stage, ring_degree)
    window = resident_rows(stage["geometry"], stage["tiles"]) * rows.in_row
    return (window * windows + out) * ring_degree * WORD_BYTES + IN_FLIGHT * request + response


def client_stage(stage: dict[str, Any], ring_degree: int) -> int:
    """Client bytes of a linear stage besides stored tensors: the messages of the tiles in flight."""
    request, response, _ = _largest_tile(stage, ring_degree)
    return IN_FLIGHT * (request + response)


def peaks(document: Document, weight_bytes: int, blocks: int) -> tuple[int, int]:
    """Peak bytes of client and server for blocks of N images.

    Kept masks and weights count, inputs and outputs of the caller do not. Input masks are kept only when there is a
    second block.
    """
    degree = document["params"]["ring_degree"]
    linear = [s for s in document["stages"] if s["kind"] == "linear"]
    masks = sum(kept(s, degree, blocks) for s in linear if s["mask"] == "shared")
    stored = stored_bytes(document, degree)
    client = max(
        (
            held + (client_stage(stage, degree) if stage["kind"] == "linear" else 0)
            for held, stage in zip(stored, document["stages"])
        ),
        default=0,
    )
    server = max((server_stage(s, degree) for s in linear), default=0)
    return client + masks, server + weight_bytes

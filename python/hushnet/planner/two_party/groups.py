"""What tensors have in common: fraction bits, because steps only move values between them, and signs."""

from __future__ import annotations

from collections.abc import Callable

from ...graph import Linear
from .regions import MOVES
from .steps import Step


def groups(steps: list[Step]) -> tuple[Callable[[str], str], dict[str, list[Linear]], dict[str, set[str]]]:
    """Tensors joined by moves: a root for each, the layers that read a group, and its members."""
    parent: dict[str, str] = {}

    def root(name: str) -> str:
        parent.setdefault(name, name)
        while parent[name] != name:
            parent[name] = parent[parent[name]]
            name = parent[name]
        return name

    for step in steps:
        for tensor in step.inputs:
            if step.kind in MOVES:
                parent[root(tensor)] = root(step.output)
            root(tensor)
        root(step.output)
    layers: dict[str, list[Linear]] = {}
    for step in steps:
        if step.layer is not None:
            layers.setdefault(root(step.inputs[0]), []).append(step.layer)
    members: dict[str, set[str]] = {}
    for name in list(parent):
        members.setdefault(root(name), set()).add(name)
    return root, layers, members


# steps whose results are not negative where nothing that they read is
KEEPING_SIGNS = MOVES | {"max_pool", "sum_pool", "scale", "gain", "add"}


def not_negative(steps: list[Step]) -> set[str]:
    """Tensors without negative values, whatever enters: behind ReLUs and clips from zero."""
    found: set[str] = set()
    for step in steps:
        starts = step.kind == "relu" or (step.kind == "clip" and step.attrs["low"] == 0)
        if starts or (step.kind in KEEPING_SIGNS and found.issuperset(step.inputs)):
            found.add(step.output)
    return found

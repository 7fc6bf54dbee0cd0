"""Tensors that share fraction bits, because steps only move values between them."""

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

"""Rewrites of :class:`hushnet.graph.Graph`, one a file, each Graph -> Graph and exact over the reals.

A layer costs an upload, a product and a download, a client op nearly nothing: the passes exist to have few layers and
few steps between them. None writes to the graph it is given. Outputs keep their names.
"""

from __future__ import annotations

from collections.abc import Callable

from ..graph import Graph
from .dead_code import dead_code
from .ends import Ends, split_ends
from .fold_affine import fold_affine
from .fold_constants import fold_constants
from .fold_diagonal import fold_diagonal
from .fuse_activations import fuse_activations
from .fuse_diagonals import fuse_diagonals
from .merge_moves import merge_moves
from .replace_activations import ACTIVATIONS, Chain, activations, replace_activations
from .trim_kernels import trim_kernels

Pass = Callable[[Graph], Graph]

ORDER: tuple[Pass, ...] = (
    dead_code,
    trim_kernels,
    fuse_activations,
    merge_moves,
    fold_constants,
    fold_affine,
    fold_diagonal,
    fuse_diagonals,
)
# every round that changes something removes a node, or moves one towards the outputs
ROUNDS = 8

__all__ = [
    "ACTIVATIONS", "ORDER", "Chain", "Ends", "activations", "dead_code", "default", "fold_affine", "fold_constants",
    "fold_diagonal", "fuse_activations",
    "fuse_diagonals", "merge_moves", "replace_activations", "split_ends", "trim_kernels",
]  # fmt: skip


def default(graph: Graph) -> Graph:
    """All passes in :data:`ORDER`, until nothing changes."""
    for _ in range(ROUNDS):
        before = _shape(graph)
        for step in ORDER:
            graph = step(graph)
        if _shape(graph) == before:
            break
    return dead_code(graph)


def _shape(graph: Graph) -> list[tuple[str, str]]:
    return [(node.name, node.output) for node in graph.nodes]

"""Rewrites of :class:`hushnet.graph.Graph`, one per file, each Graph -> Graph and exact over the reals."""

from __future__ import annotations

from ..graph import Graph


def default(graph: Graph) -> Graph:
    return graph

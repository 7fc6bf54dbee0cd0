"""The nodes of an ONNX graph and what goes from one to another: where a network can end in front of some of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .model import Prepared, cuts, reads


@dataclass(frozen=True)
class OutlineNode:
    """A node that depends on the inputs."""

    name: str
    op_type: str
    reads: tuple[str, ...]
    outputs: tuple[str, ...]


class Outline:
    """What depends on the network's inputs.

    Attributes:
        nodes: in the order of the graph.
        outputs: the network's.
        cuts: tensors through which everything goes, first to last (see :func:`hushnet.frontend.model.cuts`).
    """

    def __init__(self, prepared: Prepared) -> None:
        graph = prepared.proto.graph
        private = {port.name for port in graph.input if port.name not in prepared.weights}
        tables = {name for name, array in prepared.weights.items() if array.ndim > 1 and array.dtype.kind not in "iub"}
        self.nodes: list[OutlineNode] = []
        self._labels = {node.name: _label(node.domain, node.op_type) for node in graph.node}
        # what some layer has a part in: everything else the client can compute from its inputs
        weighted: set[str] = set()
        for node in graph.node:
            own = set(reads(node))
            if node.op_type in ("Shape", "Size") or not own & private:
                continue
            outputs = tuple(name for name in node.output if name)
            private.update(outputs)
            if own & weighted or own & tables:
                weighted.update(outputs)
            self.nodes.append(OutlineNode(node.name, node.op_type, tuple(own), outputs))
        self._weighted = weighted
        self._free = {name: node for node in self.nodes if not set(node.reads) & tables for name in node.outputs}
        self.outputs = [port.name for port in graph.output]
        self.cuts = cuts(prepared)

    def source(self, name: str) -> tuple[str, str]:
        """Name and operator of the ONNX node that a lowered node came from; its own name and "" where none is known."""
        parts = name
        while parts and parts not in self._labels:
            parts = parts.rpartition(".")[0]
        return (parts, self._labels[parts]) if parts else (name, "")

    def behind(self, blocked: Iterable[str]) -> set[str]:
        """Tensors that nodes of these names, or nodes behind them, make."""
        names, lost = set(blocked), set[str]()
        for node in self.nodes:
            if node.name in names or lost & set(node.reads):
                lost.update(node.outputs)
        return lost

    def ends(self, blocked: Iterable[str]) -> list[str]:
        """Tensors at which the network ends so that no node of these names is part of it, as late as possible.

        Without what no layer has a part in: the client has that already. Empty where nothing remains.
        """
        lost = self.behind(blocked)
        wanted = {name for node in self.nodes if lost & set(node.outputs) for name in node.reads} | set(self.outputs)
        found = [
            name
            for node in self.nodes
            for name in node.outputs
            if name in wanted and name not in lost and name in self._weighted
        ]
        # later ones may follow from earlier ones
        for name in found[::-1]:
            others = set(found) - {name}
            if name not in self.outputs and self._follows(name, others):
                found.remove(name)
        return found

    def _follows(self, name: str, known: set[str]) -> bool:
        """Whether a tensor is computed without layers from the known ones and from what no layer has a part in."""
        pending, seen = [name], set[str]()
        while pending:
            node = self._free.get(pending.pop())
            if node is None:
                return False
            more = {t for t in node.reads if t in self._weighted and t not in known} - seen
            seen |= more
            pending += more
        return True

    def knows(self, name: str) -> bool:
        """Whether a node has this name."""
        return any(node.name == name for node in self.nodes)


def integers(prepared: Prepared) -> set[str]:
    """Names of the inputs that hold integers or booleans."""
    kinds = {
        port.name: _dtype(port.type.tensor_type.elem_type).kind
        for port in prepared.proto.graph.input
        if port.name not in prepared.weights
    }
    return {name for name, kind in kinds.items() if kind in "iub"}


def _dtype(elem_type: int) -> np.dtype[Any]:
    from onnx import helper

    return helper.tensor_dtype_to_np_dtype(elem_type) if elem_type else np.dtype(np.float32)


def _label(domain: str, op_type: str) -> str:
    return op_type if domain in ("", "ai.onnx") else f"{domain}.{op_type}"

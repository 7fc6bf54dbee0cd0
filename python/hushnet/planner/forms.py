"""Which tensors get a fixed-point form, and which ops run on it.

Every linear layer needs its input quantised. Quantisation commutes exactly with ops that only pick or move elements, so
it moves before them: what is stored between stages is then small integers. Tensors joined by such ops share one scale.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..graph import Dense, Graph, Linear, Op
from ..reference.ops import FIXED_OPS

# an op that drops elements keeps the scale only while its input's range is not much wider than its output's
MAX_RANGE_GROWTH = 2.0
# the largest whole numbers that stand as they are
MOST_WHOLE = 127
_COMPARISONS = frozenset({"equal", "less"})
_SAME_VALUES = frozenset(
    {"reshape", "transpose", "slice", "broadcast", "concat", "gather", "neg", "abs", "relu", "maximum", "minimum"}
)


@dataclass
class Forms:
    """Fixed-point forms of a graph.

    Attributes:
        source: tensor whose fixed form each linear layer (by output tensor) takes.
        fixed: tensors with a fixed form.
        moved: outputs of the ops that run on fixed tensors.
        group: representative of the tensors that share a scale with each fixed tensor.
        limit: planned range of every group.
        whole: groups that hold whole numbers of known size (zeros and ones of comparisons), with the largest.
    """

    source: dict[str, str] = field(default_factory=dict)
    fixed: set[str] = field(default_factory=set)
    moved: set[str] = field(default_factory=set)
    group: dict[str, str] = field(default_factory=dict)
    limit: dict[str, float] = field(default_factory=dict)
    whole: dict[str, int] = field(default_factory=dict)

    def root(self, tensor: str) -> str:
        """Representative of the tensor's group."""
        while self.group[tensor] != tensor:
            tensor = self.group[tensor]
        return tensor


def choose_forms(graph: Graph, limit: dict[str, float]) -> Forms:
    """Fixed forms for a graph with planned ranges ``limit``."""
    producers = {node.output: node for node in graph.nodes}
    forms = Forms()
    pending = []
    for node in graph.nodes:
        if isinstance(node, Linear):
            source = node.input
            if isinstance(node.geometry, Dense):
                source = _before_reshapes(producers, source)
            forms.source[node.output] = source
            pending.append(source)
    while pending:
        tensor = pending.pop()
        if tensor in forms.fixed:
            continue
        forms.fixed.add(tensor)
        forms.group.setdefault(tensor, tensor)
        producer = producers.get(tensor)
        if isinstance(producer, Op) and _commutes(producer, limit):
            forms.moved.add(tensor)
            for source in producer.inputs:
                forms.group.setdefault(source, source)
                forms.group[forms.root(source)] = forms.root(tensor)
                pending.append(source)
    for tensor in forms.fixed:
        root = forms.root(tensor)
        forms.limit[root] = max(forms.limit.get(root, 0.0), limit[tensor])
    numbers = whole_numbers(graph)
    for root in forms.limit:
        sizes = [numbers.get(tensor, 0) for tensor in forms.fixed if forms.root(tensor) == root]
        if min(sizes) > 0 and max(sizes) <= MOST_WHOLE:
            forms.whole[root] = max(sizes)
    return forms


def whole_numbers(graph: Graph) -> dict[str, int]:
    """Tensors that hold whole numbers for every input, with the largest: comparisons, and moves and sums of them."""
    found: dict[str, int] = {}
    for node in graph.nodes:
        if not isinstance(node, Op):
            continue
        size = whole_result(node.op, node.attrs, [found.get(name, 0) for name in node.inputs])
        if size > 0:
            found[node.output] = size
    return found


def whole_result(op: str, attrs: Mapping[str, Any], sizes: Sequence[int]) -> int:
    """The largest of the whole numbers that an op makes of those up to ``sizes``; 0 where it may make others."""
    if op in _COMPARISONS:
        return 1
    if not sizes or min(sizes) == 0:
        return 0
    if op in _SAME_VALUES or (op == "pad" and attrs.get("value", 0) == 0):
        return max(sizes)
    if op in ("add", "sub"):
        return sum(sizes)
    return sizes[0] * sizes[1] if op == "mul" else 0


def _before_reshapes(producers: dict[str, Op | Linear], tensor: str) -> str:
    producer = producers.get(tensor)
    while isinstance(producer, Op) and producer.op == "reshape":
        tensor = producer.inputs[0]
        producer = producers.get(tensor)
    return tensor


def _commutes(op: Op, limit: dict[str, float]) -> bool:
    if op.op not in FIXED_OPS:
        return False
    if op.op == "pad" and op.attrs.get("value", 0) != 0:
        return False
    widest = max(limit[t] for t in op.inputs)
    return widest <= MAX_RANGE_GROWTH * limit[op.output]

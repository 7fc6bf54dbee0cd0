"""Functions of one variable in a graph.

Exporters write them as chains: softplus is a ReLU and a logarithm, Mish a product with a tanh of that. What follows
from one tensor element by element is one function of it, and costs shares one look-up however long the chain is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from ...graph import Graph, Linear, Node, Op
from ...passes.edit import fresh
from ...reference.ops import OPS

Array = np.ndarray
N = TypeVar("N", Op, Node)

# functions that shares have as pieces of polynomials
SMOOTH = frozenset(
    {"sigmoid", "tanh", "erf", "exp", "log", "sin", "cos", "atan", "elu", "sqrt", "silu", "gelu", "gelu_tanh", "div"}
)
# what shares compute exactly: a function begins behind it, unless it needs both sides of it
EXACT = frozenset(
    {"relu", "clip", "abs", "leaky_relu", "prelu", "hard_sigmoid", "hard_swish", "minimum", "maximum", "square"}
)
CHEAP = frozenset({"affine", "neg"})
# what says with how many bits shares read a tensor
SETTLED = frozenset({"settle", "match"})
# what copies elements without a look at them
COPIES = frozenset({"broadcast", "reshape"})
ELEMENTWISE = SMOOTH | EXACT | CHEAP | {"add", "sub", "mul"}


@dataclass(frozen=True)
class Curve:
    """A function of one variable: ops on one tensor, element by element."""

    source: str
    output: str
    body: tuple[Op, ...]

    def __call__(self, x: Array) -> Array:
        """Values at arguments of one axis; not finite where there are none."""
        values: dict[str, Array] = {self.source: x[None]}
        with np.errstate(all="ignore"):
            for node in self.body:
                attrs = {**node.attrs, "slope": node.attrs["slope"][:1]} if "slope" in node.attrs else node.attrs
                values[node.output] = OPS[node.op](attrs, [values[t] for t in node.inputs], x.shape)
        return np.broadcast_to(values[self.output], (1, *x.shape))[0]

    @cached_property
    def key(self) -> str:
        """What it computes, by places of its ops: equal functions have equal keys."""
        places = {self.source: 0} | {n.output: i + 1 for i, n in enumerate(self.body)}
        return repr([(n.op, sorted(n.attrs.items()), [places[t] for t in n.inputs]) for n in self.body])

    @property
    def name(self) -> str:
        """In words: its ops in order."""
        return " ".join(n.op for n in self.body)


def fused(graph: Graph) -> Graph:
    """The graph with every function of one variable as one op ``function`` (attribute ``curve``).

    Quotients of two tensors become products with a reciprocal.
    """
    graph = _reciprocals(_before_copies(graph))
    sources = _Sources(graph)
    needed, nodes = set(graph.outputs), list[Node]()
    for node in reversed(graph.nodes):
        if node.output not in needed:
            continue
        curve = None if isinstance(node, Linear) else sources.curve(node)
        if curve is not None:
            node = Op(node.name, "function", [curve.source], node.output, {"curve": curve})
        nodes.append(node)
        needed.update(_reads(node))
    return replace(graph, nodes=nodes[::-1])


def opened_up(nodes: Sequence[N]) -> list[N]:
    """The nodes with the ops that functions are made of in their place, for a party that computes in the clear."""
    made: dict[str, Any] = {}
    for node in nodes:
        for op in _in_the_clear(node):
            made.setdefault(op.output, op)
    return list(made.values())


def _in_the_clear(node: N) -> Sequence[Node]:
    if isinstance(node, Linear):
        return (node,)
    if node.op == "function":
        body: Sequence[Node] = node.attrs["curve"].body
        return body
    if "body" in node.attrs:
        ops: Sequence[Node] = node.attrs["body"]
        return ops
    if node.op in SETTLED:
        # how many bits shares have says nothing about numbers
        return (Op(node.name, "reshape", node.inputs[:1], node.output),)
    if node.op in {"mul", "square", "matmul"}:
        return (replace(node, attrs={}),)
    return (node,)


def _reads(node: Node) -> list[str]:
    return [node.input] if isinstance(node, Linear) else node.inputs


def _before_copies(graph: Graph) -> Graph:
    """Functions of functions taken in front of the reshapes and copies between them.

    Exporters give a variance its axes back between a root and the quotient by it. A root has errors of one size, which
    are a large part of a small root; the reciprocal of a root as one function of the variance is as precise as it is
    large.
    """
    sources = _Sources(graph)
    graph = replace(graph, shapes=dict(graph.shapes), nodes=list(graph.nodes))
    made: dict[str, Node] = {n.output: n for n in graph.nodes}
    functions = {n.output for n in graph.nodes if isinstance(n, Op) and sources.curve(n) is not None}
    nodes: list[Node] = []
    for node in graph.nodes:
        moved = _before(graph, node, sources, (made, functions)) if isinstance(node, Op) else None
        for other in moved or [node]:
            made[other.output] = other
            nodes.append(other)
    graph.nodes = nodes
    return graph


def _before(graph: Graph, node: Op, sources: _Sources, known: tuple[dict[str, Node], set[str]]) -> list[Node] | None:
    """What stands for a function of a moved result of a function; None where it is none."""
    made, functions = known
    of = {t for t in node.inputs if sources.hard[t] is not None}
    if node.op not in SMOOTH | CHEAP or len(of) != 1 or sources.hard[node.output] is None:
        return None
    (operand,) = of
    base, moves = operand, list[Op]()
    while isinstance(move := made.get(base), Op) and move.op in COPIES:
        moves.insert(0, move)
        base = move.inputs[0]
    if not moves or base not in functions or graph.shapes[node.output] != graph.shapes[operand]:
        return None
    nodes, inputs = list[Node](), list[str]()
    for place, name in enumerate(node.inputs):
        constant = made[name] if name != operand else None
        if constant is None:
            inputs.append(base)
        elif isinstance(constant, Op) and constant.op == "affine" and constant.attrs["mul"] == 0:
            inputs.append(fresh(graph, f"{node.output}.constant{place}", graph.shapes[base]))
            nodes.append(replace(constant, name=f"{node.name}.constant{place}", inputs=[base], output=inputs[-1]))
        else:
            return None
    result = fresh(graph, f"{node.output}.early", graph.shapes[base])
    nodes.append(replace(node, inputs=inputs, output=result))
    functions.add(result)
    for move in moves:
        last = move is moves[-1]
        output = node.output if last else fresh(graph, f"{node.output}.{move.op}", graph.shapes[move.output])
        nodes.append(replace(move, name=f"{node.name}.{move.op}", inputs=[result], output=output))
        result = output
    return nodes


def _reciprocals(graph: Graph) -> Graph:
    """Quotients that are no function of one variable as products.

    A reciprocal is taken before its divisor is copied: once a row of a normalisation, not once a value.
    """
    sources = _Sources(graph)
    graph = replace(graph, shapes=dict(graph.shapes), nodes=list(graph.nodes))
    nodes: list[Node] = []
    for node in graph.nodes:
        if isinstance(node, Op) and node.op == "div" and sources.curve(node) is None:
            divisor, copies = node.inputs[1], list[Op]()
            while isinstance(made := sources.producer.get(divisor), Op) and made.op in COPIES:
                divisor = made.inputs[0]
                copies.insert(0, made)
            shape = graph.shapes[divisor]
            one, inverse = (fresh(graph, f"{node.output}.{what}", shape) for what in ("one", "reciprocal"))
            nodes.append(Op(f"{node.name}.one", "affine", [divisor], one, {"mul": 0.0, "add": 1.0}))
            nodes.append(Op(f"{node.name}.reciprocal", "div", [one, divisor], inverse))
            for copy in copies:
                again = fresh(graph, f"{node.output}.{copy.op}", graph.shapes[copy.output])
                nodes.append(replace(copy, name=f"{node.name}.{copy.op}", inputs=[inverse], output=again))
                inverse = again
            node = Op(node.name, "mul", [node.inputs[0], inverse], node.output)
        nodes.append(node)
    graph.nodes = nodes
    return graph


class _Sources:
    """Of every tensor the one that it follows from element by element, itself where there is none.

    Attributes:
        hard: the farthest; None for constants.
        soft: the nearest behind which no exact op lies, where one serves.
        chain: all tensors that it follows from alone, from the farthest on, itself the last.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.producer = {n.output: n for n in graph.nodes}
        self.readers: dict[str, int] = {}
        for node in graph.nodes:
            for tensor in _reads(node):
                self.readers[tensor] = self.readers.get(tensor, 0) + 1
        for tensor in graph.outputs:
            self.readers[tensor] = self.readers.get(tensor, 0) + 1
        self.hard: dict[str, str | None] = {t: t for t in graph.inputs}
        self.soft: dict[str, str | None] = {t: t for t in graph.inputs}
        self.chain: dict[str, list[str]] = {t: [t] for t in graph.inputs}
        for node in graph.nodes:
            self.hard[node.output], self.soft[node.output] = self.of(node)
            self.chain[node.output] = self.chain_of(node)

    def of(self, node: Node) -> tuple[str | None, str | None]:
        """Both sources of a node's result."""
        own = node.output
        if isinstance(node, Linear) or node.op not in ELEMENTWISE or not self.plain(node.op, node.attrs):
            return own, own
        if node.op == "affine" and node.attrs["mul"] == 0:
            return None, None
        hards = {self.hard[t] for t in node.inputs} - {None}
        if not hards:
            return None, None
        if len(hards) > 1:
            return own, own
        (hard,) = hards
        softs = {self.soft[t] for t in node.inputs} - {None}
        # a function that others read, too, is not computed a second time for a factor
        read = node.op in CHEAP and self.readers[node.inputs[0]] > 1 and softs != set(node.inputs)
        if node.op in EXACT or read:
            return hard, own
        return hard, softs.pop() if len(softs) == 1 else hard

    def chain_of(self, node: Node) -> list[str]:
        """What every operand of a node follows from, and its result."""
        hard = self.hard[node.output]
        if hard in (None, node.output):
            return [node.output]
        chains = [self.chain[t] for t in _reads(node) if self.hard[t] is not None]
        return [t for t in chains[0] if all(t in c for c in chains[1:])] + [node.output]

    @staticmethod
    def plain(op: str, attrs: dict[str, Any]) -> bool:
        """Whether all elements have the same function."""
        return op != "prelu" or len(set(attrs["slope"])) == 1

    def curve(self, node: Op) -> Curve | None:
        """The function that gives a node's result, where shares need one."""
        source = self.soft[node.output]
        if source in (None, node.output):
            return None
        found = self.between(str(source), node)
        if found is None or not bent(found):
            return found
        # a corner far behind: the function begins nearer, at the farthest tensor from which it has none
        nearer = (t for t in self.chain[node.output][:-1] if t != source)
        smooth = (c for c in (self.between(t, node) for t in nearer) if c is not None and not bent(c))
        return next(smooth, None)

    def between(self, source: str, node: Op) -> Curve | None:
        """The function of a source that gives a node's result; None where shares compute all its ops exactly."""
        body: dict[str, Op] = {}
        self.collect(node.output, source, body)
        if not any(n.op in SMOOTH for n in body.values()):
            return None
        return Curve(source, node.output, tuple(body.values()))

    def collect(self, tensor: str, source: str, body: dict[str, Op]) -> None:
        """Adds the ops between a source and a tensor, in order."""
        pending = [(tensor, False)]
        while pending:
            name, ready = pending.pop()
            if name == source or name in body:
                continue
            node = self.producer[name]
            assert isinstance(node, Op)
            if node.op == "affine" and node.attrs["mul"] == 0:
                body[name] = replace(node, inputs=[source])
            elif ready:
                body[name] = node
            else:
                pending.append((name, True))
                pending += [(t, False) for t in reversed(node.inputs)]


def bent(curve: Curve) -> bool:
    """Whether an op with a corner leaves the function one."""
    return any(n.op in EXACT - {"square"} for n in curve.body) and corners(curve)


def corners(curve: Curve) -> bool:
    """Whether the function's slope jumps somewhere near zero: a corner looks the same at every distance."""

    def jump(step: float) -> float:
        values = curve(np.arange(-16.0, 16.0, step))
        turns = np.abs(np.diff(values, 2)) / step
        return float(turns[np.isfinite(turns)].max(initial=0.0))

    return jump(2.0**-11) > 0.25 * jump(2.0**-6)


def factors(graph: Graph, node: Op, producer: Mapping[str, Node]) -> list[str]:
    """Operands of a product with what broadcasts them left out: the product does that."""
    taken = []
    for tensor in node.inputs:
        made = producer.get(tensor)
        taken.append(made.inputs[0] if isinstance(made, Op) and made.op == "broadcast" else tensor)
    whole = np.broadcast_shapes(*(tuple(graph.shapes[t]) for t in taken))
    return taken if whole == tuple(graph.shapes[node.output]) else list(node.inputs)

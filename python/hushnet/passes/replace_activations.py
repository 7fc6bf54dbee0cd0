"""Activations become polynomials, written with client ops that every interpreter knows.

A :class:`Chain` is several of them one after the other, and a product with what they read. Its ops have the attribute
``step``: what they make is a tensor of its own, not a polynomial of what stands before.

``x^2`` is one square; ``a_d x^d + ... + a_0`` is Horner's rule, ``(((a_d x + a_{d-1}) x + a_{d-2}) x + ...)``: d - 1
products and d affine ops. The non-interactive planner reads the coefficients back and evaluates them in depth ceil(log2
d). Not exact, of course: ``planner/non_interactive/activation.py`` measures what it costs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ..graph import Graph, Linear, Node, Op
from .edit import copy, fresh
from .ends import split_ends

# elementwise functions of one operand that are no polynomials
ACTIVATIONS = frozenset(
    {
        "relu", "leaky_relu", "prelu", "clip", "abs", "sqrt", "sigmoid", "tanh", "exp", "erf", "hard_sigmoid",
        "hard_swish", "silu",
        "gelu", "gelu_tanh", "elu", "log", "sin", "cos", "atan", "floor", "round",
    }
)  # fmt: skip


@dataclass(frozen=True)
class Chain:
    """``x q(x) + constant``, q being polynomials one after the other, lowest coefficient first."""

    stages: tuple[tuple[float, ...], ...]
    constant: float = 0.0


def activations(graph: Graph) -> list[Op]:
    """The activations that stand between layers, in order.

    Those of head and tail (see :mod:`ends`) stay with the client.

    Raises:
        ValueError: several inputs or outputs.
    """
    inside = {node.output for node in split_ends(graph).body.nodes}
    return [n for n in graph.nodes if isinstance(n, Op) and n.op in ACTIVATIONS and n.output in inside]


def replace_activations(graph: Graph, coefficients: Mapping[str, Sequence[float] | Chain]) -> Graph:
    """The graph with polynomials (lowest coefficient first, degree at least 1) in the place of the named ops."""
    graph = copy(graph)
    nodes: list[Node] = []
    for node in graph.nodes:
        chosen = None if isinstance(node, Linear) else coefficients.get(node.name)
        if chosen is None or isinstance(node, Linear):
            nodes.append(node)
        else:
            nodes += _chain(graph, node, chosen) if isinstance(chosen, Chain) else _horner(graph, node, list(chosen))
    graph.nodes = nodes
    return graph


def _chain(graph: Graph, node: Op, chain: Chain) -> list[Node]:
    shape = graph.shapes[node.output]
    same = {"mul": 1.0, "add": 0.0, "step": True}
    operand = fresh(graph, f"{node.output}.operand", shape)
    made: list[Node] = [Op(f"{node.name}.operand", "affine", node.inputs, operand, same)]
    value = operand
    for index, coefficients in enumerate(chain.stages):
        name, output = f"{node.name}.stage{index}", fresh(graph, f"{node.output}.stage{index}", shape)
        *first, last = _horner(graph, Op(name, "affine", [value], output), list(coefficients))
        assert isinstance(last, Op)
        made += [*first, replace(last, attrs=last.attrs | {"step": True})]
        value = output
    product = fresh(graph, f"{node.output}.product", shape)
    made.append(Op(f"{node.name}.product", "mul", [operand, value], product, {"step": True}))
    added = {"mul": 1.0, "add": chain.constant, "product": True}
    return [*made, Op(node.name, "affine", [product], node.output, added)]


def _horner(graph: Graph, node: Op, coefficients: list[float]) -> list[Node]:
    x, shape = node.inputs[0], graph.shapes[node.output]
    if len(coefficients) < 2:
        raise ValueError(
            f"node {node.name!r}: {len(coefficients)} coefficients; a polynomial needs a degree of at least 1"
        )
    if coefficients == [0.0, 0.0, 1.0]:
        return [Op(node.name, "square", [x], node.output)]
    made: list[Node] = []

    def step(op: str, sources: list[str], **attrs: float) -> str:
        index = len(made)
        made.append(
            Op(f"{node.name}.p{index}", op, sources, fresh(graph, f"{node.output}.p{index}", shape), dict(attrs))
        )
        return made[-1].output

    value = step("affine", [x], mul=coefficients[-1], add=coefficients[-2])
    for constant in coefficients[-3::-1]:
        value = step("affine", [step("mul", [value, x])], mul=1.0, add=constant)
    last = made[-1]
    del graph.shapes[last.output]
    last.name, last.output = node.name, node.output
    return made

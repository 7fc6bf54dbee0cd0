"""Which networks are drawn for a trust model: mostly of operators that it has, a few of those that it must refuse."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import onnx

from . import elements, moves, windows
from .draft import Draft

Rule = Callable[[Draft, str], "str | None"]

LAYERS: tuple[Rule, ...] = (windows.conv,) * 4 + (
    windows.conv_transpose, windows.conv_transpose, windows.gemm, windows.matmul, windows.matmul, elements.residual,
    elements.residual,
    windows.batch_norm,
)  # fmt: skip
MOVES: tuple[Rule, ...] = (
    moves.pad, moves.slice_, moves.transpose, moves.reshape, moves.split, moves.gather, moves.tile, moves.expand,
    moves.blocks,
    moves.unsqueeze, moves.resize, elements.join, elements.join, moves.where,
)  # fmt: skip
SUMS: tuple[Rule, ...] = (
    windows.average_pool, windows.average_pool, windows.global_average, moves.reduce_(("ReduceMean", "ReduceSum")),
    moves.cumsum,
    elements.with_constant, elements.with_constant, elements.pair(("Add", "Sub", "Sum", "Mean")),
)  # fmt: skip
MAXIMA: tuple[Rule, ...] = (
    windows.max_pool, windows.max_pool, windows.global_max, moves.reduce_(("ReduceMax", "ReduceMin")),
    elements.slopes, elements.clip,
    elements.unary("Relu"), elements.unary("Relu"), elements.unary("Relu", "Abs"), elements.extremum_with_constant,
    elements.pair(("Max", "Min")),
)  # fmt: skip
POLYNOMIALS: tuple[Rule, ...] = (elements.polynomial, elements.polynomial)
PRODUCTS: tuple[Rule, ...] = (
    elements.pair(("Mul",)),
    elements.product_of_matrices,
    moves.reduce_(("ReduceSumSquare",)),
)
SMOOTH: tuple[Rule, ...] = (
    elements.unary("Sigmoid", "Tanh", "Elu", "Gelu", "HardSwish", "HardSigmoid", "Mish"),
    elements.unary("Softplus", "Softsign", "Selu", "Erf", "Exp", "Sin", "Cos", "Celu", "ThresholdedRelu"),
)  # fmt: skip
GATES: tuple[Rule, ...] = (
    elements.swish, elements.branches, elements.branches, elements.squeeze_and_excite, elements.squeeze_and_excite,
    elements.pair(("Mul",)),
)  # fmt: skip
STATISTICS: tuple[Rule, ...] = (
    elements.softmax,
    elements.normalise,
    windows.lp_pool,
    moves.reduce_(("ReduceL1", "ReduceL2", "ReduceLogSumExp", "ReduceProd")),
)


@dataclass(frozen=True)
class Profile:
    """Operators of a trust model; ``odd``: those that are drawn in ``share`` of the networks, once."""

    usual: tuple[tuple[Rule, ...], ...]
    odd: tuple[tuple[Rule, ...], ...]
    share: float


PROFILES = {
    "client-aided": Profile(
        (LAYERS, LAYERS, MOVES, MOVES, SUMS, MAXIMA, POLYNOMIALS, PRODUCTS, SMOOTH, GATES, STATISTICS), (), 0.0
    ),
    "two-party": Profile(
        (LAYERS, LAYERS, MOVES, MOVES, SUMS, MAXIMA, SMOOTH, GATES), (POLYNOMIALS, PRODUCTS, STATISTICS), 0.1
    ),
    "non-interactive": Profile((LAYERS, LAYERS, MOVES, MOVES, SUMS), (MAXIMA, SMOOTH + STATISTICS), 0.1),
}
# squares and products in front of others: every one doubles the degree
DEEP = {"non-interactive": 2}
INPUTS = (
    (4, 6, 6),
    (2, 7, 5),
    (3, 5, 6),
    (1, 8, 8),
    (6, 4, 3),
    (3, 9),
    (4, 12),
    (2, 3, 4, 4),
    (1, 4, 5, 3),
    (5, 6),
    (10,),
    (16,),
)


def network(trust: str, seed: int, index: int) -> onnx.ModelProto:
    """The network of a seed and an index: the same on every machine."""
    rng = np.random.default_rng([seed, index])
    profile = PROFILES[trust]
    first = INPUTS[int(rng.integers(len(INPUTS)))]
    shapes = [first]
    for _ in range(int(rng.choice(3, p=[0.65, 0.25, 0.1]))):
        shapes.append(first if rng.random() < 0.6 else INPUTS[int(rng.integers(len(INPUTS)))])
    d = Draft(rng, shapes)
    at = "x0"
    odd = d.draw(0, 5) if profile.odd and d.chance(profile.share) else -1
    deep = DEEP.get(trust, 0)
    ends = []
    for step in range(d.draw(3, 8)):
        if len(d.shapes) > 2 and d.chance(0.15):
            ends.append(at)
            at = d.pick([n for n, s in d.shapes.items() if s])
        groups = profile.odd if step == odd else profile.usual
        rules = d.pick(groups)
        if deep and d.chance(0.35):
            rules, deep = d.pick([POLYNOMIALS, PRODUCTS]), deep - 1
        for _ in range(6):
            made = d.pick(rules)(d, at)
            if made is not None and d.shapes[made]:
                at = made
                break
    # other inputs come in by an operator of two tensors, or lead to outputs of their own
    results = [at]
    for number in range(1, len(shapes)):
        name = f"x{number}"
        if any(name in node.input for node in d.nodes):
            continue
        layer = windows.gemm(d, name)
        if layer is None:
            continue
        mine = windows.gemm(d, results[0]) if d.chance(0.6) else None
        if mine is not None and len(d.shapes[results[0]]) >= 1:
            size = d.shapes[layer][0]
            turned = d.one("MatMul", mine, d.weight(d.shapes[mine][0], size, fan_in=d.shapes[mine][0]))
            joined = None if turned is None else d.one("Add", layer, turned)
            if joined is not None:
                results[0] = joined
                continue
        results.append(layer)
    used = {n for node in d.nodes for n in node.input}
    if d.chance(0.35):
        results += [n for n in dict.fromkeys(ends) if n not in used and n not in d.inputs and not n.startswith("x")][:2]
    results = [r for r in dict.fromkeys(results) if not r.startswith("x")]
    if not results:
        made = windows.gemm(d, "x0")
        assert made is not None
        results = [made]
    return d.model(results)

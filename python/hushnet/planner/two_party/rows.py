"""Rows: softmax on shares, and what normalisations are made of.

Softmax takes the largest value off each row and cuts differences off at -:data:`DEPTH`. The exponential is the square
of that of half the difference: its errors then fall with it, so that many small ones do not add up to one large one.
The reciprocal of a row's sum has a proven range.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ...graph import Graph, Node, Op, Shape
from ...passes.edit import fresh
from .curves import COPIES, Curve

if TYPE_CHECKING:
    from .steps import Writer

# differences to a row's maximum below this one count as this one; e^-15.9 is less than 2^-22
DEPTH = 15.9
# bits that differences have behind the point less than activations have bits, and the exponential's square root
COARSER_DIFFERENCE, COARSER_ROOT = 3, 1
# and the smallest reciprocal: an error of it is one of a whole row
COARSER_RECIPROCAL = 4
# what exponentials are multiplied by, so that the largest takes no bit more; the sum's reciprocal takes it back
SCALE = 0.975
# room for the error of an exponential, and for errors of their sum
ROOM, AIR = 1.003, 1.02


def softmax(write: Writer, node: Op, shapes: list[Shape], out: Shape) -> None:
    """``e^(x - m) / sum e^(x - m)`` with a row's largest value m."""
    (shape,), axis, name = shapes, node.attrs["axis"] % len(out), node.name
    count = shape[axis]
    rows = math.prod(shape) // count
    order = [a for a in range(len(shape)) if a != axis] + [axis]
    source = write.put("settle", f"{name}.settled", node.inputs[0], shape, coarser=COARSER_DIFFERENCE)
    if order != list(range(len(shape))):
        source = write.put("transpose", f"{name}.order", source, tuple(shape[a] for a in order), perm=order)
    whole, each = (rows, 1, count), (rows, 1, 1)
    source = write.put("reshape", f"{name}.rows", source, whole)
    window: dict[str, Any] = {"kernel": [1, count], "stride": [1, count], "pads": [0, 0, 0, 0], "dilation": [1, 1]}
    most = write.put("max_pool", f"{name}.maximum", source, each, **window)
    # the depth less the maximum, so that what is below the depth is negative
    raised = write.put("shift", f"{name}.raised", most, each, by=DEPTH, negated=True)
    raised = write.put("concat", f"{name}.copies", [raised] * count, whole, axis=2)
    above = write.put("add", f"{name}.differences", [source, raised], whole)
    above = write.bounded(write.put("relu", f"{name}.depth", above, whole), most=DEPTH)
    root = math.sqrt(SCALE)
    half = write.put("function", f"{name}.half", above, whole, curve=_half_exponential(above, root), coarser=COARSER_ROOT)
    half = write.bounded(half, most=root * ROOM)
    power = write.put("product", f"{name}.exp", [half, half], whole, whole=True, finer=0, sums=count)
    power = write.bounded(power, most=SCALE * ROOM**2)
    total = write.put("sum_pool", f"{name}.sum", power, each, **window)
    total = write.bounded(total, most=SCALE * AIR * count, least=SCALE / AIR)
    inverse = write.put("function", f"{name}.reciprocal", total, each, curve=_reciprocal(total), coarser=COARSER_RECIPROCAL)
    inverse = write.bounded(inverse, most=AIR * AIR / SCALE)
    result = write.put("product", f"{name}.product", [power, inverse], whole, whole=True, like=node.output)
    result = write.bounded(result, most=AIR)
    last = tuple(shape[a] for a in order)
    if order == list(range(len(shape))):
        write.put("reshape", name, result, out, node.output)
    else:
        result = write.put("reshape", f"{name}.shape", result, last)
        write.put("transpose", name, result, out, node.output, perm=[order.index(a) for a in range(len(out))])


def _half_exponential(source: str, factor: float) -> Curve:
    """``factor e^((c - DEPTH) / 2)``."""
    moved = Op("half", "affine", [source], "half", {"mul": 0.5, "add": math.log(factor) - DEPTH / 2})
    return Curve(source, "exp", (moved, Op("exp", "exp", ["half"], "exp")))


def _reciprocal(source: str) -> Curve:
    one = Op("one", "affine", [source], "one", {"mul": 0.0, "add": 1.0})
    return Curve(source, "reciprocal", (one, Op("reciprocal", "div", ["one", source], "reciprocal")))


def settled(graph: Graph) -> Graph:
    """The graph with what normalisations need said: which squares are summed, and that values meet their own mean.

    Values that lose their mean are read once, with the bits that the smallest row asks for, and the mean is brought to
    them before it is copied.
    """
    shapes, made = dict(graph.shapes), {n.output: n for n in graph.nodes}
    graph = replace(graph, shapes=shapes, nodes=list(graph.nodes))
    readers: dict[str, int] = {}
    for node in graph.nodes:
        for tensor in [node.input] if not isinstance(node, Op) else node.inputs:
            readers[tensor] = readers.get(tensor, 0) + 1
    squares: dict[str, tuple[int, str]] = {}
    for node in graph.nodes:
        source = made.get(node.inputs[0]) if isinstance(node, Op) and node.op in {"reduce_mean", "reduce_sum"} else None
        if isinstance(source, Op) and _is_square(source) and readers[source.output] == 1:
            terms = math.prod(shapes[source.output]) // math.prod(shapes[node.output])
            squares[source.output] = (terms, node.output)
    centred = {made[t].inputs[0]: of for t, (_, of) in squares.items()}  # type: ignore[union-attr]
    means: dict[str, tuple[str, str]] = {}
    for node in graph.nodes:
        if isinstance(node, Op) and node.op == "sub" and node.output in centred:
            mean, _ = _copied(node.inputs[1], made)
            maker = made.get(mean)
            if isinstance(maker, Op) and maker.op == "reduce_mean" and maker.inputs[0] == node.inputs[0]:
                means[mean] = (node.inputs[0], centred[node.output])
    matched: dict[str, tuple[str, str]] = {}
    nodes: list[Node] = []
    for node in graph.nodes:
        if node.output in means:
            assert isinstance(node, Op)
            values, of = means[node.output]
            read = fresh(graph, f"{values}.settled", shapes[values])
            mean = fresh(graph, f"{node.output}.matched", shapes[node.output])
            nodes += [
                Op(f"{node.name}.settled", "settle", [values], read, {"of": of}),
                replace(node, inputs=[read]),
                Op(f"{node.name}.matched", "match", [node.output, read], mean),
            ]
            matched[node.output] = (read, mean)
            continue
        if node.output in squares:
            assert isinstance(node, Op)
            terms, of = squares[node.output]
            node = replace(node, attrs={**node.attrs, "sums": terms, "of": of})
        elif isinstance(node, Op) and node.op == "sub":
            mean, copies = _copied(node.inputs[1], made)
            if mean in matched and means[mean][0] == node.inputs[0]:
                read, tensor = matched[mean]
                for copy in copies:
                    again = fresh(graph, f"{copy.output}.matched", shapes[copy.output])
                    nodes.append(replace(copy, name=f"{copy.name}.matched", inputs=[tensor], output=again))
                    tensor = again
                node = replace(node, inputs=[read, tensor])
        nodes.append(node)
    graph.nodes = nodes
    return graph


def _is_square(node: Op) -> bool:
    return node.op == "square" or (node.op == "mul" and node.inputs[0] == node.inputs[1])


def _copied(tensor: str, made: dict[str, Node]) -> tuple[str, list[Op]]:
    """What a tensor is a copy of, and the ops that copied it, in order."""
    copies: list[Op] = []
    while isinstance(node := made.get(tensor), Op) and node.op in COPIES:
        copies.insert(0, node)
        tensor = node.inputs[0]
    return tensor, copies

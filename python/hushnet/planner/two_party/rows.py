"""Rows: softmax on shares, and what normalisations are made of.

Softmax takes the largest value off each row and cuts differences off at -:data:`DEPTH`. The errors of exponentials have
hardly a mean, so that many small ones do not add up to one large one. The reciprocal of a row's sum has a proven range.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ...graph import Graph, Linear, Node, Op, Shape
from ...passes.edit import fresh
from .curves import COPIES, Curve

if TYPE_CHECKING:
    from .steps import Writer

# differences to a row's maximum below this one count as this one; e^-15.875 is less than 2^-22. Logits with three bits
# behind the point hold it exactly: rounded up, it would take exponentials beyond their proven range
DEPTH = 15.875
# a unit of the maximum that is taken off a row, which need not be its largest value: rough maxima compare fewer bits
ROUGH = 0.125
# bits that differences have behind the point less than activations have bits
COARSER_DIFFERENCE = 3
# and the smallest reciprocal: an error of it is one of a whole row
COARSER_RECIPROCAL = 4
# and where it divides behind a product of matrices, whose rows are as large as their number of elements says
COARSER_MEAN = 3
# what exponentials are multiplied by, so that the largest takes no bit more; the sum's reciprocal takes it back
SCALE = 0.975
# logits up to this one need no maximum: the least exponential is e^-2 of the largest
NARROW = 1.0
# ops that take exponentials of rows
NARROWED = frozenset({"softmax", "log_sum_exp", "exponentials"})
# moves between an exponential and its sum
MOVED = frozenset({"reshape", "transpose"})
# room for errors of a sum, as a factor, and of a result
AIR, ROOM = 1.02, 0.1


@dataclass(frozen=True)
class Rows:
    """Exponentials of rows: the tensors' shapes, the order of axes that makes rows, and the tensors.

    ``most`` is the rows' maxima; None where a number stands for all of them.
    """

    whole: Shape
    each: Shape
    order: list[int]
    most: str | None
    power: str
    total: str


def _exponentials(write: Writer, node: Op, shape: Shape, rough: float = ROUGH) -> Rows:
    """Writes ``e^(x - m)`` and its sum, with m a row's largest value, or above it by at most two units of ``rough``."""
    axis, name = node.attrs["axis"] % len(shape), node.name
    count = shape[axis]
    rows = math.prod(shape) // count
    order = [a for a in range(len(shape)) if a != axis] + [axis]
    source = write.put("settle", f"{name}.settled", node.inputs[0], shape, coarser=COARSER_DIFFERENCE, rows=True)
    if order != list(range(len(shape))):
        source = write.put("transpose", f"{name}.order", source, tuple(shape[a] for a in order), perm=order)
    whole, each = (rows, 1, count), (rows, 1, 1)
    source = write.put("reshape", f"{name}.rows", source, whole)
    window: dict[str, Any] = {"kernel": [1, count], "stride": [1, count], "pads": [0, 0, 0, 0], "dilation": [1, 1]}
    most, narrow = None, node.attrs.get("narrow")
    if narrow is None:
        # less than a unit below the maximum, and a unit above it at most: with a unit more, it is not below
        coarse: dict[str, Any] = {"rough": rough} if rough else {}
        most = write.put("max_pool", f"{name}.maximum", source, each, **window, **coarse)
        # the depth less the raised maximum, so that what is below the depth is negative
        raised = write.put("shift", f"{name}.raised", most, each, by=DEPTH - rough, negated=True, down=True)
        raised = write.put("concat", f"{name}.copies", [raised] * count, whole, axis=2)
        above = write.put("add", f"{name}.differences", [source, raised], whole)
        source = write.bounded(write.put("relu", f"{name}.depth", above, whole), most=DEPTH)
    curve = _exponential(source, SCALE, narrow or DEPTH)
    power = write.put("function", f"{name}.exp", source, whole, curve=curve, exponential=SCALE, rows=True)
    power = write.bounded(power, most=SCALE)
    total = write.put("sum_pool", f"{name}.sum", power, each, **window)
    smallest = math.exp(-2.0 * rough) if narrow is None else count * math.exp(-2.0 * narrow)
    total = write.bounded(total, most=SCALE * AIR * count, least=SCALE * smallest / AIR)
    return Rows(whole, each, order, most, power, total)


def exponentials(write: Writer, node: Op, shapes: list[Shape], out: Shape) -> None:
    """``e^(x - m)`` of rows whose sums divide behind a product of matrices (:mod:`.means`)."""
    made = write.rows[node.output] = _exponentials(write, node, shapes[0])
    _in_order(write, node, made.power, (made.order, out))


def row_reciprocal(write: Writer, node: Op, shapes: list[Shape], out: Shape) -> None:
    """One divided by the sums of rows of exponentials."""
    made = write.rows[node.inputs[0]]
    curve, name = _reciprocal(made.total), f"{node.name}.inverse"
    inverse = write.put("function", name, made.total, made.each, curve=curve, coarser=COARSER_MEAN, rows=True)
    _in_order(write, node, inverse, (made.order, out))


def _in_order(write: Writer, node: Op, rows: str, at: tuple[list[int], Shape]) -> None:
    """Moves rows to where the axes of an op's result are."""
    order, out = at
    if order == list(range(len(out))):
        write.put("reshape", node.name, rows, out, node.output)
    else:
        moved = write.put("reshape", f"{node.name}.shape", rows, tuple(out[a] for a in order))
        write.put("transpose", node.name, moved, out, node.output, perm=[order.index(a) for a in range(len(out))])


def softmax(write: Writer, node: Op, shapes: list[Shape], out: Shape) -> None:
    """``e^(x - m) / sum e^(x - m)`` with a row's largest value m."""
    (shape,), name = shapes, node.name
    made = _exponentials(write, node, shape)
    inverse = write.put(
        "function",
        f"{name}.reciprocal",
        made.total,
        made.each,
        curve=_reciprocal(made.total),
        coarser=COARSER_RECIPROCAL,
        rows=True,
    )
    result = write.put("product", f"{name}.product", [made.power, inverse], made.whole, whole=True, like=node.output)
    result = write.bounded(result, most=1.0 + ROOM)
    _in_order(write, node, result, (made.order, out))


def log_sum_exp(write: Writer, node: Op, shapes: list[Shape], out: Shape) -> None:
    """``m + log sum e^(x - m)`` of every row, with its largest value m."""
    (shape,), name = shapes, node.name
    made = _exponentials(write, node, shape, rough=0.0)
    scaled = Op("scaled", "affine", [made.total], "scaled", {"mul": 1.0 / SCALE, "add": 0.0})
    curve = Curve(made.total, "log", (scaled, Op("log", "log", ["scaled"], "log")))
    logarithm = write.put("function", f"{name}.log", made.total, made.each, curve=curve)
    if made.most is None:
        total = write.put("shift", f"{name}.total", logarithm, made.each, by=node.attrs["narrow"], negated=False)
    else:
        total = write.put("add", f"{name}.total", [made.most, logarithm], made.each)
    write.put("reshape", name, total, out, node.output)


def recognised(graph: Graph) -> Graph:
    """The graph with softmax as one op where it is written out, and its logarithm in front of a layer.

    At the end of a network the client computes both, of what is opened to it.
    """
    made: dict[str, Node] = {n.output: n for n in graph.nodes}
    inner = before_layers(graph)
    graph = replace(graph, shapes=dict(graph.shapes))
    nodes: list[Node] = []
    for node in graph.nodes:
        found = (
            _written_out(graph, node, made)
            if isinstance(node, Op) and (node.op == "div" or node.output in inner)
            else None
        )
        nodes += found or [node]
    return replace(graph, nodes=nodes)


def before_layers(graph: Graph) -> set[str]:
    """Tensors that a layer, or a product of private matrices, follows from."""
    inner: set[str] = set()
    for node in reversed(graph.nodes):
        if isinstance(node, Linear):
            inner.add(node.input)
        elif node.op == "matmul" or node.output in inner:
            inner.update(node.inputs)
    return inner


def _written_out(graph: Graph, node: Op, made: dict[str, Node]) -> list[Node] | None:
    """What stands for the last op of a softmax that is written out, or of its logarithm."""
    if node.op == "div":
        # e^(x - a) / sum e^(x - a), whatever a row's a is
        total = made.get(_copied(node.inputs[1], made)[0])
        row = _row_sum(graph, total, node.inputs[0])
        if row is None:
            return None
        # moves may stand between the exponential and its sum
        power, moves = made.get(node.inputs[0]), list[Op]()
        while isinstance(power, Op) and power.op in MOVED:
            moves.insert(0, power)
            power = made.get(power.inputs[0])
        if not isinstance(power, Op) or power.op != "exp":
            return None
        source, nodes = power.inputs[0] if moves else _without_maximum(power.inputs[0], row, made), list[Node]()
        for move in moves:
            moved = fresh(graph, f"{node.output}.{move.op}", graph.shapes[move.output])
            nodes.append(replace(move, name=f"{node.name}.{move.op}", inputs=[source], output=moved))
            source = moved
        return [*nodes, Op(node.name, "softmax", [source], node.output, {"axis": row})]
    if node.op == "sub":
        # (x - a) - log sum e^(x - a)
        logarithm = made.get(_copied(node.inputs[1], made)[0])
        total = made.get(logarithm.inputs[0]) if isinstance(logarithm, Op) and logarithm.op == "log" else None
        power = made.get(total.inputs[0]) if isinstance(total, Op) and total.op == "reduce_sum" else None
        if not isinstance(power, Op) or power.op != "exp" or power.inputs[0] != node.inputs[0]:
            return None
        row = _row_sum(graph, total, power.output)
        if row is None:
            return None
        source = _without_maximum(power.inputs[0], row, made)
        return _logarithm(graph, node, source, row)
    return None


def _logarithm(graph: Graph, node: Op, source: str, axis: int) -> list[Node]:
    """``x - (m + log sum e^(x - m))``, with what a party in the clear computes for the second term."""
    shape, out = graph.shapes[node.output], node.output
    each = tuple(1 if a == axis else n for a, n in enumerate(shape))
    body: list[Op] = []

    def put(op: str, inputs: list[str], what: str, to: Shape, **attrs: Any) -> str:
        body.append(Op(f"{node.name}.{what}", op, inputs, fresh(graph, f"{out}.{what}", to), attrs))
        return body[-1].output

    top = put("reduce_max", [source], "top", each, axes=[axis])
    below = put("sub", [source, put("broadcast", [top], "tops", shape)], "below", shape)
    total = put("reduce_sum", [put("exp", [below], "exp", shape)], "sum", each, axes=[axis])
    total = put("add", [top, put("log", [total], "log", each)], "log_sum", each)
    copies = fresh(graph, f"{out}.log_sums", shape)
    return [
        Op(f"{node.name}.log_sum", "log_sum_exp", [source], total, {"axis": axis, "body": tuple(body)}),
        Op(f"{node.name}.log_sums", "broadcast", [total], copies),
        Op(node.name, "sub", [source, copies], out),
    ]


def _row_sum(graph: Graph, node: Node | None, of: str) -> int | None:
    """The one axis over which a node sums a tensor; None where it does something else."""
    if not isinstance(node, Op) or node.op != "reduce_sum" or node.inputs[0] != of or len(node.attrs["axes"]) != 1:
        return None
    return int(node.attrs["axes"][0]) % len(graph.shapes[of])


def _without_maximum(tensor: str, axis: int, made: dict[str, Node]) -> str:
    """What the largest value of rows was taken off, or the tensor itself."""
    node = made.get(tensor)
    if not isinstance(node, Op) or node.op != "sub":
        return tensor
    top = made.get(_copied(node.inputs[1], made)[0])
    largest = isinstance(top, Op) and top.op == "reduce_max" and top.inputs[0] == node.inputs[0]
    return node.inputs[0] if largest and list(top.attrs["axes"]) == [axis] else tensor  # type: ignore[union-attr]


def narrow_rows(nodes: list[Node], limits: Mapping[str, float]) -> list[Node]:
    """Nodes with a number in the place of the maximum where logits are so small that no exponential gets lost."""
    found: list[Node] = []
    for node in nodes:
        limit = limits.get(node.inputs[0]) if isinstance(node, Op) and node.op in NARROWED else None
        if limit is not None and limit <= NARROW:
            assert isinstance(node, Op)
            # clients may conclude it from the function's interval, so it is a power of two
            bound = 2.0 ** math.ceil(math.log2(max(limit, 2.0**-6)))
            node = replace(node, attrs={**node.attrs, "narrow": bound})
        found.append(node)
    return found


def _exponential(source: str, factor: float, top: float) -> Curve:
    """``factor e^(c - top)``."""
    moved = Op("moved", "affine", [source], "moved", {"mul": 1.0, "add": math.log(factor) - top})
    return Curve(source, "exp", (moved, Op("exp", "exp", ["moved"], "exp")))


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
        if isinstance(node, Op) and node.op == "mul":
            node = _normalised(node, made, squares)
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


def _normalised(node: Op, made: dict[str, Node], squares: Mapping[str, tuple[int, str]]) -> Op:
    """A product of values with a reciprocal root of their own mean square, at most the root of their number."""
    for values, factor in (node.inputs, node.inputs[::-1]):
        maker = made.get(_copied(factor, made)[0])
        if not isinstance(maker, Op) or maker.op != "function":
            continue
        of = made.get(maker.inputs[0])
        square = made.get(of.inputs[0]) if isinstance(of, Op) and of.op == "reduce_mean" else None
        if not isinstance(square, Op) or square.output not in squares or square.inputs[0] != values:
            continue
        v = np.geomspace(1e-12, 1e12, 4097)
        # a value is at most the root of n times the mean square
        most = float(np.max(np.sqrt(v) * np.abs(maker.attrs["curve"](v))))
        if most <= AIR:
            return replace(node, attrs={**node.attrs, "most": most * AIR * math.sqrt(squares[square.output][0])})
    return node


def _is_square(node: Op) -> bool:
    return node.op == "square" or (node.op == "mul" and node.inputs[0] == node.inputs[1])


def _copied(tensor: str, made: dict[str, Node]) -> tuple[str, list[Op]]:
    """What a tensor is a copy of, and the ops that copied it, in order."""
    copies: list[Op] = []
    while isinstance(node := made.get(tensor), Op) and node.op in COPIES:
        copies.insert(0, node)
        tensor = node.inputs[0]
    return tensor, copies

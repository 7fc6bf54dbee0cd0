"""Who computes what: the client alone before the first layer, both on shares, the client alone on what is opened.

- *Head*: ops that depend on inputs only; the client computes them on its own data.
- *Tail*: ops behind the last layer that shares cannot do (softmax, sigmoid, ...), all that follows from them, and ops
  that can be undone
  (reshape, transpose, affine, neg) right before an output. What they read is opened to the client.
- Everything else runs on shares.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ...errors import Blocked, BlockedPlan
from ...graph import Graph, Linear, Node, Op
from ...passes.edit import fresh
from ..rewrite import consumers
from .unroll import unrolled

MOVES = frozenset({"reshape", "transpose", "concat", "slice", "pad"})
COPIED = (MOVES - {"pad"}) | {"broadcast"}
REDUCTIONS = frozenset({"reduce_mean", "reduce_sum", "reduce_max"})
# ops that lose nothing: opening what they read tells no more than their result
INVERTIBLE = frozenset({"reshape", "transpose", "affine", "neg"})
# increasing functions of every element, which leave the index of the largest where it is
INCREASING = frozenset({"sigmoid", "tanh", "erf", "exp"})

# ops that are not defined, or not finite, at zero
SINGULAR = frozenset({"log", "sqrt", "div"})

# ops that run on shares at the end of a network, too, and all that they read: opening that would tell much more than
# their result
AT_ENDS = frozenset({"matmul"})

_RELU = "replace it by Relu, LeakyRelu or a clip and train the network again with it"
_PRODUCT = "products of all elements along an axis are not offered; write them as products of two tensors"
_COMPARED = "comparisons and roundings of private values are not offered; write it with Relu, Min, Max or Clip"
_LAST = "only the end of the network may select; move it behind the last layer"
_NORMALISED = "only the end of the network may normalise; move it behind the last layer"
ADVICE = {
    **dict.fromkeys(
        ("sigmoid", "tanh", "erf", "exp", "log", "sin", "cos", "atan", "hard_sigmoid", "elu", "sqrt"), _RELU
    ),
    **dict.fromkeys(("silu", "hard_swish", "gelu", "gelu_tanh"), _RELU),
    **dict.fromkeys(("mul", "div", "square", "reduce_prod"), _PRODUCT),
    **dict.fromkeys(("less", "equal", "floor", "round"), _COMPARED),
    "top_k": _LAST,
    "softmax": _NORMALISED,
    "gather": "select fewer elements, or evenly spaced ones",
    "interpolate": "use a smaller input",
    "affine": "remove the multiplication by zero",
    "pool": "pool over one to three spatial axes, without dilation",
}


@dataclass(frozen=True)
class Regions:
    """Nodes of each region in graph order, and the tensors that cross."""

    head: list[Op]
    shared: list[Node]
    tail: list[Op]
    entering: list[str]
    opened: list[str]


def obstacle(graph: Graph, node: Op) -> str | None:
    """Why shares cannot do an op as it is (a key of :data:`ADVICE`), or None; some can be :func:`unrolled`."""
    op, attrs = node.op, node.attrs
    rank = len(graph.shapes[node.inputs[0]])
    if op in {"relu", "clip", "add", "sub", "neg"} or op in REDUCTIONS or (op in MOVES and op != "pad"):
        return None
    if op == "pad":
        return None if attrs["value"] == 0 else "pad"
    if op == "affine":
        return "affine" if attrs["mul"] == 0 else None
    if op == "leaky_relu":
        return None if 0 <= attrs["alpha"] <= 1 else "leaky_relu"
    if op == "prelu":
        return None if len(set(attrs["slope"])) == 1 and 0 <= attrs["slope"][0] <= 1 else "prelu"
    if op in {"max_pool", "average_pool"}:
        return None if rank in (2, 3) and set(attrs.get("dilation", [1])) == {1} else "pool"
    return op


def split(graph: Graph) -> Regions:
    """The regions of a graph.

    Raises:
        BlockedPlan: ops before a layer that shares cannot do; all of them, each with what to do.
    """
    known = set(graph.inputs)
    head: list[Op] = []
    rest: list[Node] = []
    for node in graph.nodes:
        if isinstance(node, Op) and all(t in known for t in node.inputs):
            known.add(node.output)
            head.append(node)
        else:
            rest.append(node)
    tail = _tail(graph, rest)
    refused = [n for n in rest if n not in tail and isinstance(n, Op) and obstacle(graph, n) and not unrolled(graph, n)]
    if refused:
        raise _refusal(graph, refused)
    shared = [n for n in rest if n not in tail]
    made = {n.output for n in shared}
    opened = list(dict.fromkeys(t for n in tail for t in _reads(n) if t in made))
    opened += [t for t in graph.outputs if t in made and t not in opened]
    entering = list(dict.fromkeys(t for n in shared for t in _reads(n) if t in known))
    return Regions(head, shared, [n for n in rest if isinstance(n, Op) and n in tail], entering, opened)


def clipped_again(graph: Graph, shared: list[Node], tail: list[Op]) -> list[Op]:
    """The tail with a clip for what it divides by, or takes a logarithm or root of, and shares have clipped.

    A lower end that is far below a unit of the shares is zero there: opened values are clipped by the client again,
    which changes no value that the original network may have.
    """
    clips = {n.output: n for n in shared if isinstance(n, Op) and n.op == "clip" and n.attrs.get("min") is not None}
    found: list[Op] = []
    again: dict[str, str] = {}
    for node in tail:
        for tensor in node.inputs:
            if node.op in SINGULAR and tensor in clips and tensor not in again:
                again[tensor] = fresh(graph, f"{tensor}.again", graph.shapes[tensor])
                clip = clips[tensor]
                found.append(Op(f"{clip.name}.again", "clip", [tensor], again[tensor], dict(clip.attrs)))
        found.append(replace(node, inputs=[again.get(t, t) for t in node.inputs]) if node.op in SINGULAR else node)
    return found


def whole_numbers(head: list[Op]) -> frozenset[str]:
    """Tensors of the head that hold zeros and ones: comparisons, and what moves make of them (one-hot vectors)."""
    found: set[str] = set()
    for node in head:
        if node.op in {"equal", "less"} or (node.op in COPIED and found.issuperset(node.inputs)):
            found.add(node.output)
    return frozenset(found)


def _reads(node: Node) -> list[str]:
    return [node.input] if isinstance(node, Linear) else node.inputs


def _tail(graph: Graph, rest: list[Node]) -> list[Node]:
    """Found from the end: an op that shares cannot do makes all that follow it the client's; see the module's text."""
    readers = consumers(graph)
    forced: set[str] = set()
    weighted: set[str] = set()
    for node in reversed(rest):
        after = readers.get(node.output, [])
        if isinstance(node, Linear) or node.op in AT_ENDS or any(n.output in weighted for n in after):
            weighted.add(node.output)
    for node in rest:
        if (
            isinstance(node, Op)
            and node.output not in weighted
            and (obstacle(graph, node) or any(t in forced for t in node.inputs))
        ):
            forced.add(node.output)
    tail = set(forced)
    for node in reversed(rest):
        after = readers.get(node.output, [])
        if (
            isinstance(node, Op)
            and node.op in INVERTIBLE
            and obstacle(graph, node) is None
            and all(n.output in tail for n in after)
        ):
            tail.add(node.output)
    return [n for n in rest if n.output in tail]


def _refusal(graph: Graph, nodes: list[Op]) -> BlockedPlan:
    advice = {n.name: ADVICE.get(obstacle(graph, n) or "", _RELU) for n in nodes}
    other = "use trust='client-aided', where the client computes them in the clear (and can learn the weights)."
    lines = [f"- node {n.name!r} ({n.op}): {advice[n.name]}" for n in nodes]
    return BlockedPlan(
        f"{len(nodes)} operator(s) before the last layer cannot run on secret shares:\n"
        + "\n".join(lines)
        + f"\nOr {other}",
        [
            Blocked(
                n.name,
                n.op,
                f"{n.op} before the last layer cannot run on secret shares",
                f"{advice[n.name][:1].upper()}{advice[n.name][1:]}. Or {other}",
            )
            for n in nodes
        ],
    )

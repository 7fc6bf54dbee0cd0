"""Checks a graph before planning: every node known, every shape what its op gives."""

from __future__ import annotations

import numpy as np

from ..graph import Conv2d, Graph, Linear, Op
from ..plan import PlanError
from ..reference.linear import geometry_shapes
from .ranges import plan_geometry
from .rules import RULES


def check_graph(graph: Graph) -> Graph:
    """Returns the graph when it can be planned.

    Raises:
        PlanError: the first node that cannot, and why.
    """
    defined = set(graph.inputs)
    if not graph.inputs or not graph.outputs:
        raise PlanError("the model has no inputs or no outputs; export it again")
    for tensor, shape in graph.shapes.items():
        if any(not isinstance(n, int) or n < 1 for n in shape):
            raise PlanError(f"tensor {tensor!r} has shape {shape}; all sizes must be known and positive")
    names: set[str] = set()
    for node in graph.nodes:
        sources = [node.input] if isinstance(node, Linear) else node.inputs
        for tensor in sources:
            if tensor not in defined:
                raise PlanError(f"node {node.name!r} reads {tensor!r}, which no earlier node computes")
        if node.output in defined or node.output not in graph.shapes:
            raise PlanError(f"node {node.name!r}: output {node.output!r} is computed twice or has no shape")
        if node.name in names:
            raise PlanError(f"two nodes are called {node.name!r}; give every node a name of its own")
        names.add(node.name)
        if isinstance(node, Linear):
            _check_linear(graph, node)
        else:
            _check_op(graph, node)
        defined.add(node.output)
    missing = [t for t in graph.outputs if t not in defined]
    if missing:
        raise PlanError(f"outputs {missing} are computed by no node")
    return graph


def _check_linear(graph: Graph, node: Linear) -> None:
    given, result, weight = geometry_shapes(plan_geometry(node.geometry))
    shape, out = graph.shapes[node.input], graph.shapes[node.output]
    conv = isinstance(node.geometry, Conv2d)
    count = 1
    for n in shape:
        count *= n
    if (conv and tuple(shape) != given) or (not conv and count != given[0]):
        raise PlanError(f"layer {node.name!r} takes {given}, its input {node.input!r} has shape {shape}")
    if tuple(out) != result:
        raise PlanError(f"layer {node.name!r} gives {result}, its output {node.output!r} has shape {out}")
    if node.weight.shape != weight or node.bias.shape != weight[:1]:
        raise PlanError(
            f"layer {node.name!r}: weights {node.weight.shape} and bias {node.bias.shape}, expected {weight} and "
            f"{weight[:1]}"
        )
    if not (np.isfinite(node.weight).all() and np.isfinite(node.bias).all()):
        raise PlanError(f"layer {node.name!r}: weights or bias hold NaN or infinite values; export the model again")
    if conv:
        problem = conv_problem(plan_geometry(node.geometry))
        if problem:
            raise PlanError(f"layer {node.name!r}: {problem}")


def conv_problem(geometry: dict) -> str | None:
    """What is wrong with a conv2d geometry, or None."""
    (c, *spatial), (o, *out) = geometry["input"], geometry["output"]
    if geometry["groups"] < 1 or c % geometry["groups"] or o % geometry["groups"]:
        return f"{c} and {o} channels do not divide into {geometry['groups']} groups"
    if (
        min(*geometry["kernel"], *geometry["stride"], *geometry["dilation"], *spatial, *out, c, o) < 1
        or min(geometry["pads"]) < 0
    ):
        return "sizes, kernel, stride and dilation must be positive, pads not negative"
    for axis in range(2):
        extent = (geometry["kernel"][axis] - 1) * geometry["dilation"][axis] + 1
        span = spatial[axis] + geometry["pads"][axis] + geometry["pads"][2 + axis] - extent
        if span < 0 or span // geometry["stride"][axis] + 1 != out[axis]:
            return (
                f"{out[axis]} positions on spatial axis {axis}, expected "
                f"{max(span, -1) // geometry['stride'][axis] + 1}"
            )
    return None


def _check_op(graph: Graph, node: Op) -> None:
    rule = RULES.get(node.op)
    if rule is None:
        raise PlanError(f"node {node.name!r}: there is no client op {node.op!r}")
    ins = [tuple(graph.shapes[t]) for t in node.inputs]
    check_op(f"node {node.name!r}", node.op, node.attrs, ins, tuple(graph.shapes[node.output]))


ATTRIBUTES: dict[str, tuple[str, ...]] = {
    "affine": ("mul", "add"),
    "leaky_relu": ("alpha",),
    "prelu": ("slope",),
    "channel_scale": ("factor",),
    "clip": ("min", "max"),
    "hard_sigmoid": ("alpha", "beta"),
    "elu": ("alpha",),
    "softmax": ("axis",),
    "max_pool": ("kernel", "stride", "pads", "dilation"),
    "average_pool": ("kernel", "stride", "pads", "count_include_pad"),
    "reduce_mean": ("axes",),
    "reduce_sum": ("axes",),
    "reduce_max": ("axes",),
    "reduce_prod": ("axes",),
    "interpolate": ("axis", "indices", "weights"),
    "top_k": ("axis", "largest", "what"),
    "gather": ("axis", "indices"),
    "transpose": ("perm",),
    "concat": ("axis",),
    "slice": ("starts", "ends", "steps", "axes"),
    "pad": ("pads", "value"),
}


def check_op(place: str, op: str, attrs: dict, ins: list[tuple[int, ...]], out: tuple[int, ...]) -> None:
    """Checks one op's attributes, operands and output shape.

    Raises:
        PlanError: with ``place`` in front.
    """
    rule = RULES[op]
    if not ins or (rule.inputs and len(ins) != rule.inputs):
        raise PlanError(f"{place}: op {op!r} takes {rule.inputs or 'some'} inputs, {len(ins)} given")
    wanted, given = set(ATTRIBUTES.get(op, ())), set(attrs)
    if given != wanted and not (op == "clip" and given <= wanted):
        raise PlanError(f"{place}: op {op!r} has attributes {sorted(given)}, expected {sorted(wanted)}")
    if op == "softmax" and not 0 <= attrs["axis"] < len(ins[0]):
        raise PlanError(f"{place}: softmax over axis {attrs['axis']} of shape {ins[0]}")
    try:
        expected = rule.shape(attrs, ins, out)
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise PlanError(f"{place}: op {op!r}: {error}") from None
    if tuple(expected) != out:
        raise PlanError(f"{place}: op {op!r} gives shape {tuple(expected)}, its output has {out}")

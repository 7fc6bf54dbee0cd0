"""Gemm and MatMul with a constant on one side."""

from __future__ import annotations

import math

import numpy as np

from ...graph import Conv2d, Dense
from ..builder import Builder, Value
from ..call import Call
from ..errors import Unsupported
from ..registry import operator
from . import pieces
from .arithmetic import pair, scaled, strip_batch


def contract(build: Builder, x: Value, weight: np.ndarray, lead: int, axis: int) -> Value:
    """Contracts ``axis`` of x with weights of shape (G, K, M); the first ``lead`` axes of x are the G groups.

    The result has M in the place of K. All other axes are columns: a 1x1 convolution on (G K, columns, 1), or a dense
    layer.
    """
    groups, inputs, outputs = weight.shape
    x = build.move_axis(x, axis, lead)
    rest = x.shape[lead + 1 :]
    columns = math.prod(rest)
    rows = weight.transpose(0, 2, 1).reshape(groups * outputs, inputs)
    if columns == 1 and groups == 1:
        y = build.linear(Dense(inputs, outputs), x, rows)
    else:
        geometry = Conv2d((groups * inputs, columns, 1), (groups * outputs, columns, 1), (1, 1), groups=groups)
        y = build.linear(geometry, x, rows.reshape(*rows.shape, 1, 1))
    y = build.reshape(y, (*x.shape[:lead], outputs, *rest))
    return build.move_axis(y, lead, axis)


@operator("MatMul", batch_anywhere=True)
def matmul(call: Call, build: Builder) -> Value:
    """NumPy's matmul; axes in front of the matrices become columns, or groups where the constant has them too.

    Of two activations: on the client.
    """
    if not call.is_constant(0) and not call.is_constant(1):
        return two_activations(call, build, call.tensor(0), call.tensor(1))
    left = call.is_constant(0)
    return with_constant(call, build, call.tensor(1 if left else 0), call.constant(0 if left else 1), left=left)


def two_activations(call: Call, build: Builder, a: Value, b: Value) -> Value:
    """The product of every image with its own other operand."""
    if a.batch_axis or b.batch_axis or len(a.shape) != len(b.shape) or len(a.shape) < 2:
        raise Unsupported(
            f"a product of activations with {len(a.shape) + 1} and {len(b.shape) + 1} axes, of which the batch is one",
            "Give both operands matrices behind the batch, and as many axes.",
        )
    return pieces.product(build, a, b)


def with_constant(call: Call, build: Builder, x: Value, weight: np.ndarray, *, left: bool) -> Value:
    """A layer of the server: the constant on the left or on the right of an activation."""
    # the constant as (..., K, M), K the contracted axis
    vector = weight.ndim == 1
    if vector:
        weight = weight.reshape(-1, 1)
    elif left:
        weight = weight.swapaxes(-1, -2)
    rank = len(x.shape) + 1
    contracted = rank - 1 if not left else max(0, rank - 2)
    if x.batch_axis == contracted or rank < 2:
        raise Unsupported(
            "it sums over the batch axis, which would mix images",
            "Put the activation on the left, with the batch in front.",
        )
    extra = weight.ndim - rank
    if weight.ndim > 2 and (extra > 0 or rank == 2):
        raise Unsupported(
            f"constant matrices of shape {weight.shape} put axes in front of the batch",
            "Unsqueeze the activation behind the batch.",
        )
    if x.batch_axis != 0 and rank != 2:
        raise Unsupported(f"the batch is axis {x.batch_axis} of the activation", "Keep the batch axis in front.")
    if weight.shape[-2] != x.shape[contracted - (1 if x.batch_axis < contracted else 0)]:
        raise Unsupported(f"matrices of {weight.shape[-2]} and {x.shape} do not fit", "Export the model again.")
    return _product(call, build, x, weight, left=left, vector=vector)


def _product(call: Call, build: Builder, x: Value, weight: np.ndarray, *, left: bool, vector: bool) -> Value:
    if len(x.shape) == 1:
        y = contract(build, x, weight.reshape(1, *weight.shape[-2:]), 0, 0)
        if vector:
            return build.reshape(y, ())
        return Value(y.name, y.shape, x.batch_axis)
    axis = len(x.shape) - (2 if left else 1)
    stack = weight.shape[:-2]
    if len(stack) == len(x.shape) - 1:
        # the first axis of the constant meets the batch
        if stack[0] not in (1, call.batch) or np.any(weight != weight[:1]):
            raise Unsupported("constant matrices that differ from image to image", "Use one matrix for all images.")
        weight, stack = weight[0], stack[1:]
    if math.prod(stack) == 1:
        y = contract(build, x, weight.reshape(1, *weight.shape[-2:]), 0, axis)
    else:
        lead = np.broadcast_shapes(x.shape[:-2], stack)
        x = build.broadcast(x, (*lead, *x.shape[-2:]))
        full = np.broadcast_to(weight, (*lead, *weight.shape[-2:])).reshape(-1, *weight.shape[-2:])
        axis = len(x.shape) - (2 if left else 1)
        y = contract(build, x, full, len(lead), axis)
    return build.reshape(y, (*y.shape[:axis], *y.shape[axis + 1 :])) if vector else y


@operator("Gemm", batch_anywhere=True)
def gemm(call: Call, build: Builder) -> Value:
    """``alpha A' B' + beta C`` with B constant; C may be constant or an activation."""
    if call.is_constant(0):
        raise Unsupported(
            "the constant matrix is on the left and the batch on the right",
            "Exchange the operands and transpose them, so that the batch is in front.",
        )
    x = call.tensor(0)
    if not call.is_constant(1):
        raise Unsupported(
            "a product of two matrices whose rows are the images of the batch",
            "Put the batch in front of the matrices, with MatMul.",
        )
    if len(x.shape) != 1 or x.batch_axis != (1 if call.attribute("transA", 0) else 0):
        raise Unsupported(
            "it sums over the batch axis, which would mix images", "Drop transA: the batch must be the rows of A."
        )
    weight = call.constant(1)
    rows = weight if call.attribute("transB", 0) else weight.T
    if rows.ndim != 2 or rows.shape[1] != x.shape[0]:
        raise Unsupported(f"a matrix of shape {weight.shape} and {x.shape[0]} features", "Export the model again.")
    alpha, beta = float(call.attribute("alpha", 1.0)), float(call.attribute("beta", 1.0))
    geometry = Dense(rows.shape[1], rows.shape[0])
    bias = np.zeros(rows.shape[0])
    if call.is_constant(2):
        given = strip_batch(call.constant(2), Value("", (rows.shape[0],)), call.batch)
        bias = beta * np.broadcast_to(given, bias.shape)
    y = build.linear(geometry, x, alpha * rows, bias)
    if call.has(2) and not call.is_constant(2):
        y = pair(call, build, "add", y, scaled(build, call.tensor(2), np.full((), beta), np.zeros(())))
    return y

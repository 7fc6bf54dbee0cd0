"""Ops that shares can do as several others.

Selections as slices, broadcasts as copies, interpolations as layers, extrema by ReLU.

Every function writes steps for one op of a graph; the last step has the op's output.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from ...graph import Conv2d, Graph, Linear, Op, Shape
from .curves import factors
from .rows import exponentials, log_sum_exp, row_reciprocal, softmax

if TYPE_CHECKING:
    from .steps import Writer

# slices that a selection may become
MOST_SLICES = 4096
# weights of the layer that an interpolation becomes
LARGEST_WEIGHTS = 1 << 24


def unrolled(graph: Graph, node: Op) -> bool:
    """Whether the op is one of :data:`UNROLLED`, with attributes that its function takes."""
    if node.op == "gather":
        return len(runs(node.attrs["indices"])) <= MOST_SLICES
    if node.op == "interpolate":
        axis = node.attrs["axis"]
        return graph.shapes[node.inputs[0]][axis] * graph.shapes[node.output][axis] <= LARGEST_WEIGHTS
    if node.op == "hard_sigmoid":
        return bool(node.attrs["alpha"] != 0)
    if node.op in {"max_pool", "average_pool"}:
        return len(graph.shapes[node.inputs[0]]) == 4 and set(node.attrs.get("dilation", [1])) == {1}
    return node.op in UNROLLED


def runs(indices: list[int]) -> list[tuple[int, int, int]]:
    """(start, count, step) of maximal evenly spaced runs, in order."""
    found: list[tuple[int, int, int]] = []
    position = 0
    while position < len(indices):
        start = indices[position]
        step = indices[position + 1] - start if position + 1 < len(indices) else 1
        count = 1
        while step != 0 and position + count < len(indices) and indices[position + count] == start + count * step:
            count += 1
        found.append((start, count, step if count > 1 else 1))
        position += count
    return found


def gather(write: Writer, node: Op, shapes: list[Shape], out: Shape) -> None:
    """Slices of evenly spaced elements, joined."""
    axis, (shape,) = node.attrs["axis"], shapes
    parts = []
    for number, (start, count, step) in enumerate(runs(node.attrs["indices"])):
        end = start + (count - 1) * step + (1 if step > 0 else -1)
        part = tuple(count if a == axis else n for a, n in enumerate(shape))
        parts.append(
            write.put(
                "slice",
                f"{node.name}.part{number}",
                node.inputs[0],
                part,
                starts=[start],
                ends=[end],
                steps=[step],
                axes=[axis],
            )
        )
    _joined(write, node.name, parts, out, axis, node.output)


def _joined(write: Writer, name: str, parts: list[str], shape: Shape, axis: int, output: str | None) -> str:
    if len(parts) == 1:
        return write.put("reshape", name, parts[0], shape, output)
    return write.put("concat", name, parts, shape, output, axis=axis)


def broadcast(write: Writer, node: Op, shapes: list[Shape], out: Shape) -> None:
    """Axis by axis as many copies as the result has elements."""
    (shape,) = shapes
    now = (1,) * (len(out) - len(shape)) + shape
    tensor = write.put("reshape", f"{node.name}.axes", node.inputs[0], now)
    for axis, size in enumerate(out):
        if now[axis] != size:
            now = tuple(size if a == axis else n for a, n in enumerate(now))
            tensor = _joined(write, f"{node.name}.axis{axis}", [tensor] * size, now, axis, None)
    write.put("reshape", node.name, tensor, out, node.output)


def interpolate(write: Writer, node: Op, shapes: list[Shape], out: Shape) -> None:
    """A layer whose matrix holds the (public) weights.

    The axis as channels of a 1x1 convolution, everything else as its pixels.
    """
    axis, (shape,) = node.attrs["axis"], shapes
    matrix = np.zeros((out[axis], shape[axis]))
    for taken, weights in zip(node.attrs["indices"], node.attrs["weights"]):
        np.add.at(matrix, (np.arange(out[axis]), np.asarray(taken)), weights)
    order = [axis, *(a for a in range(len(shape)) if a != axis)]
    tensor = (
        write.put("transpose", f"{node.name}.order", node.inputs[0], tuple(shape[a] for a in order), perm=order)
        if axis
        else node.inputs[0]
    )
    columns = math.prod(shape) // shape[axis]
    tensor = write.put("reshape", f"{node.name}.columns", tensor, (shape[axis], columns, 1))
    tensor = _layer(write, node.name, tensor, (shape[axis], columns, 1), matrix, np.zeros(out[axis]), groups=1)
    turned = tuple(out[a] for a in order)
    tensor = write.put("reshape", f"{node.name}.rows", tensor, turned, None if axis else node.output)
    if axis:
        write.put(
            "transpose", f"{node.name}.back", tensor, out, node.output, perm=[order.index(a) for a in range(len(out))]
        )


def _layer(
    write: Writer,
    name: str,
    source: str,
    image: tuple[int, int, int],
    weight: np.ndarray,
    bias: np.ndarray,
    *,
    groups: int,
) -> str:
    """A 1x1 convolution with weights (outputs, inputs a group)."""
    result = (len(weight), *image[1:])
    made = write.fresh(f"{name}.layer")
    layer = Linear(
        name, source, made, Conv2d(image, result, (1, 1), groups=groups), weight.reshape(*weight.shape, 1, 1), bias
    )
    write.layer(layer, result)
    return made


def _scaled(write: Writer, name: str, source: str, shape: Shape, factors: list[float]) -> str:
    """Every channel (the first axis) times its factor."""
    channels = len(factors)
    image = (channels, 1, math.prod(shape) // channels)
    flat = write.put("reshape", f"{name}.flat", source, image)
    made = _layer(write, name, flat, image, np.asarray(factors).reshape(-1, 1), np.zeros(channels), groups=channels)
    return write.put("reshape", f"{name}.shape", made, shape)


def absolute(write: Writer, node: Op, shapes: list[Shape], out: Shape) -> None:
    """``relu(x) + relu(-x)``."""
    parts = [node.inputs[0], write.affine(f"{node.name}.negative", node.inputs[0], out, -1.0, 0.0, None)]
    write.put(
        "add",
        node.name,
        [write.put("relu", f"{node.name}.{w}", t, out) for w, t in zip(("up", "down"), parts)],
        out,
        node.output,
    )


def extremum(write: Writer, node: Op, shapes: list[Shape], out: Shape) -> None:
    """``max(a, b) = b + relu(a - b)``, and ``min(a, b) = a - relu(a - b)``."""
    a, b = node.inputs
    less = write.affine(f"{node.name}.negative", b, out, -1.0, 0.0, None)
    over = write.put("relu", f"{node.name}.over", write.put("add", f"{node.name}.difference", [a, less], out), out)
    if node.op == "maximum":
        write.put("add", node.name, [b, over], out, node.output)
        return
    write.put("add", node.name, [a, write.affine(f"{node.name}.below", over, out, -1.0, 0.0, None)], out, node.output)


def leaky(write: Writer, node: Op, shapes: list[Shape], out: Shape) -> None:
    """``slope x + (1 - slope) relu(x)``, of any slope a channel."""
    slopes = node.attrs["slope"] if node.op == "prelu" else [node.attrs["alpha"]]
    channels = len(slopes)
    shape = out if channels > 1 else (1, *out)
    source = node.inputs[0] if channels > 1 else write.put("reshape", f"{node.name}.one", node.inputs[0], shape)
    positive = write.put("relu", f"{node.name}.relu", source, shape)
    parts = [
        _scaled(write, f"{node.name}.slope", source, shape, list(slopes)),
        _scaled(write, f"{node.name}.rest", positive, shape, [1.0 - s for s in slopes]),
    ]
    total = write.put("add", f"{node.name}.sum", parts, shape)
    write.put("reshape", node.name, total, out, node.output)


def pad(write: Writer, node: Op, shapes: list[Shape], out: Shape) -> None:
    """Padding with another value than zero: shifted, padded, shifted back."""
    value = node.attrs["value"]
    low = write.affine(f"{node.name}.shifted", node.inputs[0], shapes[0], 1.0, -value, None)
    wide = write.put("pad", f"{node.name}.pad", low, out, pads=node.attrs["pads"], value=0.0)
    write.affine(node.name, wide, out, 1.0, value, node.output)


def pool(write: Writer, node: Op, shapes: list[Shape], out: Shape) -> None:
    """A window over three axes: over the planes' pixels, then over the planes."""
    (shape,), a = shapes, node.attrs
    channels, depth = shape[:2]
    attrs = {k: v for k, v in a.items() if k == "count_include_pad"}
    flat = write.put("reshape", f"{node.name}.planes", node.inputs[0], (channels * depth, *shape[2:]))
    image = {k: list(a[k][1:]) for k in ("kernel", "stride", "dilation") if k in a} | {
        "pads": [*a["pads"][1:3], *a["pads"][4:]]
    }
    inner = write.fresh(f"{node.name}.pixels")
    write.pool(
        Op(f"{node.name}.pixels", node.op, [flat], inner, {**attrs, **image}),
        (channels * depth, *shape[2:]),
        (channels * depth, *out[2:]),
    )
    pixels = math.prod(out[2:])
    columns = write.put("reshape", f"{node.name}.columns", inner, (channels, depth, pixels))
    line = {k: [a[k][0], 1] for k in ("kernel", "stride", "dilation") if k in a} | {
        "pads": [a["pads"][0], 0, a["pads"][3], 0]
    }
    made = write.fresh(f"{node.name}.depth")
    write.pool(
        Op(f"{node.name}.depth", node.op, [columns], made, {**attrs, **line}),
        (channels, depth, pixels),
        (channels, out[1], pixels),
    )
    write.put("reshape", node.name, made, out, node.output)


def function(write: Writer, node: Op, shapes: list[Shape], out: Shape) -> None:
    """A function of one variable."""
    write.put("function", node.name, node.inputs, out, node.output, curve=node.attrs["curve"])


def product(write: Writer, node: Op, shapes: list[Shape], out: Shape) -> None:
    """A product, which broadcasts its factors itself; of a tensor with itself, a square."""
    operands = node.inputs * 2 if node.op == "square" else factors(write.graph, node, write.producer)
    attrs = dict(node.attrs)
    most = attrs.pop("most", None)
    made = write.put("product", node.name, operands, out, node.output, **attrs)
    if most is not None:
        write.bounded(made, most=most)


def matrices(write: Writer, node: Op, shapes: list[Shape], out: Shape) -> None:
    """A product of matrices; axes along which one factor is the same for all become rows or columns of the other."""
    (a, b), lead = node.inputs, out[:-2]
    (rows, inner), columns = shapes[0][-2:], shapes[1][-1]
    for factor, tensor in enumerate((a, b)):
        made = write.producer.get(tensor)
        if not (isinstance(made, Op) and made.op == "broadcast"):
            continue
        shape = write.graph.shapes[made.inputs[0]]
        shape = (1,) * (len(out) - len(shape)) + tuple(shape)
        kept = len(lead)
        while kept and shape[kept - 1] == 1:
            kept -= 1
        front, same = lead[:kept], lead[kept:]
        if shape[:kept] != front or shape[-2:] != shapes[factor][-2:] or math.prod(same) == 1:
            continue
        if factor:
            tall = write.put("reshape", f"{node.name}.rows", a, (*front, math.prod(same) * rows, inner))
            flat = write.put("reshape", f"{node.name}.factor", made.inputs[0], (*front, inner, columns))
            whole = (*front, math.prod(same) * rows, columns)
            product = write.put("matrix_product", node.name, [tall, flat], whole, **node.attrs)
            write.put("reshape", f"{node.name}.shape", product, out, node.output)
            return
        _beside(write, node, (made.inputs[0], b), (front, same), (rows, inner, columns))
        return
    write.put("matrix_product", node.name, [a, b], out, node.output, **node.attrs)


def _beside(
    write: Writer, node: Op, factors: tuple[str, str], axes: tuple[Shape, Shape], sizes: tuple[int, int, int]
) -> None:
    """One left factor times many right ones: their columns stand side by side."""
    (front, same), (rows, inner, columns) = axes, sizes
    first, last = len(front), len(front) + len(same)
    order = [*range(first), last, *range(first, last), last + 1]
    turned = write.put("transpose", f"{node.name}.order", factors[1], (*front, inner, *same, columns), perm=order)
    wide = math.prod(same) * columns
    right = write.put("reshape", f"{node.name}.columns", turned, (*front, inner, wide))
    left = write.put("reshape", f"{node.name}.factor", factors[0], (*front, rows, inner))
    product = write.put("matrix_product", node.name, [left, right], (*front, rows, wide), **node.attrs)
    parts = write.put("reshape", f"{node.name}.parts", product, (*front, rows, *same, columns))
    back = [*range(first), *range(first + 1, last + 1), first, last + 1]
    write.put("transpose", f"{node.name}.back", parts, (*front, *same, rows, columns), node.output, perm=back)


def hard_sigmoid(write: Writer, node: Op, shapes: list[Shape], out: Shape) -> None:
    """``min(max(alpha x + beta, 0), 1)``: for positive alpha ``alpha min(max(x + beta / alpha, 0), 1 / alpha)``."""
    alpha, beta = node.attrs["alpha"], node.attrs["beta"]
    rough = write.put("coarse", f"{node.name}.rough", node.inputs[0], out)
    moved = write.affine(f"{node.name}.moved", rough, out, math.copysign(1.0, alpha), beta / abs(alpha), None)
    cut = write.put("clip", f"{node.name}.clip", moved, out, low=0.0, high=1.0 / abs(alpha))
    write.put("gain", node.name, cut, out, node.output, factor=abs(alpha))


def hard_swish(write: Writer, node: Op, shapes: list[Shape], out: Shape) -> None:
    """``x min(max(x + 3, 0), 6) / 6``, a stage of its own."""
    write.put("hard_swish", node.name, node.inputs, out, node.output)


def settle(write: Writer, node: Op, shapes: list[Shape], out: Shape) -> None:
    """A tensor that several steps read with the same bits (:mod:`.rows`)."""
    write.put(node.op, node.name, node.inputs, out, node.output, **node.attrs)


UNROLLED = {
    "abs": absolute,
    "average_pool": pool,
    "broadcast": broadcast,
    "exponentials": exponentials,
    "function": function,
    "gather": gather,
    "hard_sigmoid": hard_sigmoid,
    "hard_swish": hard_swish,
    "interpolate": interpolate,
    "leaky_relu": leaky,
    "log_sum_exp": log_sum_exp,
    "matmul": matrices,
    "max_pool": pool,
    "match": settle,
    "maximum": extremum,
    "minimum": extremum,
    "mul": product,
    "pad": pad,
    "prelu": leaky,
    "row_reciprocal": row_reciprocal,
    "settle": settle,
    "softmax": softmax,
    "square": product,
}

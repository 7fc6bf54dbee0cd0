"""What orders, selects, repeats, joins and resizes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .draft import Draft


def pad(d: Draft, x: str) -> str | None:
    """Of every mode, with cuts where the mode has them."""
    shape = d.shapes[x]
    mode = d.pick(["constant", "constant", "reflect", "edge", "wrap"])
    low = -1 if mode == "constant" and d.chance(0.3) else 0
    begin, end = ([d.draw(low if n > 2 else 0, min(2, n - 1) if n > 1 else 0) for n in shape] for _ in range(2))
    inputs = [x, d.ints([0, *begin, 0, *end])]
    if mode == "constant" and d.chance(0.4):
        inputs.append(d.constant(round(d.rng.uniform(-1, 1), 2)))
    return d.one("Pad", *inputs, mode=mode)


def slice_(d: Draft, x: str) -> str | None:
    """Forwards and backwards, with steps."""
    shape = d.shapes[x]
    axes = sorted(d.rng.choice(len(shape), size=d.draw(1, min(2, len(shape))), replace=False).tolist())
    starts, ends, steps = [], [], []
    for axis in axes:
        n, step = shape[axis], d.draw(1, 2)
        first = d.draw(0, n - 1)
        last = d.draw(first, n - 1)
        if d.chance(0.4):
            starts.append(last - n if d.chance(0.5) else last)
            ends.append(first - 1 if first else np.iinfo(np.int64).min + 1)
            steps.append(-step)
        else:
            starts.append(first)
            ends.append(last + 1 if d.chance(0.5) else np.iinfo(np.int64).max)
            steps.append(step)
    return d.one("Slice", x, d.ints(starts), d.ints(ends), d.ints([a + 1 for a in axes]), d.ints(steps))


def transpose(d: Draft, x: str) -> str | None:
    """Any order of the axes of an image."""
    order = d.rng.permutation(len(d.shapes[x]))
    return d.one("Transpose", x, perm=[0, *(int(a) + 1 for a in order)])


def reshape(d: Draft, x: str) -> str | None:
    """Into one to four axes."""
    left, shape = math.prod(d.shapes[x]), []
    for _ in range(d.draw(0, 3)):
        factor = d.pick([f for f in range(1, left + 1) if left % f == 0])
        shape.append(factor)
        left //= factor
    shape.append(left)
    d.rng.shuffle(shape)
    if d.chance(0.5):
        shape[d.draw(0, len(shape) - 1)] = -1
    return d.one("Reshape", x, d.ints([0, *shape]))


def unsqueeze(d: Draft, x: str) -> str | None:
    """An axis of one element."""
    return d.one("Unsqueeze", x, d.ints([d.draw(1, len(d.shapes[x]) + 1)])) if len(d.shapes[x]) < 4 else None


def split(d: Draft, x: str) -> str | None:
    """Uneven pieces, joined in another order or added up."""
    shape = d.shapes[x]
    axis = d.draw(0, len(shape) - 1)
    n = shape[axis]
    if n < 2:
        return None
    cut = n // 2 if n % 2 == 0 and d.chance(0.5) else d.draw(1, n - 1)
    made = d.add("Split", [x, d.ints([cut, n - cut])], outputs=2, axis=axis + 1)
    if made is None:
        return None
    if 2 * cut == n and d.chance(0.5):
        return d.one(d.pick(["Add", "Sub"]), *made)
    return d.one("Concat", *made[::-1], axis=axis + 1)


def gather(d: Draft, x: str) -> str | None:
    """Known positions, some twice."""
    shape = d.shapes[x]
    axis = d.draw(0, len(shape) - 1)
    taken = [d.draw(-shape[axis], shape[axis] - 1) for _ in range(d.draw(1, 5))]
    return d.one("Gather", x, d.ints(taken), axis=axis + 1)


def tile(d: Draft, x: str) -> str | None:
    """Copies beside each other."""
    return d.one("Tile", x, d.ints([1, *(d.draw(1, 2) for _ in d.shapes[x])]))


def expand(d: Draft, x: str) -> str | None:
    """Copies along axes of one element."""
    shape = d.shapes[x]
    if 1 not in shape:
        return None
    return d.one("Expand", x, d.ints([1, *(d.draw(1, 4) if n == 1 else n for n in shape)]))


def blocks(d: Draft, x: str) -> str | None:
    """Between channels and space."""
    if len(d.shapes[x]) != 3:
        return None
    c, h, w = d.shapes[x]
    if h % 2 == 0 and w % 2 == 0 and d.chance(0.5):
        return d.one("SpaceToDepth", x, blocksize=2)
    if c % 4 == 0:
        return d.one("DepthToSpace", x, blocksize=2, mode=d.pick(["DCR", "CRD"]))
    return None


def resize(d: Draft, x: str) -> str | None:
    """Nearest, linear and cubic, by scales or sizes, of the coordinate modes."""
    _channels, *space = d.shapes[x]
    if not 1 <= len(space) <= 2:
        return None
    mode = d.pick(["nearest", "linear", "cubic"] if len(space) == 2 else ["nearest", "linear"])
    attributes: dict[str, Any] = {
        "mode": mode,
        "coordinate_transformation_mode": d.pick(["half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"]),
    }
    if mode == "nearest":
        attributes["nearest_mode"] = d.pick(["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"])
    if d.chance(0.5):
        scales = [d.pick([0.5, 1, 1.5, 2]) for _ in space]
        # ONNX's reference takes a fraction of an element as part of the length, ONNX Runtime does not
        if all(n * s == int(n * s) for n, s in zip(space, scales)):
            return d.one("Resize", x, "", d.constant([1, 1, *scales]), **attributes)
    sizes = d.ints([d.draw(1, 2 * n) for n in space])
    return d.one("Resize", x, "", "", sizes, axes=[a + 2 for a in range(len(space))], **attributes)


def reduce_(kinds: tuple[str, ...]) -> Any:
    """Over one or two axes, kept or not."""

    def made(d: Draft, x: str) -> str | None:
        shape = d.shapes[x]
        axes = sorted(d.rng.choice(len(shape), size=d.draw(1, min(2, len(shape))), replace=False).tolist())
        keep = 1 if len(axes) == len(shape) else d.draw(0, 1)
        return d.one(d.pick(kinds), x, d.ints([a + 1 for a in axes]), keepdims=keep)

    return made


def cumsum(d: Draft, x: str) -> str | None:
    """Of both directions."""
    axis = d.constant(d.draw(1, len(d.shapes[x])), np.int64)
    return d.one("CumSum", x, axis, exclusive=d.draw(0, 1), reverse=d.draw(0, 1))


def where(d: Draft, x: str) -> str | None:
    """Elements that a known mask replaces."""
    mask = d.constant(d.rng.random((1, *d.shapes[x])) < 0.7, np.bool_)
    return d.one("Where", mask, x, d.constant(0.25))

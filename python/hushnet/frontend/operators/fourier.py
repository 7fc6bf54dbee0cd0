"""Discrete Fourier transforms, and columns put back into an image: along an axis of the tensor a public matrix.

A complex number is two real ones along the last axis, as in ONNX. So a transform of n numbers is a real matrix of
2 n rows; of real numbers it has the columns of the real parts alone.
"""

from __future__ import annotations

import math

import numpy as np

from ..builder import Builder, Value
from ..call import Call
from ..errors import Unsupported
from ..registry import operator
from . import pieces

_PARTS = 2
# a matrix above this is too large for a plan
_MOST_WEIGHTS = 1 << 22


def transform(size: int, length: int, outputs: int, parts: int, *, inverse: bool) -> np.ndarray:
    """The real matrix of a transform: rows (frequency, part), columns (sample, part).

    Samples beyond ``length`` are left out, missing ones are zeros.

    Args:
        size: samples that there are.
        length: samples of the transform.
        outputs: frequencies that are wanted, from 0 on.
        parts: 1 for real samples, 2 for complex ones.
    """
    # whole turns are dropped before the angle is made, so that large products keep their precision
    turns = np.outer(np.arange(outputs), np.arange(length)) % length
    angle = (2.0 if inverse else -2.0) * math.pi * turns / length
    cosine, sine = np.cos(angle), np.sin(angle)
    blocks = np.stack([np.stack([cosine, -sine], axis=-1), np.stack([sine, cosine], axis=-1)], axis=1)
    found = np.zeros((outputs, _PARTS, size, parts))
    kept = min(size, length)
    found[:, :, :kept] = blocks[:, :, :kept, :parts] / (length if inverse else 1)
    return found.reshape(outputs * _PARTS, size * parts)


def real_inverse(size: int, length: int) -> np.ndarray:
    """The real matrix that gives ``length`` real samples from the first ``size`` frequencies of their transform.

    The frequencies beyond length / 2 are the conjugates of those below it.
    """
    kept = length // 2 + 1
    turns = np.outer(np.arange(length), np.arange(kept)) % length
    angle = 2.0 * math.pi * turns / length
    # a frequency that is its own conjugate counts once
    times = np.where(2 * np.arange(kept) % length == 0, 1.0, 2.0) / length
    found = np.zeros((length, size, _PARTS))
    both = np.stack([np.cos(angle), -np.sin(angle)], axis=-1) * times[:, None]
    found[:, : min(size, kept)] = both[:, : min(size, kept)]
    return found.reshape(length, size * _PARTS)


def _limited(outputs: int, inputs: int) -> None:
    if outputs * inputs > _MOST_WEIGHTS:
        raise Unsupported(
            f"its matrix has {outputs} x {inputs} weights, more than {_MOST_WEIGHTS}", "Use a shorter signal."
        )


def _parts(x: Value) -> int:
    parts = x.shape[-1] if len(x.shape) > 1 else 0
    if parts not in (1, _PARTS):
        raise Unsupported(
            f"its last axis has {parts} elements", "Give it one, for real numbers, or two, for complex ones."
        )
    return parts


def _along(build: Builder, x: Value, axis: int, matrix: np.ndarray, outputs: int = _PARTS) -> Value:
    """The matrix applied to an axis and the parts of the last axis together; results have ``outputs`` parts."""
    rank = len(x.shape)
    order = [*(a for a in range(rank - 1) if a != axis), axis, rank - 1]
    turned = build.transpose(x, order)
    lead = turned.shape[:-2]
    flat = build.reshape(turned, (*lead, turned.shape[-2] * turned.shape[-1]))
    made = pieces.mapped(build, flat, len(lead), matrix)
    back = build.reshape(made, (*lead, matrix.shape[0] // outputs, outputs))
    return build.transpose(back, [order.index(a) for a in range(rank)])


@operator("DFT")
def dft(call: Call, build: Builder) -> Value:
    """Along one axis; shorter signals get zeros, longer ones are cut."""
    x = call.tensor(0)
    parts = _parts(x)
    given = call.integers(2)
    full = given[0] if given else int(call.attribute("axis", 1 if call.opset < 20 else -2))
    axis = call.axis(full, len(x.shape))
    if axis == len(x.shape) - 1:
        raise Unsupported("it works along the axis of real and imaginary parts", "Name another axis.")
    inverse, onesided = bool(call.attribute("inverse", 0)), bool(call.attribute("onesided", 0))
    lengths = call.integers(1)
    size = x.shape[axis]
    back = onesided and inverse
    if onesided and parts != (_PARTS if inverse else 1):
        raise Unsupported(
            f"a one-sided {'inverse ' * inverse}transform of numbers of {parts} part(s)",
            "Leave onesided out and slice the result.",
        )
    length = lengths[0] if lengths else 2 * (size - 1) if back else size
    if length < 1:
        raise Unsupported(f"a transform of {length} samples", "Export the model again.")
    if back:
        _limited(length, size * parts)
        return _along(build, x, axis, real_inverse(size, length), 1)
    outputs = length // 2 + 1 if onesided else length
    _limited(outputs * _PARTS, size * parts)
    return _along(build, x, axis, transform(size, length, outputs, parts, inverse=inverse))


@operator("STFT")
def stft(call: Call, build: Builder) -> Value:
    """Frames of the signal, each times the window, each transformed: one matrix on all frames."""
    x = call.tensor(0)
    if len(x.shape) == 1:
        x = build.reshape(x, (*x.shape, 1))
    parts = _parts(x)
    step, lengths = call.integers(1), call.integers(3)
    window = call.constant(2).reshape(-1) if call.has(2) else None
    if not step or step[0] < 1:
        raise Unsupported("its frames have no step", "Export the model again.")
    length = lengths[0] if lengths else len(window) if window is not None else 0
    if not 1 <= length <= x.shape[0] or (window is not None and len(window) != length):
        raise Unsupported(f"frames of {length} of {x.shape[0]} samples", "Export the model again.")
    onesided = bool(call.attribute("onesided", 1))
    if onesided and parts != 1:
        raise Unsupported("a one-sided transform of complex numbers", "Leave onesided out and slice the result.")
    frames, outputs = (x.shape[0] - length) // step[0] + 1, length // 2 + 1 if onesided else length
    _limited(outputs * _PARTS, length * parts)
    matrix = transform(length, length, outputs, parts, inverse=False)
    if window is not None:
        matrix = matrix * np.repeat(window, parts)[None]
    taken = (np.arange(frames)[:, None] * step[0] + np.arange(length)).reshape(-1).tolist()
    rows = build.reshape(pieces.gather(build, x, 0, taken), (frames, length * parts))
    return build.reshape(pieces.mapped(build, rows, 1, matrix), (frames, outputs, _PARTS))


@operator("Col2Im")
def columns_to_image(call: Call, build: Builder) -> Value:
    """Sums the elements of all blocks that lie on the same place of the image."""
    x = call.tensor(0)
    image, block = call.integers(1) or [], call.integers(2) or []
    axes = len(image)
    strides, dilations = (call.attribute(name) or [1] * axes for name in ("strides", "dilations"))
    pads = call.attribute("pads") or [0] * (2 * axes)
    starts = [
        (n + pads[a] + pads[axes + a] - dilations[a] * (block[a] - 1) - 1) // strides[a] + 1
        for a, n in enumerate(image)
        if len(block) == axes
    ]
    size, count = math.prod(block), math.prod(starts)
    if not starts or min(starts) < 1 or len(x.shape) != 2 or x.shape[0] % size or x.shape[1] != count:
        raise Unsupported(
            f"blocks of shape {tuple(block)} of an image of shape {tuple(image)} from a tensor of shape {x.shape}",
            "Export the model again.",
        )
    _limited(math.prod(image), size * count)
    offsets, firsts = np.indices(block).reshape(axes, size, 1), np.indices(starts).reshape(axes, 1, count)
    turn = (axes, 1, 1)
    places = offsets * np.reshape(dilations, turn) + firsts * np.reshape(strides, turn) - np.reshape(pads[:axes], turn)
    inside = np.all((places >= 0) & (places < np.reshape(image, turn)), axis=0)
    matrix = np.zeros((math.prod(image), size * count))
    column = np.arange(size * count).reshape(size, count)[inside]
    matrix[np.ravel_multi_index(tuple(p[inside] for p in places), tuple(image)), column] = 1.0
    channels = x.shape[0] // size
    flat = build.reshape(x, (channels, size * count))
    return build.reshape(pieces.mapped(build, flat, 1, matrix), (channels, *image))

"""Tensors whose batch is not the first axis, as recurrent networks leave them: moves keep every image by itself."""

from __future__ import annotations

import numpy as np
import pytest
from hushnet.frontend import check

from .harness import Net, agree


def turned(net: Net) -> str:
    """[3, 4, batch, 5] of an input [batch, 3, 4, 5]."""
    return net.op("Transpose", "x0", perm=[1, 2, 0, 3])


def _squeeze(net: Net) -> str:
    one = net.op("Slice", turned(net), net.ints(1), net.ints(2), net.ints(1))
    return net.op("Transpose", net.op("Squeeze", one, net.ints(1)), perm=[1, 0, 2])


def _squeeze_behind(net: Net) -> str:
    one = net.op("Slice", turned(net), net.ints(0), net.ints(-1), net.ints(-1), net.ints(7))
    return net.op("Transpose", net.op("Squeeze", one, net.ints(-1)), perm=[2, 0, 1])


def _unsqueeze(net: Net) -> str:
    wide = net.op("Unsqueeze", turned(net), net.ints(0, 3, -1))
    return net.op("Transpose", wide, perm=[4, 0, 1, 2, 3, 5, 6])


def _reshape(net: Net) -> str:
    return net.op("Transpose", net.op("Reshape", turned(net), net.ints(2, 6, -1, 5)), perm=[2, 1, 0, 3])


def _reshape_in_front(net: Net) -> str:
    joined = net.op("Reshape", turned(net), net.ints(12, -1, 5))
    return net.op("Transpose", joined, perm=[1, 0, 2])


def _reshape_copied(net: Net) -> str:
    y = net.op("Transpose", "x0", perm=[1, 0, 2, 3])
    return net.op("Transpose", net.op("Reshape", y, net.ints(0, 0, -1)), perm=[1, 2, 0])


def _gather_one(net: Net) -> str:
    return net.op("Transpose", net.op("Gather", turned(net), net.constant(-1, np.int64), axis=0), perm=[1, 0, 2])


def _gather_several(net: Net) -> str:
    some = net.op("Gather", turned(net), net.constant([[2, 0], [1, 1]], np.int64), axis=1)
    return net.op("Transpose", some, perm=[3, 0, 1, 2, 4])


def _gather_behind(net: Net) -> str:
    return net.op("Transpose", net.op("Gather", turned(net), net.ints(4, 0), axis=3), perm=[2, 0, 1, 3])


def _slice_all_images(net: Net) -> str:
    some = net.op("Slice", turned(net), net.ints(0, 1), net.ints(2**62, 3), net.ints(2, 3))
    return net.op("Transpose", some, perm=[2, 0, 1, 3])


def _split(net: Net) -> str:
    left = net.op("Split", turned(net), net.ints(1, 2), axis=0, outputs=2)
    right = net.nodes[-1].output[1]
    return net.op("Transpose", net.op("Concat", right, left, right, axis=-4), perm=[2, 0, 1, 3])


def _stack_in_front(net: Net) -> str:
    """What TensorFlow makes of TimeDistributed: steps stacked in front of the batch."""
    steps = [net.op("Gather", "x0", net.constant(i, np.int64), axis=1) for i in range(3)]
    return net.op(
        "Transpose", net.op("Concat", *(net.op("Unsqueeze", s, net.ints(0)) for s in steps), axis=0), perm=[1, 0, 2, 3]
    )


def _pad(net: Net) -> str:
    wide = net.op("Pad", turned(net), net.ints(1, -1, 0, 2, 0, 1, 0, -1), net.constant(0.5))
    return net.op("Transpose", wide, perm=[2, 0, 1, 3])


def _pad_reflected(net: Net) -> str:
    wide = net.op("Pad", turned(net), net.ints(0, 2, 0, 0, 0, 1, 0, 3), mode="reflect")
    return net.op("Transpose", wide, perm=[2, 0, 1, 3])


def _arithmetic(net: Net) -> str:
    """Constants in front of the batch, behind it, and along an axis on both sides."""
    y = net.op("Mul", net.op("Add", turned(net), net.weight(5)), net.weight(3, 4, 1, 5))
    y = net.op("Sub", net.weight(4, 1, 1), net.op("Mul", y, turned(net)))
    return net.op("Transpose", net.op("Div", y, net.constant(2.0)), perm=[2, 0, 1, 3])


def _extremes(net: Net) -> str:
    x = turned(net)
    y = net.op("Max", net.op("Neg", x), x, net.weight(3, 1, 1, 5))
    return net.op("Transpose", net.op("Sum", net.op("Min", y, net.constant(0.7)), x, net.weight(5)), perm=[2, 0, 1, 3])


MOVES = {f.__name__.strip("_"): f for f in (
    _squeeze, _squeeze_behind, _unsqueeze, _reshape, _reshape_in_front, _reshape_copied, _gather_one, _gather_several,
    _gather_behind, _slice_all_images, _split, _stack_in_front, _pad, _pad_reflected, _arithmetic, _extremes,
)}  # fmt: skip


@pytest.mark.parametrize("batch", ["batch", 1, 3])
@pytest.mark.parametrize("move", sorted(MOVES))
def test_moves_equal_onnx_runtime(move, batch):
    net = Net((3, 4, 5), batch=batch)
    MOVES[move](net)
    agree(net.model())


MIXED = {
    "moves values across the batch, which is axis 2": lambda n, x: n.op("Reshape", x, n.ints(3, 2, -1, 2, 5)),
    "it works along the batch axis": lambda n, x: n.op("Gather", x, n.ints(0), axis=2),
    "some images of the batch": lambda n, x: n.op("Slice", x, n.ints(1), n.ints(3), n.ints(2)),
    "it pads the batch axis": lambda n, x: n.op("Pad", x, n.ints(0, 0, 1, 0, 0, 0, 0, 0)),
    "the batch is a different axis in the two operands": lambda n, x: n.op("Add", x, "x0"),
    "the batch is axis 2, 0 of its inputs": lambda n, x: n.op("Concat", x, "x0", axis=3),
}


@pytest.mark.parametrize("problem", sorted(MIXED))
def test_what_mixes_images_is_refused(problem):
    net = Net((3, 4, 5))
    MIXED[problem](net, turned(net))
    assert any(problem in issue.problem for issue in check(net.model())), check(net.model())

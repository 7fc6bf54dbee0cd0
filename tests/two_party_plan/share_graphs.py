"""Random networks of what secret shares can do, on the builder of the batch planner's tests."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from tests.planner.planner_graphs import Builder

ACTIVATIONS = [
    ("relu", {}),
    ("relu", {}),
    ("leaky_relu", {"alpha": 0.1}),
    ("clip", {"min": 0.0, "max": 0.6}),
    ("clip", {"min": -0.4, "max": None}),
    ("prelu", {"slope": [0.25]}),
]


@st.composite
def graphs(draw):
    """A few layers with activations, pools of all kinds, residuals, joins, cuts and moves between.

    Perhaps a softmax at the end.
    """
    c, h, w = draw(st.integers(1, 3)), draw(st.integers(4, 8)), draw(st.integers(4, 8))
    b = Builder((c, h, w), seed=draw(st.integers(0, 2**16)))
    b.conv(draw(st.integers(1, 4)), gain=draw(st.sampled_from([0.02, 1.0, 300.0])))
    for _ in range(draw(st.integers(1, 6))):
        step(draw, b)
    if draw(st.booleans()):
        b.dense(draw(st.integers(2, 5)))
        if draw(st.booleans()):
            b.op("softmax", axis=0)
    return b.done()


def step(draw, b):
    kinds = [
        "conv",
        "conv",
        "act",
        "act",
        "act",
        "max",
        "average",
        "mean",
        "add",
        "sub",
        "concat",
        "slice",
        "pad",
        "move",
        "affine",
    ]
    kind = draw(st.sampled_from(kinds))
    c, h, w = b.shape
    if kind == "conv":
        groups = draw(st.sampled_from([g for g in (1, 2, c) if c % g == 0]))
        k = (draw(st.integers(1, min(3, h))), draw(st.integers(1, min(3, w))))
        pads = tuple(draw(st.integers(0, 1)) for _ in range(4))
        stride = (draw(st.integers(1, 2)), draw(st.integers(1, 2)))
        b.conv(groups * draw(st.integers(1, 2)), k, stride, pads, groups=groups)
    elif kind == "act":
        name, attrs = draw(st.sampled_from(ACTIVATIONS))
        b.op(name, **attrs)
    elif kind in ("max", "average") and h >= 3 and w >= 3:
        pads = draw(st.sampled_from([(0, 0, 0, 0), (1, 0, 0, 1), (1, 1, 1, 1)]))
        size = draw(st.sampled_from([(2, 2), (3, 3), (3, 2)]))
        b.pool(
            "max_pool" if kind == "max" else "average_pool",
            size,
            (draw(st.integers(1, 2)), 2),
            pads,
            draw(st.booleans()),
        )
    elif kind == "mean":
        op = draw(st.sampled_from(["reduce_mean", "reduce_max", "reduce_sum"]))
        b.op(op, (c, 1, w), axes=[1])
    elif kind in ("add", "sub"):
        source = b.at
        b.conv(c, (1, 1), pads=(0, 0, 0, 0))
        b.op(kind, others=(source,))
    elif kind == "concat":
        source = b.at
        b.conv(draw(st.integers(1, 3))).op("relu")
        b.op("concat", (b.shape[0] + c, h, w), others=(source,), axis=0)
    elif kind == "slice" and h >= 2:
        b.op("slice", (c, -(-h // 2), w), starts=[0], ends=[h], steps=[2], axes=[1])
    elif kind == "pad":
        b.op("pad", (c, h + 1, w + 1), pads=[0, 1, 0, 0, 0, 1], value=0.0)
    elif kind == "affine":
        b.op("affine", mul=draw(st.sampled_from([0.3, 4.0, -1.5])), add=draw(st.sampled_from([0.0, 0.25])))
    elif kind == "move":
        b.op("transpose", (c, w, h), perm=[0, 2, 1])


def images(graph, count, seed=0):
    return np.random.default_rng(seed).uniform(0, 1, (count, *graph.shapes[graph.inputs[0]]))

"""Graphs for the planner's tests: a builder, random networks, and a naive float execution to compare with."""

from __future__ import annotations

import math

import numpy as np
from hushnet.graph import Conv2d, Dense, Graph, Linear, Op
from hypothesis import strategies as st


class Builder:
    """Builds a graph node by node; ``at`` is the tensor that the next node reads."""

    def __init__(self, shape, seed=0, name="net"):
        self.rng = np.random.default_rng(seed)
        self.graph = Graph(name, ["x"], [], {"x": tuple(shape)}, [])
        self.at = "x"
        self.count = 0

    @property
    def shape(self):
        return self.graph.shapes[self.at]

    def _next(self, kind, shape):
        self.count += 1
        name = f"{kind}{self.count}"
        self.graph.shapes[f"{name}_out"] = tuple(int(n) for n in shape)
        return name, f"{name}_out"

    def _weights(self, shape, gain):
        w = self.rng.normal(size=shape)
        return gain * w / np.abs(w).reshape(shape[0], -1).sum(axis=1).max()

    def dense(self, outputs, gain=1.5):
        name, out = self._next("dense", (outputs,))
        inputs = math.prod(self.shape)
        w, b = self._weights((outputs, inputs), gain), self.rng.normal(size=outputs) * 0.2
        self.graph.nodes.append(Linear(name, self.at, out, Dense(inputs, outputs), w, b))
        self.at = out
        return self

    def conv(self, outputs, kernel=(3, 3), stride=(1, 1), pads=(1, 1, 1, 1), dilation=(1, 1), groups=1, gain=1.5):
        c, *spatial = self.shape
        size = [
            (spatial[a] + pads[a] + pads[2 + a] - (kernel[a] - 1) * dilation[a] - 1) // stride[a] + 1 for a in range(2)
        ]
        name, out = self._next("conv", (outputs, *size))
        geometry = Conv2d((c, *spatial), (outputs, *size), kernel, stride, pads, dilation, groups)
        w = self._weights((outputs, c // groups, *kernel), gain)
        self.graph.nodes.append(Linear(name, self.at, out, geometry, w, self.rng.normal(size=outputs) * 0.2))
        self.at = out
        return self

    def op(self, op, shape=None, others=(), **attrs):
        name, out = self._next(op, self.shape if shape is None else shape)
        self.graph.nodes.append(Op(name, op, [self.at, *others], out, attrs))
        self.at = out
        return self

    def pool(self, op, kernel, stride, pads=(0, 0, 0, 0), ceil=False):
        c, *spatial = self.shape
        size = []
        for a in range(2):
            span = spatial[a] + pads[a] + pads[2 + a] - kernel[a]
            n = (-(-span // stride[a]) if ceil else span // stride[a]) + 1
            if (n - 1) * stride[a] - pads[a] >= spatial[a]:
                n -= 1
            size.append(n)
        extra = {"dilation": [1, 1]} if op == "max_pool" else {"count_include_pad": bool(ceil)}
        return self.op(op, (c, *size), kernel=list(kernel), stride=list(stride), pads=list(pads), **extra)

    def done(self, *outputs):
        self.graph.outputs = list(outputs) or [self.at]
        return self.graph


def convolve(x, node):
    """Convolution by its definition, over every output position."""
    g = node.geometry
    top, left, _, _ = g.pads
    out = np.zeros((x.shape[0], *g.output))
    per_in, per_out = g.input[0] // g.groups, g.output[0] // g.groups
    for o in range(g.output[0]):
        channels = x[:, o // per_out * per_in : (o // per_out + 1) * per_in]
        for i in range(g.output[1]):
            for j in range(g.output[2]):
                for u in range(g.kernel[0]):
                    for v in range(g.kernel[1]):
                        r, c = i * g.stride[0] + u * g.dilation[0] - top, j * g.stride[1] + v * g.dilation[1] - left
                        if 0 <= r < g.input[1] and 0 <= c < g.input[2]:
                            out[:, o, i, j] += channels[:, :, r, c] @ node.weight[o, :, u, v]
    return out + node.bias.reshape(-1, 1, 1)


def _pool(x, attrs, shape, largest):
    out = np.zeros((x.shape[0], *shape))
    (kh, kw), (sh, sw), pads = attrs["kernel"], attrs["stride"], attrs["pads"]
    for i in range(shape[1]):
        for j in range(shape[2]):
            r, c = i * sh - pads[0], j * sw - pads[1]
            window = x[:, :, max(r, 0) : r + kh, max(c, 0) : c + kw]
            count = window.shape[2] * window.shape[3]
            if attrs.get("count_include_pad"):
                count = (min(r + kh, x.shape[2] + pads[2]) - r) * (min(c + kw, x.shape[3] + pads[3]) - c)
            out[:, :, i, j] = window.max(axis=(2, 3)) if largest else window.sum(axis=(2, 3)) / count
    return out


def _softmax(x, axis):
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


_ERF = np.vectorize(math.erf)


def _mixed(x, a):
    """By the matrix that the taps are."""
    matrix = np.zeros((len(a["indices"][0]), x.shape[a["axis"] + 1]))
    for taken, weights in zip(a["indices"], a["weights"]):
        for row, (column, weight) in enumerate(zip(taken, weights)):
            matrix[row, column] += weight
    return np.moveaxis(np.tensordot(matrix, x, axes=(1, a["axis"] + 1)), 0, a["axis"] + 1)


FLOAT = {
    "relu": lambda x, a: np.maximum(x, 0),
    "leaky_relu": lambda x, a: np.where(x < 0, a["alpha"] * x, x),
    "channel_scale": lambda x, a: x * np.reshape(a["factor"], (-1,) + (1,) * (x.ndim - 2)),
    "prelu": lambda x, a: np.where(x < 0, x * np.reshape(a["slope"], (-1,) + (1,) * (x.ndim - 2)), x),
    "clip": lambda x, a: np.clip(x, a["min"], a["max"]),
    "sigmoid": lambda x, a: 1 / (1 + np.exp(-x)),
    "tanh": lambda x, a: np.tanh(x),
    "exp": lambda x, a: np.exp(x),
    "erf": lambda x, a: _ERF(x),
    "log": lambda x, a: np.log(x),
    "sin": lambda x, a: np.sin(x),
    "cos": lambda x, a: np.cos(x),
    "atan": lambda x, a: np.arctan(x),
    "floor": lambda x, a: np.floor(x),
    "round": lambda x, a: np.round(x),
    "gather": lambda x, a: np.take(x, a["indices"], axis=a["axis"] + 1),
    "interpolate": lambda x, a: _mixed(x, a),
    "top_k": lambda x, a: np.take(np.sort(x, axis=a["axis"] + 1), [0, 1], axis=a["axis"] + 1),
    "abs": lambda x, a: np.abs(x),
    "neg": lambda x, a: -x,
    "square": lambda x, a: x**2,
    "sqrt": lambda x, a: np.sqrt(x),
    "silu": lambda x, a: x / (1 + np.exp(-x)),
    "gelu": lambda x, a: 0.5 * x * (1 + _ERF(x / math.sqrt(2))),
    "gelu_tanh": lambda x, a: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "elu": lambda x, a: np.where(x < 0, a["alpha"] * np.expm1(x), x),
    "hard_sigmoid": lambda x, a: np.clip(a["alpha"] * x + a["beta"], 0, 1),
    "hard_swish": lambda x, a: x * np.clip(x / 6 + 0.5, 0, 1),
    "affine": lambda x, a: x * a["mul"] + a["add"],
    "softmax": lambda x, a: _softmax(x, a["axis"] + 1),
    "transpose": lambda x, a: x.transpose([0] + [p + 1 for p in a["perm"]]),
}


def float_run(graph, x, keep_all=False):
    """The float network, each op by its textbook definition."""
    values = {"x": np.asarray(x, dtype=np.float64)}
    for node in graph.nodes:
        if isinstance(node, Linear):
            v = values[node.input]
            if isinstance(node.geometry, Dense):
                values[node.output] = v.reshape(len(v), -1) @ node.weight.T + node.bias
            else:
                values[node.output] = convolve(v, node)
            continue
        ins, a, shape = [values[t] for t in node.inputs], node.attrs, graph.shapes[node.output]
        if node.op in FLOAT:
            y = FLOAT[node.op](ins[0], a)
        elif node.op in ("add", "sub", "mul"):
            y = {"add": np.add, "sub": np.subtract, "mul": np.multiply}[node.op](*ins)
        elif node.op in ("minimum", "maximum", "div"):
            y = {"minimum": np.minimum, "maximum": np.maximum, "div": np.divide}[node.op](*ins)
        elif node.op in ("max_pool", "average_pool"):
            y = _pool(ins[0], a, shape, node.op == "max_pool")
        elif node.op in ("less", "equal", "matmul"):
            y = {"less": np.less, "equal": np.equal, "matmul": np.matmul}[node.op](*ins) * 1.0
        elif node.op in ("reduce_mean", "reduce_sum", "reduce_max", "reduce_prod"):
            f = {"reduce_mean": np.mean, "reduce_sum": np.sum, "reduce_max": np.max, "reduce_prod": np.prod}[node.op]
            y = f(ins[0], axis=tuple(i + 1 for i in a["axes"])).reshape((-1, *shape))
        elif node.op == "reshape":
            y = ins[0].reshape((-1, *shape))
        elif node.op == "concat":
            y = np.concatenate(ins, axis=a["axis"] + 1)
        elif node.op == "slice":
            index = [slice(None)] * ins[0].ndim
            for axis, start, end, step in zip(a["axes"], a["starts"], a["ends"], a["steps"]):
                index[axis + 1] = slice(start, end if end >= 0 else None, step)
            y = ins[0][tuple(index)]
        elif node.op == "pad":
            rank = len(a["pads"]) // 2
            y = np.pad(
                ins[0],
                [(0, 0)] + [(a["pads"][i], a["pads"][rank + i]) for i in range(rank)],
                constant_values=a["value"],
            )
        elif node.op == "broadcast":
            y = np.stack([np.broadcast_to(image, shape) for image in ins[0]])
        else:
            raise AssertionError(node.op)
        values[node.output] = y
    return values if keep_all else {name: values[name] for name in graph.outputs}


ACTIVATIONS = [
    ("relu", {}),
    ("leaky_relu", {"alpha": 0.1}),
    ("leaky_relu", {"alpha": -0.2}),
    ("clip", {"min": 0.0, "max": 0.6}),
    ("sigmoid", {}),
    ("tanh", {}),
    ("exp", {}),
    ("erf", {}),
    ("abs", {}),
    ("neg", {}),
    ("square", {}),
    ("silu", {}),
    ("gelu", {}),
    ("gelu_tanh", {}),
    ("elu", {"alpha": 1.3}),
    ("hard_sigmoid", {"alpha": 0.2, "beta": 0.5}),
    ("hard_swish", {}),
    ("affine", {"mul": -1.5, "add": 0.25}),
]


@st.composite
def graphs(draw):
    """Networks of a few linear layers with activations, pooling, residuals, joins, slices, pads and moves between."""
    c, h, w = draw(st.integers(1, 4)), draw(st.integers(3, 8)), draw(st.integers(3, 8))
    b = Builder((c, h, w), seed=draw(st.integers(0, 2**16)))
    for _ in range(draw(st.integers(1, 6))):
        _step(draw, b)
    if draw(st.booleans()):
        b.dense(draw(st.integers(1, 5)))
        if draw(st.booleans()):
            b.op("softmax", axis=0)
    return b.done()


def _step(draw, b):
    kind = draw(
        st.sampled_from(
            ["conv", "conv", "strided", "act", "act", "max", "average", "add", "concat", "slice", "pad", "move", "mul"]
        )
    )
    c, h, w = b.shape
    if kind == "conv":
        groups = draw(st.sampled_from([g for g in (1, 2, c) if c % g == 0]))
        k = (draw(st.integers(1, min(3, h))), draw(st.integers(1, min(3, w))))
        pads = tuple(draw(st.integers(0, 1)) for _ in range(4))
        b.conv(
            groups * draw(st.integers(1, 3)), k, tuple(draw(st.integers(1, 2)) for _ in range(2)), pads, groups=groups
        )
    elif kind == "strided":
        b.conv(draw(st.integers(1, 4)), (1, 1), (2, draw(st.integers(1, 3))), (0, 0, 0, 0))
    elif kind == "act":
        name, attrs = draw(st.sampled_from(ACTIVATIONS))
        b.op(name, **attrs)
        if name in ("exp", "square"):
            b.op("clip", min=-2.0, max=2.0)
    elif kind in ("max", "average") and h >= 2 and w >= 2:
        pads = draw(st.sampled_from([(0, 0, 0, 0), (1, 0, 0, 1)]))
        b.pool(
            "max_pool" if kind == "max" else "average_pool",
            (2, 2),
            (draw(st.integers(1, 2)), 2),
            pads,
            draw(st.booleans()),
        )
    elif kind == "add":
        source = b.at
        b.conv(c, (1, 1), pads=(0, 0, 0, 0))
        b.op("add", others=(source,))
    elif kind == "mul":
        source = b.at
        b.conv(c, (3, 1), pads=(1, 0, 1, 0)).op("sigmoid").op("mul", others=(source,))
    elif kind == "concat":
        source = b.at
        b.conv(draw(st.integers(1, 3))).op("relu")
        b.op("concat", (b.shape[0] + c, h, w), others=(source,), axis=0)
    elif kind == "slice" and h >= 2:
        b.op("slice", (c, -(-h // 2), w), starts=[0], ends=[h], steps=[2], axes=[1])
    elif kind == "pad":
        value = draw(st.sampled_from([0.0, 0.5]))
        b.op("pad", (c, h + 1, w + 1), pads=[0, 1, 0, 0, 0, 1], value=value)
    else:
        b.op("transpose", (c, w, h), perm=[0, 2, 1])

"""Transformers as exporters write them, with seeded weights: encoders of BERT's shape, decoders of GPT-2's.

Weights have deviation 1 / sqrt(fan-in), so that scores of attention have the size of trained ones (deviation 1) and
softmax is no mere mean. Gains are near 1, shifts near 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET, IR_VERSION = 17, 8
EPSILON = 1e-12
MASKED = -10000.0


@dataclass(frozen=True)
class Shape:
    """The size of a transformer; ``causal``: a decoder, which has the logits of the next token as its output."""

    layers: int
    width: int
    heads: int
    inner: int
    tokens: int
    words: int
    causal: bool = False


@dataclass
class _Net:
    rng: np.random.Generator
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: list[onnx.TensorProto] = field(default_factory=list)

    def constant(self, name: str, value: np.ndarray | np.generic) -> str:
        """An initialiser."""
        self.constants.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def normal(self, name: str, *shape: int, deviation: float, mean: float = 0.0) -> str:
        """Weights."""
        value = self.rng.standard_normal(shape, dtype=np.float32) * np.float32(deviation) + np.float32(mean)
        return self.constant(name, value)

    def op(self, kind: str, name: str, *inputs: str, **attributes: Any) -> str:
        """A node with one output of its own name."""
        self.nodes.append(helper.make_node(kind, list(inputs), [name], name, **attributes))
        return name

    def dense(self, name: str, x: str, inputs: int, outputs: int) -> str:
        """Tokens times weights, and a bias."""
        weight = self.normal(f"{name}.weight", inputs, outputs, deviation=1 / math.sqrt(inputs))
        bias = self.normal(f"{name}.bias", outputs, deviation=0.02)
        return self.op("Add", name, self.op("MatMul", f"{name}.product", x, weight), bias)

    def norm(self, name: str, x: str, width: int) -> str:
        """Layer normalisation."""
        gain = self.normal(f"{name}.gain", width, deviation=0.1, mean=1.0)
        shift = self.normal(f"{name}.shift", width, deviation=0.05)
        return self.op("LayerNormalization", name, x, gain, shift, axis=-1, epsilon=EPSILON)

    def gelu(self, name: str, x: str) -> str:
        """``x (1 + erf(x / sqrt 2)) / 2``, written out."""
        root = self.constant(f"{name}.root", np.float32(math.sqrt(2.0)))
        one, half = (self.constant(f"{name}.{k}", np.float32(v)) for k, v in (("one", 1.0), ("half", 0.5)))
        erf = self.op("Erf", f"{name}.erf", self.op("Div", f"{name}.scaled", x, root))
        return self.op("Mul", name, self.op("Mul", f"{name}.of", x, self.op("Add", f"{name}.sum", erf, one)), half)

    def attention(self, name: str, x: str, size: Shape, mask: str) -> str:
        """Heads beside each other, with a mask that is added to the scores."""
        each = size.width // size.heads
        split = self.constant(f"{name}.split", np.array([0, 0, size.heads, each], np.int64))
        whole = self.constant(f"{name}.whole", np.array([0, 0, size.width], np.int64))
        heads = {}
        for part, perm in (("query", [0, 2, 1, 3]), ("key", [0, 2, 3, 1]), ("value", [0, 2, 1, 3])):
            y = self.dense(f"{name}.{part}", x, size.width, size.width)
            y = self.op("Reshape", f"{name}.{part}.heads", y, split)
            heads[part] = self.op("Transpose", f"{name}.{part}.order", y, perm=perm)
        scores = self.op("MatMul", f"{name}.scores", heads["query"], heads["key"])
        root = self.constant(f"{name}.root", np.float32(math.sqrt(each)))
        scores = self.op("Div", f"{name}.scaled", scores, root)
        shares = self.op("Softmax", f"{name}.softmax", self.op("Add", f"{name}.masked", scores, mask), axis=-1)
        y = self.op("MatMul", f"{name}.mixed", shares, heads["value"])
        y = self.op("Reshape", f"{name}.joined", self.op("Transpose", f"{name}.back", y, perm=[0, 2, 1, 3]), whole)
        return self.dense(f"{name}.output", y, size.width, size.width)

    def forward(self, name: str, x: str, size: Shape) -> str:
        """Two layers with GELU between."""
        y = self.gelu(f"{name}.gelu", self.dense(f"{name}.first", x, size.width, size.inner))
        return self.dense(f"{name}.second", y, size.inner, size.width)


def write(size: Shape, seed: int = 0) -> onnx.ModelProto:
    """The network: for BERT's shape ids, mask and types to the last hidden state, for GPT-2's ids to logits."""
    net = _Net(np.random.default_rng(seed))
    table = net.normal("word.table", size.words, size.width, deviation=1.0)
    positions = net.normal("positions", size.tokens, size.width, deviation=0.3)
    x = net.op("Gather", "words", table, "input_ids", axis=0)
    names = ["input_ids"]
    if not size.causal:
        names += ["attention_mask", "token_type_ids"]
        types = net.normal("type.table", 2, size.width, deviation=0.3)
        x = net.op("Add", "typed", x, net.op("Gather", "types", types, "token_type_ids", axis=0))
    x = net.op("Add", "placed", x, positions)
    return _model(net, size, names, (_decoder if size.causal else _encoder)(net, x, size))


def _encoder(net: _Net, x: str, size: Shape) -> tuple[str, list[int]]:
    axes = net.constant("mask.axes", np.array([1, 2], np.int64))
    mask = net.op("Unsqueeze", "mask.image", "attention_mask", axes)
    away = net.op("Sub", "mask.away", net.constant("one", np.float32(1)), net.op("Cast", "mask.float", mask, to=1))
    mask = net.op("Mul", "mask", away, net.constant("masked", np.float32(MASKED)))
    x = net.norm("norm", x, size.width)
    for i in range(size.layers):
        x = net.norm(
            f"{i}.norm1", net.op("Add", f"{i}.add1", net.attention(f"{i}.attention", x, size, mask), x), size.width
        )
        x = net.norm(f"{i}.norm2", net.op("Add", f"{i}.add2", net.forward(f"{i}.mlp", x, size), x), size.width)
    return x, [1, size.tokens, size.width]


def _decoder(net: _Net, x: str, size: Shape) -> tuple[str, list[int]]:
    later = np.triu(np.full((size.tokens, size.tokens), MASKED, np.float32), 1)
    mask = net.constant("mask", later.reshape(1, 1, size.tokens, size.tokens))
    for i in range(size.layers):
        y = net.attention(f"{i}.attention", net.norm(f"{i}.norm1", x, size.width), size, mask)
        x = net.op("Add", f"{i}.add1", y, x)
        y = net.forward(f"{i}.mlp", net.norm(f"{i}.norm2", x, size.width), size)
        x = net.op("Add", f"{i}.add2", y, x)
    last = net.op("Gather", "last", x, net.constant("place", np.int64(size.tokens - 1)), axis=1)
    y = net.norm("norm", last, size.width)
    head = net.normal("head", size.width, size.words, deviation=1 / math.sqrt(size.width))
    return net.op("MatMul", "logits", y, head), [1, size.words]


def _model(net: _Net, size: Shape, names: list[str], output: tuple[str, list[int]]) -> onnx.ModelProto:
    ports = [helper.make_tensor_value_info(n, TensorProto.INT64, [1, size.tokens]) for n in names]
    result = helper.make_tensor_value_info(output[0], TensorProto.FLOAT, output[1])
    graph = helper.make_graph(net.nodes, "transformer", ports, [result], net.constants)
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION, producer_name="hushnet-bench"
    )


def inputs(size: Shape, count: int, seed: int) -> dict[str, np.ndarray]:
    """Random ids by name; of an encoder the last fifth of every other row is cut off by the mask."""
    rng = np.random.default_rng(seed)
    ids = rng.integers(0, size.words, (count, size.tokens))
    if size.causal:
        return {"input_ids": ids}
    mask = np.ones_like(ids)
    mask[1::2, size.tokens - size.tokens // 5 :] = 0
    return {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}

"""Attention, written out as exporters write it; patches, windows, masks and positions."""

from __future__ import annotations

import math

import numpy as np
import onnx
from onnx import TensorProto

from .convolutional import _width
from .export import Export, T


def _heads(net: Export, x: T, heads: int) -> T:
    """[batch, tokens, width] to [batch, heads, tokens, width / heads]; batch and tokens come from Shape."""
    return net.transpose(net.view(x, None, None, heads, x.shape[2] // heads), 0, 2, 1, 3)


def _attention(net: Export, x: T, heads: int, mask: T | None = None, joint: bool = False) -> T:
    """Self-attention; ``joint``: one layer makes queries, keys and values."""
    width = x.shape[2]
    if joint:
        q, k, v = net.split(net.linear("qkv", x, 3 * width, gain=0.7), [width] * 3, 2)
    else:
        q, k, v = (net.linear(name, x, width, gain=0.7) for name in ("query", "key", "value"))
    q, v = _heads(net, q, heads), _heads(net, v, heads)
    k = net.transpose(net.view(k, None, None, heads, width // heads), 0, 2, 3, 1)
    scores = net.matmul(q, k)
    scores = net.op("Div", [scores, net.constant(math.sqrt(width // heads), np.float32)], scores.shape)
    if mask is not None:
        scores = net.add(scores, mask)
    y = net.transpose(net.matmul(net.act("softmax", scores), v), 0, 2, 1, 3)
    return net.linear("output.dense", net.view(y, None, None, width), width, gain=0.5)


def _feed_forward(net: Export, x: T, act: str, ratio: int = 4) -> T:
    return net.linear("fc2", net.act(act, net.linear("fc1", x, ratio * x.shape[2])), x.shape[2], gain=0.5)


def _encoder(net: Export, name: str, x: T, heads: int, act: str = "gelu") -> T:
    """A layer with the normalisation in front."""
    with net.scope(name):
        x = net.add(x, _attention(net, net.layer_norm("norm1", x), heads, joint=True))
        return net.add(x, _feed_forward(net, net.layer_norm("norm2", x), act))


def vit(
    opset: int = 17,
    side: int = 224,
    patch: int = 16,
    width: int = 384,
    layers: int = 12,
    heads: int = 6,
    classes: int = 1000,
) -> onnx.ModelProto:
    """ViT small: patches by a convolution, a class token expanded to the batch, 22 million parameters."""
    net = Export(60, opset)
    x = net.conv("conv_proj", net.input("input", 3, side, side), width, patch, patch, 0)
    x = net.transpose(net.view(x, None, width, -1), 0, 2, 1)
    token = net.weight("class_token", net.normal((1, 1, width), 0.5))
    whole = net.op("Shape", [x], (3,))
    one = net.unsqueeze(net.op("Gather", [whole, net.constant(0)], (), axis=0), 0)
    sizes = net.op("Concat", [one, net.constant([-1]), net.constant([-1])], (3,), axis=0)
    # torch's expand writes -1 for sizes that stay, and Where with Equal takes ones there
    ones = net.op(
        "ConstantOfShape", [net.constant([3])], (3,), value=onnx.numpy_helper.from_array(np.ones(1, np.int64))
    )
    minus = net.op("Mul", [ones, net.constant(-1)], (3,))
    sizes = net.op("Where", [net.op("Equal", [sizes, minus], (3,)), ones, sizes], (3,))
    token_t = net.op("Expand", [token, sizes], (1, 1, width))
    x = net.concat([token_t, x], 1)
    x = net.add(x, T(net.weight("pos_embedding", net.normal((1, x.shape[1], width), 0.1)), x.shape))
    for layer in range(layers):
        x = _encoder(net, f"encoder.layers.{layer}", x, heads)
    x = net.select(net.layer_norm("encoder.ln", x), 1, 0)
    return net.model("vit", output=net.linear("heads.head", x, classes))


def swin(
    opset: int = 17,
    side: int = 224,
    window: int = 7,
    width: int = 96,
    layers: tuple[int, ...] = (2, 2, 6, 2),
    classes: int = 1000,
) -> onnx.ModelProto:
    """Swin tiny: windows by Reshape and Transpose, shifts by Slice and Concat, masks, patch merging."""
    net = Export(61, opset)

    def rolled(x: T, shift: int) -> T:
        for axis in (1, 2):
            size = x.shape[axis]
            x = net.concat([net.slice(x, axis, shift % size, size), net.slice(x, axis, 0, shift % size)], axis)
        return x

    def block(name: str, x: T, heads: int, shift: int) -> T:
        with net.scope(name):
            _, rows, columns, channels = x.shape
            y = net.layer_norm("norm1", x)
            y = rolled(y, shift) if shift else y
            y = net.view(y, None, rows // window, window, columns // window, window, channels)
            # windows become images of the batch: [windows, tokens, channels]
            count = rows * columns // window**2
            y = net.transpose(y, 0, 1, 3, 2, 4, 5)
            y = net.op("Reshape", [y, net.constant([count, window**2, channels])], (count, window**2, channels))
            y = _windows(net, y, heads, _mask(rows, columns, window, shift) if shift else None)
            sizes = (1, rows // window, columns // window, window, window, channels)
            y = net.transpose(net.op("Reshape", [y, net.constant(sizes)], sizes), 0, 1, 3, 2, 4, 5)
            y = net.op("Reshape", [y, net.constant([1, rows, columns, channels])], x.shape)
            x = net.add(x, rolled(y, -shift) if shift else y)
            return net.add(x, _feed(net, net.layer_norm("norm2", x)))

    # windows are stacked along the first axis, so that one image is run at a time
    net.batch = 1
    x = net.conv("features.0.0", net.input("input", 3, side, side), width, 4, 4, 0)
    x = net.layer_norm("features.0.2", net.transpose(x, 0, 2, 3, 1))
    for stage, count in enumerate(layers):
        if stage:
            parts = [net.slice(net.slice(x, 1, r, 10**6, 2), 2, c, 10**6, 2) for c in (0, 1) for r in (0, 1)]
            x = net.layer_norm(f"features.{2 * stage}.norm", net.concat(parts, 3))
            x = net.linear(f"features.{2 * stage}.reduction", x, 2 * width * 2 ** (stage - 1), bias=False)
        for number in range(count):
            shift = window // 2 if number % 2 and x.shape[1] > window else 0
            x = block(f"features.{2 * stage + 1}.{number}", x, max(1, x.shape[3] // 32), shift)
    x = net.mean(net.layer_norm("norm", x), [1, 2], keep=False)
    return net.model("swin", output=net.linear("head", x, classes))


def _feed(net: Export, x: T) -> T:
    return net.linear("mlp.3", net.act("gelu", net.linear("mlp.0", x, 4 * x.shape[-1])), x.shape[-1], gain=0.5)


def _mask(rows: int, columns: int, window: int, shift: int) -> np.ndarray:
    """-100 between tokens of a window that the shift has brought together."""
    parts = np.zeros((rows, columns))
    for number, (r, c) in enumerate((r, c) for r in range(3) for c in range(3)):
        cut = [slice(0, -window), slice(-window, -shift), slice(-shift, None)]
        parts[cut[r], cut[c]] = number
    flat = parts.reshape(rows // window, window, columns // window, window).transpose(0, 2, 1, 3).reshape(-1, window**2)
    return np.where(flat[:, None, :] != flat[:, :, None], -100.0, 0.0)


def _windows(net: Export, x: T, heads: int, mask: np.ndarray | None) -> T:
    """Attention inside of every window, with a bias of relative positions and a mask."""
    count, tokens, width = x.shape
    y = net.linear("attn.qkv", x, 3 * width, gain=0.7)
    sizes = (count, tokens, 3, heads, width // heads)
    y = net.transpose(net.op("Reshape", [y, net.constant(sizes)], sizes), 2, 0, 3, 1, 4)
    q, k, v = (net.op("Gather", [y, net.constant(i)], y.shape[1:], axis=0) for i in range(3))
    scores = net.matmul(net.scaled(q, (width // heads) ** -0.5), net.transpose(k, 0, 1, 3, 2))
    bias = net.weight("attn.relative_position_bias", net.normal((1, heads, tokens, tokens), 0.2))
    scores = net.add(scores, T(bias, (1, heads, tokens, tokens)))
    if mask is not None:
        scores = net.add(scores, net.constant(mask[:, None], np.float32))
    y = net.transpose(net.matmul(net.act("softmax", scores), v), 0, 2, 1, 3)
    y = net.op("Reshape", [y, net.constant([count, tokens, width])], x.shape)
    return net.linear("attn.proj", y, width, gain=0.5)


def bert(
    opset: int = 14,
    tokens: int = 128,
    words: int = 30522,
    width: int = 768,
    layers: int = 12,
    heads: int = 12,
    classes: int = 2,
) -> onnx.ModelProto:
    """BERT base: ids, segments and a mask; normalisation behind every sum; a pooler and a classifier."""
    net = Export(62, opset)
    ids, mask, segments = (
        net.input(name, tokens, kind=TensorProto.INT64) for name in ("input_ids", "attention_mask", "token_type_ids")
    )
    with net.scope("bert.embeddings"):
        x = net.embedding("word_embeddings", ids, words, width)
        x = net.add(x, net.embedding("token_type_embeddings", segments, 2, width))
        positions = net.weight("position_embeddings", net.normal((1, tokens, width), 0.3))
        x = net.layer_norm("LayerNorm", net.add(x, T(positions, (1, tokens, width))))
    away = net.op("Cast", [net.unsqueeze(net.unsqueeze(mask, 1), 2)], (1, 1, 1, tokens), to=TensorProto.FLOAT)
    away = net.op("Sub", [net.constant(1.0, np.float32), away], away.shape)
    away = net.scaled(away, -10000.0)
    for layer in range(layers):
        with net.scope(f"bert.encoder.layer.{layer}"):
            x = net.layer_norm("attention.output.LayerNorm", net.add(_attention(net, x, heads, away), x))
            x = net.layer_norm("output.LayerNorm", net.add(_feed_forward(net, x, "gelu"), x))
    x = net.act("tanh", net.linear("bert.pooler.dense", net.select(x, 1, 0), width))
    return net.model("bert", logits=net.linear("classifier", x, classes))


def gpt(
    opset: int = 13, tokens: int = 64, words: int = 50257, width: int = 768, layers: int = 1, heads: int = 12
) -> onnx.ModelProto:
    """GPT-2's decoder: a causal mask cut out of a buffer and Where, the tanh form of GELU, logits of every token."""
    net = Export(63, opset)
    x = net.embedding("transformer.wte", net.input("input_ids", tokens, kind=TensorProto.INT64), words, width)
    positions = net.weight("transformer.wpe", net.normal((1, tokens, width), 0.3))
    x = net.add(x, T(positions, (1, tokens, width)))
    buffer = np.tril(np.ones((1, 1, 2 * tokens, 2 * tokens), dtype=bool))
    for layer in range(layers):
        with net.scope(f"transformer.h.{layer}"):
            y = net.layer_norm("ln_1", x)
            q, k, v = net.split(net.linear("attn.c_attn", y, 3 * width, gain=0.7), [width] * 3, 2)
            q, k, v = (_heads(net, t, heads) for t in (q, k, v))
            scores = net.matmul(q, net.transpose(k, 0, 1, 3, 2))
            scores = net.op("Div", [scores, net.constant(math.sqrt(width // heads), np.float32)], scores.shape)
            causal = net.constant(buffer, np.bool_)
            for axis in (2, 3):
                causal = net.slice(causal, axis, 0, tokens)
            scores = net.op("Where", [causal, scores, net.constant(-1e4, np.float32)], scores.shape)
            y = net.transpose(net.matmul(net.act("softmax", scores), v), 0, 2, 1, 3)
            x = net.add(net.linear("attn.c_proj", net.view(y, None, None, width), width, gain=0.5), x)
            x = net.add(x, _feed_forward(net, net.layer_norm("ln_2", x), "gelu_tanh"))
    x = net.layer_norm("transformer.ln_f", x)
    return net.model("gpt", logits=net.linear("lm_head", x, words, bias=False))


def mlp_mixer(
    opset: int = 20, side: int = 224, patch: int = 16, width: int = 512, layers: int = 8, classes: int = 1000
) -> onnx.ModelProto:
    """Mixer S/16: layers over tokens between transposes, layers over channels, Gelu as one operator."""
    net = Export(64, opset)
    x = net.conv("stem.proj", net.input("input", 3, side, side), width, patch, patch, 0)
    x = net.transpose(net.view(x, None, width, -1), 0, 2, 1)
    for layer in range(layers):
        with net.scope(f"blocks.{layer}"):
            y = net.transpose(net.layer_norm("norm1", x), 0, 2, 1)
            with net.scope("mlp_tokens"):
                y = net.act("gelu", net.linear("fc1", y, _width(width / 2, 1.0)))
                y = net.linear("fc2", y, x.shape[1], gain=0.5)
            x = net.add(x, net.transpose(y, 0, 2, 1))
            with net.scope("mlp_channels"):
                x = net.add(x, _feed_forward(net, net.layer_norm("norm2", x), "gelu"))
    x = net.mean(net.layer_norm("norm", x), [1], keep=False)
    return net.model("mlp_mixer", output=net.linear("head", x, classes))

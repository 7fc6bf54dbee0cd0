"""Operators of ONNX Runtime's own domain: their graph in binary64 beside ONNX Runtime's result."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from hushnet import passes
from hushnet.frontend import UnsupportedModel, load
from hushnet.frontend.contrib import RULES
from hushnet.reference.float import evaluate
from onnx import TensorProto, helper, numpy_helper

from .harness import Net, expected, images

RNG = np.random.default_rng(7)


@pytest.fixture(autouse=True)
def _same_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test draws the same numbers, whichever tests ran in its process before."""
    monkeypatch.setitem(globals(), "RNG", np.random.default_rng(7))


class Contributed(Net):
    """Networks with nodes of that domain; inputs have a batch of 2."""

    def own(self, kind: str, *inputs: str, outputs: int = 1, **attributes: Any) -> str:
        return self.op(kind, *inputs, outputs=outputs, domain="com.microsoft", **attributes)

    def model(self, *outputs: str, kinds: dict[str, int] | None = None) -> onnx.ModelProto:
        made = super().model(*outputs)
        made.opset_import.append(helper.make_opsetid("com.microsoft", 1))
        for name, kind in (kinds or {}).items():
            next(p for p in made.graph.input if p.name == name).type.tensor_type.elem_type = kind
        return made

    def numbers(self, *shape: int) -> str:
        return self.constant(self.rng.standard_normal(shape) / 2)

    def bytes_(self, *shape: int, kind: Any = np.uint8) -> str:
        low = -100 if kind == np.int8 else 20
        return self.constant(self.rng.integers(low, low + 200, shape), kind)

    def quantised(self, name: str, step: float = 0.05, zero: int = 120, kind: Any = np.uint8) -> tuple[str, str, str]:
        given = (self.constant(step), self.constant(zero, kind))
        return (self.op("QuantizeLinear", name, *given), *given)

    def real(self, name: str, step: str, zero: str) -> str:
        return self.op("DequantizeLinear", name, step, zero)


def agrees(model: onnx.ModelProto, tolerance: float = 1e-4, ids: dict[str, int] | None = None) -> None:
    """Whether the graph gives what ONNX Runtime gives; quantised results may be a few steps aside."""
    given = images(model, count=2)
    for name, top in (ids or {}).items():
        kind = next(p for p in model.graph.input if p.name == name).type.tensor_type.elem_type
        drawn = np.abs(given[name] * 7).astype(np.int64) % top
        given[name] = drawn.astype(helper.tensor_dtype_to_np_dtype(kind))
    want = expected(model, given)
    for graph in (load(model), passes.default(load(model))):
        # where the graph is of whole tensors, one image is what the model takes at once
        one = all(graph.shapes[name] == value.shape for name, value in given.items())
        got = evaluate(
            graph, {n: v.astype(np.float64)[None] if one else v.astype(np.float64) for n, v in given.items()}
        )
        for name, found in zip(graph.outputs, want):
            reference = found[None] if one else found
            assert got[name].shape == reference.shape
            scale = max(1.0, float(np.abs(reference).max()))
            assert np.abs(got[name] - reference).max() <= tolerance * scale, name


def fused(kind: str) -> onnx.ModelProto:
    net = Contributed((4, 6), (4, 6), batch=2)
    if kind in ("Gelu", "QuickGelu"):
        net.own(kind, "x0", **({"alpha": 1.3} if kind == "QuickGelu" else {}))
    elif kind in ("BiasGelu", "FastGelu"):
        net.own(kind, "x0", net.numbers(6))
    elif kind in ("FusedMatMul", "TransposeMatMul"):
        net.own(kind, "x0", "x1", transB=1, alpha=0.5)
    elif kind == "FusedMatMul-constant":
        net.own("FusedMatMul", "x0", net.numbers(5, 6), transB=1)
    elif kind == "Trilu":
        net.own(kind, "x0", net.constant(1, np.int64), upper=0)
    elif kind == "Pad":
        net.own(kind, "x0", net.ints(0, 1, 0, 0, 2, 1), net.constant(0.5), mode="constant")
    elif kind == "Inverse":
        net.op("MatMul", "x0", net.own(kind, net.constant(np.eye(6) + 0.1)))
    elif kind == "SkipLayerNormalization":
        y = net.own(kind, "x0", "x1", net.numbers(6), net.numbers(6), net.numbers(6), outputs=4, epsilon=1e-5)
        return net.model(y, f"{y}_3")
    elif kind == "SkipSimplifiedLayerNormalization":
        net.own(kind, "x0", "x1", net.numbers(6), epsilon=1e-5)
    elif kind == "MatMulNBits":
        packed, scales = net.bytes_(5, 1, 8), net.numbers(5)
        x = net.op("Concat", "x0", "x1", axis=-1)
        net.own(kind, net.op("Slice", x, net.ints(0), net.ints(12), net.ints(2)), packed, scales, K=12, N=5, bits=4,
                block_size=16)  # fmt: skip
    elif kind == "DynamicQuantizeMatMul":
        net.own(kind, "x0", net.bytes_(6, 5), net.constant(RNG.random(5) / 50), net.bytes_(5), net.numbers(5))
    return net.model()


FUSED = [
    "Gelu",
    "QuickGelu",
    "BiasGelu",
    "FastGelu",
    "FusedMatMul",
    "TransposeMatMul",
    "FusedMatMul-constant",
    "Trilu",
    "Pad",
    "Inverse",
    "SkipLayerNormalization",
    "SkipSimplifiedLayerNormalization",
    "MatMulNBits",
    "DynamicQuantizeMatMul",
]


@pytest.mark.parametrize("kind", FUSED)
def test_fused(kind: str) -> None:
    """One operator for several."""
    agrees(fused(kind), 0.03 if kind.startswith("Dynamic") else 1e-4)


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("Relu", []),
        ("Tanh", []),
        ("Sigmoid", []),
        ("LeakyRelu", [0.2]),
        ("HardSigmoid", [0.3, 0.4]),
        ("Clip", [-0.5, 1]),
    ],
)
def test_fused_convolution(name: str, parameters: list[float]) -> None:
    """A convolution, a sum and an activation."""
    net = Contributed((3, 6, 6), (4, 6, 6), batch=2)
    given = {"activation_params": parameters} if parameters else {}
    bias = net.numbers(4)
    more = ["x1"] if name == "Relu" else []
    net.own("FusedConv", "x0", net.weight(4, 3, 3, 3), bias, *more, pads=[1, 1, 1, 1], activation=name, **given)
    agrees(net.model())


def test_fused_gemm() -> None:
    """A layer and its activation."""
    net = Contributed((6,), batch=2)
    net.own(
        "FusedGemm", "x0", net.numbers(5, 6), net.numbers(5), transB=1, activation="LeakyRelu", activation_alpha=0.3
    )
    agrees(net.model())


@pytest.mark.parametrize("mask", ["none", "raw", "lengths", "causal", "past the batch"])
def test_attention(mask: str) -> None:
    """Heads of one tensor with their layer."""
    whole = mask == "past the batch"
    net = Contributed((5, 8), (5,) if mask == "raw" else (), batch=2)
    if mask not in ("raw", "lengths"):
        net.shapes = net.shapes[:1]
    extra = ["x1"] if mask in ("raw", "lengths") else [""]
    kinds = {"x1": TensorProto.INT32} if mask in ("raw", "lengths") else {}
    x = net.op("Concat", "x0", "x0", axis=0) if whole else "x0"
    net.own(
        "Attention", x, net.numbers(8, 24), net.numbers(24), *extra, num_heads=2, unidirectional=int(mask == "causal")
    )
    agrees(net.model(kinds=kinds), ids={"x1": 2 if mask == "raw" else 6} if kinds else {})


@pytest.mark.parametrize("form", ["plain", "masked", "bias", "past"])
def test_multi_head_attention(form: str) -> None:
    """Queries, keys and values of layers before it."""
    net = Contributed((5, 8), (4, 8), (4, 8), (4,), (2, 3, 4), (2, 3, 4), batch=2)
    net.shapes = net.shapes[: {"masked": 4, "past": 6}.get(form, 3)]
    rest = {"plain": [], "masked": ["", "x3"], "bias": [net.numbers(24)], "past": ["", "", "", "x4", "x5"]}[form]
    if form == "past":
        net.shapes[3] = (4,)
        unused = net.op("Mul", net.op("ReduceSum", "x3", net.ints(1)), net.constant(0.0))
        query = net.op("Add", "x0", net.op("Unsqueeze", unused, net.ints(1)))
        y = net.own("MultiHeadAttention", query, "x1", "x2", *rest, num_heads=2, outputs=3)
        agrees(net.model(y, f"{y}_1"))
        return
    net.own("MultiHeadAttention", "x0", "x1", "x2", *rest, num_heads=2)
    agrees(
        net.model(kinds={"x3": TensorProto.INT32} if form == "masked" else {}),
        ids={"x3": 2} if form == "masked" else {},
    )


def test_embedding() -> None:
    """Words, positions and segments, and the number of tokens for the attention behind it."""
    net = Contributed((5,), (5,), (5,), batch=2)
    tables = [net.numbers(n, 8) for n in (11, 7, 2)]
    y = net.own("EmbedLayerNormalization", "x0", "x1", *tables, net.numbers(8), net.numbers(8), "x2", outputs=2)
    net.own("Attention", y, net.numbers(8, 24), net.numbers(24), f"{y}_1", num_heads=2)
    kinds = dict.fromkeys(("x0", "x1", "x2"), TensorProto.INT32)
    agrees(net.model(kinds=kinds), ids={"x0": 11, "x1": 2, "x2": 2})


def quantised(kind: str) -> onnx.ModelProto:
    net = Contributed((4, 6, 6), (4, 6, 6), batch=2)
    x, y = net.quantised("x0"), net.quantised("x1", 0.04, 100)
    out = (net.constant(0.06), net.constant(110, np.uint8))
    if kind in ("QLinearAdd", "QLinearMul"):
        made = net.own(kind, *x, *y, *out)
    elif kind == "QLinearAdd-constant":
        made = net.own("QLinearAdd", *x, net.bytes_(4, 1, 1), net.constant(0.03), net.constant(90, np.uint8), *out)
    elif kind == "QLinearConcat":
        made = net.own(kind, *out, *x, *y, axis=1)
    elif kind == "QLinearConv":
        weight = (net.bytes_(5, 4, 3, 3), net.constant(0.01), net.constant(120, np.uint8))
        x = (net.op("Transpose", x[0], perm=[0, 2, 3, 1]), *x[1:])
        made = net.own(kind, *x, *weight, *out, net.constant(RNG.integers(-99, 99, 5), np.int32), channels_last=1,
                       pads=[1, 1, 1, 1], kernel_shape=[3, 3])  # fmt: skip
    elif kind == "QGemm":
        flat = net.op("Flatten", x[0])
        made = net.own(kind, flat, *x[1:], net.bytes_(5, 144), net.constant(0.01), net.constant(110, np.uint8),
                       net.constant(RNG.integers(-99, 99, 5), np.int32), *out, transB=1)  # fmt: skip
    elif kind == "MatMulIntegerToFloat":
        made = net.own(kind, x[0], net.bytes_(6, 5), x[1], net.constant(RNG.random(5) / 20), x[2], net.bytes_(5),
                       net.numbers(5))  # fmt: skip
        return net.model(made)
    elif kind == "NhwcMaxPool":
        made = net.own(kind, net.op("Transpose", x[0], perm=[0, 2, 3, 1]), kernel_shape=[2, 2], strides=[2, 2])
        return net.model(net.real(made, *x[1:]))
    else:
        out = (
            (net.constant(1 / 256), net.constant(0, np.uint8)) if kind in ("QLinearSigmoid", "QLinearSoftmax") else out
        )
        given: dict[str, Any] = {
            "QLinearLeakyRelu": {"alpha": 0.2},
            "QLinearSoftmax": {"axis": -1, "opset": 13},
            "QLinearAveragePool": {"kernel_shape": [2, 2], "strides": [2, 2]},
            "QLinearGlobalAveragePool": {"channels_last": 1},
        }.get(kind, {})
        made = net.own(kind, *x, *out, **given)
    return net.model(net.real(made, *out))


QUANTISED = [
    "QLinearAdd",
    "QLinearMul",
    "QLinearAdd-constant",
    "QLinearConcat",
    "QLinearConv",
    "QGemm",
    "MatMulIntegerToFloat",
    "NhwcMaxPool",
    "QLinearSigmoid",
    "QLinearSoftmax",
    "QLinearLeakyRelu",
    "QLinearAveragePool",
    "QLinearGlobalAveragePool",
]


@pytest.mark.parametrize("kind", QUANTISED)
def test_quantised(kind: str) -> None:
    """Read as the float network: within some steps of 0.05."""
    agrees(quantised(kind), 0.1)


@pytest.mark.parametrize("kind", [np.int32, np.uint16, np.int8])
def test_own_quantisation(kind: Any) -> None:
    """Of types that the standard operators of old opsets do not have, a step a channel."""
    net = Contributed((4, 6), batch=2)
    steps, zeros = net.constant([0.01, 0.02, 0.05, 0.04]), net.constant([0, 3, 0, 1], kind)
    if kind == np.int32:
        table = net.own("DequantizeLinear", net.constant(RNG.integers(-99, 99, (4, 6)), kind), steps, axis=0)
        net.op("Add", "x0", table)
    else:
        net.own("DequantizeLinear", net.own("QuantizeLinear", "x0", steps, zeros, axis=1), steps, zeros, axis=1)
    agrees(net.model(), 0.1)


def test_quantised_attention() -> None:
    """Attention on bytes."""
    net = Contributed((5, 8), batch=2)
    x = net.quantised("x0")
    weight, bias = net.bytes_(8, 24), net.numbers(24)
    net.own(
        "QAttention", x[0], weight, bias, x[1], net.constant(0.003), "", x[2], net.constant(120, np.uint8), num_heads=2
    )
    agrees(net.model(), 0.1)


def test_dynamic_lstm() -> None:
    """Weights of eight bits, one step a direction, both ways."""
    net = Contributed((2, 6), batch=5)
    steps = [net.constant([0.01, 0.02]), net.constant([10, 0], np.int8)]
    weights = [net.constant(RNG.integers(-99, 99, (2, n, 16)), np.int8) for n in (6, 4)]
    bias = net.numbers(2, 32)
    net.own("DynamicQuantizeLSTM", "x0", *weights, bias, "", "", "", "", *steps, *steps, outputs=3, hidden_size=4,
            direction="bidirectional")  # fmt: skip
    agrees(net.model(), 0.03)


def test_every_rule_is_tested() -> None:
    """The operators of this file are those that are known."""
    others = {
        "FusedConv", "FusedGemm", "Attention", "MultiHeadAttention", "EmbedLayerNormalization", "DequantizeLinear",
        "QuantizeLinear", "QAttention", "DynamicQuantizeLSTM",
    }  # fmt: skip
    assert {name.split("-")[0] for name in (*FUSED, *QUANTISED)} | others == set(RULES)


def test_what_is_not_known_is_refused() -> None:
    """An attribute or an input that the rule does not ask for, and an operator without a rule."""
    for attributes, inputs, problem in (({"other": 1}, [], "attribute other=1"), ({}, ["x0"], "input 1")):
        net = Contributed((4, 6), batch=2)
        net.own("Gelu", "x0", *inputs, **attributes)
        with pytest.raises(UnsupportedModel, match=f"{problem} is not known for com.microsoft.Gelu"):
            load(net.model())
    net = Contributed((4, 6), batch=2)
    net.own("Irfft", "x0")
    with pytest.raises(UnsupportedModel, match="com.microsoft.Irfft"):
        load(net.model())


def test_bytes_as_an_output() -> None:
    """Integers that the network returns are rounded."""
    net = Contributed((4, 6), batch=2)
    given = (net.constant(0.05), net.constant(100, np.uint8))
    y = net.own("QuantizeLinear", "x0", *given)
    model = net.model(y)
    model.graph.output[0].type.tensor_type.elem_type = TensorProto.UINT8
    inputs = images(model)
    found = evaluate(load(model), {name: value.astype(np.float64) for name, value in inputs.items()})
    assert np.array_equal(found[y], expected(model, inputs)[0])
    assert numpy_helper.to_array(model.graph.initializer[0]) == np.float32(0.05)

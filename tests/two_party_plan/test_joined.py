"""Queries, keys and values of attention as one layer, against ONNX Runtime and against plans with a layer for each."""

from __future__ import annotations

import hushnet
import numpy as np
import pytest
from hushnet.planner.two_party import prepared
from hushnet.reference import methods

from tests.frontend.harness import Net
from tests.two_party_plan.test_means import EACH, HEADS, ROWS, attention, compiled, off, sequences

WIDTH = 6


def layers(plan) -> list[int]:
    """Outputs of all layers but the last one, in order."""
    return [s["geometry"]["output"][0] for _, s in list(plan.linear_stages())[:-1]]


def test_layers_of_attention_are_one_and_send_fewer_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    net = Net((ROWS, WIDTH))
    attention(net)
    data = {"x0": sequences(16)}
    whole = compiled(net, data)
    assert layers(whole.plan) == [3 * HEADS * EACH]
    far, stated, _ = off(net, whole, {"x0": sequences(2, seed=5)})
    assert far <= stated
    monkeypatch.setattr(prepared, "joined", lambda graph: graph)
    apart = compiled(net, data)
    assert layers(apart.plan) == [HEADS * EACH] * 3
    sent = [sum(m.plan.predicted[k] for k in ("bytes_up", "bytes_down")) for m in (whole, apart)]
    # two requests less, and two answers, of 2048 words each
    (_, first), *_ = whole.plan.linear_stages()
    words = methods.ciphertexts("cheetah", 2048, whole.plan.part["ring_bits"], first["weight_l2"])
    assert sent[1] - sent[0] > 2 * 2048 * (words.modulus_bits + words.response_bits) / 8 * 0.95


def test_layers_that_anything_else_reads_stay_apart() -> None:
    net = Net((ROWS, WIDTH))
    factors = [net.op("MatMul", "x0", net.weight(WIDTH, 4)) for _ in range(2)]
    product = net.op("MatMul", factors[0], net.op("Transpose", factors[1], perm=[0, 2, 1]))
    # the first factor is read by a sum, too
    net.op("MatMul", net.op("Concat", product, factors[0], axis=-1), net.weight(ROWS + 4, 3))
    model = compiled(net, {"x0": sequences(16)})
    assert layers(model.plan) == [4, 4]


def test_layers_of_other_tensors_stay_apart() -> None:
    net = Net((ROWS, WIDTH))
    moved = net.op("Relu", "x0")
    factors = [net.op("MatMul", x, net.weight(WIDTH, 4)) for x in ("x0", moved)]
    product = net.op("MatMul", factors[0], net.op("Transpose", factors[1], perm=[0, 2, 1]))
    net.op("MatMul", product, net.weight(ROWS, 3))
    model = compiled(net, {"x0": sequences(16)})
    assert layers(model.plan) == [4, 4]


def test_every_output_is_its_own_layers() -> None:
    """Slices of the joined layer stand where the layers' results stood: without products and softmax, to the unit."""
    net = Net((ROWS, WIDTH))
    attention(net, gain=0.0)
    data = {"x0": sequences(16)}
    model = compiled(net, data, weight_bits=14)
    # with no scores every row is the mean of all values
    got = hushnet.run(model, {"x0": sequences(2, seed=7)}).output
    assert np.abs(got - got[:, :1]).max() < 0.02 * np.abs(got).max()

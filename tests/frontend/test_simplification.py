"""What onnxslim makes of a model: it is asked where it could help, and believed where the model computes the same."""

from __future__ import annotations

import time

import onnxslim
import pytest
from hushnet import frontend
from hushnet.frontend import load, simplify, verify
from hushnet.graph import Linear
from onnx import helper

from .harness import Net, agree, conv_net


def broken(change):
    """A simplifier that changes the model."""

    def slim(model, **_):
        change(model)
        return model

    return slim


SLIPS = {
    "another result": lambda m: m.graph.node[-1].CopyFrom(
        helper.make_node("Neg", m.graph.node[-1].input, m.graph.node[-1].output)
    ),
    "another output": lambda m: setattr(m.graph.output[0], "name", "other"),
    "an exception": lambda m: 1 / 0,
    "too long": lambda m: time.sleep(5),
}


@pytest.mark.parametrize("slip", SLIPS)
def test_a_simplifier_that_errs_is_not_believed(monkeypatch, slip):
    monkeypatch.setattr(onnxslim, "slim", broken(SLIPS[slip]))
    prepared = frontend.model.read(conv_net())
    assert simplify.simplify(prepared, seconds=2.0) is None
    agree(conv_net()) if slip != "too long" else None


def repeating_net():
    """The same product twice."""
    net = Net((3, 6, 6))
    weight = net.weight(4, 3, 3, 3)
    net.op("Add", net.op("Conv", "x0", weight), net.op("Relu", net.op("Conv", "x0", weight)))
    return net.model()


def shaped_net():
    """A shape that is computed."""
    net = Net((3, 6, 6))
    start, end = net.ints(0), net.ints(1)
    batch = net.op("Slice", net.op("Shape", "x0"), start, end)
    net.op("Reshape", "x0", net.op("Concat", batch, net.ints(-1), axis=0))
    return net.model()


@pytest.fixture
def lowered(monkeypatch):
    """Whether each model that is lowered is a simplified one."""
    seen = []
    original = frontend.lowering.Driver.__init__

    def noted(self, prepared, **options):
        seen.append(options["simplified"])
        original(self, prepared, **options)

    monkeypatch.setattr(frontend.lowering.Driver, "__init__", noted)
    return seen


def unread_net():
    """An input that nothing reads but a node that no output needs."""
    net = Net((3, 6, 6), (4,))
    net.op("Neg", "x1")
    return net.model(net.op("Relu", "x0"))


@pytest.mark.parametrize("net", [repeating_net, shaped_net, unread_net])
def test_a_simplified_model_is_taken(lowered, net):
    load(net())
    assert lowered == [True]


def test_a_model_with_nothing_to_simplify_is_left_alone(monkeypatch, lowered):
    monkeypatch.setattr(simplify, "simplify", lambda _: pytest.fail("onnxslim is asked"))
    load(conv_net())
    assert lowered == [False]


def test_a_model_that_does_not_lower_as_it_is_gets_simplified(monkeypatch, lowered):
    monkeypatch.setattr(simplify, "worthwhile", lambda _: False)
    forms, first = frontend._forms, []

    def refused_at_first(prepared, **options):
        first.append(options)
        return forms(prepared, **options) if len(first) > 1 else (None, [frontend.Issue("n", "Op", "no", "Do this.")])

    monkeypatch.setattr(frontend, "_forms", refused_at_first)
    load(repeating_net())
    assert lowered == [True]


def test_inputs_that_no_output_needs_are_none():
    assert load(unread_net()).inputs == ["x0"]


def test_repeated_nodes_cost_one_product():
    assert [n.op for n in load(repeating_net()).nodes if hasattr(n, "op")].count("relu") == 1
    assert sum(isinstance(n, Linear) for n in load(repeating_net()).nodes) == 1


def test_verification_without_onnx_runtime(monkeypatch):
    monkeypatch.setattr(verify.importlib.util, "find_spec", lambda _: None)
    prepared = frontend.model.read(conv_net())
    assert simplify.simplify(prepared) is not None
    monkeypatch.setattr(onnxslim, "slim", broken(SLIPS["another result"]))
    assert simplify.simplify(prepared) is None

"""PyTorch modules, with a PyTorch that is made up here: what its exporter is asked, what it writes."""

from __future__ import annotations

import sys
import types

import hushnet
import numpy as np
import onnx
import pytest
from hushnet.assess import assess_all
from hushnet.frontend import ModelError

from .harness import Net, expected

WEIGHTS = np.random.default_rng(0)


def network(batch: str = "batch") -> onnx.ModelProto:
    """What the made-up exporter writes: two inputs, one layer each, their sum."""
    net = Net((4,), (3,), batch=batch)
    left, right = net.op("MatMul", "x0", net.weight(4, 8)), net.op("MatMul", "x1", net.weight(3, 8))
    net.op("MatMul", net.op("Relu", net.op("Add", left, right)), net.weight(8, 2))
    return net.model()


class Module:
    """As torch.nn.Module: a training flag for itself and its parts."""

    __module__ = "torch.nn.modules.module"

    def __init__(self):
        self.training = True
        self.part = types.SimpleNamespace(training=False)

    def modules(self):
        return [self, self.part]

    def eval(self):
        for part in self.modules():
            part.training = False

    def forward(self, x0, x1):
        # only its parameters' names are read: the exporter is made up, and nothing else may run a user's module
        raise AssertionError("hushnet ran the module")


class Own(Module):
    """A user's class."""


Own.__module__ = "my.models"


@pytest.fixture
def torch(monkeypatch):
    """A PyTorch whose exporter notes what it is asked."""
    fake = types.ModuleType("torch")
    fake.asked = []

    def export(module, args, path, *, input_names, opset_version, dynamic_axes=None, dynamo=True):
        fake.asked.append((module.training, args, input_names, dynamic_axes, dynamo))
        if dynamo:
            raise RuntimeError("no onnxscript\nand more")
        if fake.broken:
            raise ValueError("an operator\nand where")
        onnx.save(network(), path)

    fake.onnx = types.SimpleNamespace(export=export)
    fake.from_numpy = np.asarray
    fake.broken = False
    monkeypatch.setitem(sys.modules, "torch", fake)
    return fake


@pytest.mark.parametrize("kind", ["tuple", "mapping"])
def test_a_module_is_exported_and_compiled(torch, kind):
    module = Own()
    x = {"x0": WEIGHTS.random((5, 4)).astype(np.float32), "x1": WEIGHTS.random((5, 3)).astype(np.float32)}
    example = tuple(x.values()) if kind == "tuple" else dict(reversed(x.items()))
    plan = hushnet.from_torch(module, example, batch=5, calibration=x)
    (want,) = expected(network(), x)
    assert np.abs(hushnet.run(plan, x).output - want).max() <= plan.plan.predicted["max_error"]
    ((training, args, names, axes, dynamo),) = torch.asked
    assert not training and not dynamo and names == ["x0", "x1"] and axes == {"x0": {0: "batch"}, "x1": {0: "batch"}}
    assert [a.shape for a in args] == [(5, 4), (5, 3)]
    assert module.training and not module.part.training, "modes are put back, each part's own"


def test_compile_and_check_take_modules_too(torch):
    example = (np.zeros((1, 4), np.float32), np.zeros((1, 3), np.float32))
    assert hushnet.compile(Own(), example=example, batch=1).input_names == ["x0", "x1"]
    assert hushnet.check(Own(), example=example) == []
    assert all(found.compiles for found in assess_all(Own(), ["client-aided", "two-party"], example=example))


def test_inputs_that_share_no_first_axis_have_none_open(torch):
    hushnet.compile(Own(), example=(np.zeros((1, 4), np.float32), np.zeros((2, 3), np.float32)), batch=1)
    assert torch.asked[0][3] is None


def test_what_the_exporter_refuses_is_one_sentence(torch):
    torch.broken = True
    module = Own()
    with pytest.raises(ModelError, match=r"\(ValueError: an operator; RuntimeError: no onnxscript\)\. Export it") as e:
        hushnet.from_torch(module, np.zeros((1, 4)))
    assert "\n" not in str(e.value)
    assert module.training, "modes are put back"


def test_pytorch_that_is_not_installed(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ModelError, match=r"PyTorch is not installed .*\. Install it with `pip install torch`"):
        hushnet.from_torch(Own(), np.zeros((1, 4)))


@pytest.mark.parametrize(
    ("example", "problem"),
    [
        (None, "no example was given"),
        ({"x1": np.zeros(3)}, r"names \['x1'\], and forward takes \['x0', 'x1'\]"),
        ({"y": np.zeros(3)}, "Give the first of these by name"),
        ({}, "without gaps"),
        ((np.zeros(3), "text"), "'x1' is of type str"),
    ],
)
def test_examples_are_looked_at(torch, example, problem):
    with pytest.raises(ModelError, match=problem):
        hushnet.from_torch(Own(), example)
    assert not torch.asked


def test_what_is_no_module():
    with pytest.raises(ModelError, match="from_torch takes a torch.nn.Module, and this is of type ModelProto"):
        hushnet.from_torch(network(), np.zeros((1, 4)))
    with pytest.raises(ModelError, match="example is for a torch.nn.Module"):
        hushnet.compile(network(), example=np.zeros((1, 4)))
    with pytest.raises(ModelError, match="example is for"):
        hushnet.check(network().SerializeToString(), example=np.zeros((1, 4)))

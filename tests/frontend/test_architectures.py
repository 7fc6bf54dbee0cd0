"""Exported architectures, small: `check` says something true of each, and what runs equals ONNX Runtime."""

from __future__ import annotations

import hushnet
import numpy as np
import onnx
import pytest
from hushnet.api import lowered
from hushnet.assess import Assessment, assess_all

from tests.architectures import ARCHITECTURES, recurrent_with_states

from .harness import expected

IMAGES = 3
# what the front end does not take whole
UNSUPPORTED = {"ssd_nms"}


def inputs(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    """Images from 0 to 1, integers 0 and 1."""
    rng = np.random.default_rng(1)
    found = {}
    for port in model.graph.input:
        shape = (IMAGES, *(d.dim_value for d in port.type.tensor_type.shape.dim[1:]))
        whole = port.type.tensor_type.elem_type == onnx.TensorProto.INT64
        found[port.name] = rng.integers(0, 2, shape) if whole else rng.random(shape).astype(np.float32)
    return found


def by_runtime(model: onnx.ModelProto, x: dict[str, np.ndarray]) -> list[np.ndarray]:
    """ONNX Runtime's outputs; a model whose batch is fixed takes images one by one."""
    if not model.graph.input[0].type.tensor_type.shape.dim[0].dim_value:
        return expected(model, x)
    each = [expected(model, {k: v[i : i + 1] for k, v in x.items()}) for i in range(IMAGES)]
    return [np.concatenate(parts) for parts in zip(*each)]


def same(model: onnx.ModelProto) -> None:
    """Asserts that the encrypted answers are ONNX Runtime's, within the error that the plan predicts."""
    x = inputs(model)
    want = by_runtime(model, x)
    plan = hushnet.compile(model, calibration=x, batch=IMAGES, weight_bits=8)
    got = hushnet.run(plan, x).outputs
    for (name, values), reference in zip(got.items(), want):
        allowed = plan.plan.predicted["output_errors"][name]["max_error"]
        assert values.shape == reference.shape, name
        assert np.abs(values - reference).max() <= min(allowed, 0.05 * np.abs(reference).max()), name


@pytest.mark.parametrize("name", sorted(set(ARCHITECTURES) - UNSUPPORTED))
def test_encrypted_answers_are_those_of_onnx_runtime(name):
    same(ARCHITECTURES[name].small())


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
@pytest.mark.parametrize("both", [False, True])
def test_last_states_of_recurrent_cells(kind, both):
    same(recurrent_with_states(kind, both))


def nodes_once(found: Assessment) -> list[str]:
    """All nodes of all groups."""
    return [node for group in found.groups for node in group.nodes]


def asked_for(model: onnx.ModelProto, found: Assessment) -> dict[str, object]:
    """Options that a cut compiles with: data for the inputs that it reads, where the check had to make them up."""
    if not found.made_up:
        return {}
    graph, _ = lowered(model, calibration=None, shapes=None, until=found.until.split(","))
    x = inputs(model)
    return {"calibration": {name: x[name] for name in graph.inputs}, "weight_bits": 8}


@pytest.mark.parametrize("name", sorted(ARCHITECTURES))
def test_check_says_costs_or_every_node_in_the_way_once_and_cuts_that_compile(name):
    model = ARCHITECTURES[name].small()
    names = {node.name for node in model.graph.node}
    for found in assess_all(model):
        assert found.compiles or found.trust != "client-aided" or name in UNSUPPORTED
        if found.compiles:
            assert found.seconds > 0 and found.bytes_up > 0 and not found.groups
            continue
        assert found.seconds is None and found.groups
        nodes = nodes_once(found)
        assert len(nodes) == len(set(nodes)) and set(nodes) <= names | {"model"}, nodes
        for group in found.groups:
            assert group.count == len(group.nodes) and group.problem and ";" not in group.problem
            assert group.advice[:1].isupper() and group.advice.endswith("."), group
        if found.until is not None:
            plan = hushnet.compile(model, trust=found.trust, until=found.until, **asked_for(model, found))
            assert any(stage["kind"] != "client" for stage in plan.plan.stages)

"""Folded networks on the one-image engine: what ``Network.run`` says, within the engine's own bound."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hushnet import frontend, passes
from hushnet.planner.non_interactive import Network
from hushnet_bench import _native as measuring

from tests.non_interactive.networks import pooled, residual, strided


@pytest.mark.parametrize(("make", "activation"), [(residual, "square"), (pooled, "deg2"), (strided, "deg4")])
def test_encrypted_is_what_the_float_network_says(make, activation: str) -> None:
    graph = passes.default(frontend.load(make(activation).model()))
    x = np.random.default_rng(6).uniform(0, 1, (6, *graph.shapes[graph.inputs[0]]))
    network = Network.from_graph(graph, calibration=x)
    spec, arrays = network.spec()
    circuit = measuring.PackedRun(json.dumps(spec), arrays)
    report = json.loads(circuit.report())
    image = network.encrypted_input(x[:1])
    got, text = circuit.run(image.reshape(-1), 1)
    trace = json.loads(text)
    want = network.values(x[:1])[network.output].reshape(-1)
    error = np.abs(got - want).max()
    assert 0 < error <= report["error_bound"] and error < 0.02 * max(1.0, np.abs(want).max())
    assert not trace["out_of_range"]
    opened = network.opened(got[None])
    assert opened.shape == network.run(x[:1]).output.shape
    assert opened.argmax() == network.run(x[:1]).output.argmax() or error > 1e-3

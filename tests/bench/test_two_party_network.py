"""Time between two network namespaces is what is predicted."""

from __future__ import annotations

import hushnet
import numpy as np
import pytest
from hushnet import data, zoo
from hushnet.planner.two_party import cost
from hushnet_bench import namespaces, two_party_network

from tests.test_two_party_network import close


def test_two_network_namespaces_take_the_predicted_time() -> None:
    model = hushnet.compile(
        zoo.build("mlp-784-128-128-10"), trust="two-party", calibration=data.synthetic((1, 28, 28), 8, seed=1)
    )
    x = data.synthetic((1, 28, 28), 1, seed=2).astype(np.float32)

    def run() -> tuple[float, float]:
        (seconds, _), real = two_party_network.in_namespaces(model, x, "4mbit,10ms")
        return seconds, two_party_network.predicted(model, real, cost.unit_costs())

    try:
        close(run)
    except namespaces.Unavailable as reason:
        pytest.skip(f"no network namespaces here: {reason}")

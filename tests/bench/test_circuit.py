"""The channel-wise circuit without any library.

Slots as vectors of numbers, levels counted, against the float network.
"""

from __future__ import annotations

import math

import numpy as np
import onnx
import pytest
from hushnet import data, frontend, passes, zoo
from hushnet.planner.non_interactive import Network
from hushnet_bench.programs.circuit import Circuit, Counter
from hypothesis import HealthCheck, given, settings

from tests.non_interactive.networks import Random, networks


class Clear(Counter):
    """A ciphertext is (values, level, products since the last rescaling)."""

    def __init__(self, slots: int, depth: int):
        super().__init__(slots)
        self.depth = depth

    def encrypt(self, values):
        self.count("encrypt")
        return values.copy(), self.depth, 0

    def zero(self, level):
        return np.zeros(self.slots), level, 0

    def add(self, a, b):
        assert a[1:] == b[1:]
        self.count("add")
        return a[0] + b[0], a[1], a[2]

    add_to = add

    def negate(self, a):
        return -a[0], a[1], a[2]

    def add_plain(self, a, values, level):
        assert a[1] == level and a[2] == 0
        self.count("add_plain")
        return a[0] + values, a[1], 0

    def multiply_plain(self, a, values, level):
        assert a[1] == level > 0 and a[2] == 0
        self.count("multiply_plain")
        return a[0] * values, a[1], 1

    def multiply(self, a, b):
        assert a[1:] == b[1:] and a[2] == 0 and a[1] > 0
        self.count("multiply")
        self.count("relinearise")
        return a[0] * b[0], a[1], 1

    def square(self, a):
        assert a[2] == 0 and a[1] > 0
        self.count("square")
        self.count("relinearise")
        return a[0] * a[0], a[1], 1

    def rescale(self, a):
        assert a[2] == 1
        self.count("rescale")
        return a[0], a[1] - 1, 0

    def lower(self, a, level, wanted):
        assert a[1] == level >= wanted and a[2] == 0
        self.counts["lower"] = self.counts.get("lower", 0) + (level != wanted)
        return a[0], wanted, 0

    def rotate(self, a, step):
        step %= self.slots
        if step:
            self.count("rotate")
            self.steps.add(step)
        return np.roll(a[0], -step), a[1], a[2]


def clear(network: Network, x: np.ndarray, slots: int) -> tuple[np.ndarray, Clear]:
    """Outputs for every image, and the last backend."""
    circuit = Circuit(*network.spec(), slots)
    counts, steps = circuit.plan()
    outputs = []
    for image in network.encrypted_input(x):
        backend = Clear(slots, circuit.depth())
        result = circuit.run(backend, image)
        assert {r[1] for r in result} == {0}, "every planned level is used, and no more"
        assert backend.counts == {**counts, "lower": backend.counts.get("lower", 0)} or backend.counts == counts
        assert sorted(backend.steps) == steps
        outputs.append(circuit.read([r[0] for r in result]))
    return network.opened(np.stack(outputs)), backend


def folded(model: onnx.ModelProto) -> tuple[Network, np.ndarray]:
    graph = passes.default(frontend.load(model))
    x = np.random.default_rng(3).uniform(0, 1, (2, *graph.shapes[graph.inputs[0]]))
    return Network.from_graph(graph, calibration=x), x


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(networks())
def test_random_networks(model: onnx.ModelProto) -> None:
    network, x = folded(model)
    try:
        got, _ = clear(network, x, 2048)
    except ValueError as error:
        assert "different strides" in str(error)
        return
    want = network.run(x).output
    assert np.abs(got - want).max() <= 1e-9 * max(1.0, np.abs(want).max())


@pytest.mark.parametrize("name", ["mnist-cnn-square", "mnist-cnn-swish-rg7-deg4", "cryptonets-square"])
def test_trained_networks(name: str) -> None:
    train, _, x, _ = data.digits()
    network = Network.from_graph(passes.default(frontend.load(zoo.trained(name))), calibration=train[:50])
    got, _ = clear(network, x[:2], 8192)
    assert np.abs(got - network.run(x[:2]).output).max() < 1e-9


def test_mnist_needs_the_operations_that_the_papers_code_needs() -> None:
    """6,385 plaintext products, as counted in the paper's own program (which rotates 323 times.

    Its last sums are over all slots).
    """
    train, _, _, _ = data.digits()
    network = Network.from_graph(passes.default(frontend.load(zoo.trained("mnist-cnn-square"))), calibration=train[:50])
    counts, _ = Circuit(*network.spec(), 8192).plan()
    assert counts["multiply_plain"] == 5 * 25 + 50 * 5 * 25 + 10
    # taps of both convolutions, 49 to merge 50 channels, 11 doublings for each of ten sums over 1,568 slots
    assert counts["rotate"] == 24 + 5 * 24 + 49 + 10 * 11
    assert counts["rescale"] == 5 + 5 + 50 + 50 + 10
    assert counts["relinearise"] == 55


def test_counts_of_a_convolution() -> None:
    net = Random((3, 9, 8), 1)
    net.conv(4, (3, 2), (1, 2), (1, 0, 1, 1), 1)
    network, x = folded(net.model())
    got, backend = clear(network, x, 1024)
    assert np.allclose(got, network.run(x).output)
    assert backend.counts["rotate"] == 3 * (3 * 2 - 1) and backend.counts["multiply_plain"] == 4 * 3 * 6
    assert backend.counts["rescale"] == 4


def test_what_does_not_fit_is_refused() -> None:
    net = Random((1, 40, 40), 1)
    net.conv(1, (3, 3), (1, 1), (0, 0, 0, 0), 1)
    network, _ = folded(net.model())
    with pytest.raises(ValueError, match="1600 slots a channel and there are 1024"):
        Circuit(*network.spec(), 1024)


def test_a_part_is_scaled_up() -> None:
    """With a sample of channels, counts are those of the whole circuit (to rounding), on a network without merging."""
    net = Random((4, 8, 8), 1)
    net.conv(8, (3, 3), (1, 1), (1, 1, 1, 1), 1)
    net.activation("square")
    net.conv(8, (3, 3), (1, 1), (1, 1, 1, 1), 1)
    network, x = folded(net.model())
    spec = network.spec()
    whole, part = Circuit(*spec, 1024), Circuit(*spec, 1024, sample=2)
    totals = []
    for circuit in (whole, part):
        circuit.run(Counter(1024), network.encrypted_input(x)[0])
        total: dict[str, int] = {}
        for entry in circuit.times:
            for k, v in entry["counts"].items():
                total[k] = total.get(k, 0) + v
        totals.append(total)
    for name in ("multiply_plain", "rotate", "rescale", "square"):
        assert totals[1][name] == pytest.approx(totals[0][name], rel=0.02), name
    assert math.isclose(part.part(8)[1], 4.0)

"""Folding changes no value: networks against ONNX Runtime, trained ones against their accuracy.

What is refused and reported.
"""

from __future__ import annotations

import math

import numpy as np
import onnx
import pytest
from hushnet import data, frontend, passes, zoo
from hushnet.errors import BlockedPlan, PlanError
from hushnet.planner.non_interactive import Add, Linear, Network, Polynomial, replace_activations
from hushnet.planner.non_interactive.fold import with_scale
from hushnet.planner.non_interactive.network import polynomial_interval
from hushnet.reference.float import evaluate
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st
from numpy.polynomial import polynomial as poly

from tests.frontend.harness import Net, expected
from tests.non_interactive.networks import Random, networks


def folded(model: onnx.ModelProto, **options) -> tuple[Network, np.ndarray, np.ndarray]:
    """The network, images, and ONNX Runtime's answer."""
    graph = passes.default(frontend.load(model))
    rng = np.random.default_rng(5)
    x = rng.uniform(0, 1, (4, *graph.shapes[graph.inputs[0]])).astype(np.float32)
    want = expected(model, {graph.inputs[0]: x})[0].astype(np.float64)
    return Network.from_graph(graph, calibration=x, **options), x, want


def close(network: Network, x: np.ndarray, want: np.ndarray) -> None:
    got = network.run(x).output
    assert got.shape == want.shape
    assert np.abs(got - want).max() <= 2e-4 * max(1.0, np.abs(want).max())


def well_formed(network: Network) -> None:
    """Ids dense, topological, shapes right, sums of one unit, bounds and intervals hold."""
    made = {0}
    for step in network.steps:
        read = step.sources if isinstance(step, Add) else (step.source,)
        assert set(read) <= made and step.target not in made
        made.add(step.target)
        if isinstance(step, Linear):
            given, result = network.tensors[step.source], network.tensors[step.target]
            if step.geometry["type"] == "conv2d":
                assert list(given.shape) == step.geometry["input"] and list(result.shape) == step.geometry["output"]
            else:
                assert given.size == step.geometry["inputs"] and result.size == step.geometry["outputs"]
            assert step.bias.shape in {(len(step.weights),), result.shape}
        elif isinstance(step, Polynomial):
            assert network.tensors[step.source].shape == network.tensors[step.target].shape
            assert step.degree >= 2 and step.coefficients[-1] != 0
        else:
            assert len({network.tensors[t].shape for t in (*read, step.target)}) == 1
            assert [network.tensors[t].factor for t in read] == pytest.approx(
                [network.tensors[step.target].factor] * len(read)
            )
    assert made == {t.id for t in network.tensors} == set(range(len(network.tensors)))
    assert network.output in made


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(networks(), st.sampled_from(["auto", "always", "never"]), st.booleans())
def test_folded_networks_give_what_onnx_runtime_gives(model: onnx.ModelProto, merge: str, balance: bool) -> None:
    try:
        network, x, want = folded(model, merge=merge, balance=balance)
    except BlockedPlan as refused:
        # the one refusal that sums, products and moves can meet
        assume("more than 64; use a lower power" not in str(refused))
        raise
    well_formed(network)
    close(network, x, want)
    for key, value in network.values(x).items():
        tensor = network.tensors[key]
        top, slack = np.abs(value).max(), 1 + 1e-6
        assert top <= tensor.bound * slack
        assert tensor.interval[0] * slack - 1e-9 <= value.min() or tensor.interval[0] <= value.min()
        assert value.max() <= max(tensor.interval[1] * slack, tensor.interval[1]) + 1e-9


def test_tiny_weights_are_no_zeros() -> None:
    """Sums of squares of sums have units far from 1: 1e-13 of them is no rounding noise."""
    one = {
        "type": "conv2d",
        "input": [1, 1, 1],
        "output": [1, 1, 1],
        "kernel": [1, 1],
        "stride": [1, 1],
        "pads": [0] * 4,
        "dilation": [1, 1],
        "groups": 1,
    }
    layer = Linear("mean", one, np.full((1, 1, 1, 1), 1.0), np.zeros(1), 0, 1)
    assert with_scale(layer, 6e-14, 1.0).weights == 6e-14
    assert with_scale(layer, 1.0 + 1e-15, 1.0).weights == 1.0


@pytest.mark.parametrize(
    "name", ["mnist-cnn-square", "mnist-cnn-swish-rg5-deg2", "mnist-cnn-swish-rg7-deg4", "cryptonets-square"]
)
def test_trained_networks_keep_every_answer(name: str) -> None:
    train, _, x, y = data.digits()
    model = zoo.trained(name)
    graph = passes.default(frontend.load(model))
    network = Network.from_graph(graph, calibration=train[:200])
    well_formed(network)
    run = network.run(x)
    want = expected(model, {graph.inputs[0]: x})[0]
    assert np.abs(run.output - want).max() < 1e-4
    assert (run.output.argmax(axis=1) == y).mean() == (want.argmax(axis=1) == y).mean() >= 0.96
    # three layers, two polynomials: nothing is left over, and no polynomial needs a product with a constant of its own
    assert [type(s) for s in network.steps] == [Linear, Polynomial, Linear, Polynomial, Linear]
    degree = 4 if "deg4" in name else 2
    for step in network.steps:
        if isinstance(step, Polynomial):
            assert step.degree == degree and abs(step.coefficients[-1]) == 1.0 and step.coefficients[0] == 0.0
            assert degree == 4 or step.coefficients == (0.0, 0.0, 1.0)
    assert network.depth == (7 if degree == 4 else 5)
    for tensor in network.tensors[1:-1]:
        assert 0.25 < tensor.bound < 4


@pytest.mark.parametrize("activation", ["square", "swish-rg5-deg2", "swish-rg7-deg4"])
def test_cifar_network_has_the_depth_of_its_layers(activation: str) -> None:
    """Means are sums without a level, batch norms and coefficients are gone."""
    graph = passes.default(frontend.load(zoo.build("cifar10-cnn")))
    x = np.random.default_rng(1).uniform(0, 1, (2, 3, 32, 32))
    done = replace_activations(graph, activation, calibration=x)
    network = Network.from_graph(done.graph, calibration=x, ranges=done.ranges)
    well_formed(network)
    want = evaluate(done.graph, {graph.inputs[0]: x})[graph.outputs[0]]
    assert np.abs(network.run(x).output - want).max() < 1e-9 * max(1, np.abs(want).max())
    assert [s.name for s in network.steps if isinstance(s, Linear)] == [
        "conv1",
        "pool1",
        "conv2",
        "pool2",
        "conv3",
        "fc4",
    ]
    assert [s.is_sum for s in network.steps if isinstance(s, Linear)] == [False, True, False, True, False, False]
    assert network.depth == 4 + 3 * (2 if "deg4" in activation else 1)


def resnet(blocks: int, activation: str) -> onnx.ModelProto:
    net = Random((2, 8, 8), 7)
    net.conv(4, (3, 3), (1, 1), (1, 1, 1, 1), 1)
    net.activation(activation)
    for _ in range(blocks):
        net.residual(activation)
    net.op("GlobalAveragePool", net.last)
    net.shape = (4, 1, 1)
    net.dense(5)
    return net.model()


@pytest.mark.parametrize("activation", ["square", "deg2", "deg4"])
def test_residual_networks_need_no_constants(activation: str) -> None:
    """Identity shortcuts tie the units of a whole trunk; one factor for all still makes every leading coefficient 1."""
    network, x, want = folded(resnet(3, activation))
    well_formed(network)
    close(network, x, want)
    found = [s for s in network.steps if isinstance(s, Polynomial)]
    assert len(found) == 4 and all(abs(s.coefficients[-1]) == 1.0 for s in found)
    assert sum(isinstance(s, Add) for s in network.steps) == 3


def test_mean_in_front_of_a_large_layer_stays_and_of_a_small_one_goes() -> None:
    net = Random((3, 12, 12), 0)
    net.conv(8, (3, 3), (1, 1), (1, 1, 1, 1), 1)
    net.activation("square")
    net.pool(2, 2, 0, 0)
    net.conv(16, (3, 3), (1, 1), (1, 1, 1, 1), 1)
    net.activation("square")
    net.pool(2, 2, 0, 0)
    net.dense(2)
    for rule, layers in (("auto", 4), ("always", 3), ("never", 5)):
        network, x, want = folded(net.model(), merge=rule)
        close(network, x, want)
        assert sum(isinstance(s, Linear) for s in network.steps) == layers, rule
        # a mean costs no level either way
        assert network.depth == 5


def test_dense_layers_take_moves() -> None:
    """A network with channels last: transposes at the input, in the middle and at the end."""
    net = Random((6, 7, 2), 2)
    net.op("Transpose", net.last, perm=[0, 3, 1, 2])
    net.shape = (2, 6, 7)
    net.conv(3, (3, 3), (1, 1), (0, 0, 0, 0), 1)
    net.activation("deg2")
    net.op("Transpose", net.last, perm=[0, 2, 3, 1])
    net.dense(24)
    net.activation("square")
    net.op("Reshape", net.last, net.ints(-1, 2, 3, 4))
    net.op("Transpose", net.last, perm=[0, 3, 1, 2])
    net.shape = (4, 2, 3)
    net.conv(2, (2, 2), (1, 1), (1, 0, 0, 1), 1)
    net.op("Transpose", net.last, perm=[0, 2, 1, 3])
    network, x, want = folded(net.model())
    well_formed(network)
    close(network, x, want)
    assert network.head is not None and network.tail is not None
    assert [type(s).__name__ for s in network.steps] == ["Linear", "Polynomial"] * 2 + ["Linear"]


def test_uncounted_padding_of_means() -> None:
    net = Random((2, 7, 7), 4)
    net.conv(3, (3, 3), (1, 1), (0, 0, 0, 0), 1)
    net.activation("deg2")
    net.pool(3, 2, 1, 0)
    net.dense(4)
    network, x, want = folded(net.model())
    close(network, x, want)
    net.shape = (3, 3, 3)
    net = Random((2, 7, 7), 4)
    net.conv(3, (3, 3), (1, 1), (0, 0, 0, 0), 1)
    net.activation("deg2")
    net.pool(3, 2, 1, 0)
    net.conv(2, (2, 2), (1, 1), (0, 0, 0, 0), 1)
    network, x, want = folded(net.model())
    close(network, x, want)
    # the convolution is read as a matrix, whose columns take what the mean divides by
    assert network.steps[-1].geometry["type"] == "dense"


def test_constants_behind_a_padded_layer_stay_exact() -> None:
    """Batch norm between an activation and a padded layer.

    The border sees no offset, so the bias depends on the position.
    """
    net = Random((2, 6, 6), 9)
    net.conv(3, (3, 3), (1, 1), (1, 1, 1, 1), 1)
    net.activation("deg2")
    net.batch_norm()
    net.conv(2, (3, 3), (1, 1), (1, 1, 1, 1), 1)
    network, x, want = folded(net.model())
    close(network, x, want)
    assert [type(s).__name__ for s in network.steps] == ["Linear", "Polynomial", "Linear"]
    assert network.steps[-1].bias.shape == (2, 6, 6)
    assert network.steps[1].coefficients[0] != 0


REFUSED = {
    "Relu": (lambda n: n.op("Relu", n.last), "t1.*relu.*--activation"),
    "MaxPool": (lambda n: n.op("MaxPool", n.last, kernel_shape=[2, 2]), "max_pool.*average pooling"),
    "Softmax": (lambda n: n.op("Softmax", n.last, axis=1), "softmax.*behind the last layer"),
}


@pytest.mark.parametrize("kind", sorted(REFUSED))
def test_what_is_no_polynomial_is_refused_by_name(kind: str) -> None:
    net = Net((2, 6, 6))
    net.op("Conv", "x0", net.weight(2, 2, 3, 3))
    make, message = REFUSED[kind]
    make(net)
    net.op("Flatten", net.last)
    size = 18 if kind == "MaxPool" else 32
    net.op("Gemm", net.last, net.weight(size if kind != "MaxPool" else 18, 3))
    with pytest.raises(PlanError, match="(?s)" + message.replace("t1.*", "")):
        Network.from_graph(passes.default(frontend.load(net.model())))


def test_options_and_data_are_checked() -> None:
    graph = passes.default(frontend.load(zoo.trained("mnist-cnn-square")))
    for options, message in (
        ({"merge": "some"}, "merge is 'some'"),
        ({"safety": 0.5}, "safety is 0.5"),
        ({"clamp": 2.0}, "clamp 2.0"),
        ({"input_range": (1.0, 0.0)}, "input_range"),
        ({"calibration": np.zeros((3, 28, 28))}, "calibration data has shape"),
        ({"calibration": np.full((1, 1, 28, 28), np.nan)}, "finite numbers"),
        ({"calibration": np.full((1, 1, 28, 28), 3.0), "input_range": (0.0, 1.0)}, "outside the declared input_range"),
    ):
        with pytest.raises(PlanError, match=message):
            Network.from_graph(graph, **options)
    with pytest.raises(PlanError, match="images of shape"):
        Network.from_graph(graph).run(np.zeros((1, 28, 28)))


def test_operands_outside_the_range_are_counted() -> None:
    train, _, x, _ = data.digits()
    graph = passes.default(frontend.load(zoo.trained("mnist-cnn-swish-rg5-deg2")))
    network = Network.from_graph(graph, calibration=train[:100])
    assert not network.run(train[:100]).outside()
    run = network.run(3 * x[:20])
    assert len(run.outside()) == 2
    values = network.values(3 * x[:20])
    for reach, step in zip(run.polynomials, (s for s in network.steps if isinstance(s, Polynomial))):
        v = values[step.source]
        assert reach.largest == np.abs(v).max() > reach.range
        assert reach.outside == pytest.approx(((v < step.interval[0]) | (v > step.interval[1])).mean())


def test_units_lead_back_to_the_graph() -> None:
    train, _, x, _ = data.digits()
    graph = passes.default(frontend.load(zoo.trained("mnist-cnn-swish-rg7-deg4")))
    network = Network.from_graph(graph, calibration=train[:100])
    real, mine = evaluate(graph, {"image": x[:5]}, keep_all=True), network.values(x[:5])
    tensor = next(t for t in network.tensors if t.name == "conv1.out")
    assert np.allclose(tensor.factor * mine[tensor.id] - tensor.shift, real["conv1.out"])


def test_tiny_weights_move_to_the_threshold() -> None:
    graph = passes.default(frontend.load(zoo.trained("mnist-cnn-square")))
    network = Network.from_graph(graph, clamp=1e-2, calibration=data.digits()[0][:50])
    assert network.clamped > 0 and "were moved to it" in " ".join(network.notes)
    assert all(np.abs(s.weights).min() >= 1e-2 for s in network.steps if isinstance(s, Linear))


def test_specification_is_complete() -> None:
    """A network computed from ``spec`` alone is the network."""
    from hushnet.reference.linear import apply

    network, x, _ = folded(resnet(1, "deg3"))
    spec, arrays = network.spec()
    values = {spec["input"]: network.encrypted_input(x)}
    for step in spec["steps"]:
        if step["kind"] == "linear":
            y = apply(step["geometry"], arrays[step["weights"]], values[step["in"]])
            bias = arrays[step["bias"]]
            values[step["out"]] = y + (bias.reshape(-1, 1, 1) if y.ndim == 4 and bias.ndim == 1 else bias)
        elif step["kind"] == "polynomial":
            values[step["out"]] = poly.polyval(values[step["in"]], step["coefficients"])
        else:
            values[step["out"]] = sum(values[t] for t in step["in"])
    assert np.allclose(network.opened(values[spec["output"]]), network.run(x).output, atol=1e-12)
    import json

    assert json.loads(json.dumps(spec)) == spec
    assert all(math.isfinite(t["bound"]) for t in spec["tensors"])


@settings(max_examples=100, deadline=None)
@given(st.lists(st.floats(-2, 2), min_size=2, max_size=6), st.floats(-3, 3), st.floats(0, 4))
@example([0.0, 1.0, -1.0, 1.9e-107], 0.0, 1.0)
@example([0.0, 0.0, 0.0, 1.0], -1.0, 2.0)
@example([1.0, 0.0, 0.0], 2.0, 0.0)
def test_polynomial_intervals_hold_and_are_tight(coefficients: list[float], low: float, width: float) -> None:
    x = np.linspace(low, low + width, 2001)
    least, most = polynomial_interval(tuple(coefficients), np.array([low]), np.array([low + width]))
    y = poly.polyval(x, coefficients)
    slack = 1e-9 * max(1.0, np.abs(y).max())
    assert least[0] - slack <= y.min() and y.max() <= most[0] + slack
    step = (width / 2000) ** 2 * 500 + 1e-6
    assert y.min() - least[0] <= step * max(1, np.abs(coefficients).sum()) and most[0] - y.max() <= step * max(
        1, np.abs(coefficients).sum()
    )

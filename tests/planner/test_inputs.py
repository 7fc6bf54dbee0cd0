"""Features of an input that differ in size: scales of their own, from the calibration data alone."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hushnet import PlanError
from hushnet import run as run_encrypted
from hushnet.graph import Conv2d, Dense, Graph, Linear, Op
from hushnet.model import Model
from hushnet.planner import compile
from hushnet.planner.inputs import scale_inputs
from hushnet.reference import non_interactive as ciphers
from hushnet.reference import numpy as fixed
from hushnet.reference import two_party as shares
from hushnet.reference.float import evaluate

from tests.planner.planner_graphs import Builder

TRUST = ["client-aided", "two-party", "non-interactive"]


def table(seed: int, rows: int, features: int = 12, off: float = 0.0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A table with features of sizes from 1e-3 to 1e4, and their deviations and means (``off`` deviations from
    zero)."""
    rng = np.random.default_rng(seed)
    deviation = 10.0 ** rng.permutation(np.linspace(-3, 4, features))
    mean = deviation * (rng.uniform(2, 4, features) + off)
    return mean + deviation * rng.uniform(-1.7, 1.7, (rows, features)), deviation, mean


def standardised(deviation: np.ndarray, mean: np.ndarray, seed: int, activation: str = "relu") -> Graph:
    """A network on standardised features, with the standardisation folded into its first layer."""
    graph = Builder((len(mean),), seed=seed).dense(10).op(activation).dense(3).done()
    first = next(n for n in graph.nodes if isinstance(n, Linear))
    first.weight = first.weight / deviation
    first.bias = first.bias - first.weight @ mean
    return graph


def share(graph: Graph, x: np.ndarray, got: np.ndarray) -> float:
    """Largest error over the spread of the outputs."""
    want = evaluate(graph, {"x": x})[graph.outputs[0]]
    return float(np.abs(got - want).max() / np.ptp(want))


BATCH_ENGINE = {"non-interactive": {"engine": "batch"}}


@pytest.mark.parametrize("off", [0.0, 60.0])
@pytest.mark.parametrize("trust", TRUST)
def test_features_of_different_size_keep_their_precision_under_encryption(trust: str, off: float) -> None:
    x, deviation, mean = table(3, 120, off=off)
    graph = standardised(deviation, mean, 5, "square" if trust == "non-interactive" else "relu")
    # of the packed engine, layers have scales of their own
    options = {"trust": trust, "calibration": x[:80], "batch": 40} | BATCH_ENGINE.get(trust, {})
    plan = compile(graph, **options)
    outputs = run_encrypted(Model(plan), x[80:], transport="pipe").output
    assert share(graph, x[80:], outputs) < 0.02
    try:
        without = compile(graph, input_scales=False, **options)
    except PlanError:
        return  # errors so large that no range holds them
    assert without.predicted["seen_error"] > 0.1 * np.ptp(evaluate(graph, {"x": x})[graph.outputs[0]])


def test_the_rewritten_network_computes_the_same() -> None:
    for off in (0.0, 60.0):
        x, deviation, mean = table(1, 50, off=off)
        graph = standardised(deviation, mean, 2)
        scaled = scale_inputs(graph, {"x": x}, 1.25, None)
        assert [n.op for n in scaled.nodes if isinstance(n, Op)][:1] == (["pad"] if off else ["channel_scale"])
        want, got = (evaluate(g, {"x": x})[graph.outputs[0]] for g in (graph, scaled))
        np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-9)


def test_images_keep_one_scale_and_so_do_declared_ranges() -> None:
    rng = np.random.default_rng(0)
    graph = Builder((64,), seed=1).dense(8).op("relu").dense(3).done()
    # corners of pictures that are dark in all samples, or nearly
    x = rng.uniform(0, 16, (60, 64)) * np.where(np.arange(64) % 8 == 0, 1 / 16, 1.0)
    x[:, 7::8] = 0
    assert scale_inputs(graph, {"x": x}, 1.25, None).nodes == graph.nodes
    table_, deviation, mean = table(1, 50)
    graph = standardised(deviation, mean, 2)
    assert scale_inputs(graph, {"x": table_}, 1.25, (-1e5, 1e5)).nodes == graph.nodes
    assert scale_inputs(graph, None, 1.25, None) is graph


@pytest.mark.parametrize("trust", TRUST)
def test_ranges_declared_for_every_feature_give_scales_as_calibration_does(trust: str) -> None:
    x, deviation, mean = table(3, 480, off=60.0)
    low, high = mean - 1.7 * deviation, mean + 1.7 * deviation
    graph = standardised(deviation, mean, 5, "square" if trust == "non-interactive" else "relu")
    runs = {
        "client-aided": fixed.run,
        "two-party": shares.run,
        "non-interactive": lambda p, x: ciphers.run(p, x).outputs,
    }
    rows = x[80:]
    plan = compile(graph, trust=trust, input_range=(low, high), batch=40)
    assert plan.document["inputs"][0]["range"] == [low.min(), high.max()]
    (got,) = runs[trust](plan, rows).values()
    assert share(graph, rows, got) < 0.02
    # a statement that holds for all inputs of the ranges, at their ends too
    ends = np.where(np.random.default_rng(0).random((400, len(low))) < 0.5, low, high)
    (got,) = runs[trust](plan, ends).values()
    assert np.abs(got - evaluate(graph, {"x": ends})[graph.outputs[0]]).max() <= plan.predicted["worst_error"]
    # with calibration data, whose rows need not reach the ends, inputs are planned for the whole ranges
    both = compile(graph, trust=trust, input_range=(low, high), calibration=x[:80], batch=40, margin=8.0)
    (got,) = runs[trust](both, rows).values()
    assert share(graph, rows, got) < 0.02
    # one range for all features leaves small ones no step
    try:
        one = compile(graph, trust=trust, input_range=(float(low.min()), float(high.max())), batch=40)
    except PlanError:
        return
    assert one.predicted["max_error"] > 100 * plan.predicted["max_error"]


def test_declared_ranges_that_are_none_are_refused_by_feature() -> None:
    x, deviation, mean = table(3, 60)
    graph, low, high = standardised(deviation, mean, 5), mean - 2 * deviation, mean + 2 * deviation
    odd = high.copy()
    odd[4] = -np.inf
    for ranges, words in (
        ((low, odd), "input_range of feature 4 of 'x' is .* 1 features have no such range"),
        ((low[:3], high[:3]), r"arrays of shape \(3,\).*of which there are 12"),
        (("a", "b"), "no pair of numbers"),
        ((low, high, low), "no pair of numbers"),
    ):
        for trust in TRUST:
            with pytest.raises(PlanError, match=words):
                compile(graph, trust=trust, input_range=ranges)
    narrow = high.copy()
    narrow[7] = mean[7]
    for trust in TRUST:
        with pytest.raises(PlanError, match="feature 7 of the calibration data of 'x' lies in .* widen these"):
            compile(graph, trust=trust, input_range=(low, narrow), calibration=x)
    channels = Builder((3, 6, 6), seed=1).conv(4).op("relu").done()
    wide = np.array([1e-3, 1.0, 500.0])
    plan = compile(channels, input_range=(-wide, wide), calibration=wide[:, None, None] * np.ones((9, 3, 6, 6)))
    assert plan.document["inputs"][0]["range"] == [-500.0, 500.0]


def test_channels_of_an_image_and_flattened_tables_have_scales_too() -> None:
    rng = np.random.default_rng(4)
    size = np.array([1e-3, 1.0, 500.0]).reshape(3, 1, 1)
    weight = rng.normal(size=(4, 3, 3, 3)) / size.reshape(1, 3, 1, 1)
    for pads in ((1, 1, 1, 1), (0, 0, 0, 0)):
        out = 6 if any(pads) else 4
        node = Linear("conv", "x", "y", Conv2d((3, 6, 6), (4, out, out), (3, 3), pads=pads), weight, np.zeros(4))
        graph = Graph("channels", ["x"], ["y"], {"x": (3, 6, 6), "y": (4, out, out)}, [node])
        x = size * rng.uniform(-1, 1, (40, 3, 6, 6))
        scaled = scale_inputs(graph, {"x": x}, 1.25, None)
        assert len(scaled.nodes) == 2
        np.testing.assert_allclose(evaluate(scaled, {"x": x})["y"], evaluate(graph, {"x": x})["y"], rtol=1e-9)
    wide = (size.reshape(3, 1) * np.ones((1, 2))).reshape(-1)
    flat = Linear("dense", "flat", "y", Dense(6, 5), rng.normal(size=(5, 6)) / wide, np.zeros(5))
    nodes = [Op("flatten", "reshape", ["x"], "flat"), flat]
    graph = Graph("table", ["x"], ["y"], {"x": (3, 2), "flat": (6,), "y": (5,)}, nodes)
    x = size.reshape(3, 1) * rng.uniform(-1, 1, (40, 3, 2))
    for trust in TRUST:
        plan = compile(graph, trust=trust, calibration=x, batch=40)
        assert plan.predicted["seen_error"] < 0.02 * np.ptp(evaluate(graph, {"x": x})["y"]), trust


def scored(deviation: np.ndarray, mean: np.ndarray, first: str) -> Graph:
    """A network on scaled features that reads them twice: an autoencoder's error, a skip, or rows of one length."""
    features, rng = len(mean), np.random.default_rng(4)
    b = Builder((features,))
    b.op("reshape", (features, 1, 1))
    each = Conv2d((features, 1, 1), (features, 1, 1), (1, 1), groups=features)
    weight, bias = (1.0 / deviation).reshape(-1, 1, 1, 1), -mean / deviation
    b.graph.shapes["scaled"] = (features, 1, 1)
    b.graph.nodes.append(Linear("scaler", b.at, "scaled", each, weight, bias))
    b.at = "scaled"
    b.op("reshape", (features,))
    x = b.at
    if first == "row":
        length = b.op("square").op("reduce_sum", (1,), axes=[0]).op("sqrt").op("broadcast", (features,)).at
        b.at = x
        b.op("div", others=[length])
        return b.dense(3).done()
    b.dense(6, gain=3.0).op("relu").dense(features, gain=float(rng.uniform(2, 3)))
    if first == "skip":
        return b.op("add", others=[x]).dense(3).done()
    return b.op("sub", others=[x]).op("square").op("reduce_mean", (1,), axes=[0]).done()


@pytest.mark.parametrize("first", ["score", "skip", "row"])
@pytest.mark.parametrize("trust", ["client-aided", "two-party"])
def test_features_that_others_read_beside_layers_have_scales_of_their_own(trust: str, first: str) -> None:
    x, deviation, mean = table(3, 160)
    graph = scored(deviation, mean, first)
    plan = compile(graph, trust=trust, calibration=x[:120], batch=40)
    assert plan.predicted["precision"]["reached"] >= 7
    result = run_encrypted(Model(plan), x[120:], transport="pipe")
    kept = np.setdiff1d(np.arange(40), result.out_of_range)
    assert len(kept) > 30 and share(graph, x[120:][kept], result.output[kept]) < 0.02


def test_a_layer_has_factors_of_an_input_that_others_read_as_it_is() -> None:
    x, deviation, mean = table(3, 60)
    graph = standardised(deviation, mean, 5)
    graph.shapes |= {"flag": (12,), "all": (15,)}
    graph.nodes += [
        Op("flag", "relu", ["x"], "flag"),
        Op("all", "concat", [graph.outputs[0], "flag"], "all", {"axis": 0}),
    ]
    graph.outputs = ["all"]
    scaled = scale_inputs(graph, {"x": x}, 1.25, None)
    assert next(n for n in scaled.nodes if n.output == "flag").inputs == ["x"]
    assert next(n for n in scaled.nodes if isinstance(n, Linear)).input != "x"
    np.testing.assert_allclose(evaluate(scaled, {"x": x})["all"], evaluate(graph, {"x": x})["all"], rtol=1e-9)


def test_what_a_client_is_told_of_features_follows_from_the_data_alone() -> None:
    x, deviation, mean = table(7, 60, off=40.0)
    told = set()
    for seed in range(4):
        plan = compile(standardised(deviation, mean, seed), trust="two-party", calibration=x)
        (head,) = [s for s in plan.public_part().document["stages"] if s["kind"] == "client"][:1]
        told.add(
            json.dumps([{k: v for k, v in op.items() if k in ("op", "pads", "value", "weights")} for op in head["ops"]])
        )
        factors, shifts = next(op["weights"] for op in head["ops"] if op["op"] == "interpolate")
        assert all(np.log2(f) == round(np.log2(f)) for f in factors)
        # and centres have few bits: multiples of a power of two near the feature's size
        assert any(shifts) and all(np.frexp(s)[0] * 2**10 % 1 == 0 for s in shifts)
    assert len(told) == 1

"""Weights rounded with error feedback: the same bytes, smaller errors on rows that rounding has not seen."""

from __future__ import annotations

import importlib
import itertools

import hushnet
import numpy as np
import pytest
from hushnet import data, zoo
from hushnet.graph import Graph, Linear
from hushnet.options import made
from hushnet.plan import Plan
from hushnet.planner import compile, validate
from hushnet.planner.compile import _rungs
from hushnet.planner.feedback import LEAST_ROWS, TOGETHER, Moments, parts, passed_on
from hushnet.planner.ranges import plan_geometry
from hushnet.planner.two_party.weights import Weights
from hushnet.reference import two_party as reference
from hushnet.reference.float import evaluate
from hushnet.reference.linear import apply, windows

from tests.planner.planner_graphs import Builder


def pictures(count: int, seed: int, channels: int = 3) -> np.ndarray:
    """Random pictures whose neighbouring pixels are nearly alike, as photos' are."""
    rng = np.random.default_rng(seed)
    coarse = np.repeat(np.repeat(rng.normal(size=(count, channels, 4, 4)), 2, axis=2), 2, axis=3)
    return np.maximum(coarse + 0.3 * rng.normal(size=coarse.shape), 0)


def network() -> Graph:
    return Builder((3, 8, 8), seed=2).conv(8).op("relu").conv(8).op("relu").dense(4).done()


def planned(rounding: str, bits: int = 5) -> Plan:
    return compile(
        network(), trust="two-party", calibration=pictures(48, 0), weight_bits=bits, most_bits=16, rounding=rounding
    )


def off(plan: Plan, rows: np.ndarray) -> float:
    """The root of the mean square of errors on fresh rows."""
    want = evaluate(network(), {"x": rows})
    got = next(iter(reference.run(plan, rows).values()))
    return float(np.sqrt(np.mean(np.square(got - next(iter(want.values()))))))


def test_fed_back_errors_are_smaller_at_the_same_bytes_and_the_statement_holds() -> None:
    fresh = pictures(300, 1)
    nearest, fed = planned("nearest"), planned("feedback")
    assert off(fed, fresh) < off(nearest, fresh) / 2
    for key in ("bytes_up", "bytes_down", "rounds", "setup_bytes"):
        assert fed.predicted[key] == nearest.predicted[key]
    validate(fed)
    want = next(iter(evaluate(network(), {"x": fresh}).values()))
    got = next(iter(reference.run(fed, fresh, units=np.random.default_rng(2)).values()))
    assert (np.abs(got - want).max(axis=1) > fed.predicted["max_error"]).mean() <= 0.01


def test_weights_stay_within_their_bits_and_a_plan_is_the_same_twice() -> None:
    one, two = planned("feedback"), planned("feedback")
    assert one.document == two.document
    for _, stage in one.linear_stages():
        weight = one.weights[stage["weights"]]
        assert np.abs(weight).max() <= 15 and (weight == two.weights[stage["weights"]]).all()


def test_without_correlations_rounding_is_to_nearest() -> None:
    weights = np.random.default_rng(0).normal(size=(1, 12, 3)) * 9
    found, power = passed_on(weights, np.eye(12)[None], 100)
    assert (found == np.rint(weights)).all()
    assert power == pytest.approx(np.square(weights - np.rint(weights)).sum())
    assert np.abs(passed_on(weights * 99, np.eye(12)[None], 7)[0]).max() == 7


def test_inputs_that_go_together_take_back_one_anothers_errors() -> None:
    """Two inputs that are always equal: of the sum of their weights at most half a unit is lost."""
    geometry = Linear("fc", "x", "y", Builder((40,)).dense(3).done().nodes[0].geometry, np.zeros((3, 40)), np.zeros(3))
    rng = np.random.default_rng(1)
    x = np.repeat(rng.normal(size=(2000, 20)), 2, axis=1)
    moments = Moments()
    layer = Linear("fc", "x", "y", geometry.geometry, rng.normal(size=(3, 40)) * 5, np.zeros(3))
    moments.watch(Graph("g", ["x"], ["y"], {"x": (40,), "y": (3,)}, [layer]), {"x": x}, 0, len(x))
    integers, shift, noise = moments.rounded(layer, layer.weight, 127)
    pairs = (layer.weight - integers).reshape(3, 20, 2).sum(axis=2)
    assert (
        np.abs(pairs).max() < 0.6
        and np.abs((layer.weight - np.rint(layer.weight)).reshape(3, 20, 2).sum(2)).max() > 0.8
    )
    # the bias takes what is left of the mean
    seen, power = x[::2], np.square(x[::2]).sum(axis=1)
    counted = 1 / (1 + power / power.mean())
    assert np.allclose(shift, (layer.weight - integers) @ np.average(seen, axis=0, weights=counted))
    # and what is left of the rest is what was said of it, but for the damping
    left = np.sqrt(np.average(np.square((layer.weight - integers) @ seen.T).mean(axis=0), weights=counted))
    assert left <= noise <= 1.3 * left


def test_a_few_long_inputs_do_not_decide_the_roundings_of_the_rest() -> None:
    """Every fiftieth input is fifty times as long, and of a direction of its own, as tokens of a transformer are."""
    rng = np.random.default_rng(2)
    x = rng.normal(size=(2000, 20)) @ rng.normal(size=(20, 40)) / 4
    x[::50] = 50 * rng.normal(size=(40, 40))
    geometry = Builder((40,)).dense(30).done().nodes[0].geometry
    layer = Linear("fc", "x", "y", geometry, rng.normal(size=(30, 40)) * 3, np.zeros(30))
    moments = Moments()
    moments.watch(Graph("g", ["x"], ["y"], {"x": (40,), "y": (30,)}, [layer]), {"x": x}, 0, len(x))
    usual = np.delete(x, np.s_[::50], axis=0)

    def error(integers: np.ndarray) -> float:
        return float(np.square((layer.weight - integers) @ usual.T).mean())

    integers, _, _ = moments.rounded(layer, layer.weight, 127)
    # 2.4 times that of rounding to nearest, were they to count by their squares
    assert error(integers) < error(np.rint(layer.weight))


@pytest.mark.parametrize("bits", [5, 8])
def test_finer_are_the_ones_whose_roundings_do_less(bits: int) -> None:
    """Measured on inputs: what rounded weights do, and what truncations to so many bits behind the point do."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=(2000, 60))
    geometry = Builder((60,)).dense(20).done().nodes[0].geometry
    layer = Linear("fc", "x", "y", geometry, rng.normal(size=(20, 60)), np.zeros(20))
    moments = Moments()
    moments.watch(Graph("g", ["x"], ["y"], {"x": (60,), "y": (20,)}, [layer]), {"x": x}, 0, len(x))
    weights = Weights(bits, moments)
    found = weights(layer, 1.0)
    off = float(np.square(x @ (layer.weight - np.ldexp(found.weight, -found.frac_bits)).T).mean())
    told = []
    for fine in range(12):
        coarse = np.ldexp(np.floor(np.ldexp(x, fine) + rng.uniform(size=x.shape)), -fine)
        ratio = off / float(np.square((coarse - x) @ layer.weight.T).mean())
        told.append(weights.finer(layer, 1.0, fine, 0))
        assert told[-1] == (ratio <= 1) or 0.5 < ratio < 2
    # fewer bits in activations than in weights would be counted as finer weights, without moments
    assert True in told and False in told and Weights(bits).finer(layer, 1.0, 11, bits - 1)


@pytest.mark.parametrize("groups", [1, 3])
def test_windows_are_what_a_convolution_sums(groups: int) -> None:
    builder = Builder((3, 8, 8), seed=3)
    layer = builder.conv(6, groups=groups).done().nodes[0] if groups > 1 else builder.conv(6).done().nodes[0]
    x, geometry = pictures(2, 5), plan_geometry(layer.geometry)
    found = windows(geometry, x, 50, np.random.default_rng(0))
    sums = np.einsum("ngk,gok->ngo", found, layer.weight.reshape(groups, 6 // groups, -1)).reshape(50, 6)
    every = apply(geometry, layer.weight, x).transpose(0, 2, 3, 1).reshape(-1, 6)
    assert all(np.isclose(every, row).all(axis=1).any() for row in sums)


def test_parts_cover_all_inputs_and_few_rows_take_no_part() -> None:
    for inputs in (1, TOGETHER, TOGETHER + 1, 5 * TOGETHER - 1):
        found = list(parts(inputs))
        assert found[0][0] == 0 and found[-1][1] == inputs and max(b - a for a, b in found) <= TOGETHER
        assert all(before[1] == after[0] for before, after in itertools.pairwise(found))
    few, enough = (
        _rungs(network(), made("two-party", {"calibration": pictures(n, 0)}), ()) for n in (LEAST_ROWS - 1, LEAST_ROWS)
    )
    fed = [[rung for rung in rungs if "feedback" in repr(rung)] for rungs in (few, enough)]
    assert few and not fed[0] and len(fed[1]) > 2
    plan = compile(network(), trust="two-party", calibration=pictures(LEAST_ROWS - 1, 0), precision=12)
    layer = next(n for n in network().nodes if isinstance(n, Linear))
    stage = plan.linear_stages()[0][1]
    fine = plan.tensors[stage["out"]]["frac_bits"] - plan.tensors[stage["in"]]["frac_bits"]
    assert (plan.weights[stage["weights"]] == np.rint(np.ldexp(layer.weight, fine))).all()


def test_what_several_precisions_share_is_made_once(monkeypatch):
    planned, prepared = [], []
    two_party = importlib.import_module("hushnet.planner.two_party.compile")
    rounded, prepare = Moments.rounded, two_party.prepare

    def counted(self, layer, scaled, limit):
        planned.append((layer.output, limit, scaled.tobytes()))
        return rounded(self, layer, scaled, limit)

    monkeypatch.setattr(Moments, "rounded", counted)
    monkeypatch.setattr(two_party, "prepare", lambda *a: prepared.append(a[3]) or prepare(*a))
    rows = data.synthetic((1, 28, 28), 64, seed=1)
    model = hushnet.compile(zoo.build("mnist-cnn"), trust="two-party", calibration=rows)
    assert len({limit for _, limit, _ in planned}) > 2, "one precision only was tried"
    assert len(set(planned)) == len(planned)
    assert prepared == [None], "the plan without feedback prepared what those with it took"
    assert model.plan.part["ring_bits"]

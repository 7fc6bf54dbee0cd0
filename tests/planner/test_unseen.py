"""Roots, logarithms and quotients are steeper on rows to come than on those that were seen: statements know."""

from __future__ import annotations

import importlib
from collections.abc import Mapping

import numpy as np
import pytest
from hushnet.graph import Graph
from hushnet.planner import compile, unseen
from hushnet.reference import numpy as fixed
from hushnet.reference.float import evaluate

from tests.planner.planner_graphs import Builder
from tests.planner.test_statement import planned

ROWS, SETS = 10_000, 16
# of function, what is in front of it, whether a layer follows, and rows of calibration
CASES = [("log", "abs", False, 50), ("sqrt", "relu", False, 100), ("log", "relu", True, 50), ("sqrt", "abs", True, 100)]


def network(last: str, front: str, *, inner: bool = False, first: str = "relu") -> Graph:
    """A function that is steep next to zero, of what is never negative; at the end or in front of a layer."""
    b = Builder((8,), seed=3).dense(12).op(first).dense(4, gain=3.0).op(front).op("affine", mul=1.0, add=1e-3).op(last)
    return (b.dense(2) if inner else b).done()


def errors(plan, graph: Graph, x: np.ndarray) -> np.ndarray:
    (name,) = graph.outputs
    off = fixed.run(plan, x)[name] - evaluate(graph, {"x": x})[name]
    return np.abs(off).max(axis=1)


@pytest.mark.parametrize(("last", "front", "inner", "count"), CASES, ids=["-".join(map(str, c)) for c in CASES])
def test_few_rows_state_enough_of_steep_functions(
    last: str, front: str, inner: bool, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of sets of calibration rows hardly one states less than what 999 of 1000 other rows keep."""
    graph = network(last, front, inner=inner)

    def judged() -> tuple[int, float, list[float]]:
        """Sets that state too little, the share of all rows beyond, and statements by what 999 rows of 1000 keep."""
        beyond, stated = [], []
        for seed in range(SETS):
            x = np.random.default_rng(seed).uniform(-1, 1, (count + ROWS, 8))
            plan = compile(graph, calibration=x[:count], batch=8, margin=2.0, weight_bits=8)
            off, most = errors(plan, graph, x[count:]), plan.predicted["max_error"]
            beyond.append(float((off > most).mean()))
            stated.append(most / float(np.quantile(off, 0.999)))
        return sum(share > 0.001 for share in beyond), float(np.mean(beyond)), stated

    broken, share, stated = judged()
    assert broken <= 1 and share < 0.0005, (broken, share)
    # and they say something
    assert np.median(stated) < 4 and max(stated) < 40, stated
    # without drawn rows, statements are those of the rows that were seen
    monkeypatch.setattr(importlib.import_module("hushnet.planner.compile"), "unseen", lambda *_: {})
    without, more, _ = judged()
    assert without >= 3 and without > 2 * broken and more > 3 * share, (without, more)


# trust model, function, what is in front of it, whether a layer follows, and rows of calibration
ON_SHARES = [
    ("two-party", "log", "abs", False, 50),
    ("two-party", "sqrt", "relu", False, 100),
    ("two-party", "sqrt", "abs", True, 100),
    ("non-interactive", "log", "relu", False, 40),
]


@pytest.mark.parametrize(("trust", "last", "front", "inner", "count"), ON_SHARES, ids=lambda v: str(v))
def test_other_trust_models_state_enough_of_steep_functions(
    trust: str, last: str, front: str, inner: bool, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where clients compute them from opened values, and where both parties do on shares."""
    graph = network(last, front, inner=inner, first="square" if trust == "non-interactive" else "relu")
    module = f"hushnet.planner.{'two_party.compile' if trust == 'two-party' else 'non_interactive.batch'}"

    def shares_beyond() -> np.ndarray:
        beyond = []
        for seed in range(3 if trust == "non-interactive" else 6):
            x = np.random.default_rng(seed).uniform(-1, 1, (count + 4000, 8))
            # the noise of the packed engine is not in what is planned
            engine = {"engine": "batch"} if trust == "non-interactive" else {}
            plan = compile(graph, trust=trust, calibration=x[:count], batch=8, margin=2.0, **engine)
            off = np.abs(planned(plan, x[count:]) - evaluate(graph, {"x": x[count:]})[graph.outputs[0]])
            most = plan.predicted["max_error"]
            beyond.append(float((off.reshape(4000, -1).max(axis=1) > most).mean()))
            assert most < 15 * np.quantile(off.reshape(4000, -1).max(axis=1), 0.999)
        return np.array(beyond)

    held = shares_beyond()
    monkeypatch.setattr(importlib.import_module(module), "from_samples", lambda *_: {})
    without = shares_beyond()
    assert (held > 0.001).sum() <= 1 and held.mean() <= 0.0005
    assert trust == "non-interactive" or (without > 0.001).sum() >= 2
    assert (held <= without).all() and without.mean() > 2 * held.mean()


def test_what_is_steep_is_looked_for_behind_layers() -> None:
    def found(graph: Graph) -> Mapping[str, unseen.Steep]:
        return unseen.steeply(graph)

    graph = network("log", "abs", inner=True)
    (steep,) = found(graph).values()
    assert steep.sources == ("dense3_out",) and steep.layers == ("dense7_out",)
    assert [n.output for n in steep.nodes] == ["abs4_out", "affine5_out", "log6_out", "dense7_out"]
    # what a client computes from inputs alone has no errors
    assert not found(Builder((4,)).op("sqrt").dense(2).done())
    assert not found(Builder((4,)).dense(3).op("relu").done())
    # jumps have a statement of their own
    assert not found(Builder((4,)).dense(3).op("sqrt").op("floor").done())
    assert found(Builder((4,)).dense(3).op("floor").op("sqrt").done()) == {}
    # an input beside a layer is a source, of which the client knows all
    b = Builder((4,)).dense(4)
    (steep,) = found(b.op("div", others=("x",)).done()).values()
    assert steep.sources == ("dense1_out", "x")
    # constants have no operands to speak of
    b = Builder((4,)).dense(4)
    b.op("affine", mul=0.0, add=1.0).op("div", others=("dense1_out",))
    (steep,) = found(b.done()).values()
    assert steep.sources == ("dense1_out",) and [n.output for n in steep.nodes] == ["affine2_out", "div3_out"]
    exact = {"dense1_out": np.random.default_rng(1).uniform(1, 2, (50, 4))}
    most = unseen.unseen(b.graph, {b.at: steep}, {"dense1_out": exact["dense1_out"] + 0.01}, exact)[b.at]
    assert 0.01 < most < 2 * 0.01 / 0.9**2


def test_errors_of_layers_behind_steep_functions_count() -> None:
    graph = network("log", "abs", inner=True)
    found = unseen.steeply(graph)
    x = np.random.default_rng(1).uniform(-1, 1, (100, 8))
    whole = Graph(graph.name, graph.inputs, ["dense3_out", "dense7_out"], graph.shapes, graph.nodes)
    exact = evaluate(whole, {"x": x})
    (most,) = unseen.unseen(graph, found, exact, exact).values()
    assert most < 1e-12
    off = exact | {"dense7_out": exact["dense7_out"] + 0.25}
    (most,) = unseen.unseen(graph, found, off, exact).values()
    assert most == pytest.approx(0.25 * (1.5 + 3 / 10))


def test_drawn_rows_lie_as_densely_as_calibration_rows() -> None:
    rng = np.random.default_rng(1)
    values = np.stack([rng.uniform(0, 1, 50), rng.normal(size=50), rng.integers(0, 3, 50), np.full(50, 0.5)], axis=1)
    first, second = rng.integers(0, 50, (2, 40_000))
    found = unseen.drawn(values, first, second, rng.uniform(-1, 1, 40_000) * unseen.reach(50))
    # a density that ends is as large at its end, and whole numbers stay what they are
    assert found[:, 0].min() > -0.02 and 0.06 < (found[:, 0] < 0.1).mean() < 0.14
    assert set(found[:, 2]) == {0.0, 1.0, 2.0} and set(found[:, 3]) == {0.5}
    assert found[:, 1].std() == pytest.approx(values[:, 1].std(), rel=0.15)
    # hundreds of rows need less of what lies between them, and one row has nothing beside it
    assert unseen.reach(1000) < unseen.reach(50) < 1
    one = np.array([[0.3, 2.0]])
    assert np.array_equal(unseen.drawn(one, *np.zeros((2, 5), int), np.ones(5)), np.repeat(one, 5, axis=0))


def test_where_few_rows_can_be_drawn_or_none_has_an_error_nothing_is_stated(monkeypatch: pytest.MonkeyPatch) -> None:
    b = Builder((4,)).dense(1)
    graph = b.op("log").done()
    found = unseen.steeply(graph)
    near = {"dense1_out": np.linspace(0, 1, 100)[:, None]}
    # a logarithm that is not kept from zero: errors have no bound
    assert unseen.unseen(graph, found, {"dense1_out": near["dense1_out"] - 0.01}, near) == {}
    far = {"dense1_out": 1 + near["dense1_out"]}
    assert unseen.unseen(graph, found, {"dense1_out": far["dense1_out"] - 0.01}, far)
    monkeypatch.setattr(unseen, "MOST_VALUES", 1500)
    assert unseen.steeply(graph) == {}

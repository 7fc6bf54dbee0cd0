"""Normalisations as JAX exports them: a variance that is a difference, a gain in front of the values."""

from __future__ import annotations

import numpy as np
import pytest
from hushnet.graph import Conv2d, Graph, Linear, Op
from hushnet.planner import compile
from hushnet.planner.two_party import curves, prepared
from hushnet.planner.two_party.rows import settled
from hushnet.planner.two_party.variance import centred
from hushnet.reference import two_party as reference
from hushnet.reference.float import evaluate

from tests.planner.planner_graphs import Builder

ROWS, WIDTH = 8, 16


def network(*, summed: bool = True, factor: float = 1.0) -> Graph:
    """Rows of very different variance beside a mean of three, normalised with gains, in front of a layer."""
    b = Builder((6,), seed=4).dense(ROWS * WIDTH)
    first = b.graph.nodes[-1]
    assert isinstance(first, Linear)
    first.weight[:] *= np.repeat(np.geomspace(20.0, 0.6, ROWS), WIDTH)[:, None]
    first.bias[:] = 3.0
    values = b.op("reshape", (ROWS, WIDTH)).at

    def mean() -> str:
        if not summed:
            return b.op("reduce_mean", (ROWS,), axes=[1]).at
        return b.op("reduce_sum", (ROWS,), axes=[1]).op("affine", mul=factor / WIDTH, add=0.0).at

    average = mean()
    power = b.op("square").at
    b.at = values
    b.op("square")
    mean()
    b.op("sub", others=[power]).op("clip", min=0.0, max=None).op("affine", mul=1.0, add=1e-6).op("sqrt")
    root = b.op("reshape", (ROWS, 1)).at
    b.op("affine", mul=0.0, add=1.0).op("div", others=[root])
    b.op("broadcast", (ROWS, WIDTH)).op("reshape", (ROWS, 1, WIDTH))
    shape = (ROWS, 1, WIDTH)
    gain = np.random.default_rng(1).uniform(0.5, 2.0, (ROWS, 1, 1, 1))
    geometry = Conv2d(shape, shape, (1, 1), (1, 1), (0, 0, 0, 0), (1, 1), ROWS)
    b.graph.shapes["gained"] = shape
    b.graph.nodes.append(Linear("gain", b.at, "gained", geometry, gain, np.zeros(ROWS)))
    b.at = "gained"
    factors = b.op("reshape", (ROWS, WIDTH)).at
    b.at = average
    b.op("reshape", (ROWS, 1)).op("broadcast", (ROWS, WIDTH))
    copies, b.at = b.at, values
    b.op("sub", others=[copies]).op("mul", others=[factors]).op("reshape", (ROWS * WIDTH,))
    return b.dense(4).done()


def rows(count: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-1, 1, (count, 6))


@pytest.mark.parametrize("summed", [True, False])
def test_a_variance_is_a_mean_of_squares_and_the_root_one_function_of_it(summed: bool) -> None:
    graph, x = network(summed=summed), {"x": rows(20, 0)}
    made = centred(graph)
    assert np.allclose(evaluate(made, x)[made.outputs[0]], evaluate(graph, x)[graph.outputs[0]], rtol=1e-9)
    ops = [n.op for n in made.nodes if isinstance(n, Op)]
    assert ops.count("reduce_mean") == 2 and ops.count("square") == 1 and not {"reduce_sum", "clip"} & set(ops)
    planned = settled(curves.fused(made))
    functions = [n for n in planned.nodes if isinstance(n, Op) and n.op == "function"]
    assert [f.attrs["curve"].body[-1].op for f in functions] == ["div"], "the root has no stage of its own"
    # values meet their own reciprocal root, which bounds the product, and the gain comes behind
    (product,) = (n for n in planned.nodes if isinstance(n, Op) and n.op == "mul")
    assert product.attrs["most"] >= np.sqrt(WIDTH)


@pytest.mark.parametrize("change", ["another factor", "another tensor", "other axes"])
def test_what_is_no_variance_stays(change: str) -> None:
    graph = network(factor=1.5 if change == "another factor" else 1.0)
    nodes = [n for n in graph.nodes if isinstance(n, Op)]
    sums, squares = ([n for n in nodes if n.op == op] for op in ("reduce_sum", "square"))
    if change == "another tensor":
        graph.nodes.insert(2, Op("moved", "affine", [squares[1].inputs[0]], "moved", {"mul": 1.0, "add": 0.1}))
        graph.shapes["moved"] = (ROWS, WIDTH)
        squares[1].inputs[0] = "moved"
    if change == "other axes":
        graph.shapes |= {"square_of": (WIDTH, ROWS), "turned": (WIDTH, ROWS)}
        graph.nodes.insert(2, Op("turned", "reshape", [squares[1].inputs[0]], "turned", {}))
        squares[1].inputs[0], graph.shapes[squares[1].output] = "turned", (WIDTH, ROWS)
        sums[1].attrs["axes"] = [0]
    x = {"x": rows(20, 0)}
    made = centred(graph)
    assert [n.op for n in made.nodes if isinstance(n, Op)].count("square") == 2
    with np.errstate(all="ignore"):
        want, got = (evaluate(g, x)[g.outputs[0]] for g in (graph, made))
    assert np.allclose(got, want, equal_nan=True)


def off(graph: Graph) -> float:
    """The root of the mean square of a plan's errors on fresh rows, over that of the results."""
    plan = compile(graph, trust="two-party", calibration=rows(40, 1), weight_bits=12, margin=1.5)
    x = rows(60, 2)
    want = next(iter(evaluate(graph, {"x": x}).values()))
    got = next(iter(reference.run(plan, x).values()))
    return float(np.sqrt(np.mean(np.square(got - want)) / np.mean(np.square(want))))


def test_small_variances_keep_their_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = network()
    fine = off(graph)
    monkeypatch.setattr(prepared, "centred", lambda g: g)
    assert fine < off(graph) / 4

"""Weights that a public mask hides from every row: they have no effect on the answer, nor on the layer's scale."""

from __future__ import annotations

import hushnet
import numpy as np
import pytest
from hushnet.graph import Conv2d, Graph, Linear, Op
from hushnet.planner.two_party.hidden import without_hidden

from tests.frontend.harness import Net, expected

HEADS, ROWS, COUNT, WIDTH = 2, 3, 5, 4
# what no row sees, and what one row does not see
PADDED, ONE_ROW = np.zeros((ROWS, COUNT), bool), np.zeros((ROWS, COUNT), bool)
PADDED[:, 3:] = True
ONE_ROW[0, 3:] = True
MASKS = {
    "added": (PADDED, (1, ROWS, COUNT)),
    "one row for all": (PADDED[:1], (1, 1, COUNT)),
    "a head each": (np.stack([PADDED, ONE_ROW]), (1, HEADS, ROWS, COUNT)),
}


def attention(kind: str, values: np.ndarray, *, select: bool = False) -> tuple[Net, dict[str, np.ndarray]]:
    mask, shape = MASKS[kind]
    rng = np.random.default_rng(3)
    net = Net((HEADS, ROWS, WIDTH), seed=2)
    scores = net.op("MatMul", "x0", net.weight(WIDTH, COUNT))
    if select:
        net.op("Where", net.constant(mask.reshape(shape), bool), net.constant(-np.inf), scores)
    else:
        net.op("Add", scores, net.constant(np.where(mask, -10000.0, 0.0).reshape(shape)))
    net.op("MatMul", net.op("Softmax", net.last, axis=-1), net.constant(values))
    return net, {"x0": rng.normal(size=(24, HEADS, ROWS, WIDTH)).astype(np.float32)}


def values(kind: str, *shape: int) -> np.ndarray:
    """Numbers around one, and thousands where no row looks (of the first head alone where each has a mask)."""
    found = np.random.default_rng(4).normal(size=(*shape, COUNT, WIDTH))
    found[(0, slice(3, None)) if kind == "a head each" else (..., slice(3, None), slice(None))] = 1000.0
    return found


@pytest.mark.parametrize("select", [False, True], ids=["added", "selected"])
@pytest.mark.parametrize(("kind", "shape"), [("added", ()), ("one row for all", (HEADS,)), ("a head each", (HEADS,))])
def test_what_no_row_sees_takes_no_bit_of_what_rows_see(kind: str, shape: tuple[int, ...], select: bool):
    net, data = attention(kind, values(kind, *shape), select=select)
    model = hushnet.compile(net.model(), trust="two-party", calibration=data, weight_bits=10, method="cheetah")
    want = expected(net.model(), {"x0": data["x0"][:4]})[0]
    got = hushnet.run(model, data["x0"][:4]).output
    (errors,) = model.plan.predicted["output_errors"].values()
    assert np.abs(got.reshape(want.shape) - want).max() <= errors["max_error"] <= 0.05


def rows(mask: np.ndarray, weight: np.ndarray, geometry: Conv2d) -> Graph:
    """Scores plus a constant, a softmax over channels, a layer."""
    channels, height, _ = geometry.input
    shapes = dict.fromkeys(("x", "mask", "sum", "rows"), geometry.input) | {"y": geometry.output, "one": (1, 1, 1)}
    shapes |= {"first": (1, 1, 1), "column": (1, 1, 1), "line": (channels * height, 1, 1)}
    taps = [[float(v) for v in mask.reshape(-1)]]
    nodes = [
        Op("first", "slice", ["x"], "first", {"starts": [0] * 3, "ends": [1] * 3, "axes": [0, 1, 2], "steps": [1] * 3}),
        Op("one", "affine", ["first"], "one", {"mul": 0.0, "add": 1.0}),
        Op("line", "interpolate", ["one"], "line", {"axis": 0, "indices": [[0] * mask.size], "weights": taps}),
        Op("mask", "reshape", ["line"], "mask"),
        Op("sum", "add", ["x", "mask"], "sum"),
        Op("rows", "softmax", ["sum"], "rows", {"axis": 0}),
        Linear("layer", "rows", "y", geometry, weight, np.zeros(geometry.output[0])),
    ]
    return Graph("rows", ["x"], ["y"], shapes, nodes)


def weights_left(mask: np.ndarray, geometry: Conv2d, limit: float) -> np.ndarray:
    weight = np.full((geometry.output[0], geometry.input[0] // geometry.groups, *geometry.kernel), 7.0)
    graph = rows(mask, weight, geometry)
    cut = without_hidden(graph, {"rows"}, lambda g: dict.fromkeys(g.shapes, limit))
    (layer,) = (n for n in cut.nodes if isinstance(n, Linear))
    assert (weight == 7.0).all()
    return layer.weight != 0


def test_a_weight_stays_where_one_row_may_see_its_value():
    geometry = Conv2d((4, 2, 1), (3, 2, 1), (1, 1))
    mask = np.zeros((4, 2, 1))
    mask[2:], mask[1, 0] = -1000.0, -1000.0
    assert weights_left(mask, geometry, 1.0).all(axis=(0, 2, 3)).tolist() == [True, True, False, False]
    # scores of hundreds may outdo the mask
    assert weights_left(mask, geometry, 450.0).all()
    # a mask of all values hides none
    assert weights_left(np.full((4, 2, 1), -1000.0), geometry, 1.0).all()


def test_groups_lose_their_own_channels():
    geometry = Conv2d((4, 1, 1), (2, 1, 1), (1, 1), groups=2)
    mask = np.zeros((4, 1, 1))
    mask[1] = -1000.0
    left = weights_left(mask, geometry, 1.0)
    assert left[:, :, 0, 0].tolist() == [[True, False], [True, True]]


def biased(bias: list[float], weight: float) -> Linear:
    """The layer of scores of one network: scores of three channels, their softmax, a layer of sevens."""
    scores = Conv2d((2, 4, 1), (3, 4, 1), (1, 1))
    shapes = {"x": (2, 4, 1), "scores": (3, 4, 1), "moved": (4, 3), "rows": (4, 3), "back": (3, 4, 1), "y": (2, 4, 1)}
    shapes |= {"flat": (3, 4), "order": (3, 4)}
    last = Conv2d((3, 4, 1), (2, 4, 1), (1, 1))
    nodes = [
        Linear("scores", "x", "scores", scores, np.full((3, 2, 1, 1), weight), np.array(bias)),
        Op("flat", "reshape", ["scores"], "flat"),
        Op("moved", "transpose", ["flat"], "moved", {"perm": [1, 0]}),
        Op("rows", "softmax", ["moved"], "rows", {"axis": 1}),
        Op("order", "transpose", ["rows"], "order", {"perm": [1, 0]}),
        Op("back", "reshape", ["order"], "back"),
        Linear("layer", "back", "y", last, np.full((2, 3, 1, 1), 7.0), np.zeros(2)),
    ]
    graph = Graph("biased", ["x"], ["y"], shapes, nodes)
    first, second = (
        n
        for n in without_hidden(graph, {"rows"}, lambda g: dict.fromkeys(g.shapes, 1.0)).nodes
        if isinstance(n, Linear)
    )
    hidden = first.bias != bias
    assert np.array_equal(second.weight == 0, np.broadcast_to(hidden[:, None, None], (2, 3, 1, 1)))
    return first


def test_masks_in_biases_stay_there_and_reach_no_further_than_they_must():
    assert biased([0.0, 0.5, -10000.0], 1.0).bias.tolist() == [0.0, 0.5, -32.0]
    assert biased([-3.4e38, 0.5, -10000.0], 1.0).bias.tolist() == [-32.0, 0.5, -32.0]
    # a trained bias of a network that reads thousands is none
    assert biased([0.0, 0.5, -1500.0], 400.0).bias.tolist() == [0.0, 0.5, -1500.0]

"""Softmax whose division moves behind a product of matrices, against ONNX Runtime and within the stated errors."""

from __future__ import annotations

import math

import hushnet
import numpy as np
import pytest
from hushnet.graph import Op
from hushnet.planner.two_party import means, rows
from hushnet.planner.two_party.curves import Curve
from hushnet.reference import two_party as reference

from tests.frontend.harness import Net, expected

ROWS, HEADS, EACH = 16, 2, 3


def attention(
    net: Net, *, each: int = EACH, gain: float = 1.0, mask: str | None = None, kind: str = "heads", last: bool = True
) -> None:
    """Attention of a sequence with itself and a layer behind it."""
    rows, width = net.shapes[0]
    parts = []
    for perm in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]):
        net.op("MatMul", "x0", net.weight(width, HEADS * each))
        parts.append(net.op("Transpose", net.op("Reshape", net.last, net.ints(-1, rows, HEADS, each)), perm=perm))
    scores = net.op("Mul", net.op("MatMul", parts[0], parts[1]), net.constant(gain * each**-0.5))
    if mask is not None:
        scores = net.op("Add", scores, mask)
    shares = net.op("Softmax", scores, axis=-1)
    if kind == "moved":
        # what exporters leave between: all of it changes nothing
        shares = net.op("Cast", net.op("Dropout", net.op("Identity", shares)), to=1)
        shares = net.op(
            "Transpose", net.op("Reshape", shares, net.ints(-1, HEADS, 1, rows, rows)), perm=[0, 2, 1, 3, 4]
        )
        shares = net.op("Reshape", shares, net.ints(-1, HEADS, rows, rows))
    if kind == "right":
        turned = net.op("Transpose", net.op("Softmax", net.op("Transpose", scores, perm=[0, 1, 3, 2]), axis=2))
        turned = net.op("Transpose", turned, perm=[3, 2, 1, 0])
        values = net.op("Transpose", parts[2], perm=[0, 1, 3, 2])
        mixed = net.op("Transpose", net.op("MatMul", values, turned), perm=[0, 3, 1, 2])
    else:
        mixed = net.op("Transpose", net.op("MatMul", shares, parts[2]), perm=[0, 2, 1, 3])
    net.op("Reshape", mixed, net.ints(-1, rows, HEADS * each))
    if kind == "read twice":
        mixed, summed = net.last, net.op("ReduceSum", shares, net.ints(1), keepdims=0)
        net.op("Concat", mixed, summed, axis=-1)
        net.op("MatMul", net.last, net.weight(HEADS * each + rows, 4))
    elif last:
        net.op("MatMul", net.last, net.weight(HEADS * each, 4))


def sequences(count: int, width: int = 6, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(count, ROWS, width)).astype(np.float32)


def compiled(net: Net, data: dict[str, np.ndarray], **options):
    return hushnet.compile(net.model(), trust="two-party", calibration=data, **{"weight_bits": 10, **options})


def is_last(model) -> bool:
    """Whether the plan divides behind the product, which its notes say."""
    (told,) = [[n for n in model.plan.document["notes"] if "divided by their sums" in n]]
    within = [s for s in model.plan.stages if s.get("within")]
    assert bool(told) == bool(within)
    for stage in within:
        # one product an element of a head, not one an element of the scores
        assert math.prod(model.plan.tensors[stage["out"]]["shape"]) == HEADS * ROWS * EACH
    return bool(told)


def off(net: Net, model, data: dict[str, np.ndarray]) -> tuple[float, float, float]:
    """The largest difference from ONNX Runtime, the stated error, and the largest output."""
    want = expected(net.model(), data)[0]
    got = hushnet.run(model, data).output
    (errors,) = model.plan.predicted["output_errors"].values()
    return float(np.abs(got.reshape(want.shape) - want).max()), errors["max_error"], float(np.abs(want).max())


@pytest.mark.parametrize(
    ("gain", "kind"), [(1.0, "heads"), (12.0, "heads"), (0.01, "heads"), (2.0, "moved"), (2.0, "right")]
)
def test_ordinary_sharp_and_flat_rows_are_within_the_stated_error(gain: float, kind: str):
    net, x = Net((ROWS, 6)), {"x0": sequences(12)}
    attention(net, gain=gain, kind=kind)
    model = compiled(net, x)
    assert is_last(model)
    error, stated, largest = off(net, model, {"x0": sequences(2, seed=2)})
    assert error <= stated <= 0.1 * largest


MASKS = {
    "causal": np.triu(np.full((ROWS, ROWS), -10000.0), 1),
    "infinite": np.triu(np.full((ROWS, ROWS), -np.inf), 1),
    # a row that sees nothing is a row that sees everything
    "a whole row": np.where(np.arange(ROWS)[:, None] == 3, -10000.0, 0.0) * np.ones((ROWS, ROWS)),
}


@pytest.mark.parametrize("kind", [*MASKS, "input"])
def test_masked_rows_are_within_the_stated_error(kind: str):
    data = {"x0": sequences(12)}
    net = Net((ROWS, 6), (1, 1, ROWS)) if kind == "input" else Net((ROWS, 6))
    if kind == "input":
        lengths = 1 + np.arange(12) % ROWS
        data["x1"] = np.where(np.arange(ROWS) < lengths[:, None], 0.0, -10000.0).astype(np.float32)[:, None, None]
    attention(net, gain=3.0, mask="x1" if kind == "input" else net.constant(MASKS[kind]))
    model = compiled(net, data)
    assert is_last(model)
    error, stated, largest = off(net, model, {k: v[:3] for k, v in data.items()})
    assert error <= stated <= 0.1 * largest


def test_heads_larger_than_rows_and_softmax_that_is_read_elsewhere_keep_the_order():
    x = {"x0": sequences(12)}
    for options in ({"each": ROWS + 1}, {"kind": "read twice"}, {"last": False}):
        net = Net((ROWS, 6))
        attention(net, **options)
        model = compiled(net, x)
        assert not is_last(model)
        error, stated, _ = off(net, model, {"x0": x["x0"][:2]})
        assert error <= stated


def test_a_session_has_every_predicted_byte_and_rows_that_calibration_never_showed():
    """Ranges of sums are proven: sharp rows in calibration, flat ones in the session."""
    net, x = Net((ROWS, 6)), sequences(12)
    attention(net, gain=8.0)
    model = compiled(net, {"x0": 2 * x})
    flat = 0.02 * sequences(1, seed=5) + 0.5
    want = expected(net.model(), {"x0": flat})[0]
    handle = hushnet.serve(model, threads=1)
    try:
        with hushnet.connect(f"hush://127.0.0.1:{handle.port}", threads=1) as connection:
            result = connection.infer(flat)
    finally:
        handle.stop()
    (errors,) = model.plan.predicted["output_errors"].values()
    assert np.abs(result.output.reshape(want.shape) - want).max() <= errors["max_error"]
    for stage in result.trace["stages"]:
        assert stage["bytes_up"] == stage["predicted"]["bytes_up"]
        assert stage["bytes_down"] == stage["predicted"]["bytes_down"]


def test_proven_ranges_hold_for_means():
    net = Net((ROWS, 6))
    attention(net)
    model = hushnet.compile(net.model(), trust="two-party", input_range=(-1, 1), weight_bits=8)
    assert is_last(model)
    _, largest = reference.rehearse(model.plan, {"x0": np.sign(sequences(8))}, np.random.default_rng(0))
    for tensor, value in largest.items():
        assert value <= reference.with_errors(model.plan.tensors[tensor]["bound"])


def test_it_costs_less():
    """With the order kept, attention sends more."""
    net, x = Net((ROWS, 6)), {"x0": sequences(12)}
    attention(net)
    kept, sizes = means.DEARER, []
    try:
        for factor in (kept, math.inf):
            means.DEARER = factor
            model = compiled(net, x)
            assert is_last(model) == (factor == kept)
            sizes.append(sum(layer["ot_bytes"] for layer in model.explain()["layers"]))
    finally:
        means.DEARER = kept
    assert sizes[0] < 0.9 * sizes[1]


def test_a_planted_failure_is_seen(monkeypatch):
    """Reciprocals that are a twentieth too large are outside of the stated error."""

    def wrong(source: str) -> Curve:
        one = Op("one", "affine", [source], "one", {"mul": 0.0, "add": 1.05})
        return Curve(source, "reciprocal", (one, Op("reciprocal", "div", ["one", source], "reciprocal")))

    monkeypatch.setattr(rows, "_reciprocal", wrong)
    net, x = Net((ROWS, 6)), {"x0": sequences(12)}
    attention(net)
    model = compiled(net, x)
    want = expected(net.model(), x)[0]
    (got,) = reference.run(model.plan, x).values()
    monkeypatch.undo()
    right = compiled(net, x)
    (errors,) = right.plan.predicted["output_errors"].values()
    assert np.abs(got.reshape(want.shape) - want).max() > errors["max_error"]

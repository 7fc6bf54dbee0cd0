"""Softmax, masks and normalisations on shares, against ONNX Runtime and within the errors that plans state."""

from __future__ import annotations

import math

import hushnet
import numpy as np
import pytest
from hushnet.graph import Op
from hushnet.planner.two_party import bands
from hushnet.planner.two_party import rows as planned_rows
from hushnet.planner.two_party.curves import Curve
from hushnet.reference import two_party as reference
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.frontend.harness import Net, expected

RNG = np.random.default_rng(0)


def compiled(net: Net, data: dict[str, np.ndarray], **options):
    # without the search for bits that reach a precision
    return hushnet.compile(net.model(), trust="two-party", calibration=data, **{"weight_bits": 10, **options})


def off(net: Net, model, data: dict[str, np.ndarray]) -> tuple[float, float]:
    """The largest difference of an encrypted run from ONNX Runtime, and the stated error."""
    want = expected(net.model(), {k: v.astype(np.float32) for k, v in data.items()})[0]
    got = hushnet.run(model, data).output
    (errors,) = model.plan.predicted["output_errors"].values()
    return float(np.abs(got.reshape(want.shape) - want).max()), errors["max_error"]


def stages(model, kind: str) -> list[dict]:
    return [s for s in model.plan.stages if s["kind"] == kind]


def size(model, stage: dict) -> int:
    return math.prod(model.plan.tensors[stage["out"]]["shape"])


def rows(count: int, number: int, rng) -> np.ndarray:
    """Ordinary rows, flat ones, and some with one logit far above."""
    x = rng.normal(size=(number, 2, count)) * 2
    x[::4] *= 0.01
    x[1::4, :, rng.integers(count)] = 9.0
    return x.astype(np.float32)


def softmax_net(count: int) -> Net:
    n = Net((2, count))
    n.op("Softmax", n.op("MatMul", "x0", n.constant(np.eye(count))), axis=-1)
    n.op("MatMul", n.last, n.constant(np.eye(count)))
    return n


@pytest.mark.parametrize("count", [2, 7, 10, 128])
def test_softmax_of_ordinary_sharp_and_flat_rows_is_within_the_stated_error(count: int):
    net, x = softmax_net(count), rows(count, 24, np.random.default_rng(count))
    model = compiled(net, {"x0": x})
    error, stated = off(net, model, {"x0": x[:8]})
    assert error <= stated <= 2.0**-6
    # flat rows of 128 have numbers of 2^-7: the error of a row falls with it
    flat = hushnet.run(model, x[:1]).output
    want = expected(net.model(), {"x0": x[:1]})[0]
    assert np.abs(flat.reshape(want.shape) - want).max() <= 0.06 * want.max() + 2.0**-10
    # one reciprocal a row, one exponential a value
    half, *inverse = stages(model, "function")
    assert size(model, half) == 2 * count and inverse and all(size(model, s) == 2 for s in inverse)


def test_a_value_of_softmax_in_rows_of_128_takes_255_bytes_and_160_in_front_of_values():
    """With all transfers of a session's first stages; 201 and 133 where these serve 2^16 values (docs/two-party.md)."""
    rng = np.random.default_rng(2)
    n = Net((64, 128))
    n.op("MatMul", "x0", n.constant(np.eye(128)))
    n.op("MatMul", n.op("Softmax", n.last, axis=-1), n.constant(np.eye(128)[:, :2]))
    layers = compiled(n, {"x0": rng.normal(size=(4, 64, 128)) * 2}, weight_bits=8).explain()["layers"]
    assert sum(layer["ot_bytes"] for layer in layers) <= 255 * 64 * 128
    n = Net((128, 128), (128, 32))
    scores, values = (n.op("MatMul", f"x{i}", n.constant(np.eye(size))) for i, size in enumerate((128, 32)))
    n.op("MatMul", n.op("Softmax", scores, axis=-1), values)
    n.op("MatMul", n.last, n.constant(np.eye(32)[:, :2]))
    data = {"x0": rng.normal(size=(4, 128, 128)) * 2, "x1": rng.normal(size=(4, 128, 32))}
    layers = compiled(n, data, weight_bits=8).explain()["layers"]
    assert sum(layer["ot_bytes"] for layer in layers) <= 160 * 128 * 128


def test_attention_of_rows_over_a_socket_has_every_predicted_byte():
    """Softmax behind a mask, a normalisation and layers between: bytes counted, errors stated."""
    net, data = masked("added")
    n = Net((COUNT, 4), seed=3)
    n.nodes, n.constants, n.last = net.nodes, net.constants, net.last
    n.op("LayerNormalization", n.last, n.constant([1.0, 0.5, 2.0]), n.constant([0.0, 0.1, -0.1]))
    n.op("MatMul", n.last, n.weight(3, 2))
    model = compiled(n, data)
    want = expected(n.model(), {"x0": data["x0"][:2]})[0]
    handle = hushnet.serve(model, threads=1)
    try:
        with hushnet.connect(f"hush://127.0.0.1:{handle.port}", threads=1) as connection:
            result = connection.infer(data["x0"][:2])
    finally:
        handle.stop()
    (errors,) = model.plan.predicted["output_errors"].values()
    assert np.abs(result.output.reshape(want.shape) - want).max() <= errors["max_error"]
    total = result.trace["total"]
    for way in ("bytes_up", "bytes_down"):
        assert total[way] == total["predicted"][way] > 0


@pytest.mark.parametrize("reach", [0.7, 1.3])
def test_logits_of_a_narrow_range_need_no_maximum_and_the_plan_says_so(reach: float):
    net, count = softmax_net(10), 10
    x = np.random.default_rng(1).uniform(-reach, reach, size=(24, 2, count)).astype(np.float32)
    # a row far below the others, and one far above
    x[0, 0], x[0, 1] = -reach, reach
    model = compiled(net, {"x0": x}, margin=1.0)
    error, stated = off(net, model, {"x0": x[:4]})
    assert error <= stated <= 2.0**-6
    narrow = reach < 1.0
    assert len(stages(model, "max_pool")) == (0 if narrow else 1)
    told = [note for note in model.plan.document["notes"] if "takes no maximum" in note]
    assert bool(told) is narrow and all("Softmax_1" in note for note in told)


def test_rows_that_calibration_never_showed_keep_their_sum():
    """The reciprocal of a row's sum has a proven range: sharp rows after flat ones."""
    net, count = softmax_net(16), 16
    flat = np.random.default_rng(1).normal(size=(24, 2, count)).astype(np.float32) * 0.1
    flat[:, 0, 0], flat[:, 1, 1:] = 8.0, 8.0
    sharp = np.zeros((2, 2, count), dtype=np.float32)
    sharp[:, :, 3] = 8.0
    model = compiled(net, {"x0": flat})
    got = hushnet.run(model, sharp).output
    assert np.abs(got - expected(net.model(), {"x0": sharp})[0]).max() <= 2.0**-6


@pytest.mark.parametrize(("axis", "opset"), [(1, 13), (2, 17), (3, 13), (1, 11), (2, 11), (-1, 7)])
def test_softmax_over_any_axis_and_the_old_flattening_meaning(axis: int, opset: int):
    n = Net((3, 4, 5), opset=opset)
    n.op("Conv", "x0", n.weight(3, 3, 1, 1))
    n.op("Softmax", n.last, axis=axis)
    n.op("Conv", n.last, n.weight(2, 3, 1, 1))
    x = np.random.default_rng(3).normal(size=(12, 3, 4, 5)) * 2
    model = compiled(n, {"x0": x})
    error, stated = off(n, model, {"x0": x[:2]})
    assert error <= stated <= 0.05


def exponentials(n: Net, *, largest: bool) -> None:
    """Softmax as exporters without the operator write it."""
    source = n.last
    power = n.op("Exp", n.op("Sub", source, n.op("ReduceMax", source, axes=[-1])) if largest else source)
    n.op("Div", power, n.op("ReduceSum", power, n.ints(-1)))


@pytest.mark.parametrize("kind", ["with the maximum", "without it", "logarithm"])
def test_softmax_that_is_written_out_is_softmax(kind: str):
    n = Net((3, 8))
    n.op("MatMul", "x0", n.weight(8, 8))
    if kind == "logarithm":
        n.op("LogSoftmax", n.last, axis=-1)
    else:
        exponentials(n, largest=kind == "with the maximum")
    n.op("MatMul", n.last, n.weight(8, 3))
    x = np.random.default_rng(4).normal(size=(16, 3, 8)) * 3
    model = compiled(n, {"x0": x})
    error, stated = off(n, model, {"x0": x[:4]})
    assert error <= stated <= (0.35 if kind == "logarithm" else 0.05)
    assert len(stages(model, "max_pool")) == 1


@pytest.mark.parametrize("kind", ["with the maximum", "without it", "masked"])
def test_a_softmax_at_the_end_stays_the_clients(kind: str):
    n = Net((3, 8))
    n.op("MatMul", "x0", n.weight(8, 8))
    if kind == "masked":
        n.op("Softmax", n.op("Add", n.last, n.constant(np.triu(np.full((3, 8), -1e4), 6))), axis=-1)
    else:
        exponentials(n, largest=kind == "with the maximum")
    x = np.random.default_rng(4).normal(size=(16, 3, 8))
    model = compiled(n, {"x0": x})
    assert not stages(model, "function") and not any("bounded" in t["name"] for t in model.plan.tensors)
    assert [op["op"] for op in model.plan.stages[-1]["ops"]][-1] == "softmax"


COUNT = 6
CAUSAL = np.triu(np.ones((COUNT, COUNT)), 1)


def masked(kind: str) -> tuple[Net, dict[str, np.ndarray]]:
    rng = np.random.default_rng(5)
    data = {"x0": rng.normal(size=(16, COUNT, 4)).astype(np.float32)}
    n = Net((COUNT, 4), (1, COUNT)) if kind == "input" else Net((COUNT, 4))
    scores = n.op("Mul", n.op("MatMul", "x0", n.weight(4, COUNT)), n.constant(3.0))
    if kind == "input":
        n.op("Add", scores, "x1")
        data["x1"] = np.zeros((16, 1, COUNT), dtype=np.float32)
        for row in range(16):
            data["x1"][row, :, 1 + row % COUNT :] = -10000.0
    elif kind == "select":
        n.op("Where", n.constant(CAUSAL, bool), n.constant(-np.inf), scores)
    else:
        large = {"added": -10000.0, "largest": np.finfo(np.float32).min, "infinite": -np.inf}[kind]
        n.op("Add", scores, n.constant(np.where(CAUSAL > 0, large, 0.0)))
    n.op("Softmax", n.last, axis=-1)
    n.op("MatMul", n.last, n.weight(COUNT, 3))
    return n, data


@pytest.mark.parametrize("kind", ["input", "added", "largest", "infinite", "select"])
def test_masks_cost_no_wide_ring_and_hide_what_they_hide(kind: str):
    net, data = masked(kind)
    model = compiled(net, data)
    error, stated = off(net, model, {k: v[:4] for k, v in data.items()})
    assert error <= stated <= 0.02
    # a mask of -10000 with scores of ten bits behind the point would need 24 bits and two more
    (top,) = stages(model, "max_pool")
    assert model.plan.tensors[top["out"]]["reach_bits"] <= 17
    # clients are told a power of two
    told = [op for s in stages(model, "client") for op in s["ops"] if op["op"] == "clip"]
    assert told and all(math.frexp(-op["min"])[0] == 0.5 for op in told)


def test_a_bias_beside_a_mask_stays_the_servers():
    """Of a constant that is added to scores, clients are told which elements vanish, and nothing else."""
    rng = np.random.default_rng(6)
    trained = rng.normal(size=(COUNT, COUNT))
    n = Net((COUNT, 4))
    scores = n.op("MatMul", "x0", n.weight(4, COUNT))
    n.op("Add", scores, n.constant(np.where(CAUSAL > 0, -10000.0, trained)))
    n.op("MatMul", n.op("Softmax", n.last, axis=-1), n.weight(COUNT, 3))
    x = rng.normal(size=(16, COUNT, 4)).astype(np.float32)
    model = compiled(n, {"x0": x})
    error, stated = off(n, model, {"x0": x[:4]})
    assert error <= stated <= 0.05
    told = [op for s in model.plan.public_part().stages if s["kind"] == "client" for op in s["ops"]]
    (pattern,) = (op for op in told if op["op"] == "interpolate")
    assert set(np.unique(pattern["weights"])) == {-10000.0, 0.0}


NORMALISED = {
    "layer": lambda n: n.op(
        "LayerNormalization", n.last, n.constant(1 + 0.1 * RNG.normal(size=12)), n.constant(np.zeros(12))
    ),
    "instance": lambda n: n.op(
        "InstanceNormalization", n.last, n.constant([1.0, 0.5, 2.0, 1.5]), n.constant([0.0, 0.1, 0.2, 0.3])
    ),
    "RMS, written out": lambda n: n.op(
        "Div",
        n.last,
        n.op(
            "Sqrt", n.op("Add", n.op("ReduceMean", n.op("Pow", n.last, n.constant(2.0)), axes=[-1]), n.constant(1e-5))
        ),
    ),
}


def written_out(n: Net) -> None:
    """A layer normalisation as exporters without the operator write it."""
    source = n.last
    centred = n.op("Sub", source, n.op("ReduceMean", source, axes=[-1], keepdims=1))
    variance = n.op("ReduceMean", n.op("Pow", centred, n.constant(2.0)), axes=[-1], keepdims=1)
    root = n.op("Sqrt", n.op("Add", variance, n.constant(1e-5)))
    n.op("Add", n.op("Mul", n.op("Div", centred, root), n.constant(np.ones(12))), n.constant(np.zeros(12)))


def group(n: Net) -> None:
    """A group normalisation as exporters before opset 18 write it."""
    shape = n.ints(-1, 2, 24)
    flat = n.op("Reshape", n.last, shape)
    n.op("InstanceNormalization", flat, n.constant([1.0, 1.0]), n.constant([0.0, 0.0]))
    n.op("Reshape", n.last, n.ints(-1, 4, 1, 12))


@pytest.mark.parametrize("kind", [*NORMALISED, "written out", "group"])
def test_normalisations_take_one_root_a_row_and_keep_to_the_stated_error(kind: str):
    n = Net((4, 1, 12))
    n.op("Conv", "x0", n.weight(4, 4, 1, 1))
    {**NORMALISED, "written out": written_out, "group": group}[kind](n)
    n.op("Conv", n.last, n.weight(2, 4, 1, 1))
    x = np.random.default_rng(7).normal(size=(24, 4, 1, 12)) * 2
    model = compiled(n, {"x0": x})
    error, stated = off(n, model, {"x0": x[:4]})
    assert error <= stated <= 0.12
    groups = 2 if kind == "group" else 4
    assert {size(model, s) for s in stages(model, "function")} == {groups}


def test_without_calibration_a_normalised_value_is_at_most_the_root_of_their_number():
    n = Net((3, 8))
    n.op("MatMul", "x0", n.weight(8, 8))
    n.op("LayerNormalization", n.last, n.constant(np.ones(8)), n.constant(np.zeros(8)))
    n.op("MatMul", n.last, n.weight(8, 3))
    model = hushnet.compile(n.model(), trust="two-party", input_range=(-1, 1), weight_bits=8)
    x = np.random.default_rng(0).uniform(-1, 1, (4, 3, 8)).astype(np.float32)
    want = expected(n.model(), {"x0": x})[0]
    assert np.abs(hushnet.run(model, x).output.reshape(want.shape) - want).max() <= 0.05 * np.abs(want).max()
    result = max(stages(model, "product"), key=lambda s: s["out"])
    entry = model.plan.tensors[result["out"]]
    assert entry["bound"] * 2.0 ** -entry["frac_bits"] <= 1.03 * math.sqrt(8)


def test_rows_whose_variances_differ_by_ten_thousand_are_normalised_alike():
    n = Net((4, 32))
    n.op("MatMul", "x0", n.constant(np.eye(32)))
    n.op("LayerNormalization", n.last, n.constant(np.ones(32)), n.constant(np.zeros(32)))
    n.op("MatMul", n.last, n.constant(np.eye(32)))
    x = np.random.default_rng(8).normal(size=(24, 4, 32)) * np.array([1.0, 0.1, 0.03, 0.01]).reshape(1, 4, 1)
    model = compiled(n, {"x0": x}, most_bits=16)
    error, stated = off(n, model, {"x0": x[:4]})
    want = expected(n.model(), {"x0": x[:4].astype(np.float32)})[0]
    assert error <= stated <= 0.05 * np.abs(want).max()
    # several bands, whose ends are powers of two in units of the argument
    bands_of = stages(model, "function")
    assert len(bands_of) > 2
    for stage in bands_of:
        ends = [abs(stage["form"][k]) for k in ("low", "high")]
        assert all(end & (end - 1) == 0 or end & (end + 1) == 0 for end in ends)


def test_rows_of_less_variance_than_calibration_showed_come_out_smaller_and_never_wrap():
    n = Net((4, 16))
    n.op("MatMul", "x0", n.constant(np.eye(16)))
    n.op("LayerNormalization", n.last, n.constant(np.ones(16)), n.constant(np.zeros(16)))
    n.op("MatMul", n.last, n.constant(np.eye(16)))
    x = np.random.default_rng(9).normal(size=(24, 4, 16))
    # a root of 1 / 1.2 with its errors is just below a power of two, and there is no margin
    x *= 1.2 / x.std(axis=2, keepdims=True)
    model = compiled(n, {"x0": x}, margin=1.0)
    for scale in (0.7, 0.5, 0.3, 0.05, 0.0):
        want = expected(n.model(), {"x0": (x[:3] * scale).astype(np.float32)})[0]
        got = hushnet.run(model, x[:3] * scale).output.reshape(want.shape)
        assert (np.abs(got) <= np.abs(want) + 0.15).all()
        assert scale < 0.6 or np.abs(got - want).max() <= 0.15


CURVES = {
    "1/x": (Op("q", "div", ["one", "x"], "q"),),
    "1/sqrt(x)": (Op("r", "sqrt", ["x"], "r"), Op("q", "div", ["one", "r"], "q")),
    "1/sqrt(x + e)": (
        Op("a", "affine", ["x"], "a", {"mul": 1.0, "add": 1e-3}),
        Op("r", "sqrt", ["a"], "r"),
        Op("q", "div", ["one", "r"], "q"),
    ),
}


@settings(max_examples=40, deadline=None)
@given(name=st.sampled_from(sorted(CURVES)), low=st.floats(-12, 2), octaves=st.floats(1.5, 24))
def test_bands_are_the_curve_and_change_one_at_a_time(name: str, low: float, octaves: float):
    one = Op("one", "affine", ["x"], "one", {"mul": 0.0, "add": 1.0})
    curve = Curve("x", "q", (one, *CURVES[name]))
    assert bands.is_quotient(curve)
    low, high = 2.0**low, 2.0 ** (low + octaves)
    found = bands.bands(curve, low, high)
    x = np.geomspace(low, high, 1000)
    if not found:
        # one function serves
        assert curve(x).max() <= 2 * curve(x).min() * (1 + 1e-9)
        return
    parts = [band(np.clip(x, band.low, band.high)) for band in found]
    assert np.allclose(np.prod(parts, axis=0), curve(x), rtol=1e-9)
    assert (np.sum([np.diff(p) != 0 for p in parts], axis=0) <= 2).all()
    assert all(band.high <= 1.5 * 2**bands.ARGUMENT_OCTAVES * band.low * (1 + 1e-9) for band in found)


def test_a_logarithm_of_what_shares_have_clipped_is_finite():
    """Energies of a spectrogram: 1e-10 is no unit of the shares, so the client clips what it opens again."""
    n = Net((6,))
    n.op("MatMul", "x0", n.weight(6, 8))
    n.op("Relu", n.last)
    n.op("MatMul", n.last, n.constant(np.abs(RNG.normal(size=(8, 3)))))
    n.op("Clip", n.last, n.constant(1e-10))
    n.op("Log", n.last)
    x = np.random.default_rng(5).normal(size=(40, 6))
    x[:3] *= 1e-6
    model = compiled(n, {"x0": x})
    error, stated = off(n, model, {"x0": x[:6]})
    assert np.isfinite(stated) and error <= stated
    assert any("no worst error follows" in note for note in model.plan.document["notes"])


def test_rough_maxima_compare_few_bits_and_leave_no_exponential_above_one():
    """Whatever units the comparisons' truncation gives: the largest value of a row is at most two units of
    :data:`rows.ROUGH` below the depth, and never above it."""
    net, x = softmax_net(16), rows(16, 24, np.random.default_rng(1))
    model = compiled(net, {"x0": x})
    tensors, (pool,), (relu,) = model.plan.tensors, stages(model, "max_pool"), stages(model, "relu")
    source, rough, depth = (tensors[t] for t in (pool["in"], pool["out"], relu["out"]))
    assert 2.0 ** -rough["frac_bits"] == planned_rows.ROUGH and pool["bits"] == source["frac_bits"] - 3
    assert pool["reach_bits"] == source["reach_bits"] - pool["bits"]
    for seed in range(4):
        values = reference.run(model.plan, {"x0": x}, keep_all=True, units=np.random.default_rng(seed))
        top = values[depth["name"]].reshape(-1, 16).max(axis=1) * 2.0 ** -depth["frac_bits"]
        assert top.min() >= planned_rows.DEPTH - 2 * planned_rows.ROUGH and top.max() <= planned_rows.DEPTH

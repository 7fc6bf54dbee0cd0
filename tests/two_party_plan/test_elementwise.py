"""Functions of one variable, products and constants on shares: how they are found, fitted, planned and run."""

from __future__ import annotations

import math

import hushnet
import numpy as np
import pytest
from hushnet.graph import Op
from hushnet.plan import Plan, PlanError
from hushnet.planner import compile
from hushnet.planner.two_party import functions
from hushnet.planner.two_party.curves import Curve, corners, fused, opened_up
from hushnet.reference import spline
from hushnet.reference import two_party as reference
from hushnet.reference.float import evaluate
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_digits
from sklearn.neural_network import MLPClassifier

from tests.frontend.harness import Net, expected
from tests.planner.planner_graphs import Builder

# functions with the range that they are tried on, and whether they end at zero
CURVES = {
    "sigmoid": (Op("f", "sigmoid", ["x"], "y"), 20.0),
    "tanh": (Op("f", "tanh", ["x"], "y"), 6.0),
    "silu": (Op("f", "silu", ["x"], "y"), 40.0),
    "gelu": (Op("f", "gelu", ["x"], "y"), 12.0),
    "gelu_tanh": (Op("f", "gelu_tanh", ["x"], "y"), 3.0),
    "erf": (Op("f", "erf", ["x"], "y"), 5.0),
    "exp": (Op("f", "exp", ["x"], "y"), 2.0),
    "elu": (Op("f", "elu", ["x"], "y", {"alpha": 1.0}), 9.0),
    "sin": (Op("f", "sin", ["x"], "y"), 4.0),
    "cos": (Op("f", "cos", ["x"], "y"), 4.0),
    "atan": (Op("f", "atan", ["x"], "y"), 30.0),
}


def planned(graph, x, **options):
    return compile(graph, trust="two-party", calibration=x, weight_bits=8, **options)


def kinds(plan: Plan) -> list[str]:
    return [s["kind"] for s in plan.stages]


# how functions are found


def chain(*ops):
    """A graph of one layer, ops on its result, and a layer behind them."""
    b = Builder((2, 4, 4))
    b.conv(2)
    first = b.at
    for op, others, attrs in ops:
        b.op(op, others=[first if o == "first" else o for o in others], **attrs)
    b.conv(1)
    return b.done()


def found(graph) -> list[str]:
    return [n.attrs["curve"].name if n.op == "function" else n.op for n in fused(graph).nodes if isinstance(n, Op)]


def test_a_chain_is_one_function_and_what_is_exact_stays():
    assert found(chain(("sigmoid", [], {}), ("mul", ["first"], {}))) == ["sigmoid mul"]
    assert found(chain(("affine", [], {"mul": 1.7, "add": 0.2}), ("tanh", [], {}), ("neg", [], {}))) == [
        "affine tanh neg"
    ]
    # a function behind a ReLU is one of the ReLU's result
    assert found(chain(("relu", [], {}), ("sigmoid", [], {}))) == ["relu", "sigmoid"]
    # both sides of |x| are needed: one smooth function of x
    softplus = [
        ("abs", [], {}),
        ("neg", [], {}),
        ("exp", [], {}),
        ("affine", [], {"mul": 1.0, "add": 1.0}),
        ("log", [], {}),
    ]
    assert found(chain(*softplus, ("relu", [], {}))) == ["abs", "neg exp affine log", "relu"]
    # a product with a corner is a product
    b = Builder((2, 4, 4))
    b.conv(2)
    first = b.at
    b.op("relu")
    positive, b.at = b.at, first
    b.op("sigmoid").op("mul", others=(positive,)).conv(1)
    assert found(b.done()) == ["relu", "sigmoid", "mul"]


def test_ops_of_functions_come_back_for_a_party_that_computes_in_the_clear():
    graph = chain(("sigmoid", [], {}), ("mul", ["first"], {}))
    assert [n.op for n in opened_up(fused(graph).nodes) if isinstance(n, Op)] == ["sigmoid", "mul"]


@pytest.mark.parametrize(("body", "bent"), [("softplus", False), ("gate", True)])
def test_corners_are_seen(body: str, bent: bool):
    parts = {
        "softplus": [
            Op("a", "abs", ["x"], "a"), Op("n", "neg", ["a"], "n"), Op("e", "exp", ["n"], "e"),
            Op("p", "affine", ["e"], "p", {"mul": 1.0, "add": 1.0}), Op("l", "log", ["p"], "l"),
            Op("r", "relu", ["x"], "r"), Op("y", "add", ["r", "l"], "y"),
        ],
        "gate": [Op("r", "relu", ["x"], "r"), Op("s", "sigmoid", ["x"], "s"), Op("y", "mul", ["r", "s"], "y")],
    }[body]  # fmt: skip
    assert corners(Curve("x", "y", tuple(parts))) is bent


# how they are fitted


@pytest.mark.parametrize("name", sorted(CURVES))
@settings(max_examples=6, deadline=None)
@given(bits=st.integers(9, 16), positive=st.booleans(), seed=st.integers(0, 2**32 - 1))
def test_pieces_are_within_the_stated_error_for_every_split(name: str, bits: int, positive: bool, seed: int):
    """Of arguments on the whole range, beyond the interval too, for places that shares may give."""
    op, reach = CURVES[name]
    curve, fraction = Curve("x", "y", (op,)), 10
    unit = reach / (1 << bits)
    scale = -math.floor(math.log2(unit))
    unit, most = 2.0**-scale, (1 << bits) - 1
    finer = fraction - scale if fraction >= scale else None
    fit = functions.fit(curve, functions.Asked(unit, 0 if positive else -most, most, None, 1.0, fraction, finer))
    rng = np.random.default_rng(seed)
    x = np.concatenate([rng.integers(0 if positive else -most, most, size=4000, endpoint=True), [-most, 0, most]])
    if positive:
        x = np.abs(x)
    stage = {"form": fit.form, "orders": fit.orders, "below": fit.below, "above": fit.above}
    exact = curve(x * unit) * 2.0**fraction
    for units in (None, rng):
        got = spline.function(stage, fit.coefficients, x, finer or 0, units)
        assert np.abs(got - exact).max() <= fit.error
        assert np.abs(got).max() <= fit.largest
    # far from trivial: the error does not hold a straight line
    assert positive or np.abs(exact - np.polyval(np.polyfit(x * unit, exact, 1), x * unit)).max() > fit.error


def test_ends_are_powers_of_two_or_the_range_itself():
    curve, most = Curve("x", "y", (CURVES["silu"][0],)), (1 << 14) - 1
    fit = functions.fit(curve, functions.Asked(2.0**-8, -most, most, None, 1.0, 10, 2))
    # max(x, 0) and something even, by half of the table that the range on both sides takes
    assert (fit.below, fit.above, fit.form["low"]) == ("mirrored", "constant", 0)
    assert fit.form["high"] == 1 << (fit.form["high"].bit_length() - 1)
    ends = ("constant", "rising", -fit.form["high"], fit.form["high"])
    whole = functions.fit(curve, functions.Asked(2.0**-8, -most, most, None, 1.0, 10, 2, ends))
    assert (whole.below, whole.above) == ends[:2]
    assert fit.form["segments"] < whole.form["segments"] and fit.form["inner_bits"] < whole.form["inner_bits"]
    # where nothing is flat, the whole range: half of it, or both sides, whichever takes fewer bytes
    inside = functions.fit(curve, functions.Asked(2.0**-8, -511, 511, None, 1.0, 10, 2))
    assert (inside.above, inside.form["high"]) == ("inside", 511)
    tanh = Curve("x", "y", (CURVES["tanh"][0],))
    odd = functions.fit(tanh, functions.Asked(2.0**-8, -511, 511, None, 1.0, 10, 2))
    assert (odd.below, odd.above, odd.form["high"]) == ("inside", "inside", 511)


@pytest.mark.parametrize(("bits", "fraction"), [(13, 11), (14, 10), (12, 9)])
def test_the_cheapest_form_is_taken(bits: int, fraction: int):
    curve, most = Curve("x", "y", (CURVES["gelu"][0],)), (1 << bits) - 1
    asked = functions.Asked(2.0**-fraction, -most, most, None, 1.0, fraction, 0)
    values = functions._values(curve, asked)
    forms = [functions._fitted(values, asked, functions._ends(values, asked, 1.0))]
    forms += [functions._fitted(values, asked, ends) for ends in functions._mirrored(values, asked)]
    taken = functions.fit(curve, asked)
    assert taken.below == "mirrored"
    assert functions._price(taken, asked) == min(functions._price(f, asked) for f in forms)


def test_a_function_without_an_approximation_is_refused_in_one_sentence():
    curve = Curve("x", "t7", (Op("f", "log", ["x"], "t7"),))
    with pytest.raises(PlanError, match="'log' that gives 't7' has no approximation by at most 256 pieces on"):
        functions.fit(curve, functions.Asked(2.0**-8, -1000, 1000, None, 1.0, 10, None))


# how they are planned and run


def test_constants_and_signs_need_no_layer():
    b = Builder((2, 4, 4))
    b.conv(2).op("affine", mul=-0.5, add=0.25).op("relu").conv(1)
    x = np.random.default_rng(0).uniform(0, 1, (20, 2, 4, 4))
    plan = planned(b.done(), x)
    assert kinds(plan).count("linear") == 2
    (shift,) = (s for s in plan.stages if s["kind"] == "shift")
    assert shift["negated"] and shift["by"] > 0
    (told,) = (s for s in plan.public_part().stages if s["kind"] == "shift")
    assert told["negated"] and "by" not in told


@pytest.mark.parametrize("scale", [1.0, 60.0, 0.02])
def test_hard_swish_is_within_its_error_at_every_size(scale: float):
    b = Builder((2, 5, 5))
    b.conv(3, gain=1.5 * scale).op("hard_swish").conv(2)
    x = np.random.default_rng(2).uniform(0, 1, (12, 2, 5, 5))
    plan = planned(b.done(), x)
    assert kinds(plan).count("hard_swish") == 1 and "product" not in kinds(plan)
    exact = evaluate(b.done(), {"x": x})
    (name,) = exact
    got = reference.run(plan, x, units=np.random.default_rng(1))[name]
    errors = plan.predicted["output_errors"][name]
    assert np.abs(got - exact[name]).max() <= errors["worst_error"]
    assert errors["max_error"] <= 0.05 * np.abs(exact[name]).max()


def squeeze_and_excite() -> Net:
    """A block of MobileNetV3 with seeded weights: hard-swish, depthwise layer, gate of channels, residual."""
    n = Net((3, 8, 8))
    bias = lambda size: n.constant(n.rng.normal(size=size) * 0.1)  # noqa: E731
    n.op("HardSwish", n.op("Conv", "x0", n.weight(8, 3, 3, 3), bias(8), pads=[1] * 4, strides=[2, 2]))
    entry = n.last
    n.op("HardSwish", n.op("Conv", n.last, n.weight(16, 8, 1, 1), bias(16)))
    n.op("HardSwish", n.op("Conv", n.last, n.weight(16, 1, 3, 3), bias(16), pads=[1] * 4, group=16))
    wide = n.last
    n.op("Relu", n.op("Conv", n.op("GlobalAveragePool", wide), n.weight(4, 16, 1, 1), bias(4)))
    n.op("HardSigmoid", n.op("Conv", n.last, n.weight(16, 4, 1, 1), bias(16)), alpha=1 / 6)
    n.op("Conv", n.op("Mul", wide, n.last), n.weight(8, 16, 1, 1), bias(8))
    n.op("Flatten", n.op("GlobalAveragePool", n.op("Add", n.last, entry)))
    n.op("Gemm", n.last, n.weight(8, 5))
    return n


def test_gates_of_channels_have_fewer_bits_than_what_they_multiply():
    """Their bits choose, twice, so every one of them costs; a product of two tensors of one size keeps all."""
    net = squeeze_and_excite()
    x = np.random.default_rng(1).uniform(-1, 1, (24, *net.shapes[0])).astype(np.float32)
    plan = hushnet.compile(net.model(), trust="two-party", calibration=x, weight_bits=10, activation_bits=12).plan
    (product,) = (s for s in plan.stages if s["kind"] == "product")
    sizes = {np.prod(plan.tensors[t]["shape"]): plan.tensors[t]["reach_bits"] for t in product["in"]}
    assert [sizes[size] for size in sorted(sizes)] == [9, 11]
    b = Builder((2, 5, 5))
    b.conv(3).op("relu")
    first = b.at
    graph = b.conv(3).op("mul", others=(first,)).dense(3).done()
    plan = compile(
        graph, trust="two-party", calibration=np.random.default_rng(2).uniform(-1, 1, (24, 2, 5, 5)), activation_bits=12
    )
    (product,) = (s for s in plan.stages if s["kind"] == "product")
    assert min(plan.tensors[t]["reach_bits"] for t in product["in"]) == 11


@pytest.mark.parametrize(
    ("a", "b"),
    [((3, 20), (3, 1)), ((20, 3), (1, 3)), ((2, 18, 3), (2, 1, 3)), ((2, 1, 19), (2, 5, 1)), ((4, 5, 6), (4, 1, 1))],
)
def test_a_factor_for_a_whole_row_agrees_with_float_wherever_the_row_lies(a, b):
    net = Net(a, b)
    factors = [net.op("MatMul", f"x{i}", net.weight(shape[-1], shape[-1])) for i, shape in enumerate(net.shapes)]
    net.op("MatMul", net.op("Mul", *factors), net.weight(max(a[-1], b[-1]), 3))
    rng = np.random.default_rng(1)
    x = {f"x{i}": rng.uniform(-1, 1, (300, *s)).astype(np.float32) for i, s in enumerate(net.shapes)}
    model = hushnet.compile(net.model(), trust="two-party", calibration=x, weight_bits=12, activation_bits=12)
    assert kinds(model.plan).count("product") == 1
    some = {k: v[:3] for k, v in x.items()}
    want = expected(net.model(), some)[0]
    result = hushnet.run(model, some)
    (errors,) = model.plan.predicted["output_errors"].values()
    assert np.abs(result.output.reshape(want.shape) - want).max() <= errors["max_error"] <= 0.06 * np.abs(want).max()
    for stage in result.trace["stages"]:
        assert [stage["bytes_up"], stage["bytes_down"]] == [stage["predicted"][k] for k in ("bytes_up", "bytes_down")]


def recurrent() -> Net:
    """An LSTM over five steps, and a layer on its last state."""
    n, hidden = Net((5, 6)), 6
    n.op("Transpose", "x0", perm=[1, 0, 2])
    n.op(
        "LSTM",
        n.last,
        n.weight(1, 4 * hidden, 6),
        n.weight(1, 4 * hidden, hidden),
        n.weight(1, 8 * hidden),
        hidden_size=hidden,
    )
    last = n.op("Slice", n.last, n.ints(4), n.ints(5), n.ints(0))
    n.op("Gemm", n.op("Reshape", n.op("Transpose", last, perm=[2, 0, 1, 3]), n.ints(-1, hidden)), n.weight(hidden, 3))
    return n


@pytest.mark.parametrize("make", [squeeze_and_excite, recurrent])
def test_a_network_over_a_socket_is_within_the_stated_error_with_every_predicted_byte(make):
    net, rng = make(), np.random.default_rng(1)
    x = rng.uniform(-1, 1, (24, *net.shapes[0])).astype(np.float32)
    model = hushnet.compile(net.model(), trust="two-party", calibration=x[:20], weight_bits=10)
    want = expected(net.model(), {"x0": x[20:22]})[0]
    handle = hushnet.serve(model, threads=1)
    try:
        with hushnet.connect(f"hush://127.0.0.1:{handle.port}", threads=1) as connection:
            result = connection.infer(x[20:22])
    finally:
        handle.stop()
    (errors,) = model.plan.predicted["output_errors"].values()
    got = result.output.reshape(want.shape)
    assert np.abs(got - want).max() <= errors["max_error"]
    # a wrong operator is off by the size of the outputs
    assert errors["max_error"] <= 0.15 * np.abs(want).max()
    stated = reference.stated(model.plan, {"x0": x[20:22]})
    assert stated.beyond(got.reshape(stated.planned.shape)) <= 1.0
    total = result.trace["total"]
    for way in ("bytes_up", "bytes_down"):
        assert total[way] == total["predicted"][way] > 0


@pytest.mark.parametrize("activation", ["tanh", "logistic"])
def test_perceptrons_of_scikit_learn_agree_with_float(activation: str):
    x, y = load_digits(return_X_y=True)
    x = (x / 16).astype(np.float32)
    network = MLPClassifier((24,), activation=activation, max_iter=40, random_state=0).fit(x[:1000], y[:1000])
    model = hushnet.compile(network, trust="two-party", calibration=x[:200])
    assert "function" in kinds(model.plan)
    got, want = hushnet.run(model, x[1000:1040]).output, network.predict_proba(x[1000:1040])
    assert np.abs(got - want).max() < 0.005
    assert (got.argmax(1) == want.argmax(1)).all()


def test_the_reference_draws_what_real_runs_give():
    """Runs with units drawn: no tensor is further from the planned run than the worst units reach."""
    b = Builder((2, 5, 5))
    b.conv(3).op("silu")
    first = b.at
    b.conv(3).op("tanh").op("mul", others=(first,)).op("square").conv(2)
    x = np.random.default_rng(2).uniform(0, 1, (12, 2, 5, 5))
    plan = planned(b.done(), x)
    assert kinds(plan).count("function") == 2 and kinds(plan).count("product") == 2
    whole = reference.run(plan, x[:4], keep_all=True)
    drawn = reference.run(plan, x[:4], keep_all=True, units=np.random.default_rng(0))
    for name, reach in reference.unit_reach(plan).items():
        assert (np.abs(drawn[name] - whole[name]) <= reach).all(), name

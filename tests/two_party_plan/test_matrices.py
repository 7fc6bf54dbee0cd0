"""Products of two shared matrices: how they are planned, their exact sums, and networks with them over a socket."""

from __future__ import annotations

import hushnet
import numpy as np
import pytest
from hushnet.graph import Graph, Op
from hushnet.plan import Plan, PlanError
from hushnet.planner import compile
from hushnet.reference import matrices
from hushnet.reference import two_party as reference
from hushnet.reference.float import evaluate
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.frontend.harness import Net, expected
from tests.planner.planner_graphs import Builder


def kinds(plan: Plan) -> list[str]:
    return [s["kind"] for s in plan.stages]


def products(plan: Plan) -> list[dict]:
    return [s for s in plan.stages if s["kind"] == "matrix_product"]


def attention(net: Net, x: str, heads: int, width: int, *, softmax: bool = False) -> str:
    """Scores of a sequence with itself times its values, as attention has them; linear where there is no softmax."""
    rows = net.shapes[0][0]
    each = width // heads
    parts = []
    for perm in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]):
        net.op("MatMul", x, net.weight(width, width))
        parts.append(net.op("Transpose", net.op("Reshape", net.last, net.ints(-1, rows, heads, each)), perm=perm))
    scores = net.op("Mul", net.op("MatMul", parts[0], parts[1]), net.constant(each**-0.5))
    if softmax:
        scores = net.op("Softmax", scores, axis=-1)
    mixed = net.op("Transpose", net.op("MatMul", scores, parts[2]), perm=[0, 2, 1, 3])
    return net.op("Reshape", mixed, net.ints(-1, rows, width))


def behind_layers(a: tuple[int, ...], b: tuple[int, ...], *, last: bool = True) -> Net:
    """A product of two inputs, each behind a layer, and a layer behind it."""
    net = Net(a, b)
    left = net.op("MatMul", "x0", net.weight(a[-1], a[-1]))
    right = net.op("MatMul", "x1", net.weight(b[-1], b[-1]))
    net.op("MatMul", left, right)
    if last:
        net.op("MatMul", net.last, net.weight(b[-1], 3))
    return net


# calibration rows: errors of products grow with values, and of few rows statements are wide
ROWS = 500


def inputs_of(net: Net, count: int, seed: int = 1) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {f"x{i}": rng.uniform(-1, 1, (count, *s)).astype(np.float32) for i, s in enumerate(net.shapes)}


def served(net: Net, **options) -> tuple[hushnet.Model, hushnet.Result, np.ndarray]:
    """A model, what a session over a socket gives for two inputs, and what ONNX Runtime does."""
    x = inputs_of(net, ROWS + 4)
    model = hushnet.compile(
        net.model(), trust="two-party", calibration={k: v[:ROWS] for k, v in x.items()}, weight_bits=10, **options
    )
    some = {k: v[ROWS : ROWS + 2] for k, v in x.items()}
    handle = hushnet.serve(model, threads=1)
    try:
        with hushnet.connect(f"hush://127.0.0.1:{handle.port}", threads=1) as connection:
            result = connection.infer(some)
    finally:
        handle.stop()
    return model, result, expected(net.model(), some)[0]


def agree(model: hushnet.Model, result: hushnet.Result, want: np.ndarray, part: float = 0.06) -> None:
    """Within the stated error, which is a small part of the outputs, with every predicted byte."""
    (errors,) = model.plan.predicted["output_errors"].values()
    got = result.output.reshape(want.shape)
    assert np.abs(got - want).max() <= errors["max_error"] <= part * np.abs(want).max()
    for stage in result.trace["stages"]:
        assert stage["bytes_up"] == stage["predicted"]["bytes_up"]
        assert stage["bytes_down"] == stage["predicted"]["bytes_down"]
    assert result.trace["total"]["bytes_up"] == result.trace["total"]["predicted"]["bytes_up"] > 0


def test_attention_of_one_tensor_over_a_socket_is_within_the_stated_error_with_every_predicted_byte():
    net = Net((5, 12))
    net.op("MatMul", attention(net, "x0", 3, 12), net.weight(12, 4))
    model, result, want = served(net)
    assert kinds(model.plan).count("matrix_product") == 2
    agree(model, result, want)
    one = hushnet.run(model, {"x0": inputs_of(net, 1)["x0"]}).trace["total"]
    assert one["bytes_up"] + one["bytes_down"] == model.plan.predicted["bytes_up"] + model.plan.predicted["bytes_down"]


@pytest.mark.parametrize(
    ("a", "b", "rank"),
    [((3, 5), (5, 7), 2), ((4, 3, 5), (4, 5, 2), 3), ((2, 3, 2, 4), (2, 3, 4, 2), 4), ((1, 1), (1, 1), 2)],
)
def test_products_of_every_rank_agree_with_float(a, b, rank):
    net = behind_layers(a, b)
    x = inputs_of(net, ROWS)
    model = hushnet.compile(net.model(), trust="two-party", calibration=x, weight_bits=10)
    (stage,) = products(model.plan)
    assert len(model.plan.tensors[stage["out"]]["shape"]) == rank
    some = {k: v[:2] for k, v in x.items()}
    result = hushnet.run(model, some)
    (errors,) = model.plan.predicted["output_errors"].values()
    want = expected(net.model(), some)[0]
    assert np.abs(result.output.reshape(want.shape) - want).max() <= errors["max_error"]
    assert errors["max_error"] <= 0.06 * np.abs(want).max()


@pytest.mark.parametrize(
    ("a", "b", "sizes"),
    [
        ((4, 3, 5), (1, 5, 2), (1, 12, 5, 2)),
        ((1, 5, 2), (4, 2, 3), (1, 5, 2, 12)),
        ((2, 4, 3, 5), (2, 1, 5, 2), (2, 12, 5, 2)),
        ((2, 1, 3, 5), (2, 4, 5, 2), (2, 3, 5, 8)),
        ((2, 4, 3, 5), (1, 4, 5, 2), (8, 3, 5, 2)),
    ],
)
def test_a_factor_that_heads_share_is_sent_once(a, b, sizes):
    net = behind_layers(a, b)
    x = inputs_of(net, ROWS)
    model = hushnet.compile(net.model(), trust="two-party", calibration=x, weight_bits=10)
    (stage,) = products(model.plan)
    assert matrices.of_stage(model.plan.tensors, stage)[0] == matrices.Sizes(*sizes)
    planned = reference.run(model.plan, x)
    want = expected(net.model(), x)[0]
    (errors,) = model.plan.predicted["output_errors"].values()
    (got,) = planned.values()
    assert np.abs(got.reshape(want.shape) - want).max() <= errors["max_error"] <= 0.06 * np.abs(want).max()


@pytest.mark.parametrize("equation", ["bij,bjk->bik", "bij,bkj->bik", "bhij,bhjk->bhik"])
def test_einsum_and_gemm_of_private_tensors(equation: str):
    left, right = equation.split("->")[0].split(",")
    size = {"i": 3, "j": 4, "k": 2, "h": 2}
    net = Net(*(tuple(size[c] for c in term[1:]) for term in (left, right)))
    moved = [net.op("MatMul", f"x{i}", net.weight(*(2 * [net.shapes[i][-1]]))) for i in range(2)]
    net.op("MatMul", net.op("Einsum", *moved, equation=equation), net.weight(2, 3))
    x = inputs_of(net, ROWS)
    model = hushnet.compile(net.model(), trust="two-party", calibration=x, weight_bits=10)
    assert len(products(model.plan)) == 1
    want = expected(net.model(), x)[0]
    (got,) = reference.run(model.plan, x).values()
    (errors,) = model.plan.predicted["output_errors"].values()
    assert np.abs(got.reshape(want.shape) - want).max() <= errors["max_error"] <= 0.06 * np.abs(want).max()


def test_a_product_at_the_end_runs_on_shares_and_opens_no_factor():
    net = behind_layers((3, 5), (5, 4), last=False)
    model = hushnet.compile(net.model(), trust="two-party", calibration=inputs_of(net, 12), weight_bits=10)
    assert len(products(model.plan)) == 1 and kinds(model.plan).count("reveal") == 1
    assert not any(op["op"] == "matmul" for s in model.plan.stages for op in s.get("ops", []))


def test_attention_at_the_end_opens_no_scores():
    """With the softmax left to the client, the product that reads it would be the client's, and open every factor."""
    net = Net((3, 5), (5, 3), (3, 4))
    moved = [net.op("MatMul", f"x{i}", net.weight(*(2 * [net.shapes[i][-1]]))) for i in range(3)]
    net.op("MatMul", net.op("Softmax", net.op("MatMul", *moved[:2]), axis=-1), moved[2])
    model = hushnet.compile(net.model(), trust="two-party", calibration=inputs_of(net, 12), weight_bits=10)
    assert len(products(model.plan)) == 2 and kinds(model.plan).count("reveal") == 1
    assert not {op["op"] for s in model.plan.stages for op in s.get("ops", [])} & {"matmul", "softmax"}


def test_proven_ranges_hold_for_products():
    """Without calibration every bound follows from intervals: no value leaves it, whatever the input."""
    net = behind_layers((3, 5), (5, 4))
    model = hushnet.compile(net.model(), trust="two-party", input_range=(-1, 1), weight_bits=8)
    extreme = {f"x{i}": np.sign(v) for i, v in enumerate(inputs_of(net, 40).values())}
    _, largest = reference.rehearse(model.plan, extreme, np.random.default_rng(0))
    for tensor, value in largest.items():
        assert value <= reference.with_errors(model.plan.tensors[tensor]["bound"])


@settings(max_examples=25, deadline=None)
@given(
    heads=st.integers(1, 12), rows=st.integers(1, 9), inner=st.integers(1, 40), columns=st.integers(1, 9),
    bits=st.integers(2, 20), seed=st.integers(0, 2**32 - 1),
)  # fmt: skip
def test_reference_sums_are_exact(heads: int, rows: int, inner: int, columns: int, bits: int, seed: int):
    rng = np.random.default_rng(seed)
    most = 2 ** (bits - 1)
    a, b = rng.integers(-most, most, (2, heads, rows, inner)), rng.integers(-most, most, (2, heads, inner, columns))
    exact = np.einsum("bhij,bhjk->bhik", a.astype(object), b.astype(object))
    got = matrices.sums([a, b], (heads, rows, columns))
    assert got.dtype == np.int64 and (got == exact).all()


def test_the_reference_draws_what_real_runs_give():
    """Runs with units drawn are never further from the planned run than the worst units reach, and units occur."""
    net = Net((5, 12))
    net.op("MatMul", attention(net, "x0", 3, 12), net.weight(12, 4))
    x = inputs_of(net, 12)
    plan = hushnet.compile(net.model(), trust="two-party", calibration=x, weight_bits=10).plan
    whole = reference.run(plan, x, keep_all=True)
    drawn = reference.run(plan, x, keep_all=True, units=np.random.default_rng(0))
    for name, reach in reference.unit_reach(plan).items():
        assert (np.abs(drawn[name] - whole[name]) <= reach).all(), name
    for stage in products(plan):
        assert 0 < reference.off_fraction(plan, stage) < 0.1


@pytest.mark.parametrize("change", ["a cross term left out", "another scale"])
def test_a_planted_failure_is_seen(change: str, monkeypatch):
    """What the tests above hold results against does not hold wrong products."""
    net = behind_layers((3, 5), (5, 4))
    x = inputs_of(net, ROWS)
    model = hushnet.compile(net.model(), trust="two-party", calibration=x, weight_bits=10)
    right = matrices.sums
    wrong = {
        # without what one party's share of one operand gives: here a share of a quarter of the values
        "a cross term left out": lambda xs, shape: right([xs[0] - xs[0] // 4, xs[1]], shape),
        "another scale": lambda xs, shape: 2 * right(xs, shape),
    }[change]
    monkeypatch.setattr(matrices, "sums", wrong)
    want = expected(net.model(), x)[0]
    (got,) = reference.run(model.plan, x).values()
    (errors,) = model.plan.predicted["output_errors"].values()
    assert np.abs(got.reshape(want.shape) - want).max() > errors["max_error"]


def test_factors_lose_bits_where_sums_do_not_fit_ciphertexts():
    """Sums of 4096 products of 16 bits each take 46 bits and more; no ciphertexts carry that."""
    b = Builder((1, 2, 4096))
    b.conv(1)
    graph = b.done()
    first = graph.outputs[0]
    shape = (1, 4096, 2)
    nodes = [
        *graph.nodes,
        Op("t", "transpose", [first], "t", {"perm": [0, 2, 1]}),
        Op("p", "matmul", [first, "t"], "p"),
    ]
    graph = Graph(graph.name, graph.inputs, ["p"], {**graph.shapes, "t": shape, "p": (1, 2, 2)}, nodes)
    x = np.random.default_rng(0).uniform(-1, 1, (4, 1, 2, 4096))
    plan = compile(graph, trust="two-party", calibration=x, weight_bits=8, activation_bits=16)
    (stage,) = products(plan)
    sizes, figures = matrices.of_stage(plan.tensors, stage)
    assert sizes.inner == 4096 and figures.ring_bits <= 43
    with pytest.raises(ValueError, match="bits"):
        matrices.figures(sizes, (16, 16))
    got, want = reference.run(plan, x), evaluate(graph, {"x": x})
    (name,) = want
    assert np.abs(got[name] - want[name]).max() <= plan.predicted["output_errors"][name]["max_error"]


def test_products_along_an_axis_are_refused_with_a_sentence():
    b = Builder((2, 6, 6))
    b.conv(3).op("reduce_prod", shape=(3, 6, 1), axes=[2]).conv(2)
    with pytest.raises(PlanError, match="write them as products of two tensors"):
        compile(b.done(), trust="two-party", weight_bits=8)

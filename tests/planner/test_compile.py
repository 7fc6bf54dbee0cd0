"""Calibration, ranges and everything that ``compile`` refuses."""

import numpy as np
import pytest
from hushnet.graph import Op
from hushnet.plan import PlanError, RangeError
from hushnet.planner import compile
from hushnet.reference.numpy import run
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from planner_graphs import Builder, float_run, graphs


def deep(seed=0):
    b = Builder((3, 8, 8), seed=seed)
    for _ in range(3):
        b.conv(6, gain=4).op("relu")
    return b.op("reduce_mean", (6, 1, 1), axes=[1, 2]).dense(5, gain=4).done()


@pytest.mark.parametrize("engine", ["batch", "packed"])
@pytest.mark.parametrize("size", [1e-9, 1e-25, 1e-60])
def test_inputs_next_to_zero_are_coarse_beside_biases(engine, size):
    """A product of many small values in front of a layer: its bias was beyond 2^62 units of such inputs."""
    graph = Builder((6,), seed=1).dense(8).op("relu").dense(3).done()
    x = np.random.default_rng(0).uniform(-size, size, (40, 6))
    plan = compile(graph, calibration=x, batch=1, engine=engine, weight_bits=10)
    floats = float_run(graph, x)[graph.outputs[0]]
    off = np.abs(run(plan, x)[graph.outputs[0]] - floats).max()
    assert off <= plan.predicted["worst_error"] < 0.05 * np.abs(floats).max()


def test_calibration_gives_narrow_ranges_and_small_errors():
    graph = deep()
    x = np.random.default_rng(0).uniform(0, 1, (200, 3, 8, 8))
    options = {"input_range": (0, 1), "activation_bits": 8}
    calibrated, wide = compile(graph, calibration=x[:100], **options), compile(graph, **options)
    name = graph.outputs[0]
    floats = float_run(graph, x)[name]
    near, far = (np.abs(run(p, x)[name] - floats).max() for p in (calibrated, wide))
    assert near < far
    assert near <= calibrated.predicted["max_error"] < wide.predicted["max_error"]
    assert calibrated.predicted["worst_error"] < wide.predicted["worst_error"]
    assert calibrated.predicted["max_error"] >= 1.5 * calibrated.predicted["seen_error"] * (1 - 1e-12)
    assert (
        0
        < calibrated.predicted["seen_error"]
        == pytest.approx(np.abs(run(calibrated, x[:100])[name] - floats[:100]).max(), rel=1e-9)
    )


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(graph=graphs(), seed=st.integers(0, 999))
def test_calibrated_plans_hold_their_calibration_data(graph, seed):
    x = np.random.default_rng(seed).normal(size=(20, *graph.shapes["x"]))
    plan = compile(graph, calibration=x, activation_bits=6, weight_bits=4, margin=1.0)
    name = graph.outputs[0]
    seen = np.abs(run(plan, x)[name] - float_run(graph, x)[name]).max()
    assert seen <= plan.predicted["worst_error"]
    assert plan.predicted["max_error"] <= plan.predicted["worst_error"]


def test_margin_and_declared_ranges():
    graph = Builder((4,)).dense(3).op("relu").dense(2).done()
    x = np.random.default_rng(0).uniform(-1, 1, (50, 4))

    def limit(plan):
        return plan.tensors[1]["bound"] * plan.tensors[1]["scale"]

    assert limit(compile(graph, calibration=x)) == pytest.approx(1.25 * np.abs(x).max())
    assert limit(compile(graph, calibration=x, margin=2)) == pytest.approx(2 * np.abs(x).max())
    assert limit(compile(graph, calibration=x, input_range=(-1, 1))) == pytest.approx(1)
    assert limit(compile(graph, input_range=(-3, 2))) == pytest.approx(3)
    assert limit(compile(graph)) == pytest.approx(1)
    with pytest.raises(PlanError, match="outside the declared input_range"):
        compile(graph, calibration=x, input_range=(-0.1, 0.1))
    with pytest.raises(RangeError, match="planned range"):
        run(compile(graph, calibration=x), 10 * x)


def test_a_declared_lower_end_is_checked_against_calibration():
    graph = Builder((4,)).dense(3).done()
    with pytest.raises(PlanError, match="outside the declared input_range"):
        compile(graph, calibration=-np.ones((3, 4)) / 2, input_range=(0, 1))


def test_interval_plans_never_leave_their_ranges_even_by_rounding():
    """Weights that round up: the float interval alone would be too narrow for the integers."""
    graph = Builder((1,)).dense(1).dense(1).dense(1).done()
    for node in graph.nodes:
        node.weight[:], node.bias[:] = 0.999, 0.0
    graph.nodes[1].weight[:] = -0.77
    plan = compile(graph, weight_bits=2, activation_bits=3)
    x = np.linspace(0, 1, 101)[:, None]
    run(plan, x)


def test_compile_leaves_the_graph_as_it_was():
    graph = deep()
    nodes, shapes = list(graph.nodes), dict(graph.shapes)
    compile(graph)
    assert graph.nodes == nodes and graph.shapes == shapes


def test_equal_inputs_give_equal_plans():
    assert compile(deep()).digest == compile(deep()).digest != compile(deep(1)).digest


SMALL = Builder((2, 4, 4)).conv(3).op("relu").dense(2).done()
ONES = np.ones((3, 2, 4, 4))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"trust": "blind"}, "client-aided"),
        ({"trust": "full"}, "choose one of"),
        ({"batch": 0}, "positive"),
        ({"batch": 2.5}, "positive"),
        ({"weight_bits": 1}, "2 to 16"),
        ({"weight_bits": 17}, "2 to 16"),
        ({"activation_bits": 1}, "2 to 16"),
        ({"activation_bits": "many"}, "2 to 16"),
        ({"ring_degree": 1024}, "ring_degree"),
        ({"mask": "none"}, "mask is"),
        ({"tiles": 3}, "tiles is"),
        ({"margin": 0.5}, "margin"),
        ({"no_such": 1}, "There is no option 'no_such'"),
        ({"input_range": (1, 0)}, "smaller first"),
        ({"input_range": (0, float("inf"))}, "finite"),
        ({"input_range": {"y": (0, 1)}}, "inputs are"),
        ({"calibration": ONES[:0]}, "no images"),
        ({"calibration": ONES[..., :3]}, "shape"),
        ({"calibration": ONES * np.nan}, "NaN"),
        ({"calibration": ONES.astype(str)}, "dtype"),
        ({"calibration": {"y": ONES}}, "inputs are"),
    ],
)
def test_wrong_requests_are_refused(arguments, message):
    with pytest.raises(PlanError, match=message):
        compile(SMALL, **arguments)


def broken(change):
    graph = Builder((2, 4, 4)).conv(3).op("relu").dense(2).done()
    change(graph)
    return graph


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda g: setattr(g.nodes[1], "op", "relux"), "no client op 'relux'"),
        (lambda g: setattr(g.nodes[1], "inputs", ["nowhere"]), "no earlier node"),
        (lambda g: g.nodes[1].attrs.update(alpha=2), "attributes"),
        (lambda g: setattr(g.nodes[0], "weight", np.zeros((3, 2, 3, 4))), "weights"),
        (lambda g: setattr(g.nodes[0], "bias", np.zeros(2)), "bias"),
        (lambda g: g.nodes[0].weight.__setitem__((0, 0, 0, 0), np.nan), "NaN"),
        (lambda g: g.shapes.update(x=(2, 4, 5)), "takes"),
        (lambda g: g.shapes.update(conv1_out=(3, 4, 5)), "gives"),
        (lambda g: g.shapes.update(x=(2, None, 4)), "known and positive"),
        (lambda g: setattr(g.nodes[2], "name", "conv1"), "two nodes"),
        (lambda g: setattr(g, "outputs", ["z"]), "no node"),
        (lambda g: setattr(g, "outputs", []), "no inputs or no outputs"),
        (lambda g: g.nodes.append(Op("again", "relu", ["conv1_out"], "relu2_out", {})), "twice"),
    ],
)
def test_wrong_graphs_are_refused(change, message):
    with pytest.raises(PlanError, match=message):
        compile(broken(change))


def test_a_bias_far_above_all_else_is_planned_at_its_own_scale():
    plan = compile(broken(lambda g: g.nodes[0].bias.__setitem__(0, 1e30)))
    (errors,) = plan.predicted["output_errors"].values()
    assert errors["max_error"] <= 0.1 * errors["random_output_range"]


def test_ranges_without_end_ask_for_calibration():
    b = Builder((3,))
    source = b.at
    graph = b.op("div", others=[source]).dense(2).done()
    with pytest.raises(PlanError, match="calibration"):
        compile(graph)


def test_a_model_that_fails_on_its_calibration_data_is_refused():
    graph = Builder((3,)).op("affine", mul=-1.0, add=0.0).op("sqrt").dense(2).done()
    with pytest.raises(PlanError, match="not finite"), np.errstate(all="ignore"):
        compile(graph, calibration=np.ones((4, 3)))

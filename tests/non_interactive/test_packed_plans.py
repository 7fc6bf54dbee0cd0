"""Plans of the packed engine from ONNX to the answer.

Arbitrary chains against ONNX Runtime, sockets, public parts, refusals, the command line.
"""

from __future__ import annotations

import json

import hushnet
import numpy as np
import onnx
import pytest
from hushnet import _native, frontend, passes
from hushnet.cli.main import app
from hushnet.errors import LimitError, PlanError
from hushnet.planner import read, validate
from hushnet.planner.few_images import price
from hushnet.planner.non_interactive import Network
from hushnet.reference.non_interactive import run as reference_run
from hypothesis import HealthCheck, given, settings
from typer.testing import CliRunner

from tests.frontend.harness import expected
from tests.non_interactive.networks import Random, networks, pooled, residual, strided


def images(model: onnx.ModelProto, count: int, seed: int = 5) -> np.ndarray:
    shape = [d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim][1:]
    return np.random.default_rng(seed).uniform(0, 1, (count, *shape)).astype(np.float32)


def answer(model: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    return expected(model, {model.graph.input[0].name: x})[0].astype(np.float64)


def compiled(model: onnx.ModelProto, **options) -> hushnet.Model:
    return hushnet.compile(model, trust="non-interactive", batch=1, calibration=images(model, 40, 7), **options)


def small() -> onnx.ModelProto:
    net = Random((1, 6, 6), 3)
    net.conv(2, (3, 3), (2, 2), (0, 0, 1, 1), 1)
    net.activation("deg2")
    net.dense(3)
    return net.model()


def dense(outputs: int = 3) -> onnx.ModelProto:
    net = Random((1, 3, 5), 3)
    net.dense(6)
    net.activation("deg2")
    net.dense(outputs)
    return net.model()


def allowed(model: hushnet.Model, truth: np.ndarray) -> float:
    """The plan's expected error, and what ONNX Runtime rounds (binary32)."""
    return model.plan.predicted["max_error"] + 1e-4 * max(1.0, float(np.abs(truth).max()))


@pytest.mark.parametrize(
    ("inputs", "hidden", "batch", "engine"), [(64, 32, 32, "packed"), (30, 23, 64, "batch"), (64, 32, 2000, "batch")]
)
def test_the_engine_of_a_batch_is_the_one_with_the_lower_price(
    inputs: int, hidden: int, batch: int, engine: str
) -> None:
    """Neither is always taken: keys of the one are bytes too."""
    net = Random((1, 1, inputs), 3)
    net.dense(hidden)
    net.activation("square")
    net.dense(10)
    model = net.model()
    x = images(model, 100, 7)
    options = {"trust": "non-interactive", "batch": batch, "calibration": x}
    plans = {made: hushnet.compile(model, engine=made, **options).plan for made in ("batch", "packed")}
    taken = hushnet.compile(model, **options)
    assert taken.plan.document["engine"] == engine
    assert taken.plan.predicted["seconds"] == plans[engine].predicted["seconds"]
    if batch < 100:
        other = plans[{"batch": "packed", "packed": "batch"}[engine]]
        assert price(taken.plan.predicted) < price(other.predicted)
        got = hushnet.run(taken, x[:batch]).output
        assert np.abs(got - answer(model, x[:batch])).max() <= taken.plan.predicted["max_error"] + 1e-4
    # choices that only one of them has
    assert hushnet.compile(model, weight_bits=8, **options).plan.document["engine"] == "batch"


@pytest.mark.parametrize("hide", [False, True])
def test_images_of_dense_networks_stand_side_by_side(hide: bool) -> None:
    """Blocks of five, whatever is left for the last one."""
    model = dense()
    calibration = images(model, 40, 7)
    options = {"trust": "non-interactive", "engine": "packed", "calibration": calibration, "hide_weights": hide}
    one, five = (hushnet.compile(model, batch=batch, **options) for batch in (1, 5))
    for plan in (five.plan, five.plan.public_part()):
        assert [s["images"] for s in plan.stages if s["kind"] == "packed"] == [5]
    few, most = one.plan.predicted, five.plan.predicted
    assert most["bytes_down"] == few["bytes_down"] and most["seconds"] < 2 * few["seconds"]
    for count, blocks in ((1, 1), (3, 1), (5, 1), (12, 3)):
        x = images(model, count)
        truth, got = answer(model, x), hushnet.run(five, x, check=True)
        (found,) = got.outputs.values()
        assert found.shape == truth.shape and np.abs(found - truth).max() < allowed(five, truth)
        assert (got.trace["images"], got.trace["blocks"]) == (count, blocks)


def test_images_of_convolutions_go_one_after_the_other() -> None:
    plan = hushnet.compile(
        small(), trust="non-interactive", engine="packed", batch=4, calibration=images(small(), 40)
    ).plan
    assert not any("images" in s for s in plan.stages)


@pytest.mark.parametrize("wrong", [0, 4097, 1 << 62])
def test_images_side_by_side_that_no_slots_hold_are_refused(wrong: int) -> None:
    model = dense()
    plan = hushnet.compile(
        model, trust="non-interactive", engine="packed", batch=5, calibration=images(model, 40, 7), ring_degree=8192
    ).plan
    next(s for s in plan.document["stages"] if s["kind"] == "packed")["images"] = wrong
    with pytest.raises(PlanError, match="images side by side"):
        validate(plan)


@pytest.mark.parametrize(("make", "activation"), [(residual, "deg2"), (pooled, "square"), (strided, "deg4")])
def test_any_number_of_images_gives_what_onnx_runtime_says(make, activation: str) -> None:
    model = make(activation).model()
    plan = compiled(model)
    assert plan.plan.document["engine"] == "packed"
    x = images(model, 3)
    truth = answer(model, x)
    got = hushnet.run(plan, x, check=True)
    y = next(iter(got.outputs.values()))
    predicted = plan.plan.predicted
    if "Softmax" not in {n.op_type for n in model.graph.node}:
        assert np.abs(y - truth).max() <= allowed(plan, truth)
    assert np.abs(y - next(iter(reference_run(plan.plan, x).outputs.values()))).max() <= predicted["max_error"]
    assert np.abs(y - truth).max() < 0.02 * max(1.0, float(np.abs(truth).max()))
    assert (got.trace["bytes_down"], got.trace["setup_bytes_up"]) == (
        3 * predicted["bytes_down"],
        predicted["setup_bytes_up"],
    )
    assert got.trace["counted"] == {k: 3 * v for k, v in predicted["counted"].items()}
    assert got.trace["polynomials"] and not got.trace["out_of_range"]


def test_memory_that_holds_not_all_weights_takes_more_time_and_gives_the_same_answer() -> None:
    model = pooled("square").model()
    free = compiled(model)

    def peak(plan: hushnet.Model) -> int:
        return plan.plan.predicted["client_peak_memory_bytes"] + plan.plan.predicted["server_peak_memory_bytes"]

    weights = free.explain()["totals"]["weights"]
    assert weights["kept_bytes"] == weights["bytes"] and weights["encoded_again"] == 0
    tight = compiled(model, max_memory=peak(free) - weights["bytes"] // 3)
    assert peak(tight) <= peak(free) - weights["bytes"] // 3
    told, predicted = tight.explain()["totals"]["weights"], tight.plan.predicted
    assert 0 < told["kept_bytes"] < told["bytes"] == weights["bytes"] and told["encoded_again"] > 0
    assert f"{told['encoded_again']} vectors are encoded again" in " ".join(str(tight.explain()).split())
    assert predicted["seconds"] > free.plan.predicted["seconds"]
    x = images(model, 2)
    got, truth = hushnet.run(tight, x), answer(model, x)
    assert np.abs(next(iter(got.outputs.values())) - truth).max() <= allowed(tight, truth)
    assert got.trace["counted"] == {k: 2 * v for k, v in predicted["counted"].items()}
    assert predicted["counted"]["encodings"] == told["encoded_again"]
    with pytest.raises(LimitError, match="raise max_memory"):
        compiled(model, max_memory=peak(free) - 2 * weights["bytes"] - (16 << 20))


@settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))
@given(networks())
def test_random_networks_equal_onnx_runtime_within_the_predicted_error(model: onnx.ModelProto) -> None:
    try:
        plan = compiled(model)
    except PlanError as error:
        assert "levels" in str(error)
        return
    x = images(model, 1)
    y = next(iter(hushnet.run(plan, x, transport="pipe").outputs.values()))
    exact = next(iter(reference_run(plan.plan, x).outputs.values()))
    assert np.abs(y - exact).max() <= plan.plan.predicted["max_error"]
    truth = answer(model, x)
    assert np.abs(exact - truth).max() <= 1e-3 * max(1.0, float(np.abs(truth).max()))


def test_the_public_part_is_all_that_a_client_gets_and_sessions_over_a_socket_work() -> None:
    model = small()
    plan = compiled(model, hide_weights=True, precision=5)
    public = plan.plan.public_part()
    validate(public)
    assert public.is_public and not plan.plan.is_public
    again = read(plan.plan.to_bytes())
    assert again.digest == plan.plan.digest
    text = json.dumps(public.document)
    assert "coefficients" not in text and "geometry" not in text and "choices" not in text
    assert not any(w.dtype == np.float64 for w in public.weights.values())
    facts = [json.loads(_native.Plan.load(p.to_bytes()).facts())["non_interactive"] for p in (plan.plan, public)]
    assert facts[0]["traffic"] == facts[1]["traffic"] and facts[1]["packed"] is None
    with pytest.raises(PlanError, match="public part"):
        reference_run(public, images(model, 1))
    handle = hushnet.serve(plan)
    try:
        with hushnet.connect(f"ws://127.0.0.1:{handle.port}") as connection:
            for seed in (1, 2):
                x = images(model, 2, seed)
                y = next(iter(connection.infer(x).outputs.values()))
                assert np.abs(y - answer(model, x)).max() <= allowed(plan, answer(model, x))
    finally:
        handle.stop()
    hidden = plan.explain()["trust"]["client_learns"]
    assert "rotations" in hidden and "nothing beyond" in hidden


def test_inputs_outside_their_range_are_refused_and_values_outside_a_polynomials_are_reported() -> None:
    model = small()
    plan = compiled(model)
    x = images(model, 1)
    x[0, 0, 0, 0] = 7.0
    result = hushnet.run(plan, np.concatenate([x, images(model, 1)]))
    assert result.out_of_range == (0,) and result.range_error.value == 7.0
    tight = hushnet.compile(
        model, trust="non-interactive", batch=1, calibration=0.2 * images(model, 20), input_range=(0.0, 1.0)
    )
    trace = hushnet.run(tight, images(model, 2), check=True).trace
    assert trace["out_of_range"] and trace["out_of_range"][0]["largest"] > trace["out_of_range"][0]["range"]


def test_a_network_deeper_than_any_secure_ring_is_refused_with_its_layers_and_levels() -> None:
    net = Random((4, 1, 1), 3)
    net.op("Flatten", net.last)
    net.shape = (4,)
    for _ in range(45):
        net.dense(4)
        net.activation("square")
    net.dense(3)
    with pytest.raises(PlanError) as error:
        compiled(net.model(), bootstrap="never")
    text = str(error.value)
    assert "needs 91 levels" in text and "128-bit" in text and "fewer layers" in text, text
    layers = [
        s["name"]
        for s in Network.from_graph(
            passes.default(frontend.load(net.model())), calibration=images(net.model(), 4)
        ).spec()[0]["steps"]
    ]
    assert len(layers) == 91 and all(f"'{layer}' 1" in text for layer in layers), text


def test_options_of_the_other_engine_and_unknown_ones_are_refused() -> None:
    model = small()
    for options, what in (
        ({"weight_bits": 8}, "batch engine"),
        ({"engine": "other"}, "engine is"),
        ({"packing": "real"}, "batch engine"),
    ):
        with pytest.raises(PlanError, match=what):
            compiled(model, **options)
    assert compiled(model, engine="batch").plan.document["engine"] == "batch"


def test_the_command_line_compiles_explains_and_runs_one_image(tmp_path) -> None:
    model = small()
    onnx.save(model, tmp_path / "m.onnx")
    x = images(model, 2)
    np.save(tmp_path / "x.npy", x)
    run = CliRunner().invoke
    args = [
        "compile",
        str(tmp_path / "m.onnx"),
        "-o",
        str(tmp_path / "m.hush"),
        "--trust",
        "non-interactive",
        "--batch",
        "1",
    ]
    done = run(app, [*args, "--calibration", str(tmp_path / "x.npy")])
    assert done.exit_code == 0, done.output
    shown = run(app, ["explain", str(tmp_path / "m.hush")])
    assert shown.exit_code == 0 and "one image at a time" in shown.output and "giant" in shown.output, shown.output
    explained = json.loads(run(app, ["explain", str(tmp_path / "m.hush"), "--json"]).output)
    layers = {layer["kind"] for layer in explained["layers"]}
    assert {"linear", "polynomial", "encrypt", "decrypt"} <= layers and explained["totals"]["seconds"] > 0
    done = run(app, ["run", str(tmp_path / "m.hush"), str(tmp_path / "x.npy"), "-o", str(tmp_path / "y.npy")])
    assert done.exit_code == 0, done.output
    y = np.load(tmp_path / "y.npy")
    assert np.abs(y - answer(model, x)).max() < 0.02 * max(1.0, float(np.abs(answer(model, x)).max()))


@settings(max_examples=40, deadline=None)
@given(at=__import__("hypothesis").strategies.integers(0, 1 << 20))
def test_corrupted_plans_are_typed_errors(at: int) -> None:
    data = _PLAN or _PLAN.append(compiled(small()).plan.to_bytes()) or _PLAN
    broken = bytearray(data[0])
    broken[at % len(broken)] ^= 0x11
    with pytest.raises(PlanError):
        read(bytes(broken))


_PLAN: list[bytes] = []

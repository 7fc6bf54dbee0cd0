"""Plans of the non-interactive batch engine from ONNX to the answer.

Errors within what was predicted, exact counts, refusals, reports.
"""

from __future__ import annotations

import json
import math

import hushnet
import numpy as np
import onnx
import pytest
from hushnet import _native, data, zoo
from hushnet.cli.main import app
from hushnet.errors import PlanError
from hushnet.plan import Plan
from hushnet.planner import read, validate
from hushnet.planner.non_interactive.primes import choose, is_prime, limit_bits
from hushnet.planner.non_interactive.search import Planner
from hushnet.reference.non_interactive import run as reference_run
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from tests.frontend.harness import expected
from tests.non_interactive.networks import Random, networks


def small(seed: int = 3, activation: str = "square", outputs: int = 3) -> onnx.ModelProto:
    net = Random((1, 6, 6), seed)
    net.conv(2, (3, 3), (2, 2), (0, 0, 1, 1), 1)
    net.activation(activation)
    net.dense(outputs)
    return net.model()


def images(model: onnx.ModelProto, count: int, seed: int = 5) -> np.ndarray:
    shape = [d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim][1:]
    return np.random.default_rng(seed).uniform(0, 1, (count, *shape)).astype(np.float32)


def answer(model: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    return expected(model, {model.graph.input[0].name: x})[0].astype(np.float64)


def compiled(model: onnx.ModelProto, x: np.ndarray, **options) -> hushnet.Model:
    return hushnet.compile(model, trust="non-interactive", calibration=x, **options)


@pytest.mark.parametrize("activation", ["square", "deg2", "deg3", "deg4"])
def test_whole_networks_are_within_the_predicted_error_for_partial_batches_too(activation: str) -> None:
    model = small(activation=activation)
    x = images(model, 300)
    plan = compiled(model, x)
    predicted = plan.plan.predicted
    for count in (1, 300):
        result = hushnet.run(plan, x[:count], transport="pipe", check=True)
        error = np.abs(result.output - answer(model, x[:count])).max()
        assert error <= predicted["max_error"] <= predicted["worst_error"]
        assert result.trace["counted"] == {k: v * result.trace["blocks"] for k, v in predicted["counted"].items()}
        assert result.trace["rounds"] == result.trace["blocks"] == 1
        assert not result.trace["out_of_range"]
    assert error >= predicted["max_error"] * 1e-3, "the estimate is far too careful"


def test_more_images_than_slots_take_several_blocks_and_bytes_are_those_predicted() -> None:
    model = small()
    x = images(model, 64)
    plan = compiled(model, x)
    slots = plan.explain()["parameters"]["images_per_block"]
    many = np.resize(x, (slots + 5, *x.shape[1:]))
    result = hushnet.run(plan, many, transport="pipe")
    facts = json.loads(_native.Plan.load(plan.plan.to_bytes()).facts())["non_interactive"]
    assert result.trace["blocks"] == 2 and result.output.shape == (slots + 5, 3)
    assert np.abs(result.output - answer(model, many)).max() <= plan.plan.predicted["max_error"]
    assert result.trace["bytes_down"] == 2 * facts["traffic"]["down"]
    assert result.trace["setup_bytes_up"] == facts["traffic"]["keys"] == plan.plan.predicted["setup_bytes_up"]
    assert 0 <= result.trace["bytes_up"] - 2 * facts["traffic"]["up"] <= 64


@settings(max_examples=8, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(networks(), st.sampled_from(["auto", "real", "conjugate-invariant"]))
def test_random_networks_are_within_the_predicted_error(model: onnx.ModelProto, packing: str) -> None:
    x = images(model, 24)
    try:
        plan = compiled(model, x, max_memory=2 << 30, packing=packing)
    except PlanError as error:
        assert any(word in str(error) for word in ("depth", "GiB", "binary64"))
        assume(False)
    assume(plan.plan.predicted["server_peak_memory_bytes"] < 600 << 20 and plan.plan.predicted["seconds"] < 4)
    result = hushnet.run(plan, x, transport="pipe")
    scale = max(1.0, float(np.abs(answer(model, x)).max()))
    # Behind a softmax of the client's, errors are those of what it decrypts, which a softmax does not enlarge.
    assert np.abs(result.output - answer(model, x)).max() <= plan.plan.predicted["max_error"] + 1e-5 * scale


def test_a_network_without_products_is_packed_twice_as_densely() -> None:
    net = Random((1, 5, 5), 2)
    net.conv(2, (2, 2), (1, 1), (0, 0, 0, 0), 1)
    net.dense(4)
    model = net.model()
    x = images(model, 40)
    plans = [compiled(model, x, packing=p, ring_degree=2048) for p in ("auto", "real")]
    for plan, packing, slots in zip(plans, ("complex", "real"), (2048, 1024)):
        assert plan.explain()["parameters"]["packing"] == packing
        assert plan.explain()["parameters"]["images_per_block"] == slots
        result = hushnet.run(plan, x, transport="pipe")
        assert np.abs(result.output - answer(model, x)).max() <= plan.plan.predicted["max_error"]


def test_batches_of_more_than_half_the_ring_take_the_ring_with_real_slots() -> None:
    model = small(activation="deg3")
    x = images(model, 60)
    degree = compiled(model, x, packing="real").plan.document["params"]["ring_degree"]
    plans = {b: compiled(model, x, batch=b, ring_degree=degree) for b in (degree // 2, degree // 2 + 1, degree)}
    packings = [p.explain()["parameters"]["packing"] for p in plans.values()]
    assert packings == ["real", "conjugate-invariant", "conjugate-invariant"]
    real, full = plans[degree // 2], plans[degree]
    assert [p.explain()["parameters"]["images_per_block"] for p in (real, full)] == [degree // 2, degree]
    assert full.plan.predicted["bytes_up"] / degree < 0.75 * real.plan.predicted["bytes_up"] / (degree // 2)
    assert full.plan.predicted["seconds"] / degree < 0.75 * real.plan.predicted["seconds"] / (degree // 2)
    for count in (3, degree - 1):
        many = np.resize(x, (count, *x.shape[1:]))
        result = hushnet.run(full, many, transport="pipe")
        assert result.trace["blocks"] == 1
        error = np.abs(result.output - answer(model, many)).max()
        assert 1e-3 * full.plan.predicted["max_error"] <= error <= full.plan.predicted["max_error"]
        assert result.trace["counted"] == full.plan.predicted["counted"]
    # The other ring's plan is refused where primes are not 1 mod 4N, and with two values a slot.
    document = json.loads(json.dumps(real.plan.document))
    narrow = next(p for p in choose(2 * degree, [30.0] * 40) or [] if p % (4 * degree) != 1)
    part = document["params"]["non_interactive"]
    part.update(packing="conjugate-invariant", data_primes=[narrow, *part["data_primes"][1:]])
    with pytest.raises(PlanError, match=f"mod {4 * degree}"):
        validate(Plan(document, real.plan.weights))
    with pytest.raises(PlanError, match="conjugate-invariant"):
        compiled(model, x, packing="dense")


def test_switches_change_the_circuit_and_not_the_answer() -> None:
    model = small(activation="square")
    x = images(model, 50)
    lazy, eager = compiled(model, x), compiled(model, x, lazy=False)
    assert eager.plan.predicted["counted"]["rescalings"] > lazy.plan.predicted["counted"]["rescalings"]
    assert eager.plan.predicted["counted"]["relinearisations"] > lazy.plan.predicted["counted"]["relinearisations"]
    result = hushnet.run(eager, x, transport="pipe")
    assert np.abs(result.output - answer(model, x)).max() <= eager.plan.predicted["max_error"]
    finer = compiled(model, x, precision=14.0)
    assert finer.plan.predicted["max_error"] < lazy.plan.predicted["max_error"] / 8
    result = hushnet.run(finer, x, transport="pipe")
    assert np.abs(result.output - answer(model, x)).max() <= finer.plan.predicted["max_error"]


@pytest.mark.parametrize("packing", ["real", "conjugate-invariant"])
def test_hidden_weights_are_flooded_and_the_answer_stays(packing: str) -> None:
    net = Random((6,), 4)
    net.dense(3)
    net.activation("square")
    net.dense(2)
    model = net.model()
    x = images(model, 20)
    plan = compiled(model, x, hide_weights=True, packing=packing)
    report = plan.explain()
    assert report["parameters"]["flood_bits"] >= 60 and "nothing beyond" in report["trust"]["client_learns"]
    first, second = (hushnet.run(plan, x, transport="pipe").output for _ in range(2))
    for got in (first, second):
        assert np.abs(got - answer(model, x)).max() <= plan.plan.predicted["max_error"]
    assert (first != second).all()
    # A plan whose flood is too short is refused.
    document = json.loads(json.dumps(plan.plan.document))
    document["params"]["non_interactive"]["hide_weights"]["flood_bits"] -= 1
    with pytest.raises(PlanError, match="does not hide"):
        validate(Plan(document, plan.plan.weights))
    open_ = compiled(model, x)
    assert "solved for" in open_.explain()["trust"]["client_learns"]


def test_depth_that_the_security_table_forbids_is_refused_with_layers_and_levels() -> None:
    train_x, *_ = data.digits()
    with pytest.raises(PlanError) as error:
        compiled(zoo.trained("cryptonets-square"), train_x[:64], ring_degree=4096)
    text = str(error.value)
    assert "depth" in text and "ring degree 4096 is 128-bit secure up to 106" in text and "two-party" in text
    assert all(layer in text for layer in ("conv1 (1)", "fc2 (1)", "fc2.out.activation (1)"))


def test_the_deepest_network_of_the_largest_ring_runs_and_a_deeper_one_is_refused_with_all_its_layers() -> None:
    def chain(squares: int) -> onnx.ModelProto:
        net = Random((4, 1, 1), 3)
        net.op("Flatten", net.last)
        net.shape = (4,)
        for _ in range(squares):
            net.dense(4)
            net.activation("square")
        net.dense(3)
        return net.model()

    x = np.random.default_rng(1).uniform(0, 1, (30, 4, 1, 1)).astype(np.float32)
    parameters = compiled(chain(20), x).explain()["parameters"]
    assert parameters["ring_degree"] == 32768 and not parameters["insecure"]
    assert 0.95 * 868 < parameters["modulus_bits"] <= parameters["modulus_bits_limit"] == 868
    with pytest.raises(PlanError) as error:
        compiled(chain(30), x, weight_bits=8)
    text = str(error.value)
    assert (
        "depth 61" in text
        and "61 levels in 61 layers" in text
        and "ring degree 32768 is 128-bit secure up to 868" in text
    ), text
    assert text.count("activation (1)") >= 11 and "two-party" in text


def test_a_run_computes_nothing_in_the_clear_unless_it_is_asked_to(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = small(activation="deg2")
    x = images(model, 3)
    plan = compiled(model, x)
    plan.save(tmp_path / "plan.hush")
    np.save(tmp_path / "x.npy", x)
    command = ["run", str(tmp_path / "plan.hush"), str(tmp_path / "x.npy"), "--transport", "pipe"]
    said = json.loads(CliRunner().invoke(app, [*command, "--check", "--json"]).output)
    assert said["out_of_range"] == []
    shown = CliRunner().invoke(app, [*command, "--check"]).output
    assert "Every polynomial's operand kept to its range." in " ".join(shown.split())

    def forbidden(*_: object, **__: object) -> None:
        raise AssertionError("the network ran in the clear")

    monkeypatch.setattr(hushnet.sessions, "reference_run", forbidden)
    trace = hushnet.run(plan, x, transport="pipe").trace
    assert "polynomials" not in trace and "out_of_range" not in trace
    assert "out_of_range" not in json.loads(CliRunner().invoke(app, [*command, "--json"]).output)
    with pytest.raises(AssertionError, match="in the clear"):
        hushnet.run(plan, x, transport="pipe", check=True)
    other = hushnet.compile(model, batch=2048, calibration=x)
    with pytest.raises(hushnet.InputError, match="check is for non-interactive plans"):
        hushnet.run(other, x, check=True)


def test_values_outside_a_polynomials_range_are_reported_and_inputs_outside_theirs_refused() -> None:
    model = small(activation="deg2")
    x = images(model, 30) * 0.5
    plan = compiled(model, x, input_range=(0.0, 1.0), margin=1.01)
    inside = hushnet.run(plan, x, transport="pipe", check=True).trace
    assert not inside["out_of_range"] and all(p["largest"] <= p["range"] * (1 + 1e-6) for p in inside["polynomials"])
    far = np.minimum(2 * images(model, 30), 1.0)
    plain = reference_run(plan.plan, far)
    (tensor,) = plain.outside
    assert plain.outside[tensor] > 0 and plain.largest[tensor] > plan.plan.tensors[tensor]["range"]
    # Here the results leave their bound too, which the client sees.
    assert hushnet.run(plan, far, transport="pipe").out_of_range
    reached = [layer for layer in plan.explain(inside)["layers"] if "reached" in layer]
    assert reached and reached[0]["reached"] <= reached[0]["range"] * (1 + 1e-6)
    result = hushnet.run(plan, np.concatenate([x[:1], x[:1] + 2]), transport="pipe")
    assert result.out_of_range == (1,) and result.range_error.low == 0.0 and result.range_error.bound == 1.0


def test_the_public_part_is_all_that_a_client_gets_and_a_session_over_a_socket_works() -> None:
    model = small()
    x = images(model, 30)
    plan = compiled(model, x)
    public = plan.plan.public_part()
    assert not public.weights and public.is_public and all("weights" not in s for s in public.stages)
    with pytest.raises(PlanError):
        reference_run(public, x)
    handle = hushnet.serve(plan)
    try:
        with hushnet.connect(f"ws://127.0.0.1:{handle.port}/ws") as connection:
            assert connection.plan["trust"] == "non-interactive"
            got = [connection.infer(x[:n]).output for n in (30, 2)]
        assert np.abs(got[0] - answer(model, x)).max() <= plan.plan.predicted["max_error"]
        assert np.abs(got[1] - answer(model, x[:2])).max() <= plan.plan.predicted["max_error"]
    finally:
        handle.stop()
        handle.join(5)


def test_the_command_line_replaces_activations_explains_and_runs(tmp_path) -> None:
    model = zoo.trained("cryptonets-relu")
    train_x, _, _test_x, _ = data.digits()
    path, plan, calibration = tmp_path / "m.onnx", tmp_path / "m.hush", tmp_path / "c.npy"
    path.write_bytes(model.SerializeToString())
    np.save(calibration, train_x[:64])
    runner = CliRunner()
    arguments = [
        "compile",
        str(path),
        "-o",
        str(plan),
        "--trust",
        "non-interactive",
        "--calibration",
        str(calibration),
        "--json",
    ]
    done = runner.invoke(app, [*arguments, "--activation", "poly:degree=2"])
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)["explain"]
    assert (
        report["parameters"]["modulus_bits"]
        <= report["parameters"]["modulus_bits_limit"]
        == limit_bits(report["parameters"]["ring_degree"])
    )
    assert any("became" in note for note in report["notes"])
    kinds = {layer["kind"] for layer in report["layers"]}
    assert {"encrypt", "linear", "multiply", "relinearise", "decrypt"} <= kinds
    shown = runner.invoke(app, ["explain", str(plan)])
    assert shown.exit_code == 0 and "Levels" in shown.output and "Weights are not private" in shown.output


def test_primes_and_schedules_are_what_the_run_time_finds_too() -> None:
    assert [n for n in range(60) if is_prime(n)] == [2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59]
    assert not is_prime(3215031751) and is_prime((1 << 49) - 111 + 0) == all(
        a * (((1 << 49) - 111) // a) != (1 << 49) - 111 for a in range(2, 10000)
    )
    found = choose(16384, [36.0, 36.0, 48.0])
    assert found and len(set(found)) == 3 and all(p % 16384 == 1 and is_prime(p) for p in found)
    model = small(activation="deg4")
    x = images(model, 16)
    plan = compiled(model, x).plan
    facts = json.loads(_native.Plan.load(plan.to_bytes()).facts())["non_interactive"]
    tensors = {t["id"]: t for t in plan.tensors}
    for track in facts["tracks"]:
        assert 0 < track["hidden"] <= track["sd"] * (1 + 1e-9)
        assert math.isfinite(tensors[track["tensor"]]["scale"])
    assert Planner.search is not None


def test_corrupted_plans_are_typed_errors() -> None:
    model = small()
    plan = compiled(model, images(model, 8)).plan
    for change in (
        lambda d: d["params"]["non_interactive"].update(data_primes=[65537, 65537]),
        lambda d: d["tensors"][1].update(level=99),
        lambda d: d["tensors"][1].update(scale=-1.0),
        lambda d: d["stages"].pop(),
        lambda d: d["params"].update(ring_degree=1000),
        lambda d: d["stages"][1].update(kind="relu"),
    ):
        document = json.loads(json.dumps(plan.document))
        change(document)
        with pytest.raises(PlanError):
            validate(Plan(document, plan.weights))
    broken = bytearray(plan.to_bytes())
    broken[len(broken) // 2] ^= 1
    with pytest.raises(PlanError):
        read(bytes(broken))

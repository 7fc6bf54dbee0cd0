"""``hushnet check``: costs, what stands in the way by operator, and cuts that compile."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import hushnet
import numpy as np
import pytest
from hushnet import InputError
from hushnet.assess import TRUST, assess, assess_all, grouped, last_cut
from hushnet.cli.common import read_shapes
from hushnet.cli.main import app
from hushnet.errors import PlanError
from hushnet.frontend import Issue, ModelError
from typer.testing import CliRunner

from .harness import Net


def plain():
    net = Net((3, 8, 8))
    net.op("Relu", net.op("Conv", "x0", net.weight(4, 3, 3, 3)))
    return net.model()


def blocked():
    """Two convolutions, then twice an operator of nobody, then another."""
    net = Net((3, 8, 8))
    net.op("Relu", net.op("Conv", "x0", net.weight(4, 3, 3, 3)))
    last = net.op("Conv", net.last, net.weight(4, 4, 3, 3))
    for _ in range(2):
        net.op("Wonder", net.last, domain="my.ops")
    net.op("BitShift", net.last, net.last, direction="LEFT")
    return net.model(), last


def test_a_model_that_compiles_has_costs_in_every_trust_model():
    found = {trust: assess(plain(), trust) for trust in TRUST[:2]}
    assert all(a.compiles and a.seconds > 0 and a.bytes_up > 0 and not a.groups for a in found.values())
    planned = hushnet.compile(plain(), trust="client-aided").plan.document["predicted"]
    assert (found["client-aided"].seconds, found["client-aided"].bytes_down) == (
        planned["seconds"],
        planned["bytes_down"],
    )


def test_nodes_in_the_way_are_grouped_and_the_cut_compiles():
    model, last = blocked()
    for trust in TRUST[:2]:
        found = assess(model, trust)
        assert not found.compiles and found.seconds is None
        assert [(g.op_type, g.count) for g in found.groups] == [("my.ops.Wonder", 2), ("BitShift", 1)]
        assert found.until == last
        assert assess(model, trust, until=[found.until]).compiles


def test_a_planners_refusal_is_one_group_and_has_a_cut():
    net = Net((3, 8, 8))
    conv = net.op("Conv", "x0", net.weight(4, 3, 3, 3))
    net.op("MatMul", net.op("ReduceProd", conv, axes=[2]), net.weight(6, 2))
    assert assess(net.model(), "client-aided").compiles
    found = assess(net.model(), "two-party")
    assert not found.compiles and len(found.groups) == 1 and "reduce_prod" in found.groups[0].problem
    # what is behind the last layer runs on the client: the products may be part of the encrypted network
    assert assess(net.model(), "two-party", until=[found.until]).compiles


def test_equal_sentences_are_one_row():
    issues = [Issue("a", "Log", "p", "x."), Issue("b", "Log", "p", "x."), Issue("c", "Log", "q", "x.")]
    assert [(g.nodes, g.problem) for g in grouped(issues)] == [(("a", "b"), "p"), (("c",), "q")]


@pytest.mark.parametrize("length", range(5))
def test_the_last_cut_is_found_by_halving(length):
    def compiles(end):
        return int(end[0]) < length

    assert last_cut([str(i) for i in range(4)], compiles) == (str(min(length, 4) - 1) if length else None)


def test_cuts_are_tried_once_and_with_the_fewest_bits(monkeypatch):
    """A cut asks whether there is a plan, which the search for the cheapest one answers ten times later."""
    asked = []
    planned = hushnet.assess.planned

    def counted(graph, ports, options):
        asked.append((tuple(graph.outputs), options.weight_bits))
        return planned(graph, ports, options)

    monkeypatch.setattr(hushnet.assess, "planned", counted)
    net = Net((3, 8, 8))
    conv = net.op("Conv", "x0", net.weight(4, 3, 3, 3))
    for _ in range(6):
        net.op("Conv", net.op("Relu"), net.weight(4, 4, 1, 1))
    found = assess(net.model(), "non-interactive")
    assert found.until == conv
    (_, first), *cuts = asked
    assert first is None and len(cuts) == len(set(cuts)) and {bits for _, bits in cuts} == {7}
    assert hushnet.compile(net.model(), trust="non-interactive", until=[conv]).plan.predicted["max_error"] > 0


def test_networks_that_do_not_fit_many_images_are_told_for_one(monkeypatch):
    planned = hushnet.assess.planned

    def small(graph, ports, options):
        if options.images > 1:
            raise PlanError("client and server need 40 GiB; give fewer images at once (batch=1)")
        return planned(graph, ports, options)

    monkeypatch.setattr(hushnet.assess, "planned", small)
    found = assess(plain(), "client-aided")
    assert found.compiles and found.batch == 1 and found.bytes_up > 0
    # who asks for a number of images is told of that number
    assert not assess(plain(), "client-aided", batch=64).compiles


def test_broken_models_are_no_assessment():
    with pytest.raises(ModelError):
        assess(b"no model", "client-aided")


def test_shapes_on_the_command_line():
    assert read_shapes(["x=1,3,48,192", "a=b=2"]) == {"x": (1, 3, 48, 192), "a=b": (2,)}
    for bad in ("x", "x=", "=1", "x=1,a", "x=0,3", "x=-1"):
        with pytest.raises(InputError, match="--shape"):
            read_shapes([bad])


def test_the_command(tmp_path):
    model, last = blocked()
    path = tmp_path / "net.onnx"
    path.write_bytes(model.SerializeToString())
    done = CliRunner().invoke(app, ["check", str(path), "--trust", "client-aided", "--json"])
    document = json.loads(done.stdout)
    assert done.exit_code == 1 and not document["supported"]
    assert (
        document["trust"]["client-aided"]["groups"][0]["count"] == 2
        and document["trust"]["client-aided"]["until"] == last
    )
    done = CliRunner().invoke(app, ["check", str(path), "--trust", "client-aided"])
    assert done.exit_code == 1 and f"--until {last}" in done.stdout and "my.ops.Wonder" in done.stdout
    asked = ["check", str(path), "--trust", "client-aided", "--until", last]
    done = CliRunner().invoke(app, asked)
    assert done.exit_code == 0 and "yes" in done.stdout and "figures are those of 8-bit plans" in done.stdout
    shape = [d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim[1:]]
    np.save(tmp_path / "x.npy", np.random.default_rng(0).uniform(-1, 1, (8, *shape)))
    done = CliRunner().invoke(app, [*asked, "--calibration", str(tmp_path / "x.npy")])
    assert done.exit_code == 0 and "8-bit plans" not in done.stdout


def test_dynamic_axes_take_the_shape_of_the_calibration_data():
    net = Net((3, "height", "width"))
    net.op("GlobalAveragePool", net.op("Conv", "x0", net.weight(4, 3, 3, 3)))
    x = np.random.default_rng(0).random((4, 3, 9, 7)).astype(np.float32)
    model = hushnet.compile(net.model(), calibration=x, batch=4)
    assert hushnet.run(model, x).output.shape == (4, 4, 1, 1)
    with pytest.raises(ModelError, match="--shape x0=1,3,64,64"):
        hushnet.compile(net.model())
    assert hushnet.compile(net.model(), shapes={"x0": (1, 3, 9, 7)}, batch=1).plan.document["predicted"]["batch"] == 1


def test_one_image_without_the_axis_of_images():
    net = Net((4,), batch=3)
    net.op("MatMul", net.op("Softmax", net.op("MatMul", "x0", net.weight(4, 3)), axis=0), net.weight(3, 2))
    x = np.random.default_rng(0).random((3, 4)).astype(np.float32)
    model = hushnet.compile(net.model(), calibration=x, batch=1)
    one = hushnet.run(model, x).output
    assert one.shape == (1, 3, 2)
    assert np.array_equal(hushnet.run(model, np.stack([x, x])).output, np.concatenate([one, one]))


@pytest.mark.parametrize("trust", ["client-aided", "two-party"])
def test_private_lookups_run_encrypted(trust):
    net = Net((3,))
    table, weight = net.weight(11, 6), net.weight(18, 4)
    net.op("Relu", net.op("MatMul", net.op("Reshape", net.op("Gather", table, "x0"), net.ints(-1, 18)), weight))
    model = net.model()
    model.graph.input[0].type.tensor_type.elem_type = 7
    x = np.random.default_rng(0).integers(-11, 11, (5, 3))
    constants = {c.name: hushnet.frontend.model.numpy_helper.to_array(c) for c in model.graph.initializer}
    want = np.maximum(constants[table][x].reshape(5, 18) @ constants[weight], 0)
    plan = hushnet.compile(model, trust=trust, calibration=x, batch=5)
    lookups = [s for s in plan.plan.stages if s["kind"] == "linear"]
    assert len(lookups) == 2, "the table is a layer, planned like any"
    errors = plan.plan.document["predicted"]
    assert errors["max_error"] <= 0.05 * np.abs(want).max()
    assert np.abs(hushnet.run(plan, x).output - want).max() <= min(2 * errors["max_error"], errors["worst_error"])


def two_branches(gates=("Floor", "Round")):
    """Two layers, a branch with a product of private tensors, two functions, and layers behind both."""
    net = Net((3, 8, 8))
    first = net.op("Relu", net.op("Conv", "x0", net.weight(4, 3, 3, 3)))
    second = net.op("Conv", first, net.weight(4, 4, 1, 1))
    gate = net.op(gates[0], net.op("Conv", first, net.weight(4, 4, 1, 1)))
    product = net.op("Mul", second, gate)
    net.op("Conv", net.op(gates[1], product), net.weight(2, 4, 1, 1))
    names = {node.op_type: node for node in net.nodes}
    return net.model(), [names[kind].output[0] for kind in (gates[0], "Mul", gates[1])], second


@pytest.mark.parametrize("trust", ["two-party", "non-interactive"])
def test_planners_name_every_node_in_the_way_once(trust):
    gates = ("Sigmoid", "Tanh") if trust == "non-interactive" else ("Floor", "Round")
    model, blocking, _ = two_branches(gates)
    found = assess(model, trust)
    nodes = {n.name or f"{n.op_type}_{i}": n.output[0] for i, n in enumerate(model.graph.node)}
    listed = [nodes[name] for group in found.groups for name in group.nodes]
    # products run in both
    blocking = [name for name in blocking if name != "t5"]
    if trust == "non-interactive":
        blocking = ["t1", *blocking]
    assert sorted(listed) == sorted(blocking)
    assert [g.op_type for g in found.groups] == [*(["Relu"] if trust == "non-interactive" else []), *gates]
    assert all(group.advice.endswith(".") and ";" not in group.problem for group in found.groups)


def test_a_cut_may_open_a_few_tensors_and_no_layer_of_it_is_in_the_way():
    model, _, second = two_branches()
    found = assess(model, "two-party")
    ends = found.until.split(",")
    assert len(ends) == 2 and second in ends
    plan = hushnet.compile(model, trust="two-party", until=found.until).plan
    assert [o["name"] for o in plan.document["outputs"]] == ends
    assert sum(stage["kind"] == "linear" for stage in plan.stages) == 3
    # one output at most: in front of the ReLU
    assert assess(model, "non-interactive").until == "t0"


def test_what_follows_from_an_opened_tensor_is_not_opened_too():
    net = Net((3, 8, 8))
    conv = net.op("Conv", "x0", net.weight(4, 3, 3, 3))
    gate = net.op("Clip", net.op("Add", conv, net.constant(3.0)), net.constant(0.0), net.constant(6.0))
    net.op("Conv", net.op("Mul", conv, net.op("Div", gate, net.constant(6.0))), net.weight(4, 4, 1, 1))
    assert assess(net.model(), "two-party").compiles
    found = assess(net.model(), "non-interactive")
    assert [g.op_type for g in found.groups] == ["Mul (hard_swish)"] and found.until == conv


def test_nodes_that_planners_refuse_in_front_of_a_cut_are_listed_with_the_front_ends():
    net = Net((3, 8, 8))
    conv = net.op("Conv", "x0", net.weight(4, 3, 3, 3))
    net.op("Conv", net.op("Floor", conv), net.weight(4, 4, 3, 3))
    net.op("Wonder", net.op("Conv", net.last, net.weight(4, 4, 1, 1)), domain="my.ops")
    found = assess(net.model(), "two-party")
    assert [(g.op_type, g.count) for g in found.groups] == [("my.ops.Wonder", 1), ("Floor", 1)]
    assert found.until == conv


def test_networks_without_finite_ranges_are_tried_with_random_inputs():
    net = Net((4,))
    divided = net.op("Div", net.op("MatMul", "x0", net.weight(4, 4)), net.op("MatMul", "x0", net.weight(4, 4)))
    net.op("MatMul", divided, net.weight(4, 2))
    x = np.random.default_rng(0).random((4, 4)).astype(np.float32)
    with pytest.raises(PlanError):
        hushnet.compile(net.model())
    found = assess(net.model(), "client-aided")
    assert found.compiles and found.made_up and found.seconds > 0
    assert not assess(net.model(), "client-aided", calibration=x).made_up
    text = CliRunner().invoke(app, ["check", save(net), "--trust", "client-aided"])
    assert text.exit_code == 0 and "Compile it with --calibration" in " ".join(text.stdout.split())


def save(net):
    path = Path(tempfile.mkdtemp()) / "net.onnx"
    path.write_bytes(net.model().SerializeToString())
    return str(path)


def test_operators_of_several_ops_are_one_row_with_advice_for_them():
    net = Net((4, 6))
    net.op("LayerNormalization", net.op("MatMul", "x0", net.weight(6, 6)), net.weight(6), net.weight(6), axis=-1)
    net.op("MatMul", net.last, net.weight(6, 2))
    (group,) = assess(net.model(), "non-interactive").groups
    assert group.count == 1 and group.op_type.startswith("LayerNormalization")
    assert group.problem.startswith("it normalises by private numbers") and "BatchNormalization" in group.advice


def test_a_model_is_read_once_for_all_trust_models(monkeypatch):
    read = []
    lowered = hushnet.assess.lowered
    monkeypatch.setattr(hushnet.assess, "lowered", lambda *a, **k: (read.append(k["until"]), lowered(*a, **k))[1])
    model, _, _ = two_branches()
    assess_all(model)
    assert len(read) == len(set(read)) == 3, "the whole network, and one for each of two cuts"

"""Networks that are deeper than levels are, planned: where bootstraps stand, what the plan says, what is refused."""

from __future__ import annotations

import json

import hushnet
import numpy as np
import onnx
import pytest
from hushnet.errors import LimitError, PlanError
from hushnet.plan import Plan
from hushnet.reference.non_interactive import run
from onnx import TensorProto, helper, numpy_helper

from tests.frontend.harness import expected

WIDTH, BLOCKS = 8, 5


def residual(blocks: int = BLOCKS) -> tuple[onnx.ModelProto, np.ndarray]:
    """``h += V (W h)^2``, over and over: three levels a block, and sums that join paths of different depth."""
    rng = np.random.default_rng(3)
    x = rng.uniform(-1, 1, size=(64, WIDTH)).astype(np.float32)
    nodes, weights, h = [], [], "x"
    for k in range(blocks):
        for name, size in ((f"w{k}", 0.9), (f"v{k}", 0.3)):
            values = rng.normal(size=(WIDTH, WIDTH)) * size / np.sqrt(WIDTH)
            weights.append(numpy_helper.from_array(values.astype(np.float32), name))
        nodes += [
            helper.make_node("MatMul", [h, f"w{k}"], [f"u{k}"], name=f"in{k}"),
            helper.make_node("Mul", [f"u{k}", f"u{k}"], [f"s{k}"], name=f"square{k}"),
            helper.make_node("MatMul", [f"s{k}", f"v{k}"], [f"t{k}"], name=f"out{k}"),
            helper.make_node("Add", [h, f"t{k}"], [f"h{k}"], name=f"sum{k}"),
        ]
        h = f"h{k}"
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", WIDTH]) for name in ("x", h)]
    graph = helper.make_graph(nodes, "residual", ends[:1], ends[1:], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 9
    return model, x


def compiled(**options) -> hushnet.Model:
    model, x = residual()
    return hushnet.compile(model, trust="non-interactive", batch=1, calibration=x, bootstrap="always", **options)


@pytest.fixture(scope="module")
def model() -> hushnet.Model:
    return compiled()


@pytest.fixture(scope="module")
def plan(model: hushnet.Model) -> Plan:
    return model.plan


def test_the_plan_says_where_bootstraps_stand_and_what_they_take(model: hushnet.Model) -> None:
    plan = model.plan
    facts = json.loads(plan.handle().facts())["non_interactive"]
    steps = [s for s in facts["packed"]["steps"] if s["kind"] == "bootstrap"]
    assert steps and facts["counted"]["bootstraps"] == len(steps)
    assert plan.predicted["depth"] == 3 * BLOCKS
    assert plan.document["params"]["ring_degree"] == 65536 and not plan.document["params"]["insecure"]
    lines = [o for o in facts["packed"]["operations"] if o.startswith("bootstrap of")]
    assert len(lines) == len(steps) and all("what follows needs" in o and "slots" in o for o in lines)
    assert "bootstrap of" in str(model.explain())
    # The ring of a bootstrap, which the security table grants as it is.
    report = facts["packed"]
    assert 1575 < report["modulus_bits"] <= 1747 and report["security"] == 128
    # Bytes of keys: what a session sends, frames included.
    assert plan.predicted["setup_bytes_up"] == facts["traffic"]["keys"] > 500_000_000
    assert plan.predicted["server_peak_memory_bytes"] > 2 * report["key_bytes"]


def test_planned_values_are_those_of_onnx_runtime(plan: Plan) -> None:
    network, x = residual()
    want = expected(network, {"x": x})[0]
    (got,) = run(plan, x).outputs.values()
    assert np.abs(got - want).max() < plan.predicted["max_error"] < 2.0**-7 * np.abs(want).max() * 1.3


def test_clients_learn_slots_and_keys_but_no_places(plan: Plan) -> None:
    (stage,) = (s for s in plan.stages if s["kind"] == "packed")
    assert stage["choices"]["bootstraps"]["slots"] == stage["bootstrap"]
    public = plan.public_part()
    (told,) = (s for s in public.stages if s["kind"] == "packed")
    assert told["bootstrap"] == stage["bootstrap"] and "choices" not in told


def packed(plan: Plan) -> dict:
    return next(s for s in plan.stages if s["kind"] == "packed")


@pytest.mark.parametrize(
    ("options", "said"), [({"hide_weights": True}, "hides weights"), ({"ring_degree": 32768}, "ring degree 65536")]
)
def test_what_bootstraps_cannot_do_is_refused(options: dict[str, object], said: str) -> None:
    with pytest.raises(PlanError, match=said):
        compiled(**options)


def test_batches_of_deep_networks_are_bootstrapped_side_by_side() -> None:
    """Batch packing ends where levels end; a batch does not make a network refused that one image of is taken."""
    deep, x = residual(13)
    options = {"trust": "non-interactive", "calibration": x}
    one, many = (hushnet.compile(deep, batch=batch, **options).plan for batch in (1, 48))
    stage = packed(many)
    assert "images" not in packed(one) and stage["images"] == 48
    few, most = (plan.document["predicted"] for plan in (one, many))
    assert most["counted"]["bootstraps"] == few["counted"]["bootstraps"] > 0
    assert most["seconds"] < 2 * few["seconds"]
    want = expected(deep, {"x": x})[0][:50]
    # The last block has two images.
    (found,) = run(many, x[:50]).outputs.values()
    assert np.abs(found - want).max() < 1e-3 * np.abs(want).max()
    assert hushnet.compile(residual(3)[0], batch=3, **options).plan.document["engine"] == "batch"
    for without in ({"engine": "batch"}, {"bootstrap": "never"}):
        with pytest.raises(LimitError, match="ring degree 32768"):
            hushnet.compile(deep, batch=3, **without, **options)

"""What leaves the server of a plan tells no more of weights than docs/two-party.md lists.

Attacks that used to work, and plans whose weights differ within the classes that are told.
"""

from __future__ import annotations

import copy
import hashlib
import json

import hushnet
import numpy as np
import pytest
from hushnet import _native
from hushnet.graph import Linear
from hushnet.plan import Plan
from hushnet.planner import compile
from hushnet.planner.two_party.reach import converted
from hushnet.reference.methods import SLOTS
from hushnet.report import explain, render
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st

from tests.non_interactive.networks import networks
from tests.planner.planner_graphs import Builder
from tests.two_party_plan.share_graphs import graphs, images

EXAMPLES = settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))


def dense(weight: float):
    """Gemm(1, 1)."""
    b = Builder((1,), seed=0)
    b.dense(1)
    graph = b.done()
    graph.nodes[-1].weight = np.array([[weight]])
    graph.nodes[-1].bias = np.zeros(1)
    return graph


def private(graph, **options) -> Plan:
    # without the search for bits that reach a precision: many graphs are compiled
    return compile(graph, trust="two-party", **{"weight_bits": 8, **options})


# -- the attack


def norms(document) -> list[float]:
    """The attack: how far the layers reach, in real units, from bounds before and after them."""
    found = []
    for stage in document["stages"]:
        if stage["kind"] == "linear":
            source, out = (document["tensors"][stage[k]] for k in ("in", "out"))
            if "bound" in source and "bound" in out:
                found.append((out["bound"] - 1) // source["bound"] * 2.0 ** (source["frac_bits"] - out["frac_bits"]))
    return found


def numbers(value) -> list[float]:
    """All numbers of a document."""
    if isinstance(value, dict):
        return [n for v in value.values() for n in numbers(v)]
    if isinstance(value, list):
        return [n for v in value for n in numbers(v)]
    return [value] if type(value) in (int, float) else []


def test_the_weight_of_a_layer_is_not_in_the_public_part() -> None:
    plan = private(dense(0.37), input_range=(-1.0, 1.0))
    # the server's own plan shows what the attack finds
    assert norms(plan.document) == [pytest.approx(0.37, abs=2.0**-8)]
    public = plan.public_part().document
    assert norms(public) == []
    # and no other number comes from the weight: all weights of its class have the same public part
    told = {private(dense(w), input_range=(-1.0, 1.0)).public_bytes() for w in np.linspace(0.26, 0.48, 23)}
    assert len(told) == 1, len(told)
    # over three powers of two the whole plan tells a few classes, not sixty weights
    told = {private(dense(w), input_range=(-1.0, 1.0)).public_bytes() for w in np.geomspace(0.12, 0.98, 60)}
    assert 3 <= len(told) <= 9


def test_norms_of_several_layers_are_not_in_the_public_part() -> None:
    b = Builder((3, 8, 8), seed=4)
    b.conv(6).op("relu").conv(6).op("clip", min=0.0, max=0.6).dense(5)
    graph = b.done()
    layers = [n for n in graph.nodes if isinstance(n, Linear)]
    for node in layers:
        node.bias = np.zeros_like(node.bias)
    # the image has both signs to the planner; behind ReLUs and clips from zero weights of one sign are summed at a time
    rows = [np.asarray(n.weight).reshape(len(n.weight), -1) for n in layers]
    sides = [max(np.maximum(s * r, 0).sum(axis=1).max() for s in (1, -1)) for r in rows]
    exact = [np.abs(rows[0]).sum(axis=1).max(), *sides[1:]]
    for x in (None, images(graph, 8)):
        plan = private(graph, calibration=x, input_range=(0.0, 1.0))
        if x is None:
            assert np.allclose(norms(plan.document), exact, rtol=0.1)
        public = plan.public_part().document
        assert norms(public) == []
        # bounds, sums of weights and errors of the server's plan are no numbers of the public one
        ours = {n for t in plan.tensors if t["kind"] == "shared" for n in [t["bound"]] if n & (n + 1) and n & (n - 1)}
        entering = {t["bound"] for t in plan.tensors if t["kind"] == "fixed"}
        seen = set(numbers({k: v for k, v in public.items() if k != "predicted"}))
        assert not (ours - entering) & seen and len(ours) > 3
        assert not {"max_error", "worst_error", "output_errors", "seen_error", "nonlinear"} & set(public["predicted"])


# -- plans whose weights differ within the classes


def reach(bound: int) -> int:
    return (bound + bound // 256 + 2).bit_length()


def classes(plan: Plan):
    """What docs/two-party.md says that weights may decide, from the server's exact figures."""
    tensors = plan.tensors
    told = [plan.document["params"]]
    told += [[t["shape"], t["frac_bits"], reach(t["bound"])] for t in tensors if t["kind"] == "shared"]
    told += [[t["scale"], reach(t["bound"])] for t in tensors if t["kind"] == "fixed"]
    keys = (
        "kind",
        "in",
        "out",
        "method",
        "protocol",
        "weight_l2",
        "bits",
        "sign",
        "exact",
        "factor",
        "numerator",
        "log_denominator",
    )
    for stage in plan.stages:
        told.append({k: stage[k] for k in keys if k in stage})
        if stage["kind"] == "linear" and stage["method"] in SLOTS:
            # on which side of a prime a bound is
            bound = tensors[stage["out"]]["bound"]
            told.append(converted(stage["name"], bound, reach(bound)))
        bits = stage.get("bits", 0) if stage["kind"] in {"relu", "clip", "max_pool"} else 0
        left = (tensors[stage["in"]]["bound"] >> bits) + 1 if bits else None
        if stage["kind"] == "clip":
            limits = max(abs(stage["low"]), abs(stage["high"]))
            told.append([stage["low"] == 0, reach((left or tensors[stage["in"]]["bound"]) + limits)])
        elif left:
            told.append(reach(left))
    return json.dumps(told)


def moved(graph, by: float, seed: int):
    """The graph with every weight and bias moved by up to so large a share."""
    rng = np.random.default_rng(seed)
    other = copy.deepcopy(graph)
    for node in other.nodes:
        if isinstance(node, Linear):
            node.weight = np.asarray(node.weight) * (1 + by * rng.uniform(-1, 1, np.shape(node.weight)))
            node.bias = np.asarray(node.bias) * (1 + by * rng.uniform(-1, 1, np.shape(node.bias)))
    return other


def exact(plan: Plan) -> list[int]:
    return [t["bound"] for t in plan.tensors if t["kind"] == "shared"]


def agree(graph, seed: int, **options) -> bool:
    """Compares public parts of plans of one class; False where no perturbation stays in it."""
    plan = private(graph, **options)
    for by in (0.03, 0.01, 0.003):
        other = private(moved(graph, by, seed), **options)
        if classes(other) == classes(plan) and exact(other) != exact(plan):
            assert other.public_bytes() == plan.public_bytes()
            return True
    return False


@EXAMPLES
@given(graphs(), st.integers(0, 99), st.booleans())
def test_weights_of_one_class_have_one_public_part(graph, seed, calibrated) -> None:
    if not any(isinstance(n, Linear) for n in graph.nodes):
        reject()
    if not agree(graph, seed, calibration=images(graph, 3) if calibrated else None):
        reject()


@pytest.mark.parametrize(
    "options", [{}, {"nonlinear": "garbled"}, {"method": "gala"}, {"reveal": "argmax"}, {"network": "wan"}]
)
def test_weights_of_one_class_have_one_public_part_by_every_method(options) -> None:
    met = 0
    for seed in range(4):
        b = Builder((3, 8, 8), seed=seed)
        b.conv(6).op("clip", min=0.0, max=0.6)
        skip = b.at
        b.conv(6).op("leaky_relu", alpha=0.1).conv(6).op("add", others=(skip,)).op("clip", min=-0.4, max=0.7)
        b.pool("max_pool", (2, 2), (2, 2)).conv(8).op("relu").pool("average_pool", (2, 2), (2, 2)).dense(5)
        graph = b.done()
        met += agree(graph, seed, calibration=images(graph, 4), **options)
    assert met >= 2


def test_clients_of_other_weights_see_the_same_plan_and_the_same_digest() -> None:
    """What a served session carries.

    The plan's frame, and the digest of the greeting, which is that of the public part's JSON.
    """
    b = Builder((2, 6, 6), seed=7)
    b.conv(4).op("relu").dense(3)
    graph = b.done()
    plans = [private(g, input_range=(0.0, 1.0)) for g in (graph, moved(graph, 0.003, 1))]
    assert exact(plans[0]) != exact(plans[1]) and classes(plans[0]) == classes(plans[1])
    told = []
    for plan in plans:
        server = hushnet.serve(hushnet.Model(plan))
        try:
            with _native.connect(f"hush://127.0.0.1:{server.port}") as client:
                text = client.plan_json()
        finally:
            server.stop()
        told.append((text, hashlib.sha256(text.encode()).hexdigest(), plan.public_part().digest))
    assert told[0] == told[1]


# -- non-interactive plans with hidden weights


def ciphers(plan: Plan):
    """What docs/non-interactive.md says that weights may decide, from the server's plan."""
    d = plan.document
    keys = ("kind", "shape", "level", "parts", "scale", "noise_bits")
    told = [d["params"], [{k: t[k] for k in keys if k in t} for t in d["tensors"]]]
    opened = {s["in"] for s in d["stages"] if s["kind"] == "decrypt"}
    told.append([int(np.ceil(np.log2(t["bound"]))) for t in d["tensors"] if t["id"] in opened])
    keys = ("kind", "in", "out", "geometry", "scale", "rotations", "answer", "answer_level", "answer_scale")
    told.append([{k: s[k] for k in keys if k in s} for s in d["stages"]])
    public = [s[k] for s in d["stages"] if s["kind"] == "packed" for k in ("places",)]
    return json.dumps(told) + "".join(hashlib.sha256(plan.weights[k].tobytes()).hexdigest() for k in public)


def hidden(model, **options) -> Plan:
    return hushnet.compile(model, trust="non-interactive", hide_weights=True, **options).plan


def shaken(model, by: float, seed: int):
    """The ONNX model with the arrays of its layers moved by up to so large a share."""
    from onnx import numpy_helper

    rng, other = np.random.default_rng(seed), copy.deepcopy(model)
    for array in other.graph.initializer:
        value = numpy_helper.to_array(array)
        if value.dtype == np.float32 and value.ndim > 1:
            array.CopyFrom(
                numpy_helper.from_array(
                    (value * (1 + by * rng.uniform(-1, 1, value.shape))).astype(np.float32), array.name
                )
            )
    return other


@settings(max_examples=2, deadline=None, suppress_health_check=list(HealthCheck))
@given(networks(), st.integers(0, 99), st.booleans(), st.sampled_from([1, 64]))
def test_hidden_weights_of_one_class_have_one_public_part(model, seed, calibrated, batch) -> None:
    shape = [d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim[1:]]
    options = {
        "batch": batch,
        "calibration": np.random.default_rng(0).uniform(0, 1, (4, *shape)).astype(np.float32) if calibrated else None,
    }
    try:
        plan = hidden(model, **options)
        others = [hidden(shaken(model, 0.001, seed), **options)]
    except hushnet.PlanError:
        reject()
    alike = [o for o in others if ciphers(o) == ciphers(plan)]
    if not alike:
        reject()
    for other in alike:
        assert other.document != plan.document
        assert other.public_bytes() == plan.public_bytes()


def test_hidden_plans_keep_inner_bounds_errors_and_names_through_python() -> None:
    """Python's public part is the run time's: what it strips is stripped."""
    from tests.frontend.harness import Net

    for batch in (1, 64):
        net = Net((1, 6, 6), seed=3)
        net.op("Conv", net.last, net.weight(2, 1, 3, 3), net.constant(np.ones(2)))
        net.op("Mul", net.last, net.last)
        net.op("Flatten", net.last)
        net.op("Gemm", net.last, net.weight(3, 32), net.constant(np.ones(3)), transB=1)
        plan = hidden(net.model(), batch=batch)
        public = plan.public_part()
        assert public.to_bytes() and json.dumps(public.document) == json.dumps(json.loads(json.dumps(public.document)))
        ends = {s[k] for s in public.stages for kind, k in (("encrypt", "out"), ("decrypt", "in")) if s["kind"] == kind}
        assert all(("bound" in t) == (t["id"] in ends) and "range" not in t for t in public.tensors)
        opened = next(t for s in public.stages if s["kind"] == "decrypt" for t in public.tensors if t["id"] == s["in"])
        assert np.log2(opened["bound"]).is_integer()
        # other weights of one class: one file
        other = hidden(shaken(net.model(), 0.0005, 1), batch=batch)
        assert ciphers(other) == ciphers(plan) and other.document != plan.document
        assert other.public_bytes() == plan.public_bytes()
        stripped = {
            "max_error",
            "worst_error",
            "noise_error",
            "precision_bits",
            "seen_error",
            "seconds",
            "counted",
            "server_peak_memory_bytes",
        }
        assert not stripped & set(public.predicted) and not public.document["notes"]
        assert all("predicted" not in s for s in public.stages)


@pytest.mark.parametrize("seed", [1, 3, 4])
def test_the_input_of_a_hidden_plan_is_bounded_by_its_range_to_the_last_bit(seed: int) -> None:
    """Units solve linear equations whose right-hand sides are coefficients: the input's stays one."""
    from tests.frontend.harness import Net

    net, rng = Net((6,), seed=seed), np.random.default_rng(seed)
    for _ in range(2):
        beside = net.last
        net.op("Add", net.op("Gemm", beside, net.weight(6, 6), transB=1), beside)
        square = net.op("Mul", net.last, net.last)
        net.op("Add", net.op("Mul", square, net.constant(rng.uniform(0.1, 0.9))), beside)
    net.op("Gemm", net.last, net.weight(3, 6), transB=1)
    public = hidden(net.model(), batch=1, input_range=(0.0, 0.7)).public_part()
    (encrypt,) = [s for s in public.stages if s["kind"] == "encrypt"]
    assert next(t for t in public.tensors if t["id"] == encrypt["out"])["bound"] == 0.7


# -- what is left can be read


@pytest.mark.parametrize("trust", ["two-party", "non-interactive", "client-aided"])
def test_public_parts_are_their_own_public_parts_and_are_explained(trust) -> None:
    b = Builder((2, 6, 6), seed=7)
    b.conv(4)
    b = b if trust == "non-interactive" else b.op("relu")
    plan = compile(b.dense(3).done(), trust=trust)
    public = plan.public_part()
    assert public.is_public and not plan.is_public
    assert public.public_bytes() == plan.public_bytes()
    for seen in (plan, public):
        report = explain(seen)
        assert report["public_part"] == (seen is public) and render(report)
    secret = {t["name"] for t in plan.tensors} | {s["name"] for s in plan.stages}
    kept = {t["name"] for t in public.tensors} | {s["name"] for s in public.stages}
    ports = {p["name"] for p in [*plan.document["inputs"], *plan.document["outputs"]]}
    allowed = ports | {f"{p}.q" for p in ports} | {"encode", "decode"}
    if trust != "client-aided":
        assert secret & kept <= allowed
    if trust == "two-party":
        assert {"conv 1", "relu 1", "dense 1"} <= kept

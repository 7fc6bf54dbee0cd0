"""A sample of the random networks of every trust model, and their judge: planted slips are found."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import hushnet
import numpy as np
import pytest
from hushnet.errors import Blocked, BlockedPlan, PlanError

from tests.random_networks import judge as judging
from tests.random_networks.generate import PROFILES, network
from tests.random_networks.judge import COARSE, CRASHED, REFUSED, RIGHT, UNUSABLE, WRONG, Drawn, Verdict, compare, judge
from tests.random_networks.table import DOCUMENT, refused_by, rows

ROOT = Path(__file__).resolve().parents[1]
SEED, COUNT = 7, 24
LEAST_RIGHT = 18


@pytest.mark.parametrize("trust", sorted(PROFILES))
def test_a_sample_is_right_or_refused(trust: str) -> None:
    # a process of its own: workers are forked, which a process whose thread pool has started must not do
    command = [
        sys.executable,
        "-m",
        "tests.random_networks",
        "--trust",
        trust,
        "--seed",
        str(SEED),
        "--count",
        str(COUNT),
    ]
    done = subprocess.run([*command, "--json"], cwd=ROOT, capture_output=True, text=True, check=False, timeout=500)
    document = json.loads(done.stdout)
    rest = [v for v in document["verdicts"] if v["verdict"] in (WRONG, CRASHED)]
    assert document[WRONG] == document[CRASHED] == 0, rest
    assert document[RIGHT] >= LEAST_RIGHT
    assert document["coarse"] <= 2


def test_networks_follow_from_their_numbers() -> None:
    one, again, other = (network("client-aided", 3, i).SerializeToString() for i in (5, 5, 6))
    assert one == again != other


def test_networks_have_what_they_are_for() -> None:
    found = [network(trust, 3, i) for trust in PROFILES for i in range(60)]
    operators = {n.op_type for model in found for n in model.graph.node}
    assert operators >= {
        "Conv", "ConvTranspose", "AveragePool", "MaxPool", "Pad", "Slice", "Split", "Transpose", "Reshape", "Concat",
        "Resize", "Add", "Mul",
        "ReduceMean", "ReduceSum", "Tile", "Expand", "Gather", "Where", "Softplus", "Gelu",
    }  # fmt: skip
    # squeeze-and-excite: a gate of one element a channel scales a tensor
    assert any(
        {"Sigmoid", "HardSigmoid"} & {m.op_type for m in model.graph.node if m.output[0] in n.input}
        for model in found
        for n in model.graph.node
        if n.op_type == "Mul"
    )
    attributes = {(n.op_type, a.name) for model in found for n in model.graph.node for a in n.attribute}
    assert attributes >= {
        ("Conv", "dilations"), ("Conv", "auto_pad"), ("Conv", "strides"), ("AveragePool", "count_include_pad"),
        ("MaxPool", "ceil_mode"),
        ("ConvTranspose", "output_padding"), ("Conv", "pads"),
    }  # fmt: skip
    assert any(len(model.graph.input) > 1 for model in found) and any(len(model.graph.output) > 1 for model in found)
    kernels = {
        len(a.ints) for model in found for n in model.graph.node for a in n.attribute if a.name == "kernel_shape"
    }
    assert kernels == {1, 2, 3}


@pytest.mark.parametrize(("trust", "seed", "index"), [("client-aided", 5, 122), ("two-party", 3, 300)])
def test_networks_have_the_shapes_that_onnx_runtime_gives(trust: str, seed: int, index: int) -> None:
    """A kernel that no padded input holds, and a pool's last window that starts behind it, are not drawn."""
    model = network(trust, seed, index)
    results = judging.expected(model, judging.images(model, Drawn(seed, index)))
    assert [list(r.shape[1:]) for r in results] == [
        [d.dim_value for d in port.type.tensor_type.shape.dim[1:]] for port in model.graph.output
    ]


def drawn() -> Drawn:
    """A network that is right."""
    for index in range(20):
        if judge(Drawn(SEED, index), "client-aided").verdict == RIGHT:
            return Drawn(SEED, index)
    raise AssertionError("none of 20 networks is right")


def test_slips_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    good = drawn()
    real = hushnet.run

    def slipped(*given: object, **options: object) -> hushnet.Result:
        result = real(*given, **options)
        name = next(iter(result.outputs))
        result.outputs[name] = result.outputs[name] + 10 * (1 + np.abs(result.outputs[name]).max())
        return result

    monkeypatch.setattr(hushnet, "run", slipped)
    assert judge(good, "client-aided").verdict == WRONG
    monkeypatch.setattr(hushnet, "run", lambda *_, **__: 1 / 0)
    assert judge(good, "client-aided").verdict == CRASHED
    evaluate = judging.evaluate
    monkeypatch.setattr(judging, "evaluate", lambda *a: {k: v + 0.1 for k, v in evaluate(*a).items()})
    found = judge(good, "client-aided")
    assert found.verdict == WRONG and "the graph's" in found.reason


def test_a_network_that_takes_too_long_is_a_crash() -> None:
    command = [sys.executable, "-m", "tests.random_networks", "--trust", "client-aided", "--count", "1", "--json"]
    done = subprocess.run(
        [*command, "--seconds", "0"], cwd=ROOT, capture_output=True, text=True, check=False, timeout=500
    )
    document = json.loads(done.stdout)
    assert done.returncode == 1 and document[CRASHED] == 1 and document["beyond"] == 0
    assert "no result within" in document["verdicts"][0]["reason"]


def test_a_refusal_that_names_nothing_is_a_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    good = drawn()

    def refuse(error: PlanError):
        def compile_(*_: object, **__: object) -> None:
            raise error

        return compile_

    named = BlockedPlan("no", [Blocked("a", "reduce_prod", "it multiplies", "Leave it out.")])
    monkeypatch.setattr(hushnet, "compile", refuse(named))
    found = judging.Verdict("a", RIGHT)
    judging.refused(found, named, "two-party")
    assert found.verdict == REFUSED and found.refused == ["reduce_prod"]
    judging.refused(found, BlockedPlan("no", [Blocked("a", "add", "it adds", "Leave it out.")]), "two-party")
    assert found.verdict == CRASHED
    monkeypatch.setattr(hushnet, "compile", refuse(PlanError("it does not work")))
    assert judge(good, "client-aided").verdict == CRASHED


def test_the_table_names_every_op_of_plans() -> None:
    from hushnet.reference.ops import OPS

    names = {name.strip() for row in rows(DOCUMENT.read_text(encoding="utf-8")) for name in row[1].split(",")}
    # the planner alone writes channel_scale
    assert names >= set(OPS) - {"channel_scale"}
    assert {"reduce_prod", "sigmoid", "max_pool"} <= refused_by("two-party") and "conv" not in refused_by("two-party")
    assert "matmul" not in refused_by("two-party")
    assert {"relu", "div"} <= refused_by("non-interactive") and not refused_by("client-aided")


def test_what_onnx_runtime_cannot_run_is_counted_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judging, "expected", lambda *_: 1 / 0)
    assert judge(drawn_index(), "client-aided").verdict == UNUSABLE


def test_what_binary32_cannot_say_is_counted_apart() -> None:
    """The cosine of hundreds of millions, 53:859: the graph is held against binary64; 53:421 did not compile once."""
    found = judge(Drawn(53, 859), "client-aided")
    assert found.verdict == UNUSABLE and "binary32" in found.reason
    assert judge(Drawn(53, 421), "client-aided").verdict == RIGHT


def drawn_index() -> Drawn:
    return Drawn(SEED, 0)


def test_a_prediction_that_says_nothing_is_counted() -> None:
    class Plan:
        def __init__(self, error: float) -> None:
            self.document = {"predicted": {"output_errors": {"y": {"max_error": error}}}}

    class Model:
        def __init__(self, error: float) -> None:
            self.plan = Plan(error)

    want = {"y": np.ones((3, 2))}
    got = {"y": np.ones((2, 2))}
    for error, coarse in ((0.5 * COARSE, False), (2 * COARSE, True)):
        found = Verdict("a", RIGHT)
        compare(Model(error), want, got, found)  # type: ignore[arg-type]
        assert found.coarse is coarse and found.verdict == RIGHT


def test_a_jump_is_right_where_the_plan_states_it() -> None:
    """57:21 has a ThresholdedRelu that an encrypted row lies at: off by 0.85 of 0.85, which its plan says."""
    found = judge(Drawn(57, 21), "client-aided")
    assert found.verdict == RIGHT and found.jumped and not found.beyond

    class Model:
        def __init__(self, **stated: float) -> None:
            self.plan = self
            self.document = {"predicted": {"output_errors": {"y": {"max_error": 1e-3} | stated}}}

    want = {"y": np.ones((24, 2))}
    got = {"y": np.array([[1.0, 1.8], [1.0, 1.0]])}
    for stated, verdict in (
        ({"near_jumps": 1 / 24, "jump_error": 0.8}, RIGHT),
        ({}, WRONG),
        ({"near_jumps": 0.0, "jump_error": 0.8}, WRONG),
        ({"near_jumps": 1 / 24, "jump_error": 0.7}, WRONG),
    ):
        found = Verdict("a", RIGHT)
        compare(Model(**stated), want, got, found)  # type: ignore[arg-type]
        assert found.verdict == verdict and found.jumped is (verdict == RIGHT)
    # more rows than stand near a jump
    found = Verdict("a", RIGHT)
    compare(Model(near_jumps=1 / 24, jump_error=0.8), want, {"y": np.full((2, 2), 1.8)}, found)  # type: ignore[arg-type]
    assert found.verdict == WRONG

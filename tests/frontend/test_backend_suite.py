"""A sample of ONNX's backend suite through ``compile`` and ``run``, and the harness itself: a planted slip is found."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import hushnet
import numpy as np
import pytest
from onnx import TensorProto, helper

from tests.backend_suite import judge as judging
from tests.backend_suite.__main__ import below
from tests.backend_suite.cases import Case
from tests.backend_suite.judge import CRASHED, PASSED, REFUSED, WRONG, fits_between, judge, judge_between
from tests.backend_suite.workers import judge_all

# models that PyTorch exported load at once; node cases are made anew, which takes ten seconds
EVERY = 4
ROOT = Path(__file__).resolve().parents[2]
LEAST = {"client-aided": 25, "two-party": 8}


@pytest.mark.parametrize("trust", ["client-aided", "two-party"])
def test_a_sample_is_passed_or_refused(trust: str) -> None:
    # a process of its own: workers are forked, which a process whose thread pool has started must not do
    command = [
        sys.executable,
        "-m",
        "tests.backend_suite",
        "--trust",
        trust,
        "--kinds",
        "pytorch-converted,pytorch-operator",
    ]
    done = subprocess.run(
        [*command, "--every", str(EVERY), "--json"], cwd=ROOT, capture_output=True, text=True, check=False, timeout=500
    )
    document = json.loads(done.stdout)
    rest = [v for v in document["verdicts"] if v["verdict"] not in (PASSED, REFUSED)]
    assert document[WRONG] == document[CRASHED] == 0, rest
    assert document[PASSED] >= LEAST[trust]
    assert all(v["reason"] for v in document["verdicts"] if v["verdict"] == REFUSED)


class _Entry:
    def __init__(self, output: np.ndarray):
        port = helper.make_tensor_value_info
        graph = helper.make_graph(
            [helper.make_node("Relu", ["x"], ["y"])],
            "g",
            [port("x", TensorProto.FLOAT, [2, 3])],
            [port("y", TensorProto.FLOAT, [2, 3])],
        )
        self.model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        self.data_sets = [([np.array([[-1, 2, 3], [4, -5, 6]], np.float32)], [output])]


def _case(output: np.ndarray) -> Case:
    return Case("relu", "node", _Entry(output))


GOOD = np.array([[0, 2, 3], [4, 0, 6]], np.float32)


def test_a_right_case_passes() -> None:
    assert judge(_case(GOOD), "client-aided").verdict == PASSED


def test_between_layers_the_operator_runs_on_shares(monkeypatch: pytest.MonkeyPatch) -> None:
    plans, compile_ = [], hushnet.compile

    def noted(*given: object, **options: object) -> hushnet.Model:
        plans.append(compile_(*given, **options))
        return plans[-1]

    monkeypatch.setattr(hushnet, "compile", noted)
    assert judge_between(_case(GOOD), "two-party").verdict == PASSED
    kinds = [stage["kind"] for stage in plans[-1].plan.stages]
    assert kinds.index("linear") < kinds.index("relu") < len(kinds) - 1 - kinds[::-1].index("linear")
    assert judge_between(_case(GOOD + np.eye(2, 3, dtype=np.float32)), "two-party").verdict == WRONG


def test_what_no_layer_can_read_or_give_is_left_out() -> None:
    assert fits_between(_case(GOOD)) and not fits_between(_case(np.array([[0, np.inf]], np.float32)))


@pytest.mark.parametrize("wanted", [GOOD + 1, GOOD[:1], np.full((2, 3), np.inf), GOOD[None]])
def test_a_result_that_is_not_expected_is_wrong(wanted: np.ndarray) -> None:
    assert judge(_case(wanted), "client-aided").verdict == WRONG


def test_what_is_raised_is_a_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hushnet, "compile", lambda *_, **__: 1 / 0)
    found = judge(_case(GOOD), "client-aided")
    assert found.verdict == CRASHED and "ZeroDivisionError" in found.reason


def test_a_refusal_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(advice: str):
        def compile_(*_: object, **__: object) -> None:
            raise hushnet.frontend.UnsupportedModel([hushnet.frontend.Issue("n", "Op", "no", advice)])

        return compile_

    monkeypatch.setattr(hushnet, "compile", refuse("Do this."))
    assert judge(_case(GOOD), "client-aided").verdict == REFUSED
    monkeypatch.setattr(hushnet, "compile", refuse(" "))
    assert judge(_case(GOOD), "client-aided").verdict == CRASHED


def test_a_process_that_dies_or_does_not_end_is_a_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [_case(GOOD), _case(GOOD)]
    monkeypatch.setattr("tests.backend_suite.workers.judge", lambda *_: os._exit(3))
    dead = judge_all(found, "client-aided", processes=1)
    assert [v.verdict for v in dead] == [CRASHED] * 2 and "exit code" in dead[0].reason
    monkeypatch.setattr("tests.backend_suite.workers.judge", lambda *_: __import__("time").sleep(60))
    assert "no result" in judge_all(found[:1], "client-aided", processes=1, seconds=0.5)[0].reason


def test_counts_below_the_least_are_reported() -> None:
    verdicts = [judging.Verdict("a", "node", PASSED), judging.Verdict("b", "node", REFUSED)]
    assert below(verdicts, {"node": 1}) == []
    assert below(verdicts, {"node": 2, "light": 1}) == ["node: 1 passed, 2 at least before"]

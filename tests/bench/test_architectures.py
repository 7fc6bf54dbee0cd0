"""Rows of modern architectures: what they claim is checked, and a run that is not as planned is refused."""

from __future__ import annotations

from dataclasses import replace

import hushnet
import numpy as np
import pytest
from hushnet import data, zoo
from hushnet_bench import architectures as bench
from hushnet_bench.two_processes import Measured


@pytest.fixture(scope="module")
def run() -> tuple[hushnet.Model, np.ndarray, Measured]:
    model = zoo.build("mobilenetv3-small", size=32, width=0.25, depth=1, classes=5)
    plan = hushnet.compile(model, trust="two-party", calibration=data.synthetic((3, 32, 32), 8, seed=1), weight_bits=10)
    x = data.synthetic((3, 32, 32), 1, seed=2).astype(np.float32)
    result = hushnet.run(plan, x, threads=1)
    # both parties in one process have one trace
    return plan, bench.plain(model, x), Measured(result.outputs, [result.trace], result.trace, False)


def test_a_run_as_planned_passes_and_others_do_not(run: tuple[hushnet.Model, np.ndarray, Measured]) -> None:
    plan, wanted, seen = run
    (got,) = seen.outputs.values()
    row = bench.checked(plan, seen, got, wanted)
    assert row["as_planned"] and row["error_to_onnx"] <= row["stated_error"]
    with pytest.raises(hushnet.HushnetError, match=r"is [0-9.]+ from ONNX Runtime's, and the plan states"):
        bench.checked(plan, seen, got + 2 * row["stated_error"], wanted)
    with pytest.raises(hushnet.HushnetError, match="from ONNX Runtime's"):
        bench.checked(plan, seen, got * np.nan, wanted)
    more = {**seen.client[0], "bytes_up": seen.client[0]["bytes_up"] + 1}
    with pytest.raises(hushnet.HushnetError, match=r"not as planned: bytes_up \d+ \(planned \d+\)"):
        bench.checked(plan, replace(seen, client=[more]), got, wanted)


def test_kinds_have_all_bytes_and_turns(run: tuple[hushnet.Model, np.ndarray, Measured]) -> None:
    plan, _, seen = run
    kinds = bench.by_kind(plan, seen)
    assert {"linear", "hard_swish", "product", "clip", "truncate"} <= set(kinds)
    sent = seen.client[0]["bytes_up"] + seen.client[0]["bytes_down"]
    assert sum(k["megabytes"] for k in kinds.values()) == pytest.approx(sent / 1e6, rel=0.02)
    assert sum(k["stages"] for k in kinds.values()) == len(plan.plan.stages)


def test_only_known_networks_are_run() -> None:
    with pytest.raises(hushnet.InputError, match="no case lenet: cases are mobilenetv3-small"):
        bench.rows(quick=True, threads=1, progress=None, cases=["lenet"])

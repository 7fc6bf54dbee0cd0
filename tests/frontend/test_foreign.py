"""Networks as other hands write them: ONNX Runtime's answers within the statement, or a refusal that says what to do.

Ranges come from random calibration data, options are the default ones; but two-party plans have so many bits without a
search for the precision, which takes a minute for all of these.
"""

from __future__ import annotations

import hushnet
import numpy as np
import onnx
import pytest
from hushnet.assess import assess
from hushnet.reference import two_party as shares

from tests.architectures.foreign import FOREIGN

from .harness import expected

CALIBRATION, ROWS = 64, 3


def rows(model: onnx.ModelProto, count: int, seed: int) -> dict[str, np.ndarray]:
    """Uniform numbers from -1 to 1."""
    rng = np.random.default_rng(seed)
    shapes = {p.name: [d.dim_value for d in p.type.tensor_type.shape.dim[1:]] for p in model.graph.input}
    return {name: rng.uniform(-1, 1, (count, *shape)).astype(np.float32) for name, shape in shapes.items()}


@pytest.mark.parametrize("trust", ["client-aided", "two-party"])
@pytest.mark.parametrize("name", sorted(FOREIGN))
def test_answers_are_onnx_runtimes(name: str, trust: str) -> None:
    model = FOREIGN[name]()
    onnx.checker.check_model(model, full_check=True)
    bits = {"weight_bits": 14, "most_bits": 14, "sums": "calibrated"} if trust == "two-party" else {}
    plan = hushnet.compile(model, trust=trust, calibration=rows(model, CALIBRATION, 1), **bits)
    x = rows(model, ROWS, 2)
    result = hushnet.run(plan, x, threads=1)
    # rows that left their range are named, and are nobody's statement
    kept = [i for i in range(ROWS) if i not in result.out_of_range]
    assert kept
    for (port, values), wanted in zip(result.outputs.items(), expected(model, x)):
        stated = plan.plan.predicted["output_errors"][port]["max_error"]
        assert values.shape == wanted.shape
        # a statement that says nothing is none
        assert stated <= 0.1 * np.abs(wanted).max(), (port, stated)
        off = np.abs(values - wanted).reshape(ROWS, -1).max(axis=1)
        for i in kept:
            # one row of a thousand may be beyond: then by no more than units that are drawn anew explain
            assert off[i] <= stated or off[i] <= explained(plan, x, port, wanted, i), (port, i, off[i], stated)


def explained(model: hushnet.Model, x: dict[str, np.ndarray], port: str, wanted: np.ndarray, row: int) -> float:
    """A quarter more than the largest error of 100 planned runs of a row, each with other units; 0 without units."""
    if model.plan.document["trust"] != "two-party":
        return 0.0
    again = {name: np.repeat(v[row : row + 1].astype(np.float64), 100, axis=0) for name, v in x.items()}
    values = shares.run(model.plan, again, units=np.random.default_rng(row), keep_all=True)[port]
    return 1.25 * float(np.abs(values - wanted[row]).max())


def test_999_rows_of_1000_keep_to_statements_of_64_rows() -> None:
    """Sets of 64 rows state more and less, and a row in a thousand is beyond of all rows that are stated of."""
    model, count = FOREIGN["siamese"](), 2000
    x = rows(model, count, 3)
    (wanted,) = expected(model, x)
    bits = {"weight_bits": 14, "most_bits": 14, "sums": "calibrated"}
    beyond = []
    for seed in range(1, 9):
        plan = hushnet.compile(model, trust="two-party", calibration=rows(model, CALIBRATION, 100 * seed), **bits).plan
        values = shares.run(plan, {k: v.astype(np.float64) for k, v in x.items()}, units=np.random.default_rng(seed))
        off = np.abs(values["similarity"] - wanted)
        beyond.append(int((off > plan.predicted["max_error"]).sum()))
        assert plan.predicted["max_error"] < 3 * np.quantile(off, 0.999)
    assert sum(beyond) <= 0.001 * count * len(beyond), beyond
    # no set of rows is worth nothing
    assert max(beyond) <= 0.003 * count, beyond


@pytest.mark.parametrize("name", sorted(FOREIGN))
def test_what_polynomials_do_not_compute_is_refused_node_by_node(name: str) -> None:
    model = FOREIGN[name]()
    found = assess(model, "non-interactive", cuts=False, calibration=rows(model, 4, 1))
    known = {node.name for node in model.graph.node}
    assert not found.compiles and found.groups
    for group in found.groups:
        assert set(group.nodes) <= known, group
        assert group.advice.endswith(".") and ("train the network again" in group.advice or "trust=" in group.advice)

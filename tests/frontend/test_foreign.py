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
        assert np.abs(values - wanted)[kept].max() <= stated, port


@pytest.mark.parametrize("name", sorted(FOREIGN))
def test_what_polynomials_do_not_compute_is_refused_node_by_node(name: str) -> None:
    model = FOREIGN[name]()
    found = assess(model, "non-interactive", cuts=False, calibration=rows(model, 4, 1))
    known = {node.name for node in model.graph.node}
    assert not found.compiles and found.groups
    for group in found.groups:
        assert set(group.nodes) <= known, group
        assert group.advice.endswith(".") and ("train the network again" in group.advice or "trust=" in group.advice)

"""Rows of whole two-party networks: their error is held against what is stated."""

from __future__ import annotations

import hushnet
import numpy as np
import pytest
from hushnet import data, zoo
from hushnet_bench import two_party as bench


@pytest.fixture(scope="module")
def cnn() -> tuple[hushnet.Model, np.ndarray]:
    model = hushnet.compile(
        zoo.build("cifar10-cnn"), trust="two-party", calibration=data.synthetic((3, 32, 32), 8, seed=1), weight_bits=11
    )
    return model, data.synthetic((3, 32, 32), 2, seed=2).astype(np.float32)


def test_real_runs_keep_to_the_error_that_units_come_to_and_faults_do_not(
    cnn: tuple[hushnet.Model, np.ndarray],
) -> None:
    model, x = cnn
    got = hushnet.run(model, x, threads=1).output
    row = bench.checked(model, x, got)
    assert row["within_stated"] and 0 < row["max_error_units"] <= row["stated_error_units"]
    # far below what bounds of worst units at once would let through
    assert row["stated_error_units"] < 0.01 * row["error_bound"] / 2**-9
    wrong = got.copy()
    wrong[1, 3] += 1.5 * row["stated_error_units"] * 2**-9
    with pytest.raises(hushnet.HushnetError, match="stated error"):
        bench.checked(model, x, wrong)

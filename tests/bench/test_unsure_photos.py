"""Photos that a network is not sure of: they are, or there is no figure."""

from __future__ import annotations

from typing import Any

import hushnet
import numpy as np
import pytest
from hushnet_bench import unsure_photos as bench

DRAWN = 40


def answers(probability: Any) -> Any:
    """A network that gives photos probabilities in turn."""

    def plain(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        (value,) = arrays.values()
        assert value.shape == (DRAWN, 224, 224, 3) and np.isfinite(value).all()
        # no two photos are the same
        assert len(np.unique(value.reshape(len(value), -1)[:, ::997], axis=0)) == len(value)
        likely = np.array([probability(i / len(value)) for i in range(len(value))])
        return {"y": np.stack([1 - likely, likely], axis=1)}

    return plain


def test_photos_are_spread_and_a_network_that_is_sure_of_them_gives_no_figure() -> None:
    arrays, exact = bench.unsure(answers(lambda place: place), 8, DRAWN)
    assert next(iter(arrays.values())).shape == (8, 224, 224, 3) and exact.shape == (8, 2)
    assert sorted(exact[:, 1].round(1)) == pytest.approx(np.linspace(0.02, 0.95, 8), abs=0.06)
    # what two photos of scikit-learn gave, blended and blurred: 0.013 to 0.047
    with pytest.raises(hushnet.InputError, match="is sure of the photos that could be drawn: 0% of 8"):
        bench.unsure(answers(lambda place: 0.01 + 0.04 * place), 8, DRAWN)

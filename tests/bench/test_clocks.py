"""How whole plans are clocked against each other."""

from __future__ import annotations

import numpy as np
import pytest
from hushnet.machine import two_party as machine
from hushnet_bench import two_party_methods as bench


class Fake(bench.Clock):
    """A plan of known cost, on a machine that is up to twice as slow in four rounds of five."""

    def __init__(self, linear: float, setup: float, rng: np.random.Generator) -> None:
        self.true, self.extra, self.rng, self.rounds = linear, setup, rng, -1
        self.linear = [0, 2]
        self.setup, self.stages = self.seen(bench.CLOCKED)

    def seen(self, runs: int) -> tuple[float, np.ndarray]:
        self.rounds += 1
        parts = self.true * np.array([0.3, 5.0, 0.7])
        slow = 1.0 if self.rng.random() < 0.2 else 1.0 + self.rng.random(4)
        noise = slow * (1.0 + 0.01 * self.rng.random(4))
        return self.extra * noise[3], parts * noise[:3]


@pytest.mark.parametrize("seed", range(20))
def test_close_plans_are_clocked_until_their_figures_stand(seed: int) -> None:
    rng = np.random.default_rng(seed)
    near, nearly, quick_to_set_up, far = (
        Fake(1.0, 4.0, rng),
        Fake(1.02, 4.0, rng),
        Fake(1.8, 0.1, rng),
        Fake(20.0, 9.0, rng),
    )
    rounds = bench.settle([near, nearly, quick_to_set_up, far])
    assert bench.STEADY < rounds <= bench.MOST_ROUNDS
    assert near.rounds == nearly.rounds == quick_to_set_up.rounds == rounds and far.rounds == 0
    assert near.told()["clocked_linear_seconds"] == pytest.approx(1.0, rel=0.03)
    assert nearly.told()["clocked_linear_seconds"] == pytest.approx(1.02, rel=0.03)
    assert quick_to_set_up.told()["clocked_linear_seconds_with_setup"] == pytest.approx(1.9, rel=0.03)
    assert near.told()["clocked_seconds"] == pytest.approx(6.0, rel=0.03)


def test_plans_without_rivals_are_not_clocked_again() -> None:
    alone = Fake(1.0, 0.0, np.random.default_rng(1))
    assert bench.settle([]) == bench.settle([alone]) == alone.rounds == 0


def test_long_inferences_are_clocked_less_often() -> None:
    assert [bench._clocked_times(s) for s in (0.1, 14.9, 15.1, 99.0, 101.0)] == [3, 3, 2, 2, 1]


@pytest.mark.parametrize("runs", [1, 3])
def test_a_single_inference_counts_as_the_first_and_the_least(runs: int) -> None:
    model, x = machine.plan((2, 5, 7), 3, 3, "cheetah", 1)
    setup, first, least = machine.clocked(model, x, runs)
    assert setup > 0.0 and first.shape == least.shape == (len(model.plan.stages), 2)
    assert (first == least).all() == (runs == 1)

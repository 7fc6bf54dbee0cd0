"""What the planner weighs in batches.

Unit costs by instruction set, widths of words, blocks of the batch, narrowed primes.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hushnet import data, zoo
from hushnet.frontend import load
from hushnet.options import NonInteractive
from hushnet.planner.non_interactive import cost
from hushnet.planner.non_interactive.network import Network
from hushnet.planner.non_interactive.search import Planner


def planner(batch: int, units: cost.Units, monkeypatch: pytest.MonkeyPatch) -> Planner:
    monkeypatch.setattr(cost, "units", lambda: units)
    train_x, *_ = data.digits()
    samples = train_x[:64].astype(np.float64)
    network = Network.from_graph(
        load(zoo.trained("cryptonets-square")),
        calibration=samples,
        input_range=None,
        ranges=None,
        safety=1.25,
        merge="auto",
        clamp=None,
    )
    return Planner(network, NonInteractive(trust="non-interactive", ring_degree=8192), samples, batch)


def test_words_cost_by_their_digits_or_by_their_sums() -> None:
    digits = [cost.NARROW.product(bits, 1e4) for bits in (20.0, 32.0, 33.0, 48.0, 49.0)]
    assert digits == [cost.NARROW.digit_products[i] for i in (0, 0, 1, 1, 2)]
    assert (
        cost.WIDE.product(30.0, 2.0**20)
        == cost.WIDE.word_product[0]
        < cost.WIDE.product(30.0, 2.0**21)
        == cost.WIDE.word_product[1]
    )


@pytest.mark.parametrize("units", [cost.WIDE, cost.NARROW])
def test_no_schedule_of_the_grid_that_holds_the_precision_is_cheaper(
    units: cost.Units, monkeypatch: pytest.MonkeyPatch
) -> None:
    for batch in (4096, 8192):
        p = planner(batch, units, monkeypatch)
        chosen = p.search()
        assert chosen.packing == ("real" if batch == 4096 else "conjugate-invariant") and chosen.images == batch
        assert chosen.error[0] + p.drift(chosen) <= p.target()
        if units is cost.NARROW:
            assert max(map(math.log2, chosen.data_primes)) <= 32, "a third digit for words that two would hold"
        for scales in list(p.grid())[::5]:
            for other in p.rings(scales):
                if p.secure(other) and other.error[0] + p.drift(other) <= p.target() and p.exact(other) is not None:
                    assert p.price(chosen) <= p.price(other)


def test_a_batch_pays_whole_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    p = planner(4096, cost.NARROW, monkeypatch)
    schedule = p.search()
    seconds = cost.predicted_seconds(schedule)
    for batch, blocks in ((1, 1), (4096, 1), (4097, 2), (10000, 3)):
        p.batch = batch
        assert p.price(schedule)[0] == pytest.approx(seconds * blocks / batch)


def test_narrowed_primes_are_priced_as_what_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    p = planner(8192, cost.NARROW, monkeypatch)
    wide = next(
        s
        for scales in p.grid()
        for s in p.rings(replace(scales, weight_bits=12))
        if p.secure(s) and max(s.prime_bits) > p.room(s)
    )
    narrow = p.narrow(wide)
    assert (
        narrow is not None
        and max(narrow.prime_bits) <= p.room(narrow)
        and len(narrow.prime_bits) > len(wide.prime_bits)
    )
    assert narrow.scales.most < wide.scales.most and p.price(narrow) != p.price(wide)
    assert p.exact(wide) is None and p.exact(narrow) is not None

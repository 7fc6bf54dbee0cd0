"""Messages that follow one another: what a network far away waits for."""

from __future__ import annotations

import hushnet
import pytest
from hushnet import data, zoo


@pytest.fixture(scope="module")
def plain20() -> hushnet.Model:
    calibration = data.synthetic((3, 32, 32), 16, seed=1)
    return hushnet.compile(zoo.build("plain20-f3-d20-w1"), trust="two-party", calibration=calibration, weight_bits=11)


def test_a_layer_and_its_comparison_take_six_messages(plain20: hushnet.Model) -> None:
    """Plain-20 has 19 ReLUs of up to 16 compared bits; the former protocols took twelve messages for each.

    What the session begins with, and the exact truncation in front of what is opened, take 14 at most.
    """
    relus = [s["kind"] for s in plain20.plan.document["stages"]].count("relu")
    assert relus == 19 and plain20.explain()["totals"]["rounds"] <= 6 * relus + 14


def test_plain20_takes_less_than_four_seconds_over_a_wide_area_network(plain20: hushnet.Model) -> None:
    """100 Mbit/s and 40 ms there and back, by the planner's own choice and the package's unit costs."""
    assert plain20.explain(network="wan")["totals"]["seconds"] < 4.0

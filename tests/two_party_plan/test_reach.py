"""Reaches of tensors: powers of two that both parties derive their rings from."""

from __future__ import annotations

import pytest
from hushnet import _native
from hushnet.planner.two_party.reach import converted, write_reaches


@pytest.mark.parametrize("kind", ["reshape", "transpose", "concat", "slice", "pad"])
def test_moves_keep_the_bit_that_a_conversion_adds(kind: str) -> None:
    # the largest bound that keeps below a power of two, with errors: the prime of slots is a little less than the power
    reach = 18
    bound = next(b for b in range(2**reach, 0, -1) if _native.reach_bits(b) == reach)
    assert converted("layer", bound, reach) == reach + 1
    tensors = [{"kind": "shared", "bound": bound} for _ in range(3)]
    layer = {"kind": "linear", "name": "layer", "method": "gala", "in": 0, "out": 1}
    move = {"kind": kind, "name": "move", "in": [1], "out": 2}
    write_reaches({"tensors": tensors, "stages": [layer, move], "params": {"two_party": {"ring_bits": 40}}})
    assert [t["reach_bits"] for t in tensors] == [reach, reach + 1, reach + 1]

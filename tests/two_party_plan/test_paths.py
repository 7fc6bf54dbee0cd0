"""The cheapest path against all paths, and where taking the cheapest way of every step by itself is wrong."""

import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hushnet.planner.two_party.paths import Node, NoPath, Way, shortest


def chain(*ways):
    """Steps one after the other: t0 -> t1 -> ..."""
    return [Node(f"s{i}", (f"t{i}",), f"t{i + 1}", tuple(w)) for i, w in enumerate(ways)]


def flat(cost):
    return lambda tensor, held, wanted: 0.0 if held == wanted else cost


def test_where_greedy_is_wrong_the_path_is_right():
    ring, prime = (lambda s: Way("cheetah", "ring", "ring", s)), (lambda s: Way("gala", "prime", "prime", s))
    relu = [Way("ot", "ring", "ring", 5.0), Way("garbled", "prime", "prime", 5.8)]
    nodes = chain([ring(10.0), prime(9.0)], relu, [ring(10.0), prime(9.0)])
    # Step by step, gala (9 < 10), OT (5 < 5.8), gala: 23, and three conversions of 2.
    total, picks = shortest(nodes, {"t0": "ring"}, flat(2.0))
    assert [picks[n.name].way.name for n in nodes] == ["cheetah", "ot", "cheetah"]
    assert total == 25.0
    # With a conversion of 0.5, all in the prime: one conversion at the entrance.
    total, picks = shortest(nodes, {"t0": "ring"}, flat(0.5))
    assert [picks[n.name].way.name for n in nodes] == ["gala", "garbled", "gala"]
    assert total == pytest.approx(24.3)
    assert picks["s1"].runner_up == "ot" and picks["s1"].gap == pytest.approx(0.2)
    assert picks["s0"].runner_up == "cheetah" and picks["s0"].gap == pytest.approx(0.2)


def test_a_converted_tensor_serves_all_its_readers():
    way = Way("gala", "prime", "prime", 1.0)
    nodes = [Node("a", ("x",), "a", (way,)), Node("b", ("x",), "b", (way,)), Node("sum", ("a", "b"), "y", (Way("add", "prime", "prime", 0.0),))]
    total, _ = shortest(nodes, {"x": "ring"}, flat(10.0))
    assert total == 12.0


def test_steps_that_cannot_run_are_named():
    with pytest.raises(NoPath, match="'s0'"):
        shortest(chain([]), {"t0": "ring"}, flat(1.0))
    with pytest.raises(NoPath, match="'s1'"):
        shortest(chain([Way("a", "ring", "ring", 1.0)], [Way("b", "prime", "prime", 1.0)]), {"t0": "ring"}, flat(math.inf))


ENCODINGS = ("ring", "prime")
WAYS = st.lists(st.builds(Way, st.sampled_from("abc"), st.sampled_from(ENCODINGS), st.sampled_from(ENCODINGS), st.integers(0, 9).map(float)), min_size=1, max_size=3)


@st.composite
def graphs(draw):
    """Steps that read one or two of the tensors before them."""
    nodes = []
    for i in range(draw(st.integers(1, 5))):
        inputs = draw(st.lists(st.sampled_from([f"t{j}" for j in range(i + 1)]), min_size=1, max_size=2, unique=True))
        nodes.append(Node(f"s{i}", tuple(inputs), f"t{i + 1}", tuple(draw(WAYS))))
    return nodes


def price(nodes, ways, conversion):
    held, total = {"t0": {"ring"}}, 0.0
    for node, way in zip(nodes, ways):
        total += way.seconds
        for tensor in node.inputs:
            if way.enters not in held[tensor]:
                total += min(conversion(tensor, e, way.enters) for e in held[tensor])
                held[tensor].add(way.enters)
        held[node.output] = {way.leaves}
    return total


@settings(max_examples=60, deadline=None)
@given(graphs(), st.integers(0, 6))
def test_no_path_is_cheaper_and_gaps_are_true(nodes, cost):
    conversion = flat(float(cost))
    total, picks = shortest(nodes, {"t0": "ring"}, conversion)
    every = [(price(nodes, ways, conversion), ways) for ways in itertools.product(*(n.ways for n in nodes))]
    assert total == min(p for p, _ in every)
    assert total == price(nodes, [picks[n.name].way for n in nodes], conversion)
    for i, node in enumerate(nodes):
        pick = picks[node.name]
        others = [p for p, ways in every if ways[i].name != pick.way.name]
        assert (pick.runner_up is None) == (not others)
        if others:
            assert pick.gap == min(others) - total

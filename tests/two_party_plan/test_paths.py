"""The cheapest path against all paths, and where taking the cheapest way of every step by itself is wrong."""

import itertools
import math

import numpy as np
import pytest
from hushnet.graph import Dense, Linear
from hushnet.planner.two_party import methods as two_party_methods
from hushnet.planner.two_party import paths
from hushnet.planner.two_party.methods import PRIME, RING, Chooser, Kept
from hushnet.planner.two_party.paths import Node, NoPath, Way, shortest
from hushnet.planner.two_party.steps import Step
from hypothesis import given, settings
from hypothesis import strategies as st


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
    nodes = [
        Node("a", ("x",), "a", (way,)),
        Node("b", ("x",), "b", (way,)),
        Node("sum", ("a", "b"), "y", (Way("add", "prime", "prime", 0.0),)),
    ]
    total, _ = shortest(nodes, {"x": "ring"}, flat(10.0))
    assert total == 12.0


def test_steps_that_cannot_run_are_named():
    with pytest.raises(NoPath, match="'s0'"):
        shortest(chain([]), {"t0": "ring"}, flat(1.0))
    with pytest.raises(NoPath, match="'s1'"):
        shortest(
            chain([Way("a", "ring", "ring", 1.0)], [Way("b", "prime", "prime", 1.0)]), {"t0": "ring"}, flat(math.inf)
        )


class Fixed(Chooser):
    """A chooser with invented ways: name of a layer -> ways and the bytes that each keeps."""

    def __init__(self, table, room, monkeypatch):
        steps = [
            Step(
                "linear",
                name,
                [f"t{i}"],
                f"t{i + 1}",
                (4,),
                layer=Linear(name, "", "", Dense(4, 4), np.zeros((4, 4)), np.zeros(4)),
            )
            for i, name in enumerate(table)
        ]
        monkeypatch.setattr(two_party_methods, "MOST_KEPT", room)
        super().__init__(
            1, steps, {"t0": (4,)}, {"networks": {}, "selected_value": 0.0, "message": 0.0}, "loopback", 1 << 40
        )
        self.table = table

    def ways(self, layer, ring_degree, kept):
        kept.update({(layer.name, w.name): Kept("weights", size) for w, size in self.table[layer.name]})
        return [w for w, _ in self.table[layer.name]]


def test_layers_that_do_not_fit_together_give_up_what_saves_least_a_byte(monkeypatch):
    small, large = Way("cheetah", RING, RING, 5.0), Way("rotation-free", RING, RING, 1.0)
    dear = Way("rotation-free", RING, RING, 4.0)
    table = {"a": [(small, 0), (large, 60)], "b": [(small, 0), (dear, 60)]}
    methods = {n: p.way.name for n, p in Fixed(table, 120, monkeypatch).picks(2048).items() if n in table}
    assert methods == {"a": "rotation-free", "b": "rotation-free"}
    methods = {n: p.way.name for n, p in Fixed(table, 100, monkeypatch).picks(2048).items() if n in table}
    assert methods == {"a": "rotation-free", "b": "cheetah"}
    # A layer with one way keeps it, whatever the room is.
    alone = Fixed({"a": [(large, 60)], "b": [(small, 0), (dear, 60)]}, 10, monkeypatch)
    assert {n: p.way.name for n, p in alone.picks(2048).items() if n in ("a", "b")} == {
        "a": "rotation-free",
        "b": "cheetah",
    }


def test_set_ups_give_up_what_a_plan_needs_too_much(monkeypatch):
    small, large = Way("cheetah", RING, RING, 5.0), Way("rotation-free", RING, RING, 1.0)
    chooser = Fixed({"a": [(small, 0), (large, 0)], "b": [(small, 0), (large, 0)]}, 0, monkeypatch)
    assert chooser.rooms == {"weights": 0, "set-ups": 1 << 40}
    taken = lambda: sorted(chooser.picks(2048)[n].way.name for n in "ab")  # noqa: E731
    chooser.ways = lambda layer, ring_degree, kept: (
        kept.update({(layer.name, "rotation-free"): Kept("set-ups", 60)}) or [small, large]
    )
    assert taken() == ["rotation-free", "rotation-free"]
    assert chooser.give_up(120, 1) and chooser.rooms["set-ups"] == 119
    assert taken() == ["cheetah", "rotation-free"]
    # the same plan still needs a byte too many, then no set-up is left to give up
    assert chooser.give_up(60, 1) and taken() == ["cheetah", "cheetah"]
    assert not chooser.give_up(0, 5)
    # nor where the method is forced, or where layers that have no other way hold more than the room already
    chooser.rooms["set-ups"], chooser.forced = 59, "rotation-free"
    assert not chooser.give_up(60, 10)
    chooser.forced = None
    assert not chooser.give_up(60, 1) and chooser.give_up(60, 2)


def test_conversions_of_neighbours_that_a_truncation_parts_are_paid(monkeypatch):
    ring, prime = Way("cheetah", RING, RING, 10.0), Way("gala", PRIME, PRIME, 9.5)
    chooser = Fixed({"a": [(ring, 0), (prime, 0)], "b": [(ring, 0), (prime, 0)]}, 100, monkeypatch)
    chooser.unit = {"networks": {}, "selected_value": 0.05, "message": 0.0}
    # four values each way: 0.2 twice a layer, less than gala saves; then more
    assert {chooser.picks(2048)[n].way.name for n in "ab"} == {"gala"}
    chooser.picked, chooser.unit["selected_value"] = {}, 0.1
    assert {chooser.picks(2048)[n].way.name for n in "ab"} == {"cheetah"}
    assert chooser.told("a", 2048)["runner_up"] == "gala"
    assert chooser.told("a", 2048)["gap_seconds"] == pytest.approx(0.3)


ENCODINGS = ("ring", "prime")
WAYS = st.lists(
    st.builds(
        Way,
        st.sampled_from("abc"),
        st.sampled_from(ENCODINGS),
        st.sampled_from(ENCODINGS),
        st.integers(0, 9).map(float),
    ),
    min_size=1,
    max_size=3,
)


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


def test_choices_are_neither_slower_nor_larger_than_any_single_method(monkeypatch):
    way = lambda name: lambda s, b: (Way(name, RING, RING, s, 1e6 * b), 0)  # noqa: E731
    first, second = way("cheetah"), way("convfhe")
    table = {
        "a": [first(1.0, 10.0), second(3.0, 60.0)],
        "b": [first(2.0, 60.0), second(1.9, 20.0)],
        "c": [first(1.0, 0.0), second(0.5, 80.0)],
    }
    chooser = Fixed(table, 100, monkeypatch)
    # the fastest ways together, 3.4 seconds and 110 MB, send more than cheetah alone: 4 seconds and 70 MB
    assert [chooser.picks(2048)[n].way.name for n in "abc"] == ["cheetah", "convfhe", "cheetah"]
    assert chooser.totals(chooser.picks(2048), "abc") == (pytest.approx(3.9), 30e6)
    # keys of a session count, once, for the method that needs them
    chooser = Fixed(table, 100, monkeypatch)
    chooser.session["convfhe"] = 50_000_000
    assert [chooser.picks(2048)[n].way.name for n in "abc"] == ["cheetah", "cheetah", "cheetah"]
    assert chooser.totals(chooser.picks(2048), "abc") == (4.0, 70e6)


def recurrent(steps):
    """Layers that read the result before them, all of whose results are joined at the end."""
    layers = [
        Node(f"s{i}", (f"t{i}",), f"t{i + 1}", (Way("a", "ring", "ring", 3.0), Way("b", "prime", "ring", 1.0 + i % 3)))
        for i in range(steps)
    ]
    last = Node("join", tuple(f"t{i + 1}" for i in range(steps)), "out", (Way("join", "ring", "ring", 0.0),))
    return [*layers, last]


def test_results_that_are_kept_to_the_end_make_no_states(monkeypatch):
    few = 6
    nodes = recurrent(few)
    every = [price(nodes, ways, flat(1.0)) for ways in itertools.product(*(n.ways for n in nodes))]
    assert shortest(nodes, {"t0": "ring"}, flat(1.0))[0] == min(every)
    # two states a step, and not 2^200
    monkeypatch.setattr(paths, "MOST_STATES", 2)
    assert shortest(recurrent(200), {"t0": "ring"}, flat(1.0))[0] == 67 * 2.0 + 67 * 3.0 + 66 * 3.0


def test_states_that_are_given_up_leave_a_path(monkeypatch):
    """Prime encodings that are read once more, at the end, are states that no rule leaves out."""
    nodes = recurrent(12)
    back = [Node(f"r{i}", (f"t{i + 1}",), f"u{i}", (Way("a", "ring", "ring", 3.0), Way("b", "prime", "ring", 2.5)))
            for i in range(12)]  # fmt: skip
    exact, _ = shortest(nodes + back, {"t0": "ring"}, flat(1.0))
    monkeypatch.setattr(paths, "MOST_STATES", 16)
    total, picks = shortest(nodes + back, {"t0": "ring"}, flat(1.0))
    assert total >= exact
    assert total == price(nodes + back, [picks[n.name].way for n in nodes + back], flat(1.0))


@pytest.mark.parametrize("most", [1, 2, 3, 5])
def test_networks_of_very_many_branches_have_a_path(monkeypatch, most):
    """States beyond the most that are kept are dropped; kept ones that led to them alone are no way on."""
    monkeypatch.setattr(paths, "MOST_STATES", most)
    rng = np.random.default_rng(most)
    for _ in range(50):
        nodes = []
        for i in range(6):
            costs = rng.random(4)
            ways = tuple(
                Way(f"{a}{b}", a, b, float(c))
                for (a, b), c in zip(itertools.product(("ring", "prime"), repeat=2), costs)
            )
            nodes.append(Node(f"s{i}", ("t0",), f"b{i}", ways))
        nodes.append(Node("sum", tuple(f"b{i}" for i in range(6)), "y", (Way("add", "ring", "ring", 1.0),)))
        conversion = flat(float(rng.random()))
        total, picks = shortest(nodes, {"t0": "ring"}, conversion)
        assert total == pytest.approx(price(nodes, [picks[n.name].way for n in nodes], conversion))
        assert all(math.isfinite(p.gap) for p in picks.values())

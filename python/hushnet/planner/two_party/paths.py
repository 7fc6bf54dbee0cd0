"""The cheapest way through a network whose steps can run, and whose values can be encoded, in several ways.

A tensor of shares is held in an encoding (modulo 2^l, modulo a prime); a way of running a step reads one and leaves
one, and between them stand conversions. The cheapest way of every step by itself need not be the cheapest way through
the network: two neighbours that stay in one encoding save what lies between them. :func:`shortest` is exact: dynamic
programming over the steps in order, where a state says in which encodings each tensor that is still read is at hand (a
tensor that was converted is at hand in both).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

State = tuple[tuple[str, frozenset[str]], ...]
# states kept after a step: networks have a few tensors alive at once, so this is never met but by nets of very many
# branches
MOST_STATES = 4096


@dataclass(frozen=True)
class Way:
    """How a step may run.

    What it is called, the encoding that it reads and leaves, its seconds, and the bytes that it sends.
    """

    name: str
    enters: str
    leaves: str
    seconds: float
    bytes: float = 0.0


@dataclass(frozen=True)
class Node:
    """A step: tensors that it reads, the one that it makes, and its ways."""

    name: str
    inputs: tuple[str, ...]
    output: str
    ways: tuple[Way, ...]


@dataclass(frozen=True)
class Pick:
    """The way of a step on the cheapest path.

    Attributes:
        runner_up: the best other way, when the rest of the network adapts to it; None when there is none.
        gap: seconds that the whole network takes longer with it.
    """

    way: Way
    runner_up: str | None
    gap: float


class NoPath(ValueError):
    """A step has no way to run."""


@dataclass(frozen=True)
class _Move:
    before: State
    way: Way
    after: State
    seconds: float


def shortest(
    nodes: Sequence[Node], entering: Mapping[str, str], conversion: Callable[[str, str, str], float]
) -> tuple[float, dict[str, Pick]]:
    """Seconds of the cheapest path, and the pick of every step.

    Args:
        entering: encoding of every tensor that comes from outside.
        conversion: seconds from one encoding of a tensor to another: ``conversion(tensor, held, wanted)``; infinite
            where there is none.

    Raises:
        NoPath: a step without ways, or none that its inputs can reach.
    """
    last = {t: i for i, node in enumerate(nodes) for t in node.inputs}
    begin: State = tuple(sorted((t, frozenset([e])) for t, e in entering.items()))
    ahead: dict[State, float] = {begin: 0.0}
    layers: list[list[_Move]] = []
    reached = [ahead]
    for index, node in enumerate(nodes):
        later = lambda tensor, index=index: last.get(tensor, -1) > index  # noqa: E731
        moves = [m for state in ahead for m in _moves(state, node, conversion, later)]
        following: dict[State, float] = {}
        for move in moves:
            total = ahead[move.before] + move.seconds
            if total < following.get(move.after, math.inf):
                following[move.after] = total
        if not following:
            raise NoPath(f"step {node.name!r} can be run in no way")
        if len(following) > MOST_STATES:
            following = dict(sorted(following.items(), key=lambda kv: kv[1])[:MOST_STATES])
        layers.append([m for m in moves if m.after in following])
        ahead = following
        reached.append(ahead)
    return _picked(nodes, layers, reached)


def _moves(
    state: State, node: Node, conversion: Callable[[str, str, str], float], read_later: Callable[[str], bool]
) -> list[_Move]:
    held = dict(state)
    found = []
    for way in node.ways:
        seconds, now = way.seconds, dict(held)
        for tensor in set(node.inputs):
            if way.enters not in held[tensor]:
                seconds += min(conversion(tensor, other, way.enters) for other in held[tensor])
                now[tensor] = held[tensor] | {way.enters}
        if math.isinf(seconds):
            continue
        now[node.output] = frozenset([way.leaves])
        alive = tuple(sorted((t, e) for t, e in now.items() if t == node.output or read_later(t)))
        found.append(_Move(state, way, alive, seconds))
    return found


def _picked(
    nodes: Sequence[Node], layers: list[list[_Move]], reached: list[dict[State, float]]
) -> tuple[float, dict[str, Pick]]:
    """Backward.

    What remains from every state, so that every step's other ways are priced with the rest adapted to them.
    """
    rest: dict[State, float] = dict.fromkeys(reached[-1], 0.0)
    remaining = [rest]
    for moves in reversed(layers):
        earlier: dict[State, float] = {}
        for m in moves:
            # of a state that was not kept nothing remains
            total = m.seconds + remaining[-1].get(m.after, math.inf)
            if total < earlier.get(m.before, math.inf):
                earlier[m.before] = total
        remaining.append(earlier)
    remaining.reverse()
    best = min(reached[-1].values())
    picks: dict[str, Pick] = {}
    state = next(iter(reached[0]))
    for index, (node, moves) in enumerate(zip(nodes, layers)):
        after = remaining[index + 1]
        taken = min((m for m in moves if m.before == state), key=lambda m: m.seconds + after.get(m.after, math.inf))
        through: dict[str, float] = {}
        for m in moves:
            if (
                m.way.name != taken.way.name
                and m.before in reached[index]
                and math.isfinite(after.get(m.after, math.inf))
            ):
                total = reached[index][m.before] + m.seconds + after[m.after]
                through[m.way.name] = min(total, through.get(m.way.name, math.inf))
        other = min(through, key=through.__getitem__, default=None)
        picks[node.name] = Pick(taken.way, other, through[other] - best if other is not None else 0.0)
        state = taken.after
    return best, picks

"""The cheapest way through a network whose steps can run, and whose values can be encoded, in several ways.

A tensor of shares is held in an encoding (modulo 2^l, modulo a prime); a way of running a step reads one and leaves
one, and between them stand conversions. The cheapest way of every step by itself need not be the cheapest way through
the network: two neighbours that stay in one encoding save what lies between them. :func:`shortest` is exact: dynamic
programming over the steps in order, where a state says in which encodings each tensor that is still read is at hand (a
tensor that was converted is at hand in both).

States are few, because they have no more than what later steps can tell apart: no tensor that only ever has one
encoding, and no encoding that nobody reads any more where all that somebody reads are at hand. Without that, the states
of a recurrent network, whose every step's output is kept to the end, double with each of its steps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

State = tuple[tuple[str, frozenset[str]], ...]
# states kept after a step: few tensors that layers will read are alive at once, so this is met by nets of very many
# branches alone
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

    def taking(self, seconds: float) -> Way:
        """The same with other seconds."""
        return Way(self.name, self.enters, self.leaves, seconds, self.bytes)


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
    wanted = _wanted(nodes, entering)
    begin: State = _state({t: frozenset([e]) for t, e in entering.items()}, wanted[0])
    ahead: dict[State, float] = {begin: 0.0}
    layers: list[list[_Move]] = []
    reached = [ahead]
    for node, later in zip(nodes, wanted[1:]):
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


def _wanted(nodes: Sequence[Node], entering: Mapping[str, str]) -> list[dict[str, frozenset[str]]]:
    """In front of every step, and behind the last one: the encodings that tensors are still read in.

    Tensors that are made and read in one encoding alone are left out.
    """
    found: dict[str, set[str]] = {t: {e} for t, e in entering.items()}
    for node in nodes:
        found.setdefault(node.output, set()).update(w.leaves for w in node.ways)
        for tensor in node.inputs:
            found.setdefault(tensor, set()).update(w.enters for w in node.ways)
    several = {t for t, encodings in found.items() if len(encodings) > 1}
    later: dict[str, frozenset[str]] = {}
    wanted = [later]
    for node in reversed(nodes):
        read = {t: later.get(t, frozenset()) | {w.enters for w in node.ways} for t in node.inputs if t in several}
        if read:
            later = {**later, **read}
        if node.output in later:
            later = {t: e for t, e in later.items() if t != node.output}
        wanted.append(later)
    return wanted[::-1]


def _state(held: Mapping[str, frozenset[str]], later: Mapping[str, frozenset[str]]) -> State:
    """What is held of the tensors that are read later, in no encoding that makes no difference then.

    A tensor that is at hand in the one encoding that is read is left out.
    """
    kept = [(t, e, later[t]) for t, e in held.items() if t in later]
    return tuple(sorted((t, read if read <= e else e) for t, e, read in kept if len(read) > 1 or not read <= e))


def _moves(
    state: State, node: Node, conversion: Callable[[str, str, str], float], later: Mapping[str, frozenset[str]]
) -> list[_Move]:
    held = dict(state)
    found = []
    # what is in no state has the one encoding that is read
    converted = [t for t in dict.fromkeys(node.inputs) if t in held]
    for way in node.ways:
        seconds, now = way.seconds, dict(held)
        for tensor in converted:
            if way.enters not in held[tensor]:
                seconds += min(conversion(tensor, other, way.enters) for other in held[tensor])
                now[tensor] = held[tensor] | {way.enters}
        if math.isinf(seconds):
            continue
        now[node.output] = frozenset([way.leaves])
        found.append(_Move(state, way, _state(now, later), seconds))
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
            # what was given up on the way, because states were too many, leads nowhere
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

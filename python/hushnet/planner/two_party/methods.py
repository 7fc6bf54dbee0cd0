"""Which method computes a linear layer on shares.

One image packed in polynomials or in slots, or one feature of many images in each.

Methods are chosen together, as the cheapest path through the network (:mod:`.paths`): slot-packed layers compute on
shares modulo a prime, all else on shares modulo 2^l, and the conversions between stand in the sums. A linear layer is
followed by a truncation, which needs shares modulo 2^l.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from ... import _native
from ...graph import Linear, Shape
from ...reference.methods import SLOTS, slot_cost
from ..ranges import plan_geometry
from .paths import Node, Pick, Way, shortest
from .steps import Step

# for the comparison only: the ring and the norm move bytes by some per cent
TYPICAL_RING, TYPICAL_NORM, TYPICAL_PLAIN = 24, 1024.0, 26
RING, PRIME = "modulo 2^l", "modulo a prime"
CONVERSION_ROUNDS = 2
# seconds of two methods that differ by less than this factor count as the same: unit costs tell no better
ACCURACY = 1.15
# seconds that a byte counts in the candidates among which a plan is chosen: up to networks where nothing else does
BYTE_PRICES = (0.0, 3e-10, 1e-9, 3e-9, 1e-8, 3e-8, 1e-7, 1e-6, 1e-3)
# bytes of weights in evaluation form that a server keeps of a plan's layers of methods other than cheetah and
# rotation-free
MOST_KEPT = 1 << 30


def packed_seconds(layer: Mapping[str, int], unit: dict[str, Any]) -> float:
    """Both parties' computing on a packed layer, for one image."""
    whole = layer["products"] - layer["spaced_products"]
    return (
        unit["input_poly"] * layer["input_polys"]
        + unit["output_poly"] * layer["output_polys"]
        + unit["product"] * whole
        + unit["spaced_product"] * layer["spaced_products"]
    )


def rotation_free_seconds(layer: Mapping[str, int], unit: dict[str, Any]) -> float:
    """Both parties' computing on a layer of method rotation-free, for one image."""
    size = layer["ring_degree"] / 4096
    seconds = size * (
        unit["rotation_free_input"] * layer["input_polys"] + unit["rotation_free_product"] * layer["products"]
    )
    return seconds + size * unit["rotation_free_output"] * layer["output_polys"] * (0.2 + 1.0 / layer["spacing"])


def convfhe_seconds(layer: Mapping[str, int], unit: dict[str, Any]) -> float:
    """Both parties' computing on a layer of method convfhe, for one image."""
    size = layer["ring_degree"] / 4096
    seconds = size * (unit["convfhe_input"] * layer["input_polys"] + unit["convfhe_product"] * layer["products"])
    return seconds + unit["convfhe_output"] * layer["answers"] + unit["convfhe_rotation"] * layer["rotations"]


def slot_seconds(layer: Mapping[str, int], unit: dict[str, Any]) -> float:
    """Both parties' computing on a slot-packed layer, for one image.

    Words of requests and answers, transforms of key switching, multiplications of words by weights and keys.
    """
    n, limbs, digits = layer["ring_degree"], layer["primes"], layer["primes"] * layer["digits"]
    all_limbs = limbs + layer["special"]
    decompositions, switches = layer["perm"] + layer["dec_perm"], layer["perm"] + layer["hst_perm"]
    transforms = decompositions * (limbs + digits * all_limbs) + switches * (2 * all_limbs if layer["special"] else 0)
    products = 2 * limbs * layer["sc_mult"] + 2 * digits * all_limbs * switches
    return n * (
        unit["slot_input"] * limbs * layer["ciphers_up"]
        + unit["slot_output"] * limbs * layer["ciphers_down"]
        + unit["slot_transform"] * transforms
        + unit["slot_product"] * products
    )


def batch_seconds(layer: Mapping[str, int], unit: dict[str, Any]) -> float:
    """Both parties' computing on a batch layer, for one block of images."""
    return sum(
        unit[figure] * layer[what]
        for figure, what in (("batch_input", "inputs"), ("batch_output", "outputs"), ("batch_word", "word_products"))
    )


@dataclass(frozen=True)
class Asked:
    """What figures of a layer depend on.

    Attributes:
        geometry: of the layer, as in plans.
        ring_degree: of the plan.
        ring_bits: of shares.
        weight_l2: bound of the norm of the weights.
        plain_bits: of the prime that slot-packed layers share.
        images: that run together, of one block.
    """

    geometry: dict[str, Any]
    ring_degree: int
    ring_bits: int = TYPICAL_RING
    weight_l2: float = TYPICAL_NORM
    plain_bits: int = TYPICAL_PLAIN
    images: int = 1

    @property
    def text(self) -> str:
        """The geometry as the run time reads it."""
        return json.dumps(self.geometry)


def packed_figures(a: Asked) -> dict[str, int]:
    """Of cheetah."""
    return _native.packed_layer_cost(a.text, a.ring_degree, a.ring_bits, a.weight_l2)


def batch_figures(a: Asked) -> dict[str, int]:
    """Of batch, for a block of images."""
    return _native.batch_share_layer_cost(a.text, a.ring_degree, a.ring_bits, a.weight_l2, a.images)


def coefficient_figures(method: str, a: Asked) -> dict[str, int]:
    """Of rotation-free and convfhe, at ring degrees of their own."""
    return _native.coefficient_layer_cost(method, a.text, a.ring_bits, a.weight_l2)


def slot_figures(method: str, a: Asked) -> dict[str, int]:
    """Of a slot-packed layer."""
    return slot_cost(method, a.geometry, a.plain_bits)


Figures = Mapping[str, int]


def _nothing(_: Figures) -> int:
    return 0


@dataclass(frozen=True)
class Row:
    """What the planner knows of a linear method. Names and figures are the run time's.

    Attributes:
        figures: of a layer, for one image (``many`` without ``single``: for a block): ``bytes_up``, ``bytes_down``,
            ``tiles``, and what ``seconds`` and the
            functions below read.
        seconds: both parties' computing from figures and unit costs, as if nothing overlapped.
        single: whether plans for one image may take it.
        many: whether plans for many images may.
        modulo: of the shares that it reads and leaves.
        keys: the name that unit costs have for keys of its own; None for the keys of every session.
        keeps: what it keeps between images, ``"weights"`` at the server in evaluation form or ``"set-ups"`` at the
            client; None for neither.
        kept_bytes: of what it keeps.
        shared_bytes: of keys that all its layers share: those of the largest.
        layer_bytes: sent once for a layer.
        layer_seconds: of work once for a layer, from figures and unit costs.
    """

    figures: Callable[[Asked], dict[str, int]]
    seconds: Callable[[Figures, dict[str, Any]], float]
    single: bool = True
    many: bool = False
    modulo: str = RING
    keys: str | None = None
    keeps: str | None = None
    kept_bytes: Callable[[Figures], int] = _nothing
    shared_bytes: Callable[[Figures], int] = _nothing
    layer_bytes: Callable[[Figures], int] = _nothing
    layer_seconds: Callable[[Figures, dict[str, Any]], float] = lambda _figures, _unit: 0.0

    @property
    def blocks(self) -> bool:
        """Whether figures are those of a block of images, which share ciphertexts."""
        return self.many and not self.single


def _slots(method: str) -> Row:
    """A method of the slot family: rows differ in their name only."""
    return Row(
        partial(slot_figures, method),
        slot_seconds,
        modulo=PRIME,
        keys="slot",
        keeps="weights",
        kept_bytes=lambda f: f["weight_bytes"] + 2 * f["key_bytes"],
        layer_bytes=lambda f: f["key_bytes"],
    )


# one row a method, in the order of preference where costs are equal; the names are those of `_native.linear_methods`
ROWS: dict[str, Row] = {
    "cheetah": Row(packed_figures, packed_seconds, many=True),
    "rotation-free": Row(
        # as many words at the client as the weights in evaluation form have: docs/rotation-free.md
        partial(coefficient_figures, "rotation-free"),
        rotation_free_seconds,
        keeps="set-ups",
        kept_bytes=lambda f: f["prepared_bytes"],
        layer_bytes=lambda f: f["bytes_setup"],
        layer_seconds=lambda f, unit: unit["rotation_free_weight"] * f["weight_polys"],
    ),
    "convfhe": Row(
        partial(coefficient_figures, "convfhe"),
        convfhe_seconds,
        keys="convfhe",
        keeps="weights",
        kept_bytes=lambda f: f["prepared_bytes"],
        shared_bytes=lambda f: f["bytes_setup"] + f["key_bytes"],
    ),
    "batch": Row(batch_figures, batch_seconds, single=False, many=True, keys="batch"),
    "gala": _slots("gala"),
    "gazelle": _slots("gazelle"),
    "diagonal": _slots("diagonal"),
}
# what methods keep between images: weights in evaluation form at the server, or set-ups at the client
KEEPS = {name: row.keeps for name, row in ROWS.items() if row.keeps}


def largest_pair(steps: list[Step], entering: Mapping[str, Shape]) -> int:
    """Most elements of one image that a step reads and writes: about what is alive at once."""
    shapes = {**entering, **{s.output: s.shape for s in steps}}
    return max(
        (math.prod(s.shape) + sum(math.prod(shapes[t]) for t in s.inputs if t in shapes) for s in steps), default=1
    )


@dataclass(frozen=True)
class Kept:
    """What a layer keeps between images (:data:`KEEPS`), and its bytes."""

    what: str
    bytes: int


class Chooser:
    """The methods of all layers, by seconds an image: computing, and bytes over the plan's network.

    Attributes:
        batch: images that come at once.
        steps: the network's steps on shares.
        entering: shapes of the tensors that come from outside.
        memory: bytes for both parties: a quarter for a layer's ciphertexts at the server.
        rooms: bytes for what layers keep: weights, and set-ups, which may have all that a plan leaves
            (:meth:`give_up`).
        forced: the method of all layers; None for the cheapest of each.
        queries: images that one set-up serves: set-ups of rotation-free layers count for so much less.
        at_first: the methods at ring degrees while set-ups have all the room, which bits of weights and activations do
            not change: choosers that are made of the same things may share them.
    """

    def __init__(
        self,
        batch: int,
        steps: list[Step],
        entering: Mapping[str, Shape],
        unit: dict[str, Any],
        network: str,
        memory: int,
        forced: str | None = None,
        queries: int = 1,
        at_first: dict[int, dict[str, Pick]] | None = None,
    ) -> None:
        self.batch, self.steps, self.entering, self.unit, self.memory = batch, steps, entering, unit, memory // 4
        self.rooms = {"weights": min(self.memory, MOST_KEPT), "set-ups": memory}
        self.forced, self.queries = forced, queries
        self.peak = largest_pair(steps, entering)
        link = unit["networks"].get(network, {})
        self.bandwidth, self.delay = link.get("bits_per_second"), link.get("round_trip_seconds", 0.0) / 2
        self.picked: dict[int, dict[str, Pick]] = {} if at_first is None else at_first
        # bytes of keys that the layers of a method share, by method, and elements that a layer reads and leaves
        self.session: dict[str, int] = {}
        shapes = {**entering, **{s.output: s.shape for s in steps}}
        self.sizes = {
            s.name: (*(math.prod(shapes[t]) for t in s.inputs if t in shapes), math.prod(s.shape)) for s in steps
        }

    def images(self, ring_degree: int) -> int:
        """Images that run through the stages together."""
        return max(1, min(self.batch, _native.two_party_group(ring_degree, self.peak)))

    def __call__(self, layer: Linear, ring_degree: int) -> str:
        """The name of the method for a layer at a ring degree: the forced one, or the cheapest path's."""
        if self.forced is not None:
            return self.forced
        return self.picks(ring_degree)[layer.name].way.name

    def give_up(self, held: int, over: int) -> bool:
        """Makes the room of set-ups, of which a plan holds ``held`` bytes, smaller by the bytes that it needs too many.

        False where it cannot be.
        """
        room = max(0, held - over)
        if self.forced is not None or room >= min(held, self.rooms["set-ups"]):
            return False
        self.rooms["set-ups"] = room
        self.picked = {}
        return True

    def told(self, name: str, ring_degree: int) -> dict[str, Any]:
        """What a layer's choice rests on.

        Seconds an image, the best other method, and the seconds that the whole network would take longer with it.
        """
        if self.forced is not None:
            return {"choice": "forced"}
        pick = self.picks(ring_degree)[name]
        told: dict[str, Any] = {"choice": "cheapest path", "seconds": pick.way.seconds}
        return told if pick.runner_up is None else told | {"runner_up": pick.runner_up, "gap_seconds": pick.gap}

    def picks(self, ring_degree: int) -> dict[str, Pick]:
        """The methods of all layers at a ring degree, by two figures: seconds over the plan's network, and bytes.

        Candidates are the cheapest paths for several prices of a byte, with and without the methods that need keys of
        their own, and every single method; of those that neither take longer nor send more than any single method the
        fastest, or the cheapest path by seconds where there is none.
        """
        if ring_degree not in self.picked:
            ways: dict[str, list[Way]] = {}
            kept: dict[tuple[str, str], Kept] = {}
            for step in self.steps:
                if step.layer is not None:
                    ways[step.name] = self.ways(step.layer, ring_degree, kept)
            self.picked[ring_degree] = self.least(ways, kept)
        return self.picked[ring_degree]

    def least(self, ways: dict[str, list[Way]], kept: Mapping[tuple[str, str], Kept]) -> dict[str, Pick]:
        """See :meth:`picks`."""
        known = {(layer, w.name): w for layer, found in ways.items() for w in found}
        frugal_ways = {layer: frugal(found) if self.batch == 1 else found for layer, found in ways.items()}
        cheapest = self.fitted(frugal_ways, kept)
        candidates, singles = [cheapest], []
        for without in ((), ("convfhe",), SLOTS, ("convfhe", *SLOTS)):
            allowed = {
                layer: [w for w in found if w.name not in without] or found for layer, found in frugal_ways.items()
            }
            if without and allowed == frugal_ways:
                continue
            for price in BYTE_PRICES:
                priced = {
                    layer: [w.taking(w.seconds + price * w.bytes) for w in found] for layer, found in allowed.items()
                }
                candidates.append(self.fitted(priced, kept))
        for method in ROWS:
            only = {layer: [w for w in found if w.name == method] for layer, found in ways.items()}
            if (
                ways
                and all(only.values())
                and not any(self.over({n: w[0].name for n, w in only.items()}, kept).values())
            ):
                singles.append(self.path(only))

        def restored(picks: Mapping[str, Pick]) -> dict[str, Pick]:
            return {n: Pick(known.get((n, p.way.name), p.way), p.runner_up, p.gap) for n, p in picks.items()}

        told = [(picks, *self.totals(picks, ways)) for picks in map(restored, [*candidates, *singles])]
        alone = told[len(candidates) :]
        if alone:
            seconds, sent = min(t for _, t, _ in alone), min(b for _, _, b in alone)
            # sums are made in another order, so that equal plans may differ in their last bits
            within = [c for c in told if c[1] <= seconds * (1 + 1e-9) and c[2] <= sent * (1 + 1e-9)]
            if within:
                return min(within, key=lambda c: (c[1], c[2]))[0]
        return told[0][0]

    def totals(self, picks: Mapping[str, Pick], layers: Iterable[str]) -> tuple[float, float]:
        """Seconds and bytes of all layers, with conversions of slot-packed ones and the keys that some methods have."""
        chosen = {name: picks[name].way for name in layers}
        seconds, sent = sum(w.seconds for w in chosen.values()), sum(w.bytes for w in chosen.values())
        for name, way in chosen.items():
            if way.enters != RING:
                sizes = self.sizes[name]
                seconds += sum(self.conversion(n) for n in sizes)
                sent += sum(sizes) * (TYPICAL_RING + 1) / 8
        for method in {w.name for w in chosen.values()}:
            keys = self.session.get(method, 0) / self.queries
            figure = ROWS[method].keys
            work = max(0.0, self.unit.get(f"{figure}_keys", 0.0) - self.unit.get("session_keys", 0.0)) / self.queries
            seconds, sent = seconds + work + self.travel(keys), sent + keys
        return seconds, sent

    def over(self, names: Mapping[str, str], kept: Mapping[tuple[str, str], Kept]) -> dict[str, int]:
        """Bytes by which layers with these ways exceed the room that they have together, by what is kept."""
        told = {what: -room for what, room in self.rooms.items()}
        for key in names.items():
            if key in kept:
                told[kept[key].what] += kept[key].bytes
        return {what: max(0, over) for what, over in told.items()}

    def fitted(self, given: Mapping[str, list[Way]], kept: Mapping[tuple[str, str], Kept]) -> dict[str, Pick]:
        """The cheapest path that fits the memory.

        Layers whose weights and set-ups do not fit the room together give up those ways that save least for their
        bytes.
        """
        ways = dict(given)
        while True:
            picks = self.path(ways)
            names = {name: picks[name].way.name for name in ways}
            over = self.over(names, kept)
            # a layer that has one way only keeps it: the run time transforms weights that do not fit as it needs them
            held = {n: kept[n, m] for n, m in names.items() if (n, m) in kept and any(w.name != m for w in ways[n])}
            spare = sorted(
                (n for n, k in held.items() if k.bytes and over[k.what]), key=lambda n: picks[n].gap / held[n].bytes
            )
            if not spare:
                return picks
            for name in spare:
                if over[held[name].what] > 0:
                    ways[name] = [w for w in ways[name] if w.name != names[name]]
                    over[held[name].what] -= held[name].bytes

    def path(self, ways: Mapping[str, list[Way]]) -> dict[str, Pick]:
        """The cheapest path, every layer followed by a truncation modulo 2^l."""
        nodes, shapes = [], dict(self.entering)
        for step in self.steps:
            shapes[step.output] = step.shape
            if step.layer is None:
                nodes.append(Node(step.name, tuple(step.inputs), step.output, (Way(step.kind, RING, RING, 0.0),)))
                continue
            raw = f"{step.output} before truncation"
            shapes[raw] = step.shape
            nodes.append(Node(step.name, tuple(step.inputs), raw, tuple(ways[step.name])))
            nodes.append(Node(f"{step.name} truncated", (raw,), step.output, (Way("truncate", RING, RING, 0.0),)))
        return shortest(
            nodes,
            dict.fromkeys(self.entering, RING),
            lambda tensor, held, wanted: self.conversion(math.prod(shapes[tensor])),
        )[1]

    def conversion(self, elements: int) -> float:
        """Seconds from one encoding to the other: one correlated OT a value with a payload of a share."""
        bits = elements * (TYPICAL_RING + 1)
        travel = 0.0 if self.bandwidth is None else bits / self.bandwidth
        return elements * self.unit["selected_value"] + travel + CONVERSION_ROUNDS * (self.delay + self.unit["message"])

    def ways(self, layer: Linear, ring_degree: int, kept: dict[tuple[str, str], Kept]) -> list[Way]:
        """All feasible methods of a layer; notes the bytes that they keep between images."""
        many = self.batch > 1
        images = min(self.images(ring_degree), ring_degree) if many else 1
        asked = Asked(plan_geometry(layer.geometry), ring_degree, images=images)
        found: list[Way] = []
        for method, row in ROWS.items():
            if not (row.many if many else row.single):
                continue
            with suppress(ValueError):
                figures = row.figures(asked)
                if row.blocks and found and figures["window_bytes"] > self.memory:
                    continue
                block = images if row.blocks else 1
                seconds = (
                    layer_seconds(method, figures, self.unit) / block
                    + row.layer_seconds(figures, self.unit) / self.queries
                )
                if row.keeps is not None:
                    kept[layer.name, method] = Kept(row.keeps, row.kept_bytes(figures))
                # keys of a session, which all layers share: the largest
                self.session[method] = max(self.session.get(method, 0), row.shared_bytes(figures))
                sent = (figures["bytes_up"] + figures["bytes_down"]) / block + row.layer_bytes(figures) / self.queries
                found.append(Way(method, row.modulo, row.modulo, seconds + self.travel(sent), sent))
        return found or [Way("cheetah", RING, RING, 0.0)]

    def travel(self, sent: float) -> float:
        """Seconds that bytes take over the plan's network, and both parties to handle them."""
        return sent * ((0.0 if self.bandwidth is None else 8 / self.bandwidth) + self.unit.get("byte", 0.0))


def frugal(found: list[Way]) -> list[Way]:
    """The ways, with those put behind that send more than another one which takes as long.

    Seconds are alike where unit costs cannot tell them apart.
    """
    known = [w for w in found if w.enters == RING]
    wasteful = {w.name for w in known if any(v.bytes < w.bytes and v.seconds <= ACCURACY * w.seconds for v in known)}
    return [w.taking(ACCURACY * w.seconds * (1 + 1e-9)) if w.name in wasteful else w for w in found]


class _Client(dict[str, Any]):
    """Unit costs of the client's part of linear work; zero where it has none."""

    def __init__(self, unit: dict[str, Any]) -> None:
        super().__init__(
            {name.removesuffix("_client"): value for name, value in unit.items() if name.endswith("_client")}
        )

    def __missing__(self, name: str) -> float:
        return 0.0


def pipelined(total: float, client: float, tiles: int) -> float:
    """Seconds of a layer whose parties work on equal tiles one after the other.

    a tile's request, the server's work and the opening follow each other, and while the server has one tile the client
    has another: the longer part, and of the shorter one what one tile takes.
    """
    client = min(client, total)
    server = total - client
    return max(client, server) + min(client, server) / max(1, tiles)


def layer_seconds(method: str, packing: Mapping[str, int], unit: dict[str, Any], blocks: int = 1) -> float:
    """Both parties' computing on ``blocks`` images (`batch`: blocks of images) of a layer, tiles overlapping."""
    total, own = (blocks * ROWS[method].seconds(packing, u) for u in (unit, _Client(unit)))
    return pipelined(total, own, blocks * packing["tiles"])

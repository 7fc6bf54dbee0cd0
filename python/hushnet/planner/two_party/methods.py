"""Which method computes a linear layer on shares: one image packed in polynomials (three ways) or in slots (two), or one feature of many images in each.

Methods are chosen together, as the cheapest path through the network (:mod:`.paths`): slot-packed layers compute on shares modulo a prime, all else
on shares modulo 2^l, and the conversions between stand in the sums. A linear layer is followed by a truncation, which needs shares modulo 2^l.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from ... import _native
from ...graph import Linear, Shape
from ...reference.methods import COEFFICIENTS, METHODS, SLOTS, slot_cost
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
# methods with keys of their own, as in unit costs
KEYS = {"batch": "batch", "convfhe": "convfhe", "gala": "slot", "gazelle": "slot"}
# what methods keep between images: weights in evaluation form at the server, or set-ups at the client
KEEPS = {"convfhe": "weights", "gala": "weights", "gazelle": "weights", "rotation-free": "set-ups"}
# bytes of weights in evaluation form that a server keeps of a plan's layers of methods other than cheetah and rotation-free
MOST_KEPT = 1 << 30


def largest_pair(steps: list[Step], entering: Mapping[str, Shape]) -> int:
    """Most elements of one image that a step reads and writes: about what is alive at once."""
    shapes = {**entering, **{s.output: s.shape for s in steps}}
    return max((math.prod(s.shape) + sum(math.prod(shapes[t]) for t in s.inputs if t in shapes) for s in steps), default=1)


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
        rooms: bytes for what layers keep: weights, and set-ups, which may have all that a plan leaves (:meth:`give_up`).
        forced: the method of all layers; None for the cheapest of each.
        queries: images that one set-up serves: set-ups of rotation-free layers count for so much less.
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
    ) -> None:
        self.batch, self.steps, self.entering, self.unit, self.memory = batch, steps, entering, unit, memory // 4
        self.rooms = {"weights": min(self.memory, MOST_KEPT), "set-ups": memory}
        self.forced, self.queries = forced, queries
        self.peak = largest_pair(steps, entering)
        link = unit["networks"].get(network, {})
        self.bandwidth, self.delay = link.get("bits_per_second"), link.get("round_trip_seconds", 0.0) / 2
        self.picked: dict[int, dict[str, Pick]] = {}
        # bytes of keys that the layers of a method share, by method, and elements that a layer reads and leaves
        self.session: dict[str, int] = {}
        shapes = {**entering, **{s.output: s.shape for s in steps}}
        self.sizes = {s.name: (*(math.prod(shapes[t]) for t in s.inputs if t in shapes), math.prod(s.shape)) for s in steps}

    def images(self, ring_degree: int) -> int:
        """Images that run through the stages together."""
        return max(1, min(self.batch, _native.two_party_group(ring_degree, self.peak)))

    def __call__(self, layer: Linear, ring_degree: int) -> str:
        if self.forced is not None:
            return self.forced
        return self.picks(ring_degree)[layer.name].way.name

    def give_up(self, held: int, over: int) -> bool:
        """Makes the room of set-ups, of which a plan holds ``held`` bytes, smaller by the bytes that it needs too many; False where it cannot be."""
        room = max(0, held - over)
        if self.forced is not None or room >= min(held, self.rooms["set-ups"]):
            return False
        self.rooms["set-ups"] = room
        self.picked.clear()
        return True

    def told(self, name: str, ring_degree: int) -> dict[str, Any]:
        """What a layer's choice rests on: seconds an image, the best other method, and the seconds that the whole network would take longer with it."""
        if self.forced is not None:
            return {"choice": "forced"}
        pick = self.picks(ring_degree)[name]
        told: dict[str, Any] = {"choice": "cheapest path", "seconds": pick.way.seconds}
        return told if pick.runner_up is None else told | {"runner_up": pick.runner_up, "gap_seconds": pick.gap}

    def picks(self, ring_degree: int) -> dict[str, Pick]:
        """The methods of all layers at a ring degree, by two figures: seconds over the plan's network, and bytes. Candidates are the cheapest paths
        for several prices of a byte, with and without the methods that need keys of their own, and every single method; of those that neither
        take longer nor send more than any single method the fastest, or the cheapest path by seconds where there is none."""
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
            allowed = {layer: [w for w in found if w.name not in without] or found for layer, found in frugal_ways.items()}
            if without and allowed == frugal_ways:
                continue
            for price in BYTE_PRICES:
                priced = {layer: [replace(w, seconds=w.seconds + price * w.bytes) for w in found] for layer, found in allowed.items()}
                candidates.append(self.fitted(priced, kept))
        for method in METHODS:
            only = {layer: [w for w in found if w.name == method] for layer, found in ways.items()}
            if ways and all(only.values()) and not any(self.over({n: w[0].name for n, w in only.items()}, kept).values()):
                singles.append(self.path(only))
        restored = lambda picks: {n: replace(p, way=known.get((n, p.way.name), p.way)) for n, p in picks.items()}  # noqa: E731
        told = [(restored(picks), *self.totals(restored(picks), ways)) for picks in [*candidates, *singles]]
        alone = told[len(candidates):]
        if alone:
            seconds, sent = min(t for _, t, _ in alone), min(b for _, _, b in alone)
            # sums are made in another order, so that equal plans may differ in their last bits
            within = [c for c in told if c[1] <= seconds * (1 + 1e-9) and c[2] <= sent * (1 + 1e-9)]
            if within:
                return min(within, key=lambda c: (c[1], c[2]))[0]
        return told[0][0]

    def totals(self, picks: Mapping[str, Pick], layers: Iterable[str]) -> tuple[float, float]:
        """Seconds and bytes of all layers, with the conversions of slot-packed ones and the keys of methods that have their own."""
        chosen = {name: picks[name].way for name in layers}
        seconds, sent = sum(w.seconds for w in chosen.values()), sum(w.bytes for w in chosen.values())
        for name, way in chosen.items():
            if way.enters != RING:
                sizes = self.sizes[name]
                seconds += sum(self.conversion(n) for n in sizes)
                sent += sum(sizes) * (TYPICAL_RING + 1) / 8
        for method in {w.name for w in chosen.values()}:
            keys = self.session.get(method, 0) / self.queries
            figure = KEYS.get(method)
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
        """The cheapest path. Layers whose weights and set-ups do not fit the room together give up those ways that save
        least for their bytes."""
        ways = dict(given)
        while True:
            picks = self.path(ways)
            names = {name: picks[name].way.name for name in ways}
            over = self.over(names, kept)
            # a layer that has one way only keeps it: the run time transforms weights that do not fit as it needs them
            held = {n: kept[n, m] for n, m in names.items() if (n, m) in kept and any(w.name != m for w in ways[n])}
            spare = sorted((n for n, k in held.items() if k.bytes and over[k.what]), key=lambda n: picks[n].gap / held[n].bytes)
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
        return shortest(nodes, dict.fromkeys(self.entering, RING), lambda tensor, held, wanted: self.conversion(math.prod(shapes[tensor])))[1]

    def conversion(self, elements: int) -> float:
        """Seconds from one encoding to the other: one correlated OT a value with a payload of a share."""
        bits = elements * (TYPICAL_RING + 1)
        travel = 0.0 if self.bandwidth is None else bits / self.bandwidth
        return elements * self.unit["selected_value"] + travel + CONVERSION_ROUNDS * (self.delay + self.unit["message"])

    def ways(self, layer: Linear, ring_degree: int, kept: dict[tuple[str, str], Kept]) -> list[Way]:
        """All feasible methods of a layer; notes the bytes that they keep between images."""
        geometry = plan_geometry(layer.geometry)
        text = json.dumps(geometry)
        found: list[Way] = []
        with suppress(ValueError):
            packed = _native.packed_layer_cost(text, ring_degree, TYPICAL_RING)
            found.append(self.way("cheetah", packed, layer_seconds("cheetah", packed, self.unit)))
        if self.batch > 1:
            with suppress(ValueError):
                images = min(self.images(ring_degree), ring_degree)
                batch = _native.batch_share_layer_cost(text, ring_degree, TYPICAL_RING, TYPICAL_NORM, images)
                if batch["window_bytes"] <= self.memory or not found:
                    block = self.way("batch", batch, layer_seconds("batch", batch, self.unit))
                    found.append(replace(block, seconds=block.seconds / images, bytes=block.bytes / images))
            return found or [Way("cheetah", RING, RING, 0.0)]
        for method in COEFFICIENTS:
            with suppress(ValueError):
                cost = _native.coefficient_layer_cost(method, text, TYPICAL_RING, TYPICAL_NORM)
                seconds, more = layer_seconds(method, cost, self.unit), 0.0
                # as many words at the client as the weights in evaluation form have: docs/rotation-free.md
                kept[layer.name, method] = Kept(KEEPS[method], cost["prepared_bytes"])
                if method == "rotation-free":
                    more = cost["bytes_setup"] / self.queries
                    seconds += self.unit["rotation_free_weight"] * cost["weight_polys"] / self.queries
                else:
                    # keys of a session, which all layers share: the largest
                    self.session[method] = max(self.session.get(method, 0), cost["bytes_setup"] + cost["bytes_key"])
                found.append(self.way(method, cost, seconds, more))
        for method in SLOTS:
            with suppress(ValueError):
                cost = slot_cost(method, geometry, TYPICAL_PLAIN)
                kept[layer.name, method] = Kept(KEEPS[method], cost["weight_bytes"] + 2 * cost["key_bytes"])
                found.append(replace(self.way(method, cost, slot_seconds(cost, self.unit), cost["key_bytes"] / self.queries), enters=PRIME, leaves=PRIME))
        return found or [Way("cheetah", RING, RING, 0.0)]

    def way(self, method: str, cost: Mapping[str, int], computing: float, more: float = 0.0) -> Way:
        """A layer's way from seconds of computing and the bytes of its messages and of set-ups (an image's part)."""
        sent = cost["bytes_up"] + cost["bytes_down"] + more
        return Way(method, RING, RING, computing + self.travel(sent), sent)

    def travel(self, sent: float) -> float:
        """Seconds that bytes take over the plan's network, and both parties to handle them."""
        return sent * ((0.0 if self.bandwidth is None else 8 / self.bandwidth) + self.unit.get("byte", 0.0))


def frugal(found: list[Way]) -> list[Way]:
    """The ways, those that send more than another one which takes as long, as far as unit costs can tell, put behind it."""
    known = [w for w in found if w.enters == RING]
    wasteful = {w.name for w in known if any(v.bytes < w.bytes and v.seconds <= ACCURACY * w.seconds for v in known)}
    return [replace(w, seconds=ACCURACY * w.seconds * (1 + 1e-9)) if w.name in wasteful else w for w in found]


def packed_seconds(layer: Mapping[str, int], unit: dict[str, Any]) -> float:
    """Both parties' computing on a packed layer, for one image."""
    return sum(unit[figure] * layer[what] for figure, what in (("input_poly", "input_polys"), ("output_poly", "output_polys"), ("product", "products")))


def coefficient_seconds(method: str, layer: Mapping[str, int], unit: dict[str, Any]) -> float:
    """Both parties' computing on a layer of method rotation-free or convfhe, for one image."""
    figure = method.replace("-", "_")
    size = layer["ring_degree"] / 4096
    seconds = size * (unit[f"{figure}_input"] * layer["input_polys"] + unit[f"{figure}_product"] * layer["products"])
    if method == "convfhe":
        return seconds + unit["convfhe_output"] * layer["answers"] + unit["convfhe_rotation"] * layer["rotations"]
    return seconds + size * unit["rotation_free_output"] * layer["output_polys"] * (0.2 + 1.0 / layer["spacing"])


def slot_seconds(layer: Mapping[str, int], unit: dict[str, Any]) -> float:
    """Both parties' computing on a layer of method gala or gazelle, for one image: words of requests and answers, transforms of key switching,
    multiplications of words by weights and keys."""
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
    return sum(unit[figure] * layer[what] for figure, what in (("batch_input", "inputs"), ("batch_output", "outputs"), ("batch_word", "word_products")))


class _Client(dict[str, Any]):
    """Unit costs of the client's part of linear work; zero where it has none."""

    def __init__(self, unit: dict[str, Any]) -> None:
        super().__init__({name.removesuffix("_client"): value for name, value in unit.items() if name.endswith("_client")})

    def __missing__(self, name: str) -> float:
        return 0.0


def linear_seconds(method: str, packing: Mapping[str, int], unit: dict[str, Any]) -> float:
    """Work of one image (`batch`: block of images) of a layer, as if nothing overlapped."""
    if method == "batch":
        return batch_seconds(packing, unit)
    if method in COEFFICIENTS:
        return coefficient_seconds(method, packing, unit)
    return packed_seconds(packing, unit)


def pipelined(total: float, client: float, tiles: int) -> float:
    """Seconds of a layer whose parties work on equal tiles one after the other: a tile's request, the server's work and the opening follow
    each other, and while the server has one tile the client has another: the longer part, and of the shorter one what one tile takes."""
    client = min(client, total)
    server = total - client
    return max(client, server) + min(client, server) / max(1, tiles)


def layer_seconds(method: str, packing: Mapping[str, int], unit: dict[str, Any], blocks: int = 1) -> float:
    """Both parties' computing on ``blocks`` images (`batch`: blocks of images) of a layer that is not packed in slots, tiles overlapping."""
    total, own = (blocks * linear_seconds(method, packing, u) for u in (unit, _Client(unit)))
    return pipelined(total, own, blocks * packing["tiles"])

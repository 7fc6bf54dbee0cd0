"""What the planner takes for a layer of the gala benchmark, beside every single method measured in the same run.

Methods are compared by what the planner predicts: processor seconds on the longest chain of both parties' work, as the
run time orders it (``planner.two_party.methods.pipelined``; a client's own rotation-free products run while the server
answers).
"""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
from hushnet import _native
from hushnet.graph import Conv2d, Dense, Linear
from hushnet.planner.two_party import cost
from hushnet.planner.two_party.methods import KEEPS, TYPICAL_NORM, TYPICAL_RING, Chooser, pipelined
from hushnet.planner.two_party.steps import Step

from hushnet_bench import _native as measuring

Row = dict[str, Any]
QUERIES = 1000
# bytes for both parties: what a layer measured alone may need
MEMORY = 2 << 30


def chooser(geometry: str, unit: Row | None = None) -> Chooser:
    """A planner for one layer alone, of a session of many queries: set-ups are not what the tables measure."""
    g = json.loads(geometry)
    if g["type"] == "dense":
        shape: Any = Dense(g["inputs"], g["outputs"])
        weights: tuple[int, ...] = (g["outputs"], g["inputs"])
        source: Any = (g["inputs"],)
        target: Any = (g["outputs"],)
    else:
        source, target = tuple(g["input"]), tuple(g["output"])
        shape = Conv2d(
            source, target, tuple(g["kernel"]), tuple(g["stride"]), tuple(g["pads"]), tuple(g["dilation"]), g["groups"]
        )
        weights = (target[0], source[0] // g["groups"], *shape.kernel)
    layer = Linear("layer", "x", "y", shape, np.broadcast_to(0.0, weights), np.zeros(weights[0]))
    step = Step("linear", "layer", ["x"], "y", target, layer=layer)
    return Chooser(1, [step], {"x": source}, unit or cost.unit_costs(), "loopback", MEMORY, queries=QUERIES)


def choice(geometry: str, measured: dict[str, float], slack: float = 0.05, unit: Row | None = None) -> Row:
    """The planner's method and its measured seconds beside the best of all.

    Args:
        measured: seconds of the longest chain by method, conversions of slot-packed methods not included: those are
            predicted.
        unit: unit costs; by default those that the planner uses.
    """
    planner = chooser(geometry, unit)
    pick = planner.picks(2048)["layer"]
    g = json.loads(geometry)
    sizes = [g["inputs"], g["outputs"]] if g["type"] == "dense" else [math.prod(g["input"]), math.prod(g["output"])]
    converted = sum(planner.conversion(n) for n in sizes)
    seconds = {m: s + (converted if m in ("gala", "gazelle") else 0.0) for m, s in measured.items()}
    best = min(seconds, key=seconds.__getitem__)
    taken = pick.way.name
    found: Row = {
        "method": f"planner: {taken}",
        "runner_up": pick.runner_up,
        "gap_seconds": pick.gap,
        "predicted_seconds": pick.way.seconds,
    }
    found |= {
        "best_method": best,
        "best_seconds": seconds[best],
        "total_seconds": seconds,
        "conversion_seconds_predicted": converted,
    }
    if taken in seconds:
        found |= {"seconds": seconds[taken], "within_5_percent": seconds[taken] <= (1 + slack) * seconds[best]}
    return found


def coefficients(geometry: str, repeats: int, ring_bits: int = 20, unit: Row | None = None) -> dict[str, float]:
    """Seconds of the longest chain of one query of rotation-free and convfhe.

    Those that refuse the layer, or keep too much, are left out.
    """
    found, planner = {}, chooser(geometry, unit)
    for name, native in (("rotation-free", "compact"), ("convfhe", "convfhe")):
        try:
            row = _native.coefficient_layer_cost(name, geometry, TYPICAL_RING, TYPICAL_NORM)
            if row["prepared_bytes"] > planner.rooms[KEEPS[name]]:  # what the planner does not take either
                continue
            seconds = json.loads(measuring.rotation_free_layer(geometry, [native], ring_bits=ring_bits, runs=repeats))[
                native
            ]["seconds"]
        except (ValueError, RuntimeError, KeyError):
            continue
        client, server = seconds["client"], seconds["server"] + seconds["server_offline"]
        if name == "rotation-free":
            found[name] = client + max(server, seconds["client_offline"])
        else:
            found[name] = pipelined(client + server, client, row["tiles"])
    return found


def cheetah(geometry: str, server: float, client: float) -> float:
    """Seconds of the longest chain of a layer by cheetah."""
    return pipelined(client + server, client, _native.packed_layer_cost(geometry, 2048, 20, 1024.0)["tiles"])

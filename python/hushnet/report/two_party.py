"""Explains a two-party plan.

Who learns what, and per stage ciphertext and protocol bytes, rounds, time, ring and units.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group

from .. import _native
from ..plan import Plan
from ..planner.two_party import cost, nonlinear
from ..reference import methods
from ..reference.matrices import Sizes
from ..reference.two_party import COMPARING, dropped, off_fraction
from .answers import answers
from .fitting import Table, listed

Report = Mapping[str, Any]

LEARNS = {
    "who_computes_nonlinear_layers": "both, on secret shares",
    "server_learns": "shapes only: no inputs, no intermediate values, no results",
    "warning": "Holds for parties that keep to the protocol (semi-honest).",
}
# statistical security of one flooded answer whose noise is at its limit (``crates/rlwe/src/bfv/noise.rs``)
ANSWER_BITS = 40
TOLD = (
    "shapes, protocols and fraction bits, slopes and forms of activations, scalar factors, and of weights norms and "
    "bounds of values, rounded up to powers of two"
)
OUTPUT = f"its results, {TOLD}"
ARGMAX = f"the index of the largest output, {TOLD}"
RANGES = {
    "calibrated": "Ranges come from calibration data: the answer to an input that leaves "
    "them may be wrong without notice.",
    "proven": "Every range is proven for all inputs of the declared intervals.",
}


def trust(plan: Plan) -> dict[str, str]:
    """Who learns what."""
    if plan.part["reveal"] == "argmax":
        client = ARGMAX
    else:
        outputs = {o["tensor"] for o in plan.document["outputs"]}
        decoded = {
            op["in"][0]: op["out"]
            for s in plan.stages
            if s["kind"] == "client"
            for op in s["ops"]
            if op["op"] in ("dequantize", "affine")
        }
        opened = [s["out"] for s in plan.stages if s["kind"] == "reveal"]
        hidden = [t for t in opened if decoded.get(t) not in outputs and decoded.get(decoded.get(t, -1)) not in outputs]
        names = ", ".join(plan.tensors[decoded.get(t, t)]["name"] for t in hidden)
        client = OUTPUT if not hidden else f"{OUTPUT}; what it computes its results from: {names}"
    return {"mode": "two-party", **LEARNS, "client_learns": client}


def explain(plan: Plan, trace: Mapping[str, Any] | None = None, network: str | None = None) -> dict[str, Any]:
    """The plan as a structured dict; with a run's trace, measured figures stand beside the predicted ones.

    Args:
        network: "loopback", "lan", "wan" or bandwidth and round trip like "200mbit,5ms", for all seconds; the plan's
            own by default.
    """
    document, predicted = plan.document, plan.predicted
    unit = cost.unit_costs()
    name = network or predicted.get("network", "loopback")
    network_of = cost.link(name, unit)
    images = predicted.get("batch", 1)
    found = cost.account(document, unit, images, plan.handle())
    # by position: a client's trace has neutral names
    measured = {i: dict(e) for i, e in enumerate((trace or {}).get("stages", []))}
    layers = [_stage(plan, i, s, c, network_of, measured) for i, (s, c) in enumerate(zip(plan.stages, found.stages))]
    report = {
        "name": plan.name,
        "producer": document["producer"],
        "digest": plan.digest,
        "public_part": plan.is_public,
        "engine": document["engine"],
        "trust": trust(plan),
        "reveal": plan.part["reveal"],
        "parameters": {**_parameters(plan, layers), "statistical": statistical(found)},
        "network": {"name": name, **network_of},
        "inputs": [{"name": p["name"], "shape": list(plan.tensors[p["tensor"]]["shape"])} for p in document["inputs"]],
        "outputs": [
            {"name": p["name"], "shape": list(plan.tensors[p["tensor"]]["shape"])} for p in document["outputs"]
        ],
        "layers": layers,
        "totals": {
            **predicted,
            "seconds": cost.seconds(found.total, found.compute, network_of),
            "bytes_per_image": (found.total.up + found.total.down) / images,
            **_prepared(found),
        },
        "answers": answers(predicted),
        "error": {},
        "notes": list(document["notes"]) or [RANGES[plan.part["ranges"]]],
    }
    if "max_error" in predicted:
        # the server's alone: errors follow from the weights themselves
        report["error"] = {
            "estimate": predicted["max_error"],
            "worst_case": predicted.get("worst_error"),
            "by_output": predicted["output_errors"],
        }
    if "seen_error" in predicted:
        report["error"]["seen_on_calibration"] = predicted["seen_error"]
    if trace is not None:
        report["measured"] = {k: v for k, v in trace.items() if k != "stages"}
    return report


def _prepared(found: cost.Account) -> dict[str, Any]:
    """What the same images send where they were prepared: before, and with them; and what each party keeps of one.

    Both are exact, apart from the set-ups of the two sessions.
    """
    if found.prepared is None:
        return {}
    told = found.prepared
    phases = {
        f"{name}_{way}": told[name][way]
        for name in ("offline", "online")
        for way in ("bytes_up", "bytes_down", "rounds")
    }
    kept = {name: told[name] for name in ("client_bytes", "server_bytes", "unprepared")}
    return {"prepared": phases | kept | {"online_transfers": told["extensions"]["drawn"]}}


def _parameters(plan: Plan, layers: Sequence[Report]) -> dict[str, Any]:
    degree, ring = plan.ring_degree, plan.part["ring_bits"]
    # slot-packed layers have parameters of their own, which their rows tell
    packed = [(i, s) for i, s in plan.linear_stages() if s["method"] not in methods.SLOTS]
    of = [methods.ciphertexts(s["method"], degree, ring, s["weight_l2"]) for _, s in packed]
    moduli: dict[int, set[int]] = {}
    for (index, _), found in zip(packed, of):
        # some methods have a ring degree of their own
        moduli.setdefault(layers[index].get("ring_degree", degree), set()).add(found.modulus_bits)
    return {
        "ring_degree": degree,
        "ring_bits": ring,
        "modulus_bits": sorted({c.modulus_bits for c in of}),
        "rings": [
            {"ring_degree": n, "modulus_bits": sorted(bits), "modulus_bits_limit": _native.max_modulus_bits(n)}
            for n, bits in sorted(moduli.items())
        ],
        "response_bits": max((c.response_bits for c in of), default=0),
        "noise_bits": max((c.noise_bits for c in of), default=0.0),
        "modulus_bits_limit": _native.max_modulus_bits(degree),
        "security_bits": plan.document["params"]["security_bits"],
    }


def statistical(found: cost.Account) -> dict[str, float] | None:
    """What the floods of slot-packed answers leave.

    ``answers_per_image`` and ``bits_per_image``, -log2 of the statistical distance of one image's answers from what
    says nothing of weights, by the union bound; m images of a session leave log2 m fewer. ``None`` where every mask is
    perfect.
    """
    flooded = [s.packing for s in found.stages if "noise_limit_bits" in s.packing]
    if not flooded:
        return None
    distance = math.fsum(
        p["ciphers_down"] * 2.0 ** (p["noise_bits"] - p["noise_limit_bits"] - ANSWER_BITS) for p in flooded
    )
    return {"answers_per_image": sum(p["ciphers_down"] for p in flooded), "bits_per_image": -math.log2(distance)}


def _stage(
    plan: Plan,
    index: int,
    stage: dict[str, Any],
    spent: cost.StageCost,
    network: dict[str, Any],
    measured: Mapping[int, Any],
) -> dict[str, Any]:
    traffic = cost.Traffic(spent.he.up + spent.ot.up, spent.he.down + spent.ot.down, spent.he.rounds + spent.ot.rounds)
    entry: dict[str, Any] = {
        "stage": index,
        "name": stage["name"],
        "kind": stage["kind"],
        "what": _what(plan, stage),
        "he_bytes": spent.he.up + spent.he.down,
        "ot_bytes": spent.ot.up + spent.ot.down,
        "bytes_up": traffic.up,
        "bytes_down": traffic.down,
        "rounds": traffic.rounds,
        "seconds": cost.seconds(traffic, spent.compute, network),
    }
    if stage["kind"] != "client":
        out = plan.tensors[stage["out"]]
        entry["elements"] = cost.elements(out)
        entry["memory_bytes"] = cost.SHARE_BYTES * cost.elements(out) * plan.predicted.get("batch", 1)
    if stage["kind"] not in {"client", "reveal"}:
        bound = out.get("bound", (1 << out["reach_bits"]) - 1)
        entry["range"] = {
            "largest": math.ldexp(bound, -out["frac_bits"]),
            "precision": math.ldexp(1.0, -out["frac_bits"]),
        }
        entry["range"]["bits"] = (2 * bound).bit_length()
    if (bits := compared_bits(plan, stage)) is not None:
        entry["compared_bits"] = bits
    if stage["kind"] == "linear":
        entry |= {
            "method": stage["method"],
            "unit_fraction": off_fraction(plan, stage),
            "weight_l2": stage["weight_l2"],
            **spent.packing,
        }
        entry |= {k: v for k, v in stage.get("predicted", {}).items() if k in ("choice", "runner_up", "gap_seconds")}
        degree = plan.ring_degree
        entry["memory_bytes"] += spent.packing.get("window_bytes", 0) + cost.SHARE_BYTES * degree * spent.packing.get(
            "weight_polys", 0
        )
        entry |= {"bytes_up": traffic.up, "bytes_down": traffic.down}
    if stage["kind"] == "matrix_product":
        entry["unit_fraction"] = off_fraction(plan, stage)
        entry["memory_bytes"] += spent.packing["window_bytes"]
    if nonlinear.compares(stage):
        entry["method"] = stage.get("protocol", "ot")
        entry |= plan.predicted.get("nonlinear", {}).get(stage["name"], {})
    if measured.get(index, {}).get("kind") == stage["kind"]:
        entry["measured"] = measured[index]
    return entry


def compared_bits(plan: Plan, stage: dict[str, Any]) -> int | None:
    """Bits of shares below the sign that a ReLU, a clip or a max-pool compares; None for other stages."""
    if stage["kind"] not in COMPARING:
        return None
    reach = stage.get("reach_bits", plan.tensors[stage["in"]]["reach_bits"])
    return int(reach) + (1 if stage["kind"] == "max_pool" else 0)


def _what(plan: Plan, stage: dict[str, Any]) -> str:
    said, bits = _computed(plan, stage), compared_bits(plan, stage)
    if bits is None or stage.get("protocol") == "garbled":
        return said
    least = f" of {bits + dropped(stage)}" if dropped(stage) else ""
    return ", ".join(part for part in (said, f"compares {bits}{least} bits") if part)


def _computed(plan: Plan, stage: dict[str, Any]) -> str:
    kind = stage["kind"]
    if kind == "client":
        return listed(op["op"] for op in stage["ops"])
    if kind == "linear":
        g = stage["geometry"]
        if g["type"] == "dense":
            return f"dense {g['inputs']} -> {g['outputs']}"
        return (
            f"conv {g['kernel'][0]}x{g['kernel'][1]}, {'x'.join(map(str, g['input']))} -> "
            f"{'x'.join(map(str, g['output']))}"
        )
    if kind == "truncate":
        return f"{'exactly ' if stage.get('exact') else ''}by {stage['bits']} bits, {stage['sign']}"
    if kind in {"max_pool", "sum_pool"}:
        return f"{stage['kernel'][0]}x{stage['kernel'][1]} by {stage['stride'][0]},{stage['stride'][1]}"
    if kind == "scale":
        return f"by {stage['factor']}"
    if kind == "function":
        return str(stage.get("function", ""))
    if kind == "product":
        square = stage["in"][0] == stage["in"][1]
        return f"{'square' if square else 'product'}, by {stage['bits']} bits"
    if kind == "matrix_product":
        sizes = Sizes.of(*(plan.tensors[t]["shape"] for t in stage["in"]))
        heads = f"{sizes.heads} heads, " if sizes.heads > 1 else ""
        return f"{heads}{sizes.rows}x{sizes.inner} times {sizes.inner}x{sizes.columns}, by {stage['bits']} bits"
    if kind == "shift":
        return "negated" if stage.get("negated") else ""
    if kind == "clip" and "high" not in stage:
        return "from 0" if stage.get("low") == 0 else ""
    return {"reveal": stage.get("what", ""), "clip": f"{stage.get('low')} to {stage.get('high')}"}.get(kind, "")


def _masks(told: Mapping[str, float] | None) -> str:
    if told is None:
        return "masks of answers are perfect"
    return (
        f"weights stay hidden but for 2^-{told['bits_per_image']:.1f} an image ({told['answers_per_image']} flooded "
        f"answers of at most 2^-{ANSWER_BITS} each); "
        "m images of a session add up to m times that"
    )


def tables(report: Report, size: Any, seconds: Any) -> Group:
    """Parameters and stages for people; ``size`` and ``seconds`` format bytes and times."""
    p, n = report["parameters"], report["network"]
    grid = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    grid.add_row("Shares", f"modulo 2^{p['ring_bits']}")
    for ring in p["rings"]:
        grid.add_row(
            "Ciphertexts",
            f"N = {ring['ring_degree']}, moduli of {', '.join(map(str, ring['modulus_bits']))} bits; the table allows "
            f"{ring['modulus_bits_limit']} for 128-bit security",
        )
    if p["rings"]:
        grid.add_row("Answers", f"{p['response_bits']} bits a word")
    grid.add_row("Security", f"{p['security_bits']} bits; {_masks(p['statistical'])}")
    speed = "unlimited" if n["bits_per_second"] is None else f"{n['bits_per_second'] / 1e6:.0f} Mbit/s"
    grid.add_row("Network", f"{n['name']}: {speed}, round trip {seconds(n['round_trip_seconds'])}")
    return Group(grid, _costs(report, size, seconds), _ranges(report, size, seconds))


HEAVY = {"linear", "relu", "max_pool", "clip", "leaky_relu", "function", "product", "matrix_product", "hard_swish"}
LEFT = ("stage", "kind", "what", "method", "runner-up")


def _columns(table: Table, names: Sequence[str]) -> Table:
    for name in names:
        table.add_column(name, justify="left" if name in LEFT else "right", overflow="fold")
    return table


def _costs(report: Report, size: Any, seconds: Any) -> Table:
    """What every stage is and costs."""
    table = Table(title=f"Stages, for {_images(report)}", title_justify="left", header_style="bold")
    _columns(table, ("stage", "kind", "what", "ciphertexts", "protocols", "rounds", "time"))
    for layer in report["layers"]:
        table.add_row(
            layer["name"],
            layer["kind"],
            layer["what"],
            size(layer["he_bytes"]) if layer["he_bytes"] else "",
            size(layer["ot_bytes"]) if layer["ot_bytes"] else "",
            str(layer["rounds"] or ""),
            seconds(layer["seconds"]),
            style="" if layer["kind"] in HEAVY else "dim",
        )
    return table


def _ranges(report: Report, size: Any, seconds: Any) -> Table:
    """How every stage on shares is computed, and with which values."""
    table = Table(title="Methods, ranges and memory", title_justify="left", header_style="bold")
    _columns(table, ("stage", "method", "runner-up", "range", "units off", "memory"))
    for layer in report["layers"]:
        if layer["kind"] in ("client", "reveal"):
            continue
        span = layer.get("range")
        other = "none compared" if layer.get("choice") == "forced" else ""
        table.add_row(
            layer["name"],
            layer.get("method", ""),
            f"{layer['runner_up']} +{seconds(layer['gap_seconds'])}" if "runner_up" in layer else other,
            f"±{span['largest']:.4g} in {span['bits']} bits" if span else "",
            f"{100 * layer['unit_fraction']:.1f} %" if "unit_fraction" in layer else "",
            size(layer["memory_bytes"]) if "memory_bytes" in layer else "",
            style="" if layer["kind"] in HEAVY else "dim",
        )
    return table


def _images(report: Report) -> str:
    count = report["totals"].get("batch", 1)
    return "one image" if count == 1 else f"{count} images together"


def totals(report: Report, size: Any, seconds: Any) -> Table:
    """Totals for the images that run together."""
    t = report["totals"]
    table = Table(
        title=f"Totals for {_images(report)}", title_justify="left", show_header=False, box=None, padding=(0, 2, 0, 0)
    )
    by_network = ", ".join(f"{name} {seconds(s)}" for name, s in t["seconds_by_network"].items())
    table.add_row("Time, one core a party", by_network)
    table.add_row(
        "Bytes",
        f"{size(t['bytes_up'])} up, {size(t['bytes_down'])} down: {size(t['he_bytes'])} ciphertexts, "
        f"{size(t['ot_bytes'])} protocols",
    )
    table.add_row("Once a session", f"{size(t['setup_bytes'])} ({t['extension']})")
    table.add_row("Rounds", f"{t['rounds']} messages that depend on each other")
    if "prepared" in t:
        p = t["prepared"]
        before, then = (size(p[f"{name}_bytes_up"] + p[f"{name}_bytes_down"]) for name in ("offline", "online"))
        left = f"; {len(p['unprepared'])} stages cannot be prepared" if p["unprepared"] else ""
        left += f"; {p['online_transfers']:,} transfers are made with the input" if p["online_transfers"] else ""
        table.add_row(
            "Prepared",
            f"{before} before, {then} in {p['online_rounds']} rounds with the input; of one image the client keeps "
            f"{size(p['client_bytes'])}, the server {size(p['server_bytes'])}{left}",
        )
    server = f", server {size(t['server_peak_memory_bytes'])}" if "server_peak_memory_bytes" in t else ""
    table.add_row("Memory", f"client {size(t['client_peak_memory_bytes'])}{server}")
    return table

"""Explains a non-interactive plan: who learns what; N, primes and key switching.

Per stage level, scale, room and error.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from rich.console import Group

from .. import _native
from ..plan import Plan
from .answers import answers
from .fitting import Table, listed

Report = Mapping[str, Any]

LEARNS = {
    "who_computes_nonlinear_layers": "nobody: activations are polynomials, computed under encryption",
    "server_learns": "shapes and the number of images only: no inputs, no intermediate values, no results",
}
OPEN = "its results; and ciphertexts and their noise, from which weights can be solved for"
PACKED_HIDDEN = (
    "its results, where inputs and outputs stand in slots, rotations, levels, primes and scales, bits of noise (which "
    "follow from layer shapes, pooling windows and norms of weights), and the bound of its results rounded up to a "
    "power of two; of weights nothing beyond them (but for 2^-40 a ciphertext of results; a session of c of them adds "
    "up to c times that)"
)
HIDDEN = (
    "its results, layer shapes, levels, primes and scales, bits of noise, and the bound of its results rounded up to a "
    "power of two; of weights nothing beyond them (but for 2^-40 a ciphertext of results; a session of c of them adds "
    "up to c times that)"
)
OPEN_WARNING = "Weights are not private in this plan. Compile with hide_weights to protect a model from its users."
HIDDEN_WARNING = "Holds for parties that keep to the protocol (semi-honest)."


UNSEEN = (
    "The server cannot see a value that leaves a polynomial's range: the answer to such an input may be wrong. The "
    "client clamps inputs outside "
    "the planned interval and results beyond their bound, and names their rows."
)


def trust(plan: Plan) -> dict[str, str]:
    """Who learns what."""
    hidden = "hide_weights" in plan.part
    learnt = PACKED_HIDDEN if plan.document["engine"] == "packed" else HIDDEN
    learns = {"client_learns": learnt if hidden else OPEN, "warning": HIDDEN_WARNING if hidden else OPEN_WARNING}
    last = max(i for i, s in enumerate(plan.stages) if s["kind"] == "decrypt")
    tail = [op["op"] for s in plan.stages[last:] if s["kind"] == "client" for op in s["ops"]]
    if any(op not in ("reshape", "transpose") for op in tail):
        learns["client_learns"] += f"; what it computes its results from (before {', '.join(dict.fromkeys(tail))})"
    return {"mode": "non-interactive", **LEARNS, **learns}


def explain(plan: Plan, trace: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The plan as a structured dict; with a run's trace, measured figures stand beside the predicted ones."""
    document, predicted = plan.document, plan.predicted
    facts = json.loads(plan.handle().facts())["non_interactive"]
    tracks = {t["tensor"]: t for t in facts["tracks"] or []}
    # stages by position, since a client's trace has neutral names; behind them the steps of a packed stage, by name
    seen = list((trace or {}).get("stages", []))
    measured = {s["name"]: e for s, e in zip(plan.stages, seen)} | {e["name"]: e for e in seen[len(plan.stages) :]}
    ranges = {r["tensor"]: r for r in (trace or {}).get("polynomials", [])}
    blocks = math.ceil(predicted["batch"] / facts["images"])
    report = {
        "name": plan.name,
        "producer": document["producer"],
        "digest": plan.digest,
        "public_part": plan.is_public,
        "engine": document["engine"],
        "trust": trust(plan),
        "parameters": _parameters(plan, facts),
        "inputs": [_port(plan, p) for p in document["inputs"]],
        "outputs": [_port(plan, p) for p in document["outputs"]],
        "layers": [row for s in plan.stages for row in _rows(plan, s, facts, tracks, measured, ranges)],
        "totals": {
            **predicted,
            "counted": facts["counted"],
            "blocks": blocks,
            "bytes_per_image": (predicted["bytes_up"] + predicted["bytes_down"]) / predicted["batch"],
        },
        "answers": answers(predicted),
        "error": {},
        "notes": list(document["notes"]) or [UNSEEN],
    }
    if not plan.is_public:
        # the server's alone: errors follow from the weights themselves
        report["error"] = {
            "estimate": predicted["max_error"],
            "worst_case": predicted.get("worst_error"),
            "of_it_noise": predicted["noise_error"],
        }
        report["totals"] |= {
            "counted": predicted["counted"],
            "seconds_per_image": predicted["seconds"] / predicted["batch"],
        }
        if facts["packed"] is not None:
            report["totals"]["weights"] = {
                "bytes": facts["packed"]["plaintext_bytes"],
                "kept_bytes": facts["packed"]["kept_bytes"],
                "encoded_again": facts["packed"]["counts"]["encodings"],
            }
    if "seen_error" in predicted:
        report["error"]["seen_on_calibration"] = predicted["seen_error"]
    if trace is not None:
        report["measured"] = {k: v for k, v in trace.items() if k != "stages"}
    return report


def _parameters(plan: Plan, facts: Mapping[str, Any]) -> dict[str, Any]:
    shared, p = plan.document["params"], plan.part
    bits = [math.log2(q) for q in p["data_primes"]]
    special = [math.log2(q) for q in p["special_primes"]]
    hide = p.get("hide_weights")
    return {
        "ring_degree": shared["ring_degree"],
        "images_per_block": facts["images"],
        "packing": p["packing"],
        "levels": len(bits),
        "data_primes": p["data_primes"],
        "data_prime_bits": [round(b, 2) for b in bits],
        "special_primes": p["special_primes"],
        "special_prime_bits": [round(b, 2) for b in special],
        "digits": p["digits"],
        "modulus_bits": math.ceil(max(sum(bits), sum(bits[: p.get("key_level", len(bits))]) + sum(special))),
        "modulus_bits_limit": _native.max_modulus_bits(shared["ring_degree"]),
        "security_bits": shared["security_bits"],
        "insecure": shared["insecure"],
        "depth": plan.predicted.get("depth"),
        "flood_bits": None if hide is None else hide["flood_bits"],
        "secret": "uniform ternary, one a session",
        "error": f"centred binomial, variance {_native.ERROR_VARIANCE}",
    }


def _port(plan: Plan, port: Mapping[str, Any]) -> dict[str, Any]:
    return {"name": port["name"], "shape": list(plan.tensors[port["tensor"]]["shape"])}


def _rows(
    plan: Plan,
    stage: dict[str, Any],
    facts: Mapping[str, Any],
    tracks: Mapping[int, Any],
    measured: Mapping[str, Any],
    ranges: Mapping[str, Any],
) -> list[dict[str, Any]]:
    if stage["kind"] != "packed":
        return [_stage(plan, stage, tracks, measured.get(stage["name"]), ranges)]
    if facts["packed"] is None:
        return [{"name": stage["name"], "kind": "packed"}]
    names = {t["id"]: t["name"] for t in stage["network"]["tensors"]}
    steps = {s["name"]: s for s in stage["network"]["steps"]}
    primes = plan.part["data_primes"]
    rows = []
    for line, found in zip(facts["packed"]["operations"], facts["packed"]["steps"]):
        bits = sum(math.log2(q) for q in primes[: found["level"]])
        row = {k: found[k] for k in ("name", "kind", "ciphertexts", "level", "scale_bits", "bound")}
        row |= {"parts": 2, "method": line.removeprefix(f"{found['name']}: "), "modulus_bits": bits}
        row["room_bits"] = bits - 1 - math.log2(found["bound"]) - found["scale_bits"]
        row |= {"error_bound": found["error_bound"], "error_expected": found["error_expected"]}
        step = steps.get(found["name"], {})
        if "range" in step:
            row["range"] = step["range"]
            if names[step["in"]] in ranges:
                row["reached"] = ranges[names[step["in"]]]["largest"]
        seen = measured.get(found["name"])
        if seen is not None and seen.get("seconds") is not None:
            row["measured"] = {"seconds_server": seen["seconds"]}
        rows.append(row)
    return rows


def _stage(
    plan: Plan, stage: dict[str, Any], tracks: Mapping[int, Any], seen: Any, ranges: Mapping[str, Any]
) -> dict[str, Any]:
    entry: dict[str, Any] = {"name": stage["name"], "kind": stage["kind"]}
    if stage["kind"] == "client":
        entry["ops"] = [op["op"] for op in stage["ops"]]
        return entry
    tensors = {t["id"]: t for t in plan.tensors}
    out, sources = tensors[stage["out"]], stage["in"] if isinstance(stage["in"], list) else [stage["in"]]
    if stage["kind"] == "linear":
        from .explaining import _geometry

        entry["geometry"] = _geometry(stage["geometry"])
        if "weights" in stage:
            weight = plan.weights[stage["weights"]]
            entry["weights"] = {
                "count": int(weight.size),
                "dtype": weight.dtype.name,
                "unit": tensors[stage["in"]]["scale"] / out["scale"],
            }
    if out["kind"] == "cipher" and "level" in out:
        primes = plan.part["data_primes"]
        entry |= {
            "ciphertexts": math.prod(out["shape"]),
            "level": out["level"],
            "parts": out["parts"],
            "scale_bits": math.log2(out["scale"]),
        }
        entry["modulus_bits"] = sum(math.log2(q) for q in primes[: out["level"]])
        if "bound" in out:
            entry["bound"] = out["bound"]
            entry["room_bits"] = entry["modulus_bits"] - 1 - math.log2(out["bound"] * out["scale"])
        if out["id"] in tracks:
            entry["error_bound"] = _native.ERROR_TAIL * tracks[out["id"]]["sd"] / out["scale"]
    operand = tensors[sources[0]]
    if "range" in operand:
        entry["range"] = operand["range"]
        if operand["name"] in ranges:
            entry["reached"] = ranges[operand["name"]]["largest"]
    if seen is not None and seen.get("seconds") is not None:
        entry["measured"] = {"seconds_server": seen["seconds"]}
    return entry


def tables(report: Report, size: Any, seconds: Any) -> Group:
    """Parameters and stages."""
    p = report["parameters"]
    grid = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    images = "one image at a time" if report["engine"] == "packed" else f"{p['images_per_block']} images a block"
    grid.add_row("Ring degree N", f"{p['ring_degree']}: {images} ({p['packing']} slots)")
    grid.add_row(
        "Levels",
        f"{p['levels']} primes of {', '.join(f'{b:.0f}' for b in p['data_prime_bits'])} bits, lowest first"
        + (f"; depth {p['depth']}" if p["depth"] is not None else ""),
    )
    if p["special_primes"]:
        grid.add_row(
            "Key switching",
            f"special primes of {', '.join(f'{b:.0f}' for b in p['special_prime_bits'])} bits, {p['digits']} digits",
        )
    grade = "INSECURE" if p["insecure"] else f"{p['security_bits']} bits"
    grid.add_row(
        "Security", f"{grade}: {p['modulus_bits']} bits of modulus, the table allows {p['modulus_bits_limit']}"
    )
    if p["flood_bits"] is not None:
        grid.add_row("Hidden weights", f"results re-randomised and flooded with {p['flood_bits']} bits")
    table = Table(title="Stages", title_justify="left", header_style="bold")
    for column in ("stage", "what", "ciphertexts", "level", "scale", "room", "error", "range", "server"):
        table.add_column(column, justify="left" if column in ("stage", "what") else "right", overflow="fold")
    for layer in report["layers"]:
        what = (
            layer.get("method")
            or layer.get("geometry")
            or (listed(layer["ops"]) if layer["kind"] == "client" else layer["kind"])
        )
        reach = (
            f"{layer['reached']:.4g} of {layer['range']:.4g}"
            if "reached" in layer
            else f"±{layer['range']:.4g}"
            if "range" in layer
            else ""
        )
        table.add_row(
            layer["name"],
            what,
            f"{layer['ciphertexts']} x {layer['parts']}" if "ciphertexts" in layer else "",
            str(layer.get("level", "")),
            f"2^{layer['scale_bits']:.1f}" if "scale_bits" in layer else "",
            f"{layer['room_bits']:.1f} bits" if "room_bits" in layer else "",
            f"{layer.get('error_expected', layer['error_bound']):.2g}" if "error_bound" in layer else "",
            reach,
            seconds(layer["measured"]["seconds_server"]) if "measured" in layer else "",
            style=""
            if layer["kind"] in ("linear", "multiply", "combine", "packed", "polynomial", "add", "bootstrap")
            else "dim",
        )
    return Group(grid, table)


def totals(report: Report, size: Any, seconds: Any) -> Table:
    """Totals of the batch."""
    t = report["totals"]
    table = Table(title="Totals", title_justify="left", show_header=False, box=None, padding=(0, 2, 0, 0))
    table.add_row("Batch", f"{t['batch']} images, {t['blocks']} blocks, one message each way")
    if "seconds" in t:
        table.add_row(
            "Time",
            f"{seconds(t['seconds'])} on one thread for both parties, {seconds(t['seconds_per_image'])} an image",
        )
    table.add_row(
        "Traffic", f"{size(t['bytes_up'])} up, {size(t['bytes_down'])} down, {size(t['bytes_per_image'])} an image"
    )
    table.add_row("Keys, once a session", f"{size(t['setup_bytes_up'])} up")
    server = f", server {size(t['server_peak_memory_bytes'])}" if "server_peak_memory_bytes" in t else ""
    table.add_row("Peak memory", f"client {size(t['client_peak_memory_bytes'])}{server}")
    if "weights" in t:
        weights = t["weights"]
        again = (
            f"{size(weights['kept_bytes'])} of {size(weights['bytes'])} kept; {weights['encoded_again']} vectors are "
            "encoded again for every image (--max-memory)"
        )
        table.add_row(
            "Encoded weights", again if weights["encoded_again"] else f"{size(weights['bytes'])}, all of them kept"
        )
    counted = t["counted"]
    linear = (
        f"{counted['word_products']:.3g} word products"
        if counted["word_products"]
        else f"{counted['rotations']} rotations, {counted['plain_products']} plain products"
    )
    bootstraps = f", {counted['bootstraps']} bootstraps" if counted.get("bootstraps") else ""
    table.add_row(
        "Operations",
        f"{linear}, {counted['products']} products, {counted['relinearisations']} relinearisations, "
        f"{counted['rescalings']} rescalings{bootstraps} a block",
    )
    return table

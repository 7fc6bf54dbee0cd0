"""``explain(plan)``: everything that a plan says, as one structured dict (what ``--json`` prints)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from .. import _native
from ..errors import InputError
from ..plan import Plan
from ..planner.cost import UnitCosts, blocks, client_seconds, dropped_bits
from ..planner.few_images import METHOD, WORD_BYTES
from ..planner.memory import client_stage, kept, server_stage
from ..planner.tiles import layout
from . import non_interactive, two_party
from .answers import answers

TRUST = {
    "client-aided": {
        "who_computes_nonlinear_layers": "the client, in the clear",
        "server_learns": "shapes only: no inputs, no intermediate values, no results",
        "client_learns": "its results and every pre-activation (each linear layer's result), from which the weights "
        "can be solved for",
        "warning": "Weights are not private in this mode. Do not use it to protect a model from its users.",
    }
}


def explain(plan: Plan, trace: Mapping[str, Any] | None = None, network: str | None = None) -> dict[str, Any]:
    """The plan as a structured dict; with a run's trace, measured figures stand beside the predicted ones.

    Args:
        plan: a plan, or the public part of one.
        trace: the JSON object of a run's trace. Figures of its ``stages`` stand under ``measured`` of each layer.
        network: of two-party plans: what seconds are for (see :func:`hushnet.report.two_party.explain`).
    """
    if plan.document["trust"] == "two-party":
        return two_party.explain(plan, trace, network)
    if plan.document["trust"] == "non-interactive":
        return non_interactive.explain(plan, trace)
    if network is not None:
        raise InputError("network is for two-party plans; this one is client-aided")
    document, predicted = plan.document, plan.predicted
    measured = _measured(plan, trace)
    count = blocks(predicted["batch"], _images(plan))
    report = {
        "name": plan.name,
        "producer": document["producer"],
        "digest": plan.digest,
        "public_part": plan.is_public,
        "engine": document["engine"],
        "trust": {"mode": document["trust"], **TRUST[document["trust"]]},
        "parameters": _parameters(plan),
        "inputs": [_port(plan, p) for p in document["inputs"]],
        "outputs": [_port(plan, p) for p in document["outputs"]],
        "layers": [_stage(plan, i, s, count, measured.get(i)) for i, s in enumerate(plan.stages)],
        "totals": {
            **predicted,
            "blocks": count,
            "seconds_per_image": predicted["seconds"] / predicted["batch"],
            "bytes_per_image": (predicted["bytes_up"] + predicted["bytes_down"]) / predicted["batch"],
            "kept_masks_bytes": sum(_kept(plan, s, count) for _, s in plan.linear_stages()),
        },
        "answers": answers(predicted),
        "error": {"estimate": predicted["max_error"], "worst_case": predicted.get("worst_error")},
        "notes": list(document["notes"]),
    }
    if "seen_error" in predicted:
        report["error"]["seen_on_calibration"] = predicted["seen_error"]
    report["error"]["by_output"] = predicted.get("output_errors", {})
    if trace is not None:
        report["measured"] = {k: v for k, v in trace.items() if k != "stages"}
    return report


def _images(plan: Plan) -> int:
    """Images in a full block."""
    return plan.ring_degree if plan.document["engine"] == "batch" else _native.IMAGES_TOGETHER


def _kept(plan: Plan, stage: dict[str, Any], count: int) -> int:
    """Bytes that a client keeps of a stage's masks for a session."""
    if stage["method"] == METHOD:
        return stage["predicted"]["mask_polys"] * plan.ring_degree * WORD_BYTES
    return kept(stage, plan.ring_degree, count) if stage["mask"] == "shared" else 0


def estimated_security(ring_degree: int, modulus_bits: int) -> int:
    """Bits of security, at least: 128 at the table's limit, in inverse proportion to log2 q below it."""
    limit = _native.max_modulus_bits(ring_degree) or 0
    return int(128 * limit / modulus_bits) if modulus_bits else 0


def _parameters(plan: Plan) -> dict[str, Any]:
    widths = [
        _native.PACKED_PRIME_BITS if s["method"] == METHOD else s["modulus_bits"] for _, s in plan.linear_stages()
    ]
    few = plan.document["engine"] == "packed"
    return {
        "ring_degree": plan.ring_degree,
        "images_per_block": _images(plan),
        "modulus_bits": {"least": min(widths, default=0), "most": max(widths, default=0)},
        "modulus_bits_limit": _native.max_modulus_bits(plan.ring_degree),
        "security_bits": plan.document["params"]["security_bits"],
        "estimated_security_bits": estimated_security(plan.ring_degree, max(widths, default=0)),
        "insecure": plan.document["params"]["insecure"],
        "secret": f"uniform ternary, fresh for every {'tile of every image' if few else 'block'}",
        "error": f"centred binomial, variance {_native.ERROR_VARIANCE}",
        "failure_probability": "below 2^-40 for every result",
    }


def _port(plan: Plan, port: Mapping[str, Any]) -> dict[str, Any]:
    return {"name": port["name"], "shape": list(plan.tensors[port["tensor"]]["shape"])}


def _range(tensor: Mapping[str, Any]) -> dict[str, Any]:
    """Range and precision of a fixed tensor in real units; bits count the sign."""
    bits = (2 * tensor["bound"]).bit_length()
    return {"largest": tensor["bound"] * tensor["scale"], "precision": tensor["scale"], "bits": bits}


def _geometry(geometry: Mapping[str, Any]) -> str:
    if geometry["type"] == "dense":
        return f"dense {geometry['inputs']} -> {geometry['outputs']}"
    size = "x".join(map(str, geometry["input"]))
    text = f"conv {geometry['kernel'][0]}x{geometry['kernel'][1]}, {size} -> {'x'.join(map(str, geometry['output']))}"
    for key, plain in (("stride", [1, 1]), ("dilation", [1, 1]), ("pads", [0] * 4), ("groups", 1)):
        if geometry[key] != plain:
            value = geometry[key]
            text += f", {key} {value if isinstance(value, int) else ','.join(map(str, value))}"
    return text


def _stage(plan: Plan, index: int, stage: dict[str, Any], count: int, seen: Mapping[str, Any] | None) -> dict[str, Any]:
    entry: dict[str, Any] = {"stage": index, "name": stage["name"], "kind": stage["kind"]}
    if stage["kind"] == "client":
        entry["ops"] = [op["op"] for op in stage["ops"]]
        unit = UnitCosts.load()
        few = plan.document["engine"] == "packed"
        images, times, element = (
            (1, plan.predicted["batch"], unit.few_op_element) if few else (plan.ring_degree, count, None)
        )
        entry["seconds_client"] = client_seconds(stage, plan.tensors, images, times, unit, element)
        entry["ranges"] = {
            plan.tensors[op["out"]]["name"]: _range(plan.tensors[op["out"]])
            for op in stage["ops"]
            if op["op"] == "quantize"
        }
    else:
        entry.update(_few_images(plan, stage) if stage["method"] == METHOD else _linear(plan, stage, count))
    if seen is not None:
        entry["measured"] = dict(seen)
    return entry


def _few_images(plan: Plan, stage: dict[str, Any]) -> dict[str, Any]:
    """A coefficient-packed layer."""
    degree, predicted = plan.ring_degree, stage["predicted"]
    polynomial = WORD_BYTES * degree
    messages = 2 * predicted["request_bytes"] + predicted["largest_response_bytes"]
    figures = (
        "noise_bits",
        "noise_margin_bits",
        "word_products",
        "bytes_up",
        "bytes_down",
        "setup_bytes_down",
        "seconds_client",
        "seconds_server",
        "tiles",
    )
    entry = {
        "method": stage["method"],
        "geometry": _geometry(stage["geometry"]),
        "modulus_bits": _native.PACKED_PRIME_BITS,
        "upload_bits": stage["upload_bits"],
        "body_bits": stage["body_bits"],
        "mask_bits": stage["mask_bits"],
        "mask": "shared",
        "estimated_security_bits": estimated_security(degree, _native.PACKED_PRIME_BITS),
        "input_range": _range(plan.tensors[stage["in"]]),
        "output_range": _range(plan.tensors[stage["out"]]),
        "ciphertexts_up": predicted["input_polys"],
        "ciphertexts_down": predicted["output_polys"],
        "client_memory_bytes": messages + predicted["mask_polys"] * polynomial,
        "server_memory_bytes": messages + predicted["prepared_bytes"],
        **{key: predicted[key] for key in figures},
    }
    if "weights" in stage:
        weight = plan.weights[stage["weights"]]
        entry["weights"] = {"count": int(weight.size), "dtype": weight.dtype.name}
    return entry


def _linear(plan: Plan, stage: dict[str, Any], count: int) -> dict[str, Any]:
    degree, predicted = plan.ring_degree, stage["predicted"]
    shared = stage["mask"] == "shared"
    rows = layout(stage["geometry"])
    # the noise without dropping, as a norm of weights: what the public part knows too
    l2 = 2.0 ** predicted["noise_bits"] / _native.batch_stage_noise(degree, 1.0, (0, 0), shared)
    noise = math.log2(_native.batch_stage_noise(degree, l2, dropped_bits(stage), shared))
    entry = {
        "method": stage["method"],
        "geometry": _geometry(stage["geometry"]),
        "modulus_bits": stage["modulus_bits"],
        "delta_bits": stage["delta_bits"],
        "drop_bits": stage["drop_bits"],
        "mask_drop_bits": None if shared else dropped_bits(stage)[1],
        "mask": stage["mask"],
        "estimated_security_bits": estimated_security(degree, stage["modulus_bits"]),
        "input_range": _range(plan.tensors[stage["in"]]),
        "output_range": _range(plan.tensors[stage["out"]]),
        "noise_bits": noise,
        "noise_margin_bits": stage["delta_bits"] - 1 - noise,
        "ciphertexts_up": rows.in_features,
        "ciphertexts_down": rows.out_features,
        "word_products": predicted["word_products"],
        "bytes_up": predicted["bytes_up"],
        "bytes_down": predicted["bytes_down"],
        "setup_bytes_down": predicted["setup_bytes_down"],
        "seconds_client": predicted["seconds_client"],
        "seconds_server": predicted["seconds_server"],
        "client_memory_bytes": client_stage(stage, degree) + (kept(stage, degree, count) if shared else 0),
        "server_memory_bytes": server_stage(stage, degree),
        "tiles": len(stage["tiles"]),
    }
    if "weights" in stage:
        weight = plan.weights[stage["weights"]]
        entry["weights"] = {"count": int(weight.size), "dtype": weight.dtype.name}
    return entry


def _measured(plan: Plan, trace: Mapping[str, Any] | None) -> dict[int, dict[str, Any]]:
    if trace is None:
        return {}
    by_name = {s["name"]: i for i, s in enumerate(plan.stages)}
    return {by_name[e["name"]]: _figures(plan, e) for e in trace.get("stages", []) if e.get("name") in by_name}


def _figures(plan: Plan, entry: Mapping[str, Any]) -> dict[str, Any]:
    """A stage of a trace in the units of the prediction."""
    found: dict[str, Any] = {
        k: entry[k]
        for k in ("bytes_up", "bytes_down", "setup_bytes_down", "noise_bits", "noise_margin_bits")
        if entry.get(k) is not None
    }
    spent = entry.get("seconds") or {}
    found["seconds"] = dict(spent)
    if entry.get("kind") == "linear":
        found["seconds_client"] = sum(spent.get(k) or 0.0 for k in ("encrypt", "send", "decrypt"))
        if spent.get("linear") is not None:
            found["seconds_server"] = spent["linear"]
    else:
        found["seconds_client"] = spent.get("program") or 0.0
    scales = {t["name"]: t["scale"] for t in plan.tensors if t["kind"] == "fixed"}
    found["ranges"] = {
        r["tensor"]: {"largest": r["largest"] * scales[r["tensor"]], "planned": r["bound"] * scales[r["tensor"]]}
        for r in entry.get("ranges", [])
        if r["tensor"] in scales
    }
    return found

"""The float run of a non-interactive plan: its integer weights, no encryption. What the answer should be, but for noise."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..plan import Plan, PlanError
from .linear import apply
from .ops import OPS

Array = np.ndarray


@dataclass
class Run:
    """Outputs by name, what the client decrypts, and how far every tensor of ciphertexts went.

    Attributes:
        outputs: float64 arrays ``[images, ...]``.
        opened: the (last) decrypted tensor.
        largest: tensor id -> largest magnitude.
        outside: tensor id -> values beyond the range of the polynomial that reads it.
    """

    outputs: dict[str, Array]
    opened: Array
    largest: dict[int, float] = field(default_factory=dict)
    outside: dict[int, int] = field(default_factory=dict)


def run(plan: Plan, inputs: Any, *, chunk: int = 256) -> Run:
    """Runs a plan with weights on ``inputs`` (an array for the only input, or arrays by name), ``chunk`` images at a time.

    Raises:
        PlanError: a public part.
    """
    if plan.is_public and any(s["kind"] == "linear" for s in plan.stages):
        raise PlanError("a public part has no weights; use the plan that `hushnet compile` wrote")
    named = inputs if isinstance(inputs, dict) else {plan.document["inputs"][0]["name"]: np.asarray(inputs)}
    images = len(next(iter(named.values())))
    parts = [_run(plan, {k: np.asarray(v[i : i + chunk], np.float64) for k, v in named.items()}) for i in range(0, max(images, 1), chunk)]
    whole = Run({k: np.concatenate([p.outputs[k] for p in parts]) for k in parts[0].outputs}, np.concatenate([p.opened for p in parts]))
    for p in parts:
        for key, value in p.largest.items():
            whole.largest[key] = max(whole.largest.get(key, 0.0), value)
        for key, count in p.outside.items():
            whole.outside[key] = whole.outside.get(key, 0) + count
    return whole


def _run(plan: Plan, inputs: dict[str, Array]) -> Run:
    tensors = {t["id"]: t for t in plan.tensors}
    count = len(next(iter(inputs.values())))
    values: dict[int, Array] = {p["tensor"]: inputs[p["name"]] for p in plan.document["inputs"]}
    found = Run({}, np.zeros(0))

    def put(key: int, value: Array) -> None:
        entry = tensors[key]
        values[key] = value.reshape(count, *entry["shape"])
        if entry["kind"] == "cipher":
            magnitude = np.abs(value)
            found.largest[key] = float(magnitude.max(initial=0.0))
            if "range" in entry:
                found.outside[key] = int((magnitude > entry["range"] * (1 + 1e-9)).sum())

    for stage in plan.stages:
        kind = stage["kind"]
        if kind == "client":
            for op in stage["ops"]:
                attrs = {k: v for k, v in op.items() if k not in ("op", "in", "out")}
                shape = tuple(tensors[op["out"]]["shape"])
                values[op["out"]] = np.asarray(OPS[op["op"]](attrs, [values[t] for t in op["in"]], shape)).reshape(count, *shape)
        elif kind == "linear":
            put(stage["out"], _linear(plan, stage, values[stage["in"]], tensors))
        elif kind == "multiply":
            a, b = stage["in"]
            put(stage["out"], values[a] * values[b])
        elif kind == "combine":
            scale = tensors[stage["out"]]["scale"]
            factors = plan.weights[stage["factors"]]
            total = sum(values[t] * (float(k) * tensors[t]["scale"] / scale) for t, k in zip(stage["in"], factors))
            put(stage["out"], total + plan.weights[stage["constant"]][0])
        else:
            put(stage["out"], values[stage["in"]])
            if kind == "decrypt":
                found.opened = values[stage["out"]]
    found.outputs = {p["name"]: values[p["tensor"]] for p in plan.document["outputs"]}
    return found


def _linear(plan: Plan, stage: dict[str, Any], x: Array, tensors: dict[int, dict[str, Any]]) -> Array:
    geometry = stage["geometry"]
    weight = plan.weights[stage["weights"]].astype(np.float64) * (tensors[stage["in"]]["scale"] / tensors[stage["out"]]["scale"])
    bias = plan.weights[stage["bias"]]
    if geometry["type"] == "conv2d":
        x = x.reshape(len(x), *geometry["input"])
    y = apply(geometry, weight, x)
    if geometry["type"] == "conv2d" and bias.size == geometry["output"][0]:
        return y + bias.reshape(-1, 1, 1)
    return y + bias.reshape(y.shape[1:])

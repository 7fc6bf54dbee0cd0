"""The float run of a non-interactive plan: its integer weights, no encryption.

What the answer should be, but for noise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.polynomial import polynomial as poly

from ..plan import Plan, PlanError
from .linear import apply, geometry_shapes
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
        reaches: within packed stages, by polynomial the name of its operand, its ``largest`` magnitude, the planned
            ``range``, and how many values were
            ``outside``.
    """

    outputs: dict[str, Array]
    opened: Array
    largest: dict[int, float] = field(default_factory=dict)
    outside: dict[int, int] = field(default_factory=dict)
    reaches: list[dict[str, Any]] = field(default_factory=list)


def run(plan: Plan, inputs: Any, *, chunk: int = 256, also: Sequence[int] = ()) -> Run:
    """Runs a plan with weights on ``inputs``, ``chunk`` images at a time.

    ``inputs`` is an array for the only input, or arrays by name. ``also`` are tensors of the plan that are among the
    outputs, by their names in the plan.

    Raises:
        PlanError: a public part.
    """
    if plan.is_public and any(s["kind"] in ("linear", "packed") for s in plan.stages):
        raise PlanError("a public part has no weights; use the plan that `hushnet compile` wrote")
    named = inputs if isinstance(inputs, dict) else {plan.document["inputs"][0]["name"]: np.asarray(inputs)}
    images = len(next(iter(named.values())))
    parts = [
        _run(plan, {k: np.asarray(v[i : i + chunk], np.float64) for k, v in named.items()}, also)
        for i in range(0, max(images, 1), chunk)
    ]
    whole = Run(
        {k: np.concatenate([p.outputs[k] for p in parts]) for k in parts[0].outputs},
        np.concatenate([p.opened for p in parts]),
    )
    for p in parts:
        for key, value in p.largest.items():
            whole.largest[key] = max(whole.largest.get(key, 0.0), value)
        for key, count in p.outside.items():
            whole.outside[key] = whole.outside.get(key, 0) + count
        for index, reach in enumerate(p.reaches):
            if index == len(whole.reaches):
                whole.reaches.append(dict(reach))
            else:
                known = whole.reaches[index]
                known["largest"] = max(known["largest"], reach["largest"])
                known["outside"] += reach["outside"]
    return whole


def _run(plan: Plan, inputs: dict[str, Array], also: Sequence[int]) -> Run:
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
                values[op["out"]] = np.asarray(OPS[op["op"]](attrs, [values[t] for t in op["in"]], shape)).reshape(
                    count, *shape
                )
        elif kind == "linear":
            put(stage["out"], _linear(plan, stage, values[stage["in"]], tensors))
        elif kind == "packed":
            put(stage["out"], _packed(plan, stage, values[stage["in"]], found))
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
    found.outputs = {tensors[t]["name"]: values[t] for t in also}
    found.outputs |= {p["name"]: values[p["tensor"]] for p in plan.document["outputs"]}
    return found


def _packed(plan: Plan, stage: dict[str, Any], x: Array, found: Run) -> Array:
    """A whole network in binary64, image by image, whether or not they stand side by side."""
    network = stage["network"]
    if "images" in stage:
        network = _of_one(network)
    tensors = {t["id"]: t for t in network["tensors"]}
    values = {network["input"]: x.reshape(len(x), *tensors[network["input"]]["shape"])}
    for step in network["steps"]:
        if step["kind"] == "add":
            a, b = step["in"]
            y = values[a].reshape(len(x), -1) + values[b].reshape(len(x), -1)
        elif step["kind"] == "multiply":
            a, b = step["in"]
            y = values[a].reshape(len(x), -1) * values[b].reshape(len(x), -1) + step["constant"]
        elif step["kind"] == "polynomial":
            y = poly.polyval(values[step["in"]], step["coefficients"])
            operand, reach = np.abs(values[step["in"]]), step.get("range", math.inf)
            largest, outside = float(operand.max(initial=0.0)), int((operand > reach * (1 + 1e-9)).sum())
            found.reaches.append(
                {"tensor": tensors[step["in"]]["name"], "largest": largest, "range": reach, "outside": outside}
            )
        else:
            given, result, shape = geometry_shapes(step["geometry"])
            y = apply(
                step["geometry"],
                plan.weights[step["weights"]].reshape(shape),
                values[step["in"]].reshape(len(x), *given),
            )
            if "bias" in step:
                bias = plan.weights[step["bias"]]
                y = y + (bias.reshape(result) if bias.size == math.prod(result) else bias.reshape(-1, 1, 1))
        values[step["out"]] = y.reshape(len(x), *tensors[step["out"]]["shape"])
    return values[network["output"]]


def _of_one(network: dict[str, Any]) -> dict[str, Any]:
    """The network of one of the images that stand side by side on the last axis."""

    def one(shape: list[int]) -> list[int]:
        return [*shape[:-1], 1]

    def step(s: dict[str, Any]) -> dict[str, Any]:
        if s["kind"] != "linear":
            return s
        geometry = s["geometry"]
        return {**s, "geometry": {**geometry, "input": one(geometry["input"]), "output": one(geometry["output"])}}

    steps = [step(s) for s in network["steps"]]
    return {**network, "tensors": [{**t, "shape": one(t["shape"])} for t in network["tensors"]], "steps": steps}


def _linear(plan: Plan, stage: dict[str, Any], x: Array, tensors: dict[int, dict[str, Any]]) -> Array:
    geometry = stage["geometry"]
    weight = plan.weights[stage["weights"]].astype(np.float64) * (
        tensors[stage["in"]]["scale"] / tensors[stage["out"]]["scale"]
    )
    bias = plan.weights[stage["bias"]]
    if geometry["type"] == "conv2d":
        x = x.reshape(len(x), *geometry["input"])
    y = apply(geometry, weight, x)
    if geometry["type"] == "conv2d" and bias.size == geometry["output"][0]:
        return y + bias.reshape(-1, 1, 1)
    return y + bias.reshape(y.shape[1:])

"""Runs a plan on NumPy in exact integers and ordered binary64: the answer that every executor must give, bit for bit.

Nothing is encrypted here. Linear stages are exact integer sums (binary64 matrix products while sums stay below 2^53,
int64 above); client ops are those of :mod:`hushnet.reference.ops`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import InputError, PlanError, RangeError
from ..plan import Plan
from .linear import add_bias, apply, row_norms
from .ops import OPS

Array = np.ndarray

LIVE_BYTES = 256 << 20
EXACT_IN_BINARY64 = 1 << 53


def run(
    plan: Plan,
    inputs: Array | dict[str, Array],
    *,
    keep_all: bool = False,
    chunk: int | None = None,
    also: Sequence[int] = (),
) -> dict[str, Array]:
    """Outputs of the plan for a batch of images, by name.

    Args:
        plan: a plan with its weights.
        inputs: arrays of shape (B, *per-image shape) by input name; the array alone when there is one input.
        keep_all: also return every intermediate tensor, by its name in the plan.
        chunk: images at a time; by default as many as fit 256 MiB.
        also: tensors of the plan that are returned beside the outputs, by their names in the plan.

    Raises:
        RangeError: a value left its planned range.
        PlanError: the plan has no weights.
        InputError: the inputs are not those of the plan.
    """
    if plan.is_public and plan.linear_stages():
        raise PlanError("this is the public part of a plan, it has no weights; run the server's plan file")
    arrays = check_inputs(plan, inputs)
    batch = next(iter(arrays.values())).shape[0]
    step = chunk or max(1, LIVE_BYTES // _live_bytes(plan, keep_all))
    parts = [
        _run_chunk(plan, {k: v[i : i + step] for k, v in arrays.items()}, keep_all, also)
        for i in range(0, max(batch, 1), step)
    ]
    return {name: np.concatenate([p[name] for p in parts]) for name in parts[0]}


def check_inputs(plan: Plan, inputs: Array | dict[str, Array]) -> dict[str, Array]:
    """The inputs as float64 by name, checked against the plan.

    Raises:
        InputError: a name, shape or dtype that the plan does not have, or a value that is not a number.
    """
    wanted = {i["name"]: tuple(plan.tensors[i["tensor"]]["shape"]) for i in plan.document["inputs"]}
    if not isinstance(inputs, dict):
        if len(wanted) != 1:
            raise InputError(f"the plan has {len(wanted)} inputs; give a dict with {sorted(wanted)}")
        inputs = {next(iter(wanted)): inputs}
    if set(inputs) != set(wanted):
        raise InputError(f"inputs {sorted(inputs)} were given, the plan wants {sorted(wanted)}")
    out = {}
    for name, value in inputs.items():
        array = np.asarray(value)
        if array.dtype.kind not in "fiub":
            raise InputError(f"input {name!r} has dtype {array.dtype}; give real numbers")
        if array.shape[1:] != wanted[name] or array.ndim != len(wanted[name]) + 1:
            raise InputError(
                f"input {name!r} has shape {array.shape}; give (images, {', '.join(map(str, wanted[name]))})"
            )
        array = array.astype(np.float64, copy=False)
        if not np.isfinite(array).all():
            raise InputError(f"input {name!r} holds NaN or infinite values; replace them")
        out[name] = array
    if len({a.shape[0] for a in out.values()}) > 1:
        raise InputError("the inputs have different numbers of images")
    return out


def _live_bytes(plan: Plan, keep_all: bool) -> int:
    sizes = [8 * math.prod(t["shape"]) for t in plan.tensors]
    return max(1, sum(sizes) if keep_all else 4 * max(sizes, default=1))


def _run_chunk(plan: Plan, inputs: dict[str, Array], keep_all: bool, also: Sequence[int]) -> dict[str, Array]:
    values: dict[int, Array] = {i["tensor"]: inputs[i["name"]] for i in plan.document["inputs"]}
    last = _last_uses(plan) | dict.fromkeys(also, len(plan.stages))
    for index, stage in enumerate(plan.stages):
        if stage["kind"] == "linear":
            values[stage["out"]] = linear(plan, stage, values[stage["in"]])
        else:
            _client(plan, stage, values, None if keep_all else (last, index))
        if not keep_all:
            for tensor in [t for t in values if last.get(t, -1) <= index]:
                del values[tensor]
    if keep_all:
        return {plan.tensors[t]["name"]: v for t, v in values.items()}
    kept = {plan.tensors[t]["name"]: values[t] for t in also}
    return kept | {o["name"]: values[o["tensor"]] for o in plan.document["outputs"]}


def _last_uses(plan: Plan) -> dict[int, int]:
    last: dict[int, int] = {}
    for index, stage in enumerate(plan.stages):
        if stage["kind"] == "linear":
            last[stage["in"]] = last[stage["out"]] = index
            continue
        for op in stage["ops"]:
            for tensor in [*op["in"], op["out"]]:
                last[tensor] = index
    for output in plan.document["outputs"]:
        last[output["tensor"]] = len(plan.stages)
    return last


def _client(
    plan: Plan, stage: dict[str, Any], values: dict[int, Array], freeing: tuple[dict[int, int], int] | None
) -> None:
    remaining: dict[int, int] = {}
    for op in stage["ops"]:
        for tensor in op["in"]:
            remaining[tensor] = remaining.get(tensor, 0) + 1
    for op in stage["ops"]:
        out = plan.tensors[op["out"]]
        ins = [values[t] for t in op["in"]]
        if op["op"] == "quantize":
            values[op["out"]] = quantize(ins[0], out, stage["name"])
        elif op["op"] == "dequantize":
            values[op["out"]] = ins[0] * plan.tensors[op["in"][0]]["scale"]
        else:
            with np.errstate(all="ignore"):
                values[op["out"]] = OPS[op["op"]](op, ins, tuple(out["shape"]))
            _check_finite(values[op["out"]], out, stage["name"])
        for tensor in op["in"]:
            remaining[tensor] -= 1
            if freeing is not None and remaining[tensor] == 0 and freeing[0][tensor] <= freeing[1]:
                values.pop(tensor, None)


def _check_finite(x: Array, tensor: dict[str, Any], stage: str) -> None:
    if x.dtype.kind == "f" and not np.isfinite(x).all():
        raise RangeError(
            f"tensor {tensor['name']!r} (stage {stage!r}) holds a value that is no finite number; "
            "check the input and the layers "
            "before (division by zero, root of a negative number, overflow)",
            tensor["name"],
            finite=False,
            stage=stage,
        )


def quantize(x: Array, tensor: dict[str, Any], stage: str) -> Array:
    """``round_half_even(x * (1/scale))`` as int64.

    Raises:
        RangeError: ``|v| > bound`` or x is not finite.
    """
    with np.errstate(all="ignore"):
        v = np.rint(x * (1.0 / tensor["scale"]))
    bound = float(tensor["bound"])
    if not (np.abs(v) <= bound).all():
        worst = np.abs(x[~(np.abs(v) <= bound)]).max()
        raise RangeError(
            f"tensor {tensor['name']!r} (stage {stage!r}): |{worst:.6g}| is outside the planned range of "
            f"{bound * tensor['scale']:.6g}; compile again with calibration samples that cover "
            "it, or with an input range alone",
            tensor["name"],
            finite=bool(np.isfinite(x).all()),
            stage=stage,
        )
    return v.astype(np.int64)


def linear(plan: Plan, stage: dict[str, Any], x: Array) -> Array:
    """A linear stage in exact integers: ``W x + bias`` as int64.

    Raises:
        PlanError: the sums could leave int64.
    """
    weight, bias = plan.weights[stage["weights"]], plan.weights[stage["bias"]]
    geometry, reads = stage["geometry"], plan.tensors[stage["in"]]["bound"]
    # a bound that takes no look at the weights one by one is enough for most layers
    bound = weight.size // max(len(weight), 1) * int(np.iinfo(weight.dtype).max + 1) * reads
    bound += int(np.abs(bias).max(initial=0))
    if bound >= EXACT_IN_BINARY64:
        bound = output_bound(weight, bias, reads)
    if bound < EXACT_IN_BINARY64:
        y = apply(geometry, weight.astype(np.float64), x.astype(np.float64)).astype(np.int64)
    elif bound < 1 << 63:
        y = apply(geometry, weight.astype(np.int64), x)
    else:
        raise PlanError(
            f"stage {stage['name']!r}: sums of up to {bound} do not fit 64 bits; use fewer weight or activation bits"
        )
    return add_bias(geometry, y, bias)


def output_bound(weight: Array, bias: Array, input_bound: int) -> int:
    """``max_o(sum_k |W_ok| * input_bound + |bias_o|)``, exact."""
    l1, _ = row_norms(weight)
    return max((int(n) * input_bound + abs(int(b)) for n, b in zip(l1, bias)), default=0)

"""Checks a plan document and its weights: everything that a run relies on."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

from .. import _native
from ..plan import VERSION, WEIGHTS, Plan, PlanError
from ..reference.linear import geometry_shapes, row_norms
from ..reference.numpy import output_bound
from ..reference.ops import FIXED_OPS
from .check import check_op, conv_problem
from .rules import RULES
from .tiles import layout, rows_needed

MAX_BOUND = 1 << 62
ERROR_TAIL = 7.631
ERROR_VARIANCE = 10.5
TOP = ("version", "name", "producer", "trust", "engine", "params", "inputs", "outputs", "tensors", "stages", "predicted", "notes")
LINEAR = ("kind", "name", "method", "input", "output", "geometry", "modulus_bits", "delta_bits", "drop_bits", "mask", "tiles", "predicted")


def read(data: bytes, *, allow_insecure: bool = False) -> Plan:
    """Reads and checks a plan file's bytes.

    Raises:
        PlanError: as :meth:`Plan.parse` and :func:`validate`, or below 128 bits without ``allow_insecure``.
    """
    plan = Plan.parse(data)
    validate(plan)
    if plan.document["params"]["insecure"] and not allow_insecure:
        raise PlanError("the plan's parameters are below 128 bits; it runs only with insecure parameters allowed (--insecure-parameters)")
    return plan


def load(path: str | os.PathLike[str], *, allow_insecure: bool = False) -> Plan:
    """Reads and checks a plan file.

    Raises:
        PlanError: as :func:`read`. OSError: the file cannot be read.
    """
    return read(Path(path).read_bytes(), allow_insecure=allow_insecure)


def validate(plan: Plan) -> None:
    """Checks everything that a run relies on: structure, shapes, ranges, parameters, tiles, weights.

    Raises:
        PlanError: the first thing that does not hold, with its stage or tensor.
    """
    try:
        if plan.document["trust"] == "two-party":
            from .two_party.validate import TwoPartyValidator  # which uses this module

            TwoPartyValidator(plan).run()
        elif plan.document["trust"] == "non-interactive":
            # The run time's own check is the only one: it derives levels, scales, errors and floods from the file.
            _native.check_non_interactive(plan.to_bytes(), allow_insecure=True)
        else:
            _Validator(plan).run()
    except (KeyError, TypeError, IndexError, AttributeError) as error:
        raise PlanError(f"the plan's structure is not that of version {VERSION} ({type(error).__name__}: {error}); compile the model again") from None


class _Validator:
    def __init__(self, plan: Plan) -> None:
        self.plan, self.document = plan, plan.document
        self.tensors: list[dict[str, Any]] = self.document["tensors"]
        self.defined: set[int] = set()
        self.used: set[str] = set()

    def run(self) -> None:
        self.header()
        for index, tensor in enumerate(self.tensors):
            self.tensor(index, tensor)
        for port in self.document["inputs"]:
            self.define(f"input {port['name']!r}", port["tensor"])
            if self.tensors[port["tensor"]]["kind"] != "real":
                raise PlanError(f"input {port['name']!r} must be a real tensor")
        names: set[str] = set()
        for stage in self.document["stages"]:
            if stage["name"] in names:
                raise PlanError(f"two stages are called {stage['name']!r}")
            names.add(stage["name"])
            if stage["kind"] == "linear":
                self.linear(stage)
            elif stage["kind"] == "client":
                for op in stage["ops"]:
                    self.op(stage["name"], op)
            else:
                raise PlanError(f"stage {stage['name']!r} is of unknown kind {stage['kind']!r}")
        for port in self.document["outputs"]:
            self.read(f"output {port['name']!r}", port["tensor"])
        left = [t["name"] for t in self.tensors if t["id"] not in self.defined]
        if left:
            raise PlanError(f"tensors {left} are computed by no stage")
        spare = sorted(set(self.plan.weights) - self.used)
        if spare:
            raise PlanError(f"weights {spare} belong to no stage")

    def header(self) -> None:
        d = self.document
        if set(d) != set(TOP):
            raise PlanError(f"the plan has fields {sorted(d)}, expected {sorted(TOP)}")
        if d["version"] != VERSION:
            raise PlanError(f"plan version {d['version']}, this build reads {VERSION}; compile the model again")
        if d["trust"] != "client-aided" or d["engine"] != "batch":
            raise PlanError(f"trust {d['trust']!r} with engine {d['engine']!r} is not supported by this build")
        limit = _native.max_modulus_bits(d["params"]["ring_degree"])
        insecure = d["params"]["insecure"]
        if limit is None or (d["params"]["security_bits"] != 128 and not insecure):
            raise PlanError(f"ring degree {d['params']['ring_degree']} with {d['params']['security_bits']} bits is not in the security table")
        # marked insecure, a plan is checked for correctness only; loading refuses it unless allowed
        self.limit = 64 if insecure else min(limit, 64)
        self.degree = d["params"]["ring_degree"]
        if not d["inputs"] or not d["outputs"]:
            raise PlanError("the plan has no inputs or no outputs")

    def tensor(self, index: int, tensor: dict[str, Any]) -> None:
        if tensor["id"] != index:
            raise PlanError(f"tensor {tensor['name']!r} has id {tensor['id']} at position {index}")
        if any(type(n) is not int or n < 1 for n in tensor["shape"]):
            raise PlanError(f"tensor {tensor['name']!r} has shape {tensor['shape']}")
        if tensor["kind"] == "real":
            if "scale" in tensor or "bound" in tensor:
                raise PlanError(f"real tensor {tensor['name']!r} has a scale or bound")
        elif tensor["kind"] == "fixed":
            scale, bound = tensor["scale"], tensor["bound"]
            if not (scale > 0 and math.isfinite(1.0 / scale) and type(bound) is int and 0 <= bound <= MAX_BOUND):
                raise PlanError(f"tensor {tensor['name']!r} has scale {scale} and bound {bound}")
        else:
            raise PlanError(f"tensor {tensor['name']!r} is of unknown kind {tensor['kind']!r}")

    def known(self, place: str, tensor: Any) -> None:
        if type(tensor) is not int or not 0 <= tensor < len(self.tensors):
            raise PlanError(f"{place}: there is no tensor {tensor!r}")

    def define(self, place: str, tensor: int) -> None:
        self.known(place, tensor)
        if tensor in self.defined:
            raise PlanError(f"{place}: tensor {self.tensors[tensor]['name']!r} is computed twice")
        self.defined.add(tensor)

    def read(self, place: str, tensor: int) -> None:
        self.known(place, tensor)
        if tensor not in self.defined:
            raise PlanError(f"{place}: tensor {self.tensors[tensor]['name']!r} is used before it is computed")

    def op(self, stage: str, op: dict[str, Any]) -> None:
        place = f"stage {stage!r}, op {op['op']!r}"
        for tensor in op["in"]:
            self.read(place, tensor)
        self.define(place, op["out"])
        ins, out = [self.tensors[t] for t in op["in"]], self.tensors[op["out"]]
        if op["op"] in ("quantize", "dequantize"):
            kinds = ("real", "fixed") if op["op"] == "quantize" else ("fixed", "real")
            if len(ins) != 1 or (ins[0]["kind"], out["kind"]) != kinds or ins[0]["shape"] != out["shape"]:
                raise PlanError(f"{place}: takes one {kinds[0]} tensor to a {kinds[1]} one of its shape")
            return
        if op["op"] not in RULES:
            raise PlanError(f"{place}: there is no such op")
        attrs = {k: v for k, v in op.items() if k not in ("op", "in", "out")}
        check_op(place, op["op"], attrs, [tuple(t["shape"]) for t in ins], tuple(out["shape"]))
        if any(t["kind"] != out["kind"] for t in ins):
            raise PlanError(f"{place}: inputs and output must be all real or all fixed")
        if out["kind"] == "fixed":
            if op["op"] not in FIXED_OPS or (op["op"] == "pad" and op["value"] != 0):
                raise PlanError(f"{place}: cannot run on fixed tensors")
            if any(t["scale"] != out["scale"] or t["bound"] > out["bound"] for t in ins):
                raise PlanError(f"{place}: fixed tensors of different scales, or a smaller bound after than before")

    def linear(self, stage: dict[str, Any]) -> None:
        place = f"layer {stage['name']!r}"
        optional = {"mask_drop_bits"} if stage.get("mask") != "shared" else set()
        if set(stage) - set(WEIGHTS) - optional != set(LINEAR) or stage["method"] != "batch":
            raise PlanError(f"{place}: its fields or its method are not those of the batch engine")
        self.read(place, stage["input"])
        self.define(place, stage["output"])
        source, out = self.tensors[stage["input"]], self.tensors[stage["output"]]
        if source["kind"] != "fixed" or out["kind"] != "fixed":
            raise PlanError(f"{place}: input and output must be fixed tensors")
        geometry = stage["geometry"]
        given, result, _ = geometry_shapes(geometry)
        problem = conv_problem(geometry) if geometry["type"] == "conv2d" else None
        count = math.prod(source["shape"])
        if problem or count != math.prod(given) or (geometry["type"] == "conv2d" and tuple(source["shape"]) != given):
            raise PlanError(f"{place}: {problem or 'input of another shape'}; it takes {given}, its input has {source['shape']}")
        if math.prod(out["shape"]) != math.prod(result):
            raise PlanError(f"{place}: gives {result}, its output has shape {out['shape']}")
        self.tiles(place, geometry, stage["tiles"])
        self.parameters(place, stage, self.weights(place, stage, source, out), out["bound"])

    def weights(self, place: str, stage: dict[str, Any], source: dict[str, Any], out: dict[str, Any]) -> float:
        """L2 norm of the weights, 1 when this is a public part."""
        named = [key for key in WEIGHTS if key in stage]
        if not named:
            return 1.0
        if len(named) != len(WEIGHTS):
            raise PlanError(f"{place}: has only one of weights and bias")
        _, _, shape = geometry_shapes(stage["geometry"])
        for key, dtypes, wanted in (("weights", ("int8", "int16"), shape), ("bias", ("int64",), shape[:1])):
            array = self.plan.weights.get(stage[key])
            if array is None or array.dtype.name not in dtypes or array.shape != wanted:
                raise PlanError(f"{place}: tensor {stage[key]!r} is missing or is not {' or '.join(dtypes)} of shape {wanted}")
            self.used.add(stage[key])
        weight, bias = (self.plan.weights[stage[key]] for key in WEIGHTS)
        reach = output_bound(weight, bias, source["bound"])
        if reach > out["bound"]:
            raise PlanError(f"{place}: results reach {reach}, the plan says {out['bound']}")
        return float(row_norms(weight)[1].max(initial=0.0))

    def parameters(self, place: str, stage: dict[str, Any], l2: float, bound: int) -> None:
        k, d, u = (stage[key] for key in ("modulus_bits", "delta_bits", "drop_bits"))
        v = stage.get("mask_drop_bits", u)
        if any(type(b) is not int or b < 0 for b in (k, d, u, v)) or v > u or stage["mask"] not in ("shared", "fresh", "sent"):
            raise PlanError(f"{place}: bits must be whole numbers and mask shared or fresh")
        needed = d + (2 * bound).bit_length()
        if k > self.limit or needed > k:
            raise PlanError(f"{place}: needs {needed} bits, its modulus has {k}, security at N={self.degree} allows {self.limit}")
        noise = noise_bound(self.degree, l2, (u, v), stage["mask"] == "shared")
        if d < 1 or u >= k or noise >= 2.0 ** (d - 1):
            raise PlanError(f"{place}: noise of 2^{math.log2(noise):.1f} does not stay below half of the scale 2^{d}")

    def tiles(self, place: str, geometry: dict[str, Any], tiles: list[dict[str, list[int]]]) -> None:
        rows = layout(geometry)
        arrived = done = 0
        for tile in tiles:
            (r0, r1), (o0, o1) = tile["inputs"], tile["outputs"]
            ordered = r0 == arrived <= r1 <= rows.in_rows and o0 == done <= o1 <= rows.out_rows and (r0, o0) != (r1, o1)
            if not ordered or (o1 > o0 and rows_needed(geometry, o1 - 1) > r1):
                raise PlanError(f"{place}: tile {tile} is out of order, empty, or needs rows that have not arrived")
            arrived, done = r1, o1
        if (arrived, done) != (rows.in_rows, rows.out_rows):
            raise PlanError(f"{place}: tiles cover {arrived} of {rows.in_rows} input rows and {done} of {rows.out_rows} output rows")


def noise_bound(ring_degree: int, l2: float, dropped: tuple[int, int], shared: bool) -> float:
    """Noise of a result after dropping bits of c0 and c1, exceeded with probability below 2^-40 (docs/parameters.md)."""
    half = [2.0 ** (bits - 1) if bits else 0.0 for bits in dropped]
    noise = ERROR_TAIL * math.sqrt(ERROR_VARIANCE) * max(l2, 1.0)
    return noise + half[0] + (0.0 if shared else half[1] * ERROR_TAIL * math.sqrt(ring_degree))

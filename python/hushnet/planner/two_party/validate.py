"""Checks a two-party plan: structure, shapes, fraction bits, and that no value can wrap in the ring of shares."""

from __future__ import annotations

import math
from typing import Any

from ...graph import Shape
from ...plan import VERSION, WEIGHTS, PlanError
from ...reference import methods
from ...reference.linear import geometry_shapes
from ...reference.two_party import inputs_of, reach_bits, reach_of_linear, weight_norm
from ..check import check_op, conv_problem
from ..validate import TOP, _Validator
from .nonlinear import PROTOCOLS, garbles
from .regions import MOVES

LEAST_RING, MOST_FRACTION = 4, 64
WINDOW = ("kernel", "stride", "pads", "dilation")
FIELDS: dict[str, tuple[str, ...]] = {
    "share": (),
    "linear": ("method", "geometry", "weight_l2"),
    "relu": (),
    "leaky_relu": ("numerator", "log_denominator"),
    "clip": ("reach_bits",),
    "truncate": ("bits", "sign"),
    "max_pool": WINDOW,
    "sum_pool": WINDOW,
    "scale": ("factor",),
    "add": (),
    "reshape": (),
    "transpose": ("perm",),
    "concat": ("axis",),
    "slice": ("starts", "ends", "steps", "axes"),
    "pad": ("pads",),
    "reveal": ("what",),
}
MANY = MOVES | {"add"}
Stage = dict[str, Any]


class TwoPartyValidator(_Validator):
    """The checks; ``run`` raises :class:`PlanError` for the first that fails."""

    def run(self) -> None:
        self.header()
        for index, tensor in enumerate(self.tensors):
            self.tensor(index, tensor)
        told = {"bound" in t for t in self.tensors if t["kind"] == "shared"} | {"high" in s for s in self.document["stages"] if s["kind"] == "clip"}
        if len(told) > 1 or (self.plan.weights and False in told):
            raise PlanError("only some of the plan's shared tensors have a bound, or of its clips both ends; a plan with weights has all of them")
        for port in self.document["inputs"]:
            self.define(f"input {port['name']!r}", port["tensor"])
            self.kind(f"input {port['name']!r}", port["tensor"], "real")
        names: set[str] = set()
        self.positive: set[int] = set()
        for stage in self.document["stages"]:
            if stage["name"] in names:
                raise PlanError(f"two stages are called {stage['name']!r}")
            names.add(stage["name"])
            self.stage(stage)
        for port in self.document["outputs"]:
            self.read(f"output {port['name']!r}", port["tensor"])
            if self.tensors[port["tensor"]]["kind"] == "shared":
                raise PlanError(f"output {port['name']!r} is a shared tensor; it must be revealed")
        left = [t["name"] for t in self.tensors if t["id"] not in self.defined]
        if left:
            raise PlanError(f"tensors {left} are computed by no stage")
        spare = sorted(set(self.plan.weights) - self.used)
        if spare:
            raise PlanError(f"weights {spare} belong to no stage")
        self.opening()

    def header(self) -> None:
        d, p = self.document, self.document["params"]
        if set(d) != {*TOP, "reveal", "ranges"} or d["ranges"] not in ("calibrated", "proven"):
            raise PlanError(f"the plan has fields {sorted(d)}, expected {sorted([*TOP, 'reveal', 'ranges'])}, ranges 'calibrated' or 'proven'")
        if d["version"] != VERSION:
            raise PlanError(f"plan version {d['version']}, this build reads {VERSION}; compile the model again")
        if d["engine"] != "packed" or d["reveal"] not in ("output", "argmax"):
            raise PlanError(f"engine {d['engine']!r} with reveal {d['reveal']!r} is not two-party inference")
        if p["security_bits"] != 128 or p["insecure"]:
            raise PlanError("two-party plans have 128 bits of security; compile the model again")
        ring = p["ring_bits"]
        if type(ring) is not int or ring < LEAST_RING:
            raise PlanError(f"ring_bits is {ring!r}; at least {LEAST_RING} are needed")
        self.degree, self.ring = p["ring_degree"], ring
        self.parameters("the plan", 1.0, "cheetah")
        if not d["inputs"] or not d["outputs"]:
            raise PlanError("the plan has no inputs or no outputs")

    def parameters(self, place: str, weight_l2: float, method: str) -> None:  # type: ignore[override]
        try:
            methods.ciphertexts(method, self.degree, self.ring, weight_l2)
        except (ValueError, OverflowError) as error:
            raise PlanError(f"{place}: {error}") from None

    def tensor(self, index: int, tensor: dict[str, Any]) -> None:
        if tensor["kind"] != "shared":
            if "frac_bits" in tensor or "reach_bits" in tensor:
                raise PlanError(f"tensor {tensor['name']!r} has frac_bits or reach_bits but is not shared")
            super().tensor(index, tensor)
            return
        super().tensor(index, {"id": tensor["id"], "name": tensor["name"], "shape": tensor["shape"], "kind": "real"})
        fine, reach = tensor["frac_bits"], tensor["reach_bits"]
        if "scale" in tensor or type(fine) is not int or abs(fine) > MOST_FRACTION or type(reach) is not int or not 1 <= reach < self.ring:
            raise PlanError(f"shared tensor {tensor['name']!r}: frac_bits {fine}, reach_bits {reach} in a ring of {self.ring} bits")
        # the public part has no bounds
        if "bound" in tensor:
            self.keeps(f"shared tensor {tensor['name']!r}", tensor["bound"], reach)

    @staticmethod
    def keeps(place: str, bound: Any, reach: int) -> None:
        if type(bound) is not int or bound < 0 or reach_bits(bound) > reach:
            raise PlanError(f"{place}: values up to {bound}, units of errors included, are not below 2^{reach}")

    def kind(self, place: str, tensor: int, kind: str) -> dict[str, Any]:
        if self.tensors[tensor]["kind"] != kind:
            raise PlanError(f"{place}: tensor {self.tensors[tensor]['name']!r} must be {kind}")
        return self.tensors[tensor]

    def stage(self, stage: Stage) -> None:
        kind, place = stage["kind"], f"stage {stage['name']!r}"
        if kind == "client":
            for op in stage["ops"]:
                self.op(stage["name"], op)
                for tensor in [*op["in"], op["out"]]:
                    if self.tensors[tensor]["kind"] == "shared":
                        raise PlanError(f"{place}: tensor {self.tensors[tensor]['name']!r} is shared; the client has only half of it")
            return
        if kind not in FIELDS:
            raise PlanError(f"{place} is of unknown kind {kind!r}")
        spare = {"linear": {*WEIGHTS, "predicted"}, "truncate": {"exact"}}.get(kind, set())
        if garbles(stage):
            spare = {"protocol", "low", "high"} if kind == "clip" else {"protocol"}
            if stage.get("protocol", "ot") not in PROTOCOLS:
                raise PlanError(f"{place}: protocol {stage['protocol']!r}; choose one of {', '.join(PROTOCOLS)}")
        if set(stage) - spare != {"kind", "name", "in", "out", *FIELDS[kind]} or isinstance(stage["in"], list) != (kind in MANY):
            raise PlanError(f"{place}: its fields are not those of {kind!r} stages")
        for tensor in inputs_of(stage):
            self.read(place, tensor)
        self.define(place, stage["out"])
        ins = [self.kind(place, t, "fixed" if kind == "share" else "shared") for t in inputs_of(stage)]
        out = self.kind(place, stage["out"], "fixed" if kind == "reveal" else "shared")
        getattr(self, f"check_{kind}", self.check_move)(place, stage, ins, out)
        keeps = kind in {"truncate", "max_pool", "sum_pool", "scale", *MANY}
        if kind == "relu" or (kind == "clip" and stage.get("low") == 0) or (keeps and all(t in self.positive for t in inputs_of(stage))):
            self.positive.add(stage["out"])

    # -- one stage each

    def holds(self, place: str, out: dict[str, Any], reach: int | None) -> None:
        """Exact bounds are the server's: where a plan has none, there is nothing to compare."""
        if reach is not None and "bound" in out and reach > out["bound"]:
            raise PlanError(f"{place}: results reach {reach}, the plan says {out['bound']}")

    @staticmethod
    def times(source: dict[str, Any], factor: int) -> int | None:
        """So many times an exact bound; None in a public part."""
        return factor * source["bound"] if "bound" in source else None

    def same(self, place: str, a: dict[str, Any], b: dict[str, Any], *, shape: bool = True, fine: bool = True) -> None:
        if shape and a["shape"] != b["shape"]:
            raise PlanError(f"{place}: shapes {a['shape']} and {b['shape']} differ")
        if fine and a["frac_bits"] != b["frac_bits"]:
            raise PlanError(f"{place}: tensors {a['name']!r} and {b['name']!r} have different frac_bits")

    def finer(self, place: str, source: dict[str, Any], out: dict[str, Any]) -> None:
        if out["frac_bits"] < source["frac_bits"]:
            raise PlanError(f"{place}: {source['frac_bits']} fraction bits cannot become {out['frac_bits']}")

    def check_share(self, place: str, _stage: Stage, ins: list[dict[str, Any]], out: dict[str, Any]) -> None:
        self.same(place, ins[0], out, fine=False)
        self.scaled(place, ins[0], out)
        self.holds(place, out, ins[0]["bound"])
        self.keeps(place, ins[0]["bound"], out["reach_bits"])

    def scaled(self, place: str, fixed: dict[str, Any], shared: dict[str, Any]) -> None:
        if fixed["scale"] != math.ldexp(1.0, -shared["frac_bits"]):
            raise PlanError(f"{place}: scale {fixed['scale']} is not 2^-{shared['frac_bits']}")

    def check_reveal(self, place: str, stage: Stage, ins: list[dict[str, Any]], out: dict[str, Any]) -> None:
        if stage["what"] != self.document["reveal"]:
            raise PlanError(f"{place}: reveals {stage['what']!r}, the plan says {self.document['reveal']!r}")
        if stage["what"] == "output":
            self.same(place, ins[0], out, fine=False)
            self.scaled(place, out, ins[0])
            self.holds(place, out, (1 << ins[0]["reach_bits"]) - 1)
            return
        self.wide(place, ins[0]["reach_bits"] + 1)
        classes = math.prod(ins[0]["shape"])
        if math.prod(out["shape"]) != 1 or out["scale"] != 1.0 or out["bound"] < classes - 1:
            raise PlanError(f"{place}: an index of {classes} classes needs one element of scale 1")

    def wide(self, place: str, reach: int) -> None:
        if reach >= self.ring:
            raise PlanError(f"{place}: differences reach 2^{reach}, more than a ring of {self.ring} bits holds")

    def check_linear(self, place: str, stage: Stage, ins: list[dict[str, Any]], out: dict[str, Any]) -> None:
        geometry, source = stage["geometry"], ins[0]
        if stage["method"] not in methods.METHODS:
            raise PlanError(f"{place}: method {stage['method']!r} is not one of {', '.join(methods.METHODS)}")
        self.finer(place, source, out)
        given, result, shape = geometry_shapes(geometry)
        conv = geometry["type"] == "conv2d"
        problem = conv_problem(geometry) if conv else None
        if problem or math.prod(source["shape"]) != math.prod(given) or (conv and tuple(source["shape"]) != given):
            raise PlanError(f"{place}: {problem or 'input of another shape'}; it takes {given}, its input has {source['shape']}")
        if math.prod(out["shape"]) != math.prod(result) or (conv and tuple(out["shape"]) != result):
            raise PlanError(f"{place}: gives {result}, its output has shape {out['shape']}")
        l2 = stage["weight_l2"]
        if not (math.isfinite(l2) and l2 > 0 and math.log2(l2).is_integer()):
            raise PlanError(f"{place}: weight_l2 {l2} is not a power of two")
        self.parameters(place, l2, stage["method"])
        if any(key in stage for key in WEIGHTS):
            self.weighted(place, stage, shape, out)

    def weighted(self, place: str, stage: Stage, shape: Shape, out: dict[str, Any]) -> None:
        if not all(key in stage for key in WEIGHTS):
            raise PlanError(f"{place}: has only one of weights and bias")
        for key, dtypes, wanted in (("weights", ("int8", "int16"), shape), ("bias", ("int64",), shape[:1])):
            array = self.plan.weights.get(stage[key])
            if array is None or array.dtype.name not in dtypes or array.shape != wanted:
                raise PlanError(f"{place}: tensor {stage[key]!r} is missing or is not {' or '.join(dtypes)} of shape {wanted}")
            self.used.add(stage[key])
        self.holds(place, out, reach_of_linear(self.plan, stage))
        if weight_norm(self.plan, stage) > stage["weight_l2"]:
            raise PlanError(f"{place}: weights in one answer have a norm above {stage['weight_l2']}")

    def check_relu(self, place: str, _stage: Stage, ins: list[dict[str, Any]], out: dict[str, Any]) -> None:
        self.same(place, ins[0], out)

    def check_leaky_relu(self, place: str, stage: Stage, ins: list[dict[str, Any]], out: dict[str, Any]) -> None:
        self.same(place, ins[0], out)
        bits, numerator = stage["log_denominator"], stage["numerator"]
        if not (1 <= bits <= 62 and 0 <= numerator <= 1 << bits):
            raise PlanError(f"{place}: slope {numerator} / 2^{bits} is not from 0 to 1")
        self.wide(place, ins[0]["reach_bits"] + bits)

    def check_clip(self, place: str, stage: Stage, ins: list[dict[str, Any]], out: dict[str, Any]) -> None:
        self.same(place, ins[0], out)
        self.wide(place, stage["reach_bits"])
        if stage.get("low", 0) == 0 and "high" not in stage:
            return
        low, high = stage["low"], stage["high"]
        if low > high:
            raise PlanError(f"{place}: clips to {low}..{high}")
        reach = max(abs(low), abs(high))
        if "bound" in ins[0]:
            self.keeps(place, ins[0]["bound"] + reach, stage["reach_bits"])
        self.holds(place, out, reach)

    def check_truncate(self, place: str, stage: Stage, ins: list[dict[str, Any]], out: dict[str, Any]) -> None:
        self.same(place, ins[0], out, fine=False)
        bits, before, after = stage["bits"], ins[0]["frac_bits"], out["frac_bits"]
        if not 1 <= bits <= self.ring - 2 or not before - bits <= after <= before:
            raise PlanError(f"{place}: dropping {bits} bits of {before} behind the point cannot leave {after}")
        if stage["sign"] not in ("any", "non-negative") or (stage["sign"] == "non-negative" and stage["in"] not in self.positive):
            raise PlanError(f"{place}: nothing says that tensor {ins[0]['name']!r} is {stage['sign']}")

    def check_max_pool(self, place: str, stage: Stage, ins: list[dict[str, Any]], out: dict[str, Any]) -> None:
        self.same(place, ins[0], out, shape=False)
        self.wide(place, ins[0]["reach_bits"] + 1)
        self.window(place, "max_pool", stage, ins[0], out)

    def check_sum_pool(self, place: str, stage: Stage, ins: list[dict[str, Any]], out: dict[str, Any]) -> None:
        self.finer(place, ins[0], out)
        self.window(place, "max_pool", stage, ins[0], out)
        taps = math.prod(min(k, n) for k, n in zip(stage["kernel"], ins[0]["shape"][1:]))
        self.holds(place, out, self.times(ins[0], taps))

    def window(self, place: str, op: str, stage: Stage, source: dict[str, Any], out: dict[str, Any]) -> None:
        if stage["dilation"] != [1, 1]:
            raise PlanError(f"{place}: pools on shares are not dilated")
        check_op(place, op, {k: stage[k] for k in WINDOW}, [tuple(source["shape"])], tuple(out["shape"]))

    def check_scale(self, place: str, stage: Stage, ins: list[dict[str, Any]], out: dict[str, Any]) -> None:
        self.same(place, ins[0], out, fine=False)
        self.finer(place, ins[0], out)
        if type(stage["factor"]) is not int or stage["factor"] < 1:
            raise PlanError(f"{place}: factor {stage['factor']!r} is not a positive integer")
        self.holds(place, out, self.times(ins[0], stage["factor"]))

    def check_add(self, place: str, _stage: Stage, ins: list[dict[str, Any]], out: dict[str, Any]) -> None:
        if len(ins) != 2:
            raise PlanError(f"{place}: adds {len(ins)} tensors, not two")
        for source in ins:
            self.same(place, source, out)
        if all("bound" in t for t in ins):
            self.holds(place, out, sum(t["bound"] for t in ins))

    def check_move(self, place: str, stage: Stage, ins: list[dict[str, Any]], out: dict[str, Any]) -> None:
        attrs = {k: stage[k] for k in FIELDS[stage["kind"]]}
        if stage["kind"] == "pad":
            attrs["value"] = 0
        check_op(place, stage["kind"], attrs, [tuple(t["shape"]) for t in ins], tuple(out["shape"]))
        for source in ins:
            self.same(place, source, out, shape=False)
            self.holds(place, out, self.times(source, 1))

    def opening(self) -> None:
        """What is opened went through an exact truncation since the last layer: units of masking depend on weights."""
        raw: set[int] = set()
        for stage in reversed(self.document["stages"]):
            if stage["kind"] == "reveal" and stage["what"] == "output":
                raw.add(stage["in"])
            elif stage["kind"] == "linear" and stage["out"] in raw:
                raise PlanError(f"layer {stage['name']!r}: its result is opened without an exact truncation after it")
            elif stage["kind"] not in {"truncate", "client", "reveal", "share"} and stage["out"] in raw:
                raw.update(inputs_of(stage))
            elif stage["kind"] == "truncate" and stage["out"] in raw and not stage.get("exact"):
                raise PlanError(f"stage {stage['name']!r}: its result is opened, so it must be exact")

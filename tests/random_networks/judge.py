"""One random network through ``compile`` and ``run`` of a trust model, and what came of it.

Right: the results of the real protocol are those of ONNX Runtime up to the error that the plan predicts for each
output, and the graph in binary64 agrees with ONNX Runtime. Plans predict that one row of 1,000 may be off by more than
``max_error``; networks with such a row are counted (``beyond``). A plan that predicts more than a fourth of the
output's size says little; such networks are counted (``coarse``). Of an output that jumps, as many rows as stand near a
jump by the plan may be off by its ``jump_error``; such networks are counted (``jumped``). Refused: a ``HushnetError``
that names an operator which the table of ``docs/models.md`` names, or a limit.
"""

from __future__ import annotations

import math
import time
import warnings
from dataclasses import asdict, dataclass, field
from typing import Any

import hushnet
import numpy as np
import onnx
import onnx.reference
import onnxruntime as ort
from hushnet import passes
from hushnet.errors import HushnetError
from hushnet.frontend import load
from hushnet.reference.float import evaluate
from onnx import TensorProto, numpy_helper

from .generate import network
from .table import refused_by

RIGHT, REFUSED, WRONG, CRASHED, UNUSABLE = "right", "refused", "wrong", "crashed", "unusable"
VERDICTS = (RIGHT, REFUSED, WRONG, CRASHED, UNUSABLE)
SAMPLES = 24
# images of the run, which are calibration images too
IMAGES = 2
# what ONNX Runtime's binary32 may be off by, of the largest value
ROUNDING = 1e-4
COARSE = 0.25
# an error above max_error is counted, one above so many of them, or above worst_error, is wrong
SLACK = 2.0
OPTIONS: dict[str, dict[str, Any]] = {
    "client-aided": {"weight_bits": 12, "activation_bits": 12},
    "two-party": {"weight_bits": 10, "activation_bits": 14, "method": "cheetah"},
    "non-interactive": {},
}
# limits that a refusal may name instead of an operator (docs/models.md, "Limits")
LIMITS = (
    "modulus", "levels", "ring of", "worst error is not finite", "input_range", "needs a matrix", "bits of modulus",
    "not finite", "max_memory",
    "output units", "products of private values", "no range holds", "weight", "256 pieces",
)  # fmt: skip
ort.set_default_logger_severity(4)


@dataclass(frozen=True)
class Drawn:
    """A network by its numbers."""

    seed: int
    index: int
    kind: str = "random"

    @property
    def name(self) -> str:
        """What :class:`tests.backend_suite.workers` calls it."""
        return f"{self.seed}:{self.index}"


@dataclass
class Verdict:
    """What came of a network.

    Attributes:
        error: the largest of its outputs, as a share of the predicted one.
        coarse: a prediction above a fourth of the output's size.
        beyond: an error above ``max_error``, which one row of 1,000 may have.
        jumped: a row that a jump has carried away, as the plan states it.
        refused: operators that a refusal names.
    """

    name: str
    verdict: str
    operators: list[str] = field(default_factory=list)
    reason: str = ""
    error: float | None = None
    coarse: bool = False
    beyond: bool = False
    jumped: bool = False
    refused: list[str] = field(default_factory=list)
    seconds: float = 0.0
    kind: str = "random"

    def as_json(self) -> dict[str, Any]:
        """What the table is made of."""
        return asdict(self)


def judge(drawn: Drawn, trust: str) -> Verdict:
    """Draws, compiles, runs and compares."""
    started = time.monotonic()
    model = network(trust, drawn.seed, drawn.index)
    found = Verdict(drawn.name, RIGHT, sorted({n.op_type for n in model.graph.node}))
    inputs = images(model, drawn)
    try:
        want = expected(model, inputs)
    except Exception as error:
        found.verdict, found.reason = UNUSABLE, f"ONNX Runtime: {error}"[:300]
        return found
    if not all(np.isfinite(w).all() and np.abs(w).max(initial=0.0) < 1e6 for w in want):
        found.verdict, found.reason = UNUSABLE, "results are not finite or huge"
        return found
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        attempt(model, trust, inputs, want, found, drawn)
    found.seconds = round(time.monotonic() - started, 3)
    return found


def no_result(drawn: Drawn, reason: str) -> Verdict:
    """The verdict of a network whose process died, or did not end."""
    return Verdict(drawn.name, CRASHED, reason=reason)


def images(model: onnx.ModelProto, drawn: Drawn) -> dict[str, np.ndarray]:
    """Inputs of the calibration; the first are those of the run."""
    rng = np.random.default_rng([drawn.seed, drawn.index, 1])
    return {
        p.name: rng.uniform(-1, 1, (SAMPLES, *(x.dim_value for x in p.type.tensor_type.shape.dim[1:]))).astype(
            np.float32
        )
        for p in model.graph.input
    }


def expected(model: onnx.ModelProto, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
    """ONNX Runtime's results."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, inputs)


def attempt(
    model: onnx.ModelProto,
    trust: str,
    inputs: dict[str, np.ndarray],
    want: list[np.ndarray],
    found: Verdict,
    drawn: Drawn,
) -> None:
    """Fills in the verdict."""
    try:
        graph = passes.default(load(model))
        floats = evaluate(graph, {k: v.astype(np.float64) for k, v in inputs.items()})
    except HushnetError as error:
        refused(found, error, trust)
        return
    except BaseException as error:
        found.verdict, found.reason = CRASHED, f"front end: {type(error).__name__}: {error}"
        return
    names = [p.name for p in model.graph.output]
    if name := _unlike(floats, dict(zip(names, want))):
        found.verdict, found.reason = WRONG, f"the graph's {name} is not ONNX Runtime's"
        finer = in_binary64(model, inputs)
        if finer is not None and not _unlike(floats, dict(zip(names, finer))):
            found.verdict, found.reason = UNUSABLE, f"binary32 keeps nothing of {name}"
        return
    try:
        # of client-aided and non-interactive plans every eighth is for the engine of many images
        batch = 64 if trust != "two-party" and drawn.index % 8 == 0 else 1
        plan = hushnet.compile(model, trust=trust, calibration=inputs, batch=batch, **OPTIONS[trust])
    except HushnetError as error:
        refused(found, error, trust)
        return
    except BaseException as error:
        found.verdict, found.reason = CRASHED, f"compile: {type(error).__name__}: {error}"
        return
    some = {k: v[:IMAGES] for k, v in inputs.items()}
    try:
        got = hushnet.run(plan, some, threads=1, transport="pipe").outputs
    except BaseException as error:
        found.verdict, found.reason = CRASHED, f"run: {type(error).__name__}: {error}"
        return
    compare(plan, dict(zip(names, want)), got, found)


def _unlike(graph: dict[str, np.ndarray], want: dict[str, np.ndarray]) -> str:
    """The first output that the graph in binary64 does not share; "" where all are alike."""
    for name, w in want.items():
        limit = 20 * ROUNDING * max(1.0, float(np.abs(w).max(initial=0.0)))
        if graph[name].shape != w.shape or not np.abs(graph[name] - w).max(initial=0.0) <= limit:
            return name
    return ""


def in_binary64(model: onnx.ModelProto, inputs: dict[str, np.ndarray]) -> list[np.ndarray] | None:
    """What ONNX's reference makes of the model with binary64 in the place of binary32, or None where it has nothing.

    The cosine of 10^8 is no number that binary32 knows: ONNX Runtime's own answer is beside the network's there.
    """
    wide = onnx.ModelProto()
    wide.CopyFrom(model)
    single, double = TensorProto.FLOAT, TensorProto.DOUBLE
    for tensor in wide.graph.initializer:
        if tensor.data_type == single:
            tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float64), tensor.name))
    for port in (*wide.graph.input, *wide.graph.output):
        if port.type.tensor_type.elem_type == single:
            port.type.tensor_type.elem_type = double
    for node in wide.graph.node:
        for attribute in node.attribute:
            if node.op_type == "Cast" and attribute.name == "to" and attribute.i == single:
                attribute.i = double
            elif attribute.type == onnx.AttributeProto.TENSOR and attribute.t.data_type == single:
                attribute.t.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(attribute.t).astype(np.float64)))
    try:
        got = onnx.reference.ReferenceEvaluator(wide).run(
            None, {k: v.astype(np.float64) if v.dtype == np.float32 else v for k, v in inputs.items()}
        )
    except Exception:
        return None
    return [np.asarray(value, dtype=np.float64) for value in got]


def compare(plan: hushnet.Model, want: dict[str, np.ndarray], got: dict[str, np.ndarray], found: Verdict) -> None:
    """Every output within its predicted error."""
    predicted = plan.plan.document["predicted"]
    largest = 0.0
    for name, whole in want.items():
        w = whole[:IMAGES].astype(np.float64)
        if name not in got or got[name].shape != w.shape:
            found.verdict, found.reason = WRONG, f"output {name} is missing, or of another shape"
            return
        scale = max(float(np.abs(whole).max(initial=0.0)), 1e-3)
        errors = predicted.get("output_errors", {}).get(name, predicted)
        likely, rounding = errors.get("max_error", np.inf), ROUNDING * max(1.0, scale)
        allowed = min(SLACK * likely, errors.get("worst_error", np.inf)) + rounding
        rows = np.abs(got[name] - w).reshape(IMAGES, -1).max(axis=1, initial=0.0)
        carried = rows > allowed
        near = math.ceil(errors.get("near_jumps", 0.0) * len(whole))
        if carried.any() and carried.sum() <= near and rows.max() <= errors["jump_error"] + allowed:
            found.jumped, rows = True, rows[~carried]
        off = float(rows.max(initial=0.0))
        largest = max(largest, off / (likely + rounding))
        found.coarse |= likely + rounding > COARSE * scale
        found.beyond |= off > likely + rounding
        if not off <= allowed:
            found.verdict = WRONG
            worst = errors.get("worst_error", 0.0)
            found.reason = (
                f"output {name} is off by {off:.4g} of {scale:.4g}; {allowed:.4g} is predicted (at worst {worst:.4g})"
            )
    found.error = largest


def refused(found: Verdict, error: HushnetError, trust: str) -> None:
    """A refusal names what it refuses, and says what to do."""
    found.verdict, found.reason = REFUSED, str(error)
    issues = getattr(error, "issues", None)
    if issues is not None:
        found.refused = sorted({issue.op_type for issue in issues})
        if not all(issue.advice.strip() for issue in issues):
            found.verdict = CRASHED
    else:
        found.refused = sorted({b.op for b in getattr(error, "blocked", ())})
        named = bool(found.refused) and set(found.refused) <= refused_by(trust)
        if not named and not any(words in str(error) for words in LIMITS):
            found.verdict, found.reason = CRASHED, f"refused for nothing that docs/models.md names: {error}"

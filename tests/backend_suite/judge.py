"""One case through ``compile`` and ``run`` of a trust model, and what came of it.

A case of the suite gives as inputs what a network has as weights, shapes and indices. A case is therefore tried with
all of its inputs private first, then with some of them bound to the case's data (as initializers): all but those of
real numbers, then all but one. It has passed when one of these networks gives the expected result and none gives a
wrong one.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

import hushnet
import numpy as np
import onnx
from hushnet.errors import HushnetError
from onnx import numpy_helper

from .between import fits, framed
from .cases import Case

PASSED, REFUSED, WRONG, CRASHED = "passed", "refused", "wrong", "crashed"
VERDICTS = (PASSED, REFUSED, WRONG, CRASHED)
# a result may be off by so much of the largest expected value (1 at least), and by no more than the plan predicts
PRECISION = 0.05
ROUNDING = 1e-3
COARSE_ROUNDING = 1e-2
# two-party with one method for all layers: the planner's choice among them is tested elsewhere, and takes most of the
# time
OPTIONS = {
    "client-aided": {"weight_bits": 12, "activation_bits": 12},
    "two-party": {"weight_bits": 10, "activation_bits": 14, "method": "cheetah"},
    "non-interactive": {},
}


@dataclass
class Verdict:
    """What came of a case.

    Attributes:
        private: the inputs that were encrypted.
        reason: why it was not passed.
        real: whether its outputs, and an input, are real numbers.
    """

    name: str
    kind: str
    verdict: str
    operators: list[str] = field(default_factory=list)
    private: list[str] = field(default_factory=list)
    reason: str = ""
    error: float | None = None
    real: bool = False

    def as_json(self) -> dict[str, Any]:
        """What the table is made of."""
        return asdict(self)


def judge(case: Case, trust: str, *, between: bool = False) -> Verdict:
    """Tries a case until it passes or is wrong; ``between`` puts it between two layers of the server's."""
    operators = sorted({node.op_type for node in case.model.graph.node})
    real = any(map(_floating, case.inputs.values())) and all(_floating(np.asarray(v)) for v in case.outputs)
    refusals = []
    for private in _choices(case):
        verdict, reason, error = _attempt(case, trust, private, between=between)
        found = Verdict(case.name, case.kind, verdict, operators, private, reason, error, real)
        if verdict != REFUSED:
            return found
        refusals.append(found)
    # the most is known of the network that leaves the least open
    return refusals[-1]


def judge_between(case: Case, trust: str) -> Verdict:
    """:func:`judge` of the case between two layers of the server's."""
    return judge(case, trust, between=True)


def fits_between(case: Case) -> bool:
    """Whether the case has an input and an output that a layer can read or give."""
    return any(map(fits, case.inputs.values())) and any(fits(np.asarray(v)) for v in case.outputs)


def _choices(case: Case) -> Iterator[list[str]]:
    """Which inputs are private, in the order of trial."""
    names = list(case.inputs)
    real = [n for n in names if _floating(case.inputs[n])]
    seen: list[list[str]] = []
    for choice in [names, real, *([n] for n in real[:2]), names[:1]]:
        if choice and choice not in seen:
            seen.append(choice)
            yield choice


def _floating(value: np.ndarray) -> bool:
    return value.dtype.kind in "fV"


def bound(case: Case, private: list[str]) -> onnx.ModelProto:
    """The case's network with all other inputs as initializers."""
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    for name, value in case.inputs.items():
        if name not in private:
            model.graph.initializer.append(numpy_helper.from_array(np.asarray(value), name))
    return model


def _attempt(case: Case, trust: str, private: list[str], *, between: bool) -> tuple[str, str, float | None]:
    network, feeds = bound(case, private), {name: np.asarray(case.inputs[name]) for name in private}
    wanted = [np.asarray(value) for value in case.outputs]
    if between:
        frame = framed(network, feeds, wanted)
        if frame is None:
            return REFUSED, "no private input of real numbers that a layer can give", None
        network, feeds, wanted = frame
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = _compiled(network, trust, feeds)
    except HushnetError as error:
        return _refusal(error)
    except BaseException as error:
        return CRASHED, f"compile: {type(error).__name__}: {error}", None
    try:
        result = hushnet.run(model, _images(model, feeds), threads=1)
    except BaseException as error:
        return CRASHED, f"run: {type(error).__name__}: {error}", None
    return _compare([port.name for port in case.model.graph.output], wanted, model, result)


def _refusal(error: HushnetError) -> tuple[str, str, float | None]:
    """A refusal must say what to do."""
    issues = getattr(error, "issues", None)
    if issues is not None and not all(issue.advice.strip() for issue in issues):
        return CRASHED, f"refused without advice: {error}", None
    return REFUSED, str(error), None


def _compiled(model: onnx.ModelProto, trust: str, feeds: dict[str, np.ndarray]) -> hushnet.Model:
    calibration = {name: _numbers(value) for name, value in feeds.items()}
    return hushnet.compile(model, trust=trust, calibration=calibration, batch=1, **OPTIONS[trust])


def _numbers(value: np.ndarray) -> np.ndarray:
    return value.astype(np.float64) if value.dtype.kind == "V" else value


def _images(model: hushnet.Model, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name: _numbers(value) for name, value in feeds.items()}


def _compare(
    ports: list[str], outputs: list[np.ndarray], model: hushnet.Model, result: hushnet.Result
) -> tuple[str, str, float | None]:
    predicted = model.plan.document["predicted"].get("output_errors", {})
    names = [name for name in ports if name in result.outputs]
    if len(names) != len(outputs):
        return WRONG, f"outputs {list(result.outputs)} where {len(outputs)} are expected", None
    largest = 0.0
    for name, raw in zip(names, outputs):
        want, got = raw.astype(np.float64), np.asarray(result.outputs[name])
        if got.shape == (1, *want.shape):
            got = got[0]
        if got.shape != want.shape:
            return WRONG, f"output {name} has shape {got.shape} where {want.shape} is expected", None
        finite = np.isfinite(want)
        if not finite.all():
            return WRONG, f"output {name} is finite where {want[~finite].flat[0]} is expected", None
        scale = max(1.0, float(np.abs(want).max(initial=0.0)))
        off = float(np.abs(got - want).max(initial=0.0))
        errors = predicted.get(name, model.plan.document["predicted"])
        # results of 16 bits are rounded at every step of the case's own computation
        rounding = COARSE_ROUNDING if raw.dtype.itemsize == 2 else ROUNDING
        allowed = min(PRECISION * scale, rounding * scale + float(errors.get("worst_error", np.inf)))
        largest = max(largest, off / scale)
        if not off <= allowed:
            return (
                WRONG,
                f"output {name} is off by {off:.4g} of {scale:.4g} where {allowed:.4g} is allowed",
                off / scale,
            )
    return PASSED, "", largest

"""``--activation``: which polynomial takes the place of ReLU, SiLU, ..., and what that costs.

``square`` is x^2 (CryptoNets). ``swish-rg5-deg2`` and ``swish-rg7-deg4`` are the approximations of swish that the
SEAL/OpenFHE comparison takes from Ishiyama et al. (its Table 3): ``0.1 x^2 + 0.5 x + 0.24`` on [-5, 5] and ``-0.001328
x^4 + 0.128 x^2 + 0.5 x + 0.1773`` on [-7, 7]. These three replace any activation; a network must have been trained with
them. ``poly:degree=d,range=r`` fits the function that is replaced by least squares on [-r, r]; without a range it takes
the calibrated one of each activation.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.polynomial import legendre
from numpy.polynomial import polynomial as poly

from ...errors import PlanError
from ...graph import Graph, Op
from ...passes import activations, dead_code
from ...passes import replace_activations as rewritten
from ...reference.float import evaluate
from ...reference.ops import OPS

Array = np.ndarray

POINTS = 8193
DEGREES = range(2, 17)
SAFETY = 1.1
FIXED: dict[str, tuple[tuple[float, ...], float | None]] = {
    "square": ((0.0, 0.0, 1.0), None),
    "swish-rg5-deg2": ((0.24, 0.5, 0.1), 5.0),
    "swish-rg7-deg4": ((0.1773, 0.5, 0.128, 0.0, -0.001328), 7.0),
}
FORMS = "square, swish-rg5-deg2, swish-rg7-deg4 or poly:degree=d,range=r"


@dataclass(frozen=True)
class Activation:
    """A choice of ``--activation``: fixed coefficients, or a degree to fit with.

    ``range`` None where calibration decides.
    """

    name: str
    coefficients: tuple[float, ...] | None
    degree: int
    range: float | None


@dataclass(frozen=True)
class Replaced:
    """One activation that became a polynomial.

    Attributes:
        node: name of the node.
        function: the op that it was.
        tensor: its operand, whose range is ``range``.
        coefficients: lowest first.
        range: [-range, range] is what the polynomial is for; infinite where neither the activation nor calibration data
            says.
        max_error: largest |polynomial - function| on the range, on [-1, 1] where it is infinite.
        rms_error: root of the mean square of it.
        outside: share of calibration values outside the range; None without calibration data.
        largest: largest calibrated magnitude of the operand; None without calibration data.
    """

    node: str
    function: str
    tensor: str
    coefficients: tuple[float, ...]
    range: float
    max_error: float
    rms_error: float
    outside: float | None
    largest: float | None


@dataclass(frozen=True)
class Replacement:
    """A graph with polynomial activations, and what the change did on calibration data.

    Attributes:
        graph: the new graph.
        activations: what was replaced, in order.
        agreement: share of calibration images whose largest output stays in its place; None without calibration data.
        accuracy_before: share of right answers of the given graph; None without labels.
        accuracy_after: the same of the new graph.
    """

    graph: Graph
    activations: list[Replaced]
    agreement: float | None = None
    accuracy_before: float | None = None
    accuracy_after: float | None = None

    @property
    def ranges(self) -> dict[str, float]:
        """Planned ranges for :meth:`hushnet.planner.non_interactive.Network.from_graph`."""
        return {a.tensor: a.range for a in self.activations}

    def sentences(self) -> list[str]:
        """What a user must know, one sentence an activation and one for the whole."""
        said = []
        for a in self.activations:
            reach = a.range if math.isfinite(a.range) else 1.0
            text = (
                f"{a.node}: {a.function} became {formula(a.coefficients)}; on [-{reach:g}, {reach:g}] it differs by at "
                f"most {a.max_error:.3g}, "
            )
            text += f"{a.rms_error:.3g} in the root mean square"
            said.append(
                text
                + ("" if a.outside is None else f"; {100 * a.outside:.3g} % of calibration values lie outside")
                + "."
            )
        if self.agreement is not None:
            said.append(
                f"With these activations {100 * self.agreement:.2f} % of the calibration "
                "images keep their largest output."
            )
        if self.accuracy_before is not None and self.accuracy_after is not None:
            said.append(
                f"Accuracy on the calibration images: {100 * self.accuracy_before:.2f} % before, "
                f"{100 * self.accuracy_after:.2f} % after."
            )
        return said


def parse(text: str) -> Activation:
    """Reads ``--activation``.

    Raises:
        PlanError: what is wrong with it.
    """
    if text in FIXED:
        coefficients, reach = FIXED[text]
        return Activation(text, coefficients, len(coefficients) - 1, reach)
    kind, _, rest = text.partition(":")
    try:
        fields = dict(part.split("=", 1) for part in rest.split(",")) if rest else {}
        degree = int(fields.pop("degree"))
        reach = float(fields.pop("range")) if "range" in fields else None
    except (ValueError, KeyError):
        raise PlanError(f"activation {text!r}; give {FORMS}") from None
    if kind != "poly" or fields:
        raise PlanError(f"activation {text!r}; give {FORMS}")
    if degree not in DEGREES or (reach is not None and not 1e-3 <= reach <= 1e6):
        raise PlanError(
            f"activation {text!r}: give a degree of {DEGREES[0]} to {DEGREES[-1]} and a range of 0.001 to 1000000"
        )
    return Activation(text, None, degree, reach)


def fit(values: Array, points: Array, degree: int, reach: float) -> tuple[float, ...]:
    """Least squares on [-reach, reach] from samples there (in the Legendre basis, which stays well conditioned).

    Lowest coefficient first.
    """
    basis = legendre.legvander(points / reach, degree)
    scaled = np.linalg.lstsq(basis, values, rcond=None)[0]
    # odd or even functions leave rounding noise in the other half
    scaled[np.abs(scaled) < 1e-12 * np.abs(scaled).max(initial=0.0)] = 0.0
    power = np.zeros(degree + 1)
    found = legendre.leg2poly(scaled)
    power[: len(found)] = found / reach ** np.arange(len(found))
    return tuple(map(float, power))


def replace_activations(
    graph: Graph,
    activation: str | Activation,
    *,
    calibration: Array | Mapping[str, Array] | None = None,
    labels: Array | None = None,
    safety: float = SAFETY,
) -> Replacement:
    """Replaces every activation between layers (head and tail stay the client's; see :mod:`hushnet.passes.ends`).

    Args:
        graph: run :func:`hushnet.passes.default` first.
        activation: what ``--activation`` says.
        calibration: images (B, *shape), by input where there are several.
        labels: the right answers of the calibration images.
        safety: range over the largest calibrated magnitude, where the activation names no range.

    Raises:
        PlanError: a bad activation, or one that needs calibration data and has none.
    """
    chosen = parse(activation) if isinstance(activation, str) else activation
    try:
        nodes = activations(graph)
    except ValueError as error:
        raise PlanError(f"{error}; a plan needs an input and an output that depends on it") from None
    if calibration is not None and not isinstance(calibration, Mapping):
        calibration = {graph.inputs[0]: np.asarray(calibration, dtype=np.float64)}
    before = None if calibration is None else evaluate(graph, calibration, keep_all=True)
    replaced = [_one(node, chosen, None if before is None else before[node.inputs[0]], safety) for node in nodes]
    after = dead_code(rewritten(graph, {r.node: _trimmed(r.coefficients) for r in replaced}))
    if before is None or calibration is None:
        return Replacement(after, replaced)
    name = graph.outputs[0]
    old = before[name].reshape(len(before[name]), -1).argmax(axis=1)
    new = evaluate(after, calibration)[name].reshape(len(old), -1).argmax(axis=1)
    scores: list[float | None] = [None, None]
    if labels is not None:
        scores = [float((found == np.asarray(labels)).mean()) for found in (old, new)]
    return Replacement(after, replaced, float((old == new).mean()), *scores)


def _one(node: Op, chosen: Activation, seen: Array | None, safety: float) -> Replaced:
    largest = None if seen is None else float(np.abs(seen).max(initial=0.0))
    reach = chosen.range if chosen.range is not None else (None if not largest else safety * largest)
    if reach is None:
        if chosen.coefficients is None:
            raise PlanError(
                f"node {node.name!r}: activation {chosen.name!r} names no range and there is "
                "no calibration data; add range=r"
            )
        reach = math.inf
    points = np.linspace(-1.0, 1.0, POINTS) * (reach if math.isfinite(reach) else 1.0)
    attrs, slopes = node.attrs, node.attrs.get("slope", [0.0])
    if len(slopes) > 1:
        if chosen.coefficients is None:
            raise PlanError(
                f"node {node.name!r}: PRelu with a slope for every channel has no single polynomial; use one slope, or "
                "a fixed activation"
            )
        # errors are those against the mean slope
        attrs = {"slope": [float(np.mean(slopes))]}
    values = OPS[node.op](attrs, [points[None]], points.shape)[0]
    if not np.isfinite(values).all():
        raise PlanError(f"node {node.name!r}: {node.op} is not defined on [-{reach:g}, {reach:g}]")
    coefficients = chosen.coefficients or fit(values, points, chosen.degree, reach)
    error = np.abs(poly.polyval(points, coefficients) - values)
    outside = None if seen is None else float((np.abs(seen) > reach).mean())
    return Replaced(
        node.name,
        node.op,
        node.inputs[0],
        tuple(coefficients),
        reach,
        float(error.max()),
        float(np.sqrt((error**2).mean())),
        outside,
        largest,
    )


def _trimmed(coefficients: Sequence[float]) -> list[float]:
    """Without leading zeros, of degree 1 at least."""
    kept = list(coefficients)
    while len(kept) > 2 and kept[-1] == 0.0:
        kept.pop()
    return kept


def formula(coefficients: Sequence[float]) -> str:
    """``0.1 x^2 + 0.5 x + 0.24``."""
    terms = []
    for power in range(len(coefficients) - 1, -1, -1):
        value = coefficients[power]
        if value != 0.0:
            factor = "" if abs(value) == 1 and power else f"{abs(value):.6g}"
            variable = "" if power == 0 else "x" if power == 1 else f"x^{power}"
            terms.append(("- " if value < 0 else "+ ") + " ".join(t for t in (factor, variable) if t))
    text = " ".join(terms) or "0"
    return text[2:] if text.startswith("+ ") else text

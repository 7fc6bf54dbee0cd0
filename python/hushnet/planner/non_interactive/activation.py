"""``--activation``: which polynomial takes the place of ReLU, SiLU, ..., and what that costs.

``square`` is x^2 (CryptoNets). ``swish-rg5-deg2`` and ``swish-rg7-deg4`` are the approximations of swish that the
SEAL/OpenFHE comparison takes from Ishiyama et al. (its Table 3): ``0.1 x^2 + 0.5 x + 0.24`` on [-5, 5] and ``-0.001328
x^4 + 0.128 x^2 + 0.5 x + 0.1773`` on [-7, 7]. These three replace any activation; a network must have been trained with
them. ``poly:degree=d,range=r`` fits the function that is replaced by least squares on [-r, r]; without a range it takes
the calibrated one of each activation.

``minimax:bits=b,range=r`` needs no training: ReLU and what is made of it are products with composites of sign
polynomials, smooth functions polynomials, each the cheapest that is within 2^-b of the range (smooth functions: of the
largest value), which is proven (:mod:`minimax`). Without bits, the fewest with which calibration data keep half of the
plan's precision for other errors.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.polynomial import legendre
from numpy.polynomial import polynomial as poly

from ...errors import PlanError
from ...graph import Graph, Linear, Op
from ...passes import Chain, activations, dead_code, split_ends
from ...passes import replace_activations as rewritten
from ...reference.float import evaluate
from ...reference.ops import OPS
from ..rules import RULES
from .biases import corrected
from .minimax import DEGREES as SMOOTH_DEGREES
from .minimax import SIGNS, composed, function_error, half, smooth

Array = np.ndarray

POINTS = 8193
DEGREES = range(2, 17)
SAFETY = 1.1
# of minimax: composites leave their bounds fast where operands leave the range
WIDE = 1.4
FIXED: dict[str, tuple[tuple[float, ...], float | None]] = {
    "square": ((0.0, 0.0, 1.0), None),
    "swish-rg5-deg2": ((0.24, 0.5, 0.1), 5.0),
    "swish-rg7-deg4": ((0.1773, 0.5, 0.128, 0.0, -0.001328), 7.0),
}
FORMS = "square, swish-rg5-deg2, swish-rg7-deg4, poly:degree=d,range=r or minimax:bits=b,range=r"
# of minimax: bits of the range that a function may be off by
BITS = range(3, 13)
# calibration rows that bits are chosen with and biases corrected, and what they may take of the error that is asked for
CHOSEN_ROWS, SHARE = 64, 0.5


# a chain or coefficients, and their proven error
Approximation = tuple[Chain | tuple[float, ...], float]


@dataclass(frozen=True)
class Activation:
    """A choice of ``--activation``: fixed coefficients, a degree to fit with, or (``minimax``) bits to come near with.

    ``range`` and ``bits`` None where calibration decides.
    """

    name: str
    coefficients: tuple[float, ...] | None
    degree: int
    range: float | None
    minimax: bool = False
    bits: int | None = None


@dataclass(frozen=True)
class Replaced:
    """One activation that became a polynomial.

    Attributes:
        node: name of the node.
        function: the op that it was.
        tensor: its operand, whose range is ``range``.
        coefficients: lowest first; empty where there is a ``chain``.
        range: [-range, range] is what the polynomial is for; infinite where neither the activation nor calibration data
            says.
        max_error: largest |polynomial - function| on the range, on [-1, 1] where it is infinite.
        rms_error: root of the mean square of it.
        outside: share of calibration values outside the range; None without calibration data.
        largest: largest calibrated magnitude of the operand; None without calibration data.
        chain: polynomials one after the other, whose result is multiplied by the operand; None where there is one.
        proven: ``max_error`` is a bound, not the largest among points.
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
    chain: Chain | None = None
    proven: bool = False

    @property
    def made(self) -> Chain | list[float]:
        """What the graph gets in its place."""
        return _trimmed(self.coefficients) if self.chain is None else self.chain

    @property
    def form(self) -> str:
        """In words."""
        if self.chain is None:
            return formula(self.coefficients)
        degrees = ", ".join(str(len(c) - 1) for c in self.chain.stages)
        one = "a polynomial of degree" if len(self.chain.stages) == 1 else "polynomials one after the other, of degrees"
        return f"x q(x) + {self.chain.constant:.3g}, q {one} {degrees}"


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
                f"{a.node}: {a.function} became {a.form}; on [-{reach:g}, {reach:g}] it differs by at "
                f"most {a.max_error:.3g}{' (proven)' if a.proven else ''}, "
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
        bits = int(fields.pop("bits")) if kind == "minimax" and "bits" in fields else None
        degree = DEGREES[0] if kind == "minimax" else int(fields.pop("degree"))
        reach = float(fields.pop("range")) if "range" in fields else None
    except (ValueError, KeyError):
        raise PlanError(f"activation {text!r}; give {FORMS}") from None
    if kind not in ("poly", "minimax") or fields:
        raise PlanError(f"activation {text!r}; give {FORMS}")
    if bits is not None and bits not in BITS:
        raise PlanError(f"activation {text!r}: give {BITS[0]} to {BITS[-1]} bits")
    if degree not in DEGREES or (reach is not None and not 1e-3 <= reach <= 1e6):
        raise PlanError(
            f"activation {text!r}: give a degree of {DEGREES[0]} to {DEGREES[-1]} and a range of 0.001 to 1000000"
        )
    return Activation(text, None, degree, reach, kind == "minimax", bits)


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
    precision: float | None = None,
) -> Replacement:
    """Replaces every activation between layers (head and tail stay the client's; see :mod:`hushnet.passes.ends`).

    Args:
        graph: run :func:`hushnet.passes.default` first.
        activation: what ``--activation`` says.
        calibration: images (B, *shape), by input where there are several.
        labels: the right answers of the calibration images.
        safety: range over the largest calibrated magnitude, where the activation names no range.
        precision: bits of the largest output that errors may leave; what ``minimax`` without bits is chosen by.

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
    needed = [*graph.outputs, *(node.inputs[0] for node in nodes)]
    whole = replace(graph, outputs=list(dict.fromkeys(needed)))
    before = None if calibration is None else evaluate(whole, calibration)
    seen = {node.name: None if before is None else before[node.inputs[0]] for node in nodes}
    safety = max(safety, WIDE) if chosen.minimax else safety
    rows: dict[str, Array] = {}
    exact: dict[str, Array] = {}
    if chosen.minimax and calibration is not None:
        rows = {key: np.asarray(v, dtype=np.float64)[:CHOSEN_ROWS] for key, v in calibration.items()}
        layers = [n.output for n in graph.nodes if isinstance(n, Linear)]
        exact = evaluate(replace(graph, outputs=list(dict.fromkeys([*layers, *graph.outputs]))), rows)

    def made(chosen: Activation) -> tuple[list[Replaced], Graph]:
        replaced = [_one(node, chosen, seen[node.name], safety) for node in nodes]
        after = dead_code(rewritten(graph, {r.node: r.made for r in replaced}))
        return replaced, corrected(after, exact, rows) if exact else after

    if chosen.minimax and chosen.bits is None and nodes:
        if before is None or calibration is None or precision is None:
            raise PlanError(
                f"activation {chosen.name!r} is as precise as calibration data says; give some, or bits and a range "
                "(minimax:bits=b,range=r)"
            )
        replaced, after = _precise(graph, chosen, made, rows, precision)
    else:
        replaced, after = made(chosen)
    if before is None or calibration is None:
        return Replacement(after, replaced)
    name = graph.outputs[0]
    old = before[name].reshape(len(before[name]), -1).argmax(axis=1)
    new = evaluate(after, calibration)[name].reshape(len(old), -1).argmax(axis=1)
    scores: list[float | None] = [None, None]
    if labels is not None:
        scores = [float((found == np.asarray(labels)).mean()) for found in (old, new)]
    return Replacement(after, replaced, float((old == new).mean()), *scores)


def _precise(
    graph: Graph,
    chosen: Activation,
    made: Callable[[Activation], tuple[list[Replaced], Graph]],
    rows: Mapping[str, Array],
    precision: float,
) -> tuple[list[Replaced], Graph]:
    """The fewest bits whose errors on calibration data leave room for others.

    Raises:
        PlanError: the most bits do not.
    """
    name = split_ends(graph).body.outputs[0]
    exact = evaluate(replace(graph, outputs=[name]), rows)[name]
    granted = SHARE * 2.0**-precision * float(np.abs(exact).max(initial=0.0))
    off = math.inf
    for bits in BITS:
        replaced, after = made(replace(chosen, bits=bits))
        found = evaluate(replace(after, outputs=[name]), rows)[name]
        off = float(np.abs(found - exact).max(initial=0.0))
        if off <= granted:
            return replaced, after
    raise PlanError(
        f"with activations within 2^-{BITS[-1]} of their ranges, results on calibration data are off by {off:.3g}, "
        f"and a precision of {precision:g} bits allows {granted:.3g} for them; ask for less precision, or use "
        "trust='two-party' or trust='client-aided', which compute activations as they are"
    )


def _minimax(node: Op, bits: int, reach: float, values: Callable[[Array], Array]) -> Approximation:
    """What is within ``2^-bits`` of the function on [-reach, reach] relative to its size, at the fewest levels."""
    parts = _of_relu(node, reach)
    if parts is not None:
        line, kink = parts
        levels = next((k for k in SIGNS if abs(kink) * half(k).error <= 2.0**-bits), None)
        if levels is None:
            raise PlanError(f"node {node.name!r}: no composite comes within 2^-{bits} of {node.op}; ask for fewer bits")
        # kink relu(x) + line x = x (kink q(x / reach) + line) + constant
        found = half(levels)
        first, *more = found.stages
        stages = [np.array(first) / reach ** np.arange(len(first)), *map(np.array, more)]
        stages[-1] = kink * stages[-1]
        stages[-1][0] += line
        chain = Chain(tuple(tuple(map(float, c)) for c in stages), float(kink * reach * found.constant))
        return chain, abs(kink) * reach * found.error
    grid = np.linspace(-reach, reach, POINTS)
    largest = max(float(np.abs(values(grid)).max()), 1e-300)
    unit = (np.full(1, -reach), np.full(1, reach))
    slope = float(RULES[node.op].spread(node.attrs, [unit], [np.ones(1)], (1,), False)[0])
    for degree in SMOOTH_DEGREES:
        fitted = smooth(values, reach, degree)
        error = function_error(values, slope, fitted, reach)
        if error <= 2.0**-bits * largest:
            return fitted, error
    raise PlanError(
        f"node {node.name!r}: no polynomial of degree {degree} comes within 2^-{bits} of {node.op} on [-{reach:g}, "
        f"{reach:g}]; ask for fewer bits, or use trust='two-party' or trust='client-aided', which compute it"
    )


def _of_relu(node: Op, reach: float) -> tuple[float, float] | None:
    """(a, b) where the function is ``a x + b max(x, 0)`` on [-reach, reach]."""
    if node.op == "relu" or (
        node.op == "clip" and node.attrs.get("min") == 0.0 and (node.attrs.get("max") or math.inf) >= reach
    ):
        return 0.0, 1.0
    if node.op == "abs":
        return -1.0, 2.0
    if node.op in ("leaky_relu", "prelu"):
        slope = float(node.attrs["alpha"] if node.op == "leaky_relu" else np.mean(node.attrs["slope"]))
        return slope, 1.0 - slope
    return None


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
    made: Chain | tuple[float, ...]
    if chosen.minimax:
        made, bound = _minimax(
            node, chosen.bits or BITS[0], reach, lambda x: OPS[node.op](attrs, [x[None]], x.shape)[0]
        )
    else:
        made, bound = chosen.coefficients or fit(values, points, chosen.degree, reach), 0.0
    chain = made if isinstance(made, Chain) else None
    coefficients = () if isinstance(made, Chain) else made
    got = (
        poly.polyval(points, coefficients)
        if chain is None
        else points * composed(chain.stages, points) + chain.constant
    )
    error = np.abs(got - values)
    outside = None if seen is None else float((np.abs(seen) > reach).mean())
    return Replaced(
        node.name,
        node.op,
        node.inputs[0],
        tuple(coefficients),
        reach,
        max(bound, float(error.max())),
        float(np.sqrt((error**2).mean())),
        outside,
        largest,
        chain,
        chosen.minimax,
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

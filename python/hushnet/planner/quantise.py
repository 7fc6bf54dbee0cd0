"""Integer weights, activation scales and the parameters (N, k, d, u) of every linear layer."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from .. import _native
from ..graph import Graph, Linear
from ..plan import PlanError
from ..reference.linear import apply, row_norms
from .feedback import Moments
from .forms import Forms
from .ranges import plan_geometry

Array = np.ndarray

RING_DEGREES = (2048, 4096)
AUTO_BITS = range(12, 7, -1)
LEAST_BITS, MOST_BITS = 2, 16
# bits that weights have at most beyond those asked for, where the engine for few images has room
FINER_WEIGHTS = 3
# bits that weights give to what their layers read, at most, and the share of the noise that such a change must take
COARSER_WEIGHTS, WORTH = 4, 0.3
# of a layer's largest bias, beyond those of the sum of its weights: inputs of so many bits leave no less of it
BIAS_BITS = 16


@dataclass(frozen=True)
class Weights:
    """Integer weights of a layer: ``weight * scale`` is near the float weights.

    Attributes:
        weight: int8 or int16, shape of the float weights.
        scale: value of one unit.
        l2: largest L2 norm of a row.
        rows: L1 norm of every row.
    """

    weight: Array
    scale: float
    l2: float
    rows: Array


@dataclass(frozen=True)
class Activation:
    """Scale of a group of fixed tensors: ``|v| <= bound`` means up to ``bound * scale``."""

    scale: float
    bound: int
    bits: int


@dataclass(frozen=True)
class Parameters:
    """A linear layer's modulus 2^k, scale 2^d, dropped bits u of c0 and v of c1, and log2 of its noise bound.

    The noise bound holds before bits are dropped.
    """

    modulus_bits: int
    delta_bits: int
    drop_bits: int
    mask_drop_bits: int
    noise_bits: float


@dataclass(frozen=True)
class Quantisation:
    """All choices for a graph: by linear output (weights, biases, bounds) and by group of fixed tensors."""

    ring_degree: int
    weights: dict[str, Weights]
    biases: dict[str, Array]
    bounds: dict[str, int]
    activations: dict[str, Activation]


@lru_cache
def cheap_modulus_bits(ring_degree: int) -> int:
    """Bits of the widest modulus that does not split products with the secret in two (docs/parameters.md)."""
    return _native.single_part_bits(ring_degree)


def mask_parts(stage: dict[str, Any], ring_degree: int) -> int:
    """Products with the secret that a stage's modulus takes: 1 or 2."""
    return 1 if stage["modulus_bits"] <= cheap_modulus_bits(ring_degree) else 2


def quantise_weights(node: Linear, bits: int) -> Weights:
    """Symmetric quantisation with one scale for the layer; round half to even."""
    weight = np.asarray(node.weight, dtype=np.float64)
    top = float(np.abs(weight).max(initial=0.0))
    limit = 2 ** (bits - 1) - 1
    scale = top / limit if top > 0 and top / limit > 0 else 1.0
    integers = np.rint(weight / scale).clip(-limit, limit).astype(np.int8 if bits <= 8 else np.int16)
    rows, l2 = row_norms(integers)
    return Weights(integers, scale, float(l2.max(initial=0.0)), rows)


def activation(limit: float, bits: int) -> Activation:
    """The scale that gives a range of ``limit`` to ``bits`` signed bits."""
    bound = 2 ** (bits - 1) - 1
    scale = limit / bound
    if not (limit > 0 and scale > 1e-290):
        scale = 1.0 / bound
    return Activation(scale, bound, bits)


def reading(limit: float, bits: int, nodes: Sequence[Linear], weights: Mapping[str, Weights]) -> Activation:
    """:func:`activation` of what layers read; coarser where it is so small that biases would be beyond all results."""
    form, least = activation(limit, bits), 0.0
    for node in nodes:
        own = weights[node.output]
        top = float(np.abs(node.bias).max(initial=0.0))
        least = max(least, top / own.scale / max(float(own.rows.max(initial=0.0)), 1.0) * 2.0**-BIAS_BITS)
    return form if form.scale >= least or not np.isfinite(least) else replace(form, scale=least)


def bias_correction(node: Linear, weights: Weights, mean: Array) -> Array:
    """What rounded weights do to the mean of every output, taken away.

    ``(W - W') E[x]``, averaged over output positions.

    Where inputs have a mean (behind a ReLU), much of the weights' rounding error is this constant; a bias removes it
    for nothing (Nagel et al., Data-Free Quantization, ICCV 2019, section 4.2, with means from calibration).
    """
    off = np.asarray(node.weight, dtype=np.float64) - weights.weight.astype(np.float64) * weights.scale
    shifted = apply(plan_geometry(node.geometry), off, mean[None])[0]
    return shifted.reshape(len(off), -1).mean(axis=1)


def quantise_bias(node: Linear, scale: float, correction: Array | float = 0.0) -> Array:
    """Biases in units of the layer's output, as int64; ``correction`` (:func:`bias_correction`) is added first."""
    v = np.rint((np.asarray(node.bias, dtype=np.float64) + correction) / scale)
    if (np.abs(v) >= 2.0**62).any():
        raise PlanError(
            f"layer {node.name!r}: its bias is more than 2^62 output units; its input range or weights are close to "
            "zero, check the model"
        )
    return v.astype(np.int64)


def stage_parameters(layer: str, ring_degree: int, l2: float, bound: int, shared: bool) -> Parameters:
    """The narrowest secure and correct parameters of a layer.

    Raises:
        PlanError: none at this ring degree; names the layer, the bits needed and allowed.
    """
    if bound >= 1 << 63:
        raise PlanError(
            f"layer {layer!r}: results need {bound.bit_length() + 1} bits, at most 64 are allowed; use fewer weight or "
            "activation bits"
        )
    try:
        # a layer of zeros has a result too: one bit
        return Parameters(*_native.batch_stage_parameters(ring_degree, l2, max(bound, 1), shared))
    except ValueError as error:
        text = str(error)
        if ring_degree == max(RING_DEGREES):
            text = text.replace("a larger ring degree or ", "")
        raise PlanError(f"layer {layer!r} {text}") from None


def choose(
    graph: Graph,
    forms: Forms,
    weight_bits: int,
    activation_bits: int | str,
    ring_degree: int | None,
    mean: Mapping[str, Array] | None = None,
    *,
    most_bits: int = AUTO_BITS[0],
    packed: bool = False,
    square: Mapping[str, float] | None = None,
    moments: Moments | None = None,
) -> Quantisation:
    """Weights, scales, bits and the ring degree of the whole plan.

    Biases are corrected where ``mean`` has a layer's input.

    Args:
        square: mean square of layers' inputs. Where it is known, and ``packed``, "auto" weighs bits of weights against
            bits of what they multiply.
        moments: of layers' inputs. Where they are known, errors of rounded weights are fed back.
        most_bits: the most activation bits that "auto" takes.
        packed: whether the few-images engine alone will run the plan: its modulus then limits "auto".

    Raises:
        PlanError: bits out of range, or a layer that fits at no ring degree.
    """
    _check_bits("weight_bits", weight_bits)
    if activation_bits != "auto":
        _check_bits("activation_bits", activation_bits)
    linears = [n for n in graph.nodes if isinstance(n, Linear)]
    weights = {n.output: quantise_weights(n, weight_bits) for n in linears}
    mean = mean or {}
    corrections = {
        n.output: bias_correction(n, weights[n.output], mean[n.input]) if n.input in mean else 0.0 for n in linears
    }
    _check_bits("most_bits", most_bits)
    automatic = _Automatic(most_bits, packed)
    degrees = RING_DEGREES if ring_degree is None else (ring_degree,)
    for degree in degrees:
        try:
            found = _at_degree(
                degree,
                linears,
                forms,
                (weights, corrections),
                automatic if isinstance(activation_bits, str) else activation_bits,
            )
        except PlanError:
            if degree == degrees[-1]:
                raise
            continue
        if packed:
            bits = {n.output: weight_bits for n in linears}
            if square and isinstance(activation_bits, str):
                found, bits = _balanced(found, linears, forms, (bits, mean, square), automatic)
            found = _finer(found, linears, forms, (bits, weight_bits, mean), automatic)
        return found if moments is None else _fed_back(found, linears, forms, moments, automatic)
    raise PlanError("no ring degree to choose from")


def _balanced(
    found: Quantisation,
    linears: list[Linear],
    forms: Forms,
    given: tuple[Mapping[str, int], Mapping[str, Array], Mapping[str, float]],
    automatic: _Automatic,
) -> tuple[Quantisation, dict[str, int]]:
    """Fewer bits for weights, and more for what they multiply, where their layers have less noise so.

    A modulus holds the product of both. Inputs are mostly far below the end of their range, so that their rounding
    makes more noise than that of weights. Also gives the bits of every layer's weights.
    """
    (asked, mean, square), bits = given, dict(given[0])
    changed = replace(
        found,
        weights=dict(found.weights),
        biases=dict(found.biases),
        bounds=dict(found.bounds),
        activations=dict(found.activations),
    )
    for root, form in found.activations.items():
        nodes = [n for n in linears if forms.root(forms.source[n.output]) == root]
        if not nodes or root in forms.whole or form.bits >= automatic.most or any(n.input not in mean for n in nodes):
            continue
        own = {n.output: found.weights[n.output] for n in nodes}
        least = (1 - WORTH) * _noise(nodes, own, form, (mean, square))
        most = asked[nodes[0].output]
        for fewer in range(most - 1, max(most - COARSER_WEIGHTS, LEAST_BITS) - 1, -1):
            own = {n.output: quantise_weights(n, fewer) for n in nodes}
            corrections = {n.output: bias_correction(n, own[n.output], mean[n.input]) for n in nodes}
            limit = forms.limit[root]
            chosen = min(
                automatic.bits(found.ring_degree, n, own[n.output], corrections[n.output], limit) for n in nodes
            )
            wider = reading(limit, chosen, nodes, own)
            noise = _noise(nodes, own, wider, (mean, square))
            if chosen <= form.bits or noise >= least:
                continue
            least = noise
            changed.activations[root] = wider
            for node in nodes:
                bits[node.output], changed.weights[node.output] = fewer, own[node.output]
                changed.biases[node.output], changed.bounds[node.output] = _layer(
                    node, own[node.output], corrections[node.output], wider
                )
    return changed, bits


def _fed_back(
    found: Quantisation, linears: list[Linear], forms: Forms, moments: Moments, automatic: _Automatic
) -> Quantisation:
    """Weights of as many bits whose rounding errors cancel in the layers' results (:mod:`.feedback`).

    Layers of which a wider modulus would be needed so keep their weights.
    """
    weights, biases, bounds = dict(found.weights), dict(found.biases), dict(found.bounds)
    for node in linears:
        nearest = found.weights[node.output]
        limit = int(np.abs(nearest.weight.astype(np.int64)).max(initial=0))
        fed = moments.rounded(node, np.asarray(node.weight, dtype=np.float64) / nearest.scale, limit)
        if fed is None or limit == 0:
            continue
        integers = fed[0].astype(nearest.weight.dtype)
        rows, l2 = row_norms(integers)
        own = Weights(integers, nearest.scale, float(l2.max(initial=0.0)), rows)
        form = found.activations[forms.root(forms.source[node.output])]
        bias, bound = _layer(node, own, fed[1] * nearest.scale, form)
        degree, before = found.ring_degree, found.bounds[node.output]
        if automatic.fits(degree, node, own, bound) or not automatic.fits(degree, node, nearest, before):
            weights[node.output], biases[node.output], bounds[node.output] = own, bias, bound
    return replace(found, weights=weights, biases=biases, bounds=bounds)


def _noise(
    nodes: Sequence[Linear],
    weights: Mapping[str, Weights],
    form: Activation,
    moments: tuple[Mapping[str, Array], Mapping[str, float]],
) -> float:
    """Variance of rounding in layers' results over their mean square, the sum of all: of weights, and of inputs.

    What rounded weights do to the mean is taken back by biases.
    """
    mean, square = moments
    total = 0.0
    for node in nodes:
        power, exact = square[node.input], np.asarray(node.weight, dtype=np.float64)
        own = weights[node.output]
        norm = float(np.square(exact).sum())
        if power > 0 and norm > 0:
            off = float(np.square(exact - own.weight * own.scale).sum())
            varying = max(power - float(np.square(mean[node.input]).mean()), 0.0)
            total += (form.scale**2 / 12 + off / norm * varying) / power
    return total


def _finer(
    found: Quantisation,
    linears: list[Linear],
    forms: Forms,
    given: tuple[Mapping[str, int], int, Mapping[str, Array]],
    automatic: _Automatic,
) -> Quantisation:
    """Weights of up to :data:`FINER_WEIGHTS` bits more than asked for in the layers whose modulus has room for them.

    Activations keep the bits that they have: few layers of a network have the longest sums.
    """
    least, asked, mean = given
    weights, biases, bounds = dict(found.weights), dict(found.biases), dict(found.bounds)
    for node in linears:
        form = found.activations[forms.root(forms.source[node.output])]
        for bits in range(min(asked + FINER_WEIGHTS, MOST_BITS), least[node.output], -1):
            finer = quantise_weights(node, bits)
            correction = bias_correction(node, finer, mean[node.input]) if node.input in mean else 0.0
            bias, bound = _layer(node, finer, correction, form)
            if automatic.fits(found.ring_degree, node, finer, bound):
                weights[node.output], biases[node.output], bounds[node.output] = finer, bias, bound
                break
    return replace(found, weights=weights, biases=biases, bounds=bounds)


def _check_bits(what: str, bits: Any) -> None:
    if not isinstance(bits, int) or not LEAST_BITS <= bits <= MOST_BITS:
        raise PlanError(f"{what} is {bits!r}; give a whole number from {LEAST_BITS} to {MOST_BITS}")


@dataclass(frozen=True)
class _Automatic:
    """The most bits that a layer's input can have without a wider modulus than its engine's cheap one."""

    most: int
    packed: bool

    def bits(self, degree: int, node: Linear, weights: Weights, correction: Array | float, limit: float) -> int:
        for bits in range(self.most, min(AUTO_BITS), -1):
            form = reading(limit, bits, [node], {node.output: weights})
            _, bound = _layer(node, weights, correction, form)
            if self.fits(degree, node, weights, bound):
                return bits
        return min(AUTO_BITS)

    def fits(self, degree: int, node: Linear, weights: Weights, bound: int) -> bool:
        """Whether a layer with these weights and this bound of its results has a modulus of its engine."""
        try:
            if not self.packed:
                parameters = stage_parameters(node.name, degree, weights.l2, bound, True)
                return parameters.modulus_bits <= cheap_modulus_bits(degree)
            if bound >= 1 << 63:
                return False
            flat = np.ascontiguousarray(weights.weight, dtype=np.int16).reshape(-1)
            _native.few_images_layer(json.dumps(plan_geometry(node.geometry)), degree, flat, bound)
        except (PlanError, ValueError):
            return False
        return True


def _layer(node: Linear, weights: Weights, correction: Array | float, form: Activation) -> tuple[Array, int]:
    bias = quantise_bias(node, form.scale * weights.scale, correction)
    bound = max((int(n) * form.bound + abs(int(b)) for n, b in zip(weights.rows, bias)), default=0)
    return bias, bound


def _at_degree(
    degree: int,
    linears: list[Linear],
    forms: Forms,
    layers: tuple[dict[str, Weights], dict[str, Array | float]],
    bits: int | _Automatic,
) -> Quantisation:
    weights, corrections = layers
    members: dict[str, list[Linear]] = {root: [] for root in forms.limit}
    for node in linears:
        members[forms.root(forms.source[node.output])].append(node)
    activations = {}
    for root, nodes in members.items():
        limit = forms.limit[root]
        if root in forms.whole:
            # whole numbers stand as they are, and the fewest bits that hold them leave the most for sums
            activations[root] = Activation(1.0, forms.whole[root], forms.whole[root].bit_length() + 1)
            continue
        chosen = (
            bits
            if not isinstance(bits, _Automatic)
            else min(
                (bits.bits(degree, n, weights[n.output], corrections[n.output], limit) for n in nodes),
                default=min(AUTO_BITS),
            )
        )
        activations[root] = reading(limit, int(chosen), nodes, weights)
    biases, bounds = {}, {}
    for node in linears:
        form = activations[forms.root(forms.source[node.output])]
        biases[node.output], bounds[node.output] = _layer(node, weights[node.output], corrections[node.output], form)
        stage_parameters(node.name, degree, weights[node.output].l2, bounds[node.output], True)
    return Quantisation(degree, weights, biases, bounds, activations)

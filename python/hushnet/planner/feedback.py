"""Rounding of weights with error feedback: what one rounded weight does to a layer's results, the next ones take back.

Rounding every weight to the nearest integer is best when a layer's inputs do not depend on one another. Neighbouring
pixels and channels of a trained network do. The errors of weights may then be larger, as long as they cancel in the
layer's results. With H the second moments of the inputs, weights are rounded one after the other, and the error of
each is taken from those that are left as H's inverse says (Frantar, Ashkboos, Hoefler, Alistarh, "GPTQ", ICLR 2023,
after Hassibi and Stork, "Second Order Derivatives for Network Pruning: Optimal Brain Surgeon", NIPS 1992). What is left
of the mean goes to the bias. Bytes, rings and stages stay as they are.

Moments come from every other row of the calibration data. The errors of a plan are measured on all rows, so half of
them are rows that rounding has not seen.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import numpy as np

from ..graph import Graph, Linear
from ..reference.linear import windows
from .ranges import plan_geometry

Array = np.ndarray

# rows of calibration data below which their moments say too little
LEAST_ROWS = 16
# input vectors of a layer that its moments are taken from, at most, and inputs that take part together
VECTORS, TOGETHER = 4096, 512
# layers of more inputs are rounded to nearest
MOST_INPUTS = 8192
# added to H's diagonal as a share of its mean: at least so much, and more where few vectors tell it
DAMPING, FEW = 0.01, 0.25
# the least mean square that vectors are compared with: it may be zero
TINY = 1e-30
# columns whose errors are passed on to the rest in one product
STEP = 64


class Moments:
    """Second moments of what the layers of a graph read.

    Taken once while ranges are calibrated (:meth:`watch`); then :meth:`rounded` is asked for layers by name.
    """

    def __init__(self) -> None:
        self.sums: dict[str, list[Array]] = {}
        self.totals: dict[str, Array] = {}
        self.counts: dict[str, float] = {}
        self.factors: dict[str, list[tuple[Array, Array]]] = {}
        self.whole = False

    def watch(self, graph: Graph, values: Mapping[str, Array], start: int, rows: int) -> None:
        """Adds the values of all tensors for some of the ``rows``, from row ``start`` on."""
        if self.whole:
            return
        for node in graph.nodes:
            if isinstance(node, Linear) and node.weight[0].size <= MOST_INPUTS:
                kept = values[node.input][start % 2 :: 2]
                share = -(-2 * VECTORS * len(kept) // rows)
                if len(kept):
                    self.add(node, windows(plan_geometry(node.geometry), kept, share, np.random.default_rng(start)))
        count = len(next(iter(values.values())))
        self.whole = start + count >= rows

    def add(self, node: Linear, x: Array) -> None:
        """Adds input vectors ``x`` of a layer, binary32 ``[vectors, groups, inputs]``.

        Each counts the less, the longer it is beside the others: a few tokens of a transformer are fifty times as long
        as the rest, and without it roundings would suit these alone.
        """
        power = np.square(x).sum(axis=(1, 2))
        counted = 1.0 / (1.0 + power / max(float(power.mean()), TINY))
        sums = self.sums.setdefault(node.output, [])
        for place, (begin, end) in enumerate(parts(x.shape[2])):
            part = x[:, :, begin:end] * np.sqrt(counted)[:, None, None]
            product = np.matmul(part.transpose(1, 2, 0), part.transpose(1, 0, 2)).astype(np.float64)
            if place < len(sums):
                sums[place] += product
            else:
                sums.append(product)
        self.totals[node.output] = self.totals.get(node.output, 0.0) + np.einsum(
            "v,vgk->gk", counted, x, dtype=np.float64
        )
        self.counts[node.output] = self.counts.get(node.output, 0.0) + float(counted.sum())

    def factor(self, name: str) -> list[tuple[Array, Array]]:
        """For every part of a layer's inputs the order that they are rounded in, and the Cholesky factor of H^-1."""
        if name not in self.factors:
            count, found = self.counts[name], []
            for sums in self.sums.pop(name):
                moments, width = sums / count, sums.shape[1]
                diagonal = np.einsum("gkk->gk", moments)
                # inputs that are always zero take no part; a layer that reads nothing else is rounded to nearest
                damping = max(DAMPING, FEW * width / count) * diagonal.mean(axis=1)
                damping[damping == 0.0] = 1.0
                order = np.argsort(-diagonal, axis=1, kind="stable")
                sorted_ = np.take_along_axis(np.take_along_axis(moments, order[:, :, None], 1), order[:, None, :], 2)
                inverse = np.linalg.inv(sorted_ + damping[:, None, None] * np.eye(width))
                upper = np.linalg.cholesky(inverse).transpose(0, 2, 1)
                found.append((order, upper.astype(np.float32)))
            self.factors[name] = found
        return self.factors[name]

    def rounded(self, layer: Linear, scaled: Array, limit: int) -> tuple[Array, Array, float] | None:
        """Integers near ``scaled`` weights, of at most ``limit`` in absolute value, and what is left of their errors.

        Returns:
            The integers, what the bias has to gain (one number for every row), and the root mean square of what
            rounding does to a result; the last two are in units of the scaled weights times inputs. None where there
            are no moments for the layer.
        """
        if layer.output not in self.counts:
            return None
        groups, inputs = self.totals[layer.output].shape
        if scaled[0].size != inputs or len(scaled) % groups:
            return None
        # [groups, inputs, rows]
        exact = scaled.reshape(groups, -1, inputs).transpose(0, 2, 1)
        out, power = np.empty_like(exact), 0.0
        for (begin, end), (order, upper) in zip(parts(inputs), self.factor(layer.output)):
            rows = np.take_along_axis(exact[:, begin:end], order[:, :, None], 1)
            found, left = passed_on(rows, upper, limit)
            np.put_along_axis(out[:, begin:end], order[:, :, None], found, 1)
            power += left
        mean = self.totals[layer.output] / self.counts[layer.output]
        shift = np.einsum("gko,gk->go", exact - out, mean).reshape(-1)
        return out.transpose(0, 2, 1).reshape(scaled.shape), shift, math.sqrt(power / len(scaled))


def parts(inputs: int) -> Iterator[tuple[int, int]]:
    """Ranges of inputs that take part in one another's errors: of nearly one size, at most :data:`TOGETHER`."""
    count = -(-inputs // TOGETHER)
    return ((inputs * i // count, inputs * (i + 1) // count) for i in range(count))


def passed_on(weights: Array, upper: Array, limit: int) -> tuple[Array, float]:
    """Integers for weights ``[groups, inputs, rows]``, rounded in the order of inputs.

    And the mean square of what that does to a result, summed over all of them: errors times H times errors.
    """
    left, out, power = weights.copy(), np.empty_like(weights), 0.0
    inputs = left.shape[1]
    for begin in range(0, inputs, STEP):
        end = min(begin + STEP, inputs)
        errors = np.empty((len(left), end - begin, left.shape[2]))
        for k in range(begin, end):
            out[:, k] = np.clip(np.rint(left[:, k]), -limit, limit)
            error = (left[:, k] - out[:, k]) / upper[:, k, k, None]
            left[:, k + 1 : end] -= upper[:, k, k + 1 : end, None] * error[:, None]
            errors[:, k - begin] = error
        power += float(np.square(errors).sum())
        left[:, end:] -= np.matmul(upper[:, begin:end, end:].transpose(0, 2, 1), errors)
    return out, power

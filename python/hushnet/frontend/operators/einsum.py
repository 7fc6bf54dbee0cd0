"""Einsum: pairs of operands, of which a constant one makes a layer of the server."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..builder import Builder, Value
from ..call import Call
from ..errors import Unsupported
from ..registry import operator
from . import pieces
from .matmul import contract

Tensor = Value | np.ndarray


@dataclass(frozen=True)
class Term:
    """An operand with a label for every axis."""

    tensor: Tensor
    labels: str


def _parsed(call: Call) -> tuple[list[str], str]:
    """Labels of operands and result, the ellipsis written out; NumPy's rules."""
    equation = str(call.attribute("equation", "")).replace(" ", "")
    left, arrow, right = equation.partition("->")
    terms = left.split(",")
    if len(terms) != len(call.inputs):
        raise Unsupported(f"the equation {equation!r} for {len(call.inputs)} operands", "Export the model again.")
    ranks = [len(i.shape) + 1 if isinstance(i, Value) else np.ndim(i) for i in call.inputs]  # type: ignore[arg-type]
    widest = max((r - len(t.replace("...", "")) for t, r in zip(terms, ranks) if "..." in t), default=0)
    free = [c for c in "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz" if c not in equation]
    dots = "".join(free[:widest])
    if not arrow:
        plain = left.replace("...", "").replace(",", "")
        right = ("..." if "..." in left else "") + "".join(sorted(c for c in set(plain) if plain.count(c) == 1))
    expanded = []
    for term, rank in zip(terms, ranks):
        count = rank - len(term.replace("...", ""))
        if count < 0 or (count and "..." not in term):
            raise Unsupported(f"the term {term!r} for a tensor with {rank} axes", "Export the model again.")
        expanded.append(term.replace("...", dots[len(dots) - count :]))
    return expanded, right.replace("...", dots)


def _inner(call: Call, terms: list[str], result: str) -> tuple[list[Term], str]:
    """Operands of one image: the label of the batch is dropped, and must lead the result."""
    private = [t[0] for i, t in zip(call.inputs, terms) if isinstance(i, Value) and t]
    batch = private[0] if private else ""
    found = []
    for index, labels in enumerate(terms):
        if isinstance(call.inputs[index], Value):
            value = call.tensor(index)
            if labels[:1] != batch or batch in labels[1:] or not result.startswith(batch):
                raise Unsupported(
                    f"the equation moves or sums the batch (label {batch!r})",
                    "Keep the batch as the first axis of every term.",
                )
            found.append(Term(value, labels[1:]))
            continue
        constant: np.ndarray = call.constant(index).astype(np.float64)
        if batch in labels:
            axis = labels.index(batch)
            if np.any(constant != constant.take([0], axis=axis)):
                raise Unsupported(
                    "a constant that differs from image to image of the batch", "Use the same constant for all images."
                )
            constant, labels = np.asarray(constant.take(0, axis=axis)), labels.replace(batch, "")
        found.append(Term(constant, labels))
    return found, result[1:]


def _diagonals(build: Builder, term: Term) -> Term:
    """Axes with one label become one axis."""
    for label in sorted(set(term.labels)):
        while term.labels.count(label) > 1:
            shape = term.tensor.shape
            first = term.labels.index(label)
            second = term.labels.index(label, first + 1)
            size = shape[first]
            if shape[second] != size:
                raise Unsupported(
                    f"the label {label!r} for axes of {size} and {shape[second]}", "Export the model again."
                )
            flat = np.arange(math.prod(shape)).reshape(shape)
            positions = np.moveaxis(np.diagonal(flat, axis1=first, axis2=second), -1, first)
            tensor = (
                pieces.take_flat(build, term.tensor, positions)
                if isinstance(term.tensor, Value)
                else term.tensor.reshape(-1)[positions]
            )
            term = Term(tensor, term.labels[:second] + term.labels[second + 1 :])
    return term


def _summed(build: Builder, term: Term, kept: Sequence[str]) -> Term:
    """Without the labels that nothing else reads."""
    axes = [a for a, c in enumerate(term.labels) if c not in kept]
    labels = "".join(c for c in term.labels if c in kept)
    if not axes:
        return term
    if isinstance(term.tensor, Value):
        return Term(pieces.reduce(build, "reduce_sum", term.tensor, axes, keep=False), labels)
    return Term(term.tensor.sum(axis=tuple(axes)), labels)


def _ordered(build: Builder, term: Term, groups: Sequence[str]) -> Tensor:
    """Axes in the order of the labels of the groups, every group one axis."""
    labels = "".join(groups)
    perm = [term.labels.index(c) for c in labels]
    shape = [math.prod(term.tensor.shape[term.labels.index(c)] for c in g) for g in groups]
    if isinstance(term.tensor, Value):
        return build.reshape(build.transpose(term.tensor, perm), shape)
    return term.tensor.transpose(perm).reshape(shape)


def _pair(build: Builder, a: Term, b: Term, kept: str) -> Term:
    """The product of two terms, summed over the labels that are not kept."""
    if isinstance(a.tensor, np.ndarray) and isinstance(b.tensor, np.ndarray):
        labels = "".join(dict.fromkeys(c for c in a.labels + b.labels if c in kept))
        return Term(np.einsum(f"{a.labels},{b.labels}->{labels}", a.tensor, b.tensor), labels)
    if isinstance(a.tensor, np.ndarray):
        a, b = b, a
    sizes = dict(zip(b.labels, b.tensor.shape)) | dict(zip(a.labels, a.tensor.shape))
    both = [c for c in a.labels if c in b.labels]
    batch, summed = "".join(c for c in both if c in kept), "".join(c for c in both if c not in kept)
    rows, columns = ("".join(c for c in t.labels if c not in both) for t in (a, b))
    if any(a.tensor.shape[a.labels.index(c)] != b.tensor.shape[b.labels.index(c)] for c in both):
        raise Unsupported(
            f"terms {a.labels!r} and {b.labels!r} with axes of different sizes", "Expand the axes of size 1."
        )
    left = _ordered(build, a, (batch, rows, summed))
    assert isinstance(left, Value)
    right = _ordered(build, b, (batch, summed, columns))
    y = pieces.product(build, left, right) if isinstance(right, Value) else contract(build, left, right, 1, 2)
    labels = batch + rows + columns
    return Term(build.reshape(y, [sizes[c] for c in labels]), labels)


@operator("Einsum")
def einsum(call: Call, build: Builder) -> Value:
    """Sums of products over labels, operand by operand from the left."""
    terms, result = _inner(call, *_parsed(call))
    terms = [_diagonals(build, t) for t in terms]
    while True:
        others = ["".join(t.labels for j, t in enumerate(terms) if j != i) + result for i in range(len(terms))]
        terms = [_summed(build, t, rest) for t, rest in zip(terms, others)]
        if len(terms) == 1:
            break
        kept = "".join(t.labels for t in terms[2:]) + result
        terms = [_pair(build, terms[0], terms[1], kept), *terms[2:]]
    (last,) = terms
    assert isinstance(last.tensor, Value)
    missing = [c for c in result if c not in last.labels]
    if missing or len(set(result)) != len(result):
        raise Unsupported(f"labels {result!r} of the result that no operand has, or twice", "Export the model again.")
    return build.transpose(last.tensor, [last.labels.index(c) for c in result])

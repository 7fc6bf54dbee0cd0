"""A graph whose activations are polynomials as steps: what every tensor is, as a polynomial of elements of another.

Every tensor of the graph is followed as a *view*: ``p(base[index])`` with one polynomial p for all elements, a base
tensor that some step makes, and the element of it that stands at every place (-1: a constant zero). Elementwise
arithmetic on views of one base is arithmetic on polynomials, so that squares, Horner's rule and sums of powers all
become one step with its coefficients; reshapes, transposes, slices and paddings only change the index, which dense
layers absorb in their weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import cast

import numpy as np
from numpy.polynomial import polynomial as poly

from ... import graph as g
from ...errors import Blocked, BlockedPlan, PlanError
from ...passes.replace_activations import ACTIVATIONS
from ...reference.linear import apply
from ...reference.ops import OPS
from ..ranges import plan_geometry
from .matrices import behind_affine, channels_back, check_matrix, matrix_fits, matrix_of, restricted, restricts
from .products import MatrixProduct, product, product_of_all
from .steps import Add, Array, Linear, Multiply, Polynomial, Steps, sources
from .views import IDENTITY, Parts, View, channel_order, moved, pieces, same

# channels, rows and columns
Image = tuple[int, int, int]

MAX_DEGREE = 64
# weights of a dense layer from which a join of channels is a convolution instead
MANY = 1 << 20

_ACTIVATE = (
    "give --activation minimax with --batch 1 (polynomials that come as near to it as the precision needs), or square, "
    "swish-rg5-deg2, swish-rg7-deg4 or poly:degree=d,range=r (and train the network again with it)"
)
_ELSEWHERE = "or use trust='two-party' or trust='client-aided', which compute it"
_NORMALISE = f"normalise by constants, as BatchNormalization does (and train the network again with it), {_ELSEWHERE}"
_COMPARED = "comparisons are not polynomial; leave it out, or use trust='client-aided', which computes it"
_ADVICE = {
    **dict.fromkeys(ACTIVATIONS, _ACTIVATE),
    "max_pool": "use average pooling (and train the network again with it)",
    "reduce_max": "use a mean (and train the network again with it)",
    "softmax": f"only the end of the network may normalise; move it behind the last layer, {_ELSEWHERE}",
    **dict.fromkeys(("div", "sqrt"), _NORMALISE),
    **dict.fromkeys(("minimum", "maximum", "less", "equal", "top_k"), _COMPARED),
}


def refusal(blocked: list[Blocked]) -> BlockedPlan:
    """The error that says all of them."""
    lines = "\n".join(
        f"  node {b.node!r}: {b.problem}; {b.advice[:1].lower()}{b.advice[1:].rstrip('.')}" for b in blocked
    )
    return BlockedPlan(
        f"non-interactive evaluation knows sums, products and polynomials only; it cannot compute\n{lines}", blocked
    )


def other_ops(nodes: Sequence[g.Node]) -> list[Blocked]:
    """Every op that no polynomial computes, with what to do."""
    return [
        Blocked(n.name, n.op, f"{n.op} is neither linear nor a polynomial", f"{a[:1].upper()}{a[1:]}.")
        for n in nodes
        if isinstance(n, g.Op) and (a := _advice(n)) is not None
    ]


def _advice(node: g.Op) -> str | None:
    known = node.op == "concat" or hasattr(_Lowering, f"op_{node.op}")
    return _ADVICE.get(node.op, None if known else f"leave it out, {_ELSEWHERE}")


def lower(graph: g.Graph, ranges: dict[str, float], magnitudes: dict[str, float] | None = None) -> Steps:
    """Steps of a graph with one input and one output.

    Args:
        graph: the part between head and tail (:func:`hushnet.passes.split_ends`).
        ranges: planned range of pre-activations, by tensor name; infinite where none is given.
        magnitudes: largest values of what products of private tensors read, by tensor name, as far as they are known.

    Raises:
        BlockedPlan: all nodes that cannot be lowered, and what to do.
    """
    found = other_ops(graph.nodes)
    if found:
        raise refusal(found)
    return _Lowering(graph, ranges, magnitudes or {}).run()


class _Lowering:
    def __init__(self, graph: g.Graph, ranges: dict[str, float], magnitudes: dict[str, float]) -> None:
        self.graph, self.ranges, self.magnitudes = graph, ranges, magnitudes
        self.out = Steps()
        self.views: dict[str, View | Parts] = {}
        self.made: dict[tuple[int, tuple[float, ...]], int] = {}
        self.graph_name: dict[int, str] = {}

    def run(self) -> Steps:
        name = self.graph.inputs[0]
        self.out.input = self.out.tensor(name, self.graph.shapes[name])
        self.graph_name[self.out.input] = name
        self.views[name] = View(self.out.input, self.graph.shapes[name])
        blocked = []
        for node in self.graph.nodes:
            try:
                self.views[node.output] = self.linear(node) if isinstance(node, g.Linear) else self.op(node)
            except PlanError as error:
                blocked.append(_told(node, error))
                # what follows reads a tensor that comes from nowhere, so that it is looked at too
                shape = self.graph.shapes[node.output]
                self.views[node.output] = View(self.out.tensor(node.output, shape), shape)
        if blocked:
            raise refusal(blocked)
        last = self.single(self.views[self.graph.outputs[0]], self.graph.outputs[0])
        place = f"output {self.graph.outputs[0]!r}"
        self.out.output = self.materialise(self.in_order(last, place), self.graph.outputs[0])
        return self.out

    # layers

    def linear(self, node: g.Linear) -> View:
        source = self.views[node.input]
        shape = self.graph.shapes[node.output]
        if isinstance(source, Parts) and all(restricts(node, where, view.shape) for view, where in pieces(source)):
            parts = [
                self.one_linear(replace(node, name=f"{node.name}.part{i}"), view, shape)
                for i, view in enumerate(pieces(source))
            ]
            # every part has all outputs; the bias counts once
            return View(self.add(node.name, node.output, [p.base for p in parts], shape), shape)
        return self.one_linear(node, (self.single(source, f"{node.name}.in"), None), shape)

    def one_linear(self, node: g.Linear, piece: tuple[View, Array | None], shape: tuple[int, ...]) -> View:
        view, where = piece
        bias = node.bias if where is None or 0 in where else np.zeros_like(node.bias)
        geometry = plan_geometry(node.geometry)
        weights = np.asarray(node.weight, dtype=np.float64)
        if where is not None:
            geometry, weights = restricted(node, geometry, weights, where)
        if isinstance(node.geometry, g.Dense):
            return self.dense(node.name, node.output, weights, bias, view)
        if not self.is_image(view, tuple(geometry["input"]), node) and matrix_fits(
            math.prod(geometry["output"]), math.prod(geometry["input"])
        ):
            # as a matrix, a convolution reads elements in any order
            made = self.dense(
                node.name,
                node.output,
                matrix_of(geometry, weights),
                np.repeat(bias, math.prod(geometry["output"][1:])),
                view,
            )
            self.out.tensors[made.base].shape = shape
            return View(made.base, shape)
        view = self.as_image(view, tuple(geometry["input"]), node, weights)
        geometry, weights = channels_back(view, geometry, weights, self.out.tensors[view.base].shape)
        base, (shift, scale) = self.affine_of(view)
        image = np.asarray(bias, dtype=np.float64)
        if (shift, scale) != IDENTITY:
            weights, image = behind_affine(geometry, weights, image, scale, shift)
        return View(self.append(node.name, node.output, geometry, weights, image, base, shape), shape)

    def dense(self, name: str, output: str, weights: Array, bias: Array, view: View) -> View:
        """A dense layer over any view."""
        base, (shift, scale) = self.affine_of(view)
        columns = weights * (1.0 if view.weight is None else view.weight.reshape(-1))
        index = view.flat()
        size = self.out.tensors[base].size
        if view.index is None:
            rows = columns * scale
        else:
            rows = np.zeros((len(weights), size))
            known = index >= 0
            places = index[known]
            if len(np.unique(places)) == len(places):
                rows[:, places] = scale * columns[:, known]
            else:
                # transposed, because the rows of an index array need no slice beside them
                np.add.at(rows.T, places, (scale * columns[:, known]).T)
        # a constant zero of a padding stays zero
        total = bias + shift * columns[:, index >= 0].sum(axis=1)
        geometry = {"type": "dense", "inputs": size, "outputs": len(weights)}
        return View(self.append(name, output, geometry, rows, total, base, (len(weights),)), (len(weights),))

    def append(
        self, name: str, output: str, geometry: dict, weights: Array, bias: Array, source: int, shape: tuple[int, ...]
    ) -> int:
        target = self.out.tensor(output, shape)
        self.graph_name.setdefault(target, output)
        self.out.steps.append(Linear(name, geometry, weights, np.asarray(bias, dtype=np.float64), source, target))
        return target

    def affine_of(self, view: View) -> tuple[int, tuple[float, float]]:
        """A base and (constant, factor): the view's polynomial where it is of degree 1, otherwise a step of its own."""
        if len(view.coefficients) == 2:
            return view.base, (view.coefficients[0], view.coefficients[1])
        return self.powers(view.base, view.coefficients), IDENTITY

    def powers(self, base: int, coefficients: tuple[float, ...]) -> int:
        """The polynomial of a base, made once."""
        key = (base, coefficients)
        if key not in self.made:
            tensor = self.out.tensors[base]
            target = self.out.tensor(f"{tensor.name}.activation", tensor.shape)
            limit = self.ranges.get(self.graph_name.get(base, ""), math.inf)
            self.out.steps.append(Polynomial(f"{tensor.name}.activation", coefficients, base, target, (-limit, limit)))
            self.made[key] = target
        return self.made[key]

    def materialise(self, view: View, name: str) -> int:
        """A tensor with the values of a view that is in order."""
        base, (shift, scale) = self.affine_of(view)
        if (shift, scale) == IDENTITY:
            return base
        return self.scaled(base, scale, shift, name)

    def scaled(self, base: int, scale: float, shift: float, name: str) -> int:
        """``scale base + shift`` as a diagonal layer (which later passes fold where they can)."""
        shape = self.out.tensors[base].shape
        if len(shape) == 3:
            geometry = plan_geometry(g.Conv2d(shape, shape, (1, 1), groups=shape[0]))
            weights = np.full((shape[0], 1, 1, 1), scale)
            return self.append(f"{name}.scale", name, geometry, weights, np.full(shape[0], shift), base, shape)
        size = math.prod(shape)
        check_matrix(name, size, size)
        geometry = {"type": "dense", "inputs": size, "outputs": size}
        return self.append(f"{name}.scale", name, geometry, scale * np.eye(size), np.full(size, shift), base, shape)

    def add(self, name: str, output: str, parts: list[int], shape: tuple[int, ...]) -> int:
        target = self.out.tensor(output, shape)
        self.graph_name.setdefault(target, output)
        self.out.steps.append(Add(name, tuple(parts), target))
        return target

    def single(self, view: View | Parts, name: str) -> View:
        """One tensor in the place of a concatenation: the sum of layers that put every part at its place."""
        if isinstance(view, View):
            return view
        size = math.prod(view.shape)
        made = []
        for number, (part, where) in enumerate(pieces(view)):
            place = f"{name}.part{number}"
            if view.axis == 0 and len(view.shape) == 3 and size * len(where) > MANY:
                made.append(self.channels_placed(place, part, where, view.shape))
                continue
            check_matrix(name, size, len(where))
            rows = np.zeros((size, len(where)))
            rows[where, np.arange(len(where))] = 1.0
            made.append(self.dense(place, place, rows, np.zeros(size), part).base)
        for tensor in made:
            self.out.tensors[tensor].shape = view.shape
        return View(self.add(f"{name}.joined", name, made, view.shape), view.shape)

    def channels_placed(self, name: str, part: View, where: Array, shape: tuple[int, ...]) -> int:
        """Channels at their place among others, which are zero: a convolution of one tap."""
        channels = np.unique(where // math.prod(shape[1:]))
        weights = np.zeros((shape[0], len(channels), 1, 1))
        weights[channels, np.arange(len(channels))] = 1.0
        layer = g.Linear(name, "", name, g.Conv2d(part.shape, shape, (1, 1)), weights, np.zeros(shape[0]))  # type: ignore[arg-type]
        return self.one_linear(layer, (part, None), shape).base

    def ordered(self, view: View, shape: tuple[int, ...], name: str) -> View:
        """The elements of a view, weights included, as a tensor of their own: a layer that picks them."""
        size = math.prod(shape)
        check_matrix(name, size, size)
        made = self.dense(f"{name}.order", f"{name}.order", np.eye(size), np.zeros(size), view)
        self.out.tensors[made.base].shape = shape
        return View(made.base, shape)

    # shapes

    def is_image(self, view: View, image: tuple[int, ...], node: g.Linear) -> bool:
        """Whether a convolution can read the view as it is, or a dense layer in front of it can put it in order."""
        base, index = self.out.tensors[view.base], view.flat()
        if view.weight is not None:
            return False
        if np.array_equal(index, np.arange(base.size)):
            return base.shape == image or not self.image_layer(view.base)
        if node.geometry.groups == 1 and channel_order(index, image, base.shape) is not None:  # type: ignore[union-attr]
            return True
        return self.from_dense(view)

    def from_dense(self, view: View) -> bool:
        """Whether a dense layer makes the view's base, and could make it in the view's order."""
        step = self.out.producer(view.base)
        whole = np.array_equal(np.sort(view.flat()), np.arange(self.out.tensors[view.base].size))
        return isinstance(step, Linear) and step.geometry["type"] == "dense" and whole

    def as_image(self, view: View, image: tuple[int, ...], node: g.Linear, weights: Array) -> View:
        """The view with a base of the shape that a convolution reads, in order up to a permutation of channels."""
        if view.weight is not None:
            return self.ordered(view, image, node.name)
        base = self.out.tensors[view.base]
        index = view.flat()
        if np.array_equal(index, np.arange(base.size)):
            if base.shape != image and self.image_layer(view.base):
                return self.ordered(view, image, node.name)
            self.reshape(view.base, image, node.name)
            return View(view.base, image, view.coefficients)
        if node.geometry.groups == 1 and channel_order(index, image, base.shape) is not None:  # type: ignore[union-attr]
            return View(view.base, image, view.coefficients, index.reshape(image))
        return self.permuted(view, image, f"layer {node.name!r}")

    def permuted(self, view: View, shape: tuple[int, ...], place: str) -> View:
        """The view with the permutation moved into (a copy of) the dense layer that makes its base."""
        index = view.flat()
        base = self.out.tensors[view.base]
        step = self.out.producer(view.base)
        if not self.from_dense(view) or not isinstance(step, Linear):
            return self.ordered(view, shape, place)
        name = self.graph_name.get(view.base, base.name)
        made = self.append(step.name, name, step.geometry, step.weights[index], step.bias[index], step.source, shape)
        return View(made, shape, view.coefficients)

    def in_order(self, view: View, place: str) -> View:
        """The view without index and weights, its base shaped like it where that is possible."""
        if view.weight is not None:
            return self.ordered(view, view.shape, place)
        if np.array_equal(view.flat(), np.arange(self.out.tensors[view.base].size)):
            return View(view.base, self.out.tensors[view.base].shape, view.coefficients)
        return self.permuted(view, view.shape, place)

    def image_layer(self, tensor: int) -> Linear | None:
        """A convolution that reads or makes a tensor, or one that elementwise steps link to it."""
        linked = self.linked(tensor)
        found = (
            s
            for s in self.out.linears()
            if s.geometry["type"] == "conv2d" and (s.source in linked or s.target in linked)
        )
        return next(found, None)

    def linked(self, tensor: int) -> set[int]:
        """Tensors that elementwise steps link to one; all have its shape."""
        linked, pending = {tensor}, [tensor]
        while pending:
            current = pending.pop()
            for step in self.out.steps:
                near = {*sources(step), step.target}
                if current in near and not isinstance(step, Linear):
                    pending += near - linked
                    linked |= near
        return linked

    def reshape(self, tensor: int, shape: tuple[int, ...], place: str) -> None:
        """Gives a tensor, and all that elementwise steps link to it, another shape."""
        if self.out.tensors[tensor].shape == shape:
            return
        step = self.image_layer(tensor)
        if step is not None:
            old = self.out.tensors[tensor].shape
            raise PlanError(
                f"layer {place!r} reads {old} as {shape}, and layer {step.name!r} has it as an image: only dense "
                "layers can reshape"
            )
        for key in self.linked(tensor):
            self.out.tensors[key].shape = shape

    # ops

    def op(self, node: g.Op) -> View | Parts:
        shape = self.graph.shapes[node.output]
        ins = [self.views[name] for name in node.inputs]
        if node.op == "concat":
            return self.concat(node, ins, shape)
        if any(isinstance(v, Parts) for v in ins):
            if node.op == "reshape" and len(shape) == 1 and isinstance(ins[0], Parts) and ins[0].axis == 0:
                return Parts(tuple(moved(v, node.op, {}, (math.prod(v.shape),)) for v in ins[0].views), 0, shape)
            if node.op in _ELEMENTWISE and isinstance(ins[0], Parts):
                return replace(ins[0], views=tuple(self.unary(node, v) for v in ins[0].views))
        views = [
            self.single(v, f"{node.output}.in{i}" if len(ins) > 1 else f"{node.output}.in") for i, v in enumerate(ins)
        ]
        method: Callable[..., View] | None = getattr(self, f"op_{node.op}", None)
        if method is None:
            raise PlanError(f"node {node.name!r} ({node.op}) is neither linear nor a polynomial; leave it out")
        return method(node, shape, *views)

    def unary(self, node: g.Op, view: View) -> View:
        """An elementwise op of one operand."""
        return getattr(self, f"op_{node.op}")(node, view.shape, view)

    def concat(self, node: g.Op, ins: list[View | Parts], shape: tuple[int, ...]) -> Parts:
        axis = node.attrs["axis"]
        views: list[View] = []
        for view in ins:
            if isinstance(view, Parts) and view.axis != axis:
                view = self.single(view, f"{node.output}.in{len(views)}")
            views += view.views if isinstance(view, Parts) else [view]
        return Parts(tuple(views), axis, shape)

    def op_affine(self, node: g.Op, shape: tuple[int, ...], x: View) -> View:
        found = self.with_polynomial(
            node, x, poly.polyadd(np.multiply(x.coefficients, node.attrs["mul"]), [node.attrs["add"]])
        )
        last = self.out.steps[-1] if node.attrs.get("product") else None
        if isinstance(last, Multiply) and x.coefficients == IDENTITY:
            last.constant += node.attrs["add"]
            return x
        return self.own_step(node, found) if node.attrs.get("step") else found

    def own_step(self, node: g.Op, view: View) -> View:
        """A view whose polynomial is a step of its own, and part of an activation."""
        if len(view.coefficients) == 2:
            base = self.materialise(view, node.output)
            if base != view.base:
                self.graph_name[base] = node.inputs[0]
        else:
            limit = self.ranges.get(self.graph_name.get(view.base, ""), math.inf)
            base = self.out.tensor(node.output, self.out.tensors[view.base].shape)
            step = Polynomial(node.name, view.coefficients, view.base, base, (-limit, limit), part=True)
            self.out.steps.append(step)
        return replace(view, base=base, coefficients=IDENTITY)

    def op_neg(self, node: g.Op, shape: tuple[int, ...], x: View) -> View:
        return self.with_polynomial(node, x, -np.asarray(x.coefficients))

    def op_square(self, node: g.Op, shape: tuple[int, ...], x: View) -> View:
        return self.with_polynomial(node, x, poly.polymul(x.coefficients, x.coefficients))

    def op_mul(self, node: g.Op, shape: tuple[int, ...], x: View, y: View) -> View:
        if node.attrs.get("step"):
            target = self.out.tensor(node.output, self.out.tensors[x.base].shape)
            self.graph_name.setdefault(target, node.output)
            self.out.steps.append(Multiply(node.name, (x.base, y.base), target))
            return replace(x, base=target)
        return product(self, node, shape, x, y)

    def op_matmul(self, node: g.Op, shape: tuple[int, ...], x: View, y: View) -> View:
        return MatrixProduct(self, node, shape).run(x, y)

    def op_reduce_prod(self, node: g.Op, shape: tuple[int, ...], x: View) -> View:
        return product_of_all(self, node, shape, x)

    def with_polynomial(self, node: g.Op, view: View, coefficients: Array) -> View:
        if view.weight is not None:
            view = self.ordered(view, view.shape, node.name)
        trimmed = poly.polytrim(np.asarray(coefficients, dtype=np.float64))
        if view.index is not None and np.any(view.index < 0) and trimmed[0] != 0.0:
            # zeros of a padding become elements like all others
            return self.with_polynomial(node, self.ordered(view, view.shape, node.name), coefficients)
        if len(trimmed) - 1 > MAX_DEGREE:
            raise PlanError(
                f"node {node.name!r}: a polynomial of degree {len(trimmed) - 1}, more than "
                f"{MAX_DEGREE}; use a lower power"
            )
        padded = (*map(float, trimmed), 0.0) if len(trimmed) == 1 else tuple(map(float, trimmed))
        return replace(view, coefficients=padded)

    def op_add(self, node: g.Op, shape: tuple[int, ...], x: View, y: View) -> View:
        if same(x, y):
            return self.with_polynomial(node, x, poly.polyadd(x.coefficients, y.coefficients))
        x, y = self.aligned(x, y, node)
        base = self.add(
            node.name,
            node.output,
            [self.materialise(v, f"{node.output}.term") for v in (x, y)],
            self.out.tensors[x.base].shape,
        )
        index = None if self.out.tensors[base].shape == shape else np.arange(math.prod(shape)).reshape(shape)
        return View(base, shape, index=index)

    def op_sub(self, node: g.Op, shape: tuple[int, ...], x: View, y: View) -> View:
        return self.op_add(node, shape, x, self.op_neg(node, shape, y))

    def aligned(self, x: View, y: View, node: g.Op) -> tuple[View, View]:
        """Two views whose elements are in order, with bases of one shape."""
        place = f"node {node.name!r} ({node.op})"
        x, y = self.in_order(x, place), self.in_order(y, place)
        if x.shape != y.shape:
            x, y = self.one_shape(x, y, node)
        return replace(x, shape=self.out.tensors[x.base].shape), replace(y, shape=self.out.tensors[y.base].shape)

    def one_shape(self, x: View, y: View, node: g.Op) -> tuple[View, View]:
        """Two views in order, the base of one of them given the shape of the other's."""
        for tensor, shape in ((y.base, x.shape), (x.base, y.shape)):
            try:
                self.reshape(tensor, shape, node.name)
                return x, y
            except PlanError:
                continue
        return x, self.ordered(y, x.shape, f"{node.name}.order")

    def _move(self, node: g.Op, shape: tuple[int, ...], x: View) -> View:
        value = node.attrs["value"] if node.op == "pad" else 0.0
        if value != 0.0:
            below = self.with_polynomial(node, x, poly.polyadd(x.coefficients, [-value]))
            return self.with_polynomial(
                node,
                self._move(replace(node, attrs={**node.attrs, "value": 0.0}), shape, below),
                np.array([value, 1.0]),
            )
        if node.op == "pad" and (x.coefficients[0] != 0.0):
            # a polynomial with a constant must be computed before zeros come in
            x = replace(
                x, base=self.materialise(replace(x, index=None), f"{node.output}.source"), coefficients=IDENTITY
            )
        return moved(x, node.op, node.attrs, shape)

    op_reshape = op_transpose = op_slice = op_broadcast = op_pad = op_gather = _move

    def op_interpolate(self, node: g.Op, shape: tuple[int, ...], x: View) -> View:
        """A layer with the op's weights."""
        rows, columns = math.prod(shape), math.prod(x.shape)
        check_matrix(node.name, rows, columns)
        matrix = OPS[node.op](node.attrs, [np.eye(columns).reshape(columns, *x.shape)], shape).reshape(columns, rows).T
        return moved(self.dense(node.name, node.output, matrix, np.zeros(rows), x), "reshape", {}, shape)

    # means and sums

    def op_average_pool(self, node: g.Op, shape: tuple[int, ...], x: View) -> View:
        source, kernel = x.shape, node.attrs["kernel"]
        if len(kernel) == 3:
            return self.pool_of_space(node, shape, x)
        geometry = g.Conv2d(
            cast(Image, source),
            cast(Image, shape),
            tuple(kernel),
            tuple(node.attrs["stride"]),
            tuple(node.attrs["pads"]),
            (1, 1),
            source[0],
        )
        ones, zeros = np.ones((source[0], 1, *kernel)), np.zeros(source[0])
        if node.attrs["count_include_pad"]:
            held = np.full(shape, float(math.prod(kernel)))
        else:
            held = apply(plan_geometry(geometry), ones, np.ones((1, *source)))[0]
        even = bool(np.all(held == held.flat[0]))
        layer = g.Linear(node.name, node.inputs[0], node.output, geometry, ones / held.flat[0] if even else ones, zeros)
        view = self.one_linear(layer, (x, None), shape)
        return view if even else replace(view, weight=1.0 / held)

    def pool_of_space(self, node: g.Op, shape: tuple[int, ...], x: View) -> View:
        """A mean over three axes.

        Over the pixels of every plane, then over the planes (what they divide by is a product, too).
        """
        (channels, depth, *pixels), (_, planes, *made), a = x.shape, shape, node.attrs
        flat = moved(x, "reshape", {}, (channels * depth, *pixels))
        image = {k: list(a[k][1:]) for k in ("kernel", "stride")} | {"pads": [*a["pads"][1:3], *a["pads"][4:]]}
        inner = replace(node, name=f"{node.name}.pixels", output=f"{node.output}.pixels", attrs={**a, **image})
        done = self.op_average_pool(inner, (channels * depth, *made), flat)
        area = math.prod(made)
        columns = moved(done, "reshape", {}, (channels, depth, area))
        line = {k: [a[k][0], 1] for k in ("kernel", "stride")} | {"pads": [a["pads"][0], 0, a["pads"][3], 0]}
        outer = self.op_average_pool(replace(node, attrs={**a, **line}), (channels, planes, area), columns)
        return moved(outer, "reshape", {}, shape)

    def op_reduce_mean(self, node: g.Op, shape: tuple[int, ...], x: View) -> View:
        count = math.prod(self.graph.shapes[node.inputs[0]][a] for a in node.attrs["axes"])
        return self.reduced(node, shape, x, 1.0 / count)

    def op_reduce_sum(self, node: g.Op, shape: tuple[int, ...], x: View) -> View:
        return self.reduced(node, shape, x, 1.0)

    def reduced(self, node: g.Op, shape: tuple[int, ...], x: View, factor: float) -> View:
        return self.summed(node, shape, x, tuple(node.attrs["axes"]), factor)

    def summed(self, node: g.Op, shape: tuple[int, ...], x: View, over: tuple[int, ...], factor: float) -> View:
        """Sums over some axes, times a factor."""
        source, axes = x.shape, sorted(over)
        if len(source) == 3 and axes in ([1, 2], [1], [2]):
            image = tuple(1 if a in axes else n for a, n in enumerate(source))
            rows, columns = (source[a] if a in axes else 1 for a in (1, 2))
            geometry = g.Conv2d(cast(Image, source), cast(Image, image), (rows, columns), groups=source[0])
            weight = np.full((source[0], 1, *geometry.kernel), factor)
            view = self.one_linear(
                g.Linear(node.name, "", node.output, geometry, weight, np.zeros(source[0])), (x, None), image
            )
            return view if shape == image else moved(view, "reshape", {}, shape)
        rows, columns = math.prod(shape), math.prod(source)
        check_matrix(node.name, rows, columns)
        where = np.zeros(source, dtype=np.int64) + np.arange(rows).reshape(
            [1 if a in axes else n for a, n in enumerate(source)]
        )
        matrix = np.zeros((rows, columns))
        matrix[where.reshape(-1), np.arange(columns)] = factor
        view = self.dense(node.name, node.output, matrix, np.zeros(rows), x)
        return moved(view, "reshape", {}, shape)


def _told(node: g.Node, error: PlanError) -> Blocked:
    """A refusal of one node as a row: its message is problem and advice in one."""
    if isinstance(error, BlockedPlan):
        return error.blocked[0]
    problem, mark, advice = str(error).partition("; ")
    op = "linear" if isinstance(node, g.Linear) else node.op
    return Blocked(node.name, op, problem, f"{advice[:1].upper()}{advice[1:]}." if mark else "")


# ops of one operand that every part of a concatenation goes through by itself
_ELEMENTWISE = frozenset({"affine", "neg", "square"})

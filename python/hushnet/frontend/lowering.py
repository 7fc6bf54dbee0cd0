"""The driver.

Walks the ONNX nodes in order, folds constants, takes control flow apart, calls the lowerings, collects all issues.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper

from ..graph import Graph
from . import constants, contrib, expand, kinds, lookup, model, operators
from .builder import Builder, Value
from .call import Call, Input
from .errors import Issue, Unsupported
from .model import Prepared
from .operators import arithmetic, pieces
from .operators.quantised import read_as_floats
from .registry import INERT, NEWEST_OPSET, OPERATORS
from .whole import lower_whole


class Unknown:
    """The result of a node that could not be lowered; nodes that read it are checked by name only."""


Known = Value | np.ndarray
Result = Known | Unknown

_COMPARISONS = {
    "Equal",
    "Greater",
    "GreaterOrEqual",
    "Less",
    "LessOrEqual",
    "Not",
    "And",
    "Or",
    "Xor",
    "IsNaN",
    "IsInf",
}


class Driver:
    """Lowers one prepared model; afterwards ``issues`` is empty or the graph is not to be used.

    Args:
        whole: the first axis is one as any other (``whole.py``); otherwise it is the batch.
        simplified: a tool has folded shapes into the model: they must be right.
    """

    def __init__(self, prepared: Prepared, *, whole: bool = False, simplified: bool = False):
        self.prepared = prepared
        self.whole = whole
        self.simplified = simplified
        self.misled = False
        self.batch = 1 if whole else prepared.batch
        self.issues: list[Issue] = list(prepared.problems)
        graph = prepared.proto.graph
        names = {name for node in graph.node for name in [*node.input, *node.output]}
        self.builder = Builder(names | set(prepared.weights) | set(prepared.inputs))
        self.inferred = dict(model.inferred_shapes(prepared.proto))
        self.kinds = dict(model.inferred_kinds(prepared.proto))
        self.read_as_floats = read_as_floats(graph)
        self.values: dict[str, Result] = dict(prepared.weights)
        self.wanted = {name for node in graph.node for name in node.input} | {o.name for o in graph.output}

    def run(self) -> Graph | None:
        """The graph, or None where there are issues."""
        graph = self.prepared.proto.graph
        inputs = self._inputs()
        for node in graph.node:
            self._node(node)
        outputs = [(port.name, self._output(port)) for port in graph.output]
        self._finite(outputs)
        if all(isinstance(self.values.get(port.name), np.ndarray) for port in graph.output):
            self._report(
                outputs[0][0], "output", "the outputs do not depend on the network's input", "Export the model again."
            )
        if self.issues or any(value is None for _, value in outputs):
            return None
        return self.builder.graph(self.prepared.name, inputs, [(n, v) for n, v in outputs if v is not None])

    def _inputs(self) -> list[Value]:
        """The graph's inputs; values of inputs whose shape is not known are :class:`Unknown`."""
        found = []
        for port in self.prepared.proto.graph.input:
            if port.name in self.prepared.weights:
                continue
            full = self.prepared.inputs.get(port.name)
            if full is None:
                self.values[port.name] = Unknown()
                continue
            image = full if self.whole and full[:1] != (1,) else full[1:]
            found.append(Value(port.name, image))
            self.values[port.name] = found[-1]
            if self.whole and image != full:
                # images are stacked along the first axis of 1
                self.builder.begin(f"{port.name}.image", port.name)
                self.values[port.name] = self.builder.reshape(found[-1], full)
        return found

    def _output(self, port: onnx.ValueInfoProto) -> Value | None:
        value = self.values.get(port.name, Unknown())
        if isinstance(value, np.ndarray):
            return self._public(port.name, value)
        if isinstance(value, Value) and value.batch_axis != 0:
            self._report(
                port.name,
                "output",
                f"the output has its batch in axis {value.batch_axis}",
                "Transpose it back to the first axis.",
            )
        elif isinstance(value, Value) and self.whole and value.shape[:1] == (1,):
            self.builder.begin(f"{port.name}.image", f"{port.name}.image")
            return self.builder.reshape(value, value.shape[1:])
        elif isinstance(value, Value):
            return value
        return None

    def _finite(self, outputs: Sequence[tuple[str, Value | None]]) -> None:
        """Refuses outputs with large numbers in the place of infinite ones, as masked scores have them."""
        infinite = self.builder.reaches_infinity()
        for name, value in outputs:
            if value is not None and value.name in infinite:
                self._report(
                    name,
                    "output",
                    "some of its elements are infinite (masked scores)",
                    "Return the scores in front of the mask, or what softmax makes of them (--until).",
                )

    def _public(self, name: str, array: np.ndarray) -> Value | None:
        """An output beside others that is the same for all inputs."""
        like = next(v for v in self.values.values() if isinstance(v, Value))
        self.builder.begin(f"{name}.constant", f"{name}.constant")
        try:
            if not array.size:
                raise Unsupported("the output has no elements", "Drop this output.")
            image = array[0] if array.ndim and (not self.whole or len(array) == 1) else array
            if not self.whole and (array.shape[:1] != (self.batch,) or np.any(array != array[:1])):
                raise Unsupported("the output is a constant that differs from image to image", "Drop this output.")
            return pieces.public(self.builder, like, image)
        except Unsupported as error:
            self._report(name, "output", error.problem, error.advice)
            return None

    def _report(self, node: str, op_type: str, problem: str, advice: str) -> None:
        self.issues.append(Issue(node, op_type, problem, advice))

    def _node(self, node: onnx.NodeProto) -> None:
        try:
            results = self._lowered(node)
        except Unsupported as error:
            self._report(node.name, _label(node), error.problem, error.advice)
            results = self._guess(node)
        except operators.Skipped:
            results = self._guess(node)
        for name, value in zip(node.output, results):
            if name:
                self.values[name] = value
        self._note_kinds(node)

    def _lowered(self, node: onnx.NodeProto) -> list[Result]:
        inputs = [self.values.get(name, Unknown()) if name else None for name in node.input]
        known = [i for i in inputs if not isinstance(i, Unknown)]
        standard = node.domain in ("", "ai.onnx")
        if standard and node.op_type in {"If", "Loop", "Scan"}:
            return self._control(node, inputs)
        if (
            len(known) == len(inputs)
            and all(i is None or isinstance(i, np.ndarray) for i in known)
            and constants.foldable(node)
        ):
            return list(constants.fold(node, known, self.prepared.proto.opset_import))  # type: ignore[arg-type]
        if standard and node.op_type in {"Shape", "Size"} and len(inputs) == 1:
            if not isinstance(inputs[0], Value):
                raise operators.Skipped
            return [constants.shape_of(node, inputs[0], None if self.whole else self.batch)]  # type: ignore[list-item]
        if standard:
            _check_version(node, self.prepared.opset)
            kinds.check(
                node,
                [self._kind(name) for name, i in zip(node.input, inputs) if not isinstance(i, np.ndarray) and name]
                or [TensorProto.FLOAT],
            )
            if node.op_type == "Cast" and isinstance(inputs[0], Value) and kinds.keeps(node, self._kind(node.input[0])):
                return [inputs[0]]
            if (
                node.op_type == "Cast"
                and isinstance(inputs[0], Value)
                and kinds.to_truth(node, self._kind(node.input[0]))
            ):
                return self._truth(node, inputs[0])
        if contrib.known(node):
            if len(known) != len(inputs):
                raise operators.Skipped
            return self._contributed(node, known)
        if len(known) != len(inputs):
            if node.op_type not in OPERATORS and not (standard and expand.is_function(node, self.prepared.opset)):
                raise Unsupported("this operator is not supported", operators.advice(node))
            raise operators.Skipped
        if not standard or node.op_type not in OPERATORS:
            return self._function(node, known, Unsupported("this operator is not supported", operators.advice(node)))
        try:
            return self._operator(node, known)
        except Unsupported as error:
            self.builder.rollback()
            return self._function(node, known, error)

    def _truth(self, node: onnx.NodeProto, x: Value) -> list[Result]:
        """Whether numbers are not zero: of integers ``min(|x|, 1)``."""
        self.builder.begin(node.name, node.output[0])
        if self._kind(node.input[0]) in kinds.FLOATS:
            zero = self.builder.client("equal", x, self.builder.affine(x, 0.0, 0.0))
            found = self.builder.affine(zero, -1.0, 1.0)
        else:
            found = self.builder.client("clip", self.builder.client("abs", x), min=None, max=1.0)
        return list(self.builder.finish([Value(found.name, found.shape, x.batch_axis)], list(node.output)))

    def _operator(self, node: onnx.NodeProto, inputs: Sequence[Input]) -> list[Result]:
        """A node by its lowering."""
        self.builder.begin(node.name, node.output[0])
        values = lower_whole(node, inputs, self.builder, self._lower) if self.whole else self._lower(node, inputs)
        extra = [name for name in node.output[len(values) :] if name and name in self.wanted]
        if extra:
            raise Unsupported(
                f"its output {extra[0]!r} is used and cannot be computed",
                "Export the model for inference, without this output.",
            )
        values = self.builder.finish(values, list(node.output))
        # inference takes a one-sided STFT for a two-sided one
        rounded_up = node.op_type == "STFT" or any(a.name == "ceil_mode" and a.i for a in node.attribute)
        for name, value in zip(node.output, values):
            if isinstance(value, Value):
                self._compare(name, value, rounded_up=rounded_up)
        return list(values)

    def _lower(self, node: onnx.NodeProto, inputs: Sequence[Input]) -> list[Value]:
        """One call of a lowering, and the check that it has asked for all that the node says."""
        entry = OPERATORS.get(node.op_type)
        if entry is None:
            raise Unsupported("this operator is not supported", operators.advice(node))
        private = isinstance(inputs[0], np.ndarray) and len(inputs) > 1 and isinstance(inputs[1], Value)
        lower = lookup.gather if node.op_type == "Gather" and private else entry.lower
        if node.op_type == "Div" and any(
            self._kind(n) in kinds.INTEGERS for n, i in zip(node.input, inputs) if isinstance(i, Value)
        ):
            lower = arithmetic.quotient
        call = Call(
            node,
            inputs,
            self.prepared.opset,
            self.batch,
            fixed_batch=self.whole or self.prepared.fixed_batch,
            batch_anywhere=entry.batch_anywhere and lower is entry.lower,
            whole=self.whole,
            exact=node.output[0] not in self.read_as_floats,
        )
        results = lower(call, self.builder)
        unknown = call.unasked(INERT.get(node.op_type, frozenset()))
        if unknown:
            raise Unsupported(
                f"{', '.join(unknown)} is not known for {node.op_type} of opset {self.prepared.opset}",
                "Export the model with an older opset, or without it.",
            )
        return results if isinstance(results, list) else [results]  # type: ignore[list-item]

    def _function(self, node: onnx.NodeProto, inputs: Sequence[Input], refusal: Unsupported) -> list[Result]:
        """A node by ONNX's definition of its operator as a function of others.

        Raises the refusal where there is none.
        """
        if node.domain not in ("", "ai.onnx"):
            raise refusal
        expansion = expand.function(
            node, self.prepared.opset, [self._port(n, i) for n, i in zip(node.input, inputs) if n and i is not None]
        )
        if expansion is None:
            raise refusal
        return self._parts(expansion, refusal if node.op_type in OPERATORS else None)

    def _contributed(self, node: onnx.NodeProto, inputs: Sequence[Input]) -> list[Result]:
        """A node of ONNX Runtime's own domain, by the standard nodes that it stands for."""
        operands: list[contrib.Operand | None] = []
        for name, value in zip(node.input, inputs):
            if isinstance(value, np.ndarray):
                kind = helper.np_dtype_to_tensor_dtype(value.dtype)
                operands.append(contrib.Operand(name, value.shape, kind, value))
            elif value is not None and value.batch_axis:
                raise Unsupported("the batch is not the first axis", "Keep the batch axis in front.")
            else:
                operands.append(contrib.Operand(name, self._full(value), self._kind(name)) if value else None)
        return self._parts(contrib.standard(node, operands, frozenset(self.wanted)), None)

    def _parts(self, expansion: expand.Expansion, refusal: Unsupported | None) -> list[Result]:
        """What nodes in the place of one give; if one of them is refused, the refusal or the name of that part."""
        mark, nodes = len(self.issues), len(self.builder.nodes)
        results = self._expanded(expansion)
        if len(self.issues) > mark:
            inner = self.issues[mark]
            del self.issues[mark:], self.builder.nodes[nodes:]
            if refusal is not None:
                raise refusal
            raise Unsupported(f"its part {inner.op_type} cannot be computed: {inner.problem}", inner.advice)
        return results

    def _port(self, name: str, value: Known) -> onnx.ValueInfoProto:
        if isinstance(value, np.ndarray):
            return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
        return helper.make_tensor_value_info(name, self._kind(name), self._full(value))

    def _control(self, node: onnx.NodeProto, inputs: Sequence[Result | None]) -> list[Result]:
        """``If``, ``Loop`` and ``Scan`` whose course is constant."""
        if node.op_type == "If":
            if not isinstance(inputs[0], np.ndarray):
                raise Unsupported("the condition depends on the data", self._settled(node) or operators.advice(node))
            return self._expanded(expand.branch(node, inputs[0]))
        if node.op_type == "Scan":
            return self._expanded(expand.scan(node, self._length))
        trips, condition = inputs[0], inputs[1] if len(inputs) > 1 else None
        if any(v is not None and not isinstance(v, np.ndarray) for v in (trips, condition)):
            raise Unsupported("the number of steps depends on the data", operators.advice(node))
        loop = expand.Loop(node, trips, condition)  # type: ignore[arg-type]
        while (step := loop.next()) is not None:
            loop.done(step, self._expanded(step)[0])
        return self._expanded(loop.finish())

    def _settled(self, node: onnx.NodeProto) -> str:
        """What to do about a condition that follows from single whole numbers alone (a sampling rate); "" of others."""
        made = {name: n for n in self.prepared.proto.graph.node for name in n.output}
        found, waiting, seen = set[str](), [node.input[0]], set[str]()
        while waiting:
            name = waiting.pop()
            if name in self.prepared.inputs:
                found.add(name)
            elif name in made and name not in seen:
                seen.add(name)
                waiting.extend(made[name].input)
        one = all(
            math.prod(self.prepared.inputs[n]) == 1 and self._kind(n) in {*kinds.INTEGERS, TensorProto.BOOL}
            for n in found
        )
        if not found or not one:
            return ""
        return (
            f"It follows from {' and '.join(sorted(found))} alone. Fix that in the file, if its value is no secret: "
            "docs/models.md has the lines (Fixed inputs)."
        )

    def _expanded(self, expansion: expand.Expansion) -> list[Result]:
        self.values |= expansion.constants
        self.wanted |= {name for node in expansion.nodes for name in node.input} | set(expansion.outputs)
        for node in expansion.nodes:
            self._node(node)
        return [self.values.get(name, Unknown()) for name in expansion.outputs]

    def _length(self, name: str, axis: int) -> int:
        value = self.values.get(name, Unknown())
        if isinstance(value, Unknown):
            raise operators.Skipped
        shape = self._full(value) if isinstance(value, Value) else value.shape
        return int(shape[axis])

    def _kind(self, name: str) -> int:
        return self.kinds.get(name, TensorProto.FLOAT)

    def _note_kinds(self, node: onnx.NodeProto) -> None:
        """Element types that inference has not told."""
        for name in node.output:
            if not name or name in self.kinds:
                continue
            value = self.values.get(name)
            if isinstance(value, np.ndarray):
                self.kinds[name] = helper.np_dtype_to_tensor_dtype(value.dtype)
            elif node.op_type in kinds.MADE and name == node.output[0]:
                self.kinds[name] = self._made(node)
            elif node.op_type in _COMPARISONS:
                self.kinds[name] = TensorProto.BOOL
            elif node.op_type == "Cast":
                self.kinds[name] = next((a.i for a in node.attribute if a.name == "to"), TensorProto.FLOAT)
            else:
                own = node.input[1:] if node.op_type == "Where" else node.input
                sources = [n for n in own if isinstance(self.values.get(n), Value)]
                table = self.values.get(node.input[0]) if node.op_type == "Gather" else None
                if isinstance(table, np.ndarray):
                    self.kinds[name] = helper.np_dtype_to_tensor_dtype(table.dtype)
                    continue
                self.kinds[name] = self._kind(sources[0]) if sources else TensorProto.FLOAT

    def _made(self, node: onnx.NodeProto) -> int:
        """The element type of what a quantised operator gives: its own, or that of its zero point."""
        own = kinds.MADE[node.op_type]
        if isinstance(own, int):
            return own
        zero = self.values.get(node.input[own[0]]) if len(node.input) > own[0] else None
        return helper.np_dtype_to_tensor_dtype(zero.dtype) if isinstance(zero, np.ndarray) else TensorProto.UINT8

    def _full(self, value: Value) -> tuple[int, ...]:
        """The ONNX shape of a value."""
        full = list(value.shape)
        if not self.whole:
            full.insert(value.batch_axis, self.batch)
        return tuple(full)

    def _compare(self, name: str, value: Value, *, rounded_up: bool) -> None:
        """Compares our shape with ONNX's inference.

        The inference is wrong behind a pooling whose last window would start in the padding, and of a one-sided STFT.
        """
        expected, full = self.inferred.get(name), self._full(value)
        if any(n < 1 for n in full):
            raise Unsupported(f"the result has an empty axis: {full}", "Use a larger input or a smaller window.")
        if expected is None or expected == full:
            return
        self.misled = self.misled or rounded_up
        if self.simplified or not self.misled:
            raise Unsupported(
                f"the result's shape {full} differs from the one that ONNX infers, {expected}",
                "Please report this model: the shapes of this operator are read differently.",
            )

    def _guess(self, node: onnx.NodeProto) -> list[Result]:
        """Values with inferred shapes after an issue, so that the nodes behind it are checked as well."""
        results: list[Result] = []
        for name in node.output:
            shape = self.inferred.get(name)
            if shape is None or min(shape, default=1) < 1:
                results.append(Unknown())
            elif self.whole:
                results.append(Value(name, shape))
            else:
                results.append(Value(name, shape[1:]) if shape and shape[0] == self.batch else Unknown())
        return results


def _label(node: onnx.NodeProto) -> str:
    return node.op_type if node.domain in ("", "ai.onnx") else f"{node.domain}.{node.op_type}"


def _check_version(node: onnx.NodeProto, opset: int) -> None:
    """Refuses operators that have changed since their lowerings were written."""
    try:
        since = onnx.defs.get_schema(node.op_type, opset, "").since_version
    except onnx.defs.SchemaError:
        return
    if since > NEWEST_OPSET:
        raise Unsupported(
            f"opset {since} has changed this operator, and versions up to {NEWEST_OPSET} are known",
            f"Export the model with opset_version={NEWEST_OPSET}, or install a newer hushnet.",
        )

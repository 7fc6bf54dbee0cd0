"""One ONNX node as a lowering sees it: inputs that are values or constants, attributes, axes without the batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx

from .builder import Value
from .errors import Unsupported

Input = Value | np.ndarray | None


class Call:
    """A node with resolved inputs. Shapes and axes given to lowerings are per image unless said otherwise."""

    def __init__(
        self,
        proto: onnx.NodeProto,
        inputs: Sequence[Input],
        opset: int,
        batch: int,
        *,
        fixed_batch: bool,
        batch_anywhere: bool,
        whole: bool = False,
        exact: bool = True,
    ):
        self.name = proto.name
        self.op_type = proto.op_type
        self.outputs = list(proto.output)
        self.opset = opset
        self.batch = batch
        self.fixed_batch = fixed_batch
        # whether a quantised result must hold integers: something but quantised operators reads it
        self.exact = exact
        # an image is the whole ONNX tensor: axes and shapes of the node count a batch of 1 in front of it
        self.whole = whole
        self._inputs = list(inputs)
        self._batch_anywhere = batch_anywhere
        self._attributes = {a.name: onnx.helper.get_attribute_value(a) for a in proto.attribute}
        # what the lowering has asked for
        self._asked: set[str | int] = set()

    @property
    def inputs(self) -> list[Input]:
        """All inputs: whoever reads the list knows them."""
        self._asked.update(range(len(self._inputs)))
        return self._inputs

    def unasked(self, inert: frozenset[str | int]) -> list[str]:
        """Inputs and attributes (but ONNX's defaults) that the lowering did not ask for, except ``inert`` ones."""
        try:
            schema = onnx.defs.get_schema(self.op_type, self.opset, "")
            defaults = {
                name: onnx.helper.get_attribute_value(a.default_value)
                for name, a in schema.attributes.items()
                if a.default_value.name
            }
        except onnx.defs.SchemaError:
            defaults = {}
        known = self._asked | inert
        found = [
            f"attribute {n}={v!r}"
            for n, v in self._attributes.items()
            if n not in known and (n not in defaults or v != defaults[n])
        ]
        return found + [f"input {i}" for i, v in enumerate(self._inputs) if v is not None and i not in known]

    def attribute(self, name: str, default: Any = None) -> Any:
        """The attribute's value; strings decoded, integer lists as lists."""
        self._asked.add(name)
        value = self._attributes.get(name, default)
        if isinstance(value, bytes):
            return value.decode("utf-8", "replace")
        return list(value) if not isinstance(value, (str, int, float, type(None), onnx.TensorProto)) else value

    def has(self, index: int) -> bool:
        """Whether the optional input is given."""
        self._asked.add(index)
        return index < len(self._inputs) and self._inputs[index] is not None

    def is_constant(self, index: int) -> bool:
        """Whether the input is given and constant."""
        return self.has(index) and isinstance(self._inputs[index], np.ndarray)

    def tensor(self, index: int = 0) -> Value:
        """An input that depends on the network's inputs."""
        value = self._inputs[index] if self.has(index) else None
        if not isinstance(value, Value):
            raise Unsupported(
                f"input {index} is {'a constant' if self.has(index) else 'missing'}, not an activation",
                "Swap or fold the operands.",
            )
        if value.batch_axis != 0 and not self._batch_anywhere:
            raise Unsupported(
                f"the batch is axis {value.batch_axis} of input {index}, not the first axis",
                "Keep the batch axis in front (drop the Transpose that moves it).",
            )
        return value

    def constant(self, index: int, default: np.ndarray | None = None) -> np.ndarray:
        """A constant input, floats as binary64; ``default`` where the input is not given."""
        if not self.has(index):
            if default is None:
                raise Unsupported(f"input {index} is missing", "Export the model again.")
            return default
        value = self._inputs[index]
        if not isinstance(value, np.ndarray):
            raise Unsupported(
                f"input {index} ({value.name}) is computed from the network's input, and must be constant here"
                if value
                else f"input {index} is missing",
                "Make it an initializer: only constant weights, shapes and indices are supported.",
            )
        if value.dtype.kind == "b" or np.issubdtype(value.dtype, np.integer):
            return value
        value = value.astype(np.float64)
        if not np.all(np.isfinite(value)):
            raise Unsupported(f"constant input {index} has values that are not finite", "Repair the trained weights.")
        return value

    def scalar(self, index: int) -> float | None:
        """A constant input of one element, or None where it is not given."""
        if not self.has(index):
            return None
        raw = self._inputs[index]
        value = raw.astype(np.float64) if isinstance(raw, np.ndarray) else self.constant(index)
        if value.size != 1:
            raise Unsupported(f"input {index} has {value.size} elements, one is expected", "Use a scalar.")
        return float(value.reshape(()))

    def integers(self, index: int, attribute: str | None = None) -> list[int] | None:
        """A list of integers from a constant input or from the attribute that older opsets have.

        None where neither is given.
        """
        if self.has(index):
            return [int(v) for v in self.constant(index).reshape(-1)]
        given = self.attribute(attribute) if attribute else None
        return None if given is None else [int(v) for v in given]

    def axis(self, axis: int, rank: int, batch_axis: int = 0) -> int:
        """An ONNX axis (batch included, ``rank`` per-image axes) as a per-image axis; the batch axis is refused."""
        full = axis + rank + 1 if axis < 0 else axis
        if not 0 <= full <= rank:
            raise Unsupported(f"axis {axis} of a tensor with {rank + 1} axes", "Export the model again.")
        if full == batch_axis:
            raise Unsupported(
                "it works along the batch axis, which would mix images", "Keep every operation inside one image."
            )
        return full - (full > batch_axis)

"""Sliding windows as ONNX defines them: auto_pad, explicit pads, floor and ceiling."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..call import Call
from ..errors import Unsupported


@dataclass(frozen=True)
class Windows:
    """Per spatial axis; ``begin`` and ``end`` are the padding that ONNX declares."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    begin: tuple[int, ...]
    end: tuple[int, ...]
    output: tuple[int, ...]
    overhang: tuple[int, ...]
    """How far the last window reaches beyond the padded input (ceiling mode only)."""

    def flat(self) -> Windows:
        """The same windows on a second, leading axis of size 1, where there is one axis only."""
        if len(self.kernel) != 1:
            return self
        return Windows(
            (1, *self.kernel),
            (1, *self.stride),
            (1, *self.dilation),
            (0, *self.begin),
            (0, *self.end),
            (1, *self.output),
            (0, *self.overhang),
        )

    @property
    def pads(self) -> tuple[int, ...]:
        """Begins, then ends."""
        return (*self.begin, *self.end)

    def reaching_pads(self, spatial: Sequence[int]) -> tuple[int, ...]:
        """Begins, then as much at the ends as the last windows reach beyond the input."""
        ends = []
        for axis, size in enumerate(spatial):
            last = (
                (self.output[axis] - 1) * self.stride[axis]
                - self.begin[axis]
                + (self.kernel[axis] - 1) * self.dilation[axis]
            )
            ends.append(max(0, last + 1 - size))
        return (*self.begin, *ends)

    def blind(self, spatial: Sequence[int]) -> bool:
        """Whether some window sees nothing of the input, only padding."""
        for axis, size in enumerate(spatial):
            starts = np.arange(self.output[axis]) * self.stride[axis] - self.begin[axis]
            taps = starts[:, None] + np.arange(self.kernel[axis]) * self.dilation[axis]
            if not np.all(np.any((taps >= 0) & (taps < size), axis=1)):
                return True
        return False


def _list(call: Call, name: str, rank: int, default: int, *, least: int) -> list[int]:
    given = call.attribute(name)
    values = [default] * rank if given is None else [int(v) for v in given]
    expected = 2 * rank if name == "pads" else rank
    if given is None and name == "pads":
        values = [default] * expected
    if len(values) != expected or min(values) < least:
        raise Unsupported(f"{name} {values} for {rank} spatial axes", "Export the model again.")
    return values


def windows(call: Call, spatial: Sequence[int], kernel: Sequence[int], *, ceil: bool = False) -> Windows:
    """The windows of Conv or a pooling over axes of the given sizes."""
    rank = len(spatial)
    if len(kernel) != rank or min(kernel) < 1:
        raise Unsupported(f"a kernel of shape {tuple(kernel)} on {rank} spatial axes", "Export the model again.")
    stride = _list(call, "strides", rank, 1, least=1)
    dilation = _list(call, "dilations", rank, 1, least=1)
    pads = _list(call, "pads", rank, 0, least=0)
    mode = call.attribute("auto_pad", "NOTSET")
    begin, end, output, overhang = [], [], [], []
    for axis, size in enumerate(spatial):
        reach = (kernel[axis] - 1) * dilation[axis] + 1
        low, high = (0, 0) if mode == "VALID" else (pads[axis], pads[rank + axis])
        if mode in {"SAME_UPPER", "SAME_LOWER"}:
            count = -(-size // stride[axis])
            total = max((count - 1) * stride[axis] + reach - size, 0)
            low = total // 2 if mode == "SAME_UPPER" else total - total // 2
            high = total - low
        span = size + low + high - reach
        if span < 0:
            raise Unsupported(
                f"a window of {reach} on axis {axis + 2} of size {size} (padded {size + low + high})",
                "Use a larger input or a smaller window.",
            )
        count = (-(-span // stride[axis]) if ceil else span // stride[axis]) + 1
        if ceil and (count - 1) * stride[axis] >= size + low:
            count -= 1
        begin.append(low)
        end.append(high)
        output.append(count)
        overhang.append(max(0, (count - 1) * stride[axis] - span))
    return Windows(
        tuple(kernel), tuple(stride), tuple(dilation), tuple(begin), tuple(end), tuple(output), tuple(overhang)
    )

"""What surrounds the shared stages: the client's ops before and after, sharing and opening."""

from __future__ import annotations

import math
from typing import Any

from ... import _native
from ...graph import Graph, Op
from ..document import Draft
from .regions import Regions
from .versions import Fixed, Version


class Writer:
    """Writes tensors, stages and ports; ``names`` are the outputs' names, in the graph's order."""

    def __init__(self, graph: Graph, regions: Regions, fixed: Fixed, reveal: str, names: list[str]) -> None:
        self.graph, self.regions, self.fixed, self.reveal, self.output_names = graph, regions, fixed, reveal, names
        tensors, stage_names = [dict(t) for t in fixed.tensors], {s["name"] for s in fixed.stages}
        self.out = Draft(
            tensors=tensors, weights=fixed.weights, tensor_names={t["name"] for t in tensors}, stage_names=stage_names
        )
        self.real: dict[str, int] = {}

    def run(self) -> Draft:
        """The whole plan's tensors, stages and ports."""
        for name in self.graph.inputs:
            self.real[name] = self.out.tensor(name, self.graph.shapes[name])
            self.out.input(name, self.real[name])
        self.before()
        self.out.stages += self.fixed.stages
        self.after()
        for port, tensor in zip(self.output_names, self.graph.outputs):
            self.out.output(port, self.real[tensor])
        return self.out

    def op(self, node: Op) -> dict[str, Any]:
        """A step of the client on real numbers, as the plan writes it; its result becomes a tensor of the plan."""
        ins = [self.real[t] for t in node.inputs]
        self.real[node.output] = self.out.tensor(node.output, self.graph.shapes[node.output])
        return {"op": node.op, "in": ins, "out": self.real[node.output], **node.attrs}

    def before(self) -> None:
        """Writes the client's first stage: its own ops on the input, and the fixed-point values that it shares."""
        ops = [self.op(node) for node in self.regions.head]
        shares = []
        for name, version in self.fixed.entering.items():
            fixed = self.out.fixed(
                f"{name}.q", self.graph.shapes[name], math.ldexp(1.0, -version.frac_bits), version.bound
            )
            ops.append({"op": "quantize", "in": [self.real[name]], "out": fixed})
            shares.append((f"{name}.share", fixed, version.tensor))
        self.out.client("encode", ops)
        for name, source, tensor in shares:
            self.out.stage("share", name, source, tensor)

    def after(self) -> None:
        """Writes the client's last stage: opened values back to real numbers, and its own ops on them."""
        ops = []
        for name, version in self.fixed.opened.items():
            shape = self.graph.shapes[name]
            # of the exact bound the client learns the power of two only
            scale, bound = math.ldexp(1.0, -version.frac_bits), (1 << _native.reach_bits(version.bound)) - 1
            if self.reveal == "argmax":
                scale, bound = 1.0, math.prod(shape) - 1
                shape = (1,)
            opened = self.out.fixed(f"{name}.q", shape, scale, bound)
            self.out.stage("reveal", f"{name}.reveal", version.tensor, opened, what=self.reveal)
            ops += self.decode(name, version, opened, shape)
        ops += [self.op(node) for node in self.regions.tail]
        self.out.client("decode", ops)

    def decode(self, name: str, version: Version, opened: int, shape: tuple[int, ...]) -> list[dict[str, Any]]:
        """The ops that turn an opened tensor of a version into the real tensor ``name``."""
        scaled = self.reveal == "output" and version.gain != 1.0
        real = self.out.tensor(f"{name}.unscaled" if scaled else name, shape)
        ops: list[dict[str, Any]] = [{"op": "dequantize", "in": [opened], "out": real}]
        if scaled:
            result = self.out.tensor(name, shape)
            ops.append({"op": "affine", "in": [real], "out": result, "mul": version.gain, "add": 0.0})
            real = result
        self.real[name] = real
        return ops

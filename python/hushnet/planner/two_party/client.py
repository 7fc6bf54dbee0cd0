"""What surrounds the shared stages: the client's ops before and after, sharing and opening."""

from __future__ import annotations

import math
from typing import Any

from ...graph import Graph, Op
from ...reference.two_party import reach_bits
from .fixed import Fixed, Version
from .regions import Regions


class Writer:
    """Writes tensors, stages and ports; ``names`` are the outputs' names, in the graph's order."""

    def __init__(self, graph: Graph, regions: Regions, fixed: Fixed, reveal: str, names: list[str]) -> None:
        self.graph, self.regions, self.fixed, self.reveal, self.output_names = graph, regions, fixed, reveal, names
        self.tensors: list[dict[str, Any]] = [dict(t) for t in fixed.tensors]
        self.taken = {t["name"] for t in self.tensors}
        self.stage_names = {s["name"] for s in fixed.stages}
        self.real: dict[str, int] = {}

    def run(self) -> dict[str, Any]:
        """``inputs``, ``outputs``, ``tensors`` and ``stages`` of the plan."""
        inputs = []
        for name in self.graph.inputs:
            self.real[name] = self.tensor(name, self.graph.shapes[name])
            inputs.append({"name": name, "tensor": self.real[name]})
        stages = [*self.before(), *self.fixed.stages, *self.after()]
        outputs = [{"name": port, "tensor": self.real[t]} for port, t in zip(self.output_names, self.graph.outputs)]
        return {"inputs": inputs, "outputs": outputs, "tensors": self.tensors, "stages": stages}

    def tensor(self, name: str, shape: tuple[int, ...], **fixed: Any) -> int:
        index = len(self.tensors)
        kind = "fixed" if fixed else "real"
        self.tensors.append({"id": index, "name": _unique(name, self.taken), "shape": list(shape), "kind": kind, **fixed})
        return index

    def stage(self, kind: str, name: str, **fields: Any) -> dict[str, Any]:
        return {"kind": kind, "name": _unique(name, self.stage_names), **fields}

    def op(self, node: Op) -> dict[str, Any]:
        ins = [self.real[t] for t in node.inputs]
        self.real[node.output] = self.tensor(node.output, self.graph.shapes[node.output])
        return {"op": node.op, "in": ins, "out": self.real[node.output], **node.attrs}

    def before(self) -> list[dict[str, Any]]:
        ops = [self.op(node) for node in self.regions.head]
        shares = []
        for name, version in self.fixed.entering.items():
            shape = self.graph.shapes[name]
            fixed = self.tensor(f"{name}.q", shape, scale=math.ldexp(1.0, -version.frac_bits), bound=version.bound)
            ops.append({"op": "quantize", "in": [self.real[name]], "out": fixed})
            shares.append(self.stage("share", f"{name}.share", **{"in": fixed, "out": version.tensor}))
        return [self.stage("client", "encode", ops=ops), *shares]

    def after(self) -> list[dict[str, Any]]:
        reveals, ops = [], []
        for name, version in self.fixed.opened.items():
            shape = self.graph.shapes[name]
            # of the exact bound the client learns the power of two only
            form = {"scale": math.ldexp(1.0, -version.frac_bits), "bound": (1 << reach_bits(version.bound)) - 1}
            if self.reveal == "argmax":
                form = {"scale": 1.0, "bound": math.prod(shape) - 1}
                shape = (1,)
            opened = self.tensor(f"{name}.q", shape, **form)
            reveals.append(self.stage("reveal", f"{name}.reveal", **{"in": version.tensor, "out": opened}, what=self.reveal))
            ops += self.decode(name, version, opened, shape)
        ops += [self.op(node) for node in self.regions.tail]
        return [*reveals, self.stage("client", "decode", ops=ops)]

    def decode(self, name: str, version: Version, opened: int, shape: tuple[int, ...]) -> list[dict[str, Any]]:
        scaled = self.reveal == "output" and version.gain != 1.0
        real = self.tensor(f"{name}.unscaled" if scaled else name, shape)
        ops: list[dict[str, Any]] = [{"op": "dequantize", "in": [opened], "out": real}]
        if scaled:
            result = self.tensor(name, shape)
            ops.append({"op": "affine", "in": [real], "out": result, "mul": version.gain, "add": 0.0})
            real = result
        self.real[name] = real
        return ops


def _unique(name: str, taken: set[str]) -> str:
    unique, number = name, 2
    while unique in taken:
        unique, number = f"{name}.{number}", number + 1
    taken.add(unique)
    return unique

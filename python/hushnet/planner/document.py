"""The plan document in the making.

One place that writes tensors, stages, ports and the header for the planners of all trust models.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ..plan import VERSION, Plan

Entry = dict[str, Any]
# the parts of ``params`` by trust model, and the engine; see docs/plan-format.md
PARTS = {"two-party": "two_party", "non-interactive": "non_interactive"}


def unique(name: str, taken: set[str]) -> str:
    """The name, or with a number behind it the first that is free; it is taken from here on."""
    found, number = name, 2
    while found in taken:
        found, number = f"{name}.{number}", number + 1
    taken.add(found)
    return found


@dataclass
class Draft:
    """Tensors, stages and ports of a plan; names are unique, ids are positions.

    Attributes:
        tensors, stages, inputs, outputs: as they will stand in the document.
        weights: integer weights, biases and the like, by the names that stages give them.
        tensor_names, stage_names: what is taken.
        kept_names: of stages that are still to come, which no other stage may have.
    """

    tensors: list[Entry] = field(default_factory=list)
    stages: list[Entry] = field(default_factory=list)
    inputs: list[Entry] = field(default_factory=list)
    outputs: list[Entry] = field(default_factory=list)
    weights: dict[str, Any] = field(default_factory=dict)
    tensor_names: set[str] = field(default_factory=set)
    stage_names: set[str] = field(default_factory=set)
    kept_names: set[str] = field(default_factory=set)

    def tensor(self, name: str, shape: Any, kind: str = "real", **fields: Any) -> int:
        """Adds a tensor; returns its id."""
        entry = {
            "id": len(self.tensors),
            "name": unique(name, self.tensor_names),
            "shape": [int(n) for n in shape],
            "kind": kind,
            **fields,
        }
        self.tensors.append(entry)
        return entry["id"]

    def fixed(self, name: str, shape: Any, scale: float, bound: int) -> int:
        """Adds a tensor of integers that the client knows; returns its id."""
        return self.tensor(name, shape, "fixed", scale=scale, bound=bound)

    def stage_name(self, name: str) -> str:
        """A stage's name: the kept one, or one that is free."""
        if name in self.kept_names:
            self.kept_names.discard(name)
            self.stage_names.add(name)
            return name
        taken = self.stage_names | self.kept_names
        found = unique(name, taken)
        self.stage_names.add(found)
        return found

    def stage(self, kind: str, name: str, source: int | list[int], out: int, **fields: Any) -> Entry:
        """Adds a stage that reads one tensor, or a list of them, and writes one."""
        entry = {"kind": kind, "name": self.stage_name(name), "in": source, "out": out, **fields}
        self.stages.append(entry)
        return entry

    def client(self, name: str, ops: list[Entry]) -> Entry:
        """Adds a stage of operations that the client computes in the clear."""
        entry = {"kind": "client", "name": self.stage_name(name), "ops": ops}
        self.stages.append(entry)
        return entry

    def input(self, name: str, tensor: int) -> None:
        """Adds an input of the network."""
        self.inputs.append({"name": name, "tensor": tensor})

    def limit(self, name: str, low: float, high: float) -> None:
        """States the range of an input, to which clients clamp it."""
        next(port for port in self.inputs if port["name"] == name)["range"] = [float(low), float(high)]

    def output(self, name: str, tensor: int) -> None:
        """Adds an output of the network."""
        self.outputs.append({"name": name, "tensor": tensor})

    def plan(
        self,
        trust: str,
        engine: str,
        *,
        name: str,
        producer: str,
        ring_degree: int,
        part: Entry | None = None,
        notes: list[str] | None = None,
        predicted: Entry | None = None,
    ) -> Plan:
        """The plan, 128-bit secure.

        Args:
            part: the trust model's own part of ``params``, where it has one.
        """
        params: Entry = {"ring_degree": ring_degree, "security_bits": 128, "insecure": False}
        if part is not None:
            params[PARTS[trust]] = part
        document = {
            "version": VERSION,
            "name": name,
            "producer": producer,
            "trust": trust,
            "engine": engine,
            "params": params,
            "inputs": self.inputs,
            "outputs": self.outputs,
            "tensors": self.tensors,
            "stages": self.stages,
            "predicted": predicted or {},
            "notes": notes or [],
        }
        return Plan(document, dict(self.weights))

"""What the plan documents of both non-interactive engines share: the client's parts, and sentences for ``explain``."""

from __future__ import annotations

from typing import Any

from ...graph import Graph, Op
from ...options import NonInteractive
from ...plan import Plan, PlanError
from ..document import Draft
from .activation import Replacement
from .network import Network


class Writer:
    """What the plan documents of both engines share."""

    def __init__(
        self, graph: Graph, network: Network, name: str, settings: NonInteractive, replaced: Replacement | None
    ) -> None:
        self.graph, self.network, self.name = graph, network, name
        self.settings, self.replaced = settings, replaced
        self.out = Draft()
        self.known: dict[str, int] = {}

    def head(self) -> int:
        """The inputs and the client's part before encryption: what is encrypted."""
        at = {name: self.out.tensor(name, shape) for name, shape in self.network.inputs.items()}
        for name, real in at.items():
            self.out.input(name, real)
        for name, interval in self.network.declared.items():
            self.out.limit(name, *interval)
        if self.network.head is not None:
            self.ops("encode", self.network.head, at)
        self.known = {name: at[name] for name in self.network.own}
        return at[self.network.first]

    def tail(self, encrypted: int) -> None:
        """Decryption, the client's part after it, and the outputs."""
        tail, names = self.network.tail, self.network.outputs
        # of a network without layers nothing is wanted from the server
        first = next((n for n in names if n not in self.known), "returned") if tail is None else tail.inputs[0]
        # steps may have it in another shape than the graph
        shapes = self.graph.shapes if tail is None else tail.shapes
        at = {first: self.out.tensor(first, shapes.get(first, self.network.tensors[self.network.output].shape))}
        self.out.stage("decrypt", "decrypt", encrypted, at[first])
        if tail is not None:
            self.ops("decode", tail, at)
        for name in names:
            self.out.output(name, self.known[name] if name in self.known else at[name])

    def written(self, engine: str, ring_degree: int, part: dict[str, Any], flood: int | None, batch: int) -> Plan:
        """The plan; ``part``: its own parameters, ``flood``: bits, where weights are hidden."""
        hidden = {} if flood is None else {"hide_weights": {"flood_bits": flood}}
        return self.out.plan(
            "non-interactive",
            engine,
            name=self.name,
            producer=self.settings.producer,
            ring_degree=ring_degree,
            part={**part, **hidden},
            notes=self.notes(flood),
            predicted={"batch": batch},
        )

    def ops(self, stage: str, part: Graph, at: dict[str, int]) -> None:
        """A head or tail as a client stage; its tensors go to those that are there."""
        ops = []
        for node in part.nodes:
            if not isinstance(node, Op):
                raise PlanError(f"layer {node.name!r} is left to the client; that is a mistake of the planner")
            ins = [at[t] for t in node.inputs]
            at[node.output] = self.out.tensor(node.output, part.shapes[node.output])
            ops.append({"op": node.op, "in": ins, "out": at[node.output], **node.attrs})
        if ops:
            self.out.client(stage, ops)

    def notes(self, flood: int | None) -> list[str]:
        """Sentences for ``explain``; ``flood``: bits, where weights are hidden."""
        said = [
            "Non-interactive: nobody but the server computes, on ciphertexts; it learns "
            "shapes and the number of images."
        ]
        if flood is None:
            said.append(
                "Weights are not private: ciphertexts and their noise tell of them, and whoever "
                "asks enough can solve for them. "
                "Compile with hide_weights to re-randomise and flood the results."
            )
        else:
            said.append(
                f"Results are re-randomised and flooded with {flood} bits: beyond its results, layer shapes, scales "
                "and predicted errors "
                "the client learns nothing but with probability 2^-40 a ciphertext (against a "
                "client that encrypts as it should)."
            )
        if self.replaced is not None:
            said += self.replaced.sentences()
        said += self.network.notes
        said.append(
            "The server cannot see a value that leaves a polynomial's range: the answer to such an input may be "
            "wrong. The client clamps inputs outside "
            "the planned interval and results beyond the planned bound, and names their rows; `run` shows how far "
            "every polynomial's operand went."
        )
        return said

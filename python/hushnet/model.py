"""A compiled network, as the API hands it out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from hushnet import _native, planner, report
from hushnet.arrays import named_inputs
from hushnet.errors import InputError
from hushnet.options import Inputs
from hushnet.plan import Plan


class Model:
    """A compiled network: a checked plan with its weights (server) or its public part (client).

    A plan's file is read, hashed and checked once; ``run``, ``serve``, ``explain`` and ``public_part`` share what the
    run time then holds, and ``run`` and ``serve`` the prepared weights (kept as long as the model is, for the threads
    and memory of the last call).
    """

    def __init__(self, plan: Plan):
        self.plan = plan

    @classmethod
    def load(cls, path: str | Path, *, allow_insecure: bool = False) -> Model:
        """Reads a ``.hush`` file; PlanError when it is damaged, of another version, or below 128 bits."""
        return cls(Plan.load(path, allow_insecure=allow_insecure))

    def save(self, path: str | Path) -> None:
        """Writes the ``.hush`` file (with weights: keep it on the server)."""
        self.plan.save(path)

    def public_part(self) -> bytes:
        """The bytes that a client receives: shapes, parameters, protocol steps, no weights."""
        return self.plan.public_bytes()

    def explain(self, trace: dict[str, Any] | None = None, *, network: str | None = None) -> report.Explanation:
        """Who learns what, parameters, and the predicted cost of every stage (beside the measured, given a trace).

        It is a dict; ``print`` shows it as tables.

        Args:
            network: two-party: "loopback", "lan", "wan", or bandwidth and round trip like "200mbit,5ms".
        """
        return report.Explanation(report.explain(self.plan, trace=trace, network=network))

    def __repr__(self) -> str:
        batch, names = self.plan.predicted.get("batch"), self.input_names
        images = "1 image" if batch == 1 else f"{batch} images"
        inputs = f"input{'s' if len(names) > 1 else ''} {', '.join(names)}"
        return f"Model({self.plan.name}: {self.plan.document['trust']}, {inputs}, for {images})"

    @property
    def shortfalls(self) -> list[str]:
        """What the plan does not reach, a sentence each: the precision asked for, the original network's accuracy."""
        return planner.precision.shortfalls(self.plan.document["predicted"])

    @property
    def input_names(self) -> list[str]:
        """Names of the inputs, in order."""
        return [i["name"] for i in self.plan.document["inputs"]]

    def named_inputs(self, x: Inputs) -> dict[str, np.ndarray]:
        """An array for the only input, or a mapping from names to arrays, as a mapping."""
        return named_inputs(self.plan.document, x)

    def native(self, *, allow_insecure: bool = False) -> _native.Plan:
        """The plan as the run time holds it, the same object for all calls.

        PlanError below 128 bits, unless that is allowed.
        """
        handle = self.plan.handle()
        handle.allowed(allow_insecure)
        return handle


def loaded(model: Model | str | Path, allow_insecure: bool) -> Model:
    """The network itself, or the one in a file; InputError for anything else."""
    if isinstance(model, Model):
        return model
    if isinstance(model, (str, Path)):
        return Model.load(model, allow_insecure=allow_insecure)
    raise InputError(
        f"a {type(model).__name__} is no compiled network; give a Model (hushnet.compile) or the path of a .hush file."
    )

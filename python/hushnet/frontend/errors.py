"""What the front end says about a model that it cannot take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hushnet.errors import HushnetError


@dataclass(frozen=True)
class Issue:
    """One node (or input) of a model that cannot be compiled, and what to do about it."""

    node: str
    op_type: str
    problem: str
    advice: str

    def __str__(self) -> str:
        return f"{self.node} ({self.op_type}): {self.problem}. {self.advice}"


class ModelError(HushnetError, ValueError):
    """The model cannot be read, or is not valid ONNX."""


class UnsupportedModel(ModelError):
    """A valid model with nodes that cannot be compiled; ``issues`` lists all of them."""

    def __init__(self, issues: Sequence[Issue]):
        self.issues = list(issues)
        lines = "\n".join(f"  {issue}" for issue in self.issues)
        super().__init__(f"{len(self.issues)} unsupported part(s) in the model:\n{lines}")


class Unsupported(Exception):
    """Raised by an operator's lowering; the driver turns it into an :class:`Issue`."""

    def __init__(self, problem: str, advice: str):
        super().__init__(problem)
        self.problem = problem
        self.advice = advice

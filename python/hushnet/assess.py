"""What each trust model makes of an ONNX model: the predicted cost, or what stands in the way and where the network could be cut."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from hushnet import frontend
from hushnet.api import Inputs, Shapes, compile
from hushnet.errors import HushnetError

TRUST = ("client-aided", "two-party", "non-interactive")


@dataclass(frozen=True)
class Group:
    """Nodes of one operator that fail for one reason."""

    op_type: str
    problem: str
    advice: str
    nodes: tuple[str, ...]

    @property
    def count(self) -> int:
        """How many nodes."""
        return len(self.nodes)


@dataclass(frozen=True)
class Assessment:
    """One trust model's answer.

    Attributes:
        seconds, bytes_up, bytes_down: predicted for ``batch`` images; None where the model does not compile.
        groups: what stands in the way, by operator.
        until: where the network could end so that it compiles; None where no layer can run encrypted.
    """

    trust: str
    compiles: bool
    batch: int
    seconds: float | None = None
    bytes_up: int | None = None
    bytes_down: int | None = None
    groups: tuple[Group, ...] = field(default_factory=tuple)
    until: str | None = None

    def as_json(self) -> dict[str, Any]:
        """The assessment as one JSON object."""
        own = {k: v for k, v in vars(self).items() if k != "groups"}
        return own | {"groups": [vars(g) | {"nodes": list(g.nodes), "count": g.count} for g in self.groups]}


def assess(
    model: Any,
    trust: str,
    *,
    batch: int | None = None,
    calibration: Inputs | None = None,
    shapes: Shapes | None = None,
    until: Sequence[str] = (),
    cuts: bool = True,
) -> Assessment:
    """Compiles the model for one trust model, or says why not.

    Args:
        cuts: whether to look for a place where the network could end.

    Raises:
        ModelError: not a readable, valid ONNX model.
    """
    images = batch or {"two-party": 1, "non-interactive": 4096}.get(trust, 2048)

    def tried(end: Sequence[str]) -> Any:
        return compile(model, batch=images, trust=trust, calibration=calibration, shapes=shapes, until=end)

    try:
        predicted = tried(until).plan.document["predicted"]
    except frontend.UnsupportedModel as error:
        found = grouped(error.issues)
    except frontend.ModelError:
        raise
    except HushnetError as error:
        found = (_of_planner(str(error)),)
    else:
        return Assessment(trust, True, images, predicted["seconds"], predicted["bytes_up"], predicted["bytes_down"])
    cut = last_cut(frontend.cuts(model, shapes, until=until), tried) if cuts else None
    return Assessment(trust, False, images, groups=found, until=cut)


def grouped(issues: Iterable[frontend.Issue]) -> tuple[Group, ...]:
    """Issues with the same operator, problem and advice as one group each, in their first order."""
    nodes: dict[tuple[str, str, str], list[str]] = {}
    for issue in issues:
        nodes.setdefault((issue.op_type, issue.problem, issue.advice), []).append(issue.node)
    return tuple(Group(*key, tuple(dict.fromkeys(names))) for key, names in nodes.items())


def _of_planner(message: str) -> Group:
    """A refusal of the planner: its message is problem and advice in one."""
    problem, mark, advice = message.partition("; ")
    if not mark:
        problem, mark, advice = message.partition(". ")
    return Group("plan", problem, advice[:1].upper() + advice[1:], ("model",))


def last_cut(candidates: Sequence[str], compiles: Any) -> str | None:
    """The last tensor at which the network compiles when it ends there: whatever ends earlier is a part of what ends later."""
    low, high = 0, len(candidates)
    while low < high:
        middle = (low + high) // 2
        try:
            compiles([candidates[middle]])
        except HushnetError:
            high = middle
        else:
            low = middle + 1
    return candidates[low - 1] if low else None


__all__ = ["TRUST", "Assessment", "Group", "assess", "grouped", "last_cut"]

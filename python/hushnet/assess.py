"""What each trust model makes of a model: the predicted cost, or all that stands in the way and where to cut."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hushnet import frontend
from hushnet.api import lowered, planned, read, sample_shapes
from hushnet.errors import BlockedPlan, HushnetError
from hushnet.graph import Graph, Linear
from hushnet.model import Model
from hushnet.options import KINDS, Inputs, Shapes, made

TRUST = tuple(KINDS)
# images of made-up calibration data, and how many tensors a cut may open
MADE_UP = 2
# options of a non-interactive plan that needs the least modulus
FEWEST: dict[str, Any] = {"weight_bits": 7}
MOST_ENDS = 4

_NORMALISES = (
    "it normalises by private numbers",
    "Use BatchNormalization, whose numbers are constants (and train the network again).",
)
_REPEATS = (
    "it computes gates of private numbers in every step",
    "Use convolutions over the sequence (and train the network again).",
)
_LOOKS_UP = ("it looks up private indices", "Look the rows up before, so that they are the network's input.")
# of ONNX operators that are several ops of a plan: what they do, and what to do where one op cannot be planned
_WHOLE: dict[str, tuple[str, str]] = {
    **dict.fromkeys(("GroupNormalization", "InstanceNormalization", "LayerNormalization", "LRN"), _NORMALISES),
    **dict.fromkeys(("LpNormalization", "MeanVarianceNormalization", "RMSNormalization"), _NORMALISES),
    **dict.fromkeys(("GRU", "LSTM", "RNN"), _REPEATS),
    **dict.fromkeys(("Gather", "OneHot"), _LOOKS_UP),
}


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
        made_up: whether the plan needs calibration data, none was given, and the figures are those of random inputs:
            ranges that hold for all inputs are too wide for this network. Where the network does not compile, the
            same of the part up to ``until``.
        groups: what stands in the way, by operator.
        until: tensors, comma-separated, at which the network could end so that it compiles; None where no layer can
            run encrypted.
    """

    trust: str
    compiles: bool
    batch: int
    seconds: float | None = None
    bytes_up: int | None = None
    bytes_down: int | None = None
    made_up: bool = False
    groups: tuple[Group, ...] = field(default_factory=tuple)
    until: str | None = None

    def as_json(self) -> dict[str, Any]:
        """The assessment as one JSON object."""
        own = {k: v for k, v in vars(self).items() if k != "groups"}
        return own | {"groups": [vars(g) | {"nodes": list(g.nodes), "count": g.count} for g in self.groups]}


def assess(model: Any, trust: str, **options: Any) -> Assessment:
    """One trust model's answer; see :func:`assess_all`."""
    return assess_all(model, (trust,), **options)[0]


def assess_all(
    model: Any,
    trusts: Sequence[str] = TRUST,
    *,
    batch: int | None = None,
    calibration: Inputs | None = None,
    shapes: Shapes | None = None,
    until: Sequence[str] = (),
    cuts: bool = True,
    example: Any = None,
) -> tuple[Assessment, ...]:
    """Compiles a model for each trust model, or says why not.

    Args:
        model: as :func:`hushnet.compile` takes it.
        batch: images that cost is predicted for; None for what :func:`hushnet.compile` takes.
        cuts: whether to look for a place where the network could end.

    Raises:
        ModelError: not a readable, valid ONNX model.
    """
    task = _Task(read(model, example), calibration, shapes, tuple(until))
    return tuple(task.assess(trust, batch, cuts) for trust in trusts)


class _Task:
    """One model, read once for all trust models; networks that end earlier are read once, too."""

    def __init__(self, model: Any, calibration: Inputs | None, shapes: Shapes | None, until: tuple[str, ...]) -> None:
        self.model, self.calibration, self.shapes, self.until = model, calibration, shapes, until
        self._graphs: dict[tuple[str, ...], Graph | frontend.UnsupportedModel] = {}
        self._ports: dict[tuple[str, ...], frontend.Ports] = {}
        self._outline: tuple[frontend.Outline, set[str]] | None = None
        # what :meth:`tried` found, with whether made-up data were needed
        self._tried: dict[tuple[str, int, tuple[str, ...]], tuple[list[frontend.Issue] | None, bool]] = {}
        # whether the last network that could be planned needed made-up data
        self.made_up_last = False

    @property
    def outline(self) -> frontend.Outline:
        """The nodes of the model."""
        return self._read()[0]

    def _read(self) -> tuple[frontend.Outline, set[str]]:
        if self._outline is None:
            self._outline = frontend.outline(self.model, self.shapes, samples=self._samples(), until=self.until)
        return self._outline

    def _samples(self) -> Shapes:
        return sample_shapes(self.model, self.calibration)

    def graph(self, until: tuple[str, ...]) -> Graph:
        """The network that ends there.

        Raises:
            UnsupportedModel: with nodes that the front end does not take.
        """
        if until not in self._graphs:
            try:
                found, self._ports[until] = lowered(
                    self.model, calibration=self.calibration, shapes=self.shapes, until=until
                )
                self._graphs[until] = found
            except frontend.UnsupportedModel as error:
                self._graphs[until] = error
        found_or_error = self._graphs[until]
        if isinstance(found_or_error, frontend.UnsupportedModel):
            raise found_or_error
        return found_or_error

    def plan(self, graph: Graph, trust: str, batch: int | None, *, cheapest: bool = True) -> tuple[Model, bool]:
        """The plan, and whether it needed calibration data that are made up here.

        Args:
            cheapest: whether the plan's cost counts; otherwise it is enough that there is one. Non-interactive plans
                with the fewest bits of weights need the least modulus, so one of them exists where any does.

        Raises:
            HushnetError: it cannot be planned.
        """
        some = {} if cheapest or trust != "non-interactive" else FEWEST
        ports = next((p for end, p in self._ports.items() if self._graphs[end] is graph), frontend.Ports())
        try:
            return planned(graph, ports, made(trust, {"batch": batch, "calibration": self.calibration, **some})), False
        except BlockedPlan:
            raise
        except HushnetError:
            if self.calibration is not None:
                raise
        # random inputs tell nothing of the bits that the network needs
        bits = some if trust == "non-interactive" else {"weight_bits": 8}
        asked = made(trust, {"batch": batch, "calibration": self.made_up(graph), **bits})
        return planned(graph, ports, asked), True

    def made_up(self, graph: Graph) -> dict[str, np.ndarray]:
        """Random inputs: numbers from 0 to 1, integers 0 and 1."""
        rng, whole = np.random.default_rng(0), self._read()[1]
        return {
            name: rng.integers(0, 2, (MADE_UP, *graph.shapes[name])).astype(np.float64)
            if name in whole
            else rng.random((MADE_UP, *graph.shapes[name]))
            for name in graph.inputs
        }

    def assess(self, trust: str, batch: int | None, cuts: bool) -> Assessment:
        """One trust model's answer."""
        images = batch or KINDS[trust].usual_batch
        try:
            graph = self.graph(self.until)
            try:
                plan, made_up = self.plan(graph, trust, images)
            except BlockedPlan:
                raise
            except HushnetError:
                # a network that is too large for many images at once may run one by one
                if batch is not None or images == 1:
                    raise
                images = 1
                plan, made_up = self.plan(graph, trust, images)
        except frontend.UnsupportedModel as error:
            issues = list(error.issues)
        except frontend.ModelError:
            raise
        except HushnetError as error:
            issues = self.refused(error)
        else:
            told = plan.plan.document["predicted"]
            return Assessment(trust, True, images, told["seconds"], told["bytes_up"], told["bytes_down"], made_up)
        self.made_up_last = False
        end = self.cut(trust, images, issues) if cuts else None
        return Assessment(
            trust,
            False,
            images,
            made_up=bool(end) and self.made_up_last,
            groups=grouped(issues),
            until=",".join(end) if end else None,
        )

    def refused(self, error: HushnetError) -> list[frontend.Issue]:
        """A planner's refusal, every node of the model once."""
        if not isinstance(error, BlockedPlan):
            return [self._of_planner(str(error))]
        found: dict[str, frontend.Issue] = {}
        for blocked in error.blocked:
            name, kind = self.outline.source(blocked.node)
            label = kind if not kind or kind.lower() == blocked.op.replace("_", "") else f"{kind} ({blocked.op})"
            problem, advice = blocked.problem, blocked.advice
            if kind in _WHOLE:
                problem, advice = f"{_WHOLE[kind][0]}, and {problem}", _WHOLE[kind][1]
            found.setdefault(name, frontend.Issue(name, label or blocked.op, problem, advice))
        return list(found.values())

    def _of_planner(self, message: str) -> frontend.Issue:
        """A refusal that is one message, problem and advice in one; it may name a layer."""
        problem, mark, advice = message.partition("; ")
        if not mark:
            problem, mark, advice = message.partition(". ")
        named = re.search(r"(?:layer|node) '([^']+)'", problem)
        name, kind = self.outline.source(named[1]) if named else ("model", "")
        return frontend.Issue(name, kind or "plan", problem, advice[:1].upper() + advice[1:])

    def cut(self, trust: str, images: int, issues: list[frontend.Issue]) -> list[str] | None:
        """Where the network could end. What else stands in the way of that part is added to the issues.

        First right in front of all nodes in the way, as long as these are few tensors; else at the last tensor
        through which everything goes.
        """
        blocked: set[str] = set()
        new = {issue.node for issue in issues}
        while new and all(self.outline.knows(name) for name in new):
            blocked |= new
            ends = self.outline.ends(blocked)
            if not ends or set(ends) == set(self.outline.outputs):
                return None
            more = self.tried(trust, images, ends)
            if more is None and len(ends) <= MOST_ENDS:
                return ends
            new = {issue.node for issue in more or []} - blocked
            known = {issue.node for issue in issues}
            issues += [issue for issue in more or [] if issue.node in new - known and self.outline.knows(issue.node)]
        lost = self.outline.behind(blocked)
        candidates = [name for name in self.outline.cuts if name not in lost]
        found = last_cut(candidates, lambda end: self.tried(trust, images, end) is None)
        return None if found is None else [found]

    def tried(self, trust: str, images: int, ends: Sequence[str]) -> list[frontend.Issue] | None:
        """None where a network that ends there compiles and has a layer; otherwise what stands in its way."""
        key = (trust, images, tuple(ends))
        if key not in self._tried:
            self._tried[key] = self._ending(trust, images, tuple(ends))
        found, made_up = self._tried[key]
        if found is None:
            self.made_up_last = made_up
        return found

    def _ending(self, trust: str, images: int, ends: tuple[str, ...]) -> tuple[list[frontend.Issue] | None, bool]:
        try:
            graph = self.graph(ends)
            if not any(isinstance(node, Linear) for node in graph.nodes):
                return [], False
            return None, self.plan(graph, trust, images, cheapest=False)[1]
        except frontend.UnsupportedModel as error:
            return list(error.issues), False
        except HushnetError as error:
            return self.refused(error), False


def grouped(issues: Iterable[frontend.Issue]) -> tuple[Group, ...]:
    """Issues with the same operator, problem and advice as one group each, in their first order."""
    nodes: dict[tuple[str, str, str], list[str]] = {}
    for issue in issues:
        nodes.setdefault((issue.op_type, issue.problem, issue.advice), []).append(issue.node)
    return tuple(Group(*key, tuple(dict.fromkeys(names))) for key, names in nodes.items())


def last_cut(candidates: Sequence[str], compiles: Callable[[list[str]], bool]) -> str | None:
    """The last tensor at which the network compiles when it ends there.

    Whatever ends earlier is a part of what ends later.
    """
    low, high = 0, len(candidates)
    # what is near the end is tried first: mostly it is the one
    middle = high - 1
    while low < high:
        if compiles([candidates[middle]]):
            low = middle + 1
        else:
            high = middle
        middle = (low + high) // 2
    return candidates[low - 1] if low else None


__all__ = ["TRUST", "Assessment", "Group", "assess", "assess_all", "grouped", "last_cut"]

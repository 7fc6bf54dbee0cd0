"""The layers of an explanation as steps that all trust models share: who works, what is sent, how long, how exact."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from .markup import short

Report = Mapping[str, Any]
# kinds of stages that the client computes alone, and those that the server does
# ops that every client stage has
_INNER = frozenset({"quantize", "dequantize", "channel_scale"})
_CLIENTS = frozenset({"client", "share", "reveal", "encrypt", "decrypt"})


@dataclass(frozen=True)
class Step:
    """One layer, or several that are drawn as one.

    Attributes:
        name: the layer's name; of several, the first and the last.
        side: "client", "server" or "both".
        what: what is computed.
        method: the method of a linear layer, or the protocol of a non-linear one.
        up, down: bytes that the client and the server send.
        rounds: messages that depend on each other.
        seconds: predicted, of both parties together; None where nothing is known.
        measured: seconds that a run took.
        measured_up, measured_down: bytes that a run sent.
        error: the largest likely error as a share of the layer's range.
        memory: bytes that the layer needs on one side, the larger one.
        count: layers that are drawn as one.
        client, server: of several, what each party does in them.
    """

    name: str
    side: str
    what: str
    method: str = ""
    up: int = 0
    down: int = 0
    rounds: int = 0
    seconds: float | None = None
    measured: float | None = None
    measured_up: int | None = None
    measured_down: int | None = None
    error: float | None = None
    memory: int | None = None
    count: int = 1
    client: str = ""
    server: str = ""

    @property
    def sends(self) -> bool:
        """Whether anything is sent."""
        return self.up > 0 or self.down > 0


def steps(report: Report) -> list[Step]:
    """The steps of an explanation of any trust model."""
    made = {"two-party": _two_party, "non-interactive": _non_interactive}.get(report["trust"]["mode"], _client_aided)
    errors = report["totals"].get("layer_errors", {})
    found = made(report)
    return [replace(s, error=errors.get(s.name, s.error)) for s in found]


def _client_aided(report: Report) -> list[Step]:
    found = []
    for layer in report["layers"]:
        seen = layer.get("measured", {})
        client = layer["kind"] == "client"
        shown = [op for op in layer.get("ops", ()) if op not in _INNER]
        found.append(
            Step(
                layer["name"],
                "client" if client else "server",
                (", ".join(shown) or "encode or decode") if client else layer["geometry"],
                "" if client else layer["method"],
                layer.get("bytes_up", 0),
                layer.get("bytes_down", 0),
                0 if client else 1,
                layer["seconds_client"] + layer.get("seconds_server", 0.0),
                seen["seconds_client"] + seen.get("seconds_server", 0.0) if seen else None,
                seen.get("bytes_up"),
                seen.get("bytes_down"),
                memory=None if client else max(layer["client_memory_bytes"], layer["server_memory_bytes"]),
            )
        )
    return found


def _two_party(report: Report) -> list[Step]:
    found = []
    for layer in report["layers"]:
        kind, seen = layer["kind"], layer.get("measured", {})
        side = "client" if kind in _CLIENTS else "server" if kind == "linear" else "both"
        what = layer["what"] if kind in {"linear", "client"} else f"{kind.replace('_', '-')} {layer['what']}".strip()
        found.append(
            Step(
                layer["name"],
                side,
                what,
                layer.get("method", ""),
                layer["bytes_up"],
                layer["bytes_down"],
                layer["rounds"],
                layer["seconds"],
                seen.get("seconds"),
                seen.get("bytes_up"),
                seen.get("bytes_down"),
                memory=layer.get("memory_bytes"),
            )
        )
    return found


def _non_interactive(report: Report) -> list[Step]:
    """One message goes up and one comes down; what the client computes behind the answer stands at the end."""
    totals, found = report["totals"], []
    for layer in report["layers"]:
        kind, seen = layer["kind"], layer.get("measured", {})
        client = kind in _CLIENTS
        what = layer.get("geometry") or (", ".join(layer["ops"]) if kind == "client" else kind.replace("_", "-"))
        bound = layer.get("error_expected", layer.get("error_bound"))
        level = f"level {layer['level']}" if "level" in layer else ""
        found.append(
            Step(
                layer["name"],
                "client" if client else "server",
                what,
                level,
                totals["bytes_up"] if kind == "encrypt" else 0,
                totals["bytes_down"] if kind == "decrypt" else 0,
                1 if kind == "decrypt" else 0,
                measured=seen.get("seconds_server"),
                error=bound / layer["bound"] if bound is not None and layer.get("bound") else None,
            )
        )
    return found


def folded(found: Sequence[Step], most: int) -> list[Step]:
    """At most ``most`` steps: neighbours that send nothing on one side become one, then runs of equal length do."""
    if len(found) <= most:
        return list(found)
    groups: list[list[Step]] = []
    for step in found:
        last = groups[-1][-1] if groups else None
        if last is not None and not step.sends and not last.sends and step.side == last.side:
            groups[-1].append(step)
        else:
            groups.append([step])
    if len(groups) > most:
        edges = [len(groups) * i // most for i in range(most + 1)]
        groups = [[step for group in groups[a:b] for step in group] for a, b in pairwise(edges)]
    return [together(group) for group in groups]


def together(group: Sequence[Step]) -> Step:
    """Several steps as one: sums of what is spent, the largest of what is held."""
    if len(group) == 1:
        return group[0]
    sides = {s.side for s in group}
    return Step(
        f"{short(group[0].name, 13)} \N{EN DASH} {short(group[-1].name, 13)}",
        sides.pop() if len(sides) == 1 else "both",
        _kinds(group),
        ", ".join(sorted({s.method for s in group if s.method})),
        sum(s.up for s in group),
        sum(s.down for s in group),
        sum(s.rounds for s in group),
        _sum([s.seconds for s in group]),
        _sum([s.measured for s in group]),
        _sum([s.measured_up for s in group]),
        _sum([s.measured_down for s in group]),
        max((s.error for s in group if s.error is not None), default=None),
        max((s.memory for s in group if s.memory is not None), default=None),
        len(group),
        _kinds([s for s in group if s.side != "server"]),
        _kinds([s for s in group if s.side != "client"]),
    )


def _kinds(group: Sequence[Step]) -> str:
    """What steps do, counted."""
    kinds = Counter(s.what.split(",")[0].split(" ")[0] for s in group)
    return ", ".join(f"{n} {kind}" for kind, n in kinds.most_common(4))


def _sum(values: Sequence[Any]) -> Any:
    known = [v for v in values if v is not None]
    return sum(known) if known else None

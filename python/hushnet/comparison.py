"""One model in every trust model and by several methods, side by side, and a recommendation: ``compare``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hushnet import _native, frontend
from hushnet.api import compile, read
from hushnet.errors import HushnetError
from hushnet.options import Inputs, Shapes, Trust


@dataclass(frozen=True)
class Way:
    """One way to run a model.

    Attributes:
        name: what rows call it.
        trust: its trust model.
        options: of ``compile``.
        weights_private: whether the client cannot solve for the weights.
    """

    name: str
    trust: Trust
    options: Mapping[str, Any] = field(default_factory=dict)
    weights_private: bool = True


def ways(methods: bool) -> list[Way]:
    """All ways; with ``methods`` every two-party method of linear layers, and both client-aided engines."""
    found = [Way("client-aided", "client-aided", weights_private=False)]
    if methods:
        found += [
            Way(f"client-aided, {engine}", "client-aided", {"engine": engine}, weights_private=False)
            for engine in ("batch", "packed")
        ]
    found.append(Way("two-party", "two-party"))
    if methods:
        found += [Way(f"two-party, {name}", "two-party", {"method": name}) for name, _ in _native.linear_methods()]
    found.append(Way("non-interactive", "non-interactive", weights_private=False))
    found.append(Way("non-interactive, weights hidden", "non-interactive", {"hide_weights": True}))
    return found


@dataclass(frozen=True)
class Compared:
    """What one way costs and what its answers are worth, or why there is no plan.

    Attributes:
        refused: why there is no plan; "" where there is one.
        learns: what the server, and what the client learns.
        seconds, bytes: of an image in a batch of ``batch``, predicted; set-up counts.
        memory_bytes: of both parties together.
        accuracy: on the calibration data, where labels were given; agreement: with the original network.
        error: what 999 rows of 1000 keep.
        shortfalls: sentences, where the plan is not as good as was asked for.
    """

    way: Way
    batch: int
    refused: str = ""
    learns: tuple[str, str] = ("", "")
    seconds: float | None = None
    bytes: float | None = None
    rounds: int | None = None
    memory_bytes: int | None = None
    accuracy: float | None = None
    agreement: float | None = None
    error: float | None = None
    shortfalls: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """One JSON object."""
        own = {k: v for k, v in vars(self).items() if k not in ("way", "learns", "shortfalls")}
        server, client = self.learns
        told = {"way": self.way.name, "trust": self.way.trust, "weights_private": self.way.weights_private}
        return told | own | {"server_learns": server, "client_learns": client, "shortfalls": list(self.shortfalls)}


@dataclass(frozen=True)
class Comparison:
    """All ways, and a recommendation in one sentence."""

    rows: tuple[Compared, ...]
    recommendation: str

    def as_json(self) -> dict[str, Any]:
        """One JSON object."""
        return {"rows": [row.as_json() for row in self.rows], "recommendation": self.recommendation}

    def __repr__(self) -> str:
        refused = sum(bool(row.refused) for row in self.rows)
        ways = ", ".join(row.way.name for row in self.rows if not row.refused)
        return f"Comparison({ways}; {refused} refused)"


def compare(
    model: Any,
    *,
    calibration: Inputs,
    labels: Any = None,
    batch: int = 1,
    methods: bool = False,
    shapes: Shapes | None = None,
    until: Sequence[str] = (),
    outputs: Sequence[str] = (),
) -> Comparison:
    """Compiles a model in every way.

    Args:
        model: as :func:`hushnet.compile` takes it, but for modules of PyTorch.
        calibration: sample inputs: ranges, errors and agreement come from them.
        labels: right answers of the calibration rows, for accuracy.
        batch: images sent at once; the same for all, so that figures of one image compare.
        methods: whether single methods are compared too.

    Raises:
        ModelError: not a readable, valid ONNX model.
    """
    model, rows = read(model), []
    for way in ways(methods):
        asked = dict(way.options) | ({} if labels is None else {"labels": labels})
        try:
            compiled = compile(
                model, batch=batch, trust=way.trust, calibration=calibration, shapes=shapes, until=until,
                outputs=outputs, **asked,
            )  # fmt: skip
        except frontend.UnsupportedModel as error:
            rows.append(Compared(way, batch, refused=" ".join(str(error).split())))
        except frontend.ModelError:
            raise
        except HushnetError as error:
            rows.append(Compared(way, batch, refused=" ".join(str(error).split())))
        else:
            rows.append(_row(way, batch, compiled))
    return Comparison(tuple(rows), recommendation(rows))


def _row(way: Way, batch: int, compiled: Any) -> Compared:
    predicted, explained = compiled.plan.predicted, compiled.explain()
    sent = sum(
        predicted.get(k, 0) for k in ("bytes_up", "bytes_down", "setup_bytes_up", "setup_bytes_down", "setup_bytes")
    )
    memory = predicted.get("client_peak_memory_bytes", 0) + predicted.get("server_peak_memory_bytes", 0)
    return Compared(
        way,
        batch,
        learns=(explained["trust"]["server_learns"], explained["trust"]["client_learns"]),
        seconds=(predicted["seconds"] + predicted.get("setup_seconds", 0.0)) / batch,
        bytes=sent / batch,
        rounds=predicted.get("rounds"),
        memory_bytes=memory,
        accuracy=predicted.get("accuracy", {}).get("planned"),
        agreement=predicted.get("agreement"),
        error=predicted.get("max_error"),
        shortfalls=tuple(compiled.shortfalls),
    )


def recommendation(rows: Sequence[Compared]) -> str:
    """One sentence: the fastest way that keeps the weights private, and what it would save to give that up.

    Ways that fall short of their precision or accuracy are taken only where no other is left.
    """
    made = [row for row in rows if not row.refused]
    good = [row for row in made if not row.shortfalls] or made
    if not good:
        return "No trust model takes this network: `hushnet check` says what is in the way and where it could be cut."
    private = [row for row in good if row.way.weights_private]
    fastest = min(good, key=_seconds)
    chosen = min(private or good, key=_seconds)
    worth = f"Take {chosen.way.name}: {_figures(chosen)}"
    if not chosen.way.weights_private:
        return f"{worth}; no way that keeps the weights from clients takes this network as precisely as was asked."
    if fastest is chosen:
        return f"{worth}; it is the fastest and keeps both inputs and weights private."
    times = _seconds(chosen) / max(_seconds(fastest), 1e-12)
    return (
        f"{worth}, with inputs and weights private; {fastest.way.name} is {times:.3g} times as fast, where clients may "
        "learn the weights."
    )


def _seconds(row: Compared) -> float:
    return row.seconds if row.seconds is not None else float("inf")


def _figures(row: Compared) -> str:
    told = f"{_seconds(row):.3g} s and {(row.bytes or 0) / 1e6:.3g} MB an image"
    if row.accuracy is not None:
        return f"{told}, accuracy {row.accuracy:.4g}"
    return told if row.agreement is None else f"{told}, {100 * row.agreement:.4g} % of the original network's labels"


__all__ = ["Compared", "Comparison", "Way", "compare", "recommendation", "ways"]

"""What the steps of a run are expected to send and to take, for progress: step by step, as the run time tells them."""

from __future__ import annotations

from dataclasses import dataclass

from ..plan import Plan
from ..planner.cost import blocks
from ..planner.two_party import cost
from .explaining import explain


@dataclass(frozen=True)
class Step:
    """One step of a run over some images.

    Attributes:
        name: of the stage.
        bytes: of its messages, both ways.
        seconds: of both parties, and of the network where the plan is for one.
    """

    name: str
    bytes: float
    seconds: float


def expected(plan: Plan, images: int) -> list[Step]:
    """The steps that the client tells its progress by, in order.

    A non-interactive plan has those that send: what the server computes in between counts for the last ones.

    Args:
        plan: a plan, or the public part of one.
        images: of the run.
    """
    trust, predicted = plan.document["trust"], plan.predicted
    if trust == "two-party":
        return _two_party(plan, images)
    batch = predicted["batch"]
    if trust == "non-interactive":
        size = explain(plan)["parameters"]["images_per_block"]
        factor = blocks(images, size) / blocks(batch, size)
        ends = {kind: [s["name"] for s in plan.stages if s["kind"] == kind] for kind in ("encrypt", "decrypt")}
        sent = {"encrypt": predicted["bytes_up"], "decrypt": predicted["bytes_down"]}
        spent = {"encrypt": 0.0, "decrypt": predicted.get("seconds", 1.0)}
        return [
            Step(name, factor * sent[kind] / len(names), factor * spent[kind] / len(names))
            for kind, names in ends.items()
            for name in names
        ]
    few = plan.document["engine"] == "packed"
    factor = images / batch if few else blocks(images, plan.ring_degree) / blocks(batch, plan.ring_degree)
    return [
        Step(
            layer["name"],
            factor * (layer.get("bytes_up", 0) + layer.get("bytes_down", 0)),
            factor * (layer["seconds_client"] + layer.get("seconds_server", 0.0)),
        )
        for layer in explain(plan)["layers"]
    ]


def _two_party(plan: Plan, images: int) -> list[Step]:
    unit = cost.unit_costs()
    network = cost.link(plan.predicted.get("network", "loopback"), unit)
    found = cost.account(plan.document, unit, images, plan.handle())
    steps = []
    for stage, spent in zip(plan.stages, found.stages):
        both = [spent.he, spent.ot]
        traffic = cost.Traffic(*(sum(getattr(t, way) for t in both) for way in ("up", "down", "rounds")))
        steps.append(Step(stage["name"], traffic.up + traffic.down, cost.seconds(traffic, spent.compute, network)))
    return steps

"""From a graph to a plan of the packed engine: one image, many features a ciphertext (``docs/packed.md``)."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np

from ... import _native
from ...errors import LimitError
from ...graph import Graph
from ...options import NonInteractive
from ...plan import Plan, PlanError
from ..read import validate
from . import primes as prime_table
from .activation import Replacement
from .network import Images, Network, usual_magnitudes
from .outputs import output_errors
from .steps import Array, Linear
from .write import Writer

INPUT, OUTPUT = "input", "result"
# elements of a block, where images stand side by side: the slots of a ring that bootstraps
SIDE_BY_SIDE = 1 << 15


def compile_packed(
    network: Network,
    graph: Graph,
    images: Images | None,
    name: str,
    batch: int,
    settings: NonInteractive,
    replaced: Replacement | None,
    aim: float | None = None,
) -> Plan:
    """A plan of the packed engine; blocks are served one after the other. ``aim``: bits, where not as asked for.

    Raises:
        PlanError: no secure parameters carry the network (with layers and levels), or more memory than allowed.
    """
    if settings.batch_only():
        raise PlanError(
            "weight_bits, packing and lazy are choices of the batch engine; leave them out for one image, or give "
            "engine='batch'"
        )
    spec, arrays = specification(network, images)
    together = side_by_side(network, batch)
    if together > 1:
        spec = _repeated(spec, together)
    options = {
        "precision_bits": math.ceil(settings.precision_bits if aim is None else aim),
        "hide_weights": settings.hide_weights,
        "ring_degree": settings.ring_degree or 0,
        "memory_bytes": settings.max_memory,
        "bootstrap": settings.bootstrap,
    }
    if settings.key_bytes is not None:
        options["key_bytes"] = settings.key_bytes
    try:
        circuit = _native.PackedCircuit(json.dumps(spec), arrays, json.dumps(options))
    except ValueError as error:
        raise PlanError(str(error)) from None
    text, slots, places = circuit.plan()
    return _finish(
        _Writer(graph, network, name, settings, replaced).packed(
            json.loads(text), slots, places, spec, arrays, together
        ),
        network,
        images,
        (batch, together),
        settings,
    )


def side_by_side(network: Network, batch: int) -> int:
    """How many images share a block: with dense layers alone as many as the widest tensor leaves room for.

    Images stand beside each other as places of a map do, features being its channels: a dense layer is a 1x1
    convolution then, and everything else works on elements. Convolutions have places of their own, whose neighbours
    they read.
    """
    if any(isinstance(step, Linear) and step.geometry["type"] != "dense" for step in network.steps):
        return 1
    widest = max(tensor.size for tensor in network.tensors)
    return max(1, min(batch, SIDE_BY_SIDE // (1 << (widest - 1).bit_length())))


def _repeated(spec: dict[str, Any], images: int) -> dict[str, Any]:
    """A specification of dense layers for so many images side by side: element e of image b is element e images + b."""
    tensors = [{**t, "shape": [math.prod(t["shape"]), 1, images]} for t in spec["tensors"]]
    steps = []
    for step in spec["steps"]:
        if step["kind"] == "linear":
            rows, columns = step["geometry"]["outputs"], step["geometry"]["inputs"]
            place = {"kernel": [1, 1], "stride": [1, 1], "pads": [0, 0, 0, 0], "dilation": [1, 1], "groups": 1}
            ends = {"input": [columns, 1, images], "output": [rows, 1, images]}
            step = {**step, "geometry": {"type": "conv2d", **ends, **place}}
        steps.append(step)
    return spec | {"tensors": tensors, "steps": steps}


def specification(network: Network, images: Images | None) -> tuple[dict[str, Any], dict[str, Array]]:
    """What the engine takes: sums of two, and usual magnitudes where calibration images tell them."""
    spec, arrays = network.spec()
    if images is not None:
        for key, value in usual_magnitudes(network, images).items():
            spec["tensors"][key]["usual"] = value
    steps: list[dict[str, Any]] = []
    for step in spec["steps"]:
        if step["kind"] == "add":
            step = _pairs(step, spec["tensors"], steps)
        steps.append(step)
    return spec | {"steps": steps}, arrays


def _pairs(step: dict[str, Any], tensors: list[dict[str, Any]], steps: list[dict[str, Any]]) -> dict[str, Any]:
    """A sum of any number of tensors as sums of two; the last one is returned, the others go to ``steps``."""
    first, *rest = step["in"]
    if not rest:
        raise PlanError(f"sum {step['name']!r} has one operand")
    for index, other in enumerate(rest[:-1]):
        whole = tensors[step["out"]]
        made = {**whole, "id": len(tensors), "name": f"{whole['name']}.part{index}"}
        made["bound"] = tensors[first]["bound"] + tensors[other]["bound"]
        made.pop("usual", None)
        tensors.append(made)
        steps.append({"kind": "add", "name": f"{step['name']}.part{index}", "in": [first, other], "out": made["id"]})
        first = made["id"]
    return {**step, "in": [first, rest[-1]]}


class _Writer(Writer):
    """Writes the plan document."""

    def packed(
        self,
        facts: dict[str, Any],
        slots: list[Array],
        places: Array,
        spec: dict[str, Any],
        arrays: dict[str, Array],
        images: int,
    ) -> Plan:
        real = self.head()
        first, last = network_ends(self.network)
        encrypted = self.out.tensor(f"{first.name}.encrypted", first.shape, "cipher", bound=first.bound)
        self.out.stage("encrypt", "encrypt", real, encrypted)
        if facts["deviation"] is None:
            raise PlanError(
                "no bound of the error holds for inputs of the worst kind: products in so many layers, one after the "
                "other, let it grow beyond what a number holds; use fewer layers, or activations of a lower degree"
            )
        noise = max(0, math.ceil(math.log2(facts["deviation"]) + 1e-9))
        result = self.out.tensor(f"{last.name}.encrypted", last.shape, "cipher", bound=last.bound, noise_bits=noise)
        uploads, weights = [], self.out.weights
        for index, (level, array) in enumerate(zip(facts["levels"], slots)):
            key = f"network.{INPUT}{index}"
            weights[key] = array.astype(np.int16) if first.size * images <= np.iinfo(np.int16).max else array
            uploads.append({"level": level, "slots": key})
        weights[f"network.{OUTPUT}"] = places
        for key, array in arrays.items():
            weights[key] = np.ascontiguousarray(array, dtype=np.float64).reshape(-1)
        told = {
            key: facts[key]
            for key in ("scale", "rotations", "answer", "answer_level", "answer_scale", "options", "choices")
        }
        if images > 1:
            told["images"] = images
        if facts["bootstrap"] is not None:
            told["bootstrap"] = facts["bootstrap"]
        self.out.stage(
            "packed", "network", encrypted, result, uploads=uploads, places=f"network.{OUTPUT}", **told, network=spec
        )
        self.tail(result)
        params = facts["params"]
        return self.written("packed", params["ring_degree"], params["non_interactive"], facts["flood_bits"], 1)


def network_ends(network: Network) -> tuple[Any, Any]:
    """The tensors that are encrypted and decrypted."""
    return network.tensors[0], network.tensors[network.output]


def _finish(
    plan: Plan, network: Network, images: Images | None, blocks: tuple[int, int], settings: NonInteractive
) -> Plan:
    """What follows exactly from the plan: bytes, operations, memory, errors.

    Args:
        blocks: images, and how many share a block.
    """
    batch, together = blocks
    count = -(-batch // together)
    facts = json.loads(_native.Plan.load(plan.to_bytes()).facts())["non_interactive"]
    report, traffic, document = facts["packed"], facts["traffic"], plan.document
    bound = next(t for t in document["tensors"] if "noise_bits" in t)["bound"]
    estimate = min(report["error_expected"], report["error_bound"])
    client = report["client_bytes"]
    document["predicted"] |= {
        "batch": batch,
        "seconds": report["seconds"] * count,
        "bytes_up": traffic["up"] * count,
        "bytes_down": traffic["down"] * count,
        "setup_bytes_up": traffic["keys"],
        "setup_bytes_down": 0,
        "client_peak_memory_bytes": client,
        "server_peak_memory_bytes": report["memory_bytes"],
        "rounds": 1,
        "max_error": estimate,
        "worst_error": report["error_bound"],
        "noise_error": estimate,
        "precision_bits": math.log2(bound / max(estimate, 1e-300)),
        "depth": report["levels"],
        "counted": facts["counted"],
        "output_errors": output_errors(network, estimate, report["error_bound"], images),
    }
    memory = client + report["memory_bytes"]
    if memory > settings.max_memory:
        raise LimitError(
            f"client and server need {memory / 2**30:.2f} GiB, max_memory is {settings.max_memory / 2**30:.2f} GiB; "
            "raise max_memory, "
            "or use activations of a lower degree",
            "memory",
            needed=memory,
            limit=settings.max_memory,
            unit="bytes",
        )
    limit = prime_table.limit_bits(document["params"]["ring_degree"])
    if report["modulus_bits"] > limit:
        raise PlanError(
            f"the circuit has {report['modulus_bits']:.0f} bits of modulus, 128-bit security allows {limit}; that is a "
            "mistake of the planner"
        )
    validate(plan)
    return plan

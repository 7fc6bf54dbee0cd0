"""Predicted work, bytes and seconds. Bytes are the run time's own account, exact (docs/wire-protocol.md)."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, fields
from importlib import resources
from pathlib import Path
from typing import Any

from .. import _native
from ..plan import WEIGHTS, Plan, PlanError
from .quantise import mask_parts
from .tiles import layout

ENVIRONMENT = "HUSHNET_UNIT_COSTS"


def instruction_set() -> str:
    """Of the two whose unit costs the package has, which is nearer to this machine's.

    ``avx512``, or ``avx2`` for anything less.
    """
    return "avx2" if _native.simd() in ("avx2", "neon", "portable") else "avx512"


def of_package(package: str, name: str) -> dict[str, Any]:
    """The unit costs in a package's file: those of every machine, and those of this one's instruction set."""
    found = json.loads(resources.files(package).joinpath(name).read_text())
    return {**found.get("any", {}), **found[instruction_set()]}


@dataclass(frozen=True)
class UnitCosts:
    """Seconds of one thread for one unit of work. ``hushnet measure-machine`` measures them.

    Files may hold more rows, for other methods.

    Attributes:
        word_product: one ciphertext word times one weight, in a layer with many outputs a group.
        narrow_product: the same with one output a group (depthwise).
        encrypt_word: one word of an upload, with a transformed mask, packed.
        decrypt_word: one word of a download, unpacked.
        mask_word: one word of a mask made from the seed.
        transform_word: one word of a mask transformed (client).
        server_word: one word unpacked, or cut and packed, by the server.
        op_element: one element of one client op.
        byte: one byte through a loopback socket, both ends together.
        request_coefficient: one coefficient of a request for few images, at both parties.
        answer_coefficient: one coefficient of an answer polynomial for few images, at both parties.
        pair_coefficient: one coefficient of a product with a weight polynomial.
        sum_coefficient: one coefficient of a sum of masks for few images, at both parties.
        weight_coefficient: one coefficient of a weight polynomial, transformed.
        few_op_element: one element of one client op where few images run.
    """

    word_product: float
    narrow_product: float
    encrypt_word: float
    decrypt_word: float
    mask_word: float
    transform_word: float
    server_word: float
    op_element: float
    byte: float
    request_coefficient: float
    answer_coefficient: float
    pair_coefficient: float
    sum_coefficient: float
    weight_coefficient: float
    few_op_element: float
    machine: str = "default"

    @classmethod
    def load(cls, path: str | Path | None = None) -> UnitCosts:
        """The given file.

        Else the one that ``HUSHNET_UNIT_COSTS`` names, else the user's (:func:`user_file`), else the package's figures.

        Raises:
            PlanError: the file cannot be read as unit costs.
        """
        if path is None:
            named = os.environ.get(ENVIRONMENT)
            path = named if named else user_file() if user_file().exists() else None
        try:
            values = of_package(__package__, "unit_costs.json") if path is None else json.loads(_read(path))
            known = {f.name: values[f.name] for f in fields(cls)}
            if any(not 0 <= float(known[f.name]) < 1e9 for f in fields(cls) if f.name != "machine"):
                raise ValueError("a cost is no number of seconds")
            return cls(**known)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            reason = f"lacks {error}" if isinstance(error, KeyError) else error
            raise PlanError(f"unit costs in {path}: {reason}; make the file with `hushnet measure-machine`") from None


def user_file() -> Path:
    """Where ``hushnet measure-machine`` keeps this machine's costs."""
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "hushnet" / "unit_costs.json"


def _read(path: str | Path) -> str:
    try:
        return Path(path).read_text()
    except OSError as error:
        raise PlanError(f"unit costs cannot be read ({error}); make the file with `hushnet measure-machine`") from None


def blocks(batch: int, ring_degree: int) -> int:
    """Blocks of N images that a batch takes."""
    return -(-batch // ring_degree)


def sent(plan: Plan, images: int) -> dict[str, Any]:
    """What a session of a plan sends for so many images, exactly.

    ``setup``, ``stages``, ``stage_setups`` and ``total``, each with ``bytes_up``, ``bytes_down`` and ``rounds``.
    Weights are not needed.

    Raises:
        PlanError: the run time refuses the plan.
    """
    return json.loads(_native.Plan.load(without_weights(plan).to_bytes(), allow_insecure=True).facts(images))["cost"]


def without_weights(plan: Plan) -> Plan:
    """The plan as a file whose stages name no weights: its figures follow from the rest."""
    stages = [{k: v for k, v in s.items() if k not in WEIGHTS} for s in plan.stages]
    return Plan({**plan.document, "stages": stages}, {})


def products_per_word(geometry: dict[str, Any]) -> int:
    """Weights times features of a linear stage, taps in the padding not counted."""
    if geometry["type"] == "dense":
        return geometry["inputs"] * geometry["outputs"]
    taps = 1
    for axis in range(2):
        size, out = geometry["input"][1 + axis], geometry["output"][1 + axis]
        stride, dilation, pad = geometry["stride"][axis], geometry["dilation"][axis], geometry["pads"][axis]
        taps *= sum(
            0 <= o * stride - pad + t * dilation < size for o in range(out) for t in range(geometry["kernel"][axis])
        )
    return geometry["output"][0] * geometry["input"][0] // geometry["groups"] * taps


def product_cost(geometry: dict[str, Any], unit: UnitCosts) -> float:
    """Seconds of a word product: what is loaded for it serves all outputs of a group."""
    outputs = geometry["outputs"] if geometry["type"] == "dense" else geometry["output"][0] // geometry["groups"]
    return unit.word_product + max(0.0, unit.narrow_product - unit.word_product) / outputs


def dropped_bits(stage: dict[str, Any]) -> tuple[int, int]:
    """Bits dropped of c0 and of c1."""
    return stage["drop_bits"], stage.get("mask_drop_bits", stage["drop_bits"])


def word_bytes(ring_degree: int, stage: dict[str, Any]) -> tuple[int, int]:
    """Payload bytes of one feature in a Request and in a Response."""
    k, (u, v) = stage["modulus_bits"], dropped_bits(stage)
    up, down = k * (2 if stage["mask"] == "sent" else 1), k - u + (0 if stage["mask"] == "shared" else k - v)
    return ring_degree * up // 8, ring_degree * down // 8


def linear_prediction(
    stage: dict[str, Any],
    ring_degree: int,
    count: int,
    bytes_of: tuple[dict[str, int], dict[str, int]],
    noise_bits: float,
    unit: UnitCosts,
) -> dict[str, Any]:
    """The ``predicted`` object of a linear stage for ``count`` blocks; seconds are of one thread on each side.

    Args:
        bytes_of: bytes of all blocks, and those once a session, as :func:`sent` tells them.
    """
    polynomials = 1 if stage["mask"] == "shared" else 2
    rows = layout(stage["geometry"])
    run, setup = bytes_of
    up, down = run["bytes_up"] // count, run["bytes_down"] // count
    products = products_per_word(stage["geometry"]) * ring_degree * polynomials
    uploaded, returned = rows.in_features * ring_degree, rows.out_features * ring_degree
    # products with the secret, and transforms, by parts of the modulus (docs/parameters.md)
    parts = mask_parts(stage, ring_degree)
    client = parts * (uploaded * unit.encrypt_word + returned * unit.decrypt_word)
    server = products * product_cost(stage["geometry"], unit) + (uploaded + polynomials * returned) * unit.server_word
    if polynomials == 2:
        client += uploaded * unit.mask_word + parts * (uploaded + returned) * unit.transform_word
        server += uploaded * (unit.server_word if stage["mask"] == "sent" else unit.mask_word)
    traffic = (up + down) * unit.byte / 2
    return {
        "word_products": products * count,
        "bytes_up": up * count,
        "bytes_down": down * count,
        "setup_bytes_down": setup["bytes_down"],
        "noise_bits": noise_bits,
        "seconds_client": (client + traffic) * count,
        "seconds_server": (server + traffic) * count,
    }


def client_seconds(
    stage: dict[str, Any],
    tensors: list[dict[str, Any]],
    images: int,
    count: int,
    unit: UnitCosts,
    element: float | None = None,
) -> float:
    """Seconds of a client stage for ``count`` blocks of so many images, by elements written (or read, when more).

    ``element`` is what one of them costs.
    """
    elements = 0
    for op in stage["ops"]:
        sizes = [_elements(tensors[t]) for t in [*op["in"], op["out"]]]
        taps = 1
        for k in op.get("kernel", []):
            taps *= k
        if op["op"] == "matmul":
            taps = tensors[op["in"][0]]["shape"][-1]
        elif op["op"] == "interpolate":
            taps = len(op["indices"])
        elif op["op"] == "top_k":
            # every element of the result is a pass over the axis
            taps = tensors[op["in"][0]]["shape"][op["axis"]]
        elements += max(max(sizes), sizes[-1] * taps)
    return elements * images * count * (unit.op_element if element is None else element)


def _elements(tensor: dict[str, Any]) -> int:
    n = 1
    for size in tensor["shape"]:
        n *= size
    return n

"""Measures what one unit of each kind of work costs on this machine, for the planner's predicted seconds.

One row a unit cost, one function that measures it: linear algebra, encryption and sockets natively
(``crates/runtime/src/calibrate``), client ops by a small network. Unit costs of two-party plans are fitted together to
samples of their protocols (:mod:`.two_party`) and stand in the same file. Methods to come add rows; readers of the file
take the rows that they know.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from hushnet import _native, api, sessions
from hushnet.machine import two_party
from hushnet.planner.cost import UnitCosts, client_seconds, user_file


@dataclass(frozen=True)
class Row:
    """A unit cost: its name in the file, what one unit is, and what measures it for so many seconds."""

    name: str
    about: str
    measure: Callable[[float], float]


def rows() -> list[Row]:
    """Everything that is measured."""
    native = [Row(name, about, partial(_native.measure_unit, name)) for name, about in _native.cost_units()]
    few = Row("few_op_element", "one element of one client op where few images run", _few_op_element)
    return [*native, Row("op_element", "one element of one client op", _op_element), few]


def measure_machine(
    path: str | Path | None = None, *, seconds: float = 0.3, progress: Callable[[str], None] | None = None
) -> tuple[dict[str, float | str], Path]:
    """Measures every unit cost for about ``seconds`` each and writes the file.

    ``path``, or the user's, which the planner then reads.

    Raises:
        OSError: the file cannot be written.
    """
    found: dict[str, float | str] = {"machine": f"{platform.machine()}, {_native.simd()}"}
    for row in rows():
        if progress:
            progress(row.name)
        found[row.name] = row.measure(seconds)
    found |= two_party.measure(seconds, progress)
    target = Path(path) if path is not None else user_file()
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(found, indent=2) + "\n")
    return found, target


def _op_element(seconds: float) -> float:
    """In the batch engine."""
    return _ops(seconds, 2048, 8, mask="fresh")


def _few_op_element(seconds: float) -> float:
    """One image at a time."""
    return _ops(seconds, 1, 64, engine="packed")


def _ops(seconds: float, images: int, side: int, **options: Any) -> float:
    """Client seconds of a layer's activation in the real protocol, over the elements that the planner counts for it."""
    import onnx
    from onnx import helper, numpy_helper

    weight = np.ones((16, 16, 1, 1), dtype=np.float32) / 16
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], kernel_shape=[1, 1]),
        helper.make_node("Clip", ["a", "low", "high"], ["b"]),
        helper.make_node("Conv", ["b", "w"], ["y"], kernel_shape=[1, 1]),
    ]
    constants = {"w": weight, "low": np.float32(0), "high": np.float32(6)}
    shape: list[str | int | None] = ["N", 16, side, side]
    graph = helper.make_graph(
        nodes,
        "ops",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, shape)],
        [numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items()],
    )
    network = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    model = api.compile(network, batch=images, input_range=(0.0, 1.0), **options)
    x = np.random.default_rng(0).uniform(0, 1, (images, 16, side, side)).astype(np.float32)
    runs = max(2, min(10, int(seconds * 20)))
    traces = [sessions.run(model, x, threads=1, transport="pipe").trace for _ in range(runs)]
    best = min(sum(s["seconds"]["program"] or 0.0 for s in t["stages"]) for t in traces)
    one = UnitCosts(**{**UnitCosts.load().__dict__, "op_element": 1.0})
    plan = model.plan
    elements = sum(client_seconds(s, plan.tensors, images, 1, one) for s in plan.stages if s["kind"] == "client")
    return best / elements

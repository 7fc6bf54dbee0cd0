"""Functions of one variable, products and squares on shares between two processes.

Softmax and layer normalisation as stages of plans.
"""

from __future__ import annotations

import json
import statistics
from typing import Any

import hushnet
import numpy as np
from hushnet import Model, _native
from hushnet.graph import Conv2d, Graph, Linear, Op
from hushnet.planner import compile

from hushnet_bench import peers, two_processes
from hushnet_bench.protocol_processes import core, measure
from hushnet_bench.registry import Benchmark

SPU = "SPU 0.9.5 Cheetah, 64-bit ring, AVX2, microseconds and bytes an element"
# case -> (interval, what SPU took on such a machine: microseconds, bytes)
CASES: dict[str, tuple[tuple[float, float], tuple[int, int] | None]] = {
    "sigmoid": ((-8.0, 8.0), (705, 4527)),
    "silu": ((-8.0, 8.0), (701, 4842)),
    "gelu": ((-8.0, 8.0), (170, 2804)),
    "tanh": ((-4.0, 4.0), None),
    "exp": ((-8.0, 0.0), (82, 1146)),
    "softplus": ((-8.0, 8.0), None),
    "erf": ((-4.0, 4.0), None),
    "reciprocal": ((1.0, 2.0), None),
    "inverseroot": ((1.0, 2.0), None),
    "product": ((0.0, 1.0), (16, 315)),
    "square": ((0.0, 1.0), None),
}


def rows(*, quick: bool, threads: int, progress: Any) -> list[dict[str, Any]]:
    """A row a case: medians of several runs, bytes, messages in turn, the largest error and its bound."""
    values, repeat = (1 << 10, 1) if quick else (1 << 16, 5)
    rival: dict[str, dict[str, Any]] = {"": {"error": "left out of --quick"}}
    if not quick:
        if progress:
            progress("smooth: SPU", 0, len(CASES))
        rival = peers.measure("spu", "spu_cheetah.py", [*RIVALS, "--runs", "3", "--cores", f"{core(0)},{core(1)}"])
    out: list[dict[str, Any]] = []
    for case, (interval, published) in CASES.items():
        if progress:
            progress(f"smooth: {case}", len(out), len(CASES))
        first, second = measure("measure_smooth", function=case, values=values, interval=interval, repeat=repeat)
        runs = list(zip(first.pop("runs"), second.pop("runs")))
        seconds = statistics.median(max(a[0], b[0]) for a, b in runs)
        each = [1e6 * statistics.median(run[party][1] for run in runs) / values for party in (0, 1)]
        row: dict[str, Any] = {
            "case": case,
            "method": "hushnet, two processes, one core each",
            "seconds": seconds,
            "best_seconds": min(max(a[0], b[0]) for a, b in runs),
            "processor_seconds": statistics.median(a[1] + b[1] for a, b in runs),
            "processor_microseconds_each_party": each,
            # sets the pace where each has a core; what others do on the machine does not count
            "busier_party_microseconds": max(each),
            "microseconds_per_element": 1e6 * seconds / values,
            "bytes_per_element": first.pop("bytes") / values,
        }
        if published:
            row["published"] = f"{SPU}: {published[0]}, {published[1]}"
        out.append(row | first | _beside(rival, case, row))
    for heads in (0, 1 if quick else HEADS):
        row = softmax(quick=quick, heads=heads, threads=threads)
        out.append(row | _beside(rival, "softmax", row))
    row = layer_norm(quick=quick, threads=threads)
    out.append(row | _beside(rival, "layer-norm", row))
    return out


def _beside(rival: dict[str, dict[str, Any]], case: str, ours: dict[str, Any]) -> dict[str, Any]:
    """SPU's figures an element, of as many as :data:`RIVALS` says, in the same run."""
    if case not in RIVALS:
        return {}
    row = rival.get(case) or rival.get("") or {"error": "not measured"}
    if "error" in row:
        return {"peer": row["error"]}
    each = 1e6 * row["seconds"] / RIVALS[case]
    return {
        "peer": row["peer"],
        "peer_microseconds_per_element": each,
        "peer_bytes_per_element": None if row["bytes"] is None else row["bytes"] / RIVALS[case],
        "peer_max_error": row["max_error"],
        "times_faster": each / ours["microseconds_per_element"],
    }


# what SPU runs beside, and on how many elements
RIVALS = dict.fromkeys(
    ("sigmoid", "silu", "gelu", "tanh", "exp", "reciprocal", "inverseroot", "product", "softmax"), 1 << 13
) | {"layer-norm": 128 * 768}
# elements of a softmax's row, and what SPU took for 64 rows: microseconds and bytes an element
ROW, PUBLISHED_SOFTMAX = 128, (553, 4950)
# rows and elements of a layer normalisation, and what SPU took
NORMALISED, PUBLISHED_NORM = (128, 768), (16, 445)
# elements of a value in attention, and heads that are measured
EACH, HEADS = 32, 4


def softmax_network(rows: int) -> Graph:
    """Logits of rows, their softmax, and the rows' mean."""
    shape, mean = (rows, 1, ROW), (1, 1, ROW)
    logits = Conv2d(shape, shape, (1, 1), groups=rows)
    nodes: list[Linear | Op] = [
        Linear("logits", "x", "logits", logits, np.ones((rows, 1, 1, 1)), np.zeros(rows)),
        Op("softmax", "softmax", ["logits"], "softmax", {"axis": 2}),
        Linear("mean", "softmax", "y", Conv2d(shape, mean, (1, 1)), np.full((1, rows, 1, 1), 1 / rows), np.zeros(1)),
    ]
    return Graph("softmax", ["x"], ["y"], {"x": shape, "logits": shape, "softmax": shape, "y": mean}, nodes)


def attention_network(heads: int) -> Graph:
    """Logits of heads of rows, their softmax times values of :data:`EACH` elements, and the rows' mean."""
    shapes: dict[str, Any] = {
        "x": (heads * ROW, 1, ROW),
        "v": (heads * ROW, 1, EACH),
        "products": (heads, ROW, EACH),
        "rows": (heads * ROW, 1, EACH),
        "y": (1, 1, EACH),
    }
    nodes: list[Linear | Op] = []
    for name, width in (("x", ROW), ("v", EACH)):
        shape, made = shapes[name], f"{name}.layer"
        one = Conv2d(shape, shape, (1, 1), groups=heads * ROW)
        nodes.append(Linear(made, name, made, one, np.ones((heads * ROW, 1, 1, 1)), np.zeros(heads * ROW)))
        nodes.append(Op(f"{name}.heads", "reshape", [made], f"{name}.heads"))
        shapes |= {made: shape, f"{name}.heads": (heads, ROW, width)}
    shapes["softmax"] = shapes["x.heads"]
    mean = Conv2d(shapes["rows"], shapes["y"], (1, 1))
    weights = np.full((1, heads * ROW, 1, 1), 1 / (heads * ROW))
    nodes += [
        Op("softmax", "softmax", ["x.heads"], "softmax", {"axis": 2}),
        Op("products", "matmul", ["softmax", "v.heads"], "products"),
        Op("rows", "reshape", ["products"], "rows"),
        Linear("mean", "rows", "y", mean, weights, np.zeros(1)),
    ]
    return Graph("attention", ["x", "v"], ["y"], shapes, nodes)


def softmax(*, quick: bool, heads: int = 0, threads: int = 1) -> dict[str, Any]:
    """Softmax of rows of 128 in a plan: bytes of its stages with their oblivious transfers, and the largest error.

    Args:
        quick: fewer rows.
        heads: of attention, where the division stands behind the product of matrices; 0: softmax in front of a layer.
        threads: cores of each party.
    """
    rows, repeat = (heads * ROW or 4, 1) if quick else (heads * ROW or 512, 3)
    rng = np.random.default_rng(0)
    graph = attention_network(heads) if heads else softmax_network(rows)
    x = {"x": rng.normal(size=(4, rows, 1, ROW)) * 2}
    if heads:
        x["v"] = rng.normal(size=(4, rows, 1, EACH))
    model = Model(compile(graph, trust="two-party", calibration=x, weight_bits=8))
    one = {k: v[:1] for k, v in x.items()}
    exact = np.exp(one["x"] - one["x"].max(axis=-1, keepdims=True))
    exact = exact / exact.sum(axis=-1, keepdims=True)
    if heads:
        exact = exact.reshape(heads, ROW, ROW) @ one["v"].reshape(heads, ROW, EACH)
    case = f"softmax, rows of {ROW}" + (f", times values of {EACH}" if heads else "")
    return _in_plan((case, rows, ROW), model, one, exact, repeat, threads) | {
        "published": f"{SPU}: {PUBLISHED_SOFTMAX[0]}, {PUBLISHED_SOFTMAX[1]}"
    }


def layer_norm(*, quick: bool, threads: int = 1) -> dict[str, Any]:
    """Layer normalisation of rows in a plan, as :func:`softmax`."""
    import onnx
    from onnx import helper, numpy_helper

    (rows, width), repeat = ((4, 32), 1) if quick else (NORMALISED, 3)
    ones = np.ones((rows, 1, 1, 1), np.float32)
    constants: dict[str, np.ndarray] = {
        "one": ones,
        "scale": np.ones(width, np.float32),
        "bias": np.zeros(width, np.float32),
        "mean": ones.reshape(1, rows, 1, 1) / rows,
    }
    nodes = [
        helper.make_node("Conv", ["x", "one"], ["logits"], name="logits", group=rows),
        helper.make_node("LayerNormalization", ["logits", "scale", "bias"], ["normal"], name="normal", axis=-1),
        helper.make_node("Conv", ["normal", "mean"], ["y"], name="y"),
    ]
    shape: list[str | int | None] = ["N", rows, 1, width]
    graph = helper.make_graph(
        nodes,
        "layer normalisation",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)],
        [numpy_helper.from_array(v, name) for name, v in constants.items()],
    )
    network = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    x = (np.random.default_rng(0).normal(size=(4, rows, 1, width)) * 2).astype(np.float32)
    model = hushnet.compile(network, trust="two-party", calibration=x, weight_bits=8)
    one = x[:1].astype(np.float64)
    centred = one - one.mean(axis=-1, keepdims=True)
    exact = centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + 1e-5)
    case = (f"layer norm, rows of {width}", rows, width)
    row = _in_plan(case, model, {"x": one}, exact, repeat, threads)
    return row | {"published": f"{SPU}: {PUBLISHED_NORM[0]}, {PUBLISHED_NORM[1]}"}


def _in_plan(
    case: tuple[str, int, int], model: Model, one: dict[str, Any], exact: Any, repeat: int, threads: int
) -> dict[str, Any]:
    """Stages of a plan between its layers: seconds, bytes with oblivious transfers, the error of the mean of rows.

    Args:
        case: its name, rows, and elements of a row.
        model: a layer, the stages, and the mean of rows as a layer ``y``.
        one: an input.
        exact: rows in the clear.
        repeat: inferences.
        threads: cores of each party.
    """
    name, rows, width = case
    found = two_processes.measure(model, {k: np.repeat(v, repeat, axis=0) for k, v in one.items()}, threads=threads)

    def counts(stage: dict[str, Any]) -> bool:
        # between the layers: truncation of logits to softmax, and the division behind a product
        outside = {"linear", "client", "share", "reveal", "matrix_product"}
        return stage["kind"] not in outside and not stage["name"].startswith(("y.", "v.", "rows"))

    stages = [[s for s in trace["stages"] if counts(s)] for trace in found.client]
    seconds = [sum(s["seconds"] for s in run) for run in stages]
    told = json.loads(_native.clocked_two_party(model.plan.to_bytes(), one, runs=2))["runs"]
    chosen = [i for i, s in enumerate(model.plan.stages) if counts(s)]
    clocks = [1e6 * sum(run[i][0] for i in chosen) / (rows * width) for run in told]
    mean = np.asarray(exact).reshape(rows, -1).mean(axis=0)
    return {
        "case": name,
        "method": "hushnet, stages of a plan, two processes, one core each" + (" (shared)" if found.shared else ""),
        "rows": rows,
        "ring_bits": model.plan.part["ring_bits"],
        "seconds": statistics.median(seconds),
        "best_seconds": min(seconds),
        "microseconds_per_element": 1e6 * statistics.median(seconds) / (rows * width),
        "processor_microseconds_longest_chain": clocks[0],
        "processor_microseconds_later_inferences": clocks[1],
        "bytes_per_element": sum(s["bytes_up"] + s["bytes_down"] for s in stages[0]) / (rows * width),
        "error_of_mean": float(np.abs(next(iter(found.outputs.values()))[0].reshape(-1) - mean).max()),
    }


BENCHMARK = Benchmark(
    name="smooth",
    about="sigmoid, SiLU, GELU, exp, products, squares on shares (2^16 values), two processes; softmax, norms in plans",
    source=SPU,
    run=rows,
)

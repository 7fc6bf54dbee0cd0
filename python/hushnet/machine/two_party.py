"""Measures what protocols of two parties cost on this machine, and fits the two-party planner's unit costs.

Samples are seconds on the longest chain of both parties' work by clocks of processor time
(``crates/runtime/src/calibrate``): of protocols on shares with every OT extension that the run time chooses, and of
plans with one linear layer of every method. Unit costs are the non-negative ones whose sums come nearest to the
samples, each sample weighted by its own size. Only the overhead of a message is taken by the wall clock: what a served
session over a loopback socket takes beyond the clocks.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from hushnet import _native, api, serving, sessions
from hushnet.model import Model
from hushnet.planner.two_party import cost
from hushnet.planner.two_party.methods import PRIME, ROWS

Row = dict[str, float]
Array = np.ndarray
# inputs (channels, rows, columns), outputs, kernel; no kernel: fully connected. Weights of the largest do not stay in a
# cache
LAYERS: dict[str, list[tuple[tuple[int, ...], int, int | None]]] = {
    "cheetah": [
        ((784,), 128, None),
        ((128,), 64, None),
        ((64,), 10, None),
        ((1024,), 256, None),
        ((2048,), 512, None),
        ((3, 32, 32), 16, 3),
        ((16, 16, 16), 16, 3),
        ((32, 16, 16), 64, 3),
        ((64, 8, 8), 64, 3),
        ((64, 8, 8), 64, 1),
        ((256, 14, 14), 256, 1),
        ((512, 7, 7), 512, 3),
        ((16, 32, 32), 16, 3),
        # weights of few values: tokens times a matrix, and a table
        ((192, 8, 16), 192, 1),
        ((2048, 8, 16), 96, 1),
    ],
    "convfhe": [
        ((3, 32, 32), 32, 3),
        ((64, 8, 8), 64, 3),
        ((64, 16, 16), 64, 1),
        ((16, 16, 16), 16, 3),
        ((32, 16, 16), 32, 3),
        ((32, 8, 8), 64, 3),
        ((64, 8, 8), 32, 1),
        ((3, 64, 64), 16, 3),
        ((128, 7, 7), 512, 1),
        ((512, 7, 7), 512, 3),
    ],
    "rotation-free": [
        ((3, 32, 32), 16, 3),
        ((64, 8, 8), 64, 3),
        ((8, 32, 32), 64, 1),
        ((16, 16, 16), 16, 3),
        ((32, 16, 16), 32, 3),
        ((32, 8, 8), 64, 3),
        ((16, 16, 16), 64, 1),
        ((256, 14, 14), 256, 1),
    ],
    "gala": [
        ((16, 16, 16), 16, 3),
        ((32, 16, 16), 32, 1),
        ((512,), 64, None),
        ((64, 8, 8), 32, 3),
        ((128, 16, 16), 64, 3),
    ],
    "batch": [((64,), 32, None), ((256,), 256, None), ((4, 8, 8), 8, 3), ((16,), 128, None)],
}
# heads, rows, inner axis, columns of products of two shared matrices: heads of attention both ways, few and many
# polynomials
MATRICES = [(1, 16, 16, 16), (2, 32, 16, 32), (4, 64, 16, 64), (4, 64, 64, 16), (6, 64, 32, 64), (1, 128, 64, 128)]
BATCH = 64
# weight of a usual cost beside a sample's
PRIOR = 0.1
EXTENSIONS = {
    "softspoken": "softspoken",
    "silent-tiny": "silent_tiny",
    "silent-small": "silent_small",
    "silent-medium": "silent_medium",
}


def measure(seconds: float, progress: Callable[[str], None] | None = None) -> dict[str, float]:
    """Every unit cost of the two-party planner, from samples of about ``seconds`` for each kind of work."""
    told = progress or (lambda _: None)
    found = protocols(seconds, told)
    for method in LAYERS:
        told(method)
        found |= layers(method, seconds)
    told("products of matrices")
    found |= products(seconds)
    told("message")
    found["message"] = messages(seconds, found)
    return found


def fit(samples: Iterable[tuple[Row, float]], prior: Row | None = None) -> Row:
    """Non-negative costs x that minimise the sum of squares of (a x - b)/b over samples (a, b).

    The sum holds (x - p)/p as well, with ``PRIOR`` times the weight of a sample. What the samples do not tell apart
    stays in the proportions of the ``prior`` costs p, scaled to the samples' size.
    """
    rows = [(row, b) for row, b in samples if b > 0.0]
    names = sorted({name for row, _ in rows for name in row})
    matrix = np.array([[row.get(name, 0.0) / b for name in names] for row, b in rows])
    right = np.ones(len(rows))
    known = np.array([(prior or {}).get(name, 0.0) for name in names])
    usual = matrix @ known
    if usual.any():
        known = known * float(usual @ right) / float(usual @ usual)
        pulls = [PRIOR * unit / k for unit, k in zip(np.eye(len(names)), known) if k > 0.0]
        matrix, right = np.vstack([matrix, *pulls]), np.concatenate([right, np.full(len(pulls), PRIOR)])
    return dict(zip(names, nonnegative(matrix, right).tolist()))


def nonnegative(matrix: Array, right: Array) -> Array:
    """Lawson and Hanson's active sets: the least squares solution among the non-negative ones."""
    size = matrix.shape[1]
    scale = np.linalg.norm(matrix, axis=0)
    scale[scale == 0] = 1.0
    a = matrix / scale
    x, free = np.zeros(size), np.zeros(size, dtype=bool)
    for _ in range(10 * size):
        slope = np.where(free, -np.inf, a.T @ (right - a @ x))
        if free.all() or slope.max() <= 1e-10:
            break
        free[int(slope.argmax())] = True
        while True:
            z = np.zeros(size)
            z[free] = np.linalg.lstsq(a[:, free], right, rcond=None)[0]
            low = free & (z <= 0)
            if not low.any():
                break
            step = (x[low] / (x[low] - z[low])).min() if (x[low] > z[low]).any() else 0.0
            x = x + step * (z - x)
            free &= x > 1e-14
            x[~free] = 0.0
        x = z
    return x / scale


def protocols(seconds: float, told: Callable[[str], None]) -> Row:
    """Costs of protocols on shares and of the OT extensions below them."""
    samples = []
    for extension, suffix in EXTENSIONS.items():
        told(f"protocols, {extension}")
        seen = json.loads(_native.measure_protocols(extension, seconds))
        for s in seen["samples"]:
            row = {
                "compared_bit": s["compared_bits"],
                "selected_value": s["selected"],
                "truncated_value": s["truncated"],
                "product_term": s["multiplied"],
                "table_entry": s["looked_up"],
                "round": s["rounds"],
                "garbled_gate": s["gates"],
            }
            samples.append((row | cost.extended(suffix, s), s["seconds"]))
    return fit(samples, cost.packaged())


def network(shape: tuple[int, ...], outputs: int, kernel: int | None, extra: str = "") -> Any:
    """One linear layer as ONNX, of seeded weights; ``extra``: an operator behind it."""
    import onnx
    from onnx import helper, numpy_helper

    rng = np.random.default_rng(math.prod(shape) + outputs)
    dims = (outputs, shape[0]) if kernel is None else (outputs, shape[0], kernel, kernel)
    weight = rng.normal(0, 1 / math.sqrt(math.prod(dims[1:])), dims).astype(np.float32)
    if kernel is None:
        nodes = [helper.make_node("Gemm", ["x", "w"], ["a"], name="layer", transB=1)]
    else:
        nodes = [
            helper.make_node("Conv", ["x", "w"], ["a"], name="layer", kernel_shape=[kernel] * 2, pads=[kernel // 2] * 4)
        ]
    if extra == "AveragePool":
        nodes.append(helper.make_node(extra, ["a"], ["y"], kernel_shape=[2, 2], strides=[2, 2]))
    elif extra:
        nodes.append(helper.make_node(extra, ["a"], ["y"]))
    else:
        nodes[0].output[0] = "y"
    graph = helper.make_graph(
        nodes,
        "one layer",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["N", *shape])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)],
        [numpy_helper.from_array(weight, "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def plan(
    shape: tuple[int, ...], outputs: int, kernel: int | None, method: str, images: int = 1, extra: str = ""
) -> tuple[Model, Array]:
    """A plan of one linear layer of a method, and inputs."""
    x = np.random.default_rng(1).uniform(0, 1, (max(images, 4), *shape)).astype(np.float32)
    model = api.compile(
        network(shape, outputs, kernel, extra), trust="two-party", calibration=x, batch=images, method=method
    )
    return model, x[:images]


def clocked(model: Model, x: Array, runs: int = 3, idle: bool = True) -> tuple[float, Array, Array]:
    """Seconds of the set-up, then of every stage and the client's part of it.

    Of the first inference, and the least of the later ones, or of the only one. Parties that wait are ``idle``, so that
    a stage's seconds are its own; otherwise they expand OTs of later stages, as served sessions do.
    """
    plan, inputs = model.plan.to_bytes(), model.named_inputs(x)
    seen = json.loads(_native.clocked_two_party(plan, inputs, runs=runs, idle=idle))
    found = np.array(seen["runs"])
    return seen["setup"], found[0], found[min(1, runs - 1) :].min(axis=0)


def ones(function: Callable[..., float], *given: Any) -> Row:
    """How often each unit cost counts in a method's seconds, which are linear in them."""

    class Zero(dict):  # type: ignore[type-arg]
        def __missing__(self, key: str) -> float:
            asked.add(key)
            return 0.0

    asked: set[str] = set()
    function(*given, Zero())
    return {name: function(*given, Zero({name: 1.0})) for name in asked}


def counted(method: str, packing: dict[str, int]) -> Row:
    """How often each unit cost counts in a layer of a method."""
    return ones(ROWS[method].seconds, packing)


def server_seconds(chain: float, client: float, tiles: int) -> float:
    """What the server computes, when both parties' work on equal tiles, one after the other, takes ``chain``.

    See ``methods.pipelined``.
    """
    server = chain - client / tiles
    return server if server >= client else max(0.0, (chain - client) * tiles)


def layers(method: str, seconds: float) -> Row:
    """Costs of a method's layers, and the client's part of them.

    Of `cheetah` also what sessions and client stages cost.
    """
    images = BATCH if ROWS[method].blocks else 1
    total, own, late, setups, encoded = [], [], [], [], []
    usual = cost.packaged()
    for shape, outputs, kernel in LAYERS[method]:
        model, x = plan(shape, outputs, kernel, method, images)
        document = model.plan.document
        index, stage = next((i, s) for i, s in enumerate(document["stages"]) if s["kind"] == "linear")
        packing = cost.account(document, usual, images).stages[index].packing
        setup, first, least = clocked(model, x)
        limit = time.monotonic() + seconds / len(LAYERS[method])
        while time.monotonic() < limit:
            again = clocked(model, x)
            setup, first, least = min(setup, again[0]), np.minimum(first, again[1]), np.minimum(least, again[2])
        chain, client = least[index]
        row = counted(method, packing)
        if ROWS[method].modulo == PRIME:
            converted = cost.elements(document["tensors"][stage["in"]]) + cost.elements(
                document["tensors"][stage["out"]]
            )
            total.append((row, max(0.1 * chain, chain - converted * usual["selected_value"])))
        else:
            total.append((row, server_seconds(chain, client, packing["tiles"]) + client))
            own.append(({f"{name}_client": n for name, n in row.items() if cost.has_client(name)}, client))
        late.append(first[index][0] - chain)
        setups.append((setup, packing))
        encoded.append(
            least[0][0] / (images * cost.elements(document["tensors"][document["stages"][0]["ops"][-1]["out"]]))
        )
    found = fit(total, usual) | (fit(own, usual) if own else {})
    if method == "cheetah":
        found |= {
            "session_keys": min(s for s, _ in setups),
            "first_layer": max(0.0, float(np.median(late))),
            "client_element": float(np.median(encoded)),
        }
        found["local_element"] = local(seconds)
    elif method == "rotation-free":
        few, many = (f([(s, p["weight_polys"]) for s, p in setups], key=lambda v: v[1]) for f in (min, max))
        found["rotation_free_weight"] = max(0.0, (many[0] - few[0]) / (many[1] - few[1]))
    elif ROWS[method].keys is not None:
        found[f"{ROWS[method].keys}_keys"] = min(s for s, _ in setups)
        if ROWS[method].modulo != PRIME:
            # a first slot-packed layer starts the OT extension too, which is counted by itself
            found[f"{ROWS[method].keys}_first_layer"] = max(0.0, float(np.median(late)))
    return found


def product(sizes: tuple[int, int, int, int]) -> tuple[Model, Array]:
    """A plan of one product of two shared tensors of matrices, parts of a small layer's result, and inputs."""
    import onnx
    from onnx import helper, numpy_helper

    heads, rows, inner, columns = sizes
    whole = rows + columns
    constants = {
        "weight": np.eye(inner, dtype=np.float32) * 0.5,
        "first": np.array([0]),
        "middle": np.array([rows]),
        "last": np.array([whole]),
        "axis": np.array([2]),
    }
    nodes = [
        helper.make_node("MatMul", ["x", "weight"], ["both"], name="layer"),
        helper.make_node("Slice", ["both", "first", "middle", "axis"], ["a"], name="a"),
        helper.make_node("Slice", ["both", "middle", "last", "axis"], ["turned"], name="b"),
        helper.make_node("Transpose", ["turned"], ["b"], name="turn", perm=[0, 1, 3, 2]),
        helper.make_node("MatMul", ["a", "b"], ["y"], name="product"),
    ]
    graph = helper.make_graph(
        nodes,
        "one product",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["N", heads, whole, inner])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)],
        [numpy_helper.from_array(v, name) for name, v in constants.items()],
    )
    network = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    x = np.random.default_rng(1).uniform(-1, 1, (4, heads, whole, inner)).astype(np.float32)
    return api.compile(network, trust="two-party", calibration=x, method="cheetah"), x[:1]


def products(seconds: float) -> Row:
    """Costs of products of two shared matrices, and of their keys."""
    usual, samples, late, setups = cost.packaged(), [], [], []
    for sizes in MATRICES:
        model, x = product(sizes)
        document = model.plan.document
        index = next(i for i, s in enumerate(document["stages"]) if s["kind"] == cost.PRODUCTS)
        spent = cost.account(document, usual).stages[index]
        setup, first, least = clocked(model, x, 2)
        limit = time.monotonic() + seconds / len(MATRICES)
        while time.monotonic() < limit:
            again = clocked(model, x, 2)
            setup, first, least = min(setup, again[0]), np.minimum(first, again[1]), np.minimum(least, again[2])
        chain = least[index][0]
        known = spent.work["truncated"] * usual["truncated_value"]
        samples.append((ones(cost.matrix_seconds, spent.packing), max(0.5 * chain, chain - known)))
        late.append(first[index][0] - chain)
        setups.append(setup)
    return fit(samples, usual) | {"matrix_keys": min(setups), "matrix_first_layer": max(0.0, float(np.median(late)))}


def local(seconds: float) -> float:
    """Seconds for an element of a local stage: a pool's."""
    model, x = plan((4, 64, 64), 8, 1, "cheetah", extra="AveragePool")
    stages = model.plan.document["stages"]
    index = next(i for i, s in enumerate(stages) if s["kind"] == "sum_pool")
    least = min(clocked(model, x, 2)[2][index][0] for _ in range(max(2, int(10 * seconds))))
    return float(least / cost.elements(model.plan.document["tensors"][stages[index]["out"]]))


def messages(seconds: float, unit: Row) -> float:
    """What a message of a served session takes beyond both parties' work.

    The least over runs of a small network with many messages.
    """
    model, x = plan((64,), 32, None, "cheetah", extra="Relu")
    _, _, least = clocked(model, x, 5, idle=False)
    runs: list[dict[str, Any]] = []
    limit = time.monotonic() + max(seconds, 0.1)
    handle = serving.serve(model, threads=1)
    try:
        with sessions.connect(f"hush://127.0.0.1:{handle.port}", threads=1) as connection:
            connection.infer(x)
            while len(runs) < 3 or time.monotonic() < limit:
                runs.append(connection.infer(x).trace)
    finally:
        handle.stop()
    best = min(runs, key=lambda t: t["seconds"])
    return max(_native.measure_message(0.05), (best["seconds"] - float(least[:, 0].sum())) / best["rounds"])

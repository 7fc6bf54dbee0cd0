"""Single linear layers and whole networks' linear layers by every coefficient-packed method.

Tables I to IV and Figure 7 of the rotation-free paper. Rows with ``insecure`` run the paper's own parameters, which
leak weights; they are here to compare only.

Seconds are processor time of one thread, least of several runs, both parties without the network between them.
``--cases`` names parts: ``figure-7``, ``table-2``, ``table-3``, ``attack``, and the networks of Table IV.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import hushnet
from hushnet import _native, frontend, passes, zoo
from hushnet.graph import Dense, Graph, Linear, Op

from hushnet_bench import _native as measuring
from hushnet_bench import rotation_free_plot
from hushnet_bench.registry import Benchmark

PAPER = ["published", "cheetah-published", "convfhe-published"]
SECURE = ["compact", "flooded", "cheetah", "convfhe"]
# times the latency of rotation-free, c from 4 to 256
FIGURE_7 = {"cheetah-published": "5 to 7.5", "convfhe-published": "8 to 13"}
FIGURE_7_GAZELLE = {3: 134, 5: 358, 7: 1057}  # at c = 4, more with more channels
RING_BITS = 26
# weight polynomials of N = 4096 for which the flooded profile's set-up is made at once
MOST_POLYS = 4096
# ring degrees of the paper's parameters: the least that holds a channel of an image
PAPER_DEGREES = (8192, 16384, 32768, 65536)
TABLE_2 = {
    (7, 256): {"gazelle": 1.3, "cheetah": 29.26, "convfhe": 0.65, "rotation-free": 0.3},
    (15, 128): {"gazelle": 2.6, "cheetah": 15.27, "convfhe": 1.3, "rotation-free": 0.62},
    (31, 64): {"gazelle": 5.21, "cheetah": 8.91, "convfhe": 2.61, "rotation-free": 1.27},
    (63, 32): {"gazelle": 10.42, "cheetah": 7.01, "convfhe": 5.21, "rotation-free": 2.58},
}
# Table IV: server and client seconds, megabytes with ReLU, convolutions and FC together
TABLE_4 = {
    "plain20-f3-d20-w1": "Cheetah 40 s, 306 MB; ConvFHE 90 s, 47.8 MB; rotation-free 7.5 + 7.9 s, 24.7 MB",
    "plain20-f5-d8-w3": "Cheetah 70 s, 303 MB; ConvFHE 134 s, 24.5 MB; rotation-free 9.3 + 9.2 s, 15.7 MB",
    "plain20-f3-d14-w3": "Cheetah 152 s, 579 MB; ConvFHE 233 s, 44.1 MB; rotation-free 20.5 + 20.9 s, 28.2 MB",
    "plain20-f3-d20-w3": "Cheetah 234 s, 853 MB; ConvFHE 347 s, 62.8 MB; rotation-free 34.5 + 35.4 s, 39.7 MB",
    "resnet50-224": "Cheetah 1258 s, 10970 MB; rotation-free 292 + 295 s, 641 MB",
}


def _conv(channels: int, side: int, outputs: int, kernel: int, pad: int = 0) -> dict[str, Any]:
    size = side + 2 * pad - kernel + 1
    return {
        "type": "conv2d",
        "input": [channels, side, side],
        "output": [outputs, size, size],
        "kernel": [kernel, kernel],
        "stride": [1, 1],
        "pads": [pad] * 4,
        "dilation": [1, 1],
        "groups": 1,
    }


def _measure(geometry: dict[str, Any], methods: list[str], **options: Any) -> dict[str, Any]:
    return json.loads(measuring.rotation_free_layer(json.dumps(geometry), methods, insecure_parameters=True, **options))


def _row(case: str, method: str, figures: dict[str, Any], **more: Any) -> dict[str, Any]:
    seconds, operations = figures["seconds"], figures["operations"]
    row: dict[str, Any] = {
        "case": case,
        "method": method,
        "insecure": figures["insecure"],
        "ring_degree": figures["ring_degree"],
        "modulus_bits": figures["modulus_bits"],
        "seconds": seconds["server"] + seconds["client"],
        "server_seconds": seconds["server"],
        "client_seconds": seconds["client"],
        "server_offline_seconds": seconds["server_offline"],
        "client_offline_seconds": seconds["client_offline"],
        "megabytes_up": figures["bytes_up"] / 1e6,
        "megabytes_down": figures["bytes_down"] / 1e6,
        "megabytes_setup": figures["bytes_setup"] / 1e6,
    }
    row |= {f"{party}_{k}": v for party, counts in operations.items() for k, v in counts.items()}
    return row | more


def formulas(channels: int, outputs: int, side: int, kernel: int) -> dict[str, dict[str, int]]:
    """Table I: operations of one convolution, N = c_i w^2; rotation-free is (server + client)."""
    f2 = kernel * kernel
    return {
        "gazelle": {
            "ntt": 4 * f2,
            "intt": 4 * outputs,
            "products": 4 * f2 * outputs,
            "rotations": 2 * (f2 - 2 + outputs),
        },
        "cheetah": {"ntt": 2, "intt": 2 * outputs, "products": 2 * outputs, "rotations": 0},
        "convfhe": {"ntt": 2, "intt": 2 * outputs, "products": 2 * outputs, "rotations": outputs - 1},
        "rotation-free": {"ntt": 4, "intt": 2 * outputs, "products": 4 * outputs, "rotations": 0},
    }


def traffic(
    channels: int, outputs: int, side: int, n: int = 8192, wide: int = 104, narrow: int = 55
) -> dict[str, float]:
    """Table II: megabytes of one convolution by the paper's formulas."""
    area = side * side
    inputs, results = math.ceil(area * channels / n), math.ceil(area * outputs / n)
    bits = {
        "gazelle": 2 * n * (math.ceil(2 * area * channels / n) * wide + math.ceil(2 * area * outputs / n) * narrow),
        "cheetah": 2 * n * (inputs * wide + outputs * narrow),
        "convfhe": 2 * n * (inputs * wide + results * narrow),
        "rotation-free": n * inputs * wide + math.ceil(area * outputs * outputs / channels) * narrow,
    }
    return {method: b / 8 / 1e6 for method, b in bits.items()}


def _gazelle(case: str, geometry: dict[str, Any]) -> dict[str, Any]:
    """GAZELLE by our own slot-packed code at secure parameters.

    Seconds of the server and operations by run-time counters.
    """
    try:
        f = json.loads(measuring.slot_layer_measure(json.dumps(geometry), "gazelle", repeats=1))
    except ValueError as error:
        return {"case": case, "method": "gazelle", "insecure": False, "error": str(error)}
    counted, seconds = f["counted"], f["receive_seconds"] + f["linear_seconds"] + f["answer_seconds"]
    return {
        "case": case,
        "method": "gazelle",
        "insecure": False,
        "ring_degree": f["parameters"]["ring_degree"],
        "modulus_bits": f["parameters"]["modulus_bits"],
        "server_seconds": seconds,
        "server_linear_seconds": f["linear_seconds"],
        "megabytes_up": f["bytes_up"] / 1e6,
        "megabytes_down": f["bytes_down"] / 1e6,
        "megabytes_setup": f["key_bytes"] / 1e6,
        "server_rotations": counted["perm"] + counted["hst_perm"],
        "server_products": counted["sc_mult"],
        "correct": f["correct"],
    }


def _figure_7(quick: bool) -> list[dict[str, Any]]:
    """Latency over c_i = c_o at c w^2 = N: the methods that pack coefficients at the paper's parameters.

    GAZELLE at secure ones.
    """
    out = []
    degree, channels = (8192, [2, 8, 32]) if quick else (65536, [4, 16, 64, 256])
    for c in channels:
        side = math.isqrt(degree // c)
        for kernel in [3] if quick else [3, 5, 7]:
            figures = _measure(_conv(c, side, c, kernel), PAPER, ring_degree=degree, runs=3 if quick or c > 16 else 5)
            case = f"Figure 7: c = {c}, {side}x{side}, f = {kernel}, N = {degree}"
            ours = figures["published"]["seconds"]["server"]
            # with what the server does with its own share before the query arrives; the two rivals have no share of
            # their own
            whole = ours + figures["published"]["seconds"]["server_offline"]
            for method, f in figures.items():
                ratio = f["seconds"]["server"] / ours if ours else None
                more = {
                    "times_rotation_free_server": ratio,
                    "published_times": FIGURE_7.get(method),
                    "channels": c,
                    "kernel": kernel,
                }
                more["times_rotation_free_server_and_share"] = f["seconds"]["server"] / whole if whole else None
                if method != "published":
                    down = figures["published"]["bytes_up"] + figures["published"]["bytes_down"]
                    more["rotation_free_bytes_share"] = down / (f["bytes_up"] + f["bytes_down"])
                out.append(_row(case, method, f, **more))
            row = _gazelle(case, _conv(c, side, c, kernel)) | {"channels": c, "kernel": kernel}
            if ours and "server_seconds" in row:
                row |= {
                    "times_rotation_free_server": row["server_seconds"] / ours,
                    "published_times": f"{FIGURE_7_GAZELLE[kernel]} at c = 4",
                }
            out.append(row)
            counts = formulas(c, c, side, kernel)["gazelle"]
            out.append(
                {"case": case, "method": "gazelle (Table I formula)"} | {f"server_{k}": v for k, v in counts.items()}
            )
    return out


def _table_2(quick: bool) -> list[dict[str, Any]]:
    """Bytes: the paper's formulas, and counted on messages of our code (padding in the input, N = 8192)."""
    out = []
    for (side, c), published in TABLE_2.items():
        by_formula = traffic(c, c, side)
        for method, megabytes in by_formula.items():
            out.append(
                {
                    "case": f"Table II: w = {side}, c = {c}",
                    "method": f"{method} (formula)",
                    "megabytes": megabytes,
                    "published": published[method],
                    "of_convfhe": megabytes / by_formula["convfhe"],
                }
            )
        if quick and c != 32:
            continue
        figures = _measure(_conv(c, side + 1, c, 3), PAPER, runs=1) | _measure(
            _conv(c, side, c, 3, 1), SECURE, runs=1 if quick else 3
        )
        whole = figures["convfhe-published"]
        for method, f in figures.items():
            share = (f["bytes_up"] + f["bytes_down"]) / (whole["bytes_up"] + whole["bytes_down"])
            out.append(_row(f"Table II: w = {side}, c = {c}", method, f, of_convfhe=share))
        out.append(_gazelle(f"Table II: w = {side}, c = {c}", _conv(c, side, c, 3, 1)))
    return out


def _dense(quick: bool) -> list[dict[str, Any]]:
    """Table III: an FC layer with n_i n_o <= N and a large one."""
    out = []
    for inputs, outputs in [(512, 16)] if quick else [(512, 16), (2048, 1000)]:
        geometry = {"type": "dense", "inputs": inputs, "outputs": outputs}
        for method, f in _measure(geometry, [*PAPER[:2], *SECURE], runs=2).items():
            out.append(_row(f"Table III: FC {inputs} -> {outputs}", method, f))
    return out


def _graph(network: str, **options: Any) -> Graph:
    return passes.default(frontend.load(zoo.build(network, **options)))


def layers(graph: Graph) -> Counter[str]:
    """The linear layers of a network, as JSON geometries, and how often each occurs."""
    found: Counter[str] = Counter()
    for node in graph.nodes:
        if isinstance(node, Linear):
            kind = "dense" if isinstance(node.geometry, Dense) else "conv2d"
            found[json.dumps({"type": kind} | asdict(node.geometry))] += 1
    return found


def relus(graph: Graph) -> int:
    """Values that ReLU is taken of, for one image."""
    return sum(math.prod(graph.shapes[n.output]) for n in graph.nodes if isinstance(n, Op) and n.op == "relu")


def _paper_degree(geometry: dict[str, Any]) -> int:
    """The least ring degree of the paper's parameters that holds a channel of the layer's input."""
    if geometry["type"] == "dense":
        return PAPER_DEGREES[0]
    # a strided layer is as many of stride 1 as there are phases
    sides = (
        (size + sum(geometry["pads"][axis::2])) / step
        for size, step, axis in zip(geometry["input"][1:], geometry["stride"], (0, 1))
    )
    area = math.prod(math.ceil(side) + 1 for side in sides)
    return next(n for n in PAPER_DEGREES if area <= n)


def _flooded(geometry: dict[str, Any], runs: int) -> dict[str, Any]:
    """The flooded profile, whose set-up of a layer of many weight polynomials would not fit the memory.

    Then on a part of the output channels, times the number of parts (the inputs' transforms are counted with each;
    requests once).
    """
    polys = _native.coefficient_layer_cost("rotation-free", json.dumps(geometry), RING_BITS, 1024.0)["weight_polys"]
    parts = -(-polys // MOST_POLYS)
    if geometry["type"] == "dense" or geometry["output"][0] % parts:
        parts = 1
    part = geometry if parts == 1 else geometry | {"output": [geometry["output"][0] // parts, *geometry["output"][1:]]}
    found = _measure(part, ["flooded"], ring_bits=RING_BITS, runs=runs)["flooded"]
    for group in (found["seconds"], *found["operations"].values()):
        for key in group:
            group[key] *= parts
    for key in ("bytes_down", "bytes_setup"):
        found[key] *= parts
    return found


def _of_layer(geometry: dict[str, Any], runs: int) -> dict[str, dict[str, Any]]:
    """Every method on one layer, a row a method; GAZELLE by its counts alone."""
    found = _measure(geometry, [m for m in SECURE if m != "flooded"], ring_bits=RING_BITS, runs=runs)
    found["flooded"] = _flooded(geometry, runs)
    found |= _measure(geometry, PAPER, ring_degree=_paper_degree(geometry), runs=runs, most=8)
    out = {method: _row("", method, f) for method, f in found.items()}
    counted = json.loads(_native.slot_layer_cost(json.dumps(geometry), "gazelle"))
    counts = counted["counts"]
    out["gazelle (counts)"] = {
        "case": "",
        "method": "gazelle (counts)",
        "insecure": False,
        "ring_degree": counted["parameters"]["ring_degree"],
        "modulus_bits": counted["parameters"]["modulus_bits"],
        "megabytes_up": counted["bytes_up"] / 1e6,
        "megabytes_down": counted["bytes_down"] / 1e6,
        "server_rotations": counts["perm"] + counts["hst_perm"],
        "server_products": counts["sc_mult"],
    }
    return out


def _network(name: str, quick: bool, progress: Any) -> list[dict[str, Any]]:
    """Table IV: the linear layers of a network, one image: sums over layers; bytes with ReLU by oblivious transfer."""
    graph = _graph(name)
    found, values = layers(graph), relus(graph)
    relu = measuring.relu_bytes(values, RING_BITS) / 1e6
    sums: dict[str, dict[str, Any]] = {}
    number = lambda v: isinstance(v, (int, float)) and not isinstance(v, bool)  # noqa: E731
    for done, (geometry, count) in enumerate(found.items()):
        if progress:
            progress(f"rotation-free: {name}", done, len(found))
        for method, row in _of_layer(json.loads(geometry), 1 if quick or name.startswith("resnet") else 3).items():
            total = sums.setdefault(method, row | {k: 0 for k, v in row.items() if number(v)})
            for key, value in row.items():
                if number(value):
                    total[key] = (
                        max(total[key], value) if key in ("ring_degree", "modulus_bits") else total[key] + count * value
                    )
    case = f"Table IV: {name}, {sum(found.values())} linear layers"
    linear = {m: r["megabytes_up"] + r["megabytes_down"] for m, r in sums.items()}
    more = {"relu_values": values, "relu_megabytes": relu, "published": TABLE_4[name]}
    return [
        row | {"case": case, "megabytes": linear[m], "megabytes_with_relu": linear[m] + relu} | more
        for m, row in sums.items()
    ]


def _attack(quick: bool) -> list[dict[str, Any]]:
    """The averaging attack: on the published parameters the error of the weights found, which are in [-1, 1].

    On the sound ones the correlation with the weights, in deviations of what no relation gives.
    """
    most = 256 if quick else 4096
    curve = measuring.rotation_free_attack(most)
    out: list[dict[str, Any]] = [
        {
            "case": f"attack: {k} set-ups",
            "method": "published",
            "insecure": True,
            "setups": k,
            "weight_error": error,
            "error_times_k": k * error,
        }
        for k, error in curve
    ]
    for profile in ("compact", "flooded"):
        for k, deviations in measuring.rotation_free_attack(most, profile):
            row = {"case": f"attack: {k} set-ups", "method": profile, "insecure": False, "setups": k}
            out.append(row | {"correlation_deviations": deviations})
    return out


PARTS = {"figure-7": _figure_7, "table-2": _table_2, "table-3": _dense, "attack": _attack}


def rows(*, quick: bool, threads: int, progress: Any, cases: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """All tables, or the parts named. One thread, whatever ``threads`` says: that is what the paper measures.

    Raises:
        hushnet.InputError: there is no such part.
    """
    del threads
    chosen = list(cases) if cases else [*PARTS, *(list(TABLE_4)[:1] if quick else TABLE_4)]
    unknown = [c for c in chosen if c not in PARTS and c not in TABLE_4]
    if unknown:
        raise hushnet.InputError(f"no case {', '.join(unknown)}: cases are {', '.join([*PARTS, *TABLE_4])}")
    out = []
    for number, case in enumerate(chosen):
        if progress:
            progress(f"rotation-free: {case}", number, len(chosen))
        out += PARTS[case](quick) if case in PARTS else _network(case, quick, progress)
    return out


BENCHMARK = Benchmark(
    name="rotation-free",
    about="linear layers on shares: rotation-free, Cheetah, ConvFHE; the paper's (insecure) parameters and ours",
    source="rotation-free CNN, Tables I to IV, Figure 7",
    run=rows,
    plot=rotation_free_plot.plot,
)

"""Single linear layers and whole networks' linear layers by every coefficient-packed method: Tables I to IV and Figure 7 of the
rotation-free paper. Rows with ``insecure`` run the paper's own parameters, which leak weights; they are here to compare only.

Seconds are processor time of one thread, least of several runs, both parties without the network between them.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import asdict
from typing import Any

from hushnet import _native, frontend, passes, zoo
from hushnet.bench.registry import Benchmark
from hushnet.graph import Dense, Linear

PAPER = ["published", "cheetah-published", "convfhe-published"]
SECURE = ["compact", "flooded", "cheetah", "convfhe"]
FIGURE_7 = {"cheetah-published": "5 to 7.5", "convfhe-published": "8 to 13"}  # times the latency of rotation-free, c from 4 to 256
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
    return json.loads(_native.rotation_free_layer(json.dumps(geometry), methods, insecure_parameters=True, **options))


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
        "gazelle": {"ntt": 4 * f2, "intt": 4 * outputs, "products": 4 * f2 * outputs, "rotations": 2 * (f2 - 2 + outputs)},
        "cheetah": {"ntt": 2, "intt": 2 * outputs, "products": 2 * outputs, "rotations": 0},
        "convfhe": {"ntt": 2, "intt": 2 * outputs, "products": 2 * outputs, "rotations": outputs - 1},
        "rotation-free": {"ntt": 4, "intt": 2 * outputs, "products": 4 * outputs, "rotations": 0},
    }


def traffic(channels: int, outputs: int, side: int, n: int = 8192, wide: int = 104, narrow: int = 55) -> dict[str, float]:
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


def _figure_7(quick: bool) -> list[dict[str, Any]]:
    """Latency over c_i = c_o at c w^2 = N, every method of the paper's parameters on the same kernels."""
    out = []
    degree, channels = (8192, [2, 8, 32]) if quick else (65536, [4, 16, 64, 256])
    for c in channels:
        side = math.isqrt(degree // c)
        for kernel in [3] if quick or c > 64 else [3, 5, 7]:
            methods = PAPER if kernel == 3 else PAPER[:1]
            figures = _measure(_conv(c, side, c, kernel), methods, ring_degree=degree, runs=3 if quick else 5)
            case = f"Figure 7: c = {c}, {side}x{side}, f = {kernel}, N = {degree}"
            ours = figures["published"]["seconds"]
            for method, f in figures.items():
                ratio = f["seconds"]["server"] / ours["server"] if ours["server"] else None
                more = {"times_rotation_free_server": ratio, "published_times": FIGURE_7.get(method), "channels": c, "kernel": kernel}
                if method != "published":
                    down = figures["published"]["bytes_up"] + figures["published"]["bytes_down"]
                    more["rotation_free_bytes_share"] = down / (f["bytes_up"] + f["bytes_down"])
                out.append(_row(case, method, f, **more))
            counts = formulas(c, c, side, kernel)["gazelle"]
            out.append({"case": case, "method": "gazelle (Table I formula)"} | {f"server_{k}": v for k, v in counts.items()})
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
        figures = _measure(_conv(c, side + 1, c, 3), PAPER, runs=1) | _measure(_conv(c, side, c, 3, 1), SECURE, runs=1 if quick else 3)
        whole = figures["convfhe-published"]
        for method, f in figures.items():
            share = (f["bytes_up"] + f["bytes_down"]) / (whole["bytes_up"] + whole["bytes_down"])
            out.append(_row(f"Table II: w = {side}, c = {c}", method, f, of_convfhe=share))
    return out


def _dense(quick: bool) -> list[dict[str, Any]]:
    """Table III: an FC layer with n_i n_o <= N and a large one."""
    out = []
    for inputs, outputs in [(512, 16)] if quick else [(512, 16), (2048, 1000)]:
        geometry = {"type": "dense", "inputs": inputs, "outputs": outputs}
        for method, f in _measure(geometry, [*PAPER[:2], *SECURE], runs=2).items():
            out.append(_row(f"Table III: FC {inputs} -> {outputs}", method, f))
    return out


def layers(network: str, **options: Any) -> Counter[str]:
    """The linear layers of a network of the zoo, as JSON geometries, and how often each occurs."""
    graph = passes.default(frontend.load(zoo.build(network, **options)))
    found: Counter[str] = Counter()
    for node in graph.nodes:
        if isinstance(node, Linear):
            kind = "dense" if isinstance(node.geometry, Dense) else "conv2d"
            found[json.dumps({"type": kind} | asdict(node.geometry))] += 1
    return found


def _table_4(quick: bool, progress: Any) -> list[dict[str, Any]]:
    """Linear layers of whole networks, one image: sums over layers."""
    out = []
    names = list(TABLE_4)[:1] if quick else list(TABLE_4)
    for number, name in enumerate(names):
        if progress:
            progress(f"rotation-free: {name}", number, len(names))
        found = layers(name)
        methods = ["compact", "cheetah"] if name.startswith("resnet") else (["compact", "flooded", "cheetah", "convfhe"])
        sums: dict[str, dict[str, Any]] = {}
        for geometry, count in found.items():
            for method, f in _measure(json.loads(geometry), methods, runs=1 if quick or name.startswith("resnet") else 2).items():
                row = _row(f"Table IV: {name}, linear layers", method, f)
                total = sums.setdefault(method, row | {k: 0 for k, v in row.items() if isinstance(v, (int, float)) and not isinstance(v, bool)})
                for key, value in row.items():
                    if isinstance(value, (int, float)) and not isinstance(value, bool):
                        total[key] = max(total[key], value) if key in ("ring_degree", "modulus_bits") else total[key] + count * value
        out += [row | {"published": TABLE_4[name]} for row in sums.values()]
    return out


def _attack(quick: bool) -> list[dict[str, Any]]:
    """The averaging attack on the published parameters: error of the weights found, which are in [-1, 1]."""
    curve = _native.rotation_free_attack(256 if quick else 4096)
    return [{"case": f"attack: {k} set-ups", "method": "published", "insecure": True, "weight_error": error, "error_times_k": k * error} for k, error in curve]


def rows(*, quick: bool, threads: int, progress: Any) -> list[dict[str, Any]]:
    """All tables. One thread, whatever ``threads`` says: that is what the paper measures."""
    del threads
    out = []
    parts = [_figure_7, _table_2, _dense, _attack]
    for number, part in enumerate(parts):
        if progress:
            progress(f"rotation-free: {part.__name__.strip('_')}", number, len(parts) + 1)
        out += part(quick)
    return out + _table_4(quick, progress)


BENCHMARK = Benchmark(
    name="rotation-free",
    about="linear layers on shares: rotation-free, Cheetah, ConvFHE; the paper's (insecure) parameters and ours",
    source="rotation-free CNN, Tables I to IV, Figure 7",
    run=rows,
)

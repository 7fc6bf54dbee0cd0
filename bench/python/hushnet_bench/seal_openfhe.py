"""CNNs on one encrypted image.

Ours beside Microsoft SEAL and OpenFHE running the channel-wise circuit of Zhu et al., Tables 6-10.

Everything runs on one core, pinned; seconds are processor seconds of the evaluating thread, so that other load disturbs
little. SEAL and OpenFHE run in processes of their own (``make peers``), as does ours, whose peak memory is then its
own. For them the encoding of weights is taken out of the time (their code encodes all weights beforehand, which costs
16 GB; ours is encoded beforehand as well).
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hushnet
import numpy as np
from hushnet import _native, data, frontend, passes, zoo
from hushnet.planner.non_interactive import Network, replace_activations
from hushnet.planner.non_interactive.packed import specification

from hushnet_bench import _native as measuring
from hushnet_bench.executors import openfhe, seal
from hushnet_bench.executors.executor import Executor, MemoryLog, Parameters, PeerFailed, PeerMissing
from hushnet_bench.registry import Benchmark

POINTS = 200  # of a memory curve
SAMPLE = 2  # channels that are computed where a whole layer takes too long
SCALED = "mnist-square"  # where an estimate from a sample is compared with the whole


@dataclass(frozen=True)
class Bars:
    """What ours is to keep on one core.

    Seconds an image, bytes of memory and keys, and how many times faster than each peer in the same run.
    """

    seconds: float
    memory_bytes: int
    key_bytes: int = 150_000_000
    seal: float = 10.0
    openfhe: float = 20.0
    security_bits: int = 128


@dataclass(frozen=True)
class Case:
    """A network of the paper's with its published seconds (1 thread) and accuracies (%) for SEAL and OpenFHE."""

    network: str
    activation: str
    seal: float
    openfhe: float
    accuracy: tuple[float, float]
    automatic: float | None  # FLEXIBLEAUTO, Table 9
    bars: Bars
    estimated: bool = False

    @property
    def trained(self) -> bool:
        """Whether the package has trained weights."""
        return self.network == "mnist"


CASES = {
    "mnist-square": Case("mnist", "square", 11.15, 23.07, (99.2, 99.2), 132.28, Bars(0.4, 2 << 30)),
    "mnist-swish-rg5-deg2": Case("mnist", "swish-rg5-deg2", 11.08, 22.91, (99.3, 99.3), 134.36, Bars(0.4, 2 << 30)),
    "mnist-swish-rg7-deg4": Case("mnist", "swish-rg7-deg4", 15.01, 29.40, (99.4, 99.4), 116.75, Bars(0.6, 2 << 30)),
    "cifar10-square": Case("cifar10", "square", 201.1, 374.76, (80.3, 78.8), None, Bars(10.0, 8 << 30), True),
    "cifar10-swish-rg5-deg2": Case(
        "cifar10", "swish-rg5-deg2", 200.2, 374.37, (80.3, 80.1), None, Bars(10.0, 8 << 30), True
    ),
    "cifar10-swish-rg7-deg4": Case(
        "cifar10", "swish-rg7-deg4", 249.5, 477.46, (81.4, 81.5), None, Bars(10.0, 8 << 30), True
    ),
}
PEERS = ("seal", "openfhe", "openfhe-auto")

# Table 7, milliseconds (SEAL, OpenFHE) by level
PRIMITIVES: dict[int, dict[str, tuple[float, float]]] = {
    5: {"add": (0.465, 4.059), "multiply": (6.181, 15.298), "rotate": (31.450, 455.506), "rescale": (6.763, 28.802)},
    7: {"add": (0.379, 1.922), "multiply": (5.344, 6.644), "rotate": (36.095, 102.314), "rescale": (5.794, 96.606)},
    8: {"add": (0.639, 4.251), "multiply": (6.969, 7.329), "rotate": (53.200, 128.671), "rescale": (8.612, 26.781)},
    11: {"add": (2.556, 2.417), "multiply": (16.192, 7.798), "rotate": (127.979, 160.022), "rescale": (17.557, 50.683)},
}


def rows(
    *,
    quick: bool,
    threads: int,
    progress: Any,
    cases: Sequence[str] | None = None,
    peers: Sequence[str] | None = None,
    batch: int = 100,
    peer_images: int = 1,
) -> list[dict[str, Any]]:
    """Latency rows of every case, then the primitives.

    Args:
        cases: names of :data:`CASES`, and ``primitives``; all by default, the first one with ``quick``.
        peers: names of :data:`PEERS`; those that are installed by default, none with ``quick``.
        batch: images that ours classifies, to compare predictions with the float network.
        peer_images: images that each peer classifies.
    """
    chosen = list(cases) if cases else ["mnist-square", "primitives"] if quick else [*CASES, "primitives"]
    unknown = sorted(set(chosen) - {*CASES, "primitives"}) + sorted(set(peers or ()) - set(PEERS))
    if unknown:
        raise hushnet.InputError(
            f"no case or peer {', '.join(unknown)}: cases are {', '.join(CASES)}, primitives; peers are "
            f"{', '.join(PEERS)}"
        )
    wanted = _available(peers, quick=quick)
    out: list[dict[str, Any]] = []
    for number, name in enumerate(chosen):
        if progress:
            progress(f"seal-openfhe {name}", number, len(chosen))
        if name == "primitives":
            out += primitive_rows([8192] if quick else [16384], wanted, quick=quick)
        else:
            out += case_rows(
                name,
                wanted,
                images=2 if quick else batch,
                peer_images=peer_images,
                threads=threads,
                runs=1 if quick else 5,
            )
    return out


def _available(peers: Sequence[str] | None, *, quick: bool) -> list[str]:
    from hushnet_bench.executors.executor import interpreter

    if peers is not None:
        return [p for p in PEERS if p in peers]
    found = []
    for peer in () if quick else PEERS:
        try:
            interpreter(peer.split("-")[0])
            found.append(peer)
        except PeerMissing:
            continue
    return found


def network(name: str, merge: str = "auto") -> tuple[Network, np.ndarray, np.ndarray | None]:
    """The folded network of a case, images, and their labels where there are any.

    Ours takes pools merged into the convolutions that follow (a level less each); for the channel-wise circuit of the
    peers that would be four times the products.
    """
    case = CASES[name]
    if case.trained:
        train, _, images, labels = data.digits()
        graph = passes.default(frontend.load(zoo.trained(f"mnist-cnn-{case.activation}")))
        return Network.from_graph(graph, calibration=train[:500], merge=merge), images, labels
    images = data.synthetic((3, 32, 32), 16, seed=1)
    graph = passes.default(frontend.load(zoo.build("cifar10-cnn")))
    done = replace_activations(graph, case.activation, calibration=images)
    return Network.from_graph(done.graph, calibration=images, ranges=done.ranges, merge=merge), images, None


def case_rows(
    name: str, peers: Sequence[str], *, images: int, peer_images: int, threads: int, runs: int
) -> list[dict[str, Any]]:
    """Ours and every peer on one network."""
    case = CASES[name]
    net, x, labels = network(name)
    truth = net.run(x[:images]).output
    merged = network(name, "always")[0]
    mine: dict[str, Any] = {"case": name, "published": min(case.seal, case.openfhe)} | ours(
        merged, x[:images], truth, labels, threads=threads, runs=runs
    )
    out: list[dict[str, Any]] = [mine]
    for peer in peers:
        try:
            row: dict[str, Any] = {"case": name} | run_peer(
                peer, net, x[:peer_images], truth, sample=SAMPLE if case.estimated else None
            )
        except PeerFailed as error:
            # e.g. values that its fixed scale does not hold; the other peers are measured all the same
            row = {"case": name, "method": _label(peer), "error": str(error).strip().splitlines()[0]}
        row["published"] = {"seal": case.seal, "openfhe": case.openfhe, "openfhe-auto": case.automatic}[peer]
        row["published_accuracy"] = case.accuracy[0 if peer == "seal" else 1]
        if "seconds" in mine and "seconds" in row:
            row["ours_faster"] = row["seconds"] / mine["seconds"]
        out.append(row)
    mine |= against_bars(case.bars, mine, {r["method"]: r["ours_faster"] for r in out if "ours_faster" in r})
    if name == SCALED and "seal" in peers:
        out.append({"case": name} | scaling(net, x[:1], next((r for r in out if r["method"] == _label("seal")), {})))
    for row in out:
        if row.get("published") and "seconds" in row:
            row["ratio"] = row["published"] / row["seconds"]
    return out


def against_bars(bars: Bars, mine: dict[str, Any], faster: dict[str, float]) -> dict[str, Any]:
    """What our row has beside each bar, and which bars it misses; a bar of a peer that did not run is left out."""
    if "seconds" not in mine:
        return {"bars": {}, "bars_missed": "no figures"}
    most = {
        "seconds": (mine["seconds"], bars.seconds),
        "peak memory, bytes": (mine["peak_memory_bytes"], bars.memory_bytes),
        "keys, bytes": (mine["key_bytes"], bars.key_bytes),
        # what is seen must stay below what the plan says of any input
        "error seen, of the rigorous bound": (mine["max_error"], mine["predicted_error"]),
    }
    least = {
        "security bits": (mine["security_bits"], bars.security_bits),
        "predictions that agree": (mine["agreement"], 1.0),
    }
    for peer, bar in (("seal", bars.seal), ("openfhe", bars.openfhe)):
        if _label(peer) in faster:
            least[f"times faster than {_label(peer)}"] = (faster[_label(peer)], bar)
    table = {k: {"have": h, "at_most": b} for k, (h, b) in most.items()} | {
        k: {"have": h, "at_least": b} for k, (h, b) in least.items()
    }
    missed = [k for k, (h, b) in most.items() if h > b] + [k for k, (h, b) in least.items() if h < b]
    return {"bars": table, "bars_missed": ", ".join(missed)}


def scaling(net: Network, x: np.ndarray, whole: dict[str, Any]) -> dict[str, Any]:
    """How far the estimate from a sample of channels is from a whole run of the same peer on a network that fits.

    The CIFAR-10 rows of the peers are such estimates.
    """
    if "seconds" not in whole:
        return {"method": "SEAL, scaled up from a sample", "error": "no whole run to compare with"}
    row = run_peer("seal", net, x, np.empty(0), sample=SAMPLE)
    return {
        "method": "SEAL, scaled up from a sample",
        "seconds": row["seconds"],
        "whole_seconds": whole["seconds"],
        "estimate_over_whole": row["seconds"] / whole["seconds"],
        "estimate": row["estimate"],
    }


def ours(
    net: Network, x: np.ndarray, truth: np.ndarray, labels: np.ndarray | None, *, threads: int, runs: int
) -> dict[str, Any]:
    """Our engine in a process of its own."""
    spec, arrays = specification(net, x)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        (place / "spec.json").write_text(json.dumps(spec))
        named: dict[str, Any] = dict(arrays)
        np.savez(place / "arrays.npz", **named)
        np.save(place / "images.npy", net.encrypted_input(x))
        command = [sys.executable, "-m", "hushnet_bench.seal_openfhe", folder, str(threads), str(runs)]
        with (
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child,
            MemoryLog(child.pid) as memory,
        ):
            text, errors = child.communicate()
        if child.returncode:
            # the peers are measured all the same
            return {
                "method": "hushnet packed",
                "error": errors.strip().splitlines()[-1] if errors.strip() else f"exit code {child.returncode}",
            }
        measured = json.loads(text.splitlines()[-1])
        outputs = np.load(place / "outputs.npy")
    got = net.opened(outputs)
    row = {"method": "hushnet packed", **measured, "depth": net.depth, "memory": _curve(memory), "images": len(x)}
    return row | _compared(got, truth[: len(got)], labels)


def _child(folder: str, threads: str, runs: str) -> None:
    place = Path(folder)
    arrays = dict(np.load(place / "arrays.npz"))
    images = np.load(place / "images.npy")
    start = time.perf_counter()
    circuit = measuring.PackedRun((place / "spec.json").read_text(), arrays, "{}")
    compile_seconds = time.perf_counter() - start
    outputs, times, setup = [], [], 0.0
    for index in range(max(len(images), int(runs) + 1)):
        y, text = circuit.run(images[index % len(images)].reshape(-1).astype(np.float64), int(threads))
        trace = json.loads(text)
        setup = max(setup, trace["seconds"]["setup"])
        times.append(
            {k: sum(trace[k][part] for part in ("encrypt", "evaluate", "decrypt")) for k in ("cpu_seconds", "seconds")}
        )
        if index < len(images):
            outputs.append(y)
    np.save(place / "outputs.npy", np.stack(outputs))
    # the first run also fills caches; with several threads only the wall clock says something
    clock = "cpu_seconds" if int(threads) == 1 else "seconds"
    warm = times[1:]
    report = json.loads(circuit.report())
    result = {
        "seconds": statistics.median(t[clock] for t in warm),
        "wall_seconds": statistics.median(t["seconds"] for t in warm),
        "setup_seconds": setup,
        "key_bytes": trace["key_bytes"],
        "security_bits": report["security"],
        "peak_memory_bytes": trace["peak_memory_bytes"],
        "counts": trace["counts"],
        "predicted_error": report["error_bound"],
        "typical_error": report["error_typical"],
        "expected_error": report["error_expected"],
        "compile_seconds": compile_seconds,
        "report": report,
    }
    print(json.dumps(result))


def run_peer(peer: str, net: Network, x: np.ndarray, truth: np.ndarray, *, sample: int | None) -> dict[str, Any]:
    """One peer: its own keys, parameters of the comparison (N = 16384, scale 2^30), its circuit."""
    with _executor(peer) as worker, MemoryLog(worker.pid) as memory:
        prepared = worker.setup(net.spec(), sample=sample)
        outputs, answer = worker.run(net.encrypted_input(x))
    traces = answer["traces"]
    row = {
        "method": _label(peer),
        "seconds": statistics.median(t["seconds"] for t in traces),
        "encode_seconds": statistics.median(t["encode_seconds"] for t in traces),
        "setup_seconds": prepared["keygen_seconds"],
        "key_bytes": sum(prepared["key_bytes"].values()),
        "peak_memory_bytes": answer["peak_memory_bytes"],
        "weights_as_plaintexts_bytes": _plaintext_bytes(prepared),
        "depth": prepared["depth"],
        "counts": prepared["counts"],
        "images": len(x),
        "memory": _curve(memory),
    }
    if sample is not None:
        row["estimate"] = (
            f"{sample} input and {sample} output channels of every layer were computed; seconds of rotations are "
            f"multiplied by inputs/{sample}, of products by "
            f"inputs x outputs/{sample}^2, of rescalings and activations by channels/{sample}, of dense rows by "
            f"rows/{sample}. "
            "The whole circuit's weights as plaintexts do not fit in memory"
        )
    if outputs is not None:
        row |= _compared(net.opened(outputs), truth[: len(x)], None)
    return row


def _plaintext_bytes(prepared: dict[str, Any]) -> int:
    """What all weights take as plaintexts of the highest level, which is how the paper's code holds them."""
    limbs = prepared["depth"] + 1
    return prepared["counts"].get("multiply_plain", 0) * prepared["ring_degree"] * 8 * limbs


def _executor(peer: str) -> Executor:
    parameters = Parameters()
    if peer == "seal":
        return seal.executor(parameters)
    return openfhe.executor(parameters, mode="FLEXIBLEAUTO" if peer == "openfhe-auto" else "FIXEDMANUAL")


def _label(peer: str) -> str:
    return {"seal": "SEAL, channel-wise", "openfhe": "OpenFHE FIXEDMANUAL", "openfhe-auto": "OpenFHE FLEXIBLEAUTO"}[
        peer
    ]


def _compared(got: np.ndarray, truth: np.ndarray, labels: np.ndarray | None) -> dict[str, Any]:
    answers, right = got.reshape(len(got), -1).argmax(axis=1), truth.reshape(len(truth), -1).argmax(axis=1)
    row = {"max_error": float(np.abs(got - truth).max()), "agreement": float((answers == right).mean())}
    if labels is not None:
        row["accuracy"] = float((answers == labels[: len(got)]).mean())
        row["accuracy_in_the_clear"] = float((right == labels[: len(got)]).mean())
    return row


def _curve(memory: MemoryLog) -> list[tuple[float, int]]:
    step = max(1, len(memory.samples) // POINTS)
    return [(round(t, 3), b) for t, b in memory.samples[::step]]


def primitive_rows(degrees: Sequence[int], peers: Sequence[str], *, quick: bool) -> list[dict[str, Any]]:
    """Table 7 (and 8): microseconds of each operation at the top level, the same N and number of primes for all."""
    out = []
    for degree in degrees:
        for depth in [3] if degree < 16384 else PRIMITIVES:
            bits = 45 + 30 * depth + 45
            limit = _native.max_modulus_bits(degree)
            if limit is None or bits > limit:
                continue
            budget = 0.05 if quick else 0.3
            table = {"hushnet": own_primitives(degree, depth, seconds=budget)}
            for peer in peers:
                mode = "FLEXIBLEAUTO" if peer == "openfhe-auto" else "FIXEDMANUAL"
                with Executor(peer.split("-")[0], Parameters(ring_degree=degree, mode=mode)) as worker:
                    table[_label(peer)] = worker.primitives(depth, seconds=budget)["us"]
            out += _primitive_rows(degree, depth, table)
    return out


def _primitive_rows(degree: int, depth: int, table: dict[str, dict[str, float]]) -> list[dict[str, Any]]:
    made = []
    operations = list(dict.fromkeys(op for row in table.values() for op in row))
    for op in operations:
        published = PRIMITIVES.get(depth, {}).get(op)
        row: dict[str, Any] = {"case": f"primitive: {op}, N={degree}, {depth} levels", "method": "microseconds"}
        row |= {f"{name} us": values[op] for name, values in table.items() if op in values}
        if published:
            row |= {"published_seal_us": published[0] * 1e3, "published_openfhe_us": published[1] * 1e3}
        made.append(row)
    return made


def own_primitives(degree: int, depth: int, *, seconds: float) -> dict[str, float]:
    """Median microseconds of our operations.

    Primes of 45, ``depth`` x 30 and 45 bits, a digit a prime, as SEAL does it.
    """
    c = measuring.Ckks(degree, [45] + [30] * depth, [45], 30, [1])
    vector = np.random.default_rng(1).standard_normal(degree // 2)
    plain = c.encode(vector, 6.0)
    a, b = c.encrypt(plain), c.encrypt(plain, True)
    product = c.square(a)
    relinearised = c.relinearise(product)
    decrypted, scale = c.decrypt(a), 2.0**30
    operations = {
        "add": lambda: c.add(a, b),
        "add plain": lambda: c.add_plain(a, plain),
        "multiply plain": lambda: c.multiply_plain(a, plain),
        "multiply": lambda: c.multiply(a, b),
        "square": lambda: c.square(a),
        "multiply scalar": lambda: c.multiply_scalar(a, 1.5, scale),
        "relinearise": lambda: c.relinearise(product),
        "square and relinearise": lambda: c.relinearise(c.square(a)),
        "multiply and relinearise": lambda: c.relinearise(c.multiply(a, b)),
        "multiply plain after a product, rescaled first": lambda: c.multiply_plain(c.rescale(relinearised), plain),
        "rescale": lambda: c.rescale(relinearised),
        "rotate": lambda: c.rotate(a, 1),
        "encode": lambda: c.encode(vector, 6.0),
        "encrypt": lambda: c.encrypt(plain),
        "encrypt symmetric": lambda: c.encrypt(plain, True),
        "decrypt": lambda: c.decrypt(a),
        "decode": lambda: c.decode(decrypted),
        "decrypt and decode": lambda: c.decode(c.decrypt(a)),
    }
    return {name: _median(f, seconds) for name, f in operations.items()}


def _median(f: Any, budget: float) -> float:
    f()
    times: list[float] = []
    start = time.thread_time()
    while len(times) < 5 or (time.thread_time() - start < budget and len(times) < 500):
        before = time.thread_time()
        f()
        times.append(time.thread_time() - before)
    return round(statistics.median(times) * 1e6, 2)


def plot(result: dict[str, Any], path: Path) -> None:
    """Memory over time of every method, one picture a case (the paper's Figures 3 and 4)."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    curves = [r for r in result["rows"] if r.get("memory")]
    names = list(dict.fromkeys(r["case"] for r in curves))
    figure, axes = pyplot.subplots(max(1, len(names)), 1, figsize=(8, 3 * max(1, len(names))), squeeze=False)
    for axis, name in zip(axes[:, 0], names):
        for row in (r for r in curves if r["case"] == name):
            seconds, resident = zip(*row["memory"])
            axis.plot(seconds, np.array(resident) / 1e9, label=f"{row['method']}, {row['seconds']:.3g} s an image")
        axis.set_title(name)
        axis.set_xlabel("seconds since the start (keys and encoding included)")
        axis.set_ylabel("resident GB")
        axis.set_xscale("symlog")
        axis.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


BENCHMARK = Benchmark(
    name="seal-openfhe",
    about="CNNs on one encrypted image beside SEAL and OpenFHE on the channel-wise circuit (make peers); primitives; "
    "memory over time",
    source="SEAL/OpenFHE comparison, Tables 6-10 (1 thread): MNIST 11-15 s and 23-29 s, "
    "CIFAR-10 200-250 s and 374-477 s",
    run=rows,
    plot=plot,
)

if __name__ == "__main__":
    _child(*sys.argv[1:])

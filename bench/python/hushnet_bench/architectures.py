"""Networks younger than ResNet with both sides private: EfficientNet, MobileNetV3, ConvNeXt, ViT, YOLO, two processes.

Seconds, bytes and memory of both parties beside what was predicted; the error beside what the plan states, against ONNX
Runtime; where bytes and seconds go, by kind of stage. Weights are seeded, so each row also says what activations they
give: errors of a network whose activations vanish, explode or are the same for all inputs would mean nothing.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Sequence
from typing import Any

import hushnet
import numpy as np
import onnx
from hushnet import data, zoo

from hushnet_bench.registry import Benchmark
from hushnet_bench.two_party import _measured, _predicted
from hushnet_bench.two_processes import Measured, measure

CASES = ("mobilenetv3-small", "efficientnet-b0", "vit-tiny", "yolo-nano", "convnext-tiny")
# smaller ones for ``--quick``, of the kinds of stages that the others have
QUICK: dict[str, dict[str, Any]] = {
    "mobilenetv3-small": {"size": 32, "width": 0.25, "depth": 4, "classes": 10},
    "vit-tiny": {"size": 32, "width": 0.125, "depth": 1, "classes": 10},
}
# of networks whose plans take minutes each: bits without a search for the precision
OPTIONS: dict[str, dict[str, Any]] = {"convnext-tiny": {"weight_bits": 12}}
CALIBRATION = 8
# images, at most; none begins after so many seconds of runs
RUNS, SECONDS = 2, 60.0
# operators whose results are looked at
LAYERS = ("Conv", "Gemm", "MatMul", "Add")


def rows(
    *, quick: bool, threads: int, progress: Any, cases: Sequence[str] | None = None, size: int | None = None
) -> list[dict[str, Any]]:
    """A row for each network; ``size`` is the image side."""
    chosen = list(cases) if cases else list(QUICK if quick else CASES)
    if unknown := [c for c in chosen if c not in CASES]:
        raise hushnet.InputError(f"no case {', '.join(unknown)}: cases are {', '.join(CASES)}")
    found: list[dict[str, Any]] = []
    for case in chosen:
        if progress:
            progress(f"architectures: {case}", len(found), len(chosen))
        options = dict(QUICK.get(case, {"size": 32, "width": 0.25, "depth": 1})) if quick else {}
        bits = {"weight_bits": 10} if quick else OPTIONS.get(case, {})
        found.append(row(case, options if size is None else options | {"size": size}, threads, bits))
    return found


def row(case: str, options: dict[str, Any], threads: int, bits: dict[str, Any]) -> dict[str, Any]:
    """One network, by default options but for ``bits``: between two processes, compared with ONNX Runtime.

    Raises:
        HushnetError: bytes or rounds are not as planned, or an error is beyond the stated one.
    """
    model = zoo.build(case, **options)
    side = options.get("size", 224)
    calibration = data.synthetic((3, side, side), CALIBRATION, seed=1)
    x = data.synthetic((3, side, side), RUNS, seed=2).astype(np.float32)
    begun = time.perf_counter(), time.process_time()
    plan = hushnet.compile(model, trust="two-party", calibration=calibration, name=case, **bits)
    compiled = {
        "compile_seconds": time.perf_counter() - begun[0],
        "compile_cpu_seconds": time.process_time() - begun[1],
        "compile_peak_memory_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }
    seen = measure(plan, x, threads=threads, seconds=SECONDS)
    outputs = next(iter(seen.outputs.values()))
    return {
        "case": f"{case} {'x'.join(map(str, calibration.shape[1:]))}",
        "method": f"hushnet two-party, two processes, {threads} core(s) a party"
        + (" (the same ones)" if seen.shared else ""),
        **compiled,
        **_measured(seen),
        **_predicted(plan, 1),
        **checked(plan, seen, outputs, plain(model, x[: len(outputs)])),
        **activations(model, calibration[:4]),
        "kinds": by_kind(plan, seen),
    }


def checked(plan: hushnet.Model, seen: Measured, got: np.ndarray, wanted: np.ndarray) -> dict[str, Any]:
    """Counts against the planned ones, and errors against the stated one.

    Raises:
        HushnetError: they are not as planned, or beyond it.
    """
    predicted = plan.plan.predicted
    # what is predicted is the first inference of a session; later ones have random values left over and send less
    trace = seen.client[0]
    wrong = [k for k in ("bytes_up", "bytes_down", "rounds") if trace[k] != predicted[k]]
    if wrong:
        told = ", ".join(f"{k} {trace[k]} (planned {predicted[k]})" for k in wrong)
        raise hushnet.HushnetError(f"{plan.plan.name}: the first run is not as planned: {told}")
    error = float(np.abs(got - wanted.reshape(got.shape)).max())
    if not error <= predicted["max_error"]:
        raise hushnet.HushnetError(
            f"{plan.plan.name}: the result is {error:.3g} from ONNX Runtime's, and the plan states "
            f"{predicted['max_error']:.3g}"
        )
    return {
        "images_checked": len(got),
        "as_planned": True,
        "error_to_onnx": error,
        "stated_error": predicted["max_error"],
        "output_range": predicted.get("output_range"),
        "bits_asked": predicted.get("precision", {}).get("asked"),
        "bits_reached": predicted.get("precision", {}).get("reached"),
        "expected_agreement": predicted.get("expected_agreement"),
        "planned_agreement": predicted.get("agreement"),
    }


def by_kind(plan: hushnet.Model, seen: Measured) -> dict[str, dict[str, float]]:
    """Stages, bytes, turns of the client, and seconds that each party computed, by kind of stage; dear ones first."""
    found: dict[str, dict[str, float]] = {}
    runs = len(seen.client)
    for stage, client, server in zip(plan.plan.stages, seen.median["stages"], seen.server["stages"]):
        entry = found.setdefault(
            stage["kind"], {"stages": 0, "megabytes": 0.0, "turns": 0, "client_seconds": 0.0, "server_seconds": 0.0}
        )
        entry["stages"] += 1
        entry["megabytes"] += (client["bytes_up"] + client["bytes_down"]) / 1e6
        entry["turns"] += client["turns"]
        entry["client_seconds"] += client["seconds"] - client["waiting"]
        entry["server_seconds"] += (server["seconds"] - server["waiting"]) / runs
    return dict(sorted(found.items(), key=lambda item: -item[1]["client_seconds"] - item[1]["server_seconds"]))


def plain(model: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    """ONNX Runtime's output, one image at a time."""
    session = _session(model)
    return np.concatenate([session.run(None, {"image": x[i : i + 1]})[0] for i in range(len(x))])


def activations(model: onnx.ModelProto, x: np.ndarray) -> dict[str, float]:
    """How large values behind layers and sums are, and what becomes of differences between images.

    Returns:
        ``least_deviation`` and ``most_deviation`` over these tensors; ``spread``, the deviation of an output between
        images over that of all outputs; ``sensitivity``, how many times larger a small relative difference of images
        is at the outputs.
    """
    whole = onnx.ModelProto()
    whole.CopyFrom(model)
    known = {o.name for o in whole.graph.output}
    shown = [n.output[0] for n in whole.graph.node if n.op_type in LAYERS and n.output[0] not in known]
    whole.graph.output.extend(onnx.helper.make_empty_tensor_value_info(n) for n in shown)
    session = _session(whole)
    sums = np.zeros((3, len(shown)))
    for i in range(len(x)):
        values = session.run(shown, {"image": x[i : i + 1]})
        sums += [[v.size for v in values], [v.sum(dtype=np.float64) for v in values], [_energy(v) for v in values]]
    count, total, square = sums
    deviations = np.sqrt(np.maximum(square / count - (total / count) ** 2, 0.0))
    outputs = plain(model, x).reshape(len(x), -1)
    noise = np.random.default_rng(0).standard_normal(x.shape).astype(np.float32) * np.float32(1e-3 * x.std())
    moved = plain(model, x + noise).reshape(len(x), -1) - outputs
    return {
        "least_deviation": float(deviations.min()),
        "most_deviation": float(deviations.max()),
        "spread": float(outputs.std(axis=0).mean() / outputs.std()),
        "sensitivity": float((moved.std() / outputs.std()) / (noise.std() / x.std())),
    }


def _energy(values: np.ndarray) -> float:
    return float(np.square(values, dtype=np.float64).sum())


def _session(model: onnx.ModelProto) -> Any:
    try:
        import onnxruntime
    except ImportError:
        raise hushnet.HushnetError(
            "The answers are compared with ONNX Runtime. Run `pip install onnxruntime`."
        ) from None
    onnxruntime.set_default_logger_severity(3)
    return onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])


BENCHMARK = Benchmark(
    name="architectures",
    about="EfficientNet-B0, MobileNetV3-small, ConvNeXt-tiny, ViT-tiny and YOLO-nano at 224 px, seeded weights, both "
    "sides private, two processes (--cases, --size)",
    source="-",
    run=rows,
)

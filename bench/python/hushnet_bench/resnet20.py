"""ResNet-20 on images of CIFAR-10's shape without interaction: ReLU by polynomials, bootstraps where levels end.

Weights are seeded and scaled so that activations keep their size; the case ``trained`` has learned handwritten digits,
and compares labels of held-out ones. In the clear all images that ranges are not from are compared. Each row says what
bounds the time: bootstraps times the seconds of one, from the plan's own trace.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import hushnet
import numpy as np
import onnx
from hushnet import zoo
from hushnet.data import synthetic
from hushnet.reference.non_interactive import run as in_the_clear
from hushnet.zoo import Net, Tensor, residual
from hushnet.zoo.residual import by_eight
from onnx import numpy_helper

from hushnet_bench.registry import Benchmark

CALIBRATION, IMAGES, SEEDS = 64, 64, (5, 6)
SECONDS, MEMORY = 120.0, 10_000_000_000
# VGG-11's keys and ciphertexts alone take more than MEMORY: 50 GB of encoded weights are made again as they are used
VGG_MEMORY = 16_000_000_000
# characters of a refusal that a row has
REASON = 240
# digits that ranges are taken from, images that run in the clear together, and what accuracy may fall by
DIGITS, CHUNK, FALL = 256, 30, 0.005


def vgg11(net: Net) -> Tensor:
    """Eight 3x3 convolutions of 64 to 512 maps, means of 2x2 where VGG-11 has maxima, and a layer of ten outputs."""
    x = net.input(3, 32, 32, images=16)
    number = 0
    for maps in ((64,), (128,), (256, 256), (512, 512), (512, 512)):
        for out in maps:
            number += 1
            x = net.conv_norm(f"conv{number}", x, out, 3, pad=1)
        x = net.average_pool(f"pool{number}", x, 2)
    return net.fc("fc", x, 10, last=True)


# A channel's mean before ReLU, and the part of a kernel's variance that its taps share: as in the zoo's deep networks
# without shortcuts, which magnify small differences otherwise, as trained ones do not.
CALM = {"shift": 1.0, "smooth": 0.3}
# maps at full width, and strides, of MobileNet's thirteen pairs of layers
PAIRS = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5, (1024, 2), (1024, 1))


def mobilenet(net: Net, width: float = 0.25, **options: Any) -> Tensor:
    """MobileNet (version 1) for 32x32 images: a stem, thirteen depthwise 3x3 and 1x1 convolutions, 27 ReLUs."""
    options = options or CALM
    x = net.input(3, 32, 32, images=64)
    x = net.conv_norm("stem", x, by_eight(32 * width), 3, pad=1, **options)
    for number, (maps, stride) in enumerate(PAIRS, 1):
        channels = x.shape[0]
        x = net.conv_norm(f"block{number}.depthwise", x, channels, 3, stride=stride, pad=1, groups=channels, **options)
        x = net.conv_norm(f"block{number}.pointwise", x, by_eight(maps * width), 1, **options)
    return net.fc("fc", net.global_average_pool("mean", x), 10, last=True)


def mobilenetv2(net: Net) -> Tensor:
    """MobileNetV2 of width 0.25 for 32x32 images: 35 clips to [0, 6], linear bottlenecks, residual sums."""
    return residual.mobilenetv2(net, size=32, width=0.25, classes=10)


@dataclass(frozen=True)
class Case:
    """A network, bits of its activations, and whether it is run or planned only.

    ``trained``: the architecture is the name of a network that has learned digits.
    """

    architecture: str | Callable[[Net], Tensor]
    bits: int = 7
    precision: float = 1.0
    planned: bool = False
    memory: int = MEMORY
    trained: bool = False


CASES = {
    "resnet20": Case("resnet20"),
    "trained": Case("resnet20-relu", trained=True),
    "trained-planned": Case("resnet20-relu", planned=True, trained=True),
    "resnet20-planned": Case("resnet20", planned=True),
    "resnet20-8-bits-planned": Case("resnet20", bits=8, planned=True),
    "resnet20-12-bits-planned": Case("resnet20", bits=12, planned=True),
    "resnet56": Case("resnet56"),
    "resnet56-planned": Case("resnet56", planned=True),
    "vgg11": Case(vgg11, memory=VGG_MEMORY),
    "vgg11-planned": Case(vgg11, planned=True, memory=VGG_MEMORY),
    "mobilenet": Case(mobilenet),
    "mobilenet-planned": Case(mobilenet, planned=True),
    "mobilenetv2": Case(mobilenetv2, bits=6),
    "mobilenetv2-planned": Case(mobilenetv2, bits=6, planned=True),
}
QUICK = Case("", bits=4)


def rows(
    *, quick: bool, threads: int, progress: Any, cases: list[str] | None = None, batch: int = 1
) -> list[dict[str, Any]]:
    """A row a case; ``quick``: a network of one block, as deep as levels are without bootstraps. ``batch``: images."""
    wrong = [name for name in cases or [] if name not in CASES]
    if wrong:
        raise hushnet.InputError(f"no case {', '.join(wrong)}: choose one of {', '.join(CASES)}.")
    chosen = {"quick": QUICK} if quick else {name: CASES[name] for name in cases or ["resnet20"]}
    out: list[dict[str, Any]] = []
    for name, case in chosen.items():
        if progress:
            progress(f"resnet20: {name}", len(out), len(chosen))
        try:
            row = _row(case, threads, batch)
        except hushnet.PlanError as error:
            # the end says why, behind the levels of all layers
            row = {"refused": str(error)[-REASON:]}
        out.append({"case": name, "method": "hushnet non-interactive packed", **row})
    return out


def _row(case: Case, threads: int, batch: int) -> dict[str, Any]:
    model = _model(case)
    calibration, images, labels = _data(case, model)
    begun = time.process_time()
    compiled = hushnet.compile(
        model,
        trust="non-interactive",
        batch=1,
        calibration=calibration,
        activation=f"minimax:bits={case.bits}",
        precision=case.precision,
        max_memory=case.memory,
    )
    predicted = compiled.plan.predicted
    row = {
        "activation": f"minimax:bits={case.bits}",
        "compile_processor_seconds": time.process_time() - begun,
        "predicted_seconds": predicted["seconds"],
        "levels": predicted["depth"],
        "bootstraps": predicted["counted"]["bootstraps"],
        "key_bytes": predicted["setup_bytes_up"],
        "predicted_memory_bytes": predicted["server_peak_memory_bytes"] + predicted["client_peak_memory_bytes"],
        "predicted_error": predicted["max_error"],
        "of_it_noise": predicted["noise_error"],
    }
    kept: dict[str, bool] = {}
    clear = _in_the_clear(model, compiled, images, labels)
    row |= clear
    if labels is not None:
        kept["accuracy"] = abs(clear["accuracy"] - clear["accuracy_of_float"]) <= FALL
        kept["ranges"] = not clear["out_of_range"]
    if not case.planned:
        row |= _encrypted(model, compiled, images, labels, threads, batch)
        kept["seconds"] = row["seconds"] <= SECONDS
        kept["memory"] = row["peak_memory_bytes"] <= MEMORY
        kept["error"] = row["max_error"] <= row["predicted_error"]
        kept["noise"] = row["noise"] <= row["of_it_noise"]
        kept["labels"] = row["agreement"] == 1.0
    return row | ({"kept": kept} if kept else {})


def _data(case: Case, model: onnx.ModelProto) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Calibration images, others, and the labels of these."""
    if case.trained:
        train, _, images, labels = zoo.trained_digits(model)
        return train[:DIGITS], images, labels
    shape = tuple(d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim)[1:]
    calibration, images = (
        synthetic(shape, n, seed).astype(np.float32) for n, seed in zip((CALIBRATION, IMAGES), SEEDS)
    )
    return calibration, images, None


def _in_the_clear(
    model: onnx.ModelProto, compiled: hushnet.Model, images: np.ndarray, labels: np.ndarray | None
) -> dict[str, Any]:
    """Labels of the float network and of the plan's own polynomials, on all images that the plan has not seen."""
    found = in_the_clear(compiled.plan, images, chunk=CHUNK)
    (y,) = found.outputs.values()
    want = _reference(model, images)
    network = next(s for s in compiled.plan.stages if s["kind"] == "packed")["network"]
    # what polynomials make reaches the ends of the ranges behind it by construction
    inner = {s["out"] for s in network["steps"] if s["kind"] == "polynomial"}
    layers = {t["name"] for t in network["tensors"] if t["id"] not in inner}
    shares = [r["largest"] / r["range"] for r in found.reaches if r["tensor"] in layers]
    right = {"accuracy_of_float": want, "accuracy": y}
    return {
        "held_out": len(images),
        **({} if labels is None else {name: float((v.argmax(axis=1) == labels).mean()) for name, v in right.items()}),
        "agreement_in_the_clear": float((y.argmax(axis=1) == want.argmax(axis=1)).mean()),
        "error_in_the_clear": float(np.abs(y - want).max()),
        # how near the operand of an activation came to the end of its range
        "largest_share_of_range": max(shares, default=0.0),
        "out_of_range": [r for r in found.reaches if r["outside"]],
    }


def _encrypted(
    model: onnx.ModelProto,
    compiled: hushnet.Model,
    images: np.ndarray,
    labels: np.ndarray | None,
    threads: int,
    batch: int,
) -> dict[str, Any]:
    images = images[:batch]
    begun = time.process_time()
    result = hushnet.run(compiled, images, threads=threads, transport="pipe")
    processor = time.process_time() - begun
    trace = result.trace
    (y,) = result.outputs.values()
    want = _reference(model, images)
    bootstraps = sum(s.get("seconds") or 0.0 for s in trace["stages"] if s["name"].startswith("bootstrap of"))
    found = {
        "images": len(images),
        "processor_seconds": processor,
        "seconds": trace["seconds"] / len(images),
        "setup_seconds": trace["setup_seconds"],
        "bootstrap_seconds": bootstraps / len(images),
        "peak_memory_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "max_error": float(np.abs(y - want).max()),
        # against the plan's own polynomials in the clear
        "noise": float(np.abs(y - next(iter(in_the_clear(compiled.plan, images).outputs.values()))).max()),
        "largest_output": float(np.abs(want).max()),
        "agreement": float((y.argmax(axis=1) == want.argmax(axis=1)).mean()),
    }
    if labels is not None:
        found["answers"] = [
            {
                "label": int(label),
                "encrypted": int(got.argmax()),
                "float": int(exact.argmax()),
                "logits": [round(float(v), 4) for v in got],
                "logits_of_float": [round(float(v), 4) for v in exact],
            }
            for label, got, exact in zip(labels, y, want)
        ]
    return found


def _model(case: Case) -> onnx.ModelProto:
    if case.trained:
        return zoo.trained(str(case.architecture))
    if callable(case.architecture):
        net = Net()
        return net.finish(case.architecture.__name__, case.architecture(net))
    return zoo.build(case.architecture) if case.architecture else small()


def _reference(model: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    import onnxruntime

    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    found: np.ndarray = session.run(None, {session.get_inputs()[0].name: x})[0]
    return found


def small() -> onnx.ModelProto:
    """A stem and one residual block of two maps on 8x8 images, with the mean and a layer of three outputs."""
    rng = np.random.default_rng(2)
    nodes, weights = [], []

    def conv(name: str, source: str, inputs: int, outputs: int) -> str:
        values = rng.normal(size=(outputs, inputs, 3, 3)) * np.sqrt(2 / (9 * inputs))
        weights.append(numpy_helper.from_array(values.astype(np.float32), f"{name}.w"))
        nodes.append(onnx.helper.make_node("Conv", [source, f"{name}.w"], [name], name=name, pads=[1] * 4))
        return name

    def node(op: str, name: str, *sources: str, **attributes: Any) -> str:
        nodes.append(onnx.helper.make_node(op, list(sources), [name], name=name, **attributes))
        return name

    x = node("Relu", "relu0", conv("stem", "image", 1, 2))
    y = node("Relu", "relu1", conv("a", x, 2, 2))
    x = node("Relu", "relu2", node("Add", "sum", conv("b", y, 2, 2), x))
    flat = node("Flatten", "flat", node("GlobalAveragePool", "mean", x))
    weights.append(numpy_helper.from_array(rng.normal(size=(2, 3)).astype(np.float32), "fc.w"))
    node("MatMul", "logits", flat, "fc.w")
    ends = [
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["N", *shape])
        for name, shape in (("image", (1, 8, 8)), ("logits", (3,)))
    ]
    graph = onnx.helper.make_graph(nodes, "residual", ends[:1], ends[1:], weights)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)])
    model.ir_version = 9
    return model


BENCHMARK = Benchmark(
    name="resnet20",
    about="ResNet-20 on an image of 32x32 without interaction: ReLU by polynomials, bootstraps where levels end",
    source="Lee et al., ICML 2022: 2,271 s on one thread",
    run=rows,
)

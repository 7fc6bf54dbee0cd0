"""One real network on samples: compiled, run with the real protocol, and compared with ONNX Runtime."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

import hushnet
from hushnet import zoo
from hushnet.demos.tasks import TASKS, Samples, Task
from hushnet.errors import DemoError
from hushnet.options import Trust

CALIBRATION = 64
_CALIBRATION_SEED = 1
_ROUND = 8
# what keeps answers those of ONNX Runtime: more bits where they cost little, and ranges with room for other inputs
PRECISE: dict[str, dict[str, Any]] = {
    "client-aided": {"weight_bits": 10, "most_bits": 14, "margin": 2.0, "engine": "packed"},
    "two-party": {"weight_bits": 12},
}


@dataclass(frozen=True)
class Comparison:
    """What one network answered under encryption and in the clear, and what it cost.

    Attributes:
        same: for how many samples the encrypted answer is ONNX Runtime's.
        error: the largest deviation of an output from ONNX Runtime's; ``predicted_error`` is what the plan promised.
        sides: of a map of labels, the share that the plan promises to be the original network's; else None.
        over: for how many samples an output deviates by more than the plan promised.
        seconds: of all samples, set-up of sessions included.
        first_seconds: those of the first call, which prepares the weights.
        bytes_up, bytes_down, setup_bytes_down: of all samples.
        sessions: how many there were; a session has up to eight inputs unless ``batch`` says otherwise.
        out_of_range: inputs with a value outside of what the plan is for, which was clamped.
        peak_memory_bytes: of both parties together, as far as the run time counts it.
    """

    model: str
    trust: str
    engine: str
    samples: Samples
    answers: tuple[str, ...]
    plain_answers: tuple[str, ...]
    agree: tuple[bool, ...]
    outputs: dict[str, np.ndarray]
    plain_outputs: dict[str, np.ndarray]
    error: float
    predicted_error: float
    sides: float | None
    over: int
    compile_seconds: float
    first_seconds: float
    seconds: float
    bytes_up: int
    bytes_down: int
    setup_bytes_down: int
    rounds: int
    sessions: int
    out_of_range: int
    peak_memory_bytes: int

    @property
    def same(self) -> int:
        """Samples with the same answer."""
        return sum(self.agree)

    def figures(self) -> dict[str, Any]:
        """The numbers alone, as one flat JSON object."""
        left_out = {"samples", "answers", "plain_answers", "agree", "outputs", "plain_outputs"}
        numbers = {k: v for k, v in asdict(self).items() if k not in left_out}
        count = len(self.samples)
        return {
            **numbers,
            "count": count,
            "same": self.same,
            "seconds_each": self.seconds / count,
            "bytes_each": (self.bytes_up + self.bytes_down) / count,
        }


def compare(
    name: str,
    *,
    count: int = 4,
    seed: int = 0,
    paths: Sequence[Path] = (),
    trust: Trust = "client-aided",
    batch: int | None = None,
    threads: int | None = None,
    progress: Callable[[str, int, int], None] | None = None,
    **options: Any,
) -> Comparison:
    """Fetches, compiles, runs and compares.

    Args:
        name: a key of :data:`hushnet.demos.TASKS`.
        count: inputs to make, where ``paths`` names none.
        batch: inputs of one run (default: as many as the plan is for: one).
        options: of :func:`hushnet.compile`.

    Raises:
        DemoError: no such task, or ONNX Runtime is missing.
    """
    if name not in TASKS:
        raise DemoError(f"There is no task for {name!r}. Choose one of {', '.join(TASKS)}.")
    task, files = TASKS[name], zoo.fetch(name)
    samples = task.read(list(paths), files) if paths else task.make(count, seed, files)
    plain = Runtime(files[0])
    started = time.perf_counter()
    calibration = task.make(CALIBRATION, _CALIBRATION_SEED + seed, files).arrays
    row = zoo.real_models()[name]
    model = hushnet.compile(
        str(files[0]),
        trust=trust,
        shapes=row.shapes,
        calibration=calibration,
        batch=batch or 1,
        name=name,
        **(PRECISE.get(trust, {}) | dict(task.options.get(trust, {})) | options),
    )
    compiled = time.perf_counter() - started
    return _measured(task, files, model, samples, plain, batch or _ROUND, compiled, threads, progress)


def _measured(
    task: Task,
    files: Sequence[Path],
    model: hushnet.Model,
    samples: Samples,
    plain: Runtime,
    batch: int,
    compiled: float,
    threads: int | None,
    progress: Callable[[str, int, int], None] | None,
) -> Comparison:
    traces, seconds, outside = [], [], np.zeros(len(samples), bool)
    wanted = plain(samples.arrays)
    outputs = {k: np.empty(v.shape) for k, v in wanted.items()}
    for start in range(0, len(samples), batch):
        rows = slice(start, start + batch)
        begun = time.perf_counter()
        result = hushnet.run(model, {k: v[rows] for k, v in samples.arrays.items()}, threads=threads, transport="pipe")
        seconds.append(time.perf_counter() - begun)
        traces.append(result.trace)
        outside[[start + row for row in result.out_of_range]] = True
        for name, value in result.outputs.items():
            outputs[name][rows] = value.reshape(outputs[name][rows].shape)
        if progress is not None:
            progress(task.model, min(start + batch, len(samples)), len(samples))
    errors = model.plan.predicted.get("output_errors") or {}
    answers = task.answers(outputs, samples, files, plain)
    known = task.answers(wanted, samples, files, plain)
    deviations = {k: np.abs(outputs[k] - v).reshape(len(samples), -1).max(1) for k, v in wanted.items()}
    promised = {k: float(errors.get(k, model.plan.predicted).get("max_error", np.inf)) for k in wanted}
    total = {
        k: sum(int(t.get(k) or 0) for t in traces) for k in ("bytes_up", "bytes_down", "setup_bytes_down", "rounds")
    }
    return Comparison(
        model=task.model,
        trust=model.plan.document["trust"],
        engine=model.plan.document.get("engine", ""),
        samples=samples,
        answers=tuple(answers),
        plain_answers=tuple(known),
        agree=tuple(task.same(a, b) for a, b in zip(answers, known)),
        outputs=outputs,
        plain_outputs=wanted,
        error=float(max(d.max() for d in deviations.values())),
        predicted_error=max(promised.values()),
        sides=model.plan.predicted["agreement"] if "positions" in model.plan.predicted else None,
        over=int(np.any([deviations[k] > promised[k] for k in wanted], axis=0).sum()),
        compile_seconds=compiled,
        first_seconds=seconds[0],
        seconds=sum(seconds),
        sessions=len(traces),
        out_of_range=int(outside.sum()),
        peak_memory_bytes=max(int(t.get("peak_memory_bytes") or 0) for t in traces),
        **total,
    )


class Runtime:
    """ONNX Runtime on the file as it came, one sample at a time: what it quantises by data would differ in a batch."""

    def __init__(self, model: Path) -> None:
        try:
            import onnxruntime
        except ImportError:
            raise DemoError("The answers are compared with ONNX Runtime. Run `pip install onnxruntime`.") from None
        onnxruntime.set_default_logger_severity(3)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
        self.names = [o.name for o in self.session.get_outputs()]

    def __call__(self, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """All outputs, stacked."""
        wanted = {i.name for i in self.session.get_inputs()}
        rows = len(next(iter(arrays.values())))
        found = [
            self.session.run(None, {k: v[i : i + 1] for k, v in arrays.items() if k in wanted}) for i in range(rows)
        ]
        return {name: np.concatenate([f[n] for f in found]) for n, name in enumerate(self.names)}

"""Whole networks with both sides private: the planner's choice of a method for every layer against each single method.

Two processes run one image; seconds and bytes are told after the set-up of a session and with it.

The planner's own choice stands twice: for sessions of one image, whose set-up counts in full, and for many images
behind a set-up (``queries``), where it hardly counts. The first is compared with all single methods by figures with the
set-up, the second without. What units of work cost here is calibrated at the start of the run. A choice that is one of
the single methods is measured once, for both. ``--cases`` names networks, or a network and a method: ``plain20``,
``resnet50:cheetah``, ``plain20:free``.
"""

from __future__ import annotations

import hashlib
import json
import math
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import hushnet
import numpy as np
from hushnet import data, zoo
from hushnet.machine import two_party as machine
from hushnet.planner.two_party import cost
from hushnet.reference.methods import METHODS

from hushnet_bench import two_party
from hushnet_bench.registry import Benchmark
from hushnet_bench.two_processes import measure

NETWORKS = ("plain20", "resnet50")
QUICK = ("mlp",)
FREE, STORED = "free", "free-stored"
MANY = 1000
# runs are over loopback; the planner weighs bytes by themselves
NETWORK = "loopback"
RUNS, SECONDS = 5, 20.0
CALIBRATION_SECONDS = 0.3
# bytes of both parties together: what plans may use unless told otherwise; ``--quick`` makes no keys of gigabytes
MEMORY, QUICK_MEMORY = 8 << 30, 1 << 30
# what plans are compared by: with the set-up, and without
FIGURES = {
    FREE: ("clocked_linear_seconds_with_setup", "megabytes_with_setup"),
    STORED: ("clocked_linear_seconds", "megabytes"),
}
# inferences that are clocked in a session, the first of which warms up; fewer of methods whose inference takes longer
# than so many seconds
CLOCKED, LONGER = 3, {15.0: 2, 100.0: 1}
# plans within such a factor of the best, by either figure, are clocked again, plan after plan, until no figure has
# fallen by FALL of it over STEADY rounds
CLOSE, FALL, STEADY, MOST_ROUNDS = 2.5, 0.02, 8, 40
# two runs of the same plan differ by so much
NOISE = 1.05


def _calibrated(folder: Path) -> str:
    """Path of a file with what units of work cost on this machine, both parties' cores as runs use them."""
    path = folder / "costs.json"
    path.write_text(json.dumps({**cost.unit_costs(), **machine.measure(CALIBRATION_SECONDS)}))
    return str(path)


def _compiled(network: two_party.Network, size: dict[str, Any], method: str, costs: str | None) -> hushnet.Model:
    shape = (network.shape[0], size["size"], size["size"]) if size else network.shape
    options: dict[str, Any] = {"method": None} if method in (FREE, STORED) else {"method": method}
    if method == STORED:
        options["queries"] = MANY
    calibration = data.synthetic(shape, two_party.SAMPLES, seed=1)
    return hushnet.compile(
        zoo.build(network.name, **size),
        trust="two-party",
        calibration=calibration,
        weight_bits=two_party.WEIGHT_BITS,
        network=NETWORK,
        max_memory=MEMORY,
        unit_costs=costs,
        name=f"{network.name}-{method}",
        **options,
    )


class Clock:
    """Seconds of computing of a plan: least ones of every stage and of the set-up, over all rounds."""

    def __init__(self, model: hushnet.Model, x: np.ndarray, runs: int) -> None:
        self.model, self.x = model, x
        self.linear = [i for i, s in enumerate(model.plan.stages) if s["kind"] == "linear"]
        self.setup, self.stages = self.seen(runs)

    def seen(self, runs: int) -> tuple[float, np.ndarray]:
        """Seconds of the set-up and of every stage, in a session of its own."""
        setup, _, stages = machine.clocked(self.model, self.x, runs)
        return setup, stages[:, 0]

    def again(self) -> None:
        """Another round."""
        setup, stages = self.seen(CLOCKED)
        self.setup, self.stages = min(self.setup, setup), np.minimum(self.stages, stages)

    def figures(self) -> tuple[float, float]:
        """Seconds of the linear stages, with the set-up and without: those of ``FIGURES``."""
        linear = float(self.stages[self.linear].sum())
        return linear + self.setup, linear

    def told(self) -> dict[str, float]:
        """Figures of a row."""
        both, linear = self.figures()
        return {
            "clocked_seconds": float(self.stages.sum()),
            "clocked_linear_seconds": linear,
            "clocked_linear_seconds_with_setup": both,
        }


def _clocked_times(seconds: float) -> int:
    """How many inferences of so many seconds are clocked in a session."""
    return min([CLOCKED, *(times for limit, times in LONGER.items() if seconds > limit)])


def settle(clocks: Sequence[Clock]) -> int:
    """Clocks again, in turns, what is close to the best until figures stand; the rounds that it took."""
    if len(clocks) < 2:
        return 0
    marks: dict[int, tuple[float, float]] = {}
    quiet = 0
    for turn in range(MOST_ROUNDS):
        least = [min(found) for found in zip(*(clock.figures() for clock in clocks))]
        close = [
            clock for clock in clocks if any(figure <= CLOSE * best for figure, best in zip(clock.figures(), least))
        ]
        for clock in close if turn % 2 else reversed(close):
            clock.again()
        quiet += 1
        for clock in close:
            if any(
                now < (1.0 - FALL) * then
                for now, then in zip(clock.figures(), marks.get(id(clock), (math.inf, math.inf)))
            ):
                marks[id(clock)], quiet = clock.figures(), 0
        if quiet == STEADY:
            return turn + 1
    return MOST_ROUNDS


def _same(model: hushnet.Model) -> str:
    """What two models that compute the same share.

    Parameters, stages without what was predicted of them, and weights.
    """
    stages = [{k: v for k, v in s.items() if k != "predicted"} for s in model.plan.stages]
    weights = {name: hashlib.sha256(np.ascontiguousarray(w).data).hexdigest() for name, w in model.plan.weights.items()}
    return json.dumps([model.plan.document["params"], stages, weights], sort_keys=True)


def _rows(
    name: str, methods: Sequence[str], costs: str | None, *, quick: bool, threads: int, heard: Callable[[str], None]
) -> list[dict[str, Any]]:
    """The rows of a network."""
    network = two_party.NETWORKS[name]
    size = dict(network.quick) if quick else {}
    shape = (network.shape[0], size["size"], size["size"]) if size else network.shape
    out: list[dict[str, Any]] = []
    clocks: list[Clock | None] = []
    seen: dict[str, int] = {}
    for method in methods:
        heard(method)
        row: dict[str, Any] = {"case": f"{name} {'x'.join(map(str, shape))}", "network": name, "method": method}
        clock = None
        try:
            model = _compiled(network, size, method, costs)
        except hushnet.HushnetError as error:
            row["not_run"] = str(error)
        else:
            same = seen.setdefault(_same(model), len(out))
            if same < len(out):
                row = {**out[same], **row, "same_plan_as": methods[same]}
                clock = clocks[same]
            else:
                found, clock = _measured(model, network, size, shape, quick=quick, threads=threads)
                row |= found
        out.append(row)
        clocks.append(clock)
    short = {
        id(c): c for row, c in zip(out, clocks) if c is not None and _clocked_times(row["least_seconds"]) == CLOCKED
    }
    rounds = 0 if quick else settle(list(short.values()))
    return [
        row if clock is None else {**row, **clock.told(), "clock_rounds": rounds} for row, clock in zip(out, clocks)
    ]


def _measured(
    model: hushnet.Model,
    network: two_party.Network,
    size: dict[str, Any],
    shape: tuple[int, ...],
    *,
    quick: bool,
    threads: int,
) -> tuple[dict[str, Any], Clock | None]:
    row: dict[str, Any] = {}
    predicted = model.plan.predicted
    memory = predicted["client_peak_memory_bytes"] + predicted["server_peak_memory_bytes"]
    row |= {
        "layers": dict(Counter(s["method"] for s in model.plan.stages if s["kind"] == "linear")),
        "predicted_seconds": predicted["seconds_by_network"]["loopback"],
        "predicted_memory_bytes": memory,
    }
    room = QUICK_MEMORY if quick else MEMORY
    if memory > room:
        return row | {"not_run": f"both parties need {memory / 2**30:.1f} GiB, more than {room >> 30}"}, None
    x = data.synthetic(shape, 1 if quick else RUNS, seed=2).astype(np.float32)
    seen = measure(model, x, threads=threads, seconds=SECONDS)
    found = two_party._measured(seen)
    kept = (
        "runs",
        "seconds",
        "seconds_all",
        "setup_seconds",
        "setup_bytes",
        "bytes_up",
        "bytes_down",
        "megabytes",
        "rounds",
    )
    row |= {
        k: found[k]
        for k in (
            *kept,
            "client_cpu_seconds",
            "server_cpu_seconds",
            "client_peak_memory_bytes",
            "server_peak_memory_bytes",
        )
    }
    # later images of a session draw on OTs that the first one made: methods are compared by the first
    row["megabytes"] = (seen.client[0]["bytes_up"] + seen.client[0]["bytes_down"]) / 1e6
    row["megabytes_with_setup"] = row["megabytes"] + row["setup_bytes"] / 1e6
    row["least_seconds"] = min(found["seconds_all"])
    row["cpu_seconds"] = found["client_cpu_seconds"] + found["server_cpu_seconds"]
    row["seconds_with_setup"] = row["least_seconds"] + row["setup_seconds"]
    row |= two_party._checked(
        model,
        zoo.build(network.name, **size),
        x[: len(seen.client)],
        next(iter(seen.outputs.values())),
        two_party.QUICK_DRAW_SECONDS if quick else two_party.DRAW_SECONDS,
    )
    return row, Clock(model, x[:1], _clocked_times(row["least_seconds"]))


def compared(rows: list[dict[str, Any]]) -> None:
    """Writes to the planner's rows how they stand against the best single method of their network.

    What counts are the figures that the rows were planned for.
    """
    for row in rows:
        figures = FIGURES.get(row["method"])
        if figures is None or "not_run" in row:
            continue
        singles = [r for r in rows if r["network"] == row["network"] and r["method"] in METHODS and "not_run" not in r]
        for key in figures:
            best = min(singles, key=lambda r: r[key], default=None)
            if best is not None:
                row[f"best_single_{key}"] = f"{best['method']}: {best[key]:.4g}"
                row[f"{key}_over_best"] = row[key] / best[key]
        over = [row[f"{key}_over_best"] for key in figures if f"{key}_over_best" in row]
        if over:
            row["no_worse"] = over[0] <= NOISE and over[1] <= 1.0


def rows(*, quick: bool, threads: int, progress: Any, cases: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """A row for every network and method.

    Raises:
        hushnet.InputError: there is no such network or method.
    """
    methods = (FREE, STORED, *METHODS)
    chosen: dict[str, list[str]] = {}
    for case in cases or (QUICK if quick else NETWORKS):
        name, _, method = case.partition(":")
        if name not in two_party.NETWORKS or (method and method not in methods):
            raise hushnet.InputError(
                f"no case {case!r}: networks are {', '.join(two_party.NETWORKS)}, methods {', '.join(methods)}"
            )
        chosen.setdefault(name, []).extend([method] if method else methods)
    out: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        costs = None if quick else _calibrated(Path(folder))
        for name, wanted in chosen.items():

            def heard(method: str, name: str = name, before: int = len(out), wanted: list[str] = wanted) -> None:
                if progress:
                    progress(
                        f"two-party-methods: {name}, {method}",
                        before + wanted.index(method),
                        sum(map(len, chosen.values())),
                    )

            out += _rows(name, wanted, costs, quick=quick, threads=threads, heard=heard)
    compared(out)
    return out


BENCHMARK = Benchmark(
    name="two-party-methods",
    about="whole networks with both sides private, the planner free against every single method; --cases plain20, "
    "resnet50:cheetah, ...",
    source="rotation-free CNN, Table IV: Cheetah 1258 s and 10970 MB, rotation-free 292 + 295 s and 641 MB (ResNet-50)",
    run=rows,
)

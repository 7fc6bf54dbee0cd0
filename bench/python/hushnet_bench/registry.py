"""The list of benchmarks, and what they share: the machine, pinning, rendering."""

from __future__ import annotations

import inspect
import os
import platform
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hushnet
from hushnet import _native


@dataclass(frozen=True)
class Benchmark:
    """One benchmark: ``run(quick=..., threads=..., progress=..., **options) -> rows``.

    ``plot(result, path)`` where bars do not do.
    """

    name: str
    about: str
    source: str
    run: Callable[..., list[dict[str, Any]]]
    plot: Callable[[dict[str, Any], Path], None] | None = None


def registry() -> dict[str, Benchmark]:
    """All benchmarks by name. A new one: a module with ``BENCHMARK``, and a line here."""
    from hushnet_bench import (
        architectures,
        bootstrap,
        cluster,
        cryptonets_relu,
        cryptonets_relu_two_party,
        cryptonets_square,
        gala,
        matrix_products,
        mobilenetv2,
        ngraph_he2,
        orion,
        prepared,
        real_models,
        relu,
        resnet20,
        rotation_free,
        seal_openfhe,
        serving,
        smooth,
        tabular,
        transformers,
        two_party,
        two_party_digits,
        two_party_layers,
        two_party_methods,
        two_party_network,
        unsure_photos,
    )

    known = [
        architectures.BENCHMARK,
        bootstrap.BENCHMARK,
        cryptonets_relu.BENCHMARK,
        cryptonets_relu_two_party.BENCHMARK,
        cryptonets_square.BENCHMARK,
        gala.BENCHMARK,
        matrix_products.BENCHMARK,
        mobilenetv2.BENCHMARK,
        ngraph_he2.BENCHMARK,
        orion.BENCHMARK,
        prepared.BENCHMARK,
        cluster.BENCHMARK,
        real_models.BENCHMARK,
        relu.BENCHMARK,
        resnet20.BENCHMARK,
        rotation_free.BENCHMARK,
        seal_openfhe.BENCHMARK,
        serving.BENCHMARK,
        smooth.BENCHMARK,
        tabular.BENCHMARK,
        *transformers.BENCHMARKS,
        two_party_layers.BENCHMARK,
        two_party_methods.BENCHMARK,
        *two_party.BENCHMARKS,
        two_party_digits.BENCHMARK,
        two_party_network.BENCHMARK,
        unsure_photos.BENCHMARK,
    ]
    return {b.name: b for b in known}


def machine() -> dict[str, Any]:
    """What the figures were measured on."""
    model = platform.processor()
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
                break
    except OSError:
        pass
    return {"cpu": model, "cores": os.cpu_count(), "simd": _native.simd(), "system": platform.platform()}


@contextmanager
def pinned(threads: int) -> Iterator[None]:
    """Keeps the whole process (both parties) on ``threads`` cores."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    chosen = set(sorted(before)[-threads:])
    _pin(chosen)
    try:
        yield
    finally:
        _pin(before)


def _pin(cores: set[int]) -> None:
    for task in os.listdir("/proc/self/task"):
        with suppress(ProcessLookupError):  # a thread that has just ended
            os.sched_setaffinity(int(task), cores)


def run(name: str, *, quick: bool = False, threads: int = 1, progress: Any = None, **options: Any) -> dict[str, Any]:
    """Runs one benchmark; InputError when there is none of that name or it lacks an option."""
    benchmarks = registry()
    if name not in benchmarks:
        raise hushnet.InputError(f"no benchmark {name!r}: choose one of {', '.join(benchmarks)}.")
    benchmark = benchmarks[name]
    parameters = inspect.signature(benchmark.run).parameters
    takes = [option for option in _OPTIONS if option in parameters]
    any_ = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    if not any_ and (unknown := sorted(set(options) - set(parameters))):
        has = f"takes {', '.join(f'--{option}' for option in takes)}" if takes else "has no options of its own"
        raise hushnet.InputError(f"Benchmark {name} has no --{unknown[0]}: it {has}.")
    with pinned(threads):
        rows = benchmark.run(quick=quick, threads=threads, progress=progress, **options)
    return {
        "name": name,
        "machine": machine(),
        "threads": threads,
        "quick": quick,
        "source": benchmark.source,
        "rows": rows,
    }


def render(result: dict[str, Any]) -> Any:
    """The rows as a table."""
    from rich.table import Table

    table = Table(
        title=f"{result['name']} - {result['source']}, {result['threads']} thread(s), {result['machine']['simd']}"
    )
    keys: list[str] = []
    for row in result["rows"]:
        keys += [k for k, v in row.items() if k not in keys and not isinstance(v, (list, dict))]
    for key in keys:
        table.add_column(key.replace("_", " "))
    for row in result["rows"]:
        table.add_row(*(_cell(row.get(key)) for key in keys))
    return table


# what some benchmarks have beside `quick` and `threads`
_OPTIONS = ("size", "batch", "cases", "peers", "seconds", "keep")
# from so many times on between shortest and longest bar, axes are logarithmic
WIDE = 30
# of rows, in the order of what tells most
_TIMES = ("busier_party_microseconds", "microseconds_per_element", "seconds")
_BYTES = ("bytes_per_element", "bytes_per_relu", "bytes_per_image", "megabytes_per_image", "bytes")


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.4g}"
    return str(value)


def plot(result: dict[str, Any], path: Path, value: str | None = None) -> None:
    """Bars of images per second (or seconds) and of bytes where rows have them, or the benchmark's own picture."""
    own = registry()[result["name"]].plot
    if own is not None:
        own(result, path)
        return
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    keys = [value] if value else _plotted(result["rows"])
    rows = [r for r in result["rows"] if all(r.get(key) for key in keys)]
    # what all rows have is said once
    methods = {r["method"] for r in rows}
    labels = [r["case"] if len(methods) == 1 else f"{r['case']}\n{r['method']}" for r in rows]
    about = f", {next(iter(methods))}" if len(methods) == 1 else ""
    with pyplot.rc_context({"svg.hashsalt": "hushnet", "svg.fonttype": "none"}):
        figure, axes = pyplot.subplots(
            1, len(keys), figsize=(4 + 4 * len(keys), 0.5 * len(rows) + 1.5), sharey=True, squeeze=False
        )
        for axis, key, colour in zip(axes[0], keys, ("#2a6f97", "#bc6c25")):
            lengths = [r[key] for r in rows]
            axis.barh(labels, lengths, color=colour)
            # bars of about one size are compared by their lengths
            axis.set_xscale("log" if max(lengths, default=1) > WIDE * min(lengths, default=1) else "linear")
            axis.set_xlabel(key.replace("_", " "))
        axes[0, 0].invert_yaxis()
        figure.suptitle(f"{result['name']}{about} ({result['threads']} thread(s), {result['machine']['cpu']})")
        figure.tight_layout()
        figure.savefig(path, dpi=120, metadata={"Date": None} if Path(path).suffix == ".svg" else None)
        pyplot.close(figure)


def _plotted(rows: list[dict[str, Any]]) -> list[str]:
    """What bars are drawn of: speed, and bytes where rows have them."""
    speed = next((k for k in ("images_per_second", *_TIMES) if any(r.get(k) for r in rows)), "seconds")
    return [speed, *(k for k in _BYTES if any(r.get(k) for r in rows))][:2]

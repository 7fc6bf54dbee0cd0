"""The pictures of ``docs/rotation-free.md``: Figure 7, and the attack on repeated set-ups.

hushnet bench rotation-free --cases figure-7,attack --plot docs/rotation-free.svg
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import hushnet

Row = dict[str, Any]

LINES = {
    ("published", "server_seconds"): ("rotation-free, server", "#1b4965", "o-"),
    ("published", "client_seconds"): ("rotation-free, client", "#62b6cb", "o--"),
    ("cheetah-published", "server_seconds"): ("Cheetah, server", "#e07a5f", "s-"),
    ("convfhe-published", "server_seconds"): ("ConvFHE, server", "#81b29a", "^-"),
    ("gazelle", "server_seconds"): ("GAZELLE, server (N = 8192, secure)", "#6d597a", "d-"),
}


def plot(result: dict[str, Any], path: Path) -> None:
    """A panel for every kernel of Figure 7, and two for the attack, as far as the result has them.

    SVG or PNG, by the name.

    Raises:
        hushnet.InputError: the result has rows of neither.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    kernels = sorted({r["kernel"] for r in result["rows"] if "kernel" in r})
    attack = [r for r in result["rows"] if "setups" in r]
    panels = len(kernels) + (2 if attack else 0)
    if not panels:
        raise hushnet.InputError("nothing to draw: run the cases figure-7 or attack")
    columns = min(panels, 3)
    with pyplot.rc_context({"svg.hashsalt": "hushnet", "font.size": 8, "svg.fonttype": "none"}):
        figure, grid = pyplot.subplots(
            -(-panels // columns), columns, figsize=(3.4 * columns, 2.9 * -(-panels // columns)), squeeze=False
        )
        axes = list(grid.flat)
        for axis in axes[panels:]:
            axis.axis("off")
        for axis, kernel in zip(axes, kernels):
            _latency(axis, [r for r in result["rows"] if r.get("kernel") == kernel], kernel)
        if kernels:
            axes[0].set_ylabel("processor seconds, one thread")
            axes[0].set_ylim(top=10 * axes[0].get_ylim()[1])
            axes[0].legend(fontsize=6, loc="upper left")
        if attack:
            _error(axes[len(kernels)], [r for r in attack if "weight_error" in r])
            _correlation(axes[len(kernels) + 1], [r for r in attack if "correlation_deviations" in r])
        figure.tight_layout()
        figure.savefig(path, dpi=120, metadata={"Date": None} if path.suffix == ".svg" else None)
        pyplot.close(figure)


def _latency(axis: Any, rows: list[Row], kernel: int) -> None:
    for (method, key), (label, colour, style) in LINES.items():
        points = sorted((r["channels"], r[key]) for r in rows if r["method"] == method and key in r)
        if points:
            axis.plot(*zip(*points), style, color=colour, label=label, markersize=3, linewidth=1)
    axis.set(xscale="log", yscale="log", title=f"convolution, f = {kernel}", xlabel="channels in = out")
    ticks = sorted({r["channels"] for r in rows})
    axis.set_xticks(ticks, [str(t) for t in ticks])
    axis.minorticks_off()


def _error(axis: Any, rows: list[Row]) -> None:
    points = [(r["setups"], r["weight_error"]) for r in rows]
    axis.plot(
        *zip(*points), "o-", color="#9b2226", markersize=3, linewidth=1, label="published: error of weights found"
    )
    axis.plot([k for k, _ in points], [0.7 / k for k, _ in points], ":", color="grey", linewidth=1, label="0.7 / k")
    axis.set(
        xscale="log",
        yscale="log",
        title="attack on repeated set-ups",
        xlabel="set-ups k",
        ylabel="error (weights in [-1, 1])",
    )
    axis.legend(fontsize=6)


def _correlation(axis: Any, rows: list[Row]) -> None:
    for method, colour in (("compact", "#1b4965"), ("flooded", "#e07a5f")):
        points = [(r["setups"], r["correlation_deviations"]) for r in rows if r["method"] == method]
        if points:
            axis.plot(*zip(*points), "o-", color=colour, markersize=3, linewidth=1, label=method)
    axis.axhline(5, color="grey", linestyle=":", linewidth=1, label="5 deviations of chance")
    axis.set(
        xscale="log",
        ylim=(0, 6),
        title="sound set-ups, mean divided by b",
        xlabel="set-ups k",
        ylabel="largest correlation, deviations",
    )
    axis.legend(fontsize=6)

"""Published tables beside our own figures: one file per benchmark, one JSON object each.

``{"name", "machine", "threads", "rows": [{"case", "method", "seconds", ...}]}``; a row has, where it applies,
``images_per_second``, ``bytes_up``, ``bytes_down``, ``rounds``, ``peak_memory_bytes``, ``max_error``,
``predicted_error``, ``agreement``, ``published`` (the paper's figure for the same row) and ``ratio`` (ours to it, above
1 is better).
"""

from hushnet_bench.registry import Benchmark, plot, registry, render, run

__all__ = ["Benchmark", "plot", "registry", "render", "run"]

"""Calls as users write them, for mypy (``make lint``): right ones, and wrong ones that it must find.

``warn_unused_ignores`` holds for this file: a wrong call that mypy takes is an error, because its comment is unused.
"""

from __future__ import annotations

from pathlib import Path

import hushnet
from hushnet.options import Trust


def right(trust: Trust) -> None:
    """What every trust model takes, and what each one takes."""
    hushnet.compile("m.onnx", batch=4, engine="packed", margin=2)
    hushnet.compile(Path("m.onnx"), trust="two-party", reveal="argmax", weight_bits=8, activation_bits="auto")
    hushnet.compile("m.onnx", trust="non-interactive", hide_weights=True, activation="square")
    hushnet.compile("m.onnx", trust=trust, precision=9.5, input_range=(0.0, 1.0))
    hushnet.from_sklearn(object(), trust="two-party", method="cheetah", unit_costs=Path("costs.json"))
    hushnet.from_torch(object(), object(), trust="two-party", nonlinear="garbled")
    hushnet.serve("m.hush", threads=2, idle_timeout=30)


def wrong() -> None:
    """One mistake a line."""
    hushnet.compile("m.onnx", enginee="batch")  # type: ignore[call-overload]
    hushnet.compile("m.onnx", batch="many")  # type: ignore[call-overload]
    hushnet.compile("m.onnx", trust="two-party", reveal="everything")  # type: ignore[call-overload]
    hushnet.compile("m.onnx", trust="two-party", engine="batch")  # type: ignore[call-overload]
    hushnet.compile("m.onnx", reveal="argmax")  # type: ignore[call-overload]
    hushnet.compile("m.onnx", trust="blind")  # type: ignore[call-overload]
    hushnet.from_sklearn(object(), calibratoin=None)  # type: ignore[call-overload]
    hushnet.from_torch(object(), object(), max_memory="8 GiB")  # type: ignore[call-overload]
    hushnet.serve("m.hush", thread=1)  # type: ignore[call-arg]

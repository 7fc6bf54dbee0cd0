"""Networks that come with the package, trained on scikit-learn's digits by the scripts in ``examples/``."""

from __future__ import annotations

from pathlib import Path

import onnx

from hushnet.errors import ZooError, choose

FOLDER = Path(__file__).parent / "models"


def trained_names() -> tuple[str, ...]:
    """Names of the trained networks, sorted."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.onnx")))


def trained(name: str) -> onnx.ModelProto:
    """A trained network, for images ``[N, 1, 28, 28]`` as :func:`hushnet.data.digits` gives them.

    Raises:
        ZooError: no such network.
    """
    if name not in trained_names():
        raise ZooError(f"no trained network {name!r}: {choose(name, trained_names())}.")
    return onnx.load_model(FOLDER / f"{name}.onnx")

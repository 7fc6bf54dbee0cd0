"""Networks that come with the package, trained on scikit-learn's digits by the scripts in ``examples/``."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx

from hushnet.data import digits
from hushnet.errors import ZooError, choose

FOLDER = Path(__file__).parent / "models"


def trained_names() -> tuple[str, ...]:
    """Names of the trained networks, sorted."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.onnx")))


def trained(name: str) -> onnx.ModelProto:
    """A trained network, for images ``[N, 1, 28, 28]`` as :func:`hushnet.data.digits` gives them.

    ``resnet20-relu`` takes ``[N, 3, 32, 32]``, grey: :func:`trained_digits` gives them, too.

    Raises:
        ZooError: no such network.
    """
    if name not in trained_names():
        raise ZooError(f"no trained network {name!r}: {choose(name, trained_names())}.")
    return onnx.load_model(FOLDER / f"{name}.onnx")


def trained_digits(model: onnx.ModelProto) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """:func:`hushnet.data.digits` in the shape that a trained network takes, equal in all of its channels."""
    channels, size, _ = (d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim[1:])
    train, train_y, held, held_y = digits(size)
    return np.repeat(train, channels, axis=1), train_y, np.repeat(held, channels, axis=1), held_y

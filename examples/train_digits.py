"""What the training scripts share: the digits, the training, and the file that is written."""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import onnx
from hushnet import data, zoo
from tiny_nn import Network, train

FOLDER = Path(__file__).parent / "models"


def arguments(about: str, epochs: int) -> argparse.Namespace:
    """The options of a training script."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--epochs", type=int, default=epochs)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=FOLDER, help="folder of the ONNX files (default: %(default)s)")
    return parser.parse_args()


def fit(
    name: str, architecture: str, network: Network, options: argparse.Namespace, *, decay: float, **build_options: str
) -> None:
    """Trains on the training digits, prints the held-out accuracy, writes ``NAME.onnx``.

    The figures go into the file's metadata: ``held_out_accuracy``, ``max_abs_pre_activation`` (largest |input| of an
    activation over all digits), ``max_abs_logit``.
    """
    train_x, train_y, test_x, test_y = data.digits()
    print(f"{name}: {len(train_x)} digits to learn from, {len(test_x)} held out")
    train(network, train_x, train_y, epochs=options.epochs, seed=options.seed, decay=decay)
    accuracy = float((network.forward(test_x).argmax(axis=1) == test_y).mean())
    everything = np.concatenate([train_x, test_x])
    figures = {
        "held_out_accuracy": accuracy,
        "max_abs_pre_activation": network.largest_input(everything),
        "max_abs_logit": float(np.abs(network.forward(everything)).max()),
    }
    model = zoo.build(architecture, weights=network.weights(), **build_options)
    onnx.helper.set_model_props(model, {k: f"{v:.4f}" for k, v in figures.items()})
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / f"{name}.onnx"
    onnx.save_model(model, path)
    print(
        f"  held-out accuracy {accuracy:.2%}, largest |pre-activation| {figures['max_abs_pre_activation']:.2f}, "
        f"largest |logit| {figures['max_abs_logit']:.2f}; wrote {path} ({path.stat().st_size / 1e3:.0f} kB)"
    )

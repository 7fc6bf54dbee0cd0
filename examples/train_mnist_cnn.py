"""Trains the MNIST CNN of the SEAL/OpenFHE comparison on handwritten digits, in NumPy.

ReLU, square, and both polynomials.

    pip install hushnet[demo]
    python examples/train_mnist_cnn.py

Two 5x5 convolutions of stride 2 with batch normalisation (5 and 50 maps), one fully connected layer.
"""

from __future__ import annotations

import numpy as np
from tiny_nn import Activation, BatchNorm, Conv, Dense, Network
from train_digits import arguments, fit


def mnist_cnn(activation: str, seed: int) -> Network:
    """The network before training."""
    rng = np.random.default_rng(seed)
    limits = {} if activation == "relu" else {"limit": 3.0, "strength": 0.02}
    return Network(
        Conv("conv1", 1, 5, 5, rng, stride=2),
        BatchNorm("norm1", 5),
        Activation(activation, **limits),
        Conv("conv2", 5, 50, 5, rng, stride=2),
        BatchNorm("norm2", 50),
        Activation(activation, **limits),
        Dense("fc3", 800, 10, rng),
    )


def main() -> None:
    """One network for every activation."""
    options = arguments(str(__doc__).split("\n", 1)[0], epochs=40)
    for activation in ("relu", "square", "swish-rg5-deg2", "swish-rg7-deg4"):
        fit(
            f"mnist-cnn-{activation}",
            "mnist-cnn",
            mnist_cnn(activation, options.seed),
            options,
            decay=0.05,
            activation=activation,
        )


if __name__ == "__main__":
    main()

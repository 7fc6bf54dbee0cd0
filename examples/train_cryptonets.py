"""Trains CryptoNets-ReLU and CryptoNets-square on handwritten digits, in NumPy, in under two minutes on one core.

    pip install hushnet[demo]
    python examples/train_cryptonets.py

The digits are scikit-learn's 8x8 scans enlarged to 28x28; 360 of the 1,797 are held out. The networks are those of the
nGraph-HE2 paper: 5x5 convolution of stride 2 with 5 maps, 845-100-10, ReLU with biases or x^2 without.
"""

from __future__ import annotations

import numpy as np
from tiny_nn import Activation, Conv, Dense, Network
from train_digits import arguments, fit


def cryptonets(activation: str, seed: int) -> Network:
    """The network before training; squares are kept small, for they are evaluated under encryption."""
    rng = np.random.default_rng(seed)
    square = activation == "square"
    limits = {"limit": 2.0, "strength": 0.05} if square else {}
    gain, bias = (0.5, False) if square else (1.0, True)
    return Network(
        Conv("conv1", 1, 5, 5, rng, stride=2, pads=(0, 0, 1, 1), bias=bias, gain=gain),
        Activation(activation, **limits),
        Dense("fc2", 845, 100, rng, bias=bias, gain=1.0),
        Activation(activation, **limits),
        Dense("fc3", 100, 10, rng, bias=bias, gain=1.0),
    )


def main() -> None:
    """Both networks."""
    options = arguments(str(__doc__).split("\n", 1)[0], epochs=60)
    for activation in ("relu", "square"):
        name = f"cryptonets-{activation}"
        fit(name, name, cryptonets(activation, options.seed), options, decay=0.05)


if __name__ == "__main__":
    main()

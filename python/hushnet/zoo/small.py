"""The small networks of the papers: CryptoNets, the two CNNs of the SEAL/OpenFHE comparison, the perceptron."""

from __future__ import annotations

from hushnet.zoo.builder import Net, Tensor
from hushnet.zoo.registry import architecture


@architecture(
    "cryptonets-relu",
    "28x28 digits: conv 5x5/2 of 5 maps, 845-100-10, ReLU (nGraph-HE2, A.1)",
    activation="relu",
    bias=True,
)
@architecture(
    "cryptonets-square",
    "28x28 digits: the same with x^2 and no biases (nGraph-HE2, A.1)",
    activation="square",
    bias=False,
)
def cryptonets(net: Net, activation: str, bias: bool) -> Tensor:
    """One row and column of padding, below and right, turns 28 into 13: 5 x 13 x 13 = 845 features."""
    x = net.input(1, 28, 28, images=64)
    x = net.conv("conv1", x, 5, 5, stride=2, pad=(0, 0, 1, 1), bias=bias)
    x = net.act("act1", x, activation)
    x = net.act("act2", net.fc("fc2", x, 100, bias=bias), activation)
    return net.fc("fc3", x, 10, bias=bias, last=True)


@architecture("mnist-cnn", "28x28 digits: two strided convs with batch norm, one FC (SEAL/OpenFHE comparison, Table 1)")
def mnist_cnn(net: Net, activation: str = "relu") -> Tensor:
    """Five maps 12x12, fifty maps 4x4, ten classes."""
    x = net.input(1, 28, 28, images=64)
    for number, maps in enumerate((5, 50), 1):
        x = net.conv(f"conv{number}", x, maps, 5, stride=2, deviation=None)
        x = net.act(f"act{number}", net.batch_norm(f"norm{number}", x), activation)
    return net.fc("fc3", x, 10, last=True)


@architecture(
    "cifar10-cnn", "32x32 images: three convs with batch norm and mean pools (SEAL/OpenFHE comparison, Table 2)"
)
def cifar10_cnn(net: Net, activation: str = "relu") -> Tensor:
    """32, 64 and 128 maps of 3x3, a 2x2 mean after each, the mean of all, ten classes."""
    x = net.input(3, 32, 32, images=32)
    for number, maps in enumerate((32, 64, 128), 1):
        x = net.conv(f"conv{number}", x, maps, 3, pad=1, deviation=None)
        x = net.act(f"act{number}", net.batch_norm(f"norm{number}", x), activation)
        x = net.average_pool(f"pool{number}", x, 2)
    return net.fc("fc4", net.global_average_pool("mean", x), 10, last=True)


@architecture("mlp-784-128-128-10", "28x28 digits: perceptron with two hidden layers (GALA)")
def mlp(net: Net, activation: str = "relu") -> Tensor:
    """784-128-128-10."""
    x = net.input(1, 28, 28, images=256)
    for number in (1, 2):
        x = net.act(f"act{number}", net.fc(f"fc{number}", x, 128), activation)
    return net.fc("fc3", x, 10, last=True)

"""From a PyTorch network to a compiled plan. PyTorch is not a dependency of Hushnet: run this where it is installed.

    pip install torch hushnet
    python examples/export_pytorch.py
    hushnet check digits.onnx
    hushnet compile digits.onnx -o digits.hush --batch 2048 --calibration calibration.npy
    hushnet explain digits.hush

What matters in the export: ``eval()`` first (dropout off, batch norm folded to constants), a batch axis that stays
symbolic, opset 13 or newer, and the input exactly as the client will hold it (scaled to [0, 1] here). The calibration
images, a few dozen of the training set, tell the range of every tensor.
"""

from __future__ import annotations

import numpy as np
import torch
from hushnet import data
from torch import nn


def network() -> nn.Module:
    """Any network of the supported operators; this one takes 28x28 digits."""
    return nn.Sequential(
        nn.Conv2d(1, 8, 5, stride=2, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(8 * 6 * 6, 10),
    )


def train(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> None:
    """A short training, so that the exported network has something to say."""
    optimiser = torch.optim.Adam(model.parameters(), lr=3e-3)
    model.train()
    for _ in range(20):
        for part in torch.randperm(len(x)).split(64):
            optimiser.zero_grad()
            nn.functional.cross_entropy(model(x[part]), y[part]).backward()
            optimiser.step()


def main() -> None:
    """Trains, exports, writes the calibration images."""
    torch.manual_seed(0)
    train_x, train_y, test_x, test_y = data.digits()
    model = network()
    train(model, torch.from_numpy(train_x), torch.from_numpy(train_y))
    model.eval()
    with torch.no_grad():
        accuracy = (model(torch.from_numpy(test_x)).argmax(dim=1).numpy() == test_y).mean()
    torch.onnx.export(
        model,
        (torch.from_numpy(train_x[:2]),),
        "digits.onnx",
        input_names=["image"],
        output_names=["logits"],
        dynamic_axes={"image": {0: "N"}, "logits": {0: "N"}},
        opset_version=17,
        dynamo=False,
    )
    np.save("calibration.npy", train_x[:256])
    print(f"held-out accuracy {accuracy:.2%}; wrote digits.onnx and calibration.npy")


if __name__ == "__main__":
    main()

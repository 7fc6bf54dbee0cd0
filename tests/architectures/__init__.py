"""Networks as PyTorch's exporter writes them, with seeded weights: what ``hushnet check`` is tried with.

``python -m tests.architectures`` checks all of them in the sizes that their papers give, and prints times.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import onnx

from . import convolutional, dense, sequences, transformers


@dataclass(frozen=True)
class Architecture:
    """A builder, and the arguments that make a small network of it."""

    build: Callable[..., onnx.ModelProto]
    tiny: dict[str, Any]
    options: dict[str, Any]

    def full(self) -> onnx.ModelProto:
        """In the size of its paper."""
        return self.build(**self.options)

    def small(self, **changed: Any) -> onnx.ModelProto:
        """In a size that compiles in a fraction of a second."""
        return self.build(**{**self.options, **self.tiny, **changed})


def _row(build: Callable[..., onnx.ModelProto], options: dict[str, Any] | None = None, **tiny: Any) -> Architecture:
    return Architecture(build, tiny, options or {})


_IMAGE = {"side": 32, "width": 0.125, "classes": 5}

ARCHITECTURES: dict[str, Architecture] = {
    "mobilenet_v1": _row(convolutional.mobilenet_v1, **_IMAGE, blocks=4),
    "mobilenet_v2": _row(convolutional.mobilenet_v2, **_IMAGE, blocks=3),
    "mobilenet_v3": _row(convolutional.mobilenet_v3, **_IMAGE, blocks=4),
    "efficientnet": _row(convolutional.efficientnet, **_IMAGE, blocks=3),
    "densenet": _row(convolutional.densenet, side=32, growth=4, layers=(2, 2), classes=5),
    "convnext": _row(convolutional.convnext, side=32, width=0.0625, layers=(1, 1), classes=5),
    "inception": _row(convolutional.inception, side=40, width=0.0625, classes=5, blocks=4),
    "squeezenet": _row(convolutional.squeezenet, side=48, width=0.125, classes=5),
    "shufflenet": _row(convolutional.shufflenet, side=32, width=0.125, classes=5, blocks=1),
    "resnext": _row(convolutional.resnext, side=32, width=0.0625, layers=(1, 1), groups=4, classes=5),
    "se_resnet": _row(convolutional.se_resnet, side=32, width=0.125, layers=(1, 1), classes=5),
    "regnet": _row(convolutional.regnet, side=32, width=0.25, layers=(1, 1, 1), group=4, classes=5),
    "unet": _row(dense.unet, side=16, width=4, depth=2),
    "yolo_head": _row(dense.yolo_head, side=32, width=0.125, classes=3),
    "ssd_head": _row(dense.ssd_head, side=32, width=0.125, classes=3),
    "ssd_nms": _row(dense.ssd_head, {"select": True}, side=32, width=0.125, classes=3),
    "autoencoder": _row(dense.autoencoder, side=16, width=4, code=8),
    "super_resolution": _row(dense.super_resolution, side=12, width=8),
    "siamese": _row(dense.siamese, side=21, width=4, code=16),
    "several_outputs": _row(dense.several_outputs, side=32, width=0.125, classes=4),
    "lstm_tagger": _row(sequences.lstm_tagger, steps=5, words=30, width=6, hidden=8, tags=4),
    "bidirectional_lstm": _row(sequences.bidirectional_lstm, steps=4, features=6, hidden=5, layers=2, classes=3),
    "gru": _row(sequences.gru, steps=5, features=4, hidden=6, classes=3),
    "cnn_1d": _row(sequences.cnn_1d, length=64, width=4, classes=3),
    "tcn": _row(sequences.tcn, length=24, width=6, levels=2, classes=3),
    "cnn_3d": _row(sequences.cnn_3d, side=8, frames=8, width=4, classes=3),
    "recommender": _row(sequences.recommender, users=40, items=30, width=6, hidden=16),
    "mlp_batch_norm": _row(sequences.mlp_batch_norm, width=16),
    "vit": _row(transformers.vit, side=32, patch=8, width=16, layers=1, heads=2, classes=5),
    "swin": _row(transformers.swin, side=32, window=4, width=8, layers=(2, 1), classes=5),
    "bert": _row(transformers.bert, tokens=6, words=30, width=16, layers=1, heads=2),
    "gpt": _row(transformers.gpt, tokens=6, words=30, width=16, heads=2),
    "mlp_mixer": _row(transformers.mlp_mixer, side=32, patch=8, width=16, layers=1, classes=5),
}


def recurrent_with_states(kind: str, both: bool) -> onnx.ModelProto:
    """A cell whose last states are classified, as ``h[-1]`` or ``torch.cat((h[-2], h[-1]), 1)`` is exported."""
    return sequences.last_states(kind, both)

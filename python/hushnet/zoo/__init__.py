"""The architectures of the papers as ONNX with seeded weights, and the small networks trained on handwritten digits."""

from hushnet.zoo import classic, residual, small
from hushnet.zoo.builder import ACTIVATIONS, Net, Tensor
from hushnet.zoo.describe import Description, Layer, describe
from hushnet.zoo.errors import ZooError
from hushnet.zoo.registry import Architecture, architecture, build, get, names
from hushnet.zoo.trained import trained, trained_names

__all__ = [
    "ACTIVATIONS", "Architecture", "Description", "Layer", "Net", "Tensor", "ZooError", "architecture", "build",
    "classic", "describe", "get", "names", "residual", "small", "trained", "trained_names",
]  # fmt: skip

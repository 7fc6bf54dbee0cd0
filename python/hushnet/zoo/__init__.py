"""Architectures of the papers with seeded weights, networks trained on digits, real networks out of PyPI packages."""

from hushnet.errors import ZooError
from hushnet.zoo import classic, modern, residual, small
from hushnet.zoo.builder import ACTIVATIONS, Net, Tensor
from hushnet.zoo.describe import Description, Layer, describe
from hushnet.zoo.real import PackagedFile, RealModel, cache_folder, cached, fetch, real_models
from hushnet.zoo.registry import Architecture, architecture, build, get, names
from hushnet.zoo.trained import trained, trained_digits, trained_names

__all__ = [
    "ACTIVATIONS", "Architecture", "Description", "Layer", "Net", "PackagedFile", "RealModel", "Tensor", "ZooError",
    "architecture", "build", "cache_folder", "cached", "classic", "describe", "fetch", "get", "modern", "names",
    "real_models", "residual", "small", "trained", "trained_digits", "trained_names",
]  # fmt: skip

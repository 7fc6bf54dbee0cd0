"""Data sets: MNIST (IDX) and CIFAR-10 (binary) files that a user has, scikit-learn's digits, synthetic images."""

from hushnet.data.digits import digits, enlarge
from hushnet.data.errors import DataError
from hushnet.data.files import as_images, load_cifar10, load_idx
from hushnet.data.synthetic import synthetic

__all__ = ["DataError", "as_images", "digits", "enlarge", "load_cifar10", "load_idx", "synthetic"]

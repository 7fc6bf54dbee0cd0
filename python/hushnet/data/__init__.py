"""Data sets: MNIST and CIFAR-10 files that a user has, scikit-learn's digits, synthetic images, pictures, files and sentences."""

from hushnet.data.digits import digits, enlarge
from hushnet.data.errors import DataError
from hushnet.data.files import as_images, load_cifar10, load_idx
from hushnet.data.pictures import phrases, photos, read_picture, resized, text_line, text_page
from hushnet.data.samples import byte_tokens, files, read_file, sentences
from hushnet.data.synthetic import synthetic
from hushnet.data.tokens import WordPiece

__all__ = [
    "DataError", "WordPiece", "as_images", "byte_tokens", "digits", "enlarge", "files", "load_cifar10", "load_idx",
    "phrases", "photos", "read_file", "read_picture", "resized", "sentences", "synthetic", "text_line", "text_page",
]  # fmt: skip

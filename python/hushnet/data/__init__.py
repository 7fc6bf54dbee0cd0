"""Data sets that a user has (MNIST, CIFAR-10), scikit-learn's digits, synthetic images, pictures, files, sentences."""

from hushnet.data.digits import digits, enlarge
from hushnet.data.files import as_images, load_cifar10, load_idx
from hushnet.data.pictures import photos, phrases, read_picture, resized, text_line, text_page
from hushnet.data.samples import byte_tokens, files, read_file, sentences
from hushnet.data.synthetic import synthetic
from hushnet.data.tokens import WordPiece
from hushnet.errors import DataError

__all__ = [
    "DataError", "WordPiece", "as_images", "byte_tokens", "digits", "enlarge", "files", "load_cifar10", "load_idx",
    "photos", "phrases", "read_file", "read_picture", "resized", "sentences", "synthetic", "text_line", "text_page",
]  # fmt: skip

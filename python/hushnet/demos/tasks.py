"""What each real network is asked: how inputs become arrays, and what its outputs answer.

A task is a row of :data:`TASKS`: the model's name in ``hushnet zoo``, a function from inputs to :class:`Samples`, and
one from outputs to answers. Two answers are equal when a user would be told the same.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import numpy as np
import onnx

from hushnet import data
from hushnet.errors import DemoError

Outputs = Mapping[str, np.ndarray]
Plain = Callable[[Mapping[str, np.ndarray]], Outputs]

_MEAN_BGR = np.array([104, 117, 123], np.float32)
_CUT, _SIDE = 256, 224
LINE = (48, 192)
TEXT = (48, 320)
PAGE = (160, 320)
TOKENS = 16
# a map of text: above this a place is text, a region of fewer places is none, regions that share so much are the same
_IS_TEXT, _LEAST, _OVERLAP = 0.3, 24, 0.9
_CORPUS = 60


@dataclass(frozen=True)
class Samples:
    """Inputs: a name for each, what the network takes ``[samples, ...]`` by input, and what is shown of each."""

    names: tuple[str, ...]
    arrays: dict[str, np.ndarray]
    shown: tuple[np.ndarray | str, ...]

    def __len__(self) -> int:
        return len(self.names)


@dataclass(frozen=True)
class Task:
    """What is asked of one model.

    Attributes:
        model: name in the zoo's table.
        question: in words, what an answer tells.
        make: ``(count, seed, files of the model)``: inputs that are made here.
        read: ``(paths, files of the model)``: inputs that a user names.
        answers: ``(outputs, samples, files of the model, plain run of the model)``: one answer a sample.
        same: whether two answers are the same.
        options: of :func:`hushnet.compile`, by trust model, where the common ones are not the best.
    """

    model: str
    question: str
    make: Callable[[int, int, Sequence[Path]], Samples]
    read: Callable[[Sequence[Path], Sequence[Path]], Samples]
    answers: Callable[[Outputs, Samples, Sequence[Path], Plain], list[str]]
    same: Callable[[str, str], bool] = str.__eq__
    options: Mapping[str, Mapping[str, object]] = field(default_factory=dict)


def _only(outputs: Outputs) -> np.ndarray:
    return np.asarray(next(iter(outputs.values())))


# photos


def _photo(picture: np.ndarray) -> np.ndarray:
    """Blue, green, red of the middle 224 x 224 of 256 x 256, minus their means (Yahoo's open_nsfw)."""
    edge = (_CUT - _SIDE) // 2
    cut = data.resized(picture, _CUT, _CUT)[edge : edge + _SIDE, edge : edge + _SIDE, ::-1]
    return (cut.astype(np.float32) - _MEAN_BGR).astype(np.float32)


def photo_samples(found: Sequence[tuple[str, np.ndarray]]) -> Samples:
    """Photos with names, bytes of shape [rows, columns, 3], as open-nsfw takes them."""
    arrays = {"input:0": np.stack([_photo(picture) for _, picture in found])}
    return Samples(tuple(n for n, _ in found), arrays, tuple(p for _, p in found))


def _made_photos(count: int, seed: int, _: Sequence[Path]) -> Samples:
    return photo_samples(data.photos(count, seed=seed, whole=seed == 0))


def _pictures(paths: Sequence[Path]) -> list[tuple[str, np.ndarray]]:
    return [(path.name, data.read_picture(path)) for path in paths]


def _safe(outputs: Outputs, samples: Samples, files: Sequence[Path], plain: Plain) -> list[str]:
    return ["not safe for work" if row.argmax() else "safe" for row in _only(outputs).reshape(len(samples), -1)]


# lines and pages of text


def _line(picture: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Blue, green, red in [-1, 1] of a line scaled to the rows, zeros to the right of it."""
    rows, columns = size
    width = min(columns, -(-rows * picture.shape[1] // picture.shape[0]))
    scaled = data.resized(picture, rows, width)[:, :, ::-1].astype(np.float32) / 127.5 - 1
    line = np.zeros((3, rows, columns), np.float32)
    line[:, :, :width] = scaled.transpose(2, 0, 1)
    return line


def _lines(found: Sequence[tuple[str, np.ndarray]], size: tuple[int, int]) -> Samples:
    arrays = {"x": np.stack([_line(picture, size) for _, picture in found])}
    return Samples(tuple(n for n, _ in found), arrays, tuple(p for _, p in found))


def _drawn(count: int, seed: int, *, longest: int) -> list[tuple[str, np.ndarray]]:
    rng = np.random.default_rng(1000 + seed)
    return [(text, data.text_line(text, rng)) for text in data.phrases(count, seed=seed, longest=longest)]


def _made_turned(count: int, seed: int, _: Sequence[Path]) -> Samples:
    """Every other line stands upside down."""
    lines = [(t, p[::-1, ::-1] if i % 2 else p) for i, (t, p) in enumerate(_drawn(count, seed, longest=14))]
    return _lines(lines, LINE)


def _made_lines(count: int, seed: int, _: Sequence[Path]) -> Samples:
    return _lines(_drawn(count, seed, longest=20), TEXT)


def _angle(outputs: Outputs, samples: Samples, files: Sequence[Path], plain: Plain) -> list[str]:
    return ["upside down" if row.argmax() else "upright" for row in _only(outputs).reshape(len(samples), -1)]


def characters(model: Path) -> list[str]:
    """What the classes of a recogniser stand for: blank first, then the model's own list, then a space."""
    return list(_characters(model))


@lru_cache
def _characters(model: Path) -> tuple[str, ...]:
    stored = {p.key: p.value for p in onnx.load(model, load_external_data=False).metadata_props}
    if "character" not in stored:
        raise DemoError(
            f"{model} has no list of characters in its metadata. Give a recogniser of PP-OCR for ONNX Runtime."
        )
    return ("", *stored["character"].splitlines(), " ")


def _says(outputs: Outputs, samples: Samples, files: Sequence[Path], plain: Plain) -> list[str]:
    """The best class of every column, repeats and blanks left out (connectionist temporal classification)."""
    alphabet, texts = _characters(files[0]), []
    for rows in _only(outputs).reshape(len(samples), -1, len(alphabet)):
        best = rows.argmax(-1)
        new = np.concatenate([[True], best[1:] != best[:-1]])
        texts.append("".join(alphabet[i] for i in best[new]))
    return texts


def _page(picture: np.ndarray) -> np.ndarray:
    scaled = data.resized(picture, *PAGE)[:, :, ::-1].astype(np.float32) / 127.5 - 1
    return np.ascontiguousarray(scaled.transpose(2, 0, 1))


def _pages(found: Sequence[tuple[str, np.ndarray]]) -> Samples:
    arrays = {"x": np.stack([_page(picture) for _, picture in found])}
    return Samples(tuple(n for n, _ in found), arrays, tuple(data.resized(p, *PAGE) for _, p in found))


def _made_pages(count: int, seed: int, _: Sequence[Path]) -> Samples:
    rng, texts = np.random.default_rng(2000 + seed), data.phrases(5 * count, seed=seed, longest=22)
    found = []
    for i in range(count):
        page, boxes = data.text_page(texts[5 * i : 5 * i + 5], rng, rows=PAGE[0], columns=PAGE[1])
        found.append((f"page {i + 1}, {len(boxes)} lines", page))
    return _pages(found)


def regions(scores: np.ndarray) -> list[tuple[int, int, int, int]]:
    """Where text stands in a map of scores: top, left, bottom, right of its connected regions, from top to bottom."""
    from scipy import ndimage

    labels, _ = ndimage.label(scores > _IS_TEXT, structure=np.ones((3, 3)))
    found = []
    for number, (rows, columns) in enumerate(ndimage.find_objects(labels), 1):
        if (labels[rows, columns] == number).sum() >= _LEAST:
            found.append((rows.start, columns.start, rows.stop, columns.stop))
    return sorted(found)


def _places(outputs: Outputs, samples: Samples, files: Sequence[Path], plain: Plain) -> list[str]:
    return [json.dumps(regions(scores)) for scores in _only(outputs).reshape(len(samples), *PAGE)]


def _same_places(a: str, b: str) -> bool:
    """As many regions, and each covers its counterpart but for a tenth of both together."""
    one, other = json.loads(a), json.loads(b)
    return len(one) == len(other) and all(max((_shared(p, q) for q in other), default=0.0) >= _OVERLAP for p in one)


def _shared(a: Sequence[int], b: Sequence[int]) -> float:
    inside = max(0, min(a[2], b[2]) - max(a[0], b[0])) * max(0, min(a[3], b[3]) - max(a[1], b[1]))
    areas = [(box[2] - box[0]) * (box[3] - box[1]) for box in (a, b)]
    return inside / (sum(areas) - inside)


# files


def _bytes(found: Sequence[tuple[str, bytes]]) -> Samples:
    arrays = {"bytes": np.stack([data.byte_tokens(content) for _, content in found])}
    return Samples(tuple(n for n, _ in found), arrays, tuple(n for n, _ in found))


def _made_files(count: int, seed: int, _: Sequence[Path]) -> Samples:
    return _bytes(data.files(count, seed=seed))


def _type(outputs: Outputs, samples: Samples, files: Sequence[Path], plain: Plain) -> list[str]:
    names = json.loads(Path(files[1]).read_text(encoding="utf-8"))["target_labels_space"]
    return [names[row.argmax()] for row in _only(outputs).reshape(len(samples), -1)]


# sentences


def _sentences(texts: Sequence[str], files: Sequence[Path]) -> Samples:
    return Samples(tuple(texts), data.WordPiece.load(files[1]).encode(texts, TOKENS), tuple(texts))


def _made_sentences(count: int, seed: int, files: Sequence[Path]) -> Samples:
    return _sentences([text for _, text in data.sentences(count, seed=seed)], files)


def _read_sentences(paths: Sequence[Path], files: Sequence[Path]) -> Samples:
    texts = [line.strip() for path in paths for line in data.read_file(path).decode("utf-8", "replace").splitlines()]
    if not any(texts):
        raise DemoError("The named files hold no sentences. Give text files with one sentence a line.")
    return _sentences([t for t in texts if t], files)


def sentence_vectors(outputs: Outputs, mask: np.ndarray) -> np.ndarray:
    """A unit vector for each sentence: the mean of its tokens' vectors over the mask, ``[sentences, features]``."""
    tokens = _only(outputs).reshape(*mask.shape, -1)
    vectors = (tokens * mask[:, :, None]).sum(1) / mask.sum(1)[:, None]
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def _closest(outputs: Outputs, samples: Samples, files: Sequence[Path], plain: Plain) -> list[str]:
    """The sentence of a fixed list that means nearly the same, itself excepted."""
    corpus = _sentences([text for _, text in data.sentences(_CORPUS, seed=77)], files)
    known = sentence_vectors(plain(corpus.arrays), corpus.arrays["attention_mask"])
    near = sentence_vectors(outputs, samples.arrays["attention_mask"]) @ known.T
    near[np.array([[a == b for b in corpus.names] for a in samples.names])] = -2
    return [corpus.names[i] for i in near.argmax(1)]


def _named(make: Callable[[Sequence[tuple[str, np.ndarray]]], Samples]) -> Callable[..., Samples]:
    return lambda paths, files: make(_pictures(paths))


TASKS: dict[str, Task] = {
    task.model: task
    for task in (
        Task("open-nsfw", "whether a photo is safe for work", _made_photos, _named(photo_samples), _safe),
        Task(
            "pp-ocr-angle",
            "whether a line of text stands upside down",
            _made_turned,
            _named(lambda found: _lines(found, LINE)),
            _angle,
            # a line is upright or not by a wide margin: ten bits answer as float does, for a fifth of the bytes less
            options={"two-party": {"weight_bits": 10, "activation_bits": 10}},
        ),
        Task(
            "pp-ocr-detector",
            "where text stands in a picture",
            _made_pages,
            _named(_pages),
            _places,
            _same_places,
            # edges of regions lie where a probability crosses 0.3: half the error moves fewer of them by a pixel
            options={"client-aided": {"weight_bits": 11, "most_bits": 16, "margin": 1.5, "rounding": "feedback"}},
        ),
        Task("pp-ocr-recogniser", "what a line says", _made_lines, _named(lambda found: _lines(found, TEXT)), _says),
        Task(
            "magika",
            "what type a file has",
            _made_files,
            lambda paths, files: _bytes([(path.name, data.read_file(path)) for path in paths]),
            _type,
        ),
        Task(
            "minilm",
            "which sentence of a list means nearly the same",
            _made_sentences,
            _read_sentences,
            _closest,
            # some features of every layer's input are forty times larger than the others: bits of activations count
            # most
            options={
                "client-aided": {"weight_bits": 9, "most_bits": 16, "margin": 1.5},
                "two-party": {"weight_bits": 14, "most_bits": 14, "sums": "calibrated"},
            },
        ),
    )
}
# what `hushnet demo NAME` runs
DEMOS: dict[str, tuple[str, ...]] = {
    "ocr": ("pp-ocr-detector", "pp-ocr-angle", "pp-ocr-recogniser"),
    "photo": ("open-nsfw",),
    "file-type": ("magika",),
    "embedding": ("minilm",),
}

"""WordPiece: sentences as token ids of BERT's kind, by the vocabulary of a ``tokenizer.json``."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from hushnet.errors import DataError

LONGEST_WORD = 100


class WordPiece:
    """Splits text into the longest pieces that a vocabulary has, lower case, without accents (BERT, 2018)."""

    def __init__(self, vocabulary: dict[str, int], *, prefix: str = "##", lower: bool = True) -> None:
        missing = [t for t in ("[CLS]", "[SEP]", "[PAD]", "[UNK]") if t not in vocabulary]
        if missing:
            raise DataError(f"The vocabulary lacks {', '.join(missing)}. Give a vocabulary of BERT's kind.")
        self.vocabulary, self.prefix, self.lower = vocabulary, prefix, lower

    @classmethod
    def load(cls, path: str | Path) -> WordPiece:
        """Reads ``tokenizer.json``.

        Raises:
            DataError: no such file, no JSON, or a tokenizer that is not WordPiece.
        """
        try:
            document = json.loads(Path(path).read_text(encoding="utf-8"))
            model = document["model"]
            vocabulary = {str(token): int(number) for token, number in model["vocab"].items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise DataError(
                f"{path} is no tokenizer.json of WordPiece ({error!r}). Give the model's own file."
            ) from error
        lower = (document.get("normalizer") or {}).get("lowercase", True)
        return cls(vocabulary, prefix=model.get("continuing_subword_prefix", "##"), lower=bool(lower))

    def pieces(self, text: str) -> list[str]:
        """The tokens of a text, without those that mark its ends."""
        return [piece for word in _words(text, lower=self.lower) for piece in self._split(word)]

    def encode(self, texts: Sequence[str], length: int) -> dict[str, np.ndarray]:
        """``input_ids``, ``attention_mask`` and ``token_type_ids``, int64 ``[texts, length]``; longer texts are cut."""
        if length < 2:
            raise DataError(f"A sentence of {length} tokens has no room for its two marks. Give at least 2.")
        ids = np.full((len(texts), length), self.vocabulary["[PAD]"], np.int64)
        mask = np.zeros_like(ids)
        for row, text in enumerate(texts):
            tokens = ["[CLS]", *self.pieces(text)[: length - 2], "[SEP]"]
            ids[row, : len(tokens)] = [self.vocabulary[t] for t in tokens]
            mask[row, : len(tokens)] = 1
        return {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}

    def _split(self, word: str) -> list[str]:
        if len(word) > LONGEST_WORD:
            return ["[UNK]"]
        found, start = [], 0
        while start < len(word):
            end = len(word)
            while end > start:
                piece = (self.prefix if start else "") + word[start:end]
                if piece in self.vocabulary:
                    break
                end -= 1
            if end == start:
                return ["[UNK]"]
            found.append(piece)
            start = end
        return found


def _words(text: str, *, lower: bool) -> list[str]:
    """Words and single marks of punctuation or ideographs."""
    if lower:
        text = "".join(c for c in unicodedata.normalize("NFD", text.lower()) if unicodedata.category(c) != "Mn")
    spaced = []
    for c in text:
        kind = unicodedata.category(c)
        if c in "\t\n\r" or kind == "Zs":
            spaced.append(" ")
        elif kind.startswith("C") or ord(c) in (0, 0xFFFD):
            continue
        elif _alone(c, kind):
            spaced.append(f" {c} ")
        else:
            spaced.append(c)
    return "".join(spaced).split()


def _alone(c: str, kind: str) -> bool:
    """Whether a character is a word of its own: punctuation, all marks of ASCII, ideographs of the common blocks."""
    point = ord(c)
    marks = 33 <= point <= 47 or 58 <= point <= 64 or 91 <= point <= 96 or 123 <= point <= 126
    blocks = ((0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2CEAF), (0xF900, 0xFAFF), (0x2F800, 0x2FA1F))
    return marks or kind.startswith("P") or any(a <= point <= b for a, b in blocks)

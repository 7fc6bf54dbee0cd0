"""Inputs that any machine can make: files of many types, as a network of bytes reads them, and sentences."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import lzma
import os
import pickle
import sqlite3
import sysconfig
import tarfile
import wave
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np

from hushnet.errors import DataError

# Kinds of files that Python installations hold; a machine that lacks some gives more of the others.
SUFFIXES = (
    ".py", ".so", ".pyc", ".pyi", ".h", ".c", ".txt", ".json", ".html", ".css", ".js", ".ttf", ".png", ".jpg", ".svg",
    ".pdf", ".csv", ".xml", ".md", ".rst", ".yaml", ".toml", ".ini", ".sh", ".npy", ".npz", ".pxd", ".pyx", ".afm",
    ".woff2", ".gz", ".zip", ".exe", ".whl", ".cpp", ".hpp", ".cmake", ".f90", ".pem", ".sql", ".pkl", ".ipynb",
)  # fmt: skip
_LARGEST = 8 << 20
_TOPICS = {
    "cooking": (
        "{} the onions in butter until they are soft", "The soup needs {} salt and a little lemon",
        "Bake the bread for {} minutes in a hot oven", "We had {} plates of pasta with tomato sauce",
        "Chop {} carrots before you boil the potatoes",
    ),
    "weather": (
        "It will rain for {} days along the coast", "The storm brought {} centimetres of snow to the hills",
        "Temperatures fall to {} degrees tonight", "Fog delayed {} flights this morning",
        "The sun shines for {} hours in summer",
    ),
    "money": (
        "The bank raised its interest rate by {} points", "My rent costs {} dollars every month",
        "She paid the invoice {} days late", "The shares lost {} percent on Monday",
        "He saved {} euros for a new car",
    ),
    "health": (
        "The doctor prescribed {} tablets a day", "My knee has hurt for {} weeks",
        "The nurse measured a fever of {} degrees", "Patients wait {} hours in the clinic",
        "He had {} stitches after the operation",
    ),
    "sport": (
        "The home team scored {} goals in the final", "She ran the marathon in under {} hours",
        "The referee showed {} yellow cards", "They train {} times a week at the pool",
        "The cyclist won {} stages of the race",
    ),
    "computers": (
        "The server crashed {} times last night", "My laptop has {} gigabytes of memory",
        "The program prints {} lines of errors", "Please reset my password after {} attempts",
        "The database holds {} million records",
    ),
}  # fmt: skip
_VERBS = ("Fry", "Cook", "Brown", "Slice", "Melt", "Stir", "Peel", "Grate", "Roast", "Heat")
_FILLINGS = ("two", "three", "five", "seven", "ten", "twelve", "twenty", "thirty", "forty", "ninety")


def byte_tokens(
    content: bytes, *, first: int = 1024, last: int = 1024, padding: int = 256, block: int = 4096
) -> np.ndarray:
    """The first and last bytes of a file, white space at its ends left out, as int32 ``[first + last]``.

    Padding stands between. This is how magika reads files (``config.min.json`` of its model).
    """
    head, tail = content[:block].lstrip()[:first], content[-block:].rstrip()
    tail = tail[max(0, len(tail) - last) :]
    tokens = np.full(first + last, padding, np.int32)
    tokens[: len(head)] = np.frombuffer(head, np.uint8)
    tokens[first + last - len(tail) :] = np.frombuffer(tail, np.uint8)
    return tokens


def read_file(path: str | Path) -> bytes:
    """The bytes of a file, of a large one those that a network of its ends reads.

    Raises:
        DataError: the file cannot be read.
    """
    try:
        with Path(path).open("rb") as file:
            size = file.seek(0, 2)
            file.seek(0)
            if size <= _LARGEST:
                return file.read()
            head = file.read(_LARGEST // 2)
            file.seek(-_LARGEST // 2, 2)
            return head + file.read()
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror or error}). Name a file.") from error


def files(count: int, *, seed: int = 0) -> list[tuple[str, bytes]]:
    """Files of many types with names: first those that are written here, then the machine's own, kind after kind."""
    found = [(name, make()) for name, make in _MADE.items()]
    kinds: dict[str, list[str]] = {suffix: [] for suffix in SUFFIXES}
    for root in dict.fromkeys(sysconfig.get_paths()[key] for key in ("stdlib", "platstdlib", "purelib", "platlib")):
        named = (os.path.join(at, name) for at, _, names in os.walk(root) for name in names)
        for path in sorted((p for p in named if os.path.splitext(p)[1] in kinds), key=lambda p: p.split(os.sep)):
            if os.path.isfile(path) and os.path.getsize(path) >= 64:
                kinds[os.path.splitext(path)[1]].append(path)
    rng = np.random.default_rng(seed)
    order = {suffix: [paths[i] for i in rng.permutation(len(paths))] for suffix, paths in kinds.items()}
    turn = 0
    while len(found) < count and any(len(paths) > turn for paths in order.values()):
        chosen = [paths[turn] for paths in order.values() if len(paths) > turn]
        found += [(os.path.basename(path), read_file(path)) for path in chosen]
        turn += 1
    if len(found) < count:
        raise DataError(
            f"This machine has {len(found)} files to read, {count} are asked for. Name files, or ask for fewer."
        )
    return found[:count]


def sentences(count: int, *, seed: int = 0) -> list[tuple[str, str]]:
    """Sentences with their topics, all different.

    Raises:
        DataError: more than there are.
    """
    whole = [
        (topic, text.format(word)[0].upper() + text.format(word)[1:])
        for topic, texts in _TOPICS.items()
        for text in texts
        for word in (_VERBS if text[0] == "{" else _FILLINGS)
    ]
    if count > len(whole):
        raise DataError(
            f"{len(whole)} sentences can be made, {count} are asked for. Give a file with sentences, or ask for fewer."
        )
    return [whole[i] for i in np.random.default_rng(seed).permutation(len(whole))[:count]]


def _records() -> list[dict[str, object]]:
    return [{"id": i, "name": f"item {i}", "price": 1.5 * i, "tags": ["a", "b"]} for i in range(60)]


def _text() -> str:
    return "\n".join(f"{topic}: {text}." for topic, text in sentences(120, seed=1)) + "\n"


def _csv() -> bytes:
    out = io.StringIO()
    writer = csv.DictWriter(out, ["id", "name", "price"], extrasaction="ignore")
    writer.writeheader()
    writer.writerows(_records())
    return out.getvalue().encode()


def _zip() -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in (("notes.txt", _text().encode()), ("table.csv", _csv())):
            archive.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)
    return out.getvalue()


def _tar() -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        member = tarfile.TarInfo("notes.txt")
        member.size = len(_text().encode())
        archive.addfile(member, io.BytesIO(_text().encode()))
    return out.getvalue()


def _wave() -> bytes:
    out = io.BytesIO()
    with wave.open(out, "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(2)
        sound.setframerate(8000)
        sound.writeframes((8000 * np.sin(np.arange(8000) / 3)).astype("<i2").tobytes())
    return out.getvalue()


def _sqlite() -> bytes:
    base = sqlite3.connect(":memory:")
    with base:
        base.execute("create table items (id integer, name text, price real)")
        base.executemany("insert into items values (:id, :name, :price)", _records())
    return b"".join([base.serialize()]) if hasattr(base, "serialize") else b"SQLite format 3\0" + bytes(4080)


def _npy() -> bytes:
    out = io.BytesIO()
    np.save(out, np.linspace(0, 1, 2000))
    return out.getvalue()


def _xml() -> bytes:
    rows = "".join(f'  <item id="{r["id"]}"><name>{r["name"]}</name></item>\n' for r in _records())
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<items>\n{rows}</items>\n'.encode()


def _html() -> bytes:
    rows = "".join(f"<li>{text}</li>\n" for _, text in sentences(40, seed=2))
    return f"<!DOCTYPE html>\n<html><head><title>Notes</title></head><body><ul>\n{rows}</ul></body></html>\n".encode()


def _ini() -> bytes:
    return "".join(f"[section{i}]\nname = item {i}\nenabled = true\n\n" for i in range(30)).encode()


def _sql() -> bytes:
    rows = "".join(f"INSERT INTO items (id, name) VALUES ({i}, 'item {i}');\n" for i in range(40))
    return f"CREATE TABLE items (\n  id INTEGER PRIMARY KEY,\n  name VARCHAR(40) NOT NULL\n);\n{rows}".encode()


def _shell() -> bytes:
    steps = "".join(f'if [ -f "$HOME/file{i}" ]; then\n  echo "found {i}" | grep -c found\nfi\n' for i in range(20))
    return f"#!/bin/bash\nset -euo pipefail\nexport LC_ALL=C\n{steps}exit 0\n".encode()


def _bitmap() -> bytes:
    pixels = np.add.outer(np.arange(48), np.arange(48)).astype(np.uint8).repeat(3).tobytes()
    size = 54 + len(pixels)
    header = b"BM" + size.to_bytes(4, "little") + bytes(4) + (54).to_bytes(4, "little") + (40).to_bytes(4, "little")
    header += (48).to_bytes(4, "little") * 2 + (1).to_bytes(2, "little") + (24).to_bytes(2, "little") + bytes(24)
    return header + pixels


_MADE: dict[str, Callable[[], bytes]] = {
    "notes.txt": lambda: _text().encode(),
    "table.csv": _csv,
    "items.json": lambda: json.dumps(_records(), indent=1).encode(),
    "items.jsonl": lambda: "".join(json.dumps(r) + "\n" for r in _records()).encode(),
    "items.xml": _xml,
    "notes.html": _html,
    "settings.ini": _ini,
    "items.sql": _sql,
    "build.sh": _shell,
    "notes.zip": _zip,
    "notes.tar": _tar,
    "notes.gz": lambda: gzip.compress(_text().encode(), mtime=0),
    "notes.bz2": lambda: bz2.compress(_text().encode()),
    "notes.xz": lambda: lzma.compress(_text().encode()),
    "notes.zlib": lambda: zlib.compress(_text().encode()),
    "tone.wav": _wave,
    "items.sqlite": _sqlite,
    "ramp.npy": _npy,
    "ramp.bmp": _bitmap,
    "items.pickle": lambda: pickle.dumps(_records()),
}

"""The page that a server shows to browsers (``hushnet serve --web``): its files, and what it is told of the models.

The files stand in ``hushnet/web``, where ``make web`` puts them; a wheel holds them. What the page is told comes from
two places alone: the public part of the plans, which every client gets, and a file that the operator writes.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hushnet.errors import InputError

if TYPE_CHECKING:
    from hushnet.plan import Plan

FOLDER = Path(__file__).parent / "web"
MEDIA = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".svg": "image/svg+xml",
    ".wasm": "application/wasm",
}
# Path, media type, tag, and the bytes as gzip has them.
File = tuple[str, str, str, bytes]

# Fields of an operator's file, with what each must be. A number is (pixel scale - mean) / std, pixels from 0 to 255.
CHOICES: dict[str, tuple[str, ...]] = {
    "kind": ("drawing", "photo", "numbers"),
    "layout": ("CHW", "HWC", "HW", "flat", "none"),
    "order": ("RGB", "BGR"),
    "resize": ("cover", "contain", "stretch"),
}
FLAGS = ("invert",)
NUMBERS = ("scale", "mean", "std")
SCORES = ("logits", "probabilities", "values", "none")


def files(plans: Mapping[str, Plan], described: Mapping[str, Any] | None = None, *, hidden: bool = False) -> list[File]:
    """The page's files as the server holds them.

    Args:
        plans: the plans that are served, by name. The page gets names, trust models, names and shapes of
            inputs, and names of classes.
        described: what the operator says of the input (:func:`read`).
        hidden: the page gets nothing of the plans: for a server whose clients need tokens.

    Raises:
        InputError: this installation has no page.
    """
    if not (FOLDER / "index.html").is_file():
        raise InputError(
            "this installation has no page for browsers: install a wheel, or run `make web` in the sources"
        )
    told = {"title": "Ask a private question", **(described or {}), "models": [] if hidden else _models(plans)}
    found = {
        path.relative_to(FOLDER).as_posix(): path.read_bytes()
        for path in sorted(FOLDER.rglob("*"))
        if path.suffix in MEDIA
    }
    found["about.json"] = json.dumps(told).encode()
    return [_file("" if name == "index.html" else name, MEDIA[Path(name).suffix], data) for name, data in found.items()]


def _file(name: str, media: str, data: bytes) -> File:
    return f"/{name}", media, hashlib.sha256(data).hexdigest()[:16], gzip.compress(data, 9, mtime=0)


def _models(plans: Mapping[str, Plan]) -> list[dict[str, Any]]:
    """What every client is sent before it gives anything: no more than this of it."""
    told = []
    for name in sorted(plans):
        public = plans[name].public_part().document
        shapes = {t["id"]: t["shape"] for t in public["tensors"]}
        inputs = [{"name": i["name"], "shape": shapes[i["tensor"]]} for i in public["inputs"]]
        # names of classes, so that a page without a description says "setosa" and not "class 0"
        classes = {o["name"]: o["classes"] for o in public["outputs"] if o.get("classes")}
        told.append({"name": name, "trust": public["trust"], "inputs": inputs, "classes": classes})
    return told


def read(path: Path) -> dict[str, Any]:
    """An operator's description of the input (docs/serving.md), checked.

    Raises:
        InputError: no such file, no JSON, a field that there is not, or a value that does not fit.
    """
    try:
        described = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"--web-input {path}: {error.strerror}") from None
    except ValueError as error:
        raise InputError(f"--web-input {path}: this is no JSON: {error}") from None
    if wrong := problem(described):
        raise InputError(f"--web-input {path}: {wrong}")
    return dict(described)


def problem(described: Any) -> str:
    """What is wrong with a description; "" where nothing is."""
    if not isinstance(described, dict):
        return "wanted an object: {...}"
    for name, value in described.items():
        if name not in _TOP:
            return f"there is no field {name!r}; there are {', '.join(_TOP)}"
        if not _TOP[name](value):
            return f"{name} is {_SAID[name]}"
    for name, value in described.get("input", {}).items():
        if name in CHOICES:
            good, said = value in CHOICES[name], "one of " + ", ".join(CHOICES[name])
        elif name in FLAGS:
            good, said = isinstance(value, bool), "true or false"
        elif name in NUMBERS:
            values = value if isinstance(value, list) else [value]
            good = bool(values) and all(_number(v) and (name == "mean" or v != 0) for v in values)
            said = "a number, or one for each channel" + ("" if name == "mean" else ", not 0")
        elif name == "fill":
            good, said = _number(value) and 0 < value <= 1, "a share of the picture, above 0 and at most 1"
        elif name == "size":
            good = (
                isinstance(value, list) and len(value) == 2 and all(isinstance(v, int) and 0 < v < 5000 for v in value)
            )
            said = "[height, width]"
        else:
            known = (*CHOICES, *FLAGS, *NUMBERS, "size", "fill")
            return f"there is no field input.{name}; there are {', '.join(known)}"
        if not good:
            return f"input.{name} is {said}"
    return ""


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _text(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value) <= 200


def _examples(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(e, dict)
        and set(e) == {"name", "values"}
        and _text(e["name"])
        and isinstance(e["values"], list)
        and all(map(_number, e["values"]))
        for e in value
    )


_TOP = {
    "title": _text,
    "labels": lambda value: isinstance(value, list) and bool(value) and all(map(_text, value)),
    "scores": lambda value: value in SCORES,
    "examples": _examples,
    "input": lambda value: isinstance(value, dict),
}
_SAID = {
    "title": "a short text",
    "labels": "a list of short texts, one for each class",
    "scores": "one of " + ", ".join(SCORES),
    "examples": "a list of {name, values}, values being the network's numbers in a row",
    "input": "an object that says how a picture becomes numbers",
}

"""``hushnet demo digits``: CryptoNets-ReLU on held-out handwritten digits, server and client in two processes."""

from __future__ import annotations

import base64
import json
import struct
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import hushnet
from hushnet import data, report, zoo
from hushnet.cli.common import out, progress_bar
from hushnet.reference import numpy as fixed_point


def run_demo(folder: Path, count: int, *, quiet: bool) -> dict[str, Any]:
    """Compiles, serves, infers, compares, draws; returns what it printed."""
    say = (lambda *_: None) if quiet else partial(out.print, markup=True)
    folder.mkdir(parents=True, exist_ok=True)
    train_x, _, test_x, test_y = data.digits()
    test_x, test_y = test_x[:count], test_y[:count]
    say(
        f"[bold]1.[/bold] {len(test_x)} held-out handwritten digits (8x8 scans enlarged to 28x28) and CryptoNets-ReLU, "
        f"trained on {len(train_x)} others."
    )
    model = hushnet.compile(
        zoo.trained("cryptonets-relu"), batch=2048, calibration=train_x[:256], name="cryptonets-relu"
    )
    plan_path = folder / "cryptonets-relu.hush"
    model.save(plan_path)
    say("[bold]2.[/bold] Compiled:")
    say(report.render(model.explain()))
    seen = folder / "what-the-server-saw.bin"
    with server(plan_path, seen) as url:
        say(f"[bold]3.[/bold] A server process holds the weights at {url}; this process holds the images and the key.")
        with hushnet.connect(url) as connection, progress_bar(quiet) as bar:
            started = time.perf_counter()
            result = connection.infer(test_x, progress=bar)
            seconds = time.perf_counter() - started
    encrypted = result.output
    planned = next(iter(fixed_point.run(model.plan, {model.input_names[0]: test_x}).values()))
    plain = float_logits(test_x)
    summary = summarise(model, result, encrypted, planned, plain, test_y, seconds)
    picture = draw(folder / "demo.svg", test_x, test_y, encrypted, seen.read_bytes())
    summary |= {"picture": str(picture), "plan": str(plan_path)}
    say(text_summary(summary))
    say(report.trust_text(model.plan))
    if not summary["equal_to_plaintext_fixed_point"]:
        raise hushnet.HushnetError(
            "the encrypted outputs differ from the plaintext fixed-point ones: please report this"
        )
    return summary


@contextmanager
def server(plan: Path, record: Path) -> Iterator[str]:
    """``hushnet serve`` in a process of its own, on a free port; the URL."""
    command = [
        sys.executable,
        "-m",
        "hushnet",
        "serve",
        str(plan),
        "--listen",
        "127.0.0.1:0",
        "--json",
        "--record",
        str(record),
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        line = process.stdout.readline() if process.stdout else ""
        if not line:
            raise hushnet.TransportError("the server process ended before it listened")
        yield json.loads(line)["url"]
    finally:
        process.terminate()
        process.wait(timeout=10)


def float_logits(x: np.ndarray) -> np.ndarray:
    """The network in binary64, without any quantisation."""
    from hushnet import frontend, passes
    from hushnet.reference import float as float_reference

    graph = passes.default(frontend.load(zoo.trained("cryptonets-relu")))
    return float_reference.evaluate(graph, {graph.inputs[0]: x})[graph.outputs[0]]


def summarise(
    model: Any, result: Any, encrypted: Any, planned: Any, plain: Any, labels: Any, seconds: float
) -> dict[str, Any]:
    """The figures of the demo."""
    n = len(labels)
    accuracy = lambda logits: float((logits.argmax(axis=1) == labels).mean())  # noqa: E731
    predicted = model.plan.predicted
    return {
        "images": n,
        "seconds": seconds,
        "images_per_second": n / seconds,
        "megabytes_per_image": (result.trace["bytes_up"] + result.trace["bytes_down"]) / n / 1e6,
        "megabytes_per_image_full_block": (predicted["bytes_up"] + predicted["bytes_down"]) / predicted["batch"] / 1e6,
        "accuracy_encrypted": accuracy(encrypted),
        "accuracy_plaintext_fixed_point": accuracy(planned),
        "accuracy_float": accuracy(plain),
        "equal_to_plaintext_fixed_point": bool(np.array_equal(encrypted, planned)),
        "max_error_against_float": float(np.abs(encrypted - plain).max()),
        "predicted_error": predicted["max_error"],
    }


def text_summary(s: dict[str, Any]) -> str:
    """The figures in words."""
    return (
        f"[bold]4.[/bold] {s['images']} digits in {s['seconds']:.2f} s with set-up "
        f"({s['images_per_second']:.0f} images/s; "
        f"one block carries up to 2048 in nearly the same time), {s['megabytes_per_image']:.3f} MB an image "
        f"({s['megabytes_per_image_full_block']:.4f} MB in a full block).\n"
        f"   Accuracy: encrypted {s['accuracy_encrypted']:.2%}, plaintext fixed point "
        f"{s['accuracy_plaintext_fixed_point']:.2%}, "
        f"float {s['accuracy_float']:.2%}. Encrypted outputs equal the fixed-point ones exactly: "
        f"{s['equal_to_plaintext_fixed_point']}.\n"
        f"   Largest logit error against float: {s['max_error_against_float']:.4f} (predicted: below "
        f"{s['predicted_error']:.4f}).\n"
        f"   Picture: {s['picture']}"
    )


def draw(path: Path, images: np.ndarray, labels: np.ndarray, logits: np.ndarray, seen: bytes) -> Path:
    """Digits with predictions as the client sees them, and as many bytes of what the server received instead."""
    columns, rows, side = 12, 4, 28
    count = min(len(images), columns * rows)
    width, height, gap, top = columns * side, rows * side, 14, 16

    def mosaic(tiles: np.ndarray) -> np.ndarray:
        grid = np.zeros((rows * columns, side, side), np.uint8)
        grid[: len(tiles)] = tiles
        return grid.reshape(rows, columns, side, side).swapaxes(1, 2).reshape(height, width)

    def panel(x: int, title: str, tiles: np.ndarray) -> str:
        picture = base64.b64encode(png(mosaic(tiles))).decode()
        return (
            f'<text x="{x}" y="11" font-size="9" fill="#222">{title}</text>'
            f'<image x="{x}" y="{top}" width="{width}" height="{height}" style="image-rendering:pixelated" '
            f'href="data:image/png;base64,{picture}"/>\n'
        )

    grey = (255 * (1 - images[:count].reshape(-1, side, side))).round().astype(np.uint8)
    body = panel(0, "The client: digits and decrypted predictions (green: right)", grey)
    for i in range(count):
        predicted = int(logits[i].argmax())
        colour = "#1b7837" if predicted == labels[i] else "#b2182b"
        x, y = i % columns * side + 1, top + i // columns * side + 9
        body += f'<text x="{x}" y="{y}" font-size="10" font-weight="bold" fill="{colour}">{predicted}</text>\n'
    received = np.frombuffer(seen, dtype=np.uint8)[: count * side * side]
    if len(received) == count * side * side:
        body += panel(width + gap, "The server: the bytes that it received", received.reshape(count, side, side))
    box = f"0 0 {2 * width + gap} {top + height}"
    path.write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{box}" width="{2 * (2 * width + gap)}" '
        f'font-family="sans-serif" style="background:#fff">\n{body}</svg>\n'
    )
    return path


def png(grey: np.ndarray) -> bytes:
    """A PNG file of bytes ``[height, width]``, 0 for black."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    height, width = grey.shape
    # Each row begins with the number of its filter, which is none.
    lines = np.concatenate([np.zeros((height, 1), np.uint8), grey], axis=1)
    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    body = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(lines.tobytes())) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body

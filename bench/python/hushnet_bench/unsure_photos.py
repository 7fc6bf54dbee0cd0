"""open-nsfw with both sides private on photos that it is not sure of: planned runs, units drawn as real ones are.

A network that is sure of a photo hides its errors. So photos are blended, blurred, cut and painted with soft patches of
warm colours until its probabilities are spread between zero and one; where they are not, there is no row. Errors are
against ONNX Runtime.
"""

from __future__ import annotations

import time
from typing import Any

import hushnet
import numpy as np
from hushnet import data, demos, zoo
from hushnet.demos.measure import Runtime
from hushnet.demos.tasks import photo_samples
from hushnet.reference.two_party import rehearse

from hushnet_bench.registry import Benchmark

NAME, CALIBRATION, DRAWN = "open-nsfw", 64, 240
COUNT, FEW = 24, 4
# for `quick`: calibration photos, and photos of which four are chosen
QUICK_CALIBRATION, QUICK_DRAWN = 8, 60
# of a side of the square photos, in pixels
SIDE = 256
# RGB of patches
WARM = np.array([(255, 224, 196), (238, 187, 160), (224, 172, 140), (198, 134, 100), (240, 150, 130)], float)
# a probability between them is one of a photo that the network is not sure of; so many of all photos have one
SURE, UNSURE = (0.1, 0.9), 0.5


def rows(*, quick: bool, threads: int, progress: Any, batch: int | None = None) -> list[dict[str, Any]]:
    """One row: errors and bytes of the default plan; ``batch`` is the number of photos.

    ``quick`` takes weights of eight bits, which no search chooses, and four photos out of fewer.
    """
    del threads
    files, task = zoo.fetch(NAME), demos.TASKS[NAME]
    photos, exact = unsure(Runtime(files[0]), batch or (FEW if quick else COUNT), QUICK_DRAWN if quick else DRAWN)
    calibration = task.make(QUICK_CALIBRATION if quick else CALIBRATION, 1, files).arrays
    bits: dict[str, Any] = {"weight_bits": 8} if quick else {}
    started = time.process_time()
    model = hushnet.compile(
        str(files[0]), trust="two-party", shapes=zoo.real_models()[NAME].shapes, calibration=calibration, **bits
    )
    compiled, rng, off = time.process_time() - started, np.random.default_rng(3), []
    port = next(iter(photos))
    for place in range(len(exact)):
        if progress is not None:
            progress("photo", place, len(exact))
        outputs, _ = rehearse(model.plan, {port: photos[port][place : place + 1].astype(np.float64)}, rng)
        off.append(float(np.abs(next(iter(outputs.values())).reshape(-1) - exact[place]).max()))
    predicted = model.plan.predicted
    return [
        {
            "case": f"{NAME}, {len(exact)} unsure photos",
            "method": "hushnet two-party, planned",
            "least_probability": float(exact[:, -1].min()),
            "largest_probability": float(exact[:, -1].max()),
            "unsure": int(((exact[:, 1] > SURE[0]) & (exact[:, 1] < SURE[1])).sum()),
            "largest_error": max(off),
            "mean_error": float(np.mean(off)),
            "predicted_error": predicted["max_error"],
            "megabytes_each": (predicted["bytes_up"] + predicted["bytes_down"]) / 1e6,
            "compile_processor_seconds": compiled,
        }
    ]


def unsure(plain: Runtime, count: int, drawn_photos: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Photos whose probabilities are spread as evenly as those of ``drawn_photos`` drawn ones allow, and these.

    Returns:
        arrays by input ``[count, ...]``, and ONNX Runtime's outputs ``[count, classes]``.
    """
    rng = np.random.default_rng(7)
    found = [data.resized(picture, SIDE, SIDE).astype(float) for _, picture in data.photos(drawn_photos // 4, seed=7)]
    drawn = []
    for place in range(drawn_photos):
        first, second = (found[int(i)] for i in rng.choice(len(found), 2))
        share = rng.uniform(0.2, 1.0)
        mixed = share * first + (1 - share) * second
        for _ in range(int(rng.integers(0, 6))):
            mixed = (mixed + np.roll(mixed, 1, 0) + np.roll(mixed, 1, 1) + np.roll(mixed, (1, 1), (0, 1))) / 4
        for _ in range(int(rng.integers(0, 5))):
            mixed = _patched(mixed, rng)
        drawn.append((f"photo {place}", np.clip(mixed, 0, 255).astype(np.uint8)))
    arrays = photo_samples(drawn).arrays
    values = next(iter(plain(arrays).values())).reshape(-1, 2)
    left, chosen = list(range(drawn_photos)), []
    for wanted in np.linspace(0.02, 0.95, count):
        place = min(left, key=lambda i: abs(values[i, 1] - wanted))
        left.remove(place)
        chosen.append(place)
    exact = values[chosen].astype(np.float64)
    between = ((exact[:, 1] > SURE[0]) & (exact[:, 1] < SURE[1])).mean()
    if between < UNSURE:
        raise hushnet.InputError(
            f"{NAME} is sure of the photos that could be drawn: {between:.0%} of {count} have a probability between "
            f"{SURE[0]} and {SURE[1]}, {UNSURE:.0%} at least are wanted. Install more photos (scikit-image)."
        )
    return {k: v[chosen] for k, v in arrays.items()}, exact


def _patched(picture: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """A picture ``[SIDE, SIDE, 3]`` with a soft ellipse of a warm colour, darker towards its edge."""
    down, right = np.mgrid[0:SIDE, 0:SIDE] / SIDE
    (x, y), (wide, high), turn = rng.uniform(0.2, 0.8, 2), rng.uniform(0.1, 0.45, 2), rng.uniform(0, np.pi)
    along = (right - x) * np.cos(turn) + (down - y) * np.sin(turn)
    across = (down - y) * np.cos(turn) - (right - x) * np.sin(turn)
    far = (along / wide) ** 2 + (across / high) ** 2
    cover = 1 / (1 + np.exp(np.clip((far - 1) * rng.uniform(2, 12), -50, 50)))[..., None]
    shade = 1 - 0.5 * np.clip(far, 0, 1)[..., None]
    return picture * (1 - cover) + cover * shade * WARM[rng.integers(len(WARM))]


BENCHMARK = Benchmark(
    name="unsure-photos",
    about="open-nsfw, both sides private, on photos that it is not sure of: planned runs of the default plan",
    source="ONNX Runtime on the same file and photos",
    run=rows,
)

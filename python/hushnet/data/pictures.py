"""Pictures for networks: files that a user names, photos that libraries ship, text drawn with matplotlib's fonts.

Everything here is RGB, uint8 ``[rows, columns, 3]``. Pillow and matplotlib are optional.
They come with ``pip install 'hushnet[demo]'``.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hushnet.errors import DataError

MAX_PIXELS = 1 << 28
# Photos and scans in the wheels of scikit-learn and scikit-image; a library that is not installed gives none.
SHIPPED = {
    "sklearn": ("datasets/images", ("china.jpg", "flower.jpg")),
    "skimage": (
        "data",
        (
            "astronaut.png", "brick.png", "camera.png", "chelsea.png", "clock_motion.png", "coffee.png", "coins.png",
            "grass.png", "gravel.png", "hubble_deep_field.jpg", "ihc.png", "moon.png", "motorcycle_left.png",
            "motorcycle_right.png", "page.png", "retina.jpg", "rocket.jpg", "text.png",
        ),
    ),
}  # fmt: skip
# Fonts without Latin letters, or with shapes that no reader of text was trained for.
_NO_TEXT = ("STIX", "cm", "Display", "LastResort")
_TEXT = """
account address afternoon airport answer apple autumn balance bank basket bicycle birthday blanket border bottle
bread breakfast bridge budget button camera candle capital carpet ceiling chapter cheese church circle clinic
coffee college corner country credit cushion delivery dentist dinner doctor drawer engine evening factory family
farmer feather festival finger flower forest friend garden glass guitar hammer harbour history holiday hospital
hotel invoice island jacket journey kitchen ladder language lemon letter library market meadow medicine message
mirror monday morning mountain museum napkin needle notebook number office orange order paper parcel passport
patient payment pencil pepper picture pillow planet platform pocket police potato printer problem question
railway receipt recipe river saturday school season secret shelter shoulder signal silver station stomach
station street student summer sunday surgery table teacher ticket tomorrow total tunnel umbrella valley village
visitor wallet water weather wednesday window winter yellow yesterday
"""
_WORDS = tuple(_TEXT.split())


def read_picture(path: str | Path) -> np.ndarray:
    """A picture file as RGB.

    Raises:
        DataError: Pillow is missing, no such file, no picture, or more than ``MAX_PIXELS`` pixels.
    """
    image = _pillow("Image")
    try:
        with image.open(path) as opened:
            if opened.width * opened.height > MAX_PIXELS:
                raise DataError(
                    f"{path} has {opened.width} x {opened.height} pixels. At most {MAX_PIXELS} are read. "
                    "Give a smaller picture."
                )
            return np.asarray(opened.convert("RGB"))
    except (OSError, ValueError, SyntaxError, image.DecompressionBombError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{path} cannot be read as a picture ({error}). Give a PNG, JPEG or similar file.") from error


def resized(picture: np.ndarray, rows: int, columns: int) -> np.ndarray:
    """The picture at another size, bilinear."""
    image = _pillow("Image")
    return np.asarray(image.fromarray(picture).resize((columns, rows), image.Resampling.BILINEAR))


def photos(count: int, *, seed: int = 0, whole: bool = True) -> list[tuple[str, np.ndarray]]:
    """Photos with names: those of :data:`SHIPPED` first, then parts of them, mirrored, with other light.

    Args:
        whole: whether the shipped photos themselves come first; otherwise parts alone.

    Raises:
        DataError: neither scikit-learn nor scikit-image is installed.
    """
    shipped = [(path.stem, path) for path in _shipped()]
    if not shipped:
        raise DataError("No photos are installed. Run `pip install scikit-image scikit-learn`, or name picture files.")
    sources = [(name, read_picture(path)) for name, path in shipped]
    rng, found = np.random.default_rng(seed), list(sources) if whole else []
    for turn in range(count - len(found)):
        name, picture = sources[turn % len(sources)]
        found.append((f"{name}, part {turn // len(sources) + 1}", _part(picture, rng)))
    return found[:count]


def _shipped() -> list[Path]:
    from importlib.util import find_spec

    found = []
    for package, (folder, names) in SHIPPED.items():
        spec = find_spec(package)
        if spec is None or spec.origin is None:
            continue
        base = Path(spec.origin).parent / folder
        found += [base / name for name in names if (base / name).is_file()]
    return found


def _part(picture: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    share = rng.uniform(0.35, 0.9)
    rows, columns = (max(32, int(n * share)) for n in picture.shape[:2])
    top, left = (int(rng.integers(0, max(1, n - m + 1))) for n, m in zip(picture.shape, (rows, columns)))
    part = picture[top : top + rows, left : left + columns]
    if rng.random() < 0.5:
        part = part[:, ::-1]
    return np.clip(part * rng.uniform(0.6, 1.3) + rng.uniform(-20, 20), 0, 255).astype(np.uint8)


def phrases(count: int, *, seed: int = 0, longest: int = 26) -> list[str]:
    """Short texts as they stand on labels and bills: words, prices, dates, codes."""
    rng = np.random.default_rng(seed)
    texts = []
    for _ in range(count):
        words = [str(w) for w in rng.choice(_WORDS, int(rng.integers(1, 4)), replace=False)]
        kind = int(rng.integers(6))
        if kind == 0:
            words.append(f"{rng.integers(1, 999)}.{rng.integers(0, 100):02}")
        elif kind == 1:
            words.insert(0, f"{rng.integers(1, 29):02}/{rng.integers(1, 13):02}/20{rng.integers(10, 40)}")
        elif kind == 2:
            words = [w.upper() for w in words]
        elif kind == 3:
            words = [w.capitalize() for w in words]
        elif kind == 4:
            words.append("No. " + str(rng.integers(100, 99999)))
        while len(" ".join(words)) > longest and len(words) > 1:
            words.pop()
        texts.append(" ".join(words))
    return texts


def text_line(text: str, rng: np.random.Generator, *, size: int = 36) -> np.ndarray:
    """A line of text on a plain ground: font, colours, margins and a little noise by chance."""
    fonts = _fonts()
    font = _pillow("ImageFont").truetype(str(fonts[int(rng.integers(len(fonts)))]), size)
    left, top, right, bottom = font.getbbox(text)
    margin = [int(n) for n in rng.integers(3, 9, 4)]
    ground, ink = _colours(rng)
    image = _pillow("Image").new(
        "RGB", (right - left + margin[0] + margin[1], bottom - top + margin[2] + margin[3]), ground
    )
    _pillow("ImageDraw").Draw(image).text((margin[0] - left, margin[2] - top), text, fill=ink, font=font)
    noise = rng.normal(0, rng.uniform(0, 8), np.asarray(image).shape)
    return np.clip(np.asarray(image) + noise, 0, 255).astype(np.uint8)


def text_page(
    texts: Sequence[str], rng: np.random.Generator, *, rows: int, columns: int
) -> tuple[np.ndarray, list[tuple[int, int, int, int]]]:
    """Lines of text at places by chance, from top to bottom, and where they stand: top, left, bottom, right.

    Lines that no longer fit are left out.
    """
    fonts = _fonts()
    ground, ink = _colours(rng)
    image = _pillow("Image").new("RGB", (columns, rows), ground)
    draw, boxes, y = _pillow("ImageDraw").Draw(image), [], int(rng.integers(4, 12))
    for text in texts:
        font = _pillow("ImageFont").truetype(str(fonts[int(rng.integers(len(fonts)))]), int(rng.integers(14, 24)))
        left, top, right, bottom = font.getbbox(text)
        if y + bottom - top + 4 > rows or right - left + 8 > columns:
            continue
        x = int(rng.integers(4, max(5, columns - (right - left) - 4)))
        draw.text((x - left, y - top), text, fill=ink, font=font)
        boxes.append((y, x, y + bottom - top, x + right - left))
        y += bottom - top + int(rng.integers(8, 20))
    return np.asarray(image), boxes


def _colours(rng: np.random.Generator) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
    """Ground and ink far enough apart to be read."""
    light = tuple(int(n) for n in rng.integers(200, 256, 3))
    dark = tuple(int(n) for n in rng.integers(0, 90, 3))
    return (light, dark) if rng.random() < 0.8 else (dark, light)  # type: ignore[return-value]


def _fonts() -> list[Path]:
    try:
        import matplotlib
    except ImportError:
        raise DataError("Text is drawn with the fonts of matplotlib. Run `pip install 'hushnet[demo]'`.") from None
    folder = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
    return [path for path in sorted(folder.glob("*.ttf")) if not any(part in path.stem for part in _NO_TEXT)]


def _pillow(module: str) -> Any:
    import importlib

    try:
        return importlib.import_module(f"PIL.{module}")
    except ImportError:
        raise DataError("Pictures are read and drawn with Pillow. Run `pip install 'hushnet[demo]'`.") from None

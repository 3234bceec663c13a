"""Predict grades with the exported model of this folder, without srjt and without torch.

    pip install -r requirements.txt
    python predict.py IMAGES > predictions.csv

IMAGES are image files and folders; for a model of features, .npy or .npz files of features.
Columns: image, grade, probabilities and the expected grade. What cannot be read is named on
standard error, and the exit status is 1: so are DICOM images, which need srjt. Other files of a
folder are left out, and named too.
"""

from __future__ import annotations

import csv
import itertools
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

FORMATS = ("JPEG", "PNG", "BMP", "TIFF", "WEBP", "GIF", "JPEG2000", "PPM")
DICOM = {".dcm", ".dicom"}  # not read, but not left out either
PICTURES = ("", ".jpg", ".jpeg", ".png", ".bmp", ".tif", ".tiff", ".webp", ".gif", ".jp2", ".ppm")
SUFFIXES = {*PICTURES, *DICOM}
UPRIGHT = {  # EXIF orientation → what makes it upright
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
PADDING = (124, 116, 104)  # of images that are not square, if the model was trained so
BATCH = 32  # samples that are predicted at a time

Array = npt.NDArray[Any]


def read_image(path: Path, *, size: int, resize: str) -> Array:
    """(size, size, 3) uint8: upright, RGB, on black where it is transparent, resized as for the
    training."""
    # not by its path: Pillow maps such a file, and turns uncompressed grey TIFFs with the wrong row
    # length
    with path.open("rb") as file, Image.open(file, formats=FORMATS) as image:
        if image.format != "MPO" and (pages := getattr(image, "n_frames", 1)) > 1:
            raise ValueError(f"the {image.format} file has {pages} pages or frames")
        image.draft(None, (2 * size, 2 * size))  # a large JPEG is decoded at a lower resolution
        image.load()
        orientation = image.getexif().get(0x0112, 1)
        picture = as_rgb(image)
    if orientation in UPRIGHT:
        picture = picture.transpose(UPRIGHT[orientation])
    width, height = picture.size
    if resize == "pad" and picture.size != (size, size):
        scale = size / max(width, height)
        inner = (max(1, round(width * scale)), max(1, round(height * scale)))
        square = Image.new("RGB", (size, size), PADDING)
        place = ((size - inner[0]) // 2, (size - inner[1]) // 2)
        square.paste(picture.resize(inner, Image.Resampling.BILINEAR), place)
        return np.array(square)
    box = None  # all of it is squashed
    if resize == "crop":
        side = min(width, height)
        left = (width - side) / 2
        top = (height - side) / 2
        box = (left, top, left + side, top + side)
    return np.array(picture.resize((size, size), Image.Resampling.BILINEAR, box=box))


def as_rgb(image: Image.Image) -> Image.Image:
    """8 bits per channel, whatever the file has."""
    if image.mode.startswith(("I", "F")):  # 16 or 32 bits
        values = np.asarray(image)
        if image.mode == "I" and image.format == "PNG":  # how Pillow 10 returns 16-bit PNGs
            values = values.astype(np.uint16)
        return Image.fromarray(to_8bit(values)).convert("RGB")
    if image.has_transparency_data:
        layers = image.convert("RGBA")
        black = Image.new("RGBA", layers.size, (0, 0, 0, 255))
        return Image.alpha_composite(black, layers).convert("RGB")
    return image.convert("RGB")


def to_8bit(values: Array) -> Array:
    """16 bits by their full range, floats in [0, 1] by theirs, others from the smallest value to
    the largest."""
    if values.dtype.kind == "u":
        return ((values.astype(np.uint32) + 128) // 257).astype(np.uint8)
    known = values[~np.isnan(values)]
    if values.dtype.kind == "f" and known.size and known.min() >= 0 and known.max() <= 1:
        return np.rint(np.nan_to_num(values) * 255.0).astype(np.uint8)
    values = values.astype(np.float64)
    finite = values[np.isfinite(values)]
    if not finite.size:
        raise ValueError("it contains no numbers")
    low = finite.min()
    high = finite.max()
    share = (values - low) / (high - low) if high > low else np.zeros(values.shape)
    return np.rint(255 * np.nan_to_num(share, nan=0.0, posinf=1.0, neginf=0.0)).astype(np.uint8)


def read_features(path: Path) -> list[tuple[str, Array]]:
    """Names and rows: the array of a .npy file, or the array features of a .npz file, named by
    images or ids."""
    opened = np.load(path, allow_pickle=False)
    arrays = {"features": opened} if isinstance(opened, np.ndarray) else opened
    rows = arrays["features"].astype(np.float32)
    names = [str(number) for number in range(len(rows))]
    for key in ("ids", "images"):  # the last one takes precedence
        if key in arrays:
            names = arrays[key].astype(str).tolist()
    return list(zip(names, rows, strict=True))


def find_files(sources: list[Path]) -> Iterator[Path]:
    """The files, and those of folders that have the suffix of an image, or none."""
    for source in sources:
        if not source.is_dir():
            yield source
            continue
        for path in sorted(path for path in source.rglob("[!.]*") if path.is_file()):
            if path.suffix.lower() in SUFFIXES:
                yield path
            else:
                print(f"{path} is left out: its suffix is not that of an image.", file=sys.stderr)


def samples(
    config: dict[str, Any], sources: list[Path], failed: list[Path]
) -> Iterator[tuple[str, Array]]:
    """Names and inputs of the model; files that cannot be read are added to ``failed``."""
    image = config["preprocessing"]
    what = "an image"
    if image is None:
        what = "features: a .npy file, or a .npz file with an array features"
    for path in find_files(sources):
        try:
            if image is None:
                yield from read_features(path)
            else:
                yield str(path), read_image(path, size=image["size"], resize=image["resize"])
        except Exception as problem:  # damaged files make Pillow raise almost any exception
            failed.append(path)
            print(f"{path} cannot be read as {what} ({problem}).", file=sys.stderr)


def main() -> int:
    # onnxruntime would write an id of this machine, and send it
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    import onnxruntime

    onnxruntime.disable_telemetry_events()
    sources = [Path(argument) for argument in sys.argv[1:]]
    if not sources:
        print(__doc__, file=sys.stderr)
        return 2
    folder = Path(__file__).resolve().parent
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    model = str(folder / config["model"])
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    grades = config["grades"]
    names = config["grade_names"]
    columns = ["image", "grade", "grade_name"] if names else ["image", "grade"]
    table = csv.writer(sys.stdout, lineterminator="\n")
    table.writerow([*columns, *(f"p_{grade}" for grade in grades), "expected_grade"])
    failed: list[Path] = []
    rows = samples(config, sources, failed)
    while batch := list(itertools.islice(rows, BATCH)):
        ids, values = zip(*batch, strict=True)
        outputs = session.run(
            ["probabilities", "grade", "severity"], {config["input"]["name"]: np.stack(values)}
        )
        for name, p, grade, severity in zip(ids, *outputs, strict=True):
            named = [names[grades[grade]]] if names else []
            numbers = [f"{value:.6g}" for value in (*p, severity)]
            table.writerow([name, grades[grade], *named, *numbers])
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

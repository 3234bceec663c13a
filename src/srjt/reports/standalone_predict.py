"""Predict grades with the exported model of this folder, without srjt and without torch.

    pip install -r requirements.txt
    python predict.py IMAGES > predictions.csv

IMAGES are image files and folders; for a model of features, one .npy or .npz file of features. Columns: image, grade,
probabilities and the expected grade. An image that cannot be read is named on standard error, and the exit status is 1;
so are DICOM images, which need srjt. Other files of a folder are named.
"""

from __future__ import annotations

import csv
import itertools
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

FORMATS = ("JPEG", "PNG", "BMP", "TIFF", "WEBP", "GIF", "JPEG2000", "PPM")
SUFFIXES = {".jpg", ".jpeg", ".png", ".bmp", ".tif", ".tiff", ".webp", ".gif", ".jp2", ".ppm"}
NEEDS_SRJT = {".dcm", ".dicom"}
UPRIGHT = {  # EXIF orientation → what makes it upright
    2: Image.Transpose.FLIP_LEFT_RIGHT, 3: Image.Transpose.ROTATE_180, 4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE, 6: Image.Transpose.ROTATE_270, 7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}  # fmt: skip
BATCH = 32  # samples that are predicted at a time

Array = npt.NDArray[Any]


def read_image(path: Path, *, size: int, resize: str) -> Array:
    """(size, size, 3) uint8: upright, RGB, on black where it is transparent, resized as for the training."""
    with Image.open(path, formats=FORMATS) as image:
        image.draft(None, (2 * size, 2 * size))  # a large JPEG is decoded at a lower resolution
        image.load()
        orientation = image.getexif().get(0x0112, 1)
        picture = as_rgb(image)
    if orientation in UPRIGHT:
        picture = picture.transpose(UPRIGHT[orientation])
    if picture.size == (size, size):
        return np.array(picture)
    width, height = picture.size
    side = min(width, height)
    left, top = (width - side) / 2, (height - side) / 2
    box = (left, top, left + side, top + side) if resize == "crop" else None  # None: all of it is squashed
    return np.array(picture.resize((size, size), Image.Resampling.BILINEAR, box=box))


def as_rgb(image: Image.Image) -> Image.Image:
    """8 bits per channel, whatever the file has."""
    if image.mode.startswith(("I", "F")):  # 16 or 32 bits
        values = np.asarray(image)
        if image.mode.startswith("I;16") or (image.mode == "I" and image.format == "PNG"):
            values = (values.astype(np.uint32) + 128) // 257
        else:  # no defined white: from the smallest value to the largest
            values = values.astype(np.float64)
            finite = values[np.isfinite(values)]
            low, high = (finite.min(), finite.max()) if finite.size else (0.0, 0.0)
            if image.mode == "F" and finite.size == values.size and low >= 0 and high <= 1:
                low, high = 0.0, 1.0
            share = (values - low) / (high - low) if high > low else np.zeros(values.shape)
            values = np.rint(255 * np.nan_to_num(share, nan=0.0, posinf=1.0, neginf=0.0))
        return Image.fromarray(values.astype(np.uint8)).convert("RGB")
    if image.has_transparency_data:
        layers = image.convert("RGBA")
        black = Image.new("RGBA", layers.size, (0, 0, 0, 255))
        return Image.alpha_composite(black, layers).convert("RGB")
    return image.convert("RGB")


def find_images(sources: list[Path], left_out: list[Path]) -> Iterator[Path]:
    """Files with the suffix of an image, or with none; other files of a folder are added to ``left_out``."""
    for source in sources:
        if not source.is_dir():
            yield source
            continue
        for path in sorted(path for path in source.rglob("[!.]*") if path.is_file()):
            if path.suffix == "" or path.suffix.lower() in SUFFIXES:
                yield path
            else:
                left_out.append(path)


def samples(config: dict[str, Any], sources: list[Path], failed: list[Path]) -> Iterator[tuple[str, Array]]:
    """Names and inputs of the model; images that cannot be read are added to ``failed``."""
    if config["input"]["name"] == "features":
        try:
            opened = np.load(sources[0], allow_pickle=False)
            arrays = {"features": opened} if isinstance(opened, np.ndarray) else opened
            rows = arrays["features"]
        except (OSError, ValueError, KeyError):
            failed.append(sources[0])
            print(f"{sources[0]} is no .npy file, nor a .npz file with an array features.", file=sys.stderr)
            return
        numbers = [str(row) for row in range(len(rows))]
        names = (arrays[key].astype(str).tolist() for key in ("images", "ids") if key in arrays)
        yield from zip(next(names, numbers), rows.astype(np.float32), strict=True)
        return
    how = config["preprocessing"]
    left_out: list[Path] = []
    for path in find_images(sources, left_out):
        try:
            yield str(path), read_image(path, size=how["size"], resize=how["resize"])
        except Exception as problem:  # damaged files make Pillow raise almost any exception
            failed.append(path)
            print(f"{path} cannot be read as an image: {problem}", file=sys.stderr)
    for path in left_out:
        if path.suffix.lower() in NEEDS_SRJT:
            failed.append(path)
        print(f"{path} is left out: its suffix is not that of an image.", file=sys.stderr)


def batches(rows: Iterator[tuple[str, Array]]) -> Iterator[tuple[list[str], Array]]:
    while batch := list(itertools.islice(rows, BATCH)):
        names, values = zip(*batch, strict=True)
        yield list(names), np.stack(values)


def main() -> int:
    import onnxruntime

    sources = [Path(argument) for argument in sys.argv[1:]]
    if not sources:
        print(__doc__, file=sys.stderr)
        return 2
    if missing := [source for source in sources if not source.exists()]:
        print(f"{missing[0]} does not exist.", file=sys.stderr)
        return 2
    folder = Path(__file__).resolve().parent
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    session = onnxruntime.InferenceSession(str(folder / config["model"]), providers=["CPUExecutionProvider"])
    grades, names = config["grades"], config["grade_names"]
    columns = ["image", "grade", *(["grade_name"] if names else [])]
    table = csv.writer(sys.stdout, lineterminator="\n")
    table.writerow([*columns, *(f"p_{grade}" for grade in grades), "expected_grade"])
    failed: list[Path] = []
    for ids, values in batches(samples(config, sources, failed)):
        outputs = session.run(["probabilities", "grade", "severity"], {config["input"]["name"]: values})
        for name, p, grade, severity in zip(ids, *outputs, strict=True):
            named = [names[grades[grade]]] if names else []
            numbers = [f"{value:.6g}" for value in (*p, severity)]
            table.writerow([name, grades[grade], *named, *numbers])
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

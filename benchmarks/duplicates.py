"""Near-duplicate search: its time for 100,000 images, and on your own images its recall and what it
finds.

    python benchmarks/duplicates.py                         # the time, on simulated thumbnails
    python benchmarks/duplicates.py --images FOLDER [--out FILE]    # recall for changed copies, pairs found

Expected: about two minutes for 100,000 images on one core. On photographs: every copy that was
rescaled, recompressed or mirrored is found, and nearly every copy that was cropped by up to 3 % at
each border. Two photographs of the same eye are no near-duplicates unless they are the same
photograph.
"""

from __future__ import annotations

import argparse
import io
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
from PIL import Image

from srjt.data.duplicates import CROPS, HASHED_SIZE, SIDE, near_pairs, thumbnails
from srjt.data.images.decode import IMAGE_SUFFIXES, read_image
from srjt.data.manifest import components


def simulated(count: int, *, copies: int, seed: int = 0) -> np.ndarray:
    """(count, crops, SIDE, SIDE): smooth random images around one common image, as medical images
    are; the last ``copies`` are the first ones with a little noise."""
    rng = np.random.default_rng(seed)
    wave = np.linspace(0, np.pi, SIDE)
    basis = np.array(
        [np.outer(np.cos(a * wave), np.cos(b * wave)) for a in range(6) for b in range(6)],
        dtype=np.float32,
    ).reshape(36, -1)
    weights = rng.normal(size=(count, 36)).astype(np.float32) * 10
    weights[:, [2, 12, 14]] += 30  # what all images have in common
    whole = (weights @ basis + 128).clip(0, 255)
    whole[count - copies :] = (whole[:copies] + rng.normal(size=(copies, SIDE * SIDE))).clip(0, 255)
    thumbs = whole.astype(np.uint8).reshape(count, 1, SIDE, SIDE)
    crops = [thumbs, *(np.roll(thumbs, shift, axis=-1) for shift in range(1, len(CROPS)))]
    return np.concatenate(crops, axis=1)


def changed(image: Image.Image) -> Iterator[tuple[str, Image.Image]]:
    """Copies as they occur in collected data sets."""
    width, height = image.size
    mirrored = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    yield (
        "rescaled to 60 %",
        _saved(image.resize((int(width * 0.6), int(height * 0.6))), quality=85),
    )
    yield "JPEG of quality 40", _saved(image, quality=40)
    yield "mirrored", _saved(mirrored, quality=85)
    yield "brightened by 10 %", _saved(image.point(lambda v: min(255, int(v * 1.1))), quality=85)
    for share in (0.005, 0.012, 0.02, 0.028):
        left, top = round(width * share), round(height * share)
        cropped = image.crop((left, top, width - left, height - top))
        yield f"cropped by {share:.1%} at each border", _saved(cropped, quality=85)


def _saved(image: Image.Image, *, quality: int) -> Image.Image:
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=quality)
    return Image.open(io.BytesIO(buffer.getvalue())).convert("RGB")


def _thumbnails(image: Image.Image) -> np.ndarray:
    return thumbnails(np.array(image.resize((HASHED_SIZE, HASHED_SIZE), Image.Resampling.BILINEAR)))


def measure_images(folder: Path, *, copies: int, out: Path | None) -> None:
    paths = sorted(path for path in folder.rglob("*") if path.suffix.lower() in IMAGE_SUFFIXES)
    started = time.perf_counter()
    thumbs = np.stack([thumbnails(read_image(path, size=HASHED_SIZE)) for path in paths])
    reading = time.perf_counter() - started
    pairs = near_pairs(thumbs)
    print(f"{len(paths):,} images read in {reading:.0f} s; {len(pairs):,} nearly identical pairs:")
    for first, second in pairs[:40].tolist():
        print(f"  {paths[first].name}  {paths[second].name}")
    chosen = np.random.default_rng(0).choice(len(paths), min(copies, len(paths)), replace=False)
    found: dict[str, list[bool]] = {}
    for row in chosen.tolist():
        for name, image in changed(Image.fromarray(read_image(paths[row]))):
            pair = np.stack([thumbs[row], _thumbnails(image)])
            found.setdefault(name, []).append(len(near_pairs(pair)) == 1)
    for name, hits in found.items():
        print(f"  recall {np.mean(hits):7.1%}  {name}")
    if out is not None:
        rows = [[folder.name, name, len(hits), np.mean(hits)] for name, hits in found.items()]
        head = ["set", "change", "copies", "share"]
        pd.DataFrame(rows, columns=head).to_csv(out, index=False)


def measure_time(count: int) -> None:
    copies = count // 100
    thumbs = simulated(count, copies=copies)
    started = time.perf_counter()
    pairs = near_pairs(thumbs)
    code = components(count, pairs)
    seconds = time.perf_counter() - started
    planted = np.mean(code[:copies] == code[count - copies :])
    print(
        f"{count:,} simulated images: {seconds:.0f} s; {len(pairs):,} pairs; {planted:.1%} of {copies:,} copies found"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--images", type=Path)
    parser.add_argument("--copies", type=int, default=150)
    parser.add_argument("--out", type=Path, help="a CSV file with a row for each change")
    given = parser.parse_args()
    if given.images is None:
        measure_time(given.count)
    else:
        measure_images(given.images, copies=given.copies, out=given.out)
